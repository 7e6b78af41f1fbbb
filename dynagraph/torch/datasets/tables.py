"""Tables in CSV files."""

from __future__ import annotations

import csv
import os
from typing import Any

import numpy as np

from dynagraph import torch
from dynagraph.torch.utils.data import Dataset


class CSVDataset(Dataset):
    """Rows of a CSV file: a sample is its numbers (float32), with the target where there is one.

    `target`: the name of a column, which the others are features of.  Its numbers are float32, or int64 if all are integers; texts
    are numbered in order, and `classes` lists them.  `columns` chooses the features.  Without `header` the columns are named "0",
    "1"...  ValueError names the line of a cell that is no number, or of a row of another length.

    >>> import pathlib, tempfile
    >>> from dynagraph.torch import datasets
    >>> path = pathlib.Path(tempfile.mkdtemp(), "flowers.csv")
    >>> written = path.write_text("length,width,kind\\n1.5,2,rose\\n3,4.5,lily\\n")
    >>> flowers = datasets.CSVDataset(path, target="kind")
    >>> flowers[0]
    (tensor([1.5000, 2.0000]), tensor(1))
    >>> flowers.classes
    ['lily', 'rose']
    """

    def __init__(
        self, path: str | os.PathLike[str], target: str | None = None, columns: list[str] | None = None, header: bool = True,
        delimiter: str = ",",
    ) -> None:  # fmt: skip
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter=delimiter)
            lines = [(reader.line_num, row) for row in reader if row]
        if not lines or (header and len(lines) < 2):
            raise ValueError(f"{path} has no rows")
        names = [name.strip() for name in lines.pop(0)[1]] if header else [str(k) for k in range(len(lines[0][1]))]
        for line, row in lines:
            if len(row) != len(names):
                raise ValueError(f"{path}, line {line}: expected {len(names)} cells, but got {len(row)}")
        self.path = str(path)
        self.columns = columns if columns is not None else [name for name in names if name != target]
        for name in (*self.columns, *([] if target is None else [target])):
            if name not in names:
                raise ValueError(f"{path} has no column {name!r}; it has {', '.join(names)}")
        self.data = torch.from_numpy(np.stack([self._numbers(name, names, lines) for name in self.columns], 1).astype(np.float32))
        self.classes: list[str] | None = None
        self.targets = None if target is None else self._target(target, names, lines)

    def _numbers(self, name: str, names: list[str], lines: Any) -> np.ndarray:
        place, found = names.index(name), np.empty(len(lines))
        for k, (line, row) in enumerate(lines):
            try:
                found[k] = float(row[place])
            except ValueError:
                raise ValueError(f"{self.path}, line {line}: column {name!r} has {row[place]!r}, which is no number") from None
        return found

    def _target(self, name: str, names: list[str], lines: Any) -> Any:
        try:
            found = self._numbers(name, names, lines)
        except ValueError:
            texts = [row[names.index(name)].strip() for _, row in lines]
            self.classes = sorted(set(texts))
            numbers = {text: k for k, text in enumerate(self.classes)}
            return torch.tensor([numbers[text] for text in texts])
        whole = bool((found == np.round(found)).all()) and bool((np.abs(found) < 2**53).all())
        return torch.from_numpy(found.astype(np.int64 if whole else np.float32))

    def __getitem__(self, index: Any) -> Any:
        return self.data[index] if self.targets is None else (self.data[index], self.targets[index])

    def __len__(self) -> int:
        return len(self.data)


__all__ = ["CSVDataset"]
