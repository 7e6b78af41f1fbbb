"""Distinct elements and counts."""

from __future__ import annotations

from typing import Any

from tests.torch.table import Case, T, case, error, program

I = {"kind": "ints"}  # noqa: E741
ALL = {"return_inverse": True, "return_counts": True}
_FEW = "float32 float16 bfloat16 int64 uint8 bool"


def _bins(name: str, **kwargs: Any) -> Case:
    """A histogram with edges that are given, in order."""

    def run(torch: Any, x: Any, edges: Any, weight: Any) -> Any:
        edges = edges.sort()[0]
        bins = edges if name == "histogram" else [edges, edges[::2]]
        return getattr(torch, name)(x, bins, weight=weight, **kwargs)

    x = T(12, **I) if name == "histogram" else T(12, 2, **I)
    return program(f"{name} between edges {kwargs}", run, x, T(6, kind="distinct"), T(12), _dtypes="float32", _grad=False)


CASES: list[Case] = [
    *(
        row
        for name in ("unique", "unique_consecutive")
        for row in (
            case(name, T(12, **I), _grad=False),
            case(name, T(3, 12, **I), **ALL, _grad=False),
            case(name, T(3, 12, **I), return_inverse=True, _grad=False),
            case(name, T(3, 12, **I), return_counts=True, _grad=False),
            case(name, T(12, 2, **I), dim=0, **ALL, _grad=False, _dtypes=_FEW, _strides=False),
            case(name, T(2, 20, **I), dim=1, **ALL, _grad=False, _dtypes=_FEW, _strides=False),
            case(name, T(2, 9, 2, kind="bool"), dim=-2, **ALL, _strides=False),
            case(name, T(2, 20, **I), dim=1, return_counts=True, _grad=False, _dtypes="", _strides=False),
            case(name, T(2, 20, **I), dim=1, _grad=False, _dtypes="", _strides=False),
            case(name, T(20, kind="special"), return_counts=True, _grad=False, _dtypes="float32 bfloat16"),
            case(name, T(4, 5, layout="T", **I), **ALL, _grad=False),
            case(name, T(), **ALL, _grad=False),
            case(name, T(0), **ALL, _grad=False),
            case(name, T(0, 3), **ALL, _grad=False),
            case(name, T(4), _second=False, _grad_fn=True),
            case(name, T(4, 2), dim=0, _second=False, _grad_fn=True, _dtypes="", _strides=False),
            error(name, T(3, dtype="complex64")),
            error(name, T(), dim=0, _text=True),
            error(name, T(0, 3), dim=1, _text=True),
            error(name, T(0, 0), dim=1, _text=True),
            error(name, T(3), dim=1),
        )
    ),
    case("unique", T(0, 3), dim=0, **ALL, _grad=False, _dtypes="", _strides=False),
    case("unique", T(12, **I), False, True, True, _grad=False),
    case("isin", T(3, 8, **I), T(3, **I), _grad=False),
    case("isin", T(3, 8, **I), T(2, 30, **I), invert=True, _grad=False),
    case("isin", T(3, 8, kind="special"), T(30, kind="special"), _grad=False, _dtypes="float32"),
    case("isin", T(8, **I), 2, _grad=False),
    case("isin", 2, T(8, **I), _grad=False),
    case("isin", T(8, dtype="int64"), 2.5),
    case("isin", T(8, dtype="int64"), T(40, dtype="float32", **I), _grad=False),
    case("isin", T(8, **I), T(0), _grad=False),
    case("isin", T(0), T(3), _grad=False),
    case("isin", T(), T(3, **I), assume_unique=True, _grad=False),
    error("isin", T(3, kind="bool"), T(3, kind="bool"), _text=True),
    error("isin", T(3, dtype="complex64"), T(3, dtype="complex64"), _text=True),
    error("isin", 2, 3),
    case("histc", T(40), 7, _grad=False),
    case("histc", T(4, 10), 7, -1, 1, _grad=False),
    case("histc", T(40), _grad=False, _dtypes="float32"),
    case("histc", T(40, **I), bins=6, min=-3, max=3, _grad=False),
    case("histc", T(4, kind="ones"), 4, _grad=False, _dtypes="float32"),
    case("histc", T(0), 4, _grad=False, _dtypes="float32"),
    case("histc", T(20, kind="special"), 4, -1, 1, _grad=False, _dtypes="float32"),
    error("histc", T(4), 0, _text=True),
    error("histc", T(4), 3, 2, 1, _text=True),
    error("histc", T(4, dtype="int64"), 3),
    error("histc", T(4, kind="bool"), 3),
    error("histc", T(20, kind="special"), 3),
    case("histogram", T(40), 7, _grad=False, _dtypes="float32"),
    case("histogram", T(4, 10), 7, range=(-1.0, 1.0), _grad=False, _dtypes="float32"),
    case("histogram", T(40), 7, weight=T(40), density=True, _grad=False, _dtypes="float32"),
    case("histogram", T(4, kind="ones"), 4, _grad=False, _dtypes="float32"),
    case("histogram", T(0), 4, _grad=False, _dtypes="float32"),
    _bins("histogram"),
    _bins("histogram", density=True),
    error("histogram", T(4), 0, _text=True),
    error("histogram", T(4), 3, range=(2.0, 1.0), _text=True),
    error("histogram", T(4), 3, range=(2.0,), _text=True),
    error("histogram", T(4), 3, weight=T(3), _text=True),
    error("histogram", T(4), 3, weight=T(4, dtype="float32")),
    error("histogram", T(4), T(3, dtype="float32")),
    error("histogram", T(4), T(2, 2), _text=True),
    error("histogram", T(4), T(0), _text=True),
    error("histogram", T(4), T(1), _text=True),
    error("histogram", T(4, dtype="int64"), 3),
    error("histogram", T(20, kind="special"), 3),
    error("histogram", T(4, 2, dtype="bool"), 3),
    case("histogramdd", T(20, 2), 3, _grad=False, _dtypes="float32"),
    case("histogramdd", T(20, 2), (3, 4), range=[-1.0, 1.0, -2.0, 2.0], _grad=False, _dtypes="float32"),
    case("histogramdd", T(2, 10, 3), [2, 3, 2], weight=T(2, 10), density=True, _grad=False, _dtypes="float32"),
    _bins("histogramdd"),
    _bins("histogramdd", density=True),
    error("histogramdd", T(4), 3, _text=True),
    error("histogramdd", T(4, 2), [3], _text=True),
    case("bincount", T(20, kind="index:6")),
    case("bincount", T(20, kind="index:6"), minlength=10),
    case("bincount", T(20, kind="index:6"), T(20), _grad=False),
    case("bincount", T(20, kind="index:6"), weights=T(20, dtype="float16"), minlength=2, _grad=False),
    case("bincount", T(20, kind="index:6", dtype="uint8")),
    case("bincount", T(0, kind="index:6")),
    case("bincount", T(0, kind="index:6"), T(0), 3, _grad=False),
    error("bincount", T(2, 3, kind="index:6"), _text=True),
    error("bincount", T(3, dtype="int64", **I), _text=True),
    error("bincount", T(3)),
    error("bincount", T(3, kind="bool")),
    error("bincount", T(3, kind="index:6"), T(2), _text=True),
    error("bincount", T(3, kind="index:6"), minlength=-1, _text=True),
    case("unravel_index", T(2, 3, kind="index:24"), (2, 3, 4), _strides=False),
    case("unravel_index", T(3, kind="index:24"), (24,)),
    error("unravel_index", T(3), (2, 3)),
]
