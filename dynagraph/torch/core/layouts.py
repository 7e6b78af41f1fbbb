"""Layouts: how the elements of a tensor lie in memory."""

from __future__ import annotations

import copyreg


class layout:
    """`torch.strided`, `torch.sparse_coo` and `torch.sparse_csr` are all there are here."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


copyreg.pickle(layout, layout.__reduce__)
strided, sparse_coo, sparse_csr = layout("strided"), layout("sparse_coo"), layout("sparse_csr")

__all__ = ["layout", "sparse_coo", "sparse_csr", "strided"]
