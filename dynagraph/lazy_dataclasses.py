"""`dataclass` for modules that are tables of classes, of which a process uses few.

The library's decorator compiles up to six methods of each class that is made, which took half of the time in which dynagraph's
compiler is loaded.  This one compiles `__init__` when it is first called; the other methods are closures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

MISSING = dataclasses.MISSING


def lazy_dataclass(cls: type | None = None, *, frozen: bool = False, eq: bool = True, repr: bool = True) -> Any:
    """As `dataclasses.dataclass`, for classes without `__slots__`, and fields without `hash=`.

    Frozen ones inherit from such classes only: to `dataclasses` itself they are not frozen.  Where they inherit a slot `_hash`, it
    holds the hash once that was asked for.

    >>> @lazy_dataclass(frozen=True)
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(1), Point(1) == Point(1, y=0), hash(Point(1)) == hash(Point(1))
    (Point(x=1, y=0), True, True)
    """
    if cls is None:
        return lambda cls: lazy_dataclass(cls, frozen=frozen, eq=eq, repr=repr)
    own = set(vars(cls))
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # else the library writes it, of a signature
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _first_init(cls, fields, frozen)}
    if repr:
        methods["__repr__"] = _repr(tuple(f.name for f in fields if f.repr))
    if eq:
        methods["__eq__"], of_frozen = _comparison(tuple(f.name for f in fields if f.compare), getattr(cls, "_hash", None))
        methods["__hash__"] = of_frozen if frozen else None
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refusals(cls, frozenset(f.name for f in fields))
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _first_init(cls: type, fields: tuple[Any, ...], frozen: bool) -> Callable[..., None]:
    """`__init__` until it is called."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made = _init(cls, fields, frozen)
        cls.__init__ = made  # type: ignore[misc]
        made(self, *args, **kwargs)

    return __init__


def _init(cls: type, fields: tuple[Any, ...], frozen: bool) -> Callable[..., None]:
    parameters: dict[bool, list[str]] = {False: [], True: []}  # by whether they are keywords only
    values: dict[str, Any] = {"_set": object.__setattr__, "_given": MISSING}
    lines = []
    for f in fields:
        default, value = "", f.name
        if f.default_factory is not MISSING:
            values[f"_make_{f.name}"] = f.default_factory
            made = f"_make_{f.name}()"
            default, value = "=_given", f"{made} if {f.name} is _given else {f.name}" if f.init else made
        elif f.default is not MISSING:
            values[f"_default_{f.name}"] = f.default
            default, value = f"=_default_{f.name}", f.name if f.init else f"_default_{f.name}"
        elif not f.init:
            continue
        if f.init:
            parameters[f.kw_only].append(f.name + default)
        lines.append(f"_set(self, {f.name!r}, {value})" if frozen else f"self.{f.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    keywords = ["*", *parameters[True]] if parameters[True] else []
    head = f"def __init__({', '.join(['self', *parameters[False], *keywords])}):"
    exec("\n ".join([head, *(lines or ["pass"])]), values)
    made_init: Callable[..., None] = values["__init__"]
    made_init.__qualname__, made_init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return made_init


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _comparison(names: tuple[str, ...], slot: Any = None) -> tuple[Callable[[Any, Any], Any], Callable[[Any], int]]:
    if len(names) > 1:
        values: Callable[[Any], tuple[Any, ...]] = attrgetter(*names)
    else:
        values = lambda self: tuple(getattr(self, name) for name in names)  # noqa: E731

    def __eq__(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(values(self))

    def kept_hash(self: Any) -> int:
        try:
            return self._hash  # type: ignore[no-any-return]
        except AttributeError:
            found = hash(values(self))
            slot.__set__(self, found)
            return found

    return __eq__, __hash__ if slot is None else kept_hash


def _refusals(cls: type, names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)  # type: ignore[arg-type]

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)  # type: ignore[arg-type]

    return __setattr__, __delattr__


if TYPE_CHECKING:  # checkers know the library's decorator, and what it does to a class
    from dataclasses import dataclass
else:
    dataclass = lazy_dataclass

__all__ = ["dataclass", "lazy_dataclass"]
