"""Programs on several ranks by mpiexec: many checks in each, since a start takes a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py")
ROOT = Path(__file__).parents[3]
MPIEXEC = Path(sys.executable).with_name("mpiexec")


def ranks(count: int, *checks: str) -> list[str]:
    """The names of the checks that have passed on so many ranks."""
    if not MPIEXEC.exists():
        pytest.skip("no mpiexec beside the interpreter")
    command = [str(MPIEXEC), "-n", str(count), sys.executable, "-m", "tests.torch.data_parallel", *checks]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DYNAGRAPH_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("ok ") for line in done.stdout.splitlines() if line.startswith("ok ")]


def test_two_ranks_equal_one_process() -> None:
    passed = ranks(2)
    assert len(passed) == 20 and passed[-1] == "checkpoints", passed


def test_four_ranks_equal_one_process() -> None:
    checks = ("equals_one_process", "inputs_may_be_uneven", "divided_parameters", "checkpoints")
    assert ranks(4, *checks) == list(checks)
