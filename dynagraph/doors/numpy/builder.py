"""The Builder: how doors append nodes to a graph, and `Unsupported`, how they decline.

The ground of `frontend/numpy_door`: every door gets a Builder first.  Operands are nodes, Python scalars
(weak in promotion), symbolic sizes (weak ints), NumPy scalars (strong) and nested lists or tuples of those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from dynagraph.doors.numpy.layout import Order, c_order, copy_order, lies_in_c_order, packed_strides, reduced_order, rule_of
from dynagraph.doors.numpy.walks import memory_walk, walk_of
from dynagraph.errors import DTypeError, ShapeError
from dynagraph.ir import dtypes, optable  # noqa: F401  (optable: importing it fills OPS)
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Graph, Node, with_strides
from dynagraph.ir.ops import OPS, Strided, memory_of, strided_of, view_of
from dynagraph.ir.passes.fold import known_value
from dynagraph.ir.ranges import known_range
from dynagraph.ir.shapes import Dim, SymInt, numel, same_dim

Scalar = Union[bool, int, float, complex, SymInt]
CheckOp = Callable[[str, Callable[[], bool], int], None]  # the op, whether its operands lie in C order, the rank of the result
MOST_CHECKS = 32  # of one program, each an output; further ones are joined
LIMITS: dict[DType, tuple[int, int]] = {
    d: (int(np.iinfo(d.numpy).min), int(np.iinfo(d.numpy).max)) for d in dtypes.ALL if d.is_integer
}
_ACCUMULATIONS = ("sum", "prod", "mean")
MOST_KNOWN = 1 << 18  # elements of what is computed at capture


class Unsupported(Exception):
    """A door does not take this call: the frame runs eagerly.  `reason` is the name of a catalogued break reason."""

    def __init__(self, reason: str, detail: str):
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class WeakFloat:
    """A Python float or complex that is an input of the program: a 0-d float64 or complex128 node, and weak in promotion."""

    def __init__(self, node: Node):
        self.node = node

    @property
    def type(self) -> type:
        return complex if self.node.dtype.is_complex else float


@dataclass(frozen=True)
class Chosen:
    """What a door gives for the elements of `data` that `mask`, over the axes from `at` on, chooses: how many these are is data."""

    data: Node
    mask: Node
    at: int


def is_weak(value: object) -> bool:
    """Whether NumPy treats the value as a weak scalar in promotion (np.float64 is a float, and is not weak)."""
    return type(value) in (bool, int, float, complex, SymInt, WeakFloat)


class Builder:
    """Appends nodes to `graph`.

    `is_scalar` tells which 0-d nodes stand for NumPy scalars rather than 0-d arrays; without it, none does.
    `placed` gives a node that lies in memory as what another one stands for; without it, the node itself.
    """

    def __init__(
        self, graph: Graph, is_scalar: Callable[[Node], bool] | None = None, placed: Callable[[Node], Node] | None = None
    ):
        self.graph = graph
        self.is_scalar: Callable[[Node], bool] = is_scalar or _never
        self.placed: Callable[[Node], Node] = placed or _itself
        self._known: dict[Node, np.ndarray] = {}
        # what a node gives in this run, where the code runs as plain Python meanwhile (on a tape); None in a capture
        self.observed: Callable[[Node], np.ndarray | None] = _nothing
        self.warning: set[Node] = set()  # views that say that they are writeable, and warn when they are written to
        self.may_bail_out = True  # whether the program is allowed to leave a call to the plain function
        self.committed = False  # whether there is an op with an effect: checks come before it
        self.ranges: dict[Node, tuple[Dim, Dim]] = {}  # integers that are known to be from `low` up to `high`, inclusive
        self.checks: list[Node] = []  # bools: where one is true the program bails out, and the call runs eagerly
        self.check_op: CheckOp | None = None  # of a library that is not NumPy: what it refuses (doors/cupy.py)

    def call(self, op_name: str, *nodes: Node, **attrs: Any) -> Node:
        """Append the op; what its row does not take, no door takes.  A new array lies in memory as NumPy's does."""
        op = OPS[op_name]
        if op.may_raise and not (self.committed and attrs["call"].optional):
            self._allow_bailout("a function of NumPy's that may raise an error")
        if op.has_effect:
            if self.check_op is not None:
                raise Unsupported("SIDE_EFFECT", "a call out of a program on a device")
            self.committed = True
        if op_name in _ACCUMULATIONS and "walk" not in attrs:
            (x,) = nodes
            return self.accumulate(op_name, x, **attrs)
        try:
            node = self.graph.call(OPS[op_name], *nodes, **attrs)
        except ShapeError as error:
            raise Unsupported("NUMPY_ERROR", str(error)) from error
        except DTypeError as error:
            raise Unsupported("UNSUPPORTED_DTYPE", str(error)) from error
        if self.check_op is not None:
            self.check_op(op_name, lambda: all(n.ndim < 2 or lies_in_c_order(self.layout(n)) for n in nodes), node.ndim)
            return node  # a new array lies in C order
        rule = rule_of(node) if node.ndim > 1 else None
        return node if rule is None else self.lay(node, rule(node, [self.layout(n) for n in nodes]))

    def accumulate(
        self,
        op_name: str,
        x: Node,
        axis: tuple[int, ...],
        keepdims: bool = False,
        given: Sequence[Strided] | None = None,
        casts: bool = False,
    ) -> Node:
        """A sum, product or mean in NumPy's order.

        `given`: where the array lies that NumPy walks, and the mask, and the result, if these are given.  `casts`: whether that
        array has another dtype than `x`, and NumPy casts it on the way.
        """
        operands = [self.layout(x)] if given is None else given
        found = walk_of(operands, axis, casts) if x.dtype.is_inexact and self.check_op is None else None
        if found is None:
            return self.call(op_name, x, axis=axis, keepdims=keepdims, walk=None)
        order, walk = found
        node = self.call(op_name, self._turned(x, axis, order), axis=axis, keepdims=keepdims, walk=walk)
        return node if node.ndim < 2 else self.lay(node, reduced_order(operands, axis, keepdims))

    def _turned(self, x: Node, axis: tuple[int, ...], order: Order) -> Node:
        """The axes in another order, in the same places."""
        turned = dict(zip(axis, order))
        return x if order == axis else self.call("transpose", x, axes=tuple(turned.get(k, k) for k in range(x.ndim)))

    def sum_where(
        self,
        x: Node,
        mask: Node | None,
        start: Node | None,
        axis: tuple[int, ...],
        keepdims: bool,
        given: Sequence[Strided],
        casts: bool,
    ) -> Node:
        """A sum of floats in NumPy's order, of the elements where the mask is true, that begins with a number.

        What is added up in turn has zeros instead, and the number in front.  `given`, `casts`: as for `accumulate`.
        """
        order, walk = memory_walk(given, axis, casts)
        if walk.axes:
            mask = self.call("broadcast_to", self.scalar(True, dtypes.bool_) if mask is None else mask, shape=x.shape)
            wide = [self._turned(a, axis, order) for a in (x, mask)]
            begin = self.scalar(0, x.dtype) if start is None else start
            return self.call("sum_where", *wide, begin, axis=axis, keepdims=keepdims, walk=walk)
        if mask is not None:
            x = self.call("where", mask, x, self.scalar(0, x.dtype))
        x = self._turned(x, axis, order)
        if start is None:
            return self.call("sum", x, axis=axis, keepdims=keepdims, walk=walk)
        kept = tuple(k for k in range(x.ndim) if k not in axis)
        x = self.call("transpose", x, axes=(*axis, *kept))
        shape = x.shape[len(axis) :]
        rows = self.call("reshape", x, shape=(numel(x.shape[: len(axis)]), *shape))
        first = self.call("broadcast_to", start, shape=(1, *shape))
        total = self.call("sum", self.call("concatenate", first, rows, axis=0), axis=(0,), keepdims=False, walk=walk)
        if not keepdims:
            return total
        whole = iter(shape)
        return self.call("reshape", total, shape=tuple(1 if k in axis else next(whole) for k in range(len(kept) + len(axis))))

    def layout(self, node: Node) -> Strided:
        """Where NumPy has the elements of a value, relative to the array whose memory they lie in."""
        placed = self.placed(node)
        found = memory_of(placed)
        return strided_of(placed) if found is None else found[1]

    def lay(self, node: Node, order: Order) -> Node:
        """Have a new array lie in memory in this order of its axes."""
        if self.check_op is not None and order != c_order(node.ndim):
            raise Unsupported("UNSUPPORTED_ARGUMENT", "CuPy: a new array that does not lie in C order")
        strides = None if order == c_order(node.ndim) else packed_strides(node.shape, order)
        node.meta = with_strides(node.meta, strides)
        return node

    def lay_as_asked(self, node: Node, order: Order) -> Node:
        """As `lay`, in an order that the call asks for by name, "K" too: CuPy follows NumPy's rules here."""
        if self.check_op is not None and order != c_order(node.ndim):
            node.meta = with_strides(node.meta, packed_strides(node.shape, order))
            return node
        return self.lay(node, order)

    def copy(self, node: Node, order: Order | None = None) -> Node:
        """A new array of the same values; without an order, in that of the original."""
        return self.lay(self.call("copy", node), copy_order(self.layout(node)) if order is None else order)

    def known(self, node: Node) -> np.ndarray | None:
        """What a node gives, where that is known at capture and not large: it is made of constants alone."""
        if self.check_op is not None and not self.is_scalar(node) and not _is_of_integers(node):
            return None  # another library may round otherwise
        return known_value(node, self._known, MOST_KNOWN)

    def tell(self, node: Node, value: np.ndarray) -> None:
        """Note what a node gives: no gradient is taken through it."""
        self._known[node] = value

    def is_told(self, node: Node) -> bool:
        """Whether it was noted, or found, what a node gives."""
        return node in self._known

    def bail_out_where(self, wrong: Node, by_plain_code: bool = False) -> None:
        """Have the program bail out, and the call runs eagerly, where any of these bools is true.

        `by_plain_code`: Python code that the plain call runs raises there, whichever library the arrays are of; else NumPy does.
        """
        if self.check_op is not None and not by_plain_code:
            self._bail_out_unless_known(wrong)
            return
        self._allow_bailout("an index may be out of bounds, or the like", wrong)
        self.checks.append(self.call("any", wrong, axis=tuple(range(wrong.ndim)), keepdims=False) if wrong.ndim else wrong)

    def join_checks(self) -> None:
        """At the end: as many checks as a program may have, one on a device, where asking for each takes the host's time."""
        while len(self.checks) > (MOST_CHECKS if self.check_op is None else 1):
            last = self.checks.pop()
            self.checks.append(self.call("logical_or", self.checks.pop(), last))

    def _bail_out_unless_known(self, wrong: Node) -> None:
        """CuPy raises nothing for what NumPy refuses: only what is known to be right is the same in both."""
        known = self.known(wrong)
        if known is None or known.any():
            raise Unsupported("DATA_DEPENDENT", "CuPy checks no index, nor an exponent, and gives something where NumPy raises")

    @property
    def can_bail_out(self) -> bool:
        """Whether the program as it is may leave a call to the plain function."""
        return bool(self.checks) or self.check_op is not None or any(node.may_raise for node in self.graph.nodes)

    def _allow_bailout(self, why: str, wrong: Node | None = None) -> None:
        """Refuse what bails out too late; a check (`wrong`) is done before all effects, if it does not depend on them."""
        if not self.may_bail_out:
            raise Unsupported("RANDOM_DRAW", why)
        if self.committed and (wrong is None or self._follows_effects(wrong)):
            raise Unsupported("SIDE_EFFECT", f"{why}, after what other processes have taken part in")

    def _follows_effects(self, node: Node) -> bool:
        """Whether a value depends on what a node with an effect gives."""
        seen: set[Node] = set()
        stack = [node]
        while stack:
            node = stack.pop()
            if node.has_effect:
                return True
            if node not in seen:
                seen.add(node)
                stack += node.args
        return False

    def is_within(self, places: Node, size: Dim) -> bool | None:
        """Whether places, of int64, are in bounds of an axis of `size` elements, counted from its end or not; None: not known."""
        known = self.known(places)
        if known is not None:
            return not known.size or bool(-size <= int(known.min()) and size > int(known.max()))
        lowest, highest = known_range(places)
        if _counts_within(places, size) or (isinstance(size, int) and -size <= lowest and highest < size):
            return True
        low, high = self.ranges.get(_base_of(places), (None, None))
        return True if low is not None and high is not None and -size <= low and high < size else None

    def check_index(self, places: Node, size: Dim) -> None:
        """Have the program bail out for places, of int64, that are out of bounds of an axis of `size` elements."""
        within = self.is_within(places, size)
        if within is False:
            raise Unsupported("NUMPY_ERROR", f"an index is out of bounds for an axis of size {size}")
        if within:
            return
        end, start = self.scalar(size, dtypes.int64), self.scalar(-size, dtypes.int64)
        outside = self.call("logical_or", self.call("greater_equal", places, end), self.call("less", places, start))
        self.bail_out_where(outside)

    def cast(self, node: Node, dtype: DType) -> Node:
        """The node itself where it has the dtype, else a cast."""
        return node if node.dtype is dtype else self.call("cast", node, dtype=dtype)

    def scalar(self, value: Scalar, dtype: DType) -> Node:
        """The 0-d constant, converted as NumPy converts Python scalars."""
        if isinstance(value, WeakFloat):
            if not dtype.is_inexact:
                raise Unsupported("UNSUPPORTED_ARGUMENT", f"a {value.type.__name__} that changes, as {dtype}")
            return self.cast(value.node, dtype)
        return self.call("constant", value=converted(value, dtype), dtype=dtype)

    def as_node(self, x: object, dtype: DType | None = None) -> Node:
        """What ``np.asarray`` makes of an operand, as a node; cast to `dtype` where one is given."""
        if isinstance(x, Node):
            return x if dtype is None else self.cast(x, dtype)
        if is_weak(x):
            return self.scalar(x, dtype or default_dtype(x))  # type: ignore[arg-type]
        if isinstance(x, np.generic):
            node = self.scalar(x.item(), known_dtype(x.dtype, "a NumPy scalar"))
            return node if dtype is None else self.cast(node, dtype)
        if isinstance(x, (list, tuple)):
            return self._of_sequence(x, dtype)
        if isinstance(x, range):
            count = self.call("iota", shape=(len(x),), start=x.start, step=x.step, dtype=dtypes.int64)
            return count if dtype is None else self.cast(count, dtype)
        raise Unsupported(
            "UNSUPPORTED_ARGUMENT", f"an operand of type {type(x).__name__} is no array; pass arrays or Python numbers"
        )

    def _of_sequence(self, items: list[Any] | tuple[Any, ...], dtype: DType | None) -> Node:
        if not any(isinstance(x, (Node, SymInt, WeakFloat)) for x in leaves(items)):
            array = np.array(items, None if dtype is None else dtype.numpy)
            known_dtype(array.dtype, "an array made of a list")
            return self.call("copy", self.graph.constant(array))  # a new array at each call, as NumPy makes one
        parts = [self._item_of_sequence(x, dtype) for x in items]
        common = dtype or known_dtype(np.result_type(*(p.dtype.numpy for p in parts)), "an array made of a list")
        rows = [self.call("reshape", self.cast(p, common), shape=(1, *p.shape)) for p in parts]
        return self.lay(joined := self.call("concatenate", *rows, axis=0), c_order(joined.ndim))

    def _item_of_sequence(self, item: Any, dtype: DType | None) -> Node:
        """NumPy stores each number of a list as ``array[k] = number`` does."""
        if dtype is None or (isinstance(item, Node) and not self.is_scalar(item)):
            return self.as_node(item)
        if isinstance(item, WeakFloat):
            self._check_fits(item.node, dtype)
            return item.node
        if not isinstance(item, (Node, np.generic)):
            return self.as_node(item, dtype)
        self.check_stored_scalar(node := self.as_node(item), dtype)
        return node

    def check_stored_scalar(self, node: Node, dtype: DType) -> None:
        """Have the program bail out where NumPy refuses to store a scalar.

        It stores scalars of its own in signed integers by way of ``int()``, and raises where the number does not fit.  Into any
        other dtype it casts, and so it does with arrays, 0-d ones too, and at places that an array or a mask gives.
        """
        if dtype.numpy.kind == "i":
            self._check_fits(node, dtype)

    def _check_fits(self, node: Node, dtype: DType) -> None:
        """Have the program bail out for a number that ``int()`` makes no integer of this dtype."""
        if not dtype.is_integer or np.can_cast(node.dtype.numpy, dtype.numpy, "safe"):
            return
        if node.dtype.is_complex:
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"a scalar of {node.dtype} that is stored in an array of {dtype}")
        low, high = LIMITS[dtype]
        if node.dtype.is_integer:
            least, most = LIMITS[node.dtype]
            outside = self.call("greater", node, self.scalar(min(high, most), node.dtype))
            below = self.call("less", node, self.scalar(max(low, least), node.dtype))
        else:  # what is cut off after the point does not matter; a NaN is outside
            outside = self.call("logical_not", self.call("less", node, self.scalar(float(high + 1), node.dtype)))
            below = self.call("less_equal", node, self.scalar(float(low - 1), node.dtype))
        self.bail_out_where(self.call("logical_or", outside, below))


