"""Gradients of graphs against differences of their values, by the real inner product of complex numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.backward import append_gradients, append_tangents
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.terms import Term

STEP = 1e-6
Program = Callable[..., Term]  # of terms for the operands


class Differentiable:
    """A graph of a program of its operands; the gradients are by those that are inexact."""

    def __init__(self, program: Program, operands: Sequence[np.ndarray]):
        self.graph = Graph()
        metas = [Meta(dtypes.from_numpy(x.dtype), x.shape) for x in operands]
        self.inputs = [self.graph.placeholder(f"x{k}", meta) for k, meta in enumerate(metas)]
        self.graph.output([program(*map(Term, self.inputs)).node])
        (self.value,) = self.graph.outputs
        self.by = [node for node in self.inputs if node.dtype.is_inexact]

    def gradients(self, seeds: dict[Node, Node]) -> list[Node]:
        """Zeros where there is none."""
        found = append_gradients(self.graph, list(seeds.items()), self.by)
        return [self._zeros(node) if g is None else g for node, g in zip(self.by, found)]

    def _zeros(self, node: Node) -> Node:
        with self.graph.inserting_before(self.graph.output_node):
            return self.graph.call(OPS["full"], shape=node.shape, value=0.0, dtype=node.dtype)

    def seed(self, name: str, like: Node) -> Node:
        with self.graph.inserting_before(self.value if self.value.kind == "placeholder" else next(iter(self.graph.nodes))):
            return self.graph.placeholder(name, like.meta)


def normal(rng: np.random.Generator, node: Node) -> np.ndarray:
    """Random numbers of a node's dtype and shape."""
    x = rng.normal(size=node.shape)
    return np.asarray(x + 1j * rng.normal(size=node.shape) if node.dtype.is_complex else x).astype(node.dtype.numpy)


def product(a: np.ndarray, b: np.ndarray) -> float:
    """The real inner product."""
    return float((np.conj(a) * b).real.sum())


def directional(
    graph: Graph, outputs: list[Node], inputs: list[np.ndarray], by: list[int], way: list[np.ndarray]
) -> list[np.ndarray]:
    """How outputs change along a direction."""
    graph.output_node.set_args(tuple(outputs))

    def moved(step: float) -> tuple[np.ndarray, ...]:
        there = [x + step * way[by.index(k)] if k in by else x for k, x in enumerate(inputs)]
        with np.errstate(all="ignore"):
            return interpret(graph, there)

    return [(high - low) / (2 * STEP) for high, low in zip(moved(STEP), moved(-STEP))]


def check_gradients(program: Program, operands: Sequence[np.ndarray], order: int, who: str = "") -> None:
    """Of the first order, or of the second: the gradients of the gradients."""
    d = Differentiable(program, operands)
    rng = np.random.default_rng(1)
    seed = d.seed("seed", d.value)
    order_of = d.graph.placeholders  # the seed is among them
    inputs = {**dict(zip(d.inputs, operands)), seed: normal(rng, d.value)}
    values = [inputs[node] for node in order_of]
    way = [normal(rng, node) for node in d.by]
    at = [order_of.index(node) for node in d.by]
    first = d.gradients({d.value: seed})
    for node, gradient in zip(d.by, first):
        assert (gradient.dtype, gradient.shape) == (node.dtype, node.shape), who
    if order == 1:
        _compare(d, [d.value], [inputs[seed]], first, values, at, way, who)
        return
    weights = [d.seed(f"weight{k}", g) for k, g in enumerate(first)]
    order_of = d.graph.placeholders
    inputs |= {w: normal(rng, w) for w in weights}
    values = [inputs[node] for node in order_of]
    at = [order_of.index(node) for node in d.by]
    second = d.gradients(dict(zip(first, weights)))
    _compare(d, first, [inputs[w] for w in weights], second, values, at, way, who)


def _compare(d, outputs, seeds, gradients, values, at, way, who) -> None:
    changes = directional(d.graph, outputs, values, at, way)
    numeric = sum(product(change, seed) for change, seed in zip(changes, seeds))
    d.graph.output_node.set_args(tuple(gradients))
    d.graph.lint()
    with np.errstate(all="ignore"):
        exact = interpret(d.graph, values)
        simplified = interpret(run_passes(d.graph), values)
    ours = sum(product(g, w) for g, w in zip(exact, way))
    scale = 1 + sum(float(np.abs(g * w).sum()) for g, w in zip(exact, way))
    assert abs(ours - numeric) < 2e-5 * scale, f"{who}: {ours} by gradients, {numeric} by differences"
    for got, want in zip(simplified, exact):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * scale)


def check_tangents(program: Program, operands: Sequence[np.ndarray], who: str = "") -> None:
    d = Differentiable(program, operands)
    rng = np.random.default_rng(2)
    ways = [d.seed(f"way{k}", node) for k, node in enumerate(d.by)]
    inputs = {**dict(zip(d.inputs, operands)), **{way: normal(rng, way) for way in ways}}
    order = d.graph.placeholders
    values, at = [inputs[node] for node in order], [order.index(node) for node in d.by]
    (tangent,) = append_tangents(d.graph, list(zip(d.by, ways)), [d.value])
    (numeric,) = directional(d.graph, [d.value], values, at, [inputs[way] for way in ways])
    if tangent is None:
        np.testing.assert_allclose(numeric, 0, atol=1e-5)
        return
    d.graph.output_node.set_args((tangent,))
    simplified = run_passes(d.graph)
    with np.errstate(all="ignore"):
        (got,) = interpret(simplified, values)
    np.testing.assert_allclose(got, numeric, rtol=2e-4, atol=2e-5 * (1 + np.abs(numeric).max(initial=0)), err_msg=who)


def gradients_of(program: Program, *operands: np.ndarray, seed: np.ndarray | None = None) -> list[np.ndarray]:
    """The values of the gradients by the inexact operands; the seed is ones."""
    d = Differentiable(program, operands)
    with d.graph.before_output():
        given = d.graph.constant(np.ones(d.value.shape, d.value.dtype.numpy) if seed is None else seed)
    d.graph.output_node.set_args(tuple(d.gradients({d.value: given})))
    with np.errstate(all="ignore"):
        return list(interpret(d.graph, operands))
