"""Datasets that are larger than memory: arrays in files, tables (Parquet, Arrow), shards of samples in tar files.

Not PyTorch's names.  Tables need pyarrow, and addresses with ``://`` (object stores, HTTP) fsspec: ``pip install
'dynagraph[data]'``.  What is iterated over is divided among the workers of a DataLoader, and among the processes of
`torch.distributed`, in whole pieces: row groups, record batches, shards.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib
import io
import itertools
import json
import mmap
import os
import random
import re
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dynagraph.torch import distributed as dist
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.utils.data.dataset import Dataset, IterableDataset
from dynagraph.torch.utils.data.workers import get_worker_info

_torch = NAMESPACES["torch"]
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")


def needed(module: str, what: str) -> Any:
    """A module of an optional package; ImportError that says what for and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ImportError(f"{what} need{'' if what.endswith('s') else 's'} {package}: pip install 'dynagraph[data]'") from None


def opened(url: str | os.PathLike[str]) -> Any:
    """A file of this machine, or of an address with ``://``, open for reading bytes."""
    name = os.fspath(url)
    return needed("fsspec", f"{name!r}").open(name, "rb").open() if "://" in name else open(name, "rb")


def expanded(urls: str | os.PathLike[str] | Sequence[Any]) -> list[str]:
    """The names of one or several files; ``{000..012}`` in a name stands for that many.

    >>> expanded("train-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar']
    """
    if not isinstance(urls, (str, os.PathLike)):
        return [name for url in urls for name in expanded(url)]
    name = os.fspath(urls)
    found = _BRACES.search(name)
    if found is None:
        return [name]
    first, last = found.groups()
    numbers = (str(k).zfill(len(first)) for k in range(int(first), int(last) + 1))
    return [rest for number in numbers for rest in expanded(name[: found.start()] + number + name[found.end() :])]


# -- arrays -----------------------------------------------------------------------------------------------------------


class MappedArrays(Dataset[Any]):
    """Rows of arrays that lie in files: sample k is row k of each, read when it is asked for.

    arrays: names of ``.npy`` files, or arrays that `numpy.memmap` gave.  With several, samples are tuples.  Workers map the files
    again: nothing is copied but the rows.

    >>> rows = MappedArrays("images.npy", "labels.npy")  # doctest: +SKIP
    >>> image, label = rows[0]  # doctest: +SKIP
    """

    def __init__(self, *arrays: Any):
        if not arrays:
            raise ValueError("MappedArrays: expected at least one array")
        self._places = [_place_of(array) for array in arrays]
        self._map()
        if len({len(array) for array in self.arrays}) > 1:
            raise ValueError(f"MappedArrays: arrays of different lengths: {[len(array) for array in self.arrays]}")

    def _map(self) -> None:
        self.arrays = [
            np.load(name, mmap_mode="r") if how is None else np.memmap(name, mode="r", **how) for name, how in self._places
        ]  # fmt: skip

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: Any) -> Any:
        rows = [_torch["from_numpy"](np.array(array[index])) for array in self.arrays]
        return rows[0] if len(rows) == 1 else tuple(rows)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        parts = [_torch["from_numpy"](array[indices]) for array in self.arrays]
        return list(parts[0]) if len(parts) == 1 else list(zip(*parts))

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "arrays"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._map()


def _place_of(array: Any) -> tuple[str, dict[str, Any] | None]:
    if not isinstance(array, np.memmap):
        return os.path.abspath(array), None
    if array.filename is None or not isinstance(array.base, mmap.mmap):
        raise ValueError("MappedArrays: expected the array that numpy.memmap gave, not a part of one")
    order = "C" if array.flags.c_contiguous else "F"
    return os.fspath(array.filename), {"dtype": array.dtype, "offset": array.offset, "shape": array.shape, "order": order}


# -- pieces -----------------------------------------------------------------------------------------------------------


class _Pieces(IterableDataset[Any]):
    """Samples of pieces, which processes divide among them; `shuffle` orders the pieces anew in each epoch (`set_epoch`)."""

    def __init__(self, shuffle: bool, seed: int):
        self.shuffle, self.seed, self.epoch = shuffle, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = epoch

    def _own(self, pieces: Sequence[Any]) -> list[Any]:
        chosen = list(pieces)
        if self.shuffle:
            random.Random(f"{self.seed} {self.epoch}").shuffle(chosen)
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        if dist.is_available() and dist.is_initialized():
            worker, workers = dist.get_rank() * workers + worker, dist.get_world_size() * workers
        return chosen[worker::workers]


