"""Where Python is started with SIGINT ignored, as by ``nohup`` or ``&`` in a script, nothing waits for an interrupt."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERRUPTING = (
    "tests/core/test_tails.py::test_an_endless_chain_can_be_interrupted",
    "tests/core/test_signals.py",
    "tests/behaviours/test_coexistence.py::test_keyboard_interrupts_in_a_loop_with_a_break",
    "tests/behaviours/test_coexistence.py::test_a_signal_while_a_part_is_compiled",
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, *command]
    return subprocess.run(ignoring, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.parametrize("test", INTERRUPTING)
def test_tests_that_interrupt_end(test: str) -> None:
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_compiled_functions_go_on() -> None:
    done = run("-c", textwrap.dedent("""
        import os, signal, threading
        import numpy as np
        import dynagraph as dg

        def f(x, log):
            try:
                for k in range(200):
                    x = x * 1.5
                    if x.max() > 10:
                        x = x / 20
            finally:
                log.append("left")
            return x

        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        compiled, done = dg.compile(f), threading.Event()

        def interrupt():
            while not done.wait(0.01):
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=interrupt)
        thread.start()
        for _ in range(3):
            log, plainly = [], []
            assert compiled(np.ones(3), log).tolist() == f(np.ones(3), plainly).tolist() and log == plainly == ["left"]
        done.set()
        thread.join()
        assert compiled.stats.fallbacks == 0
    """))
    assert done.returncode == 0 and not done.stderr, done.stderr