def _is_of_integers(node: Node) -> bool:
    """Whether a value is computed without a float."""
    seen, waiting = {node}, [node]
    while waiting:
        current = waiting.pop()
        if current.dtype.is_inexact:
            return False
        waiting += [a for a in current.args if a not in seen]
        seen.update(current.args)
    return True


def _counts_within(places: Node, size: Dim) -> bool:
    """Whether places are 0, 1, 2... up to the size, which may be symbolic."""
    while places.is_op("reshape", "broadcast_to"):
        places = places.args[0]
    return places.is_op("iota") and places.attrs["start"] == 0 and places.attrs["step"] == 1 and same_dim(places.shape[0], size)


def _base_of(node: Node) -> Node:
    """What a node is a view of, or the node itself."""
    found = view_of(node)
    return node if found is None else found[0]


def _never(node: Node) -> bool:
    return False


def _nothing(node: Node) -> None:
    return None


def _itself(node: Node) -> Node:
    return node


def leaves(items: object) -> Iterator[object]:
    """What nested lists and tuples hold."""
    if isinstance(items, (list, tuple)):
        for item in items:
            yield from leaves(item)
    else:
        yield items


def default_dtype(value: object) -> DType:
    """The dtype of an array made of one Python scalar."""
    if type(value) is bool:
        return dtypes.bool_
    if type(value) is int:  # beyond int64 NumPy makes C's unsigned long long of it, which is not its uint64, or objects
        return known_dtype(np.asarray(value).dtype, f"an array made of {value}")
    if isinstance(value, WeakFloat):
        return value.node.dtype
    return {float: dtypes.float64, complex: dtypes.complex128}.get(type(value), dtypes.int64)


