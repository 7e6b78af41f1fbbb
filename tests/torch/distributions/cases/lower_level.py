"""Operators behind others, and what PyTorch has removed."""

from __future__ import annotations

from typing import Any

from tests.torch.distributions.tools import wrong
from tests.torch.table import Case, T, case, error, program

PLACES = T(5, kind="index:4")
ONE: dict[str, Any] = {"_dtypes": "float32", "_second": False, "_strides": False}
FEW: dict[str, Any] = {**ONE, "_dtypes": "", "_grad": False}


def _bags(mode: int, **about: Any) -> Any:
    def run(torch: Any, weight: Any, places: Any) -> Any:
        offsets = torch.tensor([0, 2, 2, 5] if about.get("include_last_offset") else [0, 2, 2])
        last, padding = about.get("include_last_offset", False), about.get("padding_idx")
        more = () if padding is None else (padding,)
        return torch.embedding_bag(weight, places, offsets, False, mode, False, None, last, *more)

    return run


def _segments(kind: str, axis: int = 0, **about: Any) -> Any:
    def run(torch: Any, x: Any) -> Any:
        lengths = [2, 0, 1, 1] if axis == 0 else [[1, 2, 0], [0, 1, 2], [3, 0, 0], [1, 1, 1]]
        return torch.segment_reduce(x, kind, lengths=torch.tensor(lengths), axis=axis, **about)

    return run


def _offsets(torch: Any, x: Any) -> Any:
    return torch.segment_reduce(x, "sum", offsets=torch.tensor([0, 1, 4]))


def _running(torch: Any, x: Any) -> Any:
    mean, variance = torch.zeros(3, dtype=x.dtype), torch.ones(3, dtype=x.dtype)
    found = torch.batch_norm_update_stats(x, mean, variance, 0.3)
    again = torch.native_batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5)
    return found, again, torch.native_batch_norm(x, None, None, mean, variance, False, 0.1, 1e-5)[0], mean, variance


def _renormed(torch: Any, x: Any) -> Any:
    table = x.detach().clone()
    result = torch.embedding_renorm_(table, torch.tensor([1, 1, 2]), 0.5, 2.0)
    return result is table, table


def _dropped(torch: Any, x: Any) -> Any:
    result, mask = torch.native_dropout(x, 0.5, True)
    return torch.equal(result, x * mask * 2), mask.dtype, torch.native_dropout(x, 0.5, False), torch.native_dropout(x, 0.0, None)


def _tensor(torch: Any, x: Any) -> Any:
    return (x.is_distributed(), x.is_maia, x.is_mtia, x.is_vulkan, x.volatile, x.name, x.const_data_ptr() == x.data_ptr(),
            x.resize(4, 3), x.resize_as(torch.ones(2, 6)))  # fmt: skip


def _removed(name: str) -> Any:
    def run(torch: Any) -> Any:
        return getattr(torch, name)(*[torch.ones(2, 2)] * (2 if name in ("lstsq", "solve") else 1))

    return run


