"""Sources: where a value came from, as steps from a parameter, dict or cell; a guard program loads each by one instruction."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, ClassVar

from dynagraph.lazy_dataclasses import dataclass

STACK_SLOT = "stack "  # begins the names of parameters that stand for values on the stack: no name that Python code can have
Instruction = tuple[Any, ...]
BOUND_IN_C = (  # descriptors that run no code of the user's
    FunctionType, staticmethod, classmethod, MemberDescriptorType, GetSetDescriptorType, MethodDescriptorType,
    WrapperDescriptorType, ClassMethodDescriptorType, BuiltinFunctionType,
)  # fmt: skip


class Source:
    """A place that guards can look at.  ``str(source)`` names it for people."""

    __slots__ = ("__dict__", "__weakref__", "_hash")  # the hash of a chain of steps is asked for again and again

    name: str
    is_trusted = False  # whether it starts at something that is taken as unchanging

    @property
    def label(self) -> str:
        """What its placeholder in the graph is called."""
        return self.name.replace(".", "_")

    def load(self, register_of: "Callable[[Source], int]") -> Instruction | None:
        """The instruction that loads the value, without the register that it goes to; None: no guard can."""
        raise NotImplementedError

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        """What stands there, for bound parameters and the cells of the function.  Raises what the lookup raises."""
        raise NotImplementedError


@dataclass(frozen=True)
class Step(Source):
    """What is found by way of another source, `base`.  Its other fields are the operands of its instruction."""

    instruction: ClassVar[str]
    says: ClassVar[str] = "{base}"  # a format of the fields

    base: Source

    @property
    def is_trusted(self) -> bool:  # type: ignore[override]
        return self.base.is_trusted

    @property
    def label(self) -> str:
        return self.base.label

    def load(self, register_of: Callable[[Source], int]) -> Instruction:
        operands: tuple[str, ...] = self.__match_args__[1:]
        return (self.instruction, register_of(self.base), *(getattr(self, name) for name in operands))

    def read(self, obj: Any) -> Any:
        """The step from what stands at the base."""
        raise NotImplementedError

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        return self.read(self.base.now(values, closure))

    def __str__(self) -> str:
        return self.says.format(**vars(self))


@dataclass(frozen=True)
class Local(Source):
    """A parameter of the captured function."""

    index: int
    name: str

    @property
    def is_of_stack(self) -> bool:
        """Whether a break handed it over from the frame's stack."""
        return self.name.startswith(STACK_SLOT)

    def load(self, register_of: Callable[[Source], int]) -> Instruction | None:
        raise TypeError("a parameter is in its register")

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        return values[self.index]

    def __str__(self) -> str:
        return f"local {self.name}"


@dataclass(frozen=True, eq=False)
class DictEntry(Source):
    """An entry of a dict that is known itself: a module's globals, builtins."""

    owner: dict[str, Any]
    key: str
    kind: str = "global"  # for people

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DictEntry) and other.owner is self.owner and other.key == self.key

    def __hash__(self) -> int:
        return hash((id(self.owner), self.key))

    def load(self, register_of: Callable[[Source], int]) -> Instruction:
        return ("global", self.owner, self.key)

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        return self.owner[self.key]

    @property
    def label(self) -> str:
        return self.key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


@dataclass(frozen=True)
class Closure(Source):
    """A free variable of the captured function."""

    index: int
    name: str

    def load(self, register_of: Callable[[Source], int]) -> Instruction:
        return ("closure", self.index)

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        return closure[self.index].cell_contents

    def __str__(self) -> str:
        return f"closure {self.name}"


@dataclass(frozen=True, eq=False)
class Cell(Source):
    """A cell of another function."""

    cell: CellType
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and other.cell is self.cell

    def __hash__(self) -> int:
        return id(self.cell)

    def load(self, register_of: Callable[[Source], int]) -> Instruction:
        return ("cell", self.cell)

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        return self.cell.cell_contents

    def __str__(self) -> str:
        return f"closure {self.name}"


@dataclass(frozen=True)
class Attribute(Step):
    """An attribute that generic lookup finds."""

    name: str
    instruction, says = "attr", "{base}.{name}"

    def read(self, obj: Any) -> Any:
        """By no code of Python: another object than was captured may stand at the base."""
        found = inspect.getattr_static(obj, self.name)
        is_bound = type(found) not in BOUND_IN_C and hasattr(type(found), "__get__")
        if is_bound and (isinstance(obj, type) or inspect.getattr_static(type(obj), self.name, None) is found):
            raise AttributeError(f"{self} is computed")  # what an instance holds itself is given as it is
        if isinstance(obj, type):
            return type.__getattribute__(obj, self.name)
        return object.__getattribute__(obj, self.name)

    @property
    def label(self) -> str:
        return f"{self.base.label}_{self.name}"


@dataclass(frozen=True)
class Item(Step):
    """An item of a list or tuple."""

    index: int
    instruction, says = "item", "{base}[{index}]"

    def read(self, obj: Any) -> Any:
        return (list if isinstance(obj, list) else tuple).__getitem__(obj, self.index)

    @property
    def label(self) -> str:
        return f"{self.base.label}_{self.index}"


@dataclass(frozen=True)
class Key(Step):
    """An entry of a dict that was read."""

    key: Any
    instruction, says = "dict_item", "{base}[{key!r}]"

    def read(self, obj: Any) -> Any:
        return dict.__getitem__(obj, self.key)

    @property
    def label(self) -> str:
        return f"{self.base.label}_{self.key}"


@dataclass(frozen=True, eq=False)
class Known(Source):
    """An object that another guard fixes: a function in a class whose version is guarded."""

    value: Any
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Known) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def load(self, register_of: Callable[[Source], int]) -> Instruction:
        return ("global", {"value": self.value}, "value")  # a dict of the guard's own: it never changes

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        return self.value

    def __str__(self) -> str:
        return self.name


class Trusted(Known):
    """A function, class or module of NumPy's own, which is taken as unchanging, and so is all that it holds."""

    is_trusted = True


@dataclass(frozen=True)
class Field(Step):
    """An object that the C structure of an object of this type holds."""

    type: type
    offset: int
    instruction = "field"

    def read(self, obj: Any) -> Any:
        """The object, of one that is known to be of the type."""
        return ctypes.py_object.from_address(id(obj) + self.offset).value


@dataclass(frozen=True, eq=False)
class Returned(Source):
    """What an effect's call of `function` returns: no guard can know it."""

    function: Any
    name: str

    def load(self, register_of: Callable[[Source], int]) -> Instruction | None:
        return None

    def now(self, values: tuple[Any, ...], closure: tuple[Any, ...]) -> Any:
        raise LookupError(f"what {self} gave is not kept")

    def __str__(self) -> str:
        return f"{self.name}()"


@dataclass(frozen=True)
class Contents(Step):
    """What a cell holds; `base` is where the cell is."""

    instruction = "contents"

    def read(self, obj: Any) -> Any:
        return obj.cell_contents


@dataclass(frozen=True)
class Referent(Step):
    """What a weak reference refers to."""

    instruction, says = "deref", "{base}()"

    def read(self, obj: Any) -> Any:
        return obj()


@dataclass(frozen=True)
class Owner(Step):
    """The object that a builtin method is bound to."""

    descriptor: MethodDescriptorType
    instruction, says = "self_of", "{base}.__self__"

    def read(self, obj: Any) -> Any:
        return obj.__self__
