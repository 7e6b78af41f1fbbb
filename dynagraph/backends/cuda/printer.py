"""Print the kernels of a loop program as CUDA C, and say how each is launched.

Comes after `ir/passes/memory_plan.py`.  `schedule.py` decides how threads share a kernel's work; this file spells it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dynagraph.backends.cstyle import Scope, Writer, combine, initial
from dynagraph.backends.cuda.schedule import (
    BLOCK,
    TILE,
    TILE_ROWS,
    UNROLLED_ROWS,
    WARP,
    Columns,
    Map,
    Pack,
    Rows,
    Scanned,
    Schedule,
    Serial,
    Tiled,
    Walked,
    kept_loads,
    n_iterations,
    packed,
    pass_axes,
    replaced,
    schedule,
)
from dynagraph.backends.cuda.style import CudaStyle
from dynagraph.ir import dtypes, expr
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
    LibraryCall,
    Loop,
    LoopProgram,
    Reduce,
    Running,
    Statement,
    Store,
    indices,
    loaded_buffers,
    stored_buffers,
)
from dynagraph.ir.passes.lower import combined

MOST_BLOCKS = 1 << 22  # of a grid: what is more than this many blocks' is done in turns


@dataclass(frozen=True)
class Launch:
    """How a kernel is launched: ``n`` units of work, `per_block` of them for each block of `threads` threads.

    Its parameters are the addresses of buffers, then sizes (by name, each an int64); of a checked variant also the first
    index and the end of each buffer but numbers (each an int64), and the address of the record (see dg_checked in support.h).
    """

    kernel: str
    n: IntExpr
    per_block: int
    threads: int
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    comment: str = ""


CudaStep = Launch | LibraryCall | CallOut


@dataclass(frozen=True)
class CudaSource:
    """CUDA C text of all kernels, the names of the prelude's functions that it uses, and the steps of the program in order."""

    text: str
    functions: frozenset[str]
    steps: tuple[CudaStep, ...]


@dataclass(frozen=True)
class Variant:
    """What a source is made for: indices of 64 bits; whether all memory begins at multiples of 16 bytes; which inputs are numbers
    of the host's, which become parameters; whether every access to memory is checked, for which none is one of packs.
    """

    wide: bool = False
    packs: bool = True
    by_value: frozenset[int] = frozenset()
    checked: bool = False


def print_program(program: LoopProgram, variant: Variant = Variant()) -> CudaSource:
    """The kernels of a program (the prelude is not included)."""
    out = Writer()
    out.line(f"typedef {'int64_t' if variant.wide else 'int32_t'} dg_index;")
    functions: set[str] = set()
    steps: list[CudaStep] = []
    for step in program.steps:
        if isinstance(step, Kernel):
            printer = _KernelPrinter(program, step, variant, out)
            steps.append(printer.run())
            functions |= printer.c.used_functions
        else:
            steps.append(step)
    return CudaSource(str(out), frozenset(functions), tuple(steps))


