"""What processes of the tests run: functions of a module, which new processes import by name."""

from __future__ import annotations

import os
import time
from typing import Any

from dynagraph import torch


def change(index: int, model: Any, x: Any, queue: Any, back: Any) -> None:
    """Write to what both processes have, and send it back."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(index + 2)
    x.add_(1)
    y = queue.get()
    y.mul_(2)
    back.put([y, y[1:]])
    back.get()  # the other process has it


def act(index: int, kind: str) -> None:
    """Process 1 fails; the others would take long."""
    if index != 1:
        time.sleep(60)
    if kind == "raise":
        raise ValueError("wrong sample")
    if kind == "exit":
        os._exit(3)
    os.kill(os.getpid(), int(kind))


def hold(index: int, queue: Any, ready: Any, release: Any) -> None:
    """Take a tensor, and keep it."""
    kept = queue.get()
    ready.put(float(kept.sum()))
    release.wait()


def echo(index: int, queue: Any, back: Any) -> None:
    """Send everything back, until None."""
    while (x := queue.get()) is not None:
        back.put(x)


def add_on_gpu(given: Any, queue: Any, back: Any) -> None:
    """Write to a tensor on a GPU that this process and another have."""
    part, whole = queue.get(), queue.get()
    begun = float(whole.sum())
    part.add_(1)
    whole.add_(1)
    torch.cuda.synchronize()
    back.put([begun, part.untyped_storage() is whole.untyped_storage() and (given is None or given.data_ptr() == whole.data_ptr())])
    queue.get()
    back.put([float(whole.sum())])
