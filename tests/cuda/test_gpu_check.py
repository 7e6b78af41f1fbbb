"""`make gpu-check` without a GPU: reports, bars, limits, and what happens when a process dies, with fakes of device and clock."""

from __future__ import annotations

import json
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
OURS = ("gpu", "gpu_contenders", "gpu_workloads", "gpu_report", "gpu_check", "gpu_wheels", "training", "workloads")


@pytest.fixture(scope="module")
def tools() -> Iterator[SimpleNamespace]:
    """The scripts, imported as they are when one of them is run."""
    before = {name: sys.modules.pop(name, None) for name in OURS}
    folders = [str(ROOT / "scripts"), str(ROOT / "benchmarks")]
    sys.path[:0] = folders
    try:
        import gpu
        import gpu_check
        import gpu_contenders
        import gpu_report
        import gpu_wheels
        import gpu_workloads

        yield SimpleNamespace(
            gpu=gpu, check=gpu_check, contenders=gpu_contenders, report=gpu_report, wheels=gpu_wheels, workloads=gpu_workloads
        )
    finally:
        for folder in folders:
            sys.path.remove(folder)
        for name in OURS:
            sys.modules.pop(name, None)
            if before[name] is not None:
                sys.modules[name] = before[name]


def row(name: str = "sum, 1e9 float32", **times: float) -> dict[str, Any]:
    contenders = {k.replace("__", " ").replace("_", "."): {"us": v, "status": "ok"} for k, v in times.items()}
    return {"row": name, "timing": "device", "nbytes": 4_000_000, "flops": 0, "shrink": 1, "contenders": contenders}


# -- bars ------------------------------------------------------------------------------------------------------------------


def test_every_bar_is_about_a_workload_and_a_contender_of_it(tools):
    workloads = {w.name: w for w in tools.workloads.WORKLOADS}
    usual = {"dynagraph", "cupy", "torch", "torch.compile", "jax"}
    for bar in tools.report.BARS:
        workload = workloads[bar.row]
        assert set(bar.contenders) <= usual | set(workload.extra)
        assert bar.kind in {"copy", "us", *usual}
        if bar.kind == "copy":
            assert workload.timing == "device"


def test_the_bars_of_the_roadmap_are_there(tools):
    texts = {(bar.row, str(bar)) for bar in tools.report.BARS}
    assert ("chain of 5, 1e8 float32", ">= 85 % of copy") in texts
    assert ("softmax, 16384x4096 float32", ">= 1.00x torch.compile") in texts
    assert ("GELU MLP training step", ">= 0.91x torch.compile") in texts
    assert ("20 operations on 1e4 float32", ">= 3.00x cupy") in texts
    assert ("host time of one kernel", "<= 5 us") in texts


@pytest.mark.parametrize("ours, copy, met, text", [(100, 86, True, "86 %, met"), (100, 84, False, "84 %, MISSED")])
def test_a_share_of_the_copy_is_judged(tools, ours, copy, met, text):
    (judged,) = tools.report.judge(row(dynagraph=ours, copy=copy))
    assert judged["met"] is met
    assert tools.report.verdict(judged) == f">= 85 % of copy: {text}"


def test_a_bar_by_a_peer_compares_times(tools):
    judged = tools.report.judge(row("softmax, 16384x4096 float32", dynagraph=10, copy=9, torch_compile=9.9))
    assert [(j["value"], j["met"]) for j in judged] == [(0.9, True), (0.99, False)]


def test_a_bar_by_a_peer_that_is_missing_is_not_measured(tools):
    found = row("softmax, 16384x4096 float32", dynagraph=10, copy=9)
    found["contenders"]["torch.compile"] = {"status": "missing", "why": "not installed"}
    judged = tools.report.judge(found)
    assert [j["met"] for j in judged] == [True, None]
    assert tools.report.verdict(judged[1]) == ">= 1.00x torch.compile: not measured"


def test_the_better_of_our_modes_counts_where_a_bar_says_so(tools):
    found = row("20 operations on 1e4 float32", dynagraph=50, dynagraph__reduce_overhead=20, cupy=100)
    found["contenders"]["dynagraph reduce-overhead"] = found["contenders"].pop("dynagraph reduce.overhead")
    (judged,) = tools.report.judge(found)
    assert (judged["value"], judged["met"]) == (5.0, True)