def converted(value: Scalar, dtype: DType) -> Scalar:
    """The value as an element of the dtype; Unsupported where NumPy raises or where the machine decides."""
    if dtype.is_bool:
        return bool(value)
    if isinstance(value, complex) and not dtype.is_complex:
        raise Unsupported("UNSUPPORTED_DTYPE", f"the complex number {value} as {dtype}; take its real part")
    if dtype.is_integer:
        return _as_integer(value, dtype)  # type: ignore[arg-type]  # no complex number
    if isinstance(value, SymInt):
        return value
    with np.errstate(over="ignore"):
        return dtype.numpy.type(value).item()


def _as_integer(value: bool | int | float | SymInt, dtype: DType) -> int | SymInt:
    if isinstance(value, float) and not math.isfinite(value):
        raise Unsupported("NUMPY_ERROR", f"{value} is no {dtype}")
    whole = value if isinstance(value, SymInt) else int(value)
    if isinstance(whole, SymInt) and dtype is dtypes.int64:
        return whole
    low, high = LIMITS[dtype]
    sized = isinstance(whole, SymInt) and dtype is dtypes.uint64  # sizes are less than 2**63, which guards compare with no more
    if whole < low or (not sized and whole > high):
        raise Unsupported("NUMPY_ERROR", f"Python integer {whole} is out of bounds for {dtype}, which holds {low} to {high}")
    return whole


def known_dtype(dtype: object, who: str) -> DType:
    """The IR's dtype for a NumPy dtype, or for whatever ``np.dtype`` takes.

    >>> known_dtype(np.dtype("float32"), "exp")
    float32
    """
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, Node):
        raise Unsupported("NUMPY_ERROR", f"{who}: an array was given where a dtype is expected")
    if isinstance(dtype, type) and issubclass(dtype, np.dtype):  # NumPy's class of a dtype
        of_class: Any = dtype
        dtype = of_class()
    known = dtypes.from_numpy(dtype)
    if known is None:
        supported = ", ".join(d.name for d in dtypes.KNOWN)
        given = np.dtype(dtype)  # type: ignore[call-overload]
        text = f"{given} of C's long long" if given.char in "qQ" else given
        raise Unsupported("UNSUPPORTED_DTYPE", f"{who}: dtype {text} is not captured; the dtypes are {supported}")
    return known