IMAGE, GRID = T(1, 2, 4, 5), T(1, 3, 2, 2, kind="unit")
CASES: list[Case] = [
    case("native_layer_norm", T(2, 3, 4), [3, 4], T(3, 4), T(3, 4), 1e-5, **ONE),
    case("native_layer_norm", T(2, 4), [4], None, None, 1e-3, **ONE),
    case("native_group_norm", T(2, 4, 3), T(4), T(4), 2, 4, 3, 2, 1e-5, **ONE),
    case("native_group_norm", T(2, 4, 3, 2), None, None, 2, 4, 6, 1, 1e-5, **ONE),
    program("native_batch_norm", _running, T(4, 3, 2), **FEW),
    program("native_dropout", _dropped, T(3, 4), **FEW),
    *(case("norm_except_dim", T(3, 4, 2), p, dim, **ONE) for p in (1, 2) for dim in (-1, 0, 2)),
    case("convolution", T(1, 3, 6), T(2, 3, 2), T(2), [1], [0], [1], False, [0], 1, **ONE),
    case("convolution", T(1, 2, 5, 6), T(4, 1, 3, 2), None, [2, 1], [1], [1], False, [0], 2, **ONE),
    case("convolution", T(1, 2, 5, 6), T(2, 3, 3, 2), T(3), [2], [1], [1], True, [1], 1, **ONE),
    case("constant_pad_nd", T(2, 3), [1, -1, 0, 2], 1.5, **ONE),
    case("constant_pad_nd", T(2, 3), [1, 1], **ONE),
    error("constant_pad_nd", T(2, 3), [1], _text=True),
    *(case(name, IMAGE, GRID, mode, border, corners, **ONE)
      for name in ("grid_sampler", "grid_sampler_2d") for mode in (0, 1, 2) for border in (0, 1, 2) for corners in (False, True)),
    case("grid_sampler_3d", T(1, 2, 3, 4, 3), T(1, 2, 2, 1, 3, kind="unit"), 0, 1, False, **ONE),
    case("affine_grid_generator", T(2, 2, 3), [2, 1, 3, 4], False, **ONE),
    case("alias_copy", T(2, 3, layout="T"), **ONE),
    case("slice_copy", T(4, 5), 1, 1, 4, 2, **ONE),
    case("slice_copy", T(4, 5), -1, -2, **ONE),
    *(program(f"embedding_bag {mode}", _bags(mode), T(4, 3), PLACES, **ONE) for mode in (1, 2)),
    *(program(f"embedding_bag {mode} without padding", _bags(mode, padding_idx=1), T(4, 3), PLACES, **ONE) for mode in (1, 2)),
    program("embedding_bag 0", lambda torch, w, i: _bags(0)(torch, w, i)[0], T(4, 3), PLACES, **ONE),
    program("embedding_bag with last offset", _bags(2, include_last_offset=True), T(4, 3), PLACES, **FEW),
    program("embedding_renorm_", _renormed, T(4, 3), **FEW),
    *(program(f"segment_reduce {kind} {about}", _segments(kind, **about), T(4, 3), **ONE)
      for kind in ("sum", "mean", "max", "min", "prod") for about in ({}, {"initial": 2.0})),
    *(program(f"segment_reduce {kind} of rows", _segments(kind, 1), T(4, 3), **ONE)
      for kind in ("sum", "mean", "max", "min", "prod")),
    program("segment_reduce by offsets", _offsets, T(4, 2), **ONE),
    wrong("segment_reduce of no kind", _segments("foo"), T(4, 2)),
    wrong("segment_reduce of another length", _segments("sum"), T(5, 2)),
    wrong("segment_reduce of nothing", lambda torch, x: torch.segment_reduce(x, "sum"), T(4, 2)),
    wrong("segment_reduce along another",
          lambda torch, x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, 1]), axis=1), T(2, 2)),
    *(case("hash_tensor", T(3, 4), *args, _dtypes="float32 float16 bfloat16 int64 int32 uint8 bool", _grad=False)
      for args in ((), (1,), ([0, 1],))),
    case("hash_tensor", T(3, 4), 0, keepdim=True, _dtypes="", _grad=False),
    wrong("hash_tensor of another mode", lambda torch, x: torch.hash_tensor(x, mode=1), T(2)),
    wrong("hash_tensor of nothing", lambda torch, x: torch.hash_tensor(x), T(0)),
    case("nn.functional.linear_cross_entropy", T(3, 4), T(5, 4), T(3, kind="index:5"), **ONE),
    case("nn.functional.linear_cross_entropy", T(3, 4), T(5, 4), T(3, kind="index:5"), linear_bias=T(5), reduction="sum",
         label_smoothing=0.2, ignore_index=2, **ONE),
    program("facts about tensors", _tensor, T(3, 4), **FEW),
]  # fmt: skip
for _name in ("eig", "lstsq", "matrix_rank", "solve", "symeig"):
    _case = program(f"removed {_name}", _removed(_name))
    _case.raises = True
    CASES.append(_case)
