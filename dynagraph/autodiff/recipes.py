"""Recipes: what a step of plain Python code means, as ops of the table applied to its operands.

The frontend's tables say it once for all steps that are alike: of one function, with operands of the same dtypes and shapes, and
with the same other arguments.  Further ones are recorded without asking anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.autodiff.notes import Notes
from dynagraph.autograd.nodes import NONE, Node, Value, array_of, levels_of
from dynagraph.autograd.terms import defaults_of
from dynagraph.doors.numpy import Unsupported
from dynagraph.errors import GradientError
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import Raised
from dynagraph.frontend.kinds.values import Array, Const
from dynagraph.frontend.kinds.values import Sequence as SequenceValue
from dynagraph.ir import dtypes
from dynagraph.ir import graph as ir
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import Composite, Op
from dynagraph.ir.passes.decompose import expansion
from dynagraph.ir.shapes import Shape

MOST_RECIPES = 4096
MOST_PARTS = 256  # of the key of a recipe that is kept
MOST_BYTES = 1 << 16  # of its constants
PLAIN = object()  # a result that is no array
UNLIKE = object()  # what an argument shares with no other


class NoRecipe(Exception):
    """A step that has no meaning as ops, or one that writes."""


@dataclass(frozen=True)
class Line:
    """One op.  `args`: places among the operands, then the constants, then what the lines give."""

    op: Op
    attrs: Mapping[str, Any]
    args: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: DType


@dataclass(frozen=True)
class Recipe:
    """`results`: the place of what a step gives; nested, as the step gives it; `PLAIN` for what is no array."""

    constants: Sequence[np.ndarray]
    lines: Sequence[Line]
    results: Any
    first: int  # the place of what the first line gives
    is_total: bool  # whether each op has a gradient
    is_unguarded: bool  # whether nothing was taken for granted that may change

    def values(self, operands: Sequence[Value], real: Any) -> list[Value]:
        """What stands at each place, in nodes that have not been computed but for the results."""
        env: list[Value] = [*operands, *self.constants]
        given: dict[int, np.ndarray] = {}
        _collect(self.results, real, given)
        for line in self.lines:
            inputs = [env[k] for k in line.args]
            levels = levels_of(line.op, inputs) if line.dtype.is_inexact else NONE
            env.append(Node(line.op, line.attrs, inputs, given.get(len(env)), line.shape, line.dtype, levels))
        return env


def _collect(results: Any, real: Any, given: dict[int, np.ndarray]) -> None:
    if type(results) is int and isinstance(real, (np.ndarray, np.generic)):
        given[results] = np.asarray(real)
    elif type(results) is list:
        for result, part in zip(results, real):
            _collect(result, part, given)


def fits(recipe: Recipe, operands: Sequence[Value], real: Any) -> bool:
    """Whether what NumPy gave is of the dtypes and shapes that the recipe says."""
    return _fits(recipe, recipe.results, operands, real)


def _fits(recipe: Recipe, results: Any, operands: Sequence[Value], real: Any) -> bool:
    if type(results) is list:
        return len(real) == len(results) and all(_fits(recipe, at, operands, part) for at, part in zip(results, real))
    if type(results) is not int or not isinstance(real, (np.ndarray, np.generic)):
        return True
    if results >= recipe.first:
        line = recipe.lines[results - recipe.first]
        return real.shape == line.shape and real.dtype == line.dtype.numpy
    return real.shape == (operands[results] if results < len(operands) else recipe.constants[results - len(operands)]).shape


# -- steps that are alike ---------------------------------------------------------------------------------------------------


def arguments(obj: Any, take: Callable[[Any], tuple[Any, Any]], key: list[Any]) -> Any:
    """An argument with what `take` puts in place of arrays and NumPy scalars; adds to the key what steps that are alike share.

    `UNLIKE` in the key: no other step is like this one.
    """
    kind = type(obj)
    if kind in (tuple, list):
        key.append((kind, len(obj)))
        return kind([arguments(item, take, key) for item in obj])
    if kind is float:
        key.append(obj.hex())
        return obj
    if kind in _BY_VALUE:
        key.append((kind, obj))
        return obj
    if kind is slice:
        key.append(slice)
        return slice(*(arguments(part, take, key) for part in (obj.start, obj.stop, obj.step)))
    if kind is dict:
        key.append((dict, *obj))
        return {name: arguments(item, take, key) for name, item in obj.items()}
    if kind is np.ndarray and obj.dtype.hasobject:
        return arguments(obj.tolist() if obj.ndim else obj.item(), take, key)
    if issubclass(kind, np.generic) and obj.dtype.kind not in "fc":
        key.append((kind, obj))
        return obj
    instead, shared = take(obj)
    key.append(shared)
    return instead


_BY_VALUE = (int, bool, str, type(None), type(Ellipsis), type, np.dtype)


# -- recipes that are kept ----------------------------------------------------------------------------------------------------

RECIPES: dict[tuple[Any, ...], Any] = {}  # by what steps share that are alike
BY_VALUE = object()  # in place of the recipe of steps that mean something else with other numbers


def kept(key: Sequence[Any]) -> Any:
    """The recipe of a step like this one, or `BY_VALUE`; None: there was none."""
    return None if UNLIKE in key or len(key) > MOST_PARTS else RECIPES.get(tuple(key))


def keep(key: Sequence[Any], recipe: Any) -> None:
    """Keep a recipe for steps that are alike, if there can be any."""
    if UNLIKE in key or len(key) > MOST_PARTS:
        return
    if recipe is not BY_VALUE and not (recipe.is_unguarded and sum(c.nbytes for c in recipe.constants) <= MOST_BYTES):
        return
    if len(RECIPES) >= MOST_RECIPES:
        RECIPES.clear()
    RECIPES[tuple(key)] = recipe


# -- making recipes -----------------------------------------------------------------------------------------------------------


def recipe_of(meaning: Callable[..., Any], static: Any, given: Sequence[Any], operands: Any, by_value: bool) -> Recipe:
    """What ``meaning(notes, static, *given)`` says, an `Operand` standing for each array; raises NoRecipe where it says none.

    `by_value`: it may look at what the operands are.
    """
    notes = Notes(None, frozenset())
    try:
        made = _noted(notes, lambda: meaning(notes, static, *given), operands.values, operands.scalars, by_value)
    except (Break, Unsupported, Raised, GradientError) as stop:
        raise NoRecipe from stop.with_traceback(None)
    finally:
        notes.close()
    return made


def _noted(
    notes: Notes, meaning: Callable[[], Any], operands: Sequence[Value], scalars: Sequence[bool], by_value: bool
) -> Recipe:
    ex, graph = notes.ex, notes.ex.graph
    for k, (value, is_scalar) in enumerate(zip(operands, scalars)):
        node = graph.placeholder(f"x{k}", _meta_of(value))
        if by_value:
            notes.values[node] = array_of(value)
        if is_scalar:
            ex.scalars.add(node)
        array = ex.own(Array(node, is_scalar=is_scalar))
        if not is_scalar:
            ex.arrays[node] = array
        notes.operands.append(array)
    if not by_value:
        ex.builder.observed = _nothing
    result = meaning()
    if any(memory.value is not memory.base for memory in ex.memories):
        raise NoRecipe
    nodes: list[ir.Node] = []
    results = _places(notes, result, nodes)
    _expand(graph, nodes)
    return _written_out(graph, results, nodes, ex.guards.is_empty)


def _nothing(node: ir.Node) -> None:
    return None


def _meta_of(value: Value) -> ir.Meta:
    dtype = value.dtype if type(value) is Node else dtypes.from_numpy(value.dtype)  # type: ignore[arg-type]
    if dtype is None:
        raise NoRecipe
    array = value.value if type(value) is Node else value
    strides: Shape | None = None
    if isinstance(array, np.ndarray) and not array.flags.c_contiguous:
        strides = tuple(stride // array.itemsize for stride in array.strides)
    return ir.Meta(dtype, value.shape, strides)  # type: ignore[arg-type]


def _places(notes: Notes, value: Any, nodes: list[ir.Node]) -> Any:
    """The results, with numbers of nodes in place of arrays."""
    if isinstance(value, Array):
        nodes.append(notes.ex.memories.present(value))
        return len(nodes) - 1
    if isinstance(value, SequenceValue):
        return [_places(notes, item, nodes) for item in value.items]
    if not isinstance(value, Const):
        raise NoRecipe
    return PLAIN


def _expand(graph: ir.Graph, nodes: list[ir.Node]) -> None:
    """Write out ops that are made of others, and have no gradient of their own."""
    done = False
    while not done:
        done = True
        for part in _needed(nodes):
            if part.kind == "call_function" and isinstance(part.op.lowering, Composite) and part.op.vjp is None:
                with graph.inserting_before(part):
                    value = expansion(part)
                part.replace_all_uses_with(value)
                nodes[:] = [value if node is part else node for node in nodes]
                done = False


def _needed(nodes: Sequence[ir.Node]) -> set[ir.Node]:
    """What some nodes are computed from, themselves included."""
    found: set[ir.Node] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.args
    return found


def _written_out(graph: ir.Graph, results: Any, nodes: Sequence[ir.Node], is_unguarded: bool) -> Recipe:
    needed = _needed(nodes)
    place: dict[ir.Node, int] = {node: k for k, node in enumerate(graph.placeholders)}
    constants: list[np.ndarray] = []
    for node in graph.nodes:
        if node.kind == "get_attr" and node in needed:
            place[node] = len(place)
            constants.append(graph.constants[node.target])
    first, lines = len(place), []
    for node in graph.nodes:
        if node.kind != "call_function" or node not in needed:
            continue
        if node.dtype is dtypes.bfloat16:
            raise NoRecipe
        place[node] = len(place)
        attrs = {**defaults_of(node.op.name), **node.attrs}
        lines.append(Line(node.op, attrs, tuple(place[a] for a in node.args), node.shape, node.dtype))  # type: ignore[arg-type]
    is_total = all(line.op.vjp is not None and line.op.name not in _MAY_REFUSE for line in lines if line.dtype.is_inexact)
    return Recipe(constants, lines, _renumbered(results, [place[node] for node in nodes]), first, is_total, is_unguarded)


_MAY_REFUSE = ("external_call", "scatter")  # a gradient, for what they are asked to do


def _renumbered(results: Any, places: Sequence[int]) -> Any:
    if type(results) is list:
        return [_renumbered(result, places) for result in results]
    return places[results] if type(results) is int else results


__all__ = ["BY_VALUE", "RECIPES", "UNLIKE", "NoRecipe", "Recipe", "arguments", "fits", "keep", "kept", "recipe_of"]
