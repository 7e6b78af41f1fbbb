"""Runs test files of NumPy plainly and with every test compiled; a table, or JSON, of what only fails compiled.

    python tests/numpy_suite/run.py _core/tests/test_indexing.py [files] [--json] [--only TEXT] [--journal FOLDER] [plugin options]

Each file runs in a process of its own.  A test in which that process ends counts as failed, and a further process goes on
behind it.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
NUMPY = Path(np.__file__).resolve().parent
CRASHES = 20  # after which a file is given up
AVAILABLE_MEMORY = "2 GB"  # what tests of large arrays may take: they are skipped


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", help="below the package's folder")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="an expression of pytest's -k")
    parser.add_argument("--journal", type=lambda text: Path(text).resolve(), help="keep it in this folder")
    options, others = parser.parse_known_args()
    reports = []
    for file in options.files:
        with tempfile.TemporaryDirectory() as folder:
            journal = (options.journal or Path(folder)) / (file.replace("/", "-") + ".jsonl")
            journal.unlink(missing_ok=True)
            reports.append(run_file(file, journal, ["-k", options.only, *others]))
        if not options.json:
            print(row(reports[-1]), flush=True)
    if options.json:
        print(json.dumps(reports, indent=1))
    else:
        print("\n\n".join(f"{f['id']} (run {f['run']})\n{f['traceback']}" for report in reports for f in report["failures"]))


def run_file(file: str, journal: Path, arguments: list[str]) -> dict[str, Any]:
    """The report on one file; its tests run in as many processes as crashes make necessary."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONWARNINGS", None)
    command = [
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(NUMPY),
        "-p", "no:cacheprovider", "-p", "no:faulthandler", "-m", "not slow", f"--available-memory={AVAILABLE_MEMORY}",
        "-p", "tests.numpy_suite.plugin", "--journal", str(journal),
        *arguments, str(NUMPY / file),
    ]
    crashes: dict[str, str] = {}
    for _ in range(CRASHES):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)
        lines = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
        if lines and "compiles" in lines[-1]:
            return report_on(file, lines, crashes)
        if not lines or lines[-1].get("test") in crashes or "outcome" in lines[-1]:  # it ended between tests
            break
        crashes[lines[-1]["test"]] = f"exit status {done.returncode}\n{done.stderr[-3000:]}"
    raise SystemExit(f"{file}: exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def report_on(file: str, lines: list[dict[str, Any]], crashes: dict[str, str]) -> dict[str, Any]:
    ended = [line for line in lines if "outcome" in line]
    count = collections.Counter(line["outcome"] for line in ended)
    failed = [line for line in ended if line["outcome"] == "failed"]
    failures = [{"id": line["test"], "run": str(line["run"]), "traceback": line["text"]} for line in failed]
    failures += [{"id": test, "run": "?", "traceback": text} for test, text in crashes.items()]
    return {
        "file": file,
        "passed": count["passed"],
        "plainly_failed": [line["test"] for line in ended if line["outcome"] == "plainly failed"],
        "plainly_skipped": count["plainly skipped"],
        "excluded": collections.Counter(line["text"] for line in ended if line["outcome"] == "excluded"),
        "compiles": sum(line.get("compiles", 0) for line in lines),
        "breaks": sum(line.get("breaks", 0) for line in lines),
        "plain_seconds": round(sum(line.get("plain_seconds", 0) for line in ended), 2),
        "compiled_seconds": round(sum(line.get("compiled_seconds", 0) for line in ended), 2),
        "failures": failures,
    }


def row(report: dict[str, Any]) -> str:
    failing = len(report["failures"])
    seconds = f"{report['plain_seconds']:.1f} s plainly, {report['compiled_seconds']:.1f} s compiled"
    line = (f"{report['file']:42} {report['passed'] + failing:5} passed plainly, {failing:3} failing compiled, "
            f"{sum(report['excluded'].values()):2} excluded, {report['compiles']} programs, {report['breaks']} breaks; {seconds}")
    reasons = [f"    {n} excluded: {reason}" for reason, n in report["excluded"].items()]
    unsteady = [f"    fails plainly: {test}" for test in report["plainly_failed"]]
    return "\n".join([line, *reasons, *unsteady])


if __name__ == "__main__":
    main()
