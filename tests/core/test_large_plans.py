"""Plans with more arrays and objects than a call keeps on its stack: they work as small ones do, and fail as these do."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import MAX_ARRAYS, MAX_REGISTERS, CompiledFunction, Entry, HostLoop, NativePlan, PythonPlan

from .native import address, library

F8 = np.dtype(float)
SIZES = [127, 128, 129, 255, 256, 257, 2000]  # around what lies on the stack: DG_FEW_ARRAYS, DG_FEW_REGISTERS


def loads(n: int, writeable: bool | None = None) -> tuple[tuple, ...]:
    """Guards that load the items of a list, which is the parameter, and bind them as inputs."""
    items = tuple(("item", k + 1, 0, k) for k in range(n))
    return (("len", 0, n), *items, *(("array", k + 1, k, F8, 1, (2,), None, writeable) for k in range(n)))


def returning(n: int, plan: Any, guards: tuple = ()) -> CompiledFunction:
    def plain(xs: list[Any]) -> Any:
        return "plain"

    compiled = CompiledFunction(plain, lambda *_: "missed")
    compiled.add_entry(Entry((*loads(n), *guards), n + 1, plan))
    return compiled


def both(n: int) -> tuple:
    """All outputs, and all inputs as they were given."""
    return ("tuple", (("list", tuple(("out", k) for k in range(n))), ("tuple", tuple(("arg", k + 1) for k in range(n)))))


@pytest.mark.parametrize("n", SIZES)
def test_inputs_and_outputs(n: int) -> None:
    xs = [np.full(2, float(k)) for k in range(n)]
    compiled = returning(n, PythonPlan(lambda *inputs: [x + 1 for x in inputs], n, both(n), n_outputs=n))
    made, given = compiled(xs)
    assert [x[1] for x in made] == [k + 1 for k in range(n)] and all(a is b for a, b in zip(given, xs, strict=True))
    assert compiled([*xs[:-1], np.ones(3)]) == compiled(xs[1:]) == "missed"
    assert compiled.counters()["hits"] == 1


@pytest.mark.parametrize("n", SIZES)
def test_native_outputs(n: int) -> None:
    """`nothing` writes nothing: arrays, scalars, and inputs that are written to."""
    outputs = tuple((F8, (2,), False) if k % 3 == 0 else (F8, (), True) if k % 3 == 1 else (F8, (2,), False, k) for k in range(n))
    compiled = returning(n, NativePlan(address("nothing"), library(), n, outputs, 0, both(n), True, 0))
    xs = [np.full(2, float(k)) for k in range(n)]
    before = [sys.getrefcount(x) for x in xs]
    made, given = compiled(xs)
    assert [type(x) for x in made] == [np.float64 if k % 3 == 1 else np.ndarray for k in range(n)]
    assert all((x is y) == (k % 3 == 2) for k, (x, y) in enumerate(zip(made, xs, strict=True)))
    del made, given
    assert [sys.getrefcount(x) for x in xs] == before


@pytest.mark.parametrize("n", SIZES)
def test_what_is_written_shares_no_memory(n: int) -> None:
    compiled = returning(n, PythonPlan(lambda *inputs: (), n, ("const", "served")), (("disjoint", tuple(range(0, n, 2))),))
    whole = np.zeros(2 * n)
    xs = [whole[2 * k : 2 * k + 2] for k in np.random.default_rng(n).permutation(n)]
    for turned in (xs, xs[::-1], xs):
        assert compiled(turned) == "served"
    for first, second in ((0, n // 2 * 2 - 2), (2, 1), (n // 2, n // 2 + 1)):
        wrong = list(xs)
        start = wrong[second].ctypes.data // 8 - whole.ctypes.data // 8
        wrong[first] = whole[max(start - 1, 0) : max(start - 1, 0) + 2]  # half of it
        assert compiled(wrong) == "missed"
        assert compiled(xs) == "served"
    shared = list(xs)
    shared[1] = shared[3]  # neither is written to
    assert compiled(shared) == "served"


@pytest.mark.parametrize("n", SIZES)
def test_distinct_objects(n: int) -> None:
    listed = np.arange(1, n + 1, dtype=np.uint32).tobytes()
    guards = (*(("item", k + 1, 0, k) for k in range(n)), ("distinct", listed, n))
    entry = Entry(guards, n + 1, PythonPlan(lambda: (), 0, ("arg", n)))
    objects = [object() for _ in range(n)]
    assert entry.run((objects,)) is objects[-1]
    assert entry.check(([*objects[:-1], objects[0]],)) == len(guards) - 1
    wrong = np.array([n + 1], dtype=np.uint32).tobytes()
    with pytest.raises(TypeError, match="distinct takes"):
        Entry((("distinct", wrong, 1),), n + 1, PythonPlan(len, 0, ("const", 1)))


def test_entries_of_several_sizes() -> None:
    """The memory of a call grows as entries are tried, and what serves is what fits."""
    def plain(xs: list[Any]) -> Any:
        return "plain"

    compiled = CompiledFunction(plain, lambda *_: "missed")
    for n in (3, 700, 5, 300, 1200):
        plan = PythonPlan(lambda *inputs: (sum(x[0] for x in inputs),), n, ("out", 0), n_outputs=1)
        compiled.add_entry(Entry(loads(n), n + 1, plan))
    for n in (5, 1200, 3, 300, 700, 5):
        assert compiled([np.full(2, 2.0)] * n) == 2 * n
    assert compiled([]) == "missed"


def test_threads() -> None:
    """Each call has memory of its own, also while others run without the GIL, and calls within calls."""
    n = 600
    compiled: Any = None

    def program(*inputs: Any) -> list[Any]:
        if inputs[0][0] > 0:
            return [x + y for x, y in zip(compiled([x - 1 for x in inputs]), inputs)]
        return list(inputs)

    compiled = returning(n, PythonPlan(program, n, ("list", tuple(("out", k) for k in range(n))), n_outputs=n))
    result = ("tuple", (("out", 0), ("arg", n)))
    slow = returning(n, NativePlan(address("slow_sum"), library(), n, ((F8, (), True),), 0, result, True, 0))
    failed: list[Any] = []
    begin = threading.Barrier(4)

    def work(number: int) -> None:
        xs = [np.full(2, 3.0) + number * k for k in range(n)]
        xs[0] = np.full(2, 3.0)
        begin.wait()
        for _ in range(5):
            last = compiled(xs)[-1][0]
            if last != sum(3.0 + number * (n - 1) - k for k in range(4)):
                failed.append((number, last))
            if slow([np.ones(2), *xs[1:]])[1] is not xs[-1]:
                failed.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and compiled.counters()["misses"] == 0


@pytest.mark.parametrize("n", [200, 1000])
def test_errors_in_the_middle(n: int) -> None:
    """Whatever fails, nothing is kept."""
    def boom(*args: Any) -> Any:
        raise KeyError("boom")

    def in_program(*inputs: Any) -> Any:
        return boom() if inputs[0][0] > 0 else [inputs[0]] * (n // 2)

    half = (*(("out", k) for k in range(n // 2)), ("call", boom, ()), *(("out", k) for k in range(n // 2)))
    plans = [
        PythonPlan(in_program, n, ("list", half), n_outputs=n),
        PythonPlan(in_program, n, ("out", n - 1), n_outputs=n),  # of which there are fewer
        NativePlan(address("fails"), library(), n, ((F8, (2,), False),) * n, 0, both(n), True, 0),
        NativePlan(address("nothing"), library(), n, ((F8, (2,), False),) * n, 0, ("list", half), False, 0),
    ]
    for plan in plans:
        compiled = returning(n, plan)
        xs = [np.full(2, float(k)) for k in range(n)]
        before, kept = [sys.getrefcount(x) for x in xs], weakref.ref(xs[0])
        for _ in range(3):
            with pytest.raises((KeyError, ValueError, MemoryError)):
                compiled(xs)
            xs[0][0] = 1 - xs[0][0]
        assert [sys.getrefcount(x) for x in xs] == before
        del xs
        gc.collect()
        assert kept() is None


def test_memos_and_loops() -> None:
    n = 1000
    memo = tuple(("memo", k, ("list", (("const", k),))) for k in range(n))
    one, other = Entry((), 1, PythonPlan(lambda: (), 0, ("tuple", (("list", memo), ("list", memo))))).run((None,))
    assert one == [[k] for k in range(n)] and all(a is b for a, b in zip(one, other, strict=True))
    way, turns, *state = HostLoop(lambda item, *xs: (0, *(x + 1 for x in xs))).run(iter(range(3)), (0,) * n, -1, len, ())
    assert (way, turns, state) == (None, 3, [3] * n)


def test_the_limits() -> None:
    for n_inputs, n_outputs in ((MAX_ARRAYS + 1, 1), (1, MAX_ARRAYS + 1)):
        with pytest.raises(ValueError, match=f"at most {MAX_ARRAYS}"):
            PythonPlan(len, n_inputs, ("const", 1), n_outputs=n_outputs)
    with pytest.raises(ValueError, match=f"at most {MAX_REGISTERS}"):
        Entry((), MAX_REGISTERS + 1, PythonPlan(len, 0, ("const", 1)))
    n = MAX_ARRAYS
    compiled, xs = returning(n, PythonPlan(lambda *inputs: inputs[-1:], n, ("out", 0), n_outputs=1)), [np.zeros(2)] * n
    assert compiled(xs) is xs[-1]
