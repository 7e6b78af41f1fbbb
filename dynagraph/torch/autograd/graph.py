"""``torch.autograd.graph``: nodes, edges, hooks on several gradients, and hooks on what is saved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dynagraph.torch.core.engine import run_number, will_run
from dynagraph.torch.core.grad_mode import mode, saved_hooks, set_saved_hooks
from dynagraph.torch.core.nodes import AccumulateGrad, Node, node_of
from dynagraph.torch.core.tensor import Tensor, edge_of, wrap, written


class GradientEdge(NamedTuple):
    """Where a gradient goes: an output of a node."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that the gradient by a tensor comes through; `autograd.grad` and `backward` take it in place of the tensor."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(node_of(edge[0]), edge[1])


def _target(tensor: Tensor) -> Any:
    """The node of a tensor, or the leaf itself: as `will_run` asks for it."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return edge[0]


def stand_in(given: Any) -> Any:
    """A tensor for a gradient edge: of its shape and dtype, with its place in the graph.  Tensors stay as they are."""
    if not isinstance(given, GradientEdge):
        return given
    node, k = given.node, given.output_nr
    if isinstance(node, AccumulateGrad):
        return node.variable
    shape, dtype = node.output_metas[k]
    made = wrap(np.broadcast_to(np.zeros((), dtype), shape))
    made._grad_fn, made._output_nr, made._requires_grad = node, k, True
    return made


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write, as operations in place do: for kernels of one's own that write to tensors."""
    for each in (tensor,) if isinstance(tensor, Tensor) else tensor:
        written(each)


# -- hooks on what is saved -------------------------------------------------------------------------------------------


class _Disabled(threading.local):
    message: str | None = None


_disabled = _Disabled()


class saved_tensors_hooks:
    """A context in which tensors that are saved for backward go through `pack_hook`, and through `unpack_hook` when they are read.

    >>> from dynagraph import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().numpy(), torch.from_numpy):
    ...     y = x * x
    >>> y.sum().backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if mode.unhookable:
            raise RuntimeError(_disabled.message)
        set_saved_hooks((*saved_hooks(), (self.pack_hook, self.unpack_hook)))

    def __exit__(self, *_: Any) -> None:
        set_saved_hooks(saved_hooks()[:-1])


class disable_saved_tensors_hooks:
    """A context in which `saved_tensors_hooks` raise RuntimeError with this message."""

    def __init__(self, error_message: str) -> None:
        self.message = error_message
        self.before: str | None = None

    def __enter__(self) -> None:
        if saved_hooks():
            raise RuntimeError(self.message)
        self.before, _disabled.message = _disabled.message, self.message
        mode.unhookable = True

    def __exit__(self, *_: Any) -> None:
        _disabled.message = self.before
        mode.unhookable = self.before is not None


class save_on_cpu(saved_tensors_hooks):
    """A context in which what is saved for backward is kept in the CPU's memory, and copied back when it is read."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            if not pin_memory:
                return tensor.device, tensor.cpu()
            return tensor.device, tensor.cpu().pin_memory() if tensor.device.type != "cpu" else tensor.cpu()

        def unpack(packed: Any) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


class _Copies:
    """What `allow_mutation_on_saved_tensors` gives; `clear` forgets the copies."""

    def __init__(self) -> None:
        self.copies: list[Any] = []

    def clear(self) -> None:
        for cell in self.copies:
            cell.clear()
        self.copies.clear()


class allow_mutation_on_saved_tensors:
    """A context in which tensors that were saved for backward may be written to: copies of them are saved."""

    def __enter__(self) -> _Copies:
        self.copies = copies = _Copies()

        def pack(tensor: Tensor) -> Any:
            cell = [tensor.clone()]
            copies.copies.append(cell)
            return cell

        def unpack(cell: Any) -> Tensor:
            if not cell:
                raise AssertionError(
                    "Trying to backward outside of the 'allow_mutation_on_saved_tensors' contextin which the graph was "
                    "originally recorded."
                )
            return cell[0]

        self.hooks = saved_tensors_hooks(pack, unpack)
        self.hooks.__enter__()
        return copies

    def __exit__(self, *_: Any) -> None:
        self.hooks.__exit__()
        self.copies.clear()


# -- hooks on several gradients ---------------------------------------------------------------------------------------


class _Handle:
    def __init__(self, handles: Sequence[Any]):
        self.handles = handles

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self.handles:
            handle.remove()

    def __enter__(self) -> _Handle:
        return self

    def __exit__(self, *_: Any) -> None:
        self.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> _Handle:
    """Call ``fn(grads)`` in each backward when the gradients by all the tensors have come, with None for those that have none
    there; with mode "any", ``fn(grad)`` with the first that comes.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    lock = threading.Lock()
    found: dict[int, list[Any]] = {}
    expected: dict[int, int] = {}
    nodes = [_target(t) for t in tensors]

    def hook_of(k: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            run, runs = run_number(), will_run(nodes)
            with lock:
                if run not in found:
                    found[run] = [None] * len(tensors)
                    expected[run] = sum(runs)
                found[run][k] = grad
                expected[run] -= 1
                left = expected[run]
                if mode == "all" and not left:
                    grads = found.pop(run)
                    expected.pop(run)
                first = mode == "any" and left == sum(runs) - 1
                if mode == "any" and not left:
                    found.pop(run)
                    expected.pop(run)
            if mode == "all":
                if not left:
                    fn(grads)
            elif first:
                fn(grad)

        return hook

    return _Handle([t.register_hook(hook_of(k)) for k, t in enumerate(tensors)])


__all__ = [
    "GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook", "save_on_cpu", "saved_tensors_hooks", "stand_in",
]  # fmt: skip
