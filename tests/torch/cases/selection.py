"""Elements by their index along a dimension: gather, scatter and index_*."""

from __future__ import annotations

from tests.torch.table import Case, T, case, error, program

I4, I3 = {"kind": "index:4"}, {"kind": "index:3"}


def _refused(row: Case) -> Case:
    row.raises = True
    return row


def _both(name: str) -> list[Case]:
    """scatter, scatter_add: elements of a source at an index along a dimension."""
    return [
        case(name, T(3, 4), 1, T(3, 2, **I4), T(3, 2), _grad_fn=True),
        case(name, T(3, 4), 0, T(2, 4, **I3), T(2, 4)),
        case(name, T(3, 4), -1, T(2, 7, **I4), T(2, 7)),
        case(name, T(2, 3, 4), 1, T(2, 6, 4, **I3), T(2, 6, 4)),
        case(name, T(2, 3, 4, layout="T"), 1, T(2, 6, 4, layout="T", **I3), T(2, 6, 4, layout="T")),
        case(name, T(3, 4, layout="step"), 1, T(3, 2, layout="step", **I4), T(3, 2, layout="step"), _strides=False),
        case(name, T(3, 4), 1, T(3, 2, dtype="int32", **I4), T(3, 2)),
        case(name, T(3, 4), 1, T(2, 2, **I4), T(3, 5), _grad=False),
        case(name, T(6), 0, T(20, kind="index:6"), T(20)),
        case(name, T(3, 4), 1, T(0, 2, **I4), T(0, 2)),
        case(name, T(3, 4), 1, T(0, **I4), T(0)),
        case(name, T(0, 4), 1, T(0, 2, **I4), T(0, 2)),
        case(name, T(), 0, T(kind="index:1"), T()),
        case(name, T(3), 0, T(kind="index:3"), T()),
        error(name, T(3, 4), 1, T(3, 2, kind="index:9"), T(3, 2)),
        error(name, T(3, 4), 2, T(3, 2, **I4), T(3, 2)),
        error(name, T(3, 4), 1, T(4, 2, **I4), T(4, 2), _text=True),
        error(name, T(3, 4), 1, T(3, 2, **I4), T(3, 1), _text=True),
        error(name, T(3, 4), 1, T(3, **I4), T(3, 2), _text=True),
        error(name, T(3, 4), 0, T(3, 2, **I3), T(3), _text=True),
        error(name, T(3, 4), 1, T(3, 2, **I4), T(3, 2, dtype="float32"), _text=True),
        error(name, T(3, 4), 1, T(3, 2), T(3, 2), _text=True),
        _refused(program(f"{name} below 0", lambda torch, x, i, s: getattr(torch, name)(x, 0, i - 1, s), T(3), T(9, **I3), T(9))),
    ]


def _rows(name: str, *more: object, **options: object) -> list[Case]:
    """index_add, index_copy, index_reduce: slices of a source at an index."""
    return [
        case(name, T(3, 4), 0, T(2, kind="index:3"), T(2, 4), *more, _grad_fn=True, **options),
        case(name, T(3, 4), 1, T(3, **I4), T(3, 3), *more, **options),
        case(name, T(2, 3, 4), 1, T(5, **I3), T(2, 5, 4), *more, **options),
        case(name, T(2, 3, 4, layout="T"), -1, T(3, **I4), T(2, 3, 3, layout="T"), *more, **options),
        case(name, T(3, 4, layout="step"), 1, T(3, **I4), T(3, 3, layout="step"), *more, _strides=False, **options),
        case(name, T(6), 0, T(6, kind="index:6"), T(6), *more, **options),
        case(name, T(3, 4), 0, T(kind="index:3"), T(1, 4), *more, **options),
        case(name, T(), 0, T(kind="index:1"), T(), *more, **options),
        case(name, T(3, 4), 0, T(0, **I3), T(0, 4), *more, **options),
        case(name, T(3, 0), 0, T(2, **I3), T(2, 0), *more, **options),
        error(name, T(3, 4), 0, T(9, kind="index:30"), T(9, 4), *more),
        error(name, T(3), 0, T(9, kind="index:30"), T(9), *more, _text=name != "index_copy"),
        error(name, T(3, 4), 0, T(2, **I3), T(3, 4), *more, _text=True),
        error(name, T(3, 4), 0, T(2, **I3), T(2, 3), *more, _text=True),
        error(name, T(3, 4), 0, T(2, **I3), T(2), *more, _text=True),
        error(name, T(3, 4), 0, T(1, 2, **I3), T(2, 4), *more, _text=True),
        error(name, T(3, 4), 0, T(2, **I3), T(2, 4, dtype="float32"), *more, _text=True),
        error(name, T(3, 4), 0, T(2), T(2, 4), *more, _text=True),
        error(name, T(3, 4), 2, T(2, **I3), T(2, 4), *more),
    ]


