"""python -m dynagraph.torch.run: ranks that fail, are killed, or hang; restarts; what is left of them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dynagraph import torch
from dynagraph.torch.distributed.elastic.multiprocessing import errors
from dynagraph.torch.run.command import LOCAL, UsageError, get_args_parser, main, starter_of
from dynagraph.torch.run.failures import message_and_traceback
from dynagraph.torch.run.rank import below
from tests.torch.run import ranks

pytest.importorskip("mpi4py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
RANKS, TRAIN = ranks.__file__, str(Path(__file__).with_name("train.py"))
RANK, SUPERVISOR, PROXY, MPIEXEC, LAUNCHER = range(5)  # as ranks.py lists them


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, no segment of MPI's, no folder, no handler."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    until = time.monotonic() + 20
    while left(tmp_path) and time.monotonic() < until:
        time.sleep(0.02)
    assert not left(tmp_path)


def left(tmp_path: Path) -> list[object]:
    """What ranks have noted of themselves and is there still."""
    pids = {int(pid) for path in tmp_path.glob("[0-9].[0-9]") for pid in path.read_text().split()} - own_parents()
    segments = {line for path in tmp_path.glob("segments.*") for line in path.read_text().splitlines()}
    return [*living(pids), *filter(os.path.exists, segments), *os.listdir(tmp_path / "temporary")]


def own_parents() -> set[int]:
    """This process and those above it."""
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def living(pids: set[int]) -> set[int]:
    """Those that run; what has ended and is not waited for does not."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.add(pid)
    return found


def run(tmp_path: Path, *what: object, options: str = "", n: str = "2") -> int:
    """The launcher, in this process, with ranks.py: its exit status."""
    given = ["--nproc-per-node", n, "--no-python", *options.split(), sys.executable, "-I", "-S", RANKS, str(tmp_path)]
    return main([*given, *map(str, what)])


def test_ranks_have_torchruns_environment(tmp_path):
    assert run(tmp_path, "environment", options="--max-restarts 3 --rdzv-id job --role trainer") == 0
    for rank in range(2):
        found = dict(line.split("=", 1) for line in (tmp_path / f"environment.{rank}").read_text().splitlines() if "=" in line)
        expected = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0",
            "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_WORLD_SIZE": "2", "ROLE_NAME": "trainer",
            "MASTER_ADDR": "127.0.0.1", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "3",
            "TORCHELASTIC_RUN_ID": "job",
        }  # fmt: skip
        assert {name: found.get(name) for name in expected} == expected
        assert 0 < int(found["MASTER_PORT"]) < 65536
        assert "_DYNAGRAPH_RUN_TOKEN" not in found


def test_a_rank_that_exits_is_named(tmp_path, capfd):
    assert run(tmp_path, "exit", 5) == 1
    error = capfd.readouterr().err
    assert re.search(r"the cause: rank 1 \(pid \d+ on .*\): exited with code 5", error)
    assert error.count("exited with code 5") == 2  # the table and the line


def test_what_ignores_sigterm_is_killed(tmp_path, capfd):
    assert run(tmp_path, "ignore", options="--shutdown-timeout 0.3") == 1
    assert "rank 1" in capfd.readouterr().err


@pytest.mark.parametrize(("victim", "seed"), [(RANK, 1), (SUPERVISOR, 2), (PROXY, 3), (MPIEXEC, 4)])
def test_whatever_is_killed_is_named_and_nothing_is_left(tmp_path, capfd, victim, seed):
    check_kill(tmp_path, capfd, victim, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100))
def test_kills_at_random_moments(tmp_path, capfd, seed):
    check_kill(tmp_path, capfd, (RANK, RANK, SUPERVISOR, PROXY, MPIEXEC)[seed % 5], seed)


def check_kill(tmp_path, capfd, victim, seed):
    assert run(tmp_path, "kill", victim, seed, options="--max-restarts 1") == 0
    line = next(line for line in capfd.readouterr().err.splitlines() if "restart 1 of 1" in line)
    pattern = {
        RANK: r"rank 1 \(pid \d+ on .*\): killed by SIGKILL;",
        SUPERVISOR: r"rank 1 \(pid \d+ on .*\): lost: the process that watches it was killed, and the rank with it;",
        # which of its ends is seen first is a matter of chance
        PROXY: r"mpiexec: .* while ranks ran|rank \d \(.*\): (lost:|stopped, because mpiexec's process beside it ended)",
        MPIEXEC: r"mpiexec: killed by SIGKILL while ranks ran|rank \d \(.*\): (lost:|stopped)",
    }[victim]
    assert re.search(pattern, line), line
    assert {path.name for path in tmp_path.glob("[0-9].[0-9]")} == {"0.0", "0.1", "1.0", "1.1"}


