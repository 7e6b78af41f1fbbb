"""Scripts that say ``import torch`` run on dynagraph.torch, as ``python script.py`` would run them; what is missing is named."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dynagraph.torch
from dynagraph.frontend.executor.numpy_source import is_own
from dynagraph.torch.import_hook import install

ROOT = Path(__file__).parents[2]
LIST = "docs/torch.md lists which of PyTorch's names there are"


def run(*arguments: object, given: str = "", plain: bool = False, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """``python -m dynagraph.torch arguments``, or ``python arguments``."""
    command = [sys.executable, *([] if plain else ["-m", "dynagraph.torch"]), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=environment, cwd=cwd)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process in which PyTorch has not been imported."""
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        del sys.modules[name]


def test_the_hook_is_loaded_when_it_is_asked_for() -> None:
    seen = "import sys, numpy; before = {*sys.modules}; import dynagraph.torch; print(*({*sys.modules} - before))"
    loaded = run("-c", f"{seen}; dynagraph.torch.install", plain=True).stdout.split()
    assert "dynagraph.torch.missing" in loaded
    assert not {"dynagraph.torch.import_hook", "importlib.metadata", "email", "socket", "urllib", "zipfile"} & {*loaded}


# -- as python script.py ----------------------------------------------------------------------------------------------

SHOWS = """\
import sys
print(__name__, __file__, __package__, __spec__, __doc__, type(__loader__).__name__, sys.argv, sys.path[0], sorted(globals()))
print(sys.modules["__main__"].__dict__ is globals())
"""
FAILS = "def f():\n    raise ValueError('wrong')\n\n\ntry:\n    {}[1]\nexcept KeyError:\n    f()\n"


def test_a_script_runs_as_python_runs_it(tmp_path: Path) -> None:
    script = tmp_path / "shows.py"
    script.write_text(SHOWS)
    assert run("shows.py", "a", "-b", cwd=tmp_path).stdout == run("shows.py", "a", "-b", plain=True, cwd=tmp_path).stdout != ""


@pytest.mark.parametrize("source, code", [
    (FAILS, 1), ("import sys\nsys.exit(3)\n", 3),
    ("x = (\n", 1), ("raise SystemExit('no')\n", 1), ("raise KeyboardInterrupt\n", -2),
])  # fmt: skip
def test_tracebacks_and_exit_codes_are_those_of_the_script(tmp_path: Path, source: str, code: int) -> None:
    script = tmp_path / "fails.py"
    script.write_text(source)
    own, plain = run(script), run(script, plain=True)
    assert (own.returncode, own.stderr) == (plain.returncode, plain.stderr) and own.returncode == code


def test_the_script_may_set_its_own_excepthook(tmp_path: Path) -> None:
    script = tmp_path / "hooked.py"
    script.write_text("import sys\nsys.excepthook = lambda k, v, t: print(k.__name__, v, t.tb_lineno)\n1 / 0\n")
    assert run(script).stdout == "ZeroDivisionError division by zero 3\n"


