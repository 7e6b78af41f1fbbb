"""``__torch_function__``: functions of tensors are left to the classes of their arguments, where these say so.

Plain tensors pay nothing for it.  A subclass of Tensor gets `methods`, a class between it and Tensor whose methods, operators and
properties ask first.  With the first such class the functions of the public namespaces are replaced by `Overridable` ones.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dynagraph.torch.core import tensor as tensors
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.tensor import Tensor

# what functions are called with that ask nothing: found by type, before anything else is looked at
PLAIN = frozenset({Tensor, bool, int, float, complex, str, type(None)})


class Disabled:
    """A context in which functions ask nobody, in this thread."""

    def __init__(self) -> None:
        self.before = False

    def __enter__(self) -> None:
        self.before, mode.unasked = mode.unasked, True

    def __exit__(self, *_: Any) -> None:
        mode.unasked = self.before


def disabled(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What classes name as their ``__torch_function__`` that want none: the function itself."""
    with Disabled():
        return func(*args, **(kwargs or {}))


def overrides(kind: Any) -> bool:
    """Whether instances of a class are asked."""
    if kind in PLAIN or (issubclass(kind, Tensor) and not (_made and issubclass(kind, _made[0]))):
        return False
    found = getattr(kind, "__torch_function__", None)
    return found is not None and found is not disabled


def overriding(args: Iterable[Any]) -> list[Any]:
    """One argument of each class that is asked, those of subclasses first; items of lists and tuples count, too."""
    found: list[Any] = []
    for arg in _flat(args):
        kind = type(arg)
        if overrides(kind) and not any(type(other) is kind for other in found):
            place = len(found)
            for k, other in enumerate(found):
                if issubclass(kind, type(other)):
                    place = k
                    break
            found.insert(place, arg)
    return found


def _flat(args: Iterable[Any]) -> Iterator[Any]:
    for arg in args:
        if type(arg) in (list, tuple):
            yield from arg
        else:
            yield arg


def ask(func: Any, asked: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the first of them makes of a call that does not give NotImplemented; the call itself where nobody is asked."""
    if not asked:
        return func(*args, **kwargs)
    kinds = tuple([type(each) for each in asked])
    for each in asked:
        result = each.__torch_function__(func, kinds, args, kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"Multiple dispatch failed for '{name_of(func)}'; all __torch_function__ handlers returned NotImplemented:\n\n"
        + "\n".join(f"  - tensor subclass {kind}" for kind in kinds)
    )


def name_of(func: Any) -> str:
    """A function as errors name it."""
    module = (getattr(func, "__module__", None) or "").removeprefix("dynagraph.")
    return f"{module}.{getattr(func, '__name__', func)}" if module else str(getattr(func, "__name__", func))


def converted(result: Any, cls: type) -> Any:
    """Results, tensors in tuples and lists among them, as tensors of a subclass."""
    if isinstance(result, Tensor):
        return result if isinstance(result, cls) else result.as_subclass(cls)  # type: ignore[attr-defined]
    if isinstance(result, (tuple, list)) and type(result) is not tensors.Size:
        own = [converted(each, cls) for each in result]
        return type(result)(*own) if hasattr(result, "_fields") else type(result)(own)
    return result


def default(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    """What tensors of subclasses do that say nothing else: results of `func` are of the subclass.

    NotImplemented where arguments are of other classes than `cls` and its bases.
    """
    for kind in types:
        if not issubclass(cls, kind):
            return NotImplemented
    with Disabled():
        result = func(*args, **(kwargs or {}))
    return result if type(func) is Accessor and func.name == "grad" else converted(result, cls)


Tensor.__torch_function__ = classmethod(default)

# -- methods of subclasses ------------------------------------------------------------------------------------------------

_OPERATORS = {  # operators by the method that PyTorch calls for them; others are called by their own names
    "__abs__": "abs", "__add__": "add", "__ge__": "ge", "__gt__": "gt", "__iadd__": "add_", "__ifloordiv__": "floor_divide_",
    "__imod__": "remainder_", "__imul__": "mul_", "__ipow__": "pow_", "__isub__": "sub_", "__itruediv__": "div_", "__le__": "le",
    "__lt__": "lt", "__matmul__": "matmul", "__mod__": "remainder", "__mul__": "mul", "__ne__": "ne", "__neg__": "neg",
    "__pos__": "positive", "__pow__": "pow", "__radd__": "add", "__rmul__": "mul", "__str__": "__repr__", "__sub__": "sub",
    "__truediv__": "div",
}  # fmt: skip
_REFLECTED = {
    f"__r{name}__": f"__{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift", "matmul")
}
_OWN = frozenset({"__new__", "__init__", "__hash__", "__reduce_ex__", "__setstate__", "__array_wrap__", "as_subclass"})


def _method(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A method that asks; `own` is Tensor's, which is called where nobody is."""
    public = getattr(Tensor, _OPERATORS.get(name, name), own)
    forward = _REFLECTED.get(name)
    unreflected = None if forward is None else getattr(Tensor, _OPERATORS.get(forward, forward), None)

    @functools.wraps(own)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if mode.unasked:
            return own(self, *args, **kwargs)
        if unreflected is not None and isinstance(args[0], Tensor):  # Python calls this one first for operands of subclasses
            return ask(unreflected, overriding((args[0], self)), (args[0], self), kwargs)
        return ask(public, overriding((self, *args, *kwargs.values())), (self, *args), kwargs)

    return method


def _iterate(self: Any) -> Any:
    if not self.dim():
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))


