"""Spectra of short windows of a signal (`stft`, `istft`), and the windows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, made
from dynagraph.torch.functions.arithmetic import div, mul
from dynagraph.torch.functions.common import check_tensor, function, integer
from dynagraph.torch.functions.creation import finish
from dynagraph.torch.functions.fft import fft, ifft, irfft, rfft
from dynagraph.torch.functions.padding import pad
from dynagraph.torch.functions.shapes import expand, squeeze, transpose, unsqueeze
from dynagraph.torch.functions.special_arrays import i0
from dynagraph.torch.functions.splitting import narrow, view_as_real

# -- windows ----------------------------------------------------------------------------------------------------------


def _window(name: str, compute: Callable[..., Any], *defaults: float) -> None:
    """A function of the window's length: `compute` gives its values at the numbers from 0 to `last`, in float64."""

    def of(
        window_length: int, periodic: bool = True, *parameters: float, dtype: DType | None = None, layout: Any = None,
        device: Any = None, pin_memory: bool = False, requires_grad: bool = False, **named: float,
    ) -> Tensor:  # fmt: skip
        kind = dtypes.get_default_dtype() if dtype is None else dtype
        if kind.category != 2:
            raise RuntimeError(f"{name}() expects floating point dtypes, got: {kind}")
        window_length = integer(window_length)
        if window_length < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
        values = list(parameters) + list(defaults[len(parameters) :])
        for k, parameter in enumerate(_PARAMETERS.get(name, ())):
            values[k] = named.pop(parameter, values[k])
        if named:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(named))}'")
        last = window_length if periodic else window_length - 1
        array = compute(np.arange(window_length), last, *values) if window_length > 1 else np.ones(window_length)
        return finish(array.astype(kind.numpy), device, requires_grad, pin_memory)

    of.__name__ = of.__qualname__ = name
    of.__doc__ = f"``torch.{name}``: the values of a window; periodic ones leave out the last of one more."
    function(name, method=False)(of)


_PARAMETERS = {"hamming_window": ("alpha", "beta"), "kaiser_window": ("beta",)}


def _cosine(n: Any, last: int, k: int = 1) -> Any:
    return np.cos(n * (2 * math.pi * k / last))


def _kaiser(n: Any, last: int, beta: float) -> Any:
    return i0(beta * np.sqrt(1 - (2 * n / last - 1) ** 2)) / i0(np.full((), beta))


_window("hann_window", lambda n, last: 0.5 - 0.5 * _cosine(n, last))
_window("hamming_window", lambda n, last, alpha, beta: alpha - beta * _cosine(n, last), 0.54, 0.46)
_window("blackman_window", lambda n, last: 0.42 - 0.5 * _cosine(n, last) + 0.08 * _cosine(n, last, 2))
_window("bartlett_window", lambda n, last: 1 - np.abs(2 * n / last - 1))
_window("kaiser_window", _kaiser, 12.0)

# -- short-time transforms --------------------------------------------------------------------------------------------


