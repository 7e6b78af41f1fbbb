"""Rows of a table by number: `embedding`, `embedding_bag`, `one_hot`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph._core._dispatch import put_rows
from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, library_of_array, ufunc_at
from dynagraph.torch.core.nodes import Node, is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.sparse_gradients import SparseGradient
from dynagraph.torch.core.tensor import Tensor, apply, made, quiet, wrap, written
from dynagraph.torch.functions.activations import in_single, no_complex_gradient
from dynagraph.torch.functions.arithmetic import mul
from dynagraph.torch.functions.common import cast, check_tensor, function, integer
from dynagraph.torch.functions.indexing import getitem, has_row_kernels
from dynagraph.torch.functions.shapes import reshape, unsqueeze
from dynagraph.torch.functions.sparse import COOTensor, coo
from dynagraph.torch.functions.sparse_creation import FROM_VALUES

# -- primitives ---------------------------------------------------------------------------------------------------------


def _factor(places: Any, rows: int, padding: int, by_frequency: bool, dtype: np.dtype) -> Any:
    """What each gradient is multiplied with: zero at the padding, one over how often a number occurs."""
    kept = (places != padding).astype(dtype)
    if by_frequency:
        counts = np.bincount(places.reshape(-1), minlength=rows)
        kept = kept / counts[places].astype(dtype)
    return kept[..., None]


def _is_plain(padding: int, by_frequency: bool) -> bool:
    return padding < 0 and not by_frequency


def _take_rows(weight: Any, places: Any, padding: int, by_frequency: bool) -> Any:
    return weight[places]


def _put_rows(g: Any, places: Any, rows: int, padding: int, by_frequency: bool) -> Any:
    if not _is_plain(padding, by_frequency):
        g = g * _factor(places, rows, padding, by_frequency, g.dtype)
    if has_row_kernels(g, places):
        return put_rows(g, places, rows)
    made = library_of_array(g).zeros((rows, g.shape[-1]), g.dtype)
    ufunc_at(np.add, made, places.reshape(-1), g.reshape(places.size, g.shape[-1]))
    return made


def _take_scaled(weight: Any, places: Any, padding: int, by_frequency: bool) -> Any:
    found = weight[places]
    if _is_plain(padding, by_frequency):
        return found
    return found * _factor(places, weight.shape[0], padding, by_frequency, found.dtype)


def _none(d: Any, g: Any) -> None:
    return


EMBEDDING = define(
    "embedding",
    _take_rows,
    (lambda d, g: g.call("embedding_back", d.y, rows=d.x.shape[0], **d.attrs), _none),
    ("y", ""),
)
define(
    "embedding_back",
    _put_rows,
    (lambda d, g: g.call("embedding_scaled", d.y, padding=d.attrs["padding"], by_frequency=d.attrs["by_frequency"]), _none),
    ("y", ""),
)
define(
    "embedding_scaled",
    _take_scaled,
    (lambda d, g: g.call("embedding_back", d.y, rows=d.x.shape[0], **d.attrs), _none),
    ("y", ""),
)

SPARSE_EMBEDDING = define("sparse_embedding", _take_rows, (_none, _none), ("y", ""))


class EmbeddingBackward0(Node):
    """Where the gradient by a table is sparse: its places are the rows that were taken, each as often as it was."""

    __slots__ = ()
    primitive = SPARSE_EMBEDDING

    def pull(self, grads: Sequence[Any]) -> list[Any]:
        return [SparseGradient(self._rows(wrap(grads[0]))), None]

    def pull_tensors(self, grads: Sequence[Any]) -> list[Any]:
        return [self._rows(grads[0]), None]

    def _rows(self, g: Tensor) -> COOTensor:
        padding, shape = self.attrs["padding"], self.metas[0][0]
        if self.attrs["by_frequency"]:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        places, counts = self.operand(1).array, None
        if padding >= 0:
            kept = places != padding
            if is_compiling():  # how many places are left is data
                counts = kept.reshape(-1)
            else:
                g, places = getitem(g, wrap(kept)), places[kept]
        values = reshape(g, (places.size, shape[1]))
        values = apply(FROM_VALUES, values) if values.requires_grad else values
        return coo(wrap(places.reshape(1, -1).astype(np.int64)), values, shape, False, counts)


SPARSE_EMBEDDING.node_class = EmbeddingBackward0

# The padding's rows are in a bag behind the others, which is dropped.


def _bag_sum(x: Any, bags: Any, count: int) -> Any:
    made = library_of_array(x).zeros((count + 1, x.shape[1]), x.dtype)
    ufunc_at(np.add, made, bags, x)
    return made[:count].copy()


def _bag_spread(g: Any, bags: Any, rows: int) -> Any:
    return np.concatenate((g, library_of_array(g).zeros((1, g.shape[1]), g.dtype)))[bags]


BAG_SUM = define(
    "bag_sum", in_single(_bag_sum), (lambda d, g: g.call("bag_spread", d.y, rows=d.x.shape[0]), _none), ("y", ""),
    backward="EmbeddingBagBackward0",
)  # fmt: skip
define(
    "bag_spread",
    _bag_spread,
    (lambda d, g: g.call("bag_sum", d.y, count=d.x.shape[0]), _none),
    ("y", ""),
)


def _bag_max(x: Any, bags: Any, count: int) -> tuple[Any, Any]:
    """The greatest of each bag, of none zero; and its row, of none the number of rows."""
    rows = x.shape[0]
    library = library_of_array(x)
    greatest = library.full((count + 1, x.shape[1]), -np.inf, x.dtype)
    ufunc_at(np.maximum, greatest, bags, x)
    where = library.full((count + 1, x.shape[1]), rows)
    numbers = library.arange(rows)[:, None]
    is_it = (x == greatest[bags]) | np.isnan(x)
    ufunc_at(np.minimum, where, bags, np.where(is_it, numbers, rows))
    where = where[:count].copy()
    return np.where(where < rows, greatest[:count], 0).astype(x.dtype), where


def _bag_max_put(g: Any, where: Any, rows: int) -> Any:
    made = library_of_array(g).zeros((rows + 1, g.shape[1]), g.dtype)
    ufunc_at(np.add, made, (where, library_of_array(g).arange(g.shape[1])), g)
    return made[:rows]


def _bag_max_take(x: Any, where: Any) -> Any:
    rows = np.concatenate((x, np.zeros((1, x.shape[1]), x.dtype)))
    return rows[where, np.arange(x.shape[1])]


BAG_MAX = define(
    "bag_max",
    _bag_max,
    (lambda d, g: g[0].call("bag_max_put", d.outs[1], rows=d.x.shape[0]), _none),
    ("p", ""),
    backward="EmbeddingBagBackward0",
    outputs=2,
    differentiable=(0,),
)
define("bag_max_put", _bag_max_put, (lambda d, g: g.call("bag_max_take", d.y), _none), ("y", ""))
define("bag_max_take", _bag_max_take, (lambda d, g: g.call("bag_max_put", d.y, rows=d.x.shape[0]), _none), ("y", ""))

# -- checks ---------------------------------------------------------------------------------------------------------------


def _check_numbers(places: Tensor, who: str) -> None:
    if places.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(
            "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got "
            f"torch.{places.dtype.legacy} instead (while checking arguments for {who})"
        )


def _check_range(places: Tensor, rows: int) -> None:
    array = places._array
    if any_wrong((array < 0) | (array >= rows)):
        raise IndexError("index out of range in self")


def _renormalize(weight: Tensor, places: Tensor, max_norm: float, norm_type: float) -> None:
    """Rows that are used, and longer than `max_norm`, are shortened to that, in place."""
    used = places._array.reshape(-1)  # a row that is used twice is written twice, with the same numbers
    rows = weight._array[used]
    lengths = quiet(np.linalg.norm, (rows,), {"ord": norm_type, "axis": 1, "keepdims": True})
    factors = np.where(lengths > max_norm, max_norm / (lengths + 1e-7), 1).astype(rows.dtype)
    weight._array[used] = rows * factors
    written(weight)


def _padding(padding_idx: int | None, rows: int) -> int:
    """Counted from the front; -1 where there is none."""
    if padding_idx is None:
        return -1
    if not -rows <= padding_idx < rows:
        raise AssertionError("Padding_idx must be within num_embeddings")
    return padding_idx % rows


# -- functions --------------------------------------------------------------------------------------------------------------


@function(method=False, namespace="functional")
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table by their numbers; that of `padding_idx` has no gradient."""
    table, places = check_tensor(weight, "embedding", "weight"), check_tensor(input, "embedding", "indices", 2)
    padding = _padding(padding_idx, table._array.shape[0] if table._array.ndim else 0)
    if table._array.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    _check_numbers(places, "embedding")
    _check_range(places, table._array.shape[0])
    no_complex_gradient("embedding", table)
    if max_norm is not None:
        _renormalize(table, places, max_norm, norm_type)
    return apply(SPARSE_EMBEDDING if sparse else EMBEDDING, table, places, padding=padding, by_frequency=bool(scale_grad_by_freq))


