"""Transformers: encoder and decoder layers, stacks of them, and both together.

Masks hide what is True, or are added to scores.  Where PyTorch's encoder runs on nested tensors (in evaluation, of batches whose
padding comes last), places of padding come out as zeros; so they do here.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.attention import alike_masks, causal_mask, checked_mask
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.activation import GELU, ReLU
from dynagraph.torch.nn.modules.attention import MultiheadAttention
from dynagraph.torch.nn.modules.container import ModuleList
from dynagraph.torch.nn.modules.dropout import Dropout
from dynagraph.torch.nn.modules.linear import Linear
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.normalization import LayerNorm

Activation = Callable[[Tensor], Tensor]


def _activation(activation: str | Activation) -> Activation:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu  # type: ignore[no-any-return]


def _copies(module: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(count)])


_get_activation_fn, _get_clones = _activation, _copies  # PyTorch's names


def _is_causal(mask: Tensor | None, is_causal: bool | None, length: int) -> bool:
    """Whether a mask is the causal one, where nobody says.  Compiled programs do not look: the mask has the same effect."""
    if is_causal is not None or mask is None or is_compiling():
        return is_causal is True
    if mask.shape != (length, length):
        return False
    return bool((mask == causal_mask(length, device=mask.device, dtype=mask.dtype)).all())


class TransformerEncoderLayer(Module):
    """Self-attention, then a feedforward network, each with dropout, added to its input, and normalized: after it, or before with
    `norm_first` (Vaswani et al. 2017).

    (L, N, d_model) or (L, d_model), with `batch_first` (N, L, d_model), to the same shape.  `activation`: "relu", "gelu" or a
    function.
    """

    __constants__ = ["norm_first"]  # noqa: RUF012

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        about: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **about)
        self.linear1 = Linear(d_model, dim_feedforward, **about)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **about)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **about)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **about)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)
        self.activation_relu_or_gelu = 0
        if self.activation is F.relu or isinstance(self.activation, ReLU):
            self.activation_relu_or_gelu = 1
        elif self.activation is F.gelu or isinstance(self.activation, GELU):
            self.activation_relu_or_gelu = 2

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        padding = checked_mask(src_key_padding_mask, "src_key_padding_mask", src_mask, "src_mask")
        mask, padding = alike_masks(checked_mask(src_mask, "src_mask"), padding, src.dtype)
        x = src
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), mask, padding, is_causal=is_causal)
            return x + self._ff_block(self.norm2(x))
        x = self.norm1(x + self._sa_block(x, mask, padding, is_causal=is_causal))
        return self.norm2(x + self._ff_block(x))

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        about = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask, "need_weights": False, "is_causal": is_causal}
        return self.dropout1(self.self_attn(x, x, x, **about)[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the memory of an encoder, then a feedforward network, each added to its input and normalized.

    Arguments are those of `TransformerEncoderLayer`.
    """

    __constants__ = ["norm_first"]  # noqa: RUF012

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Activation = F.relu,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        about: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **about)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **about)
        self.linear1 = Linear(d_model, dim_feedforward, **about)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **about)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **about)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **about)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, **about)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"activation": F.relu, **state} if "activation" not in state.get("_modules", {}) else state)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None, tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        x, own = tgt, (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._sa_block(self.norm1(x), *own)
            x = x + self._mha_block(self.norm2(x), memory, *other)
            return x + self._ff_block(self.norm3(x))
        x = self.norm1(x + self._sa_block(x, *own))
        x = self.norm2(x + self._mha_block(x, memory, *other))
        return self.norm3(x + self._ff_block(x))

    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        about = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask, "need_weights": False, "is_causal": is_causal}
        return self.dropout1(self.self_attn(x, x, x, **about)[0])

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        about = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask, "need_weights": False, "is_causal": is_causal}
        return self.dropout2(self.multihead_attn(x, mem, mem, **about)[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _why_not_nested(layer: Any) -> str:
    """Why PyTorch's encoder would not use nested tensors for such layers; empty where it would."""
    attention = getattr(layer, "self_attn", None)
    name = "encoder_layer"
    if not isinstance(layer, TransformerEncoderLayer) or not isinstance(attention, MultiheadAttention):
        return f"{name} was not TransformerEncoderLayer"
    for found, reason in (
        (layer.norm_first, ".norm_first was True"),
        (not attention.batch_first, ".self_attn.batch_first was not True(use batch_first for better inference performance)"),
        (not attention._qkv_same_embed_dim, ".self_attn._qkv_same_embed_dim was not True"),
        (attention.in_proj_bias is None, ".self_attn was passed bias=False"),
        (not layer.activation_relu_or_gelu, ".activation_relu_or_gelu was not True"),
        (layer.norm1.eps != layer.norm2.eps, f".norm1.eps was not equal to {name}.norm2.eps"),
        (attention.num_heads % 2 == 1, ".self_attn.num_heads is odd"),
    ):
        if found:
            return name + reason
    return ""


class TransformerEncoder(Module):
    """A stack of `num_layers` copies of a layer, and a normalization after it.

    `enable_nested_tensor`: in evaluation without gradients, padding that comes last in each row of a batch gives zeros (PyTorch
    computes nothing for it); `mask_check`: whether it does come last is looked at.
    """

    __constants__ = ["norm"]  # noqa: RUF012

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor = self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        reason = _why_not_nested(encoder_layer)
        if enable_nested_tensor and reason:
            warnings.warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {reason}", stacklevel=2
            )
            self.use_nested_tensor = False

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
    ) -> Tensor:
        padding = checked_mask(src_key_padding_mask, "src_key_padding_mask", mask, "mask")
        mask, padding = alike_masks(checked_mask(mask, "mask"), padding, src.dtype)
        first: Any = self.layers[0]
        length = src.shape[0 if src.dim() == 2 or not first.self_attn.batch_first else 1]
        causal = _is_causal(mask, is_causal, length)
        skipped = self._skipped(src, mask, padding, first)
        output = src
        for layer in self.layers:
            output = layer(output, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if skipped is not None:
            output = output.masked_fill(skipped, 0.0)  # type: ignore[attr-defined]
        return output if self.norm is None else self.norm(output)

    def _skipped(self, src: Tensor, mask: Tensor | None, padding: Tensor | None, first: Any) -> Tensor | None:
        """Places of padding, where their results are to be zero: as (N, L, 1)."""
        if padding is None or mask is not None or not self.use_nested_tensor or first.training or src.dim() != 3:
            return None
        if mode.grad and (src.requires_grad or any(p.requires_grad for p in first.parameters())):
            return None
        hidden: Any = padding != 0
        if self.mask_check and (is_compiling() or bool((hidden[:, :-1] & ~hidden[:, 1:]).any())):
            return None
        return hidden.unsqueeze(-1)  # type: ignore[no-any-return]


class TransformerDecoder(Module):
    """A stack of `num_layers` copies of a decoder layer, and a normalization after it."""

    __constants__ = ["norm"]  # noqa: RUF012

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        first: Any = self.layers[0]
        length = tgt.shape[0 if tgt.dim() == 2 or not first.self_attn.batch_first else 1]
        causal = _is_causal(tgt_mask, tgt_is_causal, length)
        output = tgt
        for layer in self.layers:
            output = layer(
                output, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=causal, memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return output if self.norm is None else self.norm(output)


class Transformer(Module):
    """An encoder, and a decoder that attends to what it gives (Vaswani et al. 2017).

    >>> from dynagraph import torch
    >>> model = torch.nn.Transformer(d_model=16, nhead=4, num_encoder_layers=2, num_decoder_layers=2, dim_feedforward=32)
    >>> model(torch.ones(10, 3, 16), torch.ones(7, 3, 16)).shape
    torch.Size([7, 3, 16])
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Activation = F.relu, custom_encoder: Any = None,
        custom_decoder: Any = None, layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
        bias: bool = True, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype)
        norm = {"eps": layer_norm_eps, "bias": bias, "device": device, "dtype": dtype}
        if custom_encoder is None:
            self.encoder = TransformerEncoder(TransformerEncoderLayer(*layer), num_encoder_layers, LayerNorm(d_model, **norm))
        else:
            self.encoder = custom_encoder
        if custom_decoder is None:
            self.decoder = TransformerDecoder(TransformerDecoderLayer(*layer), num_decoder_layers, LayerNorm(d_model, **norm))
        else:
            self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None, src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """A mask (sz, sz) that hides what comes later: minus infinity above the diagonal, else 0."""
        return causal_mask(sz, device=device, dtype=dtype)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)


__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer"]
