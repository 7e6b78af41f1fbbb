"""CUDA programs: a graph's kernels as a callable of device arrays."""

from __future__ import annotations

import ctypes
import functools
import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph._core._dispatch import Launcher, Product
from dynagraph.array_libraries import ArrayLibrary
from dynagraph.backends.cuda.checks import Checks
from dynagraph.backends.cuda.cublas import ALIGNMENT, PLAIN, CublasLt, Finish, Matrices
from dynagraph.backends.cuda.driver import Driver, LaunchError, LaunchFunction, Loaded, launch_error
from dynagraph.backends.cuda.prelude import prelude_for
from dynagraph.backends.cuda.printer import MOST_BLOCKS, CudaSource, CudaStep, Launch, Variant, print_program
from dynagraph.backends.cuda.replay import Prepared, Replayer, Stage
from dynagraph.backends.cuda.schedule import PACK_BYTES
from dynagraph.backends.cuda.style import INT32_REACH
from dynagraph.driver.forks import Locked
from dynagraph.driver.signals import is_of_signal
from dynagraph.errors import BackendError, CompilerError, KernelError, make_final
from dynagraph.ir.external_calls import selected
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.interpreter import bind_sizes, concrete, interpret
from dynagraph.ir.intexpr import IntExpr, apply
from dynagraph.ir.loops import Buffer, Epilogue, ExternalCall, Kernel, LibraryCall, LoopProgram, Operand, stored_buffers
from dynagraph.ir.passes.memory_plan import step_buffers
from dynagraph.ir.shapes import SymInt, expr_of, numel
from dynagraph.ir.size_programs import size_program

_log = logging.getLogger("dynagraph.kernels")
Sizes = Mapping[str, int]
WORKSPACE_ALIGNMENT = 256  # bytes: of what products need besides their operands
MOST_PRODUCTS = 64  # plans that are kept of each product, one for each tuple of sizes
RECORD = "record"  # in place of a buffer's name: what checked kernels note is wrong (see dg_checked in support.h)


def complete_source(source: CudaSource) -> str:
    """The CUDA file: what it uses of the prelude, then the kernels."""
    return "\n".join([prelude_for(source.functions), source.text])


@dataclass(frozen=True)
class Code:
    """A variant of a program, loaded on one device."""

    source: CudaSource
    loaded: Loaded
    constants: Mapping[str, Any]  # by buffer: arrays on the device


