"""Print a loop program as one C file with one entry function.

Comes after `ir/passes/memory_plan.py`.  Each kernel is a serial range function over its flattened outer axes; the entry
calls them in order, through the runtime's thread pool where there is enough work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dynagraph.backends.c.entry import EntryPrinter
from dynagraph.backends.c.kernels import write_out
from dynagraph.backends.c.merge_functions import Shared
from dynagraph.backends.c.program import Program
from dynagraph.backends.spelling import Speller
from dynagraph.driver import deadline
from dynagraph.ir import dtypes
from dynagraph.ir.loops import Buffer, Kernel, LibraryCall, LoopProgram, loaded_buffers, stored_buffers
from dynagraph.ir.passes.finish import PARAMETERS


@dataclass(frozen=True)
class CSource:
    """C text, and what it uses of the prelude: functions by name."""

    text: str
    functions: frozenset[str]
    is_large: bool = False  # it may be compiled in parts
    weight: int = 0  # how long a compiler takes for it, roughly: see `_weight`


def print_program(program: LoopProgram) -> CSource:
    """The kernels and the entry of a program (the prelude and the runtime header are not included)."""
    printed = Program(program)
    for buffer in program.buffers.values():
        if buffer.role == "constant":
            _print_constant(printed, buffer)
    _FunctionPrinter(printed).run()
    EntryPrinter(printed).run()
    used, weight = frozenset(printed.c.used_functions), sum(printed.weights)
    return CSource(str(printed.out), used, is_large=printed.in_parts, weight=weight)


def _print_constant(p: Program, buffer: Buffer) -> None:
    assert buffer.data is not None
    data, dtype = buffer.data, buffer.dtype
    if dtype.is_half:
        data, dtype = data.view(np.uint16), dtypes.uint16
    values = ", ".join(p.c.literal(v, dtype) for v in data.ravel().tolist()) or "0"
    p.out.line(f"static const {buffer.dtype.ctype} {buffer.name}_data[{max(1, buffer.data.size)}] = {{{values}}};")

class _FunctionPrinter:
    """A function for each kernel, or for several that differ in numbers only."""

    def __init__(self, p: Program):
        self.p, self.c, self.out = p, p.c, p.out
    def run(self) -> None:
        printed: set[Shared] = set()
        for step in self.p.program.steps:
            deadline.check()
            if isinstance(step, Kernel):
                call = self.p.calls.get(step)
                if call is None:
                    self._kernel(step)
                elif call.shared not in printed:
                    printed.add(call.shared)
                    self._shared_kernel(call.shared)
            elif isinstance(step, LibraryCall) and step.then is not None:
                self._kernel_of_parts(step.then)

    def _kernel(self, kernel: Kernel) -> None:
        memory = self._memory(kernel)
        self._function(kernel, memory, [], kernel.comment)
        self._open_launched(kernel)
        self.p.size_arguments()
        arguments = [*self._addresses(memory), *self.p.symbols, "lo", "hi", "stop"]
        self.out.line(f"{kernel.name}_range({', '.join(arguments)});")
        self.out.close()

    def _kernel_of_parts(self, kernel: Kernel) -> None:
        """A kernel that a convolution or product calls for parts of its result."""
        memory = self._memory(kernel)
        self._function(kernel, memory, [f"int64_t {name}" for name in PARAMETERS], kernel.comment)
        parameters = ", ".join(f"int64_t {name}" for name in PARAMETERS)
        self.out.open(f"static void {kernel.name}(const dg_epilogue *own, {parameters})")
        self.out.line("void *const *buffers = own->buffers;")
        self.out.line("const int64_t *sizes = own->sizes;")
        self.out.line("(void)buffers; (void)sizes;")
        self.p.size_arguments()
        arguments = [*self._addresses(memory), *PARAMETERS, *self.p.symbols, "0", "0", "&dg_never"]
        self.out.line(f"{kernel.name}_range({', '.join(arguments)});")
        self.out.close()

    def _memory(self, kernel: Kernel) -> list[Buffer]:
        used = [self.p.program.buffers[name] for name in sorted(loaded_buffers(kernel.body) | stored_buffers(kernel.body))]
        return [b for b in used if b.role not in ("constant", "scratch")]

    def _addresses(self, memory: Sequence[Buffer]) -> list[str]:
        return [f"({b.dtype.ctype} *){self.p.address(b)}" for b in memory]

    def _shared_kernel(self, shared: Shared) -> None:
        """A function of several kernels.  Where it is launched, `buffers` and `sizes` hold its arguments: see `_launch_shared`."""
        kernel = shared.kernel
        memory = [self.p.program.buffers[name] for name in shared.buffers]
        parameters = [f"{self.c.number_type(dtype)} {name}" for name, dtype in shared.reals]
        parameters += [f"int64_t {name}" for name in shared.parameters]
        self._function(kernel, memory, parameters, f"{shared.n_calls} kernels like {kernel.comment}")
        self._open_launched(kernel, "__attribute__((unused)) ")
        arguments = [f"({b.dtype.ctype} *)buffers[{k}]" for k, b in enumerate(memory)]
        arguments += [f"((const double *)buffers[{len(memory)}])[{k}]" for k in range(len(shared.reals))]
        arguments += [f"sizes[{k}]" for k in range(len(shared.parameters) + len(self.p.symbols))]
        self.out.line(f"{kernel.name}_range({', '.join([*arguments, 'lo', 'hi', 'stop'])});")
        self.out.close()

    def _open_launched(self, kernel: Kernel, attributes: str = "") -> None:
        self.out.open(
            f"static {attributes}void {kernel.name}"
            "(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)"
        )
        self.out.line("(void)buffers; (void)sizes; (void)thread;")

    def _function(self, kernel: Kernel, memory: Sequence[Buffer], parameters: Sequence[str], comment: str) -> None:
        """The range function of a kernel over buffers, its parameters and sizes."""
        stored, loaded = stored_buffers(kernel.body), loaded_buffers(kernel.body)
        arguments = [f"{'' if b.name in stored else 'const '}{b.dtype.ctype} *restrict {b.name}" for b in memory]
        arguments += [*parameters, *(f"int64_t {s}" for s in (*self.p.symbols, "lo", "hi")), "dg_stop *stop"]
        self.out.line()
        self.out.line(f"/* {comment} */")
        head = f"void {kernel.name}_range({', '.join(arguments)})"
        if self.p.in_parts:
            head = f"DG_KERNEL {head}"
            for line in (f"#if DG_IS_OTHERS({len(self.p.weights)})", f"{head};", "#else"):
                self.out.line(line)
        else:
            head = f"static __attribute__((noinline)) {head}"
        begin = len(self.out.lines)
        self.out.open(head)
        self.out.line("(void)stop;")
        if not kernel.axes:
            self.out.line("(void)lo; (void)hi;")
        for name in sorted(loaded | stored):
            buffer = self.p.program.buffers[name]
            if buffer.role == "scratch":
                size = self.c.integer(buffer.size)
                self.out.line(f"{buffer.dtype.ctype} {name}[{size}] __attribute__((aligned(64)));")
            elif buffer.role == "constant":
                self._hide_constant(buffer, buffer in memory)
        Speller(self.c).body(write_out(kernel))
        self.out.close()
        self.p.weights.append(sum(_weight(line) for line in self.out.lines[begin:]))
        if self.p.in_parts:
            self.out.line("#endif")

    def _hide_constant(self, buffer: Buffer, is_parameter: bool) -> None:
        """Have a function not know what a constant array holds: gcc 12 takes some vectors of 512 bits of them, such as eight ones
        and eight zeros, for vectors of equal elements.
        """
        if not is_parameter:
            self.out.line(f"const {buffer.dtype.ctype} *restrict {buffer.name} = {buffer.name}_data;")
        self.out.line(f'__asm__("" : "+r"({buffer.name}));')


def _weight(line: str) -> int:
    """How long a compiler takes for a line of a function: it goes by the loops, of which sums in NumPy's order are several."""
    return line.count("for (") + 4 * line.count("dg_sum_")
