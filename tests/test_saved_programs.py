"""Programs that an earlier process has made: used where all is as it was, and only there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dynagraph.backends import toolchain
from tests.forks import Forks

pytestmark = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")

# prints what a call gives, and how it was come by
SCRIPT = """
import json, sys
import numpy as np
import dynagraph as dg
{helper}

@dg.compile(mode="max", backend="c")
def f(x, y=2.0):
{body}

from dynagraph.driver import saved_programs
saved_programs.LEAST_SECONDS = 0.0
for size in {sizes}:
    result = f(np.arange(float(size)))
print(json.dumps([np.asarray(result).tolist(), f.stats.restored, f.stats.compiles, f.stats.fallbacks, len(f.last_graph) > 1]))
"""
BODY = "    return helper(np.tanh(x)) * y + FACTOR"
HELPER = "FACTOR = 3.0\ndef helper(x, k=1.0):\n    return x * x + k\n"


class Process:
    """Runs versions of one script in a cache of its own."""

    def __init__(self, folder: Path, forks: Forks):
        self.folder, self.forks = folder, forks

    def __call__(self, helper: str = HELPER, body: str = BODY, sizes: str = "[3]", **environment: str) -> Any:
        path = self.folder / "script.py"
        path.write_text(SCRIPT.format(helper=textwrap.dedent(helper), body=body, sizes=sizes))
        return self.run(path, **environment)

    def run(self, path: Path, **environment: str) -> Any:
        given = {"DYNAGRAPH_CACHE_DIR": str(self.folder / "cache"), "DYNAGRAPH_CACHE_PROGRAMS": "1", **environment}
        if "PYTHONHASHSEED" in given:
            command, environment = [sys.executable, str(path)], {**os.environ, **given}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
        else:
            done = self.forks.run(path, {**os.environ, **given})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def programs(self) -> list[Path]:
        return sorted((self.folder / "cache").glob("*.program"))


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    with Forks() as forks:
        yield forks


@pytest.fixture
def process(tmp_path: Path, forks: Forks) -> Process:
    return Process(tmp_path, forks)


def test_a_later_process_captures_nothing(process: Process) -> None:
    value, restored, compiles, fallbacks, has_graph = process()
    assert (restored, compiles, fallbacks, has_graph) == (0, 1, 0, True)
    assert process() == [value, 1, 0, 0, True]


def test_programs_of_several_sizes(process: Process) -> None:
    """The first has one size, the second any."""
    value, restored, compiles, _, _ = process(sizes="[3, 4, 5]")
    assert (restored, compiles) == (0, 2)
    assert process(sizes="[3, 4, 5]")[:3] == [value, 2, 0]
    assert process(sizes="[7, 3, 4]")[1:3] == [1, 0]


EDITS = {
    "the function": {"body": BODY + " + 1"},
    "what it calls": {"helper": HELPER.replace("x * x", "x * x * x")},
    "defaults of what it calls": {"helper": HELPER.replace("k=1.0", "k=5.0")},
    "a global": {"helper": HELPER.replace("3.0", "4.0")},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("edit", EDITS)
def test_edited_code_is_captured_anew(process: Process, edit: str) -> None:
    before = process()
    after = process(**EDITS[edit])
    assert after[0] != before[0]
    assert after[1:3] == [0, 1]
    assert process(**EDITS[edit])[1:3] == [1, 0]


CLASS = """
FACTOR = 3.0
class Base:
    scale = 2.0
    def __init__(self): self.shift = 1.0
    def both(self, x): return x * self.scale + self.shift
class Model(Base):
    @property
    def twice(self): return 2.0
    def __call__(self, x): return self.both(x) * self.twice
helper = Model()
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "old, new",
    [("scale = 2.0", "scale = 5.0"), ("+ self.shift", "- self.shift"), ("return 2.0", "return 7.0"), ("= 1.0", "= 9.0")],
)
def test_edited_classes(process: Process, old: str, new: str) -> None:
    before = process(helper=CLASS)
    assert process(helper=CLASS)[:3] == [before[0], 1, 0]
    after = process(helper=CLASS.replace(old, new))
    assert after[0] != before[0] and after[1] == 0