@function("embedding", method=False)
def torch_embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    """``torch.embedding``: the table comes first."""
    return embedding(indices, weight, padding_idx if padding_idx >= 0 else None, None, 2.0, scale_grad_by_freq, sparse)


def _bags_of(offsets: Tensor, count: int, include_last_offset: bool) -> tuple[Any, int]:
    """The bag of each number, and how many bags there are."""
    if offsets._array.ndim != 1:
        raise ValueError("offsets has to be a 1D Tensor")
    starts = offsets._array
    if starts.size and any_wrong(starts[:1] != 0):
        raise RuntimeError(
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got "
            f"{int(starts[0])}"
        )
    if starts.size and any_wrong(starts[-1:] > count):
        raise RuntimeError(
            f"offsets[-1] can not be greater than input's length {count} but got offsets[-1] of {int(starts[-1])}"
        )
    number = starts.size
    if include_last_offset:
        if not number:
            raise RuntimeError("include_last_offset: number of offset should be at least 1")
        starts, number = starts[:-1], number - 1
    if any_wrong(starts[1:] < starts[:-1]):
        raise RuntimeError("offsets must not decrease")
    return np.searchsorted(starts, library_of_array(starts).arange(count), side="right") - 1, number


def _check_bag_arguments(x: Tensor, mode: str, by_frequency: bool, sparse: bool, weights: Tensor | None) -> None:
    if weights is not None and x._array.shape != weights._array.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({weights.shape}) is not None, then it must have the same shape as the input "
            f"({x.shape})"
        )
    if x._array.ndim not in (1, 2):
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {x._array.ndim}")
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and by_frequency:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if mode == "max" and sparse:
        raise ValueError("max mode does not support sparse weights")
    if weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
            f"mode='{mode}'). Please open a feature request on GitHub."
        )


