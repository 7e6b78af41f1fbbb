"""MNIST's handwritten digits, and sets in its format (IDX), as torchvision keeps them: in ``root/MNIST/raw``."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dynagraph import torch
from dynagraph.torch import Tensor
from dynagraph.torch.datasets.downloads import download
from dynagraph.torch.datasets.optional import image_of
from dynagraph.torch.datasets.samples import VisionDataset

_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | os.PathLike[str]) -> Tensor:
    """The numbers of an IDX file, which may be compressed (``.gz``).

    Two bytes of zeros, the type, the number of dimensions, sizes as big-endian uint32, then the numbers (LeCun, "The MNIST
    database").  ValueError where the file is not that, or not as long as it says.
    """
    with gzip.open(path, "rb") if str(path).endswith(".gz") else open(path, "rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES:
            raise ValueError(f"{path} is not an IDX file: it begins with {head!r}")
        sizes = file.read(4 * head[3])
        if len(sizes) < 4 * head[3]:
            raise ValueError(f"{path} ends within its sizes")
        shape = tuple(int.from_bytes(sizes[k : k + 4], "big") for k in range(0, len(sizes), 4))
        dtype = np.dtype(_TYPES[head[2]])
        expected = math.prod(shape) * dtype.itemsize
        data = file.read(expected + 1) if expected < 1 << 40 else b""
    if len(data) != expected:
        raise ValueError(f"{path} says {shape} numbers of {dtype.itemsize} bytes, but has {len(data)} bytes of them")
    return torch.from_numpy(np.frombuffer(bytearray(data), dtype).reshape(shape).astype(dtype.newbyteorder("=")))


class MNIST(VisionDataset):
    """70,000 digits of 28 x 28 pixels; a sample is an image of Pillow's and its class.

    `root`: a folder that has ``MNIST/raw``, by default `cache_folder()`.  `download` gets what is missing.  `data` (N, 28, 28)
    uint8 and `targets` (N,) int64 are all samples at once, which need no Pillow::

        train = datasets.MNIST("data", download=True, transform=transforms.ToTensor())
        images, classes = train.data, train.targets
    """

    mirror = "https://ossci-datasets.s3.amazonaws.com/mnist/"
    checksums = {  # noqa: RUF012
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    }  # fmt: skip
    classes = (
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine",
    )  # fmt: skip

    def __init__(
        self, root: str | os.PathLike[str] | None = None, train: bool = True, transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None, download: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(root, transform, target_transform)
        self.train = train
        if download:
            self.download()
        start = "train" if train else "t10k"
        self.data = read_idx(self._file(f"{start}-images-idx3-ubyte"))
        self.targets = read_idx(self._file(f"{start}-labels-idx1-ubyte")).long()
        if self.data.dim() != 3 or self.targets.dim() != 1 or len(self.data) != len(self.targets):
            raise ValueError(f"{self.raw_folder} has images {tuple(self.data.shape)} and labels {tuple(self.targets.shape)}")

    @property
    def raw_folder(self) -> Path:
        """Where the files lie."""
        return self.root / type(self).__name__ / "raw"

    def _file(self, name: str) -> Path:
        plain = self.raw_folder / name
        packed = plain.with_name(f"{name}.gz")
        if not plain.exists() and not packed.exists():
            raise FileNotFoundError(f"{plain} is not there; download=True gets it")
        return plain if plain.exists() else packed

    def download(self) -> None:
        """Get the files that are not there."""
        for name, checksum in self.checksums.items():
            if not (self.raw_folder / name).exists():
                download(f"{self.mirror}{name}.gz", self.raw_folder, checksum=f"md5:{checksum}")

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        image = image_of(self.data[index].numpy(), f"a sample of {type(self).__name__} (its `data` and `targets` do not)")
        return self.transformed(image, int(self.targets[index]))

    def __len__(self) -> int:
        return len(self.data)


class FashionMNIST(MNIST):
    """Zalando's images of clothes, in MNIST's format (Xiao, Rasul and Vollgraf 2017)."""

    mirror = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
    checksums = {  # noqa: RUF012
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    }  # fmt: skip
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip


__all__ = ["MNIST", "FashionMNIST", "read_idx"]