def test_programs_modules_and_standard_input(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text(
        "import sys, torch\nfrom . import other\nprint(__name__, __package__, __spec__.name, sys.argv, torch.ones(2).sum())\n"
    )
    (package / "other.py").write_text("")
    shown = run("-m", "package", "x", cwd=tmp_path)
    assert shown.stdout == f"__main__ package package.__main__ ['{package / '__main__.py'}', 'x'] tensor(2.)\n", shown.stderr
    program = "import sys, torch; print(__name__, sys.argv, repr(sys.path[0]), torch.arange(3).tolist())"
    assert run("-c", program, "y").stdout == "__main__ ['-c', 'y'] '' [0, 1, 2]\n"
    assert run("-", "y", given=program).stdout == "__main__ ['-', 'y'] '' [0, 1, 2]\n"
    assert run(package, "z", cwd=tmp_path).returncode == 1  # its relative import has no parent, as with python package


CHILDREN = """\
import multiprocessing
import torch

def work(x):
    return torch.__spec__.name, (x * 2).tolist()

if __name__ == "__main__":
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(work, [torch.tensor([1.0])]))
"""


def test_processes_that_a_script_starts_use_the_same_torch(tmp_path: Path) -> None:
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    done = run(script)
    assert done.stdout == "[('dynagraph.torch', [2.0])]\n" * 3, done.stderr


def test_what_cannot_be_run_is_said(tmp_path: Path) -> None:
    missing = run(tmp_path / "missing.py")
    assert missing.returncode == 2
    assert "can't open file" in missing.stderr and "[Errno 2] No such file or directory" in missing.stderr
    unknown = run("-m", "no_such_module")
    assert unknown.returncode == 1 and unknown.stderr == "python -m dynagraph.torch: No module named no_such_module\n"
    assert run().returncode == 2 and run("-x").returncode == 2 and run("-c").returncode == 2
    assert run("--help").stdout.startswith("usage: python -m dynagraph.torch SCRIPT.py")


# -- modules ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_torch")
def test_modules_are_the_same_under_both_names() -> None:
    with install():
        import torch
        import torch.backends.cudnn as cudnn
        import torch.nn.functional as F
        from torch import Tensor, nn
        from torch.utils._pytree import tree_map

        assert torch is dynagraph.torch and Tensor is dynagraph.torch.Tensor
        assert torch.__name__ == "torch" and torch.__spec__.name == "dynagraph.torch"
        assert is_own(vars(torch))  # captures take what it names as unchanging under this name, too
        assert F is dynagraph.torch.nn.functional and nn is dynagraph.torch.nn
        assert F is sys.modules["torch.nn.functional"] is sys.modules["dynagraph.torch.nn.functional"]
        assert F.__spec__.name == "dynagraph.torch.nn.functional"
        assert cudnn is torch.backends.cudnn and tree_map is dynagraph.torch.utils._pytree.tree_map
        assert importlib.import_module("torch.autograd") is dynagraph.torch.autograd
    assert "torch" not in sys.modules and "torch.nn.functional" not in sys.modules
    assert dynagraph.torch.__name__ == "dynagraph.torch"


@pytest.mark.usefixtures("no_torch")
def test_libraries_tell_by_the_class_that_a_tensor_is_of_torch(no_torch: None) -> None:
    own = dynagraph.torch.Tensor.__module__
    with install(), install():
        x = dynagraph.torch.ones(2, dtype=dynagraph.torch.float16)
        assert {type(v).__module__ for v in (x, x.shape, x.dtype, x.device)} == {"torch"}
        again = pickle.loads(pickle.dumps((x, x.shape, x.dtype, x.device)))
        assert again[0].tolist() == [1, 1] and again[1:] == (x.shape, x.dtype, x.device)
    assert dynagraph.torch.Tensor.__module__ == own != "torch"


@pytest.mark.usefixtures("no_torch")
def test_what_is_missing_is_named_with_where_the_list_is() -> None:
    with install():
        import torch

        with pytest.raises(ModuleNotFoundError, match=rf"^dynagraph\.torch has no module 'torch\.no_module'; {LIST}$"):
            importlib.import_module("torch.no_module")
        with pytest.raises(ModuleNotFoundError, match=r"^dynagraph\.torch has no module 'torch\.nn\.no_module'"):
            import torch.nn.no_module
        with pytest.raises(ImportError, match=rf"^dynagraph\.torch has no torch\.nn\.Missing; {LIST}$"):
            from torch.nn import Missing  # noqa: F401
        with pytest.raises(ImportError, match=rf"^dynagraph\.torch has no torch\.absent; {LIST}$"):
            from torch import absent  # noqa: F401
        with pytest.raises(AttributeError, match=rf"^dynagraph\.torch has no torch\.no_name; {LIST}$"):
            getattr(torch, "no_name")  # noqa: B009
        with pytest.raises(AttributeError, match=r"^dynagraph\.torch has no torch\.jit\.no_name"):
            getattr(torch.jit, "no_name")  # noqa: B009
        with pytest.raises(ModuleNotFoundError, match=r"^dynagraph\.torch has no module 'torch\.core'"):
            importlib.import_module("torch.core")  # of this package, no part of PyTorch
        assert not hasattr(torch, "no_name") and getattr(torch.nn, "Missing", 3) == 3


@pytest.mark.usefixtures("no_torch")
def test_libraries_may_ask_what_there_is() -> None:
    with install():
        assert importlib.util.find_spec("torch") is not None and importlib.util.find_spec("torch.nn") is not None
        assert importlib.util.find_spec("torch.no_module") is None
        assert importlib.metadata.version("torch") == "2.13.0"
        assert importlib.util.find_spec("json") is not None


@pytest.mark.usefixtures("no_torch")
def test_another_torch_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)
    with pytest.raises(ImportError, match="PyTorch is imported already"):
        install()


@pytest.mark.usefixtures("no_torch")
def test_installing_again_lasts_until_the_outer_end() -> None:
    outer = dynagraph.torch.install()
    with dynagraph.torch.install():
        import torch
    import torch as again

    assert again is torch is dynagraph.torch
    outer.uninstall()
    outer.uninstall()
    assert "torch" not in sys.modules


def test_the_example_learns() -> None:
    shown = run(ROOT / "examples" / "spirals.py", "--steps", "100", "--eager", "--out", "")
    assert "loss 0.0" in shown.stdout and "100.0% of the points right" in shown.stdout, shown.stderr


# -- libraries --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vision", "models"])
def test_libraries_of_models_find_what_they_use_at_import(name: str) -> None:
    done = run("-W", "error", "-m", "dynagraph.torch", ROOT / "tests" / "torch" / "libraries" / f"{name}.py", plain=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_the_libraries_themselves_are_imported(package: str) -> None:
    """With stand-ins for layers, optimizers, data sets and torch.fx."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    done = run(ROOT / "tests" / "torch" / "libraries" / "stand_ins.py", package)
    assert done.returncode == 0, done.stderr
