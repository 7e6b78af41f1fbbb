"""``torch.nn.attention.flex_attention``: attention whose scores and masks are functions of (batch, head, query, key).

The functions are called once, with indices that broadcast against one another, in place of once for each score: they are functions
of single elements.  A mask alone goes to the tiled program; with a function of scores all of these are in memory, as in PyTorch
outside of compiled code.
"""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.attention import WEIGHTS, attended_where
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn import functional as F

Mod = Callable[..., Any]
_BLOCK = 128
_torch = NAMESPACES["torch"]


class AuxRequest(NamedTuple):
    """What else `flex_attention` gives."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What else `flex_attention` gave."""

    lse: Any = None
    max_scores: Any = None


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Tensor:
    """Hides nothing."""
    return _torch["ones"]((), dtype=dtypes.bool, device=batch.device)  # type: ignore[no-any-return]


def _no_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask: a slice does not know which part of the whole it is. Set mask_mod anew, made "
        "of that of the BlockMask it was taken from."
    )


def _parameters(mod: Mod) -> int:
    """How many arguments it takes: 4 of a mask, 5 of a function of scores."""
    count = sum(p.default is p.empty for p in inspect.signature(mod).parameters.values())
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count


def _combined(mask_mods: tuple[Mod, ...], both: Callable[[Any, Any], Any], start: bool) -> Mod:
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = _torch["full"]((), start, device=b.device)
        for mod in mask_mods:
            result = both(result, mod(b, h, q_idx, kv_idx))
        return result

    return mask


def or_masks(*mask_mods: Mod) -> Mod:
    """True where any of them is."""
    return _combined(mask_mods, lambda a, b: a | b, False)


def and_masks(*mask_mods: Mod) -> Mod:
    """True where all of them are."""
    return _combined(mask_mods, lambda a, b: a & b, True)


def _indices(*sizes: int, device: Any) -> list[Any]:
    """The numbers of batches, heads, queries and keys, so that they broadcast."""
    found = []
    for k, n in enumerate(sizes):
        shape = [1] * len(sizes)
        shape[k] = n
        found.append(_torch["arange"](n, device=device).view(shape))
    return found


def create_mask(mod_fn: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None) -> Tensor:
    """The mask (B, H, Q_LEN, KV_LEN) that a function tells: True is what counts; of scores, what is not minus infinity."""
    shape = (B or 1, H or 1, Q_LEN, KV_LEN)
    places = _indices(*shape, device=device or "cpu")
    if _parameters(mod_fn) == 5:
        scores = mod_fn(_torch["zeros"](shape, device=device or "cpu"), *places)
        return ~_torch["isneginf"](scores).expand(shape)  # type: ignore[no-any-return]
    return mod_fn(*places).expand(shape)  # type: ignore[no-any-return]


# -- block masks ------------------------------------------------------------------------------------------------------------


