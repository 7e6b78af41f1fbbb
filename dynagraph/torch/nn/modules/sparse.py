"""Embeddings: rows of a table by their numbers."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn import init
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.modules.utils import add_parameters


class _Table(Module):
    """What embeddings have: a weight (num_embeddings, embedding_dim), drawn from the normal distribution; the row at `padding_idx`
    is zero, and gets no gradient.  Rows longer than `max_norm`, by the norm of `norm_type`, are shortened when they are used."""

    weight: Tensor
    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    _padding_name = "Padding_idx"

    def _set_table(self, padding_idx: int | None, _weight: Tensor | None, frozen: bool, device: Any, dtype: Any) -> None:
        rows = self.num_embeddings
        if padding_idx is not None:
            if (padding_idx > 0 and padding_idx >= rows) or padding_idx < -rows:
                raise AssertionError(f"{self._padding_name} must be within num_embeddings")
            if padding_idx < 0:
                padding_idx += rows
        self.padding_idx = padding_idx
        if _weight is None:
            add_parameters(self, device, dtype, weight=(rows, self.embedding_dim))
            self.weight.requires_grad_(not frozen)
            self.reset_parameters()
        else:
            if list(_weight.shape) != [rows, self.embedding_dim]:
                raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
            self.weight = Parameter(_weight, requires_grad=not frozen)

    def reset_parameters(self) -> None:
        """Draw the weight anew."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)


class Embedding(_Table):
    """Rows of a table: indices (...) to (..., embedding_dim).

    `scale_grad_by_freq` divides gradients by how often an index occurs; `sparse` makes the weight's gradient a sparse tensor.

    >>> from dynagraph import torch
    >>> torch.nn.Embedding(10, 3)(torch.tensor([[1, 2, 4, 5], [4, 3, 2, 9]])).shape
    torch.Size([2, 4, 3])
    """

    __constants__ = [  # noqa: RUF012
        "num_embeddings", "embedding_dim", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse",
    ]  # fmt: skip

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False, _weight: Tensor | None = None,
        _freeze: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.max_norm, self.norm_type = num_embeddings, embedding_dim, max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self._set_table(padding_idx, _weight, _freeze, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.padding_idx is not None:
            text += f", padding_idx={self.padding_idx}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        return text if self.sparse is False else f"{text}, sparse=True"

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None, max_norm: float | None = None,
        norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
    ) -> Embedding:  # fmt: skip
        """An embedding whose table is a given matrix; it is not trained if `freeze`."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        return cls(
            num_embeddings=rows, embedding_dim=columns, _weight=embeddings, _freeze=freeze, padding_idx=padding_idx,
            max_norm=max_norm, norm_type=norm_type, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse,
        )  # fmt: skip


class EmbeddingBag(_Table):
    """Sums, means or maxima (`mode`) of rows of a table, without the rows themselves.

    Indices (B, N) are B bags; or (N,) with `offsets` (B,), where each bag begins (with `include_last_offset` (B + 1,), the last of
    them the end).  Gives (B, embedding_dim).  With mode "sum" rows may be weighted by `per_sample_weights`, of the indices' shape.
    Indices of `padding_idx` count for nothing.

    >>> from dynagraph import torch
    >>> bag = torch.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bag(torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])).shape
    torch.Size([2, 3])
    """

    __constants__ = [  # noqa: RUF012
        "num_embeddings", "embedding_dim", "max_norm", "norm_type", "scale_grad_by_freq", "mode", "sparse", "include_last_offset",
        "padding_idx",
    ]  # fmt: skip
    _padding_name = "padding_idx"

    def __init__(
        self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, _weight: Tensor | None = None,
        include_last_offset: bool = False, padding_idx: int | None = None, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.max_norm, self.norm_type = num_embeddings, embedding_dim, max_norm, norm_type
        self.scale_grad_by_freq, self.mode, self.sparse = scale_grad_by_freq, mode, sparse
        self.include_last_offset = include_last_offset
        self._set_table(padding_idx, _weight, False, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse,
            per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq is not False:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"

    @classmethod
    def from_pretrained(
        cls, embeddings: Tensor, freeze: bool = True, max_norm: float | None = None, norm_type: float = 2.0,
        scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:  # fmt: skip
        """An embedding bag whose table is a given matrix; it is not trained if `freeze`."""
        if embeddings.dim() != 2:
            raise AssertionError("Embeddings parameter is expected to be 2-dimensional")
        rows, columns = embeddings.shape
        made = cls(
            num_embeddings=rows, embedding_dim=columns, _weight=embeddings, max_norm=max_norm, norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq, mode=mode, sparse=sparse, include_last_offset=include_last_offset,
            padding_idx=padding_idx,
        )  # fmt: skip
        made.weight.requires_grad = not freeze
        return made


__all__ = ["Embedding", "EmbeddingBag"]
