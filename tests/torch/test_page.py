"""docs/torch.md says which of PyTorch's names there are, and is up to date."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from types import ModuleType

import pytest

from . import page


def test_the_page_is_up_to_date() -> None:
    """In a process of its own: other tests leave names behind."""
    command = [sys.executable, "-m", "tests.torch.page", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=page.PAGE.parents[1])
    assert page.PAGE.read_text() == done.stdout, "python -m tests.torch.page"


def test_its_examples_run() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", page.PAGE.read_text(), re.M | re.S)
    assert len(examples) == 5
    for example in examples:
        command = [sys.executable, "-c", example]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=page.PAGE.parents[1])
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "namespace, name, kind",
    [
        ("torch", "sin", "has"),
        ("torch", "float32", "has"),
        ("torch", "no_grad", "has"),
        ("torch.Tensor", "add_", "has"),
        ("torch", "tensordot", "decomposes"),
        ("torch.jit", "trace", "not yet"),
        ("torch.jit", "script", "has"),
        ("torch.optim.swa_utils", "no_such_name", "not yet"),
        ("torch.no_such_module", "name", "not yet"),
    ],
)
def test_what_becomes_of_a_name(namespace: str, name: str, kind: str) -> None:
    assert page.kind_of(page.owner_of(namespace), name) == kind


def test_the_names_are_those_of_pytorch() -> None:
    """Where the version of PyTorch is installed whose names were written down."""
    torch = pytest.importorskip("torch")
    recorded = page.RECORDED
    if torch.__version__.partition("+")[0] != recorded["torch"]:
        pytest.skip(f"the names are those of {recorded['torch']}")
    names = script("torch_names")
    for namespace in ("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg"):
        assert recorded["names"][namespace].split() == names.names_of(namespace)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, page.HERE.parents[1] / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
