"""Lower fused groups to kernels: expressions by index, composed through everything that is inlined.

Comes after `fuse`; hands a `LoopProgram` to `collapse`, `memory_plan` and the printers.  Knows nothing of C or CUDA.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from dynagraph.driver import deadline
from dynagraph.errors import GraphError
from dynagraph.ir import dtypes, expr
from dynagraph.ir.accumulation import combined
from dynagraph.ir.expr import Expr
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.intexpr import IntExpr, apply
from dynagraph.ir.loops import (
    Accumulator,
    Axis,
    ColumnReduce,
    Define,
    Kernel,
    Loop,
    LoopProgram,
    Part,
    Reduce,
    ScanLoop,
    Statement,
    Step,
    Store,
    expr_cost,
    expressions,
)
from dynagraph.ir.ops import (
    EXTREMES,
    Condition,
    Creation,
    Elementwise,
    Gather,
    Index,
    Movement,
    Reduction,
    Scan,
    Scatter,
    Walk,
)
from dynagraph.ir.passes.buffers import Buffers, flat_index, make_axes
from dynagraph.ir.passes.demand import (
    ZERO,
    broadcast_index,
    gather_base,
    index_of,
    kept_axes,
    movement_pieces,
    operand_indices,
    place_index,
    reduction_index,
    reduction_operands,
)
from dynagraph.ir.passes.fuse import FusionPlan, Group, is_inner_member, is_input, member_index
from dynagraph.ir.passes.inplace import stored_index
from dynagraph.ir.passes.lower_calls import library_step
from dynagraph.ir.passes.scatters import Processors, Scattering, scatter_kernels
from dynagraph.ir.ranges import Range, known_range
from dynagraph.ir.shapes import Dim, Shape, contiguous_strides, expr_of, hint_numel, hint_of, numel, same_dim

MANY_PIECES, FEW_PIECES = 32, 8  # a choice of more pieces than the first is halved, down to the second
SCRATCH_COST = 8.0  # an inlined value dearer than this is kept per row where several passes over the row use it
SCRATCH_LIMIT = 8192  # ... unless the row is longer than this: it lies on the stack
NANOSECONDS_PER_COST = 0.12  # of one addition of 8 bytes in a vectorised loop: for estimates of when threads are worth while


def lower(graph: Graph, plan: FusionPlan, keep_rows: bool = True, processors: Processors | None = None) -> LoopProgram:
    """Needs: a fused graph.  Leaves: the same values as loops; loads and stores are within their buffers by construction.

    `keep_rows`: what is dear and wanted in several passes over a row is kept in a row of scratch memory.  `processors`: of a target
    where many share the work of a scatter, and each takes a column of positions; else it is one loop in order.
    """
    buffers = Buffers(graph, plan)
    steps: list[Step] = []
    for position, group in enumerate(plan.groups):
        deadline.check()
        if group.kind == "column" and processors is not None and is_position(group.members[0]):
            group = replace(group, kind="row")
        if group.kind == "library":
            steps.append(library_step(group, plan, buffers))
        else:
            lowering = _KernelLowering(f"k{position}", group, plan, buffers, keep_rows)
            steps += [lowering.run()] if processors is None or not is_scatter(group) else lowering.run_scatter(processors)
    return LoopProgram(buffers.by_name, tuple(steps), n_checks=graph.n_checks)


def is_scatter(group: Group) -> bool:
    """Whether a group stores at places that are computed."""
    return group.kind == "update" and isinstance(group.members[0].op.lowering, Scatter)


def is_position(node: Node) -> bool:
    """Whether a node is a reduction that gives where an extreme is."""
    return isinstance(node.op.lowering, Reduction) and node.op.lowering.kind in EXTREMES


class _KernelLowering:
    """Lowers one group.  `value(node, index)` is the expression of one element, inlining down to loads."""

    def __init__(self, name: str, group: Group, plan: FusionPlan, buffers: Buffers, keep_rows: bool):
        self.name, self.group, self.plan, self.buffers, self.keep_rows = name, group, plan, buffers, keep_rows
        self.members = set(group.members)
        self.rows = index_of(group.outer, "i")
        self.columns = index_of(group.inner, "j")
        lanes = [r for r in self.rows if r.symbols()][-1:] if group.kind == "column" else []  # these differ within a row too
        self.column_symbols = {s for c in (*self.columns, *lanes) for s in c.symbols()}
        self.stage_memo: dict[Node, int] = {}
        self.memo: dict[tuple[Node, Index], Expr] = {}
        self.defines: list[Statement] = []
        self.defined: dict[Expr, Expr] = {}
        self.stage = 0
        self.kept: dict[Node, tuple[str, IntExpr]] = {}  # values that later passes over a row find in memory: buffer and index

    def run(self) -> Kernel:
        lower_body = {"row": self._row_body, "column": self._column_body, "scan": self._scan_body, "update": self._update_body}
        axes, body = lower_body[self.group.kind]()
        return Kernel(self.name, axes, body, comment=self._comment(), cost=_cost(body))

    def _comment(self) -> str:
        lines = dict.fromkeys(str(m.location) for m in self.group.members if m.location)
        where = f"  ({', '.join(lines)})" if lines else ""
        return ", ".join(m.name for m in self.group.members) + where

    # -- rows, and maps, which are rows without an inner space --------------------------------------------------------
    def _row_body(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
        outer_axes = make_axes(self.group.outer, self.rows)
        if self._blocked() is not None:
            return self._blocked_body(outer_axes)
        if any(m in self.plan.reuse.previous for m in self.group.members) and len(self.group.members) > 1:
            return outer_axes, self._written_over_body()
        axes = make_axes(self.group.inner, self.columns)
        body: list[Statement] = []
        passes = max((self._stage_of(m) for m in self.group.members), default=0)
        if self.keep_rows:
            self._choose_kept(passes)
        for self.stage in range(passes + 1):
            self.memo.clear()
            reductions, stores = self._pass(self.stage)
            body += self.defines
            self.defines.clear()
            for reduce in self._reduces(axes, reductions):
                if not reduce.accumulators[0].is_position and reduce.takes_all:
                    reduce, stores = replace(reduce, stores=tuple(stores)), []
                body.append(reduce)
            if stores:
                body += [Loop(axes, tuple(stores))] if axes else stores
        self.stage = passes + 1
        self.memo.clear()
        final = [self._store(m) for m in self.group.members if m in self.plan.stored and not self._inner(m)]
        return outer_axes, (*body, *self.defines, *final)

    def _reduces(self, axes: tuple[Axis, ...], reductions: Sequence[tuple[Accumulator, Walk | None]]) -> Iterator[Reduce]:
        """Passes over the axes: of positions, of what is combined in any order, and of each order."""
        alike: dict[object, tuple[Walk | None, list[Accumulator]]] = {}
        for a, walk in reductions:
            if walk is not None:  # in terms of the axes that are loops
                walk = replace(walk, axes=sum(c is not ZERO for c in self.columns[len(self.columns) - walk.axes :]))
            alike.setdefault((walk, a.is_position, a.chosen, walk is not None and a.kind), (walk, []))[1].append(a)
        passes = [Reduce(axes, tuple(accumulators), walk=walk) for walk, accumulators in alike.values()]
        yield from sorted(passes, key=lambda r: (not r.accumulators[0].is_position, not r.takes_all))

    def _written_over_body(self) -> tuple[Statement, ...]:
        """All elements are computed before any is stored: some are written over what others are computed from."""
        stores: list[Store] = []
        for k, member in enumerate(self.group.members):
            value = self._inline(member, self.rows)
            named = self.memo[member, self.rows] = expr.var(f"w{k}", value.dtype)
            self.defines.append(Define(f"w{k}", value))
            if member in self.plan.stored:
                stores.append(Store(self.buffers.of[member].name, self.buffers.flat(member, self.rows), named))
        return (*self.defines, *stores)

    def _inner(self, node: Node) -> bool:
        return is_inner_member(node, self.group.outer, self.group.inner)

    def _pass(self, stage: int) -> tuple[list[tuple[Accumulator, Walk | None]], list[Store]]:
        reductions: list[tuple[Accumulator, Walk | None]] = []
        stores: list[Store] = []
        for member in self.group.members:
            if self._stage_of(member) != stage:
                continue
            if isinstance(member.op.lowering, Reduction):
                operands = reduction_operands(member, self.rows, self.columns)
                values = [self.value(*operand) for operand in operands]
                accumulator = Accumulator(f"r_{member.name}", member.op.lowering.kind, member.dtype, *values)
                if accumulator.chosen is not None and accumulator.chosen.op == "const" and accumulator.chosen.value:
                    accumulator = replace(accumulator, chosen=None)
                reductions.append((accumulator, member.attrs.get("walk")))
            elif member in self.plan.stored and self._inner(member):
                stores.append(self._store(member))
        for node, (buffer, place) in self.kept.items():
            if self._stage_of(node) == stage:
                stores.append(Store(buffer, place, self._inline(node, self.rows + self.columns)))
        return reductions, stores

    def _store(self, member: Node) -> Store:
        index = member_index(member, self.group.outer, self.group.inner, self.rows, self.columns)
        assert index is not None
        value = self.value(member, index) if isinstance(member.op.lowering, Reduction) else self._inline(member, index)
        return Store(self.buffers.of[member].name, self.buffers.flat(member, index), value)

    def _scratch_index(self) -> IntExpr:
        return flat_index(contiguous_strides(self.group.inner), self.columns)

    def _stage_of(self, node: Node) -> int:
        """The pass over the row in which a node can be computed: after the passes of the reductions that it needs."""
        waiting = [node]
        while waiting:
            last = waiting[-1]
            here = [a for a in last.args if not is_input(a) and (a in self.members or a not in self.plan.group_of)]
            missing = [a for a in here if a not in self.stage_memo]
            if missing and last not in self.stage_memo:
                waiting += missing
                continue
            waiting.pop()
            reduced = [a in self.members and isinstance(a.op.lowering, Reduction) for a in here]
            self.stage_memo[last] = max((self.stage_memo[a] + after for a, after in zip(here, reduced)), default=0)
        return self.stage_memo[node]

    def _choose_kept(self, passes: int) -> None:
        """Keep a row of what is dear and used in several passes: the exp of softmax."""
        if not self.group.inner or passes == 0:
            return
        used: dict[Node, set[int]] = {}
        full = self.rows + self.columns

        def visit(start: tuple[Node, Index], stage: int) -> None:
            waiting, seen = [start], {start}
            while waiting:
                node, index = waiting.pop()
                if is_input(node) or (node in self.plan.group_of and node not in self.members):
                    continue
                if isinstance(node.op.lowering, Reduction):
                    continue
                if index == full and isinstance(node.op.lowering, Elementwise) and node not in self.plan.stored:
                    used.setdefault(node, set()).add(stage)
                below = [pair for pair in dict.fromkeys(operand_indices(node, index)) if pair not in seen]
                seen.update(below)
                waiting += reversed(below)

        for member in self.group.members:
            stage = self._stage_of(member)
            if isinstance(member.op.lowering, Reduction):
                for operand in reduction_operands(member, self.rows, self.columns):
                    visit(operand, stage)
            elif self._inner(member):
                visit((member, full), stage)
        covered: set[Node] = set()
        for node in sorted(used, key=lambda n: self._tree_cost(n), reverse=True):
            repeated = len(used[node] | {self._stage_of(node)}) > 1 and len(used[node]) > 1
            if node not in covered and repeated and self._tree_cost(node) >= SCRATCH_COST:
                place = self._place_of_row(node, passes)
                if place is not None:
                    self.kept[node] = place
                    covered |= self._tree(node)

    def _place_of_row(self, node: Node, passes: int) -> tuple[str, IntExpr] | None:
        """On the stack where there is room for sure, else in the row of the result, which the last pass alone computes."""
        size = expr_of(numel(self.group.inner))
        if size.constant is not None and size.constant <= SCRATCH_LIMIT:
            return self.buffers.scratch(node, size).name, self._scratch_index()
        results = [m for m in self.group.members if m in self.plan.stored and self._inner(m)]
        last = [m for m in self.group.members if self._stage_of(m) == passes]
        if len(results) != 1 or last != results or results[0].dtype is not node.dtype:
            return None
        (result,) = results
        buffer = self.buffers.of[result]
        is_own = buffer.role in ("output", "temp") and self.buffers.owner(result) is result
        if not is_own or result in self.plan.reuse.kept or any(name == buffer.name for name, _ in self.kept.values()):
            return None
        return buffer.name, self.buffers.flat(result, self.rows + self.columns)

    def _tree(self, node: Node) -> set[Node]:
        found: set[Node] = set()
        stack = [node]
        while stack:
            n = stack.pop()
            if n in found or is_input(n) or (n in self.plan.group_of and n not in self.members):
                continue
            if isinstance(n.op.lowering, Reduction):
                continue
            found.add(n)
            stack += n.args
        return found

    def _tree_cost(self, node: Node) -> float:
        return sum(n.op.cost for n in self._tree(node))

    # -- a long reduction in blocks -----------------------------------------------------------------------------------
    def _blocked(self) -> Node | None:
        first = self.group.members[0]
        return first if first.is_op("block_reduce") else None

    def _blocked_body(self, outer_axes: tuple[Axis, ...]) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
        """All members reduce blocks of the same operand space along one axis."""
        first = self.group.members[0]
        axis, block, levels, operand = first.attrs["axis"], first.attrs["block"], first.attrs["levels"], first.args[0]
        length = expr_of(operand.shape[axis])
        start = ZERO if levels else self.rows[axis] * block
        extent = length if levels else apply("min", length - start, IntExpr.of(block))
        variable = IntExpr.symbol("j", 0, length - 1)
        (symbol,) = variable.symbols()
        part = Part(self.rows[axis], levels) if levels else None
        inner = Axis(symbol, extent, hint_of(operand.shape[axis]) >> levels if levels else block, start)
        trailing = all(same_dim(d, 1) for d in operand.shape[axis + 1 :])
        index = (*self.rows[:axis], variable, *self.rows[axis + 1 :])
        accumulators = [
            Accumulator(f"r_{m.name}", m.attrs["kind"], m.dtype, self.value(m.args[0], index))
            for m in self.group.members
        ]
        positions = tuple(a for a in accumulators if a.is_position)
        known = {EXTREMES[a.kind]: expr.var(a.best, a.value.dtype) for a in positions}
        lanes = tuple(a for a in accumulators if not a.is_position and a.kind not in known)
        stores = []
        for m, a in zip(self.group.members, accumulators):
            value = expr.var(a.name, a.dtype)
            value = expr.call("add", value, expr.index(start)) if a.is_position else known.get(a.kind, value)
            stores.append(Store(self.buffers.of[m].name, self.buffers.flat(m, self.rows), value))
        if trailing or positions:
            sums = first.attrs["pairwise"]  # and so are the others
            passes = (Reduce((inner,), some) for some in (positions, () if sums else lanes) if some)
            pairwise_sums = (Reduce((inner,), lanes, walk=Walk(1), part=part),) if sums else ()
            return outer_axes, (*self.defines, *passes, *pairwise_sums, *stores)
        column = outer_axes[-1]
        statement = ColumnReduce((inner,), column, tuple(accumulators), tuple(stores))
        return outer_axes[:-1], (*self.defines, statement)

    # -- reductions over leading axes ---------------------------------------------------------------------------------
    def _column_body(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
        reduced = index_of(self.group.inner, "j")
        accumulators, stores = [], []
        for node in self.group.members:
            assert isinstance(node.op.lowering, Reduction)
            value = self.value(node.args[0], reduction_index(node, self.rows, reduced))
            accumulators.append(Accumulator(f"r_{node.name}", node.op.lowering.kind, node.dtype, value))
            index = member_index(node, self.group.outer, (), self.rows, ())
            assert index is not None
            total = expr.var(accumulators[-1].name, node.dtype)
            stores.append(Store(self.buffers.of[node].name, self.buffers.flat(node, index), total))
        *outer, column = make_axes(self.group.outer, self.rows)
        statement = ColumnReduce(make_axes(self.group.inner, reduced), column, tuple(accumulators), tuple(stores))
        return tuple(outer), (*self.defines, statement)

    # -- scans --------------------------------------------------------------------------------------------------------
    def _scan_body(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
        node = self.group.members[0]
        assert isinstance(node.op.lowering, Scan)
        along = node.attrs["axis"]
        value = self.value(node.args[0], self.rows)
        accumulator = Accumulator(f"r_{node.name}", node.op.lowering.kind, node.dtype, value)
        store = Store(
            self.buffers.of[node].name, self.buffers.flat(node, self.rows), expr.var(accumulator.name, node.dtype)
        )
        axes = make_axes(node.shape, self.rows)
        if self.rows[along] is ZERO:
            return axes, (Define(accumulator.name, value), store)
        (running,) = [a for a in axes if a.symbol in self.rows[along].symbols()]
        outer = tuple(a for a in axes if a is not running)
        return outer, (*self.defines, ScanLoop(running, accumulator, (store,)))

    # -- writes over a part of a value ----------------------------------------------------------------------------------
    def _update_body(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
        """Only the part is stored: the rest is there already."""
        (node,) = self.group.members
        if isinstance(node.op.lowering, Scatter):
            store, _ = self._scatter_store(node)
            axes = make_axes(self.group.outer, self.rows)
            return (), (*self.defines, Loop(axes, (store,)) if axes else store)  # in order: places may be the same
        place = self.buffers.flat(node, stored_index(node, self.rows))
        store = Store(self.buffers.of[node].name, place, self.value(node.args[1], self.rows))
        return make_axes(self.group.outer, self.rows), (*self.defines, store)

    def _scatter_store(self, node: Node) -> tuple[Store, Expr | None]:
        """The store of one update, and what stands there before, if that is combined with it."""
        buffer, strides = self.buffers.of[node].name, self.buffers.strides(node)
        fixed, place = self._place(node.args[0], strides, node.args[2:], node, self.rows)
        value = self.value(node.args[1], self.rows)
        there = None
        if node.attrs["combine"]:
            there = expr.gather(buffer, expr.call("add", expr.index(fixed), place), node.dtype)
            value = combined(node.attrs["combine"], there, value)
        return Store(buffer, fixed, value, place), there

    def run_scatter(self, processors: Processors) -> list[Kernel]:
        """A scatter for many processors."""
        (node,) = self.group.members
        store, there = self._scatter_store(node)
        indexed = tuple(node.shape[axis] for axis in node.attrs["axes"])
        spot = _total(self._places(node.args[0], node.args[2:], node, self.rows), contiguous_strides(indexed))
        axes = make_axes(self.group.outer, self.rows)
        comment, n_spots = self._comment(), expr_of(numel(indexed))
        scattering = Scattering(self.name, comment, axes, store, there, spot, n_spots, hint_numel(indexed))
        kernels, temporaries = scatter_kernels(scattering, processors)
        for buffer in temporaries:
            self.buffers.add(buffer)
        return kernels

    # -- expressions --------------------------------------------------------------------------------------------------
    def value(self, node: Node, index: Index) -> Expr:
        """One element of a node, as this kernel gets it: loaded, kept in a row or register, or computed in place.

        Without recursion: unrolled loops make long chains.
        """
        waiting = [(node, index)]
        while waiting:
            key = waiting[-1]
            if key in self.memo:
                waiting.pop()
                continue
            found = self._held(*key)
            if found is None:
                missing = [pair for pair in operand_indices(*key) if pair not in self.memo]
                if missing:
                    waiting += reversed(missing)
                    continue
                found = self._hoist(self._inline(*key), key[1])
            self.memo[key] = found
            waiting.pop()
        return self.memo[node, index]

    def _held(self, node: Node, index: Index) -> Expr | None:
        """An element that is not computed here."""
        if is_input(node) or (node in self.plan.group_of and node not in self.members):
            return self._load(node, index)
        if isinstance(node.op.lowering, Reduction):
            return expr.var(f"r_{node.name}", node.dtype)
        if self._stage_of(node) < self.stage:
            if node in self.kept and index == self.rows + self.columns:
                return expr.load(*self.kept[node], node.dtype)
            if node in self.plan.stored and self._inner(node):
                return self._load(node, index)
        return None

    def _load(self, node: Node, index: Index) -> Expr:
        return expr.load(self.buffers.of[node].name, self.buffers.flat(node, index), node.dtype)

    def _hoist(self, value: Expr, index: Index) -> Expr:
        """Name what is the same for a whole row, so that it is computed once per row."""
        if not self.column_symbols or not value.args or any(i.symbols() & self.column_symbols for i in index):
            return value
        if any(e.op in ("load", "index") and _symbols(e) & self.column_symbols for e in value.walk()):
            return value
        found = self.defined.get(value)
        if found is None:
            name = f"v{len(self.defined)}"
            self.defines.append(Define(name, value))
            found = self.defined[value] = expr.var(name, value.dtype)
        return found

    def _inline(self, node: Node, index: Index) -> Expr:
        lowering = node.op.lowering
        if isinstance(lowering, Elementwise):
            operands = [self.value(a, broadcast_index(a.shape, index)) for a in node.args]
            return lowering.expr(*operands, **node.attrs)
        if isinstance(lowering, Creation):
            return lowering.expr(index, node.attrs, node.meta)
        if isinstance(lowering, Movement):
            return self._moved(node, index)
        if isinstance(lowering, Gather):
            return self._gathered(node, index)
        raise GraphError(f"lower: {node.describe()}: {type(lowering).__name__} cannot be part of an expression")

    def _gathered(self, node: Node, index: Index) -> Expr:
        """Places count from the end where negative; those out of bounds, which a check refuses, are moved inside."""
        base, strided = gather_base(node.args[0])
        fixed, place = self._place(node.args[0], strided.strides, node.args[1:], node, index)
        offset = expr.index(expr_of(strided.offset) + fixed)
        return expr.gather(self.buffers.of[base].name, expr.call("add", offset, place), node.dtype)

    def _place(
        self, source: Node, strides: Shape, places: Sequence[Node], node: Node, index: Index
    ) -> tuple[IntExpr, Expr]:
        """Where in `source` an element of a gather comes from, or one of a scatter goes to: by loop variables, and by places."""
        kept = kept_axes(source, places[0], node.attrs, index)
        fixed = flat_index(tuple(strides[k] for k in kept), tuple(kept.values()))
        return fixed, _total(self._places(source, places, node, index), [strides[axis] for axis in node.attrs["axes"]])

    def _places(self, source: Node, places: Sequence[Node], node: Node, index: Index) -> list[Expr]:
        """The places along each of the indexed axes, which are inside."""
        at = place_index(places[0], node.attrs, index)
        axes = zip(places, node.attrs["axes"])
        return [_inside(self.value(place, at), known_range(place), source.shape[axis]) for place, axis in axes]

    def _moved(self, node: Node, index: Index) -> Expr:
        pieces = [
            (condition, self._piece(node, position, source))
            for condition, position, source in movement_pieces(node, index)
        ]
        return _first(pieces, FEW_PIECES if len(pieces) > MANY_PIECES and _in_order([c for c, _ in pieces[:-1]]) else len(pieces))

    def _piece(self, node: Node, position: int | None, source: Index) -> Expr:
        if position is None:
            return expr.const(node.attrs["value"], node.dtype)
        return self.value(node.args[position], source)


def _first(pieces: Sequence[tuple[Condition | None, Expr]], few: int) -> Expr:
    """The value whose condition is the first to hold, else the last; conditions of more than `few` are in order."""
    if len(pieces) > few:
        middle = len(pieces) // 2
        condition = pieces[middle - 1][0]
        assert condition is not None
        return choose(condition, _first(pieces[:middle], few), _first(pieces[middle:], few))
    result = pieces[-1][1]
    for condition, value in reversed(pieces[:-1]):
        assert condition is not None
        result = choose(condition, value, result)
    return result


def _in_order(conditions: Sequence[Condition | None]) -> bool:
    """Whether they compare one index with ever greater ones: where one holds, so do all that follow."""
    tests = [c[0] for c in conditions if c is not None and len(c) == 1]
    if len(tests) < len(conditions) or any(op != "<" or left != tests[0][0] for left, op, _ in tests):
        return False
    steps = ((right - before).bounds()[0] for (_, _, before), (_, _, right) in pairwise(tests))
    return all(low is not None and low >= 0 for low in steps)


def _total(places: Sequence[Expr], strides: Sequence[Dim]) -> Expr:
    """Where places along several axes come to lie."""
    total = expr.const(0, dtypes.int64)
    for place, stride in zip(places, strides):
        total = expr.call("add", total, expr.call("mul", place, expr.index(expr_of(stride))))
    return total


def _inside(place: Expr, known: Range, dim: Dim) -> Expr:
    """A place along an axis, counted from the end where negative, moved inside where it may be out of bounds."""
    zero, size = expr.const(0, dtypes.int64), expr.index(expr_of(dim))
    if known[0] < 0:
        place = expr.call("select", expr.call("lt", place, zero), expr.call("add", place, size), place)
    if not isinstance(dim, int) or known[1] >= dim:
        place = expr.call("minimum", place, expr.call("sub", size, expr.const(1, dtypes.int64)))
    if not isinstance(dim, int) or known[0] < -dim:
        place = expr.call("maximum", place, zero)
    return place


def _symbols(e: Expr) -> set[object]:
    position = e.value[1] if e.op == "load" else e.value  # type: ignore[index]
    return set(position.symbols())  # type: ignore[union-attr]


def choose(condition: Condition, value: Expr, otherwise: Expr) -> Expr:
    """``value if condition else otherwise``, evaluating only the side taken: the other may lie outside its buffer."""
    tests: Expr | None = None
    for left, op, right in condition:
        test = expr.call({"<": "lt", ">=": "ge"}[op], expr.index(left), expr.index(right))
        tests = test if tests is None else expr.call("and", tests, test)
    assert tests is not None
    return Expr("choose", (tests, value, otherwise), value.dtype)


def _cost(body: Sequence[Statement]) -> float:
    """Estimated nanoseconds of one iteration of the outer axes on one core."""
    return _additions(body) * NANOSECONDS_PER_COST * _widest(body) / 8


def _widest(body: Sequence[Statement]) -> int:
    """The bytes of the widest element that is computed with: so many fewer fit into a vector.  Scans are not vectorised."""
    values = [e for root in expressions(body) for e in root.walk() if e.op not in ("index", "const")]
    scalar = any(isinstance(s, ScanLoop) for s in body) or any(e.dtype.is_half or e.op == "gather" for e in values)
    return 8 if scalar else max((e.dtype.itemsize for e in values), default=8)


def _additions(body: Sequence[Statement]) -> float:
    """What one iteration costs, in additions."""
    total = 0.0
    for s in body:
        if isinstance(s, (Define, Store)):
            total += expr_cost([s.value]) + 1
        elif isinstance(s, Loop):
            total += _trips(s.axes) * _additions(s.body)
        elif isinstance(s, Reduce):
            roots = [e for a in s.accumulators for e in (a.value, a.chosen) if e is not None] + [x.value for x in s.stores]
            total += _trips(s.axes) * (expr_cost(roots) + 1)
        elif isinstance(s, ColumnReduce):
            total += _trips((*s.axes, s.column)) * (expr_cost([a.value for a in s.accumulators]) + 1)
        elif isinstance(s, ScanLoop):
            total += _trips((s.axis,)) * (expr_cost([s.accumulator.value]) + 8)
    return total


def _trips(axes: Sequence[Axis]) -> int:
    trips = 1
    for axis in axes:
        trips *= axis.hint
    return trips
