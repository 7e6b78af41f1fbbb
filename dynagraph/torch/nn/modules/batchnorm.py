"""Batch normalization: each channel with mean 0 and variance 1."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.parameter import UninitializedBuffer, UninitializedParameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.lazy import LazyModuleMixin
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import add_parameters

_ones, _tensor, _zeros = (NAMESPACES["torch"][name] for name in ("ones", "tensor", "zeros"))


def _zero_count(device: Any) -> Tensor:
    return _tensor(0, dtype=dtypes.int64, device=device)


def check_dims(input: Tensor, one: int, other: int) -> None:
    """ValueError unless the input has one of two numbers of dimensions."""
    if input.dim() != one and input.dim() != other:
        raise ValueError(f"expected {one}D or {other}D input (got {input.dim()}D input)")


class _NormBase(Module):
    """The state of batch and instance norms: weight and bias (num_features,) where `affine`; running_mean, running_var and
    num_batches_tracked where `track_running_stats`."""

    _version = 2  # state dicts of version 1 have no num_batches_tracked
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]  # noqa: RUF012
    weight: Tensor | None
    bias: Tensor | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        shape = num_features if affine else None
        add_parameters(self, device, dtype, weight=shape, bias=shape if bias else None)
        tracks = track_running_stats
        self.register_buffer("running_mean", _zeros(num_features, device=device, dtype=dtype) if tracks else None)
        self.register_buffer("running_var", _ones(num_features, device=device, dtype=dtype) if tracks else None)
        self.register_buffer("num_batches_tracked", _zero_count(device) if tracks else None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches that there were: mean 0, variance 1."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Forget the batches; weights one, biases zero."""
        self.reset_running_stats()
        if self.affine:
            init.ones_(self.weight)
            if self.bias is not None:
                init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, local_metadata: Any, *more: Any) -> None:
        version, key = local_metadata.get("version"), f"{prefix}num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            own = self.num_batches_tracked
            state_dict[key] = _zero_count(None) if own is None or own.is_meta else own
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)


class _BatchNorm(_NormBase):
    """``y = (x - mean) / sqrt(variance + eps) * weight + bias`` for each channel, the second dimension.

    In training mean and variance (the biased one) are those of the batch. They are added to the running ones:
    ``running = (1 - momentum) * running + momentum * batch``, with the unbiased variance; where `momentum` is None the running ones
    are averages over all batches. In evaluation the running ones are taken, where they are tracked.
    """

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return self._normalized(input)

    def _normalized(self, input: Tensor) -> Tensor:
        mean, variance, momentum = self._running()
        training = self.training
        return F.batch_norm(
            input, mean, variance, self.weight, self.bias, training or (mean is None and variance is None),
            0.0 if momentum is None else momentum, self.eps,
        )  # fmt: skip

    def _running(self) -> tuple[Any, Any, Any]:
        """The running mean and variance that this call reads or changes, and how much of the batch's goes into them."""
        momentum = self.momentum
        mean: Any = self.running_mean
        variance = self.running_var
        if self.training:
            if self.track_running_stats:
                count = self.num_batches_tracked
                if count is not None:
                    count.add_(1)
                    if momentum is None:  # a tensor: programs need not know how many batches there have been
                        momentum = 1.0 / count.to(mean.dtype)
            else:
                mean = variance = None
        return mean, variance, momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalization of (N, C) or (N, C, L): the result has the same shape.

    >>> from dynagraph import torch
    >>> norm = torch.nn.BatchNorm1d(2)
    >>> norm(torch.tensor([[1.0, 5.0], [3.0, 9.0]])).round()
    tensor([[-1., -1.],
            [ 1.,  1.]], grad_fn=<RoundBackward0>)
    >>> norm.running_mean
    tensor([0.2000, 0.7000])
    """

    def _check_input_dim(self, input: Tensor) -> None:
        check_dims(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of (N, C, H, W): see `BatchNorm1d`."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"expected 4D input (got {input.dim()}D input)")


class BatchNorm3d(_BatchNorm):
    """Batch normalization of (N, C, D, H, W): see `BatchNorm1d`."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 5:
            raise ValueError(f"expected 5D input (got {input.dim()}D input)")


# -- whose channels follow from the first input ------------------------------------------------------------------------


class _LazyNormBase(LazyModuleMixin, _NormBase):
    """Lazy norms: `num_features` is the size of the second dimension of the first input."""

    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False, device, dtype, bias=False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = _zero_count(device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        affine = (self.weight, self.bias) if self.affine else ()
        running = (self.running_mean, self.running_var) if self.track_running_stats else ()
        for value in (*affine, *running):
            if value is not None:
                value.materialize((self.num_features,))
        self.reset_parameters()


class LazyBatchNorm1d(_LazyNormBase, BatchNorm1d):
    """A `BatchNorm1d` that learns `num_features` from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyNormBase, BatchNorm2d):
    """A `BatchNorm2d` that learns `num_features` from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyNormBase, BatchNorm3d):
    """A `BatchNorm3d` that learns `num_features` from its first input."""

    cls_to_become = BatchNorm3d


# loaded when somebody asks for it, since it loads `torch.distributed`
__getattr__ = getattr_of(__name__, {"SyncBatchNorm": "dynagraph.torch.nn.modules.sync_batchnorm"})
__all__ = [
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
]  # fmt: skip
