"""Attempts to run a script on all ranks: mpiexec, or `local.py`, starts them, their supervisors say how they are."""

from __future__ import annotations

import contextlib
import functools
import hmac
import json
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynagraph.torch.run.failures import GONE, Failure, Kind, how_it_ended, message_and_traceback, signal_name
from dynagraph.torch.run.report import name_of, say
from dynagraph.torch.run.supervisor import ADDRESS, TOKEN, folders_of, remove_segments
from dynagraph.torch.run.supervisor import __file__ as SUPERVISOR

HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
AFTER_KILL = 5.0  # seconds that processes have to vanish once they are killed
UNKNOWN_LINE = 1 << 16  # bytes: more than a supervisor says before it is known
_LOSS = 0.5  # seconds after a first rank is lost in which others are looked at, too
_STARTERS_END = 1.0  # seconds that it has to hand on the last output of ranks on other machines
_STACKS = 2.0  # seconds in which a silent rank's stacks come, or not at all
_SPAWN_ERRORS = 4000  # bytes of its errors that are shown where it starts nothing


@dataclass(frozen=True)
class Settings:
    """What the command line asks for."""

    script: str
    command: Sequence[str]  # of a rank
    starter: Sequence[str]  # the command that starts ranks, with options that are always there
    host_options: Callable[[Sequence[str], int], list[str]]  # its options for hosts and a number of ranks on each
    starter_name: str = "mpiexec"
    hosts: Sequence[str] = ()  # (): this machine
    least_hosts: int = 1
    ranks: int = 1  # on each host
    least_ranks: int = 1
    max_restarts: int = 0
    monitor_interval: float = 0.1
    heartbeat_timeout: float | None = None
    start_timeout: float = 60.0
    shutdown_timeout: float = 30.0
    log_dir: str = ""
    redirects: Mapping[int, int] = field(default_factory=dict)  # by local rank; -1: all others
    tee: Mapping[int, int] = field(default_factory=dict)
    shown: frozenset[int] | None = None  # local ranks whose output is seen; None: all
    role: str = "default"
    run_id: str = "none"
    master_addr: str = "127.0.0.1"
    master_port: int | None = None
    local_addr: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Rank:
    """A rank, from its supervisor's first word on."""

    connection: socket.socket
    rank: int
    local_rank: int
    host: str
    supervisor: int
    folder: str
    pid: int | None = None
    last_beat: float = field(default_factory=time.monotonic)
    has_beaten: bool = False  # from when on it must go on so
    has_ended: bool = False
    is_connected: bool = True
    segments: set[str] = field(default_factory=set)


class Stopped(Exception):
    """The launcher was told to end, by a signal."""

    def __init__(self, number: int):
        super().__init__(signal_name(number))
        self.number = number


