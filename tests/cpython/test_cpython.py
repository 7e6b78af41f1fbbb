"""CPython's own tests pass with their test methods compiled: whatever a method does, a compiled one does."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from tests import sampling
from tests.suites import fail_with, output_of

MODULES = (
    "test_call", "test_contextlib", "test_dataclasses", "test_descr", "test_dict", "test_enum", "test_exceptions", "test_extcall",
    "test_functools", "test_generators", "test_itertools", "test_list", "test_patma", "test_raise", "test_scope", "test_set",
    "test_unpack", "test_with",
)
SLOW: tuple[str, ...] = ()
SECONDS = 300
ONE_IN = 8  # of a module's tests


@pytest.mark.sampled(9)
@pytest.mark.parametrize("module", [pytest.param(m, marks=pytest.mark.soak) if m in SLOW else m for m in MODULES])
def test_compiled_test_methods_pass(module: str) -> None:
    if importlib.util.find_spec("test") is None or importlib.util.find_spec(f"test.{module}") is None:
        pytest.skip("this interpreter comes without its tests")
    arguments = [] if sampling.all_cases else ["--one-in", str(ONE_IN)]
    report = json.loads(output_of(Path(__file__).with_name("run.py"), module, *arguments, seconds=SECONDS))
    assert report["plain_passed"] > 0, report["plain_failed"]
    fail_with(report["failures"], report["plain_passed"])