def _ordered(dense: Any) -> tuple[Any, Any]:
    """How many blocks of each row there are, and their columns, these first."""
    int32 = dense.dtype
    order = _torch["argsort"](dense, dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(int32), order.to(int32).contiguous()


def _dense(counts: Any, columns: Any) -> Any:
    """The other way: 1 where there is a block."""
    places = _torch["arange"](columns.shape[-1], device=columns.device)
    listed = (places < counts.unsqueeze(-1)).to(columns.dtype)
    return _torch["zeros_like"](columns).scatter(-1, columns.long(), listed)


class BlockMask:
    """Which blocks of scores count: those in part, whose elements `mask_mod` tells, and those as a whole.

    `kv_num_blocks` (B, H, rows of blocks) and `kv_indices` (B, H, rows, columns) list the blocks of each row, `q_num_blocks` and
    `q_indices` those of each column; `full_...` the whole ones.
    """

    _TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
                "full_q_num_blocks", "full_q_indices")  # fmt: skip

    def __init__(
        self, seq_lengths: tuple[int, int], kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any, full_kv_indices: Any,
        q_num_blocks: Any, q_indices: Any, full_q_num_blocks: Any, full_q_indices: Any,
        BLOCK_SIZE: tuple[int, int] = (_BLOCK, _BLOCK), mask_mod: Mod = noop_mask,
    ) -> None:  # fmt: skip
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        self.seq_lengths, self.BLOCK_SIZE, self.mask_mod = seq_lengths, BLOCK_SIZE, mask_mod
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices

    @classmethod
    def from_kv_blocks(
        cls, kv_num_blocks: Any, kv_indices: Any, full_kv_num_blocks: Any = None, full_kv_indices: Any = None,
        BLOCK_SIZE: int | tuple[int, int] = _BLOCK, mask_mod: Mod | None = None, seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:  # fmt: skip
        """Of the lists of rows; those of columns are made of them."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        columns: list[Any] = [None] * 4
        if compute_q_blocks:
            columns[:2] = _ordered(_dense(kv_num_blocks, kv_indices).transpose(-2, -1))
            if full_kv_num_blocks is not None:
                columns[2:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices).transpose(-2, -1))
        rows = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices)
        return cls(seq_lengths, *rows, *columns, BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask)

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Lengths, tensors, sizes of blocks, function."""
        tensors = tuple(getattr(self, name) for name in self._TENSORS)
        if flatten:
            return (*self.seq_lengths, *tensors, *self.BLOCK_SIZE, self.mask_mod)
        return (self.seq_lengths, *tensors, self.BLOCK_SIZE, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, queries, keys)"""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """How many scores there would be."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """The share of scores that are in no block, in per cent."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """1 where there is a block: (B, H, rows, columns) of blocks."""
        found = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is not None:
            found = found | _dense(self.full_kv_num_blocks, self.full_kv_indices)
        return found  # type: ignore[no-any-return]

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of the blocks for each batch and head, of at most so many rows and columns."""
        dense = self.to_dense().numpy()  # type: ignore[attr-defined]
        *batch, rows, columns = dense.shape
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        steps = [max(1, -(-n // m)) for n, m in zip((rows, columns), most)]
        pictures = []
        for number, index in enumerate(itertools.product(*map(range, batch))):
            if number == limit:
                pictures.append("...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                                "You can also index (BlockMask[batch, head]) to choose a specific batch or head")  # fmt: skip
                break
            lines = [f"{index}"]
            for r in range(0, rows, steps[0]):
                shares = (dense[index][r : r + steps[0], c : c + steps[1]].mean() for c in range(0, columns, steps[1]))
                lines.append("".join(("█" if s == 1 else " " if s == 0 else "░") * 2 for s in shares))
            pictures.append("\n".join(lines) + "\n")
        return "\n".join(pictures)

    def __getitem__(self, index: Any) -> BlockMask:
        given = index if isinstance(index, tuple) else (index,)
        padded = (*given, slice(None), slice(None), slice(None))[:3]
        at = tuple(
            (slice(i + n, i + n + 1) if -n <= i < 0 else slice(i, i + 1)) if isinstance(i, int) else i
            for i, n in zip(padded, self.kv_num_blocks.shape[:3])
        )
        tensors = [None if t is None else t[at] for t in (getattr(self, name) for name in self._TENSORS[:4])]
        return BlockMask.from_kv_blocks(
            *tensors, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=_no_mask, seq_lengths=self.seq_lengths,
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left corner, as a mask for other lengths."""
        rows, columns = (-(-n // size) for n, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE))
        tensors: list[Any] = []
        for counts, places in ((self.kv_num_blocks, self.kv_indices), (self.full_kv_num_blocks, self.full_kv_indices)):
            cut = (None, None) if counts is None else _ordered(_dense(counts, places)[..., :rows, :columns])
            tensors += cut
        return self.from_kv_blocks(
            *tensors, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod, seq_lengths=(new_q_len, new_kv_len),
            compute_q_blocks=self.q_indices is not None,
        )  # fmt: skip

    def to(self, device: Any) -> BlockMask:
        """On another device."""
        tensors = (None if t is None else t.to(device) for t in (getattr(self, name) for name in self._TENSORS))
        return BlockMask(self.seq_lengths, *tensors, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        shapes = (f"    {name}={None if t is None else t.shape},\n" for name in self._TENSORS for t in (getattr(self, name),))
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        return (
            f"BlockMask(\n{''.join(shapes)}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n"
            f"    sparsity={self.sparsity():.2f}%,\n    mask_mod={name}\n)"
        )


def create_block_mask(
    mask_mod: Mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _BLOCK, _compile: bool = False, separate_full_blocks: bool = True,
) -> BlockMask:  # fmt: skip
    """The blocks in which a mask is True; None for `B` or `H`: it is the same for all.

    >>> from dynagraph.torch.nn.attention.flex_attention import create_block_mask
    >>> create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 256, 256).sparsity()
    25.0
    """
    if _parameters(mask_mod) != 4:
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask: Any = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    extra = [-n % m for n, m in zip(mask.shape[2:], size)]
    mask = F.pad(mask, (0, extra[1], 0, extra[0]))
    batch, heads, rows, columns = mask.shape
    counts = mask.view(batch, heads, rows // size[0], size[0], columns // size[1], size[1]).sum((3, 5))
    is_whole = (counts == size[0] * size[1]) & separate_full_blocks
    parts = ((counts > 0) & ~is_whole).int()
    whole = _ordered(is_whole.int()) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(*_ordered(parts), *whole, BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))


# -- attention --------------------------------------------------------------------------------------------------------------


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"Expect query and key/value to have the same embedding dimension but got E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if not query.dim() == key.dim() == value.dim() == 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    heads, groups = query.shape[1], key.shape[1]
    if not enable_gqa and heads != groups:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={groups}. "
            "Try setting enable_gqa=True for GQA."
        )
    if heads % groups:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={groups}."
        )
    if query.shape[0] != key.shape[0]:
        raise ValueError(
            f"Expect query and key/value to have the same batch size, or non-none block_mask, but got block_mask="
            f"{'None' if block_mask is None else 'one'}, Bq={query.shape[0]}, and Bkv={key.shape[0]}."
        )
    lengths = (query.shape[-2], key.shape[-2])
    if block_mask is None or block_mask.seq_lengths == lengths:
        return
    is_smaller = any(n > m for n, m in zip(lengths, block_mask.seq_lengths))
    size = "smaller" if is_smaller else "larger"
    raise ValueError(
        f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={lengths[0]} and kv_len={lengths[1]}. As "
        f"the block mask was created for a {size} length than you're using it for, you likely need to create a new block mask."
    )


def _repeated(x: Any, heads: int) -> Any:
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], 1)


def flex_attention(
    query: Tensor, key: Tensor, value: Tensor, score_mod: Mod | None = None, block_mask: BlockMask | None = None,
    scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options: Any = None, *,
    return_aux: AuxRequest | None = None,
) -> Any:  # fmt: skip
    """Attention with ``score_mod(score, batch, head, query, key)`` in place of each score, where the mask says that it counts.

    >>> from dynagraph import torch
    >>> from dynagraph.torch.nn.attention.flex_attention import flex_attention
    >>> q, k, v = torch.randn(3, 2, 4, 8, 16)
    >>> flex_attention(q, k, v, lambda score, b, h, i, j: score - (i - j).abs()).shape
    torch.Size([2, 4, 8, 16])
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux; use return_aux=AuxRequest(lse=True).")
    if return_lse:
        warnings.warn("return_lse is deprecated. Please use return_aux=AuxRequest(lse=True) instead.", FutureWarning, stacklevel=2)
    batch, heads, rows, _ = query.shape
    places = _indices(batch, heads, rows, key.shape[2], device=query.device)
    mask = None if block_mask is None or block_mask.mask_mod is noop_mask else block_mask.mask_mod(*places)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if score_mod is None and not return_lse and return_aux is None:
        return F.scaled_dot_product_attention(query, key, value, mask, scale=factor, enable_gqa=enable_gqa)
    q: Any = query
    scores = (q @ _repeated(key, heads).transpose(-2, -1)) * factor
    if scores._array.dtype.itemsize == 2:
        scores = scores.float()
    if score_mod is not None:
        scores = score_mod(scores, *places)
    if mask is not None:
        scores = attended_where(scores, mask)
    weights = apply(WEIGHTS, scores, axis=(3,))
    result = weights.to(query.dtype) @ _repeated(value, heads)  # type: ignore[attr-defined]
    if not return_lse and return_aux is None:
        return result
    sums = _torch["logsumexp"](scores, -1)
    sums = sums.masked_fill((scores == -np.inf).all(-1), -np.inf)
    if return_aux is None:
        return result, sums
    return result, AuxOutput(sums if return_aux.lse else None, scores.amax(-1) if return_aux.max_scores else None)


__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask",
    "or_masks",
]  # fmt: skip
__getattr__ = getattr_of(__name__)
