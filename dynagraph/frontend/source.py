"""Where a value came from, and how a guard program loads it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from types import CellType, MethodDescriptorType
from typing import Any, Union

STACK_SLOT = "stack "  # begins the names of parameters that stand for values on the stack: no name that Python code can have


@dataclass(frozen=True)
class Local:
    """A parameter of the captured function."""

    index: int
    name: str

    @property
    def is_of_stack(self) -> bool:
        """Whether a break handed it over from the frame's stack."""
        return self.name.startswith(STACK_SLOT)

    def __str__(self) -> str:
        return f"local {self.name}"


@dataclass(frozen=True, eq=False)
class DictEntry:
    """An entry of a dict that is known itself: a module's globals, builtins."""

    owner: dict[str, Any]
    key: str
    kind: str = "global"  # for people

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictEntry) and other.owner is self.owner and other.key == self.key

    def __hash__(self) -> int:
        return hash((id(self.owner), self.key))

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True)
class Closure:
    """A free variable of the captured function."""

    index: int
    name: str

    def __str__(self) -> str:
        return f"closure {self.name}"


@dataclass(frozen=True, eq=False)
class Cell:
    """A cell of another function."""

    cell: CellType
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and other.cell is self.cell

    def __hash__(self) -> int:
        return id(self.cell)

    def __str__(self) -> str:
        return f"closure {self.name}"


@dataclass(frozen=True)
class Attribute:
    """An attribute that generic lookup finds."""

    base: "Source"
    name: str

    def __str__(self) -> str:
        return f"{self.base}.{self.name}"


@dataclass(frozen=True)
class Item:
    """An item of a list or tuple."""

    base: "Source"
    index: int

    def __str__(self) -> str:
        return f"{self.base}[{self.index}]"


@dataclass(frozen=True)
class Key:
    """An entry of a dict that was read."""

    base: "Source"
    key: Any

    def __str__(self) -> str:
        return f"{self.base}[{self.key!r}]"


@dataclass(frozen=True, eq=False)
class Known:
    """An object that another guard fixes: a function in a class whose version is guarded."""

    value: Any
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __str__(self) -> str:
        return self.name


class Trusted(Known):
    """A function, class or module of NumPy's own, which is taken as unchanging, and so is all that it holds."""


@dataclass(frozen=True)
class Field:
    """An object that the C structure of an object of this type holds."""

    base: "Source"
    type: type
    offset: int

    def read(self, obj: Any) -> Any:
        """The object, of one that is known to be of the type."""
        return ctypes.py_object.from_address(id(obj) + self.offset).value

    def __str__(self) -> str:
        return f"{self.base}"


@dataclass(frozen=True, eq=False)
class Returned:
    """What an effect's call of `function` returns: no guard can know it."""

    function: Any
    name: str

    def __str__(self) -> str:
        return f"{self.name}()"


@dataclass(frozen=True)
class Contents:
    """What a cell holds; `base` is where the cell is."""

    base: "Source"

    def __str__(self) -> str:
        return f"{self.base}"


@dataclass(frozen=True)
class Referent:
    """What a weak reference refers to."""

    base: "Source"

    def __str__(self) -> str:
        return f"{self.base}()"


@dataclass(frozen=True)
class Owner:
    """The object that a builtin method is bound to."""

    base: "Source"
    descriptor: MethodDescriptorType

    def __str__(self) -> str:
        return f"{self.base}.__self__"


Source = Union[Local, DictEntry, Closure, Cell, Attribute, Item, Key, Known, Contents, Referent, Field, Returned, Owner]


def is_trusted(source: "Source") -> bool:
    """Whether a source starts at something that is taken as unchanging."""
    while not isinstance(source, (Local, DictEntry, Closure, Cell, Known, Returned)):
        source = source.base
    return isinstance(source, Trusted)
