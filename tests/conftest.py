"""Shared by all tests: a kernel cache of this run's own, no measuring of devices unasked, and which cases `make test` runs."""

from __future__ import annotations

import atexit
import gc
import os
import random
import shutil
import signal
import tempfile
from collections.abc import Generator, Iterator

import pytest

from tests import sampling

# Before dynagraph is imported, which reads it.  Workers and subprocesses of tests inherit it, pytest in these too: a kernel is
# compiled once a run.
CACHE = "dynagraph-tests-"
if not os.path.basename(os.environ.get("DYNAGRAPH_CACHE_DIR", "")).startswith(CACHE):
    _folder = tempfile.mkdtemp(prefix=CACHE)
    os.environ["DYNAGRAPH_CACHE_DIR"] = _folder
    os.environ["DYNAGRAPH_MEASURE_DEVICES"] = "0"
    # on a loaded machine anything may take too long, or be slower than NumPy; tests of that set their own
    os.environ.setdefault("DYNAGRAPH_STAY_EAGER", "0")
    os.environ.setdefault("DYNAGRAPH_COMPILE_BUDGET", "unlimited")
    # each kernel is compiled once, by one process: the tests of a run share the processors
    os.environ.setdefault("DYNAGRAPH_TIERS", "quick")
    os.environ.setdefault("DYNAGRAPH_COMPILER_PROCESSES", "1")
    os.environ.setdefault("DYNAGRAPH_CACHE_PROGRAMS", "0")  # each test captures what it calls
    # the order of sets: what fails now and then can be run again with the seed that the header names
    os.environ.setdefault("PYTHONHASHSEED", str(random.randrange(1 << 32)))
    atexit.register(shutil.rmtree, _folder, ignore_errors=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true", help="also the cases that @pytest.mark.sampled leaves out")
    parser.addoption("--part", metavar="K/N", help="one part of N of the cases of @pytest.mark.sampled, no others: make test-part")
    parser.addoption("--programs", type=int, default=sampling.programs, help="how many programs each fuzzer makes: make fuzz")


def pytest_report_header() -> str:
    return f"PYTHONHASHSEED of workers and subprocesses: {os.environ.get('PYTHONHASHSEED')}"


def pytest_configure(config: pytest.Config) -> None:
    sampling.all_cases = config.getoption("--all-cases")
    sampling.part = None if config.getoption("--part") is None else sampling.part_of(config.getoption("--part"))
    sampling.programs = config.getoption("--programs")


@pytest.hookimpl(tryfirst=True)  # before -m and -k: what they leave is no reason to choose others
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:  # the workers of a run have to find the same names
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} holds an address, which is another in each process: give the case an id")
    if not sampling.all_cases or sampling.part is not None:
        chosen, left_out = sampling.in_part(items, *sampling.part) if sampling.part else sampling.choose(items, config.args)
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Tests that collect garbage, of which there are many, need not look at all tests and modules each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Nor need they look at what a file of tests left for good."""
    done = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done


@pytest.fixture
def sigint() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where Python was started with SIGINT ignored, as by ``nohup`` or ``&`` in a script."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
