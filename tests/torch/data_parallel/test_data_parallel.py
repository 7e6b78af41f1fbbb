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


def ranks(count: int, program: str, *checks: str) -> list[str]:
    """The names of the checks of a program that have passed on so many ranks."""
    if not MPIEXEC.exists():
        pytest.skip("no mpiexec beside the interpreter")
    command = [str(MPIEXEC), "-n", str(count), sys.executable, "-m", f"tests.torch.data_parallel.{program}", *checks]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DYNAGRAPH_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = [line.removeprefix("ok ") for line in done.stdout.splitlines() if line.startswith("ok ")]
    assert passed and (not checks or passed == list(checks)), done.stdout + done.stderr
    return passed


def test_two_ranks_equal_one_process() -> None:
    assert len(ranks(2, "ddp")) == 12


def test_four_ranks_equal_one_process() -> None:
    ranks(4, "ddp", "equals_one_process", "inputs_may_be_uneven", "batch_norm_over_ranks")
