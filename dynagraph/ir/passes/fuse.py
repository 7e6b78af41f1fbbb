"""Kernel fusion: group nodes into kernels.

Comes after decomposition, `legalize` and `inplace`; hands a `FusionPlan` to `lower`.  A node is either *inlined* (recomputed where
it is used, as part of an expression) or *real* (computed once, by the kernel of its group).  A group has a row space (`outer`) and,
once it holds a reduction, an `inner` space that is reduced: softmax and layernorm are one group, because everything that one row
needs comes from that row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dynagraph.driver import deadline
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import EXTREMES, Creation, Elementwise, Gather, Index, Library, Movement, Reduction, Scan, strided_of, view_of
from dynagraph.ir.passes.demand import ZERO, gather_base, index_of, kept_shape, operand_indices, reduced_shape, reduction_operands
from dynagraph.ir.passes.inplace import BufferReuse
from dynagraph.ir.rewrite import call_key
from dynagraph.ir.shapes import Shape, contiguous_strides, hint_numel, hint_of, same_dim, same_shape

RECOMPUTE_COST = 8.0  # an inlined value dearer than this (in additions) is computed once where several kernels want it
MAX_INLINED = 150  # nodes in one expression tree: bounds the size of a kernel
GATHERED_USERS = 4  # readers of elements that lie apart by
CACHE_LINE = 64  # ... as many bytes, for which a copy of them is made
MAX_REDUCTIONS = 8  # in one kernel: their accumulators no longer fit into registers, and C compilers take long over such loops
MAX_MEMORIES = 400  # that one kernel reads and writes: CUDA has 4 KiB for a kernel's parameters
SERIAL_ROWS = 16  # fewer rows than this, and
LONG_ROW = 32768  # ... longer than this: rows alone do not fill the cores, so nothing is fused along them
LARGE = 65536  # elements: arrays that no longer lie in a cache when they are read again


@dataclass
class Group:
    """Nodes that one kernel computes.  `kind`: row (maps too: no inner space), column, scan, update or library."""

    kind: str
    outer: Shape
    inner: Shape
    members: list[Node] = field(default_factory=list)
    joinable: bool = True


@dataclass
class FusionPlan:
    """Groups in execution order, where each real node is, the real nodes that need memory, those that take over others'."""

    groups: list[Group]
    group_of: dict[Node, int]
    stored: dict[Node, None]
    reuse: BufferReuse


def is_input(node: Node) -> bool:
    return node.kind in ("placeholder", "get_attr")


def fuse(graph: Graph, reuse: BufferReuse) -> FusionPlan:
    """Group elementwise chains, reductions with their producers, and row-local consumers; changes no values.

    Needs: no Composite left, outputs distinct and none of them an input (`legalize`).  Leaves: every real node in exactly
    one group, groups in an order in which they can run.
    """
    return _Fuser(graph, reuse).run()


# a node, and the movements through which an element wants it: each way is another element of the node
Computation = tuple[Node, tuple[Node, ...]]