MADE_CLASS = """
FACTOR = 3.0
def made(by):
    class Base:
        def both(self, x): return x * 2.0 + by
    class Model(Base):
        @property
        def twice(self): return 2.0
        def __call__(self, x): return self.both(x) * self.twice
    return [Model(), Model()]
models = made(1.0)
def helper(x): return models[0](x)
"""


def test_edited_classes_that_functions_make(process: Process) -> None:
    """They are found as the types of objects."""
    before = process(helper=MADE_CLASS)
    assert process(helper=MADE_CLASS)[:3] == [before[0], 1, 0]
    for old, new in [("x * 2.0", "x * 5.0"), ("return 2.0", "return 7.0"), ("made(1.0)", "made(9.0)"), ("+ by", "+ by; scale = 1")]:
        after = process(helper=MADE_CLASS.replace(old, new))
        assert (after[0] != before[0] or "scale" in new) and after[1] == 0


def test_decorated_and_nested_functions(process: Process) -> None:
    helper = """
    FACTOR = 3.0
    def scaled(by):
        def decorate(function):
            def inner(x, *more):
                return function(x, *more) * by
            return inner
        return decorate
    @scaled({by})
    def helper(x):
        return x + 1
    """
    before = process(helper=helper.replace("{by}", "2.0"))
    assert process(helper=helper.replace("{by}", "2.0"))[:3] == [before[0], 1, 0]
    after = process(helper=helper.replace("{by}", "4.0"))
    assert after[0] != before[0] and after[1] == 0


