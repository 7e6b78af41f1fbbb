"""CUDA C spellings for the printer of expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dynagraph.backends.cstyle import CStyle, Scope, Writer
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr
from dynagraph.ir.intexpr import Atom, IntExpr, Symbol
from dynagraph.ir.loops import Store
from dynagraph.ir.statements import AxisKind, For

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

    def rounded_product(self, text: str) -> str:
        """NVRTC has no such operation."""
        return text

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
        return f"{condition}dg_atomic_{FUNCTIONS[s.atomic].atomic}(&{target}, ({self.memory_type(s.value.dtype)})({value}));"

    def unroll(self, turns: int) -> str:
        return f"#pragma unroll {turns}" if turns else "#pragma unroll"

    def share(self, s: For) -> tuple[str, str]:
        if s.kind not in (AxisKind.BLOCK, AxisKind.PARALLEL):
            return super().share(s)
        each = "" if s.step == 1 else f" * {s.step}"
        mine = " + threadIdx.x" if s.kind is AxisKind.PARALLEL else ""
        return f"(dg_index)blockIdx.x{each}{mine}", f"(dg_index)gridDim.x{each}"

    def call(self, e: Expr, args: list[str]) -> str:
        """Also what the threads of a warp tell each other: `from_lane` is a value of another one, `from_partner` of the one whose
        number differs in one bit; `ballot` has a bit for each of them."""
        if e.op == "from_lane":
            return f"dg_from_lane({', '.join(args)})"
        if e.op == "from_partner":
            value, bit, width = args
            return f"dg_from_lane({value}, (lane ^ {bit}) % {width}, {width})"
        if e.op == "ballot":
            return f"__ballot_sync(0xffffffffu, {args[0]})"
        if e.op == "popcount":
            return f"__popc({args[0]})"
        if e.op == "has_bit":
            return f"({args[0]} >> {args[1]} & 1)"
        if e.op == "bits_below":
            return f"({args[0]} & ((1u << {args[1]}) - 1))"
        return super().call(e, args)

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
