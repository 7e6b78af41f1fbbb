"""Append gradients to a graph: reverse accumulation over the `vjp` column of the op table.

Gradients are nodes of the same graph, made of the table's ops: they are simplified, fused and compiled like all others, and have
gradients themselves.  What a gradient does not depend on is never built: zeros are symbolic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from dynagraph.errors import GradientError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Composite
from dynagraph.ir.passes.decompose import expansion
from dynagraph.ir.shapes import Shape, same_dim, same_shape
from dynagraph.ir.terms import Differentiated, Term

Pairs = Sequence[tuple[Node, Node]]


def append_gradients(graph: Graph, seeds: Pairs, by: Sequence[Node]) -> list[Node | None]:
    """The gradients of ``sum(sum(seed * value) for value, seed in seeds)`` by the nodes `by`; None where one is zero.

    Needs: seeds of their values' shapes and dtypes.  New nodes stand behind those that are there, before the output; ops that are
    made of others are differentiated by their parts.

    Raises GradientError where a gradient would pass through what has none.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (3,)))
    >>> y = g.call(OPS["square"], x)
    >>> one = g.call(OPS["full"], shape=(3,), value=1.0, dtype=dtypes.float64)
    >>> append_gradients(graph=g, seeds=[(y, one)], by=[x])
    [multiply_1]
    """
    for node in by:
        _check_dtype(node, "a gradient is asked by")
    for value, seed in seeds:
        if seed.dtype is not value.dtype or not same_shape(seed.shape, value.shape):
            raise GradientError(f"the seed of {value.name} must be {value.dtype}{list(value.shape)}, got {seed.meta}")
    with graph.before_output():
        return _accumulate(graph, seeds, by)


def append_tangents(graph: Graph, tangents: Pairs, of: Sequence[Node]) -> list[Node | None]:
    """How the nodes `of` change where the first of each pair changes by the second: forward mode; None where they do not.

    The gradients by the inputs are linear in the seeds: the gradients of these by the seeds, seeded by the tangents, are what is
    asked for.  Nothing depends on the seeds' values then, and they go with dead code.  (J. Townsend, "A new trick for calculating
    Jacobian vector products", 2017.)  Needs and raises what `append_gradients` does.
    """
    with graph.before_output():
        seeds = [graph.call(OPS["full"], shape=node.shape, value=0, dtype=node.dtype) for node in of]
    gradients = append_gradients(graph, list(zip(of, seeds)), [node for node, _ in tangents])
    known = [(gradient, tangent) for gradient, (_, tangent) in zip(gradients, tangents) if gradient is not None]
    return append_gradients(graph, known, seeds)


def _accumulate(graph: Graph, seeds: Pairs, by: Sequence[Node]) -> list[Node | None]:
    nodes = list(graph.nodes)
    active = set(by)
    _spread(nodes, active)
    found: dict[Node, list[Term]] = {}
    for value, seed in seeds:
        if value in active:
            found.setdefault(value, []).append(Term(seed))
    gradients = _reverse(nodes, active, found, set(by))
    return [gradients[node].node if node in gradients else None for node in by]


def _spread(nodes: Sequence[Node], active: set[Node]) -> None:
    """Add what depends on active nodes through numbers that have derivatives."""
    for node in nodes:
        if node.kind == "call_function" and node.dtype.is_inexact and any(a in active for a in node.args):
            active.add(node)


def _reverse(
    nodes: Sequence[Node], active: set[Node], found: dict[Node, list[Term]], wanted: Collection[Node] = ()
) -> dict[Node, Term]:
    """Take what was `found` of the gradients of nodes to their operands, last node first; gives the sums for `wanted`."""
    gradients: dict[Node, Term] = {}
    for node in reversed(nodes):
        terms = found.pop(node, None)
        if terms is None:
            continue
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        if node in wanted:
            gradients[node] = total
        if any(a in active for a in node.args):
            node.graph.location = node.location
            _pass_through(node, total, active, found)
    return gradients


def _through_parts(node: Node, gradient: Term, active: set[Node], found: dict[Node, list[Term]]) -> None:
    """As `_pass_through`, for an op that is made of others."""
    graph = node.graph
    with graph.collecting() as made:
        value = expansion(node)
    parts = list(made)
    _spread(parts, active)
    found.setdefault(value, []).append(gradient)
    _reverse(parts, active, found)


def _pass_through(node: Node, gradient: Term, active: set[Node], found: dict[Node, list[Term]]) -> None:
    """Add to the gradients of a node's operands what comes through the node."""
    if isinstance(node.op.lowering, Composite):
        _through_parts(node, gradient, active, found)
        return
    if node.op.vjp is None:
        raise GradientError(
            f"{_place(node)}: no gradient passes through {node.op.name}; write the step with other functions, "
            "or keep what it depends on out of the gradient"
        )
    _check_dtype(node, "a gradient would pass through")
    for operand, term in zip(node.args, node.op.vjp(Differentiated(node), gradient), strict=True):
        if term is not None and operand in active:
            found.setdefault(operand, []).append(_of_shape(term, operand.shape))


def _check_dtype(node: Node, what: str) -> None:
    if node.dtype.is_complex:
        raise GradientError(f"{_place(node)}: {what} complex numbers, which is not there yet; take real and imaginary parts")
    if not node.dtype.is_float:
        raise GradientError(f"{_place(node)}: {what} {node.dtype}, which has no derivatives; cast to float64 first")


def _place(node: Node) -> str:
    return f"{node.location}: {node.name}" if node.location else node.name


def _of_shape(term: Term, shape: Shape) -> Term:
    """The gradient of an operand that was broadcast: the sum over what it was broadcast to."""
    if same_shape(term.shape, shape):
        return term
    missing = term.ndim - len(shape)
    if missing < 0:
        return term.call("broadcast_to", shape=shape)
    axes = tuple(k for k in range(term.ndim) if k < missing or (same_dim(shape[k - missing], 1) and not same_dim(term.shape[k], 1)))
    reduced = term.call("sum", axis=axes, keepdims=True) if axes else term
    reduced = reduced.reshape(reduced.shape[missing:])
    return reduced if same_shape(reduced.shape, shape) else reduced.call("broadcast_to", shape=shape)


__all__ = ["append_gradients", "append_tangents"]