@pytest.mark.parametrize(("victim", "seed"), [(RANK, 1), (SUPERVISOR, 2), (PROXY, 3)])  # there local.py stands in the proxy's place
def test_without_mpi_whatever_is_killed_is_named_and_nothing_is_left(tmp_path, capfd, victim, seed):
    assert run(tmp_path, "kill", victim, seed, options="--max-restarts 1 --mpiexec none") == 0
    line = next(line for line in capfd.readouterr().err.splitlines() if "restart 1 of 1" in line)
    pattern = {
        RANK: r"rank 1 \(pid \d+ on .*\): killed by SIGKILL;",
        SUPERVISOR: r"rank 1 \(pid \d+ on .*\): lost: the process that watches it was killed, and the rank with it;",
        PROXY: r"local.py: killed by SIGKILL while ranks ran|rank \d \(.*\): (lost:|stopped)",
    }[victim]
    assert re.search(pattern, line), line
    assert {path.name for path in tmp_path.glob("[0-9].[0-9]")} == {"0.0", "0.1", "1.0", "1.1"}


def test_without_mpi_ranks_meet_over_sockets(tmp_path, capfd, monkeypatch):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(3) * (1 + dist.get_rank())\n"
        "dist.all_reduce(x)\n"
        "import sys; sys.stdout.write(f'{dist.get_backend()} {dist.get_world_size()} {x.tolist()}\\n')\n"  # at once
        "dist.destroy_process_group()\n"
    )
    assert main(["--nproc-per-node", "2", "--mpiexec", "none", str(script)]) == 0
    assert capfd.readouterr().out.splitlines().count("gloo 2 [3.0, 3.0, 3.0]") == 2
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # mpiexec is looked for beside it, too
    assert LOCAL in starter_of(None, ())
    with pytest.raises(UsageError, match="--mpiexec none starts ranks on this machine only: leave --hosts out"):
        starter_of("none", ("a", "b"))


def test_ranks_end_with_a_launcher_that_is_killed(tmp_path):
    command = [sys.executable, "-m", "dynagraph.torch.run", "--nproc-per-node", "2", "--no-python"]
    done = subprocess.run([*command, sys.executable, "-I", "-S", RANKS, str(tmp_path), "kill", str(LAUNCHER), "5"])
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_stops_the_ranks(tmp_path, capfd, number):
    before = signal.signal(number, signal.SIG_DFL)  # one that is ignored, as under nohup, stays so
    try:
        assert run(tmp_path, "signal", int(number)) == 128 + number
    finally:
        signal.signal(number, before)
    assert f"stopped by {number.name}" in capfd.readouterr().err


def test_a_restart_can_go_on_with_fewer_ranks(tmp_path, capfd):
    assert run(tmp_path, "kill", RANK, 1, options="--max-restarts 1", n="1:2") == 0
    assert "restart 1 of 1 with 1 ranks" in capfd.readouterr().err
    assert {path.name for path in tmp_path.glob("[0-9].[0-9]")} == {"0.0", "0.1", "1.0"}


def test_restarts_come_to_an_end(tmp_path, capfd):
    assert main(["--max-restarts", "2", "--no-python", "false"]) == 1
    error = capfd.readouterr().err
    assert error.count("; restart ") == 2
    assert [row.split()[1] for row in error.splitlines() if row.startswith("│")] == ["0", "1", "2"]


def test_several_machines(tmp_path, monkeypatch):
    monkeypatch.setenv("HYDRA_LAUNCHER", "fork")  # all hosts are this one
    assert run(tmp_path, "environment", options="--nnodes 2 --hosts 127.0.0.1,localhost --local-addr 127.0.0.1", n="1") == 0
    found = (tmp_path / "environment.1").read_text().splitlines()
    assert {"RANK=1", "LOCAL_RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=1", "GROUP_RANK=1", "GROUP_WORLD_SIZE=2"} <= set(found)


def test_output_goes_to_files_and_to_the_console(tmp_path, capfd):
    assert run(tmp_path, "say", options=f"--tee 0:3 --redirects 1:2 --role r --log-dir {tmp_path}/logs") == 0
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == ["[r0]:out 0", "out 1"]
    assert shown.err.splitlines() == ["[r0]:err 0"]
    (attempt,) = (tmp_path / "logs").glob("none_*/attempt_0")
    logs = {str(path.relative_to(attempt)): path.read_text() for path in attempt.glob("*/*.log")}
    assert logs == {"0/stdout.log": "out 0\n", "0/stderr.log": "err 0\n", "1/stderr.log": "err 1\n"}


