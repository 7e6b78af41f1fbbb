"""Causal masks that are known by their shape."""

from __future__ import annotations

import enum
import warnings
from typing import Any

import numpy as np

from dynagraph.torch.core.tensor import Tensor, wrap


class CausalVariant(enum.IntEnum):
    """Which corner of the scores the diagonal begins in, or ends in."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """A causal mask for `scaled_dot_product_attention`: query i sees key j if ``j <= i``, or from the other corner
    ``j <= i + seq_len_kv - seq_len_q``.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        made: CausalBias = wrap(np.empty((0,), np.float32)).as_subclass(cls)  # type: ignore[attr-defined]
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        if seq_len_q > seq_len_kv and variant == CausalVariant.LOWER_RIGHT:
            warnings.warn(
                "Lower right causal bias will produce NaNs in the output when seq_len_q > seq_len_kv!", stacklevel=2
            )
        return made

    def __init__(self, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> None:
        super().__init__()

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask as bools."""
        offset = self.seq_len_kv - self.seq_len_q if self.variant == CausalVariant.LOWER_RIGHT else 0
        return wrap(np.tri(self.seq_len_q, self.seq_len_kv, offset, dtype=bool)).to(device or "cpu")  # type: ignore[attr-defined, no-any-return]

    def __repr__(self, **_: Any) -> str:
        return repr(self._materialize())

    def as_mask(self) -> tuple[Tensor | None, bool]:
        """What `scaled_dot_product_attention` takes: a mask, or that it is causal."""
        if self.seq_len_q == self.seq_len_kv or self.variant == CausalVariant.UPPER_LEFT:
            return None, True
        return self._materialize(), False


__all__ = ["CausalBias", "CausalVariant"]
