"""What image datasets have in common: a folder, and functions of samples and targets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dynagraph.torch.datasets.downloads import cache_folder
from dynagraph.torch.utils.data import Dataset


class VisionDataset(Dataset):
    """Samples below `root`; `transform` and `target_transform` are applied to each."""

    def __init__(
        self, root: str | os.PathLike[str] | None, transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.root = Path(root).expanduser() if root is not None else cache_folder()
        self.transform, self.target_transform = transform, target_transform

    def transformed(self, sample: Any, target: Any) -> tuple[Any, Any]:
        if self.transform is not None:
            sample = self.transform(sample)
        if self.target_transform is not None:
            target = self.target_transform(target)
        return sample, target


__all__ = ["VisionDataset"]
