"""``torch.multiprocessing``: `multiprocessing`, whose queues and pipes hand on tensors without copying them.

A tensor that is sent moves into shared memory: sender and receiver have the same memory from then on.  It has no name, and is freed
when the last process has let it go, or has been killed.

>>> from dynagraph import torch
>>> import dynagraph.torch.multiprocessing as mp
>>> x, (receiver, sender) = torch.zeros(2), mp.Pipe(duplex=False)
>>> sender.send(x)
>>> y = receiver.recv()
>>> y[0] = 5
>>> x
tensor([5., 0.])
"""

from __future__ import annotations

import multiprocessing
import resource
from multiprocessing import *  # noqa: F403
from typing import Any

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.multiprocessing.contexts import DEFAULT
from dynagraph.torch.multiprocessing.reductions import init_reductions
from dynagraph.torch.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

JoinableQueue, Pipe, Pool, Queue, SimpleQueue = (
    DEFAULT.JoinableQueue, DEFAULT.Pipe, DEFAULT.Pool, DEFAULT.Queue, DEFAULT.SimpleQueue
)  # fmt: skip
get_context = DEFAULT.get_context
_STRATEGIES = frozenset({"file_descriptor", "file_system"})
_strategy = "file_descriptor"
__dynagraph_mutable__ = ("_strategy",)


def get_all_sharing_strategies() -> set[str]:
    """The names that `set_sharing_strategy` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The one that is set."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Set how memory is shared.

    Descriptors are passed in any case, since names would outlive a process that is killed.  "file_system" is what programs choose
    that have more tensors than descriptors: it raises this process's limit of open files as far as the system lets it.
    """
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise AssertionError(f"invalid sharing strategy {new_strategy!r}, expected one of {set(_STRATEGIES)}")
    if new_strategy == "file_system":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    _strategy = new_strategy


init_reductions()
__getattr__: Any = getattr_of(__name__)
__all__ = [
    *multiprocessing.__all__, "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException",
    "SpawnContext", "get_all_sharing_strategies", "get_sharing_strategy", "init_reductions", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip
