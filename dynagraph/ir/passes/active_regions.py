"""What depends, in a region, on what it is differentiated by: variables, and memory.  Gradients and tangents begin with it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from dynagraph.errors import GradientError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.partials import RESULT, partials
from dynagraph.ir.region_memory import Memory, Pointers, Roots
from dynagraph.ir.regions import Checked, Hold, Instruction, Load, NewMemory, Region, Require, Set, Store, substituted

I64 = dtypes.int64
DIFFERENTIABLE = (dtypes.float64, dtypes.float32)
OF_MATH = {  # the op whose function a function of libm is
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2", "fabs": "abs",
}  # fmt: skip
OF_CHECKED = {"float_div": "div", "float_mod": "remainder", "float_floordiv": "floordiv", "float_pow": "pow"}
OF_SUPPORT = {"numpy_pow": "pow"}


class NotReversible(Exception):
    """The region computes with what has no gradient here; why."""


class ActiveRegion:
    """A region whose variables `active`, and memory `active_roots`, depend on the parameters `varied`."""

    def __init__(self, region: Region, varied: set[str]):
        self.region = region
        self.memory = Memory(region)
        self.at: Pointers = {}  # what pointers hold at the present place
        self.active = {p for p in varied if isinstance(region.variables[p], DType)}
        self.varied = varied - self.active
        self.active_roots: set[str] = set(self.varied)
        self.names = itertools.count()

    def find_activity(self) -> None:
        """Fill in `active` and `active_roots`."""
        known = -1
        while known != len(self.active) + len(self.active_roots):
            known = len(self.active) + len(self.active_roots)
            for i, at in self.memory.walk(self.region):
                self.at = at
                self._spread(i)

    def _spread(self, i: Instruction) -> None:
        if isinstance(i, Set) and not self._is_address(i.name):
            if i.value.dtype.is_inexact and self._depends(i.value):
                self._activate(i.name, i.value.dtype)
        elif isinstance(i, Checked):
            kind = self.region.variables[i.name]
            if isinstance(kind, DType) and kind.is_inexact and any(map(self._depends, i.args)):
                self._activate(i.name, kind)
        elif isinstance(i, Load):
            if i.place.dtype.is_inexact and self._is_pointed(i.place.base):
                self._activate(i.name, i.place.dtype)
                self.active_roots |= self._roots(i.place.base)
        elif isinstance(i, Store):
            if i.place.dtype.is_inexact and (self._depends(i.value) or self._is_pointed(i.place.base)):
                self.active_roots |= self._roots(i.place.base)
        elif isinstance(i, Require) and i.test.op == "matmul":
            c, a, b = (self._roots(i.test.args[k]) for k in (0, 5, 9))
            if not self.active_roots.isdisjoint(a | b):
                self.active_roots |= c.union(*(r for r in (a, b) if not self.active_roots.isdisjoint(r)))
        for e in self._reductions(i):
            for pointer in (e.args[1], e.args[3]) if e.op == "dot" else e.args[:1]:
                if self._is_pointed(pointer):
                    self.active_roots |= self._roots(pointer)

    def _reductions(self, i: Instruction) -> list[Expr]:
        return [e for e in i.value.walk() if e.op in ("dot", "reduction")] if isinstance(i, Set) else []

    def _activate(self, name: str, dtype: DType) -> None:
        if dtype not in DIFFERENTIABLE:
            raise NotReversible(f"a gradient of {dtype}")
        self.active.add(name)

    def _is_address(self, name: str) -> bool:
        return self.memory.is_address(name)

    def _roots(self, pointer: Expr) -> Roots:
        return self.memory.roots(self.at, pointer)

    def _is_pointed(self, pointer: Expr) -> bool:
        """Whether an address is, here, of memory that depends on what the gradient is taken by."""
        return not self.active_roots.isdisjoint(self._roots(pointer))

    def _depends(self, e: Expr) -> bool:
        """Whether the value of an expression depends on an active one through numbers that have derivatives."""
        if e.op == "var":
            return str(e.value) in self.active
        if e.op == "dot":
            return self._is_pointed(e.args[1]) or self._is_pointed(e.args[3])
        if e.op == "reduction":
            return e.dtype.is_inexact and self._is_pointed(e.args[0])
        if not e.dtype.is_inexact:
            return False
        return any(self._depends(a) for a in (e.args[1:] if e.op == "select" else e.args))

    def _fresh(self, kind: DType | str, letter: str = "r") -> Expr:
        name = next(n for k in self.names if (n := f"{letter}{k}_") not in self.region.variables)
        self.region.variables[name] = kind
        return var(name, kind if isinstance(kind, DType) else I64)

    def _makes(self, i: Set | Hold | NewMemory) -> bool:
        """Whether an instruction has a variable point to memory that depends on what the gradient is taken by."""
        after = dict(self.at)
        self.memory.step(after, i)
        return not self.active_roots.isdisjoint(after[i.name])

    def _slopes(self, result: Expr, function: str, operands: Sequence[Expr]) -> list[tuple[Expr, Expr]]:
        """Active operands, with the derivatives by them, of what `function` has given for operands: it is in `result` now.

        Operands are variables or constants.
        """
        try:
            found = partials(function, len(operands), operands[0].dtype)
        except (GradientError, KeyError, TypeError, AssertionError) as error:
            raise NotReversible(f"a gradient of {function}") from error
        of = substituted({f"x{k}": operand for k, operand in enumerate(operands)} | {RESULT: result})
        pairs = zip(operands, found)
        return [(x, of(partial)) for x, partial in pairs if partial is not None and x.op == "var" and str(x.value) in self.active]


def function_of(i: Checked) -> tuple[str, tuple[Expr, ...], tuple[Expr, ...]]:
    """The op that a checked function is, what is no operand of it, and its operands."""
    if i.function == "math":
        name = str(i.args[0].value)
        return OF_MATH.get(name, name), i.args[:1], i.args[1:]
    if i.function not in OF_CHECKED:
        raise NotReversible(f"a gradient of {i.function}")
    return OF_CHECKED[i.function], (), i.args


def name_of(e: Expr) -> str:
    if e.op != "var":
        raise NotReversible(f"an address by {e.op}")
    return str(e.value)


__all__ = ["DIFFERENTIABLE", "OF_SUPPORT", "ActiveRegion", "NotReversible", "function_of", "name_of"]
