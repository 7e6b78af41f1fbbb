"""How CUDA C spells what the C family's printer prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dynagraph.backends.cstyle import CStyle, Scope, Writer
from dynagraph.ir.dtypes import DType
from dynagraph.ir.intexpr import Atom, IntExpr, Symbol
from dynagraph.ir.loops import Store

ATOMIC = {"maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min"}  # of integers: no NaN is passed over
COMPLEX = {"complex64": "dg_c64", "complex128": "dg_c128"}
INT32_REACH = 1 << 30  # what indices of 32 bits are used for stays below this: sums and products of two have room


class CudaStyle(CStyle):
    """Prints statements as CUDA C.  `dg_index` is the type of indices: of 32 bits, or of 64 where sizes want it."""

    index_type = "dg_index"
    bool_type = "bool"
    _wide = False

    def __init__(self, writer: Writer, checked: Mapping[str, int] = MappingProxyType({})):
        """`checked`: the numbers of the buffers of which each access is checked."""
        super().__init__(writer)
        self.checked = checked

    def less_from_zero(self, constant: Any, x: str, dtype: DType) -> str:
        """NVRTC keeps signs of zeros."""
        return f"({self.literal(constant, dtype)} - {x})"

    def element(self, buffer: str, index: str) -> str:
        number = self.checked.get(buffer)
        if number is None:
            return super().element(buffer, index)
        return f"dg_checked({buffer}, {index}, {buffer}_low, {buffer}_end, {number}, record)"

    def store(self, s: Store, target: str, value: str, scope: Scope) -> str:
        condition = "" if s.where is None else f"if ({self.expr(s.where, scope)}) "
        if not s.atomic:
            return condition + super().store(s, target, value, scope)
        return f"{condition}dg_atomic_{ATOMIC.get(s.atomic, s.atomic)}(&{target}, ({self.memory_type(s.value.dtype)})({value}));"

    def memory_type(self, dtype: DType) -> str:
        return COMPLEX.get(dtype.name, dtype.ctype)

    def builtin(self, name: str, dtype: DType, args: Sequence[str]) -> str:
        return f"{name}{'f' if dtype.itemsize == 4 else ''}({', '.join(args)})"

    def complex_literal(self, real: str, imag: str, dtype: DType) -> str:
        return f"{self.memory_type(dtype)}({real}, {imag})"

    def not_finite(self, name: str, suffix: str) -> str:
        return f"dg_{name}{suffix}()"

    def index_value(self, index: IntExpr, dtype: DType) -> str:
        """What is computed of an index may be larger than any index."""
        low, high = index.bounds()
        self._wide = low is None or high is None or low < -INT32_REACH or high > INT32_REACH
        text = f"({self.type(dtype)})({self.integer(index)})"
        self._wide = False
        return text

    def _atom(self, atom: Atom) -> str:
        if self._wide and isinstance(atom, Symbol):
            return f"(int64_t){atom.name}"
        return super()._atom(atom)


__all__ = ["COMPLEX", "INT32_REACH", "CudaStyle"]
