"""Which processes make the world: those that mpiexec has started, those that find each other by a store, or this one alone."""

from __future__ import annotations

import datetime
import importlib
import os
import sys

from dynagraph.torch.distributed import rendezvous
from dynagraph.torch.distributed.engines import Alone, Engine
from dynagraph.torch.distributed.stores import Store

# what MPI's launchers tell the processes that they start: MPICH and Intel MPI (hydra), Open MPI, PMIx
_STARTED_BY_MPI = ("PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_SIZE")
_CURE = "start the processes by `mpiexec -n {n} python train.py` (mpiexec comes with pip install 'dynagraph[mpi]')"


def number_in_environment(name: str) -> int:
    """A number that an environment variable has; -1 where there is none."""
    text = os.environ.get(name, "-1")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"the environment variable {name} is {text!r}, and should be a number") from None


def engine_of_all(
    needs_mpi: bool, method: str | None, store: Store | None, rank: int, size: int, timeout: datetime.timedelta
) -> Engine:  # fmt: skip
    """The engine of all processes.  `rank` and `size` are -1 where they are not given."""
    if store is None and (method is None or method.startswith("env://")):
        size = number_in_environment("WORLD_SIZE") if size < 0 else size
        rank = number_in_environment("RANK") if rank < 0 else rank
        method = method or "env://"
    if store is not None:
        for name, given, least, what in (("world_size", size, 1, "positive"), ("rank", rank, 0, "non-negative")):
            if given < least:
                raise AssertionError(f"{name} must be {what} if using store")
    of_mpi = _of_mpi()
    if of_mpi is not None and (of_mpi.size > 1 or needs_mpi or size < 2):
        _check_place(of_mpi, size, rank)
        return of_mpi
    if needs_mpi:
        if size > 1:
            raise ValueError(f"world_size is {size}, but this process was not started by mpiexec: {_CURE.format(n=size)}")
        return Alone()
    if store is None and method == "env://" and size in (-1, 1) and rank in (-1, 0):
        return Alone()
    if store is None:
        rank, size = rendezvous.place(str(method), rank, size)
    return Alone() if size == 1 else rendezvous.joined(method, store, rank, size, timeout)


def _of_mpi() -> Engine | None:
    """The engine of MPI's processes; None where no launcher of MPI's has started this one."""
    if not any(name in os.environ for name in _STARTED_BY_MPI) and "mpi4py.MPI" not in sys.modules:
        return None
    try:
        module = importlib.import_module("dynagraph.torch.distributed.mpi")
    except ImportError as error:
        if error.name != "mpi4py":
            raise
        raise RuntimeError(
            "this process was started by mpiexec, and torch.distributed needs mpi4py to exchange tensors by MPI: "
            "pip install 'dynagraph[mpi]'"
        ) from None
    return module.world()  # type: ignore[no-any-return]


def _check_place(engine: Engine, size: int, rank: int) -> None:
    if size not in (-1, engine.size):
        raise ValueError(
            f"world_size is {size}, but mpiexec has started {engine.size}: {_CURE.format(n=size)}, or leave world_size (and "
            "WORLD_SIZE) out"
        )
    if rank not in (-1, engine.rank):
        raise ValueError(
            f"rank is {rank}, but MPI has given this process rank {engine.rank}: leave rank (and RANK in the environment) out"
        )


__all__ = ["engine_of_all", "number_in_environment"]