def _frames(x: Any, size: int, step: int) -> Any:
    """Pieces of the last dimension, each `step` after the one before."""
    library = library_of_array(x)
    starts = library.arange((x.shape[-1] - size) // step + 1) * step
    return x[..., starts[:, None] + library.arange(size)]


def _overlapped(frames: Any, length: int, step: int) -> Any:
    """The sum of pieces, each where it was taken from."""
    count, size = frames.shape[-2:]
    total = library_of_array(frames).zeros((*frames.shape[:-2], length), frames.dtype)
    if count < size:
        for k in range(count):
            total[..., k * step : k * step + size] += frames[..., k, :]
    else:  # at one place of each piece these do not overlap
        for k in range(size):
            total[..., k : k + step * (count - 1) + 1 : step] += frames[..., k]
    return total


FRAMES = define(
    "frames",
    _frames,
    (lambda d, g: g.call("overlapped_frames", length=d.x.shape[-1], step=d.attrs["step"]),),
    ("",),
    backward="AsStridedBackward0",
)
OVERLAPPED = define(
    "overlapped_frames",
    _overlapped,
    (lambda d, g: g.call("frames", size=d.x.shape[-1], step=d.attrs["step"]),),
    ("",),
    backward="UnfoldBackwardBackward0",
)


def _told(x: Tensor) -> str:
    name = dtypes.of_numpy(x._array.dtype).legacy
    return f"torch.{name}{list(x._array.shape)}"


def _whole_window(window: Tensor | None, win_length: int, n_fft: int, like: Tensor) -> Tensor | None:
    """The window with zeros on both sides to the length of a transform; None is one of ones."""
    if window is None:
        if win_length == n_fft:
            return None
        window = made(library_of_array(like._array).ones(win_length, like._array.real.dtype))
    left = (n_fft - win_length) // 2
    return window if win_length == n_fft else pad(window, (left, n_fft - win_length - left))


def _lengths(x: Tensor, n_fft: int, hop: int | None, win: int | None, window: Tensor | None, who: str) -> tuple[int, int]:
    hop = n_fft // 4 if hop is None else hop
    win = n_fft if win is None else win
    about = f"{who}({_told(x)}, n_fft={n_fft}, hop_length={hop}, win_length={win})"
    if hop <= 0:
        raise RuntimeError(f"{about}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        raise RuntimeError(f"{about}: expected 0 < win_length <= n_fft, but got win_length={win}")
    if window is not None and window._array.shape != (win,):
        raise RuntimeError(
            f"{about}: expected a 1D window tensor of size equal to win_length={win}, but got window with size "
            f"{list(window._array.shape)}"
        )
    return hop, win


@function("stft")
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of windows of a signal, each `hop_length` after the one before: frequencies by windows."""
    x = check_tensor(input, "stft", "input")
    n_fft, hop_length, win_length = integer(n_fft), integer(hop_length), integer(win_length)
    is_complex = x._array.dtype.kind == "c" or (window is not None and window._array.dtype.kind == "c")
    if return_complex is None:
        if not is_complex:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will further require that "
                "return_complex=True in a future PyTorch release."
            )
        return_complex = True
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if x._array.dtype.kind not in "fc" or is_half(x._array.dtype):
        raise RuntimeError(f"stft({_told(x)}, n_fft={n_fft}): expected a tensor of floating point or complex values")
    ndim = x._array.ndim
    if ndim not in (1, 2):
        raise RuntimeError(f"stft({_told(x)}, n_fft={n_fft}): expected a 1D or 2D tensor")
    hop, win = _lengths(x, n_fft, hop_length, win_length, window, "stft")
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage. Other "
            "windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage.To suppress this "
            "warning and use a rectangular window, explicitly set `window=torch.ones(n_fft, device=<device>)`.",
            UserWarning,
            stacklevel=2,
        )
    x = unsqueeze(x, 0) if ndim == 1 else x
    if center:
        x = squeeze(pad(unsqueeze(x, 1), (n_fft // 2, n_fft // 2), mode=pad_mode), 1)
    size = win if align_to_window else n_fft
    if not 0 < n_fft <= x._array.shape[-1]:
        raise RuntimeError(f"stft({_told(x)}, n_fft={n_fft}): expected 0 < n_fft <= {x._array.shape[-1]}, but got n_fft={n_fft}")
    whole = _whole_window(window, win, n_fft, x) if not align_to_window else window
    frames = apply(FRAMES, x, size=size, step=hop)
    if whole is not None:
        frames = mul(frames, whole)
    if align_to_window and size < n_fft:
        frames = pad(frames, (0, n_fft - size))
    if onesided is None:
        onesided = not is_complex
    elif onesided and is_complex:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    norm = "ortho" if normalized else None
    spectrum = transpose(rfft(frames, norm=norm) if onesided else fft(frames, norm=norm), -1, -2)
    if ndim == 1:
        spectrum = squeeze(spectrum, 0)
    return spectrum if return_complex else view_as_real(spectrum)


@function("istft")
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal that has these transforms of its windows, by least squares (D. Griffin and J. Lim, IEEE Trans. ASSP 32, 1984)."""
    x = check_tensor(input, "istft", "input")
    n_fft, hop_length, win_length = integer(n_fft), integer(hop_length), integer(win_length)
    if x._array.dtype.kind != "c":
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    about = f"istft({_told(x)}, n_fft={n_fft})"
    if not x._array.size:
        raise RuntimeError(f"{about}: input tensor cannot be empty.")
    ndim = x._array.ndim
    if ndim not in (2, 3):
        raise RuntimeError(f"{about}: expected a tensor with 2 or 3 dimensions, but got {ndim}")
    hop, win = _lengths(x, n_fft, hop_length, win_length, window, "istft")
    x = unsqueeze(x, 0) if ndim == 2 else x
    bins, count = x._array.shape[-2:]
    if onesided is None:
        onesided = bins != n_fft
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        match = "n_fft / 2 + 1 when onesided=True" if onesided else "n_fft when onesided=False"
        raise RuntimeError(
            f"{about}: expected the frequency dimension (3rd to the last) of the input tensor to match {match}, but got {bins}"
        )
    if return_complex and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    if not return_complex and window is not None and window._array.dtype.kind == "c":
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    whole = _whole_window(window, win, n_fft, x)
    if whole is None:
        whole = made(library_of_array(x._array).ones(n_fft, x._array.real.dtype))
    norm = "ortho" if normalized else None
    frames = transpose(x, -1, -2)
    if return_complex:
        frames = ifft(frames, norm=norm)
    else:  # of all frequencies, too, one half is read
        frames = irfft(narrow(frames, -1, 0, n_fft // 2 + 1), n_fft, norm=norm)
    total = n_fft + hop * (count - 1)
    signal = apply(OVERLAPPED, mul(frames, whole), length=total, step=hop)
    squares = expand(mul(whole, whole), (1, count, n_fft))  # of complex windows, too, as PyTorch has it
    weights = apply(OVERLAPPED, squares, length=total, step=hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - n_fft // 2 if center else total
    kept = min(end, total) - start
    signal, weights = narrow(signal, 1, start, kept), narrow(weights, 1, start, kept)
    if kept and not np.abs(weights._array).min() > 1e-11:
        raise RuntimeError(f"{about}: window overlap add min: 1")
    signal = div(signal, weights)
    if ndim == 2:
        signal = squeeze(signal, 0)
    if end > total:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please "
            "check your center and hop_length settings.",
            UserWarning,
            stacklevel=2,
        )
        signal = pad(signal, (0, end - total))
    return signal


__all__ = ["istft", "stft"]
