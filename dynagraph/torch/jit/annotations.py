"""``torch.jit.annotations``: types for annotations of scripted code."""

from typing import Dict, List, Optional, Tuple, Union  # noqa: UP035

from dynagraph.torch.missing import getattr_of

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list
__getattr__ = getattr_of(__name__)
__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Dict", "List", "Optional", "Tuple", "Union"]
