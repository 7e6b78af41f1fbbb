"""Products of groups of rows or columns with a matrix each."""

from __future__ import annotations

from itertools import pairwise

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import cast, check_tensor, function
from dynagraph.torch.functions.joining import cat, stack
from dynagraph.torch.functions.products import matmul


def _bounds(offsets: Tensor) -> list[tuple[int, int]]:
    if offsets.dtype is not dtypes.int32:
        raise RuntimeError("Offsets have to be int32")
    return list(pairwise([0, *map(int, offsets._array)]))


def _filled_up(parts: list[Tensor], whole: int, dim: int) -> Tensor:
    """The parts one behind the other, and zeros behind the last group."""
    found = cat(parts, dim)
    rest = list(found.shape)
    rest[dim] = whole - rest[dim]
    return found if not rest[dim] else cat([found, found.new_zeros(rest)], dim)


@function(method=False, namespace="functional")
def grouped_mm(
    mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: DType | None = None
) -> Tensor:
    """Products of groups: `offs` says where each group of a 2-D operand ends.

    (M, K) with (G, K, N): groups of rows, (M, N). (G, M, K) with (K, N): groups of columns, (M, N). (M, K) with (K, N): groups of
    what is summed over, (G, M, N). (G, M, K) with (G, K, N): no offsets, (G, M, N).
    """
    a, b = check_tensor(mat_a, "grouped_mm", "self"), check_tensor(mat_b, "grouped_mm", "mat2", 2)
    if not (2 <= a.dim() <= 3 and 2 <= b.dim() <= 3):
        raise RuntimeError("mat_a and mat_b have to be 2 or 3 dimensional")
    if (offs is None) != (a.dim() == 3 and b.dim() == 3):
        raise RuntimeError("Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d")
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if offs is None:
        found = matmul(a, b)
    elif a.dim() == 2 and b.dim() == 2:
        found = stack([matmul(a[:, i:j], b[i:j]) for i, j in _bounds(offs)])
    elif a.dim() == 2:
        found = _filled_up([matmul(a[i:j], b[k]) for k, (i, j) in enumerate(_bounds(offs))], a.shape[0], 0)
    else:
        found = _filled_up([matmul(a[k], b[:, i:j]) for k, (i, j) in enumerate(_bounds(offs))], b.shape[1], 1)
    return found if out_dtype is None else cast(found, out_dtype)
