"""Arrays that native loops make: their values, who shares them, where they are handed over to Python, what frees them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest

import dynagraph as dg

RNG = np.random.default_rng(5)
A = RNG.random((6, 6)) + 6 * np.eye(6)
X = RNG.random(6)


def descends(A, b, steps):
    x = np.zeros(len(b))
    for _ in range(steps):
        x = x - 0.05 * (A @ x - b)
    return x


def conjugate(A, b, steps):
    x = np.zeros_like(b)
    r = b - A @ x
    p = r
    rs = r @ r
    for k in range(steps):  # noqa: B007
        Ap = A @ p
        alpha = rs / (p @ Ap)
        x = x + alpha * p
        r = r - alpha * Ap
        new = r @ r
        if np.sqrt(new) < 1e-12:
            break
        p = r + (new / rs) * p
        rs = new
    return x, r, p, k


def power(A, b, steps):
    v = b / np.linalg.norm(b)
    for _ in range(steps):
        w = A @ v
        v = w / np.linalg.norm(w)
    return v, v @ (A @ v)


def by_columns(A, b, steps):
    y = b
    for _ in range(steps):
        y = A.T @ y
        y /= np.abs(y).max()
        y = A[1:, :].T @ y[1:]
        y = y / y.sum()
    return y


def aliases(A, b, steps):
    x = b * 1.0
    y = z = x
    for k in range(steps):
        y = x + k
        z = y
        z[0] += 1
        x = y if k % 3 else z * 0.5
    return x, y, z, y is z


def joined(A, b, steps):
    h = np.zeros(2)
    for k in range(steps):
        z = np.concatenate((h, b[1:4], h * 2, A[:, 1]))
        h = np.hstack((z[3:4], 0.5 * z[5:6] + k))
    return z, h


def chosen(A, b, steps):
    x = b.astype(np.float32)
    for k in range(steps):
        b = np.where(b > 2.5, b * 0.5, b + A[0])
        x = np.where((x < 1) | (x > 3), x, 1.25)
        c = np.where(k < A, A, 1)
        n = np.where(b > 1, k, 2)
    return b, x, c, n, np.where(b > 0, b, np.float32(2))


def views(A, b, steps):
    w = b
    for k in range(steps):
        v = A * (k + 1)
        w = v[1:, k % 4]
        v[2] += w.sum()
    return v, w


def reductions(A, b, steps):
    total, seen = 0.0, 0
    for k in range(steps):
        y = (A[k % 6] - 6.2) * b
        total += y.sum() + y.max() - y.min() + y.mean() + np.sum(A * k)
        seen += y.argmax() + y.argmin() + (y > 0).sum() + (1 if (y > 0).any() else 0) + (2 if (y < 5).all() else 0)
    return total, seen


def constructors(A, b, steps):
    for k in range(steps):
        x = np.zeros(k + 1)
        x[k] = k
        y = np.full((2, k + 1), 1.5)
        y[0] += x
        z = np.ones(3, dtype=np.int32)
        z[1] = k
        w = A.copy()
        w[0, 0] = k
    return x, y, z, w, np.empty_like(z).shape


def products(A, b, steps):
    M = A
    for _ in range(steps):
        M = M @ A
        M = M / np.abs(M).max()
        b = b @ M
    return M, b


def blended(u, v, t):
    u = u * (1 - t)
    return u + v * t


def called(A, b, steps):
    x = b
    for k in range(steps):
        x = blended(x * 2, A[k % 6], 0.25) - x
    return x


def rows_of_new(A, b, steps):
    total = 0.0
    for k in range(steps):
        for u, v in zip(A * k, A[::-1] + k):
            total += u @ v
    return total


PROGRAMS = (
    descends, conjugate, power, by_columns, aliases, joined, chosen, views, reductions, constructors, products, called, rows_of_new,
)  # fmt: skip


def same(got, want):
    if isinstance(want, tuple):
        assert type(got) is tuple and len(got) == len(want)
        for g, w in zip(got, want):
            same(g, w)
        for i, w in enumerate(want):
            for j in range(i):
                if isinstance(w, np.ndarray) and isinstance(want[j], np.ndarray):
                    assert (got[i] is got[j]) == (w is want[j])
                    assert np.shares_memory(got[i], got[j]) == np.shares_memory(w, want[j])
        return
    assert type(got) is type(want)
    if isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.flags.writeable == want.flags.writeable
        assert got.strides == want.strides or not want.size
    np.testing.assert_array_equal(got, want)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_new_arrays(program):
    compiled = dg.compile(program)
    for steps in (40, 1, 41, 9):
        same(compiled(A.copy(), X.copy(), steps), program(A.copy(), X.copy(), steps))
    assert not compiled.stats.fallbacks
    assert not any("loop-in-python" in line for line in compiled.stats.breaks)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("dtype", (np.float64, np.float32, np.int64, np.int8, np.uint16, np.bool_))
@pytest.mark.parametrize("layout", ("packed", "reversed", "spread", "square", "nan"))
def test_reductions_have_numpys_bits(dtype, layout):
    def reduces(x, n):
        found = x.sum()
        for k in range(n):
            found = (x.sum(), x.max(), x.min(), x.argmax(), x.argmin(), x.any(), x.all(), np.sum(x), k)
        return found

    compiled = dg.compile(reduces)
    for size in (1, 7, 8, 129, 4099):
        x = (RNG.normal(size=2 * size) * 30).astype(dtype)
        x = {"packed": x, "reversed": x[::-1], "spread": x[::2], "square": x[: 2 * size].reshape(2, size), "nan": x}[layout]
        if layout == "nan" and x.dtype.kind == "f":
            x[size // 2] = np.nan
        same(compiled(x, 10), reduces(x, 10))
    assert not compiled.stats.fallbacks


@pytest.mark.parametrize("dtype", (np.float64, np.float32))
def test_products_have_numpys_bits(dtype):
    def multiplies(a, b, n):
        for _ in range(n):
            found = a @ b
        return found

    for m, k, n in ((64, 33, 65), (1, 5, 4), (4, 5, 1), (3, 1, 2)):
        compiled = dg.compile(multiplies)
        a, b = RNG.random((m, k)).astype(dtype), RNG.random((k, n)).astype(dtype)
        big = RNG.random((2 * m, 2 * k)).astype(dtype)
        for left in (a, np.asfortranarray(a), big[::2, ::2]):
            for right in (b, b[:, 0], RNG.random(k).astype(dtype)[::-1]):
                same(compiled(left, right, 10), multiplies(left, right, 10))
        same(compiled(a[0], b, 10), multiplies(a[0], b, 10))
        same(compiled(a, a.T, 10), multiplies(a, a.T, 10))
        assert not compiled.stats.fallbacks


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("function", [np.dot, np.inner, np.vdot, np.matmul], ids=lambda f: f.__name__)
def test_products_of_vectors_with_any_step_have_numpys_bits(function, dtype):
    """NumPy copies some before it calls BLAS, which adds in another order than a loop does."""

    def products(xs, ys, n):
        found = 0.0
        for _ in range(n):
            found = function(xs, ys), xs.dot(ys), np.linalg.norm(xs), np.linalg.norm(ys)
        return found

    n = 700
    x, y = np.random.default_rng(3).normal(size=(2, 2 * n)).astype(dtype)
    compiled = dg.compile(products)
    for xs in (x[:n], x[::2], x[n - 1 :: -1], x[::-2], np.broadcast_to(x[:1], (n,))):
        same(compiled(xs, y[:n], 9), products(xs, y[:n], 9))
        same(compiled(y[:n], xs, 9), products(y[:n], xs, 9))
    same(compiled(x[:1][::-1], y[:1], 9), products(x[:1][::-1], y[:1], 9))
    assert any(p.captured.loop for p in compiled.programs)


def test_what_python_would_raise():
    def fails(x, y, n):
        for k in range(n):
            z = x * k
            z = z + (y if k < 20 else y[1:])
        return z

    compiled = dg.compile(fails)
    with pytest.raises(ValueError, match="broadcast") as caught:
        compiled(X, X, 30)
    assert caught.traceback[-1].lineno + 1 == fails.__code__.co_firstlineno + 3

    def negative(n):
        for k in range(n):
            x = np.zeros(12 - k)
        return x

    with pytest.raises(ValueError, match="negative dimensions"):
        dg.compile(negative)(30)


def test_operands_are_read_before_they_are_written_to():
    def changes(x):
        x[0] += 1
        return x[0]

    def f(x, n):
        total = 0.0
        for _ in range(n):
            total += (x * 2 + changes(x))[0]
        return total

    same(dg.compile(f)(X.copy(), 30), f(X.copy(), 30))


def test_memory_is_freed():
    def f(x, n):
        y = x
        for k in range(n):
            y = x + k
            z = y * 2
        return y, z

    compiled = dg.compile(f)
    x = np.zeros(250_000)
    y, z = compiled(x, 300)  # 1.2 GB, if nothing were freed
    same((y, z), f(x, 300))
    assert y.flags.owndata and y.base is None
    y.resize(10, refcheck=False)
    assert sys.getrefcount(y) == 2
    del y, z
    gc.collect()


def test_memory_is_given_back_to_whom_it_was_taken_from(tmp_path):
    """NumPy 2.5 frees what is its own by Python's allocator, whose debug mode checks each block."""
    script = tmp_path / "script.py"
    script.write_text("""if True:
        import numpy as np
        import dynagraph as dg

        @dg.compile
        def f(x, n):
            for k in range(n):
                x = x + k
            return x

        for size in (3, 1000, 200_000):
            y = f(np.ones(size), 20)
            assert y.flags.owndata and (y == 191).all()
            y.resize(2 * size, refcheck=False)
            y.resize(0, refcheck=False)
            del y
        """)
    environment = {**os.environ, "PYTHONMALLOC": "debug"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=240)
    assert (done.returncode, done.stderr) == (0, "")


