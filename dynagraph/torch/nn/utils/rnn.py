"""``torch.nn.utils.rnn``: sequences of several lengths, padded and packed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.creation import as_tensor
from dynagraph.torch.functions.packed_sequences import packed, pad_packed, pad_sequences
from dynagraph.torch.functions.selection import index_select
from dynagraph.torch.functions.sorting import sort

Self = TypeVar("Self", bound="PackedSequence")
_BY_HAND = (
    "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. They should be "
    "instantiated by functions like pack_sequence and pack_padded_sequences in nn.utils.rnn. "
    "https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
)


class PackedSequence_(NamedTuple):
    """The fields of a `PackedSequence`."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences of several lengths without padding: `data` has the rows of all steps, `batch_sizes` how many each step has.

    Sequences are in the order of their lengths, the longest first; `sorted_indices` says which of the given ones each was, and
    `unsorted_indices` is the inverse.  `pack_sequence` and `pack_padded_sequence` make them.
    """

    __slots__ = ()

    def __new__(
        cls: type[Self],
        data: Any,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> Self:
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError(_BY_HAND)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """With `data` as ``Tensor.to`` gives it, and indices on its device; itself where that is nothing new."""
        data = self.data.to(*args, **kwargs)  # type: ignore[attr-defined]
        if data is self.data:
            return self
        indices = [None if t is None else t.to(data.device) for t in self[2:]]  # type: ignore[attr-defined]
        return type(self)(data, self.batch_sizes, *indices)

    def pin_memory(self: Self) -> Self:
        """With its arrays in pinned memory."""
        indices = [None if t is None else t.pin_memory() for t in self[2:]]  # type: ignore[attr-defined]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *indices)  # type: ignore[attr-defined]

    def cuda(self: Self, *args: Any, **kwargs: Any) -> Self:
        """On a GPU."""
        return self.to(*args, **kwargs) if args or "device" in kwargs else self.to(device="cuda", **kwargs)

    def cpu(self: Self, *args: Any, **kwargs: Any) -> Self:
        """On the CPU."""
        return self.to(*args, **kwargs) if args or "device" in kwargs else self.to(device="cpu", **kwargs)

    def double(self: Self) -> Self:
        """As float64."""
        return self.to(dtype=dtypes.float64)

    def float(self: Self) -> Self:
        """As float32."""
        return self.to(dtype=dtypes.float32)

    def half(self: Self) -> Self:
        """As float16."""
        return self.to(dtype=dtypes.float16)

    def long(self: Self) -> Self:
        """As int64."""
        return self.to(dtype=dtypes.int64)

    def int(self: Self) -> Self:
        """As int32."""
        return self.to(dtype=dtypes.int32)

    def short(self: Self) -> Self:
        """As int16."""
        return self.to(dtype=dtypes.int16)

    def char(self: Self) -> Self:
        """As int8."""
        return self.to(dtype=dtypes.int8)

    def byte(self: Self) -> Self:
        """As uint8."""
        return self.to(dtype=dtypes.uint8)

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return self.data.is_cuda  # type: ignore[attr-defined, no-any-return]

    def is_pinned(self) -> bool:
        """Whether it is in pinned memory."""
        return self.data.is_pinned()  # type: ignore[attr-defined, no-any-return]


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes one."""
    if permutation is None:
        return None
    return wrap(np.argsort(permutation._array).astype(permutation._array.dtype))


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences that are padded, (steps, batch, ...); with `enforce_sorted` the longest must come first."""
    if isinstance(lengths, Tensor):
        sizes: Tensor = lengths.to(dtype=dtypes.int64)  # type: ignore[attr-defined]
    else:
        sizes = as_tensor(lengths, dtype=dtypes.int64, device="cpu")
    given = list(lengths) if isinstance(lengths, (list, tuple)) and all(type(n) is int for n in lengths) else sizes._array
    order = None
    if not enforce_sorted:
        sizes, order = sort(sizes, descending=True)
        order = order.to(input.device)
        input = index_select(input, 0 if batch_first else 1, order)
    data, batch_sizes = packed(input, sizes, batch_first, given)
    return PackedSequence(data, batch_sizes, order)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Padded sequences, in the order in which they were given, and their lengths."""
    longest = sequence.batch_sizes._array.shape[0]
    if total_length is not None:
        if total_length < longest:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {longest}"
            )
        longest = total_length
    padded, lengths = pad_packed(sequence.data, sequence.batch_sizes, batch_first, padding_value, longest)
    order = sequence.unsorted_indices
    if order is None:
        return padded, lengths
    return index_select(padded, 0 if batch_first else 1, order), lengths[order.cpu()]  # type: ignore[attr-defined, index]


def pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences of several lengths as one tensor, (longest, batch, ...): `padding_value` stands at the `padding_side` of others."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    return pad_sequences(tuple(sequences), batch_first, padding_value, padding_side)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """Padded sequences as a list, without their padding.  As in PyTorch, `padded_sequences` is transposed in place first."""
    if not batch_first:
        padded_sequences.transpose_(0, 1)  # type: ignore[attr-defined]
    rows = list(padded_sequences)  # type: ignore[call-overload]
    sizes = lengths._array.tolist()
    if len(rows) != len(sizes):
        raise ValueError(f"there are {len(rows)} sequences, but {len(sizes)} lengths")
    return [row[: max(n, 0)].clone() for row, n in zip(rows, sizes)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of sequences, each (steps, ...); with `enforce_sorted` the longest must come first."""
    lengths = [t._array.shape[0] for t in sequences]
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a `PackedSequence` as a list."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
    "unpack_sequence", "unpad_sequence",
]  # fmt: skip
