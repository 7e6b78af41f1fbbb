"""How `LinearCrossEntropyLoss` divides its work."""

from __future__ import annotations

import dataclasses
from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.dtypes import dtype as DType

_POLICIES = ("accurate", "balanced", "compact", "auto")
_HALVES = (dtypes.float16, dtypes.bfloat16)


@dataclasses.dataclass(slots=True, frozen=True)
class LinearCrossEntropyOptions:
    """For how many samples at a time the linear layer is computed.

    batch_chunk_size: so many. chunking_method: by the sizes, "aspect_ratio" about as many that the results take the memory of the
    inputs, "aspect_ratio:2" half of that; "auto" chooses. acc_dtype: the dtype that is computed in, by default float32 for halves.
    `acc_policy` and `allow_retain_graph` change nothing here: nothing is kept whose dtype they would say, and backward may always
    be called again.
    """

    allow_retain_graph: bool = False
    batch_chunk_size: int | None = None
    chunking_method: str | None = "auto"
    acc_policy: str = "auto"
    acc_dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {self.acc_policy!r}")
        if self.chunking_method not in (None, "auto"):
            name, colon, factor = self.chunking_method.partition(":")
            if name != "aspect_ratio" or (colon and not (factor.isdigit() and int(factor) > 0)):
                raise ValueError(f"invalid chunking_method: {self.chunking_method!r}")
        size = self.batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if self.acc_dtype not in (None, *_HALVES, dtypes.float32, dtypes.float64):
            raise ValueError(
                "acc_dtype must be one of {None, torch.float16, torch.bfloat16, torch.float32, torch.float64}, got "
                f"{self.acc_dtype!r}. Pass acc_dtype=None to let the op pick automatically."
            )

    def _adjust(
        self, num_batches: int, in_features: int, num_classes: int, dtype: DType, device: Any = None
    ) -> LinearCrossEntropyOptions:
        """With nothing left open."""
        method, size = self.chunking_method, self.batch_chunk_size
        if method == "auto":
            on_cpu = device is not None and device.type == "cpu"
            half_on_cpu = dtype in _HALVES and on_cpu
            method = None if size is not None else "aspect_ratio" if half_on_cpu else "aspect_ratio:2"
        chunk = num_batches if size is None else min(size, num_batches)
        if method is not None:
            factor = int(method.partition(":")[2] or 1)
            target = -(-num_batches // -(-num_classes // in_features))
            chunk = min((1 << (target - 1).bit_length()) // factor, num_batches)
            if size is not None and size != chunk:
                raise ValueError(
                    f"batch_chunk_size (={size}) and chunking_method ('{method}') give different chunk sizes ({size} vs {chunk}); "
                    "pass only one."
                )
        kind = self.acc_dtype or (dtypes.float32 if dtype in _HALVES and self.acc_policy == "auto" else dtype)
        return dataclasses.replace(self, chunking_method=method, batch_chunk_size=max(1, chunk), acc_dtype=kind)


__all__ = ["LinearCrossEntropyOptions"]
