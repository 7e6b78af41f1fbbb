"""Transforms: images as torchvision changed them (record.py), sounds against their formulas, errors, and workers' seeds."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch import transforms
from dynagraph.torch.utils.data import DataLoader, Dataset
from tests.torch.transforms.cases import KINDS, cases, image_of, run
from tests.torch.transforms.record import FILE

MODULES = sorted(f"{transforms.__name__}.{m.name}" for m in pkgutil.iter_modules(transforms.__path__))


def test_examples_run() -> None:
    for module in (transforms.__name__, *MODULES):
        assert doctest.testmod(importlib.import_module(module)).failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_as_torchvision_changes_them(kind: str) -> None:
    if kind == "pillow":
        pytest.importorskip("PIL")
    before = torch.random.is_torch_compatible()
    torch.random.torch_compatible(True)
    try:
        with np.load(FILE) as recorded:
            for name, case in cases(kind).items():
                expected, got = recorded[f"{kind}|{name}"], run(torch, transforms, case, kind)
                assert got.dtype == expected.dtype and got.shape == expected.shape, name
                if got.dtype == np.uint8:  # what is interpolated to a half and an ulp is rounded to either side
                    difference = np.abs(got.astype(int) - expected)
                    assert difference.max() <= 1 and np.count_nonzero(difference) <= 0.01 * got.size, name
                else:
                    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6, err_msg=name)
    finally:
        torch.random.torch_compatible(before)


def test_arrays_become_tensors() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    assert transforms.ToTensor()(array).shape == (3, 2, 4)
    assert transforms.ToTensor()(array)[2, 1, 3] == torch.tensor(23) / 255
    assert transforms.ToTensor()(array[..., 0].astype(np.int32)).dtype == torch.int32


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: transforms.ToTensor()(torch.zeros(1)), TypeError, "pic should be PIL Image or ndarray"),
        (lambda: transforms.Normalize([0], [1])(torch.zeros(1, 2, 2).byte()), TypeError, "should be a float tensor. Got torch.u"),
        (lambda: transforms.Normalize([0.0], [0.0])(torch.zeros(1, 2, 2)), ValueError, "std evaluated to zero"),
        (lambda: transforms.RandomCrop(5)(torch.zeros(1, 4, 4)), ValueError, r"Required crop size \(5, 5\) is larger .* \(4, 4\)"),
        (lambda: transforms.ColorJitter(hue=0.7), ValueError, "hue values should be between"),
        (lambda: transforms.Resize(3)([1, 2]), TypeError, "img should be PIL Image or Tensor"),
        (lambda: transforms.Pad(1, padding_mode="mirror"), ValueError, "Padding mode should be either"),
        (lambda: transforms.windows(torch.zeros(3), 4, 1), ValueError, "at least 4 samples, but got 3"),
    ],
)
def test_errors(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_texts() -> None:
    composed = transforms.Compose([transforms.Resize(4), transforms.CenterCrop(3), transforms.ToTensor()])
    resize = "Resize(size=4, interpolation=bilinear, max_size=None, antialias=True)"
    assert repr(composed) == f"Compose(\n    {resize}\n    CenterCrop(size=(3, 3))\n    ToTensor()\n)"
    assert repr(transforms.RandomRotation(5)) == "RandomRotation(degrees=[-5.0, 5.0], interpolation=nearest, expand=False, fill=0)"


# -- sounds -----------------------------------------------------------------------------------------------------------


def test_spectrograms() -> None:
    sound = np.sin(np.arange(64) * 2 * np.pi * 5 / 16)
    spectrogram = transforms.Spectrogram(16, hop_length=8, center=False).double()
    got = spectrogram(torch.from_numpy(sound)).numpy()
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(16) / 16)
    pieces = np.stack([sound[k : k + 16] * window for k in range(0, 49, 8)], 1)
    np.testing.assert_allclose(got, np.abs(np.fft.rfft(pieces, axis=0)) ** 2, atol=1e-5)  # (the window is float32)
    assert (got.argmax(0) == 5).all()
    assert transforms.Spectrogram(16, power=None)(torch.zeros(2, 3, 40)).dtype == torch.complex64


def test_mel_spectrograms_and_decibels() -> None:
    scale = transforms.MelScale(6, 8000, n_stft=33)
    assert scale.fb.shape == (33, 6) and (scale.fb.amax(0) > 0.5).all() and (scale.fb >= 0).all()
    peaks = scale.fb.argmax(0) * (4000 / 32)
    mel = 2595 * np.log10(1 + peaks.numpy() / 700)
    np.testing.assert_allclose(mel, np.linspace(0, 2595 * math.log10(1 + 4000 / 700), 8)[1:-1], atol=130)
    decibels = transforms.AmplitudeToDB("power", top_db=30)(torch.tensor([[[[1.0, 1e-2, 1e-9]]]]))
    np.testing.assert_allclose(decibels.numpy().ravel(), [0, -20, -30], atol=1e-5)


class Noisy(Dataset):
    """Samples that are chosen by random numbers."""

    def __init__(self) -> None:
        self.crop = transforms.Compose([transforms.RandomCrop((2, 2)), transforms.RandomHorizontalFlip()])

    def __getitem__(self, index: int) -> Any:
        return self.crop(torch.arange(100).reshape(1, 10, 10))

    def __len__(self) -> int:
        return 8


def test_workers_draw_different_numbers_and_the_same_again() -> None:
    found = []
    for seed in (1, 1, 2):
        loader = DataLoader(Noisy(), batch_size=4, num_workers=2, generator=torch.Generator().manual_seed(seed))
        found.append(torch.cat(list(loader)).tolist())
    assert found[0] == found[1] != found[2]
    assert found[0][:4] != found[0][4:]


def test_random_windows() -> None:
    torch.manual_seed(0)
    window = transforms.RandomWindow(3)
    starts = {int(window(torch.arange(6))[0]) for _ in range(40)}
    assert starts == {0, 1, 2, 3}
    assert window(torch.ones(2)).tolist() == [1, 1, 0]


def test_without_pillow_tensors_are_transformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transforms.functional, "Image", None)
    assert transforms.Resize(4)(image_of(torch, "small")).shape == (3, 4, 5)
    with pytest.raises(ImportError, match="pip install pillow"):
        transforms.ToPILImage()(torch.zeros(3, 2, 2))
