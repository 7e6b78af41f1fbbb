"""Print a loop program as one C file with one entry function.

Comes after `ir/passes/memory_plan.py`.  Each kernel is a serial range function over its flattened outer axes; the entry
calls them in order, through the runtime's thread pool where there is enough work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dynagraph import deadline
from dynagraph.backends.c.sharing import Call, Shared, longest, share
from dynagraph.backends.cstyle import CStyle, Scope, Writer, combine, computed_as, initial
from dynagraph.backends.toolchain import FUNCTIONS, LEAST_FUNCTIONS
from dynagraph.ir import dtypes, expr
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, var
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import (
    Accumulator,
    Axis,
    Buffer,
    CallOut,
    ColumnReduce,
    Define,
    Kernel,
    LeafRule,
    LibraryCall,
    Loop,
    LoopProgram,
    Operand,
    Reduce,
    Running,
    Statement,
    Step,
    Store,
    expr_cost,
    expressions,
    indices,
    loaded_buffers,
    map_expr,
    stored_buffers,
    substitute,
)
from dynagraph.ir.ops import EXTREMES, Walk
from dynagraph.ir.passes.collapse import one_divisor
from dynagraph.ir.passes.lower import combined
from dynagraph.ir.passes.memory_plan import step_buffers
from dynagraph.ir.shapes import expr_of, same_dim

MOST_UNROLLED = 16  # turns of a loop that gcc writes out
ENTRY = "dg_entry"
LANE_BYTES = 256  # of accumulators per reduction: four of the widest vectors, which hides the latency of an addition
SERIAL_EXTENT = 16  # shorter reductions are not worth lanes
SEARCH_BLOCK = 32768  # bytes in which an extreme is found before where it is
KEPT_BLOCK = 1024  # ... or elements, where they are kept
DECIDED_BLOCK = 4096  # elements of which it is asked at a time whether any or all are true
SEARCH_STEP = 64  # ... and of which one is looked for at a time
SEARCHED_COST = 2.0  # in additions: dearer values are kept until it is known where the extreme is
COLUMN_BLOCK = 512  # columns that one range of a column reduction accumulates on the stack
COLUMN_UNROLL = 4  # rows that are added to the accumulators at a time,
UNROLL_COST = 6.0  # ... where a value costs no more than this many additions
EXTREME_FUNCTIONS = ("maximum", "minimum", "fmax", "fmin")
PARALLEL_NANOSECONDS = 20000.0  # estimated serial time above which a kernel goes to the thread pool
PART_NANOSECONDS = 5e6  # ... of the parts between which a signal stops it
UNSTOPPED_EXTENT = 65536  # turns of a loop that are done before anybody looks for signals
FAR = 65536  # real numbers of a sum that are too long for the caches nearby
SUM_BLOCKS = 512  # real numbers of a sum that are computed before they are added up
FLAT_GRAIN = 64  # elements: threads do not share cache lines


@dataclass(frozen=True)
class CSource:
    """C text, and what it uses: functions of the prelude by name, and sums.h."""

    text: str
    functions: frozenset[str]
    has_sums: bool  # in NumPy's order


def print_program(program: LoopProgram) -> CSource:
    """The kernels and the entry of a program (the prelude and the runtime header are not included)."""
    printer = _ProgramPrinter(program)
    walks = (s.walk for step in program.steps if isinstance(step, Kernel) for s in step.body if isinstance(s, Reduce))
    return CSource(printer.run(), frozenset(printer.c.used_functions), has_sums=any(walks))


def n_buffers(program: LoopProgram) -> tuple[int, int]:
    """How many inputs and outputs the entry takes."""
    roles = [b.role for b in program.buffers.values()]
    return roles.count("input"), roles.count("output")


class _ProgramPrinter:
    def __init__(self, program: LoopProgram):
        self.program = program
        self.out = Writer()
        self.c = CStyle(self.out)
        self.n_inputs, self.n_outputs = n_buffers(program)
        self.n_call_outs = 0
        self.may_stop = True  # no step so far writes to an input
        self.symbols = sorted(_size_symbols(program), key=lambda s: int(s[1:]))
        self.calls = share(program, lane_plan)
        kernels = [step for step in program.steps if isinstance(step, Kernel)]
        self.n_functions = len({call.shared if (call := self.calls.get(k)) else k for k in kernels})
        self.in_parts = self.n_functions >= 2 * LEAST_FUNCTIONS
        self.n_printed = 0
        self.printed: set[Shared] = set()

    def run(self) -> str:
        for buffer in self.program.buffers.values():
            if buffer.role == "constant":
                self._constant(buffer)
        for step in self.program.steps:
            deadline.check()
            if isinstance(step, Kernel):
                call = self.calls.get(step)
                if call is None:
                    self._kernel(step)
                elif call.shared not in self.printed:
                    self.printed.add(call.shared)
                    self._shared_kernel(call.shared)
        self._entry()
        return str(self.out)

    def _constant(self, buffer: Buffer) -> None:
        assert buffer.data is not None
        data, dtype = buffer.data, buffer.dtype
        if dtype.is_half:
            data, dtype = data.view(np.uint16), dtypes.uint16
        values = ", ".join(self.c.literal(v, dtype) for v in data.ravel().tolist()) or "0"
        self.out.line(f"static const {buffer.dtype.ctype} {buffer.name}_data[{max(1, buffer.data.size)}] = {{{values}}};")

    def _hide_constant(self, buffer: Buffer, is_parameter: bool) -> None:
        """Have a function not know what a constant array holds: gcc 12 takes some vectors of 512 bits of them, such as eight ones
        and eight zeros, for vectors of equal elements.
        """
        if not is_parameter:
            self.out.line(f"const {buffer.dtype.ctype} *restrict {buffer.name} = {buffer.name}_data;")
        self.out.line(f'__asm__("" : "+r"({buffer.name}));')

    # -- addresses --------------------------------------------------------------------------------------------------
    def address(self, buffer: Buffer) -> str:
        if buffer.role == "constant":
            return f"{buffer.name}_data"
        if buffer.role == "temp":
            offset = self.c.integer(self.program.offsets[buffer.name])
            return f"((char *)buffers[{self.n_inputs + self.n_outputs}] + {offset})"
        position = buffer.position + (self.n_inputs if buffer.role == "output" else 0)
        return f"buffers[{position}]"

    def _size_arguments(self) -> None:
        for symbol in self.symbols:
            self.out.line(f"const int64_t {symbol} = sizes[{symbol[1:]}];")

    # -- kernels ----------------------------------------------------------------------------------------------------
    def _kernel(self, kernel: Kernel) -> None:
        used = [self.program.buffers[name] for name in sorted(loaded_buffers(kernel.body) | stored_buffers(kernel.body))]
        memory = [b for b in used if b.role not in ("constant", "scratch")]
        self._function(kernel, memory, [], kernel.comment)
        self._open_launched(kernel)
        self._size_arguments()
        arguments = [f"({b.dtype.ctype} *){self.address(b)}" for b in memory] + [*self.symbols, "lo", "hi", "stop"]
        self.out.line(f"{kernel.name}_range({', '.join(arguments)});")
        self.out.close()

    def _shared_kernel(self, shared: Shared) -> None:
        """A function of several kernels.  Where it is launched, `buffers` and `sizes` hold its arguments: see `_launch_shared`."""
        kernel = shared.kernel
        memory = [self.program.buffers[name] for name in shared.buffers]
        parameters = [f"{self.c.number_type(dtype)} {name}" for name, dtype in shared.reals]
        parameters += [f"int64_t {name}" for name in shared.parameters]
        self._function(kernel, memory, parameters, f"{shared.n_calls} kernels like {kernel.comment}")
        self._open_launched(kernel, "__attribute__((unused)) ")
        arguments = [f"({b.dtype.ctype} *)buffers[{k}]" for k, b in enumerate(memory)]
        arguments += [f"((const double *)buffers[{len(memory)}])[{k}]" for k in range(len(shared.reals))]
        arguments += [f"sizes[{k}]" for k in range(len(shared.parameters) + len(self.symbols))]
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
        arguments += [*parameters, *(f"int64_t {s}" for s in (*self.symbols, "lo", "hi")), "dg_stop *stop"]
        self.out.line()
        self.out.line(f"/* {comment} */")
        head = f"void {kernel.name}_range({', '.join(arguments)})"
        if self.in_parts:
            head = f"DG_KERNEL {head}"
            for line in (f"#if DG_IS_OTHERS({self.n_printed})", f"{head};", "#else"):
                self.out.line(line)
        else:
            head = f"static __attribute__((noinline)) {head}"
        self.n_printed += 1
        self.out.open(head)
        self.out.line("(void)stop;")
        for name in sorted(loaded | stored):
            buffer = self.program.buffers[name]
            if buffer.role == "scratch":
                size = self.c.integer(buffer.size)
                self.out.line(f"{buffer.dtype.ctype} {name}[{size}] __attribute__((aligned(64)));")
            elif buffer.role == "constant":
                self._hide_constant(buffer, buffer in memory)
        _KernelPrinter(self.c, kernel).body()
        self.out.close()
        if self.in_parts:
            self.out.line("#endif")

    # -- the entry --------------------------------------------------------------------------------------------------
    def _entry(self) -> None:
        self.out.line()
        if self.in_parts:
            self.out.line(f"{FUNCTIONS} {self.n_functions} */")
            self.out.line("#if !DG_IS_OTHERS(0)")
        self.out.open(f"int {ENTRY}(void *const *buffers, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)")
        self.out.line("(void)buffers; (void)sizes; (void)rt; (void)stop;")
        self._size_arguments()
        checked = self.program.n_checks == 0
        for step in self.program.steps:
            deadline.check()
            self.may_stop = self.may_stop and not self._writes_input(step)
            if not checked and self._writes_input(step):
                self._refuse()
                checked = True
            if isinstance(step, Kernel):
                if step in self.calls:
                    self._launch_shared(step, self.calls[step])
                else:
                    self._launch(step)
            elif isinstance(step, CallOut):
                self._call_out(step)
            else:
                self._library_call(step)
        if not checked:
            self._refuse()
        self.out.line("return 0;")
        self.out.close()
        if self.in_parts:
            self.out.line("#endif")

    def _writes_input(self, step: Step) -> bool:
        written = stored_buffers(step.body) if isinstance(step, Kernel) else step_buffers(step)[1]
        return any(self.program.buffers[name].role == "input" for name in written)

    def _refuse(self) -> None:
        """End here where a check failed: nothing of the caller's is changed yet."""
        first = self.n_inputs + self.n_outputs - self.program.n_checks
        failed = " || ".join(f"*(_Bool *)buffers[{first + k}]" for k in range(self.program.n_checks))
        self.out.line(f"if ({failed})")
        self.out.line("    return DG_REFUSED;")

    def _stop(self, condition: str = "dg_stops(stop)") -> None:
        """End here where signals wait: nothing of the caller's is changed yet."""
        if self.may_stop:
            self.out.line(f"if ({condition})")
            self.out.line("    return DG_STOPPED;")

    def _print_launch(self, kernel: Kernel, name: str, buffers: str, sizes: str) -> None:
        (count, grain), cost, (inner, hint) = launch_size(kernel), kernel_cost(kernel), inner_extent(kernel)
        time = f"{cost:.6g}" if inner.constant is not None else f"{cost / hint:.6g} * (double)({self.c.integer(inner)})"
        self._stoppable(kernel, f"dg_launch(rt, {name}, {buffers}, {sizes}, {self.c.integer(count)}, {grain}, {time}, ")

    def _stoppable(self, kernel: Kernel, call: str) -> None:
        """End a call by its last argument, and the run where that has been stopped."""
        most, (inner, _) = launch_size(kernel)[0].bounds()[1], inner_extent(kernel)
        is_short = most is not None and inner.constant is not None and most * kernel_cost(kernel) <= PARALLEL_NANOSECONDS
        if is_short or not self.may_stop:
            self.out.line(f"{call}&dg_never);")
            return
        self.out.line(f"{call}stop);")
        self._stop("stop->stopped")

    def _launch(self, kernel: Kernel) -> None:
        self._print_launch(kernel, kernel.name, "buffers", "sizes")

    def _launch_shared(self, kernel: Kernel, call: Call) -> None:
        count, grain = launch_size(kernel)
        cost = kernel_cost(kernel)
        name = call.shared.kernel.name
        memory = [f"({b.dtype.ctype} *){self.address(b)}" for b in map(self.program.buffers.__getitem__, call.buffers)]
        reals = [self.c.literal(x, dtype) for x, (_, dtype) in zip(call.reals, call.shared.reals)]
        numbers = [*(self.c.literal(n, dtypes.int64) for n in call.numbers), *self.symbols]
        self.out.line(f"/* {kernel.comment} */")
        least, most = count.bounds()
        if most is not None and (most <= grain or most * cost <= PARALLEL_NANOSECONDS):  # never on threads
            if least is None or least <= 0:  # a range function runs one iteration at least
                self.out.line(f"if ({self.c.integer(count)} > 0)")
            self._stoppable(kernel, f"{name}_range({', '.join([*memory, *reals, *numbers, '0', self.c.integer(count)])}, ")
            return
        if reals:
            memory.append(f"(void *)(const double[]){{{', '.join(reals)}}}")
        sizes = f"(const int64_t[]){{{', '.join(numbers)}}}" if numbers else "sizes"
        self.out.open("")  # the arrays need the stack for this call only
        self._print_launch(kernel, name, f"(void *const[]){{{', '.join(memory)}}}", sizes)
        self.out.close()

    def _library_call(self, call: LibraryCall) -> None:
        left, right = call.operands
        out = call.out
        self.out.line(f"/* {call.comment} */")
        batch = out.shape[:-2]
        self.out.open("")
        indices: list[IntExpr] = []
        for k, dim in enumerate(batch):
            if same_dim(dim, 1):
                indices.append(IntExpr.of(0))
                continue
            indices.append(IntExpr.symbol(f"b{k}"))
            self.out.open(f"for (int64_t b{k} = 0; b{k} < {self.c.integer(expr_of(dim))}; ++b{k})")
        m, n, k_ = expr_of(out.shape[-2]), expr_of(out.shape[-1]), expr_of(left.shape[-1])
        ta, lda = _layout(left)
        tb, ldb = _layout(right)
        sizes = ", ".join(self.c.integer(v) for v in (m, n, k_))
        self._stop()
        self.out.line(
            f"dg_gemm_{out.dtype.suffix}(rt, {ta}, {tb}, {sizes}, {self._matrix(left, indices)}, {self.c.integer(lda)}, "
            f"{self._matrix(right, indices)}, {self.c.integer(ldb)}, {self._matrix(out, indices)}, "
            f"{self.c.integer(expr_of(out.shape[-1]))});"
        )
        for dim in batch:
            if not same_dim(dim, 1):
                self.out.close()
        self.out.close()

    def _call_out(self, step: CallOut) -> None:
        """A call of a Python function, which may refuse."""
        self.out.line(f"/* {step.comment} */")
        self._stop()
        self.out.open("")
        self._arrays("operands", step.operands)
        self._arrays("results", step.outs)
        program = f"buffers[{self.n_inputs + self.n_outputs + 1}]"
        self.out.line(
            f"const int status = rt->call_out({program}, {self.n_call_outs}, sizes, {len(step.operands)}, operands, "
            f"{len(step.outs)}, results);"
        )
        self.out.line("if (status)")
        self.out.line("    return status;")
        self.out.close()
        self.n_call_outs += 1

    def _arrays(self, name: str, operands: Sequence[Operand]) -> None:
        for k, operand in enumerate(operands):
            for what, sizes, unit in (("shape", operand.shape, 1), ("strides", operand.strides, operand.dtype.itemsize)):
                numbers = ", ".join(self.c.integer(expr_of(d) * unit) for d in sizes) or "0"
                self.out.line(f"const int64_t {name}_{k}_{what}[] = {{{numbers}}};")
        arrays = [
            f"{{({o.dtype.ctype} *){self.address(self.program.buffers[o.buffer])} + {self.c.integer(o.offset)}, "
            f"{name}_{k}_shape, {name}_{k}_strides, {len(o.shape)}, {o.dtype.numpy.num}}}"
            for k, o in enumerate(operands)
        ]
        self.out.line(f"const dg_array {name}[{max(1, len(arrays))}] = {{{', '.join(arrays) or '{0}'}}};")

    def _matrix(self, operand: Operand, batch: Sequence[IntExpr]) -> str:
        """The address of one matrix of a batch; an operand's batch dimensions broadcast."""
        offset = operand.offset
        own = len(operand.shape) - 2
        for dim, stride, index in zip(operand.shape[:own], operand.strides[:own], batch[len(batch) - own :]):
            if not same_dim(dim, 1):
                offset = offset + index * expr_of(stride)
        return (
            f"({operand.dtype.ctype} *){self.address(self.program.buffers[operand.buffer])} + {self.c.integer(offset)}"
        )


