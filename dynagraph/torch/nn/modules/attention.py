"""Attention of several heads, with its projections."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import add_parameters


class MultiheadAttention(Module):
    """Heads that attend side by side: ``concat(head_1, ..., head_h) W^O``, where each head has projections of its own.

    Queries, keys and values are (L, N, E), (S, N, kdim) and (S, N, vdim), or without the N; with `batch_first` the N comes first.
    Gives the result and, with `need_weights`, the weights, averaged over heads or each by itself.  True in its masks is what is
    hidden.  Without `need_weights` the memory does not grow with L * S.

    >>> from dynagraph import torch
    >>> layer = torch.nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x = torch.ones(3, 5, 8)
    >>> result, weights = layer(x, x, x)
    >>> result.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 5, 5]))
    """

    __constants__ = ["batch_first"]  # noqa: RUF012
    in_proj_weight: Tensor | None
    in_proj_bias: Tensor | None
    bias_k: Tensor | None
    bias_v: Tensor | None

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")
        whole, parts = (3 * embed_dim, embed_dim), {"q": embed_dim, "k": self.kdim, "v": self.vdim}
        separate = {f"{name}_proj_weight": None if self._qkv_same_embed_dim else (embed_dim, n) for name, n in parts.items()}
        if self._qkv_same_embed_dim:
            add_parameters(self, device, dtype, in_proj_weight=whole, **separate)
        else:
            add_parameters(self, device, dtype, **separate, in_proj_weight=None)
        add_parameters(self, device, dtype, in_proj_bias=3 * embed_dim if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        if add_bias_kv:
            add_parameters(self, device, dtype, bias_k=(1, 1, embed_dim), bias_v=(1, 1, embed_dim))
        else:
            self.bias_k = self.bias_v = None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)  # type: ignore[arg-type]
        for bias in (self.bias_k, self.bias_v):
            if bias is not None:
                init.xavier_normal_(bias)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"_qkv_same_embed_dim": True, **state})

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        turns = self.batch_first and query.dim() == 3
        if turns:  # what was one tensor stays one
            whose = (query is key, key is value)
            query = query.transpose(1, 0)
            key = query if whose[0] else key.transpose(1, 0)
            value = key if whose[1] else value.transpose(1, 0)
        result, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=self.training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight, v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )  # fmt: skip
        return result.transpose(1, 0) if turns else result, weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Both masks as one, and its kind: 0 of (L, L), 1 of (N, L), 2 of (N, heads, L, L); for self-attention of (N, L, E)."""
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        batch, length, _ = query.shape
        if attn_mask.dim() == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2


__all__ = ["MultiheadAttention"]
