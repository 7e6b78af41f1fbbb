"""``torch.nn.utils``: helpers for parameters, gradients and sequences."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.utils import rnn as rnn

__getattr__ = getattr_of(__name__)
