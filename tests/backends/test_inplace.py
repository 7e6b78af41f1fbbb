"""In-place writes: the graph's new values, written over the memory of the old ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynagraph.ir.optable  # noqa: F401  (fills OPS)
from dynagraph.backends.c.backend import lower_graph
from dynagraph.errors import GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.loops import Kernel, LibraryCall, stored_buffers
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes import inplace as inplace_pass
from dynagraph.ir.passes.pipeline import run as run_passes
from tests.backends.native import element_strides, run_native
from tests.sampling import examples

F64 = dtypes.float64


def inputs(n: int, shape: tuple[int, ...] = (6,)) -> list[np.ndarray]:
    return [np.random.default_rng(k).uniform(-2, 2, shape) for k in range(n)]


def check(graph: Graph, *arrays: np.ndarray) -> list[set[str]]:
    """The program gives what the graph says, and writes into no other inputs; gives the buffers that its kernels store to."""
    graph.lint()
    expected = interpret(graph, arrays)
    given = [a.copy(order="K") for a in arrays]
    results = run_native(graph, *given)
    for result, wanted in zip(results, expected):
        np.testing.assert_array_equal(result, wanted)
    written = {into: wanted for into, wanted in zip(graph.into, expected) if into is not None}
    for k, (now, before) in enumerate(zip(given, arrays)):
        np.testing.assert_array_equal(now, written.get(k, before))
    for result, into in zip(results, graph.into):
        assert into is None or result is given[into]
    program = lower_graph(run_passes(graph))
    return [stored_buffers(s.body) for s in program.steps if isinstance(s, Kernel)]


def part(graph: Graph, x, start: int, size: int, step: int = 1):
    return graph.call(OPS["slice"], x, starts=(start,), steps=(step,), shape=(size,))


def updated(graph: Graph, x, value, start: int, step: int = 1, axes: int = 1):
    return graph.call(OPS["update_slice"], x, value, starts=(start,) * axes, steps=(step,) * axes)


def one_input() -> tuple:
    graph = Graph()
    return graph, graph.placeholder("x", Meta(F64, (6,)))


def test_an_input_is_changed_where_it_lies():
    graph, x = one_input()
    graph.output([graph.call(OPS["add"], x, x)], into=[0])
    assert check(graph, *inputs(1)) == [{"in0"}]


def test_only_the_part_is_stored():
    graph, x = one_input()
    middle = part(graph, x, 1, 4)
    graph.output([updated(graph, x, graph.call(OPS["multiply"], middle, middle), 1)], into=[0])
    assert check(graph, *inputs(1)) == [{"in0"}]
    program = lower_graph(run_passes(graph))
    assert program.workspace == 0 and "i0 < 4" in str(program)


def test_neighbours_are_read_before_they_are_overwritten():
    graph, x = one_input()
    total = graph.call(OPS["add"], part(graph, x, 0, 4), part(graph, x, 2, 4))
    graph.output([updated(graph, x, total, 1)], into=[0])
    stored = check(graph, *inputs(1))
    assert len(stored) == 2 and stored[1] == {"in0"}


def table(graph: Graph, rows: int = 4, columns: int = 6):
    return graph.placeholder("x", Meta(F64, (rows, columns)))


def row(graph: Graph, x, k: int, first: int = 0, size: int = 6):
    return graph.call(OPS["slice"], x, starts=(k, first), steps=(1, 1), shape=(1, size))


def test_a_row_made_of_another_is_written_where_it_lies():
    """Also where it reads its own old values."""
    graph = Graph()
    x = table(graph)
    for k in range(1, 4):
        x = graph.call(OPS["update_slice"], x, row(graph, x, k - 1), starts=(k, 0), steps=(1, 1))
        best = graph.call(OPS["maximum"], row(graph, x, k, 2, 4), row(graph, x, k - 1, 0, 4))
        x = graph.call(OPS["update_slice"], x, best, starts=(k, 2), steps=(1, 1))
    graph.output([x], into=[0])
    assert check(graph, *inputs(1, (4, 6))) == [{"in0"}] * 6
    assert lower_graph(run_passes(graph)).workspace == 0


@pytest.mark.parametrize("first, start, size", [(0, 3, 3), (3, 0, 3), (0, 2, 4), (2, 0, 4), (1, 0, 5), (0, 1, 5)])
def test_parts_that_meet_are_read_first(first: int, start: int, size: int):
    graph, x = one_input()
    doubled = graph.call(OPS["add"], part(graph, x, first, size), part(graph, x, first, size))
    graph.output([updated(graph, x, doubled, start)], into=[0])
    meets = abs(first - start) < size
    assert len(check(graph, *inputs(1))) == (2 if meets else 1)


def test_parts_that_lie_between_one_another_are_read_first():
    """They have no element in common, but that is not known by their ends."""
    graph, x = one_input()
    graph.output([updated(graph, x, part(graph, x, 1, 3, 2), 0, 2)], into=[0])
    check(graph, *inputs(1))


def test_two_inputs_are_written_in_turn_from_one_another():
    graph = Graph()
    new, old = (graph.placeholder(name, Meta(F64, (6,))) for name in ("new", "old"))
    for _ in range(4):
        total = graph.call(OPS["add"], part(graph, old, 0, 4), part(graph, old, 2, 4))
        new, old = old, updated(graph, new, total, 1)
    graph.output([new, old], into=[0, 1])
    assert check(graph, *inputs(2)) == [{"in0"}, {"in1"}] * 2


def products_into(graph: Graph, left, right, target: int) -> list[str]:
    """Where the products of a graph whose output is one of them are stored."""
    graph.output([graph.call(OPS["matmul"], left, right)], into=[target])
    check(graph, *inputs(len(graph.placeholders), (6, 6)))
    return [step.out.buffer for step in lower_graph(run_passes(graph)).steps if isinstance(step, LibraryCall)]


def test_products_are_stored_where_they_will_lie():
    graph = Graph()
    x, y, _ = (graph.placeholder(name, Meta(F64, (6, 6))) for name in "xyz")
    assert products_into(graph, x, graph.call(OPS["transpose"], y, axes=(1, 0)), 2) == ["in2"]


@pytest.mark.parametrize("what", ["itself", "a part", "what is made of it"])
def test_products_are_not_stored_over_their_operands(what: str):
    graph = Graph()
    x, y = (graph.placeholder(name, Meta(F64, (6, 6))) for name in "xy")
    operand = {
        "itself": lambda: y,
        "a part": lambda: graph.call(OPS["transpose"], y, axes=(1, 0)),
        "what is made of it": lambda: graph.call(OPS["negative"], graph.call(OPS["transpose"], y, axes=(1, 0))),
    }[what]()
    assert "in1" not in products_into(graph, x, operand, 1)


def test_old_values_are_read_before_a_product_is_stored_over_them():
    graph = Graph()
    x, y, z = (graph.placeholder(name, Meta(F64, (6, 6))) for name in "xyz")
    old = graph.call(OPS["negative"], z)
    product = graph.call(OPS["matmul"], x, y)
    graph.output([product, graph.call(OPS["add"], old, product), z], into=[2, None, None])
    check(graph, *inputs(3, (6, 6)))


def test_a_product_that_is_updated_later_lies_where_its_input_does():
    graph = Graph()
    x, y, _ = (graph.placeholder(name, Meta(F64, (6, 6))) for name in "xyz")
    product = graph.call(OPS["matmul"], x, y)
    changed = graph.call(OPS["update_slice"], product, row(graph, x, 0), starts=(1, 0), steps=(1, 1))
    graph.output([changed, product], into=[2, None])
    check(graph, *inputs(3, (6, 6)))


def test_a_product_into_an_input_with_strides():
    graph = Graph()
    x, y = (graph.placeholder(name, Meta(F64, (6, 6))) for name in "xy")
    strided = np.asfortranarray(inputs(3, (6, 6))[2])
    graph.placeholder("z", Meta(F64, (6, 6), element_strides(strided)))
    graph.output([graph.call(OPS["matmul"], x, y)], into=[2])
    check(graph, *inputs(2, (6, 6)), strided)


def test_a_reversed_input():
    graph, x = one_input()
    graph.output([part(graph, x, 5, 6, -1)], into=[0])
    check(graph, *inputs(1))


def test_a_part_onto_the_next():
    graph, x = one_input()
    graph.output([updated(graph, x, part(graph, x, 0, 5), 1)], into=[0])
    check(graph, *inputs(1))


def test_what_was_computed_from_the_old_value_stays():
    graph, x = one_input()
    before = graph.call(OPS["floor"], x)
    after = updated(graph, x, part(graph, before, 0, 2), 3)
    graph.output([after, graph.call(OPS["add"], before, after)], into=[0, None])
    check(graph, *inputs(1))


def test_the_old_value_is_still_wanted():
    graph, x = one_input()
    after = updated(graph, x, part(graph, x, 0, 2), 3)
    graph.output([after, graph.call(OPS["add"], x, after)], into=[0, None])
    check(graph, *inputs(1))


def test_a_value_is_turned_onto_itself():
    graph, x = one_input()
    twice = graph.call(OPS["add"], x, x)
    graph.output([updated(graph, twice, twice, 5, -1)], into=[0])
    check(graph, *inputs(1))


def test_a_value_on_the_way_to_an_input_is_an_output_too():
    for into in (None, 1):
        graph = Graph()
        x, z = (graph.placeholder(name, Meta(F64, (6,))) for name in "xz")
        square = graph.call(OPS["multiply"], x, x)
        after = updated(graph, square, part(graph, z, 0, 2), 3)
        graph.output([after, square], into=[0, into])
        check(graph, *inputs(2))


def test_an_input_gets_what_is_computed_from_another_one_that_is_written_to():
    """And a check comes first: inputs that stand after the first write keep their order."""
    graph = Graph()
    p, q = (graph.placeholder(name, Meta(F64, (6,))) for name in "pq")
    least = graph.call(OPS["constant"], value=-9.0, dtype=F64)
    is_less = graph.call(OPS["any"], graph.call(OPS["less"], p, least), axis=(0,), keepdims=False)
    changed = updated(graph, q, part(graph, p, 0, 2), 3)
    other = graph.placeholder("a", Meta(F64, (2,)))
    again = updated(graph, changed, graph.call(OPS["add"], part(graph, changed, 0, 2), other), 0)
    graph.output([changed, again, is_less], into=(1, 0, None), n_checks=1)
    check(graph, *inputs(2), *inputs(1, (2,)))


def test_two_inputs_change_places():
    graph = Graph()
    x, y = (graph.placeholder(name, Meta(F64, (6,))) for name in "xy")
    graph.output([y, x], into=[0, 1])
    check(graph, *inputs(2))


def test_an_input_gets_a_reduction_or_a_product():
    graph = Graph()
    x, y = (graph.placeholder(name, Meta(F64, (4, 4))) for name in "xy")
    total = graph.call(OPS["sum"], x, axis=(0,), keepdims=True)
    product = graph.call(OPS["matmul"], x, y)
    graph.output([graph.call(OPS["subtract"], x, total), product], into=[0, 1])
    x, y = (a.round(1) for a in inputs(2, (4, 4)))
    check(graph, x.round(), y.round())


def test_a_chain_of_writes_moves_nothing():
    graph, x = one_input()
    value = x
    for k in range(3):
        value = updated(graph, value, part(graph, value, k, 1), k + 2)
    graph.output([graph.call(OPS["negative"], value)], into=[0])
    assert all(s == {"in0"} or len(s) == 1 for s in check(graph, *inputs(1)))
    assert check(graph, *inputs(1))[-1] == {"in0"}


def updates(of_gradient) -> tuple[Graph, list]:
    """A moment and a parameter, changed by a gradient: m = 0.9 m + g, p = p - m."""
    graph = Graph()
    m, p, g = nodes = [graph.placeholder(name, Meta(F64, (6,))) for name in "mpg"]
    decay = graph.call(OPS["full"], shape=(6,), value=0.9, dtype=F64)
    moment = graph.call(OPS["add"], graph.call(OPS["multiply"], m, decay), g)
    graph.output([moment, graph.call(OPS["subtract"], p, of_gradient(graph, *nodes, moment))], into=[0, 1])
    return graph, nodes


def test_updates_from_one_gradient_are_one_kernel():
    graph, _ = updates(lambda graph, m, p, g, moment: moment)
    assert check(graph, *inputs(3)) == [{"in0", "in1"}]


def test_what_is_overwritten_is_read_before_by_all():
    graph, _ = updates(lambda graph, m, p, g, moment: graph.call(OPS["multiply"], m, g))
    check(graph, *inputs(3))


def test_elements_at_other_places_are_read_by_a_kernel_before():
    def reversed_moment(graph, m, p, g, moment):
        return graph.call(OPS["slice"], moment, starts=(5,), steps=(-1,), shape=(6,))

    graph, _ = updates(reversed_moment)
    assert check(graph, *inputs(3)) == [{"in0"}, {"in1"}]
    graph, _ = updates(lambda graph, m, p, g, moment: reversed_moment(graph, moment, p, g, m))
    check(graph, *inputs(3))


def test_sums_of_what_is_overwritten_are_taken_apart():
    def mean(graph, m, p, g, moment):
        total = graph.call(OPS["sum"], moment, axis=(0,), keepdims=True)
        return graph.call(OPS["broadcast_to"], total, shape=(6,))

    graph, _ = updates(mean)
    check(graph, *inputs(3))
    graph, _ = updates(lambda graph, m, p, g, moment: mean(graph, moment, p, g, m))
    check(graph, *inputs(3))


def test_a_value_of_the_program_is_written_over_in_the_kernel_that_makes_it():
    graph, x = one_input()
    made = graph.call(OPS["square"], x)
    changed = graph.call(OPS["add"], made, graph.call(OPS["sqrt"], made))
    last = updated(graph, changed, part(graph, x, 0, 2), 3)
    graph.output([graph.call(OPS["multiply"], last, changed), graph.call(OPS["negative"], last)], into=[None, 0])
    check(graph, *(np.abs(a) for a in inputs(1)))


def test_a_new_array_is_filled_in_place():
    graph, x = one_input()
    value = graph.call(OPS["full"], shape=(6,), value=0.0, dtype=F64)
    value = updated(graph, value, part(graph, x, 0, 3), 0, 2)
    value = updated(graph, value, part(graph, x, 3, 3), 5, -2)
    graph.output([value])
    assert check(graph, *inputs(1)) == [{"out0"}] * 3


def test_a_copy_is_made_where_the_caller_s_array_must_stay():
    graph, x = one_input()
    graph.output([updated(graph, x, part(graph, x, 0, 1), 3)])
    assert check(graph, *inputs(1)) == [{"out0"}, {"out0"}]


def test_strided_inputs_are_written_as_they_lie():
    graph = Graph()
    meta = Meta(F64, (3, 4), strides=(1, 3))
    x = graph.placeholder("x", meta)
    y = graph.call(OPS["multiply"], x, x)
    row = graph.call(OPS["slice"], y, starts=(1, 0), steps=(1, 1), shape=(1, 4))
    graph.output([graph.call(OPS["update_slice"], y, row, starts=(2, 0), steps=(1, 1))], into=[0])
    array = np.asfortranarray(inputs(1, (3, 4))[0])
    assert element_strides(array) == (1, 3)
    check(graph, array)


def test_lint_knows_where_outputs_may_go():
    graph, x = one_input()
    small = graph.call(OPS["sum"], x, axis=(0,), keepdims=False)
    graph.output([small], into=[0])
    with pytest.raises(GraphError, match="writes float64"):
        graph.lint()


@st.composite
def programs(draw) -> Graph:
    """Three inputs, some of which are written to, in steps of parts, whole values and other memory."""
    graph = Graph()
    first = [graph.placeholder(name, Meta(F64, (6,))) for name in "xyz"]
    memory = list(first)  # the present value of each input
    held = list(first)  # all values that memory held
    others = [graph.call(OPS["full"], shape=(6,), value=1.5, dtype=F64)]
    for _ in range(draw(st.integers(1, 8))):
        held += [m for m in memory if m not in held]
        readable = memory + others
        source, target = draw(st.sampled_from(readable)), draw(st.integers(0, 3))
        size = draw(st.integers(1, 6))
        steps = [s for s in (1, -1, 2, -2) if abs(s) * (size - 1) < 6]
        taken, put = draw(st.sampled_from(steps)), draw(st.sampled_from(steps))
        value = part(graph, source, draw(first_of(taken, size)), size, taken)
        kind = draw(st.sampled_from(["move", "add", "scaled", "whole", "compare"]))
        if kind == "add":
            value = graph.call(OPS["add"], value, part(graph, draw(st.sampled_from(readable)), draw(first_of(1, size)), size))
        elif kind == "scaled":
            value = graph.call(OPS["multiply"], value, graph.call(OPS["max"], source, axis=(0,), keepdims=True))
        if target == 3:
            others.append(graph.call(OPS["floor"], source))
            continue
        if kind == "whole":
            memory[target] = graph.call(OPS["subtract"], memory[target], source)
        elif kind == "compare":
            smaller = graph.call(OPS["less"], source, memory[target])
            memory[target] = graph.call(OPS["where"], smaller, memory[target], draw(st.sampled_from(readable)))
        else:
            memory[target] = updated(graph, memory[target], value, draw(first_of(put, size)), put)
    changed = [k for k in range(3) if memory[k] is not first[k] and draw(st.booleans())]
    held += [m for m in memory if m not in held]
    free = draw(st.lists(st.sampled_from(held + others), max_size=2))
    graph.output([memory[k] for k in changed] + free, into=[*changed, *([None] * len(free))])
    return graph


def first_of(step: int, size: int) -> st.SearchStrategy[int]:
    """Where a part of `size` elements may start in six."""
    reach = step * (size - 1)
    return st.integers(max(0, -reach), 5 - max(0, reach))


@settings(max_examples=examples(150), deadline=None)
@given(programs())
def test_any_order_of_writes_and_reads(graph: Graph) -> None:
    check(graph, *inputs(3))


@pytest.mark.parametrize("into", [None, 0])
def test_libraries_read_views_of_what_is_written_later(into: int | None) -> None:
    """They read the memory that a view lies in."""
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (6, 6)))
    y = x if into is not None else graph.call(OPS["negative"], x)
    rows = graph.call(OPS["slice"], y, starts=(0, 0), steps=(1, 1), shape=(3, 6))
    row = graph.call(OPS["slice"], x, starts=(5, 0), steps=(1, 1), shape=(1, 6))
    new = updated(graph, y, row, 0, axes=2)
    columns = graph.call(OPS["transpose"], rows, axes=(1, 0))
    product = graph.call(OPS["matmul"], x, columns)
    graph.output([product, new], into=[None, into])
    check(graph, *inputs(1, (6, 6)))


def test_a_long_chain_asks_only_where_the_memory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element of the last of n values is made of n * n elements of the first ones."""
    asked = []
    operands = inplace_pass.operand_indices
    monkeypatch.setattr(inplace_pass, "operand_indices", lambda node, at: asked.append(node) or operands(node, at))
    n = 20
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (n, n)))
    corner = graph.call(OPS["slice"], x, starts=(0, 0), steps=(1, 1), shape=(1, 1))
    value = updated(graph, x, graph.call(OPS["negative"], corner), 0, axes=2)
    for k in range(n):
        column = graph.call(OPS["slice"], value, starts=(0, k), steps=(1, 1), shape=(n, 1))
        row = graph.call(OPS["slice"], value, starts=(k, 0), steps=(1, 1), shape=(1, n))
        value = graph.call(OPS["minimum"], value, graph.call(OPS["add"], column, row))
    graph.output([value], into=[0])
    check(graph, *inputs(1, (n, n)))
    assert len(asked) < 20 * n


