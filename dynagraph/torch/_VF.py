"""``torch._VF``: functions of ``torch``, under the name that modules of layers call them by."""

from __future__ import annotations

from dynagraph.torch.functions import packed_sequences, recurrent  # noqa: F401  (declare their functions)
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of

globals().update(NAMESPACES["torch"])

__getattr__ = getattr_of(__name__)
