"""What `import dynagraph` costs beside `import numpy`: ``python benchmarks/imports.py [--runs N]``.

Processes that import one or the other take turns; the figures are the least of each, in milliseconds.  Warm: with bytecode on disk;
cold: without dynagraph's, as on the first start after an installation from source.  The compiler is loaded by the first call that
needs it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BAR = 80.0  # milliseconds
CLOCK = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
SCRIPTS = (
    "import numpy",
    "import numpy, dynagraph",
    "import numpy, dynagraph; from dynagraph import loading; loading.compiler()",
)


def milliseconds(script: str, folder: str | None) -> float:
    """`folder`: what to import dynagraph from, without writing bytecode there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    if folder is not None:
        environment |= {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CLOCK.format(script)], capture_output=True, text=True, check=True, env=environment, cwd=folder
    )  # fmt: skip
    return 1e3 * float(done.stdout)


def measure(name: str, runs: int, folder: str | None = None) -> None:
    for script in SCRIPTS:
        milliseconds(script, folder)  # the pages of files, and bytecode
    turns = [[milliseconds(script, folder) for script in SCRIPTS] for _ in range(runs)]
    numpy, with_dynagraph, compiler = map(min, zip(*turns))
    print(f"{name}: NumPy {numpy:.0f} ms, dynagraph {with_dynagraph - numpy:+.0f} ms (bar: {BAR:.0f}), "
          f"its compiler {compiler - with_dynagraph:+.0f} ms")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    runs = parser.parse_args().runs
    measure("warm", runs)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(__file__).resolve().parent.parent / "dynagraph"
        shutil.copytree(package, Path(folder) / "dynagraph", ignore=shutil.ignore_patterns("__pycache__"))
        measure("cold", runs, folder)


if __name__ == "__main__":
    main()
