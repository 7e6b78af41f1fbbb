"""The graph: nodes in order, each an op of the table applied to earlier nodes.  FX-style, one output per node.

    placeholder    an input                     target: its name
    get_attr       an array held by the graph   target: key of `Graph.constants`
    call_function  an op applied to nodes       target: a row of the op table; `attrs` holds its static arguments
    output         what the graph returns       args: the returned nodes
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagraph.errors import DynagraphError, GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.external_calls import FunctionCall
from dynagraph.ir.shapes import Dim, Shape, hint_numel, same_shape
from dynagraph.location import Location

if TYPE_CHECKING:
    from dynagraph.ir.ops import Op


@dataclass(frozen=True)
class Meta:
    """What is known of a node's value.  `strides` are in elements; None means C order."""

    dtype: DType
    shape: Shape
    strides: Shape | None = None
    device: str = "cpu"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def hint_nbytes(self) -> int:
        return hint_numel(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        order = "" if self.strides is None else f" strides {list(self.strides)}"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{order}"


class Node:
    """One value.  `args` are nodes (the array operands), `attrs` are static and hashable."""

    __slots__ = ("_next", "_prev", "args", "attrs", "graph", "kind", "location", "meta", "name", "target", "users")

    def __init__(self, graph: "Graph", name: str, kind: str, target: Any, args: tuple["Node", ...],
                 attrs: dict[str, Any], meta: Meta | None, location: Location | None):
        self.graph = graph
        self.name = name
        self.kind = kind
        self.target = target
        self.args = args
        self.attrs = attrs
        self.meta: Meta = meta  # type: ignore[assignment]  # the output node alone has none
        self.location = location
        self.users: dict[Node, None] = {}
        self._prev: Node = self
        self._next: Node = self
        for arg in args:
            arg.users[self] = None

    @property
    def op(self) -> "Op":
        """The row of the op table of a call_function node."""
        return self.target

    @property
    def dtype(self) -> DType:
        return self.meta.dtype

    @property
    def shape(self) -> Shape:
        return self.meta.shape

    @property
    def ndim(self) -> int:
        return len(self.meta.shape)

    @property
    def may_raise(self) -> bool:
        """Whether it may raise an exception; the program then bails out."""
        return self.kind == "call_function" and self.target.may_raise

    @property
    def has_effect(self) -> bool:
        """Whether others see that it is run: once, in the order of the nodes that have effects.  No program bails out after it."""
        return self.kind == "call_function" and self.target.has_effect

    @property
    def must_run(self) -> bool:
        """Whether it is run even where nothing uses its value: what it raises is for the user, or what it does for others."""
        call = self.attrs.get("call")
        return self.has_effect or (self.may_raise and not (isinstance(call, FunctionCall) and call.optional))

    @property
    def given_attrs(self) -> dict[str, Any]:
        """The attributes, without those of an op that are None because nobody gave them."""
        if self.kind != "call_function":
            return self.attrs
        return {k: v for k, v in self.attrs.items() if v is not None or self.op.attrs.get(k, ...) is not None}

    def is_op(self, *names: str) -> bool:
        return self.kind == "call_function" and self.target.name in names

    def replace_all_uses_with(self, other: "Node") -> None:
        """Make every user of this node use `other` instead."""
        if other is self:
            return
        for user in self.users:
            args = list(user.args)
            for _ in range(args.count(self)):
                args[args.index(self)] = other
            user.args = tuple(args)
            other.users[user] = None
        self.users.clear()

    def set_args(self, args: tuple["Node", ...]) -> None:
        for arg in self.args:
            arg.users.pop(self, None)
        self.args = args
        for arg in args:
            arg.users[self] = None

    def __repr__(self) -> str:
        return self.name

    def describe(self) -> str:
        """One line: ``add_1 = add(x, y) : float32[2, 3]   # model.py:12``."""
        if self.kind == "output":
            into = self.attrs.get("into") or (None,) * len(self.args)
            inputs = self.graph.placeholders if self.attrs else []
            n_returned = len(self.args) - self.attrs.get("n_checks", 0)
            returned = [a.name if k is None else f"{a.name} into {inputs[k].name}" for a, k in zip(self.args, into)]
            refused = [f"bail out if {name}" for name in returned[n_returned:]]
            return "return " + "; ".join([", ".join(returned[:n_returned]), *refused])
        target = self.target if isinstance(self.target, str) else self.target.name
        operands = [a.name for a in self.args] + [f"{k}={v!r}" for k, v in self.given_attrs.items()]
        call = f"{target}({', '.join(operands)})" if self.kind == "call_function" else f"{self.kind}[{target}]"
        where = f"   # {self.location}" if self.location else ""
        return f"{self.name} = {call} : {self.meta}{where}"


@dataclass
class Graph:
    """An ordered program.  Build it with `placeholder`, `constant`, `call` and `output`; check it with `lint`.

    >>> from dynagraph.ir.ops import OPS
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (3,)))
    >>> _ = g.output([g.call(OPS["add"], x, x)])
    >>> print(g)
    x = placeholder[x] : float64[3]
    add = add(x, x) : float64[3]
    return add
    """

    name: str = "graph"
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    library: str = "numpy"  # whose arrays it takes and gives

    def __post_init__(self) -> None:
        self._root = Node(self, "", "root", None, (), {}, None, None)
        self._names: dict[str, int] = {}
        self._insert: Node = self._root  # new nodes go before this one
        self._placeholders: list[Node] | None = None  # None: to be looked up
        self.location: Location | None = None  # given to new nodes
        self.custom: dict[Node, Any] = {}  # whose gradient is computed in another way (passes/backward.py); no copy has it

    # -- reading ----------------------------------------------------------------------------------------------------
    @property
    def nodes(self) -> Iterator[Node]:
        """In order; the current node may be erased while iterating."""
        node = self._root._next
        while node is not self._root:
            following = node._next
            yield node
            node = following

    @property
    def placeholders(self) -> list[Node]:
        if self._placeholders is None:
            self._placeholders = [n for n in self.nodes if n.kind == "placeholder"]
        return list(self._placeholders)

    @property
    def output_node(self) -> Node:
        last = self._root._prev
        if last.kind != "output":
            raise GraphError(f"graph {self.name!r} has no output node")
        return last

    @property
    def outputs(self) -> tuple[Node, ...]:
        return self.output_node.args

    @property
    def into(self) -> tuple[int | None, ...]:
        """For each output the position of the input whose memory it is written to; None: it is an array of its own."""
        return self.output_node.attrs.get("into") or (None,) * len(self.outputs)

    @property
    def scalars(self) -> tuple[bool, ...]:
        """For each output whether it is a NumPy scalar, where the graph's library is not NumPy."""
        return self.output_node.attrs.get("scalars") or (False,) * len(self.outputs)

    @property
    def n_checks(self) -> int:
        """How many outputs at the end are checks."""
        return int(self.output_node.attrs.get("n_checks", 0))

    @property
    def may_bail_out(self) -> bool:
        """Whether a program of the graph may leave a call to the plain function, having changed nothing."""
        return self.n_checks > 0 or self.library != "numpy" or any(node.may_raise for node in self.nodes)

    def __len__(self) -> int:
        return sum(1 for _ in self.nodes)

    def __str__(self) -> str:
        return "\n".join(node.describe() for node in self.nodes)

    # -- building ---------------------------------------------------------------------------------------------------
    def placeholder(self, name: str, meta: Meta, symbol: str | None = None) -> Node:
        """An input; with `symbol`, a 0-d integer whose value is that symbol's."""
        return self._add("placeholder", name, name, (), {} if symbol is None else {"symbol": symbol}, meta)

    def constant(self, array: np.ndarray, name: str = "constant") -> Node:
        """The values of an array as a node; the graph keeps a read-only copy."""
        dtype = dtypes.from_numpy(array.dtype)
        if dtype is None:
            raise GraphError(f"constant {name!r}: dtype {array.dtype} is not one of the IR's")
        key = f"{name}_{len(self.constants)}"
        array = np.array(array, order="C")
        array.flags.writeable = False
        self.constants[key] = array
        return self._add("get_attr", name, key, (), {}, Meta(dtype, array.shape))

    def call(self, op: "Op", *args: Node, **attrs: Any) -> Node:
        """Append an op; its row gives dtype and shape.  Raises ShapeError or DTypeError where operands do not fit."""
        attrs = op.bind_attrs(attrs)
        meta = op.infer(tuple(a.meta for a in args), attrs)
        return self._add("call_function", op.name, op, args, attrs, meta)

    def repeat(self, node: Node, meta: Meta, args: tuple[Node, ...]) -> Node:
        """Append the op of a node, applied to operands that are like its own; `meta`: what is known of the value."""
        return self._add("call_function", node.target.name, node.target, args, dict(node.attrs), meta)

    def output(
        self, nodes: Sequence[Node], into: Sequence[int | None] = (), n_checks: int = 0, scalars: Sequence[bool] = ()
    ) -> Node:
        """What the graph returns.  `into`: for each output the position of the input whose memory it is written to, or None.

        `n_checks`: that many outputs at the end are bools; where one is true the program bails out, and changes nothing.
        `scalars`: which outputs are NumPy scalars; for libraries whose arrays lie on a device, where these do not.
        """
        attrs: dict[str, Any] = {"into": tuple(into)} if any(position is not None for position in into) else {}
        if n_checks:
            attrs["n_checks"] = n_checks
        if any(scalars):
            attrs["scalars"] = tuple(scalars)
        return self._add("output", "output", "output", tuple(nodes), attrs, None)

    def append(
        self, name: str, kind: str, target: Any, args: tuple[Node, ...], attrs: dict[str, Any], meta: Meta | None,
        location: Location | None,
    ) -> Node:  # fmt: skip
        """Append a node as it was in another graph."""
        self.location = location
        return self._add(kind, name, target, args, attrs, meta)

    def _add(self, kind: str, name: str, target: Any, args: tuple[Node, ...], attrs: dict[str, Any],
             meta: Meta | None) -> Node:
        for arg in args:
            if not isinstance(arg, Node) or arg.graph is not self:
                raise GraphError(f"{name}: operand {arg!r} is not a node of graph {self.name!r}")
        node = Node(self, self._unique(name), kind, target, args, attrs, meta, self.location)
        before = self._insert
        node._prev, node._next = before._prev, before
        before._prev._next = node
        before._prev = node
        if kind == "placeholder" and self._placeholders is not None:
            if before is self._root:
                self._placeholders.append(node)
            else:
                self._placeholders = None
        return node

    def _unique(self, name: str) -> str:
        if not (name.isascii() and name.isidentifier()):
            name = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "value"
        while True:
            count = self._names.get(name, 0)
            self._names[name] = count + 1
            if count == 0:
                return name
            name = f"{name}_{count}"

    # -- changing ---------------------------------------------------------------------------------------------------
    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        """New nodes go before `node`, and take its source location."""
        saved, saved_location = self._insert, self.location
        self._insert, self.location = node, node.location
        try:
            yield
        finally:
            self._insert, self.location = saved, saved_location

    @contextmanager
    def before_output(self) -> Iterator[None]:
        """New nodes go before the output, or to the end where there is none yet."""
        last = self._root._prev
        with self.inserting_before(last if last.kind == "output" else self._root):
            yield

    @property
    def latest(self) -> Node:
        """The node after which new ones go; where there is none yet, what stands for the beginning."""
        return self._insert._prev

    def since(self, latest: Node) -> list[Node]:
        """The nodes that were made since `latest` was what it is called."""
        found: list[Node] = []
        node = latest._next
        while node is not self._insert:
            found.append(node)
            node = node._next
        return found

    def erase(self, node: Node) -> None:
        """Take out a node that nothing uses."""
        if node.users:
            raise GraphError(f"cannot erase {node.name}: used by {', '.join(u.name for u in node.users)}")
        node.set_args(())
        node._prev._next, node._next._prev = node._next, node._prev
        if node.kind == "placeholder":
            self._placeholders = None

    def bring_before(self, place: Node, nodes: Iterable[Node]) -> None:
        """Move nodes, and what they are computed from, before another one, which none of them needs."""
        if place.kind == "placeholder":
            raise GraphError(f"bring_before: {place.name} is an input, and the order of inputs is that of the arguments")
        wanted = set(self.placeholders)  # all of them: their order is that of the inputs
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if node.kind != "placeholder" and node not in wanted:
                wanted.add(node)
                stack += node.args
        node = place._next
        while node is not self._root:
            following = node._next
            if node in wanted:
                node._prev._next, node._next._prev = node._next, node._prev
                node._prev, node._next = place._prev, place
                place._prev._next = node
                place._prev = node
            node = following
        self._placeholders = None

    def eliminate_dead_code(self) -> int:
        """Erase call_function and get_attr nodes that nothing uses; gives how many went."""
        erased = 0
        for node in reversed(list(self.nodes)):
            if not node.users and node.kind in ("call_function", "get_attr") and not node.must_run:
                self.erase(node)
                erased += 1
        used = {n.target for n in self.nodes if n.kind == "get_attr"}
        self.constants = {k: v for k, v in self.constants.items() if k in used}
        return erased

    def copy(self) -> "Graph":
        """A deep copy; constants are shared (they are read-only)."""
        new = Graph(self.name, dict(self.constants), self.library)
        mapping: dict[Node, Node] = {}
        for node in self.nodes:
            mapping[node] = new.adopt(node, [mapping[a] for a in node.args])
        return new

    def adopt(self, node: Node, args: Sequence[Node]) -> Node:
        """A node of another graph once more, on operands of this one; its meta is taken as it is, and guards no symbolic size.

        A constant is shared.  Raises GraphError where this graph has another of that key.
        """
        if node.kind == "get_attr" and self.constants.setdefault(node.target, node.graph.constants[node.target]) is not (
            node.graph.constants[node.target]
        ):
            raise GraphError(f"graph {self.name!r}: it has another constant {node.target!r} than graph {node.graph.name!r}")
        saved, self.location = self.location, node.location
        name = node.name if node.kind != "placeholder" else node.target
        made = self._add(node.kind, name, node.target, tuple(args), dict(node.attrs), node.meta)
        self.location = saved
        return made

    # -- checking ---------------------------------------------------------------------------------------------------
    def lint(self) -> None:
        """Check every rule of a graph; raises GraphError that names the node, shows its line and says what is wrong."""
        seen: set[Node] = set()
        names: set[str] = set()
        output: Node | None = None
        for node in self.nodes:
            fault = self._fault(node, seen, names, output)
            if fault:
                raise GraphError(f"graph {self.name!r}: node {node.name}: {fault}\n  {node.describe()}")
            seen.add(node)
            names.add(node.name)
            output = node if node.kind == "output" else output
        if output is None:
            raise GraphError(f"graph {self.name!r}: has no output node")

    def _fault(self, node: Node, seen: set[Node], names: set[str], output: Node | None) -> str | None:
        if output is not None:
            return "stands after the output"
        if node.name in names:
            return "its name is taken by an earlier node"
        for arg in node.args:
            if arg not in seen:
                return f"uses {arg.name} before its definition"
            if node not in arg.users:
                return f"is not among the users of its operand {arg.name}"
        for user in node.users:
            if node not in user.args:
                return f"lists {user.name} as a user, which does not use it"
        if node.kind == "output":
            return self._fault_of_output(node)
        if node.kind == "get_attr" and node.target not in self.constants:
            return f"the graph holds no constant {node.target!r}"
        if node.kind == "call_function":
            try:
                meta = node.op.infer(tuple(a.meta for a in node.args), node.attrs)
            except DynagraphError as refusal:
                return f"its op refuses its operands: {refusal}"
            if meta.dtype is not node.dtype or not same_shape(meta.shape, node.shape):
                return f"holds {node.meta}, its op gives {meta}"
        return None

    def _fault_of_output(self, output: Node) -> str | None:
        into = output.attrs.get("into") or (None,) * len(output.args)
        written = [k for k in into if k is not None]
        if len(into) != len(output.args) or len(set(written)) != len(written):
            return f"says {into} of where its {len(output.args)} outputs go; one entry for each, no input twice"
        for check in output.args[len(output.args) - output.attrs.get("n_checks", 0) :]:
            if check.ndim or not check.dtype.is_bool:
                return f"has the check {check.name}, which is {check.meta}"
        inputs = self.placeholders
        for node, k in zip(output.args, into):
            if k is None:
                continue
            if not 0 <= k < len(inputs):
                return f"writes {node.name} into input {k} of {len(inputs)}"
            if inputs[k].dtype is not node.dtype or not same_shape(inputs[k].shape, node.shape):
                return f"writes {node.meta} into {inputs[k].meta}"
        return None


def values_behind(node: Node) -> set[Node]:
    """A value, and all that it is computed from."""
    needed = {node}
    stack = [node]
    while stack:
        new = [a for a in stack.pop().args if a not in needed]
        needed.update(new)
        stack += new
    return needed


def with_strides(meta: Meta, strides: Iterable[Dim] | None) -> Meta:
    """The same value laid out otherwise."""
    return replace(meta, strides=None if strides is None else tuple(strides))


def copy_into(graph: Graph, other: Graph, inputs: Sequence[Node]) -> list[Node]:
    """The nodes of `other` once more in `graph`, with nodes of this in place of its placeholders; gives those of its outputs.

    Raises GraphError where inputs are not of the placeholders' dtypes and shapes.
    """
    made: dict[Node, Node] = dict(zip(other.placeholders, inputs, strict=True))
    for node, given in made.items():
        if given.dtype is not node.dtype or not same_shape(given.shape, node.shape):
            raise GraphError(f"graph {other.name!r}: input {node.name} must be {node.meta}, got {given.meta}")
    with graph.before_output():
        for node in other.nodes:
            graph.location = node.location
            if node.kind == "get_attr":
                made[node] = graph.constant(other.constants[node.target], node.name)
            elif node.kind == "call_function":
                made[node] = graph.call(node.op, *(made[a] for a in node.args), **node.attrs)
    return [made[node] for node in other.outputs]
