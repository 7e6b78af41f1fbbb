"""Vision transformer (Dosovitskiy et al. 2020, "An image is worth 16x16 words"); names as torchvision."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

from dynagraph import torch
from dynagraph.torch import Tensor, nn
from dynagraph.torch.models.mlp import MLP

_EPS = 1e-6  # of the layer norms, as in the paper's own code


class _MLPBlock(MLP):
    """The feedforward network of a block."""

    _version = 2  # the first one called its layers linear_1 and linear_2

    def __init__(self, width: int, hidden: int, dropout: float) -> None:
        super().__init__(width, [hidden, width], activation_layer=nn.GELU, dropout=dropout)
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.normal_(layer.bias, std=1e-6)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for old, new in (("linear_1", "0"), ("linear_2", "3")):
            for kind in ("weight", "bias"):
                if f"{prefix}{old}.{kind}" in state_dict:
                    state_dict[f"{prefix}{new}.{kind}"] = state_dict.pop(f"{prefix}{old}.{kind}")
        super()._load_from_state_dict(state_dict, prefix, *args)


class _EncoderBlock(nn.Module):
    """Attention and a feedforward network, each of normalized input and added to it."""

    def __init__(self, num_heads: int, width: int, hidden: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1 = nn.LayerNorm(width, eps=_EPS)
        self.self_attention = nn.MultiheadAttention(width, num_heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = _MLPBlock(width, hidden, dropout)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.ln_1(x)
        attended, _ = self.self_attention(normal, normal, normal, need_weights=False)
        x = self.dropout(attended) + x
        return x + self.mlp(self.ln_2(x))


class _Encoder(nn.Module):
    def __init__(
        self, length: int, num_layers: int, num_heads: int, width: int, hidden: int, dropout: float, attention_dropout: float
    ) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, length, width).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        blocks: OrderedDict[str, Any] = OrderedDict()
        for k in range(num_layers):
            blocks[f"encoder_layer_{k}"] = _EncoderBlock(num_heads, width, hidden, dropout, attention_dropout)
        self.layers = nn.Sequential(blocks)
        self.ln = nn.LayerNorm(width, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """(N, 3, image_size, image_size) to (N, num_classes): patches as tokens, and a token that stands for the class.

    `hidden_dim` is the width of tokens, `mlp_dim` that of the feedforward networks.  With `representation_size` the head has a
    hidden layer with tanh.

    >>> from dynagraph import torch
    >>> model = VisionTransformer(16, 8, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=16, num_classes=10)
    >>> model(torch.zeros(2, 3, 16, 16)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self, image_size: int, patch_size: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int,
        dropout: float = 0.0, attention_dropout: float = 0.0, num_classes: int = 1000, representation_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"image_size: expected a multiple of patch_size {patch_size}, but got {image_size}")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, stride=patch_size)
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(torch.zeros(1, 1, hidden_dim))
        self.encoder = _Encoder(self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout)
        head: OrderedDict[str, Any] = OrderedDict()
        if representation_size is not None:
            head["pre_logits"] = nn.Linear(hidden_dim, representation_size)
            head["act"] = nn.Tanh()
        head["head"] = nn.Linear(representation_size or hidden_dim, num_classes)
        self.heads = nn.Sequential(head)
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / (3 * patch_size**2)))
        nn.init.zeros_(self.conv_proj.bias)
        if representation_size is not None:
            nn.init.trunc_normal_(head["pre_logits"].weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(head["pre_logits"].bias)
        nn.init.zeros_(head["head"].weight)
        nn.init.zeros_(head["head"].bias)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] != (self.image_size, self.image_size):
            raise ValueError(f"expected images of {self.image_size} x {self.image_size}, but got {x.shape[2]} x {x.shape[3]}")
        tokens = self.conv_proj(x).flatten(2).transpose(1, 2)
        tokens = self.encoder(torch.cat([self.class_token.expand(x.shape[0], -1, -1), tokens], 1))
        return self.heads(tokens[:, 0])


def vit_b_16(**kwargs: Any) -> VisionTransformer:
    """`VisionTransformer` in the base size, with patches of 16 x 16 out of images of 224 x 224 (`image_size`)."""
    sizes = {"image_size": 224, "patch_size": 16, "num_layers": 12, "num_heads": 12, "hidden_dim": 768, "mlp_dim": 3072}
    return VisionTransformer(**{**sizes, **kwargs})


__all__ = ["VisionTransformer", "vit_b_16"]
