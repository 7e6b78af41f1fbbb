"""Tensors that `Function`s save: checked for writes when they are read, and packed by `saved_tensors_hooks`."""

from __future__ import annotations

import weakref
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.grad_mode import no_grad, saved_hooks
from dynagraph.torch.core.nodes import Node, changed
from dynagraph.torch.core.primitives import PRIMITIVES
from dynagraph.torch.core.tensor import Tensor, storage_of, view, wrap


class Saved:
    """One saved tensor.  The node's own outputs are kept as arrays: kept as tensors they would keep the node alive."""

    __slots__ = ("array", "node", "output", "packed", "storage", "tensor", "unpack", "version")

    def __init__(self, tensor: Tensor, node: Node):
        own = tensor._grad_fn is node
        self.node, self.output = weakref.ref(node), tensor._output_nr if own else -1
        self.storage = storage_of(tensor)
        self.version = self.storage.version
        self.tensor = None if own else tensor
        self.array = tensor._array if own else None
        self.packed = self.unpack = None
        hooks = saved_hooks()
        if hooks:
            pack, self.unpack = hooks[-1]
            with no_grad():
                self.packed = pack(tensor)
            self.array = None
            if not own:  # its history only
                self.tensor = self._history(tensor)

    @staticmethod
    def _history(tensor: Tensor) -> Any:
        if tensor._grad_fn is None and not tensor._requires_grad:
            return None
        return tensor if tensor.grad_fn is None else (tensor.grad_fn, tensor._output_nr)

    def read(self) -> Tensor:
        """The tensor, with its history; RuntimeError where it has been written to since."""
        node = self.node()
        if self.unpack is not None:
            with no_grad():
                found = self.unpack(self.packed)
            if not isinstance(found, Tensor):
                raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(found)}")
            return self._with_history(found, node)
        if self.storage.version != self.version:
            raise changed(self._described(node), node, self.storage.version, self.version)
        if self.tensor is not None:
            return self.tensor
        return self._with_history(wrap(self.array), node)

    def _with_history(self, found: Tensor, node: Node | None) -> Tensor:
        if self.output >= 0:
            edge: Any = (node, self.output)
        elif isinstance(self.tensor, Tensor):  # a leaf: the gradient goes to it by way of an alias
            edge = (view(PRIMITIVES["alias"], self.tensor)._grad_fn, 0)
        else:
            edge = self.tensor
        if edge is None or edge[0] is None:
            return found
        again = wrap(found._array)
        again._storage = self.storage if self.unpack is None else storage_of(found)
        again._grad_fn, again._output_nr, again._requires_grad = edge[0], edge[1], True
        return again

    def _described(self, node: Node | None) -> str:
        tensor: Any = self.tensor
        array: Any = self.array if tensor is None else tensor._array
        origin = node if self.output >= 0 else tensor._grad_fn
        text = f"[torch.{dtypes.of_numpy(array.dtype).legacy} {list(array.shape)}]"
        number = self.output if self.output >= 0 else tensor._output_nr
        return text if origin is None else f"{text}, which is output {number} of {origin.short_name()},"


__all__ = ["Saved"]
