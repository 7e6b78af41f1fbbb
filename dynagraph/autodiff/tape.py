"""The gradient tape: what plain Python code does with tracers, as it runs.

NumPy computes the value of each step, which is recorded as ops of the table that were applied to arrays (autograd/nodes.py).
Gradients are those of these ops, on arrays (autograd/engine.py).  What a step is in ops is said by the tables that captures ask,
once for all steps that are alike (recipes.py); of ufuncs of floats that are one op it is known.  So whatever a capture takes is
differentiated here too, and Python may do between the steps what no capture follows.

Some things arrays do not tell: what a write into memory means for the views of it, tangents, Jacobians, what is computed again, and
second derivatives of parts with a gradient of their own.  With the first of these the tape changes over to `Notes`, a graph, for
good: see `Tape.notes`.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dynagraph.autodiff.notes import Notes
from dynagraph.autodiff.recipes import BY_VALUE, UNLIKE, NoRecipe, Recipe, arguments, fits, keep, kept, recipe_of
from dynagraph.autodiff.tracers import Operand, Tracer, is_tracer, owner_of, plain_of, refuse_memory
from dynagraph.autograd.engine import gradients
from dynagraph.autograd.nodes import NONE, Node, Part, Record, Value, array_of
from dynagraph.autograd.terms import ir_dtype
from dynagraph.ir import dtypes
from dynagraph.ir.ops import OPS, Op
from dynagraph.location import users_line

_FLOATS = (dtypes.float64, dtypes.float32)
_VARIABLE, _COPY = OPS["variable"], OPS["copy"]
_alive: weakref.WeakSet[Tape] = weakref.WeakSet()
_thread = threading.local()  # `tape`: a weak reference to the one that is open


class Tape:
    """What was done with tracers since the first level was opened: `nodes`, in order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.open: set[int] = set()  # levels by whose variables values may still be differentiated
        self.is_symbolic = False  # while tangents and Jacobians are taken, which are gradients by other seeds than those given
        self.n_levels = 0
        self.n_alive = 0
        self.has_parts = False
        self.taken = 0  # the level by whose variables gradients are being taken
        self._notes: Notes | None = None

    def close(self) -> None:
        _alive.discard(self)
        for node in self.nodes:
            if node.part is not None:
                node.part.results.clear()  # a cycle
        self.nodes.clear()
        if self._notes is not None:
            self._notes.close()
            self._notes = None

    # -- changing over ----------------------------------------------------------------------------------------------------
    @property
    def notes(self) -> Notes:
        """The graph of what was done.  Whoever asks for it has all further steps noted there, and recorded no more."""
        if self._notes is None:
            self._notes = Notes(self, self.open)
            self._notes.take_over(self.nodes)
            self.nodes.clear()
        return self._notes

    @property
    def has_notes(self) -> bool:
        return self._notes is not None

    def is_noted_in(self, notes: Notes) -> bool:
        return self._notes is notes

    def is_active(self, tracer: Tracer) -> bool:
        """Whether a value depends on the variable of a level that is still open."""
        if self._notes is None:
            return not tracer.node.levels.isdisjoint(self.open)
        return self._notes.is_active(self._notes.ex.memories.present(tracer.array))

    # -- one step -------------------------------------------------------------------------------------------------------
    def elementwise(self, op: Op, given: Sequence[Any], real: Callable[..., Any]) -> Any:
        """An op of floats and Python's numbers, all of one dtype; NotImplemented of others."""
        if self._notes is not None or not self.open:
            return NotImplemented
        dtype, levels = None, NONE
        plain: list[Any] = []
        inputs: list[Any] = []
        for x in given:
            kind = type(x)
            if kind is Tracer:
                node = x.node
                if x.tape is not self or (dtype is not None and node.dtype is not dtype):
                    return NotImplemented
                dtype = node.dtype
                if node.levels is not levels:
                    levels = levels | node.levels if levels else node.levels
                plain.append(x.value)
                inputs.append(node)
            elif kind is float or kind is int:
                plain.append(x)
                inputs.append(x)
            elif kind is np.ndarray or issubclass(kind, np.generic):
                own = ir_dtype(x.dtype)
                if own is None or (dtype is not None and own is not dtype):
                    return NotImplemented
                dtype = own
                plain.append(x)
                inputs.append(np.array(x, order="C"))  # it may be written to
            else:
                return NotImplemented
        if dtype not in _FLOATS or levels.isdisjoint(self.open):
            return NotImplemented
        assert dtype is not None
        for k, x in enumerate(inputs):
            if type(x) is float or type(x) is int:
                inputs[k] = np.array(x, dtype.numpy)
        value = real(*plain)
        if value.dtype != dtype.numpy:
            return NotImplemented
        node = Node(op, op.attrs, inputs, np.asarray(value), value.shape, dtype, levels)
        self.nodes.append(node)
        return Tracer(self, node, value)

    def step(
        self,
        meaning: Callable[..., Any],
        static: Any,
        given: tuple[Any, ...],
        real: Callable[[], Any],
        what: str,
        written: Iterable[Any] = (),
        tracers: bool = False,
    ) -> Any:
        """Do `real`, as the user's code does it, and record what ``meaning(notes, static, *given)`` says that it is.

        `what` names it, `written`: what it may write to, `tracers`: the result is a tracer though nothing depends on it yet.
        """
        if not self.open:
            return real()
        if self._notes is None:
            found = self._recorded(meaning, static, given, real, tracers)
            if found is not NotImplemented:
                return found
        notes = self.notes
        return notes.step(lambda: meaning(notes, static, *given), real, what, written, tracers)

    def _recorded(
        self, meaning: Callable[..., Any], static: Any, given: Sequence[Any], real: Callable[[], Any], tracers: bool
    ) -> Any:
        """NotImplemented of what only notes can tell."""
        key: list[Any] = [meaning, static]
        operands = Operands(self)
        template = [arguments(obj, operands.take, key) for obj in given]
        recipe = kept(key)
        if recipe is None:
            recipe = BY_VALUE
            with contextlib.suppress(NoRecipe):
                recipe = recipe_of(meaning, static, template, operands, False)
            keep(key, recipe)
        if recipe is BY_VALUE:
            return self._recorded_by_value(meaning, static, given, real, tracers)
        value = real()
        if not fits(recipe, operands.values, value):
            return self._recorded_by_value(meaning, static, given, lambda: value, tracers)
        return self._traced(recipe, operands, value, tracers)

    def _recorded_by_value(
        self, meaning: Callable[..., Any], static: Any, given: Sequence[Any], real: Callable[[], Any], tracers: bool
    ) -> Any:
        """A step that means something else with other numbers."""
        operands = Operands(self, by_value=True)
        template = [arguments(obj, operands.take, []) for obj in given]
        try:
            recipe = recipe_of(meaning, static, template, operands, True)
        except NoRecipe:
            return NotImplemented
        value = real()
        return self._traced(recipe, operands, value, tracers) if fits(recipe, operands.values, value) else NotImplemented

    def _traced(self, recipe: Recipe, operands: Operands, real: Any, always: bool) -> Any:
        """What NumPy gave, in tracers where it depends on a variable, or always."""
        values = recipe.values(operands.values, real)
        nodes = [x for x in values[recipe.first :] if type(x) is Node]
        if not recipe.is_total:
            place = users_line()
            for node in nodes:
                node.location = place

        found = self._in_tracers(recipe.results, real, values, operands.tracers, always)
        if always or any(not node.levels.isdisjoint(self.open) for node in nodes):
            self.nodes += nodes
        return found

    def _in_tracers(self, at: Any, real: Any, values: Sequence[Value], given: Sequence[Tracer], always: bool) -> Any:
        if type(at) is int and isinstance(real, (np.ndarray, np.generic)):
            node = values[at]
            if type(node) is not Node or not (always or not node.levels.isdisjoint(self.open)):
                return real
            known = next((t for t in given if t.node is node and t.value is real), None)
            return Tracer(self, node, real) if known is None else known
        if type(at) is list:
            items = [self._in_tracers(k, item, values, given, always) for k, item in zip(at, real)]
            return type(real)(*items) if hasattr(real, "_fields") else type(real)(items)
        refuse_memory(real)
        return real

    # -- variables and gradients ------------------------------------------------------------------------------------------
    def variable(self, level: int, x: Any, real: Any) -> Tracer:
        """A tracer of its own by which gradients are taken."""
        value: Value = x.node if type(x) is Tracer and x.tape is self else np.array(real, order="C")
        levels = value.levels if type(value) is Node else NONE
        dtype = ir_dtype(real.dtype)
        assert dtype is not None
        node = Node(_VARIABLE, {}, (value,), np.asarray(real), real.shape, dtype, levels | {level})
        self.nodes.append(node)
        return Tracer(self, node, real)

    def pull_back(
        self, level: int, values: Sequence[Any], cotangents: Sequence[Any], variables: Sequence[Tracer]
    ) -> Any:
        """The gradients by the variables of a level; recorded where they depend on variables of other levels, which are open.

        NotImplemented where these would be gradients of parts: only notes have second ones.
        """
        seeds = [(v.node, self._value_of(c)) for v, c in zip(values, cotangents) if type(v) is Tracer and v.tape is self]
        outer = self.open - {level}
        depends = NONE.union(*(x.levels for pair in seeds for x in pair if type(x) is Node))
        record = Record(self.nodes, outer) if outer & depends else None
        if record is not None and self.has_parts:
            return NotImplemented
        found = gradients(
            [(node, seed if record is not None else array_of(seed)) for node, seed in seeds],
            [v.node for v in variables], level, record,
        )  # fmt: skip
        return tuple(self._result(gradient, variable) for gradient, variable in zip(found, variables))

    def _value_of(self, x: Any) -> Value:
        return x.node if type(x) is Tracer and x.tape is self else np.asarray(plain_of(x))  # type: ignore[no-any-return]

    def _result(self, gradient: Value | None, variable: Tracer) -> Any:
        """A gradient as a value of its own."""
        like = variable.value
        if gradient is None:
            return np.zeros_like(like)[()] if isinstance(like, np.generic) else np.zeros(like.shape, like.dtype)
        array = array_of(gradient)
        real = array[()] if isinstance(like, np.generic) else np.array(array, order="C")
        if type(gradient) is not Node or gradient.levels.isdisjoint(self.open):
            return real
        node = Node(_COPY, {}, (gradient,), np.asarray(real), gradient.shape, gradient.dtype, gradient.levels)
        self.nodes.append(node)
        return Tracer(self, node, real)

    def end_part(self, first: int, name: str, results: Sequence[Any], args: Sequence[Any], pull: Any, noted: Any) -> Any:
        """The results of the nodes from `first` on, as those of which ``pull(args, cotangents)`` gives the gradients by `args`."""
        steps = self.nodes[first:]
        operands = [self._value_of(a) for a in args]
        within = {*steps, *(x for x in operands if type(x) is Node)}
        captured = frozenset(x for step in steps for x in step.inputs if type(x) is Node and x not in within)
        levels = NONE.union(*(x.levels for x in operands if type(x) is Node))

        def pulled(cotangents: Sequence[np.ndarray | None]) -> list[Any]:
            again = [self._handed(array_of(x), a) for x, a in zip(operands, args)]
            seeds = [self._handed(np.zeros(np.shape(r), r.dtype) if c is None else c, r) for c, r in zip(cotangents, plain)]
            return [array_of(self._value_of(g)) for g in pull(again, seeds)]

        self.has_parts = True
        part = Part(name, operands, captured, pulled, noted)
        place, found = users_line(), []
        plain = [_strong(plain_of(result)) for result in results]
        for result, real in zip(results, plain):
            value = np.array(real, order="C")
            dtype = ir_dtype(value.dtype)
            node = Node(_COPY, {}, (self._value_of(result),), value, value.shape, dtype, levels if dtype.is_inexact else NONE)
            node.part, node.location = part, place
            part.results.append(node)
            self.nodes.append(node)
            found.append(plain_of(result) if levels.isdisjoint(self.open) else Tracer(self, node, real))
        return tuple(found)

    def _handed(self, array: np.ndarray, like: Any) -> Any:
        """An array for users' functions, a scalar where another is one."""
        return array.copy() if isinstance(plain_of(like), np.ndarray) else array[()]

    def keep_apart(self, tracers: Iterable[Any]) -> None:
        """Copy what lies in the memory of some values, which may be written to from now on."""
        owners = {id(owner_of(np.asarray(t.value))) for t in tracers if type(t) is Tracer}
        for node in self.nodes:
            if node.value is not None and id(owner_of(node.value)) in owners:
                node.value = node.value.copy()

    @contextlib.contextmanager
    def reopened(self, level: Level) -> Iterator[None]:
        """A level that has been left is open again while gradients are taken: backward functions of users note what they do."""
        is_open, before = level.number in self.open, self.taken
        self.open.add(level.number)
        self.taken = level.number
        try:
            yield
        finally:
            self.taken = before
            if not is_open:
                self.open.discard(level.number)

    @contextlib.contextmanager
    def symbolic(self) -> Iterator[None]:
        before, self.is_symbolic = self.is_symbolic, True
        try:
            yield
        finally:
            self.is_symbolic = before


