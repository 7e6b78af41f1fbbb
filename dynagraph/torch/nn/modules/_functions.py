"""Batch normalization whose statistics are those of the batches of all ranks."""

from __future__ import annotations

from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.autograd.function import Function
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES

_torch = NAMESPACES["torch"]


def _wide(x: Tensor) -> Tensor:
    return x.float() if is_half(x._array.dtype) else x


def _of_channels(vector: Tensor, like: Tensor) -> Tensor:
    return vector.reshape(1, -1, *(1 for _ in range(like.dim() - 2)))


class SyncBatchNorm(Function):
    """``sync_batch_norm(input, weight, bias, running_mean, running_var, eps, momentum, group)``, in training."""

    @staticmethod
    def forward(
        self: Any, input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
        running_var: Tensor | None, eps: float, momentum: Any, process_group: Any,
    ) -> Tensor:  # fmt: skip
        x = _wide(input)
        channels, axes = x.size(1), [d for d in range(x.dim()) if d != 1]
        count, ranks = x.numel() // channels, dist.get_world_size(process_group)
        if count == 1 and ranks < 2:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {count}")
        # Each rank sends mean, sum of squares around it, and count: with these nothing cancels.
        own = _torch["zeros"](2 * channels + 1, dtype=x.dtype, device=x.device)
        if count:
            mean = x.mean(axes)
            own[:channels] = mean
            own[channels:-1] = ((x - _of_channels(mean, x)) ** 2).sum(axes)
            own[-1] = count
        every = _torch["empty"](ranks * own.numel(), dtype=own.dtype, device=own.device)
        dist.all_gather_into_tensor(every, own, group=process_group)
        every = every.view(ranks, -1)
        counts = every[:, -1:]
        total = counts.sum()  # a tensor: programs need not look at it
        means = every[:, :channels]
        mean = (means * counts).sum(0) / total
        squares = (every[:, channels:-1] + (means - mean) ** 2 * counts).sum(0)
        variance = squares / total
        if running_mean is not None and running_var is not None:
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype) * momentum)
            unbiased = squares / (total - 1)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype) * momentum)
        inverse = (variance + eps).rsqrt()
        self.save_for_backward(input, weight, mean, inverse, total)
        self.process_group = process_group
        normal = (x - _of_channels(mean, x)) * _of_channels(inverse, x)
        if weight is not None:
            normal = normal * _of_channels(weight, x)
        if bias is not None:
            normal = normal + _of_channels(bias, x)
        return normal.to(input.dtype)

    @staticmethod
    def backward(self: Any, grad_output: Tensor) -> Any:  # type: ignore[override]
        input, weight, mean, inverse, total = self.saved_tensors
        x, g = _wide(input), _wide(grad_output)
        axes = [d for d in range(x.dim()) if d != 1]
        channels = x.size(1)
        centred = x - _of_channels(mean, x)
        sums = _torch["cat"]([g.sum(axes), (g * centred).sum(axes)])  # zeros where the batch is empty
        grad_bias, grad_weight = sums[:channels].clone(), sums[channels:] * inverse
        grad_input = None
        if self.needs_input_grad[0]:
            dist.all_reduce(sums, group=self.process_group)
            means = sums / total
            around = centred * _of_channels(means[channels:] * inverse**2, x)
            scale = inverse if weight is None else inverse * weight
            grad_input = ((g - _of_channels(means[:channels], x) - around) * _of_channels(scale, x)).to(input.dtype)
        return (
            grad_input,
            grad_weight.to(weight.dtype) if weight is not None and self.needs_input_grad[1] else None,
            grad_bias.to(mean.dtype if weight is None else weight.dtype) if self.needs_input_grad[2] else None,
            None, None, None, None, None,
        )  # fmt: skip


__all__ = ["SyncBatchNorm"]
