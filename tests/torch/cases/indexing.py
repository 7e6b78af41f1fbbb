"""``x[...]``, read and written."""

from __future__ import annotations

from typing import Any

from tests.torch.table import Case, T, case, error, program

L = "index:3"
KEYS: list[Any] = [
    0, -1, (0, 1), (0, -1, 2), slice(None), slice(1, None), slice(None, None, 2), slice(-2, None), slice(5, 2), slice(0, 0), ..., (..., 0), (0, ...),
    None, (None, 0), (0, None), (slice(None), None, 1), (..., None), (slice(1, 3), slice(0, 2)), (slice(None), 1, slice(None, None, 3)),
    True, False, (True, 0), [0, 2], ([0, 2],), ([0, 2], [1, 0]), (slice(None), [0, 2]), (slice(None), [0, 2], 1), ([0, 1], slice(None), [1, 2]),
    (0, slice(None), [1, 2]), ([0, 1], 1), ([[0, 1], [2, 0]],), (..., [0, 1]), (None, [0, 1]), ([0, 1], None, [1, 1]), ([-1, 0],), ([],),
    ([0, 1], [0, 1], [0, 1]), (slice(None), [0, 1], [0, 1]), (1, [0, 1], [0, 1]), ([True, False, True],), (slice(None), [True, False, True, False]),
]
ARRAYS: list[tuple[Any, ...]] = [
    (T(2, kind=L),), (T(2, 2, kind=L),), (T(kind=L),), ((T(2, kind=L), T(2, kind=L)),), ((slice(None), T(2, kind=L)),), ((T(2, 1, kind=L), T(2, kind=L)),),
    ((0, T(2, kind=L)),), ((T(kind=L), T(2, kind=L)),), ((T(2, kind=L), slice(None), T(2, kind=L)),), ((T(2, kind=L), None),), (T(0, kind=L),),
    (T(3, kind="bool"),), (T(3, 4, kind="bool"),), (T(3, 4, 5, kind="bool"),), ((slice(None), T(4, kind="bool")),), ((T(3, kind="bool"), 0),),
    ((T(3, 4, kind="bool"), 0),), ((..., T(5, kind="bool")),), (T(2, kind=L, dtype="int32"),),
    (T(kind="bool"),),
]


def _set(key: Any, value: Any) -> Any:
    """A program that writes to a part of a copy."""

    def run(torch: Any, x: Any, *more: Any) -> Any:
        y = x * 1
        y[key] = value if not more else more[-1]
        return y

    return run


