"""The parameters of a `fully_shard`-ed module: each rank has some rows of each, and all of them while they are used.

The whole parameters are tensors that stay the same objects. Their memory comes with `unshard` and goes with `reshard`. What
backward saved of them are these tensors, so that a second `unshard` is enough for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch import distributed as dist
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.tensor.sharded import rows_of, sharded
from dynagraph.torch.distributed.work import advance
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """The dtypes of a module's computation, which the divided parameters keep out of.

    param_dtype: of the whole parameters, and of inputs where `cast_forward_inputs`.  reduce_dtype: in which gradients are added up
    (None: `param_dtype`).  output_dtype: of forward's results.
    """

    param_dtype: DType | None = None
    reduce_dtype: DType | None = None
    output_dtype: DType | None = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """Parameters stay on their device."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Divided parameters, their gradients and states are in the host's memory: where CPUs compute, they are anyway."""

    pin_memory: bool = True


class _Place:
    """A parameter of the group: the modules that have it, its rows on this rank, and the whole tensor."""

    __slots__ = ("each", "holders", "part", "rest", "shape", "whole")

    def __init__(self, parameter: Tensor, holders: list[tuple[Any, str]], group: Any, mesh: Any, dtype: DType):
        if parameter.dim() == 0:
            raise ValueError(
                f"fully_shard doesn't support scalar parameters. Change {holders[0][1]} to a 1D tensor with numel equal to 1."
            )
        ranks, rank = dist.get_world_size(group), dist.get_rank(group)
        self.holders, self.shape = holders, tuple(parameter.shape)
        self.each = -(-self.shape[0] // ranks)
        self.rest = parameter[:1].numel() if self.shape[0] else 0
        begin, end = rows_of(self.shape[0], ranks, rank)
        with no_grad():
            part: Any = sharded(parameter.detach()[begin:end].clone(), self.shape, group, mesh, parameter.requires_grad)
        part._is_param = True
        self.part = part
        self.whole = Parameter(parameter.detach().to(dtype), requires_grad=parameter.requires_grad)
        self.release()
        self.put(part)

    def put(self, tensor: Any) -> None:
        """Have the modules use the part, or the whole."""
        for module, name in self.holders:
            module._parameters[name] = tensor

    def set_memory(self, array: Any) -> None:
        self.whole._array = self.whole._storage.array = array

    def release(self) -> None:
        """Give the whole tensor's memory back."""
        array = self.whole._array
        self.set_memory(np.broadcast_to(library_of_array(array).zeros((), array.dtype), self.shape))

    @property
    def elements(self) -> int:
        """Of this rank's rows, filled up to as many as any rank has."""
        return self.each * self.rest


class ParameterGroup:
    """The parameters that are gathered, and whose gradients are reduced, together."""

    def __init__(
        self, found: Sequence[tuple[Tensor, list[tuple[Any, str]]]], group: Any, mesh: Any, policy: MixedPrecisionPolicy
    ) -> None:  # fmt: skip
        self.group, self.policy, self.ranks = group, policy, dist.get_world_size(group)
        self.places = [_Place(p, holders, group, mesh, policy.param_dtype or p.dtype) for p, holders in found]
        self.is_whole = False
        self.versions: list[int] = []  # of the parts, when they were gathered
        self.syncs = True  # whether backward ends with a reduction
        self.reshards = True  # whether it ends with parts
        self.divisor = float(self.ranks)
        self.pending: list[tuple[Any, Tensor, list[_Place]]] = []  # sums that are under way
        self.arrived = 0
        self.expected = sum(place.whole.requires_grad for place in self.places)
        me = weakref.ref(self)
        for place in self.places:
            if place.whole.requires_grad:
                place.whole.register_post_accumulate_grad_hook(_hook(me))

    # -- whole and divided --

    def unshard(self) -> None:
        """Gather the whole parameters; modules use these."""
        versions = [place.part._storage.version for place in self.places]
        if self.is_whole and self.versions == versions:
            return
        self.versions = versions
        with no_grad():
            for places in self._by_dtype(lambda place: place.whole.dtype):
                self._gather(places)
        for place in self.places:
            place.put(place.whole)
        self.is_whole = True

    def _by_dtype(self, dtype_of: Any) -> list[list[_Place]]:
        kinds: dict[Any, list[_Place]] = {}
        for place in self.places:
            kinds.setdefault(dtype_of(place), []).append(place)
        return list(kinds.values())

    def _gather(self, places: list[_Place]) -> None:
        count, like = sum(place.elements for place in places), places[0].whole
        own = _torch["zeros"](count, dtype=like.dtype, device=like.device)
        start = 0
        for place in places:
            part = place.part.to_local()
            own[start : start + part.numel()] = part.reshape(-1)
            start += place.elements
        every = _torch["empty"](count * self.ranks, dtype=like.dtype, device=like.device)
        dist.all_gather_into_tensor(every, own, group=self.group)
        rows = every.view(self.ranks, count)
        start = 0
        for place in places:
            stop = start + place.elements
            whole = rows[:, start:stop].reshape(self.ranks * place.each, *place.shape[1:])[: place.shape[0]]
            # a copy of its own, so that one parameter does not keep the memory of all
            place.set_memory(whole._array if not is_compiling() and whole._array.base is None else whole._array.copy())
            start = stop

    def reshard(self) -> None:
        """Modules use the parts; the memory of the whole goes."""
        if not self.is_whole:
            return
        for place in self.places:
            place.put(place.part)
            place.release()
        self.is_whole = False

    # -- gradients --

    def gradient_came(self) -> None:
        """One of the group's gradients is there: with the last one they are reduced."""
        self.arrived += 1
        if self.arrived == self.expected:
            self.after_backward()
        advance()

    def after_backward(self) -> None:
        """The module's part of backward is over: begin to add its gradients up, and let the whole parameters go."""
        self.arrived = 0
        if self.syncs:
            self._reduce()
        if self.reshards:
            self.reshard()

    def _reduce(self) -> None:
        with no_grad():
            for places in self._by_dtype(lambda place: place.whole.dtype):
                # parameters without a gradient on this rank may have one on others
                self._send([place for place in places if place.whole.requires_grad])

    def _send(self, places: list[_Place]) -> None:
        if not places:
            return
        count, like = sum(place.elements for place in places), places[0].whole
        source = _torch["zeros"](self.ranks, count, dtype=self.policy.reduce_dtype or like.dtype, device=like.device)
        start = 0
        for place in places:
            grad, stop = place.whole._grad, start + place.elements
            if grad is not None:
                rows = source[:, start:stop].view(self.ranks, place.each, -1)
                flat = grad.detach().reshape(place.shape[0], -1)
                for rank in range(self.ranks):
                    begin, end = rows_of(place.shape[0], self.ranks, rank)
                    rows[rank, : end - begin] = flat[begin:end]
                place.whole.grad = None
            start = stop
        source.mul_(1.0 / self.divisor)
        target = _torch["empty"](count, dtype=source.dtype, device=like.device)
        work = dist.reduce_scatter_tensor(target, source.view(-1), group=self.group, async_op=True)
        self.pending.append((work, target, places))

    def finish(self) -> None:
        """Wait for the sums, and add this rank's rows of them to the gradients of its parts."""
        with no_grad():
            for work, target, places in self.pending:
                work.wait()
                start = 0
                for place in places:
                    part, stop = place.part, start + place.elements
                    local = part._array
                    grad = target[start : start + local.size].view(local.shape).to(part.dtype)
                    if part._grad is None:
                        part._grad = sharded(grad.clone(), place.shape, part._group, part._mesh)
                    else:
                        part._grad.to_local().add_(grad)
                    start = stop
        self.pending = []

    def has_gradients(self) -> bool:
        """Whether backward left gradients of whole parameters."""
        return any(place.whole._grad is not None for place in self.places)


def _hook(me: Any) -> Any:
    def came(_: Tensor) -> None:
        group = me()
        if group is not None:
            group.gradient_came()

    return came


__all__ = ["CPUOffloadPolicy", "MixedPrecisionPolicy", "OffloadPolicy", "ParameterGroup"]
