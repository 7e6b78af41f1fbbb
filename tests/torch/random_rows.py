"""Random rows for the table: functions whose arguments combine in more ways than rows can be written down for.

    python -m tests.torch.random_rows 0 5000         rows by their numbers, against real torch
    python -m tests.torch.random_rows 0 5000 pooling        only those of a kind
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

from tests.torch.outcomes import check, run
from tests.torch.table import Case, T, case

F = "nn.functional."
KINDS: dict[str, Callable[[random.Random], Case]] = {}


def kind(make: Callable[[random.Random], Case]) -> Callable[[random.Random], Case]:
    KINDS[make.__name__] = make
    return make


def several(draw: random.Random, n: int, low: int, high: int) -> list[int]:
    return [draw.randint(low, high) for _ in range(n)]


def shape_of(draw: random.Random, low: int = 1, high: int = 4, most: int = 4) -> list[int]:
    return several(draw, draw.randint(low, high), 1, most)


def maybe(draw: random.Random, value: Any, share: float = 0.5) -> Any:
    return value if draw.random() < share else None


@kind
def convolution(draw: random.Random) -> Case:
    n, groups = draw.randint(1, 3), draw.choice([1, 1, 2, 3])
    channels, filters = groups * draw.randint(1, 2), groups * draw.randint(1, 2)
    options = {
        "stride": several(draw, n, 1, 3), "padding": several(draw, n, 0, 2), "dilation": several(draw, n, 1, 2), "groups": groups,
    }  # fmt: skip
    x = T(*several(draw, draw.choice([0, 1, 1]), 1, 3), channels, *several(draw, n, 5, 7))
    weight, bias = T(filters, channels // groups, *several(draw, n, 1, 3)), maybe(draw, T(filters))
    return case(f"{F}conv{n}d", x, weight, bias, **options, _dtypes="", _second=False, _strides=False)


@kind
def transposed_convolution(draw: random.Random) -> Case:
    n, groups = draw.randint(1, 3), draw.choice([1, 1, 2])
    stride, dilation = several(draw, n, 1, 3), several(draw, n, 1, 2)
    options = {
        "stride": stride, "padding": several(draw, n, 0, 1), "groups": groups, "dilation": dilation,
        "output_padding": [draw.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation)],
    }  # fmt: skip
    channels, each = groups * draw.randint(1, 2), draw.randint(1, 2)
    x, weight = T(draw.randint(1, 2), channels, *several(draw, n, 3, 5)), T(channels, each, *several(draw, n, 1, 3))
    bias = maybe(draw, T(each * groups))
    return case(f"{F}conv_transpose{n}d", x, weight, bias, **options, _dtypes="", _second=False, _strides=False)


@kind
def pooling(draw: random.Random) -> Case:
    n, size = draw.randint(1, 3), [draw.randint(1, 3) for _ in range(3)]
    size = size[:n]
    options = {
        "kernel_size": size, "stride": several(draw, n, 1, 3), "padding": [draw.randint(0, k // 2) for k in size],
        "ceil_mode": draw.random() < 0.4, "_out": False,
    }  # fmt: skip
    x = T(draw.randint(1, 2), 2, *several(draw, n, 5, 8), kind="distinct")
    if draw.random() < 0.5:
        return case(f"{F}max_pool{n}d", x, dilation=several(draw, n, 1, 2), **options, _dtypes="", _second=False)
    if n > 1 and draw.random() < 0.3:
        options["divisor_override"] = draw.randint(1, 5)
    return case(f"{F}avg_pool{n}d", x, count_include_pad=draw.random() < 0.5, **options, _dtypes="", _second=False)


@kind
def adaptive_pooling(draw: random.Random) -> Case:
    n = draw.randint(1, 3)
    x = T(2, 2, *several(draw, n, 3, 8), kind="distinct")
    return case(f"{F}adaptive_{draw.choice(['max', 'avg'])}_pool{n}d", x, several(draw, n, 1, 5), _dtypes="", _second=False)


@kind
def interpolation(draw: random.Random) -> Case:
    n = draw.randint(1, 3)
    smooth = {1: ["linear"], 2: ["bilinear", "bicubic"], 3: ["trilinear"]}[n]
    mode = draw.choice(["nearest", "nearest-exact", "area", *smooth])
    options: dict[str, Any] = {"mode": mode}
    if draw.random() < 0.5:
        options["size"] = several(draw, n, 2, 9)
    else:
        options["scale_factor"] = [draw.choice([0.5, 0.7, 1.3, 2.0, 2.7]) for _ in range(n)]
        options["recompute_scale_factor"] = maybe(draw, True, 0.3)
    if mode in smooth:
        options["align_corners"] = draw.random() < 0.5
        options["antialias"] = n == 2 and draw.random() < 0.4
    # torch passes gradients to other places than those it read
    with_gradients = "size" in options or not ((mode == "nearest" and n != 2) or options.get("antialias"))
    x = T(2, 2, *several(draw, n, 2, 7))
    return case(f"{F}interpolate", x, **options, _dtypes="", _second=False, _grad=with_gradients, _tolerance=100)


@kind
def padding(draw: random.Random) -> Case:
    mode = draw.choice(["constant", "reflect", "replicate", "circular"])
    if mode == "constant":
        shape = several(draw, draw.randint(1, 5), 3, 6)
        widths = several(draw, 2 * draw.randint(1, len(shape)), -1, 3)
        return case(f"{F}pad", T(*shape), widths, mode, draw.choice([0.0, 1.5]), _dtypes="")
    n = draw.randint(1, 3)
    return case(f"{F}pad", T(*several(draw, n + draw.choice([1, 2]), 4, 6)), several(draw, 2 * n, -1, 3), mode, _dtypes="")


@kind
def products(draw: random.Random) -> Case:
    name = draw.choice(["tensordot", "matmul", "kron", "cdist"])
    if name == "tensordot":
        a = shape_of(draw, 1, 4, 3)
        dims = draw.sample(range(len(a)), draw.randint(0, len(a)))
        b: list[tuple[int, int]] = [(-1, n) for n in shape_of(draw, 0, 2, 3)] + [(d, a[d]) for d in dims]
        draw.shuffle(b)
        order = [next(k for k, (d, _) in enumerate(b) if d == dim) for dim in dims]
        return case(name, T(*a), T(*(n for _, n in b)), dims=(dims, order), _dtypes="", _strides=False)
    if name == "matmul":
        m, k, n = several(draw, 3, 1, 3)
        batch = shape_of(draw, 0, 2, 3)
        other = [draw.choice([1, size]) for size in batch][draw.randint(0, len(batch)) :]
        return case(name, T(*draw.choice([[k], [*batch, m, k]])), T(*draw.choice([[k], [*other, k, n]])), _dtypes="", _out=False)
    if name == "kron":
        return case(name, T(*shape_of(draw, 0, 3, 3)), T(*shape_of(draw, 0, 3, 3)), _dtypes="", _strides=False)
    batch = shape_of(draw, 0, 1, 3)
    return case(name, T(*batch, 4, 3), T(*batch, 5, 3), p=draw.choice([1.0, 2.0, 3.0, float("inf")]), _dtypes="", _second=False)


@kind
def reductions(draw: random.Random) -> Case:
    shape = shape_of(draw)
    n = len(shape)
    dim, dims, keepdim = draw.randint(-n, n - 1), sorted(draw.sample(range(n), draw.randint(1, n))), draw.random() < 0.5
    several_dims = draw.choice(["sum", "mean", "amax", "amin", "nansum", "logsumexp", "std", "var", "norm"])
    one_dim = draw.choice(["any", "argmax", "argmin", "max", "min", "median", "mode", "kthvalue", "quantile"])
    scan = draw.choice(["cumsum", "cumprod", "cummax", "logcumsumexp", "softmax", "log_softmax", "sort", "diff", "topk", "renorm"])
    name = draw.choice([several_dims, one_dim, scan])
    about: dict[str, Any] = {"_dtypes": "", "_second": False}
    if name == several_dims:
        about |= {"dim": dims, "keepdim": keepdim}
        if name in ("std", "var"):
            about["correction"] = draw.choice([0, 1, 2])
        if name == "norm":
            about["p"] = draw.choice([0, 1, 2, 3, float("inf")])
    elif name == one_dim:
        about |= {"dim": dim, "keepdim": keepdim}
        if name == "kthvalue":
            about["k"] = draw.randint(1, shape[dim])
        if name == "quantile":
            about["q"] = draw.choice([0.0, 0.3, 0.5, 1.0])
            about["interpolation"] = draw.choice(["linear", "lower", "higher", "midpoint"])
    else:
        about["dim"] = dim
        if name == "topk":
            about |= {"k": draw.randint(0, shape[dim]), "largest": draw.random() < 0.5, "_strides": False}
        if name == "sort":
            about["descending"] = draw.random() < 0.5
        if name == "diff":
            about["n"] = draw.randint(1, 2)
        if name == "renorm":
            about |= {"p": draw.choice([1, 2, 3]), "maxnorm": 1.0}
    return case(name, T(*shape, kind="distinct"), **about)


@kind
def places(draw: random.Random) -> Case:
    shape = shape_of(draw, 1, 3)
    dim = draw.randint(0, len(shape) - 1)
    index = [draw.randint(1, size) for size in shape]
    index[dim] = draw.randint(1, 5)
    at, some = T(*index, kind=f"index:{shape[dim]}"), T(draw.randint(1, 4), kind=f"index:{shape[dim]}")
    source = list(shape)
    source[dim] = some.shape[0]
    x, reduce = T(*shape), draw.choice(["prod", "mean", "amax", "amin"])
    about: dict[str, Any] = {"_dtypes": "", "_second": False}
    name = draw.choice([
        "gather", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_fill", "index_reduce", "take",
    ])  # fmt: skip
    if name == "gather":
        return case(name, x, dim, at, **about)
    if name == "scatter_add":
        return case(name, x, dim, at, T(*index), **about)
    if name == "scatter_reduce":
        return case(name, x, dim, at, T(*index), reduce=reduce, include_self=draw.random() < 0.5, **about)
    if name == "index_select":
        return case(name, x, dim, some, **about)
    if name == "index_add":
        return case(name, x, dim, some, T(*source), alpha=draw.choice([1, 2.5]), **about)
    if name == "index_fill":
        return case(name, x, dim, some, 1.5, **about)
    if name == "index_reduce":
        return case(name, x, dim, some, T(*source), reduce=reduce, include_self=draw.random() < 0.5, _grad=False, **about)
    return case(name, x, T(*shape_of(draw, 0, 2, 3), kind=f"index:{shape[0]}"), **about)


@kind
def rearrangements(draw: random.Random) -> Case:
    shape = shape_of(draw)
    n = len(shape)
    x, dim = T(*shape), draw.randint(0, n - 1)
    about: dict[str, Any] = {"_dtypes": "", "_second": False, "_strides": False}
    some = draw.sample(range(n), draw.randint(1, n))
    start = draw.randint(0, dim)
    return draw.choice([
        case("roll", x, several(draw, n, -5, 5), list(range(n)), **about),
        case("tile", x, several(draw, draw.randint(1, 5), 1, 3), **about),
        case("diag_embed", x, draw.randint(-2, 2), **about),
        case("Tensor.unfold", x, dim, draw.randint(1, shape[dim]), draw.randint(1, 3), **about),
        case("movedim", x, some, draw.sample(range(n), len(some)), **about),
        case("flatten", x, start, dim, **about),
        case("chunk", x, draw.randint(1, 5), dim, **about),
        case("tensor_split", x, draw.randint(1, 5), dim, **about),
        case("stack", [x, T(*shape), x], draw.randint(-n - 1, n), **about),
        case("cat", [x, T(*shape, layout="T"), x] if n == 1 else [x, T(*shape)], dim, **about),
        case("flip", x, some, **about),
        case("trapezoid", x, dim=dim, **about),
    ])  # fmt: skip


@kind
def normalisation(draw: random.Random) -> Case:
    shape = [draw.randint(1, 3), 4, *several(draw, draw.randint(0, 2), 2, 4)]
    x, last = T(*shape), shape[-draw.randint(1, len(shape)) :]
    about: dict[str, Any] = {"_dtypes": "", "_second": False, "_tolerance": 100}
    return draw.choice([
        case(f"{F}layer_norm", x, last, maybe(draw, T(*last)), maybe(draw, T(*last)), **about),
        case(f"{F}rms_norm", x, last, maybe(draw, T(*last)), **about),
        case(f"{F}group_norm", x, draw.choice([1, 2, 4]), T(4), maybe(draw, T(4)), **about),
        case(f"{F}batch_norm", T(3, *shape[1:]), T(4, grad=False), T(4, kind="positive", grad=False), T(4), T(4),
             draw.random() < 0.5, **about),
        case(f"{F}instance_norm", T(2, 3, 4, *shape[2:]), **about),
        case(f"{F}local_response_norm", T(2, 5, 4), draw.randint(1, 5), **about),
        case(f"{F}normalize", x, draw.choice([1.0, 2.0, 3.0]), draw.randint(0, len(shape) - 1), **about),
        case(f"{F}cosine_similarity", x, T(*shape), draw.randint(0, len(shape) - 1), **about),
    ])  # fmt: skip


def random_row(seed: int, only: str = "") -> Case:
    """The row of a number: the same in every run."""
    draw = random.Random(seed)
    return KINDS[only or draw.choice(sorted(KINDS))](draw)


def differences_of(torch: Any, own: Any, row: Case) -> list[str]:
    """What differs under the two; where torch refuses the arguments, the errors' types."""
    found = check(torch, own, row)
    if not found or not found[0].startswith("torch itself raises"):
        return found
    form = "method" if row.name.startswith("Tensor.") else "function"
    expected, got = run(torch, row, form, "float64"), run(own, row, form, "float64")
    return [] if got.get("error") == expected["error"] else [f"{found[0]}; got {got.get('error', 'a result')}"]


__all__ = ["KINDS", "differences_of", "random_row"]


def main(start: int, end: int, only: str = "") -> None:
    import torch

    import dynagraph.torch as own

    for seed in range(start, end):
        row = random_row(seed, only)
        for text in differences_of(torch, own, row):
            print(f"{seed} {row}: {text}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