class _Fuser:
    def __init__(self, graph: Graph, reuse: BufferReuse):
        self.graph = graph
        self.reuse = reuse
        self.nodes = [n for n in graph.nodes if n.kind == "call_function"]
        self.inlined: dict[Node, frozenset[Computation]] = {}
        self.real: set[Node] = set()
        self.groups: list[Group] = []
        self.group_of: dict[Node, int] = {}
        self.reach: dict[Node, frozenset[Node]] = {}
        self.readers: dict[Node, set[int]] = {}  # the groups that read a value
        self.memories: dict[int, set[Node]] = {}  # of each group: what it reads, and what it makes
        self.last_read: dict[Node, int] = {}  # by the value that had the memory first: the last group that reads it
        checks = graph.outputs[len(graph.outputs) - graph.n_checks :]
        self.checks = {*checks, *(node for node in graph.nodes if node.may_raise)}
        self.first_write = 0  # the first group that may write to an input: all checks are known then

    def run(self) -> FusionPlan:
        self._choose_real()
        for node in self.nodes:
            deadline.check()
            if node in self.real:
                self._place(node)
        stored = dict.fromkeys(self.graph.outputs)
        owners = map(self.reuse.owner, self.reuse.previous)
        stored |= dict.fromkeys(owner for owner in owners if not is_input(owner))  # memory that others are written over
        for node in self.nodes:
            if node in self.real:
                for source in self._sources(node):
                    if not is_input(source) and self.group_of[source] != self.group_of[node]:
                        stored[source] = None
        return FusionPlan(self.groups, self.group_of, stored, self.reuse)

    # -- which nodes are real ---------------------------------------------------------------------------------------
    def _choose_real(self) -> None:
        outputs = set(self.graph.outputs)
        written_over = set(self.reuse.previous.values()) | self.reuse.kept
        self.real |= {n for n in (*self.reuse.previous, *written_over) if not is_input(n)}
        for node in self.nodes:
            lowering = node.op.lowering
            if isinstance(lowering, Library):
                self.real.update(base for a in node.args if not is_input(base := library_base(node, a)))
            elif isinstance(lowering, Gather):
                base, _ = gather_base(node.args[0])
                if not is_input(base):
                    self.real.add(base)
        for node in self.nodes:
            deadline.check()
            lowering = node.op.lowering
            always = isinstance(lowering, (Reduction, Scan, Library)) or node.is_op("block_reduce") or self._worth_gathering(node)
            if node in outputs or always or node in self.real or (isinstance(lowering, Elementwise) and self._worth_keeping(node)):
                self.real.add(node)
            self._note_inlined(node)

    def _note_inlined(self, node: Node) -> None:
        """Remember what inlining this node adds to an element of its user."""
        self.inlined[node] = frozenset() if node in self.real else self._computations(node)

    def _computations(self, node: Node) -> frozenset[Computation]:
        moved = isinstance(node.op.lowering, Movement)
        found: set[Computation] = {(node, ())}
        for arg in node.args:
            if not is_input(arg):
                below = self.inlined[arg]
                found |= {(n, (node, *way)) for n, way in below} if moved else below
        return frozenset(found)

    def _worth_keeping(self, node: Node) -> bool:
        computations = self._computations(node)
        if len(computations) > MAX_INLINED:
            return True
        cost = sum(op_cost(n) for n, _ in computations)
        if len(node.users) > 1 and cost > RECOMPUTE_COST:
            return True
        mine = hint_numel(node.shape)
        amplified = any(
            hint_numel(_iteration_shape(user)) >= 2 * mine for user in node.users if user.kind == "call_function"
        )
        return amplified and cost >= RECOMPUTE_COST / 2 and mine > 1

    @staticmethod
    def _worth_gathering(node: Node) -> bool:
        """Elements that lie far apart, as those of a diagonal, and are read again and again, a cache line for each."""
        if len(node.users) < GATHERED_USERS or not isinstance(node.op.lowering, Movement):
            return False
        view = view_of(node)
        if view is None or node.ndim == 0:
            return False
        strides = [abs(hint_of(s)) * node.dtype.itemsize for s, d in zip(view[1].strides, node.shape) if hint_of(d) > 1]
        return bool(strides) and min(strides) >= CACHE_LINE

    # -- placing real nodes into groups -----------------------------------------------------------------------------
    def _sources(self, node: Node) -> frozenset[Node]:
        """The inputs and real nodes that a node reads, through everything that is inlined."""
        found = self.reach.get(node)
        if found is None:
            collected: set[Node] = set()
            for k, arg in enumerate(node.args):
                if isinstance(node.op.lowering, Library):
                    collected.add(library_base(node, arg))
                elif isinstance(node.op.lowering, Gather) and k == 0:
                    collected.add(gather_base(arg)[0])
                elif is_input(arg) or arg in self.real:
                    collected.add(arg)
                else:
                    collected |= self._sources(arg)
            found = self.reach[node] = frozenset(collected)
        return found

    def _place(self, node: Node) -> None:
        self._keep_less(node)
        sources = self._sources(node)
        earliest = max((self.group_of[s] for s in sources if not is_input(s)), default=0)
        if node in self.reuse.previous:
            owner = self.reuse.owner(node)
            earliest = max(earliest, self.last_read.get(owner, 0), self.first_write if is_input(owner) else 0)
        self._place_from(node, sources, earliest)
        if node in self.checks:
            self.first_write = max(self.first_write, self.group_of[node] + 1)
        self._note_placed(node, sources)

    def _note_placed(self, node: Node, sources: frozenset[Node]) -> None:
        for source in sources:
            memory = self.reuse.owner(source)
            self.last_read[memory] = max(self.last_read.get(memory, 0), self.group_of[node])
            self.readers.setdefault(source, set()).add(self.group_of[node])
        self.memories.setdefault(self.group_of[node], {node}).update((node, *sources))

    def _place_from(self, node: Node, sources: frozenset[Node], earliest: int) -> None:
        lowering = node.op.lowering
        group = self._own_group(node)
        if self._join_call(node, earliest) or (node.is_op("block_reduce") and self._join_blocks(node)):
            return
        if group.joinable and not isinstance(lowering, (Library, Scan)):
            home = self._home(node, group, sources, range(earliest, len(self.groups)))
            if home is not None:
                self._join(node, *home)
                return
        group.members.append(node)
        self.group_of[node] = len(self.groups)
        self.groups.append(group)

    def _home(
        self, node: Node, own: Group, sources: frozenset[Node], among: range
    ) -> tuple[int, tuple[Shape, Shape]] | None:
        """The last one among some groups that takes a node in, and the spaces that it then has."""
        for position in sorted(self._sharing(node, sources), reverse=True):
            candidate = self.groups[position]
            if position in among and candidate.joinable and len(self.memories[position] | sources) < MAX_MEMORIES:
                joined = self._joined(candidate, node, own)
                if joined is not None:
                    return position, joined
        return None

    def _join(self, node: Node, position: int, spaces: tuple[Shape, Shape]) -> None:
        group = self.groups[position]
        group.outer, group.inner = spaces
        group.members.append(node)
        self.group_of[node] = position

    # -- what is kept until it is read again ------------------------------------------------------------------------------
    def _keep_less(self, node: Node) -> None:
        """What a node computes of large values that were there before the others is computed with these, and kept, if fewer arrays
        are kept then: the slope of an activation, instead of the activation's operand and what else it is made of.
        """
        if not isinstance(node.op.lowering, (Elementwise, Reduction)) or hint_numel(_iteration_shape(node)) < LARGE:
            return
        found = [self.group_of[s] for s in self._sources(node) if not is_input(s) and isinstance(s.op.lowering, Library)]
        if not found:
            return
        late = max(found)  # other groups made what it waits for
        for part in self._early_parts(node, late):
            sources = self._sources(part)
            large = [s for s in sources if 2 * hint_numel(s.shape) >= hint_numel(part.shape)]
            earliest = max((self.group_of[s] for s in sources if not is_input(s)), default=0)
            if len(large) < 2 or any(user in self.group_of for user in self._real_users(part)):
                continue
            home = self._home(part, _own_group(part), sources, range(earliest, late))
            spared = [s for s in large if self._is_read_before(s, late, part)]
            if home is None or len(spared) < 2:
                continue
            if any(self._is_temporary(s) and self._is_read_before(s, home[0] + 1, part) for s in spared):
                self.real.add(part)
                self.reach.clear()
                self._join(part, *home)
                self._note_placed(part, self._sources(part))

    def _early_parts(self, node: Node, late: int) -> list[Node]:
        """The largest inlined expressions in a node's of numbers from groups before `late`, one for each of its elements."""
        found: dict[Node, None] = {}
        numel, seen = hint_numel(_iteration_shape(node)), set()
        stack = [a for a in node.args if not isinstance(node.op.lowering, Gather)]
        while stack:
            part = stack.pop()
            if part in seen or is_input(part) or part in self.real:
                continue
            seen.add(part)
            sources = [s for s in self._sources(part) if not is_input(s)]
            is_early = bool(sources) and all(self.group_of[s] < late for s in sources)
            if is_early and isinstance(part.op.lowering, Elementwise) and part.dtype.is_inexact and hint_numel(part.shape) == numel:
                found[part] = None
            elif not is_early and isinstance(part.op.lowering, (Elementwise, Movement)):
                stack += part.args
        return list(found)

    def _real_users(self, node: Node, but: Node | None = None) -> set[Node]:
        """The real nodes that read a node, through everything that is inlined but one of them."""
        found: set[Node] = set()
        seen: set[Node] = set()
        stack = [user for user in node.users if user is not but]
        while stack:
            user = stack.pop()
            if user in seen:
                continue
            seen.add(user)
            if user in self.real:
                found.add(user)
            else:
                stack += [u for u in user.users if u is not but]
        return found

    def _is_read_before(self, source: Node, position: int, part: Node) -> bool:
        """Whether all that read a value, but `part`, are groups before `position`."""
        return all(self.group_of.get(user, position) < position for user in self._real_users(source, but=part))

    def _is_temporary(self, node: Node) -> bool:
        return not is_input(node) and node not in self.graph.outputs and node not in self.reuse.kept

    def _join_call(self, node: Node, earliest: int) -> bool:
        """Several results of one call are one step, unless one is written to memory that is read in between."""
        key = call_key(node)
        if key is None:
            return False
        for position in range(earliest, len(self.groups)):
            first = self.groups[position].members[0]
            if first.args == node.args and call_key(first) == key:
                self.groups[position].members.append(node)
                self.group_of[node] = position
                return True
        return False

    def _join_blocks(self, node: Node) -> bool:
        """What else is made of the same blocks is made in the same pass over them; sums of columns are of one dtype."""
        axis, operand = node.attrs["axis"], node.args[0]
        trailing = all(same_dim(d, 1) for d in operand.shape[axis + 1 :])
        for position, group in enumerate(self.groups):
            first = group.members[0]
            same = first.is_op("block_reduce") and first.args == node.args and first.attrs["axis"] == axis
            same = same and all(first.attrs[name] == node.attrs[name] for name in ("block", "levels", "pairwise"))
            if not same or len(group.members) == MAX_REDUCTIONS:
                continue
            if trailing or first.dtype is node.dtype or any(m.attrs["kind"] in EXTREMES for m in (first, node)):
                group.members.append(node)
                self.group_of[node] = position
                return True
        return False

    def _own_group(self, node: Node) -> Group:
        """Writes over other values come after everything that reads these."""
        if node.is_op("update_slice", "scatter"):
            return Group("update", node.args[1].shape, (), joinable=False)
        if node in self.reuse.previous and not isinstance(node.op.lowering, Library):
            return Group("row", node.shape, (), joinable=isinstance(node.op.lowering, Elementwise))
        return _own_group(node)

    def _may_write_over(self, members: list[Node]) -> bool:
        """Whether a kernel that computes its members element by element may write over what some of them read.

        All that it reads of that memory has to be the element that is written; reductions pass over a row more than once.
        """
        written = {self.reuse.owner(m) for m in members if m in self.reuse.previous}
        if not written:
            return True
        if any(not same_shape(m.shape, members[0].shape) or isinstance(m.op.lowering, Reduction) for m in members):
            return False
        rows, seen = index_of(members[0].shape, "i"), set()
        stack = [pair for m in members for pair in operand_indices(m, rows)]
        while stack:
            source, index = stack.pop()
            if (source, index) in seen:
                continue
            seen.add((source, index))
            if is_input(source) or source in self.real:
                if self.reuse.owner(source) in written and index != rows:
                    return False
            elif isinstance(source.op.lowering, Gather):
                return False
            else:
                stack += operand_indices(source, index)
        return True

    def _sharing(self, node: Node, sources: frozenset[Node]) -> set[int]:
        """The groups with which one kernel saves anything: the node reads what they make, or both read the same large memory."""
        found = {self.group_of[s] for s in sources if not is_input(s)}
        numel = hint_numel(_iteration_shape(node))
        for source in sources:
            if 2 * hint_numel(source.shape) >= numel:
                found |= self.readers.get(source, set())
        return found

    def _joined(self, group: Group, node: Node, own: Group) -> tuple[Shape, Shape] | None:
        """The row and inner space of the group with `node` in it, or None where it does not fit."""
        if sum(isinstance(m.op.lowering, Reduction) for m in (*group.members, node)) > MAX_REDUCTIONS:
            return None
        if not self._may_write_over([*group.members, node]):
            return None
        if "column" in (group.kind, own.kind):
            return (group.outer, group.inner) if self._joins_columns(group, node, own) else None
        for outer, inner in _common_spaces(group, own):
            long = hint_numel(outer) < SERIAL_ROWS and hint_numel(inner) > LONG_ROW
            if not long and self._aligned(group, node, outer, inner):
                return outer, inner
        return None

    def _joins_columns(self, group: Group, node: Node, own: Group) -> bool:
        """Whether a column reduction goes over the same rows as others, and needs none of their results."""
        if not group.kind == own.kind == "column":
            return False
        first = group.members[0]
        alike = first.dtype is node.dtype and first.attrs["axis"] == node.attrs["axis"]
        return alike and same_shape(first.args[0].shape, node.args[0].shape) and not self._sources(node) & set(group.members)

    def _aligned(self, group: Group, node: Node, outer: Shape, inner: Shape) -> bool:
        """Whether every element of the group that `node` needs for one row is an element of that row (and place)."""
        rows, columns = index_of(outer, "i"), index_of(inner, "j")
        members = set(group.members)
        seen: set[tuple[Node, Index]] = set()

        def reads_anywhere(source: Node) -> bool:
            return isinstance(source.op.lowering, Gather) and gather_base(source.args[0])[0] in members

        def fits(source: Node, index: Index) -> bool:
            if source in members:
                expected = member_index(source, outer, inner, rows, columns)
                return expected is not None and index == expected
            if is_input(source) or source in self.real or (source, index) in seen:
                return True
            seen.add((source, index))
            if reads_anywhere(source):
                return False
            return all(fits(a, i) for a, i in operand_indices(source, index))

        if isinstance(node.op.lowering, Reduction):
            return all(fits(a, i) for a, i in reduction_operands(node, rows, columns))
        start = member_index(node, outer, inner, rows, columns)
        return start is not None and not reads_anywhere(node) and all(fits(a, i) for a, i in operand_indices(node, start))