def test_a_wrong_result_meets_no_bar(tools):
    found = row(dynagraph=1, copy=100)
    found["contenders"]["dynagraph"] |= {"status": "wrong", "why": "relative error 0.5"}
    assert tools.report.judge(found)[0]["met"] is None
    assert tools.report.status_of(found).startswith("WRONG")
    assert tools.report.is_failure(found)


def test_shrunk_sizes_meet_no_bar(tools):
    assert tools.report.judge(row(dynagraph=1, copy=100) | {"shrink": 2})[0]["met"] is None


@pytest.mark.parametrize(
    "facts, result, failure",
    [
        ({"skipped": "no time left"}, "skipped: no time left", False),
        ({"failed": "MemoryError: 4 GB"}, "failed: MemoryError: 4 GB", True),
        ({"died": "hung for 100 s"}, "died: hung for 100 s", True),
        ({"broken": "illegal address"}, "the device broke: illegal address", True),
        ({"contenders": {"dynagraph": {"status": "unsupported", "why": "GradientError: no"}}},
         "unsupported: GradientError: no", False),
        ({"contenders": {"dynagraph": {"status": "ok", "compiled": {"breaks": ["a.py:1: why\n  fix: so"]}}}},
         "not captured: a.py:1: why / fix: so", False),
        ({"contenders": {"dynagraph": {"status": "ok", "compiled": {"fallbacks": 1, "last_error": "E: x"}}}},
         "the compiler failed: E: x", True),
    ],
)  # fmt: skip
def test_what_a_row_came_to(tools, facts, result, failure):
    found = row() | facts
    assert tools.report.status_of(found) == result
    assert tools.report.is_failure(found) is failure


# -- reports -----------------------------------------------------------------------------------------------------------------


def test_a_report_is_written_with_each_row_to_all_folders(tools, tmp_path):
    folders = [tmp_path / "results", tmp_path / "copy"]
    report = tools.report.Report(folders)
    report.environment = {"device": "A", "driver": 1, "copy_gb_per_s": 4000.0, "versions": {"cupy": "14"}, "missing": {"jax": "no"}}
    report.add_row(row(dynagraph=1000, copy=900, cupy=2000, torch_compile=1100))
    for folder in folders:
        assert json.loads((folder / "gpu.json").read_text())["rows"][0]["bars"][0]["met"] is True
        text = (folder / "gpu.md").read_text()
        assert "| sum, 1e9 float32 | ok | >= 85 % of copy: 90 %, met |" in text
        assert "| sum, 1e9 float32 | 1000 | 4 GB/s | 90 % | - | - | 2.00x | - | - | 1.10x | - | - | - |" in text
        assert "- jax: no" in text
    assert not report.failed


def test_a_row_that_is_measured_again_replaces_the_first(tools, tmp_path):
    report = tools.report.Report([tmp_path])
    report.add_row(row(dynagraph=2))
    report.add_row(row(dynagraph=1))
    assert [r["contenders"]["dynagraph"]["us"] for r in report.rows] == [1]


