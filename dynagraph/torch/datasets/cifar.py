"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009, "Learning multiple layers of features from tiny images"), as torchvision keeps them.

The files are pickles.  They are read as data: none can run code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.datasets.downloads import download, extract
from dynagraph.torch.datasets.optional import image_of
from dynagraph.torch.datasets.plain_pickles import loads
from dynagraph.torch.datasets.samples import VisionDataset


class CIFAR10(VisionDataset):
    """60,000 images of 32 x 32 pixels in 10 classes; a sample is an image of Pillow's and its class.

    `root`: a folder that has ``cifar-10-batches-py``, by default `cache_folder()`.  `download` gets it where it is missing.  `data`
    (N, 32, 32, 3) uint8 (a NumPy array, as torchvision's) and `targets` (a list) are all samples at once, which need no Pillow.
    """

    base_folder = "cifar-10-batches-py"
    url = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    checksum = "md5:c58f30108f718f92721af3b95e74349a"
    files = (("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"), ("test_batch",))
    names_file, names_key, target_key = "batches.meta", "label_names", "labels"

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None, download: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(root, transform, target_transform)
        self.train = train
        if download:
            self.download()
        images: list[np.ndarray] = []
        self.targets: list[int] = []
        for name in self.files[0 if train else 1]:
            batch = self._read(name)
            rows, targets = batch.get("data"), batch.get(self.target_key)
            if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
                raise ValueError(f"{name}: expected images as uint8 (N, 3072) under 'data'")
            if not isinstance(targets, list) or len(targets) != len(rows):
                raise ValueError(f"{name}: expected a class for each image under {self.target_key!r}")
            images.append(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            self.targets += map(int, targets)
        self.data = np.ascontiguousarray(np.concatenate(images))
        self.classes = list(self._read(self.names_file)[self.names_key])
        self.class_to_idx = {name: k for k, name in enumerate(self.classes)}

    def _read(self, name: str) -> dict[str, Any]:
        path = self.root / self.base_folder / name
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there; download=True gets it")
        try:
            found = loads(path.read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"{path}: expected a dict")
        return found

    def download(self) -> None:
        """Get the files where they are not there."""
        if not all((self.root / self.base_folder / name).exists() for names in self.files for name in (*names, self.names_file)):
            extract(download(self.url, self.root, checksum=self.checksum), self.root)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = image_of(self.data[index], f"a sample of {type(self).__name__} (its `data` and `targets` do not)")
        return self.transformed(image, self.targets[index])

    def __len__(self) -> int:
        return len(self.data)


class CIFAR100(CIFAR10):
    """As `CIFAR10`, in 100 classes."""

    base_folder = "cifar-100-python"
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    checksum = "md5:eb9058c3a382ffc7106e4002c42a8d85"
    files = (("train",), ("test",))
    names_file, names_key, target_key = "meta", "fine_label_names", "fine_labels"


__all__ = ["CIFAR10", "CIFAR100"]
