"""Buffer reuse: decide which values are written over the memory of others, as in-place writes of the captured code ask.

Comes after `legalize`, before `fuse`.  In the graph a write is a new value, ``update_slice(x, part)`` or any elementwise function
of x, and an output may be meant for the memory of an input (`Graph.output`, `into`).  Where nothing reads the old value later, the
new one reuses its buffer, and only the changed elements are stored; elsewhere the old one is copied first, as the write demands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from dynagraph.driver import deadline
from dynagraph.ir.graph import Graph, Node, values_behind
from dynagraph.ir.intexpr import below
from dynagraph.ir.ops import OPS, Creation, Elementwise, Gather, Index, Library, Movement, Reduction, Scan, may_be_view
from dynagraph.ir.passes.demand import gather_base, index_of, operand_indices
from dynagraph.ir.shapes import expr_of, same_shape

UPDATES = ("update_slice", "scatter")  # the first operand with some elements stored


@dataclass
class BufferReuse:
    """`previous`: from a value to the one whose memory it is written over.  `kept`: values to be computed where they stand, because
    what they read is overwritten before they are used."""

    previous: dict[Node, Node] = field(default_factory=dict)
    kept: set[Node] = field(default_factory=set)

    def owner(self, node: Node) -> Node:
        """The value that had the memory first."""
        while node in self.previous:
            node = self.previous[node]
        return node


def stored_index(update: Node, position: Index) -> Index:
    """Where an update_slice stores the element of its part at `position`."""
    starts, steps = update.attrs["starts"], update.attrs["steps"]
    return tuple(expr_of(start) + i * expr_of(step) for i, start, step in zip(position, starts, steps))


def _is_over(node: Node, operand: Node | None = None) -> bool:
    """Whether a node is an effect whose result may lie where its operand, or this one, does."""
    if not node.is_op("effect_call") or node.attrs["over"] is None:
        return False
    return operand is None or node.args[node.attrs["over"]] is operand


def _is_routine(node: Node) -> bool:
    """Whether a node is a routine that writes all of its result, in C order, wherever that lies: a product, a convolution."""
    return node.kind == "call_function" and isinstance(node.op.lowering, Library) and node.op.lowering.routine != "external_call"


def inplace(graph: Graph) -> BufferReuse:
    """Needs: a legalized graph.  Leaves: every update_slice, and every output into an input, written over its predecessor.

    Inserts copies where the memory is still wanted, or lies otherwise.
    """
    return _Planner(graph).run()


class _Planner:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.reuse = BufferReuse()
        self.taken: set[Node] = set()
        self.targets: dict[Node, list[Node | None]] = {}  # of outputs: the inputs that they are meant for
        self.position: dict[Node, int] = {}
        self.last_check = 0  # nothing of the caller's is written before all checks are known
        self.writable: dict[Node, Node] = {}  # values on the way from an input to the output that is meant for it

    def run(self) -> BufferReuse:
        self._number()
        self._find_ways()
        self._bring_checks()
        for output, target in zip(self.graph.outputs, self._targets()):
            self.targets.setdefault(output, []).append(target)
        self._copy_strided()
        for node in list(self.graph.nodes):
            deadline.check()
            if node.is_op(*UPDATES):
                self._update(node)
            elif node.is_op("effect_call"):
                self._effect(node)
            elif node in self.writable and _is_routine(node):
                self._routine(node)
            elif node in self.writable:
                self._elementwise(node)
        self._finish_outputs()
        return self.reuse

    def _number(self) -> None:
        self.position = {node: k for k, node in enumerate(self.graph.nodes)}
        self.last_check = max((self.position[check] for check in self._checks()), default=0)

    def _checks(self) -> list[Node]:
        """What may have the program bail out."""
        outputs = self.graph.outputs
        checks = outputs[len(outputs) - self.graph.n_checks :]
        return [*checks, *(node for node in self.graph.nodes if node.may_raise)]

    def _bring_checks(self) -> None:
        """Have checks come before what is written to inputs, unless they depend on it."""
        writes = sorted(self.writable, key=self.position.__getitem__)
        late = [check for check in self._checks() if writes and self.position[check] > self.position[writes[0]]]
        places: dict[Node, list[Node]] = {}
        for check in late:
            needed = values_behind(check)
            place = next((write for write in writes if write not in needed), None)
            if place is not None and not any(node.has_effect for node in needed):
                places.setdefault(place, []).append(check)
        for place, checks in places.items():
            self.graph.bring_before(place, checks)
        if places:
            self._number()

    # -- from an input to the output that is meant for it ---------------------------------------------------------------
    def _find_ways(self) -> None:
        for output, target in zip(self.graph.outputs, self._targets()):
            if target is not None:
                self.writable |= dict.fromkeys(self._way(output, target), target)

    def _targets(self) -> list[Node | None]:
        """For each output the input that it is meant for."""
        inputs = self.graph.placeholders
        return [None if k is None else inputs[k] for k in self.graph.into]

    def _way(self, output: Node, target: Node) -> list[Node]:
        """The values one after another that lie where `target` did, the last one first."""
        way: list[Node] = []
        node: Node | None = output
        while node is not None and node.kind == "call_function":  # another input's value, or a constant, does not lie there
            way.append(node)
            if _is_over(node) and self._before(node.args[node.attrs["over"]], target) is None:
                self._copy_for(node)
            node = self._before(node, target)
        return way

    def _copy_for(self, effect: Node) -> None:
        """Have an effect's operand, which can be computed elsewhere only, copied to where the result will lie."""
        operand = effect.args[effect.attrs["over"]]
        takers = [user for user in operand.users if user.is_op("effect_call") and (user.attrs["keeps"] or _is_over(user, operand))]
        with self.graph.inserting_before(min(takers, key=self.position.__getitem__)):
            copied = self.graph.call(OPS["copy"], operand)
        for user in takers:
            user.set_args(tuple(copied if a is operand else a for a in user.args))
        self._number()

    def _before(self, node: Node, target: Node) -> Node | None:
        """The value that `node` is written over: the one that it updates, or that it is computed from; None: it cannot be."""
        if node.is_op(*UPDATES):
            return node.args[0]
        if _is_over(node):
            return node.args[node.attrs["over"]]
        if _is_routine(node) and node.shape and target.meta.strides is None:
            return target
        if node.kind != "call_function" or not isinstance(node.op.lowering, (Elementwise, Movement, Creation)):
            return None
        fitting = [a for a in node.args if a.dtype is node.dtype and same_shape(a.shape, node.shape)]
        if target in fitting or not isinstance(node.op.lowering, Elementwise):
            return target
        before = next((a for a in fitting if self._leads(a, target)), target)
        # what only this value uses is part of its expression: a *= 0.9; a += b is one step
        while before is not target and len(before.users) == 1 and isinstance(before.op.lowering, Elementwise):
            before = self._before(before, target) or target
        return before

    def _leads(self, node: Node, target: Node) -> bool:
        """Whether a value lies on the way to `target` itself; looks a few steps back only."""
        for _ in range(8):
            if node.is_op(*UPDATES):
                node = node.args[0]
            elif node.kind == "call_function" and isinstance(node.op.lowering, Elementwise):
                return target in node.args
            if node is target:
                return True
        return False

    def _copy_strided(self) -> None:
        """Copy what may come to lie in an input's memory, with strides of its own, where a reader takes values as contiguous."""
        for node in list(self.graph.nodes):
            if node.kind != "call_function" or node.is_op(*UPDATES) or not isinstance(node.op.lowering, (Gather, Library)):
                continue
            whole = node.args[:1] if isinstance(node.op.lowering, Gather) else node.args
            for k, operand in enumerate(whole):
                if self._may_lie_strided(gather_base(operand)[0]):
                    self._copy_operand(node, k)

    def _may_lie_strided(self, node: Node) -> bool:
        while node not in self.writable and node.is_op(*UPDATES):
            node = node.args[0]
        return node in self.writable and self.writable[node].meta.strides is not None

    # -- single values ----------------------------------------------------------------------------------------------------
    def _update(self, node: Node) -> None:
        if not self._may_take(node, node.args[0]):
            self._copy_operand(node, 0)
        base, part, *places = node.args
        rows = index_of(part.shape, "i")
        if not self._may_read(part, rows, base, _nowhere if places else _spared_by(node)):
            self._keep_operand(node, 1)
        for k, place in enumerate(places, start=2):
            if not self._may_read(place, index_of(place.shape, "i"), base, _nowhere):
                self._keep_operand(node, k)
        self._take(node, base)

    def _effect(self, node: Node) -> None:
        """What is under way writes to the operands that it keeps: nobody else reads them then."""
        if node.attrs["keeps"]:
            for k, operand in enumerate(node.args):
                if not all(user is node or _is_over(user, operand) or self._has_read(user, node) for user in operand.users):
                    self._copy_operand(node, k)
        elif node.attrs["over"] is not None:
            base = node.args[node.attrs["over"]]
            if self._may_take(node, base):
                self._take(node, base)

    def _has_read(self, reader: Node, node: Node) -> bool:
        """Whether a node is an effect, which reads its operands where it stands, before another one."""
        return reader.is_op("effect_call") and not reader.attrs["keeps"] and self._is_before(reader, node)

    def _copy_operand(self, node: Node, k: int) -> Node:
        with self.graph.inserting_before(node):
            copied = self.graph.call(OPS["copy"], node.args[k])
        node.set_args((*node.args[:k], copied, *node.args[k + 1 :]))
        self._number()
        return copied

    def _keep_operand(self, node: Node, k: int) -> None:
        """Have an operand computed before the write; the memory itself, read at other places, is copied."""
        operand = node.args[k]
        stands = operand.kind == "call_function" and operand is not node.args[0]
        self.reuse.kept.add(operand if stands else self._copy_operand(node, k))

    def _elementwise(self, node: Node) -> None:
        base = self._before(node, self.writable[node])
        if base is None or not self._may_take(node, base):
            return
        rows = index_of(node.shape, "i")
        if all(self._may_read(a, i, base, rows.__eq__) for a, i in operand_indices(node, rows)):
            self._take(node, base)

    def _routine(self, node: Node) -> None:
        """A routine reads all of its operands, at any time before it ends."""
        base = self.writable[node]
        if self._before(node, base) is not base or not self._may_take(node, base):
            return
        if all(self._may_read(a, index_of(a.shape, "i"), base, _nowhere) for a in node.args):
            self._take(node, base)

    def _may_take(self, node: Node, base: Node) -> bool:
        """Whether nothing wants the memory of `base` once `node` is there, and it is the program's to write to."""
        if base in self.taken or not self._is_own(node, base) or self._is_wanted_elsewhere(node, base):
            return False
        here = self.position[node]
        return all(user is node or self.position[user] < here for user in base.users)

    def _is_wanted_elsewhere(self, node: Node, base: Node) -> bool:
        """Whether the value is an output, and the memory an input's that it is not meant for."""
        owner = self.reuse.owner(base)
        return owner.kind == "placeholder" and any(target is not owner for target in self.targets.get(node, ()))

    def _is_own(self, node: Node, base: Node) -> bool:
        if base.kind == "call_function":
            return True
        return self.writable.get(node) is base and self.position[node] > self.last_check

    def _take(self, node: Node, base: Node) -> None:
        self.reuse.previous[node] = base
        self.taken.add(base)
        self._keep_readers(base, node)

    def _keep_readers(self, base: Node, node: Node) -> None:
        """Keep what reads `base` before `node` is written over it, perhaps through other values, and is used after that."""
        seen: set[Node] = set()
        stack = [u for u in base.users if self._is_before(u, node)]
        while stack:
            reader = stack.pop()
            if reader in seen or reader.kind != "call_function":
                continue
            seen.add(reader)
            if isinstance(reader.op.lowering, (Reduction, Scan, Library)) or reader in self.reuse.previous:
                continue  # computed where it stands anyway
            if any(u is not node and self._is_before(node, u) for u in reader.users):
                self.reuse.kept.add(self._copied_before(reader, node) if may_be_view(reader) else reader)
                continue
            stack += [u for u in reader.users if self._is_before(u, node)]

    def _is_before(self, a: Node, b: Node) -> bool:
        return self.position[a] < self.position[b]

    def _copied_before(self, view: Node, node: Node) -> Node:
        """A copy that is read after `node`: routines of libraries and gathers read the memory that a view lies in."""
        late = [user for user in view.users if user is not node and self._is_before(node, user)]
        with self.graph.inserting_before(node):
            copied = self.graph.call(OPS["copy"], view)
        for user in late:
            user.set_args(tuple(copied if a is view else a for a in user.args))
        self._number()
        return copied

    def _may_read(self, node: Node, index: Index, base: Node, allowed: Callable[[Index], bool]) -> bool:
        """Whether all that `node` needs of `base` for its element at `index` stands at allowed indices."""
        leading = self._leading_to(base, node)
        seen: set[tuple[Node, Index]] = set()
        stack = [(node, index)]
        while stack:
            source, at = stack.pop()
            if source not in leading or (source, at) in seen:
                continue
            seen.add((source, at))
            if source is base:
                if not allowed(at):
                    return False
            elif self._gathers_from(source, base):
                return False
            else:
                stack += operand_indices(source, at)
        return True

    def _leading_to(self, base: Node, node: Node) -> set[Node]:
        """What `node` is computed from, where it is used, that reads `base`.

        An unrolled loop may ask a value for any number of elements, mostly where `base` is not read at all.
        """
        found: set[Node] = set()
        stack = [node]
        while stack:
            source = stack.pop()
            if source in found or (source is not base and (source.kind != "call_function" or self._stands(source))):
                continue
            found.add(source)
            if source is not base and isinstance(source.op.lowering, (Elementwise, Movement, Gather)):
                stack += source.args
        leading: set[Node] = set()
        for source in sorted(found, key=self.position.__getitem__):
            if source is base or any(a in leading for a in source.args) or self._gathers_from(source, base):
                leading.add(source)
        return leading

    @staticmethod
    def _gathers_from(node: Node, base: Node) -> bool:
        return node.kind == "call_function" and isinstance(node.op.lowering, Gather) and gather_base(node.args[0])[0] is base

    def _stands(self, node: Node) -> bool:
        """Whether a value is computed where it stands, and only read from memory after it."""
        return node in self.reuse.kept or node in self.reuse.previous

    # -- outputs ------------------------------------------------------------------------------------------------------
    def _finish_outputs(self) -> None:
        """Copy into its input what was computed elsewhere, when all else is done."""
        output = self.graph.output_node
        args = list(output.args)
        for k, target in enumerate(self._targets()):
            if target is None or self.reuse.owner(args[k]) is target:
                continue
            with self.graph.inserting_before(output):
                copied = self.graph.call(OPS["copy"], args[k])
            self.reuse.previous[copied] = target
            self.reuse.kept.add(args[k])
            args[k] = copied
        output.set_args(tuple(args))


def _nowhere(at: Index) -> bool:
    return False


def _spared_by(update: Node) -> Callable[[Index], bool]:
    """Whether an update_slice may read an index of what it writes over: that which it stores to, or one that it never stores to."""
    shape = update.args[1].shape
    here, anywhere = (stored_index(update, index_of(shape, prefix)) for prefix in ("i", "w"))

    def spared(at: Index) -> bool:
        return at == here or any(below(read, stored) or below(stored, read) for read, stored in zip(at, anywhere))

    return spared


__all__ = ["BufferReuse", "inplace", "stored_index"]