def member_index(node: Node, outer: Shape, inner: Shape, rows: Index, columns: Index) -> Index | None:
    """The index at which a group computes a member: one per row, or one per row and inner place."""
    if isinstance(node.op.lowering, Reduction):
        kept = iter(rows)
        axes, rank = set(node.attrs["axis"]), node.args[0].ndim
        if node.attrs.get("keepdims"):
            return tuple(ZERO if k in axes else next(kept) for k in range(rank))
        return rows
    if is_inner_member(node, outer, inner):
        return rows + columns
    if same_shape(node.shape, outer):
        return rows
    if same_shape(node.shape, outer + (1,) * len(inner)):
        return rows + (ZERO,) * len(inner)
    return None


def is_inner_member(node: Node, outer: Shape, inner: Shape) -> bool:
    """Whether a member has an element for every row and inner place."""
    if isinstance(node.op.lowering, Reduction):
        return False
    return bool(inner) and same_shape(node.shape, outer + inner)


def _common_spaces(group: Group, own: Group) -> list[tuple[Shape, Shape]]:
    """The (outer, inner) spaces that could hold both a group and a node whose own group would be `own`."""
    full = group.outer + group.inner
    if own.inner:  # a reduction over trailing axes
        whole = own.outer + own.inner
        if group.inner:
            fits = same_shape(group.outer, own.outer) and same_shape(group.inner, own.inner)
            return [(group.outer, group.inner)] if fits else []
        if same_shape(group.outer, whole) or same_shape(group.outer, own.outer):
            return [(own.outer, own.inner)]
        if same_shape(group.outer, own.outer + (1,) * len(own.inner)):
            return [(own.outer, own.inner)]
        return []
    shape = own.outer
    if same_shape(shape, full) or same_shape(shape, group.outer):
        return [(group.outer, group.inner)]
    if group.inner and same_shape(shape, group.outer + (1,) * len(group.inner)):
        return [(group.outer, group.inner)]
    return []


