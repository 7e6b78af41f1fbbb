"""One engine for pattern rewriting: a pass is a list of named rules, written with the IR's own operators.

    x = variable("x")
    Rule("mul-one", x * 1, x)                                                  # x*1 -> x
    Rule("sub-self", x - x, lambda root: filled(root, 0), when=is_integer)     # inf-inf is nan, so integers only

Stands on the graph and the op table; `passes/simplify.py` holds the rules.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import numpy as np

from dynagraph.driver import deadline
from dynagraph.errors import RewriteError
from dynagraph.ir.dtypes import DType, scalar_key
from dynagraph.ir.external_calls import FunctionCall
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Elementwise, Library
from dynagraph.ir.shapes import Shape, SymInt, expr_of, same_dim, same_shape

Scalar = Union[bool, int, float]
Bindings = dict[str, Any]

# Ops whose every element is the operand's where all elements of that are one value.
_KEEPS_UNIFORM = frozenset({"broadcast_to", "reshape", "transpose", "slice", "copy", "roll", "repeat", "tile"})

STEPS_PER_NODE = 50  # a rule set that fires more often than this per node of the graph does not terminate


# -- patterns ----------------------------------------------------------------------------------------------------------
class Pattern:
    """What a rule looks for.  ``+ - * / // % ** & | ^ << >> ~ abs()`` build patterns, `op.name(...)` the rest."""

    def __add__(self, other: "Operand") -> "Apply":
        return apply("add", self, other)

    def __radd__(self, other: "Operand") -> "Apply":
        return apply("add", other, self)

    def __sub__(self, other: "Operand") -> "Apply":
        return apply("subtract", self, other)

    def __rsub__(self, other: "Operand") -> "Apply":
        return apply("subtract", other, self)

    def __mul__(self, other: "Operand") -> "Apply":
        return apply("multiply", self, other)

    def __rmul__(self, other: "Operand") -> "Apply":
        return apply("multiply", other, self)

    def __truediv__(self, other: "Operand") -> "Apply":
        return apply("divide", self, other)

    def __rtruediv__(self, other: "Operand") -> "Apply":
        return apply("divide", other, self)

    def __floordiv__(self, other: "Operand") -> "Apply":
        return apply("floor_divide", self, other)

    def __mod__(self, other: "Operand") -> "Apply":
        return apply("remainder", self, other)

    def __pow__(self, other: "Operand") -> "Apply":
        return apply("power", self, other)

    def __and__(self, other: "Operand") -> "Apply":
        return apply("bitwise_and", self, other)

    def __or__(self, other: "Operand") -> "Apply":
        return apply("bitwise_or", self, other)

    def __xor__(self, other: "Operand") -> "Apply":
        return apply("bitwise_xor", self, other)

    def __lshift__(self, other: "Operand") -> "Apply":
        return apply("left_shift", self, other)

    def __rshift__(self, other: "Operand") -> "Apply":
        return apply("right_shift", self, other)

    def __neg__(self) -> "Apply":
        return apply("negative", self)

    def __invert__(self) -> "Apply":
        return apply("invert", self)

    def __abs__(self) -> "Apply":
        return apply("absolute", self)


@dataclass(frozen=True)
class Variable(Pattern):
    """Any node; twice the same variable is twice the same node."""

    name: str


@dataclass(frozen=True)
class Literal(Pattern):
    """Any node whose elements are all one known value; binds that value."""

    name: str


@dataclass(frozen=True)
class Number(Pattern):
    """A node whose elements all equal `value`: signs of zeros count, bools match bools only."""

    value: Scalar


@dataclass(frozen=True)
class Attribute:
    """In the place of an attribute of an op: binds its value."""

    name: str