def test_a_folder_that_cannot_be_written_to_does_not_stop_the_report(tools, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    report = tools.report.Report([tmp_path / "file" / "below", tmp_path / "good"])
    report.add_row(row(dynagraph=1))
    assert (tmp_path / "good" / "gpu.md").exists()
    assert str(tmp_path / "file") in capsys.readouterr().out


def test_peers_times_stand_alone_where_we_have_none(tools):
    found = row("GELU MLP training step", torch_compile=321.5)
    found["contenders"]["dynagraph"] = {"status": "unsupported", "why": "GradientError: no"}
    assert "322 us" in tools.report.line_of(found)


def test_failed_tests_are_named(tools, tmp_path):
    report = tools.report.Report([tmp_path])
    report.tests["tests/a.py"] = {"passed": 3, "failed": 1, "errors": 0, "skipped": 0, "failures": ["tests/a.py::b - x"],
                                  "outcome": "ended", "seconds": 1.0}  # fmt: skip
    report.save()
    assert report.failed
    assert "  - `tests/a.py::b - x`" in (tmp_path / "gpu.md").read_text()
    assert "1 files: 3 passed, 1 failed, 0 errors, 0 skipped" in tools.report.summary(report)


# -- tests -------------------------------------------------------------------------------------------------------------------

PRINTED = """tests/a.py::one[a b] PASSED
tests/a.py::two FAILED
tests/a.py::three ERROR
tests/a.py::four SKIPPED (no need)
=== short test summary info ===
FAILED tests/a.py::two - AssertionError: x
ERROR tests/a.py::three - ValueError: y
"""


def test_outcomes_are_read_from_what_pytest_printed(tools):
    found = tools.check.read_outcomes(PRINTED)
    assert (found["passed"], found["failed"], found["errors"], found["skipped"]) == (1, 1, 1, 1)
    assert found["failures"] == ["tests/a.py::two - AssertionError: x", "tests/a.py::three - ValueError: y"]


def test_outcomes_of_a_run_that_was_stopped_are_counted(tools):
    found = tools.check.read_outcomes(PRINTED[: PRINTED.index("tests/a.py::four")])
    assert (found["passed"], found["failed"], found["failures"]) == (1, 1, ["tests/a.py::two", "tests/a.py::three"])


def test_files_of_tests_run_with_what_time_is_left(tools, tmp_path):
    report = tools.report.Report([tmp_path])
    clock = SimpleNamespace(left=5.0)

    def run(name: str, seconds: float) -> dict[str, Any]:
        if name == "c":
            raise OSError("no process")
        clock.left = 5.0 if name == "a" else 0.5
        return tools.check.read_outcomes(f"{name}::t PASSED") | {"outcome": "ended", "seconds": seconds}

    tools.check.run_tests(report, ["a", "c", "b", "d"], run, clock, 1)
    assert {name: t["outcome"] for name, t in report.tests.items()} == {
        "a": "ended", "c": "could not be run: OSError('no process')", "b": "ended", "d": "not run: no time left",
    }  # fmt: skip
    assert report.failed
    assert json.loads((tmp_path / "gpu.json").read_text())["tests"]["a"]["passed"] == 1


def test_a_file_of_tests_runs_in_a_process_that_is_stopped_in_time(tools, tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    fuzz\n    soak\n")
    (tmp_path / "test_slow.py").write_text("import time\n\ndef test_a(): pass\n\ndef test_b(): time.sleep(60)\n")
    begun = time.monotonic()
    found = tools.check.run_test_file("test_slow.py", tmp_path, dict(tools.check.os.environ), 8.0, tmp_path / "log")
    assert time.monotonic() - begun < 40
    assert (found["passed"], found["outcome"]) == (1, "stopped after 8 s")


def test_what_tests_had_shown_when_the_check_is_ended_is_kept(tools, tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "tests" / "test_a.py").write_text("")

    def ended(report: Any, files: list[str], run: Any, clock: Any, jobs: int) -> None:
        (tmp_path / "work" / "logs" / "tests.test_a.py.log").write_text(PRINTED)
        raise SystemExit(143)

    monkeypatch.setattr(tools.check, "run_tests", ended)
    options = tools.check.parse(["--work", str(tmp_path / "work"), "--tests", "tests"])
    report = tools.report.Report([tmp_path / "results", tmp_path / "copy"])
    report.save()
    with pytest.raises(SystemExit):
        tools.check.check_tests(options, report, tree, {}, tools.check.Clock(9))
    assert report.tests["tests/test_a.py"]["outcome"] == "ended from outside"
    assert (tmp_path / "copy" / "gpu-tests.log").read_text() == PRINTED and report.failed


# -- benchmarks in processes ---------------------------------------------------------------------------------------------------

BENCHMARK = """
import json, os, signal, sys, time
done = json.loads(sys.argv[sys.argv.index("--done") + 1])
without = sys.argv[sys.argv.index("--without") + 1].split(",")
say = lambda event, **facts: print(json.dumps({"event": event, **facts}), flush=True)
say("environment", device="fake", versions={}, missing={"triton": "no"})
print("a library talks")
"""


def run_benchmark(tools: Any, tmp_path: Path, script: str, seconds: float = 20.0, row_seconds: float = 10.0) -> Any:
    (tmp_path / "bench.py").write_text(BENCHMARK + script)
    report = tools.report.Report([tmp_path / "results"])
    command = [sys.executable, str(tmp_path / "bench.py")]
    tools.check.run_benchmarks(report, command, tools.check.Clock(seconds), row_seconds=row_seconds)
    assert json.loads((tmp_path / "results" / "gpu.json").read_text()) == json.loads(json.dumps(report.as_json()))
    return report


def results(report: Any) -> dict[str, str]:
    return {r["row"]: r["result"] for r in report.rows}


OK = "{'dynagraph': {'status': 'ok', 'us': 1.0}}"


def test_rows_are_reported_as_they_come(tools, tmp_path):
    report = run_benchmark(tools, tmp_path, f"say('start', row='a'); say('row', row='a', contenders={OK}); say('end')")
    assert (results(report), report.environment["device"], report.failed) == ({"a": "ok"}, "fake", False)


def test_a_row_of_ours_that_kills_the_process_is_reported_and_left_out(tools, tmp_path):
    script = f"""
for name in "abc":
    if name not in done:
        say("start", row=name)
        say("doing", row=name, contender="dynagraph")
        if name == "b":
            os.kill(os.getpid(), signal.SIGKILL)
        say("row", row=name, contenders={OK})
say("end")
"""
    report = run_benchmark(tools, tmp_path, script)
    assert results(report) == {"a": "ok", "b": "died: dynagraph: the process ended with -9 (a library talks)", "c": "ok"}
    assert report.failed


@pytest.mark.parametrize("end", ["os.abort()", "say('row', row='a', broken='illegal address'); sys.exit(3)"])
def test_a_peer_that_breaks_the_device_is_left_out_and_the_row_measured_again(tools, tmp_path, end):
    script = f"""
say("start", row="a")
for name in ("dynagraph", "jax"):
    if name not in without:
        say("doing", row="a", contender=name)
        if name == "jax":
            {end}
say("row", row="a", contenders={OK})
say("end")
"""
    report = run_benchmark(tools, tmp_path, script)
    assert results(report) == {"a": "ok"}
    assert report.environment["missing"]["jax"].startswith("left out since a: ")
    assert not report.failed


def test_a_row_that_hangs_is_reported_and_the_others_go_on(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(tools.check, "GRACE", 0.5)
    script = f"""
for name in "ab":
    if name not in done:
        say("start", row=name)
        if name == "a":
            time.sleep(60)
        say("row", row=name, contenders={OK})
say("end")
"""
    report = run_benchmark(tools, tmp_path, script, row_seconds=1.5)
    assert results(report) == {"a": "died: its data: hung for 2 s", "b": "ok"}


def test_what_was_measured_is_kept_when_time_runs_out(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(tools.check, "GRACE", 0.5)
    script = f"say('row', row='a', contenders={OK}); say('start', row='b'); time.sleep(60)"
    begun = time.monotonic()
    report = run_benchmark(tools, tmp_path, script, seconds=2.5)
    assert time.monotonic() - begun < 15
    assert results(report) == {"a": "ok"}


def test_a_benchmark_that_cannot_start_is_a_problem(tools, tmp_path):
    report = run_benchmark(tools, tmp_path, "sys.exit('no device')")
    assert report.problems == ["benchmarks: the process ended with 1 (a library talks), before anything was measured"]
    assert report.failed


# -- measuring -----------------------------------------------------------------------------------------------------------------


class FakeDevice:
    """NumPy in the place of CuPy, and a clock by which a call takes a microsecond."""

    xp = np
    l2_bytes = 1 << 20
    broken = False

    def __init__(self) -> None:
        self.flushes = 0

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).standard_normal(shape).astype(dtype)

    def uniform(self, shape: tuple[int, ...], dtype: str, seed: int, low: float, high: float) -> np.ndarray:
        return np.random.default_rng(seed).uniform(low, high, shape).astype(dtype)

    def to_host(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def synchronize(self) -> None:
        if self.broken:
            raise RuntimeError("illegal address")

    def flush(self) -> None:
        self.flushes += 1

    def elapsed(self, run: Callable[[], Any], calls: int) -> float:
        run()
        return 1e-6 * calls

    def copier(self, nbytes: int) -> Callable[[], None]:
        return lambda: None

    def free(self) -> None:
        pass


@pytest.fixture
def contenders(tools, monkeypatch) -> dict[str, Callable[..., Any]]:
    """What each contender's library does in the place of its own: plain NumPy, until a test says otherwise."""

    def plain(name: str, mode: str, problem: Any, device: Any) -> Any:
        return tools.gpu.Contender(name, lambda: problem.of(np)(*problem.arguments), lambda result: None)

    table: dict[str, Callable[..., Any]] = dict.fromkeys(tools.contenders.MAKERS, plain)
    monkeypatch.setattr(tools.contenders, "MAKERS", table)
    monkeypatch.setattr(tools.gpu, "ROUNDS", 3)
    monkeypatch.setattr(tools.gpu, "MOST_CALLS", 2)
    return table


def plain_workloads(tools: Any) -> list[Any]:
    return [w for w in tools.workloads.WORKLOADS if w.name != "GELU MLP training step"]


def test_the_functions_give_what_float64_gives(tools, contenders):
    for workload in plain_workloads(tools):
        found = tools.gpu.measure(workload, FakeDevice(), shrink=2048)["contenders"]
        assert found["dynagraph"]["status"] == "ok", (workload.name, found["dynagraph"])
        assert found["dynagraph"]["us"] > 0 and found["cupy"]["samples"] == 3


def workload(tools: Any, name: str) -> Any:
    return next(w for w in tools.workloads.WORKLOADS if w.name == name)


@pytest.mark.parametrize("name", ["chain of 5, 1e8 float32", "sum, 1e9 float32", "softmax, 16384x4096 float32"])
@pytest.mark.parametrize("fault", [lambda r: r * 1.001, lambda r: r * np.float32("nan"), lambda r: np.append(r, r)])
def test_a_wrong_result_is_found(tools, contenders, name, fault):
    contenders["dynagraph"] = lambda n, m, p, d: tools.gpu.Contender(n, lambda: fault(p.of(np)(*p.arguments)), lambda r: None)
    found = tools.gpu.measure(workload(tools, name), FakeDevice(), shrink=1024)["contenders"]
    assert found["dynagraph"]["status"] == "wrong"
    assert found["cupy"]["status"] == "ok"


def test_one_element_that_is_not_written_is_found(tools, contenders):
    def run(problem: Any) -> Any:
        result = problem.of(np)(*problem.arguments)
        result[70_001] = np.nan
        return result

    contenders["dynagraph"] = lambda n, m, p, d: tools.gpu.Contender(n, lambda: run(p), lambda r: None)
    found = tools.gpu.measure(workload(tools, "chain of 5, 1e8 float32"), FakeDevice(), shrink=256)["contenders"]
    assert found["dynagraph"] | {"status": "wrong", "error": "nan"} == found["dynagraph"]


def test_peers_that_are_missing_or_fail_are_said_to_be(tools, contenders):
    def missing(*rest: Any) -> Any:
        raise ImportError("no jax")

    def fails(*rest: Any) -> Any:
        raise ValueError("not this one\nand more")

    contenders["jax"], contenders["torch"] = missing, fails
    found = tools.gpu.measure(workload(tools, "sum, 1e9 float32"), FakeDevice(), shrink=4096)["contenders"]
    assert (found["jax"]["status"], found["torch"]) == ("missing", {"status": "failed", "why": "ValueError: not this one"})
    assert found["dynagraph"]["status"] == "ok" and found["copy"]["us"] > 0


def test_an_error_that_stays_with_the_device_ends_the_row(tools, contenders):
    device = FakeDevice()

    def breaks(*rest: Any) -> Any:
        device.broken = True
        raise RuntimeError("launch failed")

    contenders["torch"] = breaks
    told: list[str] = []
    found = tools.gpu.measure(workload(tools, "sum, 1e9 float32"), device, shrink=4096, doing=told.append)
    assert (found["broken"], told[-1]) == ("RuntimeError: launch failed", "torch")


def test_peers_are_left_out_when_time_has_run_out(tools, contenders):
    found = tools.gpu.measure(workload(tools, "sum, 1e9 float32"), FakeDevice(), deadline=0.0, shrink=4096)["contenders"]
    assert found["cupy"]["status"] == "skipped" and found["dynagraph"]["us"] > 0


def test_the_cache_is_flushed_between_calls_of_what_it_holds(tools, contenders):
    small, large = FakeDevice(), FakeDevice()
    large.l2_bytes = 16
    for device in (small, large):
        tools.gpu.measure(workload(tools, "softmax, 4096x1024 float32"), device, shrink=64)
    assert small.flushes > 0 and large.flushes == 0


def test_all_rows_are_said_and_wrong_ones_give_the_exit_code(tools, contenders, capsys):
    contenders["dynagraph"] = lambda n, m, p, d: tools.gpu.Contender(n, lambda: np.float32(0), lambda r: None)
    options = SimpleNamespace(seconds=60.0, without="torch,jax", done='["sum, 1e9 float32"]', only="sum", shrink=65536)
    code = tools.gpu.run_all(FakeDevice(), options)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [e["row"] for e in events if e["event"] == "row"] == [
        "20 operations with sums on 1e4 float32", "column sums, 65536x1024 float32", "cumsum, 1e8 float32",
    ]  # fmt: skip
    assert events[-1] == {"event": "end"} and code == tools.gpu.WRONG


def test_gradients_by_hand_are_those_of_the_loss(tools):
    data = tools.workloads.problem("gelu")
    data.x, data.y = data.x[:4], data.y[:4]
    loss, gradients = tools.workloads.loss_and_gradients(data)
    plain = tools.workloads.models(np)["gelu"]
    exact = {k: a.astype(np.float64) for k, a in data.params.items()}
    x, y = data.x.astype(np.float64), data.y.astype(np.float64)
    assert loss == pytest.approx(float(plain(exact, x, y)), rel=1e-12)
    for name, gradient in gradients.items():
        direction = np.random.default_rng(0).standard_normal(gradient.shape)
        ahead, behind = (plain(exact | {name: exact[name] + h * direction}, x, y) for h in (1e-5, -1e-5))
        assert (ahead - behind) / 2e-5 == pytest.approx(float(np.sum(gradient * direction)), rel=1e-6)


# -- options, wheels -----------------------------------------------------------------------------------------------------------


def test_options(tools, capsys):
    options = tools.check.parse(["--only-benchmarks", "--seconds", "60", "--copy-results-to", "out"])
    assert (options.only_benchmarks, options.seconds, options.copy_results_to) == (True, 60.0, Path("out"))
    assert tools.check.parse([]).seconds <= 480
    for wrong in (["--only-tests", "--only-benchmarks"], ["--shrink", "0"], ["--seconds", "-1"]):
        with pytest.raises(SystemExit):
            tools.check.parse(wrong)
    assert "--shrink and --jobs are at least 1" in capsys.readouterr().err


def test_a_stale_wheel_is_not_used(tools, tmp_path, monkeypatch):
    def cannot(to: Path, offline: bool = False) -> Path:
        raise tools.wheels.NoWheel("no compiler")

    monkeypatch.setattr(tools.wheels, "build_wheel", cannot)
    wheel = tmp_path / f"dynagraph-1-{tools.wheels.python_tag()}-x.whl"
    wheel.write_text("")
    manifest = tmp_path / "manifest.json"
    manifest.write_text(json.dumps({"wheel": wheel.name, "sources": tools.wheels.fingerprint()}))
    assert tools.wheels.wheel_of_tree(tmp_path) == wheel
    for text in (json.dumps({"wheel": wheel.name, "sources": "others"}), "no JSON"):
        manifest.write_text(text)
        said = r"(?s)no wheel for cp3\d+ of the sources as they are .*make wheel-cp312.*no compiler"
        with pytest.raises(tools.wheels.NoWheel, match=said):
            tools.wheels.wheel_of_tree(tmp_path)


def test_a_wheel_that_cannot_be_had_is_reported_with_its_own_exit_code(tools, tmp_path, monkeypatch):
    monkeypatch.setattr(tools.wheels, "run", lambda *command, **options: (_ for _ in ()).throw(tools.wheels.NoWheel("no pip")))
    arguments = ["--wheels", tmp_path / "none", "--work", tmp_path / "work", "--results", tmp_path / "results"]
    options = tools.check.parse([str(a) for a in arguments])
    report = tools.report.Report([options.results])
    assert tools.check.check(options, report) == 2
    assert "no pip" in (tmp_path / "results" / "gpu.md").read_text()


def test_only_what_is_missing_is_unpacked(tools, tmp_path):
    for name, module in (("dynagraph-1", "dynagraph_of_test"), ("numpy-1", "numpy"), ("other-1", "nowhere_else")):
        with zipfile.ZipFile(tmp_path / f"{name}-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{module}/__init__.py", "")
            archive.writestr(f"{name}.dist-info/METADATA", "")
    assert tools.wheels.top_level(tmp_path / "numpy-1-py3-none-any.whl") == {"numpy"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools.check, "wheel_of_tree", lambda wheels: tmp_path / "dynagraph-1-py3-none-any.whl")
        patch.setattr(tools.check, "COPIED", ("pyproject.toml",))
        used = tools.check.prepare(tmp_path, tmp_path / "tree")
    assert used == ["dynagraph-1-py3-none-any.whl", "other-1-py3-none-any.whl"]
    assert {p.name for p in (tmp_path / "tree").iterdir()} >= {"dynagraph_of_test", "nowhere_else", "pyproject.toml"}
    assert not (tmp_path / "tree" / "numpy").exists()


def test_what_is_needed_is_what_the_project_says(tools):
    names = {need.split(">")[0] for need in tools.wheels.needs()}
    assert {"networkx", "click", "rich", "platformdirs", "bytecode", "pytest"} <= names and "numpy" not in names
