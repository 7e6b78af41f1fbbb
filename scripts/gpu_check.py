"""Everything that needs a GPU, in one go: the CUDA tests for real, then the benchmarks.  `make gpu-check`.

    python scripts/gpu_check.py [--seconds 470] [--test-seconds 200] [--only-tests | --only-benchmarks] [--copy-results-to DIR]

Needs NumPy and CuPy, and no network: the project's wheel and what else is missing come from `gpu-wheels/` (`make wheel-cp312`).
They are unpacked into build/gpu-check, with the tests and benchmarks beside them; nothing is installed elsewhere.  The report,
gpu.json and gpu.md, is written anew after each file of tests and each row, so that what was found is kept whatever happens.

Each file of tests is a process of its own, as is the benchmark, which goes on behind a row that killed it: an error that stays with
the device ends with the process.  Exit code: 0 where all is right (bars may be missed), 1 where a test failed or did not end, a
result was wrong or a row could not be measured, 2 where nothing could run.  Only the standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from gpu_report import Report, summary
from gpu_wheels import FOLDER, ROOT, NoWheel, top_level, unpack, wheel_of_tree

TESTS = (
    "tests/cuda", "tests/cupy_arrays", "tests/torch/test_on_device.py", "tests/torch/test_compiled_on_device.py",
    "tests/torch/test_cuda.py", "tests/torch/multiprocessing/test_memory_of_gpus.py",
)  # fmt: skip
# what runs on the device comes first; the rest has been run without one
ON_DEVICE = (
    "tests/cupy_arrays/",
    *(f"tests/cuda/test_{name}.py" for name in ("products", "replay_anywhere", "calibration", "transfers", "devices", "api")),
)
COPIED = ("tests", "benchmarks", "scripts", "docs", "examples", "pyproject.toml", "setup.py", "README.md", "LICENSE", "Makefile")
ROW_SECONDS = 100.0  # a row that takes longer hangs
GRACE = 5.0  # seconds between asking a process to end and ending it
OUTCOME = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
COUNTED = {"PASSED": "passed", "XFAIL": "passed", "FAILED": "failed", "XPASS": "failed", "ERROR": "errors", "SKIPPED": "skipped"}
FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+::.*)$")


class Clock:
    """What is left of a number of seconds."""

    def __init__(self, seconds: float):
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def part(self, seconds: float) -> Clock:
        return Clock(min(seconds, self.left))


# -- preparing ----------------------------------------------------------------------------------------------------------------


def prepare(wheels: Path, tree: Path) -> list[str]:
    """Make a folder that holds the unpacked wheels, tests and benchmarks; gives the names of the wheels.  Raises NoWheel.

    What can be imported already is not unpacked.
    """
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    wheel = wheel_of_tree(wheels)
    used = [wheel]
    unpack(wheel, tree)
    for other in sorted(wheels.glob("*.whl")):
        if not other.name.startswith("dynagraph-") and any(importlib.util.find_spec(name) is None for name in top_level(other)):
            unpack(other, tree)
            used.append(other)
    ignored = shutil.ignore_patterns("__pycache__", "results", ".*")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=ignored)
        elif source.exists():
            shutil.copy(source, tree / name)
    return [w.name for w in used]


def environment_for(tree: Path, work: Path) -> dict[str, str]:
    """Of the processes that are started: the unpacked packages come first, and all caches are new, so that first calls compile."""
    caches = work / "caches"
    shutil.rmtree(caches, ignore_errors=True)
    path = os.pathsep.join([str(tree), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONWARNINGS", "PYTEST_ADDOPTS", "DYNAGRAPH_CUDA_CHECK")}
    new = {
        "DYNAGRAPH_CACHE_DIR": "dynagraph", "CUPY_CACHE_DIR": "cupy", "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TRITON_CACHE_DIR": "triton",
    }  # fmt: skip
    for folder in new.values():
        (caches / folder).mkdir(parents=True)
        (caches / folder).chmod(0o700)
    return kept | {k: str(caches / v) for k, v in new.items()} | {
        "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PY_COLORS": "0", "NO_COLOR": "1",
        "COLUMNS": "200", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }  # fmt: skip


# -- processes ----------------------------------------------------------------------------------------------------------------


_running: set[subprocess.Popen[str]] = set()


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process in a group of its own, which is ended, with all that it started, when the block is left."""
    process = subprocess.Popen(list(command), text=True, errors="replace", start_new_session=True, **options)
    _running.add(process)
    try:
        yield process
    finally:
        for sign, wait in ((signal.SIGINT, GRACE), (signal.SIGTERM, 1.0), (signal.SIGKILL, GRACE)):
            if process.poll() is None:
                _signal(process, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(wait)
        _signal(process, signal.SIGKILL)  # what it started and left
        _running.discard(process)


def _signal(process: subprocess.Popen[str], sign: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, sign)


def end_all() -> None:
    """End what still runs."""
    for process in list(_running):
        _signal(process, signal.SIGKILL)


# -- tests --------------------------------------------------------------------------------------------------------------------


def read_outcomes(text: str) -> dict[str, Any]:
    """Counts, and the lines of failures, in what `pytest -v -rfE` printed, whether it came to its end or not."""
    counts = dict.fromkeys(("passed", "failed", "errors", "skipped"), 0)
    failures = []
    seen = []
    for line in text.splitlines():
        if found := OUTCOME.match(line):
            counts[COUNTED[found[2]]] += 1
            if found[2] in ("FAILED", "ERROR"):
                seen.append(found[1])
        elif found := FAILURE.match(line):
            failures.append(found[1])
    return counts | {"failures": failures or seen}


def run_test_file(name: str, tree: Path, environment: dict[str, str], seconds: float, log: Path) -> dict[str, Any]:
    """One file of tests in a process of its own; its output goes to `log`."""
    command = [sys.executable, "-m", "pytest", name, "-o", "addopts=", "-v", "-rfE", "--tb=short", "-p", "no:cacheprovider"]
    command += ["--strict-markers", "-m", "not fuzz and not soak", "-W", "default", "-o", "console_output_style=classic"]
    begun = time.monotonic()
    with log.open("w") as out, started(command, cwd=tree, env=environment, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            code = process.wait(seconds)
            # 0 passed, 1 failures, 5 no tests
            outcome = "ended" if code in (0, 1, 5) else f"pytest ended with {code}"
        except subprocess.TimeoutExpired:
            outcome = f"stopped after {seconds:.0f} s"
    found = read_outcomes(log.read_text(errors="replace"))
    return found | {"outcome": outcome, "seconds": round(time.monotonic() - begun, 1)}


def run_tests(report: Report, files: Sequence[str], run: Callable[[str, float], dict[str, Any]], clock: Clock, jobs: int) -> None:
    """Run files of tests, several at once, and report each when it has ended; those that had no time left are said to be so."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in files:
        waiting.put(name)
    lock = threading.Lock()

    def work() -> None:
        while True:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            if clock.left < 1:
                found = read_outcomes("") | {"outcome": "not run: no time left", "seconds": 0.0}
            else:
                try:
                    found = run(name, clock.left)
                except Exception as error:
                    found = read_outcomes("") | {"outcome": f"could not be run: {error!r}", "seconds": 0.0}
            with lock:
                report.tests[name] = found
                report.save()
                print(f"{name}: {found['passed']} passed, {found['failed']} failed, {found['errors']} errors, "
                      f"{found['skipped']} skipped, {found['seconds']} s, {found['outcome']}", flush=True)  # fmt: skip

    threads = [threading.Thread(target=work, daemon=True) for _ in range(max(1, jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_files(tree: Path, folders: Sequence[str]) -> list[str]:
    """The files of tests in folders, or files themselves, as paths within the tree: those that need the device first.

    Of these and of the others the largest, as it takes longest.
    """
    found = []
    for name in folders:
        path = tree / name
        found += [path] if path.is_file() else path.rglob("test_*.py")
    by_size = [str(p.relative_to(tree)) for p in sorted(found, key=lambda p: -p.stat().st_size)]
    return sorted(by_size, key=lambda name: not name.startswith(ON_DEVICE))


# -- benchmarks ---------------------------------------------------------------------------------------------------------------


@dataclass
class Progress:
    """How far the benchmark has come, over all its processes."""

    done: list[str] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    row: str | None = None  # that is being measured
    contender: str | None = None
    ended: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether what runs now is dynagraph, or all together, rather than one peer."""
        return self.contender is None or self.contender.startswith("dynagraph") or self.contender == "timing"


def run_benchmarks(
    report: Report, command: Sequence[str], clock: Clock, without: Sequence[str] = (),
    row_seconds: float = ROW_SECONDS, **options: Any,
) -> None:  # fmt: skip
    """Run the benchmark to its end, in a new process behind what killed or hung one: without the row, or without the peer."""
    progress = Progress(without=list(without))
    while clock.left > 1 and not progress.ended:
        before = len(progress.done), len(progress.without)
        arguments = ["--seconds", f"{max(1.0, clock.left - 10):.0f}", "--done", json.dumps(progress.done)]
        arguments += ["--without", ",".join(progress.without)]
        why = _run_process(report, [*command, *arguments], clock, row_seconds, progress, options)
        if progress.ended:
            return
        _note_death(report, progress, why)
        if before == (len(progress.done), len(progress.without)):
            report.problems.append(f"benchmarks: {why}, before anything was measured")
            break
    if not progress.ended and clock.left <= 1:
        print("benchmarks: no time left", flush=True)
    report.save()


def _run_process(
    report: Report, command: Sequence[str], clock: Clock, row_seconds: float, progress: Progress, options: dict[str, Any]
) -> str:  # fmt: skip
    """Follow one process; gives why it did not come to its end."""
    progress.row = progress.contender = None
    lines: queue.Queue[str | None] = queue.Queue()
    with started(command, stdout=subprocess.PIPE, **options) as process:
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        reader.start()
        why = _follow(report, process, lines, clock, row_seconds, progress)
    reader.join(GRACE)
    return why


def _read(stdout: IO[str], lines: queue.Queue[str | None]) -> None:
    with stdout:
        for line in stdout:
            lines.put(line)
    lines.put(None)


def _follow(
    report: Report, process: subprocess.Popen[str], lines: queue.Queue[str | None], clock: Clock, row_seconds: float,
    progress: Progress,
) -> str:  # fmt: skip
    last = ""
    row_clock = Clock(row_seconds)
    while True:
        try:
            line = lines.get(timeout=min(clock.left, row_clock.left))
        except queue.Empty:
            return "no time left" if clock.left < 1 else f"hung for {row_seconds:.0f} s"
        event = None if line is None else _event(line)
        if event is not None and _take(report, progress, event):
            row_clock = Clock(row_seconds)
        elif line is not None and event is None:
            last = line.strip()[:200] or last
        if line is None or progress.ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            return f"the process ended with {process.poll()}{f' ({last})' if last else ''}"


def _event(line: str) -> dict[str, Any] | None:
    """What the benchmark said, or None for what a library printed."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _take(report: Report, progress: Progress, event: dict[str, Any]) -> bool:
    """Note an event; gives whether a new row begins."""
    kind = event.pop("event")
    if kind == "environment":
        missing = report.environment.get("missing", {}) | event.get("missing", {})
        report.environment |= event | {"missing": missing}
        report.save()
    elif kind == "start":
        progress.row, progress.contender = event["row"], None
    elif kind == "doing":
        progress.contender = event["contender"]
    elif kind == "row" and "broken" in event and not progress.is_ours:
        _leave_out(report, progress, event["broken"])
    elif kind == "row":
        report.add_row(event)
        progress.done.append(event["row"])
        progress.row = progress.contender = None
        print(summary(Report([], rows=report.rows[-1:])).splitlines()[-1], flush=True)
    elif kind == "end":
        progress.ended = True
    return kind == "start"


def _note_death(report: Report, progress: Progress, why: str) -> None:
    """Leave out the peer that the process ended with, or report the row."""
    if progress.row is None or why == "no time left":
        return
    if progress.is_ours:
        report.add_row({"row": progress.row, "died": f"{progress.contender or 'its data'}: {why}"})
        progress.done.append(progress.row)
        print(f"benchmarks: {progress.row}: {why}; going on", flush=True)
    else:
        _leave_out(report, progress, why)


def _leave_out(report: Report, progress: Progress, why: str) -> None:
    """From now on; the row is measured again."""
    assert progress.contender is not None
    progress.without.append(progress.contender)
    report.environment.setdefault("missing", {})[progress.contender] = f"left out since {progress.row}: {why}"
    print(f"benchmarks: {progress.row}, {progress.contender}: {why}; going on without it", flush=True)
    progress.row = progress.contender = None


# -- all ----------------------------------------------------------------------------------------------------------------------


def device_there(environment: dict[str, str], folder: Path, seconds: float = 60.0) -> str | None:
    """Why nothing can run: CuPy or the device is missing, or the package cannot be imported; else None.

    `folder` holds what is tested: Python looks there first, not in the working directory, which may be a source tree.
    """
    script = (
        "import numpy, cupy, dynagraph; assert cupy.is_available(), 'CuPy finds no GPU'; "
        "assert float((cupy.arange(3) + 1).sum()) == 6; print(dynagraph.__file__)"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds,
            check=False
        )
    except subprocess.TimeoutExpired:
        return f"importing CuPy and dynagraph took more than {seconds:.0f} s"
    return None if done.returncode == 0 else "\n".join(done.stderr.strip().splitlines()[-3:])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=470.0, help="for all")
    parser.add_argument("--test-seconds", type=float, default=200.0, help="of these, for the tests at most")
    parser.add_argument("--jobs", type=int, default=max(1, min(8, (os.cpu_count() or 1) // 2)), help="files of tests at once")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), metavar="PATH", help="folders or files")
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--shrink", type=int, default=1, help="divide the sizes of the benchmarks by this; bars do not apply then")
    parser.add_argument("--without", default="", help="contenders to leave out, with commas between them")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--copy-results-to", type=Path, metavar="DIR", help="also write the report, and logs, here")
    parser.add_argument("--wheels", type=Path, default=ROOT / FOLDER)
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gpu-check")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only-tests", action="store_true")
    which.add_argument("--only-benchmarks", action="store_true")
    options = parser.parse_args(arguments)
    if options.shrink < 1 or options.jobs < 1 or options.seconds <= 0:
        parser.error("--shrink and --jobs are at least 1, --seconds more than 0")
    return options


def check_tests(options: argparse.Namespace, report: Report, tree: Path, environment: dict[str, str], clock: Clock) -> None:
    logs = options.work / "logs"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    log_of = {name: logs / f"{name.replace('/', '.')}.log" for name in test_files(tree, options.tests)}

    def run(name: str, seconds: float) -> dict[str, Any]:
        return run_test_file(name, tree, environment, seconds, log_of[name])

    of_tests = clock.part(options.seconds if options.only_tests else options.test_seconds)
    try:
        run_tests(report, list(log_of), run, of_tests, options.jobs)
    finally:  # also where the whole check is ended from outside
        texts = {name: log.read_text(errors="replace") for name, log in log_of.items() if log.exists()}
        for name in texts.keys() - report.tests.keys():
            report.tests[name] = read_outcomes(texts[name]) | {"outcome": "ended from outside", "seconds": 0.0}
        everything = options.work / "gpu-tests.log"
        everything.write_text("\n".join(text[-200_000:] for text in texts.values()))
        report.keep(everything)
        print(f"what the tests printed: {everything}", flush=True)


def check_benchmarks(options: argparse.Namespace, report: Report, tree: Path, environment: dict[str, str], clock: Clock) -> None:
    command = [sys.executable, str(tree / "benchmarks" / "gpu.py"), "--only", options.only, "--shrink", str(options.shrink)]
    without = list(filter(None, options.without.split(",")))
    log = options.work / "gpu-benchmarks.log"  # what goes to stderr: warnings, and tracebacks of what died
    try:
        with log.open("w") as errors:
            run_benchmarks(report, command, clock, without, env=environment, cwd=tree, stderr=errors)
    finally:
        report.keep(log)
    if report.problems or any("died" in row for row in report.rows):
        print("\n".join(log.read_text(errors="replace").splitlines()[-20:]), flush=True)


def check(options: argparse.Namespace, report: Report) -> int:
    clock = Clock(options.seconds)
    tree = options.work / "tree"
    try:
        wheels = prepare(options.wheels, tree)
        environment = environment_for(tree, options.work)
        problem = device_there(environment, tree)
    except (NoWheel, OSError) as error:
        problem = str(error)
    if problem is not None:
        report.problems.append(problem)
        report.save()
        return 2
    print("unpacked: " + ", ".join(wheels), flush=True)
    if not options.only_benchmarks:
        check_tests(options, report, tree, environment, clock)
    if not options.only_tests:
        check_benchmarks(options, report, tree, environment, clock)
    return 1 if report.failed else 0


def end_on_signal(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    signal.signal(signal.SIGTERM, end_on_signal)  # so that what was started is ended, too
    report = Report([options.results, *([options.copy_results_to] if options.copy_results_to else [])])
    try:
        code = check(options, report)
    finally:
        end_all()
        report.save()
        print("\n" + summary(report), flush=True)
    print(f"written: {options.results / 'gpu.json'}, {options.results / 'gpu.md'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