PER_PROCESS = {
    "hash": 'helper = lambda x: x * (hash("text") % 97)',
    "set": 'def helper(x):\n    for name in {"a", "b", "c", "d"}:\n        x = x * 2 + ord(name)\n    return x',
    "id": "THING = object()\ndef helper(x):\n    return x * (id(THING) % 97)",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", PER_PROCESS)
def test_what_each_process_has_anew_is_not_kept(process: Process, what: str) -> None:
    helper = "FACTOR = 3.0\n" + PER_PROCESS[what]
    for seed in ("1", "2"):
        assert process(helper=helper, PYTHONHASHSEED=seed)[1] == 0
    assert process.programs() == []


def test_it_can_be_switched_off(process: Process) -> None:
    for _ in range(2):
        assert process(DYNAGRAPH_CACHE_PROGRAMS="0")[1:3] == [0, 1]
    assert process.programs() == []


def test_damaged_entries(process: Process) -> None:
    value = process()[0]
    (path,) = process.programs()
    image = path.read_bytes()
    for damaged in (b"", image[:100], image[:-1], image[:50] + b"x" + image[51:]):
        path.write_bytes(damaged)
        assert process()[:3] == [value, 0, 1]
        (path,) = process.programs()
    assert process()[:3] == [value, 1, 0]


def test_another_version_captures_anew(process: Process, tmp_path: Path) -> None:
    process()
    path = tmp_path / "script.py"
    text = path.read_text()
    path.write_text(text.replace("LEAST_SECONDS = 0.0", "LEAST_SECONDS = 0.0; saved_programs._versions = lambda: 'another'"))
    assert process.run(path)[1:3] == [0, 1]


TRAINING = """
import json
import numpy as np
import dynagraph as dg
from dynagraph import torch
from dynagraph.torch.nn import functional as F, Module, Parameter

class Layer(Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.weight = Parameter(torch.randn(rows, columns) / 8)
        self.register_buffer("calls", torch.tensor(0))
    def forward(self, x):
        self.calls.add_(1)
        return F.gelu(F.linear(x, self.weight))

class Model(Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(16, 8), Layer(4, 16)
    def forward(self, x):
        return self.second(self.first(x))

torch.manual_seed(0)
model, x = Model(), torch.randn(5, 8)
target = torch.tensor([0, 1, 2, 3, 0])

@dg.compile(mode="max")
def step(x, target):
    loss = F.cross_entropy(model(x), target)
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
    return loss

losses = [step(x, target).item() for _ in range(4)]
forward = dg.compile(model, mode="max")
y = forward(x)
y.sum().backward()
grads = [p.grad.abs().sum().item() for p in model.parameters()]
values = [losses, y.tolist(), grads, model.first.calls.item()]
print(json.dumps([values, step.stats.restored, step.stats.compiles, forward.stats.restored]))
"""


def test_training_steps(process: Process, tmp_path: Path) -> None:
    """Updates in place, counters, and a node of the autograd graph whose backward is run outside."""
    path = tmp_path / "training.py"
    path.write_text(TRAINING)
    value, restored, compiles, of_model = process.run(path)
    assert (restored, compiles, of_model) == (0, 1, 0)
    assert value[-1] == 5
    assert process.run(path) == [value, 1, 0, 1]


# -- what a program must not take for granted in another process ------------------------------------------------------------

LAYER = """
FACTOR = 3.0
from dynagraph import torch
layer = torch.nn.Linear(3, 3)
with torch.no_grad():
    layer.weight.fill_(1.0)
    layer.bias.fill_(0.0)
{patch}
def helper(x):
    return layer(torch.relu(torch.from_numpy(x).float())).detach().numpy()
"""
PATCHES = {
    "a method of a layer": "torch.nn.Linear.forward = lambda self, x: x * 5",
    "an attribute of a layer's class": "torch.nn.Linear.extra = 1\ntorch.nn.Module.training = False",
    "a function by one of ours": "torch.relu = torch.neg",
    "a function by one of the user's": "torch.relu = lambda x: x - 100",
    "an instance's forward": "layer.forward = lambda x: x * 7",
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", PATCHES)
def test_libraries_that_a_later_process_has_patched(process: Process, what: str) -> None:
    plain = LAYER.format(patch="")
    before = process(helper=plain)
    assert process(helper=plain)[:3] == [before[0], 1, 0]
    patched = LAYER.format(patch=PATCHES[what])
    wanted = process(helper=patched, DYNAGRAPH_CACHE_PROGRAMS="0")
    got = run_patched(process, plain, PATCHES[what])
    assert got[0] == wanted[0]


def run_patched(process: Process, helper: str, patch: str) -> Any:
    """The unchanged script, with a patch run by a module that it imports between its definitions and its first call."""
    text = SCRIPT.format(helper=helper, body=BODY, sizes="[3]")
    (process.folder / "patches.py").write_text("def apply(torch, layer, np):\n    " + patch.replace("\n", "\n    ") + "\n")
    call = "from dynagraph.driver import saved_programs\n"
    assert call in text
    path = process.folder / "script.py"
    path.write_text(text.replace(call, call + "import patches; patches.apply(torch, layer, np)\n"))
    return process.run(path)


SWAPPED = "FACTOR = 3.0\ndef helper(x):\n    return np.sort(x) + np.sum(x)\n"


def test_functions_of_numpy_that_stand_under_others_names(process: Process) -> None:
    before = process(helper=SWAPPED)
    assert process(helper=SWAPPED)[:3] == [before[0], 1, 0]
    wanted = process(helper=SWAPPED + "np.sum = np.prod\n", DYNAGRAPH_CACHE_PROGRAMS="0")
    text = SCRIPT.format(helper=SWAPPED, body=BODY, sizes="[3]")
    call = "from dynagraph.driver import saved_programs\n"
    path = process.folder / "script.py"
    path.write_text(text.replace(call, call + "np.sum = np.prod\n"))
    assert process.run(path)[0] == wanted[0]


def test_a_users_module_with_the_name_of_a_standard_one(process: Process) -> None:
    """Its classes have digests, too."""
    helper = "FACTOR = 3.0\nimport colorsys\nhelper = colorsys.Model()\n"
    text = "class Model:\n    scale = {scale}\n    def __call__(self, x):\n        return x * self.scale\n"
    (process.folder / "colorsys.py").write_text(text.format(scale="2.0"))
    before = process(helper=helper)
    assert process(helper=helper)[:3] == [before[0], 1, 0]
    # of another size: Python takes a file that was written in the same second for the one that it has compiled
    (process.folder / "colorsys.py").write_text(text.format(scale="19.0"))
    after = process(helper=helper)
    assert after[0] != before[0] and after[1] == 0


def test_effects_on_a_users_dict(process: Process) -> None:
    """It is changed itself, whatever its keys are."""
    helper = 'FACTOR = 3.0\nKEPT = {"value": 0.0}\ndef helper(x):\n    KEPT["value"] += 1.0\n    return x * KEPT["value"]\n'
    values = [process(helper=helper, sizes="[3, 3, 3]", body=BODY)[0] for _ in range(2)]
    assert values[0] == values[1]
    assert values[0] != process(helper=helper, sizes="[3]", body=BODY)[0]


def test_steps_of_two_optimizers(process: Process, tmp_path: Path) -> None:
    """Both have states that the program finds made, where the optimizers are what they were."""
    path = tmp_path / "training.py"
    first = (
        "opt_a = torch.optim.Adam(model.first.parameters(), lr=0.1)\n"
        "opt_b = torch.optim.SGD(model.second.parameters(), lr=0.1, momentum=0.9)"
    )
    text = TRAINING.replace("target = torch.tensor", first + "\ntarget = torch.tensor").replace(
        """    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
            p.grad = None
""",
        "    opt_a.step(); opt_b.step(); opt_a.zero_grad(); opt_b.zero_grad()\n",
    )
    path.write_text(text)
    value = process.run(path)
    assert value[1:3] == [0, 1]
    assert process.run(path)[:3] == [value[0], 1, 0]
    sgd, rmsprop = "SGD(model.second.parameters(), lr=0.1, momentum=0.9)", "RMSprop(model.second.parameters(), lr=0.1)"
    path.write_text(text.replace(sgd, rmsprop))
    other = process.run(path)
    assert other[0] != value[0] and other[1] == 0
    path.write_text(text.replace('@dg.compile(mode="max")\n', "").replace("step.stats.restored, step.stats.compiles, ", "0, 1, "))
    plain = process.run(path)
    for a, b in zip(plain[0][0], value[0][0]):
        assert a == pytest.approx(b, rel=1e-5)


RECURRENT = """
from dynagraph import torch
torch.manual_seed(0)
layer = torch.nn.{name}(3, 4, 2)
{patch}
def helper(x):
    return layer(torch.from_numpy(x).float().reshape(1, 1, 3))[0].detach().numpy()[0, 0, :3]
FACTOR = 3.0
"""
# what a closure within a closure holds
INNER = """
def replace(function, name, other):
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if variable == name:
            cell.cell_contents = other(cell.cell_contents)
        elif hasattr(cell.cell_contents, "__closure__") and variable != "self":
            replace(cell.cell_contents, name, other)
replace(torch._VF.lstm, "states_of", lambda states_of: lambda hx: [h + 1 for h in states_of(hx)])
"""


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_functions_within_closures(process: Process, name: str) -> None:
    """Recurrent layers are made by a factory, whose functions stand in cells."""
    plain = RECURRENT.format(name=name, patch="")
    before = process(helper=plain)
    assert before[1:3] == [0, 1]
    assert process(helper=plain)[:3] == [before[0], 1, 0]


def test_functions_within_closures_that_were_replaced(process: Process) -> None:
    plain = RECURRENT.format(name="LSTM", patch="")
    before = process(helper=plain)
    wanted = process(helper=RECURRENT.format(name="LSTM", patch=INNER), DYNAGRAPH_CACHE_PROGRAMS="0")
    assert wanted[0] != before[0]
    assert run_patched(process, plain, INNER.strip())[0] == wanted[0]


def test_why_a_program_of_another_process_serves_no_more(process: Process) -> None:
    """Its guards are read when somebody asks."""
    changed = """
import logging
lines = []
class Kept(logging.Handler):
    def emit(self, record): lines.append(record.getMessage())
logging.getLogger("dynagraph").addHandler(Kept())
logging.getLogger("dynagraph").setLevel(logging.INFO)
f(np.arange(3.0))
FACTOR = 4.0
changed = f(np.arange(3.0)).tolist()
print(json.dumps([changed, f.stats.restored, any("FACTOR" in line for line in lines)]))
"""
    assert process()[1:3] == [0, 1]
    text = SCRIPT.format(helper=HELPER, body=BODY, sizes="[3]")
    path = process.folder / "script.py"
    path.write_text(text + changed)
    result, restored, is_explained = process.run(path)
    assert restored == 1 and is_explained
    assert process(helper=HELPER.replace("3.0", "4.0"), DYNAGRAPH_CACHE_PROGRAMS="0")[0] == result