class _KernelPrinter:
    """One kernel."""

    def __init__(self, program: LoopProgram, kernel: Kernel, variant: Variant, out: Writer):
        self.program, self.kernel, self.variant, self.out = program, kernel, variant, out
        self.loaded, self.stored = loaded_buffers(kernel.body), stored_buffers(kernel.body)
        self.memory = [program.buffers[name] for name in sorted(self.loaded | self.stored)]
        numbered = enumerate(self.memory) if variant.checked else ()
        self.c = CudaStyle(out, {b.name: k for k, b in numbered if not self._is_number(b)})
        self.plan: Schedule = schedule(kernel, variant.packs and not variant.checked)
        self._n_lengths = 0
        self._is_shared = False  # whether a block has several teams, the last of which may have no row of their own

    def run(self) -> Launch:
        kernel, memory = self.kernel, self.memory
        symbols = sorted(self._size_symbols(), key=lambda s: int(s[1:]))
        n, per_block, threads = self._shape()
        parameters = [self._parameter(b, b.name in self.stored, b.name in self.loaded) for b in memory]
        parameters += [f"const int64_t {s}_size" for s in symbols]
        if self.variant.checked:
            parameters += [f"const int64_t {name}_{edge}" for name in self.c.checked for edge in ("low", "end")]
            parameters.append("int64_t *record")
        self.out.line()
        self.out.line(f"/* {kernel.comment}: {self._described()} */")
        self.out.line(f'extern "C" __global__ void __launch_bounds__({threads})')
        self.out.open(f"{kernel.name}({', '.join(parameters)})")
        for b in memory:
            if self._is_number(b):
                self.out.line(f"const {self.c.memory_type(b.dtype)} {b.name}[1] = {{{b.name}_value}};")
        for s in symbols:
            self.out.line(f"const dg_index {s} = (dg_index){s}_size;")
        self.body()
        self.out.close()
        names = tuple(b.name for b in memory)
        return Launch(kernel.name, n, per_block, threads, names, tuple(symbols), kernel.comment)

    def _described(self) -> str:
        plan = self.plan
        if isinstance(plan, Rows):
            return f"{plan.team} threads for a row" + (f", packs of {plan.width}" if plan.width > 1 else "")
        if isinstance(plan, Map):
            return f"packs of {plan.width}" if plan.width > 1 else "an element for a thread"
        words = {
            Tiled: "tiles through shared memory",
            Columns: "columns",
            Scanned: "a scan",
            Walked: "a thread for a row, in order",
            Serial: "one thread, in order",
        }
        return words[type(plan)]

    def _is_number(self, buffer: Buffer) -> bool:
        return buffer.role == "input" and buffer.position in self.variant.by_value

    def _parameter(self, b: Buffer, stored: bool, loaded: bool) -> str:
        kind = self.c.memory_type(b.dtype)
        if self._is_number(b):
            return f"const {kind} {b.name}_value"
        if stored:  # what is only written to is nobody else's; what is read too may be read as it was written
            return f"{kind} *{'' if loaded else '__restrict__ '}{b.name}"
        return f"const {kind} *__restrict__ {b.name}"

    def _size_symbols(self) -> set[str]:
        found = {s.name for axis in self.kernel.axes for s in axis.extent.symbols()}
        found |= {s.name for index in indices(self.kernel.body) for s in index.symbols()}
        return {s for s in found if s[0] == "s" and s[1:].isdigit()}

    def _shape(self) -> tuple[IntExpr, int, int]:
        """Units of work, how many of them a block does at a time, and its threads."""
        plan, axes = self.plan, self.kernel.axes
        if isinstance(plan, Serial):
            return IntExpr.of(1), 1, 1
        if isinstance(plan, Map):
            if not axes:
                return IntExpr.of(1), 1, 1
            *outer, last = axes
            return n_iterations(outer) * self._n_packs(last, plan.width), BLOCK, BLOCK
        if isinstance(plan, Tiled):
            return n_iterations(self._tiled_axes(plan)), 1, TILE * TILE_ROWS
        if isinstance(plan, Rows):
            return n_iterations(axes), plan.block // plan.team, plan.block
        if isinstance(plan, Columns):
            (statement,) = (s for s in self.kernel.body if isinstance(s, ColumnReduce))
            return n_iterations(axes) * _divided_up(statement.column.extent, plan.columns), 1, BLOCK
        if isinstance(plan, Walked):
            return n_iterations(axes), BLOCK, BLOCK
        return n_iterations(axes), 1, plan.block

    def _n_packs(self, axis: Axis, width: int) -> IntExpr:
        return axis.extent if width == 1 else _divided_up(axis.extent, width)

    # -- what all kinds share ---------------------------------------------------------------------------------------
    def body(self) -> None:
        plan = self.plan
        if isinstance(plan, Serial):
            self._serial_statements(self.kernel.body)
        elif isinstance(plan, Map):
            self._map(plan)
        elif isinstance(plan, Tiled):
            self._tiled(plan)
        elif isinstance(plan, Rows):
            self._rows(plan)
        elif isinstance(plan, Columns):
            self._columns(plan)
        elif isinstance(plan, Walked):
            self._walked()
        else:
            self._scanned(plan)

    def _decode(self, item: str, axes: Sequence[Axis]) -> None:
        """Loop variables from the number of an iteration, last axis fastest."""
        if not axes:
            return
        rest = item
        for axis in reversed(axes[1:]):
            extent = self.c.integer(axis.extent)
            name = axis.symbol.name
            self.out.line(f"const dg_index {name}_rest = {rest} / ({extent});")
            self.out.line(f"const dg_index {name} = {rest} - {name}_rest * ({extent});")
            rest = f"{name}_rest"
        self.out.line(f"const dg_index {axes[0].symbol.name} = {rest};")

    def _blocks_over(self, name: str, n: str, per_block: int = 1) -> None:
        """Open a loop of which each block takes turns."""
        each = f" * {per_block}" if per_block > 1 else ""
        self.out.open(
            f"for (dg_index {name} = (dg_index)blockIdx.x{each}; {name} < {n}; {name} += (dg_index)gridDim.x{each})"
        )

    def _threads_over(self, n: str) -> None:
        """Open a loop over items of which each thread takes turns."""
        self.out.line(f"const dg_index n = {n};")
        self.out.open(
            f"for (dg_index item = (dg_index)blockIdx.x * {BLOCK} + threadIdx.x; item < n; item += (dg_index)gridDim.x * {BLOCK})"
        )

    def _block(self, items: Iterable[Define | Store], scope: Scope) -> None:
        self.c.block(list(items), scope)

    # -- one thread ---------------------------------------------------------------------------------------------------
    def _serial_statements(self, body: Sequence[Statement]) -> None:
        plain: list[Define | Store] = []
        for axis in self.kernel.axes:
            self.c.open_loop(axis)
        for s in body:
            if isinstance(s, (Define, Store)):
                plain.append(s)
                continue
            assert isinstance(s, Loop), "stores at computed places stand in loops"
            self._block(plain, Scope())
            plain.clear()
            self.out.open("")
            for axis in s.axes:
                self.c.open_loop(axis)
            self._block([x for x in s.body if isinstance(x, (Define, Store))], Scope())
            for _ in s.axes:
                self.out.close()
            self.out.close()
        self._block(plain, Scope())
        for _ in self.kernel.axes:
            self.out.close()

    # -- maps ---------------------------------------------------------------------------------------------------------
    def _map(self, plan: Map) -> None:
        axes, body = self.kernel.axes, [s for s in self.kernel.body if isinstance(s, (Define, Store))]
        if not axes:
            self._block(body, Scope())
            return
        *outer, last = axes
        n = self.c.integer(n_iterations(outer) * self._n_packs(last, plan.width))
        self._threads_over(n)
        if plan.width == 1:
            self._decode("item", axes)
            self._block(body, Scope())
        else:
            self._decode("item", [*outer, replace(last, extent=self._n_packs(last, plan.width))])
            # what was named after the axis counts packs: name it anew
            name = last.symbol.name
            first = f"{name}_first"
            self.out.line(f"const dg_index {first} = {name} * {plan.width};")
            self._packed_or_rest(body, last, plan.width, first, {})
        self.out.close()

    def _packed_or_rest(
        self, body: Sequence[Define | Store], axis: Axis, width: int, first: str, kept: dict[Expr, Expr]
    ) -> None:
        """The statements for the pack that begins at `first`; the last one of an axis may be short."""
        extent = axis.extent
        whole = all(c % width == 0 for c in extent.terms.values())
        if not whole:
            self.out.open(f"if ({first} + {width} <= {self.c.integer(extent)})")
        self._packed(body, axis, width, first, kept)
        if not whole:
            self.out.close(" else {")
            self.out.depth += 1
            name = axis.symbol.name
            start = self.c.integer(axis.start)
            self.out.open(f"for (dg_index {name}_at = {first}; {name}_at < {self.c.integer(extent)}; ++{name}_at)")
            self.out.line(f"const dg_index {name} = {start} + {name}_at;")
            self._block(body, Scope())
            self.out.close()
            self.out.close()

    def _packed(self, body: Sequence[Define | Store], axis: Axis, width: int, first: str, kept: dict[Expr, Expr]) -> None:
        name = axis.symbol.name
        statements, loads, stores = packed(body, axis, width, IntExpr.symbol("lane_of_pack", 0, width - 1), kept)
        self._load_packs(loads, axis, width, first)
        for pack in stores:
            self.out.line(f"dg_pack<{self.c.memory_type(pack.dtype)}, {width}> {pack.name};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int lane_of_pack = 0; lane_of_pack < {width}; ++lane_of_pack)")
        self.out.line(f"const dg_index {name} = {self.c.integer(axis.start)} + {first} + lane_of_pack;")
        self._block([s for s in statements if isinstance(s, (Define, Store))], Scope())
        self.out.close()
        self._store_packs(stores, axis, width, first)

    def _at_first(self, pack: Pack, axis: Axis, first: str) -> str:
        """The address of the first element of a pack."""
        index = pack.index.substitute({axis.symbol.name: IntExpr.symbol(first) + axis.start})
        return f"{pack.buffer} + ({self.c.integer(index)})"

    def _load_packs(self, packs: Sequence[Pack], axis: Axis, width: int, first: str) -> None:
        for pack in packs:
            kind = self.c.memory_type(pack.dtype)
            self.out.line(
                f"const dg_pack<{kind}, {width}> {pack.name} = dg_load_pack<{kind}, {width}>({self._at_first(pack, axis, first)});"
            )

    def _store_packs(self, packs: Sequence[Pack], axis: Axis, width: int, first: str) -> None:
        for pack in packs:
            self.out.line(f"dg_store_pack({self._at_first(pack, axis, first)}, {pack.name});")

    # -- transpositions -----------------------------------------------------------------------------------------------
    def _tiled_axes(self, plan: Tiled) -> list[Axis]:
        """The axes that blocks are numbered by: those of tiles come last."""
        axes = self.kernel.axes
        others = [a for k, a in enumerate(axes[:-1]) if k != plan.across]
        tiles = [replace(a, extent=_divided_up(a.extent, TILE)) for a in (axes[plan.across], axes[-1])]
        return [*others, *tiles]

    def _tiled(self, plan: Tiled) -> None:
        across, last = self.kernel.axes[plan.across], self.kernel.axes[-1]
        r, c = across.symbol.name, last.symbol.name
        rows, columns = self.c.integer(across.extent), self.c.integer(last.extent)
        body = [s for s in self.kernel.body if isinstance(s, (Define, Store))]
        axes = self._tiled_axes(plan)
        for k, e in enumerate(plan.loads):
            self.out.line(f"__shared__ {self.c.memory_type(e.dtype)} tile{k}[{TILE}][{TILE + 1}];")
        self.out.line(f"const int x = threadIdx.x % {TILE}, y = threadIdx.x / {TILE};")
        self.out.line(f"const dg_index n = {self.c.integer(n_iterations(axes))};")
        self._blocks_over("unit", "n")
        self.out.open("")
        self._decode("unit", axes)
        self.out.line(f"const dg_index {r}_first = {r} * {TILE}, {c}_first = {c} * {TILE};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = y; k < {TILE}; k += {TILE_ROWS})")
        self.out.line(f"const dg_index {r} = {r}_first + x, {c} = {c}_first + k;")
        self.out.open(f"if ({r} < {rows} && {c} < {columns})")
        for k, e in enumerate(plan.loads):
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            self.out.line(f"tile{k}[k][x] = {self.c.element(buffer, self.c.integer(index))};")
        self.out.close()
        self.out.close()
        self.out.line("__syncthreads();")
        names = {e: expr.load(f"tile{k}[x]", IntExpr.symbol("k"), e.dtype) for k, e in enumerate(plan.loads)}
        self.out.line("#pragma unroll")
        self.out.open(f"for (int k = y; k < {TILE}; k += {TILE_ROWS})")
        self.out.line(f"const dg_index {r} = {r}_first + k, {c} = {c}_first + x;")
        self.out.open(f"if ({r} < {rows} && {c} < {columns})")
        self._block([s for s in replaced(body, names.get) if isinstance(s, (Define, Store))], Scope())
        self.out.close()
        self.out.close()
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()

    # -- rows ---------------------------------------------------------------------------------------------------------
    def _rows(self, plan: Rows) -> None:
        kernel = self.kernel
        teams = plan.block // plan.team
        accumulators = [a for s in kernel.body if isinstance(s, Reduce) and s.axes for a in s.accumulators]
        if plan.team > WARP:
            for a in accumulators:
                self.out.line(f"__shared__ {self.c.number_type(a.dtype)} {a.name}_of_warp[{plan.team // WARP}];")
                if _is_position(a):
                    kind = self.c.number_type(a.value.dtype)
                    self.out.line(f"__shared__ {kind} {a.name}_best_of_warp[{plan.team // WARP}];")
        self.out.line(f"const int lane = threadIdx.x % {plan.team};")
        self.out.line(f"const dg_index rows = {self.c.integer(n_iterations(kernel.axes))};")
        self._blocks_over("first_row", "rows", teams)
        self._is_shared = teams > 1
        if teams > 1:  # those behind the last row compute it too, as all threads of a warp take part in what it exchanges
            self.out.line(f"const dg_index own_row = first_row + threadIdx.x / {plan.team};")
            self.out.line("const bool is_own = own_row < rows;")
            self.out.line("const dg_index row = is_own ? own_row : rows - 1;")
        self._decode("row" if teams > 1 else "first_row", kernel.axes)
        kept = self._keep(plan)
        shares = stored_buffers(kernel.body) & loaded_buffers(kernel.body)
        scope = Scope()
        plain: list[Define | Store] = []
        for s in kernel.body:
            if isinstance(s, (Define, Store)):
                plain.append(s)
                continue
            self._row_level(plain, scope, plan)
            plain.clear()
            assert isinstance(s, (Reduce, Loop))
            self._pass(s, plan, kept)
            if shares:
                self.out.line("__syncthreads();" if plan.team > WARP else "__syncwarp();")
        self._row_level(plain, scope, plan)
        if plan.team > WARP:
            self.out.line("__syncthreads();")
        self.out.close()

    def _row_level(self, items: Sequence[Define | Store], scope: Scope, plan: Rows) -> None:
        """What is computed once for a row: by all threads of the team; one of them stores."""
        run: list[Define | Store] = []
        for k, item in enumerate(items):
            run.append(item)
            if k + 1 < len(items) and isinstance(items[k + 1], Store) == isinstance(item, Store):
                continue
            if isinstance(item, Store):
                tests = ["lane == 0"] * (plan.team > 1) + ["is_own"] * self._is_shared
                with self._where(tests):
                    self._block(run, Scope(scope))
            else:
                self._block(run, scope)
            run.clear()

    @contextlib.contextmanager
    def _where(self, tests: Sequence[str]) -> Iterator[None]:
        """Lines for those threads for which all tests hold."""
        if tests:
            self.out.open(f"if ({' && '.join(tests)})")
        yield
        if tests:
            self.out.close()

    def _for_own_rows(self) -> contextlib.AbstractContextManager[None]:
        return self._where(["is_own"] * self._is_shared)

    def _keep(self, plan: Rows) -> dict[Expr, Expr]:
        """Lines that load what several passes read, and how it is spelled from then on."""
        loads = kept_loads(self.kernel, plan)
        if not loads:
            return {}
        first = next(s for s in self.kernel.body if pass_axes(s))
        axes = pass_axes(first) or ()
        kept: dict[Expr, Expr] = {}
        for k, e in enumerate(loads):
            kind = self.c.memory_type(e.dtype)
            self.out.line(f"dg_pack<{kind}, {plan.width}> kept{k}[{plan.turns}];")
            kept[e] = expr.load(f"kept{k}[turn].v", IntExpr.symbol("lane_of_pack"), e.dtype)
        self._open_turns(axes, plan)
        for k, e in enumerate(loads):
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            if plan.width == 1:
                self.out.line(f"kept{k}[turn].v[0] = {self.c.element(buffer, self.c.integer(index))};")
            else:
                kind = self.c.memory_type(e.dtype)
                place = self._at_first(Pack("", buffer, e.dtype, index), axes[-1], "at")
                self.out.line(f"kept{k}[turn] = dg_load_pack<{kind}, {plan.width}>({place});")
        self._close_turns(axes, plan)
        return kept

    def _open_turns(self, axes: Sequence[Axis], plan: Rows) -> str:
        """Open the loop over a thread's part of a row: `at` is the place of its element, or of its pack's first.

        Gives the text of the row's length.
        """
        length = n_iterations(axes)
        text = self.c.integer(length)
        if length.constant is None:
            text = f"length{self._n_lengths}"
            self._n_lengths += 1
            self.out.line(f"const dg_index {text} = {self.c.integer(length)};")
        stride = plan.team * plan.width
        if plan.turns is not None:
            self.out.line("#pragma unroll")
            self.out.open(f"for (int turn = 0; turn < {plan.turns}; ++turn)")
            mine = "lane" if plan.width == 1 else f"lane * {plan.width}"
            self.out.line(f"const dg_index at = turn * {stride} + {mine};")
            if length.constant is None or length.constant % stride:
                self.out.line(f"if (at < {text}) {{")
                self.out.depth += 1
        else:
            mine = "lane" if plan.width == 1 else f"lane * {plan.width}"
            self.out.line(f"#pragma unroll {UNROLLED_ROWS}")
            self.out.open(f"for (dg_index at = {mine}; at < {text}; at += {stride})")
        if plan.width == 1:
            self._decode_from("at", axes)
        return text

    def _decode_from(self, item: str, axes: Sequence[Axis]) -> None:
        """As `_decode`, of axes that may begin elsewhere than at 0."""
        if len(axes) == 1:
            self.out.line(f"const dg_index {axes[0].symbol.name} = {self.c.integer(axes[0].start)} + {item};")
            return
        assert all(a.start == 0 for a in axes)
        self._decode(item, axes)

    def _close_turns(self, axes: Sequence[Axis], plan: Rows) -> None:
        length = n_iterations(axes).constant
        if plan.turns is not None and (length is None or length % (plan.team * plan.width)):
            self.out.close()
        self.out.close()

    def _pass(self, s: Reduce | Loop, plan: Rows, kept: dict[Expr, Expr]) -> None:
        if isinstance(s, Loop):
            with self._for_own_rows():
                self._walk(s, s.axes, [x for x in s.body if isinstance(x, (Define, Store))], plan, kept)
            return
        for a in s.accumulators:
            start = "-1" if _is_position(a) else initial(self.c, a)
            self.out.line(f"{self.c.number_type(a.dtype)} {a.name} = {start};")
            if _is_position(a):
                self.out.line(f"{self.c.number_type(a.value.dtype)} {a.name}_best = 0;")
        if not s.axes:
            self._single(s)
        else:
            self._walk(s, s.axes, [*_steps(s.accumulators), *s.stores], plan, kept)
            self._combine_team(s.accumulators, plan)
        for a in s.accumulators:
            if a.dtype is dtypes.float16:
                self.out.line(f"{a.name} = {self.c.rounded(a.name, a.dtype)};")

    def _walk(
        self, s: Reduce | Loop, axes: Sequence[Axis], items: Sequence[Define | Store], plan: Rows, kept: dict[Expr, Expr]
    ) -> None:
        """A thread's part of a pass: the steps of accumulators are definitions of their values, then stores."""
        accumulators = {f"{a.name}_value": a for a in s.accumulators} if isinstance(s, Reduce) else {}
        if not axes:
            self._lane_of_pass(items, accumulators, "0")
            return
        length = self._open_turns(axes, plan)
        if plan.width == 1:
            changed = replaced(items, lambda e: _in_pack_of_one(kept.get(e)))
            self._lane_of_pass([x for x in changed if isinstance(x, (Define, Store))], accumulators, "at")
        else:
            self._pass_of_packs(items, axes[-1], length, plan, kept, accumulators)
        self._close_turns(axes, plan)

    def _pass_of_packs(
        self,
        items: Sequence[Define | Store],
        axis: Axis,
        length: str,
        plan: Rows,
        kept: dict[Expr, Expr],
        accumulators: dict[str, Accumulator],
    ) -> None:
        width, name = plan.width, axis.symbol.name
        whole = all(c % width == 0 for c in axis.extent.terms.values())
        statements, loads, stores = packed(items, axis, width, IntExpr.symbol("lane_of_pack", 0, width - 1), kept)
        if not whole:
            self.out.open(f"if (at + {width} <= {length})")
        self._load_packs(loads, axis, width, "at")
        for pack in stores:
            self.out.line(f"dg_pack<{self.c.memory_type(pack.dtype)}, {width}> {pack.name};")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int lane_of_pack = 0; lane_of_pack < {width}; ++lane_of_pack)")
        self.out.line(f"const dg_index {name} = {self.c.integer(axis.start)} + at + lane_of_pack;")
        self._lane_of_pass([x for x in statements if isinstance(x, (Define, Store))], accumulators, "at + lane_of_pack")
        self.out.close()
        if stores:
            with self._for_own_rows():
                self._store_packs(stores, axis, width, "at")
        if not whole:
            self.out.close(" else {")
            self.out.depth += 1
            self.out.open(f"for (dg_index rest = at; rest < {length}; ++rest)")
            self.out.line(f"const dg_index {name} = {self.c.integer(axis.start)} + rest;")
            self._lane_of_pass(items, accumulators, "rest")
            self.out.close()
            self.out.close()

    def _lane_of_pass(self, items: Sequence[Define | Store], accumulators: dict[str, Accumulator], position: str) -> None:
        """One element of a pass.  Stores to the local pack are anybody's, those to memory only of a team with a row of its own."""
        scope = Scope()
        stores = [x for x in items if isinstance(x, Store)]
        if accumulators and self._is_shared and any(x.buffer in self.program.buffers for x in stores):
            self._block([x for x in items if isinstance(x, Define)], scope)
            with self._for_own_rows():
                self._block(stores, Scope(scope))
        else:
            self._block(items, scope)
        for name, a in accumulators.items():
            if _is_position(a):
                self.out.open(f"if ({a.name} < 0 || {self._better(a, name, f'{a.name}_best')})")
                self.out.line(f"{a.name}_best = {name};")
                self.out.line(f"{a.name} = {position};")
                self.out.close()
            else:
                self.out.line(f"{a.name} = {self._combine(a, a.name, name)};")

    def _single(self, s: Reduce) -> None:
        """Every reduced size is 1."""
        scope = Scope()
        self._block(_steps(s.accumulators), scope)
        for a in s.accumulators:
            text = f"{a.name}_value"
            if a.kind == "sum" and a.dtype.is_inexact:
                text = self._combine(a, a.name, text)  # 0.0 + -0.0 is 0.0
            self.out.line(f"{a.name} = {'0' if _is_position(a) else text};")
        self._block(s.stores, scope)

    def _combine_team(self, accumulators: Sequence[Accumulator], plan: Rows) -> None:
        """Every thread of the team gets what all have accumulated, in an order that is always the same."""
        if plan.team == 1:
            return
        self._exchange(accumulators, min(WARP, plan.team))
        if plan.team <= WARP:
            return
        warps = plan.team // WARP
        self.out.open(f"if (lane % {WARP} == 0)")
        for a in accumulators:
            self.out.line(f"{a.name}_of_warp[lane / {WARP}] = {a.name};")
            if _is_position(a):
                self.out.line(f"{a.name}_best_of_warp[lane / {WARP}] = {a.name}_best;")
        self.out.close()
        self.out.line("__syncthreads();")
        for a in accumulators:
            self.out.line(f"{a.name} = {a.name}_of_warp[lane % {warps}];")
            if _is_position(a):
                self.out.line(f"{a.name}_best = {a.name}_best_of_warp[lane % {warps}];")
        self._exchange(accumulators, warps)

    def _exchange(self, accumulators: Sequence[Accumulator], width: int) -> None:
        self.out.line("#pragma unroll")
        self.out.open(f"for (int step = {width // 2}; step; step /= 2)")
        for a in accumulators:
            kind = self.c.number_type(a.dtype)
            self.out.line(f"const {kind} {a.name}_other = dg_from_lane({a.name}, (lane ^ step) % {width}, {width});")
            if not _is_position(a):
                self.out.line(f"{a.name} = {self._combine(a, a.name, f'{a.name}_other')};")
                continue
            mine, theirs = f"{a.name}_best", f"{a.name}_best_other"
            self.out.line(
                f"const {self.c.number_type(a.value.dtype)} {theirs} = dg_from_lane({mine}, (lane ^ step) % {width}, {width});"
            )
            better, worse = self._better(a, theirs, mine), self._better(a, mine, theirs)
            self.out.open(
                f"if ({a.name}_other >= 0 && ({a.name} < 0 || {better} || (!({worse}) && {a.name}_other < {a.name})))"
            )
            self.out.line(f"{mine} = {theirs};")
            self.out.line(f"{a.name} = {a.name}_other;")
            self.out.close()
        self.out.close()

    def _better(self, a: Accumulator, value: str, best: str) -> str:
        """Whether a value is a new extreme; a NaN is the extreme of all."""
        pair = (var(value, a.value.dtype), var(best, a.value.dtype))
        text = self.c.expr(expr.call("gt" if a.kind == "argmax" else "lt", *pair), Scope())
        if a.value.dtype.is_inexact:
            text = f"(({text} || {value} != {value}) && {best} == {best})"
        return text

    def _combine(self, a: Accumulator, left: str, right: str) -> str:
        return combine(self.c, a.kind, a.dtype, left, right)

    # -- columns ------------------------------------------------------------------------------------------------------
    def _columns(self, plan: Columns) -> None:
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, ColumnReduce))
        a, column = r.accumulator, r.column
        kind, name = self.c.number_type(a.dtype), column.symbol.name
        n_rows = BLOCK // plan.columns
        blocks = _divided_up(column.extent, plan.columns)
        self.out.line(f"__shared__ {kind} of_row[{n_rows}][{plan.columns + 1}];")
        self.out.line(f"const int x = threadIdx.x % {plan.columns}, y = threadIdx.x / {plan.columns};")
        self.out.line(f"const dg_index blocks = {self.c.integer(blocks)};")
        self.out.line(f"const dg_index n = {self.c.integer(n_iterations(kernel.axes))} * blocks;")
        self._blocks_over("unit", "n")
        self.out.line("const dg_index outer = unit / blocks;")
        self.out.line(f"const dg_index {name} = (unit - outer * blocks) * {plan.columns} + x;")
        self._decode("outer", kernel.axes)
        scope = Scope()
        self._block([s for s in kernel.body if isinstance(s, Define)], scope)
        self.out.line(f"{kind} {a.name} = {initial(self.c, a)};")
        self.out.open(f"if ({name} < {self.c.integer(column.extent)})")
        *outer, last = r.axes
        for axis in outer:
            self.c.open_loop(axis)
        start, end = self.c.bounds(last)
        row = last.symbol.name
        self.out.line(f"const dg_index {row}_end = {end};")
        self.out.line(f"#pragma unroll {UNROLLED_ROWS}")
        self.out.open(f"for (dg_index {row} = {start} + y; {row} < {row}_end; {row} += {n_rows})")
        (text,) = self.c.values([a.value], Scope(scope))
        self.out.line(f"{a.name} = {self._combine(a, a.name, text)};")
        for _ in (*outer, last):
            self.out.close()
        self.out.close()
        self.out.line(f"of_row[y][x] = {a.name};")
        self.out.line("__syncthreads();")
        self.out.line("#pragma unroll")
        self.out.open(f"for (int half = {n_rows // 2}; half; half /= 2)")
        self.out.open("if (y < half)")
        self.out.line(f"of_row[y][x] = {self._combine(a, 'of_row[y][x]', 'of_row[y + half][x]')};")
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()
        self.out.open(f"if (y == 0 && {name} < {self.c.integer(column.extent)})")
        self.out.line(f"{a.name} = {self.c.rounded('of_row[0][x]', a.dtype)};")
        self._block(r.stores, Scope(scope))
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()

    # -- scans --------------------------------------------------------------------------------------------------------
    def _scanned(self, plan: Scanned) -> None:
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, Running))
        a, axis = r.accumulator, r.axis
        kind, name, warps = self.c.number_type(a.dtype), axis.symbol.name, plan.block // WARP
        start, end = self.c.bounds(axis)
        self.out.line(f"__shared__ {kind} of_warp[{warps}];")
        self.out.line(f"const int lane = threadIdx.x % {WARP}, warp = threadIdx.x / {WARP};")
        self._blocks_over("row", self.c.integer(n_iterations(kernel.axes)))
        self._decode("row", kernel.axes)
        scope = Scope()
        self._block([s for s in kernel.body if isinstance(s, Define)], scope)
        self.out.line(f"{kind} carry = 0;")
        self.out.line(f"const dg_index {name}_start = {start}, {name}_end = {end};")
        self.out.open(f"for (dg_index first = {name}_start; first < {name}_end; first += {plan.block})")
        self.out.line(f"const dg_index {name} = first + threadIdx.x;")
        self.out.line(f"{kind} {a.name} = 0;")
        self.out.open(f"if ({name} < {name}_end)")
        (text,) = self.c.values([a.value], Scope(scope))
        self.out.line(f"{a.name} = {text};")
        self.out.close()
        self.out.line("#pragma unroll")
        self.out.open(f"for (int step = 1; step < {WARP}; step *= 2)")
        self.out.line(f"const {kind} before = dg_from_lane({a.name}, lane >= step ? lane - step : lane, {WARP});")
        self.out.open("if (lane >= step)")
        self.out.line(f"{a.name} = {self._follow(a, 'before', a.name)};")
        self.out.close()
        self.out.close()
        self.out.line(f"if (lane == {WARP - 1}) of_warp[warp] = {a.name};")
        self.out.line("__syncthreads();")
        self.out.line(f"{kind} prefix = carry;")
        self.out.line(f"bool some = first != {name}_start;")
        self.out.open(f"for (int w = 0; w < {warps}; ++w)")
        self.out.line(f"if (w == warp && some) {a.name} = {self._follow(a, 'prefix', a.name)};")
        self.out.line(f"prefix = some ? {self._follow(a, 'prefix', 'of_warp[w]')} : of_warp[w];")
        self.out.line("some = true;")
        self.out.close()
        self.out.line("carry = prefix;")
        self.out.open(f"if ({name} < {name}_end)")
        if a.dtype is dtypes.float16:
            self.out.line(f"{a.name} = {self.c.rounded(a.name, a.dtype)};")
        self._block(r.stores, Scope(scope))
        self.out.close()
        self.out.line("__syncthreads();")
        self.out.close()
        self.out.close()

    def _walked(self) -> None:
        kernel = self.kernel
        (r,) = (s for s in kernel.body if isinstance(s, Running))
        a, axis = r.accumulator, r.axis
        self._threads_over(self.c.integer(n_iterations(kernel.axes)))
        self._decode("item", kernel.axes)
        scope = Scope()
        self._block([s for s in kernel.body if isinstance(s, Define)], scope)
        self.out.line(f"{self.c.number_type(a.dtype)} {a.name} = 0;")
        self.c.open_loop(axis)
        inner = Scope(scope)
        self._block([Define(f"{a.name}_value", a.value)], inner)
        first = f"{axis.symbol.name} == {self.c.integer(axis.start)}"
        self.out.line(f"{a.name} = {first} ? {a.name}_value : {self._follow(a, a.name, f'{a.name}_value')};")
        self._block(r.stores, inner)
        self.out.close()
        self.out.close()

    def _follow(self, a: Accumulator, before: str, value: str) -> str:
        """The running value behind two parts, one after the other."""
        if a.kind in ("sum", "prod"):
            return self._combine(a, before, value)
        return self.c.expr(combined(a.kind, var(before, a.dtype), var(value, a.dtype)), Scope())


def _steps(accumulators: Sequence[Accumulator]) -> list[Define]:
    """The values that are accumulated, by name."""
    return [Define(f"{a.name}_value", a.value) for a in accumulators]


def _is_position(a: Accumulator) -> bool:
    return a.kind in ("argmax", "argmin")


def _in_pack_of_one(kept: Expr | None) -> Expr | None:
    """What is kept for a pack's lane, where packs have one."""
    if kept is None:
        return None
    name: str
    name, _ = kept.value  # type: ignore[misc]
    return expr.load(name, IntExpr.of(0), kept.dtype)


def _divided_up(n: IntExpr, size: int) -> IntExpr:
    """How many parts of a size it takes."""
    return (n + (size - 1)) // size if size > 1 else n


__all__ = ["MOST_BLOCKS", "CudaSource", "CudaStep", "Launch", "Variant", "print_program"]