class Signals:
    """Signals that end the launcher, for as long as it waits in `selector`."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def __enter__(self) -> Signals:
        self.own, self.theirs = socket.socketpair()
        self.own.setblocking(False)
        self.theirs.setblocking(False)
        self.wakeup = signal.set_wakeup_fd(self.theirs.fileno(), warn_on_full_buffer=False)
        # what is ignored, as in scripts behind `&` and `nohup`, stays so
        self.before = {number: signal.getsignal(number) for number in HANDLED if signal.getsignal(number) is not signal.SIG_IGN}
        for number in self.before:
            signal.signal(number, lambda got, _: self.received.append(got))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self.wakeup)
        self.own.close()
        self.theirs.close()


class Attempt:
    """One run of all ranks."""

    def __init__(self, settings: Settings, number: int, hosts: Sequence[str], ranks: int, signals: Signals):
        self.settings, self.number, self.hosts, self.per_host, self.signals = settings, number, hosts, ranks, signals
        self.size = ranks * max(1, len(hosts))
        self.token = secrets.token_hex(16)
        self.ranks: dict[int, Rank] = {}
        self.failures: list[Failure] = []
        self.selector = selectors.DefaultSelector()
        self.begun = time.monotonic()
        self.stop_at: float | None = None  # when the others are stopped, after a first failure
        self.give_up_at: float | None = None  # when what still runs is killed
        self.seen_signals = 0
        self.errors = b""
        self.environment = self.environment_of_ranks()

    def environment_of_ranks(self) -> dict[str, str]:
        """What all ranks have in their environment."""
        settings = self.settings
        return {
            "MASTER_ADDR": settings.master_addr,
            "MASTER_PORT": str(settings.master_port or _free_port()),
            "ROLE_NAME": settings.role,
            "TORCHELASTIC_RESTART_COUNT": str(self.number),
            "TORCHELASTIC_MAX_RESTARTS": str(settings.max_restarts),
            "TORCHELASTIC_RUN_ID": settings.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            **settings.environment,
        }

    def run(self) -> list[Failure]:
        """Until all ranks have ended: what failed.  Stopped, where a signal came."""
        self.listen()
        own, theirs = os.pipe()
        self.selector.register(own, selectors.EVENT_READ, functools.partial(self.hear_starter, own))
        self.selector.register(self.signals.own, selectors.EVENT_READ, self.hear_signals)
        extra = self.settings.host_options(self.hosts, self.per_host)
        self.starter = subprocess.Popen(
            [*self.settings.starter, *extra, "-n", str(self.size), sys.executable, "-I", "-S", SUPERVISOR],
            stdin=subprocess.DEVNULL, stdout=None if self.hosts else subprocess.DEVNULL, stderr=theirs,
            env={**os.environ, ADDRESS: self.address, TOKEN: self.token}, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        try:
            while not self.is_over():
                for key, _ in self.selector.select(self.settings.monitor_interval):
                    key.data()
                self.look_after_signals()
                self.look_after_starter()
                self.look_after_ranks()
        finally:
            self.end()
            os.close(own)
        if self.signals.received:
            raise Stopped(self.signals.received[0])
        return self.causes()

    def is_over(self) -> bool:
        """Whether no rank runs any more, or will."""
        if self.stop_at is not None:
            now = time.monotonic()
            is_late = self.give_up_at is not None and now > self.give_up_at
            return is_late or (not self.is_gathering(now) and all(r.has_ended or not r.is_connected for r in self.ranks.values()))
        return len(self.ranks) == self.size and all(rank.has_ended for rank in self.ranks.values())

    def is_gathering(self, now: float) -> bool:
        """Whether the others still run that the first failure may have made fail, too."""
        return self.stop_at is not None and now < self.stop_at

    # --- the connection

    def listen(self) -> None:
        """Open the socket that supervisors connect to: TCP only where other machines take part, or without abstract sockets."""
        if sys.platform == "linux" and not self.hosts:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(f"\0dynagraph-run-{self.token[:16]}")
            self.address = f"@dynagraph-run-{self.token[:16]}"
            self.token = self.token[16:]
        else:
            self.listener = socket.socket()
            self.listener.bind(("" if self.hosts else "127.0.0.1", 0))
            host = self.settings.local_addr or (socket.gethostname() if self.hosts else "127.0.0.1")
            self.address = f"{host}:{self.listener.getsockname()[1]}"
        self.listener.listen(self.size)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)

    def accept(self) -> None:
        """Somebody connects; who it is will be the first line."""
        connection, _ = self.listener.accept()
        self.selector.register(connection, selectors.EVENT_READ, Reader(self, connection).read)

    def meet(self, connection: socket.socket, message: dict[str, Any]) -> Rank | None:
        """The rank whose supervisor sent its first line; None for a stranger."""
        if message.get("event") != "hello" or not hmac.compare_digest(str(message.get("token")), self.token):
            return None
        rank = Rank(connection, message["rank"], message["local_rank"], message["host"], message["pid"], message["folder"])
        self.ranks[rank.rank] = rank
        if connection.family == socket.AF_UNIX:
            sys.stdout.flush()
            sys.stderr.flush()
            socket.send_fds(connection, [b"F"], [1, 2])  # ranks write where the launcher does
        else:
            connection.sendall(b"N")
        if self.stop_at is None:
            self.command(
                rank, "start", arguments=list(self.settings.command), environment=self.environment, logs=self.logs(),
                redirects=_of_rank(self.settings.redirects, rank.local_rank), tee=_of_rank(self.settings.tee, rank.local_rank),
                is_shown=self.settings.shown is None or rank.local_rank in self.settings.shown,
            )  # fmt: skip
        return rank

    def logs(self) -> str:
        """The directory of this attempt's logs, or ""."""
        return self.settings.log_dir and os.path.join(self.settings.log_dir, f"attempt_{self.number}")

    def command(self, rank: Rank, command: str, **what: Any) -> None:
        """Tell a supervisor what to do."""
        with contextlib.suppress(OSError):  # its end is seen where it is read from
            rank.connection.sendall(json.dumps({"command": command, **what}).encode() + b"\n")

    # --- what is heard

    def hear(self, rank: Rank, message: dict[str, Any]) -> None:
        """A supervisor's word."""
        event = message["event"]
        rank.last_beat = time.monotonic()
        rank.segments.update(message.get("segments", ()))
        if event == "started":
            rank.pid = message["pid"]
        elif event == "beat":
            rank.has_beaten = True
        elif event == "raised":
            text, details = message_and_traceback(message["error"])
            self.fail(Kind.RAISED, rank, text, details)
        elif event == "exits":
            self.fail(Kind.EXITED, rank, how_it_ended(message["code"])[1])
        elif event == "stack":
            self.add_stack(rank, message["text"])
        elif event == "ended":
            rank.has_ended = True
            if message["is_lost"]:
                self.fail(Kind.LOST, rank, f"stopped, because {self.settings.starter_name}'s process beside it ended")
            elif message["code"] != 0 or message["why"]:
                kind, text = how_it_ended(message["code"])
                said, details = message_and_traceback(message["error"])
                self.fail(kind, rank, message["why"] or (f"{text}: {said}" if said else text), details)

    def lose(self, rank: Rank) -> None:
        """A supervisor's connection has ended."""
        rank.is_connected = False
        if not rank.has_ended:
            self.fail(Kind.LOST, rank, "lost: the process that watches it was killed, and the rank with it")

    def hear_starter(self, descriptor: int) -> None:
        """What the starter writes to stderr: its own errors, and what ranks on other machines write there."""
        data = os.read(descriptor, 1 << 16)
        if not data:
            self.selector.unregister(descriptor)
        elif self.hosts:
            sys.stderr.write(data.decode(errors="replace"))
        self.errors = (self.errors + data)[-_SPAWN_ERRORS:]

    def hear_signals(self) -> None:
        """Wake up."""
        with contextlib.suppress(BlockingIOError):
            self.signals.own.recv(4096)

    def fail(self, kind: Kind, rank: Rank | None, text: str, details: str = "") -> None:
        """Note a failure, unless it follows from this launcher's stopping the ranks."""
        now = time.monotonic()
        who, host, pid = (None, socket.gethostname(), self.starter.pid) if rank is None else (rank.rank, rank.host, rank.pid)
        if self.give_up_at is not None or any(failure.rank == who for failure in self.failures):
            return
        after, starter = now - self.begun, self.settings.starter_name
        self.failures.append(Failure(self.number, kind, who, host, pid, text, details, after, starter))
        if self.stop_at is None:
            # whether the starter's end was the cause of a loss is seen a moment later
            self.stop_at = now + max(self.settings.monitor_interval, _LOSS if kind is Kind.LOST else 0.0)

    def causes(self) -> list[Failure]:
        """The failures, but for those that follow from another: the starter's end of a rank's MPI_Abort, losses of its end."""
        if all(failure.rank is not None for failure in self.failures):
            return self.failures
        said = [failure for failure in self.failures if failure.rank is not None and failure.kind is not Kind.LOST]
        return said or [failure for failure in self.failures if failure.rank is None]

    def add_stack(self, rank: Rank, text: str) -> None:
        """Where a silent rank is."""
        for failure in self.failures:
            if failure.rank == rank.rank:
                failure.details = text
        self.stop_at = time.monotonic()

    # --- what is looked after

    def look_after_signals(self) -> None:
        """Hand the first signal on; kill at the second."""
        if len(self.signals.received) > self.seen_signals:
            self.seen_signals = len(self.signals.received)
            is_first = self.seen_signals == 1
            self.stop(self.signals.received[0], self.settings.shutdown_timeout if is_first else 0.0)

    def look_after_starter(self) -> None:
        """A failure, where it ended before the ranks."""
        code = self.starter.poll()
        if code is None or (len(self.ranks) == self.size and all(rank.has_ended for rank in self.ranks.values())):
            return
        if code == signal.SIGKILL and any(failure.kind is Kind.LOST for failure in self.failures):
            return  # it has ended all, because one was killed
        said = self.errors.decode(errors="replace").strip()
        if len(self.ranks) < self.size:
            self.fail(Kind.NEVER_STARTED, None, f"{how_it_ended(code)[1]} before all ranks were started", said)
        else:
            self.fail(Kind.STARTER, None, f"{how_it_ended(code)[1]} while ranks ran", said)

    def look_after_ranks(self) -> None:
        """Find silent ranks, and stop all after a failure."""
        now = time.monotonic()
        if self.give_up_at is not None:
            return
        if self.stop_at is not None:
            if now >= self.stop_at:
                self.stop(signal.SIGTERM, self.settings.shutdown_timeout)
            return
        if len(self.ranks) < self.size:
            if now > self.begun + self.settings.start_timeout:
                absent = sorted(set(range(self.size)) - set(self.ranks))
                text = f"did not start rank {', '.join(map(str, absent))} within {self.settings.start_timeout:g} s"
                self.fail(Kind.NEVER_STARTED, None, text, self.errors.decode(errors="replace"))
            return
        if self.settings.heartbeat_timeout is None:
            return
        for rank in self.ranks.values():
            limit = self.settings.heartbeat_timeout if rank.has_beaten else self.settings.start_timeout
            if not rank.has_ended and now > rank.last_beat + limit:
                self.fail(Kind.SILENT, rank, f"no sign of life for {limit:g} s")
                self.command(rank, "stack")
                self.stop_at = now + _STACKS

    def stop(self, number: int, grace: float) -> None:
        """Stop all ranks."""
        now = time.monotonic()
        self.stop_at = now
        self.give_up_at = now + grace + AFTER_KILL
        for rank in self.ranks.values():
            if not rank.has_ended:
                self.command(rank, "stop", signal=int(number), grace=grace)

    def end(self) -> None:
        """Let supervisors and the starter go, and make sure that nothing of them is left."""
        has_worked = not self.failures and self.stop_at is None
        for rank in self.ranks.values():
            self.command(rank, "leave")
        for rank in self.ranks.values():
            self.vanish(rank)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.starter.wait(AFTER_KILL if has_worked else _STARTERS_END)
        self.starter.kill()
        self.starter.wait()
        # of those that were killed before they said hello; TMPDIR may have been set since this process looked
        for left in Path(os.environ.get("TMPDIR") or tempfile.gettempdir()).glob(f"{folders_of(self.token)}*"):
            shutil.rmtree(left, ignore_errors=True)
        self.listener.close()
        remove_segments(set().union(*(rank.segments for rank in self.ranks.values())))
        self.selector.close()

    def vanish(self, rank: Rank) -> None:
        """Wait until a supervisor has ended, and kill it where it does not; do what it could not do itself."""
        has_left = False
        with contextlib.suppress(OSError):
            rank.connection.settimeout(AFTER_KILL)
            while rank.is_connected and rank.connection.recv(1 << 16):
                pass
            has_left = rank.is_connected and rank.has_ended
        rank.connection.close()
        if has_left or rank.host != socket.gethostname():
            return
        for kill, number in ((os.kill, rank.supervisor), (os.killpg, rank.pid)):
            with contextlib.suppress(OSError):
                kill(number, signal.SIGKILL) if number is not None else None
        end = time.monotonic() + AFTER_KILL
        while os.path.exists(rank.folder) and time.monotonic() < end:  # one that is being killed may still write to it
            shutil.rmtree(rank.folder, ignore_errors=True)
            time.sleep(0.01)


