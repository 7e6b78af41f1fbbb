"""CUDA schedules: what one thread, team or block of a kernel computes, and what moves as packs.

A *team* is the threads that compute one row together: a part of a warp, a warp, or a block.  A *pack* is 16 bytes (or fewer) of
neighbours in memory that one thread moves at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Union

from dynagraph.ir import expr
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.loops import (
    Axis,
    ColumnReduce,
    Kernel,
    Loop,
    Reduce,
    ScanLoop,
    Sort,
    Statement,
    Store,
    expressions,
    map_body,
    map_expr,
    statements,
    stored_buffers,
)
from dynagraph.ir.passes.split_scans import kind_of_totals

WARP = 32
BLOCK = 256  # threads, where rows do not want more
MOST_THREADS = 1024  # of a block
PACK_BYTES = 16  # the widest access of a thread
PACKS_PER_THREAD = 8  # of a row: with more, more threads take part
KEPT_BYTES = 256  # of a thread's registers that hold its part of a row from one pass over it to the next
REGISTER_BYTES = 256 * 1024  # of all threads of a block together,
KEPT_SHARE = 4  # ... of which one part in so many may be kept
UNROLLED = 16  # turns of a loop that is written out
FITTING_BYTES = 64  # of a thread's part of one array, where rows of any length are written out: at most
FITTING_TURNS = 4  # ... and so many turns at least
TILE = 32  # elements of a side of a tile of a transposition
TILE_ROWS = 8  # of threads
EARLY_LOADS = 4  # of a kernel with tiles: each keeps as many values in registers as a thread has elements of a tile
SHARED_BYTES = 48 * 1024  # that a block has without asking for more
SERIAL_SCAN_ROWS = 1 << 16  # threads that each have a row to scan keep a device busy: neighbours read neighbouring elements then
COLUMNS = 32  # neighbouring columns that a block reduces
FEW_UPDATES = 16  # of a scatter, which one thread does
UPDATES_PER_OWNER = 8  # of a scatter of more; with more still, there are more blocks of owners,
OWNER_BLOCKS = 512  # ... up to about this many; and buckets, where updates are sorted
UNROLLED_ROWS = 4  # loads of a thread that are on their way at a time


@dataclass(frozen=True)
class Map:
    """One thread computes a pack of neighbours along the last axis (`width` 1: one element)."""

    width: int


@dataclass(frozen=True)
class Tiled:
    """A block computes a square of axis `across` and the last axis; what lies along `across` goes through shared memory.

    `early`: loads of what lies along the last axis, which are begun before the block waits for the others.
    """

    across: int
    loads: tuple[Expr, ...]
    early: tuple[Expr, ...]


@dataclass(frozen=True)
class Rows:
    """A team of threads computes one iteration of the outer axes.

    `turns`: how many packs (or elements) each thread has of a row, or has at most, where that is known and few: then loops over the
    row are written out, and what several passes load stays in registers.  `multiple`: a size that is a multiple of `width`.
    `fitting`: where the length of a row is known only when the kernel runs: ways for rows that fit; the first that does is taken.
    """

    team: int
    block: int
    width: int
    turns: int | None
    multiple: Symbol | None = None
    fitting: tuple["Rows", ...] = ()

    @property
    def room(self) -> int | None:
        """The elements that a row has at most."""
        return None if self.turns is None else self.team * self.turns * self.width


@dataclass(frozen=True)
class Columns:
    """A block reduces `columns` neighbouring columns, `BLOCK // columns` rows at a time."""

    columns: int


@dataclass(frozen=True)
class ParallelScan:
    """A block walks along the axis; at a time, each of its threads takes `width` neighbours."""

    block: int
    width: int


@dataclass(frozen=True)
class SerialScan:
    """One thread walks along the axis: the order of the steps tells."""


@dataclass(frozen=True)
class Ordered:
    """Stores whose places are computed, and may meet: each iteration of the outer axes has a thread, which does them in order."""


@dataclass(frozen=True)
class Owned:
    """The same for more of them: each place, in each of `columns` neighbouring iterations of the outer axes, has a thread of one of
    `blocks` blocks, which all look for the updates that are theirs, in order; where these are sorted, each has a bucket of them.
    """

    columns: int
    blocks: int


@dataclass(frozen=True)
class Sorting:
    """A warp goes through a part of what is sorted into buckets."""


Schedule = Union[Map, Tiled, Rows, Columns, ParallelScan, SerialScan, Ordered, Owned, Sorting]


def schedule(kernel: Kernel, packs: bool) -> Schedule:
    """How a kernel is run.  `packs`: whether all memory begins at multiples of 16 bytes."""
    body = kernel.body
    if has_places(body):
        loop = next((s for s in body if isinstance(s, Loop)), None)
        return Map(_map_width(kernel, packs)) if loop is None else _in_order(kernel, loop)
    if any(isinstance(s, Sort) for s in body):
        return Sorting()
    column = next((s for s in body if isinstance(s, ColumnReduce)), None)
    if column is not None:
        return Columns(_power_of_two(min(max(1, column.column.hint), COLUMNS)))
    running = next((s for s in body if isinstance(s, ScanLoop)), None)
    if running is not None:
        return _scan(kernel, running, packs)
    if any(isinstance(s, (Reduce, Loop)) for s in body):
        return _rows(kernel, packs)
    tiled = _tiled(kernel)
    if tiled is not None:
        return tiled
    return Map(_map_width(kernel, packs))


def has_places(body: Sequence[Statement]) -> bool:
    """Whether something is stored at places that are computed."""
    return any(isinstance(s, Store) and s.place is not None for s in statements(body))


def _map_width(kernel: Kernel, packs: bool) -> int:
    return pack_width(kernel.axes[-1], kernel.body) if packs and kernel.axes else 1


def _in_order(kernel: Kernel, loop: Loop) -> Ordered | Owned:
    updates, kept = _hint_of(loop.axes), _hint_of(kernel.axes)
    columns = min(BLOCK, _power_of_two(kept))
    if loop.sorted_by is not None:
        return Owned(columns, loop.sorted_by.n)
    if updates <= FEW_UPDATES:
        return Ordered()
    tiles = max(1, -(-kept // columns))
    return Owned(columns, max(1, min(OWNER_BLOCKS // tiles, updates * columns // (BLOCK * UPDATES_PER_OWNER))))


def _scan(kernel: Kernel, running: ScanLoop, packs: bool) -> ParallelScan | SerialScan:
    rows = 1
    for axis in kernel.axes:
        rows *= axis.hint
    loads = [e for root in expressions((running,)) for e in unconditional(root) if e.op == "load"]
    apart = any(_is_apart(e.value[1], running.axis.symbol) for e in loads)  # type: ignore[index]
    if kind_of_totals(running.accumulator) is None or (apart and rows >= SERIAL_SCAN_ROWS):
        return SerialScan()
    width = pack_width(running.axis, (running,)) if packs else 1
    most = MOST_THREADS if rows < WARP else BLOCK  # the threads of a block wait for each other in each turn
    return ParallelScan(min(most, max(WARP, _power_of_two(-(-running.axis.hint // width)))), width)


def _power_of_two(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, n - 1).bit_length()


# -- packs --------------------------------------------------------------------------------------------------------------------


def moves_as_pack(index: IntExpr, axis: Axis, width: int, multiple: Symbol | None = None) -> bool:
    """Whether `width` neighbours along an axis, the first at a multiple of it, are neighbours in memory at a multiple of it.

    `multiple`: a size that is a multiple of `width`.
    """
    (step,) = (index.coefficient(axis.symbol),)
    if step != 1:
        return False
    rest = index - IntExpr({(axis.symbol,): 1})
    return all(coefficient % width == 0 or multiple in monomial for monomial, coefficient in rest.terms.items())


def pack_width(axis: Axis, body: Sequence[Statement], multiple: Symbol | None = None) -> int:
    """How many neighbours along the last axis one thread takes: as many as fill `PACK_BYTES` with the widest elements."""
    if any(coefficient % PACK_BYTES for coefficient in axis.start.terms.values()):
        return 1
    loads = [(e.value[1], e.dtype) for root in expressions(body) for e in unconditional(root) if e.op == "load"]  # type: ignore[index]
    stores = [(s.index, s.value.dtype) for s in statements(body) if isinstance(s, Store) and s.place is None]
    moved: list[DType] = [dtype for index, dtype in (*loads, *stores) if moves_as_pack(index, axis, 1)]
    if not moved:
        return 1
    width = PACK_BYTES // max(dtype.itemsize for dtype in moved)
    packed = [d for index, d in (*loads, *stores) if moves_as_pack(index, axis, width, multiple)]
    return width if width > 1 and packed else 1


def unconditional(root: Expr) -> list[Expr]:
    """The expressions that are evaluated in any case."""
    return expr.walk(root, lambda e: e.args[:1] if e.op == "choose" else e.args)


@dataclass(frozen=True)
class Pack:
    """Neighbours in memory: `name` is the local variable, `index` that of the first."""

    name: str
    buffer: str
    dtype: DType
    index: IntExpr


def packed(
    body: Sequence[Statement], axis: Axis, width: int, lane: IntExpr, kept: Mapping[Expr, Expr], multiple: Symbol | None = None
) -> tuple[tuple[Statement, ...], list[Pack], list[Pack]]:
    """The statements for one element of a pack, the packs that they read, and those that they fill.

    `lane` is the place in the pack; `kept` holds what has been loaded before, and how it is spelled now.
    """
    loads: dict[Expr, Pack] = {}
    stores: dict[tuple[str, IntExpr], Pack] = {}
    always = {e for root in expressions(body) for e in unconditional(root) if e.op == "load"}

    def load(e: Expr) -> Expr:
        if e in kept:
            return kept[e]
        if e.op != "load" or e not in always:
            return e
        buffer: str
        index: IntExpr
        buffer, index = e.value  # type: ignore[misc]
        if not moves_as_pack(index, axis, width, multiple):
            return e
        pack = loads.setdefault(e, Pack(f"p{len(loads)}", buffer, e.dtype, index))
        return expr.load(f"{pack.name}.v", lane, e.dtype)

    memo: dict[Expr, Expr] = {}
    changed = map_body(body, lambda e: map_expr(e, memo, load))

    def store(s: Statement) -> Statement:
        if isinstance(s, Store) and s.place is None and moves_as_pack(s.index, axis, width, multiple):
            pack = stores.setdefault((s.buffer, s.index), Pack(f"q{len(stores)}", s.buffer, s.value.dtype, s.index))
            return Store(f"{pack.name}.v", lane, s.value)
        return s

    return tuple(map(store, changed)), list(loads.values()), list(stores.values())


# -- rows ---------------------------------------------------------------------------------------------------------------------


def pass_axes(s: Statement) -> tuple[Axis, ...] | None:
    """The axes of a pass over a row."""
    return s.axes if isinstance(s, (Reduce, Loop)) and s.axes else None


def _rows(kernel: Kernel, packs: bool) -> Rows:
    passes = [s for s in kernel.body if pass_axes(s)]
    if not passes:
        return Rows(1, BLOCK, 1, None)
    lengths = {_length(s) for s in passes}
    hint = max(_hint(s) for s in passes)
    packs = packs and all(len(pass_axes(s) or ()) == 1 for s in passes)
    length = next(iter(lengths)) if len(lengths) == 1 else None
    if length is not None and length.constant is None and not length.symbols() & {axis.symbol for axis in kernel.axes}:
        return _rows_of_any_length(kernel, passes, length, hint, packs)
    width = _width(passes) if packs else 1
    team = _team(kernel, -(-hint // width), PACKS_PER_THREAD, PACKS_PER_THREAD // 2)
    plan = Rows(team, _block(team), width, None)
    known = length.constant if length is not None else None
    if not known or known % width or -(-known // (width * team)) > UNROLLED:
        return plan
    written_out = replace(plan, turns=-(-known // (width * team)))
    keeps_something = kept_loads(kernel, written_out) or not kept_loads(kernel, replace(plan, turns=1))
    return written_out if keeps_something else plan


def _rows_of_any_length(kernel: Kernel, passes: Sequence[Statement], length: IntExpr, hint: int, packs: bool) -> Rows:
    """Where the length is the same for all rows, but known only when the kernel runs.

    What several passes read of rows of up to about twice the length seen at capture stays in registers, element by element: few of
    the lengths that come are multiples of a pack, and one more way for these would double the code.  What is read once, or is too
    long, is moved as packs where the length is a multiple.
    """
    loads = {e for root in expressions(passes) for e in unconditional(root) if e.op == "load"}
    most = FITTING_BYTES // max([4, *(e.dtype.itemsize for e in loads)])
    team = _team(kernel, hint, most // 2, most // 2)
    turns = _power_of_two(-(-hint // team))
    fits = replace(Rows(team, _block(team), 1, None), turns=min(most, max(FITTING_TURNS, 2 * turns)))
    if turns <= most and kept_loads(kernel, fits):
        return replace(fits, turns=None, fitting=(fits,))
    multiple = next((s for s in length.symbols() if length == IntExpr({(s,): 1})), None)
    usual, width = (_width(passes), _width(passes, multiple)) if packs else (1, 1)
    team = _team(kernel, -(-hint // width), PACKS_PER_THREAD, PACKS_PER_THREAD // 2)
    general = Rows(team, _block(team), usual, None)
    return replace(general, fitting=(replace(general, width=width, multiple=multiple),) if width > usual else ())


def _width(passes: Sequence[Statement], multiple: Symbol | None = None) -> int:
    """How many neighbours of a row a thread moves at once."""
    return min(pack_width(axes[-1], (s,), multiple) for s in passes if (axes := pass_axes(s)))


def _team(kernel: Kernel, items: int, most: int, few: int) -> int:
    """How many threads compute a row of so many packs: a warp at most where each has `most` then, else so that each has `few`."""
    rows = 1
    for axis in kernel.axes:
        rows *= axis.hint
    if items > WARP * most or (rows < WARP and items > WARP):
        return min(MOST_THREADS, max(WARP, _power_of_two(-(-items // few))))
    return min(WARP, _power_of_two(items))


def _block(team: int) -> int:
    return team if team > WARP else BLOCK


def _length(s: Statement) -> IntExpr:
    total = IntExpr.of(1)
    for axis in pass_axes(s) or ():
        total = total * axis.extent
    return total


def _hint(s: Statement) -> int:
    return _hint_of(pass_axes(s) or ())


def _hint_of(axes: Iterable[Axis]) -> int:
    total = 1
    for axis in axes:
        total *= axis.hint
    return total


def _room(block: int) -> int:
    """The bytes that each thread of a block of so many may keep."""
    return min(KEPT_BYTES, REGISTER_BYTES // KEPT_SHARE // block)


def kept_loads(kernel: Kernel, plan: Rows) -> list[Expr]:
    """What several passes over a row load, and each thread keeps."""
    if plan.turns is None:
        return []
    stored = stored_buffers(kernel.body)
    passes = [s for s in kernel.body if pass_axes(s)]
    shapes = {tuple((a.symbol, a.start) for a in pass_axes(s) or ()) for s in passes}
    if len(shapes) != 1:
        return []
    axis = (pass_axes(passes[0]) or ())[-1]
    seen: dict[Expr, int] = {}
    for s in passes:
        for e in {e for root in expressions((s,)) for e in unconditional(root) if e.op == "load"}:
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            if buffer not in stored and (plan.width == 1 or moves_as_pack(index, axis, plan.width, plan.multiple)):
                seen[e] = seen.get(e, 0) + 1
    found: list[Expr] = []
    size = 0
    for e, uses in sorted(seen.items(), key=lambda pair: (str(pair[0].value), pair[0].dtype.name)):
        bytes_of = max(4, e.dtype.itemsize) * plan.width * plan.turns
        if uses > 1 and size + bytes_of <= _room(plan.block):
            found.append(e)
            size += bytes_of
    return found


# -- transpositions -----------------------------------------------------------------------------------------------------------


def _tiled(kernel: Kernel) -> Tiled | None:
    """A map that reads memory along another axis than the last, along which it stores."""
    if len(kernel.axes) < 2:
        return None
    *others, last = kernel.axes
    if last.hint < TILE // 2 or any(a.start != 0 for a in kernel.axes):
        return None
    stores = [s for s in kernel.body if isinstance(s, Store)]
    stored = stored_buffers(kernel.body)
    if any(s.index.coefficient(last.symbol) != 1 for s in stores):
        return None
    loads = {e for root in expressions(kernel.body) for e in unconditional(root) if e.op == "load"}
    apart = [e for e in loads if e.value[0] not in stored and _is_apart(e.value[1], last.symbol)]  # type: ignore[index]
    for k, axis in enumerate(others):
        chosen = [e for e in apart if e.value[1].coefficient(axis.symbol) == 1 and axis.hint >= TILE // 2]  # type: ignore[index]
        chosen.sort(key=lambda e: str(e.value))
        while chosen and sum(e.dtype.itemsize for e in chosen) * TILE * (TILE + 1) > SHARED_BYTES:
            chosen.pop()
        if chosen:
            straight = [e for e in loads if e.value[0] not in stored and e.value[1].coefficient(last.symbol) == 1]  # type: ignore[index]
            straight.sort(key=lambda e: str(e.value))
            return Tiled(k, tuple(chosen), tuple(straight[:EARLY_LOADS]))
    return None


def _is_apart(index: IntExpr, symbol: Symbol) -> bool:
    step = index.coefficient(symbol)
    return step is not None and step != 0 and step != 1


# -- sizes --------------------------------------------------------------------------------------------------------------------


def n_iterations(axes: Iterable[Axis]) -> IntExpr:
    """How many iterations a nest of loops has."""
    total = IntExpr.of(1)
    for axis in axes:
        total = total * axis.extent
    return total


def replaced(body: Sequence[Statement], spelled: Callable[[Expr], Expr | None]) -> tuple[Statement, ...]:
    """The statements with some leaves spelled otherwise."""
    memo: dict[Expr, Expr] = {}
    return map_body(body, lambda e: map_expr(e, memo, lambda leaf: spelled(leaf) or leaf))


__all__ = [
    "BLOCK", "COLUMNS", "MOST_THREADS", "OWNER_BLOCKS", "TILE", "TILE_ROWS", "UNROLLED_ROWS", "WARP", "Columns", "Map",
    "Ordered", "Owned", "Pack", "ParallelScan", "Rows", "Schedule", "SerialScan", "Sorting", "Tiled", "has_places",
    "kept_loads", "moves_as_pack", "n_iterations", "pack_width", "packed", "pass_axes", "replaced",
    "schedule",
]  # fmt: skip
