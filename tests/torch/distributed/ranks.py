"""Starting ranks: of dynagraph.torch by mpiexec, of PyTorch as processes."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
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


def by_hand(ranks: int, arguments: Sequence[str], **more: str) -> list[subprocess.Popen[str]]:
    """Python with these arguments, as so many ranks that the environment tells who they are, and where they meet."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(server.getsockname()[1]), "WORLD_SIZE": str(ranks)}
    return [
        subprocess.Popen(
            [sys.executable, *arguments], env={**environment(), **meeting, "RANK": str(rank), **more}, cwd=ROOT,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip


def outputs(processes: Sequence[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    """Of each process its status, and what it has written to stdout and stderr."""
    found = []
    try:
        for process in processes:
            found.append((*process.communicate(timeout=SECONDS), process.returncode))
    finally:
        for process in processes:
            process.kill()
    return [(code, out, errors) for out, errors, code in found]


def cases_of(which: str, ranks: int, folder: Path) -> list[dict[str, np.ndarray]]:
    """What the cases gave, of each rank."""
    arguments = [*(("-W", "ignore") if which == "torch" else ()), "-m", "tests.torch.distributed.cases", which, str(folder)]
    if which == "mpi":
        ended = by_mpiexec(ranks, arguments)
        assert ended.returncode == 0, ended.stdout + ended.stderr
    else:
        found = outputs(by_hand(ranks, arguments))
        assert [code for code, _, _ in found] == [0] * ranks, found
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