class DeviceProgram:
    """Runs a graph's kernels on the device where its inputs lie, on the current stream, in memory of the library's pool.

    `host` computes those outputs that are NumPy scalars, which `scalars` names; `graph` computes the others.  Variants are compiled
    when a call first wants them.  `checked`: each kernel's accesses to memory are checked, and each kernel is waited for.
    `replays`: calls that come again are launched as CUDA graphs, if they are not checked.  `cublas` multiplies matrices; without
    it, and what it does not support, functions of the library do.  `checks` asks for the last output where the graph has a check.
    """

    def __init__(
        self,
        graph: Graph,
        program: LoopProgram,
        host: Graph,
        scalars: Sequence[bool],
        library: ArrayLibrary,
        driver: Driver,
        mode: str,
        checked: bool = False,
        replays: bool = False,
        cublas: CublasLt | None = None,
        checks: Checks | None = None,
    ):
        self.graph, self.program, self.host, self.scalars = graph, program, host, tuple(scalars)
        self.library, self.driver, self.mode, self.checked = library, driver, mode, checked
        self.source = print_program(program, Variant(checked=checked))  # of the most likely variant
        self.launcher = Launcher()
        self.replayer = Replayer(library, graph.into, self._prepare_again) if replays else None
        self.cublas, self.checks = cublas, checks
        self._products: OrderedDict[tuple[int, int, bool, tuple[int, ...]], Product | None] = OrderedDict()
        self._launch = LaunchFunction(driver.launch_address)
        self._codes: dict[tuple[int, Variant], Code] = {}
        self._refused: dict[tuple[int, Variant], CompilerError] = {}
        self._locked = Locked()
        self._outputs = [b for b in program.buffers.values() if b.role == "output"]
        counts = [step.n for step in self.source.steps if isinstance(step, Launch)]
        self._first_write = _first_write(program)
        self._divisions = self._divided()
        self._calls = {k: s for k, s in enumerate(self.source.steps) if isinstance(s, LibraryCall)} if cublas is not None else {}
        self._read_by = {which: tuple(sorted(_symbols_of(step))) for which, step in self._calls.items()}
        made = [b.size for b in program.buffers.values() if b.role in ("output", "temp", "constant")]
        self._sizes = [*made, *counts, *(_reach_of(node) for node in graph.placeholders)]

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        sizes = bind_sizes(self.graph, inputs)
        arrays: list[Any] = [x for x in inputs if isinstance(x, self.library.array_type)]
        cuda: Any = self.library.module.cuda
        try:
            device = self.library.device_of(arrays[0]) if arrays else self.driver.device()
            numbers = iter(interpret(self.host, inputs) if any(self.scalars) else ())
            with cuda.Device(device):
                outputs = iter(self._run(inputs, sizes, device))
            results = tuple(next(numbers)[()] if scalar else next(outputs) for scalar in self.scalars)
            return results if self.checks is None else (*results[:-1], False)  # else it has not come here
        except Exception as error:
            if self._first_write < len(self.source.steps) and is_of_signal(error):
                make_final(error)  # it may have come after the launches
            raise

    def _run(self, inputs: Sequence[Any], sizes: Sizes, device: int) -> list[Any]:
        outputs, _, stages = self._prepare_call(inputs, sizes, device)
        self._start_all(stages)
        return outputs

    def _prepare_again(self, inputs: Sequence[Any]) -> Prepared:
        """For a call like one that has been run, on the current device; Python numbers are as they were passed."""
        arrays = [x if hasattr(x, "dtype") else np.asarray(x) for x in inputs]
        return self._prepare_call(arrays, bind_sizes(self.graph, arrays), self.driver.device())

    def _prepare_call(self, inputs: Sequence[Any], sizes: Sizes, device: int) -> Prepared:
        xp: Any = self.library.module
        variant = self._variant(inputs, sizes)
        code = self._code(variant, device)
        arrays: dict[str, Any] = dict(code.constants)
        for buffer in self.program.buffers.values():
            if buffer.role == "input":
                arrays[buffer.name] = inputs[buffer.position]
        outputs: list[Any] = []
        for node, into, buffer in zip(self.graph.outputs, self.graph.into, self._outputs):
            output = inputs[into] if into is not None else xp.empty(concrete(node.shape, sizes), node.dtype.numpy)
            arrays[buffer.name] = output
            outputs.append(output)
        products = {which: self._product(which, device, variant.packs, sizes) for which in self._calls}
        own = max((product.workspace for product in products.values() if product is not None), default=0)
        nbytes = self.program.workspace.evaluate(sizes) + (own + WORKSPACE_ALIGNMENT - 1 if own else 0)
        if nbytes:
            arrays[""] = xp.empty(nbytes, np.uint8)
        if self.checked:
            arrays[RECORD] = xp.zeros(4, np.int64)
        start = functools.partial(self._start_steps, code, arrays, sizes, variant, products)
        stages = tuple(
            Stage(
                functools.partial(start, steps) if steps else None,
                None if then is None else functools.partial(then, int(outputs[-1].data.ptr)),
            )
            for steps, then in self._divisions
        )
        return outputs, arrays.get(""), stages

    def _divided(self) -> tuple[tuple[range, Callable[[int], None] | None], ...]:
        """The numbers of steps, and what is done with the check behind them: asked for where it has been stored, waited for before
        anything of the caller's is written, or at the end.
        """
        n, checks = len(self.source.steps), self.checks
        if checks is None:
            return ((range(n), None),)
        stored = 1 + max(_writing(self.program, {self._outputs[-1].name}))
        assert stored <= self._first_write  # see passes/inplace.py
        if checks.later:
            return (range(stored), checks.ask), (range(stored, n), None)
        return (range(stored), checks.ask), (range(stored, self._first_write), checks.settle), (range(self._first_write, n), None)

    def _start_all(self, stages: Sequence[Stage]) -> None:
        for stage in stages:
            if stage.start is not None:
                stage.start()
            if stage.then is not None:
                stage.then()

    def _start_steps(
        self,
        code: Code,
        arrays: Mapping[str, Any],
        sizes: Sizes,
        variant: Variant,
        products: Mapping[int, Product | None],
        steps: range,
    ) -> None:
        stream, begun = self.driver.stream(), steps.start
        try:
            for which in steps:
                begun, step = which, code.source.steps[which]
                product = products.get(which)
                if isinstance(step, Launch):
                    self._start(step, code, arrays, sizes, variant, stream)
                elif product is not None:
                    self._start_product(self._calls[which], product, arrays, sizes, stream)
                else:
                    self._call(step, arrays, sizes)
        except Exception as error:
            self._final_behind_writes(begun, error)
            raise

    def _final_behind_writes(self, which: int, error: Exception) -> None:
        """What a step raises is the caller's where an argument has been written to: the plain run would write to it again."""
        begun = not isinstance(error, LaunchError)
        if which > self._first_write or (begun and which == self._first_write):
            make_final(error)

    # -- variants -----------------------------------------------------------------------------------------------------
    def _variant(self, inputs: Sequence[Any], sizes: Sizes) -> Variant:
        kind = self.library.array_type
        by_value = frozenset(k for k, x in enumerate(inputs) if not isinstance(x, kind))
        given: list[Any] = [x for x in inputs if isinstance(x, kind)]
        packs = all(x.data.ptr % PACK_BYTES == 0 for x in given)
        reach = max((size.evaluate(sizes) for size in self._sizes), default=0)
        for x in given:
            furthest = sum((n - 1) * abs(s) // x.itemsize for n, s in zip(x.shape, x.strides))
            reach = max(reach, x.size, furthest if x.size else 0)
        return Variant(reach > INT32_REACH, packs, by_value, self.checked)

    def _code(self, variant: Variant, device: int) -> Code:
        code = self._codes.get((device, variant))
        if code is None:
            with self._locked.lock:
                code = self._codes.get((device, variant))
                if code is None:
                    code = self._codes[device, variant] = self._load_once(variant, device)
                    usual = not variant.wide and variant.packs and not variant.checked
                    if usual and not any(self.scalars) and not self.launcher.ready:
                        self._prepare(code, variant, device)
        return code

    def _load_once(self, variant: Variant, device: int) -> Code:
        """What was refused stays refused: later calls run eagerly without asking the compiler again."""
        if (device, variant) in self._refused:
            raise self._refused[device, variant].with_traceback(None)
        try:
            return self._load(variant, device)
        except CompilerError as error:
            _log.warning("%s runs eagerly: its kernels were not compiled: %s", self.graph.name, error)
            self._refused[device, variant] = error
            raise

    def _load(self, variant: Variant, device: int) -> Code:
        xp: Any = self.library.module
        source = self.source if variant == Variant(checked=self.checked) else print_program(self.program, variant)
        kernels = [step.kernel for step in source.steps if isinstance(step, Launch)]
        loaded = self.driver.load(complete_source(source), kernels, device, self.mode)
        constants = {b.name: xp.asarray(b.data) for b in self.program.buffers.values() if b.role == "constant"}
        if constants:  # other streams will read them
            xp.cuda.get_current_stream().synchronize()
        return Code(source, loaded, constants)

    def _prepare(self, code: Code, variant: Variant, device: int) -> None:
        """Let the dispatcher launch this variant by itself."""
        program, graph = self.program, self.graph
        names = {s.name for size in (*self._sizes, program.workspace) for s in size.symbols()}
        names |= {name for step in code.source.steps if isinstance(step, Launch) for name in step.sizes}
        names |= {s.name for node in graph.outputs for dim in node.shape for s in expr_of(dim).symbols()}
        steps = code.source.steps
        names |= {name for step in steps if not isinstance(step, Launch) for name in _symbols_of(step)}
        symbols = sorted(int(name[1:]) for name in names)
        # a launch of a graph does not save anything where there is but one kernel; what other functions of the library's keep for
        # themselves, such as plans of Fourier transforms, may be gone when a graph needs it
        recordable = not any(isinstance(s, ExternalCall) for s in steps) and not (len(steps) == 1 and isinstance(steps[0], Launch))
        replayer = self.replayer if recordable else None
        packed = tuple(self._all_packed(code, variant, device))
        self.launcher.prepare(
            launch_address=self.driver.launch_address,
            n_inputs=len(graph.placeholders),
            n_symbols=symbols[-1] + 1 if symbols else 0,
            values=tuple((k, graph.placeholders[k].dtype.itemsize) for k in sorted(variant.by_value)),
            results=tuple(
                (node.dtype.numpy, tuple(size_program(expr_of(d)) for d in node.shape), -1 if into is None else into)
                for node, into in zip(graph.outputs, graph.into)
            ),
            workspace=size_program(program.workspace),
            launches=tuple(row for _, row in packed),
            sizes=tuple(size_program(size) for size in self._sizes if size.constant is None),
            reach=INT32_REACH,
            most_blocks=MOST_BLOCKS,
            device=device,
            array_type=self.library.array_type,
            byte_type=np.dtype(np.uint8),
            current_device=self.driver.device,
            current_stream=self.driver.stream,
            on_error=functools.partial(self._refuse_launch, tuple(which for which, _ in packed)),
            keepalive=code,
            symbols=tuple(symbols),
            replay=replayer,
            replay_failed=replayer.failed if replayer is not None else None,
        )

    def _all_packed(self, code: Code, variant: Variant, device: int) -> Iterator[tuple[int, Any]]:
        """What the launcher does: the numbers of steps, and these as it takes them; what is done with a check has none."""
        for steps, then in self._divisions:
            yield from ((which, self._packed(which, code.source.steps[which], code, variant, device)) for which in steps)
            if then is not None:
                yield -1, functools.partial(_with_check, then)

    def _packed(self, which: int, step: CudaStep, code: Code, variant: Variant, device: int) -> Any:
        """A step as the dispatcher's launcher takes it."""
        if not isinstance(step, Launch):
            call = functools.partial(self._call_now, which, step)
            if which not in self._calls:
                return call
            find = functools.partial(self._product_now, which, device)
            symbols = tuple(int(name[1:]) for name in self._read_by[which])
            return call, find, symbols, tuple(self._matrix(o, code, variant) for o in _operands_of(self._calls[which]))
        parameters = [self._parameter(self.program.buffers[name], code, variant) for name in step.buffers]
        parameters += [("size", int(name[1:])) for name in step.sizes]
        return code.loaded.functions[step.kernel], size_program(step.n), step.per_block, step.threads, tuple(parameters)

    def _parameter(self, buffer: Buffer, code: Code, variant: Variant) -> tuple[str, Any]:
        if buffer.role == "constant":
            return "constant", int(code.constants[buffer.name].data.ptr)
        if buffer.role == "temp":
            return "temp", size_program(self.program.offsets[buffer.name])
        is_value = buffer.role == "input" and buffer.position in variant.by_value
        return "value" if is_value else buffer.role, buffer.position

    def _matrix(self, operand: Operand | None, code: Code, variant: Variant) -> tuple[str, Any, Any] | None:
        if operand is None:
            return None
        kind, what = self._parameter(self.program.buffers[operand.buffer], code, variant)
        return kind, what, size_program(operand.offset * operand.dtype.itemsize)

    def _product_now(self, which: int, device: int, sizes: Sequence[int]) -> Product | None:
        return self._product(which, device, True, {f"s{k}": size for k, size in enumerate(sizes)})

    def _call_now(
        self,
        which: int,
        step: LibraryCall | ExternalCall,
        inputs: Sequence[Any],
        results: Sequence[Any],
        workspace: Any,
        sizes: Sequence[int],
    ) -> None:
        try:
            arrays = {b.name: inputs[b.position] for b in self.program.buffers.values() if b.role == "input"}
            arrays |= {b.name: result for b, result in zip(self._outputs, results)}
            self._call(step, {**arrays, "": workspace}, {f"s{k}": size for k, size in enumerate(sizes)})
        except Exception as error:
            self._final_behind_writes(which, error)
            raise

    def _refuse_launch(self, numbers: Sequence[int], at: int, number: int) -> None:
        which = numbers[at]
        try:
            self._refuse(self.source.steps[which], number)
        except Exception as error:
            self._final_behind_writes(which, error)
            raise

    def _refuse(self, step: CudaStep, error: int) -> None:
        if isinstance(step, Launch):
            raise launch_error(self.driver, step.kernel, error)
        assert self.cublas is not None
        why = self.cublas.describe(error)
        raise LaunchError(f"a product was not started: cuBLASLt's status {error}, {why}: {step.comment}")

    # -- products -----------------------------------------------------------------------------------------------------
    def _product(self, which: int, device: int, packs: bool, sizes: Sizes) -> Product | None:
        """What runs a product of these sizes on the current device; None: a function of the library's does."""
        assert self.cublas is not None
        key = which, device, packs, tuple(sizes[name] for name in self._read_by[which])
        with self._locked.lock:
            if key in self._products:
                self._products.move_to_end(key)
                return self._products[key]
        step = self._calls[which]
        (left, right), out = (self._matrices(o, sizes, packs) for o in step.operands), self._matrices(step.out, sizes, packs)
        finish = PLAIN if step.epilogue is None else self._finish(step.epilogue, sizes, packs)
        try:
            made = self.cublas.plan(device, step.out.dtype, left, right, out, finish, self.mode == "fast")
        except BackendError as error:
            made = None
            _log.warning("%s: %s.matmul does what cuBLASLt should: %s", self.graph.name, self.library.name, error)
        else:
            if made is None:
                what = f"{step.out.dtype} of {left.shape} by {right.shape}"
                _log.info("%s: cuBLASLt does not compute %s, %s.matmul does", self.graph.name, what, self.library.name)
        with self._locked.lock:
            self._products[key] = made
            if len(self._products) > MOST_PRODUCTS * len(self._calls):
                self._products.popitem(last=False)
        return made

    def _matrices(self, operand: Operand, sizes: Sizes, packs: bool) -> Matrices:
        itemsize = operand.dtype.itemsize
        alignment = ALIGNMENT if packs or self.program.buffers[operand.buffer].role != "input" else itemsize
        strides = tuple(expr_of(s).evaluate(sizes) for s in operand.strides)
        return Matrices(concrete(operand.shape, sizes), strides, math.gcd(alignment, operand.offset.evaluate(sizes) * itemsize))

    def _finish(self, epilogue: Epilogue, sizes: Sizes, packs: bool) -> Finish:
        addend, bias = (None if o is None else self._matrices(o, sizes, packs) for o in (epilogue.addend, epilogue.bias))
        return Finish(epilogue.scale, addend, epilogue.weight, bias, epilogue.activation)

    def _start_product(
        self, step: LibraryCall, product: Product, arrays: Mapping[str, Any], sizes: Sizes, stream: int
    ) -> None:
        addresses = tuple(0 if o is None else self._begin(o, arrays, sizes) for o in _operands_of(step))
        own = 0
        if product.workspace:
            behind = int(arrays[""].data.ptr) + self.program.workspace.evaluate(sizes)
            own = -(-behind // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        error = product.run(addresses, own, stream)
        if error:
            self._refuse(step, error)

    def _begin(self, operand: Operand, arrays: Mapping[str, Any], sizes: Sizes) -> int:
        base = self._address(self.program.buffers[operand.buffer], arrays, sizes)
        return base + operand.offset.evaluate(sizes) * operand.dtype.itemsize

    # -- steps --------------------------------------------------------------------------------------------------------
    def _start(self, step: Launch, code: Code, arrays: Mapping[str, Any], sizes: Sizes, variant: Variant, stream: int) -> None:
        n = step.n.evaluate(sizes)
        if n == 0:
            return
        values: list[Any] = []
        extents: dict[int, tuple[int, int]] = {}
        for k, name in enumerate(step.buffers):
            buffer = self.program.buffers[name]
            if buffer.role == "input" and buffer.position in variant.by_value:
                number = np.asarray(arrays[name], buffer.dtype.numpy)
                values.append((ctypes.c_char * number.nbytes).from_buffer_copy(number.tobytes()))
            else:
                values.append(ctypes.c_void_p(self._address(buffer, arrays, sizes)))
                if variant.checked:
                    extents[k] = self._extent(buffer, arrays, sizes)
        values += [ctypes.c_int64(sizes[symbol]) for symbol in step.sizes]
        if variant.checked:
            values += [ctypes.c_int64(edge) for extent in extents.values() for edge in extent]
            values.append(ctypes.c_void_p(int(arrays[RECORD].data.ptr)))
        parameters = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        grid = min(-(-n // step.per_block), MOST_BLOCKS)
        function = code.loaded.functions[step.kernel]
        error = self._launch(function, grid, 1, 1, step.threads, 1, 1, 0, stream, ctypes.addressof(parameters), None)
        if error:
            self._refuse(step, error)
        if variant.checked:
            which, index, *_ = arrays[RECORD].get().tolist()  # when the kernel has ended
            if which:
                error = self._outside(step, which - 1, index, extents[which - 1])
                make_final(error)
                raise error

    def _address(self, buffer: Buffer, arrays: Mapping[str, Any], sizes: Sizes) -> int:
        if buffer.role == "temp":
            memory = arrays.get("")  # there is none where all temporaries are empty
            return (0 if memory is None else int(memory.data.ptr)) + self.program.offsets[buffer.name].evaluate(sizes)
        return int(arrays[buffer.name].data.ptr)

    def _extent(self, buffer: Buffer, arrays: Mapping[str, Any], sizes: Sizes) -> tuple[int, int]:
        """The first and the end of the indices that a buffer's memory has, seen from its address."""
        if buffer.role == "temp":
            return 0, buffer.size.evaluate(sizes)
        array = arrays[buffer.name]
        if not array.size:
            return 0, 0
        reaches = [(n - 1) * stride // array.itemsize for n, stride in zip(array.shape, array.strides)]
        return sum(r for r in reaches if r < 0), 1 + sum(r for r in reaches if r > 0)

    def _outside(self, step: Launch, number: int, index: int, extent: tuple[int, int]) -> KernelError:
        """What a checked kernel has noted, in words."""
        name = self._called(self.program.buffers[step.buffers[number]])
        low, end = extent
        has = f"has elements {low} to {end - 1}" if low < end else "has no elements"
        return KernelError(
            f"kernel {step.kernel} reaches for element {index} of {name}, which {has}: {step.comment}. This is a bug of "
            "dynagraph's: please report it; under dg.disable() the function runs eagerly"
        )

    def _called(self, buffer: Buffer) -> str:
        """A buffer in the user's words, where there are any."""
        if buffer.role in ("temp", "constant"):
            return f"{buffer.role} {buffer.name}"
        into = buffer.position if buffer.role == "input" else self.graph.into[buffer.position]
        if into is None:
            return f"result {self.graph.outputs[buffer.position].name}"
        return f"argument {self.graph.placeholders[into].name}"

    def _call(self, step: LibraryCall | ExternalCall, arrays: Mapping[str, Any], sizes: Sizes) -> None:
        """A function of the library's, between kernels."""
        if isinstance(step, LibraryCall):
            self._multiply(step, arrays, sizes)
            return
        call = step.call.map(lambda value: concrete(value, sizes))
        value = call.run(self.library.module, [self._operand(o, arrays, sizes) for o in step.operands])
        for result, out in zip(step.results, (self._operand(o, arrays, sizes) for o in step.outs)):
            given = selected(value, result)
            if given.dtype != out.dtype or given.shape != out.shape:
                raise BackendError(f"{call.function} gave {given.dtype}{list(given.shape)}, not {out.dtype}{list(out.shape)}")
            out[...] = given

    def _multiply(self, step: LibraryCall, arrays: Mapping[str, Any], sizes: Sizes) -> None:
        xp: Any = self.library.module
        out, left, right = (self._operand(o, arrays, sizes) for o in (step.out, *step.operands))
        if not out.size:
            return
        if step.epilogue is None:
            xp.matmul(left, right, out=out)
        else:
            addend, bias = (
                None if o is None else self._operand(o, arrays, sizes) for o in (step.epilogue.addend, step.epilogue.bias)
            )
            out[...] = finished(xp, xp.matmul(left, right), step.epilogue, addend, bias)

    def _operand(self, operand: Operand, arrays: Mapping[str, Any], sizes: Sizes) -> Any:
        """A matrix, or many, as an array of the library's."""
        shape = concrete(operand.shape, sizes)
        if 0 in shape:  # of temporaries there may be no memory
            return self.library.module.empty(shape, operand.dtype.numpy)
        buffer = self.program.buffers[operand.buffer]
        itemsize = operand.dtype.itemsize
        offset = operand.offset.evaluate(sizes) * itemsize
        owner = arrays["" if buffer.role == "temp" else buffer.name]
        if buffer.role == "temp":
            offset += self.program.offsets[buffer.name].evaluate(sizes)
        strides = tuple(expr_of(s).evaluate(sizes) * itemsize for s in operand.strides)
        return self.library.module.ndarray(shape, operand.dtype.numpy, owner.data + offset, strides)


def finished(xp: Any, product: Any, epilogue: Epilogue, addend: Any, bias: Any) -> Any:
    """What an epilogue makes of a product, by functions of `xp`."""
    number = product.dtype.type
    value = product if epilogue.scale == 1.0 else product * number(epilogue.scale)
    if addend is not None:
        value = value + (addend if epilogue.weight == 1.0 else addend * number(epilogue.weight))
    if bias is not None:
        value = value + bias
    if epilogue.activation == "relu":
        return xp.maximum(value, number(0))
    if epilogue.activation == "gelu":
        inner = number(math.sqrt(2 / math.pi)) * (value + number(0.044715) * value * value * value)
        return number(0.5) * value * (number(1) + xp.tanh(inner))
    return value


def _operands_of(step: LibraryCall) -> tuple[Operand | None, ...]:
    """In the order of `Product.run`."""
    left, right = step.operands
    addend, bias = (None, None) if step.epilogue is None else (step.epilogue.addend, step.epilogue.bias)
    return right, left, step.out if addend is None else addend, step.out, bias


def _first_write(program: LoopProgram) -> int:
    """The number of the first step that writes to an argument; that of steps where none does."""
    inputs = {b.name for b in program.buffers.values() if b.role == "input"}
    return next(_writing(program, inputs), len(program.steps))


def _writing(program: LoopProgram, names: Set[str]) -> Iterator[int]:
    """The numbers of the steps that write to one of some buffers."""
    written = (stored_buffers(s.body) if isinstance(s, Kernel) else step_buffers(s)[1] for s in program.steps)
    return (k for k, stored in enumerate(written) if stored & names)


def _with_check(then: Callable[[int], None], inputs: Any, results: Sequence[Any], workspace: Any, sizes: Any) -> None:
    """As the launcher calls a step that is Python's: the check is the last result."""
    then(int(results[-1].data.ptr))


def _reach_of(node: Node) -> IntExpr:
    """No index into an input's memory is further from 0 than this."""
    if node.meta.strides is None:
        return expr_of(numel(node.shape))
    steps = (expr_of(stride) for stride in node.meta.strides)
    return sum(((expr_of(dim) - 1) * apply("max", step, -step) for dim, step in zip(node.shape, steps)), IntExpr.of(1))


def _symbols_of(step: LibraryCall | ExternalCall) -> set[str]:
    """The symbols in the shapes and places of a call's operands, and in its arguments."""
    outs = step.outs if isinstance(step, ExternalCall) else (step.out,)
    read = step.operands if isinstance(step, ExternalCall) else step.read
    numbers: list[Any] = [n for o in (*outs, *read) for n in (o.offset, *o.shape, *o.strides)]
    if isinstance(step, ExternalCall):
        step.call.map(lambda value: numbers.append(value) if isinstance(value, SymInt) else None)
    return {s.name for n in numbers for s in expr_of(n).symbols()}


__all__ = ["DeviceProgram", "complete_source"]
