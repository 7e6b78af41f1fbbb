"""Functions of NumPy's that have no door: their Python source is followed, and what it meets is one break at the user's call."""

from __future__ import annotations

import traceback
import warnings

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.executor.capture import capture

from . import calls, support

FOLLOWED = """
np.gradient(x); np.gradient(x, axis=1); np.gradient(v, 0.5); np.gradient(x, 2.0, 3.0, edge_order=2)
np.cov(x); np.cov(x, rowvar=False); np.cov(x, y); np.cov(x, ddof=0); np.cov(x.astype(np.float32))
np.cross(x[:, :3], y[:, :3]); np.cross(x[:3], y[:3], axis=0)
np.kron(x, y); np.kron(v, x); np.kron(n, n)
np.polyval(v, x); np.polyval([1.0, 2.0], v); np.polyder(v, 2); np.polyint(v, k=1.0); np.polyadd(v, v[:2]); np.polysub(v[:3], v)
np.vander(v); np.vander(v, 2, increasing=True); np.vander(i)
np.apply_along_axis(lambda r: r * 2, 1, x); np.apply_along_axis(np.cumsum, 0, x); np.apply_over_axes(np.sum, x, [1])
np.linalg.matrix_power(m, 5); np.linalg.matrix_power(m, 0); np.linalg.multi_dot([x, m, m, v])
np.linalg.norm(x, axis=1); np.linalg.vector_norm(x, axis=0, ord=3); np.linalg.matrix_norm(m, ord=1)
np.insert(x, 1, 5.0, axis=1); np.insert(v, [1, 2], [7.0, 8.0]); np.delete(x, [0, 2], axis=1); np.delete(v, slice(0, 2))
np.append(x, y); np.append(x, y, axis=1); np.block([[x, y], [y, x]]); np.trapezoid(x, dx=0.5); np.trapezoid(x, v)
np.average(x, axis=1, weights=v); np.average(x, weights=y, returned=True); np.average(x); np.unwrap(x); np.unwrap(v * 5, period=4.0)
np.ediff1d(v); np.ediff1d(v, to_begin=1.0, to_end=[2.0, 3.0]); np.nanmean(x); np.nanstd(x, axis=0, ddof=1); np.nancumsum(x)
np.nanargmax(x, axis=1); np.select([x < 0.3, x > 0.6], [x, -x], 5.0); np.take_along_axis(x, n % 4, axis=1)
np.column_stack([v, v]); np.diagflat(v, 1); np.diag(v, 2); np.rollaxis(x, 1); np.fft.fftshift(x); np.fft.ifftshift(x, axes=0)
np.tril_indices_from(m); m[np.triu_indices(4, 1)]; np.mgrid[0:3, 0:4] + x; np.r_[v, 1.0, v]; np.c_[v, v]; np.r_['0,2', v, v]
np.hamming(4) * v; np.kaiser(4, 2.0) * v; np.indices((3, 4))[1] + n; np.ix_([0, 1], [2, 3])[0] + n[:2, :2]
np.lib.stride_tricks.sliding_window_view(x, 2, axis=1).sum(axis=-1); np.lib.stride_tricks.sliding_window_view(x, (2, 2))
np.logspace(0, 1, 4) + v; np.fill_diagonal(m, v); np.fill_diagonal(x, 2.0); np.put_along_axis(x, n % 4, 7.0, axis=1)
np.einsum('ij,kj->ik', x, y, optimize=True); np.einsum('ij,kj,kl->il', x, y, x, optimize='optimal')
np.einsum(x, [0, 1], optimize=True)
np.einsum('ij,kj,kl->li', x, y, x, optimize=['einsum_path', (0, 2), (0, 1)]); np.einsum('ij,ij->ji', x, y, optimize=('greedy', 10))
np.einsum('ii,jk,kj->i', m, x, y.T, optimize=True); np.einsum(x, [0, 1], y, [0, 1], optimize='greedy')
np.resize(x, (5, 2)); np.array_split(v, 3); np.broadcast(x, v).shape; np.fromfunction(lambda p, q: p * q, (3, 4)) + x
"""
EXPRESSIONS = [e.strip() for line in FOLLOWED.strip().splitlines() for e in line.split(";")]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_followed(expression):
    found = support.row(expression, expression)
    assert found.becomes in ("native", "constant"), found.reason


@pytest.mark.parametrize(
    "expression", ["np.gradient(x)", "np.cov(x)", "np.average(x, axis=1, weights=v)", "np.kron(x, y)", "np.fill_diagonal(m, v)"]
)
def test_in_c(expression):
    support.row(expression, expression, backend="c")