def test_arrays_that_an_exit_hands_over():
    def f(x, n):
        y = x
        for k in range(n):
            y = y * 0.5 + k
            v = y[1:]
            if k % 7 == 3:
                y = np.sort(y)[::-1].copy()
                v[0] = -1
        return y, v

    compiled = dg.compile(f)
    for n in (30, 10, 31):
        same(compiled(X.copy(), n), f(X.copy(), n))
    assert not compiled.stats.fallbacks


def test_arguments_that_native_code_has_not():
    def f(x, A, n):
        y = x
        for k in range(n):
            z = np.zeros(3, order="F") + np.sum(A, 0)[:3] + np.max(A, axis=1)[:3] + np.ones((3,), int, "C")
            y = x * (k + 1) + np.linalg.norm(x, 1) + z.sum() + np.copy(A, "F").sum() + round(1.26, 1)
        return y

    compiled = dg.compile(f)
    same(compiled(X.copy(), A.copy(), 40), f(X.copy(), A.copy(), 40))
    assert not compiled.stats.fallbacks


def test_a_sum_of_an_array_that_changes_is_asked_in_each_turn():
    def f(x, n):
        s = 0.0
        for i in range(n):
            s += 1.0 / float(x.sum())
            x[i] = -1.0
        return s

    for g in (f, dg.compile(f)):
        x = np.ones(40)
        with pytest.raises(ZeroDivisionError):
            g(x, 40)
        assert (x == -1.0).sum() == 20


def by_new_axes(A, b, steps):
    total = 0.0
    for k in range(steps):
        d = A[:, None, :] - b[None, None, :] * k
        e = b[:, None] * b + A[None][0]
        f = A[k % 3, :, None] + b[None, 1:4]
        A[1:] = A[0][None, :] * 0.5 + b[None]
        A[:, k % 2] = b
        b[...] = b[None, :][0] * 0.9
        g = np.zeros((len(b), 1)) + k
        h = A * g + g[:, 0]
        total += d.sum() + e[1, 2] + f.max() + h[2, 1] + d.shape[1]
    return total, A, b, d, e, f, h


def test_new_axes_are_broadcast():
    compiled = dg.compile(by_new_axes)
    for steps in (12, 30):
        one, other = (A.copy(), X.copy()), (A.copy(), X.copy())
        for wanted, got in zip(by_new_axes(*one, steps), compiled(*other, steps)):
            assert type(wanted) is type(got)
            assert np.array_equal(wanted, got)
            assert np.shape(wanted) == np.shape(got)
            assert not isinstance(wanted, np.ndarray) or wanted.strides == got.strides
    assert any("runs as machine code" in loop for p in compiled.programs for loop in p.loops)
