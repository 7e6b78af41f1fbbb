"""Write down what the models' tests need of real torch and torchvision: ``python -m tests.torch.models.record``.

Losses are real torch's; names of parameters are torchvision's, and stay as they were where it is not installed.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.torch.models.cases import CASES, LARGE, RECORDED, losses

FILE = Path(__file__).with_name("recorded.npz")
NAMES = ("alexnet", "vgg11", "vgg16", "vgg19_bn", "resnet18", "resnet34", "resnet50", "mobilenet_v2", "densenet121", "vit_b_16")


def state_of(model: Any) -> list[str]:
    """Names and shapes of a state dict."""
    return [f"{name} {' '.join(map(str, value.shape))}".strip() for name, value in model.state_dict().items()]


def main() -> None:
    torch = importlib.import_module("torch")
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        found[f"{name}|float64"] = losses(torch, case, "float64")
    for name in RECORDED:
        found[f"{name}|float32"] = losses(torch, LARGE[name], "float32")
    try:
        vision = importlib.import_module("torchvision").models
    except ImportError:
        with np.load(FILE) as before:
            found |= {name: before[name] for name in NAMES}
    else:
        found |= {name: np.array("\n".join(state_of(getattr(vision, name)())).encode()) for name in NAMES}
    np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