@dataclass(frozen=True)
class Apply(Pattern):
    """An op applied to patterns.  Attributes that are not named may be anything."""

    op: str
    args: tuple[Pattern, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


Operand = Union[Pattern, Scalar]


def variable(name: str) -> Variable:
    return Variable(name)


def literal(name: str) -> Literal:
    return Literal(name)


def attribute(name: str) -> Attribute:
    return Attribute(name)


def apply(name: str, *args: Operand, **attrs: Any) -> Apply:
    """The pattern of an op by its name."""
    return Apply(name, tuple(a if isinstance(a, Pattern) else Number(a) for a in args), attrs)


class _OpNamespace:
    """``op.sqrt(x)`` is ``apply("sqrt", x)``."""

    def __getattr__(self, name: str) -> Callable[..., Apply]:
        return lambda *args, **attrs: apply(name, *args, **attrs)


op = _OpNamespace()


def subpatterns(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern and everything in it, outermost first."""
    yield pattern
    if isinstance(pattern, Apply):
        for arg in pattern.args:
            yield from subpatterns(arg)


# -- rules -------------------------------------------------------------------------------------------------------------
class Rule:
    """`pattern` -> `replacement`, where `when` holds.

    `replacement` is a pattern, or a function that gives a node (or None: does not apply after all). Functions, `when`
    too, take what was bound by parameter name: nodes for variables, Python values for literals and attributes, and the
    matched node as ``root``. New nodes belong in ``root.graph``; they are inserted before ``root``.
    With `of_reals` the rule is for real numbers, integers and bools.
    """

    def __init__(self, name: str, pattern: Apply, replacement: Pattern | Callable[..., Node | None],
                 when: Callable[..., bool] | None = None, of_reals: bool = False):
        self.name = name
        self.pattern = pattern
        self.replacement = replacement
        self.of_reals = of_reals
        self._build = _named_call(name, pattern, replacement) if not isinstance(replacement, Pattern) else None
        self._when = _named_call(name, pattern, when) if when is not None else None

    def apply_to(self, node: Node) -> Node | None:
        """What replaces `node`; None where the rule does not apply."""
        for bindings in matches(self.pattern, node):
            bindings["root"] = node
            if self.of_reals and any(isinstance(b, Node) and b.dtype.is_complex for b in bindings.values()):
                continue
            if self._when is None or self._when(bindings):
                with node.graph.inserting_before(node):
                    new = self._instantiate(bindings)
                if new is not None:
                    return self._checked(node, new)
        return None

    def _instantiate(self, bindings: Bindings) -> Node | None:
        if self._build is not None:
            return self._build(bindings)  # type: ignore[no-any-return]
        assert isinstance(self.replacement, Pattern)
        return instantiate(self.replacement, bindings, bindings["root"])

    def _checked(self, node: Node, new: Node) -> Node:
        """The replacement, broadcast to the shape of an elementwise node; never another dtype or shape."""
        narrower = not same_shape(new.shape, node.shape) and broadcasts_to(new.shape, node.shape)
        if narrower and isinstance(node.op.lowering, Elementwise):
            with node.graph.inserting_before(node):
                new = node.graph.call(OPS["broadcast_to"], new, shape=node.shape)
        if new.dtype is not node.dtype or not same_shape(new.shape, node.shape):
            raise RewriteError(f"rule {self.name!r} changes {node.meta} into {new.meta}")
        return new

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


def _named_call(rule: str, pattern: Pattern, function: Callable[..., Any]) -> Callable[[Bindings], Any]:
    """`function` as a function of the bindings: each parameter gets what its name was bound to."""
    wanted = tuple(inspect.signature(function).parameters)
    bound = bound_names(pattern)
    unknown = [name for name in wanted if name not in bound]
    if unknown:
        binds = ", ".join(sorted(bound))
        raise RewriteError(f"rule {rule!r}: its function wants {', '.join(unknown)}; its pattern binds {binds}")
    return lambda bindings: function(*[bindings[name] for name in wanted])


def bound_names(pattern: Pattern) -> set[str]:
    """The names that a match of the pattern binds."""
    names = {"root"}
    for part in subpatterns(pattern):
        if isinstance(part, (Variable, Literal)):
            names.add(part.name)
        elif isinstance(part, Apply):
            names |= {a.name for a in part.attrs.values() if isinstance(a, Attribute)}
    return names


# -- matching ----------------------------------------------------------------------------------------------------------
def matches(pattern: Pattern, node: Node, bindings: Bindings | None = None) -> Iterator[Bindings]:
    """Every way in which `node` is an instance of `pattern`."""
    bindings = {} if bindings is None else bindings
    if isinstance(pattern, Apply):
        yield from _matches_apply(pattern, node, bindings)
    elif isinstance(pattern, Variable):
        if bindings.get(pattern.name, node) is node:
            yield {**bindings, pattern.name: node}
    else:
        value = uniform_value(node)
        if value is None:
            return
        if isinstance(pattern, Number):
            if same_scalar(pattern.value, value):
                yield bindings
        elif isinstance(pattern, Literal):
            yield {**bindings, pattern.name: value}


def _matches_apply(pattern: Apply, node: Node, bindings: Bindings) -> Iterator[Bindings]:
    if not node.is_op(pattern.op) or len(node.args) != len(pattern.args):
        return
    for name, wanted in pattern.attrs.items():
        if isinstance(wanted, Attribute):
            bindings = {**bindings, wanted.name: node.attrs[name]}
        elif attribute_key(node.attrs[name]) != attribute_key(wanted):
            return
    yield from _matches_all(pattern.args, node.args, bindings)
    if len(node.args) == 2 and is_commutative(node):
        yield from _matches_all(pattern.args, node.args[::-1], bindings)


def _matches_all(patterns: Sequence[Pattern], nodes: Sequence[Node], bindings: Bindings) -> Iterator[Bindings]:
    if not patterns:
        yield bindings
        return
    for extended in matches(patterns[0], nodes[0], bindings):
        yield from _matches_all(patterns[1:], nodes[1:], extended)


def is_commutative(node: Node) -> bool:
    """Whether swapping the two operands keeps every bit of the result."""
    return node.args[0].dtype.kind in node.op.commutative


def uniform_value(node: Node) -> Scalar | None:
    """The value that all elements of a node are known to have, as a Python scalar of its dtype."""
    while node.kind == "call_function" and node.op.name in _KEEPS_UNIFORM:
        node = node.args[0]
    if node.kind == "get_attr":
        array = node.graph.constants[node.target]
        return array.item() if array.size == 1 else None  # type: ignore[no-any-return]
    if node.is_op("constant", "full"):
        value = node.attrs["value"]
        return None if isinstance(value, SymInt) else convert(value, node.dtype)
    if node.is_op("cast"):
        return _cast_value(uniform_value(node.args[0]), node.dtype)
    return None


def _cast_value(value: Scalar | None, dtype: DType) -> Scalar | None:
    """A cast where it is the same on every machine: not NaN or out-of-range floating point to integers."""
    if isinstance(value, float) and dtype.is_integer:
        limits = np.iinfo(dtype.numpy)
        if not math.isfinite(value) or not limits.min <= math.trunc(value) <= limits.max:
            return None
    return None if value is None else convert(value, dtype)


def convert(value: Scalar, dtype: DType) -> Scalar:
    """A Python scalar as the dtype holds it (integers wrap, as in NumPy's casts of arrays)."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise RewriteError(f"the constant {value} does not fit {dtype}")
    with np.errstate(over="ignore"):
        return np.asarray(value).astype(dtype.numpy).item()  # type: ignore[no-any-return]


def same_scalar(a: Scalar, b: Scalar) -> bool:
    """Equal values of which neither is a bool without the other; signs of zeros and NaNs count, NaN equals NaN."""
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    return (a == b or (a != a and b != b)) and scalar_key(complex(a)) == scalar_key(complex(b))


def attribute_key(value: Any) -> Any:
    """A hashable stand-in of an attribute: equal only for the same one, and comparing it guards no symbolic size."""
    if isinstance(value, SymInt):
        return ("size", expr_of(value))
    if isinstance(value, (tuple, list)):
        return tuple(attribute_key(v) for v in value)
    if isinstance(value, FunctionCall):
        return (value.function, attribute_key(value.args), attribute_key(value.kwargs))
    if isinstance(value, (bool, int, float, complex)):
        return scalar_key(value)
    return value


def call_key(node: Node) -> Any:
    """A hashable that results of one call have in common, beside their operands; None: the node is a call's only result."""
    if node.is_op("external_call"):
        return attribute_key(node.attrs["call"])
    several = node.kind == "call_function" and isinstance(node.op.lowering, Library) and "result" in node.op.attrs
    if not several or node.has_effect:
        return None
    return (node.op, *((name, attribute_key(value)) for name, value in sorted(node.attrs.items()) if name != "result"))


# -- building ----------------------------------------------------------------------------------------------------------
def instantiate(pattern: Pattern, bindings: Bindings, root: Node) -> Node:
    """The nodes of a replacement; numbers take the dtype of the operand beside them, or the root's."""
    if isinstance(pattern, Variable):
        return bindings[pattern.name]  # type: ignore[no-any-return]
    if not isinstance(pattern, Apply):
        return scalar(root.graph, _number(pattern, bindings), root.dtype)
    beside = next((instantiate(a, bindings, root) for a in pattern.args if isinstance(a, (Variable, Apply))), root)
    args = [
        instantiate(a, bindings, root) if isinstance(a, (Variable, Apply))
        else scalar(root.graph, _number(a, bindings), beside.dtype)
        for a in pattern.args
    ]
    attrs = {k: bindings[v.name] if isinstance(v, Attribute) else v for k, v in pattern.attrs.items()}
    return root.graph.call(OPS[pattern.op], *args, **attrs)


def _number(pattern: Pattern, bindings: Bindings) -> Scalar:
    if isinstance(pattern, Literal):
        return bindings[pattern.name]  # type: ignore[no-any-return]
    assert isinstance(pattern, Number)
    return pattern.value


def scalar(graph: Graph, value: Scalar, dtype: DType) -> Node:
    """The 0-d constant."""
    return graph.call(OPS["constant"], value=convert(value, dtype), dtype=dtype)


def filled(root: Node, value: Scalar) -> Node:
    """A node like `root` whose elements are all `value`."""
    if not root.shape:
        return scalar(root.graph, value, root.dtype)
    return root.graph.call(OPS["full"], shape=root.shape, value=convert(value, root.dtype), dtype=root.dtype)


def broadcasts_to(small: Shape, large: Shape) -> bool:
    """Whether NumPy would broadcast the first shape to exactly the second; guards nothing."""
    aligned = large[len(large) - len(small):]
    return len(small) <= len(large) and all(same_dim(a, b) or same_dim(a, 1) for a, b in zip(small, aligned))


# -- the driver --------------------------------------------------------------------------------------------------------
def rewrite(graph: Graph, rules: Sequence[Rule]) -> list[str]:
    """Apply rules wherever they match, in place, until none does; gives the names of the rules in the order they fired.

    Earlier rules win. Nodes keep their source lines. Raises RewriteError for a rule that changes a shape or dtype, and
    for rules that go round in circles.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (3,)))
    >>> one = scalar(g, 1.0, dtypes.float64)
    >>> _ = g.output([g.call(OPS["exp"], g.call(OPS["multiply"], x, one))])
    >>> rewrite(g, [Rule("mul-one", variable("x") * 1, variable("x"))])
    ['mul-one']
    >>> print(g)
    x = placeholder[x] : float64[3]
    exp = exp(x) : float64[3]
    return exp
    """
    by_op: dict[str, list[Rule]] = {}
    for rule in rules:
        by_op.setdefault(rule.pattern.op, []).append(rule)
    pending = deque(node for node in graph.nodes if node.kind == "call_function")
    queued = set(pending)
    limit = STEPS_PER_NODE * (len(pending) + 10)
    fired: list[str] = []
    while pending:
        deadline.check()
        node = pending.popleft()
        queued.discard(node)
        if not node.users:
            continue
        for rule in by_op.get(node.op.name, ()):
            before = node._prev
            new = rule.apply_to(node)
            if new is None or new is node or not _replaces(node, new):
                continue
            changed = [*_between(before, node), *_call_users(node)]
            replace(node, new)
            fired.append(rule.name)
            if len(fired) > limit:
                last = ", ".join(fired[-6:])
                raise RewriteError(f"rules do not come to an end after {limit} steps; the last were {last}")
            for n in (*changed, *_call_users(new)):
                if n not in queued:
                    queued.add(n)
                    pending.append(n)
            break
    graph.eliminate_dead_code()
    return fired


def _between(before: Node, node: Node) -> list[Node]:
    """The call nodes that a rule inserted: those that now stand between the two."""
    new, current = [], before._next
    while current is not node:
        if current.kind == "call_function":
            new.append(current)
        current = current._next
    return new


def _call_users(node: Node) -> list[Node]:
    return [u for u in node.users if u.kind == "call_function"]


def _replaces(node: Node, new: Node) -> bool:
    """Whether replacing changes anything: a copy that an output needs stays."""
    return not (node.is_op("copy") and not _call_users(node) and needs_copy(node.graph, node, new))


def needs_copy(graph: Graph, node: Node, new: Node) -> bool:
    """Whether `new` cannot itself be returned in the place of `node`: an input, or a value that is returned already.

    The plain call returns an array of its own for each.
    """
    output = graph.output_node
    return output in node.users and (new.kind != "call_function" or output in new.users)


def replace(node: Node, new: Node) -> None:
    """Make all users of `node` use `new`, and erase it; an output that must be an array of its own becomes a copy."""
    graph = node.graph
    if needs_copy(graph, node, new):
        with graph.inserting_before(node):
            own = graph.call(OPS["copy"], new)
        output = graph.output_node
        output.set_args(tuple(own if a is node else a for a in output.args))
    node.replace_all_uses_with(new)
    graph.erase(node)


__all__ = [
    "Apply",
    "Attribute",
    "Bindings",
    "Literal",
    "Number",
    "Pattern",
    "Rule",
    "Variable",
    "apply",
    "attribute",
    "attribute_key",
    "bound_names",
    "broadcasts_to",
    "call_key",
    "convert",
    "filled",
    "instantiate",
    "is_commutative",
    "literal",
    "matches",
    "needs_copy",
    "op",
    "replace",
    "rewrite",
    "same_scalar",
    "scalar",
    "subpatterns",
    "uniform_value",
    "variable",
]