def _strong(x: Any) -> Any:
    return np.asarray(x)[()] if isinstance(x, (float, complex)) else x


class Operands:
    """The arrays and NumPy scalars among the arguments of a step, in order; `by_value`: those only that can be differentiated."""

    __slots__ = ("by_value", "scalars", "tape", "tracers", "values")

    def __init__(self, tape: Tape, by_value: bool = False):
        self.tape, self.by_value = tape, by_value
        self.values: list[Value] = []
        self.scalars: list[bool] = []
        self.tracers: list[Tracer] = []

    def take(self, obj: Any) -> tuple[Any, Any]:
        """What stands for an argument, and what steps that are alike share of it."""
        kind = type(obj)
        if kind is Tracer and obj.tape is self.tape:
            value: Value = obj.node
            array = obj.value
            self.tracers.append(obj)
        else:
            array = plain_of(obj)
            if self.by_value or not (type(array) is np.ndarray or isinstance(array, np.generic)) or ir_dtype(array.dtype) is None:
                return array, UNLIKE
            value = np.array(array, order="C")  # it may be written to
        is_scalar = isinstance(array, np.generic)
        self.values.append(value)
        self.scalars.append(is_scalar)
        if type(value) is np.ndarray or is_scalar or array.flags.c_contiguous:
            shared: Any = (array.dtype.char, array.shape, is_scalar)
        else:
            shared = (array.dtype.char, array.shape, array.strides)
        return Operand(len(self.values) - 1), shared


