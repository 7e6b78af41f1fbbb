"""Creation and conversion through the door: NumPy's values bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.ir.ops import view_of

from .harness import DTYPES, call, check, check_or_declined, declined, sample, trace_through_door

CREATION = {
    "zeros": [((3,),), ((2, 3), "int32"), (4, bool), ((),), ([2, 2], np.float32)],
    "ones": [((3,),), ((2, 3), "int32"), (4, bool), ((0, 2),)],
    "full": [((3,), 2), ((2, 3), 1.5), ((2,), 2.7, "int32"), ((2,), True), ((2,), np.inf, "float32"), ((), 3)],
    "eye": [(3,), (3, 4), (3, 4, 1), (3, None, -1, "int32"), (0,)],
    "identity": [(3,), (2, "float32")],
    "arange": [
        (5,),
        (2, 9),
        (2, 9, 3),
        (9, 2, -2),
        (5, 2),
        (0.5, 3),
        (0, 1, 0.1),
        (1, 0, -0.3),
        (5, None, 1, "float32"),
        (0, 2, 0.1, "float32"),
        (0.1, 5, 0.7),
        (1, 4, 1, "uint8"),
        (-3, 3, 1, "int32"),
        (5.0,),
        (0.0, 1e-3, 3e-5),
    ],
    "linspace": [
        (0, 1),
        (0, 1, 7),
        (1, -2, 5, False),
        (0, 10, 1),
        (0, 10, 0),
        (0, 5, 11, True, False, "int32"),
        (0, 1, 13, True, False, "float32"),
        (0.1, 0.7, 10),
    ],
    "tri": [(3,), (3, 4), (3, 4, 1), (3, 4, -1, "int32")],
}


@pytest.mark.parametrize("function", CREATION)
def test_creation(function):
    for args in CREATION[function]:
        check(lambda: call(getattr(np, function), *args))


BETWEEN = (
    lambda x, y: np.linspace(x, y),
    lambda x, y: np.linspace(x, y, 7, axis=1),
    lambda x, y: np.linspace(x, y, 7, axis=-1),
    lambda x, y: np.linspace(x, 2, 4, endpoint=False),
    lambda x, y: np.linspace(2.5, y, 4),
    lambda x, y: np.linspace(x[0], y, 3),
    lambda x, y: np.linspace(x, y, 1),
    lambda x, y: np.linspace(x, y, 1, retstep=True)[0],
    lambda x, y: np.linspace(x, y, 0),
    lambda x, y: np.linspace(x, x, 4, retstep=True),
    lambda x, y: np.linspace(x, y, 4, endpoint=False, retstep=True),
    lambda x, y: np.linspace(x[0, 0], y[0, 0], 4, retstep=True),
    lambda x, y: np.linspace(x[0, 0], [1.0, 2.0], 4),
    lambda x, y: np.linspace(x.T, y.T, 4),
    lambda x, y: np.linspace(x * 0, y * 5e-324, 4),
    lambda x, y: np.linspace(1, 2, 3, retstep=True),
    lambda x, y: np.linspace(np.float32(1), 2, 3),
    lambda x, y: np.linspace(0.0, np.inf, 3),
    lambda x, y: np.linspace(1j, 2, 3),
)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32", "complex64"])
def test_linspace_between_arrays_of_a_dtype(dtype):
    check(lambda x, y: np.linspace(abs(x), abs(y), 4, dtype=dtype), sample((2, 3), "float64"), sample((2, 3), "float32", 1))


@pytest.mark.parametrize("function", BETWEEN)
@pytest.mark.parametrize(
    "dtypes", ["float64 float64", "float32 float32", "int64 float32", "int16 int8", "float16 float16", "complex64 float64"]
)
def test_linspace_between_arrays(function, dtypes):
    with np.errstate(all="ignore"):
        check(function, *(sample((2, 3), d, k) for k, d in enumerate(dtypes.split())))


WRONG = {
    "zeros": [((-1,),), ("a",), ((2,), "nonsense"), (2.5,)],
    "arange": [(1, 5, 0), (0, 10**30)],
    "linspace": [(0, 1, -1)],
    "eye": [(-1,)],
    "full": [((2,), 300, "uint8")],
}


@pytest.mark.parametrize("function", WRONG)
def test_what_numpy_rejects_is_declined(function):
    for args in WRONG[function]:
        check_or_declined(lambda: call(getattr(np, function), *args))


def test_declined():
    assert declined(lambda: call(np.zeros, 3, "longdouble")) == "UNSUPPORTED_DTYPE"
    assert declined(lambda: call(np.zeros, (2, 3), order="K")) == "UNSUPPORTED_ARGUMENT"
    assert declined(lambda x: call(np.arange, x), sample((), "int64")) == "DATA_DEPENDENT"


def test_empty():
    """What the elements are is not defined."""
    x = sample((2, 3), "int32")
    check(
        lambda a: (
            np.zeros_like(call(np.empty, (3, 2), "float32")), np.empty_like(a) * 0,
            np.zeros_like(np.empty_like(a, dtype=float, shape=(4,))),
        ),
        x,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_likes(dtype):
    x = sample((2, 3), dtype)
    check(
        lambda a: (np.zeros_like(a), np.ones_like(a), np.zeros_like(a, dtype="float32"), np.ones_like(a, shape=(4,))), x
    )
    check(lambda a: (np.full_like(a, 1), np.full_like(a, 2.5, dtype="float64"), np.zeros_like(a[0, 0])), x)
    check_or_declined(lambda a: np.full_like(a, 2.5), x)
    check_or_declined(lambda a: np.full_like(a, -1), x)


def test_full_of_an_array():
    check(lambda a: call(np.full, (2, 3), a), sample((3,), "float32"))
    check(lambda a: call(np.full, (2, 3), a[0], "float64"), sample((3,), "float32"))


def test_meshgrid():
    x, y, z = sample((3,), "float64"), sample((4,), "int32"), sample((2,), "float32")
    check(
        lambda a, c: (
            np.meshgrid(a, c),
            np.meshgrid(a, c, indexing="ij"),
            np.meshgrid(a, c, sparse=True),
            np.meshgrid(a),
        ),
        x,
        y,
    )
    check(lambda a, c, d: np.meshgrid(a, c, d), x, y, z)


def test_array_of_python_numbers():
    for value in ([1, 2], [1.5, 2], [[1, 2], [3, 4]], (True, False), 3, 2.5, [], [[]]):
        check(lambda: call(np.array, value))
        check(lambda: call(np.asarray, value, "float32"))
    check(lambda: call(np.array, [1, 2], ndmin=3))
    check_or_declined(lambda: call(np.array, [[1], [1, 2]]))
    check_or_declined(lambda: call(np.array, ["a"]))
    check_or_declined(lambda: call(np.array, [300], "uint8"))


def test_array_of_arrays():
    x = sample((3,), "float32")
    check(lambda a: call(np.array, [a, a]), x)
    check(lambda a: call(np.array, [a[0], 1, 2.5]), x)
    check(lambda a: call(np.array, [[a[0], a[1]], [a[2], 0]]), x)
    check(lambda a: call(np.array, [a.shape[0], a.shape[0] + 1]), x, symbolic=True)
    check_or_declined(lambda a: call(np.array, [a, a[:2]]), x)


@pytest.mark.parametrize("function", (np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.copy))
def test_conversions(function):
    for x in (sample((2, 3), "int32"), sample((), "float64"), sample((1,), "float64")[0], sample((3, 2), "float32").T):
        check(lambda a: call(function, a), x)
        if function is not np.copy:
            check(lambda a: call(function, a, "float32"), x)


def test_astype():
    for source in DTYPES:
        for target in DTYPES:
            x = np.abs(sample((4,), source)) if source != "bool" else sample((4,), source)
            check(lambda a: (a.astype(target), np.astype(a, np.dtype(target)), a[0].astype(target)), x)
            for casting in ("no", "safe", "same_kind"):
                check_or_declined(lambda a: a.astype(target, casting=casting), x)


def test_dtype_questions():
    check(lambda: call(np.finfo, np.float32).max)
    check(lambda: call(np.dtype, "float32"))
    check(lambda: call(np.issubdtype, np.float32, np.floating))


def test_an_array_of_a_list_is_new_at_each_call():
    """No view of an array that the graph holds: the caller may write to it."""
    for function in (np.array, np.asarray, np.atleast_2d):
        _trace, result, _env = trace_through_door(lambda: call(function, [1.0, 2.0]), [])
        found = view_of(result._node)
        assert (found[0] if found else result._node).is_op("copy")


def test_a_switch_that_is_an_array_is_declined():
    assert declined(lambda x: x.sum(keepdims=x[0] > 0), sample((3,), "float64")) == "DATA_DEPENDENT"


def test_array_copies_where_numpy_does():
    x = sample((3,), "float64")
    for given in (True, False, None):
        check(lambda a: call(np.array, a, copy=given), x)
    for given in ("always", 2.5):
        declined(lambda a: call(np.array, a, copy=given), x)
    declined(lambda a: call(np.array, [1, 2], copy=False), x)
    declined(lambda a: call(np.array, a, np.float32, copy=False), x)


def test_an_array_that_no_memory_holds_is_asked_for_all_the_same() -> None:
    @dg.compile
    def attempt(x: np.ndarray) -> np.ndarray:
        try:
            np.empty(np.iinfo(np.intp).max, dtype=np.uint8)
        except MemoryError:
            return x + 1
        return x

    np.testing.assert_array_equal(attempt(np.zeros(2)), [1, 1])
