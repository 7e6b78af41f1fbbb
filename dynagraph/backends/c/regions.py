"""Prints a region as C functions: blocks with labels, exits at the end, and compiles it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dynagraph.backends.c import region_keys
from dynagraph.backends.c.headers import with_headers
from dynagraph.backends.c.lane_vectors import LaneVectors
from dynagraph.backends.cstyle import CStyle, Scope, Writer
from dynagraph.backends.kernel_cache import Kernels
from dynagraph.backends.prelude import prelude_for
from dynagraph.backends.tiers import Better, in_tiers
from dynagraph.driver import deadline
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import BY_POWERS_OF_TWO, Expr, power_of_two
from dynagraph.ir.passes.bit_loops import hasten_bit_loops
from dynagraph.ir.passes.few_looks import drop_looks
from dynagraph.ir.passes.parallel_regions import with_copies
from dynagraph.ir.passes.select_arms import select_arms
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.regions import (
    CHECKED,
    OWNED,
    POINTER,
    Address,
    Apart,
    Block,
    Branch,
    CallFunction,
    CallOut,
    Changed,
    Checked,
    CheckedLanes,
    Exit,
    Field,
    Hold,
    Instruction,
    Interruptible,
    Jump,
    Leave,
    Load,
    LoadLanes,
    LoadSlot,
    NewMemory,
    OneByOne,
    Place,
    Pop,
    Position,
    Push,
    Region,
    Release,
    Require,
    Reserve,
    RunTurns,
    Separate,
    Set,
    SetLanes,
    SetLength,
    Slot,
    Store,
    StoreLanes,
    StoreSlot,
    Touched,
    Unfolded,
    slots_of,
)

FUNCTION = "dg_region"
HEADERS = ("arithmetic.h", "loops.h", "blas.h", "loop_arrays.h", "loop_gradients.h", "loop_turns.h", "loop_lanes.h")
PARALLEL_NANOSECONDS = 20000  # that turns have to take on one thread for more of them
LOOK_NANOSECONDS = 2000  # that tell how long a turn takes
EXACT = {"exact_add": "+", "exact_sub": "-", "exact_mul": "*", "c_div": "/", "c_mod": "%"}
SUPPORT = (
    "python_complex_mul", "numpy_pow", "bit_length", "bit_count",
    "highest_bit", "memory", "free", "clear", "data_of", "draw_integer", "twist", "twist_bits",
)  # fmt: skip


@dataclass(frozen=True)
class CompiledRegion:
    """Machine code of a region: as the dispatcher's NativeLoop takes it.  The C compiler may still be making it, and then better
    code.
    """

    kernels: Kernels
    better: Better | None
    n_slots: int

    @property
    def address(self) -> int:
        """Waits for the C compiler."""
        return self.kernels.address(FUNCTION)

    @property
    def keepalive(self) -> object:
        return self.kernels.library

    @property
    def cached(self) -> bool:
        return self.kernels.from_cache


def compile_region(region: Region) -> CompiledRegion:
    """Machine code for a region.  Raises CompilerError where the C compiler is missing, and where it refuses the source: when the
    address is wanted.
    """
    key = region_keys.key_of(region)
    known = region_keys.kernels_of(key)
    if known is not None:
        return CompiledRegion(known, None, region.n_slots)
    source, text = print_region(_improved(region))
    deadline.check()
    region_keys.remember(key, source)
    return CompiledRegion(*in_tiers(source, FUNCTION, "_Complex" in text), region.n_slots)


def _improved(region: Region) -> Region:
    made = tidied(region) if region.has_tape else with_copies(tidied(region))
    for part in (made, *made.turns):
        hasten_bit_loops(part)
        select_arms(part)
        drop_looks(part)
    made.functions = [_improved(f) for f in region.functions]
    return made


def print_region(region: Region) -> tuple[str, str]:
    """The C file of a region, and what of it are its functions."""
    printer = _Printer(region)
    for turns in region.turns:
        printer.of_turns(turns).function()
    for function in region.functions:
        printer.out.line(printer.inner(function).signature() + ";")
    for function in region.functions:
        printer.inner(function).function()
    printer.function()
    text = str(printer.out)
    lanes = "\n".join(printer.used_lanes)
    return with_headers(HEADERS, "", prelude_for(printer.c.used_functions), text, definitions=lanes), text


def _ints(texts: Iterable[str]) -> str:
    return f"(const int64_t[]){{{', '.join(texts)}}}"


class _Style(CStyle):
    """Spells the expressions of regions."""

    def call(self, e: Expr, args: list[str]) -> str:
        if e.op in EXACT:
            return f"({args[0]} {EXACT[e.op]} {args[1]})"
        if e.op in BY_POWERS_OF_TWO and e.dtype is dtypes.int64 and (bits := power_of_two(e.args[1])) is not None:
            return f"({args[0]} >> {bits})" if e.op == "floordiv" else f"({args[0]} & {2**bits - 1}LL)"
        if e.op == "has_lanes":
            return f"DG_HAS_LANES{e.value or ''}"
        if e.op == "last_lane":
            width, part = (int(a.value) for a in e.args[1:])  # type: ignore[call-overload]
            last = f"{args[0]}_{width // part - 1}[{part - 1}]"
            return f"({last} != 0)" if e.dtype.is_bool else last
        if e.op == "sum_lanes":
            width, part = (int(a.value) for a in e.args[1:])  # type: ignore[call-overload]
            return "(" + " + ".join(f"(int64_t){args[0]}_{k}[{lane}]" for k in range(width // part) for lane in range(part)) + ")"
        if e.op == "any_lanes":
            return f"dg_any({' | '.join(f'{args[0]}_{k}' for k in range(int(e.args[1].value)))})"  # type: ignore[call-overload]
        if e.op == "matmul":
            return f"dg_loop_matmul_{e.value}(rt, {', '.join(args)})"
        if e.op == "search":
            return f"dg_loop_search_{e.value}({', '.join(args)})"
        if e.op == "reduction":
            return f"dg_loop_{'_'.join(e.value)}({', '.join(args)})"  # type: ignore[arg-type]
        if e.op == "dot" and e.value is not None:
            return f"dg_loop_dot_of_copies_{e.dtype.suffix}(rt, {int(e.value == 'positive')}, {', '.join(args)})"
        if e.op == "dot":
            return f"dg_loop_dot_{e.dtype.suffix}(rt, {', '.join(args)})"
        if e.op == "draw":
            function, *given = args
            return f"((double (*)(void *{', double' * (len(given) - 1)}))(intptr_t){function})({', '.join(given)})"
        if e.op == "in_order":
            n, its = (int(a.value) for a in e.args[5:7])  # type: ignore[call-overload]
            ends = [7, 7 + n, 7 + 2 * n, 7 + 2 * n + its, 7 + 2 * n + 2 * its]
            return f"dg_in_order({', '.join([*args[:7], *(_ints(args[a:b]) for a, b in pairwise(ends))])})"
        if e.op in SUPPORT:
            return f"dg_{e.op}({', '.join(args)})"
        if e.op == "tape":
            return f"dg_tape_{e.value}({', '.join(['&tape', *args])})"
        return super().call(e, args)


class _Printer:
    def __init__(self, region: Region):
        self.region = self.whole = region
        self.out = Writer()
        self.c = _Style(self.out)
        self.used_lanes: dict[str, None] = {}  # of the whole file
        self.lanes = LaneVectors(self.c, region.lanes, self.used_lanes)
        self.is_function = False
        self.name = ""  # of one that does turns of a loop
        self.owned = sorted(name for name, kind in region.variables.items() if kind == OWNED)
        self.has_log = region.keeps and bool(region.functions)
        self.cleans_up = bool(self.owned) or region.has_tape or self.has_log
        self.allocates = any(isinstance(i, Checked) and CHECKED[i.function].allocates for i in region.instructions())

    def function(self) -> None:
        out, region = self.out, self.region
        out.open(self.signature())
        self._declare()
        if any(isinstance(i, Interruptible) for i in region.instructions()):
            out.line("const int32_t *const signals = stop->signals;")
        if region.has_tape:
            out.line("dg_tape tape = {.rt = rt};")
        if self.has_log:
            out.line("dg_log log = {0};")
        if self.is_function:
            out.line(f"if (__builtin_expect(dg_gives_up(stop, depth){self._or_pauses(1)}, 0)) {{ {self._returns(1)} }}")
        elif region.functions:
            out.line("const int64_t depth = stop->calls_left;")
        self._parameters()
        for block in region.blocks:
            self._block(block)
        ways = [getattr(i, name, None) for i in region.instructions() for name in ("exit", "raising")]
        ways += [b.end.exit for b in region.blocks if isinstance(b.end, Leave)]
        taken = {e.number for e in ways if isinstance(e, Exit)}
        for exit in region.exits:
            if exit.number in taken:
                self._exit(exit)
        if self.cleans_up:
            out.line("left:;")
            for name in self.owned:
                out.line(f"dg_drop({name});")
            if region.has_tape:
                out.line("dg_tape_free(&tape);")
            if self.has_log:
                out.line("free(log.kept);")
            out.line(self._returns("number"))
        out.close()

    def inner(self, function: Region) -> "_Printer":
        """A printer of one of the region's functions."""
        made = _Printer(function)
        made.out, made.c, made.whole, made.is_function = self.out, self.c, self.region, True
        made.lanes = LaneVectors(self.c, function.lanes, self.used_lanes)
        return made

    def of_turns(self, turns: Region) -> "_Printer":
        """A printer of the turns of one of the region's loops."""
        made = _Printer(turns)
        made.out, made.c, made.name = self.out, self.c, f"dg_turns_{turns.number}"
        made.lanes = LaneVectors(self.c, turns.lanes, self.used_lanes)
        return made

    def signature(self) -> str:
        given = "dg_slot *state, const dg_runtime *rt, dg_stop *stop"
        if self.name:
            return f"DG_LOOP static int32_t {self.name}({given})"
        if not self.is_function:
            return f"DG_LOOP int32_t {FUNCTION}({given})"
        arguments = "".join(f", {self._type(self.region.variables[a])} {a}" for a in self.region.arguments)
        log = ", dg_log *log" if self.whole.keeps else ""
        kind, results = ("inline dg_result", "") if self.fits_registers else ("int", ", dg_slot *results")
        return f"DG_LOOP static {kind} dg_function_{self.region.number}({given}, int64_t depth{results}{log}{arguments})"

    @property
    def fits_registers(self) -> bool:
        """Whether it is a function whose result is given in registers.  gcc may put some of its calls into itself (inline)."""
        return self.is_function and self.region.width == 1

    def _returns(self, number: int | str) -> str:
        """`number`: of a function, whether it gives up; else that of the exit."""
        return f"result.gave_up = {number}; return result;" if self.fits_registers else f"return {number};"

    def _declare(self) -> None:
        by_type: dict[str, list[str]] = {}
        calls = {i.name: i.width for i in self.region.instructions() if isinstance(i, CallFunction)}
        for name, width in calls.items():
            self.out.line(f"dg_result r_{name};" if width == 1 else f"dg_slot r_{name}[{width + 1}];")
        if self.fits_registers:
            self.out.line("dg_result result;")
        for turns in (i for i in self.region.instructions() if isinstance(i, RunTurns)):
            n = sum(slots_of(a.dtype) for a in turns.args)
            self.out.line(f"static dg_worth w_{turns.number};")
            self.out.line(f"dg_slot r_{turns.name}[{turns.width}], g_{turns.name}[{3 + n}];")
        for i in {i.number: i for i in self.region.instructions() if isinstance(i, CallOut)}.values():
            self.out.line(f"dg_slot c_{i.number}[{i.n_slots}];")
        for name, kind in sorted(self.region.variables.items()):
            if name in self.region.arguments:
                continue
            by_type.setdefault(self._type(kind), []).append(name)
        for ctype, names in sorted(by_type.items()):
            star = "*" if ctype.endswith("*") else ""
            base = ctype.removesuffix("*").strip()
            for k in range(0, len(names), 12):
                given = (f"{star}{n}{' = 0' if n in self.owned else ''}" for n in names[k : k + 12])
                self.out.line(f"{base} {', '.join(given)};")
        for line in self.lanes.declarations():
            self.out.line(line)
        if self.cleans_up:
            self.out.line("int32_t number;")

    def _type(self, kind: DType | str) -> str:
        return "char *" if kind in (POINTER, OWNED) else self.c.type(kind)  # type: ignore[arg-type]

    def _parameters(self) -> None:
        slot = 0
        wanted = set(self.region.parameters) - set(self.region.arguments)
        for name in self.whole.parameters:
            kind = self.whole.variables[name]
            if name in wanted:
                self._load_slot(name, f"state[{slot}]")
            slot += 1 if isinstance(kind, str) else slots_of(kind)

    def _load_slot(self, name: str, slot: str) -> None:
        kind = self.region.variables[name]
        if isinstance(kind, str):
            self.out.line(f"{name} = {slot}.p;")
        elif kind.is_bool:
            self.out.line(f"{name} = *(const uint8_t *)&{slot} != 0;")
        else:
            memory = f"*(const {self.c.memory_type(kind)} *)&{slot}"
            self.out.line(f"{name} = {self.c.loaded(memory, kind)};")

    def _store_slot(self, slot: str, value: Expr, pointer: bool) -> None:
        kind, text = value.dtype, self.text(value)
        if pointer:
            self.out.line(f"{slot}.p = {text};")
        elif kind.is_bool or (kind.is_integer and kind.itemsize == 8):
            self.out.line(f"{slot}.i = {text};")
        else:
            self.out.line(f"*({self.c.memory_type(kind)} *)&{slot} = {self.c.stored(text, kind)};")

    def _slot(self, slot: Slot) -> str:
        index = self.text(slot.index) if slot.width == 1 else f"{self.text(slot.index)} * {slot.width} + {slot.at}"
        return f"((dg_slot *){self.text(slot.items)})[{index}]"

    # -- blocks -------------------------------------------------------------------------------------------------------------
    def _block(self, block: Block) -> None:
        out = self.out
        out.depth -= 1
        out.line(f"b{block.number}:;" + (f" /* line {block.line} */" if block.line else ""))
        out.depth += 1
        for instruction in block.body:
            self._instruction(instruction)
        end = block.end
        if isinstance(end, Jump):
            out.line(f"goto b{end.block.number};")
        elif isinstance(end, Branch):
            out.line(f"if ({self.text(end.test)}) goto b{end.then.number}; else goto b{end.otherwise.number};")
        elif isinstance(end, Leave):
            out.line(f"goto x{end.exit.number};")
        else:
            raise AssertionError(f"block {block.number} has no end")

    def text(self, e: Expr) -> str:
        return self.c.expr(e, Scope())

    def _leave(self, test: str, exit: Exit | Block) -> None:
        self.out.line(f"if (__builtin_expect({test}, 0)) goto {'x' if isinstance(exit, Exit) else 'b'}{exit.number};")

    def _instruction(self, i: Instruction) -> None:
        out = self.out
        if isinstance(i, Set):
            out.line(f"{i.name} = {self.text(i.value)};")
        elif isinstance(i, Hold):
            out.line(f"dg_hold(&{i.name}, {self.text(i.value)});")
        elif isinstance(i, NewMemory):
            given = f"{i.dtype.numpy.num}, {i.dtype.itemsize}, {len(i.sizes)}, {_ints(map(self.text, i.sizes))}, {int(i.fortran)}"
            self._leave(f"dg_new_memory(&{i.name}, {given})", i.exit)
        elif isinstance(i, Checked):
            self._checked(i)
        elif isinstance(i, CallFunction):
            given = "".join(f", {self.text(a)}" for a in i.args)
            log = "" if not self.whole.keeps else ", log" if self.is_function else ", &log"
            results = "" if i.width == 1 else f", r_{i.name}"
            made = f"dg_function_{i.number}(state, rt, stop, depth - 1{results}{log}{given})"
            if i.width == 1:
                out.line(f"r_{i.name} = {made};")
                made = f"r_{i.name}.gave_up"
            self._leave(f"dg_done(&log, {made})" if log == ", &log" else made, i.exit)
            out.line(f"{i.name} = (char *)&r_{i.name};")
        elif isinstance(i, CallOut):
            self._call_out(i)
        elif isinstance(i, Require):
            self._leave(f"!{self.text(i.test)}", i.exit)
        elif isinstance(i, Position):
            self._position(i)
        elif isinstance(i, Load):
            kind = i.place.dtype
            memory = f"*(const {self.c.memory_type(kind)} *)({self._place(i.place)})"
            out.line(f"{i.name} = {self.c.loaded(memory, kind)};")
        elif isinstance(i, Store):
            kind = i.place.dtype
            if i.kept:
                out.line(f"if (dg_keep(log, {self._place(i.place)}, {kind.itemsize})) goto x0;")
            out.line(f"*({self.c.memory_type(kind)} *)({self._place(i.place)}) = {self.c.stored(self.text(i.value), kind)};")
        elif isinstance(i, Address):
            out.line(f"{i.name} = {self._place(i.place)};")
        elif isinstance(i, Interruptible):
            test = "__atomic_load_n(signals, __ATOMIC_ACQUIRE)"  # what other threads write is seen after it
            if not i.within:
                test += self._or_pauses(i.turns)
            self._leave(test, i.exit)
        elif isinstance(i, Field):
            star = "(char *)" if i.field == "items" else ""
            out.line(f"{i.name} = {star}((dg_list *){self.text(i.owner)})->{i.field};")
        elif isinstance(i, SetLength):
            out.line(f"((dg_list *){self.text(i.owner)})->length = {self.text(i.value)};")
        elif isinstance(i, Changed):
            out.line(f"((dg_list *){self.text(i.owner)})->changed = 1;")
        elif isinstance(i, LoadSlot):
            self._load_slot(i.name, self._slot(i.slot))
        elif isinstance(i, StoreSlot):
            self._store_slot(self._slot(i.slot), i.value, i.pointer)
        elif isinstance(i, Reserve):
            self._leave(f"dg_tape_reserve(&tape, {i.slots})", i.exit)
        elif isinstance(i, Push):
            self._store_slot("(*tape.at++)", i.value, i.pointer)
        elif isinstance(i, Pop):
            self._load_slot(i.name, "(*--tape.at)")
        elif isinstance(i, Release):
            out.line("dg_tape_release(&tape);")
        elif isinstance(i, Apart):
            self._leave(f"dg_meets({self._place(i.place)}, {i.place.dtype.itemsize}, {self._array(i.array)})", i.exit)
        elif isinstance(i, Separate):
            arrays = [self._array(touched) for touched in (i.array, i.other)]
            self._leave(f"dg_overlap({', '.join(arrays)})", i.exit)
        elif isinstance(i, Unfolded):
            sizes, strides = self._axes(i.array)
            self._leave(f"dg_folds({i.array.dtype.itemsize}, {len(sizes)}, {_ints(sizes)}, {_ints(strides)})", i.exit)
        elif isinstance(i, (SetLanes, LoadLanes, StoreLanes, CheckedLanes)):
            self._lanes(i)
        elif isinstance(i, OneByOne):
            out.line('__asm__ volatile ("");')
        elif isinstance(i, RunTurns):
            self._run_turns(i)
        else:
            raise AssertionError(i)

    def _lanes(self, i: SetLanes | LoadLanes | StoreLanes | CheckedLanes) -> None:
        at = step = ""
        if isinstance(i, (LoadLanes, StoreLanes)):
            at, step = self._place(i.place), str(i.place.dtype.itemsize) if i.step is None else self.text(i.step)
        for line in self.lanes.lines(i, at, step):
            self.out.line(line)

    def _or_pauses(self, turns: int) -> str:
        """What else Python is to do now and then: free lists, give other threads their turn."""
        lists = " || stop->list_bytes > stop->most_list_bytes" if self.allocates else ""
        return lists + (f" || (stop->turns_left -= {turns}) < 0" if self.region.holds_gil else "")

    def _run_turns(self, i: RunTurns) -> None:
        out, region = self.out, self.region.turns[i.number]
        given, results = f"g_{i.name}", f"r_{i.name}"
        out.open(f"if (dg_may_run_turns(rt, &w_{i.number}, {self.text(i.turns)}))")
        self._store_state(given, [*[Expr("const", (), dtypes.int64, 0)] * 3, *i.args])
        out.line("const dg_touched touched[] = {")
        for t in (*i.written, *i.read):
            sizes, strides = map(", ".join, self._axes(t))
            first = "0" if t.first is None else self.text(t.first)
            along = f"{t.axis}, {first}, {t.step}, {t.low}, {t.high}"
            out.line(f"    {{{self.text(t.data)}, {t.dtype.itemsize}, {len(t.sizes)}, {along}, {{{sizes}}}, {{{strides}}}}},")
        out.line("};")
        n_written, n = len(i.written), len(i.written) + len(i.read)
        code = f"dg_turns_{i.number}, {region.n_slots}, {given}, {sum(slots_of(a.dtype) for a in i.args) + 3}"
        limits = f"{int(i.keeps)}, {LOOK_NANOSECONDS}, {PARALLEL_NANOSECONDS}"
        loop = f"{{{code}, {results}, {i.width}, touched, {n_written}, {n}, {self.text(i.turns)}, {limits}}}"
        out.line(f"const dg_loop_turns loop = {loop};")
        out.line(f"rt->run_turns(rt, stop, &w_{i.number}, &loop);")
        out.close()
        out.line(f"else {results}[0].i = 0;")
        out.line(f"{i.name} = (char *){results};")

    def _array(self, t: Touched) -> str:
        sizes, strides = self._axes(t)
        return f"{self.text(t.data)}, {t.dtype.itemsize}, {len(sizes)}, {_ints(sizes)}, {_ints(strides)}"

    def _axes(self, t: Touched) -> tuple[list[str], list[str]]:
        """The sizes and strides of an array."""
        return [self.text(n) for n in t.sizes], [str(t.dtype.itemsize) if s is None else self.text(s) for s in t.strides]

    def _checked(self, i: Checked) -> None:
        support_name = CHECKED[i.function].support
        if i.function == "math":
            name, *args = i.args
            given = ", ".join(self.text(a) for a in args)
            self.out.line(f"{i.name} = dg_math_{name.value}({given});")
            self._leave(f"!__builtin_isfinite({i.name})", i.exit)
            return
        given = ", ".join([*["stop"][: CHECKED[i.function].allocates], *(self.text(a) for a in i.args)])
        self._leave(f"dg_{support_name}({given}, &{i.name})", i.exit)

    def _call_out(self, i: CallOut) -> None:
        out, slots = self.out, f"c_{i.number}"
        self._store_state(slots, i.args)
        out.open(f"switch (stop->call_out(stop, {i.number}, {slots}))")
        for outcome, exit in (("DG_OTHER_TYPE", i.exit), ("DG_RAISES", i.raising)):
            out.line(f"case {outcome}: {i.name} = {slots}[0].p; goto {'x' if isinstance(exit, Exit) else 'b'}{exit.number};")
        out.close()
        out.line(f"{i.name} = (char *){slots};")

    def _position(self, i: Position) -> None:
        extent, index = self.text(i.extent), self.text(i.index)
        if i.index.op == "const":
            value = int(i.index.value)  # type: ignore[call-overload]
            self.out.line(f"{i.name} = {index};" if value >= 0 else f"{i.name} = {extent} + {index};")
        else:
            self.out.line(f"{i.name} = {index} + ({index} < 0 ? {extent} : 0);")
        self._leave(f"(uint64_t){i.name} >= (uint64_t){extent}", i.exit)

    def _place(self, place: Place) -> str:
        text = self.text(place.base)
        for index, stride in place.steps:
            step = str(place.dtype.itemsize) if stride is None else self.text(stride)
            text += f" + {self.text(index)} * {step}"
        return text

    def _store_state(self, into: str, parts: Sequence[Expr]) -> None:
        slot = 0
        for part in parts:
            declared = self.region.variables.get(str(part.value)) if part.op == "var" else None
            if declared == OWNED:
                self.out.line(f"dg_give(&{into}[{slot}], {self.text(part)});")
            else:
                self._store_slot(f"{into}[{slot}]", part, declared == POINTER)
            slot += slots_of(part.dtype)

    # -- exits --------------------------------------------------------------------------------------------------------------
    def _exit(self, exit: Exit) -> None:
        out = self.out
        out.depth -= 1
        out.line(f"x{exit.number}:;")
        out.depth += 1
        self._store_state("(&result.slot)" if self.fits_registers else "results" if self.is_function else "state", exit.state)
        left = int(exit.number == 0) if self.is_function else self._number(exit)
        if self.cleans_up:
            out.line(f"number = {left}; goto left;")
        else:
            out.line(self._returns(left))

    def _number(self, exit: Exit) -> int | str:
        if not exit.cases:
            return exit.number
        bits = (f"({self.text(exit.state[at])} == {value}) << {k}" for k, (at, value) in enumerate(exit.cases))
        return f"((const int32_t[]){{{', '.join(map(str, exit.numbers))}}})[{' | '.join(bits)}]"
