"""The state of a capture: what was seen of the caller's objects, what is guarded, and what the program will do.

What makes values of objects, and calls doors with values, is the executor's own (`Executor`), which stands above all that uses it.
"""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY, ArrayLibrary
from dynagraph.doors import bfloat16 as bfloat16_door
from dynagraph.doors.numpy import Door
from dynagraph.driver.decorated import Options
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.graph_state import GraphState
from dynagraph.frontend.guards.guards import Guard, GuardList
from dynagraph.frontend.guards.profile import Profile
from dynagraph.frontend.guards.sources import Returned, Source
from dynagraph.frontend.kinds.aliasing import Memories
from dynagraph.frontend.kinds.values import (
    Array,
    Cell,
    Const,
    Dict,
    Identity,
    Number,
    Object,
    ObjectKey,
    Sequence,
    Set,
    Sourced,
    Value,
)
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import ShapeEnv


class Lazy:
    """An object of the caller's that is guarded when it is first used."""

    __slots__ = ("ex", "obj", "source")

    def __init__(self, ex: CaptureState, obj: Any, source: Source):
        self.ex, self.obj, self.source = ex, obj, source

    def force(self) -> Value:
        return self.ex.wrap(self.obj, self.source)


@dataclass(eq=False)
class Step:
    """A call that an entry makes when its guards hold, before the program runs.

    `node`: the input of the program that it gives, if any.
    """

    made: Returned  # what is called, and the source of what it gives
    args: tuple[Value, ...]
    node: Node | None = None


@dataclass(frozen=True)
class Preparation:
    """``function(what stands at source, *args)``: makes what a program finds at `made`, and what the plain call would make in the
    end.
    """

    source: Source
    function: Callable[..., Any]
    args: tuple[Any, ...]
    made: Source

    def makes(self, source: Source | None) -> bool:
        """Whether a source is found by way of what it makes."""
        while source is not None and source != self.made:
            source = getattr(source, "base", None)
        return source is not None


