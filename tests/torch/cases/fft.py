"""Rows of Fourier transforms, short-time transforms and windows."""

from __future__ import annotations

from typing import Any

from tests.torch.table import A, T, case, error, program

S: Any = {"_strides": False, "_dtypes": "float32 complex128 int64 bool float16", "_tolerance": 20}
R: Any = {**S, "_dtypes": "float32 int64"}
WINDOW: Any = {"_strides": False, "_dtypes": "float32", "_tolerance": 20}
ONLY: Any = {**WINDOW, "_dtypes": ""}
COMPLEX = T(4, 5, dtype="complex128")
HALF_SPECTRUM = T(5, 4, dtype="complex128")


def _istft(torch: Any, x: Any, window: Any, **options: Any) -> Any:
    return torch.istft(x, 8, 2, window=window, **options)


CASES = [
    *(case(f"fft.{name}", T(3, 4), **S) for name in ("fft", "ifft", "fft2", "ifft2", "fftn", "ifftn")),
    *(case(f"fft.{name}", T(3, 4), **R) for name in ("rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn")),
    *(case(f"fft.{name}", T(3, 4), **S) for name in ("irfft", "hfft", "irfft2", "hfft2", "irfftn", "hfftn")),
    *(case(f"fft.{name}", T(3, 5), n, dim, norm, **S) for name in ("fft", "ifft")
      for n, dim, norm in ((None, 0, "ortho"), (3, -1, "forward"), (8, 1, "backward"), (1, 0, None))),
    *(case(f"fft.{name}", T(3, 5), n, dim, norm, **R) for name in ("rfft", "ihfft")
      for n, dim, norm in ((None, 0, "ortho"), (3, -1, "forward"), (8, 1, "backward"), (1, 0, None), (4, 1, "ortho"))),
    *(case(f"fft.{name}", COMPLEX, n, dim, norm, **S) for name in ("irfft", "hfft")
      for n, dim, norm in ((None, 0, "ortho"), (3, -1, "forward"), (8, 1, "backward"), (12, 1, None), (7, 0, "ortho"))),
    *(case(f"fft.{name}", T(2, 3, 4), s, dim, norm, **S) for name in ("fftn", "ifftn", "irfftn", "hfftn")
      for s, dim, norm in (((3, 6), None, None), (None, (0, 2), "ortho"), ((4, 2), (2, 0), "forward"), ((-1, 5), (1, 2), None))),
    *(case(f"fft.{name}", T(2, 3, 4), s, dim, norm, **R) for name in ("rfftn", "ihfftn")
      for s, dim, norm in (((3, 6), None, None), (None, (0, 2), "ortho"), ((4, 2), (2, 0), "forward"), ((-1, 5), (1, 2), None))),
    *(case(f"fft.{name}", COMPLEX, s=(3, 6), norm="ortho", **S) for name in ("fft2", "ifft2", "irfft2", "hfft2")),
    case("fft.fft", T(4, 3, layout="T"), **S),
    case("fft.fft", T(4, 3, layout="step"), dim=0, **S),
    case("fft.fft", T(3, 4, dtype="float32"), **S),
    case("fft.rfft", T(3, 4, dtype="float32"), **S),
    case("fft.irfft", T(3, 4, dtype="complex64"), **S),
    error("fft.fft", T(4), 0, _text=True),
    error("fft.fft", T(), _text=True),
    error("fft.fft", T(4), norm="other", _text=True),
    error("fft.rfft", COMPLEX, _text=True),
    error("fft.ihfft", COMPLEX, _text=True),
    error("fft.rfftn", COMPLEX, _text=True),
    error("fft.fft", T(4, dtype="float16"), _text=True),
    error("fft.fftn", T(3, 3), dim=(0, 0), _text=True),
    error("fft.fftn", T(3, 3), s=(2,), dim=(0, 1), _text=True),
    error("fft.fftn", T(3, 3), s=(2, 2, 2), _text=True),
    error("fft.fft2", T(3), _text=True),
    error("fft.fft", T(3), dim=3, _text=True),
    error("fft.irfft", T(1), _text=True),
    case("fft.fftfreq", 5),
    case("fft.fftfreq", 4, 0.5, dtype=A("float64")),
    case("fft.rfftfreq", 5, d=2.0),
    case("fft.rfftfreq", 6),
    error("fft.fftfreq", -1, _text=True),
    *(case(f"fft.{name}", T(3, 4), dim, _dtypes="int64") for name in ("fftshift", "ifftshift") for dim in (None, 0, (0, 1))),
    # short-time transforms
    program("stft", lambda torch, x, w: torch.stft(x, 8, window=w, return_complex=True), T(2, 20), T(8), **WINDOW),
    program("stft of a vector", lambda torch, x, w: torch.stft(x, 8, 3, window=w, return_complex=True), T(20), T(8), **WINDOW),
    program("stft as pairs", lambda torch, x, w: torch.stft(x, 8, window=w, return_complex=False), T(20), T(8), **WINDOW),
    program("stft, short window", lambda torch, x, w: torch.stft(x, 8, win_length=5, window=w, return_complex=True), T(20), T(5), **WINDOW),
    program("stft, all frequencies", lambda torch, x, w: torch.stft(x, 8, window=w, onesided=False, normalized=True, return_complex=True),
            T(20), T(8), **WINDOW),
    program("stft, not centred", lambda torch, x, w: torch.stft(x, 8, window=w, center=False, return_complex=True), T(20), T(8), **WINDOW),
    program("stft, constant borders", lambda torch, x, w: torch.stft(x, 8, window=w, pad_mode="constant", return_complex=True),
            T(20), T(8), **WINDOW),
    program("stft of complex", lambda torch, x, w: torch.stft(x, 8, window=w), T(20, dtype="complex128"), T(8), **WINDOW),
    error("stft", T(20), 8, window=T(8), _text=True),
    error("stft", T(20), 8, window=T(5), return_complex=True),
    error("stft", T(20), 8, window=T(8), hop_length=0, return_complex=True),
    error("stft", T(3), 8, window=T(8), return_complex=True),
    error("stft", T(20), 8, window=T(8), return_complex=True, align_to_window=True, _text=True),
    program("istft", _istft, HALF_SPECTRUM, T(8, kind="positive"), **ONLY),
    program("istft of several", _istft, T(2, 5, 4, dtype="complex128"), T(8, kind="positive"), **ONLY),
    program("istft, length", lambda torch, x, w: _istft(torch, x, w, length=5), HALF_SPECTRUM, T(8, kind="positive"), **ONLY),
    program("istft, normalized", lambda torch, x, w: _istft(torch, x, w, normalized=True), HALF_SPECTRUM, T(8, kind="positive"), **ONLY),
    program("istft, all frequencies", lambda torch, x, w: _istft(torch, x, w, onesided=False), T(8, 4, dtype="complex128"),
            T(8, kind="positive"), **ONLY),
    program("istft, complex", lambda torch, x, w: _istft(torch, x, w, onesided=False, return_complex=True), T(8, 4, dtype="complex128"),
            T(8, kind="positive"), **ONLY),
    program("istft, complex window", lambda torch, x, w: _istft(torch, x, w + 0.5j, onesided=False, return_complex=True),
            T(8, 4, dtype="complex128"), T(8, kind="positive"), **ONLY),
    program("istft, not centred", lambda torch, x, w: _istft(torch, x, w, center=False), HALF_SPECTRUM, T(8, kind="positive"), **ONLY),
    error("istft", T(5, 4), 8, _text=True),
    error("istft", T(4, 4, dtype="complex128"), 8),
    *(case(name, n, periodic) for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window")
      for n, periodic in ((8, True), (7, False), (1, True), (0, True))),
    case("hamming_window", 6, True, 0.5, 0.5, dtype=A("float64")),
    case("kaiser_window", 6, False, 5.0, dtype=A("float64"), _tolerance=100),
    error("hann_window", -1),
    error("hann_window", 4, dtype=A("int64")),
]
