"""``python -m tests.torch.scripts.record``: write down what the scripts print under PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
SCRIPTS = sorted(p for p in HERE.glob("*.py") if p.stem not in ("__init__", "record"))


def main() -> None:
    for script in SCRIPTS:
        printed = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
        script.with_suffix(".txt").write_text(printed)
        print(f"{script.name}: {len(printed.splitlines())} lines")


if __name__ == "__main__":
    main()