def _own_group(node: Node) -> Group:
    """The group that a real node would have alone."""
    lowering = node.op.lowering
    if isinstance(lowering, Library):
        return Group("library", node.shape, (), joinable=False)
    if node.is_op("block_reduce"):
        return Group("row", node.shape, (), joinable=False)
    if isinstance(lowering, Scan):
        return Group("scan", node.shape, (), joinable=False)
    if isinstance(lowering, Reduction):
        axes, rank = node.attrs["axis"], node.args[0].ndim
        outer, inner = kept_shape(node), reduced_shape(node)
        if not axes:  # each element is the sum of itself: not of as many as others in the group reduce
            return Group("row", outer, inner, joinable=False)
        walk = node.attrs.get("walk")
        if axes == tuple(range(rank - len(axes), rank)):
            return Group("row", outer, inner)
        behind = [node.args[0].shape[k] for k in range(max(axes, default=0) + 1, rank)]
        nothing_reduced = all(same_dim(d, 1) for d in inner)
        in_turn = walk is not None and walk.axes == 0 and hint_numel(behind) > 1
        if nothing_reduced or not (in_turn or (walk is None and hint_numel(behind) >= 4)):
            return Group("row", outer, inner, joinable=False)
        return Group("column", outer, inner, joinable=lowering.kind not in EXTREMES)
    return Group("row", node.shape, ())


