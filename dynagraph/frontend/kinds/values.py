"""The kinds of values that the executor follows.

A value with a `source` is one of the caller's: writing to it is an effect, which the program replays.  Values without one were made
by the captured code; they are built in their last state where they leave it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from types import CodeType
from typing import Any, Union

from dynagraph.driver.deadline import Pace
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.guards.sources import Source
from dynagraph.ir.graph import Node
from dynagraph.lazy_dataclasses import dataclass


class Null:
    """The NULL of the interpreter's stack, and an unset local."""

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()


class Taped:
    """Base of what stands for an array while plain Python is differentiated (autodiff/tracers.py): no capture looks into it."""

    __slots__ = ()


@dataclass(eq=False)
class Const:
    """A Python object that is known: by value (numbers, strings) or by identity (modules, functions, types).

    Sizes that are symbolic are constants that hold a `SymInt`.
    """

    value: Any
    source: Source | None = None


@dataclass(eq=False)
class Array:
    """An array or, with `is_scalar`, a NumPy scalar.  Writing in place gives it another node: all who hold it see that."""

    node: Node
    is_scalar: bool = False
    source: Source | None = None


@dataclass(eq=False)
class HostArray:
    """An array of NumPy's in a capture of another library's arrays: it depends on no input, and NumPy computes it at capture."""

    array: Any  # or a scalar of NumPy's
    born: int = 0


@dataclass(eq=False)
class Flags:
    """``array.flags``: it follows the array."""

    owner: Array


@dataclass(eq=False)
class Number:
    """A Python float or complex that the program takes or computes: a 0-d float64 or complex128 node.

    `computed`: the function and the numbers that it is computed from, as Python would; `now`: the float of the caller's.
    """

    node: Node
    source: Source | None = None
    computed: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
    now: float | None = None


@dataclass(eq=False)
class Masked:
    """The elements of `data` that `mask`, over its axes from `at` on, chooses: an array of its own, whose size is data."""

    data: Node
    mask: Node
    at: int
    born: int


@dataclass(eq=False)
class Sequence:
    """A list, tuple, deque or named tuple (`kind` tells); the items of the caller's are wrapped when they are read."""

    kind: type
    items: list[Any]
    source: Source | None = None
    object: Any = None
    sized: bool = True  # whether its length is guarded already
    maxlen: int | None = None  # of a deque
    mutations: int = 0  # of a deque: those that end iterations over it
    fields: dict[str, Any] = field(default_factory=dict)  # attributes of an instance of a subclass
    set_again: set[str] = field(default_factory=set)  # attributes deleted and set again: they come last


@dataclass(eq=False)
class Dict:
    """A dict made here, or one of the caller's (`source` and `object`), of which `items` holds what was read and written.

    `complete`: `items` holds all entries, in order.
    """

    items: dict[Any, Any]
    source: Source | None = None
    object: dict[Any, Any] | None = None
    kind: type = dict
    complete: bool = True
    absent: set[Any] = field(default_factory=set)  # keys known not to be in one of the caller's
    added_again: set[Any] = field(default_factory=set)  # keys deleted and set again: they come last
    factory: Any = None  # of a defaultdict
    deletions: int = 0  # a key that comes back is not where it was: iterators look at this
    owner: Any = None  # the object made here, or the class, whose ``__dict__`` this is
    fields: dict[str, Any] = field(default_factory=dict)
    set_again: set[str] = field(default_factory=set)

    @property
    def is_namespace(self) -> bool:
        return self.owner is not None


@dataclass(eq=False)
class Set:
    """A set or frozenset of values that are known.

    `items` is a real set (frozenset) of the Python objects: what is done to the one is done to the other, so that their orders are
    the same.
    """

    kind: type
    items: Any
    source: Source | None = None
    bases: tuple["Set", ...] = ()  # of the caller's: the order of this one depends on theirs
    deletions: int = 0  # as of a Dict
    ordered: bool = False  # whether the order of one of the caller's is guarded


@dataclass(eq=False)
class DictView:
    """What ``keys``, ``values`` or ``items`` (`name`) of a dict gives: it follows the dict."""

    name: str
    owner: Dict


@dataclass(eq=False)
class Cell:
    """A variable shared by functions: one made here, or (`source`) one of a real function, read when it is asked for."""

    value: Any = NULL
    source: Source | None = None
    real: Any = None  # the cell object at `source`
    owner: Source | None = None  # where the cell object itself is found, if it is not a constant


