"""What once found a defect is part of every `make test`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.past_defects import DEFECTS, PROOFS

ROOT = Path(__file__).resolve().parents[1]


def needs_pytorch(proof: str) -> bool:
    """Whether a test is in a file that is skipped where PyTorch is not installed."""
    return '\ntorch = pytest.importorskip("torch")\n' in (ROOT / proof.partition("::")[0]).read_text()


def test_every_proof_is_there_and_runs() -> None:
    files = sorted({proof.partition("::")[0] for proof in PROOFS})
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not fuzz and not soak"]
    command = [sys.executable, "-m", "pytest", *options, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    running = {line for line in done.stdout.splitlines() if "::" in line}
    running |= {line.partition("[")[0] for line in running}
    running |= {proof for proof in PROOFS if needs_pytorch(proof)} if importlib.util.find_spec("torch") is None else set()
    gone = {defect: proofs for defect, proofs in DEFECTS.items() if not running.issuperset(proofs)}
    assert not gone, f"tests that prove these defects mended are not part of make test: {gone}"
