"""Sparse tensors as PyTorch prints them."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.layouts import sparse_coo, sparse_csr, strided
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions import printing

LAYOUT_NAMES = {strided: "Strided", sparse_coo: "Sparse", sparse_csr: "SparseCsr"}

def _part(name: str, x: Tensor, indent: int) -> str:
    prefix = f"{name}=tensor("
    array = x._array if isinstance(x._array, np.ndarray) else x._array.get()
    body = printing._numbers(array, indent + len(prefix)) if array.size else f"[], size={tuple(array.shape)}"
    return f"{prefix}{body})"


def text_of(x: Any) -> str:
    """As PyTorch prints it."""
    indent = len("tensor(")
    is_coo = x.layout is sparse_coo
    names = ("indices",) if is_coo else ("crow_indices", "col_indices")
    parts = [_part(n, p, indent) for n, p in zip(names, x._parts())]
    text = "tensor(" + (",\n" + " " * indent).join([*parts, _part("values", x._held, indent)])
    suffixes = [f"device='{x.device}'"] if x.is_cuda else []
    suffixes += [f"size={x._size}", f"nnz={x._nnz()}"]
    default = dtypes.get_default_dtype()
    if x.dtype not in (default, dtypes.int64, dtypes.bool, default.to_complex()):
        suffixes.append(f"dtype={x.dtype!r}")
    suffixes.append(f"layout={x.layout}")
    if x.grad_fn is not None:
        suffixes.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    length, forced = len(text) - text.rfind("\n") + 1, is_coo
    for suffix in suffixes:
        if forced or length + len(suffix) + 2 > printing.OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            length, forced = indent + len(suffix), False
        else:
            text += ", " + suffix
            length += len(suffix) + 2
    return text + ")"


__all__ = ["LAYOUT_NAMES", "text_of"]
