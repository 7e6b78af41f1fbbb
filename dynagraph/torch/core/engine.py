"""Backward: run the recorded graph from its roots to its leaves.

Nodes run latest first, each when all of its gradients have come; none recurses, so graphs may be of any depth.  Gradients are
arrays.  With `create_graph` they are tensors, and what computes them is recorded in turn, by the same functions (`TensorTerm`).
"""

from __future__ import annotations

import heapq
import itertools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.ir.dtypes import DType
from dynagraph.ir.ops import OPS
from dynagraph.ir.terms import BaseTerm
from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import as_array, library_of_array
from dynagraph.torch.core.batching import Unbatchable, is_unbatchable
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.large import is_large, large, writing
from dynagraph.torch.core.nodes import SECOND_TIME, Hooks, Node, fitted, is_half
from dynagraph.torch.core.primitives import primitive
from dynagraph.torch.core.sparse_gradients import SparseGradient, plus, tensor_of, value_of
from dynagraph.torch.core.tensor import (
    _IGNORED,
    CAST,
    Tensor,
    _error_state,
    apply,
    edge_of,
    unpacked_tensor,
    wrap,
    written,
)
from dynagraph.torch.core.terms import BY_SIZE, FORWARD, ArrayTerm, Unsaved, ir_dtype

# -- gradients that are recorded themselves ---------------------------------------------------------------------------


