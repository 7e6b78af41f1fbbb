"""Python's operators, a row each: symbol, special methods, functions of `operator`, NumPy's ufunc."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Operator:
    symbol: str
    name: str  # of the special method, between its underscores
    ufunc: np.ufunc
    mirrored: str = ""  # the name of the comparison that says the same of swapped operands

    @property
    def method(self) -> str:
        return f"__{self.name}__"

    @property
    def reflected(self) -> str:
        """The special method of the right operand."""
        return f"__{self.mirrored or 'r' + self.name}__"

    @property
    def in_place_method(self) -> str:
        return f"__i{self.name}__"

    @property
    def function(self) -> Callable[..., Any]:
        return divmod if self.name == "divmod" else getattr(operator, self.method)  # type: ignore[no-any-return]

    @property
    def in_place(self) -> Callable[..., Any] | None:
        """The function of ``left += right``."""
        return getattr(operator, self.in_place_method, None)


def _table(*rows: Operator) -> dict[str, Operator]:
    return {row.symbol: row for row in rows}


ARITHMETIC = _table(
    Operator("+", "add", np.add),
    Operator("-", "sub", np.subtract),
    Operator("*", "mul", np.multiply),
    Operator("/", "truediv", np.divide),
    Operator("//", "floordiv", np.floor_divide),
    Operator("%", "mod", np.remainder),
    Operator("**", "pow", np.power),
    Operator("<<", "lshift", np.left_shift),
    Operator(">>", "rshift", np.right_shift),
    Operator("&", "and", np.bitwise_and),
    Operator("|", "or", np.bitwise_or),
    Operator("^", "xor", np.bitwise_xor),
    Operator("@", "matmul", np.matmul),
)
COMPARISONS = _table(
    Operator("==", "eq", np.equal, "eq"),
    Operator("!=", "ne", np.not_equal, "ne"),
    Operator("<", "lt", np.less, "gt"),
    Operator("<=", "le", np.less_equal, "ge"),
    Operator(">", "gt", np.greater, "lt"),
    Operator(">=", "ge", np.greater_equal, "le"),
)
BINARY = ARITHMETIC | COMPARISONS | _table(Operator("divmod", "divmod", np.divmod))
UNARY = _table(
    Operator("neg", "neg", np.negative),
    Operator("pos", "pos", np.positive),
    Operator("abs", "abs", np.absolute),
    Operator("invert", "invert", np.invert),
)

__all__ = ["ARITHMETIC", "BINARY", "COMPARISONS", "UNARY", "Operator"]