def current_tape() -> Tape | None:
    """The tape of this thread, which may have been closed."""
    reference = getattr(_thread, "tape", None)
    return reference() if reference is not None else None


class Level:
    """What one gradient is taken in.  A tape lives as long as one of its levels."""

    def __init__(self) -> None:
        tape = current_tape()
        if tape is None or not tape.n_alive:
            tape = Tape()
            _alive.add(tape)
            _thread.tape = weakref.ref(tape)
        self.tape = tape
        self.tape.n_alive += 1
        self.tape.n_levels += 1
        self.number = self.tape.n_levels
        self.tape.open.add(self.number)

    def __del__(self) -> None:
        self.tape.open.discard(self.number)
        self.tape.n_alive -= 1
        if not self.tape.n_alive:
            self.tape.close()


def tapes_alive() -> bool:
    """Whether there are tracers at all: most programs never have any."""
    return bool(_alive)


def holds_tracers(value: Any, depth: int = 5) -> bool:
    """Whether a value is a tracer, or a plain container that holds one: asks no object of the user's anything."""
    kind = type(value)
    if kind in (tuple, list, dict) and depth:
        items = value.values() if kind is dict else value
        return any(holds_tracers(item, depth - 1) for item in items)
    return kind is Tracer


__all__ = [
    "Level", "Tape", "Tracer", "current_tape", "holds_tracers", "is_tracer", "owner_of", "plain_of", "tapes_alive",
]  # fmt: skip
