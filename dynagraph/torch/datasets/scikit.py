"""Small sets that scikit-learn brings along, as tensors: no download."""

from __future__ import annotations

from typing import Any

from dynagraph import torch
from dynagraph.torch import Tensor
from dynagraph.torch.datasets.optional import needed
from dynagraph.torch.utils.data import TensorDataset


def _loaded(name: str) -> Any:
    return getattr(needed("sklearn.datasets", "scikit-learn", f"datasets.{name.removeprefix('load_')}"), name)()


def _features(name: str) -> TensorDataset:
    found = _loaded(name)
    return TensorDataset(torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target, dtype=torch.int64))


def digits() -> TensorDataset:
    """1,797 handwritten digits (Alpaydin and Kaynak 1998): images (1, 8, 8) float32 from 0 to 1, and classes.

    >>> from dynagraph.torch import datasets
    >>> image, target = datasets.digits()[0]
    >>> image.shape, int(target)
    (torch.Size([1, 8, 8]), 0)
    """
    found = _loaded("load_digits")
    images = torch.tensor(found.images / 16, dtype=torch.float32).unsqueeze(1)
    return TensorDataset(images, torch.tensor(found.target, dtype=torch.int64))


def iris() -> TensorDataset:
    """150 flowers of three kinds (Fisher 1936): four lengths in cm, float32, and classes."""
    return _features("load_iris")


def breast_cancer() -> TensorDataset:
    """569 tumours (Wolberg, Street and Mangasarian 1995): 30 features, float32; 0 malignant, 1 benign."""
    return _features("load_breast_cancer")


def sample_images() -> dict[str, Tensor]:
    """Two photographs, "china.jpg" and "flower.jpg": (3, 427, 640) uint8.  scikit-learn reads them by Pillow."""
    found = _loaded("load_sample_images")
    return {name: torch.tensor(image).permute(2, 0, 1) for name, image in zip(found.filenames, found.images)}


__all__ = ["breast_cancer", "digits", "iris", "sample_images"]
