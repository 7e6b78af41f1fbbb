"""Print the entry of a C program: it runs the steps in order, and stops where a check fails or a signal waits."""

from __future__ import annotations

from collections.abc import Sequence

from dynagraph.backends.c.convolutions import print_convolution, print_epilogue
from dynagraph.backends.c.costs import inner_extent, kernel_cost, launch_size
from dynagraph.backends.c.merge_functions import Call
from dynagraph.backends.c.pools import print_pool
from dynagraph.backends.c.program import Program
from dynagraph.backends.toolchain import FUNCTIONS
from dynagraph.driver import deadline
from dynagraph.ir import dtypes
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import ExternalCall, Kernel, LibraryCall, Operand, RoutineCall, Step, stored_buffers
from dynagraph.ir.optable.convolution import ROUTINES
from dynagraph.ir.passes.finish import is_own_product
from dynagraph.ir.passes.memory_plan import step_buffers
from dynagraph.ir.shapes import Dim, expr_of, same_dim

ENTRY = "dg_entry"
PARALLEL_NANOSECONDS = 20000.0  # estimated serial time above which a kernel goes to the thread pool
STEPS_OF_A_LOOP = 4  # for which a compiler takes as long as for a loop
PART_NANOSECONDS = 5e6  # ... of the parts between which a signal stops it


