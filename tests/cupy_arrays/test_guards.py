"""What a program of CuPy's arrays depends on: each thing that changes is a miss, and is served rightly afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core import _dispatch
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.harness import assert_same, check, put


def doubled(x: Any) -> Any:
    return x * 2 + 1


BASE = np.arange(12.0).reshape(3, 4)
CHANGES = {
    "dtype": BASE.astype(np.float32),
    "rank": BASE.reshape(3, 2, 2),
    "size": np.arange(20.0).reshape(5, 4),
    "size of one": BASE[:1].copy(),
    "no elements": BASE[:0].copy(),
    "strides": np.arange(24.0).reshape(6, 4)[::2],
    "order": np.arange(12.0).reshape(4, 3).T,
    "offset of a view": np.arange(24.0).reshape(6, 4)[3:],
    "0-d": np.array(3.0),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_served_rightly(cp: Any, change: str) -> None:
    compiled = dg.compile(doubled)
    for values in (BASE, CHANGES[change], BASE, CHANGES[change]):
        assert_same(cp, compiled(put(cp, values)), doubled(put(cp, values)))
    misses = 1 if change == "offset of a view" else 2
    assert compiled.stats.misses == misses and compiled.stats.hits == 4 - misses, compiled.stats
    assert not compiled.stats.breaks and compiled.stats.refusals == 0


def test_from_the_second_size_on_every_size_is_served(cp: Any) -> None:
    compiled = dg.compile(lambda x: (x + x.shape[0]).reshape(-1)[1:])
    for n in (3, 5, 7, 9, 4):
        x = np.arange(2.0 * n).reshape(n, 2)
        assert_same(cp, compiled(put(cp, x)), (put(cp, x) + n).reshape(-1)[1:])
    assert compiled.stats.compiles == 2, compiled.stats


def test_a_size_that_changes_and_a_view_of_the_argument(cp: Any) -> None:
    def inner(x: Any) -> Any:
        x[1:-1] += 1
        return x[1:-1], x[-1]

    compiled = dg.compile(inner)
    for n in (3, 5, 8):
        ours, plain = put(cp, np.arange(float(n))), put(cp, np.arange(float(n)))
        assert_same(cp, compiled(ours), inner(plain))
        assert_same(cp, ours, plain)
    assert compiled.stats.compiles == 2 and not compiled.stats.breaks


def test_numpys_array_in_the_place_of_cupys(cp: Any) -> None:
    compiled = dg.compile(doubled)
    for values in (put(cp, BASE), BASE, put(cp, BASE), BASE, 3.0, BASE):
        result, plain = compiled(values), doubled(values)
        assert type(result) is type(plain)
        np.testing.assert_array_equal(*(v.get() if isinstance(v, cp.ndarray) else v for v in (result, plain)))
    assert compiled.stats.compiles == 2


def test_a_subclass_runs_plainly(cp: Any) -> None:
    class Mine(cp.ndarray):
        pass

    x = Mine((3,), float)
    compiled = dg.compile(doubled)
    x[...] = 1.0
    assert compiled(x).get().tolist() == [3.0, 3.0, 3.0]
    compiled(put(cp, np.ones(3)))
    assert compiled(x).get().tolist() == [3.0, 3.0, 3.0]


def test_another_device(cp: Any) -> None:
    if cp.ndarray is not stand_in.ndarray:
        pytest.skip("one device is enough for the real CuPy")
    compiled = dg.compile(doubled)
    for device in (0, 1, 0, 1):
        result = compiled(put(cp, BASE, device))
        assert result.device.id == device
    assert compiled.stats.misses == 2 and compiled.stats.hits == 2


def test_arrays_of_two_devices_raise_what_cupy_raises(cp: Any) -> None:
    if cp.ndarray is not stand_in.ndarray:
        pytest.skip("needs two devices")
    compiled = dg.compile(lambda x, y: x + y)
    for _ in range(2):
        with pytest.raises(ValueError, match="device"):
            compiled(put(cp, BASE), put(cp, BASE, 1))
    assert any("mixed-libraries" in text for text in compiled.stats.breaks)


def test_a_class_that_is_changed(cp: Any) -> None:
    if cp.ndarray is not stand_in.ndarray:
        pytest.skip("the real class is left alone")
    compiled = dg.compile(doubled)
    x = put(cp, BASE)
    compiled(x)
    before = cp.ndarray.__mul__
    try:
        cp.ndarray.__mul__ = lambda self, other: self
        hits = compiled.stats.hits
        compiled(x)
        assert compiled.stats.hits == hits
    finally:
        cp.ndarray.__mul__ = before


def test_a_function_of_the_module_that_is_replaced(cp: Any) -> None:
    compiled = dg.compile(lambda x: cp.exp(x))
    x = put(cp, BASE)
    before = cp.exp
    np.testing.assert_array_equal(compiled(x).get(), before(x).get())
    try:
        cp.exp = lambda x: x
        assert compiled(x) is x
    finally:
        cp.exp = before
    np.testing.assert_array_equal(compiled(x).get(), before(x).get())


def test_overlapping_arguments_that_are_written(cp: Any) -> None:
    def write(x: Any, y: Any) -> Any:
        x += 1
        return y * 2

    whole = put(cp, np.arange(6.0))
    compiled = dg.compile(write)
    apart = compiled(put(cp, np.zeros(4)), put(cp, np.arange(4.0)))
    np.testing.assert_array_equal(apart.get(), [0, 2, 4, 6])
    np.testing.assert_array_equal(compiled(whole[:4], whole[2:]).get(), [6, 8, 8, 10])
    np.testing.assert_array_equal(whole.get(), [1, 2, 3, 4, 4, 5])


def test_arrays_in_containers_attributes_and_globals(cp: Any) -> None:
    class Model:
        pass

    model = Model()
    model.weights = put(cp, BASE)  # type: ignore[attr-defined]

    def f(items: Any) -> Any:
        return items[0] * model.weights + items[1]["b"]  # type: ignore[attr-defined]

    compiled = dg.compile(f, fullgraph=True)
    items = [put(cp, BASE), {"b": put(cp, np.ones(4))}]
    assert_same(cp, compiled(items), f(items))
    model.weights = put(cp, BASE + 1)  # type: ignore[attr-defined]
    assert_same(cp, compiled(items), f(items))
    assert compiled.stats.hits == 1


def test_a_number_that_changes(cp: Any) -> None:
    compiled = dg.compile(lambda x, a, n: x * a + n)
    for a, n in ((0.5, 2), (1.5, 3), (2.5, 4), (3.5, 5)):
        for dtype in (np.float32, np.int64):
            x = put(cp, np.arange(3).astype(dtype))
            assert_same(cp, compiled(x, a, n), x * a + n)
    assert not compiled.stats.breaks and compiled.stats.fallbacks == 0 and compiled.stats.refusals == 0


def test_mark_dynamic(cp: Any) -> None:
    compiled = dg.compile(doubled)
    x = put(cp, BASE)
    dg.mark_dynamic(x, 0)
    compiled(x)
    compiled(put(cp, np.ones((7, 4))))
    assert compiled.stats.compiles == 1


def test_a_miss_says_what_it_was(cp: Any) -> None:
    compiled = dg.compile(doubled, dynamic=False)
    compiled(put(cp, BASE))
    compiled(put(cp, BASE.astype(np.float32)))
    said = "expected cupy float64[3, 4] on device 0, got cupy float32[3, 4] on device 0"
    assert any(said in text for text in compiled.explain_misses())


@pytest.mark.parametrize(
    ("row", "error", "text"),
    [
        ((0, 0, 3, np.dtype(float), 1, (2,), None, 0), TypeError, "takes a type"),
        ((0, 0, np.ndarray, np.dtype(object), 1, (2,), None, 0), ValueError, "dtype"),
        ((0, 0, np.ndarray, np.dtype(float), 1, (2, 3), None, 0), ValueError, "rank 1 with dims"),
        ((0, 0, np.ndarray, np.dtype(float), 1, (-2,), None, 0), ValueError, "negative size"),
        ((0, 1, np.ndarray, np.dtype(float), 1, (2,), None, 0), ValueError, "input slot"),
        ((0, 0, np.ndarray, np.dtype(float), 1, (2,), None, "cpu"), TypeError, "int"),
    ],
)
def test_a_guard_that_makes_no_sense(row: Any, error: type[Exception], text: str) -> None:
    plan = _dispatch.PythonPlan(lambda x: (x,), 1, ("out", 0), 0, 1)
    with pytest.raises(error, match=text):
        _dispatch.Entry((("device_array", *row),), 1, plan)


class Odd:
    """Says nothing that a guard could use."""

    dtype, shape, strides, itemsize = np.dtype(float), [2], (8,), 8


def test_an_object_without_the_attributes_is_a_miss() -> None:
    plan = _dispatch.PythonPlan(lambda x: (x,), 1, ("out", 0), 0, 1)
    entry = _dispatch.Entry((("device_array", 0, 0, Odd, np.dtype(float), 1, (2,), None, 0),), 1, plan)
    assert entry.check((Odd(),)) == 0
    assert entry.check((3,)) == 0


def test_written_arrays_that_are_known_to_be_apart(cp: Any) -> None:
    def swap(x: Any, y: Any) -> None:
        kept = x.copy()
        x[...] = y
        y[...] = kept

    check(cp, swap, np.arange(3.0), np.arange(3.0) + 7)