def test_einsum_of_a_diagonal_is_a_view():
    def f(x):
        return np.einsum("ii->i", x)

    x = np.arange(9.0).reshape(3, 3)
    view = dg.compile(f, fullgraph=True)(x)
    assert np.shares_memory(view, x) and view.flags.writeable and view.strides == f(x).strides


def test_a_window_is_a_read_only_view():
    def f(x):
        return np.lib.stride_tricks.sliding_window_view(x, 2)

    x = np.arange(5.0)
    view = dg.compile(f)(x)
    assert np.shares_memory(view, x) and not view.flags.writeable and view.strides == f(x).strides


def test_a_break_inside_is_one_at_the_call():
    def f(x):
        y = x * 2
        z = np.array2string(y[:1])
        return y + 1, z

    compiled, x = dg.compile(f), np.arange(3.0)
    for _ in range(2):
        support.assert_same(compiled(x), f(x))
    (stop,) = compiled.stats.breaks
    assert f"test_followed.py:{f.__code__.co_firstlineno + 2}: " in stop and "numpy._core.arrayprint.array2string" in stop


def test_numpys_globals_are_not_guarded():
    def f(x):
        return np.gradient(x)

    guards = capture(f, (np.arange(5.0),)).guards.describe()
    assert any("gradient" in g for g in guards)
    assert len([g for g in guards if g.startswith(("global", "numpy"))]) <= 2, guards


def test_another_gradient_is_another_function(monkeypatch):
    def f(x):
        return np.gradient(x)

    compiled, x = dg.compile(f), np.arange(5.0)
    compiled(x)
    monkeypatch.setattr(np, "gradient", lambda x: x * 3)
    support.assert_same(compiled(x), x * 3)


def test_what_numpy_raises_on_data_numpy_raises():
    def f(x, w):
        return np.average(x, weights=w) + 1

    compiled, x = dg.compile(f), np.arange(3.0)
    support.assert_same(compiled(x, np.ones(3)), f(x, np.ones(3)))
    with pytest.raises(ZeroDivisionError, match="Weights sum to zero"):
        compiled(x, np.zeros(3))
    support.assert_same(compiled(x, np.ones(3)), f(x, np.ones(3)))
    assert not compiled.stats.breaks


def test_what_numpy_warns_of_data_numpy_warns_of():
    def f(x):
        return np.nanmean(x, axis=1) + 1

    compiled, x = dg.compile(f), np.arange(6.0).reshape(2, 3)
    support.assert_same(compiled(x), f(x))
    x[1] = np.nan
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        given = compiled(x)
    assert [(w.category, w.filename) for w in seen] == [(RuntimeWarning, __file__)]
    np.testing.assert_array_equal(given, [2.0, np.nan])


def test_an_exception_is_caught():
    def f(x):
        try:
            y = np.kron(x, np.gradient(x[:1]))
        except ValueError as error:
            return x + 1, str(error), error
        return y

    compiled, x = dg.compile(f), np.arange(3.0)
    wanted, given = f(x), compiled(x)
    support.assert_same(given[:2], wanted[:2])
    frames = [[frame.name for frame in traceback.extract_tb(r[2].__traceback__)] for r in (given, wanted)]
    assert frames[0][1:] == frames[1][1:]


def test_arguments_that_do_not_fit_are_numpys_error():
    def f(x):
        return np.gradient(), x + 1

    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        dg.compile(f)(np.ones(3))


def test_a_class_that_takes_over_is_asked():
    class Mine:
        def __array_function__(self, function, kinds, args, kwargs):
            return "mine"

    mine = Mine()

    def f(x):
        return x + 1, np.gradient(mine)

    assert dg.compile(f)(np.ones(2))[1] == "mine"


def test_long_loops_are_left_to_numpy():
    def f(x):
        return np.apply_along_axis(np.sum, 1, x) + 1

    compiled, x = dg.compile(f), np.ones((200, 2))
    support.assert_same(compiled(x), f(x))
    assert any("unroll-limit" in text for text in compiled.stats.breaks)


def test_known_arrays_decide():
    def f(x):
        shape = np.array([2, 2])
        if np.all(shape > 1) and int(shape.sum()) == 4 and shape[0]:
            return [x.reshape(shape)[k] for k in range(shape[1])]
        return x

    support.assert_same(dg.compile(f, fullgraph=True)(np.arange(4.0)), f(np.arange(4.0)))


def test_arguments_are_new_at_each_call():
    assert calls.arguments()["x"] is not calls.arguments()["x"]
