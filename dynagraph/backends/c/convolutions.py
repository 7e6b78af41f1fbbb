"""Print convolutions: calls of the runtime's, and the kernels that finish parts of their results."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.backends.c.program import Program
from dynagraph.ir import dtypes
from dynagraph.ir.loops import Kernel, LibraryCall, Operand
from dynagraph.ir.optable.convolution import MOST_DIMENSIONS, ROUTINES
from dynagraph.ir.shapes import Dim, expr_of


def print_convolution(p: Program, call: LibraryCall, stop: str) -> None:
    """The call, in a block of its own; `status` is what it gave."""
    a, b = call.operands
    out = call.out
    p.out.line(f"const dg_convolution about = {{{', '.join(_description(p, call))}}};")
    then = "0"
    if call.then is not None:
        print_epilogue(p, call.then)
        then = "&then"
    operands = ", ".join(address(p, o) for o in (a, b))
    p.out.line(f"const int status = rt->convolve(rt, &about, {operands}, 0, {address(p, out)}, {then}, {stop});")


def print_epilogue(p: Program, kernel: Kernel) -> None:
    """`then`: what is run on parts of a result."""
    p.out.line(f"const dg_epilogue then = {{{kernel.name}, buffers, sizes}};")


def address(p: Program, operand: Operand) -> str:
    """Where an operand begins."""
    return f"({operand.dtype.ctype} *){p.address(p.program.buffers[operand.buffer])} + {p.c.integer(operand.offset)}"


def _description(p: Program, call: LibraryCall) -> list[str]:
    """The fields of a dg_convolution."""
    which, groups = ROUTINES.index(call.routine), call.attrs["groups"]
    arrays = [call.out.shape, *(o.shape for o in call.operands)]
    # where the results, images and filters are among the result and the operands
    results, images, filters = ((0, 1, 2), (1, 0, 2), (2, 1, 0))[which]
    numbers = [arrays[images][0], groups, arrays[filters][1], arrays[filters][0] // groups]
    fields = [str(which), str(int(call.out.dtype is dtypes.float64)), *(p.c.integer(expr_of(n)) for n in numbers)]
    before = tuple(pair[0] for pair in call.attrs["padding"])
    sizes = (arrays[images][2:], arrays[filters][2:], arrays[results][2:], call.attrs["stride"], call.attrs["dilation"])
    return [*fields, *(print_sizes(p, of_one, 1) for of_one in sizes), print_sizes(p, before, 0)]


def print_sizes(p: Program, sizes: Sequence[Dim], first: int) -> str:
    """Sizes of three dimensions; of fewer the first ones are `first`."""
    padded = (first,) * (MOST_DIMENSIONS - len(sizes)) + tuple(sizes)
    return "{" + ", ".join(p.c.integer(expr_of(n)) for n in padded) + "}"


__all__ = ["address", "print_convolution", "print_epilogue", "print_sizes"]
