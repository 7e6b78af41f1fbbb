"""``torch.signal.windows``: weights that fall towards the ends, by which parts of signals are multiplied.

With ``sym=False`` a window is one of M + 1 numbers without the last: periodic, for spectra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import dynagraph.torch as torch
from dynagraph.torch.missing import getattr_of


class _Options:
    """How many numbers of what dtype there are, on which device."""

    def __init__(self, name: str, M: int, sym: bool, about: dict[str, Any]):
        self.count, self.sym = M, sym
        layout = about.get("layout", torch.strided)
        self.dtype = about.get("dtype") or torch.get_default_dtype()
        if M < 0:
            raise ValueError(f"{name} requires non-negative window length, got M={M}")
        if layout is not torch.strided:
            raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
        if self.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{name} expects float32 or float64 dtypes, got: {self.dtype}")
        self.given = {"dtype": self.dtype, "device": about.get("device"), "requires_grad": about.get("requires_grad", False)}

    def full(self) -> int:
        """The numbers of the symmetric window that it is, or is a part of."""
        return self.count if self.sym or self.count <= 1 else self.count + 1

    def steps(self, start: Any, step: Any) -> Any:
        """Numbers at distances of `step`."""
        return torch.linspace(start=start * step, end=(start + (self.count - 1)) * step, steps=self.count, **self.given)

    def short(self) -> Any:
        """The window, where it has at most one number."""
        return torch.ones((self.count,), **self.given)


_MADE_OF_COSINES = ("general_hamming", "hamming", "hann", "nuttall")  # whose errors are those of `general_cosine`


def _window(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A function of options and parameters as one of sizes, dtypes and devices."""
    name = compute.__name__
    said = "general_cosine" if name in _MADE_OF_COSINES else name

    def window(M: int, *, sym: bool = True, dtype: Any = None, layout: Any = torch.strided, device: Any = None,
               requires_grad: bool = False, **parameters: Any) -> Any:  # fmt: skip
        about = {"dtype": dtype, "layout": layout, "device": device, "requires_grad": requires_grad}
        return compute(_Options(said, M, sym, about), **parameters)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = compute.__doc__
    return window


@_window
def exponential(o: _Options, center: float | None = None, tau: float = 1.0) -> Any:
    """``exp(-|n - center| / tau)``."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if o.sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if o.count == 0:
        return o.short()
    middle = (o.full() - 1) / 2.0 if center is None else center
    return torch.exp(-torch.abs(o.steps(-middle, 1 / tau)))


@_window
def cosine(o: _Options) -> Any:
    """Half a wave of a sine."""
    return torch.sin(o.steps(0.5, math.pi / o.full())) if o.count else o.short()


@_window
def gaussian(o: _Options, std: float = 1.0) -> Any:
    """The density of normal numbers of deviation `std`, 1 in the middle."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return torch.exp(-(o.steps(-(o.full() - 1) / 2.0, 1 / (std * math.sqrt(2))) ** 2)) if o.count else o.short()


@_window
def kaiser(o: _Options, beta: float = 12.0) -> Any:
    """Kaiser's window, of a Bessel function; `beta` says how far it falls."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if o.count <= 1:
        return o.short()
    edge = torch.tensor(beta, dtype=o.dtype, device=o.given["device"])
    end = torch.minimum(edge, (o.count - 1) * (2.0 * edge / (o.full() - 1)) - edge)
    places = torch.linspace(start=-edge, end=end, steps=o.count, **o.given)
    return torch.i0(torch.sqrt(edge * edge - torch.pow(places, 2))) / torch.i0(edge)


@_window
def bartlett(o: _Options) -> Any:
    """A triangle."""
    if o.count <= 1:
        return o.short()
    step = 2 / (o.full() - 1)
    return 1 - torch.abs(torch.linspace(start=-1, end=-1 + (o.count - 1) * step, steps=o.count, **o.given))


def _cosines(o: _Options, a: Any) -> Any:
    if o.count <= 1:
        return o.short()
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    places = torch.linspace(start=0, end=(o.count - 1) * (2 * math.pi / (o.full() - 1)), steps=o.count, **o.given)
    signed = torch.tensor([(-1) ** k * w for k, w in enumerate(a)], **o.given)
    order = torch.arange(signed.shape[0], **o.given)
    return (signed.unsqueeze(-1) * torch.cos(order.unsqueeze(-1) * places)).sum(0)


@_window
def general_cosine(o: _Options, a: Any) -> Any:
    """Cosines of no, one, two... waves, weighted by `a` with alternating signs."""
    return _cosines(o, a)


@_window
def general_hamming(o: _Options, alpha: float = 0.54) -> Any:
    """``alpha - (1 - alpha) * cos``, of one wave."""
    return _cosines(o, [alpha, 1.0 - alpha])


def _fixed(name: str, text: str, *a: float) -> Callable[..., Any]:
    """A sum of cosines of fixed weights."""

    def compute(o: _Options) -> Any:
        return _cosines(o, a)

    compute.__name__, compute.__doc__ = name, text
    return _window(compute)


hamming = _fixed("hamming", "Hamming's window: ``0.54 - 0.46 * cos``.", 0.54, 1.0 - 0.54)
hann = _fixed("hann", "Von Hann's window: ``(1 - cos) / 2``.", 0.5, 0.5)
blackman = _fixed("blackman", "Blackman's window, of two waves.", 0.42, 0.5, 0.08)
nuttall = _fixed("nuttall", "Nuttall's window, of three waves.", 0.3635819, 0.4891775, 0.1365995, 0.0106411)

__getattr__ = getattr_of(__name__)
__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
]  # fmt: skip