def test_inputs_are_written_when_all_checks_are_known() -> None:
    """What is written over an input may be computed with a value from before the checks, but not in that value's kernel."""
    graph = Graph()
    x, total, places = (graph.placeholder(name, Meta(F64, (n,))) for name, n in (("x", 6), ("total", 6), ("places", 3)))
    doubled = graph.call(OPS["add"], x, x)
    outside = graph.call(OPS["greater"], places, graph.call(OPS["negative"], places))
    wrong = graph.call(OPS["any"], outside, axis=(0,), keepdims=False)
    grown = graph.call(OPS["add"], total, graph.call(OPS["multiply"], doubled, doubled))
    graph.output([doubled, grown, wrong], into=(None, 1, None), n_checks=1)
    program = lower_graph(run_passes(graph))
    stored = [stored_buffers(step.body) for step in program.steps if isinstance(step, Kernel)]
    checked = next(k for k, names in enumerate(stored) if "out2" in names)
    assert all(k > checked for k, names in enumerate(stored) if "in1" in names)
    assert any("in1" in names for names in stored)


@pytest.mark.parametrize("depends", [False, True])
def test_checks_come_before_writes_that_they_do_not_depend_on(depends: bool) -> None:
    """Inputs are written where they lie; what a check reads is written elsewhere first, as the program may yet bail out."""
    graph = Graph()
    x, y, places = (graph.placeholder(name, Meta(F64, (n,))) for name, n in (("x", 6), ("y", 6), ("places", 3)))
    first = updated(graph, x, places, 1)
    second = updated(graph, y, places, 2)
    checked = part(graph, first, 0, 3) if depends else places
    wrong = graph.call(OPS["any"], graph.call(OPS["less"], checked, graph.call(OPS["negative"], places)), axis=(0,), keepdims=False)
    graph.output([first, second, wrong], into=(0, 1, None), n_checks=1)
    program = lower_graph(run_passes(graph))
    stored = [stored_buffers(step.body) for step in program.steps if isinstance(step, Kernel)]
    checked_at = next(k for k, names in enumerate(stored) if "out2" in names)
    assert all(k > checked_at for k, names in enumerate(stored) if names & {"in0", "in1"})
    assert (program.workspace == 0) is not depends


