"""Starting ranks: of dynagraph.torch by mpiexec, of PyTorch as processes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

SECONDS = 240
ROOT = Path(__file__).parents[3]
MPIEXEC = shutil.which("mpiexec", path=os.path.join(sys.prefix, "bin") + os.pathsep + os.environ.get("PATH", ""))

needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py and mpiexec: dynagraph[mpi]"
)


def environment() -> dict[str, str]:
    """This one, with the tree first on the path, one thread for each rank, and nothing of another launcher's."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DYNAGRAPH_THREADS": "1"}


def by_mpiexec(ranks: int, arguments: Sequence[str], **more: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, as so many ranks."""
    assert MPIEXEC is not None
    return subprocess.run(
        [MPIEXEC, "-n", str(ranks), sys.executable, *arguments], env={**environment(), **more}, cwd=ROOT, capture_output=True,
        text=True, timeout=SECONDS, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip


def cases_of(which: str, ranks: int, folder: Path) -> list[dict[str, np.ndarray]]:
    """What the cases gave, of each rank."""
    arguments = ["-m", "tests.torch.distributed.cases", which, str(folder)]
    if which == "own":
        ended = by_mpiexec(ranks, arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    else:
        started = []
        for rank in range(ranks):
            about = {**environment(), "RANK": str(rank), "WORLD_SIZE": str(ranks)}
            command = [sys.executable, "-W", "ignore", *arguments]
            started.append(subprocess.Popen(command, env=about, cwd=ROOT, stdin=subprocess.DEVNULL))
        assert [process.wait(SECONDS) for process in started] == [0] * ranks
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(ranks)]


def differences(found: Sequence[dict[str, np.ndarray]], expected: Sequence[dict[str, np.ndarray]]) -> list[str]:
    """The values that differ: all are whole numbers, or means of such, so that they are exact."""
    wrong = []
    for rank, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if mine.keys() != theirs.keys():
            wrong.append(f"rank {rank}: {sorted(mine.keys() ^ theirs.keys())}")
        for name in mine.keys() & theirs.keys():
            a, b = mine[name], theirs[name]
            if a.dtype != b.dtype or a.shape != b.shape or not (a == b).all():
                wrong.append(f"rank {rank}, {name}: {a!r} is not {b!r}")
    return wrong
