"""Files as real torch writes them, for test_recorded.py: ``python -m tests.torch.serialization.record`` writes recorded.npz."""

from __future__ import annotations

import io
import pathlib
import sys
from typing import Any

import numpy as np

from tests.torch.serialization.cases import CASES, CODE, DATA

PATH = pathlib.Path(__file__).with_name("recorded.npz")
LEGACY = ("float32", "views", "leaf", "training", "bfloat16", "linear")


def written(torch: Any, value: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def record(torch: Any) -> int:
    """Write the file; its size in bytes."""
    files = {}
    for name, make in {**CASES, **DATA, **CODE}.items():
        files[f"zip {name}"] = written(torch, make(torch))
        if name in LEGACY:
            files[f"old {name}"] = written(torch, make(torch), _use_new_zipfile_serialization=False)
    np.savez_compressed(PATH, **{name: np.frombuffer(data, np.uint8) for name, data in files.items()})
    return PATH.stat().st_size


if __name__ == "__main__":
    import torch

    size = record(torch)
    print(f"{size} bytes")
    sys.exit(size > 300_000)
