"""The rewriting engine: matching, building, the driver's checks; every rule is tested from its own pattern."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dynagraph.errors import RewriteError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Location, Meta, Node
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.simplify import EXACT
from dynagraph.ir.rewrite import Apply as ApplyPattern
from dynagraph.ir.rewrite import (
    Rule,
    attribute,
    attribute_key,
    filled,
    literal,
    op,
    rewrite,
    same_scalar,
    scalar,
    subpatterns,
    uniform_value,
    variable,
)
from dynagraph.ir.shapes import ShapeEnv

from .programs import assert_same_bits, instances, values

pytestmark = pytest.mark.sampled(3)

x, y = variable("x"), variable("y")


def graph_of(*shapes: tuple[int, ...], dtype: dtypes.DType = dtypes.float64) -> tuple[Graph, list[Node]]:
    graph = Graph()
    return graph, [graph.placeholder(f"x{k}", Meta(dtype, s)) for k, s in enumerate(shapes)]


def call(graph: Graph, name: str, *args: Node, **attrs: object) -> Node:
    return graph.call(OPS[name], *args, **attrs)


# -- every rule --------------------------------------------------------------------------------------------------------
@pytest.mark.sampled(6)
@pytest.mark.parametrize("rule", EXACT, ids=lambda r: r.name)
def test_rule_keeps_every_bit(rule: Rule) -> None:
    fired = 0
    for before in instances(rule):
        after = before.copy()
        log = rewrite(after, [rule])
        if log:
            assert set(log) == {rule.name}
            after.lint()
            fired += 1
            for seed in range(3):
                (got,), (expected,) = values(after, seed), values(before, seed)
                assert_same_bits(got, expected)
    assert fired, "no instance of the pattern made the rule fire"


@pytest.mark.parametrize("rule", EXACT, ids=lambda r: r.name)
def test_rule_mentions_rows_of_the_op_table_only(rule: Rule) -> None:
    patterns = [rule.pattern] + ([rule.replacement] if isinstance(rule.replacement, ApplyPattern) else [])
    mentioned = {p.op for pattern in patterns for p in subpatterns(pattern) if isinstance(p, ApplyPattern)}
    assert mentioned <= OPS.keys()


def test_the_rule_check_itself_catches_a_wrong_rule() -> None:
    wrong = Rule("add-zero-float", x + 0, x)  # -0.0 + 0.0 is 0.0
    with pytest.raises(AssertionError):
        test_rule_keeps_every_bit(wrong)


# -- the driver's checks -----------------------------------------------------------------------------------------------
def test_rule_that_changes_the_dtype_is_rejected() -> None:
    graph, (a,) = graph_of((2,))
    graph.output([call(graph, "multiply", a, scalar(graph, 1.0, a.dtype))])
    bad = Rule("mul-one", x * 1, lambda x: x.graph.call(OPS["cast"], x, dtype=dtypes.float32))
    with pytest.raises(RewriteError, match=r"^rule 'mul-one' changes float64\[2\] into float32\[2\]$"):
        rewrite(graph, [bad])


def test_rule_that_changes_the_shape_is_rejected() -> None:
    graph, (a,) = graph_of((2, 3))
    graph.output([call(graph, "sum", a, axis=(0,), keepdims=False)])
    with pytest.raises(RewriteError, match=r"^rule 'sum-nothing' changes float64\[3\] into float64\[2, 3\]$"):
        rewrite(graph, [Rule("sum-nothing", op.sum(x), x)])


def test_rules_that_go_round_in_circles_are_stopped() -> None:
    graph, (a, b) = graph_of((2,), (2,))
    graph.output([call(graph, "add", call(graph, "subtract", a, b), b)])
    swap = [Rule("there", x + y, y - x), Rule("back", y - x, x + y)]
    with pytest.raises(RewriteError, match=r"^rules do not come to an end after \d+ steps; the last were (there|back)"):
        rewrite(graph, swap)


def test_function_that_wants_an_unbound_name_is_explained() -> None:
    with pytest.raises(RewriteError, match=r"^rule 'odd': its function wants z; its pattern binds root, x, y$"):
        Rule("odd", x + y, lambda z: z)


def test_replacement_is_broadcast_to_the_shape_of_an_elementwise_node() -> None:
    graph, (a,) = graph_of((4,))
    ones = call(graph, "full", shape=(3, 4), value=1.0, dtype=dtypes.float64)
    graph.output([call(graph, "exp", call(graph, "multiply", a, ones))])
    assert rewrite(graph, [Rule("mul-one", x * 1, x)]) == ["mul-one"]
    (exp,) = graph.outputs
    assert exp.args[0].is_op("broadcast_to")
    assert exp.shape == (3, 4)


# -- outputs -----------------------------------------------------------------------------------------------------------
def test_an_output_never_becomes_an_input() -> None:
    graph, (a,) = graph_of((2,))
    graph.output([call(graph, "multiply", a, scalar(graph, 1.0, a.dtype))])
    assert rewrite(graph, EXACT) == ["mul-one"]
    (result,) = graph.outputs
    assert result.is_op("copy")
    assert result.args == (a,)


def test_two_outputs_never_become_one() -> None:
    graph, (a,) = graph_of((2,))
    exp = call(graph, "exp", a)
    graph.output([exp, call(graph, "copy", exp)])
    assert rewrite(graph, EXACT) == []
    assert graph.outputs[0] is exp
    assert graph.outputs[1].is_op("copy")


def test_a_copy_inside_the_graph_goes_and_the_returned_one_stays() -> None:
    graph, (a,) = graph_of((2,))
    copy = call(graph, "copy", a)
    graph.output([copy, call(graph, "exp", copy)])
    assert rewrite(graph, EXACT) == ["copy"]
    returned, exp = graph.outputs
    assert returned.is_op("copy")
    assert exp.args == (a,)
    graph.lint()


# -- matching ----------------------------------------------------------------------------------------------------------
def test_commutative_ops_match_either_way_round() -> None:
    for swapped in (False, True):
        graph, (a,) = graph_of((2,))
        operands = [a, scalar(graph, 1.0, a.dtype)]
        graph.output([call(graph, "exp", call(graph, "multiply", *(reversed(operands) if swapped else operands)))])
        assert rewrite(graph, EXACT) == ["mul-one"]


def test_subtraction_does_not_match_the_other_way_round() -> None:
    graph, (a,) = graph_of((2,))
    graph.output([call(graph, "subtract", scalar(graph, 0.0, a.dtype), a)])
    assert rewrite(graph, EXACT) == []


def test_a_variable_stands_for_one_node() -> None:
    graph, (a, b) = graph_of((2,), (2,), dtype=dtypes.int64)
    graph.output([call(graph, "subtract", a, b)])
    assert rewrite(graph, EXACT) == []


def test_matching_goes_back_to_the_other_order() -> None:
    """The inner product matches both ways; only one of them lets the outer operand be the same node."""
    graph, (a, b) = graph_of((2,), (2,))
    graph.output([call(graph, "subtract", call(graph, "multiply", a, b), b)])
    assert rewrite(graph, [Rule("other", x * y - x, lambda x, y: x.graph.call(OPS["add"], x, y))]) == ["other"]


def test_attributes_match_by_value_and_bind() -> None:
    graph, (a,) = graph_of((2, 3))
    graph.output([call(graph, "sum", a, axis=(0,), keepdims=True)])
    assert rewrite(graph, [Rule("other-axis", op.sum(x, axis=(1,)), x)]) == []
    seen: list[object] = []

    def look(axis: object) -> None:
        seen.append(axis)

    assert rewrite(graph, [Rule("look", op.sum(x, axis=attribute("axis"), keepdims=True), look)]) == []
    assert seen == [(0,)]


def test_literal_binds_the_value_and_replacements_may_use_it() -> None:
    graph, (a,) = graph_of((2,), dtype=dtypes.float32)
    graph.output([call(graph, "divide", a, scalar(graph, 3.0, a.dtype))])
    c = literal("c")
    assert rewrite(graph, [Rule("swap", x / c, c - x)]) == ["swap"]
    (subtract,) = graph.outputs
    assert uniform_value(subtract.args[0]) == 3.0
    assert subtract.dtype is dtypes.float32


@pytest.mark.parametrize("make", [
    lambda g: scalar(g, 1.0, dtypes.float64),
    lambda g: call(g, "full", shape=(2,), value=1.0, dtype=dtypes.float64),
    lambda g: call(g, "cast", scalar(g, 1, dtypes.int64), dtype=dtypes.float64),
    lambda g: call(g, "broadcast_to", scalar(g, 1.0, dtypes.float64), shape=(2,)),
    lambda g: call(g, "cast", call(g, "full", shape=(2,), value=True, dtype=dtypes.bool_), dtype=dtypes.float64),
    lambda g: g.constant(np.array(1.0)),
], ids=["constant", "full", "cast", "broadcast", "cast of full", "get_attr"])  # fmt: skip
def test_numbers_match_constants_in_every_form(make: object) -> None:
    graph, (a,) = graph_of((2,))
    graph.output([call(graph, "exp", call(graph, "multiply", a, make(graph)))])  # type: ignore[operator]
    assert rewrite(graph, [Rule("mul-one", x * 1, x)]) == ["mul-one"]


def test_symbolic_numbers_are_not_known() -> None:
    graph, _ = graph_of()
    size = ShapeEnv().symbol(5)
    assert uniform_value(call(graph, "constant", value=size, dtype=dtypes.float64)) is None


def test_a_cast_that_depends_on_the_machine_is_not_known() -> None:
    graph, _ = graph_of()
    for value in (math.nan, math.inf, 1e30):
        assert uniform_value(call(graph, "cast", scalar(graph, value, dtypes.float64), dtype=dtypes.int32)) is None


def test_same_scalar_tells_signs_of_zero_and_bools_apart() -> None:
    assert same_scalar(1, 1.0)
    assert same_scalar(math.nan, math.nan)
    assert not same_scalar(math.nan, -math.nan)
    assert not same_scalar(0, -0.0)
    assert not same_scalar(True, 1)


def test_comparing_attributes_guards_no_symbolic_size() -> None:
    env = ShapeEnv()
    first, second = env.symbol(5), env.symbol(5)
    assert attribute_key((first, 2)) != attribute_key((second, 2))
    assert attribute_key((first, 2)) == attribute_key((first, 2))
    assert attribute_key(True) != attribute_key(1)
    assert attribute_key(0.0) != attribute_key(-0.0)
    assert env.relations == {}


# -- what is kept ------------------------------------------------------------------------------------------------------
def test_new_nodes_take_the_source_line() -> None:
    graph, (a,) = graph_of((2,))
    one = scalar(graph, 4.0, a.dtype)
    graph.location = Location("model.py", 12)
    divide = call(graph, "divide", a, one)
    graph.location = None
    graph.output([divide])
    assert rewrite(graph, EXACT) == ["div-power-of-two"]
    (multiply,) = graph.outputs
    assert str(multiply.location) == "model.py:12"


def test_the_log_tells_the_rules_in_order() -> None:
    graph, (a,) = graph_of((2,))
    doubled = call(graph, "negative", call(graph, "negative", a))
    graph.output([call(graph, "exp", call(graph, "divide", doubled, scalar(graph, 2.0, a.dtype)))])
    assert rewrite(graph, EXACT) == ["negative-negative", "div-power-of-two"]


def test_symbolic_shapes_are_rewritten_without_guards() -> None:
    graph = Graph()
    env = ShapeEnv()
    n = env.symbol(7)
    a = graph.placeholder("a", Meta(dtypes.int64, (n, 3)))
    same = call(graph, "reshape", call(graph, "reshape", a, shape=(n * 3,)), shape=(n, 3))
    graph.output([call(graph, "subtract", same, a)])
    before = dict(env.relations)
    assert rewrite(graph, EXACT) == ["reshape-reshape", "reshape-same", "sub-self"]
    assert env.relations == before
    graph.lint()


def test_filled_is_a_constant_without_dimensions() -> None:
    _, (a, b) = graph_of((), (2,))
    assert filled(a, 0).is_op("constant")
    assert filled(b, 0).is_op("full")
