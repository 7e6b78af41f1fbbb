"""``torch.utils.tensorboard``: `SummaryWriter`, by the package tensorboard."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.utils.tensorboard.writer import FileWriter as FileWriter
from dynagraph.torch.utils.tensorboard.writer import SummaryWriter as SummaryWriter

__getattr__ = getattr_of(__name__)
__all__ = ["FileWriter", "SummaryWriter"]