class CaptureState(GraphState):
    def __init__(self, function: types.FunctionType, values: tuple[Any, ...], profile: Profile):
        super().__init__(function.__name__)
        self.function = function
        self.values = values
        self.profile = profile
        self.steps = 0
        self.guards = GuardList(len(values))
        self.env = ShapeEnv(place=lambda: self.graph.location, large={} if profile.floats_of_sizes else None)
        self.sizes: list[Guard] = []  # of inputs, which may change
        self.held: dict[tuple[Node, str], Const] = {}  # numbers that inputs hold (held_numbers.py)
        self.memories = Memories(self)  # of arrays that are written to
        self.wrapped: dict[Source, Value] = {}
        self.cells: dict[int, Cell] = {}  # the real ones: one value each
        self.by_identity: dict[int, Sourced] = {}  # the caller's mutable objects: one value each
        self.stored: dict[tuple[int, str], Any] = {}  # globals set by the captured code
        self.globals_read: dict[tuple[int, str], Value] = {}  # those that it has read before it set them, if ever
        self.class_attributes: dict[tuple[int, str], Value] = {}  # those set by the captured code
        self.lookups: dict[tuple[int, str], Any] = {}  # what the captured code found in classes (lookup.Seen)
        self.prologue: list[Step] = []
        self.fresh: set[Any] = set()  # sources of random generators whose state the captured code has set itself
        self.written: dict[int, Sourced] = {}  # the caller's objects that effects change
        self.handling: list[Object] = []  # exceptions that are being handled, innermost last
        self.error_state: dict[str, str] = {}  # what the captured code has set of NumPy's (library/errstate.py)
        self.keys: list[Object] = []  # the caller's objects that are keys by their identity
        self.grad_modes: dict[str, Any] = {}  # those of dynagraph.torch that the captured code has set (kinds/grad_modes.py)
        self.symbolic_floats: set[Source] = set()
        self.computed: dict[Any, Number] = {}  # numbers that are computed before the program (numbers.py)
        self.integers: dict[str, Source] = {}  # by symbol: those of the caller's numbers that change
        self.caches: dict[int, Any] = {}  # of functions under lru_cache: caches.Cache by wrapper
        self.n_inputs = 0
        self.hosting = False  # whether arrays of NumPy's that the package's code makes are the host's (kinds/host_arrays.py)
        self.is_mixed = False  # whether arrays of a second library were met
        self.creating = False  # while a function of CuPy's makes an array of none
        self.device = -1  # where these lie, once one has been seen
        self.of_bfloat16 = bfloat16_door.IN_NUMPY  # which doors are open to NumPy's arrays of bfloat16
        self.options: Options | None = None  # of the function that is compiled
        self.joined = False  # whether operations that were recorded for gradients are one node (library/joined.py)
        self.not_joined = ""  # why they are not
        self.preparations: list[Preparation] = []  # what was done to the caller's objects for the program's sake
        self.of_process = ""  # what the program depends on that each process has anew
        self.computed_before: dict[Any, Any] = {}  # computations that can be made again of other operands (library/repeated.py)
        self.shown: set[int] = set()  # objects whose repr is under way

    @abstractmethod
    def wrap(self, obj: Any, source: Source) -> Value:
        """The value of an object that the program read from `source`, guarded as far as it is known from now on."""

    @abstractmethod
    def call_door(self, door: Door, args: Iterable[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """What a NumPy function gives for values."""

    @abstractmethod
    def open_door(self, door: Door, args: list[Value], kwargs: dict[str, Value]) -> tuple[Any, str]:
        """What a door gives, and what its 0-d results are: "value" or "array"."""

    @abstractmethod
    def to_door(self, value: Value) -> Any:
        """A value as the door takes it."""

    @abstractmethod
    def from_door(self, result: Any, returns: str) -> Value:
        """What a door gave, as a value."""

    @abstractmethod
    def running_globals(self) -> dict[str, Any]:
        """The globals of the code that runs now."""

    @abstractmethod
    def check_op(self, name: str, operands_in_c_order: Callable[[], bool], rank: int) -> None:
        """Refuse an op that a graph of CuPy's arrays may not hold."""

    def rebased(self, node: Node) -> Node:
        return self.memories.rebased(node)

    # -- values ---------------------------------------------------------------------------------------------------------------
    def resolve(self, value: Any) -> Any:
        """The value itself, where it is one of the caller's that nothing has looked at yet."""
        return value.force() if type(value) is Lazy else value

    def constant(self, value: Any) -> Value:
        """A literal of the code, or a result of pure Python."""
        kind = type(value)
        if kind is int or kind is str or kind is bool or value is None:
            return Const(value)
        if kind is tuple or kind is list:
            return Sequence(kind, [self.constant(v) for v in value])
        if kind is frozenset or kind is set:
            return Set(kind, kind(value))
        if kind is dict:
            return Dict({k: self.constant(v) for k, v in value.items()})
        if kind is ObjectKey:
            return value.value
        return value if kind is Identity else Const(value)

    def chain(self, error: Object) -> None:
        """Give an exception that is raised its context: the one that is being handled, which then has it not in its own chain."""
        link = self.handling[-1] if self.handling else error
        if link is error or error.source is not None:
            return
        first, seen = link, {id(link)}
        while isinstance(context := self.resolve(link.fields.get("__context__")), Object) and id(context) not in seen:
            if context is error:
                if link.source is not None:
                    refuse("SIDE_EFFECT", "the context of an exception that was made outside is cut off")
                link.fields["__context__"] = Const(None)
                break
            seen.add(id(context))
            link = context
        error.fields["__context__"] = first

    # -- effects --------------------------------------------------------------------------------------------------------------
    def effect(self, function: Any, *args: Value) -> None:
        """Have the program call `function` when the graph has run."""
        self.effects.append((function, args))

    def precede(self, function: Any, name: str, *args: Value, seen: bool, lasts: bool) -> Step:
        """Have the entry call `function` before the program runs.

        `seen`: it changes what others see, so that no program bails out at a place before this one.
        `lasts`: nor after it, as a plain run of the call would make the change twice.
        """
        if seen and self.builder.can_bail_out:
            refuse("RANDOM_DRAW", "after a step that may raise an error")
        step = Step(Returned(function, name), args)
        self.prologue.append(step)
        self.builder.may_bail_out = self.builder.may_bail_out and not lasts
        return step

    def writes(self, value: Sourced) -> None:
        """Note that an effect changes one of the caller's objects: others must be known to be others."""
        self.written.setdefault(id(value), value)

    # -- arrays ---------------------------------------------------------------------------------------------------------------
    def known(self, array: Array) -> np.ndarray | None:
        """What an array holds, if that depends on no input."""
        if self.library is not NUMPY and not array.is_scalar:
            return None  # NumPy would compute it, perhaps to other bits
        return self.builder.known(self.memories.present(array))

    def claim(self, library: ArrayLibrary, device: int | None = None) -> None:
        """Take part in the capture with arrays of a library, on a device: all are of one, as CuPy raises where they are not."""
        if library is not self.library:
            if self.library is not NUMPY or any(not array.is_scalar for array in self.arrays.values()):
                self.is_mixed = True
                refuse("MIXED_LIBRARIES", f"of {self.library.name} and of {library.name}")
            if not self.builder.may_bail_out:
                refuse("RANDOM_DRAW", f"before arrays of {library.name}")
            self.library = library
            self.graph.library = library.name
            self.builder.check_op = self.check_op
        if device is not None and library is not NUMPY:
            if self.device not in (-1, device):
                refuse("MIXED_LIBRARIES", f"on the devices {self.device} and {device}")
            self.device = device

    def own(self, array: Array) -> Array:
        if self.library is not NUMPY and isinstance(array.source, Returned) and not array.is_scalar:
            refuse("MIXED_LIBRARIES", f"{array.source} gives an array of NumPy's")
        self.arrays[array.node] = array
        return array
