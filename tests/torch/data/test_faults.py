"""What a DataLoader leaves behind when something goes wrong: no process, no descriptor, no memory; and what it says."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from dynagraph import torch
from dynagraph.driver.background import WORK
from dynagraph.torch.utils.data import DataLoader, Dataset, TensorDataset


class Slow(Dataset):  # type: ignore[type-arg]
    """Rows of which each takes a little."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, k: int) -> Any:
        time.sleep(0.001)
        return torch.full((300,), float(k))


class Endless(Slow):
    """So many of them that an interrupt comes first."""

    def __len__(self) -> int:
        return 1_000_000


def left() -> tuple[int, list[Any]]:
    WORK.wait()  # a kernel of another test, whose compiler has pipes
    gc.collect()
    return len(os.listdir("/proc/self/fd")), multiprocessing.active_children()


def kill_a_worker_at_random(chance: random.Random) -> None:
    """All batches that come are right, and then comes an error that names the signal."""
    deadly = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
    number = chance.choice([n for n in deadly if signal.getsignal(n) is not signal.SIG_IGN])  # as by nohup
    loader = DataLoader(Slow(), batch_size=5, num_workers=2, persistent_workers=chance.random() < 0.5)
    batches = iter(loader)
    victim = chance.choice(batches.workers.processes).pid
    timer = threading.Timer(chance.uniform(0, 0.1), os.kill, (victim, number))
    timer.start()
    seen = 0
    with pytest.raises(RuntimeError, match=rf"DataLoader worker \(pid\(s\) {victim}\) exited unexpectedly: .*{number.name}"):
        for batch in batches:
            assert batch[:, 0].tolist() == [float(k) for k in range(seen * 5, seen * 5 + 5)]
            seen += 1
    timer.join()
    del loader, batches


@pytest.mark.parametrize("runs", [3, pytest.param(100, marks=pytest.mark.soak)])
def test_workers_that_are_killed_at_random_moments(runs: int) -> None:
    chance = random.Random(runs)
    kill_a_worker_at_random(chance)
    before = left()
    for _ in range(runs):
        kill_a_worker_at_random(chance)
    assert left() == before


INTERRUPTED = """
import multiprocessing, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where tests run with SIGINT ignored
from tests.torch.data.test_faults import Endless
from dynagraph.torch.utils.data import DataLoader

batches = iter(DataLoader(Endless(), batch_size=5, num_workers=2))
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
for batch in batches:
    pass
"""


def test_an_interrupt_ends_the_workers() -> None:
    """As Ctrl-C sends it: to all processes of the group.  There is one traceback."""
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)  # fmt: skip
    assert process.stdout is not None
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert err.count("Traceback") == 1 and err.endswith("KeyboardInterrupt\n")
    assert not any(os.path.exists(f"/proc/{pid}") for pid in workers)


def test_an_interrupt_that_is_caught_leaves_nothing(sigint: None) -> None:
    def interrupted() -> None:
        batches = iter(DataLoader(Endless(), batch_size=5, num_workers=2))
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        for _ in batches:
            pass

    before = left()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert left() == before


FULL = """
import os
with open("/dev/shm/filler", "wb", 0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
from dynagraph import torch
import dynagraph.torch.multiprocessing as mp
from dynagraph.torch.utils.data import DataLoader, TensorDataset
rows = TensorDataset(torch.arange(40000).reshape(8, 5000))
print([batch.sum().item() for batch, in DataLoader(rows, batch_size=4, num_workers=2)])
receiver, sender = mp.Pipe()
sender.send(torch.ones(100000))
print(receiver.recv().sum().item())
try:
    mp.Queue()
except OSError as error:
    print(error.strerror)
"""


def test_a_full_dev_shm_changes_nothing() -> None:
    """Memory files do not lie there; locks of `multiprocessing` do, and say so."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("needs user namespaces, to have a /dev/shm of its own")
    mount = 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$0" -c "$1"'
    command = ["unshare", "-rm", "sh", "-c", mount, sys.executable, FULL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["[199990000, 599990000]", "100000.0", "No space left on device"], done.stderr


def test_no_memory_for_a_batch_is_its_error() -> None:
    """The worker lives on; the next batches are there."""
    rows = TensorDataset(torch.zeros(8, 5000))

    def limit(worker: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, resource.RLIM_INFINITY))

    batches = iter(DataLoader(rows, batch_size=4, num_workers=1, worker_init_fn=limit))
    with pytest.raises(OSError, match=r"Caught OSError in DataLoader worker process 0\.(?s:.*)File too large"):
        next(batches)
    del batches


@pytest.mark.soak
def test_memory_and_descriptors_stay_flat_over_100_000_batches() -> None:
    rows = TensorDataset(torch.arange(2000 * 64.0).reshape(2000, 64), torch.arange(2000))
    loader = DataLoader(rows, batch_size=20, num_workers=2, persistent_workers=True)

    def used() -> tuple[int, int]:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        return resident, len(os.listdir("/proc/self/fd"))

    samples = []
    for turn in range(1000):
        for batch, labels in loader:
            assert batch.shape == (20, 64) and labels.shape == (20,)
        if turn % 100 == 99:
            samples.append(used())
    first, last = samples[1], samples[-1]
    assert last[1] == first[1]
    assert last[0] - first[0] < 4 << 20, samples
