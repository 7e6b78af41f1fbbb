"""The documentation is true: the paths that it names exist, its links lead somewhere, and its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = sorted(path for path in (ROOT / "dynagraph").rglob("README.md"))
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOMS, *sorted((ROOT / "docs").glob("*.md"))]
# pages whose examples run one after the other, on any machine
RUN = ["docs/numerics.md", "docs/gradients.md", "docs/loops.md", "docs/export.md", "docs/data.md", "docs/distributed.md"]
NAMED = re.compile(r"`([\w./-]+(?:/|\.(?:py|pyi|c|cpp|h|md|toml)))`")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOMS], ids=name_of)
def test_each_path_that_is_named_exists(page: Path) -> None:
    """In a room's page, from the room or from the root."""
    named = set(NAMED.findall(page.read_text()))
    made = {"dist/"}  # by make
    assert named
    assert {path for path in named - made if not (page.parent / path).exists() and not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_each_room_has_a_page() -> None:
    rooms = {"frontend", "doors", "ir", "backends", "_core", "autodiff", "autograd", "driver", "torch", "exporting", "onnx"}
    assert {page.parent.name for page in ROOMS} == rooms
    assert all(f"dynagraph/{room}/README.md" in (ROOT / "ARCHITECTURE.md").read_text() for room in rooms)


@pytest.mark.parametrize("name", RUN)
def test_the_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some write files
    namespace: dict[str, object] = {"__name__": "docs"}
    for k, block in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.M | re.S)):
        exec(compile(block, f"{name}, example {k}", "exec"), namespace)


def sections() -> dict[str, str]:
    """The sections of CONTRIBUTING.md that show code: what a contributor adds, and that it works."""
    parts = re.split(r"^## (.+)$", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.M)[1:]
    found = {heading: re.findall(r"^```python\n(.*?)^```", body, re.M | re.S) for heading, body in zip(parts[::2], parts[1::2])}
    return {heading: "\n".join(blocks) for heading, blocks in found.items() if blocks}


@pytest.mark.parametrize("heading", sections())
def test_what_a_contributor_adds_works(heading: str, tmp_path: Path) -> None:
    """In a process of its own, as it changes tables."""
    script = tmp_path / "added.py"
    script.write_text(sections()[heading])
    environment = {**os.environ, "DYNAGRAPH_COMPILE_BUDGET": "unlimited", "DYNAGRAPH_STAY_EAGER": "0"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_instruction_that_is_quoted_is_in_the_source() -> None:
    (block,) = re.findall(r"^```c\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)
    source = "".join(path.read_text() for path in (ROOT / "dynagraph" / "_core" / "dispatch").glob("guard*.[ch]"))
    assert [line for line in block.splitlines() if line not in source] == []
