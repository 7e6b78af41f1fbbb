"""Dtype and shape rules that the rows of the op table share.  They check once, at construction of a node."""

from __future__ import annotations

from collections.abc import Callable

from dynagraph.errors import DTypeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import Attrs, Metas
from dynagraph.ir.shapes import Shape, broadcast_shapes

DTypeRule = Callable[[Metas, Attrs], DType]
ShapeRule = Callable[[Metas, Attrs], Shape]

ANY = "biufc"
REAL = "biuf"
NUMERIC = "iufc"
REAL_NUMERIC = "iuf"
INEXACT = "fc"
FLOAT = "f"
COMPLEX = "c"
INTEGER = "iu"
BITS = "biu"
BOOL = "b"

_WHAT = {
    REAL: "bools, integers or floating point",
    NUMERIC: "numbers",
    REAL_NUMERIC: "integers or floating point",
    INEXACT: "floating point or complex numbers",
    FLOAT: "floating point",
    COMPLEX: "complex numbers",
    INTEGER: "integers",
    BITS: "integers or bool",
    BOOL: "bool",
}


def check_kind(who: str, dtype: DType, kinds: str) -> DType:
    """`dtype`, if it is of one of the kinds that `who` takes."""
    if dtype.kind not in kinds:
        raise DTypeError(f"{who}: takes {_WHAT[kinds]}, got {dtype}; cast the operand first")
    return dtype


def one_dtype(who: str, metas: Metas) -> DType:
    """The dtype that all operands have."""
    first = metas[0].dtype
    if any(m.dtype is not first for m in metas):
        given = ", ".join(m.dtype.name for m in metas)
        raise DTypeError(f"{who}: operands must have one dtype, got {given}; the graph holds casts, never promotion")
    return first


def same_dtype(who: str, kinds: str = ANY) -> DTypeRule:
    """The result has the dtype that all operands have."""
    return lambda metas, attrs: check_kind(who, one_dtype(who, metas), kinds)


def to_bool(who: str, kinds: str = ANY) -> DTypeRule:
    """The result is bool; the operands have one dtype."""

    def rule(metas: Metas, attrs: Attrs) -> DType:
        check_kind(who, one_dtype(who, metas), kinds)
        return dtypes.bool_

    return rule


def to_real(who: str, kinds: str = ANY) -> DTypeRule:
    """The result has the dtype of the parts of the operands, which have one dtype."""
    return lambda metas, attrs: check_kind(who, one_dtype(who, metas), kinds).real


def to_complex(who: str, kinds: str = FLOAT) -> DTypeRule:
    """The result is complex, of parts of the dtype that the operands have."""

    def rule(metas: Metas, attrs: Attrs) -> DType:
        dtype = check_kind(who, one_dtype(who, metas), kinds)
        if dtype.complex is dtype:
            raise DTypeError(f"{who}: there are no complex numbers of {dtype} parts")
        return dtype.complex

    return rule


def broadcast(who: str) -> ShapeRule:
    """The operands' shapes broadcast, as NumPy's do."""
    return lambda metas, attrs: broadcast_shapes(*(m.shape for m in metas), who=who)
