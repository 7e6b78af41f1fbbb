"""Slots of slices, of ``id()`` of objects made here, and of opaque values, which may be passed on but not looked at."""

from __future__ import annotations

from typing import Any

from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.recipes import CannotBuild, Recipe, Recipes
from dynagraph.frontend.kinds.constants import pure
from dynagraph.frontend.kinds.containers import has_method
from dynagraph.frontend.kinds.slots import Slots, known_number, plain, slots
from dynagraph.frontend.kinds.values import Const, Identity, Method, Opaque, Slice, Value

PARTS = ("start", "stop", "step")


@slots(Slice)
class SliceSlots(Slots):
    def type_of(self, frame: Frame, value: Slice) -> type:
        return slice

    def truth(self, frame: Frame, value: Slice) -> bool:
        return True

    def to_python(self, frame: Frame, value: Slice) -> Any:
        return slice(*(known_number(plain(frame, p)) for p in value.parts))

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        return Const(pure(symbol, plain(frame, left), plain(frame, right))) if isinstance(right, Slice) else NotImplemented

    def attribute(self, frame: Frame, value: Slice, name: str) -> Value:
        if name in PARTS:
            return frame.ex.resolve(value.parts[PARTS.index(name)])
        return Method(name, value) if has_method(value, name) else super().attribute(frame, value, name)

    def recipe(self, results: Recipes, value: Slice) -> Recipe:
        return ("make", slice, tuple(results.build(p) for p in value.parts))


@slots(Identity)
class IdentitySlots(Slots):
    def type_of(self, frame: Frame, value: Identity) -> type:
        return int

    def key(self, frame: Frame, value: Identity) -> Any:
        return value

    def rank(self, value: Identity, symbol: str, reflected: bool) -> int:
        return 10

    def binary(self, frame: Frame, symbol: str, left: Any, right: Any) -> Any:
        known = all(isinstance(v, Identity) or (isinstance(v, Const) and type(v.value) is int) for v in (left, right))
        if symbol not in ("==", "!=") or not known:
            refuse("UNSUPPORTED_VALUE", f"{symbol} of the id() of an object made here")
        return Const((left == right) is (symbol == "=="))

    def recipe(self, results: Recipes, value: Identity) -> Recipe:
        raise CannotBuild("the id() of an object made here", value.born)


@slots(Opaque)
class OpaqueSlots(Slots):
    def attribute(self, frame: Frame, value: Opaque, name: str) -> Value:
        return refuse("UNSUPPORTED_VALUE", f".{name} of {value.what}")

    def recipe(self, results: Recipes, value: Opaque) -> Recipe:
        raise CannotBuild(value.what)
