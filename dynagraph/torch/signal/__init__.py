"""``torch.signal``: windows."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of as _getattr_of
from dynagraph.torch.signal import windows as windows

__getattr__ = _getattr_of(__name__)
