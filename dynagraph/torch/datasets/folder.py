"""Samples as files, in a folder for each class: ``root/cat/1.png``, ``root/dog/some/2.png``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from dynagraph.torch.datasets.optional import needed
from dynagraph.torch.datasets.samples import VisionDataset

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def read_image(path: str) -> Any:
    """A file as an image of Pillow's, with three channels."""
    image = needed("PIL.Image", "pillow", "ImageFolder, unless a loader is given,")
    with open(path, "rb") as file:
        return image.open(file).convert("RGB")


class DatasetFolder(VisionDataset):
    """Files below a folder for each class, read by `loader`.

    Classes are the names of folders in order; `samples` is a list of paths with their classes, `targets` the classes alone.  Files
    count whose names end in one of `extensions`, or that `is_valid_file` says yes to.  FileNotFoundError where a class has none,
    unless `allow_empty`.
    """

    def __init__(
        self, root: str | os.PathLike[str], loader: Callable[[str], Any], extensions: Sequence[str] | None = None,
        transform: Callable[[Any], Any] | None = None, target_transform: Callable[[Any], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(root, transform, target_transform)
        if (extensions is None) == (is_valid_file is None):
            raise ValueError("expected one of extensions and is_valid_file")
        counts = is_valid_file or (lambda path: path.lower().endswith(tuple(extensions or ())))
        self.loader, self.extensions = loader, extensions
        self.classes = sorted(entry.name for entry in os.scandir(self.root) if entry.is_dir())
        if not self.classes:
            raise FileNotFoundError(f"{self.root} has no folder, of which each would be a class")
        self.class_to_idx = {name: k for k, name in enumerate(self.classes)}
        self.samples: list[tuple[str, int]] = []
        for name, number in self.class_to_idx.items():
            before = len(self.samples)
            for folder, _, files in sorted(os.walk(self.root / name, followlinks=True)):
                paths = (os.path.join(folder, file) for file in sorted(files))
                self.samples += [(path, number) for path in paths if counts(path)]
            if len(self.samples) == before and not allow_empty:
                wanted = "" if extensions is None else f" that ends in {', '.join(extensions)}"
                raise FileNotFoundError(f"{self.root / name} has no file{wanted}")
        self.targets = [number for _, number in self.samples]

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        return self.transformed(self.loader(path), target)

    def __len__(self) -> int:
        return len(self.samples)


class ImageFolder(DatasetFolder):
    """Images in a folder for each class; by default read by Pillow, as RGB.

    With torchvision's arguments: ``ImageFolder("photographs", transform=transforms.ToTensor())``.
    """

    def __init__(
        self, root: str | os.PathLike[str], transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None, loader: Callable[[str], Any] = read_image,
        is_valid_file: Callable[[str], bool] | None = None, allow_empty: bool = False,
    ) -> None:  # fmt: skip
        extensions = IMG_EXTENSIONS if is_valid_file is None else None
        super().__init__(root, loader, extensions, transform, target_transform, is_valid_file, allow_empty)
        self.imgs = self.samples


__all__ = ["IMG_EXTENSIONS", "DatasetFolder", "ImageFolder", "read_image"]