def _layout(operand: Operand) -> tuple[int, IntExpr]:
    """Whether BLAS must transpose a row-major reading of the operand, and its leading dimension."""
    (rows, columns), (row_step, column_step) = operand.shape[-2:], operand.strides[-2:]
    if same_dim(column_step, 1) and not (same_dim(columns, 1) and same_dim(row_step, 1) and not same_dim(rows, 1)):
        leading = columns if same_dim(rows, 1) else row_step
        return 0, expr_of(leading)
    if same_dim(row_step, 1):
        leading = rows if same_dim(columns, 1) else column_step
        return 1, expr_of(leading)
    return (1, expr_of(column_step)) if same_dim(rows, 1) else (0, expr_of(row_step))  # a vector with a step


def launch_size(kernel: Kernel) -> tuple[IntExpr, int]:
    """How many independent iterations a kernel has, and how many of them belong together."""
    count = IntExpr.of(1)
    for axis in kernel.axes:
        count = count * axis.extent
    column = next((s for s in kernel.body if isinstance(s, ColumnReduce)), None)
    if column is not None:
        return count * ((column.column.extent + (COLUMN_BLOCK - 1)) // COLUMN_BLOCK), 1
    flat = len(kernel.axes) == 1 and not any(isinstance(s, (Loop, Reduce, Running)) for s in kernel.body)
    return count, FLAT_GRAIN if flat else 1


def inner_extent(kernel: Kernel) -> tuple[IntExpr, int]:
    """How many turns the longest loop nest within an iteration has, and how many at capture."""
    nests = [_nest(s) for s in kernel.body]
    return max(nests, key=lambda nest: nest[1], default=(IntExpr.of(1), 1))


def _nest(s: Statement) -> tuple[IntExpr, int]:
    extent, hint = IntExpr.of(1), 1
    axes = (s.axis,) if isinstance(s, Running) else s.axes if isinstance(s, (Loop, Reduce, ColumnReduce)) else ()
    for axis in axes:
        hint *= max(1, axis.hint)
        varies_within = any(not _is_size(symbol.name) for symbol in axis.extent.symbols())
        extent *= IntExpr.of(max(1, axis.hint)) if varies_within else axis.extent
    if isinstance(s, Loop):
        inner, inner_hint = max(map(_nest, s.body), key=lambda nest: nest[1], default=(IntExpr.of(1), 1))
        extent, hint = extent * inner, hint * inner_hint
    return extent, hint


def kernel_cost(kernel: Kernel) -> float:
    """Estimated nanoseconds of one iteration of `launch_size`."""
    total = kernel.cost
    for axis in kernel.axes:
        total *= axis.hint
    count = 1
    for axis in kernel.axes:
        count *= max(1, axis.hint)
    column = next((s for s in kernel.body if isinstance(s, ColumnReduce)), None)
    if column is not None:
        count *= max(1, -(-column.column.hint // COLUMN_BLOCK))
    return total / count


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
            for operand in (*step.operands, *(step.outs if isinstance(step, CallOut) else (step.out,))):
                for size in (*operand.shape, *operand.strides, operand.offset):
                    found |= {s.name for s in expr_of(size).symbols()}
    return set(filter(_is_size, found))


def _is_size(symbol: str) -> bool:
    return symbol[0] == "s" and symbol[1:].isdigit()


class _KernelPrinter:
    """The body of a range function."""

    def __init__(self, c: CStyle, kernel: Kernel):
        self.c, self.out, self.kernel = c, c.out, kernel

    def body(self) -> None:
        axes = list(self.kernel.axes)
        column = next((s.column for s in self.kernel.body if isinstance(s, ColumnReduce)), None)
        if not axes and column is None:
            self.out.line("(void)lo; (void)hi;")
            self._statements(self.kernel.body, Scope())
            return
        flat = len(axes) == 1 and column is None
        name = axes[0].symbol.name if flat else "item"
        scope = self._before(axes[0], self.kernel.body) if flat else Scope()
        self.out.open(f"for (int64_t {name} = lo; {name} < hi; ++{name})")
        if name == "item":
            self._decode(axes, column)
        self._statements(self.kernel.body, Scope(scope))
        self.out.close()

    def _decode(self, axes: list[Axis], column: Axis | None) -> None:
        """Loop variables from the flat item number, last axis fastest."""
        self.out.line("int64_t rest = item;")
        if column is not None:
            blocks = (column.extent + (COLUMN_BLOCK - 1)) // COLUMN_BLOCK
            self.out.line(f"const int64_t first = rest % ({self.c.integer(blocks)}) * {COLUMN_BLOCK};")
            self.out.line(f"rest /= {self.c.integer(blocks)};")
        for axis in reversed(axes[1:]):
            extent = self.c.integer(axis.extent)
            self.out.line(f"const int64_t {axis.symbol.name} = rest % ({extent});")
            self.out.line(f"rest /= {extent};")
        if axes:
            self.out.line(f"const int64_t {axes[0].symbol.name} = rest;")
        else:
            self.out.line("(void)rest;")

    def _statements(self, body: Sequence[Statement], scope: Scope) -> None:
        plain: list[Define | Store] = []
        for s in body:
            if isinstance(s, (Define, Store)):
                plain.append(s)
                continue
            self.c.block(plain, scope)
            plain.clear()
            if isinstance(s, Loop):
                self._loop(s)
            elif isinstance(s, Reduce):
                self._reduce(s)
            elif isinstance(s, ColumnReduce):
                self._column_reduce(s)
            else:
                assert isinstance(s, Running), "sorts are for other targets"
                self._running(s)
        self.c.block(plain, scope)

    def _before(self, axis: Axis, body: Sequence[Statement]) -> Scope:
        """What a loop of nothing but definitions and stores computes before its first turn, which there is."""
        plain = [s for s in body if isinstance(s, (Define, Store))]
        return self.c.before_loop(axis, plain) if len(plain) == len(body) else Scope()

    def _loop(self, loop: Loop) -> None:
        scope = Scope()
        for axis in loop.axes:
            self.out.open("")
            if axis is loop.axes[-1] and (axis.extent.bounds()[0] or 0) > 0:
                scope = self._before(axis, loop.body)
            self.open_short(axis, expressions(loop.body))
        self._statements(loop.body, Scope(scope))
        self.close(2 * len(loop.axes))

    def open_short(self, axis: Axis, values: Iterable[Expr]) -> None:
        """Open a loop over an axis, which may be of a few elements.

        gcc 12 makes wrong code for AVX2 where it writes such a loop out, in another one, and vectorises loads that happen only
        where a condition holds.
        """
        if (axis.extent.constant or MOST_UNROLLED + 1) <= MOST_UNROLLED and any(e.op == "choose" for v in values for e in v.walk()):
            self.out.line("#pragma GCC unroll 1")
        self.c.open_loop(axis)

    # -- signals ----------------------------------------------------------------------------------------------------
    def stop(self, condition: str = "") -> None:
        """Leave where signals wait: what is left undone is dropped."""
        self.out.line(f"if ({condition}dg_stops(stop))")
        self.out.line("    return;")

    def open_stopping(self, axes: Sequence[Axis], k: int, values: Iterable[Expr] = (), each: int = 1) -> int:
        """Open the loop over axis `k` of a nest, a long one in parts between which it may stop.  Gives how many blocks are open.

        `each`: values of a turn of the innermost loop.
        """
        axis, turns = axes[k], max(1, UNSTOPPED_EXTENT // each)
        for inner in axes[k + 1 :]:
            turns = max(1, turns // max(1, longest(inner.extent) or 1))
        self.out.open("")
        if is_at_most(axis.extent, turns):
            self.open_short(axis, values)
            return 2
        name = axis.symbol.name
        start, end = self.c.bounds(axis)
        self.out.line(f"const int64_t {name}_last = {end};")
        self.out.open(f"for (int64_t {name}_first = {start}; {name}_first < {name}_last; {name}_first += {turns})")
        self.stop()
        self.out.line(
            f"const int64_t {name}_next = {name}_last - {name}_first < {turns} ? {name}_last : {name}_first + {turns};"
        )
        self.out.open(f"for (int64_t {name} = {name}_first; {name} < {name}_next; ++{name})")
        return 3

    def close(self, blocks: int) -> None:
        for _ in range(blocks):
            self.out.close()

    # -- reductions along rows --------------------------------------------------------------------------------------
    def _reduce(self, r: Reduce) -> None:
        for a in r.accumulators:
            start = initial(self.c, a) if a.start is None else self.c.values([a.start], Scope())[0]
            self.out.line(f"{self.c.number_type(a.dtype)} {a.name} = {start};")
        if not r.axes:
            self._single(r)
        elif any(a.is_position for a in r.accumulators):
            self._arg_reduce(r)
        elif r.walk is not None:
            _WalkPrinter(self, r).run(r.walk)
        else:
            lanes = lane_plan(r)
            if lanes and _takes_twice(r):
                self._extreme_reduce(r)
            elif lanes:
                self._lane_reduce(r, lanes)
            else:
                self._serial_reduce(r)
        for a in r.accumulators:
            if a.dtype.is_half:
                self.out.line(f"{a.name} = {self.c.rounded(a.name, a.dtype)};")

    def _single(self, r: Reduce) -> None:
        """Every reduced size is 1."""
        scope = Scope()
        chosen = self.open_chosen(r.accumulators)
        texts = self.c.values([a.value for a in r.accumulators], scope, r.stores)
        for a, text in zip(r.accumulators, texts):
            if a.kind == "sum" and a.dtype.is_inexact:
                text = self.combine(a, a.name, text)  # 0.0 + -0.0 is 0.0
            self.out.line(f"{a.name} = {'0' if a.is_position else text};")
        self.c.block(r.stores, scope)
        self.close(chosen)

    def open_chosen(self, accumulators: Sequence[Accumulator]) -> int:
        """Open a block for elements that are taken, if not all are.  Gives how many blocks are open."""
        chosen = accumulators[0].chosen
        if chosen is None:
            return 0
        (text,) = self.c.values([chosen], Scope())
        self.out.open(f"if ({text})")
        return 1

    def _serial_reduce(self, r: Reduce) -> None:
        blocks = sum(self.open_stopping(r.axes, k, expressions((r,))) for k in range(len(r.axes)))
        scope = Scope()
        for a, text in zip(r.accumulators, self.c.values([a.value for a in r.accumulators], scope, r.stores)):
            self.out.line(f"{a.name} = {self._combine_next(a, a.name, text)};")
        self.c.block(r.stores, scope)
        self.close(blocks)

    def _extreme_reduce(self, r: Reduce) -> None:
        """What may take elements twice; where each further element can change nothing, it ends with the block."""
        *outer, axis = r.axes
        name = axis.symbol.name
        start, end = self.c.bounds(axis)
        blocks = sum(self.open_stopping(r.axes, k) for k in range(len(outer)))
        self.out.open("")
        self.out.line(f"const int64_t {name}_end = {end};")
        decided = [_decided(a) for a in r.accumulators]
        ends = all(decided)
        if ends:
            self.out.open(f"for (int64_t {name}_at = {start}; {name}_at < {name}_end; {name}_at += {DECIDED_BLOCK})")
            stop = f"{name}_at + {DECIDED_BLOCK}"
            self.out.line(f"const int64_t {name}_stop = {stop} < {name}_end ? {stop} : {name}_end;")
        self._extreme_lanes(
            r.accumulators, axis, *((f"{name}_at", f"{name}_stop", True) if ends else (start, f"{name}_end", False))
        )
        for a in r.accumulators:
            self.out.line(f"{a.name} = {self.combine(a, a.name, f'{a.name}_lane[0]')};")
        if ends:
            self.out.line(f"if ({' && '.join(decided)})")
            self.out.line("    break;")
            if not is_at_most(axis.extent, UNSTOPPED_EXTENT):
                self.stop()
            self.out.close()
        self.close(1 + blocks)

    def _lane_reduce(self, r: Reduce, lanes: int) -> None:
        """Independent lanes along the last axis: fast, and the same bits for any vector width."""
        *outer, axis = r.axes
        name = axis.symbol.name
        outer_blocks = sum(self.open_stopping(r.axes, k) for k in range(len(outer)))
        self.out.open("")
        start, end = self.c.bounds(axis)
        self.out.line(f"const int64_t {name}_end = {end};")
        self._lanes(r, axis, lanes, start, f"{name}_end")
        for a in r.accumulators:
            self.out.line(f"{a.name} = {self.combine(a, a.name, f'{a.name}_lane[0]') if outer else f'{a.name}_lane[0]'};")
        self.close(1 + outer_blocks)

    def _lanes(self, r: Reduce, axis: Axis, lanes: int, start: str, end: str) -> None:
        name = axis.symbol.name
        for a in r.accumulators:
            self.out.line(f"{self.c.number_type(a.dtype)} {a.name}_lane[{lanes}];")
            self.out.line(f"for (int l = 0; l < {lanes}; ++l) {a.name}_lane[l] = {initial(self.c, a)};")
        self.out.line(f"int64_t {name}_base = {start};")
        self._lane_steps(r, axis, lanes, end, is_block=False)
        # gcc 12 miscompiles the rest where it knows how long it is: with AVX-512 it loses lanes of sums of 18 int64
        self.out.line(f'__asm__("" : "+r"({name}_base));')
        self._lane_step(r, axis, f"(int)({end} - {name}_base)")
        half = lanes // 2
        self.out.open(f"for (int w = {half}; w; w /= 2)")
        for a in r.accumulators:
            combined = self.combine(a, f"{a.name}_lane[l]", f"{a.name}_lane[l + w]")
            self.out.line(f"for (int l = 0; l < w; ++l) {a.name}_lane[l] = {combined};")
        self.out.close()

    def _lane_steps(self, r: Reduce, axis: Axis, lanes: int, end: str, is_block: bool) -> None:
        name = axis.symbol.name
        may_stop = not is_block and not is_at_most(axis.extent, UNSTOPPED_EXTENT)
        if may_stop:
            self.out.open(f"while ({name}_base + {lanes} <= {end})")
            self.stop()
            self.out.line(
                f"const int64_t {name}_next = {end} - {name}_base < {UNSTOPPED_EXTENT} ? {end} : {name}_base + {UNSTOPPED_EXTENT};"
            )
            end = f"{name}_next"
        self.out.open(f"for (; {name}_base + {lanes} <= {end}; {name}_base += {lanes})")
        self._lane_step(r, axis, str(lanes))
        self.close(1 + may_stop)

    def _lane_step(self, r: Reduce, axis: Axis, width: str) -> None:
        name = axis.symbol.name
        self.out.open(f"for (int l = 0; l < {width}; ++l)")
        self.out.line(f"const int64_t {name} = {name}_base + l;")
        scope = Scope()
        for a, text in zip(r.accumulators, self.c.values([a.value for a in r.accumulators], scope, r.stores)):
            self.out.line(f"{a.name}_lane[l] = {self._combine_next(a, f'{a.name}_lane[l]', text)};")
        self.c.block(r.stores, scope)
        self.out.close()

    def _arg_reduce(self, r: Reduce) -> None:
        """The positions of first extremes; a NaN is the extreme of all."""
        assert not r.stores
        for a in r.accumulators:
            self.out.line(f"{self.c.number_type(a.value.dtype)} {a.best} = {initial(self.c, _extreme(a))};")
            self.out.open("")
            if len(r.axes) == 1 and _searched(a, r.axes[0]):
                self._search(r.axes[0], a)
            else:
                self._first_extreme_in_order(r.axes, a)
            self.out.close()

    def _first_extreme_in_order(self, axes: Sequence[Axis], a: Accumulator) -> None:
        """One element after the other: short rows, and complex numbers, of which the imaginary part hardly ever tells."""
        self.out.line("int64_t position = 0;")
        blocks = sum(self.open_stopping(axes, k) for k in range(len(axes)))
        (text,) = self.c.values([a.value], Scope())
        self.out.line(f"const {self.c.number_type(a.value.dtype)} value = {text};")
        better = self._better(a, "value", a.best)
        if a.value.dtype.is_inexact:
            better = f"({better} || value != value) && {a.best} == {a.best}"
        if a.value.dtype.is_complex:
            worse = "<" if a.kind == "argmax" else ">"
            likely = f"!(__real__ value {worse} __real__ {a.best}) | (__imag__ value != __imag__ value)"
            self.out.open(f"if (__builtin_expect({likely}, 0) && (position == 0 || ({better})))")
        else:
            self.out.open(f"if (position == 0 || ({better}))")
        self.out.line(f"{a.best} = value;")
        self.out.line(f"{a.name} = position;")
        self.out.close()
        self.out.line("++position;")
        self.close(blocks)

    def _better(self, a: Accumulator, left: str, right: str) -> str:
        pair = (var(text, a.value.dtype) for text in (left, right))
        return self.c.expr(expr.call("gt" if a.kind == "argmax" else "lt", *pair), Scope())

    def _search(self, axis: Axis, a: Accumulator) -> None:
        """The extreme of each block, and then the first element of the block with the best one that is equal to it.

        Values that cost something are kept: of the block that is looked at, and of the best one so far.  What is the extreme of
        bools is known beforehand.
        """
        name, dtype = axis.symbol.name, a.value.dtype
        start, end = self.c.bounds(axis)
        self.out.line(f"const int64_t {name}_end = {end};")
        if dtype.is_bool:
            self.out.line(f"{a.best} = {int(a.kind == 'argmax')};")
            self._find(a, axis, a.value, start, f"{name}_end")
            self.out.line(f"{a.best} = found ? {a.best} : !{a.best};")
            return
        kept = expr_cost([a.value]) > SEARCHED_COST
        size = KEPT_BLOCK if kept else SEARCH_BLOCK // _as_wide(dtype)
        self.out.line(f"int64_t best_at = {start};")
        value = a.value
        if kept:
            value = var(f"kept[turn][{name} - {name}_at]", dtype)
            self.out.line(f"{self.c.number_type(dtype)} kept[2][{size}] __attribute__((aligned(64)));")
            self.out.line("int turn = 0;")
        self.out.open(f"for (int64_t {name}_at = {start}; {name}_at < {name}_end; {name}_at += {size})")
        self.out.line(f"const int64_t {name}_stop = {name}_at + {size} < {name}_end ? {name}_at + {size} : {name}_end;")
        if kept:
            self.out.open(f"for (int64_t {name} = {name}_at; {name} < {name}_stop; ++{name})")
            (text,) = self.c.values([a.value], Scope())
            self.out.line(f"{value.value} = {text};")
            self.out.close()
        self._extreme_lanes([replace(_extreme(a), value=value)], axis, f"{name}_at", f"{name}_stop", is_block=True)
        here = f"{_extreme(a).name}_lane[0]"
        better = self._better(a, here, a.best)
        self.out.open(f"if ({better} || {here} != {here})" if dtype.is_inexact else f"if ({better})")
        self.out.line(f"{a.best} = {here};")
        self.out.line(f"best_at = {name}_at;")
        if kept:
            self.out.line("turn ^= 1;")
        if dtype.is_inexact:  # nothing is better than NaN
            self.out.line(f"if ({a.best} != {a.best})")
            self.out.line("    break;")
        self.out.close()
        if not is_at_most(axis.extent, UNSTOPPED_EXTENT):
            self.stop()
        self.out.close()
        if kept:
            value = var(f"kept[turn ^ 1][{name} - best_at]", dtype)
        self._find(a, axis, value, "best_at", f"(best_at + {size} < {name}_end ? best_at + {size} : {name}_end)")

    def _find(self, a: Accumulator, axis: Axis, value: Expr, start: str, end: str) -> None:
        """The first element that is the extreme: first the piece that holds it, by loops that vectorise."""
        name = axis.symbol.name
        self.out.line("int found = 0;")
        self.out.line(f"const int64_t search_end = {end};")
        self.out.line(f"int64_t {name}_base = {start};")
        equal = f"== {a.best}"
        if a.value.dtype.is_inexact:
            self.out.open(f"if ({a.best} != {a.best})")
            self._find_in_order(a, axis, value, "!= value", f"{name}_base", "search_end")
            self.out.line(f"{name}_base = search_end;")
            self.out.close()
        self.out.open(f"for (; {name}_base + {SEARCH_STEP} <= search_end; {name}_base += {SEARCH_STEP})")
        self.out.open(f"for (int l = 0; l < {SEARCH_STEP}; ++l)")
        self.out.line(f"const int64_t {name} = {name}_base + l;")
        (text,) = self.c.values([value], Scope())
        self.out.line(f"found |= {text} {equal};")
        self.out.close()
        self.out.line("if (found)")
        self.out.line("    break;")
        if not is_at_most(axis.extent, UNSTOPPED_EXTENT):
            self.stop()
        self.out.close()
        self._find_in_order(a, axis, value, equal, f"{name}_base", "search_end")

    def _find_in_order(self, a: Accumulator, axis: Axis, value: Expr, test: str, start: str, end: str) -> None:
        name = axis.symbol.name
        self.out.open(f"for (int64_t {name} = {start}; {name} < {end}; ++{name})")
        (text,) = self.c.values([value], Scope())
        self.out.line(f"const {self.c.number_type(a.value.dtype)} value = {text};")
        self.out.open(f"if (value {test})")
        self.out.line("found = 1;")
        self.out.line(f"{a.name} = {name} - ({self.c.bounds(axis)[0]});")
        self.out.line("break;")
        self.out.close()
        self.out.close()

    def _extreme_lanes(self, extremes: Sequence[Accumulator], axis: Axis, start: str, end: str, is_block: bool) -> None:
        """The extremes between two places, in the first lanes.  The last elements are taken twice: it makes no difference."""
        name = axis.symbol.name
        lanes = lane_plan(Reduce((axis,), tuple(extremes)))
        for a in extremes:
            self.out.line(f"{self.c.number_type(a.dtype)} {a.name}_lane[{lanes}] __attribute__((aligned(64)));")
            self.out.line(f"for (int l = 0; l < {lanes}; ++l) {a.name}_lane[l] = {initial(self.c, a)};")
        r = Reduce((axis,), tuple(extremes))
        self.out.open(f"if ({end} - {start} >= {lanes})")
        self.out.line(f"int64_t {name}_base = {start};")
        self._lane_steps(r, axis, lanes, end, is_block)
        self.out.open(f"if ({name}_base < {end})")
        self.out.line(f"{name}_base = {end} - {lanes};")
        self._lane_step(r, axis, str(lanes))
        self.out.close()
        width = lanes // 2
        while width:
            for a in extremes:
                joined = self._combine_next(a, f"{a.name}_lane[l]", f"{a.name}_lane[l + {width}]")
                self.out.line("#pragma GCC unroll 1")  # else gcc writes it out before it vectorises
                self.out.line(f"for (int l = 0; l < {width}; ++l) {a.name}_lane[l] = {joined};")
            width //= 2
        self.out.close(" else {")
        self.out.depth += 1
        self.out.open(f"for (int64_t {name} = {start}; {name} < {end}; ++{name})")
        for a, text in zip(extremes, self.c.values([a.value for a in extremes], Scope())):
            self.out.line(f"{a.name}_lane[0] = {self._combine_next(a, f'{a.name}_lane[0]', text)};")
        self.out.close()
        self.out.close()

    def _column_positions(self, r: ColumnReduce) -> None:
        """Where the extremes of columns are: of each the best so far, and its row."""
        a, name = r.accumulator, r.column.symbol.name
        dtype, ctype = a.value.dtype, self.c.number_type(a.value.dtype)
        rows = IntExpr.of(1)
        for axis in r.axes:
            rows = rows * axis.extent
        narrow = (rows.bounds()[1] or 2**31) < 2**31 and _as_wide(dtype) < 8  # so that as many fit into a vector
        counter = "int32_t" if narrow else "int64_t"
        self._open_columns(r)
        self.out.line(f"{ctype} best[{COLUMN_BLOCK}] __attribute__((aligned(64)));")
        self.out.line(f"{counter} where[{COLUMN_BLOCK}] __attribute__((aligned(64)));")
        self.out.line(f"for (int l = 0; l < width; ++l) best[l] = {initial(self.c, _extreme(a))};")
        self.out.line("for (int l = 0; l < width; ++l) where[l] = 0;")
        self.out.line(f"{counter} row = 0;")
        blocks = sum(self.open_stopping(r.axes, k, each=COLUMN_BLOCK) for k in range(len(r.axes)))
        self.out.open("for (int l = 0; l < width; ++l)")
        self.out.line(f"const int64_t {name} = first + l;")
        (text,) = self.c.values([a.value], Scope())
        self.out.line(f"const {ctype} value = {text}, old = best[l];")
        better = self._better(a, "value", "old")
        if dtype.is_inexact:
            better = f"({better} | ((value != value) & (old == old)))"
        self.out.line(f"const _Bool better = {better};")
        self.out.line("best[l] = better ? value : old;")
        self.out.line("where[l] = better ? row : where[l];")
        self.out.close()
        self.out.line("++row;")
        self.close(blocks)
        self.out.open("for (int l = 0; l < width; ++l)")
        self.out.line(f"const int64_t {name} = first + l;")
        self.out.line(f"const int64_t {a.name} = where[l];")
        self.c.block(r.stores, Scope())
        self.out.close()

    def _open_columns(self, r: ColumnReduce) -> None:
        extent = self.c.integer(r.column.extent)
        self.out.line(f"int width = (int)({extent} - first < {COLUMN_BLOCK} ? {extent} - first : {COLUMN_BLOCK});")
        if not r.accumulator.dtype.is_inexact:  # gcc 12 loses rows of sums of 7 columns of int64 where it knows how many these are
            self.out.line('__asm__("" : "+r"(width));')

    def _column_reduce(self, r: ColumnReduce) -> None:
        a, column = r.accumulator, r.column
        if a.is_position:
            self._column_positions(r)
            return
        name = column.symbol.name
        self._open_columns(r)
        self.out.line(f"{self.c.number_type(a.dtype)} {a.name}_column[{COLUMN_BLOCK}] __attribute__((aligned(64)));")
        self.out.line(f"for (int l = 0; l < width; ++l) {a.name}_column[l] = {initial(self.c, a)};")
        *outer, last = r.axes
        outer_blocks = sum(self.open_stopping(r.axes, k, each=COLUMN_BLOCK) for k in range(len(outer)))
        row = last.symbol.name
        start, end = self.c.bounds(last)
        self.out.open("")
        self.out.line(f"int64_t {row} = {start};")
        may_stop = not is_at_most(last.extent, UNSTOPPED_EXTENT // COLUMN_BLOCK)
        if may_stop:
            self.out.line(f"const int64_t {row}_last = {end};")
            self.out.open(f"while ({row} < {row}_last)")
            self.stop()
            turns = UNSTOPPED_EXTENT // COLUMN_BLOCK
            end = f"{row}_last - {row} < {turns} ? {row}_last : {row} + {turns}"
        self.out.line(f"const int64_t {row}_end = {end};")
        if expr_cost([a.value]) <= UNROLL_COST and not a.dtype.is_half:
            self.out.open(f"for (; {row} + {COLUMN_UNROLL} <= {row}_end; {row} += {COLUMN_UNROLL})")
            self._column_step(r, COLUMN_UNROLL)
            self.out.close()
        self.out.open(f"for (; {row} < {row}_end; ++{row})")
        self._column_step(r, 1)
        self.out.close()
        self.close(1 + may_stop + outer_blocks)
        self.out.open("for (int l = 0; l < width; ++l)")
        self.out.line(f"const int64_t {name} = first + l;")
        self.out.line(f"const {self.c.number_type(a.dtype)} {a.name} = {self.c.rounded(f'{a.name}_column[l]', a.dtype)};")
        self.c.block(r.stores, Scope())
        self.out.close()

    def _column_step(self, r: ColumnReduce, rows: int) -> None:
        """Accumulate `rows` rows, in order, while the accumulator stays in a register."""
        a, symbol = r.accumulator, r.axes[-1].symbol
        here = IntExpr({(symbol,): 1})
        self.out.open("for (int l = 0; l < width; ++l)")
        self.out.line(f"const int64_t {r.column.symbol.name} = first + l;")
        values = [map_expr(a.value, {}, LeafRule({symbol.name: here + k})) for k in range(rows)]
        total = f"{a.name}_column[l]"
        for text in self.c.values(values, Scope()):
            total = self.combine(a, total, text)
        self.out.line(f"{a.name}_column[l] = {self.c.rounded(total, a.dtype)};")
        self.out.close()

    def _running(self, r: Running) -> None:
        a, axis = r.accumulator, r.axis
        self.out.line(f"{self.c.number_type(a.dtype)} {a.name} = 0;")
        blocks = self.open_stopping((axis,), 0)
        scope = Scope()
        (text,) = self.c.values([a.value], scope)
        first = f"{axis.symbol.name} == {self.c.integer(axis.start)}"
        if a.kind in ("sum", "prod"):
            step = self.c.rounded(self.combine(a, a.name, text), a.dtype)
        else:
            self.out.line(f"const {self.c.number_type(a.dtype)} {a.name}_value = {text};")
            text = f"{a.name}_value"
            if a.kind in EXTREME_FUNCTIONS and a.dtype.is_float:
                step = self.c.rounded(self.c.function(f"next_{a.kind}", computed_as(a.dtype), [a.name, text]), a.dtype)
            else:
                step = self.c.expr(combined(a.kind, var(a.name, a.dtype), var(text, a.dtype)), scope)
        self.out.line(f"{a.name} = {first} ? {text} : {step};")
        self.c.block(r.stores, scope)
        self.close(blocks)

    def _combine_next(self, a: Accumulator, left: str, right: str) -> str:
        """A step of an accumulation: its first operand is what the step before gave."""
        if a.kind in ("max", "min") and a.dtype.is_float:
            return self.c.function(f"next_{a.kind}imum", computed_as(a.dtype), [left, right])
        return self.combine(a, left, right)

    def combine(self, a: Accumulator, left: str, right: str) -> str:
        return combine(self.c, a.kind, a.dtype, left, right)


class _WalkPrinter:
    """A reduction in NumPy's order.  The positions along the axes that are walked as one are one count, ``{name}_at``."""

    def __init__(self, kernel: _KernelPrinter, r: Reduce):
        self.kernel, self.c, self.out, self.r = kernel, kernel.c, kernel.out, r

    def run(self, walk: Walk) -> None:
        count = len(self.r.axes) - walk.axes
        turns, self.axes = self.r.axes[:count], self.r.axes[count:]
        if not self.axes:
            self._in_turn()
            return
        blocks = sum(self.kernel.open_stopping(self.r.axes, k) for k in range(len(turns)))
        if walk.tree:
            self._tree()
        else:
            self._pairwise(walk)
        self.kernel.close(blocks)

    def _add(self, a: Accumulator, text: str) -> None:
        """A step of the accumulation in turn, which halves are rounded after."""
        total = self.c.rounded(self.kernel.combine(a, a.name, text), a.dtype)
        self.out.line(f"{a.name} = {total};")

    def _in_turn(self) -> None:
        axes = self.r.axes
        blocks = sum(self.kernel.open_stopping(axes, k, expressions((self.r,))) for k in range(len(axes)))
        blocks += self.kernel.open_chosen(self.r.accumulators)
        scope = Scope()
        for a, text in zip(self.r.accumulators, self.c.values([a.value for a in self.r.accumulators], scope, self.r.stores)):
            self._add(a, text)
        self.c.block(self.r.stores, scope)
        self.kernel.close(blocks)

    # -- pairwise -----------------------------------------------------------------------------------------------------
    def _pairwise(self, walk: Walk) -> None:
        length = IntExpr.of(1)
        for axis in self.axes:
            length = length * axis.extent
        known, leaf = length.constant, self._block()
        self.out.open("")
        start = self.axes[0].start if len(self.axes) == 1 else IntExpr.of(0)
        self.out.line(f"int64_t at = {self.c.integer(start)}, n = {self.c.integer(length)};")
        if self.r.part is not None:
            self.out.line(f"dg_subtree({self.c.integer(self.r.part.index)}, {self.r.part.levels}, {self._width()}, &at, &n);")
        if len(self.axes) > 1:
            self._positions()
        if self.r.accumulators[0].kind == "prod":
            self._products(walk.chunk)
        elif walk.chunk is not None and (known is None or known > walk.chunk):
            self.out.open(f"for (int64_t left = n; left > 0; left -= {walk.chunk})")
            self.out.line(f"n = left < {walk.chunk} ? left : {walk.chunk};")
            self._run()
            self.out.close()
        elif not self.r.takes_all:
            self._run()
        elif (known is not None and known <= leaf and self.r.part is None) or self._in_memory():
            self._leaf(known if self.r.part is None else None)
            for a in self.r.accumulators:
                self._add(a, f"{a.name}_sum")
        else:
            self._recursion()
        self.out.close()

    def _products(self, chunk: int | None) -> None:
        """Of halves: in turn, and rounded at the end of each inner loop."""
        block = "left" if chunk is None else f"(left < {chunk} ? left : {chunk})"
        self.out.open("for (int64_t left = n; left > 0; left -= n)")
        self.out.line(f"n = {block};")
        self.out.open("for (const int64_t end = at + n; at < end; ++at)")
        if len(self.axes) == 1:
            self.out.line(f"const int64_t {self.axes[0].symbol.name} = at;")
        scope = Scope()
        for a, text in zip(self.r.accumulators, self.c.values([a.value for a in self.r.accumulators], scope, self.r.stores)):
            self.out.line(f"{a.name} = {self.kernel.combine(a, a.name, text)};")
        self.c.block(self.r.stores, scope)
        if len(self.axes) > 1:
            self.out.line(f"++{self.axes[-1].symbol.name};")
            self._carry()
        self.out.close()
        for a in self.r.accumulators:
            self.out.line(f"{a.name} = {self.c.rounded(a.name, a.dtype)};")
        self.out.close()

    def _run(self) -> None:
        """The sum of one inner loop: of `n` elements from `at` on, or of each run of those that are taken."""
        chosen = self.r.accumulators[0].chosen
        if chosen is None:
            self._recursion()
            return
        names = [axis.symbol.name for axis in self.axes]
        self.out.open("for (const int64_t end = at + n; at < end;)")
        self._seek("at", chosen, "if (taken) break;")
        self.out.line("int64_t behind_run = at;")
        if len(names) > 1:
            self.out.line("const int64_t " + ", ".join(f"{name}_run = {name}" for name in names) + ";")
        self._seek("behind_run", chosen, "if (!taken) break;")
        self.out.line("n = behind_run - at;")
        self.out.line("if (n == 0) break;")
        if len(names) > 1:
            self.out.line(" ".join(f"{name} = {name}_run;" for name in names))
        if self._in_memory():
            self._leaf(None)
            for a in self.r.accumulators:
                self._add(a, f"{a.name}_sum")
            self.out.line("at += n;")
        else:
            self._recursion()
        self.out.close()

    def _seek(self, at: str, chosen: Expr, test: str) -> None:
        """Count `at` up to the first element of which the test is true, or to the end of the inner loop."""
        self.out.open(f"for (; {at} < end; ++{at})")
        if len(self.axes) == 1:
            self.out.line(f"const int64_t {self.axes[0].symbol.name} = {at};")
        (text,) = self.c.values([chosen], Scope())
        self.out.line(f"const _Bool taken = {text};")
        self.out.line(test)
        if len(self.axes) > 1:
            self.out.line(f"++{self.axes[-1].symbol.name};")
            self._carry()
        self.out.close()

    def _carry(self) -> None:
        """Where the innermost position is at its end, the one around it goes on."""
        for axis, around in zip(self.axes[:0:-1], self.axes[-2::-1]):
            self.out.line(f"if ({axis.symbol.name} == {axis.symbol.name}_end) {{")
            self.out.line(f"    {axis.symbol.name} = {axis.symbol.name}_start;")
            self.out.line(f"    ++{around.symbol.name};")
            self.out.line("}")

    def _positions(self) -> None:
        """Where along each axis the element `at` is."""
        first = self.r.part is None
        if not first:
            self.out.line("int64_t before = at;")
        for k, axis in reversed(list(enumerate(self.axes))):
            name, extent, (start, end) = axis.symbol.name, self.c.integer(axis.extent), self.c.bounds(axis)
            self.out.line(f"const int64_t {name}_start = {start}, {name}_end = {end};")
            self.out.line(f"int64_t {name} = {name}_start{'' if first else f' + before % ({extent})' if k else ' + before'};")
            if k and not first:
                self.out.line(f"before /= {extent};")

    def _width(self) -> int:
        """Real numbers in an element."""
        return 2 if self.r.accumulators[0].dtype.is_complex else 1

    def _block(self) -> int:
        """Elements that are added up by one call."""
        return SUM_BLOCKS // self._width()

    def _recursion(self) -> None:
        """Divide what is left until it is short enough, add that up, and add it to what stands left of it: no recursive calls."""
        accumulators = self.r.accumulators
        self.out.line("int64_t behind[48];")
        for a in accumulators:
            self.out.line(f"{self.c.number_type(a.dtype)} {a.name}_left[48];")
        self.out.line("int depth = 0;")
        self.out.open("for (;;)")
        self.out.line(f"for (; n > {self._block()}; ++depth) {{")
        self.out.line(f"    const int64_t half = dg_half(n, {self._width()});")
        self.out.line("    behind[depth] = n - half;")
        self.out.line("    n = half;")
        self.out.line("}")
        self._leaf(None)
        self.out.line("at += n;")
        self.out.open("for (; depth > 0 && behind[depth - 1] == 0; --depth)")
        for a in accumulators:
            self.out.line(f"{a.name}_sum = {self.kernel.combine(a, f'{a.name}_left[depth - 1]', f'{a.name}_sum')};")
        self.out.close()
        self.out.open("if (depth == 0)")
        for a in accumulators:
            self._add(a, f"{a.name}_sum")
        self.out.line("break;")
        self.out.close()
        for a in accumulators:
            self.out.line(f"{a.name}_left[depth - 1] = {a.name}_sum;")
        self.out.line("n = behind[depth - 1];")
        self.out.line("behind[depth - 1] = 0;")
        self.kernel.stop()
        self.out.close()

    def _leaf(self, length: int | None) -> None:
        """``{name}_sum``: the sum of `n` elements from `at` on, where they lie, or of a copy of them."""
        in_memory = self._in_memory()
        sources = in_memory or [(source, 1) for source in self._copies(length)]
        n = "n" if length is None else str(length)
        for a, (source, step) in zip(self.r.accumulators, sources):
            number = self.c.number_type(a.dtype)
            dtype = dtypes.float32 if a.dtype.is_half else a.dtype
            numbers = n if not dtype.is_complex else f"2 * {n}"
            far = self._is_far(a) if in_memory else "0"
            name, last = ("sum", far) if step == 1 else ("steps", str(step))
            first = f"(const {dtype.real.ctype} *){source}"
            self.out.line(f"{number} {a.name}_sum = dg_{name}_{dtype.suffix}({first}, {numbers}, {last});")

    def _is_far(self, a: Accumulator) -> str:
        """Whether all that the kernel adds up is too long for the caches, where it is in memory."""
        index: IntExpr = a.value.value[1]  # type: ignore[index]
        total = IntExpr.of(self._width())
        for axis in (*self.kernel.kernel.axes, *self.r.axes):
            if index.coefficient(axis.symbol) != 0:
                total = total * axis.extent
        return f"{self.c.integer(total)} > {FAR}" if total.constant is None else str(int(total.constant > FAR))

    def _in_memory(self) -> list[tuple[str, int]]:
        """Where the elements of each accumulator are, and how far apart, if that is known of all of them."""
        plain = not self.r.stores and len(self.axes) == 1
        if not plain or any(a.value.op != "load" or a.dtype.is_half for a in self.r.accumulators):
            return []
        found = [self._place(a) for a in self.r.accumulators]
        return [place for place in found if place is not None] if all(found) else []

    def _place(self, a: Accumulator) -> tuple[str, int] | None:
        buffer: str
        index: IntExpr
        buffer, index = a.value.value  # type: ignore[misc]
        step = index.coefficient(self.axes[-1].symbol)
        known = None if step is None else step.constant
        if not known or (known != 1 and a.dtype.is_complex):
            return None
        return self._first(buffer, index), known

    def _address(self, buffer: str, index: IntExpr) -> str | None:
        return self._first(buffer, index) if index.coefficient(self.axes[-1].symbol) == 1 else None

    def _first(self, buffer: str, index: IntExpr) -> str:
        symbol = self.axes[-1].symbol
        return f"&{self.c.element(buffer, self.c.integer(index.substitute({symbol.name: IntExpr.symbol('at')})))}"

    def _copies(self, length: int | None) -> list[str]:
        """Compute the elements, and what is stored on the way; they are added up where they are stored, or in a copy."""
        sources = [self._stored(a) for a in self.r.accumulators]
        for a, source in zip(self.r.accumulators, sources):
            if source is None:
                size = self._block() if length is None else max(1, length)
                self.out.line(f"{self.c.number_type(a.dtype)} {a.name}_copy[{size}] __attribute__((aligned(64)));")
        n = "n" if length is None else str(length)
        name = self.axes[-1].symbol.name
        divisor = one_divisor(self.axes[-1], (self.r,)) if len(self.axes) == 1 else None
        if divisor is not None and divisor > 1:
            self._copy_rows(sources, n, divisor)
        elif len(self.axes) == 1:
            self.out.open(f"for (int64_t l = 0; l < {n}; ++l)")
            self.out.line(f"const int64_t {name} = at + l;")
            self._elements(self.r, sources, "l")
            self.out.close()
        else:
            self.out.open(f"for (int64_t done = 0; done < {n};)")
            self.out.line(f"const int64_t first = {name}, rest = {n} - done, left = {name}_end - first;")
            self.out.line("const int64_t row = left < rest ? left : rest;")
            self.out.open("for (int64_t l = 0; l < row; ++l)")
            self.out.line(f"const int64_t {name} = first + l;")
            self._elements(self.r, sources, "done + l")
            self.out.close()
            self.out.line("done += row;")
            self.out.line(f"{name} += row;")
            self._carry()
            self.out.close()
        return [source or f"{a.name}_copy" for a, source in zip(self.r.accumulators, sources)]

    def _stored(self, a: Accumulator) -> str | None:
        for store in self.r.stores:
            if store.value == a.value and store.place is None and not a.dtype.is_half and len(self.axes) == 1:
                return self._address(store.buffer, store.index)
        return None

    def _copy_rows(self, sources: Sequence[str | None], n: str, size: int) -> None:
        """Along an axis that is rows of `size` elements: one row after the other, without divisions in between."""
        (axis,) = self.axes
        name = axis.symbol.name
        number = IntExpr.symbol(f"{name}_row", 0, None)
        (row,) = substitute((self.r,), {name: number * size + IntExpr.symbol(name, 0, size - 1)})
        self.out.open(f"for (int64_t done = 0; done < {n};)")
        self.out.line(f"const int64_t {name}_row = (at + done) / {size}, first = (at + done) % {size};")
        self.out.line(f"const int64_t rest = {n} - done, left = {size} - first, row = left < rest ? left : rest;")
        self.out.open("for (int64_t l = 0; l < row; ++l)")
        self.out.line(f"const int64_t {name} = first + l;")
        self._elements(row, sources, "done + l")  # type: ignore[arg-type]
        self.out.close()
        self.out.line("done += row;")
        self.out.close()

    def _elements(self, r: Reduce, sources: Sequence[str | None], place: str) -> None:
        scope = Scope()
        for a, source, text in zip(r.accumulators, sources, self.c.values([a.value for a in r.accumulators], scope, r.stores)):
            if source is None:
                self.out.line(f"{a.name}_copy[{place}] = {text};")
        self.c.block(r.stores, scope)

    # -- the parts of one ---------------------------------------------------------------------------------------------
    def _tree(self) -> None:
        (axis,) = self.axes
        count = axis.extent.constant
        assert count is not None
        self.out.line(f"int64_t at = {self.c.integer(axis.start)};")
        sources = self._copies(count)
        self.out.open(f"for (int w = 1; w < {count}; w *= 2)")
        self.out.open(f"for (int l = 0; l < {count}; l += 2 * w)")
        for a, source in zip(self.r.accumulators, sources):
            self.out.line(f"{source}[l] = {self.kernel.combine(a, f'{source}[l]', f'{source}[l + w]')};")
        self.out.close()
        self.out.close()
        for a, source in zip(self.r.accumulators, sources):
            self._add(a, f"{source}[0]")


def is_at_most(extent: IntExpr, bound: int) -> bool:
    """Whether it is known not to be longer."""
    known = longest(extent)
    return known is not None and known <= bound


def lane_plan(r: Reduce) -> int:
    """How many lanes a reduction has, whose order is free (0: none, elements are taken one by one)."""
    if not r.axes or r.walk is not None or any(a.is_position for a in r.accumulators):
        return 0
    assert not any(a.kind in ("sum", "prod") and a.dtype.is_inexact for a in r.accumulators), "the order of these is NumPy's"
    extent = longest(r.axes[-1].extent)
    if (extent or SERIAL_EXTENT) < SERIAL_EXTENT or any(map(_in_order, r.accumulators)):
        return 0
    widest = max(_as_wide(a.dtype) for a in r.accumulators)
    lanes = LANE_BYTES // widest
    while extent is not None and lanes > 4 and lanes * 4 > extent:
        lanes //= 2
    return lanes


def _takes_twice(r: Reduce) -> bool:
    """Whether it makes no difference that elements are taken twice."""
    kinds = ("max", "min", "any", "all", "all_bits", "any_bits")
    return not r.stores and all(a.kind in kinds and not a.dtype.is_complex for a in r.accumulators)


def _decided(a: Accumulator) -> str:
    """The condition under which further elements change nothing, if there is one."""
    if not a.dtype.is_bool:
        return ""
    return a.name if a.kind in ("any", "max", "any_bits") else f"!{a.name}"


def _extreme(a: Accumulator) -> Accumulator:
    """What a position is of."""
    return replace(a, name=f"{a.name}_extreme", kind=EXTREMES[a.kind], dtype=a.value.dtype)


def _searched(a: Accumulator, axis: Axis) -> bool:
    """Whether the extreme is found first, and then where it is."""
    return lane_plan(Reduce((axis,), (_extreme(a),))) > 0


def _as_wide(dtype: DType) -> int:
    """Bytes of a value as it is computed with."""
    return max(4, dtype.itemsize) if dtype.is_float else dtype.itemsize


def _in_order(a: Accumulator) -> bool:
    """Whether the order of the elements tells: which NaN stays, and what infinities become in a product."""
    return a.dtype.is_complex and a.kind in ("prod", "max", "min")
