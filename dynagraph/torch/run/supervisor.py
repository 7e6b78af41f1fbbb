"""Beside each rank: starts its Python, watches it, and tells the launcher how it ended.

mpiexec or `local.py` starts this file, not the rank, since only the parent of a process learns the signal that killed it.  It
imports nothing of dynagraph, and says what happens by lines of JSON on a socket of the launcher's:

    sent: hello, started, beat, raised, exits, ended, stack    received: start, stop, stack, leave

The rank has a socket to this process, where "." says that it lives, "!" that it raised an exception, "q3" that it exits with 3.

Whatever else dies, the rank does not outlive this process, and this process does not outlive the launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

ADDRESS, TOKEN = "_DYNAGRAPH_RUN_ADDRESS", "_DYNAGRAPH_RUN_TOKEN"  # in the environment that mpiexec hands on
RANK_FD = "_DYNAGRAPH_RUN_FD"  # the rank's end of its connection to this process
STACK_FILE = "_DYNAGRAPH_RUN_STACKS"  # where the rank writes its threads' stacks when it is sent STACK_SIGNAL
STACK_SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR2)
# who tells a process its rank, the number of ranks, and the same on its own machine: local.py, MPICH, Open MPI
PLACES = (
    ("_DYNAGRAPH_RUN_RANK", "_DYNAGRAPH_RUN_SIZE", "_DYNAGRAPH_RUN_RANK", "_DYNAGRAPH_RUN_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
)
SEGMENTS = "/dev/shm"  # where MPICH has memory that ranks share, and leaves it where they are killed
SEGMENT_PREFIX = "mpich_shm_"
LOST_GRACE = 5.0  # seconds that a rank has to end by SIGTERM when the launcher is gone
_PR_SET_PDEATHSIG = 1


def die_with_parent(number: int) -> None:
    """On Linux: have the system send this process a signal when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))


def connect(address: str) -> socket.socket:
    """A connection to the launcher, at ``@name`` (an abstract Unix socket) or ``host:port``."""
    if address.startswith("@"):
        made = socket.socket(socket.AF_UNIX)
        made.connect("\0" + address[1:])
        return made
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=30)
    made.settimeout(None)
    return made


def segments_of(pid: int, seen: set[str]) -> set[str]:
    """Names of MPICH's segments that a process has mapped; `seen` are those that were looked for before."""
    try:
        there = {name for name in os.listdir(SEGMENTS) if name.startswith(SEGMENT_PREFIX)}
        if there <= seen:
            return set()
        with open(f"/proc/{pid}/maps") as maps:
            mapped = {line.split()[-1] for line in maps if SEGMENT_PREFIX in line}
    except OSError:  # no such directory, or the process has ended
        return set()
    return {name for name in there if f"{SEGMENTS}/{name}" in mapped}


def remove_segments(names: set[str]) -> None:
    """Remove segments whose processes have ended."""
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(f"{SEGMENTS}/{name}")


def folders_of(token: str) -> str:
    """What the names of the supervisors' folders begin with, which need not tell the token."""
    return f"dynagraph-run-{hashlib.sha256(token.encode()).hexdigest()[:12]}-"


class Tee:
    """One of the rank's output streams: to a file, to the launcher's output with a prefix, or both."""

    def __init__(self, file: Any, console: int | None, prefix: bytes):
        self.file, self.console, self.prefix = file, console, prefix
        self.own, self.theirs = os.pipe()
        self.rest = b""

    def pump(self) -> bool:
        """Hand on what the rank has written; False at its end."""
        data = os.read(self.own, 1 << 16)
        if self.file is not None:
            self.file.write(data)
            self.file.flush()
        if self.console is not None:
            *lines, self.rest = (self.rest + data).split(b"\n")
            if not data and self.rest:
                lines, self.rest = [self.rest], b""
            text = b"".join(self.prefix + line + b"\n" for line in lines)
            while text:
                text = text[os.write(self.console, text) :]
        return bool(data)


