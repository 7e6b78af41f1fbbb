"""Reverse-mode differentiation: append gradients to a graph, by the `vjp` column of the op table.

Gradients are nodes of the same graph, made of the table's ops: they are simplified, fused and compiled like all others, and have
gradients themselves.  What a gradient does not depend on is never built: zeros are symbolic.

Complex numbers are pairs of real ones: the gradient by z is that by its real part plus i times that by its imaginary part
(`ir/terms.py`).  Where a real operand meets a complex gradient, as that of a cast does, the real part counts.

Where a function has a kink the gradient is one of its subgradients: zero for the absolute value of zero, and for a norm at zero;
halves for two equal operands of maximum or minimum, also where these cut off a range (np.clip), and equal shares for a reduction's
extremes.  Where the slope is infinite it is so here (sqrt at zero, but not that of a sum of squares, which is a norm), and NaN
where that meets a zero.  What `where`, maximum and the like do not choose gets zero, also after an infinite slope, as far back as
elementwise functions go whose value nothing else uses: see `Share` (`ir/shares.py`).
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from dynagraph.errors import GradientError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Composite, Elementwise
from dynagraph.ir.passes.decompose import expansion
from dynagraph.ir.rewrite import uniform_value
from dynagraph.ir.shapes import same_shape
from dynagraph.ir.shares import Share, of_dtype, of_shape, total_of
from dynagraph.ir.terms import Differentiated, Term

Pairs = Sequence[tuple[Node, Node]]


def append_gradients(graph: Graph, seeds: Pairs, by: Sequence[Node]) -> list[Node | None]:
    """The gradients of ``sum(sum(seed * value) for value, seed in seeds)`` by the nodes `by`; None where one is zero.

    Needs: seeds of their values' shapes and dtypes.  New nodes come after those that are there, before the output; ops that are
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


Found = dict[Node, list[Share]]


def _accumulate(graph: Graph, seeds: Pairs, by: Sequence[Node]) -> list[Node | None]:
    nodes = list(graph.nodes)
    active = set(by)
    _spread(nodes, active)
    found: Found = {}
    for value, seed in seeds:
        if value in active:
            found.setdefault(value, []).append(Share(Term(seed)))
    gradients = _reverse(nodes, active, found, set(by))
    return [gradients[node].node if node in gradients else None for node in by]


def _spread(nodes: Sequence[Node], active: set[Node]) -> None:
    """Add what depends on active nodes through numbers that have derivatives."""
    for node in nodes:
        custom = node.graph.custom.get(node)
        operands = node.args if custom is None else custom.operands
        if node.kind == "call_function" and node.dtype.is_inexact and any(a in active for a in operands):
            active.add(node)


def _reverse(nodes: Sequence[Node], active: set[Node], found: Found, wanted: Collection[Node] = ()) -> dict[Node, Term]:
    """Take what was `found` of the gradients of nodes to their operands, last node first; gives the sums for `wanted`."""
    gradients: dict[Node, Term] = {}
    waiting: dict[CustomGradient, dict[Node, Node]] = {}
    for node in reversed(nodes):
        shares = found.pop(node, None)
        custom = node.graph.custom.get(node)
        node.graph.location = node.location
        if shares is not None:
            whole = total_of(shares)
            if node in wanted or custom is not None:
                whole = whole.cleaned()
            if node in wanted:
                gradients[node] = whole.term
            if custom is not None:
                waiting.setdefault(custom, {})[node] = whole.term.node
            elif any(a in active for a in node.args):
                _pass_through(node, whole, active, found)
        if custom in waiting and node is custom.results[0]:
            _pass_custom(custom, waiting.pop(custom), active, found)
    return gradients


@dataclass(eq=False)
class CustomGradient:
    """How gradients come from the results of a part of a graph, nodes that follow one another, to its operands.

    ``pull(operands, cotangents, wanted)`` gives, for each operand, the gradient by it; zero is None on both sides, and so may be
    what is not wanted.  `captured`: other nodes that the part takes: no gradient may be asked by these.
    """

    name: str
    results: Sequence[Node]
    operands: Sequence[Node]
    captured: frozenset[Node]
    pull: Callable[[Sequence[Node], Sequence[Node | None], Sequence[bool]], Sequence[Node | None]]

    def moved(self, to: Mapping[Node, Node]) -> CustomGradient:
        """The same of other nodes."""
        results, operands = [to.get(n, n) for n in self.results], [to.get(n, n) for n in self.operands]
        return CustomGradient(self.name, results, operands, frozenset(to.get(n, n) for n in self.captured), self.pull)


def _pass_custom(custom: CustomGradient, given: dict[Node, Node], active: set[Node], found: Found) -> None:
    if any(node in active for node in custom.captured):
        raise GradientError(
            f"{_place(custom.results[0])}: {custom.name} uses a value that is being differentiated and is none of its arguments; "
            "pass it as an argument"
        )
    wanted = [node in active for node in custom.operands]
    terms = custom.pull(custom.operands, [given.get(node) for node in custom.results], wanted)
    for operand, term in zip(custom.operands, terms, strict=True):
        if term is not None and operand in active:
            found.setdefault(operand, []).append(of_shape(Share(of_dtype(Term(term), operand.dtype)), operand.shape))


