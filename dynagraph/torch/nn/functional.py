"""``torch.nn.functional``: activations, convolutions, pooling, normalization, losses and more, as functions of tensors.

Each is written in a module of `dynagraph/torch/functions`.
"""

from __future__ import annotations

from dynagraph.torch.functions import (  # noqa: F401  (each module declares its functions)
    activations,
    attention,
    class_losses,
    convolution,
    ctc,
    dropout,
    embedding,
    grouped_products,
    linear,
    linear_cross_entropy,
    losses,
    margin_losses,
    normalization,
    padding,
    pooling,
    resampling,
    softmax,
    unpooling,
    vision,
)
from dynagraph.torch.functions.common import publish
from dynagraph.torch.missing import getattr_of

publish(globals(), "functional")

__getattr__ = getattr_of(__name__)
