"""Complex numbers and halves through the whole of it: compiled C against the plain call, memory and its views included."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(5, 6)) + 1j * RNG.normal(size=(5, 6))
H = RNG.normal(size=(7, 40)).astype(np.float16)
ROUNDING = {"complex64": 1e-5, "float32": 1e-5, "float16": 4e-3}


def same(got, want):
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
        return
    assert got.dtype == want.dtype and got.shape == want.shape
    if isinstance(want, np.ndarray):
        assert got.flags.writeable == want.flags.writeable and got.strides == want.strides
    tolerance = ROUNDING.get(want.dtype.name, 1e-12)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def check(function, *args):
    """In one graph, twice; arguments are what they are after the plain call."""
    compiled = dg.compile(function, fullgraph=True, backend="c")
    for _ in range(2):
        plain, given = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
        want = function(*plain)
        same(compiled(*given), want)
        same([a for a in given if isinstance(a, np.ndarray)], [a for a in plain if isinstance(a, np.ndarray)])
    return compiled


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_functions_of_complex_arrays(dtype):
    z = Z.astype(dtype)
    check(lambda z: (z * 2j, z * 1.5, np.exp(z), abs(z), np.sqrt(z), np.log(z), np.sin(z), z**2, z / (z + 1), z**-1, z**0.5), z)
    check(lambda z: (z.sum(0), z.mean(), z.std(axis=1), z.var(), z.max(), z.argmax(1), np.prod(z), np.cumsum(z, 1)), z)
    check(lambda z: (z @ z.T, np.vdot(z, z), np.linalg.norm(z), np.angle(z), np.where(z.real > 0, z, 0), z[::2, 1:], z[[3, 0]]), z)
    check(lambda z: (z[3, 2], z[3, 2].real, z[0, 0] * z[0, 1], abs(z[0, 0])), z)


def test_complex_numbers_beside_real_arrays():
    check(lambda x: (x * 1j, x + 1j, np.exp(1j * x), x.astype(complex), x.imag + 1), Z.real.copy())
    check(lambda x, k: x * k, Z.real.copy(), np.complex64(2 - 1j))


def test_parts_are_views():
    def write(z):
        z.real[1:] = 3
        z.imag *= 2
        z[0] = 1j
        z.real = z.imag[:, :1]
        return z.real, z.imag[::2], z.T.real

    def write_to_new(z):
        y = z * 2
        part = y.real
        part[0] = 5
        return y, part

    for dtype in ("complex64", "complex128"):
        check(write, Z.astype(dtype))
        check(write_to_new, Z.astype(dtype))
    given = Z[:, ::2]
    real, imag = dg.compile(lambda z: (z.real, z.imag))(given)
    assert np.shares_memory(real, given) and real.strides == given.real.strides and np.array_equal(imag, given.imag)


def test_reshapes_of_parts_are_views_where_numpys_are():
    def write(z):
        copy, view = z.real.ravel(), z.imag.reshape(-1)
        copy[0], view[1] = 50, 70
        np.ascontiguousarray(z.real)[0] = 1
        z.real.T[1] = 2
        return z.sum(), copy, view, z.real.flatten()

    check(write, Z)


def test_what_a_mask_chooses_of_complex_numbers_and_halves():
    for x in (Z, Z.astype("complex64"), H):
        plain = lambda x: (x[abs(x) > 1].sum(), x[abs(x) > 1].max(), x[abs(x) > 1].mean(), x[abs(x) > 3].prod())  # noqa: E731
        compiled = dg.compile(plain)
        same(compiled(x), plain(x))
        assert compiled.stats.fallbacks == 0


def test_complex_numbers_that_change_are_inputs():
    compiled = dg.compile(lambda z, k: z * k + k, fullgraph=True)
    for k in (1j, 2 + 1j, 3 - 2j, 0.5j, complex("nan"), -7j):
        same(compiled(Z, k), Z * k + k)
    assert compiled.counters()["misses"] == 2


def test_an_imaginary_part_that_is_lost_warns():
    with pytest.warns(np.exceptions.ComplexWarning):
        dg.compile(lambda z: z.astype(float) + 1)(Z)


def test_functions_of_halves():
    check(lambda h: (h * 2.5, h * h + h, np.exp(h), np.tanh(h), h.astype("f4"), h.astype(int), h + np.float32(1), h + 1j, h.T), H)
    check(lambda h: (h @ h.T, h.mean(), h.std(axis=1), h.max(), h.argmin(1), np.where(h > 0, h, 0), np.cumsum(h, 1)), H)
    check(lambda h, s: (h * s, h[[0, 2]], h[2, 3] * h[0, 0], np.arange(7, dtype="f2"), h.sum(1) * h[0, 0]), H, np.float16(2.5))

    def write(h):
        h[1:] *= 2
        h[0] = 3
        return h[::2], h[2, 3]

    check(write, H)


def test_every_half_is_rounded_as_numpy_rounds_it():
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    other = RNG.permutation(every)
    compiled = dg.compile(lambda x, y: (x * y, x + y, x / y, x - y, x * y + x, np.sqrt(x), x.astype("f4"), np.maximum(x, y)))
    with np.errstate(all="ignore"):
        for got, want in zip(compiled(every, other), compiled.__wrapped__(every, other)):
            np.testing.assert_array_equal(got, want)


def test_sums_begin_with_zero() -> None:
    """Of negative zeros too, along axes of one element and along none."""
    x = np.full((3, 1), complex(-0.0, -0.0))
    for axis in (0, 1, ()):
        got, want = dg.compile(lambda x, axis=axis: x.sum(axis=axis))(x), x.sum(axis=axis)
        np.testing.assert_array_equal(np.signbit(got.real), np.signbit(want.real))
        np.testing.assert_array_equal(np.signbit(got.imag), np.signbit(want.imag))


def test_products_of_vectors_take_the_conjugate_of_the_left() -> None:
    z, m = np.array([1, 2j, 3]), np.arange(9.0).reshape(3, 3) * (1 - 2j)
    for function in (lambda z, m: np.vecdot(z, m), lambda z, m: np.vecmat(z, m), lambda z, m: np.matvec(m, z)):
        np.testing.assert_allclose(dg.compile(function, fullgraph=True)(z, m), function(z, m))
