"""The launcher's command line: torchrun's options, as far as they mean something here."""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NoReturn

from dynagraph.torch import cuda
from dynagraph.torch.run.launcher import Settings, Stopped, launch
from dynagraph.torch.run.local import __file__ as LOCAL
from dynagraph.torch.run.report import print_failures, say

PROGRAM = "python -m dynagraph.torch.run"
NONE = "none"  # of --mpiexec
CURE = "pip install 'dynagraph[mpi]'"
# torchrun's, for a rendezvous of launchers on several machines
RENDEZVOUS = ("--rdzv-backend", "--rdzv-endpoint", "--rdzv-conf", "--node-rank")


class UsageError(Exception):
    """The command line asks for what there is not."""


class _FromEnvironment(argparse.Action):
    """An option whose default is the environment variable PET_NAME."""

    def __init__(self, dest: str, default: Any = None, required: bool = False, **kwargs: Any):
        super().__init__(dest=dest, default=os.environ.get(f"PET_{dest.upper()}", default), required=False, **kwargs)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)


def get_args_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, allow_abbrev=False,
        description="Runs a script on several ranks, in which `import torch` gives dynagraph.torch.",
    )  # fmt: skip

    def option(name: str, *short: str, **kwargs: Any) -> None:
        names = {name, "--" + name.removeprefix("--").replace("-", "_")}
        parser.add_argument(*short, name, *(names - {name}), action=_FromEnvironment, **kwargs)

    def flag(name: str, *short: str, help: str) -> None:
        names = {name, "--" + name.removeprefix("--").replace("-", "_")}
        is_set = os.environ.get("PET_" + name.removeprefix("--").replace("-", "_").upper(), "0") not in ("", "0")
        parser.add_argument(*short, name, *(names - {name}), action="store_true", default=is_set, help=help)

    option("--nproc-per-node", default="1", metavar="N",
           help="ranks on each machine: a number, `cpu`, `gpu` or `auto`; LEAST:MOST: restarts may go on with fewer")  # fmt: skip
    option("--nnodes", default="1", metavar="N",
           help="machines, of those that --hosts names; LEAST:MOST lets a restart go on without those that are lost")  # fmt: skip
    option("--hosts", default="", help="the machines, with commas between them, which mpiexec reaches (by ssh)")
    option("--hostfile", default="", help="a file that names a machine in each line")
    option("--max-restarts", type=int, default=0, help="how often all ranks are started again after a failure")
    option("--monitor-interval", type=float, default=0.1, metavar="SECONDS",
           help="how long after a first failure others are waited for before the rest is stopped")  # fmt: skip
    option("--heartbeat-timeout", type=float, default=None, metavar="SECONDS",
           help="a rank that shows no sign of life for so long has failed; unset: none has")  # fmt: skip
    option("--start-timeout", type=float, default=60.0, metavar="SECONDS",
           help="how long mpiexec may take; with --heartbeat-timeout also how long until the first sign of life")  # fmt: skip
    option("--shutdown-timeout", type=float, default=30.0, metavar="SECONDS", help="until stopped ranks are killed")
    option("--log-dir", default="", help="where ranks' files go: RUN/attempt_A/RANK/{stdout.log,stderr.log,error.json}")
    option("--redirects", "-r", default="0",
           help="streams that go to files: 1 (stdout), 2 (stderr), 3 (both), or `0:1,1:3` by local rank")  # fmt: skip
    option("--tee", "-t", default="0", help="streams that go to files and to the console, as --redirects")
    option("--local-ranks-filter", default="", help="local ranks whose output is shown, with commas between them")
    option("--role", default="default", help="the prefix of lines that --tee shows, and ROLE_NAME")
    option("--rdzv-id", default="none", help="TORCHELASTIC_RUN_ID")
    option("--master-addr", default=None, help="MASTER_ADDR; unset: the first machine")
    option("--master-port", type=int, default=None, help="MASTER_PORT; unset: one that is free")
    option("--local-addr", default=None, help="by what address the other machines reach this one")
    option("--mpiexec", default=None,
           help="the command that starts MPI's processes; `none`: ranks are started on this machine and meet over sockets; "
           "unset: mpiexec where it and mpi4py are installed")  # fmt: skip
    for name in RENDEZVOUS:
        option(name, default=None, help=argparse.SUPPRESS)
    flag("--standalone", help="accepted: nothing else is needed on one machine")
    flag("--module", "-m", help="the script is the name of a module")
    flag("--no-python", help="the script is a program of its own")
    parser.add_argument("training_script", help="the script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")
    return parser


