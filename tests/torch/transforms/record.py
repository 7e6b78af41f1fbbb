"""Write down what torchvision's transforms do: ``python -m tests.torch.transforms.record``, where torchvision is installed."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np

from tests.torch.transforms.cases import KINDS, cases, run

FILE = Path(__file__).with_name("recorded.npz")


def main() -> None:
    torch, transforms = importlib.import_module("torch"), importlib.import_module("torchvision").transforms
    found = {f"{kind}|{name}": run(torch, transforms, case, kind) for kind in KINDS for name, case in cases(kind).items()}
    np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
