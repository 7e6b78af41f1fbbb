"""Pooling, borders, other sizes, grids."""

from __future__ import annotations

from typing import Any

from tests.torch.table import Case, T, case, error, program

F = "nn.functional."
IMAGES = {1: T(2, 3, 9), 2: T(2, 2, 6, 7), 3: T(1, 2, 4, 5, 4)}
TIES = {1: T(2, 3, 9, kind="ints"), 2: T(2, 2, 6, 7, kind="ints"), 3: T(1, 2, 4, 5, 4, kind="ints")}
SPECIAL = {2: T(2, 2, 6, 7, kind="special")}
WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 1, "stride": 2},
)
MODES = {1: ("nearest", "nearest-exact", "linear", "area"), 2: ("nearest", "nearest-exact", "bilinear", "bicubic", "area"),
         3: ("nearest", "nearest-exact", "trilinear", "area")}  # fmt: skip
SIZES: tuple[dict[str, Any], ...] = (
    {"size": 3}, {"size": 11}, {"scale_factor": 2}, {"scale_factor": 1.6}, {"scale_factor": 0.7},
    {"scale_factor": 1.6, "recompute_scale_factor": True},
)  # fmt: skip


def _unpooled(n: int, **size: Any) -> Any:
    def run(torch: Any, x: Any) -> Any:
        functional = torch.nn.functional
        values, places = getattr(functional, f"max_pool{n}d")(x, 2, return_indices=True)
        given = {"output_size": x.shape} if size else {}
        return getattr(functional, f"max_unpool{n}d")(values, places, 2, **given)

    return run


