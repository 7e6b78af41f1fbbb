"""The `dynagraph` command: what it prints, and what it says where it cannot."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import dynagraph as dg
from dynagraph.tools import bench as bench_module
from dynagraph.tools import doctor as doctor_module
from dynagraph.tools.bench import duration
from dynagraph.tools.cache import size
from dynagraph.tools.cli import main
from dynagraph.tools.doctor import CHECKS, shorten
from dynagraph.tools.dump import FLAGS
from dynagraph.tools.workloads import SUITE

MODEL = """
import numpy as np
import dynagraph as dg

EXAMPLE_INPUTS = {"forward": (np.ones((4, 3)), np.ones((3, 2)))}

@dg.compile
def forward(x, w):
    return np.maximum(x @ w, 0) + 1.0

@dg.compile
def branches(x):
    if (x > 0).any():
        return x
    return -x

def plain(x):
    return np.exp(x) * 2

if __name__ == "__main__":
    print("the script prints")
    forward(np.ones((4, 3)), np.ones((3, 2)))
    branches(np.ones(3))
"""


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "cache"
    with dg.config.override(cache_dir=str(folder)):
        yield folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def good(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def bad(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code != 0
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


# -- dump -------------------------------------------------------------------------------------------------------------
def test_dump_shows_the_graph_of_a_function_with_offered_arguments(model: Path) -> None:
    out = good("dump", f"{model}:forward")
    assert "== forward: graph" in out
    assert "matmul" in out and "float64[4, 2]" in out and "model.py:9" in out
    assert "== forward: breaks\nnone: no call ran eagerly" in out


@pytest.mark.parametrize("section", sorted(FLAGS.keys() - {"dot"}))
def test_every_section_can_be_shown(model: Path, section: str) -> None:
    out = good("dump", f"{model}:forward", f"--{section}")
    heading, body = out.split("\n", 1)
    assert heading == f"== forward: {section}"
    assert body.strip()
    assert "to show" not in body


def test_sections_hold_what_they_say(model: Path) -> None:
    target = f"{model}:forward"
    assert "int entry(" in good("dump", target, "--kernels") or "dg_" in good("dump", target, "--kernels")
    assert "np.maximum(" in good("dump", target, "--python")
    assert "eliminate-dead-code" in good("dump", target, "--passes")
    assert "RETURN_VALUE" in good("dump", target, "--bytecode")
    assert good("dump", target, "--dot").startswith("digraph")


def test_dump_takes_arguments_for_a_function_that_is_not_compiled(model: Path) -> None:
    assert "float32[3, 4]" in good("dump", f"{model}:plain", "--shapes", "f32[3,4]")
    assert "float64[7]" in good("dump", f"{model}:plain", "--args", "np.zeros(7)")


def test_dump_of_a_script_shows_what_it_captured(model: Path) -> None:
    result = run("dump", model)
    assert result.exit_code == 0
    assert "the script prints" not in result.stdout
    assert "the script prints" in result.stderr
    assert "== forward: graph" in result.stdout
    assert "== branches: breaks\n1 x " in result.stdout


def test_dump_of_a_function_without_arguments_runs_the_script(tmp_path: Path) -> None:
    path = tmp_path / "plain_script.py"
    path.write_text("import numpy as np, dynagraph as dg\n@dg.compile\ndef f(x):\n    return x + 1\n"
                    "@dg.compile\ndef g(x):\n    return x + 1\n\nf(np.ones(3))\nf(np.ones(3, np.float32))\n")
    out = good("dump", f"{path}:f")
    assert "== f (program 1 of 2): graph" in out
    assert "float32[3]" in out
    assert "running the file did not call it; give --args or --shapes" in bad("dump", f"{path}:g")


def test_script_arguments_reach_the_script(tmp_path: Path) -> None:
    path = tmp_path / "sized.py"
    path.write_text("import sys, numpy as np, dynagraph as dg\n"
                    "f = dg.compile(lambda x: x + 1)\nf(np.ones(int(sys.argv[1])))\n")
    assert "float64[6]" in good("dump", path, "6")


def test_json_holds_every_section(model: Path) -> None:
    (found,) = json.loads(good("dump", f"{model}:forward", "--json"))
    assert found["function"] == "forward"
    (program,) = found["programs"]
    assert program["graph"]["nodes"][-1]["kind"] == "output"
    assert program["passes"][0]["pass"] == "captured"
    assert {"loops", "kernels", "guards", "dot", "python"} <= program.keys()
    (found,) = json.loads(good("dump", f"{model}:forward", "--json", "--guards"))
    assert set(found["programs"][0]) == {"capture_seconds", "compile_seconds", "guards"}


def test_what_was_not_captured_is_explained(model: Path) -> None:
    out = good("dump", f"{model}:branches", "--args", "np.ones(3)", "--breaks")
    assert "the branch depends on the value of an array" in out
    assert "model.py:13" in out


def test_kernels_for_a_device_are_shown_without_one(model: Path) -> None:
    target = (f"{model}:plain", "--shapes", "f32[30,40]", "--device", "cuda")
    kernels = good("dump", *target, "--kernels")
    assert "// compiled for sm_90\n// k0<<<" in kernels and "registers, no spills" in kernels
    assert "__global__" in kernels and "model.py:18" in kernels
    assert "// compiled for sm_80\n" in good("dump", *target, "--kernels", "--arch", "80")
    assert "// compiled to PTX: NVRTC " in good("dump", *target, "--kernels", "--arch", "91")
    assert "newer, not for sm_50; " in good("dump", *target, "--kernels", "--arch", "50")
    with dg.config.override(nvrtc="/nowhere"):
        assert "// not compiled: config.nvrtc='/nowhere' is no NVRTC" in good("dump", *target, "--kernels")


def test_a_program_without_kernels_says_so(tmp_path: Path) -> None:
    path = tmp_path / "texts.py"
    path.write_text("import numpy as np\ndef f(x):\n    y = x + 1\n    return np.array(['a'])\n")
    result = run("dump", f"{path}:f", "--shapes", "f32[3]", "--device", "cuda", "--kernels")
    assert result.exit_code == 0 and "// no kernels: nothing is computed" in result.stdout
    assert result.stderr == "f: this is not all of it; --breaks says where it breaks, and why\n"


@pytest.mark.parametrize("arguments, message", [
    (("dump", "nothing.py"), "there is no file 'nothing.py'"),
    (("dump", "MODEL:nothing"), "model.py has no function 'nothing'; it defines branches, forward, plain"),
    (("dump", "MODEL", "--shapes", "f32[3]"), "--args and --shapes are arguments of one function: give FILE.py:FUNC"),
    (("dump", "MODEL:forward", "--args", "1"), "forward: missing a required argument: 'w'; it takes (x, w), and was given 1"),
    (("dump", "MODEL:forward", "--shapes", ""), "forward: missing a required argument: 'x'"),
    (("dump", "MODEL:plain", "--shapes", "f32[3]", "--args", "1"), "give one of them"),
    (("dump", "MODEL:plain", "--shapes", "f64"), "'f64' is neither a shape, such as f32[3,4] or f64[] for one value, nor"),
    (("dump", "MODEL:plain", "--shapes", "f64[1000000000000000]"), "'f64[1000000000000000]': Unable to allocate"),
    (("dump", "MODEL:plain", "--shapes", "f64[100000000000000000000]"), "give a smaller one"),
    (("dump", "MODEL:plain"), "it is not decorated with @dynagraph.compile, so running the file captured nothing"),
    (("bench", "MODEL:plain"), "no arguments to call it with; give --args or --shapes"),
    (("explain",), "give FILE.py or FILE.py:FUNC, --reason NAME, or --reasons"),
])  # fmt: skip
def test_faults_of_commands_are_said(model: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in bad(*(a.replace("MODEL", str(model)) for a in arguments))


def test_a_syntax_error_is_shown_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("x = 1\ndef f(:\n")
    assert "broken.py, line 2" in bad("dump", f"{path}:f")


# -- explain ----------------------------------------------------------------------------------------------------------
def test_explain_says_what_compiles_and_what_does_not(model: Path) -> None:
    out = good("explain", model)
    assert "forward: compiled\n  one graph of" in out
    assert "branches: compiled in parts, around breaks" in out
    assert "breaks, and goes on after it" in out
    assert "model.py:13" in out


def test_reasons_are_catalogued() -> None:
    listed = good("explain", "--reasons")
    assert "array-branch" in listed
    entry = good("explain", "--reason", "array-branch")
    assert "np.where" in entry
    assert "array-branch" in [r["reason"] for r in json.loads(good("explain", "--reasons", "--json"))]


def test_unknown_reason_suggests_one() -> None:
    assert "did you mean array-branch?" in bad("explain", "--reason", "array-brunch")


# -- bench ------------------------------------------------------------------------------------------------------------
def test_bench_measures_the_functions_of_a_file(model: Path) -> None:
    result = run("bench", model, "--rounds", 2, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    (figures,) = found["results"]
    assert figures["name"] == "forward"
    assert figures["ratio"] == pytest.approx(figures["eager"]["median_s"] / figures["compiled"]["median_s"])
    assert figures["ran_eagerly_because"] is None
    assert found["machine"]["numpy"] == np.__version__
    assert "branches: left out, for" in result.stderr


def test_bench_prints_a_table(model: Path) -> None:
    out = good("bench", f"{model}:plain", "--shapes", "f64[1000]", "--rounds", 2)
    assert "eager against compiled" in out
    assert "plain" in out and "GB/s" in out


def test_bench_of_the_built_in_suite_agrees_with_numpy() -> None:
    found = json.loads(good("bench", "--quick", "--rounds", 2, "--json"))
    assert [r["name"] for r in found["results"]] == [w.name for w in SUITE]
    assert [r["ran_eagerly_because"] for r in found["results"]] == [None] * len(SUITE)
    assert {r["rate_unit"] for r in found["results"]} == {"GB/s", "GFLOP/s"}


def test_bench_says_what_ran_eagerly(model: Path) -> None:
    out = good("bench", f"{model}:branches", "--args", "np.ones(3)", "--rounds", 2)
    assert "branches ran eagerly: model.py:13: the branch depends on the value of an array" in out


def test_bench_draws_a_chart(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    good("bench", model, "--rounds", 2, "--plot", tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_missing_matplotlib_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    out = bad("bench", "--plot", tmp_path / "out.png")
    assert "--plot needs matplotlib, which is not installed; pip install 'dynagraph[plot]'" in out


def test_wrong_results_are_an_error_not_a_figure() -> None:
    right, wrong = np.array([1.0, 2.0]), np.array([1.0, 2.5])
    assert bench_module.largest_difference("f", right, right) == 0.0
    with pytest.raises(Exception, match=r"f: compiled and plain results differ by 2.5e-01 of the largest"):
        bench_module.largest_difference("f", wrong, right)
    with pytest.raises(Exception, match=r"f: the compiled function gave other shapes or dtypes"):
        bench_module.largest_difference("f", right.astype(np.float32), right)
    with pytest.raises(Exception, match=r"results differ"):
        bench_module.largest_difference("f", np.array([1.0, np.nan]), right)


def test_only_selects_workloads() -> None:
    assert "no workload has 'nothing like this' in its name" in bad("bench", "--only", "nothing like this")
    assert "sum, f64" in good("bench", "--only", "sum, f64", "--quick", "--rounds", 2)


# -- cache ------------------------------------------------------------------------------------------------------------
def test_cache_is_described_and_cleared(private_cache: Path) -> None:
    dg.compile(lambda x: x + 1.0, fullgraph=True)(np.ones(3))
    found = json.loads(good("cache", "info", "--json"))
    assert found["folder"] == str(private_cache)
    assert found["entries"] == 1
    assert "kernels  1\n" in good("cache", "info")
    assert good("cache", "clear").startswith("removed 1 kernel (")
    assert "kernels  0\n" in good("cache", "info")


def test_cache_that_is_switched_off_is_said() -> None:
    with dg.config.override(cache=False):
        assert "no kernels are kept on disk" in good("cache", "info")
        assert "no kernels are kept on disk" in bad("cache", "clear")


# -- doctor -----------------------------------------------------------------------------------------------------------
def test_doctor_checks_everything() -> None:
    found = {row["subject"]: row for row in json.loads(good("doctor", "--json"))}
    assert len(found) == len(CHECKS)
    assert found["first program"]["status"] == "ok", found["first program"]
    assert found["NumPy"]["finding"] == np.__version__
    out = good("doctor")
    assert all(subject in out for subject in found)


def test_doctor_says_what_to_do_without_a_compiler() -> None:
    with dg.config.override(cc="no-such-compiler"):
        check = doctor_module.check_compiler()
    assert check.status == "warning"
    assert "no-such-compiler" in check.finding
    assert "install gcc or clang" in check.cure


def test_doctor_says_what_to_do_about_the_cache(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    with dg.config.override(cache_dir=str(shared)):
        check = doctor_module.check_cache()
    assert check.status == "warning"
    assert "chmod 700" in check.cure
    with dg.config.override(cache=False):
        assert doctor_module.check_cache().status == "note"


def test_doctor_exits_with_1_where_something_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = doctor_module.Check("everything", doctor_module.ERROR, "broken", "mend it")
    monkeypatch.setattr(doctor_module, "CHECKS", [lambda: broken])
    result = run("doctor")
    assert result.exit_code == 1
    assert "mend it" in result.output


# -- small things -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seconds, text", [(2.5, "2.5 s"), (0.00123, "1.23 ms"), (4.2e-6, "4.2 µs"), (8e-8, "80 ns")])
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize("nbytes, text", [(5, "5 B"), (2048, "2.0 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")])
def test_sizes_read_well(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


def test_long_lists_of_flags_are_shortened() -> None:
    assert shorten("-O3 -mno-avx -mavx2") == "-O3 -mavx2"
    assert shorten(" ".join(f"-m{k}" for k in range(20))).endswith("-m11 ... and 8 more")


@pytest.mark.parametrize("workload", SUITE, ids=lambda w: w.name)
def test_workloads_scale(workload: Any) -> None:
    small, large = workload.inputs(0.01), workload.inputs(0.02)
    assert len(small) == len(large)
    workload.function(*small)


# -- as a command -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["dump", "--help"], ["explain", "--reasons"]])
def test_command_runs_as_a_module(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "dynagraph", *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_output_that_is_piped_has_no_colours(model: Path) -> None:
    command = [sys.executable, "-m", "dynagraph", "dump", f"{model}:forward", "--kernels", "--graph"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "\x1b[" not in done.stdout