def parse_args(args: Sequence[str]) -> argparse.Namespace:
    """The command line's values."""
    return get_args_parser().parse_args(list(args))


def _range(text: str, name: str) -> tuple[int, int]:
    least, _, most = text.partition(":")
    try:
        numbers = int(least), int(most or least)
    except ValueError:
        raise UsageError(f"{name} {text!r}: expected a number, or LEAST:MOST") from None
    if not 1 <= numbers[0] <= numbers[1]:
        raise UsageError(f"{name} {text!r}: expected at least 1, and no more as LEAST than as MOST")
    return numbers


def ranks_of(text: str) -> tuple[int, int]:
    """The least and the most ranks on a machine."""
    if text in ("gpu", "auto") and cuda.device_count() > 0:
        return (cuda.device_count(),) * 2
    if text == "gpu":
        raise UsageError("--nproc-per-node gpu: there is no CUDA device on this machine")
    if text in ("cpu", "auto"):
        return (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,) * 2
    return _range(text, "--nproc-per-node")


def streams_of(text: str, name: str) -> dict[int, int]:
    """Which streams, by local rank; -1 stands for all."""
    try:
        if ":" not in text:
            found = {-1: int(text)}
        else:
            found = {int(rank): int(which) for rank, which in (part.split(":") for part in text.split(","))}
    except ValueError:
        found = {-1: -1}
    if not all(which in range(4) for which in found.values()):
        raise UsageError(f"{name} {text!r}: expected 0, 1, 2 or 3, or such numbers by local rank as in `0:1,1:3`")
    return found


def hosts_of(args: argparse.Namespace) -> tuple[list[str], int]:
    """The machines ([]: this one alone), and the least number of them."""
    least, most = _range(str(args.nnodes), "--nnodes")
    names = [name for name in args.hosts.split(",") if name]
    if args.hostfile:
        try:
            with open(args.hostfile) as file:
                names += [line.split()[0] for line in file if line.split() and not line.startswith("#")]
        except OSError as error:
            raise UsageError(f"--hostfile {args.hostfile}: {error.strerror}") from None
    if most > 1 and len(names) < least:
        raise UsageError(
            f"--nnodes {args.nnodes}: one launcher starts the ranks on all machines; name {least} or more by --hosts"
        )  # fmt: skip
    return (names[:most] if most > 1 else names or []), least


