"""The layer of batch normalization over ranks."""

from __future__ import annotations

from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules._functions import SyncBatchNorm as AcrossRanks
from dynagraph.torch.nn.modules.batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all ranks of a group (None: all); of (N, C, ...).

    In training, mean and variance are those of all ranks' batches, and so are their gradients.  In one process, and in evaluation
    with running statistics, it is as `BatchNorm1d`.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _check_non_zero_input_channels(self, input: Tensor) -> None:
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        takes_batch = self.training or (self.running_mean is None and self.running_var is None)
        if not takes_batch or not dist.is_initialized() or dist.get_world_size(self.process_group) == 1:
            return self._normalized(input)
        mean, variance, momentum = self._running()
        return AcrossRanks.apply(
            input, self.weight, self.bias, mean, variance, self.eps, 0.0 if momentum is None else momentum, self.process_group
        )

    @classmethod
    def convert_sync_batchnorm(cls, module: Any, process_group: Any = None) -> Any:
        """The module with a SyncBatchNorm in place of each batch norm; parameters and buffers stay the same tensors."""
        made = module
        if isinstance(module, _BatchNorm):
            made = SyncBatchNorm(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
                bias=module.bias is not None,
            )  # fmt: skip
            if module.affine:
                made.weight, made.bias = module.weight, module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked, made.training = module.num_batches_tracked, module.training
            if hasattr(module, "qconfig"):
                made.qconfig = module.qconfig
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


SyncBatchNorm.__module__ = "dynagraph.torch.nn.modules.batchnorm"  # PyTorch's, which files name
__all__ = ["SyncBatchNorm"]
