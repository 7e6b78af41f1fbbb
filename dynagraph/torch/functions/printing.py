"""How tensors are shown: as PyTorch prints them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.batching import BatchedArray
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import function


class _Options:
    precision = 4
    threshold: float = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


OPTIONS = _Options()


@function(method=False)
def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None, linewidth: int | None = None,
    profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Set how tensors are shown; `profile` is "default", "short" or "full"."""
    if profile is not None:
        chosen: tuple[int, float, int] = {"default": (4, 1000, 3), "short": (2, 1000, 2), "full": (4, math.inf, 3)}[profile]
        OPTIONS.precision, OPTIONS.threshold, OPTIONS.edgeitems = chosen
        OPTIONS.linewidth = 80
    for name, value in (("precision", precision), ("threshold", threshold), ("edgeitems", edgeitems), ("linewidth", linewidth)):
        if value is not None:
            setattr(OPTIONS, name, value)
    OPTIONS.sci_mode = sci_mode


class _Format:
    """How the numbers of a tensor are written: all of one width."""

    def __init__(self, array: np.ndarray):
        self.is_float = array.dtype.kind in "fV"
        self.whole, self.scientific, self.width = True, False, 1
        values = array.reshape(-1)
        if not self.is_float:
            for value in values.tolist():
                self.width = max(self.width, len(str(value)))
            return
        wide = values.astype(np.float64)
        kept = wide[np.isfinite(wide) & (wide != 0)]
        if not kept.size:  # as in PyTorch, zeros and what is not finite does not widen the columns
            return
        sizes = np.abs(kept)
        low, high = sizes.min(), sizes.max()
        self.whole = bool((kept == np.ceil(kept)).all())
        if self.whole:
            self.scientific = bool(high / low > 1000.0 or high > 1.0e8)
        else:
            self.scientific = bool(high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4)
        if OPTIONS.sci_mode is not None:
            self.scientific = OPTIONS.sci_mode
        self.width = max(self.width, *(len(self._text(v)) for v in kept.tolist()))

    def _text(self, value: float) -> str:
        if not math.isfinite(value):
            return str(value)
        if self.scientific:
            return f"{value:.{OPTIONS.precision}e}"
        if self.whole:
            return f"{value:.0f}."
        return f"{value:.{OPTIONS.precision}f}"

    def text(self, value: Any) -> str:
        written = self._text(value) if self.is_float else str(value)
        return written.rjust(self.width)


def _summarized(array: np.ndarray) -> np.ndarray:
    """The corners of an array that is too large to be shown."""
    edge = OPTIONS.edgeitems
    for axis, n in enumerate(array.shape):
        if n > 2 * edge:
            index = np.r_[0:edge, n - edge : n]
            array = np.take(array, index, axis)
    return array


def _vector(items: list[Any], indent: int, write: Any, width: int, summarize: bool) -> str:
    per_line = max(1, (OPTIONS.linewidth - indent) // (width + 2))
    if summarize and len(items) > 2 * OPTIONS.edgeitems:
        texts = [*map(write, items[: OPTIONS.edgeitems]), " ...", *map(write, items[-OPTIONS.edgeitems :])]
    else:
        texts = list(map(write, items))
    lines = [texts[k : k + per_line] for k in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(", ".join(line) for line in lines) + "]"


def _nested(array: np.ndarray, indent: int, write: Any, width: int, summarize: bool) -> str:
    if array.ndim == 0:
        return write(array.item())
    if array.ndim == 1:
        return _vector(array.tolist(), indent, write, width, summarize)
    rows: list[np.ndarray | None] = list(array)
    if summarize and len(rows) > 2 * OPTIONS.edgeitems:
        rows = [*rows[: OPTIONS.edgeitems], None, *rows[-OPTIONS.edgeitems :]]
    texts = ["..." if row is None else _nested(row, indent + 1, write, width, summarize) for row in rows]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(texts) + "]"


def _numbers(array: np.ndarray, indent: int) -> str:
    if not array.size:
        return "[" * max(array.ndim, 1) + "]" * max(array.ndim, 1) if array.ndim <= 1 else "[]"
    summarize = array.size > OPTIONS.threshold
    shown = _summarized(array) if summarize else array
    if array.dtype.kind == "c":
        real, imaginary = _Format(shown.real), _Format(shown.imag)

        def write(value: complex) -> str:
            first, second = real.text(value.real), imaginary.text(value.imag).lstrip()
            return f"{first}{second}j" if second.startswith("-") else f"{first}+{second}j"

        return _nested(array, indent, write, real.width + imaginary.width + 1, summarize)
    form = _Format(shown)
    plain = array.astype(np.float32) if array.dtype.kind == "V" else array
    return _nested(plain, indent, form.text, form.width, summarize)


def text_of(self: Tensor) -> str:
    if isinstance(self._array, BatchedArray):  # within `vmap`
        inner = text_of(wrap(self._array.physical)).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={self._array.level}, bdim=0, value=\n    {inner}\n)"
    prefix = "tensor(" if type(self) in (Tensor, Parameter) else f"{type(self).__name__}("
    indent = len(prefix)
    array = self._array if isinstance(self._array, np.ndarray) else self._array.get()
    suffixes: list[str] = []
    if not isinstance(self._array, np.ndarray):
        suffixes.append(f"device='{self.device}'")
    plain = (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool, dtypes.get_default_dtype().to_complex())
    if not array.size:
        if array.ndim != 1:
            suffixes.append(f"size={tuple(array.shape)}")
        if self.dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={self.dtype!r}")
        body = "[]"
    else:
        if self.dtype not in plain:
            suffixes.append(f"dtype={self.dtype!r}")
        body = _numbers(array, indent)
    try:
        node = self.grad_fn
        name = None if node is None else node.name()
    except RuntimeError:  # a view that must not be used any more
        name = "Invalid"
    if name is not None:
        suffixes.append(f"grad_fn=<{name}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    text = prefix + body
    length = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if length + len(suffix) + 2 > OPTIONS.linewidth:
            text += ",\n" + " " * indent + suffix
            length = indent + len(suffix)
        else:
            text += ", " + suffix
            length += len(suffix) + 2
    return text + ")"


def _repr(self: Tensor, *, tensor_contents: Any = None) -> str:
    return text_of(self)


Tensor.__repr__ = _repr  # type: ignore[method-assign]
Tensor.__str__ = _repr  # type: ignore[method-assign]

__all__ = ["OPTIONS", "set_printoptions", "text_of"]
