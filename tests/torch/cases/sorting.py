"""Sorts, medians, quantiles, and search in what is sorted."""

from __future__ import annotations

from typing import Any

from tests.torch.table import Case, T, case, error, program

D = {"kind": "distinct"}


def _values(name: str, *args: Any, kind: str = "ints", **kwargs: Any) -> Case:
    """Of elements of which some are equal: values, and that the places say where they stand."""

    def run(torch: Any, x: Any) -> Any:
        values, places = getattr(torch, name)(x, *args, **kwargs)
        dim = kwargs.get("dim", -1)
        at = places if places.ndim == x.ndim else places.unsqueeze(dim)
        return values, x.take_along_dim(at, dim)

    return program(f"{name} of ties", run, T(4, 30, kind=kind), _second=False, _grad=False)


def _search(name: str, right: bool, out_int32: bool) -> Case:
    def run(torch: Any, edges: Any, x: Any) -> Any:
        edges = torch.sort(edges)[0]
        first, second = (x, edges) if name == "bucketize" else (edges, x)
        return getattr(torch, name)(first, second, right=right, out_int32=out_int32)

    return program(f"{name} right={right}", run, T(20, kind="ints", grad=False), T(3, 7, kind="ints", grad=False))


CASES: list[Case] = [
    case("sort", T(3, 10, **D)),
    case("sort", T(3, 10, **D), 0),
    case("sort", T(3, 10, **D), 1, True),
    case("sort", T(4, 3, 5, layout="T", **D), dim=1),
    case("sort", T(4, 3, 5, layout="T", **D), dim=0, descending=True),
    case("sort", T(3, 10, layout="step", **D), -1),
    case("sort", T(3, 40, layout="expand", **D), -1, _dtypes="float32"),
    case("sort", T(3, 40, kind="ints"), dim=-1, stable=True),
    case("sort", T(3, 40, kind="ints"), descending=True, stable=True),
    case("sort", T(3, 12, kind="special"), stable=True),
    case("sort", T(3, 12, kind="special"), descending=True, stable=True),
    case("sort", T()),
    case("sort", T(0)),
    case("sort", T(0, 3), 1),
    case("sort", T(3, 0), 1),
    case("sort", T(1)),
    case("sort", T(5, 3), stable=True, dim=0, descending=False),
    _values("sort", dim=-1),
    _values("sort", dim=0, descending=True),
    error("sort", T(3), 1, _text=True),
    error("sort", T(3), -2),
    error("sort", T(3, dtype="complex64"), _text=True),
    case("argsort", T(3, 10, **D)),
    case("argsort", T(3, 10, **D), 0, True),
    case("argsort", T(3, 40, kind="ints"), stable=True),
    case("argsort", T(3, 40, kind="special"), stable=True, descending=True),
    case("argsort", T(4, 3, 5, layout="T", **D), 1),
    case("argsort", T()),
    error("argsort", T(3), 4),
    case("msort", T(10, 3, **D)),
    case("msort", T(3)),
    case("msort", T()),
    case("topk", T(3, 30, **D), 2),
    case("topk", T(3, 30, **D), 2, largest=False),
    case("topk", T(3, 6, **D), 5),
    case("topk", T(6, 3, **D), 2, 0),
    case("topk", T(30, 3, **D), 2, 0, False),
    case("topk", T(3, 30, **D), 0),
    case("topk", T(3, 30, **D), 30),
    case("topk", T(4, 3, 20, layout="T", **D), 3, 0),
    _values("topk", 3, dim=-1, kind="special"),
    _values("topk", 3, dim=-1, largest=False, kind="special"),
    _values("topk", 2, dim=-1, kind="special", largest=False),
    case("topk", T(2, 300, **D), 7, _dtypes="float32 float16 int64"),
    case("topk", T(300, 2, **D), 7, 0, False, _dtypes="float32"),
    program("topk of rows with ties and NaN", lambda torch, x: x.topk(70)[0], T(3, 300, kind="special"), _grad=False),
    case("topk", T(), 1),
    case("topk", T(0), 0),
    case("topk", T(0, 3), 2),
    program("topk unsorted", lambda torch, x: x.topk(4, sorted=False)[0].sort()[0], T(3, 30, **D)),
    _values("topk", 7, dim=-1),
    _values("topk", 20, dim=-1),
    error("topk", T(3), 4, _text=True),
    error("topk", T(3), -1, _text=True),
    error("topk", T(), 2),
    error("topk", T(3, kind="bool"), 1, _text=True),
    error("topk", T(3, dtype="complex64"), 1, _text=True),
    case("kthvalue", T(3, 30, **D), 2),
    case("kthvalue", T(30, 3, **D), 7, 0),
    case("kthvalue", T(3, 10, **D), 10, 1, True),
    case("kthvalue", T(4, 3, 20, layout="T", **D), 3, 1),
    _values("kthvalue", 28, dim=-1, kind="special"),
    _values("kthvalue", 9, dim=-1),
    case("kthvalue", T(), 1),
    case("kthvalue", T(0, 3), 1),
    error("kthvalue", T(3), 0, _text=True),
    error("kthvalue", T(3), 4, _text=True),
    error("kthvalue", T(3, 0), 1, _text=True),
    error("kthvalue", T(3, kind="bool"), 1),
    error("kthvalue", T(3), 1, 2),
    _values("mode", dim=-1),
    _values("mode", dim=0),
    case("mode", T(3, 12, kind="ints"), _dtypes="float32 int64 uint8 bool"),
    case("mode", T(12, 3, kind="ints"), 0, True, _dtypes="float32 int64"),
    case("mode", T(2, 3, 12, kind="ints"), -1),
    case("mode", T(3, 12, kind="ints", layout="T")),
    case("mode", T()),
    case("mode", T(0, 3)),
    case("mode", T(3, 7, kind="bool")),
    error("mode", T(3, 0), _text=True),
    error("mode", T(3, dtype="complex64")),
    *(
        row
        for name in ("median", "nanmedian")
        for row in (
            case(name, T(3, 4)),
            case(name, T(5, kind="ints")),
            case(name, T(3, 30, kind="ints")),
            case(name, T(3, 31, **D), 1),
            case(name, T(30, 3, **D), 0),
            case(name, T(2, 30, 3, **D), -2, True),
            case(name, T(4, 3, 20, layout="T", **D), 1),
            case(name, T(3, 7, kind="special"), _dtypes="float32 float16 bfloat16", _second=False),
            case(name, T(3, 3, kind="special"), 1, _dtypes="float32", _second=False),
            case(name, T()),
            case(name, T(), 0),
            case(name, T(), 0, True),
            case(name, T(0)),
            program(
                f"{name} of many with NaN",
                lambda torch, x, name=name: getattr(torch, name)(x, 1)[0],
                T(9, 40, kind="special"),
                _grad=False,
                _dtypes="float32 bfloat16",
            ),
            program(
                f"{name} of many", lambda torch, x, name=name: getattr(torch, name)(x, 1)[0], T(9, 40, kind="ints"), _grad=False
            ),
            case(name, T(0, 3), 1),
            error(name, T(0, 3), 0, _text=True),
            error(name, T(3), 1),
            error(name, T(3, kind="bool")),
            error(name, T(3, dtype="complex64")),
            error(name, T(3, 4), keepdim=True),
        )
    ),
    *(
        row
        for name in ("quantile", "nanquantile")
        for row in (
            *(
                case(name, T(3, 7), q, interpolation=how)
                for how in ("linear", "lower", "higher", "midpoint", "nearest")
                for q in (0.3, 0.5)
            ),
            case(name, T(3, 7), 0.3, 1, _dtypes="float32"),
            case(name, T(3, 7), 0.25, 0, True, _dtypes="float32"),
            case(name, T(3, 7), 1),
            case(name, T(3, 7), 0.0, keepdim=True),
            case(name, T(3, 7), T(2, kind="zeros"), 1, _dtypes="float32", _out=False),
            case(name, T(2, 7, 3), T(4, kind="ones"), 1, True, _out=False),
            case(name, T(2, 7, 3), T(4, kind="ones"), 1, True, _strides=False),
            case(name, T(2, 7, 3), T(kind="ones"), -1),
            case(name, T(2, 7, 3, layout="T"), 0.7, 1),
            case(name, T(), 0.3, 0),
            case(name, T(), 0.3),
            case(name, T(4, 12, kind="special"), 0.4, 1, _dtypes="float32", _grad=False),
            case(name, T(4, 12, kind="special"), 0.4, 1, interpolation="nearest", _dtypes="float32", _grad=False),
            error(name, T(3), 1.5, _text=True),
            error(name, T(3), T(2, 2), _text=True),
            error(name, T(3), T(2, dtype="float32"), _text=True),
            error(name, T(3, dtype="int64"), 0.3, _text=True),
            error(name, T(3, dtype="float16"), 0.3, _text=True),
            error(name, T(0), 0.3, _text=True),
            error(name, T(3), 0.3, interpolation="cubic", _text=True),
            error(name, T(3), [0.3]),
            error(name, T(3), 0.3, 1),
        )
    ),
    program("quantile by its share", lambda torch, x, q: torch.quantile(x, q.sigmoid(), 1), T(3, 7), T(4)),
    program("nanquantile by its share", lambda torch, x, q: torch.nanquantile(x, q.sigmoid(), 1), T(3, 7), T(4)),
    *(_search(name, right, out) for name in ("searchsorted", "bucketize") for right in (False, True) for out in (False, True)),
    program(
        "searchsorted in rows",
        lambda torch, e, x: torch.searchsorted(e.sort()[0], x),
        T(2, 3, 9, kind="ints"),
        T(2, 3, 5, kind="ints"),
    ),
    program(
        "searchsorted in rows, right",
        lambda torch, e, x: torch.searchsorted(e.sort()[0], x, side="right"),
        T(2, 1, kind="ints"),
        T(2, 5, kind="ints"),
    ),
    program(
        "searchsorted with a sorter",
        lambda torch, e, x: torch.searchsorted(e, x, sorter=e.argsort(-1)),
        T(2, 9, kind="distinct"),
        T(2, 5, kind="ints"),
    ),
    program("searchsorted of a number", lambda torch, e: torch.searchsorted(e.sort()[0], 2), T(9, kind="distinct")),
    program("searchsorted of NaN", lambda torch, e, x: torch.searchsorted(e.sort()[0], x), T(9, kind="ints"), T(8, kind="special")),
    program("searchsorted in nothing", lambda torch, e, x: torch.searchsorted(e, x), T(0), T(3)),
    program("searchsorted of nothing", lambda torch, e, x: torch.searchsorted(e, x), T(2, 3), T(2, 0)),
    program("bucketize a number", lambda torch, e: torch.bucketize(2, e.sort()[0]), T(9, kind="distinct")),
    error("searchsorted", T(3), T(2), side="up", _text=True),
    error("searchsorted", T(3), T(2), side="left", right=True, _text=True),
    error("searchsorted", T(2, 3), T(2), _text=True),
    error("searchsorted", T(2, 3), 1.0, _text=True),
    error("searchsorted", T(), T(2), _text=True),
    error("searchsorted", T(3), T(2), sorter=T(2, kind="index:2"), _text=True),
    error("searchsorted", T(3), T(2), sorter=T(3), _text=True),
    error("searchsorted", T(3, dtype="complex64"), T(2, dtype="complex64")),
    error("bucketize", T(3), T(2, 2), _text=True),
]
