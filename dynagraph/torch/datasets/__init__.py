"""Data to train on: ``from dynagraph.torch import datasets``.

Sets that scikit-learn brings along (`digits`, `iris`, `breast_cancer`, `sample_images`), files in known formats (`MNIST`,
`CIFAR10`, `ImageFolder`, `CSVDataset`, `TextDataset`), and `download`.  Names and arguments are torchvision's where it has them.

>>> from dynagraph.torch import datasets
>>> text = datasets.TextDataset("hello world", length=4)
>>> tokens, following = text[0]
>>> text.decode(tokens), text.decode(following)
('hell', 'ello')
"""

from __future__ import annotations

from dynagraph.torch.datasets.cifar import CIFAR10, CIFAR100
from dynagraph.torch.datasets.downloads import cache_folder, download, extract
from dynagraph.torch.datasets.folder import DatasetFolder, ImageFolder
from dynagraph.torch.datasets.mnist import MNIST, FashionMNIST, read_idx
from dynagraph.torch.datasets.scikit import breast_cancer, digits, iris, sample_images
from dynagraph.torch.datasets.tables import CSVDataset
from dynagraph.torch.datasets.text import TextDataset
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
__all__ = [
    "CIFAR10", "CIFAR100", "MNIST", "CSVDataset", "DatasetFolder", "FashionMNIST", "ImageFolder", "TextDataset", "breast_cancer",
    "cache_folder", "digits", "download", "extract", "iris", "read_idx", "sample_images",
]  # fmt: skip
