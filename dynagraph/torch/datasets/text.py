"""Text as characters, for language models."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from dynagraph import torch
from dynagraph.torch import Tensor
from dynagraph.torch.utils.data import Dataset


class TextDataset(Dataset):
    """Pieces of a text: a sample is `length` tokens, and the tokens that follow each, int64.

    `text` is the text, or the path of a file (`os.PathLike`).  Tokens are the numbers of characters in `vocabulary`, by default
    those of the text in order.  There is a sample at each `stride` characters.

    >>> from dynagraph.torch import datasets
    >>> text = datasets.TextDataset("abcabc", length=3)
    >>> len(text), text.vocabulary
    (3, 'abc')
    >>> text[1]
    (tensor([1, 2, 0]), tensor([2, 0, 1]))
    """

    def __init__(self, text: str | os.PathLike[str], length: int, vocabulary: str | None = None, stride: int = 1) -> None:
        content = text if isinstance(text, str) else Path(text).read_text(encoding="utf-8")
        if length < 1 or stride < 1:
            raise ValueError(f"expected length and stride of 1 or more, but got {length} and {stride}")
        if len(content) <= length:
            raise ValueError(f"expected a text of more than {length} characters, but got {len(content)}")
        self.length, self.stride = length, stride
        self.vocabulary = "".join(sorted(set(content))) if vocabulary is None else vocabulary
        self._numbers = {character: k for k, character in enumerate(self.vocabulary)}
        self.tokens = self.encode(content)

    def encode(self, text: str) -> Tensor:
        """The tokens of a text; ValueError for a character that the vocabulary lacks."""
        try:
            return torch.from_numpy(np.fromiter((self._numbers[c] for c in text), np.int64, len(text)))
        except KeyError as error:
            raise ValueError(f"the vocabulary has no character {error.args[0]!r}") from None

    def decode(self, tokens: Any) -> str:
        """The text of tokens."""
        return "".join(self.vocabulary[int(token)] for token in tokens)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"expected an index below {count}, but got {index}")
        start = index % count * self.stride
        return self.tokens[start : start + self.length], self.tokens[start + 1 : start + self.length + 1]

    def __len__(self) -> int:
        return (len(self.tokens) - self.length - 1) // self.stride + 1


__all__ = ["TextDataset"]