class Accessor:
    """The getter or the setter of a property as a function that may be asked for: equal to ``property.__get__``, or ``__set__``."""

    def __init__(self, name: str, kind: str, own: property, function: Any):
        self.name, self.__name__, self.__self__, self.function = name, kind, own, function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __eq__(self, other: Any) -> bool:
        return self is other or bool(getattr(self.__self__, self.__name__) == other)

    def __hash__(self) -> int:
        return hash(getattr(self.__self__, self.__name__))

    def __repr__(self) -> str:
        return f"<{self.__name__} of torch.Tensor.{self.name}>"


def _property(name: str, own: property) -> property:
    """A property that asks."""

    def get(self: Any) -> Any:
        return getter(self) if mode.unasked or not overrides(type(self)) else ask(reads, [self], (self,), {})

    def put(self: Any, value: Any) -> None:
        if mode.unasked or not overrides(type(self)):
            setter(self, value)
        else:
            ask(writes, [self], (self, value), {})

    getter, setter = own.fget, own.fset
    reads, writes = Accessor(name, "__get__", own, getter), Accessor(name, "__set__", own, setter)
    return property(get, None if setter is None else put, own.fdel, own.__doc__)


_made: list[Any] = []


def methods() -> Any:
    """The class between Tensor and its subclasses."""
    if not _made:
        members: dict[str, Any] = {"__slots__": (), "__module__": __name__}
        for name, value in list(vars(Tensor).items()):
            private = name.startswith("_") and not name.startswith("__")
            if private or name in _OWN:
                continue
            if isinstance(value, types.FunctionType):
                if value.__name__.startswith(("_", "<")) or name.startswith("__"):
                    value.__name__ = name  # by which some ask what is called
                members[name] = _method(name, value)
            elif isinstance(value, property):
                members[name] = _property(name, value)
        members["__iter__"] = _iterate
        members["__hash__"] = Tensor.__hash__  # which `__eq__` would take away
        made = type(Tensor)("Tensor", (Tensor,), members)
        _made.append(made)
        for activate in ACTIVATE:
            activate()
    return _made[0]


def is_active() -> bool:
    """Whether there is a class of tensors that is asked."""
    return bool(_made)


ACTIVATE: list[Callable[[], None]] = []  # what is done with the first class that is asked


def bases_of(bases: tuple[type, ...], namespace: dict[str, Any]) -> tuple[type, ...]:
    """The bases of a new class of tensors: with `methods` where it is asked, which none of this package's is."""
    if namespace.get("__module__", "").startswith("dynagraph.torch."):
        return bases
    own = namespace.get("__torch_function__")
    said = own if own is not None else next((f for b in bases if (f := getattr(b, "__torch_function__", None)) is not None), None)
    if said is disabled or said is None or any(base in _made for b in bases for base in b.__mro__):
        return bases
    return tuple([methods() if b is Tensor else b for b in bases]) if Tensor in bases else (*bases, methods())


tensors.BASES_OF.append(bases_of)

# -- functions ------------------------------------------------------------------------------------------------------------


class Overridable:
    """A function that asks the classes of its arguments; equal to the function itself."""

    __name__: str

    def __init__(self, function: Callable[..., Any]):
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not mode.unasked:
            for arg in (*args, *kwargs.values()):
                if type(arg) not in PLAIN:
                    asked = overriding((*args, *kwargs.values()))
                    return ask(self, asked, args, kwargs) if asked else self.function(*args, **kwargs)
        return self.function(*args, **kwargs)

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __eq__(self, other: Any) -> bool:
        return self is other or self.function is other

    def __hash__(self) -> int:
        return hash(self.function)

    def __reduce__(self) -> Any:
        return self.__qualname__  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return repr(self.function)


def replace_functions(module: dict[str, Any], functions: Iterable[Any]) -> None:
    """Have the functions of a module's namespace ask, of those that are given."""
    those = {id(each) for each in functions}
    for name, value in list(module.items()):
        if isinstance(value, types.FunctionType) and id(value) in those and name not in _NEVER:
            module[name] = _overridable(value, name)


_NEVER = frozenset({"is_tensor", "tensor", "as_tensor", "from_numpy", "set_anomaly_enabled"})
_functions: dict[Any, Overridable] = {}


def _overridable(function: Any, name: str) -> Overridable:
    """The form of a function that asks: one for each function."""
    found = _functions.get(function)
    if found is None:
        found = _functions[function] = Overridable(function)
        if found.__name__.startswith("_"):
            found.__name__ = name
    return found


__all__ = [
    "ACTIVATE", "PLAIN", "Disabled", "Overridable", "ask", "converted", "disabled", "is_active", "methods", "name_of", "overrides",
    "overriding", "replace_functions",
]  # fmt: skip
