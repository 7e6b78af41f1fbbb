"""A wheel of the project, and those of what it needs, for a machine with a GPU but no network.

    python3.12 scripts/gpu_wheels.py [--to gpu-wheels]

Run by the Python that the wheel is for: `make wheel-cp312` finds one.  `manifest.json` beside the wheels says what sources the
wheel was made from, so that `scripts/gpu_check.py` knows whether it is that of the tree.  Only the standard library.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "gpu-wheels"
TEST_NEEDS = ("pytest", "hypothesis", "mpmath")
PROVIDED = ("numpy",)  # by whoever has CuPy
BUILT_FROM = ("setup.py", "pyproject.toml", "README.md", "LICENSE")
MADE = (".so", ".pyc")


class NoWheel(Exception):
    """There is no wheel that fits, and none could be made."""


def sources() -> list[Path]:
    """What the wheel is made of."""
    of_package = (p for p in (ROOT / "dynagraph").rglob("*") if p.is_file() and p.suffix not in MADE)
    return [ROOT / name for name in BUILT_FROM] + sorted(of_package)


def fingerprint() -> str:
    """One number for the sources as they are now."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def python_tag() -> str:
    return f"cp{sys.version_info.major}{sys.version_info.minor}"


def platform_tag() -> str:
    """The tag of what is built against this machine's C library."""
    library, version = platform.libc_ver()
    if sys.platform != "linux" or library != "glibc":
        raise NoWheel(f"wheels for a GPU are built on Linux with glibc, not {sys.platform} {library}")
    return f"manylinux_{version.replace('.', '_')}_{platform.machine()}"


def run(command: list[Any], **options: Any) -> None:
    """Raises NoWheel with the end of what was printed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        end = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise NoWheel(f"{' '.join(map(str, command[:5]))} ... failed:\n{end}")


def build_wheel(to: Path, offline: bool = False) -> Path:
    """Build a wheel for the Python that runs this, from a copy of the sources; `offline`: with what is installed.

    Earlier wheels of the project go.  Raises NoWheel.
    """
    mark = fingerprint()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for path in sources():
            target = tree / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        built = Path(folder) / "built"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", built]
        command += ["--config-settings", f"--build-option=--plat-name={platform_tag()}"]
        if offline:
            command += ["--no-index", "--no-build-isolation"]
        run([*command, tree])
        (wheel,) = built.glob("*.whl")
        to.mkdir(parents=True, exist_ok=True)
        for old in to.glob("dynagraph-*.whl"):
            old.unlink()
        shutil.copy(wheel, to / wheel.name)
    (to / "manifest.json").write_text(json.dumps({"wheel": wheel.name, "sources": mark}, indent=1) + "\n")
    return to / wheel.name


def needs() -> list[str]:
    """What the package and its tests need besides NumPy."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [d for d in project["dependencies"] if not d.startswith(PROVIDED)]
    return [*names, *TEST_NEEDS]


def download_needs(to: Path) -> None:
    """Fetch the wheels of what is needed.  Raises NoWheel."""
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", folder, *needs()])
        for old in to.glob("*.whl"):
            if not old.name.startswith("dynagraph-"):
                old.unlink()
        for wheel in Path(folder).glob("*.whl"):
            shutil.copy(wheel, to / wheel.name)


def wheel_of_tree(folder: Path) -> Path:
    """The wheel of the sources as they are, for this Python: from the folder, or made now.  Raises NoWheel."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        manifest = {"wheel": "none", "sources": ""}
    wheel = folder / manifest["wheel"]
    if manifest["sources"] == fingerprint() and python_tag() in wheel.name and wheel.is_file():
        return wheel
    try:
        return build_wheel(folder, offline=True)
    except NoWheel as error:
        raise NoWheel(
            f"{folder}: no wheel for {python_tag()} of the sources as they are (found: {manifest['wheel']}), and none could be "
            f"built here; run `make wheel-cp312` where there is a network and copy the tree again\n{error}"
        ) from error


def top_level(wheel: Path) -> set[str]:
    """The names that can be imported once a wheel is unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        firsts = {name.split("/")[0] for name in archive.namelist() if name.endswith(".py")}
    return {name.removesuffix(".py") for name in firsts if not name.endswith((".dist-info", ".data"))}


def unpack(wheel: Path, site: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--to", type=Path, default=ROOT / FOLDER)
    to = parser.parse_args().to
    try:
        wheel = build_wheel(to)
        download_needs(to)
    except NoWheel as error:
        print(error, file=sys.stderr)
        return 1
    total = sum(w.stat().st_size for w in to.glob("*.whl"))
    print(f"{wheel}, and {len(list(to.glob('*.whl'))) - 1} wheels that it needs: {total / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