CASES: list[Case] = [
    *(case("Tensor.__getitem__", T(3, 4, 5), key, _dtypes="int64") for key in KEYS),
    *(case("Tensor.__getitem__", T(3, 4, 5, layout="T"), key, _dtypes="", _strides="None" not in repr(key) or isinstance(key, slice)) for key in KEYS),
    *(case("Tensor.__getitem__", T(3, 4, 5), *key, _dtypes="int64") for key in ARRAYS if "int16" not in repr(key)),
    *(case("Tensor.__getitem__", T(4, 5, layout=layout), *key, _dtypes="") for key in ARRAYS[:2] for layout in ("T", "step", "expand")),
    case("Tensor.__getitem__", T(), ...),
    case("Tensor.__getitem__", T(), None),
    case("Tensor.__getitem__", T(), ()),
    case("Tensor.__getitem__", T(), True),
    case("Tensor.__getitem__", T(3), ()),
    case("Tensor.__getitem__", T(0, 3), slice(None)),
    case("Tensor.__getitem__", T(0, 3), T(0, kind="bool")),
    error("Tensor.__getitem__", T(3, 4), 3, _text=True),
    error("Tensor.__getitem__", T(3, 4), (0, 4), _text=True),
    error("Tensor.__getitem__", T(3, 4), (0, 0, 0), _text=True),
    error("Tensor.__getitem__", T(), 0),
    error("Tensor.__getitem__", T(3), slice(None, None, -1), _text=True),
    error("Tensor.__getitem__", T(3), slice(None, None, 0), _text=True),
    error("Tensor.__getitem__", T(3), 1.5),
    error("Tensor.__getitem__", T(3), "a"),
    error("Tensor.__getitem__", T(3), T(2), _text=True),
    error("Tensor.__getitem__", T(3), [5], _text=True),
    error("Tensor.__getitem__", T(3, 4), (T(2, kind=L), T(3, kind=L)), _text=True),
    error("Tensor.__getitem__", T(3, 4), T(4, kind="bool"), _text=True),
    error("Tensor.__getitem__", T(3), T(2, 2, 2, kind="bool")),
    *(program(f"x[{key!r}] = 7", _set(key, 7.0), T(3, 4, 5), _dtypes="int64") for key in KEYS),
    *(program(f"x[{key!r}] = a 0-d tensor", _set(key, None), T(3, 4, 5), T(), _dtypes="") for key in KEYS if key is not False),
    *(program("write to places", lambda torch, x, key: _set(key, 7.0)(torch, x), T(3, 4, 5), key[0], _dtypes="int64") for key in ARRAYS),
    program("x[0] = row", _set(0, None), T(3, 4), T(4)),
    program("x[0] = row of rows", _set(0, None), T(3, 4), T(1, 1, 4)),
    program("x[:, 1] = column", _set((slice(None), 1), None), T(3, 4), T(3)),
    program("x[[0, 2]] = rows", _set([0, 2], None), T(3, 4), T(2, 4)),
    program("x[[0, 2]] = one row", _set([0, 2], None), T(3, 4), T(4)),
    program("x[[1]] = row", _set([1], None), T(3, 4), T(1, 4)),
    program("x[mask] = values", lambda torch, x, m: _set(m, torch.arange(12, dtype=x.dtype)[: int(m.sum())])(torch, x), T(3, 4), T(3, 4, kind="bool"), _dtypes="int64"),
    program("x[mask] = number", lambda torch, x, m: _set(m, 2)(torch, x), T(3, 4), T(3, 4, kind="bool")),
    program("x[mask of rows] = number", lambda torch, x, m: _set(m, 2)(torch, x), T(3, 4), T(3, kind="bool")),
    program("x[...] = float32", _set(..., None), T(3, 4), T(4, dtype="float32"), _dtypes="", _tolerance=1e5),
    program("ints truncate", lambda torch: _changed(torch, torch.zeros(3, dtype=torch.int64), 0, 1.7)),
    program("x[x > 0] = 0", lambda torch, x: _masked(torch, x), T(3, 4)),
    program("x[0] += 1", lambda torch, x: _augmented(torch, x, 0), T(3, 4)),
    program("x[[0, 0]] += 1", lambda torch, x: _augmented(torch, x, [0, 0]), T(3, 4)),
    program("x[1:, ::2] *= 3", lambda torch, x: _augmented(torch, x, (slice(1, None), slice(None, None, 2))), T(3, 4)),
    program("a number of Python's int", lambda torch, x: x[torch.tensor(1)], T(3, 4)),
    program("iteration", lambda torch, x: list(x), T(3, 4), _second=False),
    program("unpacking", lambda torch, x: (lambda a, b, c: a * b + c)(*x), T(3, 4)),
    error("Tensor.__setitem__", T(3, 4, grad=False), 3, 1.0, _text=True),
    error("Tensor.__setitem__", T(3, 4, grad=False), 0, T(3), _text=True),
    error("Tensor.__setitem__", T(3, 4, grad=False), [0, 1], T(3, 4), _text=True),
    error("Tensor.__setitem__", T(3, 4, grad=False), 0, "a"),
    error("Tensor.__setitem__", T(3, dtype="int64"), [0], T(1), _text=True),
    error("Tensor.__setitem__", T(3, 4, grad=False), T(3, 3, kind="bool"), 1.0, _text=True),
    program("a leaf must not be written to", lambda torch, x: _error_of(lambda: x.__setitem__(0, 1.0)), T(3), _dtypes=""),
    program("nor a view of one", lambda torch, x: _error_of(lambda: x[0].__setitem__(0, 1.0)), T(3, 2), _dtypes=""),
    case("index_put", T(3, 4), (T(2, kind=L), T(2, kind=L)), T(2)),
    case("index_put", T(3, 4), (T(2, kind=L),), T(4), True),
    case("Tensor.tolist", T(2, 3)),
]


def _changed(torch: Any, x: Any, key: Any, value: Any) -> Any:
    x[key] = value
    return x


def _masked(torch: Any, x: Any) -> Any:
    y = x * 1
    y[y > 0] = 0
    return y


def _augmented(torch: Any, x: Any, key: Any) -> Any:
    y = x * 1
    y[key] *= 3
    return y


def _error_of(function: Any) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