def starter_of(name: str | None, hosts: Sequence[str]) -> list[str]:
    """The command that starts the ranks, with the options that are always there."""
    path = None if name == NONE else path_of(name or "mpiexec")
    if name == NONE and hosts:
        raise UsageError("--mpiexec none starts ranks on this machine only: leave --hosts out")
    if name == NONE or (name is None and not hosts and (path is None or importlib.util.find_spec("mpi4py") is None)):
        return [sys.executable, "-I", "-S", LOCAL]
    if path is None:
        raise UsageError(f"there is no {name or 'mpiexec'}, which starts the ranks; {CURE} installs MPI and mpi4py")
    version = subprocess.run([path, "--version"], capture_output=True, text=True).stdout
    if "HYDRA" in version:
        # ranks are stopped by their supervisors, which say how each ended; mpiexec would kill them all at once
        return [path, "-disable-auto-cleanup"]
    return [path, "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else [path]


def path_of(name: str) -> str | None:
    """Of a program: beside Python's own, or where the shell finds it."""
    beside = os.path.join(os.path.dirname(sys.executable), name)
    return beside if os.path.sep not in name and os.access(beside, os.X_OK) else shutil.which(name)


def host_options(mpiexec: Sequence[str]) -> Any:
    """mpiexec's options for hosts, and a number of ranks on each."""

    def of_hydra(hosts: Sequence[str], ranks: int) -> list[str]:
        return ["-hosts", ",".join(hosts), "-ppn", str(ranks)] if hosts else []

    def of_open_mpi(hosts: Sequence[str], ranks: int) -> list[str]:
        return ["--host", ",".join(f"{host}:{ranks}" for host in hosts)] if hosts else []

    return of_hydra if "-disable-auto-cleanup" in mpiexec else of_open_mpi


def command_of_rank(args: argparse.Namespace) -> list[str]:
    """What a rank runs."""
    script = args.training_script
    if args.no_python:
        if args.module:
            raise UsageError("--no-python and --module exclude each other")
        return [script, *args.training_script_args]
    if not args.module and not os.path.exists(script):
        raise UsageError(f"can't open file {os.path.abspath(script)!r}: there is no such file")
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
    own = [sys.executable, *flags, "-m", "dynagraph.torch.run.rank"]
    return [*own, *(["-m"] if args.module else []), script, *args.training_script_args]


def settings_of(args: argparse.Namespace) -> Settings:
    """What the command line asks for.  Raises UsageError."""
    for name in RENDEZVOUS:
        if getattr(args, name.removeprefix("--").replace("-", "_")) is not None and not args.standalone:
            raise UsageError(f"{name}: one launcher starts the ranks on all machines, which --hosts names")
    try:
        restarts, interval, grace, start = (
            int(args.max_restarts), float(args.monitor_interval), float(args.shutdown_timeout), float(args.start_timeout)
        )  # fmt: skip
        heartbeat = None if args.heartbeat_timeout is None else float(args.heartbeat_timeout)
        shown = frozenset(int(rank) for rank in args.local_ranks_filter.split(",")) if args.local_ranks_filter else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    for name, number in (("--max-restarts", restarts), ("--monitor-interval", interval), ("--shutdown-timeout", grace)):
        if number < 0:
            raise UsageError(f"{name} {number:g}: expected 0 or more")
    if heartbeat is not None and heartbeat < 2:
        raise UsageError(f"--heartbeat-timeout {heartbeat:g}: expected 2 seconds or more")
    if heartbeat is not None and args.no_python:
        raise UsageError("--heartbeat-timeout: programs that --no-python starts show no signs of life")
    least, most = ranks_of(str(args.nproc_per_node))
    hosts, least_hosts = hosts_of(args)
    redirects, tee = streams_of(args.redirects, "--redirects"), streams_of(args.tee, "--tee")
    command = command_of_rank(args)
    starter = starter_of(args.mpiexec, hosts)
    log_dir = args.log_dir
    if not log_dir and any((*redirects.values(), *tee.values())):
        log_dir = tempfile.mkdtemp(prefix="torchelastic_")
        say(f"logs: {log_dir}")
    elif log_dir:
        os.makedirs(log_dir, exist_ok=True)
        log_dir = tempfile.mkdtemp(prefix=f"{args.rdzv_id}_", dir=os.path.abspath(log_dir))
    return Settings(
        script=args.training_script, command=command, starter=starter, host_options=host_options(starter), hosts=hosts,
        starter_name="local.py" if LOCAL in starter else "mpiexec",
        least_hosts=least_hosts, ranks=most, least_ranks=least, max_restarts=restarts, monitor_interval=interval,
        heartbeat_timeout=heartbeat, start_timeout=start, shutdown_timeout=grace, log_dir=log_dir, redirects=redirects, tee=tee,
        shown=shown, role=args.role, run_id=args.rdzv_id, master_addr=args.master_addr or (hosts[0] if hosts else "127.0.0.1"),
        master_port=args.master_port, local_addr=args.local_addr, environment=environment_of(most),
    )  # fmt: skip


def environment_of(ranks: int) -> dict[str, str]:
    """Threads of a rank, where the user has not said how many: one of OpenMP's, as torchrun has it, its part of dynagraph's."""
    if ranks == 1:
        return {}
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = {"OMP_NUM_THREADS": "1", "DYNAGRAPH_THREADS": str(max(1, processors // ranks))}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def fail(text: str) -> NoReturn:
    """Say why nothing was started."""
    say(text)
    raise SystemExit(2)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line: the exit status, 1 where the script failed."""
    parsed = parse_args(sys.argv[1:] if args is None else args)
    try:
        settings = settings_of(parsed)
    except UsageError as error:
        fail(str(error))
    try:
        failures = launch(settings)
    except Stopped as stopped:
        say(f"stopped by {stopped}")
        return 128 + stopped.number
    if failures:
        print_failures(settings.script, failures)
    return 1 if failures else 0


__all__ = ["get_args_parser", "main", "parse_args"]