def test_output_of_some_ranks_is_hidden(tmp_path, capfd):
    assert run(tmp_path, "say", options="--local-ranks-filter 1") == 0
    assert capfd.readouterr() == ("out 1\n", "err 1\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["none.py"], r"can't open file '.*none\.py': there is no such file"),
        (["--nproc-per-node", "0", TRAIN], "--nproc-per-node '0': expected at least 1"),
        (["--nproc-per-node", "3:2", TRAIN], "--nproc-per-node '3:2': expected at least 1, and no more as LEAST than as MOST"),
        (["--nproc-per-node", "many", TRAIN], "--nproc-per-node 'many': expected a number, or LEAST:MOST"),
        (["--nnodes", "2", TRAIN], "--nnodes 2: one launcher starts the ranks on all machines; name 2 or more by --hosts"),
        (["--node-rank", "1", TRAIN], "--node-rank: one launcher starts the ranks on all machines"),
        (["--max-restarts", "-1", TRAIN], "--max-restarts -1: expected 0 or more"),
        (["--redirects", "4", TRAIN], "--redirects '4': expected 0, 1, 2 or 3"),
        (["--tee", "0:x", TRAIN], "--tee '0:x': expected 0, 1, 2 or 3"),
        (["--heartbeat-timeout", "1", TRAIN], "--heartbeat-timeout 1: expected 2 seconds or more"),
        (["--mpiexec", "no-such-mpiexec", TRAIN], r"there is no no-such-mpiexec.*; pip install 'dynagraph\[mpi\]'"),
        (["--hostfile", "no-such-file", TRAIN], "--hostfile no-such-file: No such file or directory"),
    ],
)  # fmt: skip
def test_errors_of_the_command_line(given, message, capfd):
    with pytest.raises(SystemExit) as left:
        main(given)
    assert left.value.code == 2
    assert re.search(message, capfd.readouterr().err)


def test_an_mpiexec_that_starts_nothing(tmp_path, capfd):
    assert run(tmp_path, "say", options="--mpiexec false") == 1
    assert "mpiexec: exited with code 1 before all ranks were started" in capfd.readouterr().err


def test_options_have_torchruns_names_and_variables(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    parsed = get_args_parser().parse_args(["--max_restarts=2", "--standalone", "train.py", "--nnodes", "7", "-x"])
    assert (parsed.nproc_per_node, parsed.max_restarts, parsed.standalone, parsed.nnodes) == ("3", 2, True, "1")
    assert (parsed.training_script, parsed.training_script_args) == ("train.py", ["--nnodes", "7", "-x"])


def expected_parameters() -> list[np.ndarray]:
    """What train.py's two ranks come to, in one process and without a failure."""
    model = torch.nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.fill_(0.25)
        model.bias.zero_()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step in range(6):
        optimizer.zero_grad()
        for rank in range(2):
            x = torch.arange(6.0).reshape(3, 2) / 7 + step - rank
            torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True).cos()).backward()
        optimizer.step()
    return [parameter.detach().numpy() for parameter in model.parameters()]


@pytest.mark.parametrize("failures", ["kill raise", pytest.param("stop", marks=pytest.mark.soak)])
def test_a_restarted_training_ends_with_the_same_numbers(tmp_path, capfd, failures):
    options = ["--nproc-per-node", "2", "--max-restarts", "2", "--heartbeat-timeout", "10"]
    assert main([*options, TRAIN, str(tmp_path), *failures.split()]) == 0
    error = capfd.readouterr().err
    first, *found = torch.load(tmp_path / "result.pt")
    assert first == 2 * len(failures.split()) - 1  # it went on where it was
    for ours, expected in zip(found, expected_parameters()):
        np.testing.assert_array_equal(ours.detach().numpy(), expected)
    said = {"kill": "killed by SIGKILL", "raise": "ArithmeticError: the loss is no number", "stop": "no sign of life for 10 s"}
    for number, failure in enumerate(failures.split(), 1):
        assert re.search(rf"rank 1 \(pid \d+ on .*\): {said[failure]}; restart {number} of 2", error)


def test_the_report_shows_the_traceback(tmp_path, capfd):
    assert run(tmp_path, "raise") == 1
    report = capfd.readouterr().err.partition("the cause:")[2].splitlines()
    assert re.match(r" rank 1 \(pid \d+ on .*\): exited with code 1: E: text \[b\]", report[0])
    assert report[1:] == ["Traceback", "  of E"]


def test_the_traceback_of_a_rank_begins_in_the_script():
    def script() -> None:
        raise ArithmeticError("the loss is no number")

    def starter() -> None:
        script()

    try:
        starter()
    except ArithmeticError as error:
        trace = below(error.__traceback__, starter)
    assert trace is not None and trace.tb_frame.f_code is script.__code__


def test_record_writes_what_the_launcher_reads(tmp_path, monkeypatch):
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    @errors.record
    def fails(what: str) -> None:
        raise KeyError(what)

    with pytest.raises(KeyError):
        fails("name")
    failure = errors.ProcessFailure(local_rank=1, pid=2, exitcode=1, error_file=str(path))
    assert failure.message["message"] == "KeyError: 'name'" and abs(failure.timestamp - time.time()) < 60
    text, trace = message_and_traceback(json.loads(path.read_text()))
    assert text == "KeyError: 'name'" and trace.splitlines()[-1] == text
    killed = errors.ProcessFailure(0, 3, -9, "none")
    assert killed.message == "Signal 9 (SIGKILL) received by PID 3"
    error = errors.ChildFailedError("train.py", {0: killed, 1: failure})
    assert error.get_first_failure()[0] in (0, 1) and "train.py FAILED" in str(error)
    with pytest.raises(SystemExit):
        errors.record(lambda: sys.exit(2))()
    assert errors.record(lambda: sys.exit(0))() is None
