"""Every ufunc with every way to call it: out=, where=, dtype=, signature=, reduce, accumulate, reduceat, outer, at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dynagraph.doors.numpy import lookup
from tests.sampling import some

from .compiled import compare
from .harness import DTYPES, sample

EVERY = sorted({f for f in vars(np).values() if isinstance(f, np.ufunc)}, key=lambda u: u.__name__)
WITHOUT_DOOR = {np.isnat}  # of dates
UFUNCS = [u for u in EVERY if u.signature is None and u not in WITHOUT_DOOR]
BINARY = [u for u in UFUNCS if u.nin == 2 and u.nout == 1]
FEW = ("bool", "int8", "int64", "uint32", "float32", "float64")
# their last bits depend on which of NumPy's loops runs: on one element, on many, with a stride
INEXACT = {np.power, np.float_power, np.hypot, np.logaddexp, np.logaddexp2, np.arctan2}
SUMS = {np.add, np.multiply}  # ... and the order of these
NEVER = {np.float_power, np.ldexp}  # neither reduced nor accumulated

by_ufunc = pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
by_binary = pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
MASK = np.array([True, False, True, True])


def test_every_ufunc_has_a_door():
    assert {u for u in EVERY if lookup(u) is None} == WITHOUT_DOOR


def operands(ufunc: np.ufunc, k: int, shape: tuple[int, ...] = (3, 4)) -> list[np.ndarray]:
    """Of the k-th dtypes; the second one is another one."""
    return [sample(shape, DTYPES[(k + 3 * n) % len(DTYPES)], k + n) for n in range(ufunc.nin)]


def results(ufunc: np.ufunc, xs: list[np.ndarray]) -> list[np.ndarray]:
    """What the ufunc gives; nothing where it does not take the operands."""
    try:
        with np.errstate(all="ignore"):
            found = ufunc(*xs)
    except (TypeError, ValueError):
        return []
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.sampled(6)
@by_ufunc
def test_results_in_arrays(ufunc):
    exact, captured = ufunc not in INEXACT, 0
    takes = {k: bool(results(ufunc, operands(ufunc, k))) for k in range(len(DTYPES))}
    for k in [k for kind in (True, False) for k in some([k for k in takes if takes[k] is kind], 7, ufunc.__name__)]:
        xs = operands(ufunc, k)
        made = results(ufunc, xs)
        n = len(xs)
        for dtype in (None, "float64", "int16"):
            outs = [np.ones((2, *r.shape) if dtype else r.shape, dtype or r.dtype) for r in made]
            taken = compare(lambda *a: ufunc(*a[:n], out=a[n:]), *xs, *outs, exact=exact)
            compare(lambda *a: ufunc(*a), *xs, *outs, exact=exact)
            compare(lambda m, *a: (ufunc(*a[:n], out=a[n:], where=m), a), MASK, *xs, *outs, exact=exact)
            compare(lambda *a: ufunc(*a[:n], out=a[n:], casting="unsafe"), *xs, *outs, exact=exact)
            captured += bool(made) and not taken
    assert captured


@pytest.mark.sampled(3)
@by_ufunc
def test_dtypes_are_asked_for(ufunc):
    for k in some(range(len(DTYPES)), 10, ufunc.__name__):
        xs = operands(ufunc, k)
        for dtype in ("float32", "float64", "int64", "uint8", "bool"):
            for casting in ("same_kind", "unsafe", "no"):
                compare(lambda *a: ufunc(*a, dtype=dtype, casting=casting), *xs, exact=ufunc not in INEXACT)
        kinds = [kind for kind in ufunc.types if not set(kind) & set("OMm")]
        for signature in (kinds[-1], kinds[0], "d" * ufunc.nin + "->" + "d" * ufunc.nout, (None,) * ufunc.nargs):
            compare(lambda *a: ufunc(*a, signature=signature), *xs, exact=ufunc not in INEXACT)


def test_where_without_out():
    x, m = np.arange(4.0), MASK
    assert compare(lambda x, m: np.add(x, 1, where=m)[m], x, m, breaks=True)  # NumPy warns
    compare(lambda x, m: np.where(m, np.add(x, 1, where=m, out=None), 0), x, m, breaks=False)
    compare(lambda x, m: np.where(m, np.sqrt(x, where=[True, False, True, True], out=None), 0), x, m, breaks=False)
    compare(lambda x: np.add(x, 1, where=True), x, breaks=False)
    compare(lambda x, m: np.add(x, 1, where=m, out=x), x, m.astype(int))  # an error


def test_arrays_that_overlap():
    def f(x, y):
        np.modf(x, out=(y, y))
        np.add(x[1:], x[:-1], out=x[1:])
        np.modf(x, x, None)
        np.divmod(x, 2.0, out=(None, y))
        np.add.accumulate(x, out=x)
        np.add.reduce(y.reshape(2, 2), axis=1, out=y[1:3])
        return x, y

    compare(f, np.arange(4.0) * 1.25, np.zeros(4))
    compare(lambda x, y: np.modf(x, out=(x, y)), np.arange(4.0) * 1.25, np.zeros(4), breaks=False)


AXES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((3, 4), 0), ((3, 4), 1), ((3, 4), None), ((3, 4), (0, 1)), ((3, 4), ()), ((0, 3), 0), ((0, 3), 1), ((), 0), ((), None),
    ((1,), 0), ((2, 3, 2), (0, 2)),
)  # fmt: skip


def few(ufunc: np.ufunc) -> list[tuple[int, str]]:
    """bool, which alone comparisons reduce, and some of the others."""
    return [(0, FEW[0]), *some(list(enumerate(FEW))[1:], 3, ufunc.__name__)]


def positive(ufunc: np.ufunc, x: np.ndarray) -> np.ndarray:
    return np.abs(x) if ufunc is np.power else x


@pytest.mark.sampled(6)
@by_binary
def test_reduce(ufunc):
    exact, captured = ufunc not in INEXACT | SUMS, 0
    for k, dtype in few(ufunc):
        for shape, axis in AXES:
            x = positive(ufunc, sample(shape, dtype, k))
            captured += not compare(lambda x: ufunc.reduce(x, axis=axis), x, exact=exact)
            compare(lambda x: ufunc.reduce(x, axis=axis, keepdims=True, initial=1), x, exact=exact)
        x = positive(ufunc, sample((3, 4), dtype, k))
        compare(lambda x, m: ufunc.reduce(x, axis=1, where=m), x, MASK, exact=exact)
        compare(lambda x, m: ufunc.reduce(x, axis=0, where=m, initial=2), x, MASK, exact=exact)
        compare(lambda x: ufunc.reduce(x, axis=1, initial=None), x, exact=exact)
        for other in ("float32", "int64", "uint8", "bool"):
            compare(lambda x: ufunc.reduce(x, axis=1, dtype=other), x, exact=exact)
            compare(lambda x, o: ufunc.reduce(x, axis=1, out=o), x, np.ones(3, other), exact=exact)
            compare(lambda x, o: ufunc.reduce(x, 0, None, (o,)), x, np.ones(4, other), exact=exact)
            compare(lambda x, o: ufunc.reduce(x, 0, None, o, True), x, np.ones((1, 4), other), exact=exact)
    assert captured or ufunc in NEVER | {np.arctan2}


@pytest.mark.sampled(3)
@by_binary
def test_accumulate_and_reduceat(ufunc):
    exact, captured = ufunc not in INEXACT | SUMS, 0
    for k, dtype in few(ufunc):
        x = positive(ufunc, sample((3, 4), dtype, k))
        taken = compare(lambda x: (ufunc.accumulate(x), ufunc.accumulate(x, 1), ufunc.accumulate(x[:, 0])), x, exact=exact)
        captured += not taken
        compare(lambda x: ufunc.accumulate(x, 1), x[:, :0], exact=exact)
        for other in ("float32", "int64", "uint8"):
            compare(lambda x: ufunc.accumulate(x, 1, dtype=other), x, exact=exact)
            compare(lambda x, o: ufunc.accumulate(x, 1, out=o), x, np.ones((3, 4), other), exact=exact)
        compare(lambda x: (ufunc.reduceat(x, [0, 2, 1, 1], axis=0), ufunc.reduceat(x, (0, 2, 3), 1)), x, exact=exact)
        compare(lambda x: ufunc.reduceat(x, [0, 4], axis=1), x, exact=exact)
    assert captured or ufunc in NEVER


@pytest.mark.sampled(3)
@by_binary
def test_at(ufunc):
    places = np.array([0, 2, 0, -1, 0])
    for k, dtype in some(enumerate(DTYPES), 4, ufunc.__name__):
        x, v = positive(ufunc, sample((3, 4), dtype, k)), positive(ufunc, sample((5, 4), dtype, k + 1))
        compare(lambda x, i, v: ufunc.at(x, i, v), x, places, v, exact=ufunc not in INEXACT)
        compare(lambda x, i: ufunc.at(x, i, 2), x, places, exact=ufunc not in INEXACT)
        compare(lambda x, i: ufunc.at(x, i, 0.1), x, places, exact=ufunc not in INEXACT)
        other = v.real.astype("float64" if k % 2 else "int64")
        compare(lambda x, i, v: ufunc.at(x, i, v), x, places, other, exact=ufunc not in INEXACT)


@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin == 2], ids=lambda u: u.__name__)
def test_outer(ufunc):
    for k in some(range(len(DTYPES)), 5, ufunc.__name__):
        x, y = operands(ufunc, k)
        compare(lambda x, y: ufunc.outer(x, y), x, y[0], exact=ufunc not in INEXACT)
        compare(lambda x: ufunc.outer(x, 2), x, exact=ufunc not in INEXACT)
        compare(lambda x, y: ufunc.outer(x, y, dtype="float64"), x, y, exact=ufunc not in INEXACT)


@pytest.mark.sampled(6)
@by_ufunc
def test_machine_code(ufunc):
    """One function with all of it."""

    def f(*arrays):
        made = []
        for at in range(0, len(arrays), 3):
            xs, out = arrays[at : at + ufunc.nin], arrays[at + 2]
            made.append(ufunc(*xs))
            if ufunc.nout == 1:
                made.append(ufunc(*xs, out=out, where=xs[0] > 0, casting="unsafe"))
            if ufunc in BINARY and ufunc not in NEVER | INEXACT:
                made += [ufunc.accumulate(xs[0], 1), ufunc.reduce(xs[0], 0), ufunc.reduceat(xs[0], [0, 2], 1)]
        return made

    arrays: list[np.ndarray] = []
    for k, dtype in some(enumerate(("float32", "float64", "int8", "int64", "uint16", "bool")), 2, ufunc.__name__):
        xs = [np.abs(sample((6, 5), dtype, k + n)) for n in range(2)]
        if ufunc is np.ldexp:
            xs[1] = xs[1].astype("int32")
        made = results(ufunc, xs[: ufunc.nin])
        if made and all(r.dtype.name in DTYPES for r in made) and ufunc not in (np.reciprocal,):
            arrays += [*xs, np.ones((6, 5), made[0].dtype)]
    compare(f, *arrays, exact=all(a.dtype.kind != "f" for a in arrays), backend="c")
