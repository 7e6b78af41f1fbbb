"""CPython's own tests pass with their test methods compiled: whatever a method does, a compiled one does."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = (
    "test_call", "test_contextlib", "test_dataclasses", "test_descr", "test_dict", "test_enum", "test_exceptions", "test_extcall",
    "test_functools", "test_generators", "test_itertools", "test_list", "test_patma", "test_raise", "test_scope", "test_set",
    "test_unpack", "test_with",
)
SLOW: tuple[str, ...] = ()
SECONDS = 300


@pytest.mark.parametrize("module", [pytest.param(m, marks=pytest.mark.soak) if m in SLOW else m for m in MODULES])
def test_compiled_test_methods_pass(module: str) -> None:
    if importlib.util.find_spec("test") is None or importlib.util.find_spec(f"test.{module}") is None:
        pytest.skip("this interpreter comes without its tests")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONWARNINGS"}
    command = [sys.executable, str(Path(__file__).with_name("run.py")), module]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"more than {SECONDS} s; {tail((error.stderr or b'').decode(errors='replace'))}", pytrace=False)
    if done.returncode:
        pytest.fail(f"exit status {done.returncode}; {tail(done.stderr)}", pytrace=False)
    report = json.loads(done.stdout)
    assert report["plain_passed"] > 0, done.stderr[-2000:]
    failures = [f"{f['id']} (run {f['run']})\n{f['traceback']}" for f in report["failures"]]
    if failures:
        pytest.fail(f"{len(failures)} of {report['plain_passed']} pass only plainly:\n\n" + "\n\n".join(failures), pytrace=False)


def tail(text: str) -> str:
    return "the last that it said:\n" + "\n".join(text.splitlines()[-40:])
