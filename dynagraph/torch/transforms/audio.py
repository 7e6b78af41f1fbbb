"""Transforms of sounds: windows, and spectrograms by short-time Fourier transforms, with torchaudio's names and arguments.

Sounds are tensors (..., time).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dynagraph import torch
from dynagraph.torch import Tensor, nn


def windows(sound: Tensor, size: int, step: int) -> Tensor:
    """Pieces of `size` samples, one each `step`: (..., time) to (..., count, size), a view.

    >>> from dynagraph import torch
    >>> windows(torch.arange(6), 4, 2)
    tensor([[0, 1, 2, 3],
            [2, 3, 4, 5]])
    """
    if sound.shape[-1] < size:
        raise ValueError(f"expected a sound of at least {size} samples, but got {sound.shape[-1]}")
    return sound.unfold(-1, size, step)


class RandomWindow(nn.Module):
    """A piece of `size` samples from a random place; sounds that are shorter are followed by zeros."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, sound: Tensor) -> Tensor:
        rest = sound.shape[-1] - self.size
        if rest < 0:
            return nn.functional.pad(sound, [0, -rest])
        start = int(torch.randint(0, rest + 1, (1,)).item())
        return sound[..., start : start + self.size]

    def extra_repr(self) -> str:
        return f"size={self.size}"


class Spectrogram(nn.Module):
    """(..., time) to (..., n_fft / 2 + 1, frames): absolute values to the `power`, or complex numbers with None.

    `normalized` divides by the root of the window's energy.  Frames are `hop_length` samples apart, by default half a window; with
    `center` they reach over the ends, where the sound is continued as `pad_mode` says.

    >>> from dynagraph import torch
    >>> Spectrogram(n_fft=16)(torch.zeros(2, 64)).shape
    torch.Size([2, 9, 9])
    """

    window: Tensor

    def __init__(
        self, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None, pad: int = 0,
        window_fn: Callable[..., Tensor] | None = None, power: float | None = 2.0, normalized: bool = False, center: bool = True,
        pad_mode: str = "reflect", onesided: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.n_fft, self.pad, self.power, self.normalized = n_fft, pad, power, normalized
        self.center, self.pad_mode, self.onesided = center, pad_mode, onesided
        self.win_length = n_fft if win_length is None else win_length
        self.hop_length = self.win_length // 2 if hop_length is None else hop_length
        self.register_buffer("window", (torch.hann_window if window_fn is None else window_fn)(self.win_length))

    def forward(self, waveform: Tensor) -> Tensor:
        sound: Any = nn.functional.pad(waveform, [self.pad, self.pad]) if self.pad else waveform
        shape = sound.shape
        spectrum = torch.stft(
            sound.reshape(-1, shape[-1]), self.n_fft, self.hop_length, self.win_length, self.window, self.center, self.pad_mode,
            False, self.onesided, return_complex=True,
        )  # fmt: skip
        spectrum = spectrum.reshape(*shape[:-1], *spectrum.shape[-2:])
        if self.normalized:
            spectrum = spectrum / self.window.square().sum().sqrt()
        if self.power is None:
            return spectrum
        return spectrum.abs() if self.power == 1.0 else spectrum.abs().pow(self.power)


def _mel(frequency: float) -> float:
    """O'Shaughnessy's mel scale, as in HTK."""
    return 2595.0 * math.log10(1.0 + frequency / 700.0)


class MelScale(nn.Module):
    """(..., n_stft, frames) to (..., n_mels, frames): sums over triangles that are evenly spaced on the mel scale (HTK's)."""

    fb: Tensor

    def __init__(
        self, n_mels: int = 128, sample_rate: int = 16000, f_min: float = 0.0, f_max: float | None = None, n_stft: int = 201
    ) -> None:
        super().__init__()
        top = sample_rate // 2 if f_max is None else f_max
        if f_min > top:
            raise ValueError(f"Require f_min: {f_min} <= f_max: {top}")
        frequencies = torch.linspace(0, sample_rate // 2, n_stft)
        points = 700.0 * (10.0 ** (torch.linspace(_mel(f_min), _mel(top), n_mels + 2) / 2595.0) - 1.0)
        widths = points[1:] - points[:-1]
        slopes = points[None, :] - frequencies[:, None]
        rising, falling = -slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]
        self.register_buffer("fb", torch.minimum(rising, falling).clamp(min=0.0))
        self.n_mels, self.sample_rate, self.f_min, self.f_max = n_mels, sample_rate, f_min, float(top)

    def forward(self, specgram: Tensor) -> Tensor:
        return (specgram.transpose(-1, -2) @ self.fb).transpose(-1, -2)


class MelSpectrogram(nn.Module):
    """(..., time) to (..., n_mels, frames): `Spectrogram`, then `MelScale`.

    >>> from dynagraph import torch
    >>> MelSpectrogram(sample_rate=8000, n_fft=64, n_mels=10)(torch.zeros(320)).shape
    torch.Size([10, 11])
    """

    def __init__(
        self, sample_rate: int = 16000, n_fft: int = 400, win_length: int | None = None, hop_length: int | None = None,
        f_min: float = 0.0, f_max: float | None = None, n_mels: int = 128, power: float = 2.0, normalized: bool = False,
        center: bool = True, pad_mode: str = "reflect",
    ) -> None:  # fmt: skip
        super().__init__()
        about = {"power": power, "normalized": normalized, "center": center, "pad_mode": pad_mode}
        self.spectrogram = Spectrogram(n_fft, win_length, hop_length, **about)
        self.mel_scale = MelScale(n_mels, sample_rate, f_min, f_max, n_fft // 2 + 1)

    def forward(self, waveform: Tensor) -> Tensor:
        return self.mel_scale(self.spectrogram(waveform))


class AmplitudeToDB(nn.Module):
    """Decibels of a `stype` "power" or "magnitude", of which at most `top_db` below the largest are kept."""

    def __init__(self, stype: str = "power", top_db: float | None = None) -> None:
        super().__init__()
        if stype not in ("power", "magnitude"):
            raise ValueError(f"stype: expected 'power' or 'magnitude', but got {stype!r}")
        if top_db is not None and top_db < 0:
            raise ValueError("top_db must be positive value")
        self.stype, self.top_db = stype, top_db
        self.multiplier = 10.0 if stype == "power" else 20.0

    def forward(self, x: Tensor) -> Tensor:
        decibels = self.multiplier * x.clamp(min=1e-10).log10()
        if self.top_db is None:
            return decibels
        dims = tuple(range(-min(x.dim(), 3), 0))  # of each sample of a batch (N, C, F, T)
        return torch.maximum(decibels, decibels.amax(dims, keepdim=True) - self.top_db)


__all__ = ["AmplitudeToDB", "MelScale", "MelSpectrogram", "RandomWindow", "Spectrogram", "windows"]