class TensorTerm(BaseTerm):
    """A tensor; what operators make of it is recorded."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    @property
    def array(self) -> Any:
        return self.tensor._array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor._array.shape

    @property
    def ndim(self) -> int:
        return self.tensor._array.ndim

    @property
    def dtype(self) -> DType:
        return ir_dtype(self.tensor._array.dtype)

    def call(self, op: str, *others: Any, **attrs: Any) -> TensorTerm:
        operands = [(o if isinstance(o, TensorTerm) else self.number(o)).tensor for o in others]
        p = primitive(op)
        return TensorTerm(apply(p, self.tensor, *operands, **({**p.defaults, **attrs} if p.defaults else attrs)))

    def make(self, op: str, **attrs: Any) -> TensorTerm:
        return TensorTerm(wrap(as_array(OPS[op].eager(library_of_array(self.tensor._array), **attrs))))


class _UnsavedTensor(TensorTerm):
    """An operand that was not kept: its gradient asks for its shape and dtype only."""

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype):
        self._shape, self._dtype = shape, np.dtype(np.float32) if is_half(dtype) else dtype

    @property
    def tensor(self) -> Tensor:  # type: ignore[override]
        raise AssertionError("a gradient reads an operand that its primitive's `saves` does not name")

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def ndim(self) -> int:
        return len(self._shape)

    @property
    def dtype(self) -> DType:
        return ir_dtype(self._dtype)

    def make(self, op: str, **attrs: Any) -> TensorTerm:
        return TensorTerm(wrap(np.asarray(OPS[op].eager(np, **attrs))))


class _Recorded:
    """A node as gradients see it that are recorded: operands and results are tensors with their history."""

    __slots__ = ("attrs", "node")

    def __init__(self, node: Node):
        self.node, self.attrs = node, node.attrs

    def operand(self, k: int) -> TensorTerm:
        node = self.node
        if node.saved is None:
            raise RuntimeError(SECOND_TIME)
        entry = node.saved[k] if node.saved else None
        return _UnsavedTensor(*node.metas[k]) if entry is None else _wide(unpacked_tensor(node, entry))

    def result(self, k: int) -> TensorTerm:
        node = self.node
        if node.saved_out is None and node.saved is None:
            raise RuntimeError(SECOND_TIME)
        entry = node.saved_out.get(k) if node.saved_out else None
        return _UnsavedTensor(*node.output_metas[k]) if entry is None else _wide(unpacked_tensor(node, entry, k))

    @property
    def x(self) -> TensorTerm:
        return self.operand(0)

    @property
    def y(self) -> TensorTerm:
        return self.operand(1)

    @property
    def n_operands(self) -> int:
        return len(self.node.metas)

    @property
    def operands(self) -> tuple[TensorTerm, ...]:
        return tuple(self.operand(k) for k in range(len(self.node.metas)))

    @property
    def out(self) -> TensorTerm:
        return self.result(0)

    @property
    def outs(self) -> tuple[TensorTerm, ...]:
        return tuple(self.result(k) for k in range(self.node.primitive.outputs))

    def needs(self, k: int) -> bool:
        return self.node.needs(k)


def _wide(tensor: Tensor) -> TensorTerm:
    return TensorTerm(apply(CAST, tensor, dtype=np.dtype(np.float32)) if is_half(tensor._array.dtype) else tensor)


def pull_tensors(node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """As `Node.pull`, recorded."""
    p, d = node.primitive, _Recorded(node)
    terms_in = [None if g is None else _wide(g) for g in grads]
    g: Any = terms_in[0] if p.outputs == 1 else tuple(terms_in)
    terms = p.vjp(d, g) if p.vjps is None else None  # type: ignore[misc]
    found: list[Tensor | None] = []
    for k, edge in enumerate(node.edges):
        if edge is None:
            found.append(None)
            continue
        term = p.vjps[k](d, g) if terms is None else terms[k]  # type: ignore[index]
        found.append(None if term is None else _fitted(term.tensor, *node.metas[k]))
    return found


def _fitted(tensor: Tensor, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    array = tensor._array
    if array.shape != shape:
        missing = array.ndim - len(shape)
        if missing < 0 or any(n == 1 and m != 1 for n, m in zip(array.shape[missing:], shape)):
            tensor = apply(primitive("broadcast_to"), tensor, shape=np.broadcast_shapes(array.shape, shape))
            array = tensor._array
            missing = array.ndim - len(shape)
        axes = tuple(range(missing)) + tuple(k + missing for k, n in enumerate(shape) if n == 1 and array.shape[k + missing] != 1)
        if axes:
            tensor = apply(primitive("sum"), tensor, axis=axes, keepdims=True)
            tensor = apply(primitive("reshape"), tensor, shape=shape)
    if tensor._array.dtype != dtype:
        if tensor._array.dtype.kind == "c" and dtype.kind != "c":
            tensor = apply(primitive("real"), tensor)
        if tensor._array.dtype != dtype:
            tensor = apply(CAST, tensor, dtype=dtype)
    return tensor


# -- the run ----------------------------------------------------------------------------------------------------------


class _Run:
    """One backward.  `wanted`: the places (node or leaf, output) whose gradients are returned; None: all go to the leaves."""

    __slots__ = (
        "accumulate", "buffers", "callbacks", "counts", "create", "found", "keep", "needed", "notes", "number", "owners", "roots",
        "wanted",
    )  # fmt: skip

    def __init__(self, create: bool, keep: bool, wanted: dict[tuple[Any, int], list[int]] | None, accumulate: bool):
        self.create, self.keep, self.wanted, self.accumulate = create, keep, wanted, accumulate
        self.buffers: dict[Any, list[Any]] = {}  # the gradients that have come so far, by node or leaf
        self.found: dict[tuple[Any, int], Any] = {}
        self.callbacks: list[Callable[[], None]] = []
        self.owners: list[Any] = []  # of callbacks that are queued once
        self.notes: dict[int, Any] = {}  # what hooks keep for its time, each by a number of its own
        self.counts: dict[Any, int] = {}  # how many gradients are still to come; C has its own count
        self.roots: Sequence[tuple[Any, int, Any]] = ()  # where it begins: (node or leaf, output, gradient)
        self.needed: set[Any] | None = None  # the nodes that are run; None: all

    def run(self, roots: Sequence[tuple[Any, int, Any]]) -> None:
        targets = [target for target, _, _ in roots]
        counts, needed = _counted(targets, None if self.wanted is None else {target for target, _ in self.wanted})
        self.counts, self.needed = counts, needed
        for target, number, grad in roots:
            self.add(target, number, grad)
        waiting: list[tuple[int, int, Node]] = []  # nodes whose gradients have all come, a heap: latest first
        pushed = 0
        for target in dict.fromkeys(targets):
            if not counts[target]:
                if isinstance(target, Node):
                    pushed += 1
                    heapq.heappush(waiting, (target.sequence, pushed, target))
                else:
                    self.arrive(target)
        buffers, simple = self.buffers, not (self.create or self.wanted is not None or mode.anomaly)
        while waiting:
            node = waiting.pop()[2] if len(waiting) == 1 else heapq.heappop(waiting)[2]
            while node is not None:
                grads = buffers.pop(node, None)
                results: Sequence[Any] = ()
                if grads is not None:
                    if simple and not (node.hooked or node.posthooks):
                        results = node.pull(grads)
                    elif needed is None or node in needed:
                        results = self.step(node, grads)
                    elif any((node, number) in self.wanted for number in range(len(grads))):  # type: ignore[operator]
                        self.capture(node, grads)
                following: Node | None = None  # the next one, where no other waits
                for k, edge in enumerate(node.edges):
                    if edge is None:
                        continue
                    target, number = edge
                    if results and results[k] is not None:
                        if target in buffers or (isinstance(target, Node) and len(target.output_metas) > 1):
                            self.add(target, number, results[k])
                        else:
                            buffers[target] = [results[k]]
                    left = counts[target] = counts[target] - 1
                    if left:
                        continue
                    if not isinstance(target, Node):
                        self.arrive(target)
                    elif following is None and not waiting:
                        following = target
                    else:
                        if following is not None:
                            pushed += 1
                            heapq.heappush(waiting, (following.sequence, pushed, following))
                            following = None
                        pushed += 1
                        heapq.heappush(waiting, (target.sequence, pushed, target))
                if results and not self.keep:
                    node.release()
                node = following  # type: ignore[assignment]

    def add(self, target: Any, number: int, grad: Any) -> None:
        """Add to the gradients that have come for a node or a leaf."""
        buffer = self.buffers.get(target)
        if buffer is None:
            buffer = self.buffers[target] = [None] * (len(target.output_metas) if isinstance(target, Node) else 1)
        before = buffer[number]
        if before is None:
            buffer[number] = grad
        elif self.create:
            buffer[number] = plus(before, grad)
        elif type(before) is SparseGradient or type(grad) is SparseGradient:
            buffer[number] = value_of(plus(tensor_of(before), tensor_of(grad)))
        else:
            total = np.add(before, grad)
            buffer[number] = as_array(total)

    def capture(self, node: Node, grads: list[Any]) -> None:
        """Note what is wanted of the gradients of a node that is not run: nothing behind it is asked for."""
        if node.hooked:
            grads = self.hook_outputs(node, grads)
        for k, grad in enumerate(grads):
            if (node, k) in self.wanted:  # type: ignore[operator]
                self.found[node, k] = grad

    def step(self, node: Node, grads: list[Any]) -> Sequence[Any]:
        """The gradients by a node's operands; its hooks are called, and what is wanted is noted."""
        wanted = self.wanted
        if wanted is not None:
            for k, grad in enumerate(grads):
                if (node, k) in wanted:
                    self.found[node, k] = grad
        if node.hooked:
            grads = self.hook(node, grads)
        results = self.pulled(node, grads)
        if mode.anomaly:
            self.check_nan(node, results)
        if node.posthooks:
            results = self.after(node.posthooks, results, grads)
        return results

    def hook(self, node: Node, grads: list[Any]) -> list[Any]:
        """What the hooks of a node's outputs, and those before the node, make of its gradients."""
        grads = self.hook_outputs(node, grads)
        return self.before(node.prehooks, grads) if node.prehooks else grads

    def hook_outputs(self, node: Node, grads: list[Any]) -> list[Any]:
        for k, own in (node.output_hooks or {}).items():
            if grads[k] is not None:
                for hook in list(own.values()):
                    grads[k] = self.replaced(hook, grads[k])
        for k, reference in (node.retainers or {}).items():
            tensor = reference()
            if tensor is not None and grads[k] is not None:
                self.retain(tensor, grads[k])
        return grads

    def retain(self, tensor: Tensor, grad: Any) -> None:
        """Add to the `grad` of a tensor that is no leaf: at first a tensor of its own, anew each time."""
        before = tensor._grad
        if before is not None:
            tensor._grad = plus(before, self.tensor(grad))
        elif type(grad) is SparseGradient:
            tensor._grad = grad.tensor.detached_copy()
        else:
            tensor._grad = apply(primitive("copy"), grad) if self.create else wrap(grad.copy())

    def before(self, hooks: Hooks, grads: list[Any]) -> list[Any]:
        for hook in list(hooks.values()):
            changed = hook(tuple(None if g is None else self.tensor(g) for g in grads))
            if changed is not None:
                grads = [self.value(g) for g in (changed if isinstance(changed, tuple) else (changed,))]
        return grads

    def after(self, hooks: Hooks, results: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
        inputs = tuple(None if g is None else self.tensor(g) for g in results)
        outputs = tuple(None if g is None else self.tensor(g) for g in grads)
        for hook in list(hooks.values()):
            changed = hook(inputs, outputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
                results = [self.value(g) for g in inputs]
        return results

    def arrive(self, leaf: Tensor) -> None:
        """All gradients by a leaf have come: they are noted where wanted, and added to its `grad`."""
        grads = self.buffers.pop(leaf, None)
        if grads is None or grads[0] is None:
            return
        if leaf._hooks:
            for hook in list(leaf._hooks.values()):
                grads[0] = self.replaced(hook, grads[0])
        node = None if leaf._accumulator is None else leaf._accumulator()
        if node is not None and node.prehooks:
            grads = self.before(node.prehooks, grads)
        wanted = self.wanted
        if wanted is not None:
            if (leaf, 0) not in wanted:
                return
            self.found[leaf, 0] = grads[0]
        if self.accumulate:
            self.leaf(leaf, grads[0])
        if node is not None and node.posthooks:
            self.after(node.posthooks, (), grads)

    def pulled(self, node: Node, grads: list[Any]) -> Sequence[Any]:
        try:
            if self.create:
                pull = getattr(node, "pull_tensors", None)
                return pull(grads) if pull is not None else pull_tensors(node, grads)
            return node.pull(grads)
        except Exception:
            if mode.anomaly and node.made_at:
                warnings.warn(_anomaly(node), stacklevel=2)
            raise

    def check_nan(self, node: Node, results: Sequence[Any]) -> None:
        for k, grad in enumerate(results):
            if grad is not None and mode.check_nan:
                tensor = tensor_of(grad)
                array = (tensor._held if tensor.is_sparse else tensor)._array
                if array.dtype.kind in "fc" and np.isnan(array).any():
                    if node.made_at:
                        warnings.warn(_anomaly(node), stacklevel=2)
                    raise RuntimeError(f"Function '{node.name()}' returned nan values in its {k}th output.")

    def tensor(self, grad: Any) -> Tensor:
        return grad if isinstance(grad, Tensor) else grad.tensor if type(grad) is SparseGradient else wrap(grad)

    def value(self, grad: Any) -> Any:
        if grad is None:
            return None
        return grad if self.create else value_of(grad)

    def replaced(self, hook: Callable[[Tensor], Any], before: Any) -> Any:
        """What a tensor's hook returns, or, where that is None, the gradient that it was called with."""
        given = hook(self.tensor(before))
        if given is None:
            return before
        if not isinstance(given, Tensor):
            raise TypeError(f"expected Variable, but hook returned '{type(given).__name__}'")
        if tuple(given.shape) != tuple(before.shape):
            name = getattr(hook, "__name__", type(hook).__name__)
            raise RuntimeError(f"hook '{name}' has changed the size of value")
        return self.value(given)

    def leaf(self, variable: Tensor, grad: Any) -> None:
        """Add to a leaf's `grad`: at first a tensor of its own, then in place; anew where gradients are recorded."""
        if not variable._requires_grad:  # it has been detached since
            return
        before = variable._grad
        if self.create:
            variable._grad = grad if before is None else plus(before, grad)
        elif type(grad) is SparseGradient or (before is not None and before.is_sparse):  # type: ignore[attr-defined]
            variable._grad = _accumulated(before, tensor_of(grad))
        elif before is None and (placed := _placed(variable, grad)) is not None:
            variable._grad = placed
        elif before is None:
            array = variable._array
            if not is_compiling() and is_large((array, grad)) and array.flags.c_contiguous and grad.flags.c_contiguous:
                own = large("copy", FORWARD["copy"])(grad)
            else:
                own = np.empty_like(array) if _is_dense(array) else np.empty(array.shape, array.dtype)
                own[...] = grad
            variable._grad = wrap(own)
        else:
            if not is_compiling() and is_large((before._array, grad)):
                writing(np.add, False)(before._array, grad)
            else:
                np.add(before._array, grad, out=before._array)
            written(before)
        if variable._post_hooks:
            for hook in list(variable._post_hooks.values()):
                hook(variable)


def _placed(variable: Tensor, grad: Any) -> Any:
    """What the hook of a leaf, if it is the only one, and has a method `place`, makes of the first gradient: `grad`, or None."""
    if is_compiling() or not variable._post_hooks or len(variable._post_hooks) > 1:
        return None
    (hook,) = variable._post_hooks.values()
    place = getattr(hook, "place", None)
    return None if place is None else place(grad)


def _accumulated(before: Any, grad: Any) -> Any:
    """A leaf's `grad` and another gradient, of which one is sparse: in place but where a dense one comes to a sparse one."""
    if before is None:
        return grad.detached_copy()
    if not before.is_sparse:
        return before.add_(grad)
    return before.become(plus(before, grad)) if grad.is_sparse else plus(before, grad)


def _is_dense(array: Any) -> bool:
    return 0 not in array.strides or array.size <= 1


def _anomaly(node: Node) -> str:
    return f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n{node.made_at}"


def _counted(roots: Sequence[Any], wanted: set[Any] | None) -> tuple[dict[Any, int], set[Any] | None]:
    """How many gradients come to each node and leaf, and from which of them wanted ones can be reached."""
    counts: dict[Any, int] = {}
    stack = []
    for root in roots:
        if root not in counts:
            counts[root] = 0
            if isinstance(root, Node):
                stack.append(root)
    order: list[Node] = []
    while stack:
        node = stack.pop()
        order.append(node)
        for edge in node.edges:
            if edge is not None:
                target = edge[0]
                if target in counts:
                    counts[target] += 1
                else:
                    counts[target] = 1
                    if isinstance(target, Node):
                        stack.append(target)
    if wanted is None:
        return counts, None
    needed: set[Any] = set()  # what is wanted can be reached from these; it is among them only where more lies behind it
    users: dict[Any, list[Node]] = {}
    for node in order:
        for edge in node.edges:
            if edge is not None:
                users.setdefault(edge[0], []).append(node)
    stack = [user for target in wanted for user in users.get(target, ())]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack += users.get(node, ())
    return counts, needed


# what `_Run.run` does, in C, for most runs; captured code follows the Python
_run_plain: Any = None
if _error_state is not None:
    _run_plain = _dispatch.set_tensor_backward({
        "ArrayTerm": ArrayTerm, "Unsaved": Unsaved, "forward": FORWARD, "ir_dtype": ir_dtype, "is_unbatchable": is_unbatchable,
        "Unbatchable": Unbatchable, "pull": Node.pull, "release": Node.release, "fitted": fitted,
        **{ufunc.__name__: by_size for ufunc, by_size in BY_SIZE.items()},
    })  # fmt: skip


# -- what users call --------------------------------------------------------------------------------------------------


def _sequence(given: Any) -> tuple[Any, ...]:
    return (given,) if given is None or isinstance(given, Tensor) else tuple(given)


def named_inputs(given: Any, who: str) -> tuple[Any, Any]:
    """The keys of a dict of inputs, None where there are none, and the inputs."""
    if isinstance(given, Tensor):
        return None, given
    if type(given) is dict:
        return given.keys(), tuple(given.values())
    if isinstance(given, Mapping):
        raise TypeError(
            f"`inputs` argument to `{who}()` must be a dict, not {type(given).__name__}. Other Mapping types are not supported."
        )
    return None, given


def _seeds(outputs: Sequence[Tensor], grads: Any, create: bool) -> list[tuple[Node, int, Any]]:
    """Where backward begins: the gradients given for the outputs, ones for scalars."""
    given = (None,) * len(outputs) if grads is None else _sequence(grads)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    roots = []
    for k, (output, grad) in enumerate(zip(outputs, given)):
        if not isinstance(output, Tensor):
            raise TypeError(f"element {k} of tensors must be a Tensor, got {type(output).__name__}")
        edge = edge_of(output)
        if edge is None:
            raise RuntimeError(f"element {k} of tensors does not require grad and does not have a grad_fn")
        array = output._array
        if grad is None:
            if array.size != 1:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if array.dtype.kind not in "fV":
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {output.dtype}")
            seed: Any = library_of_array(array).ones(array.shape, array.dtype)
            seed = wrap(seed) if create else seed
        else:
            if not isinstance(grad, Tensor):
                raise TypeError(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
            if grad._array.shape != array.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{k}] has a shape of {grad.shape} and output[{k}] has a shape of "
                    f"{output.shape}."
                )
            if (grad._array.dtype.kind == "c") != (array.dtype.kind == "c"):
                raise RuntimeError(
                    f"For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                    f"grad_output[{k}] has a dtype of {grad.dtype} and output[{k}] has a dtype of {output.dtype}."
                )
            if grad._array.dtype != array.dtype:
                grad = apply(CAST, grad, dtype=array.dtype)
            seed = grad if create else grad._array
        roots.append((*edge, seed))
    return roots


def run_backward(
    outputs: Sequence[Tensor],
    grads: Any,
    keep: bool,
    create: bool,
    inputs: Sequence[Tensor] | None,
    accumulate: bool,
) -> list[Tensor | None]:
    """Run backward; without `accumulate`, give the gradients by the inputs, None where there is none."""
    before = mode.grad
    mode.grad = create
    try:
        roots = _seeds(outputs, grads, create)
        places: list[tuple[Any, int] | None] = []
        wanted: dict[tuple[Any, int], list[int]] | None = None
        if inputs is not None:
            wanted = {}
            for k, tensor in enumerate(inputs):
                if not isinstance(tensor, Tensor):
                    raise RuntimeError(f"all inputs have to be Tensors or GradientEdges, but got {type(tensor).__name__}")
                edge = edge_of(tensor)
                if edge is None:
                    if tensor.requires_grad:  # a view made without recording
                        places.append(None)
                        continue
                    raise RuntimeError("One of the differentiated Tensors does not require grad")
                wanted.setdefault(edge, []).append(k)
                places.append(edge)
        run = _Run(create, keep, wanted, accumulate)
        run.roots = roots
        if is_compiling():  # captured code is quiet; what is running is known when the program is made
            outer, mode.backward = mode.backward, run
            run.number = _Followed()
            try:
                run.run(roots)
                for callback in run.callbacks:
                    callback()
            finally:
                mode.backward = outer
        else:
            run.number = next(_numbers)
            _running.runs = (*_running.runs, run)
            try:
                if create or wanted is not None or mode.anomaly or _run_plain is None:
                    _quietly(run.run, roots)
                else:
                    _run_plain(run, roots, keep)
                for callback in run.callbacks:  # which may queue more
                    callback()
            finally:
                _running.runs = _running.runs[:-1]
    finally:
        mode.grad = before
    results: list[Tensor | None] = []
    for k, place in enumerate(places):
        grad = run.found.get(place)  # type: ignore[arg-type]
        if grad is not None and accumulate and inputs is not None and inputs[k].grad_fn is not None:
            target = inputs[k]
            value = grad if create else run.tensor(grad).clone()
            target._grad = value if target._grad is None else plus(target._grad, value)
        results.append(None if grad is None else run.tensor(grad))
    return results


class _Followed:
    """Stands for the number of a backward that is captured."""


class _Running(threading.local):
    runs: tuple[_Run, ...] = ()  # of this thread; backward may run within backward


_numbers = itertools.count(1)
_running = _Running()


def _now() -> Any:
    """The backward that this thread is in; in captured code, the one that is followed."""
    if is_compiling():
        return mode.backward
    return _running.runs[-1] if _running.runs else None


def notes() -> dict[int, Any]:
    """What hooks keep as long as the backward runs that this thread is in, each by a number of its own."""
    return _now().notes  # type: ignore[no-any-return]


def run_number() -> Any:
    """What tells the backward that this thread is in from all others: a number, 0 where there is none."""
    run = _now()
    return 0 if run is None else run.number


def queue_callback(callback: Callable[[], None], owner: Any = None) -> None:
    """Call a function when the backward that this thread is in has ended; with an `owner`, only the first one that it queues."""
    run = _now()
    if run is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    if owner is not None:
        if any(other is owner for other in run.owners):
            return
        run.owners.append(owner)
    run.callbacks.append(callback)


def reached(outputs: Sequence[Tensor]) -> set[Any]:
    """The nodes and leaves that a backward from these tensors comes to."""
    counts, _ = _counted([edge[0] for edge in map(edge_of, outputs) if edge is not None], None)
    return set(counts)


def accumulates_all() -> bool:
    """Whether the backward that this thread is in adds to the `grad` of all leaves."""
    run = _now()
    return run is not None and run.wanted is None


def will_run(targets: Sequence[Any]) -> list[bool]:
    """Whether gradients come to each of some nodes and leaves in the backward that this thread is in."""
    run = _now()
    if run is None:
        raise RuntimeError("expected the current autograd engine to be running a backward")
    if not run.counts:
        run.counts, _ = _counted([target for target, _, _ in run.roots], None)
    return [
        target in run.counts
        and (run.needed is None or target in run.needed or any(target is wanted for wanted, _ in run.wanted or ()))
        for target in targets
    ]


def _quietly(function: Callable[..., Any], *args: Any) -> Any:
    if _error_state is None:
        with np.errstate(all="ignore"):
            return function(*args)
    token = _error_state.set(_IGNORED)
    try:
        return function(*args)
    finally:
        _error_state.reset(token)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of the sum of `tensors`, weighted by `grad_tensors`, to the `grad` of the leaves, or of `inputs`."""
    given = _sequence(named_inputs(inputs, "backward")[1]) if inputs is not None else None
    if given is not None and not given:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    keep = create_graph if retain_graph is None else retain_graph
    run_backward(_sequence(tensors), grad_variables if grad_tensors is None else grad_tensors, keep, create_graph, given, True)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """The gradients of the sum of `outputs`, weighted by `grad_outputs`, by `inputs`.

    With `is_grads_batched` the weights have one more dimension in front, and so have the gradients.
    """
    outs, given = _sequence(outputs), _sequence(inputs)
    ins = tuple(getattr(x, "_held", x) for x in given)  # of sparse tensors the values
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        found = _batched(outs, ins, _sequence(grad_outputs), keep, create_graph)
    else:
        found = run_backward(outs, grad_outputs, keep, create_graph, ins, False)
    if not (allow_unused or materialize_grads) and any(g is None for g in found):
        raise RuntimeError(
            f"The differentiated Tensor at index {found.index(None)} appears to not have been used in the graph. Set "
            "allow_unused=True if this is the desired behavior."
        )
    if materialize_grads:
        found = [wrap(np.zeros_like(x._array)) if g is None else g for g, x in zip(found, ins)]
    return tuple(g if own is x or g is None else x._gradient(g) for g, x, own in zip(found, given, ins))


def _batched(outs: Any, ins: Any, grads: Any, keep: bool, create: bool) -> list[Tensor | None]:
    n = grads[0]._array.shape[0]
    select, stack = primitive("select"), primitive("stack")
    rows: list[list[Tensor | None]] = []
    for k in range(n):
        each = [None if g is None else apply(select, g, dim=0, index=k) for g in grads]
        rows.append(run_backward(outs, each, keep or k + 1 < n, create, ins, False))
    return [None if column[0] is None else apply(stack, *column, dim=0) for column in zip(*rows)]


def _tensor_backward(
    self: Tensor, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Add the gradients of this tensor, weighted by `gradient`, to the `grad` of the leaves that it was computed from."""
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


Tensor.backward = _tensor_backward  # type: ignore[attr-defined]

__all__ = [
    "Hooks", "TensorTerm", "accumulates_all", "backward", "dtypes", "grad", "notes", "pull_tensors", "queue_callback", "reached",
    "run_backward", "run_number", "will_run",
]  # fmt: skip