class Reader:
    """Of one connection's lines."""

    def __init__(self, attempt: Attempt, connection: socket.socket):
        self.attempt, self.connection = attempt, connection
        self.rank: Rank | None = None
        self.rest = b""

    def read(self) -> None:
        """What has come."""
        try:
            data = self.connection.recv(1 << 16)
        except OSError:
            data = b""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if self.rank is not None:
                self.attempt.hear(self.rank, json.loads(line))
            elif not self.introduced(line):
                data = b""
                break
        if not data or (self.rank is None and len(self.rest) > UNKNOWN_LINE):
            self.attempt.selector.unregister(self.connection)
            if self.rank is None:
                self.connection.close()
            else:
                self.attempt.lose(self.rank)

    def introduced(self, line: bytes) -> bool:
        """Whether the first line is a supervisor's of this attempt."""
        try:
            message = json.loads(line)
        except ValueError:
            return False
        self.rank = self.attempt.meet(self.connection, message) if isinstance(message, dict) else None
        return self.rank is not None


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("", 0))
        return int(made.getsockname()[1])


def _of_rank(by_rank: Mapping[int, int], local_rank: int) -> int:
    return by_rank.get(local_rank, by_rank.get(-1, 0))


def launch(settings: Settings) -> list[Failure]:
    """Run the script, and again after failures while that is allowed: the failures of all attempts, [] at the end of one without.

    Raises Stopped where a signal ended the launcher.
    """
    hosts, ranks = list(settings.hosts), settings.ranks
    failures: list[Failure] = []
    with Signals() as signals:
        for number in range(settings.max_restarts + 1):
            found = Attempt(settings, number, hosts, ranks, signals).run()
            if not found:
                return []
            failures += found
            if found[0].kind is Kind.NEVER_STARTED or number == settings.max_restarts:
                break
            before = (len(hosts), ranks)
            hosts, ranks = remaining(settings, found, hosts, ranks)
            fewer = "" if (len(hosts), ranks) == before else f" with {ranks * max(1, len(hosts))} ranks"
            say(f"{name_of(found[0])}; restart {number + 1} of {settings.max_restarts}{fewer}")
    return failures


def remaining(settings: Settings, failures: Sequence[Failure], hosts: Sequence[str], ranks: int) -> tuple[list[str], int]:
    """Hosts and ranks on each to go on with: without what is gone, as far as the command line allows fewer."""
    gone = [failure for failure in failures if failure.kind in GONE]
    if len(hosts) > settings.least_hosts:
        lost = {failure.host for failure in gone if failure.kind is not Kind.KILLED}
        kept = [host for host in hosts if host not in lost]
        return kept if len(kept) >= settings.least_hosts else list(hosts), ranks
    most_on_one = max((sum(other.host == failure.host for other in gone) for failure in gone), default=0)
    return list(hosts), max(settings.least_ranks, ranks - most_on_one)


__all__ = ["Settings", "Stopped", "launch", "remaining"]
