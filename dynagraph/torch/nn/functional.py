"""``torch.nn.functional``: activations, convolutions, pooling, normalization, losses and more, as functions of tensors.

Each is written in a module of `dynagraph/torch/functions`.
"""

from __future__ import annotations

from typing import Any

from dynagraph.torch.functions import (  # noqa: F401  (each module declares its functions)
    activations,
    convolution,
    dropout,
    embedding,
    linear,
    losses,
    margin_losses,
    normalization,
    padding,
    pooling,
    unpooling,
)
from dynagraph.torch.functions.common import NAMESPACES

globals().update(NAMESPACES["functional"])


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"module 'dynagraph.torch.nn.functional' has no attribute {name!r}; docs/torch.md lists which of PyTorch's names there are"
    )