CASES: list[Case] = [
    *(case(F + f"max_pool{n}d", TIES[n], return_indices=True, _dtypes="", **about) for n in (1, 2, 3) for about in WINDOWS),
    *(case(F + f"max_pool{n}d", IMAGES[n], 2, _dtypes="float32 float16") for n in (1, 2, 3)),
    case(F + "max_pool2d", IMAGES[2], 3, padding=1, dilation=2, return_indices=True, _dtypes=""),
    case(F + "max_pool2d", IMAGES[2], (2, 3), (1, 2), (1, 0), _dtypes="int64"),
    case(F + "max_pool2d", T(3, 5, 6), 2, _dtypes=""),
    case(F + "max_pool2d", T(0, 3, 5, 6), 2, _dtypes=""),
    case(F + "max_pool2d", SPECIAL[2], 3, 2, 1, return_indices=True, _grad=False, _dtypes=""),
    case(F + "max_pool2d", IMAGES[2], 2, _grad_fn=True, _second=False, _dtypes=""),
    *(case(F + f"avg_pool{n}d", IMAGES[n], _dtypes="", _out=False, **about) for n in (1, 2, 3) for about in WINDOWS),
    *(case(F + f"avg_pool{n}d", IMAGES[n], 3, 2, 1, True, False, _dtypes="", _out=False) for n in (1, 2, 3)),
    case(F + "avg_pool2d", IMAGES[2], 2, divisor_override=5, _dtypes="", _out=False),
    case(F + "avg_pool2d", IMAGES[2], 2, _dtypes="float32 float16 int64", _out=False),
    case(F + "avg_pool2d", IMAGES[2], 2, _grad_fn=True, _second=False, _dtypes="", _out=False),
    *(case(F + f"adaptive_avg_pool{n}d", IMAGES[n], size, _dtypes="", _out=False) for n in (1, 2, 3) for size in (1, 2, 3, 7)),
    *(case(F + f"adaptive_max_pool{n}d", TIES[n], size, return_indices=True, _dtypes="", _out=False)
      for n in (1, 2, 3) for size in (1, 2, 3, 7)),
    case(F + "adaptive_avg_pool2d", IMAGES[2], (None, 3), _dtypes="float32", _out=False),
    case(F + "adaptive_max_pool2d", T(3, 5, 6), (2, None), _dtypes="float32", _out=False),
    *(case(F + f"lp_pool{n}d", IMAGES[n], 2, 2, _dtypes="float32") for n in (1, 2, 3)),
    *(program(f"max_unpool{n}d", _unpooled(n), T(2, 3, *(4,) * n), _dtypes="") for n in (1, 2, 3)),
    program("max_unpool2d of a size", _unpooled(2, size=True), T(2, 2, 5, 7), _dtypes=""),
    *(case(F + f"fractional_max_pool{n}d", T(2, 3, *(6,) * n), 2, output_size=3, _grad=False, _compare="meta", _dtypes="") for n in (2, 3)),
    program("fractional_max_pool2d", lambda torch, x, s: torch.nn.functional.fractional_max_pool2d(
        x, 2, output_size=3, return_indices=True, _random_samples=s.abs() % 1), IMAGES[2], T(2, 2, 2, grad=False), _dtypes="",
        _second=False),
    error(F + "max_pool2d", T(1, 2, 5, 5), 2, 0, _text=True),
    error(F + "max_pool2d", T(1, 2, 5, 5), 2, padding=2, _text=True),
    error(F + "max_pool2d", T(1, 2, 5, 5), 7, _text=True),
    error(F + "max_pool2d", T(1, 2, 5, 5), (1, 2, 3), _text=True),
    error(F + "max_pool2d", T(5, 5), 2, _text=True),
    error(F + "max_pool2d", T(1, 0, 5, 5), 2, _text=True),
    error(F + "max_pool1d", T(1, 5), 7, _text=True),
    error(F + "avg_pool2d", T(1, 2, 5, 5), 2, padding=2, _text=True),
    error(F + "avg_pool2d", T(1, 2, 5, 5), 2, divisor_override=0, _text=True),
    error(F + "avg_pool1d", T(1, 2, 5, 5), 2, _text=True),
    *(error(F + f"{what}_pool{n}d", IMAGES[n], *about, _text=True) for n in (2, 3) for what in ("max", "avg")
      for about in ((0,), (-1,), (2, -1), (2, 1, -1), (3, 1, 2), (9,), ((2,) * (n + 1),), (2, (1,) * (n + 1)), (2, 1, (1,) * (n + 1)),
                    (2.5,), ((2, 2.5, 2)[-n:],), (None,))),
    *(error(F + f"max_pool{n}d", IMAGES[n], *about, _text=True) for n in (2, 3)
      for about in ((3, 2, 2, 2), (2, 2, 2, 4), (3, 2, 1, 0), (3, 2, 0, -1), (3, 2, 1, (1,) * (n + 1)))),
    *(error(F + "max_pool1d", IMAGES[1], *about, _text=True) for about in ((3, 2, 2, 2), (0,), (2, -1), (2, 1, 0, -1))),
    *(error(F + "avg_pool1d", IMAGES[1], *about, _text=True) for about in ((3, 2, 2), (0,), (2, -1))),
    *(error(F + f"{what}_pool3d", T(*shape), 2, _text=True) for what in ("max", "avg") for shape in ((5, 5, 5), (1, 0, 5, 5, 5),
                                                                                                    (1, 2, 5, 0, 5))),
    *(error(F + "avg_pool2d", IMAGES[2], 2, divisor_override=divisor, _text=True) for divisor in (2.5, True, "a")),
    error(F + "lp_pool3d", IMAGES[3], 2, 5, _text=True),
    error(F + "fractional_max_pool3d", IMAGES[3], (1, 1, 5), output_size=2, _text=True),
    error(F + "adaptive_avg_pool2d", T(5, 5), 2, _text=True),
    error(F + "adaptive_avg_pool2d", T(1, 2, 5, 5), (1, 2, 3), _text=True),
    error(F + "adaptive_avg_pool2d", T(1, 2, 5, 5), -1, _text=True),
    error(F + "adaptive_max_pool2d", T(1, 0, 5, 5), 2, _text=True),
    # borders
    *(case(F + "pad", IMAGES[2], pads, _dtypes="") for pads in ((1, 2), (1, 1, 2, 0), (-1, 2), (-2, -1, 1, 1), (0, 0), (), (1, 1, 1, 1, 1, 1))),
    case(F + "pad", IMAGES[2], (1, 2, 0, 1), value=1.5),
    *(case(F + "pad", IMAGES[2], (1, 2, 2, 1), mode=mode, _strides=mode != "circular") for mode in ("reflect", "replicate", "circular")),
    *(case(F + "pad", IMAGES[n], (1, 1) * n, mode=mode, _dtypes="") for mode in ("reflect", "replicate", "circular") for n in (1, 3)),
    *(case(F + "pad", IMAGES[2], (1, -1, -1, 2), mode=mode, _dtypes="") for mode in ("reflect", "replicate", "circular")),
    case(F + "pad", T(3, 4), (2, 1), mode="reflect", _dtypes=""),
    case(F + "pad", IMAGES[2], (1, 2), mode="constant", _grad_fn=True, _second=False, _dtypes=""),
    case(F + "pad", IMAGES[2], (1, 2, 1, 1), mode="reflect", _grad_fn=True, _second=False, _dtypes=""),
    error(F + "pad", T(2, 3), (1,), _text=True),
    error(F + "pad", T(2, 3), (1, 1, 1, 1, 1, 1), _text=True),
    error(F + "pad", T(2, 3), (-9, 0), _text=True),
    error(F + "pad", T(2, 3), (1, 1), mode="foo", _text=True),
    error(F + "pad", T(2, 3), (3, 0), mode="reflect", _text=True),
    error(F + "pad", T(2, 3), (4, 0), mode="circular", _text=True),
    error(F + "pad", T(2, 3), (1, 1, 1, 1), mode="reflect", _text=True),
    error(F + "pad", T(2, 3), (1, 1), mode="reflect", value=2.0, _text=True),
    # other sizes
    *(case(F + "interpolate", IMAGES[n], mode=mode, _dtypes="", **about) for n in (1, 2, 3) for mode in MODES[n] for about in SIZES),
    *(case(F + "interpolate", IMAGES[n], 9, mode=mode, align_corners=True, _dtypes="")
      for n, modes in ((1, ("linear",)), (2, ("bilinear", "bicubic")), (3, ("trilinear",))) for mode in modes),
    *(case(F + "interpolate", IMAGES[2], size, mode=mode, antialias=True, align_corners=aligned, _dtypes="")
      for mode in ("bilinear", "bicubic") for size in ((3, 4), (11, 2)) for aligned in (False, True)),
    *(case(F + "interpolate", IMAGES[2], (9, 4), mode=mode, _dtypes="float32 float16", _tolerance=10)
      for mode in ("nearest", "bilinear", "bicubic")),
    case(F + "interpolate", T(1, 2, 7, 8, dtype="uint8"), (9, 5), mode="bilinear"),
    case(F + "interpolate", IMAGES[2], scale_factor=(1.5, 0.7), _dtypes=""),
    case(F + "upsample", IMAGES[2], scale_factor=2, _dtypes=""),
    case(F + "upsample_nearest", IMAGES[2], scale_factor=2, _dtypes=""),
    *(case(F + "interpolate", T(2, 2, 4, 5), scale_factor=(1.2, s), mode="nearest", _dtypes="uint8") for s in (1.3, 2.1, 2.3)),
    *(case(F + "interpolate", T(2, 2, 4, 5), scale_factor=1.2, mode=mode, antialias=smooth, _dtypes="", _grad=not smooth)
      for mode in ("bilinear", "bicubic") for smooth in (False, True)),  # torch's smooth gradients are those of another result
    *(case(F + "interpolate", T(2, 2, 4), scale_factor=s, mode="linear", _dtypes="") for s in (1.2, 0.9)),
    *(case(F + "interpolate", T(2, 2, 4), scale_factor=s, mode="nearest", _dtypes="uint8", _grad=False) for s in (1.2, 2.2)),
    case(F + "upsample_bilinear", IMAGES[2], scale_factor=2, _dtypes=""),
    *(case(F + "interpolate", IMAGES[2], scale_factor=2, mode=mode, _grad_fn=True, _second=False, _dtypes="") for mode in MODES[2]),
    error(F + "interpolate", T(1, 2, 3, 4), _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), 2, 2, _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), 2, mode="foo", _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), 2, align_corners=True, _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), (2, 2, 2), _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), 2, antialias=True, _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), 0, _text=True),
    error(F + "interpolate", T(1, 2, 3, 4), 2, mode="linear", _text=True),
    error(F + "interpolate", T(3, 4), 2, _text=True),
    *(case(F + "grid_sample", T(2, 2, 4, 5), T(2, 3, 3, 2), mode, border, aligned, _dtypes="", _second=False, _strides=False)
      for mode in ("bilinear", "nearest", "bicubic") for border in ("zeros", "border", "reflection") for aligned in (False, True)),
    *(case(F + "grid_sample", T(1, 2, 3, 4, 3), T(1, 2, 3, 2, 3), mode, border, False, _dtypes="", _second=False, _strides=False)
      for mode in ("bilinear", "nearest") for border in ("zeros", "border", "reflection")),
    *(case(F + "affine_grid", T(2, 2, 3), (2, 1, 3, 4), aligned, _dtypes="float32", _tolerance=10) for aligned in (False, True)),
    case(F + "affine_grid", T(2, 3, 4), (2, 1, 3, 4, 2), False, _dtypes=""),
    error(F + "grid_sample", T(1, 2, 3, 4), T(1, 2, 2, 2), mode="foo", _text=True),
    error(F + "grid_sample", T(1, 2, 3, 4), T(1, 2, 2, 3), _text=True),
    error(F + "grid_sample", T(1, 2, 3, 4), T(2, 2, 2, 2), _text=True),
    error(F + "affine_grid", T(1, 2, 3), (1, 1, 2), _text=True),
    error(F + "affine_grid", T(2, 3), (1, 1, 2, 3)),
    # channels and places
    case("pixel_shuffle", T(2, 8, 3, 2), 2, _dtypes="float32 int64"),
    case("pixel_unshuffle", T(2, 3, 4, 6), 2, _dtypes="float32 int64"),
    case("channel_shuffle", T(2, 6, 3, 2), 2, _dtypes="float32 int64", _second=False, _grad=False),
    case(F + "channel_shuffle", T(2, 6, 3, 2), 3, _dtypes="float32"),
    error("pixel_shuffle", T(1, 4, 2, 2), 3, _text=True),
    error("pixel_unshuffle", T(1, 1, 4, 3), 2, _text=True),
    error("channel_shuffle", T(1, 4, 2, 2), 3, _text=True),
]  # fmt: skip