class Shuffled(IterableDataset[Any]):
    """The samples of an iterable dataset in another order: each is drawn from the `size` that come next.

    The draws are those of Python's `random`, which the workers of a DataLoader seed.
    """

    def __init__(self, dataset: Any, size: int):
        if size < 1:
            raise ValueError(f"Shuffled: size must be at least 1, got {size}")
        self.dataset, self.size = dataset, size

    def __iter__(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        waiting = list(itertools.islice(samples, self.size))
        for sample in samples:
            k = random.randrange(self.size)
            waiting[k], sample = sample, waiting[k]
            yield sample
        random.shuffle(waiting)
        yield from waiting


# -- tables -----------------------------------------------------------------------------------------------------------


class Table(_Pieces):
    """The rows of Parquet or Arrow files, one row group or record batch in memory at a time.

    urls: names or addresses of files; ``{000..012}`` stands for many.  columns: which; None: all.  batch_size: None gives rows, as
    dicts of tensors (text and bytes as they are); a number gives dicts of columns with so many rows, the last of a piece fewer: for
    a DataLoader with ``batch_size=None``, and much faster.  format: "parquet" or "arrow"; None: as the names end (``.parquet``;
    others are Arrow files, also called Feather).  Missing numbers become NaN where the column has floats, and are errors elsewhere.

    >>> rows = Table("part-{00..07}.parquet", columns=["x", "y"], batch_size=256)  # doctest: +SKIP
    """

    def __init__(
        self, urls: Any, columns: Sequence[str] | None = None, batch_size: int | None = None, format: str | None = None,
        shuffle: bool = False, seed: int = 0,
    ):  # fmt: skip
        super().__init__(shuffle, seed)
        if format not in (None, "parquet", "arrow"):
            raise ValueError(f"Table: format must be 'parquet', 'arrow' or None, got {format!r}")
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"Table: batch_size must be at least 1, got {batch_size}")
        needed("pyarrow", "tables")
        self.urls, self.columns, self.batch_size = expanded(urls), None if columns is None else list(columns), batch_size
        self.format = format
        self._counts: list[tuple[int, int]] | None = None  # pieces and rows of each file

    def __len__(self) -> int:
        rows = sum(rows for _, rows in self._known())
        return rows if self.batch_size is None else sum(-(-n // self.batch_size) for n in self._lengths())

    def _known(self) -> list[tuple[int, int]]:
        if self._counts is None:
            self._counts = []
            for url in self.urls:
                with self._reader(url) as reader:
                    self._counts.append((reader.pieces, reader.rows))
        return self._counts

    def _lengths(self) -> Iterator[int]:
        for url in self.urls:
            with self._reader(url) as reader:
                yield from map(reader.length, range(reader.pieces))

    @contextlib.contextmanager
    def _reader(self, url: str) -> Iterator[Any]:
        is_parquet = self.format == "parquet" or (self.format is None and url.endswith((".parquet", ".pq")))
        with opened(url) as file:
            try:
                reader = (_Parquet if is_parquet else _Arrow)(file, self.columns)
            except needed("pyarrow", "tables").ArrowInvalid as error:
                raise ValueError(f"{url}: not a {'Parquet' if is_parquet else 'Arrow'} file: {error}") from None
            yield reader

    def __iter__(self) -> Iterator[Any]:
        ends = list(itertools.accumulate(pieces for pieces, _ in self._known()))
        at = None
        with contextlib.ExitStack() as stack:
            for piece in self._own(range(ends[-1] if ends else 0)):
                k = bisect.bisect_right(ends, piece)
                if k != at:
                    stack.close()
                    reader, at = stack.enter_context(self._reader(self.urls[k])), k
                yield from self._samples(reader.read(piece - (ends[k - 1] if k else 0)), self.urls[k])

    def _samples(self, table: Any, url: str) -> Iterator[Any]:
        columns = {name: _column(table.column(name), name, url) for name in table.column_names}
        step = self.batch_size or table.num_rows
        for start in range(0, table.num_rows, max(step, 1)):
            if self.batch_size is not None:
                yield {name: values[start : start + step] for name, values in columns.items()}
            else:
                yield from (dict(zip(columns, row)) for row in zip(*columns.values()))


class _Parquet:
    """Row groups of a file."""

    def __init__(self, file: Any, columns: list[str] | None):
        self.file, self.columns = needed("pyarrow.parquet", "Parquet files").ParquetFile(file), columns
        self.pieces, self.rows = self.file.metadata.num_row_groups, self.file.metadata.num_rows

    def length(self, k: int) -> int:
        return int(self.file.metadata.row_group(k).num_rows)

    def read(self, k: int) -> Any:
        return self.file.read_row_group(k, self.columns, use_threads=False)  # threads would not outlive a fork


class _Arrow:
    """Record batches of a file."""

    def __init__(self, file: Any, columns: list[str] | None):
        arrow = needed("pyarrow", "Arrow files")
        self.file, self.columns, self.arrow = needed("pyarrow.ipc", "Arrow files").open_file(file), columns, arrow
        self.pieces = self.file.num_record_batches

    @property
    def rows(self) -> int:
        return sum(map(self.length, range(self.pieces)))

    def length(self, k: int) -> int:
        return int(self.file.get_batch(k).num_rows)

    def read(self, k: int) -> Any:
        table = self.arrow.Table.from_batches([self.file.get_batch(k)])
        return table if self.columns is None else table.select(self.columns)


def _column(column: Any, name: str, url: str) -> Any:
    """A tensor of numbers, or of lists of as many numbers each; else a list."""
    types = needed("pyarrow", "tables").types
    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        rows = column.to_pylist()
        if len({None if row is None else len(row) for row in rows}) == 1 and rows[0] is not None:
            inner = np.asarray(column.combine_chunks().flatten().to_numpy(zero_copy_only=False))
            return _torch["from_numpy"](np.array(inner.reshape(len(rows), -1)))
        return rows
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        if column.null_count and not types.is_floating(kind):
            raise ValueError(f"{url}: column {name!r} of {kind} has {column.null_count} missing values, which no tensor holds")
        return _torch["from_numpy"](np.array(column.to_numpy()))
    return column.to_pylist()


# -- shards -----------------------------------------------------------------------------------------------------------


def _image(data: bytes) -> Any:
    images = needed("PIL.Image", "images")
    with images.open(io.BytesIO(data)) as image:
        pixels = np.array(image if image.mode in ("L", "RGB", "RGBA") else image.convert("RGB"))
    return _torch["from_numpy"](pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _array(data: bytes) -> Any:
    return _torch["from_numpy"](np.load(io.BytesIO(data), allow_pickle=False))


def _arrays(data: bytes) -> Any:
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        return {name: _torch["from_numpy"](arrays[name]) for name in arrays.files}


DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(("txt", "text"), bytes.decode), **dict.fromkeys(("cls", "cls2", "index", "id"), int), "json": json.loads,
    "npy": _array, "npz": _arrays, **dict.fromkeys(("jpg", "jpeg", "png", "webp", "bmp", "ppm", "pgm"), _image),
}  # fmt: skip


class TarShards(_Pieces):
    """Samples in tar files as WebDataset has them: files whose names agree up to the first dot, one after the other, are a sample.

    urls: names or addresses of shards; ``{000..012}`` stands for many.  A sample is a dict: ``"__key__"``, and what a file holds by
    the rest of its name (``"jpg"``, ``"seg.png"``).  decoders: by the end of a name, what makes a value of bytes; they come before
    `DECODERS` (text, numbers, JSON, arrays, images as uint8 of shape (channels, height, width)).  None: bytes as they are.  What no
    decoder is for stays bytes.  Nothing is unpacked to disk, and nothing is unpickled.

    >>> samples = TarShards("s3://bucket/train-{000..099}.tar", shuffle=True)  # doctest: +SKIP
    """

    def __init__(
        self, urls: Any, decoders: Mapping[str, Callable[[bytes], Any]] | None = DECODERS, shuffle: bool = False, seed: int = 0
    ):
        super().__init__(shuffle, seed)
        self.urls = expanded(urls)
        self.decoders = None if decoders is None else {**DECODERS, **decoders}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for url in self._own(self.urls):
            with opened(url) as file:
                try:
                    yield from self._samples(file)
                except (tarfile.ReadError, EOFError) as error:
                    raise ValueError(f"{url}: not a whole tar file: {error}") from error

    def _samples(self, file: Any) -> Iterator[dict[str, Any]]:
        sample: dict[str, Any] = {}
        with tarfile.open(fileobj=file, mode="r|*") as shard:
            for member in shard:
                shard.members = []  # which would grow with the shard
                folder, _, name = member.name.rpartition("/")
                stem, dot, ending = name.partition(".")
                if not member.isfile() or not stem or not dot:
                    continue
                key = f"{folder}/{stem}" if folder else stem
                if sample and sample["__key__"] != key:
                    yield sample
                    sample = {}
                content: Any = shard.extractfile(member)
                data = content.read()
                if len(data) != member.size:
                    raise EOFError(f"{member.name} ends after {len(data)} of {member.size} bytes")
                sample.setdefault("__key__", key)
                sample[ending] = self._decoded(ending, data)
        if sample:
            yield sample

    def _decoded(self, ending: str, data: bytes) -> Any:
        last = ending.rpartition(".")[2].lower()
        decode = None if self.decoders is None else self.decoders.get(ending) or self.decoders.get(last)
        return data if decode is None else decode(data)


__all__ = ["DECODERS", "MappedArrays", "Shuffled", "Table", "TarShards", "expanded"]