class EntryPrinter:
    """The entry function."""

    def __init__(self, p: Program):
        self.p, self.c, self.out = p, p.c, p.out
        self.n_external_calls = 0
        self.may_stop = True  # no step so far writes to an input, or has an effect

    def run(self) -> None:
        self.out.line()
        if self.p.in_parts:
            weights = [*self.p.weights, len(self.p.program.steps) // STEPS_OF_A_LOOP]
            self.out.line(f"{FUNCTIONS} {' '.join(map(str, weights))} */")
            self.out.line(f"#if !DG_IS_OTHERS({len(self.p.weights)})")
        self.out.open(f"DG_ENTRY int {ENTRY}(void *const *buffers, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)")
        self.out.line("(void)buffers; (void)sizes; (void)rt; (void)stop;")
        self.p.size_arguments()
        checked = self.p.program.n_checks == 0
        for step in self.p.program.steps:
            deadline.check()
            commits = self._writes_input(step) or (isinstance(step, ExternalCall) and step.has_effect)
            self.may_stop = self.may_stop and not commits
            if not checked and commits:
                self._refuse()
                checked = True
            if isinstance(step, Kernel):
                if step in self.p.calls:
                    self._launch_shared(step, self.p.calls[step])
                else:
                    self._launch(step)
            elif isinstance(step, ExternalCall):
                self._external_call(step)
            elif isinstance(step, RoutineCall):
                self._routine(step)
            elif is_own_product(step):
                self._own_product(step)
            else:
                self._library_call(step)
        if not checked:
            self._refuse()
        self.out.line("return 0;")
        self.out.close()
        if self.p.in_parts:
            self.out.line("#endif")

    def _writes_input(self, step: Step) -> bool:
        written = stored_buffers(step.body) if isinstance(step, Kernel) else step_buffers(step)[1]
        return any(self.p.program.buffers[name].role == "input" for name in written)

    def _refuse(self) -> None:
        """End here where a check failed: nothing of the caller's is changed yet."""
        first = self.p.n_inputs + self.p.n_outputs - self.p.program.n_checks
        failed = " || ".join(f"*(_Bool *)buffers[{first + k}]" for k in range(self.p.program.n_checks))
        self.out.line(f"if ({failed})")
        self.out.line("    return DG_BAILED_OUT;")

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
        memory = [f"({b.dtype.ctype} *){self.p.address(b)}" for b in map(self.p.program.buffers.__getitem__, call.buffers)]
        reals = [self.c.literal(x, dtype) for x, (_, dtype) in zip(call.reals, call.shared.reals)]
        numbers = [*(self.c.literal(n, dtypes.int64) for n in call.numbers), *self.p.symbols]
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

    def _own_product(self, call: LibraryCall) -> None:
        """A product of matrices on the thread pool (`dynagraph/_core/products`)."""
        (left, right), out = call.operands, call.out
        self.out.line(f"/* {call.comment} */")
        self._stop()
        self.out.open("")
        fields = {"c": self._matrix(out, ()), "is_double": str(int(out.dtype is dtypes.float64)), "axes": str(len(out.shape) - 2)}
        sizes = {"m": out.shape[-2], "n": out.shape[-1], "k": left.shape[-1]}
        for name, operand in (("a", left), ("b", right)):
            fields[name] = self._matrix(operand, ())
            sizes |= {f"{name}_row": operand.strides[-2], f"{name}_column": operand.strides[-1]}
            own = len(operand.shape) - 2
            steps = [0 if same_dim(n, 1) else step for n, step in zip(operand.shape[:own], operand.strides)]
            fields[f"{name}_strides"] = self._numbers([0] * (len(out.shape) - 2 - own) + steps)
        fields |= {"shape": self._numbers(out.shape[:-2]), **{name: self.c.integer(expr_of(n)) for name, n in sizes.items()}}
        if call.then is not None:
            print_epilogue(self.p, call.then)
            fields["then"] = "&then"
        text = ", ".join(f".{name} = {value}" for name, value in fields.items())
        stop = "stop" if self.may_stop else "&dg_never"
        self.out.line(f"const int status = rt->multiply(rt, &(const dg_matrices){{{text}}}, {stop});")
        self.out.line("if (status)")
        self.out.line("    return status;")
        self.out.close()

    def _numbers(self, dims: Sequence[Dim]) -> str:
        return f"{{{', '.join(self.c.integer(expr_of(n)) for n in dims) or '0'}}}"

    def _library_call(self, call: LibraryCall) -> None:
        if call.routine in ROUTINES:
            self._convolution(call)
            return
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

    def _convolution(self, call: LibraryCall) -> None:
        self.out.line(f"/* {call.comment} */")
        self._stop()
        self.out.open("")
        print_convolution(self.p, call, "stop" if self.may_stop else "&dg_never")
        self.out.line("if (status)")
        self.out.line("    return status;")
        self.out.close()

    def _routine(self, step: RoutineCall) -> None:
        self.out.line(f"/* {step.comment} */")
        self._stop()
        self.out.open("")
        print_pool(self.p, step, "stop" if self.may_stop else "&dg_never")
        self.out.line("if (status)")
        self.out.line("    return status;")
        self.out.close()

    def _external_call(self, step: ExternalCall) -> None:
        """A call of a Python function, after which the program may bail out."""
        self.out.line(f"/* {step.comment} */")
        self._stop()
        self.out.open("")
        self._arrays("operands", step.operands)
        self._arrays("results", step.outs)
        program = f"buffers[{self.p.n_inputs + self.p.n_outputs + 1}]"
        self.out.line(
            f"const int status = rt->external_call({program}, {self.n_external_calls}, sizes, {len(step.operands)}, operands, "
            f"{len(step.outs)}, results);"
        )
        self.out.line("if (status)")
        self.out.line("    return status;")
        self.out.close()
        self.n_external_calls += 1

    def _arrays(self, name: str, operands: Sequence[Operand]) -> None:
        for k, operand in enumerate(operands):
            for what, sizes, unit in (("shape", operand.shape, 1), ("strides", operand.strides, operand.dtype.itemsize)):
                numbers = ", ".join(self.c.integer(expr_of(d) * unit) for d in sizes) or "0"
                self.out.line(f"const int64_t {name}_{k}_{what}[] = {{{numbers}}};")
        arrays = [
            f"{{({o.dtype.ctype} *){self.p.address(self.p.program.buffers[o.buffer])} + {self.c.integer(o.offset)}, "
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
            f"({operand.dtype.ctype} *){self.p.address(self.p.program.buffers[operand.buffer])} + {self.c.integer(offset)}"
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