@function(method=False, namespace="functional")
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of a table: of bags of them, which begin at `offsets` or are the rows of `input`."""
    x, table = check_tensor(input, "embedding_bag", "input", 2), check_tensor(weight, "embedding_bag", "weight")
    _check_bag_arguments(x, mode, scale_grad_by_freq, sparse, per_sample_weights)
    if x._array.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. "
                f"However, found offsets of type {type(offsets)}"
            )
        count, length = x._array.shape
        bags = np.repeat(library_of_array(x._array).arange(count), length)
    elif not isinstance(offsets, Tensor):
        raise ValueError(f"offsets has to be a 1D Tensor but got {offsets}")
    else:
        bags, count = _bags_of(offsets, x._array.size, include_last_offset)
    places = reshape(x, -1) if x._array.size else wrap(x._array.reshape(0))
    rows = table._array.shape[0]
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"padding_idx must be within the number of embeddings, {-rows} through {rows - 1}, but got {padding_idx}"
        )
    _check_numbers(places, "embedding_bag")
    array = places._array
    if any_wrong((array < 0) | (array >= rows)):
        raise RuntimeError(f"embedding_bag: every number must be at least 0 and less than {rows}, the number of embeddings")
    if max_norm is not None:
        _renormalize(table, places, max_norm, norm_type)
    weights = None if per_sample_weights is None else reshape(per_sample_weights, -1)
    if weights is not None and weights._array.dtype != table._array.dtype:
        raise RuntimeError(
            "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 'per_sample_weights'; but "
            f"type torch.{table.dtype.legacy} does not equal torch.{weights.dtype.legacy} (while checking arguments for "
            "embedding_bag)"
        )
    padding = -1
    if padding_idx is not None:
        padding = padding_idx % rows
        bags = np.where(array == padding, count, bags)
    if sparse:
        found = apply(SPARSE_EMBEDDING, table, places, padding=padding, by_frequency=bool(scale_grad_by_freq))
    else:  # the padding's rows are in no bag
        found = apply(EMBEDDING, table, places, padding=-1, by_frequency=bool(scale_grad_by_freq))
    return _bagged(found, wrap(bags), count, mode, weights)


def _bagged(rows: Tensor, bags: Tensor, count: int, mode: str, weights: Tensor | None) -> Tensor:
    if mode == "max":
        return apply(BAG_MAX, rows, bags, count=count)[0]
    if weights is not None:
        rows = mul(rows, unsqueeze(weights, 1))
    elif mode == "mean":
        sizes = np.bincount(bags._array, minlength=count + 1)
        shares = (1 / np.maximum(sizes, 1)).astype(np.float32 if is_half(rows._array.dtype) else rows._array.dtype)
        return cast(apply(BAG_SUM, mul(rows, wrap(shares[bags._array][:, None])), bags, count=count), rows.dtype)
    return apply(BAG_SUM, rows, bags, count=count)


@function(method=False, namespace="functional")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Ones at the places of classes in a new last dimension, zeros elsewhere."""
    x = check_tensor(tensor, "one_hot", "self")
    if x.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    num_classes = integer(num_classes)
    array = x._array
    if not array.size:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return made(library_of_array(array).zeros((*array.shape, num_classes), np.int64))
    if any_wrong(array < 0):
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        num_classes = int(array.max()) + 1
    elif any_wrong(array >= num_classes):
        raise RuntimeError("Class values must be smaller than num_classes.")
    return made((array[..., None] == library_of_array(array).arange(num_classes)).astype(np.int64))


__all__ = ["EMBEDDING"]