def _iteration_shape(node: Node) -> Shape:
    """The space over which a node's loop runs."""
    lowering = node.op.lowering
    if isinstance(lowering, (Reduction, Library)) or node.is_op("block_reduce"):
        return node.args[0].shape  # a library routine reads each operand once
    return node.shape


def op_cost(node: Node) -> float:
    """Additions per element."""
    lowering = node.op.lowering
    if isinstance(lowering, Elementwise):
        return node.op.cost
    return 0.5 if isinstance(lowering, (Movement, Creation)) else 1.0


def library_base(node: Node, operand: Node) -> Node:
    """The node whose memory the library routine `node` reads for an operand: a transpose or slice is read in place."""
    found = view_of(operand)
    return found[0] if found is not None and takes_layout(node, found[1].shape, found[1].strides) else operand


def operand_strided(node: Node, operand: Node) -> tuple[Node, Shape, Shape, object]:
    """Base node, shape, strides and offset of an operand of a library routine."""
    base = library_base(node, operand)
    if base is operand:
        strided = strided_of(operand)
    else:
        found = view_of(operand)
        assert found is not None
        strided = found[1]
    return base, strided.shape, strided.strides, strided.offset


def takes_layout(node: Node, shape: Shape, strides: Shape) -> bool:
    """Whether the library routine `node` reads operands that lie in memory in this way."""
    assert isinstance(node.op.lowering, Library)
    routine = node.op.lowering.routine
    if routine == "external_call":
        return True
    return is_matrix_layout(shape, strides) if routine == "matmul" else all(map(same_dim, strides, contiguous_strides(shape)))


def is_matrix_layout(shape: Shape, strides: Shape) -> bool:
    """Whether the last two dimensions are a row- or column-major matrix, or a vector with any step, as BLAS takes them."""
    if len(shape) < 2:
        return False
    (rows, columns), (row_step, column_step) = shape[-2:], strides[-2:]
    if same_dim(rows, 1) or same_dim(columns, 1):
        return hint_of(column_step if same_dim(rows, 1) else row_step) > 0
    row_major = same_dim(column_step, 1) and (hint_of(row_step) >= hint_of(columns) or same_dim(rows, 1))
    column_major = same_dim(row_step, 1) and (hint_of(column_step) >= hint_of(rows) or same_dim(columns, 1))
    return row_major or column_major
