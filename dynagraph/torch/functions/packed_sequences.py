"""Sequences of several lengths: padded to one array, and packed, the rows of each step one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import is_on_gpu, library_of_array, number_in, put_beside
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import NAMESPACES, cast, check_tensor, function
from dynagraph.torch.functions.joining import stack
from dynagraph.torch.functions.padding import pad
from dynagraph.torch.functions.selection import index_select
from dynagraph.torch.functions.shapes import reshape, transpose

_UNSORTED = (
    "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
    "pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability."
)


def _rows_of(x: Tensor) -> Tensor:
    """The first two dimensions as one."""
    shape = x._array.shape
    return reshape(x, (shape[0] * shape[1], *shape[2:]))


def _places(counts: Any, batch: int, rows: int, like: Tensor) -> Tensor:
    """Where in (steps, batch) the rows of packed sequences are."""
    ends, numbers = np.cumsum(counts), np.arange(rows)
    steps = np.searchsorted(ends, numbers, side="right")
    return wrap(put_beside(steps * batch + numbers - (ends - counts)[steps], like._array))


def first_size(batch_sizes: Tensor) -> int:
    """How many sequences are packed."""
    known = batch_sizes._first_size
    if known is not None and known[1] == batch_sizes._storage.version:
        return known[0]
    return number_in(batch_sizes._array, "first")


@function("_pack_padded_sequence", method=False)
def pack_padded(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """The rows of all steps, and how many each step has."""
    return packed(input, lengths, batch_first, lengths._array)


def packed(input: Tensor, lengths: Tensor, batch_first: bool, given_lengths: Any) -> tuple[Tensor, Tensor]:
    """As `pack_padded`; `given_lengths`: the same numbers, in any order, as a list of ints or an array.

    Captures take from these what sizes depend on, and so do not from `lengths`, which may be computed.
    """
    x, given = check_tensor(input, "_pack_padded_sequence", "input"), check_tensor(lengths, "_pack_padded_sequence", "lengths", 2)
    if batch_first:
        x = transpose(x, 0, 1)
    sizes = given._array
    if sizes.ndim != 1 or is_on_gpu(sizes) or sizes.dtype != np.int64:
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {sizes.ndim}D {given.device.type} "
            f"{dtypes.scalar_name(given.dtype)} tensor"
        )
    if not x._array.size:
        raise RuntimeError("Cannot pack empty tensors.")
    if x._array.ndim < 2:
        raise IndexError(f"Dimension out of range (expected to be in range of [-{x._array.ndim}, 0], but got 1)")
    steps, batch = x._array.shape[:2]
    if sizes.size != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {sizes.size} (batch_size={batch})")
    if sizes[-1] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if np.any(sizes[1:] > sizes[:-1]):
        raise RuntimeError(_UNSORTED)
    if isinstance(given_lengths, list):
        longest, rows = max(given_lengths), sum(given_lengths)
    else:
        longest, rows = number_in(given_lengths, "greatest"), number_in(given_lengths, "sum")
    if longest > steps:
        raise RuntimeError(f"Expected lengths of at most {steps}, the padded one, but got {longest}")
    counts = np.sum(np.arange(longest)[:, None] < sizes, axis=1)
    batch_sizes = wrap(counts)
    batch_sizes._first_size = batch, 0
    return index_select(_rows_of(x), 0, _places(counts, batch, rows, x)), batch_sizes


@function("_pad_packed_sequence", method=False)
def pad_packed(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int
) -> tuple[Tensor, Tensor]:
    """Padded sequences, (steps, batch, ...), and their lengths."""
    counts = check_tensor(batch_sizes, "_pad_packed_sequence", "batch_sizes", 2)._array
    steps, batch = counts.size, first_size(batch_sizes)
    if total_length > 0:
        if total_length < steps:
            raise RuntimeError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    if counts.sum() != data._array.shape[0]:
        raise RuntimeError(f"batch_sizes are those of {int(counts.sum())} rows, but there are {data._array.shape[0]}")
    shape = data._array.shape[1:]
    room = library_of_array(data._array).full((steps * batch, *shape), padding_value, data._array.dtype)
    padded = NAMESPACES["torch"]["index_copy"](wrap(room), 0, _places(counts, batch, data._array.shape[0], data), data)
    padded = reshape(padded, (steps, batch, *shape))
    lengths = np.sum(counts[:, None] > np.arange(batch), axis=0)
    return transpose(padded, 0, 1) if batch_first else padded, wrap(lengths)


def pad_sequences(sequences: Sequence[Tensor], batch_first: bool, value: Any, side: str) -> Tensor:
    """Sequences of several lengths as one tensor: ``torch._C._nn.pad_sequence``."""
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {side}.")
    shapes = [check_tensor(t, "pad_sequence", "sequences")._array.shape for t in sequences]
    first, rest = sequences[0], shapes[0][1:]
    longest = max((shape[0] for shape in shapes if shape), default=0)
    for shape in shapes:
        if not shape:
            raise RuntimeError("pad_sequence: sequences have at least one dimension")
        if shape[1:] != rest:
            raise RuntimeError(f"pad_sequence: all sizes but the first must be those of the first sequence, {list(rest)}")
    padded = []
    for t, shape in zip(sequences, shapes):
        missing = longest - shape[0]
        widths = [0, 0] * len(rest) + ([missing, 0] if side == "left" else [0, missing])
        t = t if t.dtype is first.dtype else cast(t, first.dtype)
        padded.append(pad(t, widths, "constant", value) if missing else t)
    return stack(padded, 0 if batch_first else 1)


__all__ = ["first_size", "pack_padded", "packed", "pad_packed", "pad_sequences"]
