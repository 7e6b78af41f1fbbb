"""Programs on several ranks, by mpiexec and over sockets: many checks in each, since a start takes a second."""

from __future__ import annotations

import pytest

from tests.torch.data_parallel import ddp, sharded
from tests.torch.distributed.ranks import by_hand, by_mpiexec, needs_mpi, outputs

ALL = [check.__name__ for check in (*ddp.CHECKS, *sharded.CHECKS)]
COMPILED = ("compiled_steps", "compiled_steps_with_unused_parameters", "hooks_that_break_programs")
OF_FOUR = ("equals_one_process", "inputs_may_be_uneven", "divided_parameters", "checkpoints")


def passed(engine: str, count: int, *checks: str) -> list[str]:
    """The names of the checks that have passed on so many ranks."""
    arguments = ["-m", "tests.torch.data_parallel", *checks]
    if engine == "mpi":
        done = by_mpiexec(count, arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        out = done.stdout
    else:
        found = outputs(by_hand(count, arguments))
        assert [code for code, _, _ in found] == [0] * count, found
        out = found[0][1]
    return [line.removeprefix("ok ") for line in out.splitlines() if line.startswith("ok ")]


@needs_mpi
def test_two_ranks_equal_one_process() -> None:
    checks = [name for name in ALL if name not in COMPILED]
    assert len(checks) == 24 and passed("mpi", 2, *checks) == checks


@needs_mpi
def test_four_ranks_equal_one_process() -> None:
    assert passed("mpi", 4, *OF_FOUR) == list(OF_FOUR)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_in_common_memory_equal_one_process(ranks: int) -> None:
    """Over sockets."""
    assert passed("sockets", ranks, *OF_FOUR) == list(OF_FOUR)


@pytest.mark.parametrize("engine", [pytest.param("mpi", marks=needs_mpi), "sockets"])
def test_compiled_steps(engine: str) -> None:
    assert passed(engine, 2, *COMPILED) == list(COMPILED)
