"""What tests run as ranks: without dynagraph, so that a rank starts at once.  Arguments: a directory, what to do, how."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time


def write(name: str, text: str) -> None:
    """A file that is there with its text, or is not."""
    path = os.path.join(sys.argv[1], name)
    with open(path + ".part", "w") as file:
        file.write(text)
    os.rename(path + ".part", path)


def parents() -> list[int]:
    """This process and those above it: rank, supervisor, mpiexec's proxy, mpiexec, launcher."""
    found = [os.getpid()]
    while len(found) < 5:
        with open(f"/proc/{found[-1]}/stat") as file:
            found.append(int(file.read().rpartition(")")[2].split()[1]))
    return found


def main() -> None:
    what, rest = sys.argv[2], sys.argv[3:]
    rank, attempt = int(os.environ["RANK"]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    child = subprocess.Popen(["sleep", "600"]) if what == "kill" and attempt == "0" else None
    write(f"{attempt}.{rank}", " ".join(map(str, [*parents(), *([child.pid] if child else [])])))
    if what == "environment":
        write(f"environment.{rank}", "\n".join(f"{name}={value}" for name, value in os.environ.items()))
    elif what == "say":
        print("out", rank)
        print("err", rank, file=sys.stderr)
    elif what == "raise":
        if rank == 1:
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
                json.dump({"message": {"message": "E: text [b]", "extraInfo": {"py_callstack": "Traceback\n  of E"}}}, file)
            sys.exit(1)
        time.sleep(600)
    elif rank == 1 and what == "exit" and attempt == "0":
        sys.exit(int(rest[0]))
    elif what == "exit":
        time.sleep(600 if attempt == "0" else 0)
    elif what == "ignore":  # no SIGTERM ends these
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        write(f"ready.{rank}", "")
        if rank == 1:
            os._exit(3)
        time.sleep(600)
    elif what == "signal":  # to the launcher
        if rank == 1:
            os.kill(parents()[4], int(rest[0]))
        time.sleep(600)
    elif what == "kill":  # a process above this one, or this one, at a random moment
        if rank == 1 and attempt == "0":
            while not os.path.exists(os.path.join(sys.argv[1], "0.0")):
                time.sleep(0.001)
            time.sleep(random.Random(int(rest[1])).uniform(0, 0.4))
            write("killed", repr(time.time()))
            os.kill(parents()[int(rest[0])], signal.SIGKILL)
        time.sleep(600 if attempt == "0" else 0)


if __name__ == "__main__":
    main()