def recompute(results: Sequence[Node], part: Sequence[Node]) -> CustomGradient:
    """The gradient of a part of a graph that computes the part again, rather than having it kept.

    `results`: nodes that follow one another, each a copy of a node of the part, whose gradient this is to be.
    """
    within, values = set(part), [result.args[0] for result in results]
    graph = results[0].graph
    taken = list(dict.fromkeys(a for node in (*part, *results) for a in _all_operands(node) if a not in within))

    def pull(operands: Sequence[Node], cotangents: Sequence[Node | None], _: Sequence[bool]) -> list[Node | None]:
        fresh = [graph.call(OPS["optimization_barrier"], node) for node in operands]
        again = _copied(part, values, dict(zip(taken, fresh)))
        seeds = [(again[v], c) for v, c in zip(values, cotangents) if c is not None]
        found = iter(append_gradients(graph, seeds, [node for node in fresh if node.dtype.is_inexact]))
        return [next(found) if node.dtype.is_inexact else None for node in fresh]

    return CustomGradient("dg.checkpoint", results, taken, frozenset(), pull)


def _all_operands(node: Node) -> tuple[Node, ...]:
    """What a value, or its gradient, depends on."""
    custom = node.graph.custom.get(node)
    return node.args if custom is None else (*node.args, *custom.operands)


def _copied(part: Sequence[Node], values: Sequence[Node], given: Mapping[Node, Node]) -> dict[Node, Node]:
    """The nodes of a part that values need, once more, with others for what it takes."""
    copies = dict(given)
    needed, waiting, within = set(), list(values), set(part)
    while waiting:
        node = waiting.pop()
        if node in within and node not in needed:
            needed.add(node)
            waiting += _all_operands(node)
    for node in part:
        if node in needed:
            copies[node] = node.graph.call(node.op, *(copies[a] for a in node.args), **node.attrs)
    graph = values[0].graph
    for custom in {graph.custom[node]: None for node in part if node in graph.custom and node in needed}:
        again = custom.moved(copies)
        graph.custom.update({copies[node]: again for node in custom.results if node in copies})
    return copies


def _through_parts(node: Node, gradient: Term, active: set[Node], found: Found) -> None:
    """As `_pass_through`, for an op that is made of others."""
    graph = node.graph
    before = graph.latest
    value = expansion(node)
    parts = graph.since(before)
    _spread(parts, active)
    found.setdefault(value, []).append(Share(gradient))
    _reverse(parts, active, found)


def _pass_through(node: Node, whole: Share, active: set[Node], found: Found) -> None:
    """Add to the gradients of a node's operands what comes through the node."""
    is_pointwise = isinstance(node.op.lowering, Elementwise) or node.is_op("copy", "variable", "optimization_barrier")
    if not is_pointwise:
        whole = Share(whole.cleaned().term)
    if isinstance(node.op.lowering, Composite):
        _through_parts(node, whole.term, active, found)
        return
    if node.op.vjp is None:
        raise GradientError(
            f"{_place(node)}: no gradient passes through {node.op.name}; write the step with other functions, "
            "or keep what it depends on out of the gradient"
        )
    _check_dtype(node, "a gradient would pass through")
    is_clean = whole.is_clean and (not whole.within or _is_harmless(node))
    for operand, term in zip(node.args, node.op.vjp(Differentiated(node), whole.term), strict=True):
        if term is not None and operand in active:
            share = Share(of_dtype(term, operand.dtype), whole.within + _chosen(term.node, whole.term.node), is_clean)
            found.setdefault(operand, []).append(of_shape(share, operand.shape))


def _is_harmless(node: Node) -> bool:
    """Whether zero stays zero on its way back through the op: no slope is infinite."""
    if node.is_op("multiply", "divide"):
        return any(map(_is_scale, node.args if node.is_op("multiply") else node.args[1:]))
    return node.op.finite_slope


def _is_scale(node: Node) -> bool:
    factor = uniform_value(node)
    return factor is not None and factor != 0 and cmath.isfinite(factor)


def _chosen(term: Node, gradient: Node) -> tuple[tuple[Node, bool], ...]:
    """The condition outside of which a gradient was set to zero just now.  That itself may be zeros which stand for any numbers."""
    if term is gradient or not term.is_op("where"):
        return ()
    condition, chosen, otherwise = term.args
    if _is_zero(otherwise) and otherwise is not gradient:
        return ((condition, True),)
    return ((condition, False),) if _is_zero(chosen) and chosen is not gradient else ()


def _is_zero(node: Node) -> bool:
    return uniform_value(node) == 0


def _check_dtype(node: Node, what: str) -> None:
    if not node.dtype.is_inexact:
        raise GradientError(f"{_place(node)}: {what} {node.dtype}, which has no derivatives; cast to float64 first")


def _place(node: Node) -> str:
    return f"{node.location}: {node.name}" if node.location else node.name


__all__ = ["CustomGradient", "append_gradients", "append_tangents", "recompute"]