CASES: list[Case] = [
    case("gather", T(3, 4), 1, T(3, 2, **I4), _grad_fn=True),
    case("gather", T(3, 4), 0, T(5, 4, **I3)),
    case("gather", T(3, 4), -1, T(2, 7, **I4)),
    case("gather", T(2, 3, 4), 1, T(2, 6, 3, **I3)),
    case("gather", T(2, 3, 4, layout="T"), 1, T(2, 6, 3, layout="T", **I3)),
    case("gather", T(3, 4, layout="expand"), 1, T(3, 2, **I4)),
    case("gather", T(3, 4), 1, T(3, 2, dtype="int32", **I4)),
    case("gather", T(3, 4), dim=1, index=T(3, 2, **I4), sparse_grad=False),
    case("gather", T(3, 4), 1, T(0, **I4)),
    case("gather", T(3, 4), 1, T(0, 2, **I4)),
    case("gather", T(), 0, T(kind="index:1")),
    case("gather", T(), 0, T(3, kind="index:1")),
    case("gather", T(5), 0, T(kind="index:5")),
    error("gather", T(3, 4), 1, T(4, 2, **I4), _text=True),
    error("gather", T(3, 4), 1, T(3, **I4), _text=True),
    error("gather", T(3, 4), 1, T(3, 2), _text=True),
    error("gather", T(3, 4), 1, T(3, 2, dtype="uint8", **I4), _text=True),
    error("gather", T(3, 4), 1, T(3, 2, kind="index:30")),
    error("gather", T(3, 4), 2, T(3, 2, **I4)),
    *_both("scatter"),
    *_both("scatter_add"),
    case("scatter", T(3, 4), 1, T(3, 2, **I4), 5, _grad_fn=True),
    case("scatter", T(3, 4), 1, T(3, 2, **I4), 2.7, _dtypes="float32 float16 int64 uint8"),
    case("scatter", T(3, 4), 1, T(3, 2, **I4), value=-1.5, _dtypes="float32 float16 bfloat16 int64"),
    case("scatter", T(3, 4), 1, T(3, 2, **I4), src=T(3, 2)),
    case("scatter", T(3, 4), 0, T(3, 2, **I3), T(3, 2), reduce="add", _second=False, _grad=False),
    case("scatter", T(3, 4), 0, T(3, 2, **I3), T(3, 2), reduce="multiply", _second=False, _grad=False),
    case("scatter", T(3, 4), 0, T(3, 2, **I3), 3, reduce="add", _second=False, _grad=False),
    case("scatter", T(3, 4), 0, T(3, 2, **I3), 3, reduce="multiply", _second=False, _grad=False),
    case("scatter", T(), 0, T(kind="index:1"), 3),
    error("scatter", T(3, 4), 0, T(3, 2, **I3), 3, reduce="sum", _text=True),
    error("scatter", T(3, 4), 0, T(3, 2, **I3), T(3, 2), reduce="sum", _text=True),
    error("scatter", T(3, 4), 0, T(3, 2, **I3), 3j),
    error("scatter", T(3, 4), 0, T(3, 2, **I3)),
    error("scatter", T(3, 4), 0, T(3, 2, **I3), 3, foo=2),
    *(
        row
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
        for row in (
            case("scatter_reduce", T(3, 4), 1, T(3, 6, **I4), T(3, 6), reduce, include_self=include, _second=reduce != "prod"),
            case(
                "scatter_reduce",
                T(3, 4),
                0,
                T(6, 3, **I3),
                T(6, 3, kind="ints"),
                reduce,
                include_self=include,
                _second=reduce != "prod",
                _dtypes="float32 int64",
            ),
            case(
                "scatter_reduce",
                T(4, kind="ints"),
                0,
                T(9, **I4),
                T(9, kind="ints"),
                reduce,
                include_self=include,
                _second=reduce != "prod",
                _dtypes="float32 float16 int64 int32",
            ),
            case(
                "scatter_reduce",
                T(5, kind="special"),
                0,
                T(9, **I4),
                T(9, kind="special"),
                reduce,
                include_self=include,
                _grad=False,
                _dtypes="float32",
            ),
        )
    ),
    case("scatter_reduce", T(3, 4), 1, T(3, 6, **I4), T(3, 6), "prod", _grad_fn=True, _dtypes=""),
    case("scatter_reduce", T(3, 4), 1, T(2, 3, **I4), T(3, 6), "amax", _grad=False),
    case("scatter_reduce", T(), 0, T(kind="index:1"), T(), "mean"),
    case("scatter_reduce", T(3, 4), 1, T(0, 6, **I4), T(0, 6), "prod", include_self=False),
    error("scatter_reduce", T(3, 4), 1, T(3, 6, **I4), T(3, 6), "median"),
    error("scatter_reduce", T(3, 4), 1, T(3, 6, **I4), T(3, 6)),
    error("scatter_reduce", T(3, 4), 1, T(3, 6, **I4), T(3, 6, dtype="float32"), "sum", _text=True),
    error("scatter_reduce", T(3, 4, dtype="complex64"), 1, T(3, 6, **I4), T(3, 6, dtype="complex64"), "amax"),
    error("scatter_reduce", T(3, 4, dtype="bool"), 1, T(3, 6, **I4), T(3, 6, dtype="bool"), "mean"),
    case("index_select", T(3, 4), 1, T(5, **I4), _grad_fn=True),
    case("index_select", T(3, 4), 0, T(5, **I3)),
    case("index_select", T(2, 3, 4, layout="T"), -2, T(5, **I3)),
    case("index_select", T(3, 4, layout="step"), 0, T(5, dtype="int32", **I3)),
    case("index_select", T(3, 4), 0, T(**I3)),
    case("index_select", T(3, 4), 0, T(0, **I3)),
    case("index_select", T(3, 0), 0, T(2, **I3)),
    case("index_select", T(), 0, T(1, kind="index:1")),
    case("index_select", T(), 0, T(kind="index:1")),
    error("index_select", T(3, 4), 0, T(9, kind="index:30"), _text=True),
    error("index_select", T(3, 4), 1, T(9, kind="index:30")),
    error("index_select", T(3), 0, T(9, kind="index:30"), _text=True),
    error("index_select", T(), 0, T(2, kind="index:1"), _text=True),
    error("index_select", T(3, 4), 0, T(2, 2, **I3), _text=True),
    error("index_select", T(3, 4), 0, T(2), _text=True),
    error("index_select", T(3, 4), 0, T(2, dtype="uint8", **I3), _text=True),
    *_rows("index_add"),
    case("index_add", T(3, 4), 0, T(5, **I3), T(5, 4), alpha=2),
    case("index_add", T(3, 4), 0, T(5, **I3), T(5, 4), alpha=0.5, _inplace=False, _dtypes="float32 float16"),
    case("index_add", T(3, 300), 0, T(7, **I3), T(7, 300), _dtypes="float32 float16 bfloat16 int64 bool"),
    case("index_add", T(3, 300, layout="T"), 0, T(7, **I3), T(7, 300), _dtypes="float32"),
    case("index_add", T(200, 3, 2), 1, T(7, **I3), T(200, 7, 2), _dtypes="float32"),
    *_rows("index_copy"),
    case("index_copy", T(), 0, T(2, kind="index:1"), T(2), _grad=False),
    error("index_add", T(), 0, T(2, kind="index:1"), T(2)),
    *_rows("index_reduce", "amax"),
    *(
        case("index_reduce", T(3, 4), 1, T(7, **I4), T(3, 7), reduce, include_self=include, _second=reduce != "prod")
        for reduce in ("prod", "mean", "amax", "amin")
        for include in (True, False)
    ),
    case("index_reduce", T(3, 4, kind="ints"), 1, T(7, **I4), T(3, 7, kind="ints"), "prod", _second=False, _dtypes=""),
    error("index_reduce", T(3, 4), 1, T(7, **I4), T(3, 7), "sum", _text=True),
    case("index_fill", T(3, 4), 1, T(2, **I4), 5, _grad_fn=True),
    case("index_fill", T(3, 4), 0, T(5, **I3), T(), _grad_fn=True),
    case("index_fill", T(3, 4), 0, T(5, **I3), 2.5, _dtypes="float32 float16 bfloat16 int64"),
    case("index_fill", T(3, 4), 0, T(5, **I3), T(dtype="int64")),
    case("index_fill", T(2, 3, 4, layout="T"), 1, T(2, **I3), -1, _dtypes="float32 int64"),
    case("index_fill", T(3, 4), 0, T(**I3), 5),
    case("index_fill", T(3, 4), 0, T(0, **I3), 5),
    case("index_fill", T(), 0, T(1, kind="index:1"), 5),
    program("index_fill below 0", lambda torch, x, i: x.index_fill(0, i - 3, 1), T(3, 4), T(2, **I3)),
    error("index_fill", T(3, 4), 0, T(9, kind="index:30"), 5),
    error("index_fill", T(3, 4), 0, T(2, **I3), T(1), _text=True),
    error("index_fill", T(3, 4), 0, T(2, 2, **I3), 5, _text=True),
    error("index_fill", T(3, 4), 0, T(2, dtype="int32", **I3), 5, _text=True),
    error("index_fill", T(3, 4), 0, T(2, **I3), 5j, _text=True),
    program("scatter_ in a view", lambda torch, x, i, s: (x.clone().t().scatter_(1, i, s), x)[0], T(3, 4), T(4, 2, **I3), T(4, 2)),
    *(
        _refused(program(f"{name} of itself", function, T(6, 2, grad=False), T(2, kind="index:6")))
        for name, function in (
            ("scatter_add_", lambda torch, x, i: x.scatter_add_(0, i.unsqueeze(1), x[1:3])),
            ("scatter_", lambda torch, x, i: x.scatter_(0, i.unsqueeze(1), x)),
            ("index_copy_", lambda torch, x, i: x.index_copy_(0, i, x[1:3])),
            ("index_add_", lambda torch, x, i: x.index_add_(0, i, x[1:3])),
            ("put_", lambda torch, x, i: x.put_(i, x[1])),
        )
    ),
    error("Tensor.scatter_", T(3, 4, layout="expand"), 1, T(3, 2, **I4), 1.0),
    error("Tensor.index_add_", T(3, 4, layout="expand"), 0, T(2, **I3), T(2, 4)),
]
