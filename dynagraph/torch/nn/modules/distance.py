"""Distances and similarities of vectors."""

from __future__ import annotations

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.module import Module


class PairwiseDistance(Module):
    """The p-norm of ``x1 - x2 + eps``: (N, D) or (D,) to (N,) or a number, with `keepdim` to (N, 1) or (1,)."""

    __constants__ = ["norm", "eps", "keepdim"]  # noqa: RUF012

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """``x1 . x2 / (max(|x1|, eps) * max(|x2|, eps))`` along `dim`, which the result does not have."""

    __constants__ = ["dim", "eps"]  # noqa: RUF012

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


__all__ = ["CosineSimilarity", "PairwiseDistance"]
