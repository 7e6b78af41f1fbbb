"""torch.gradient."""

from __future__ import annotations

from tests.torch.table import Case, T, case, error, program

CASES: list[Case] = [
    case("gradient", T(5)),
    case("gradient", T(4, 5)),
    case("gradient", T(4, 5, layout="T"), spacing=2.0),
    case("gradient", T(4, 5), spacing=(2.0, 3.0)),
    case("gradient", T(4, 5), spacing=[2, 3], dim=(1, 0)),
    case("gradient", T(4, 5), dim=1),
    case("gradient", T(4, 5), dim=-2, edge_order=2),
    case("gradient", T(4, 5), edge_order=2, spacing=0.5),
    case("gradient", T(2, 3)),
    case("gradient", T(3, 2, 3), dim=(0, 2), edge_order=2),
    case("gradient", T()),
    program(
        "gradient at coordinates",
        lambda torch, x, a, b: torch.gradient(x, spacing=(a.cumsum(0), b.cumsum(0))),
        T(4, 5),
        T(4, kind="positive"),
        T(5, kind="positive"),
        _dtypes="float32",
    ),
    program(
        "gradient at coordinates, edges of second order",
        lambda torch, x, a, b: torch.gradient(x, spacing=(a.cumsum(0), b.cumsum(0)), dim=(1, 0), edge_order=2),
        T(4, 5),
        T(5, kind="positive"),
        T(4, kind="positive"),
        _dtypes="float32",
    ),
    program(
        "gradient of two at coordinates",
        lambda torch, x, a: torch.gradient(x, spacing=(a.cumsum(0),)),
        T(2),
        T(2, kind="positive"),
        _dtypes="float32",
    ),
    error("gradient", T(1), _text=True),
    error("gradient", T(2), edge_order=2, _text=True),
    error("gradient", T(5), edge_order=3, _text=True),
    error("gradient", T(5, 5), dim=(1, 1), _text=True),
    error("gradient", T(5, 5), dim=2),
    error("gradient", T(5, 5), spacing=(1.0,), _text=True),
    error("gradient", T(5, 5), spacing=(1.0, 2.0), dim=1),
    error("gradient", T(5), spacing=T(5)),
    error("gradient", T(5), spacing=(T(4),)),
    error("gradient", T(5, dtype="uint8"), _text=True),
]
