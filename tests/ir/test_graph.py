"""Graphs: construction, changes, and what lint finds.  And the interpreter, which says what a graph means."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import dynagraph.ir.optable  # noqa: F401  (fills OPS)
from dynagraph.errors import GraphError, ShapeError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Location, Meta, Node, with_strides
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import ShapeEnv

F64 = dtypes.float64


def small() -> tuple[Graph, Node, Node, Node]:
    """``return exp(x + x)``."""
    graph = Graph("small")
    x = graph.placeholder("x", Meta(F64, (3,)))
    added = graph.call(OPS["add"], x, x)
    result = graph.call(OPS["exp"], added)
    graph.output([result])
    return graph, x, added, result


# -- building -------------------------------------------------------------------------------------------------------


def test_a_graph_prints_as_a_program() -> None:
    graph, *_ = small()
    graph.lint()
    assert str(graph) == (
        "x = placeholder[x] : float64[3]\nadd = add(x, x) : float64[3]\nexp = exp(add) : float64[3]\nreturn exp"
    )
    assert (
        len(graph) == 4 and [n.name for n in graph.placeholders] == ["x"] and [n.name for n in graph.outputs] == ["exp"]
    )


def test_nodes_print_attributes_strides_and_where_they_come_from() -> None:
    graph = Graph()
    graph.location = Location("somewhere/model.py", 12)
    x = graph.placeholder("x", Meta(F64, (2, 3), (1, 2)))
    y = graph.call(OPS["transpose"], x, axes=(1, 0))
    assert x.describe() == "x = placeholder[x] : float64[2, 3] strides [1, 2]   # model.py:12"
    assert y.describe() == "transpose = transpose(x, axes=(1, 0)) : float64[3, 2]   # model.py:12"
    assert repr(y) == "transpose" and y.is_op("reshape", "transpose") and not x.is_op("transpose")


def test_names_are_unique_and_identifiers() -> None:
    graph = Graph()
    names = [graph.placeholder(n, Meta(F64, ())).name for n in ("x", "x", "x_1", "x", "a.b", "")]
    assert len(set(names)) == len(names) and all(n.isidentifier() for n in names)
    assert names[4:] == ["a_b", "value"]


def test_constants_are_copies_that_cannot_change() -> None:
    graph, mine = Graph(), np.array([[1.0, 2.0]]).T
    node = graph.constant(mine, "weights")
    mine[0] = 9.0
    held = graph.constants[node.target]
    assert (
        held.tolist() == [[1.0], [2.0]]
        and held.flags.c_contiguous
        and not held.flags.writeable
        and mine.flags.writeable
    )
    assert graph.constant(np.float64(3)).shape == ()


def test_constants_of_other_dtypes_are_refused() -> None:
    with pytest.raises(GraphError, match=r"^constant 'constant': dtype datetime64\[s\] is not one of the IR's$"):
        Graph().constant(np.zeros(2, "datetime64[s]"))


def test_operands_must_be_nodes_of_the_same_graph() -> None:
    _, x, *_ = small()
    other = Graph("other")
    with pytest.raises(GraphError, match=r"^exp: operand x is not a node of graph 'other'$"):
        other.call(OPS["exp"], x)


def test_a_refused_call_adds_nothing() -> None:
    graph = Graph()
    x, y = graph.placeholder("x", Meta(F64, (3,))), graph.placeholder("y", Meta(F64, (2,)))
    with pytest.raises(ShapeError):
        graph.call(OPS["add"], x, y)
    assert len(graph) == 2 and not x.users


def test_a_graph_without_output_says_so() -> None:
    with pytest.raises(GraphError, match=r"^graph 'empty' has no output node$"):
        Graph("empty").output_node  # noqa: B018
    with pytest.raises(GraphError, match=r"^graph 'empty': has no output node$"):
        Graph("empty").lint()


# -- changing -------------------------------------------------------------------------------------------------------


def test_uses_can_be_replaced_and_the_node_erased() -> None:
    graph, x, added, result = small()
    with graph.inserting_before(result):
        doubled = graph.call(OPS["multiply"], x, x)
    added.replace_all_uses_with(doubled)
    assert result.args == (doubled,) and not added.users and list(doubled.users) == [result]
    graph.erase(added)
    graph.lint()
    assert [n.name for n in graph.nodes] == ["x", "multiply", "exp", "output"] and list(x.users) == [doubled]


def test_a_used_node_is_not_erased() -> None:
    graph, _, added, _ = small()
    with pytest.raises(GraphError, match=r"^cannot erase add: used by exp$"):
        graph.erase(added)


def test_nodes_may_be_erased_while_iterating() -> None:
    graph, *_, result = small()
    graph.output_node.set_args((graph.placeholders[0],))
    for node in graph.nodes:
        if node is result:
            graph.erase(node)
    assert [n.name for n in graph.nodes] == ["x", "add", "output"]


def test_insertion_takes_the_location_of_its_place_and_ends_with_the_block() -> None:
    graph, x, _, result = small()
    result.location = Location("model.py", 7)
    with pytest.raises(ShapeError), graph.inserting_before(result):
        assert graph.call(OPS["sin"], x).location == Location("model.py", 7)
        graph.call(OPS["reshape"], x, shape=(7,))
    assert graph.location is None and [n.name for n in graph.nodes] == ["x", "add", "sin", "exp", "output"]
    assert graph.call(OPS["cos"], x) is list(graph.nodes)[-1]


def test_dead_code_goes_with_the_constants_that_it_alone_used() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (2,)))
    graph.placeholder("unused", Meta(F64, ()))
    graph.call(OPS["exp"], graph.call(OPS["add"], x, graph.constant(np.ones(2))))
    kept = graph.constant(np.zeros(2))
    graph.output([graph.call(OPS["multiply"], x, kept)])
    assert graph.eliminate_dead_code() == 3
    graph.lint()
    assert list(graph.constants) == [kept.target] and len(graph.placeholders) == 2


def test_a_copy_is_independent() -> None:
    graph, *_ = small()
    copied = graph.copy()
    assert str(copied) == str(graph)
    copied.output_node.set_args((copied.placeholders[0],))
    copied.eliminate_dead_code()
    graph.lint()
    copied.lint()
    assert len(graph) == 4 and len(copied) == 2
    again = graph.copy()
    assert again.call(OPS["add"], *again.placeholders * 2).name not in {n.name for n in graph.nodes}


def test_layouts_can_be_said_and_unsaid() -> None:
    meta = with_strides(Meta(F64, (2, 3)), [1, 2])
    assert meta.strides == (1, 2) and with_strides(meta, None) == Meta(F64, (2, 3))
    assert meta.hint_nbytes == 48 and meta.ndim == 2


# -- lint -----------------------------------------------------------------------------------------------------------


def after_the_output(graph: Graph, x: Node, added: Node, result: Node) -> None:
    graph.call(OPS["sin"], x)


def used_before_its_definition(graph: Graph, x: Node, added: Node, result: Node) -> None:
    with graph.inserting_before(added):
        late = graph.call(OPS["sin"], x)
    late.set_args((result,))


def erased_but_used(graph: Graph, x: Node, added: Node, result: Node) -> None:
    result.args = (x,)
    added.users.clear()
    graph.erase(added)
    result.set_args((added,))


def name_taken(graph: Graph, x: Node, added: Node, result: Node) -> None:
    result.name = "add"


def missing_user(graph: Graph, x: Node, added: Node, result: Node) -> None:
    added.users.clear()


def false_user(graph: Graph, x: Node, added: Node, result: Node) -> None:
    x.users[result] = None


def lost_constant(graph: Graph, x: Node, added: Node, result: Node) -> None:
    with graph.inserting_before(added):
        graph.constant(np.ones(2))
    graph.constants.clear()


def wrong_meta(graph: Graph, x: Node, added: Node, result: Node) -> None:
    result.meta = Meta(dtypes.float32, (3,))


def wrong_operands(graph: Graph, x: Node, added: Node, result: Node) -> None:
    with graph.inserting_before(added):
        y = graph.placeholder("y", Meta(F64, (2,)))
    added.set_args((x, y))


FAULTS = [
    (after_the_output, "node sin: stands after the output\n  sin = sin(x) : float64[3]"),
    (used_before_its_definition, "node sin: uses exp before its definition"),
    (erased_but_used, "node exp: uses add before its definition"),
    (name_taken, "node add: its name is taken by an earlier node\n  add = exp(add)"),
    (missing_user, "node exp: is not among the users of its operand add"),
    (false_user, "node x: lists exp as a user, which does not use it"),
    (lost_constant, "node constant: the graph holds no constant 'constant_0'"),
    (wrong_meta, "node exp: holds float32[3], its op gives float64[3]"),
    (wrong_operands, "node add: its op refuses its operands: add: shapes (3,) and (2,) do not broadcast"),
]


@pytest.mark.parametrize(("break_it", "message"), FAULTS, ids=lambda v: getattr(v, "__name__", ""))
def test_lint_names_the_node_and_the_fault(break_it: Callable[..., None], message: str) -> None:
    graph, x, added, result = small()
    break_it(graph, x, added, result)
    with pytest.raises(GraphError, match="^" + re.escape(f"graph 'small': {message}")):
        graph.lint()


# -- the interpreter ------------------------------------------------------------------------------------------------


def test_the_interpreter_gives_arrays_even_of_no_dimensions() -> None:
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (3,)))
    total = graph.call(OPS["sum"], x, axis=(0,))
    graph.output([graph.call(OPS["add"], total, graph.constant(np.float64(1))), x])
    result, same = interpret(graph, [np.arange(3.0)])
    assert isinstance(result, np.ndarray) and result.shape == () and result == 4.0 and same.tolist() == [0, 1, 2]


def test_the_interpreter_checks_its_inputs() -> None:
    graph, *_ = small()
    with pytest.raises(GraphError, match=r"^graph 'small': takes 1 inputs, got 0$"):
        interpret(graph, [])
    for wrong, given in [
        (np.zeros(3, np.float32), "float32[3]"),
        (np.zeros(4), "float64[4]"),
        (np.zeros((3, 1)), "float64[3, 1]"),
    ]:
        with pytest.raises(
            GraphError, match="^" + re.escape(f"graph 'small': input x must be float64[3], got {given}") + "$"
        ):
            interpret(graph, [wrong])


def test_the_interpreter_checks_that_symbolic_sizes_agree() -> None:
    graph = Graph()
    n = ShapeEnv().symbol(4)
    x, y = graph.placeholder("x", Meta(F64, (n,))), graph.placeholder("y", Meta(F64, (n + 1,)))
    graph.output([x, y])
    assert len(interpret(graph, [np.zeros(7), np.zeros(8)])) == 2
    with pytest.raises(GraphError, match=r"input y must be float64\[s0 \+ 1\], got float64\[7\]$"):
        interpret(graph, [np.zeros(7), np.zeros(7)])
