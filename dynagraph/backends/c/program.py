"""State shared by the printers of one C program: its text, buffers and sizes."""

from __future__ import annotations

from dynagraph.backends.c.merge_functions import share
from dynagraph.backends.c.reductions import lane_plan
from dynagraph.backends.cstyle import CStyle, Writer
from dynagraph.backends.toolchain import LEAST_FUNCTIONS
from dynagraph.ir.loops import Buffer, Kernel, LibraryCall, LoopProgram, indices
from dynagraph.ir.shapes import expr_of


class Program:
    """One program while it is printed."""

    def __init__(self, program: LoopProgram):
        self.program = program
        self.out = Writer()
        self.c = CStyle(self.out)
        roles = [b.role for b in program.buffers.values()]
        self.n_inputs, self.n_outputs = roles.count("input"), roles.count("output")
        self.symbols = sorted(_size_symbols(program), key=lambda s: int(s[1:]))
        self.calls = share(program, lane_plan)
        kernels = [step for step in program.steps if isinstance(step, Kernel)]
        self.n_functions = len({call.shared if (call := self.calls.get(k)) else k for k in kernels})
        self.in_parts = self.n_functions >= 2 * LEAST_FUNCTIONS
        self.weights: list[int] = []  # of the functions that are printed: how long a compiler takes for each, roughly

    def address(self, buffer: Buffer) -> str:
        if buffer.role == "constant":
            return f"{buffer.name}_data"
        if buffer.role == "temp":
            offset = self.c.integer(self.program.offsets[buffer.name])
            return f"((char *)buffers[{self.n_inputs + self.n_outputs}] + {offset})"
        position = buffer.position + (self.n_inputs if buffer.role == "output" else 0)
        return f"buffers[{position}]"

    def size_arguments(self) -> None:
        for symbol in self.symbols:
            self.out.line(f"const int64_t {symbol} = sizes[{symbol[1:]}];")


def _size_symbols(program: LoopProgram) -> set[str]:
    found: set[str] = set()
    for buffer in program.buffers.values():
        found |= {s.name for s in buffer.size.symbols()}
    for step in program.steps:
        if isinstance(step, Kernel):
            for axis in step.axes:
                found |= {s.name for s in axis.extent.symbols()}
            for index in indices(step.body):
                found |= {s.name for s in index.symbols()}
        else:  # a batch of no matrices has buffers without symbols in their sizes
            for operand in (*step.operands, *((step.out,) if isinstance(step, LibraryCall) else step.outs)):
                for size in (*operand.shape, *operand.strides, operand.offset):
                    found |= {s.name for s in expr_of(size).symbols()}
            if isinstance(step, LibraryCall) and step.then is not None:
                for index in indices(step.then.body):
                    found |= {s.name for s in index.symbols()}
    return set(filter(is_size, found))


def is_size(symbol: str) -> bool:
    return symbol[0] == "s" and symbol[1:].isdigit()
