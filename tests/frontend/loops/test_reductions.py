"""Reductions along axes in native loops have NumPy's bits, types, shapes and errors."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_displays import outcome, program
from tests.frontend.loops.test_new_arrays import same

RNG = np.random.default_rng(17)
NAMES = ("sum", "mean", "max", "min", "argmax", "argmin", "any", "all")
SHAPES = ((5, 300), (300, 5), (1, 7), (7, 1), (1, 1), (9, 130, 3), (3, 1, 140), (140, 1, 1), (2, 3, 4, 5), (0, 3), (3, 0))


AXES = {2: (0, 1, -1, None), 3: (0, 1, -1, (0, 1), (-1, 1), (0, 2)), 4: (0, 2, (1, 2), (1, 2, 3))}


def check(name, ndim, axes, dtype, keepdims):
    axes = [a for a in axes if not (name.startswith("arg") and isinstance(a, tuple))]
    plain, compiled = program(", ".join(f"x.{name}(axis={a}{keepdims})" for a in axes) + f", np.{name}(x, {axes[0]})")
    for shape in (s for s in SHAPES if len(s) == ndim):
        x = (RNG.normal(size=shape) * 30).astype(dtype)
        same(outcome(compiled, x, x, 11), outcome(plain, x, x, 11))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_reductions_along_axes(name):
    for ndim, axes in AXES.items():
        check(name, ndim, axes, np.float64, "")
    check(name, 3, AXES[3], np.float64, ", keepdims=True")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", (np.float32, np.int32, np.uint8, np.bool_))
def test_dtypes(dtype):
    for name in NAMES:
        check(name, 3, (0, -1), dtype, "")


LAYOUTS = {
    "fortran": lambda x: np.asfortranarray(x), "transposed": lambda x: x.T, "reversed": lambda x: x[::-1],
    "backwards": lambda x: x[:, ::-1], "spread": lambda x: x[:, ::2], "rows": lambda x: x[::2], "part": lambda x: x[1:, 1:-1],
    "broadcast": lambda x: np.broadcast_to(x[0], x.shape), "column": lambda x: x[:, :1], "row": lambda x: x[:1],
    "swapped": lambda x: x.reshape(4, -1, 10).swapaxes(0, 1), "zeros": lambda x: x * -0.0, "infinite": lambda x: x / 0.0,
    "nan": lambda x: np.where(x > 1, np.nan, x), "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore")
def test_layouts(layout):
    x = LAYOUTS[layout](RNG.normal(size=(40, 20)))
    for name in NAMES:
        plain, compiled = program(", ".join(f"x.{name}(axis={a})" for a in (0, 1, -1)))
        same(compiled(x, x, 11), plain(x, x, 11))


@pytest.mark.parametrize("dtype", (np.float64, np.float32))
def test_of_arrays_that_the_loop_makes(dtype):
    def distances(x, n):
        for k in range(n):
            d = x[None, :, :] - x[:, None, :]
            d2 = (d * d).sum(axis=-1) + k
            force = (d * (1 / (d2 + 1))[:, :, None]).sum(axis=1)
            labels = d2.argmin(axis=1)
            spread = (x - x.mean(axis=0)) / (x.max(axis=0, keepdims=True) - x.min(axis=0, keepdims=True) + 1)
        return d2, force, labels, spread, spread.mean(axis=1)

    compiled = dg.compile(distances)
    for n in (2, 1, 30):
        x = RNG.random((n, 3)).astype(dtype)
        same(compiled(x, 11), distances(x, 11))
    assert not compiled.stats.calls_out and not compiled.stats.side_exits and not compiled.stats.fallbacks


def test_many_axes():
    def windows(x, w, n):
        for k in range(n):
            part = x[:, k : k + 3, k : k + 3, :, None]
            y = np.sum(part * w[None], axis=(1, 2, 3))
            z = (part * w[None]).copy()
            z[0, 1, 2, :, 0] = z[1, 1, 2, :, 1] * k
            v = np.zeros((1, 2, 1, 2, 1, 2, 1, k + 1))
            v[0, 1, 0, 1, 0, 1, 0] += z.max()
        return y, z, v

    compiled = dg.compile(windows)
    for _ in range(2):
        x, w = RNG.random((2, 14, 14, 3)), RNG.random((3, 3, 3, 4))
        same(compiled(x, w, 12), windows(x, w, 12))
    assert not compiled.stats.calls_out and not compiled.stats.side_exits


def test_overlaps_of_many_axes():
    def moves(x, n):
        for k in range(n):
            x[1:] = x[:-1] * 0.5
            x[:, :, :, 1:] += x[:, :, :, :-1]
            x[:, ::-1] = x[:, :, :, ::-1] + k
        return x

    compiled = dg.compile(moves)
    for shape in ((3, 4, 2, 5), (1, 3, 3, 3), (2, 0, 2, 2)):
        x = RNG.random(shape)
        same(compiled(x.copy(), 11), moves(x.copy(), 11))


BAD = ("x.sum(axis=2)", "x.sum(axis=(0, 0))", "x.sum(axis=1.0)", "x.argmax(axis=(0, 1))", "x.max(axis=0, k=1)")


@pytest.mark.parametrize("call", BAD)
def test_errors(call):
    plain, compiled = program(call)
    for _ in range(2):
        assert outcome(compiled, np.ones((3, 3)), 0, 11) == outcome(plain, np.ones((3, 3)), 0, 11)


def test_gradients_go_through_reductions():
    def energy(x, n):
        total = 0.0
        for _ in range(n):
            d = x[None, :] - x[:, None]
            x = x + 0.01 * (d / (1 + d * d)).sum(axis=1)
            total = total + (x * x).sum() + d.sum(axis=0).max()
        return total

    gradient = dg.grad(energy)
    x, step = RNG.random(4), 1e-6
    for k, shift in enumerate(np.eye(4) * step):
        want = (energy(x + shift, 12) - energy(x - shift, 12)) / (2 * step)
        np.testing.assert_allclose(gradient(x, 12)[k], want, rtol=1e-4, atol=1e-6)
