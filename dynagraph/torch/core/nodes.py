"""Nodes of the autograd graph: what an operation saved, and where its gradients go."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.markers import at_capture
from dynagraph.torch.core.arrays import as_array, ufunc_reduce
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.primitives import Primitive, primitive
from dynagraph.torch.core.terms import ArrayTerm, Unsaved

FIRST = (1 << 31) - 1  # captures take positive numbers below 2**31 as ones that change


class _Numbers:
    """Counts nodes downward: backward runs the latest first."""

    __slots__ = ("last",)
    __dynagraph_counters__ = ("last",)

    def __init__(self) -> None:
        self.last = FIRST


NUMBERS = _Numbers()
_HALF = np.dtype(np.float16)
SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if "
    "you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
)


@at_capture
def is_half(dtype: np.dtype) -> bool:
    """float16 or bfloat16: computed as float32."""
    return dtype is _HALF or dtype.kind == "V" or dtype == _HALF


class Removable:
    """A hook that can be taken off: by `remove`, or as a context."""

    _ids = itertools.count()

    def __init__(self, hooks: OrderedDict[int, Any], number: int | None = None):
        self._hooks: Any = weakref.ref(hooks)
        self.id = next(Removable._ids) if number is None else number

    def remove(self) -> None:
        hooks = None if self._hooks is None else self._hooks()
        self._hooks = None  # the number may be another hook's from now on
        if hooks is not None:
            hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, int]:
        return (None if self._hooks is None else self._hooks()), self.id

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        hooks, self.id = state[:2]
        self._hooks = None if hooks is None else weakref.ref(hooks)

    def __enter__(self) -> Removable:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


class Hooks(OrderedDict):
    """Hooks in the order in which they were put on."""

    def put(self, hook: Any) -> Removable:
        number = len(self)
        while number in self:
            number += 1
        handle = Removable(self, number)
        self[number] = hook
        return handle


class Node:
    """An operation that was recorded: `grad_fn` of its results.

    ``next_functions`` are the nodes that its gradients go to, with the number of the output there; None for operands that
    need none.
    `edges` are these, with leaf tensors in place of the nodes that accumulate into them: (node or tensor, number).
    """

    __dynagraph_by_identity__ = True
    __slots__ = (
        "__dict__", "__weakref__", "attrs", "edges", "metas", "output_metas", "saved", "saved_out", "sequence",
    )  # fmt: skip
    attrs: dict[str, Any]
    edges: Sequence[Any]
    metas: Sequence[tuple[tuple[int, ...], np.dtype]]
    output_metas: Sequence[tuple[tuple[int, ...], np.dtype]]
    saved: Any  # a list of what was saved of each operand; () of nothing; None: freed
    saved_out: dict[int, Any] | None
    sequence: int
    primitive: Primitive
    hooked = False  # whether there are hooks other than `posthooks`, or `retainers`
    prehooks: Hooks | None = None
    posthooks: Hooks | None = None
    output_hooks: dict[int, Hooks] | None = None  # of tensors that are its outputs: by number
    retainers: dict[int, Any] | None = None  # weak references to outputs that keep their gradient
    made_at: str | None = None

    @classmethod
    def __dynagraph_made_by__(cls) -> tuple[str, ...] | None:
        """The function that gives a primitive's class in another process, and its arguments."""
        found = vars(cls).get("primitive")
        return (__name__, "class_of_nodes", found.name) if found is not None and found.node_class is cls else None

    # -- what users see --
    def name(self) -> str:
        """PyTorch's name of the operation's gradient: MulBackward0."""
        return type(self).__name__

    def short_name(self) -> str:
        """As errors name it: Mul of MulBackward0, Prod1 of ProdBackward1."""
        name = self.name()
        return name.removesuffix("0").removesuffix("Backward") if name.endswith("Backward0") else name.replace("Backward", "")

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        return tuple((None, 0) if edge is None else (node_of(edge[0]), edge[1]) for edge in self.edges)

    @property
    def metadata(self) -> dict[Any, Any]:
        return self.__dict__.setdefault("_metadata", {})

    def register_hook(self, hook: Callable[..., Any]) -> Removable:
        """Call ``hook(grad_inputs, grad_outputs)`` when the node has run; what it returns replaces the gradients of the inputs."""
        if self.posthooks is None:
            self.posthooks = Hooks()
        return self.posthooks.put(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Removable:
        """Call ``hook(grad_outputs)`` before the node runs; what it returns replaces them."""
        if self.prehooks is None:
            self.prehooks, self.hooked = Hooks(), True
        return self.prehooks.put(hook)

    def _sequence_nr(self) -> int:
        return FIRST - self.sequence

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"

    # -- what gradients see: the operands and results as terms --
    def operand(self, k: int) -> ArrayTerm:
        saved = self.saved
        if saved is None:
            raise RuntimeError(SECOND_TIME)
        entry = saved[k] if saved else None
        if entry is None:
            shape, dtype = self.metas[k]
            return Unsaved(shape, np.dtype(np.float32) if is_half(dtype) else dtype)
        if type(entry) is tuple and len(entry) == 2:
            tensor, version = entry
            array = tensor._array
            if tensor._storage.version == version and array.itemsize != 2:
                return ArrayTerm(array)
        return _wide(self.unpacked(entry))

    def result(self, k: int) -> ArrayTerm:
        saved = self.saved_out
        if saved is None:
            raise RuntimeError(SECOND_TIME)
        entry = saved.get(k) if saved else None
        if entry is None:
            shape, dtype = self.output_metas[k]
            return Unsaved(shape, np.dtype(np.float32) if is_half(dtype) else dtype)
        return _wide(self.unpacked(entry))

    @property
    def x(self) -> ArrayTerm:
        return self.operand(0)

    @property
    def y(self) -> ArrayTerm:
        return self.operand(1)

    @property
    def n_operands(self) -> int:
        return len(self.metas)

    @property
    def operands(self) -> tuple[ArrayTerm, ...]:
        return tuple(self.operand(k) for k in range(len(self.metas)))

    @property
    def out(self) -> ArrayTerm:
        return self.result(0)

    @property
    def outs(self) -> tuple[ArrayTerm, ...]:
        return tuple(self.result(k) for k in range(self.primitive.outputs))

    def needs(self, k: int) -> bool:
        """Whether the gradient by an operand is asked for."""
        return self.edges[k] is not None

    def unpacked(self, entry: Any) -> Any:
        """The array that was saved, if it has not been written to since."""
        return entry.array(self)

    # -- running --
    def pull(self, grads: Sequence[Any]) -> list[Any]:
        """The gradients by the operands, as arrays, from those of the outputs; None is zero."""
        primitive, metas = self.primitive, self.metas
        if primitive.outputs == 1:
            array = grads[0]
            g: Any = ArrayTerm(array) if array.itemsize != 2 else _wide(array)
        else:
            g = tuple(None if a is None else _wide(a) for a in grads)
        vjps = primitive.vjps
        terms = primitive.vjp(self, g) if vjps is None else None
        found: list[Any] = []
        for k, edge in enumerate(self.edges):
            if edge is None:
                found.append(None)
                continue
            term = vjps[k](self, g) if terms is None else terms[k]
            if term is not None:
                shape, dtype = metas[k]
                term = term.array
                if type(term) is not np.ndarray or term.dtype is not dtype or term.shape != shape:
                    term = fitted(term, shape, dtype)
            found.append(term)
        return found

    def release(self) -> None:
        """Free what was saved, when the node has run."""
        if self.saved:
            self.saved = None
        if self.saved_out:
            self.saved_out = None


def _wide(array: Any) -> ArrayTerm:
    return ArrayTerm(array.astype(np.float32) if is_half(array.dtype) else array)


def fitted(array: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A gradient as that of an operand of this shape and dtype: summed over what the operand was broadcast to."""
    if array.shape != shape:
        array = reduced(array, shape)
    if array.dtype is not dtype and array.dtype != dtype:
        if array.dtype.kind == "c" and dtype.kind != "c":
            array = array.real
        array = array.astype(dtype)
    return as_array(array)


def reduced(array: Any, shape: tuple[int, ...]) -> Any:
    """Summed to a shape that broadcasts to the array's, or broadcast to one that this broadcasts to."""
    missing = array.ndim - len(shape)
    if missing < 0 or any(n == 1 and m != 1 for n, m in zip(array.shape[missing:], shape)):
        array = np.broadcast_to(array, np.broadcast_shapes(array.shape, shape))
        missing = array.ndim - len(shape)
    axes = tuple(range(missing)) + tuple(k + missing for k, n in enumerate(shape) if n == 1 and array.shape[k + missing] != 1)
    return ufunc_reduce(np.add, array, axis=axes, keepdims=True).reshape(shape) if axes else array


class AccumulateGrad(Node):
    """Where the gradients of a leaf arrive: they are added to its `grad`.  Made where users ask for it; backward does without."""

    __slots__ = ("variable",)

    def __init__(self, variable: Any):
        self.variable = variable
        self.edges: tuple[Any, ...] = ()
        self.sequence = FIRST + 1 - (1 << 64)


def node_of(target: Any) -> Node:
    """The node that an edge leads to; of a leaf tensor the one that accumulates into it."""
    if isinstance(target, Node):
        return target
    reference = target._accumulator
    found = None if reference is None else reference()
    if found is None:
        found = AccumulateGrad(target)
        target._accumulator = weakref.ref(found)
    return found


@at_capture
def node_class(primitive: Primitive) -> type[Node]:
    """The class of a primitive's nodes, by PyTorch's name for them."""
    if primitive.node_class is None:
        primitive.node_class = type(primitive.backward, (Node,), {"__slots__": (), "primitive": primitive})
    return primitive.node_class


def class_of_nodes(name: str) -> type[Node]:
    """Of the primitive of this name."""
    return node_class(primitive(name))


def retain(node: Node, number: int, tensor: Any) -> None:
    """Keep the gradient by an output of a node in the `grad` of the tensor that has its value."""
    if node.retainers is None:
        node.retainers, node.hooked = {}, True
    node.retainers[number] = weakref.ref(tensor)


def changed(what: str, node: Node, version: int, expected: int) -> RuntimeError:
    """The error of a saved tensor that was written to."""
    hint = (
        "Hint: the backtrace further above shows the operation that failed to compute its gradient. The variable in question was "
        "changed in there or anywhere later. Good luck!"
        if mode.anomaly
        else "Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"{what} is at version {version}; expected version {expected} instead. {hint}"
    )


__all__ = [
    "NUMBERS", "SECOND_TIME", "AccumulateGrad", "Hooks", "Node", "Removable", "changed", "fitted", "is_half",
    "node_class", "node_of", "reduced", "retain",
]  # fmt: skip