class Supervisor:
    """Of one rank."""

    def __init__(self) -> None:
        names = next((row for row in PLACES if row[0] in os.environ), None)
        if names is None:
            raise SystemExit("dynagraph.torch.run: mpiexec did not tell this process its rank")
        self.rank, self.size, self.local_rank, self.local_size = (int(os.environ.get(name, 0)) for name in names)
        self.selector = selectors.DefaultSelector()
        self.rank_process: subprocess.Popen[bytes] | None = None
        self.rank_end: socket.socket | None = None
        self.segments: set[str] = set()
        self.seen: set[str] = set()
        self.tees: list[Tee] = []
        self.files: list[Any] = []
        self.kill_at: float | None = None
        self.has_ended = self.is_leaving = self.is_lost = False
        self.from_launcher = b""
        self.error_file = self.stack_file = ""
        self.folder = tempfile.mkdtemp(prefix=folders_of(os.environ[TOKEN]))
        self.watch_signals()
        self.launcher = connect(os.environ[ADDRESS])
        self.selector.register(self.launcher, selectors.EVENT_READ, self.hear_launcher)
        self.tell("hello", token=os.environ[TOKEN], rank=self.rank, size=self.size, local_rank=self.local_rank,
                  host=socket.gethostname(), pid=os.getpid(), folder=self.folder)  # fmt: skip
        _, descriptors, _, _ = socket.recv_fds(self.launcher, 1, 2)
        self.console = tuple(descriptors) if descriptors else (1, 2)

    def watch_signals(self) -> None:
        """SIGCHLD wakes the loop; SIGTERM, of mpiexec or because it ended, stops the rank."""
        own, theirs = socket.socketpair()
        for end in (own, theirs):
            end.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self.wakeups = (own, theirs)
        for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)  # a handler, which the rank does not inherit; MPICH sends SIGUSR1
        signal.signal(signal.SIGTERM, lambda *_: self.lose_launcher())
        self.selector.register(own, selectors.EVENT_READ, lambda: own.recv(4096))

    def tell(self, event: str, **what: Any) -> None:
        """Send a line to the launcher."""
        try:
            self.launcher.sendall(json.dumps({"event": event, **what}).encode() + b"\n")
        except OSError:
            self.lose_launcher()

    def lose_launcher(self) -> None:
        """The launcher or mpiexec has ended: so does the rank, and then this process."""
        if not self.is_lost:
            self.is_lost = True
            self.stop(signal.SIGTERM, LOST_GRACE)

    def run(self) -> None:
        """Until the launcher has all it wants to know."""
        while not self.is_leaving and not (self.is_lost and (self.has_ended or self.rank_process is None)):
            wait = 1.0 if self.kill_at is None else max(0.0, min(1.0, self.kill_at - time.monotonic()))
            for key, _ in self.selector.select(wait):
                key.data()
            if self.kill_at is not None and time.monotonic() >= self.kill_at:
                self.kill()
            self.look_after_rank()
        self.remove_files()
        if self.rank_process is not None and (self.is_lost or self.rank_process.returncode != 0):
            remove_segments(self.segments)
            with contextlib.suppress(OSError):
                os.killpg(self.rank_process.pid, signal.SIGKILL)  # what the rank has started

    def hear_launcher(self) -> None:
        """Do what the launcher says."""
        try:
            data = self.launcher.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(self.launcher)
            self.lose_launcher()
            return
        *lines, self.from_launcher = (self.from_launcher + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            command = message.pop("command")
            if command == "start":
                self.start(**message)
            elif command == "stop":
                self.stop(message["signal"], message["grace"])
            elif command == "stack":
                self.tell("stack", text=self.stack())
            elif command == "leave":
                self.is_leaving = True

    def start(self, arguments: list[str], environment: dict[str, str], logs: str, redirects: int, tee: int, is_shown: bool) -> None:
        """Start the rank's Python.

        logs: the directory of its files, or "".  redirects, tee: 1 for its output, 2 for its errors, 3 for both: only to a file,
        or also to one.  is_shown: whether its output reaches the launcher's.
        """
        where = os.path.join(logs, str(self.rank)) if logs else self.folder
        os.makedirs(where, exist_ok=True)
        self.error_file = os.path.join(where, "error.json")
        self.stack_file = os.path.join(self.folder, "stacks")
        environment = {
            **os.environ, **environment, "RANK": str(self.rank), "WORLD_SIZE": str(self.size), "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size), "GROUP_RANK": str(self.rank // max(1, self.local_size)),
            "GROUP_WORLD_SIZE": str(-(-self.size // max(1, self.local_size))), "ROLE_RANK": str(self.rank),
            "ROLE_WORLD_SIZE": str(self.size), "TORCHELASTIC_ERROR_FILE": self.error_file, STACK_FILE: self.stack_file,
        }  # fmt: skip
        for name in (ADDRESS, TOKEN, *PLACES[0]):
            environment.pop(name, None)
        outputs = [self.output(k, where, redirects, tee, is_shown, environment) for k in (1, 2)]
        self.rank_end, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        environment[RANK_FD] = str(theirs.fileno())
        own_pid = os.getpid()

        def before_exec() -> None:
            die_with_parent(signal.SIGKILL)
            if os.getppid() != own_pid:
                os._exit(1)

        try:
            # MPI's own descriptors go on to the rank
            self.rank_process = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=outputs[0], stderr=outputs[1], close_fds=False,
                preexec_fn=before_exec, process_group=0,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            self.has_ended = True
            self.remove_files()
            self.tell("ended", code=127, error=None, why=f"{arguments[0]}: {error}", segments=[], is_lost=False)
            return
        theirs.close()
        for tee_of_stream in self.tees:
            os.close(tee_of_stream.theirs)
        self.selector.register(self.rank_end, selectors.EVENT_READ, self.hear_rank)
        self.tell("started", pid=self.rank_process.pid)

    def output(self, stream: int, where: str, redirects: int, tee: int, is_shown: bool, environment: dict[str, str]) -> int:
        """The descriptor that the rank gets as its stream 1 or 2."""
        console = self.console[stream - 1] if is_shown else None
        is_teed, is_redirected = bool(tee & stream), bool(redirects & stream)
        if not (is_teed or is_redirected):
            return os.open(os.devnull, os.O_WRONLY) if console is None else console
        file = open(os.path.join(where, "stdout.log" if stream == 1 else "stderr.log"), "ab")  # noqa: SIM115 (as long as this runs)
        self.files.append(file)
        if not is_teed or console is None:
            return file.fileno()
        made = Tee(file, console, f"[{environment.get('ROLE_NAME', 'default')}{self.rank}]:".encode())
        self.tees.append(made)

        def pump() -> None:
            if not made.pump():
                self.selector.unregister(made.own)
                os.close(made.own)

        self.selector.register(made.own, selectors.EVENT_READ, pump)
        return made.theirs

    def hear_rank(self) -> None:
        """The rank's word; of the end it waits until the launcher has been told."""
        assert self.rank_end is not None
        try:
            data = self.rank_end.recv(4096)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(self.rank_end)
        if b"!" in data or b"q" in data:
            code = data.partition(b"q")[2]
            self.tell("exits", code=int(code)) if code else self.tell("raised", error=self.error())
            with contextlib.suppress(OSError):
                self.rank_end.send(b"!")
        elif data:
            self.find_segments()
            self.tell("beat", segments=sorted(self.segments))

    def find_segments(self) -> None:
        """Note which segments the rank has mapped."""
        assert self.rank_process is not None
        found = segments_of(self.rank_process.pid, self.seen)
        self.segments |= found
        self.seen |= found

    def error(self) -> Any:
        """What the rank wrote about its exception, or None."""
        try:
            with open(self.error_file) as file:
                return json.load(file)
        except (OSError, ValueError):
            return None

    def stack(self) -> str:
        """The stacks of the rank's threads, which its faulthandler writes even while it holds the interpreter's lock."""
        assert self.rank_process is not None
        if not os.path.exists(self.stack_file) or self.rank_process.poll() is not None:
            return ""
        self.rank_process.send_signal(STACK_SIGNAL)
        until, size = time.monotonic() + 1.0, -1
        while time.monotonic() < until:
            time.sleep(0.05)
            now = os.path.getsize(self.stack_file)
            if now and now == size:
                break
            size = now
        with open(self.stack_file, errors="replace") as file:
            return file.read() or f"no stacks: the process is in state {self.state()}"

    def state(self) -> str:
        """What the system says of the rank's process: T is stopped by a signal, D waits for a device."""
        assert self.rank_process is not None
        try:
            with open(f"/proc/{self.rank_process.pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0]
        except OSError:
            return "?"

    def stop(self, number: int, grace: float) -> None:
        """Signal the rank, and kill it after `grace` seconds."""
        if self.rank_process is not None and not self.has_ended:
            self.find_segments()
            self.rank_process.send_signal(number)
            self.rank_process.send_signal(signal.SIGCONT)  # a stopped process does not see other signals
            self.kill_at = time.monotonic() + grace

    def kill(self) -> None:
        """Kill the rank."""
        self.kill_at = None
        if self.rank_process is not None and not self.has_ended:
            self.rank_process.kill()

    def look_after_rank(self) -> None:
        """Tell the launcher if the rank has ended."""
        if self.rank_process is None or self.has_ended or self.rank_process.poll() is None:
            return
        self.has_ended = True
        for made in self.tees:
            self.drain(made)
        error = self.error()
        self.remove_files()
        self.tell("ended", code=self.rank_process.returncode, error=error, why=None, segments=sorted(self.segments),
                  is_lost=self.is_lost)  # fmt: skip

    def remove_files(self) -> None:
        """Remove this process's own files, but for logs."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def drain(self, made: Tee) -> None:
        """Hand on what is left of the rank's output: its own children may still hold the pipe."""
        try:
            os.set_blocking(made.own, False)
            while made.pump():
                pass
        except OSError:  # nothing is left, or it was closed at its end
            return


if __name__ == "__main__":
    die_with_parent(signal.SIGTERM)
    Supervisor().run()
