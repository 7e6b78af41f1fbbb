"""Write `recorded.npz`: what PyTorch's gloo gives for the cases.  ``python -m tests.torch.distributed.record``"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from tests.torch.distributed.ranks import cases_of

FILE = Path(__file__).with_name("recorded.npz")
RANKS = (2, 4)


def main() -> None:
    recorded = {}
    for ranks in RANKS:
        with tempfile.TemporaryDirectory() as folder:
            for rank, values in enumerate(cases_of("torch", ranks, Path(folder))):
                recorded |= {f"{ranks} {rank} {name}": value for name, value in values.items()}
    np.savez_compressed(FILE, **recorded)


def recorded(ranks: int) -> list[dict[str, np.ndarray]]:
    """What was recorded, of each rank."""
    with np.load(FILE) as file:
        return [
            {name.split(" ", 2)[2]: file[name] for name in file.files if name.startswith(f"{ranks} {rank} ")}
            for rank in range(ranks)
        ]


if __name__ == "__main__":
    main()