class UnderWay:
    """Something that writes to `memory`, where the values that it is given may lie, until its end is waited for."""

    def __init__(self, memory: np.ndarray):
        self.memory = memory

    def begin(self, part: np.ndarray) -> np.ndarray:
        self.lies_there = part.ctypes.data == self.memory.ctypes.data
        if not self.lies_there:
            self.memory = part.copy()
        self.memory *= -1
        return np.array(0, np.int64)

    def end(self, number: np.ndarray, part: np.ndarray, out: np.ndarray) -> np.ndarray:
        if out.ctypes.data != self.memory.ctypes.data:
            out[...] = self.memory
        return out


def begun_and_ended(graph: Graph, x, under_way: UnderWay) -> tuple:
    call, more = FunctionCall(under_way.begin, (Slot(0),)), {"awaited": True, "keeps": True}
    handle = graph.call(OPS["effect_call"], x, call=call, dtype=dtypes.int64, shape=(), **more)
    call = FunctionCall(under_way.end, (Slot(0), Slot(1)), takes_out=True)
    return handle, graph.call(OPS["effect_call"], handle, x, call=call, dtype=F64, shape=x.shape, over=1)


def test_what_is_under_way_writes_where_its_operand_lies():
    graph, x = one_input()
    (given,) = inputs(1)
    under_way = UnderWay(given)
    _, result = begun_and_ended(graph, graph.call(OPS["add"], x, x), under_way)
    graph.output([result], into=[0])
    expected = given * -2
    run_native(graph, given)
    np.testing.assert_array_equal(given, expected)
    assert under_way.lies_there
    program = lower_graph(run_passes(graph))
    assert [stored_buffers(s.body) for s in program.steps if isinstance(s, Kernel)] == [{"in0"}]
    assert program.workspace == 64  # of the number alone


@pytest.mark.parametrize("read", ["before", "between", "after"])
def test_what_is_under_way_writes_to_no_value_that_others_read(read: str):
    graph, x = one_input()
    (given,) = inputs(1)
    twice = graph.call(OPS["add"], x, x)
    one = graph.constant(np.ones(6))
    if read == "before":
        other = graph.call(OPS["add"], twice, one)
    _, result = begun_and_ended(graph, twice, UnderWay(given))
    if read == "between":
        with graph.inserting_before(result):
            other = graph.call(OPS["add"], twice, one)
    if read == "after":
        other = graph.call(OPS["add"], twice, graph.call(OPS["add"], result, one))
    graph.output([result, other], into=[0, None])
    expected = given * -2
    _, found = run_native(graph, given)
    np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(found, 1 if read == "after" else 1 - expected)
