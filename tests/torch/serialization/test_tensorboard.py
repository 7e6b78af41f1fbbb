"""Event files by the package tensorboard, read back; and the error where it is not installed."""

from __future__ import annotations

import importlib
import io
import pathlib
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch.utils.tensorboard import SummaryWriter, writer


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(writer, "_found", {})
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match="pip install tensorboard"):
        SummaryWriter("nowhere")


def test_histograms_and_images() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    found = writer._histogram(values, "tensorflow", None)
    assert sum(found["bucket"]) == found["num"] == 1000 and len(found["bucket"]) == len(found["bucket_limit"])
    assert found["bucket_limit"][-2] < values.max() <= found["bucket_limit"][-1] and found["bucket"][-1] > 0
    assert sum(writer._histogram(values, 64, 8)["bucket"]) == 1000
    with pytest.raises(ValueError, match="no element"):
        writer._histogram(np.zeros(0), 10, None)
    image = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    assert (writer._pixels(image, "CHW") == image.transpose(1, 2, 0)).all()
    assert (
        writer._pixels(np.ones((9, 1, 2, 4)), "NCHW").shape == (4, 32, 3)
        and writer._pixels(np.full((2, 4), 2.0), "HW").max() == 255
    )
    with pytest.raises(ValueError, match="not of the format"):
        writer._pixels(image, "HW")
    pillow = pytest.importorskip("PIL.Image")
    assert (np.asarray(pillow.open(io.BytesIO(writer._png(writer._pixels(image, "CHW"))))) == image.transpose(1, 2, 0)).all()


def test_what_is_written_is_read(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with SummaryWriter(tmp_path / "run", purge_step=0) as log:
        for step in range(3):
            log.add_scalar("loss", torch.tensor(1.0) / (step + 1), step)
        log.add_scalar("new", 2, 0, new_style=True)
        log.add_scalars("both", {"a": 1, "b": torch.tensor([2])}, 1)
        log.add_histogram("weights", torch.ones(5, dtype=torch.bfloat16), 1)
        log.add_image("image", torch.zeros(3, 4, 5), 1)
        log.add_text("note", "words", 1)
        log.add_hparams({"lr": 0.1, "name": "sgd", "bias": True}, {"accuracy": 1}, {"name": ["sgd", "adam"]}, run_name="h")
        with pytest.raises(RuntimeError, match="add_audio"):
            log.add_audio("x", torch.ones(1))
    events = EventAccumulator(str(tmp_path / "run")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert events.Histograms("weights")[0].histogram_value.num == 5 and events.Images("image")[0].width == 5
    assert EventAccumulator(str(tmp_path / "run" / "both_b")).Reload().Scalars("both")[0].value == 2
    assert EventAccumulator(str(tmp_path / "run" / "h")).Reload().Scalars("accuracy")[0].value == 1
