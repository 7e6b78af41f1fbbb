"""Instance normalization: each channel of each sample with mean 0 and variance 1."""

from __future__ import annotations

import warnings
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.batchnorm import _LazyNormBase, _NormBase, check_dims


class _InstanceNorm(_NormBase):
    """``y = (x - mean) / sqrt(variance + eps) * weight + bias`` for each channel of each sample.

    By default there are no parameters and no running statistics, and training and evaluation are the same. With
    `track_running_stats` evaluation takes the running ones.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False, track_running_stats: bool = False,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _get_no_batch_dim(self) -> int:
        raise NotImplementedError

    def _check_input_dim(self, input: Tensor) -> None:
        single = self._get_no_batch_dim()
        check_dims(input, single, single + 1)

    def _handle_no_batch_input(self, input: Tensor) -> Tensor:
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        momentum = self.momentum
        return F.instance_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, self.training or not self.track_running_stats,
            0.0 if momentum is None else momentum, self.eps,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = self._get_no_batch_dim()
        channels = input.dim() - single
        if input.size(channels) != self.num_features:
            self._other_channels(channels, input.size(channels))
        return self._handle_no_batch_input(input) if channels == 0 else self._apply_instance_norm(input)

    def _other_channels(self, dim: int, size: int) -> None:
        if self.affine:
            raise ValueError(f"expected input's size at dim={dim} to match num_features ({self.num_features}), but got: {size}.")
        warnings.warn(
            f"input's size at dim={dim} does not match num_features. You can silence this warning by not passing in num_features, "
            "which is not used because affine=False",
            stacklevel=4,
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing: Any, unexpected: Any, error_msgs: Any
    ) -> None:
        # until version 2 running statistics were tracked by default
        if local_metadata.get("version") is None and not self.track_running_stats:
            found = [key for name in ("running_mean", "running_var") if (key := prefix + name) in state_dict]
            if found:
                names, kind = " and ".join(f'"{key}"' for key in found), type(self).__name__
                error_msgs.append(
                    f"Unexpected running stats buffer(s) {names} for {kind} with track_running_stats=False. If state_dict is a "
                    f"checkpoint saved before 0.4.0, this may be expected because {kind} does not track running stats by default "
                    "since 0.4.0. Please remove these keys from state_dict. If the running stats are actually needed, instead set "
                    f"track_running_stats=True in {kind} to enable them. See the documentation of {kind} for details."
                )
                for key in found:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing, unexpected, error_msgs)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of (N, C, L) or (C, L): the result has the same shape."""

    def _get_no_batch_dim(self) -> int:
        return 2


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of (N, C, H, W) or (C, H, W): the result has the same shape."""

    def _get_no_batch_dim(self) -> int:
        return 3


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of (N, C, D, H, W) or (C, D, H, W): the result has the same shape."""

    def _get_no_batch_dim(self) -> int:
        return 4


class LazyInstanceNorm1d(_LazyNormBase, InstanceNorm1d):
    """An `InstanceNorm1d` that learns `num_features` from the second dimension of its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyNormBase, InstanceNorm2d):
    """An `InstanceNorm2d` that learns `num_features` from the second dimension of its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyNormBase, InstanceNorm3d):
    """An `InstanceNorm3d` that learns `num_features` from the second dimension of its first input."""

    cls_to_become = InstanceNorm3d


__all__ = [
    "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
]  # fmt: skip
