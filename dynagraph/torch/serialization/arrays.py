"""Files of arrays alone, which `load` knows by the ends of their names."""

from __future__ import annotations

import os
from typing import Any

from dynagraph.torch.core import devices
from dynagraph.torch.serialization import npz, safetensors

ENDINGS = (".safetensors", ".npz")


def load_by_ending(f: Any, map_location: Any, mmap: bool) -> dict[str, Any]:
    """The tensors of a file of safetensors' or NumPy's."""
    if map_location is not None and not isinstance(map_location, (str, bytes, devices.device)):
        raise RuntimeError(
            f"Loading {os.path.splitext(f)[1]} files with {'dict' if isinstance(map_location, dict) else 'callable'} "
            f"map_location is "
            "not supported. Use a device string or torch.device instead."
        )
    device = "cpu" if map_location is None else map_location.decode() if isinstance(map_location, bytes) else map_location
    if os.fspath(f).endswith(".npz"):
        return npz.load_file(f, device)
    return safetensors.load_file(f, device, mmap=mmap)


__all__ = ["ENDINGS", "load_by_ending"]
