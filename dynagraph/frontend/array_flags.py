"""``array.flags``: what NumPy says of an array's memory, asked of the layout that it has there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynagraph.frontend.exceptions import refuse
from dynagraph.frontend.numpy_door.arguments import is_contiguous, is_fortran
from dynagraph.frontend.values import Const, Flags, Value

if TYPE_CHECKING:
    from dynagraph.frontend.executor import Executor

# of: in C order, in Fortran order, writeable.  Arrays that are not aligned are no inputs.
FLAGS: dict[str, Callable[[bool, bool, bool], bool]] = {
    "c_contiguous": lambda c, f, w: c,
    "f_contiguous": lambda c, f, w: f,
    "contiguous": lambda c, f, w: c,
    "fortran": lambda c, f, w: f,
    "forc": lambda c, f, w: c or f,
    "fnc": lambda c, f, w: f and not c,
    "writeable": lambda c, f, w: w,
    "aligned": lambda c, f, w: True,
    "behaved": lambda c, f, w: w,
    "carray": lambda c, f, w: c and w,
    "farray": lambda c, f, w: f and not c and w,
}
LETTERS = {
    "C": "c_contiguous",
    "F": "f_contiguous",
    "W": "writeable",
    "A": "aligned",
    "B": "behaved",
    "CA": "carray",
    "FA": "farray",
}


def load_flag(ex: Executor, flags: Flags, name: str) -> Value:
    """``array.flags.name``."""
    if name not in FLAGS:
        return refuse("ATTRIBUTE", f".flags.{name} of an array")
    b, node = ex.builder, ex.memories.present(flags.owner)
    return Const(FLAGS[name](is_contiguous(b, node), is_fortran(b, node), ex.memories.is_writeable(flags.owner)))


def flag_named(ex: Executor, flags: Flags, key: Any) -> Value:
    """``array.flags["C_CONTIGUOUS"]``."""
    named = key.value if isinstance(key, Const) else None
    if type(named) is not str or not (named in LETTERS or named.isupper()):
        return refuse("UNSUPPORTED_VALUE", "a subscript of array.flags that names no flag")
    return load_flag(ex, flags, LETTERS.get(named, named.lower()))


__all__ = ["flag_named", "load_flag"]