@dataclass(eq=False)
class Function:
    """A Python function: the user's, or one made by the captured code."""

    code: CodeType
    globals: dict[str, Any]
    name: str
    defaults: tuple[Any, ...] = ()
    kwdefaults: dict[str, Any] = field(default_factory=dict)
    closure: tuple[Cell, ...] = ()
    source: Source | None = None
    object: Any = None
    fields: dict[str, Any] = field(default_factory=dict)  # attributes set by the captured code
    decoded: Any = None  # opcodes.Code, once it was called
    is_followed: bool = False  # a call was found to have no meaning but that of the code, which is of a library that is followed


@dataclass(eq=False)
class Method:
    """A function with its first argument: `function` is a Function, or the name of a method of a followed value."""

    function: Union[Function, str, Any]
    owner: Any


@dataclass(eq=False)
class Partial:
    """``functools.partial`` made by the captured code."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Getter:
    """``operator.itemgetter``, ``attrgetter`` or ``methodcaller`` (`kind`) made by the captured code."""

    kind: type
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class WeakReference:
    """A weak reference made by the captured code."""

    referent: Any


@dataclass(eq=False)
class Object:
    """An object known by its type: one of the caller's, or (no `source`) an instance made here.

    `fields` holds the attributes that the captured code has set; DELETED those that it deleted.  Once the code has asked for its
    ``__dict__``, those that stand there are in `entries` instead.
    """

    kind: type
    value: Any = None
    source: Source | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    set_again: set[str] = field(default_factory=set)  # attributes deleted and set again: they come last
    entries: Any = None  # a Dict
    raised_at: list[Any] = field(default_factory=list)  # of an exception: the frames that it went through, innermost first


DELETED = Null()


@dataclass(eq=False)
class Identity:
    """``id()`` of an object made here: a number of which nothing is known but whose it is.  As a key it is itself."""

    value: Any
    born: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        raise Break("UNSUPPORTED_VALUE", None, "the text of the id() of an object made here")


@dataclass(eq=False)
class ObjectKey:
    """What stands in a dict or set for an object whose class says what it is equal to."""

    value: Object
    hashed: int
    equal: Callable[["ObjectKey", Any], bool]
    born: int = 0
    of_value: bool = False  # of a subclass of a number or text, which is equal to what these are

    def __eq__(self, other: object) -> bool:
        return self.equal(self, other)

    def __hash__(self) -> int:
        return self.hashed

    def __repr__(self) -> str:
        raise Break("UNSUPPORTED_VALUE", None, "the text of a key that is an object")


UNKNOWN_KEYS = (Identity, ObjectKey)


@dataclass(eq=False)
class Count:
    """What a counter of the caller's held when the call began, and what was added since (counters.py)."""

    counter: Source
    held: int
    added: int = 0


@dataclass(eq=False)
class Super:
    """``super()``: attribute lookup after `cls` in the MRO of the owner's type."""

    cls: type
    owner: Any


@dataclass(eq=False)
class Opaque:
    """Something that may be passed on and ignored, but not looked at: a traceback."""

    what: str


@dataclass(eq=False)
class Traceback(Opaque):
    """The traceback of an exception made here, as it was then."""

    places: tuple[Any, ...] = ()  # as Object.raised_at


class Outer(Opaque):
    """What stands on the stack below an exception that is being handled: the one that was handled before."""


@dataclass(eq=False)
class Slice:
    """``slice(start, stop, step)`` of values."""

    parts: tuple[Any, Any, Any]
    source: Source | None = None


class Iterator:
    """An iterator of the captured code: `step(frame)` gives the next value, or NULL.  The kinds stand in iterators.py."""

    born = 0  # the step of the main frame at which it was made
    pace: Pace | None = None  # of the loop over it
    is_held = False  # whether it may have a name or a place beside the loop over it

    def step(self, frame: Any) -> Any:
        raise NotImplementedError

    def left(self) -> int:
        """How many values follow, as far as that is known."""
        return 0


Value = Union[
    Null, Const, Array, HostArray, Flags, Masked, Number, Sequence, Dict, Set, DictView, Cell, Function, Method, Partial, Getter,
    WeakReference, Object, Identity, Super, Opaque, Slice, Iterator, Count,
]  # fmt: skip
Sourced = Union[Const, Array, Number, Sequence, Dict, Set, Cell, Function, Object, Slice]  # what may be the caller's
Instance = Union[Object, Sequence, Dict]  # what may be of a class written in Python


def source_of(value: Sourced) -> Source:
    """Where a value that is the caller's came from."""
    assert value.source is not None
    return value.source
