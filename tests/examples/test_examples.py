"""Each example does what its text says, and goes on from a checkpoint as if it had not been stopped."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib import pyplot

import dynagraph.torch.distributed
from tests.examples.conftest import EXAMPLES

# what a few steps have to come to
CLAIMS: dict[str, Any] = {
    "black_scholes": lambda found: found.parity < 1e-9 and found.apart < 1e-9,
    "cartpole": lambda found: found.last > 1.5 * found.first,
    "char_gpt": lambda found: found.losses[-1] < found.losses[0] - 0.5,
    "dcgan": lambda found: found.apart < 0.8 * found.noise,
    "digits": lambda found: found.accuracy > 0.8 and abs(found.losses[-1] - found.plain[-1]) < 1e-3,
    "digits_cnn": lambda found: found.accuracy > 0.8,
    "finetune": lambda found: found.losses[-1] < found.losses[0] - 0.1,
    "gaussian_process": lambda found: found.losses[-1] < found.losses[0] - 0.2,
    "lstm": lambda found: found.errors[0] < found.unchanged[0] / 2,
    "neural_ode": lambda found: found.losses[-1] < found.losses[0] / 2,
    "pinn": lambda found: found.losses[-1] < found.losses[0] / 2,
    "sobel": lambda found: found.apart < 1e-4,
    "spirals": lambda found: found.accuracy > 0.99,
    "vae": lambda found: found.losses[-1] < found.losses[0] - 3,
}
UNITS = {"black_scholes": "days", "sobel": "frames"} | dict.fromkeys(["dcgan", "digits", "digits_cnn", "finetune", "vae"], "epochs")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("example", CLAIMS, indirect=True)
def test_an_example_learns_compiled(example: Any, tmp_path: Path) -> None:
    """Its step is one program, on every call."""
    found = example.main(["--quick", "--out", str(tmp_path / "picture.png")])
    assert (tmp_path / "picture.png").stat().st_size > 5000
    assert CLAIMS[example.__name__](found), found
    stats = found.step.stats
    assert stats.hits > 0 and not stats.breaks and stats.refusals == 0, (stats, stats.breaks)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("example", CLAIMS, indirect=True)
def test_an_example_goes_on_from_its_checkpoint(example: Any, tmp_path: Path) -> None:
    """With the same numbers as without a stop."""
    given = ["--eager", "--quick", "--out", "", f"--{UNITS.get(example.__name__, 'steps')}"]
    whole = example.main([*given, "2"])
    checkpoint = ["--checkpoint", str(tmp_path / "run.pt")]
    first = example.main([*given, "1", *checkpoint])
    resumed = example.main([*given, "2", *checkpoint])
    assert len(whole.losses) == 2 and whole.losses[:1] == first.losses
    assert resumed.losses == whole.losses


@pytest.mark.sampled(2)  # a cluster takes seconds to start
@pytest.mark.parametrize("example, way", [("dask_arrays", ["--threads"]), ("joblib_bootstrap", [])], indirect=["example"])
def test_compiled_functions_run_in_pools(example: Any, way: list[str]) -> None:
    """They check that the values are NumPy's."""
    assert set(example.main(["--quick", *way]).found) == {"NumPy", "compiled"}


def test_the_notebook_runs() -> None:
    """With fewer epochs."""
    pyplot.switch_backend("Agg")
    cells = json.loads((EXAMPLES / "digits.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for source in sources:
        less = source.replace("EPOCHS := 20", "EPOCHS := 2").replace("calls=20", "calls=2")
        exec(compile(less, "digits.ipynb", "exec"), namespace)
    pyplot.close("all")
    assert namespace["accuracy"] > 0.7 and namespace["step"].stats.breaks.total() == 0


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        text = path.read_text()
        assert len(text.splitlines()) < 250, path.name
        documented = ast.get_docstring(ast.parse(text))
        assert documented is not None and (f"{path.name}" in documented or path.name == "common.py")


@pytest.mark.skipif(not hasattr(dynagraph.torch.distributed, "init_process_group"), reason="torch.distributed has only checkpoints")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("processes", [1, 2])
def test_processes_train_one_model(processes: int) -> None:
    """With one process and without `mpiexec`, too."""
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if processes > 1 and launcher is None:
        pytest.skip("there is no mpiexec")
    by = [launcher, "-n", str(processes)] if processes > 1 else []
    command = [*by, sys.executable, "-m", "dynagraph.torch", str(EXAMPLES / "ddp.py"), "--quick", "--eager", "--out", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = re.search(rf"^{processes} process.*, ([\d.]+)% of 360", done.stdout, re.M)
    assert found is not None and float(found[1]) > 80, done.stderr
