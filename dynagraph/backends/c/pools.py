"""Print pools: calls of the runtime's."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.backends.c.convolutions import address, print_sizes
from dynagraph.backends.c.program import Program
from dynagraph.ir import dtypes
from dynagraph.ir.loops import RoutineCall
from dynagraph.ir.optable.pooling import ROUTINES
from dynagraph.ir.shapes import Dim, Shape, expr_of, numel


def print_pool(p: Program, call: RoutineCall, stop: str) -> None:
    """The call, in a block of its own; `status` is what it gave."""
    batch, fields = _description(call)
    numbers = [str(ROUTINES.index(call.routine)), str(int(call.operands[0].dtype is dtypes.float64)), p.c.integer(expr_of(batch))]
    sizes = [f".{name} = {print_sizes(p, given, name != 'before')}" for name, given in fields.items()]
    divided = [f".{name} = {int(call.attrs[name] or 0)}" for name in ("whole", "divisor") if name in call.attrs]
    p.out.line(f"const dg_pooling about = {{{', '.join([*numbers, *sizes, *divided])}}};")
    a, b = (address(p, call.operands[k]) if k < len(call.operands) else "0" for k in range(2))
    outs = {result or 0: address(p, out) for result, out in zip(call.results, call.outs)}
    to, where = outs.get(0, "0"), outs.get(1, "0")
    p.out.line(f"const int status = rt->pool(rt, &about, {a}, {b}, {to}, {where}, {stop});")


def _description(call: RoutineCall) -> tuple[Dim, dict[str, Sequence[Dim]]]:
    """How many boxes there are, and the other fields of a dg_pooling."""
    shape, out, attrs = call.operands[0].shape, call.outs[0].shape, call.attrs
    if call.routine in ("adaptive_mean", "adaptive_mean_back"):
        axis = attrs["axis"]
        arrays = (shape, out) if call.routine == "adaptive_mean" else (out, shape)
        sizes, counts = ((s[axis], numel(s[axis + 1 :])) for s in arrays)
        return numel(shape[:axis]), {"sizes": sizes, "counts": counts}
    n = len(attrs["kernel"] if "kernel" in attrs else attrs["sizes" if call.routine == "max_pool_back" else "counts"])
    batch, last, found = numel(shape[: len(shape) - n]), _last(shape, n), _last(out, n)
    if call.routine == "max_pool_back":
        return batch, {"sizes": found, "counts": last}
    is_back = call.routine == "avg_pool_back"
    fields: dict[str, Sequence[Dim]] = {"sizes": found if is_back else last, "counts": last if is_back else found}
    if "kernel" in attrs:
        fields |= {name: attrs[name] for name in ("kernel", "stride", "dilation") if name in attrs} | {"before": attrs["padding"]}
    return batch, fields


def _last(shape: Shape, n: int) -> Shape:
    return shape[len(shape) - n :]


__all__ = ["print_pool"]
