"""Reductions and scans."""

from __future__ import annotations

from tests.torch.table import A, Case, T, case, error

CASES: list[Case] = [
    case("sum", T(3, 4)),
    case("sum", T(3, 4), dim=1),
    case("cumsum", T(3, 4), dim=1),
    case("max", T(3, 4), 1),
    case("sum", T(3, 4), 0, dtype=A("float32")),
    error("sum", T(3, 4), 5),
]
