"""Installing without a compiler, and Python started in a source tree that was not built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The sources, without what was built."""
    built = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "dynagraph", tmp_path / "dynagraph", ignore=built)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def python(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment})


def test_a_source_tree_says_what_to_run(tree: Path) -> None:
    done = python(tree, "-c", "import dynagraph")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: dynagraph in {tree} has no C extension for Python 3.")
    assert f"`{sys.executable} -m pip install --editable .`" in last


@pytest.mark.parametrize("compiler, why", [("no-such-cc", "there is no no-such-cc"), ("false", "the C compiler false failed")])
def test_building_without_a_compiler_ends_in_one_sentence(tree: Path, compiler: str, why: str) -> None:
    done = python(tree, "setup.py", "--quiet", "build_ext", "--inplace", CC=compiler)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"dynagraph: {why}") and "install gcc or clang" in last and "CC" in last
    assert "Traceback" not in done.stderr
