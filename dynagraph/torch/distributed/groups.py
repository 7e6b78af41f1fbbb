"""Groups of processes: the world, its parts, ranks, and the settings that all operations read."""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core import devices
from dynagraph.torch.distributed import worlds
from dynagraph.torch.distributed.engines import DistBackendError, Engine
from dynagraph.torch.distributed.work import wait_for_all

default_pg_timeout = datetime.timedelta(minutes=30)
_NOT_INITIALIZED = "Default process group has not been initialized, please make sure to call init_process_group."


class Backend(str):
    """The name of a backend, in lower case."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    backend_list = (UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI)

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError("Backend constructor parameter must be string-ish")
        return super().__new__(cls, name.lower())


# which engine serves a backend on which type of device; gloo and MPI serve arrays of GPUs by way of the host
_SERVED = {Backend.GLOO: ("cpu", "cuda"), Backend.MPI: ("cpu", "cuda"), Backend.NCCL: ("cuda",)}


class BackendConfig:
    """The backend of each type of device: ``BackendConfig("cpu:gloo,cuda:nccl")``."""

    def __init__(self, backend: str):
        self.device_backend_map: dict[str, Backend] = {}
        for part in ("cpu:gloo,cuda:nccl" if backend == Backend.UNDEFINED else str(backend).lower()).split(","):
            device, colon, name = part.strip().partition(":")
            name = Backend(name if colon else device)
            if name not in _SERVED:
                known = name in Backend.backend_list
                if not known:
                    raise AssertionError(f"Unknown backend type {name}")
                raise RuntimeError(
                    f"there is no backend {name!s} here: 'gloo' and 'mpi' are for CPUs (and GPUs by way of the host), 'nccl' is "
                    "NCCL (GPUs)"
                )
            for served in (device,) if colon else _SERVED[name]:
                if served not in _SERVED[name]:
                    raise ValueError(f"the backend {name!s} does not serve tensors on {served!r}: use 'gloo' or 'mpi' for them")
                self.device_backend_map[served] = name

    def get_device_backend_map(self) -> dict[str, Backend]:
        """The backends by types of devices."""
        return self.device_backend_map

    def __repr__(self) -> str:
        return ",".join(f"{device}:{backend}" for device, backend in self.device_backend_map.items())


class ProcessGroup:
    """Processes that exchange tensors.  `new_group` and `init_process_group` make them."""

    def __init__(self, engine: Engine, ranks: Sequence[int], backend: Backend, timeout: float, name: str, description: str):
        self._engine, self._ranks, self._backend = engine, tuple(ranks), backend
        self._config = BackendConfig(backend)
        self._timeout = timeout
        self._on_gpu: Engine | None = None
        self._started = 0  # how many operations
        self.group_name, self.group_desc = name, description
        self.bound_device_id: Any = None

    def rank(self) -> int:
        """This process's place in the group."""
        return self._engine.rank

    def size(self) -> int:
        """How many processes there are."""
        return self._engine.size

    def name(self) -> str:
        """The name of the backend."""
        return str(self._backend)

    def _get_backend_name(self) -> str:
        return str(self._backend)

    @property
    def _device_types(self) -> list[devices.device]:
        return [devices.device(name) for name in self._config.device_backend_map]

    def engine_of(self, device: str) -> Engine:
        """What serves tensors on a type of device.  RuntimeError where nothing does."""
        backend = self._config.device_backend_map.get(device)
        if backend is None:
            raise RuntimeError(f"No backend type associated with device type {device}")
        if backend != Backend.NCCL:
            return self._engine
        if self._on_gpu is None:
            self._on_gpu = _nccl().joined(self._engine)
        return self._on_gpu

    def _close(self) -> None:
        for engine in (self._on_gpu, self._engine):
            if engine is not None:
                engine.close()

    def __repr__(self) -> str:
        return f"<ProcessGroup {self.group_name}: rank {self.rank()} of {self.size()}, {self._config!r}>"


class _State:
    """The groups of this process."""

    default: ProcessGroup | None = None
    groups: dict[str, ProcessGroup]
    made = 0  # how many groups; all processes count alike, which gives the groups' names
    excepthook: Any = None

    def __init__(self) -> None:
        self.groups = {}


_state = _State()


class _WorldMeta(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        return _state.default

    @WORLD.setter
    def WORLD(cls, group: ProcessGroup | None) -> None:
        _state.default = group


class group(metaclass=_WorldMeta):
    """``group.WORLD``: the group of all processes, or None."""


class GroupMember(metaclass=_WorldMeta):
    """``GroupMember.NON_GROUP_MEMBER`` is what `new_group` gives in processes that are not in the group."""

    NON_GROUP_MEMBER = -100


# -- what there is ----------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """True."""
    return True


def is_mpi_available() -> bool:
    """Whether mpi4py is installed."""
    return importlib.util.find_spec("mpi4py") is not None


def is_gloo_available() -> bool:
    """True: it is MPI where mpiexec has started the processes, and sockets otherwise."""
    return True


def is_nccl_available() -> bool:
    """Whether CuPy is there with NCCL, and a GPU."""
    if importlib.util.find_spec("cupy") is None:
        return False
    try:
        return bool(_nccl().available())
    except ImportError:
        return False


def is_ucc_available() -> bool:
    """False."""
    return False


is_xccl_available = is_ucc_available


def is_backend_available(backend: str) -> bool:
    """Whether a backend of this name is there."""
    ask = {"gloo": is_gloo_available, "mpi": is_mpi_available, "nccl": is_nccl_available}.get(backend.lower())
    return ask is not None and ask()


def is_torchelastic_launched() -> bool:
    """Whether a launcher that restarts processes has started this one."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _nccl() -> Any:
    return importlib.import_module("dynagraph.torch.distributed.nccl")


# -- the world --------------------------------------------------------------------------------------------------------


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: datetime.timedelta | None = None, world_size: int = -1,
    rank: int = -1, store: Any = None, group_name: str = "", pg_options: Any = None, device_id: Any = None,
    _ranks: list[int] | None = None,
) -> None:  # fmt: skip
    """Make the group of all processes: `group.WORLD`.

    `backend`: "gloo" is MPI between processes that mpiexec has started, and sockets between others; "mpi" is MPI, "nccl" is NCCL
    for tensors on GPUs; None is "gloo" and "nccl".  Processes of MPI know each other: `world_size` and `rank`, where they or the
    environment variables WORLD_SIZE and RANK are given, must be MPI's.  Others find each other by a `store` that they have in
    common, or by `init_method`: ``tcp://host:port`` (of rank 0), ``file:///path``, or ``env://``, the default, which reads the
    environment variables MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.  Without any of these the world is this process.
    `timeout`: how long operations wait for other processes, 30 minutes by default.
    """
    if _state.default is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if timeout is not None and not isinstance(timeout, datetime.timedelta):
        raise TypeError(f"Expected timeout argument to be of type datetime.timedelta, got {timeout}")
    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    name = Backend(Backend.UNDEFINED if backend is None else backend)
    BackendConfig(name)
    if name == Backend.NCCL and not is_nccl_available():
        raise RuntimeError("the backend 'nccl' needs a GPU, and CuPy with NCCL; on CPUs the backend is 'gloo' or 'mpi'")
    engine = worlds.engine_of_all(
        name == Backend.MPI, init_method, store, rank, world_size, default_pg_timeout if timeout is None else timeout
    )
    _state.made = 0
    _state.default = _registered(engine, range(engine.size), name, timeout, "default_pg")
    _state.default.bound_device_id = device_id
    if engine.size > 1 and _state.excepthook is None:
        _state.excepthook, sys.excepthook = sys.excepthook, _abort


def _registered(
    engine: Engine, ranks: Sequence[int], backend: Backend, timeout: datetime.timedelta | None, description: str
) -> ProcessGroup:
    seconds = (default_pg_timeout if timeout is None else timeout).total_seconds()
    made = ProcessGroup(engine, ranks, backend, seconds, str(_state.made), description)
    _state.made += 1
    _state.groups[made.group_name] = made
    return made


def _abort(kind: type[BaseException], error: BaseException, origin: Any) -> None:
    """An exception that ends this process ends all: the others would wait for it."""
    rank = 0 if _state.default is None else _state.default.rank()
    text = "".join(traceback.format_exception(kind, error, origin))
    if _state.excepthook is sys.__excepthook__:
        sys.stderr.write("".join(f"[rank{rank}]: {line}\n" for line in text.splitlines()))
    else:
        _state.excepthook(kind, error, origin)
    abort(1)


def abort(status: int) -> None:
    """End the processes of all ranks, where there are others."""
    sys.stdout.flush()
    sys.stderr.flush()
    world = _state.default
    if world is not None and world.size() > 1:
        world._engine.abort(status)


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """End a group, once what is under way has ended; the world by default, and with it all groups."""
    if group == GroupMember.NON_GROUP_MEMBER:
        return
    target = _state.default if group is None else group
    if target is None:
        raise AssertionError("Process group cannot be None")
    if _state.groups.get(target.group_name) is not target:
        raise ValueError("Invalid process group specified")
    wait_for_all()
    ended = list(_state.groups.values()) if target is _state.default else [target]
    for one in ended:
        del _state.groups[one.group_name]
        one._close()
    if target is _state.default:
        _state.default = None
        if _state.excepthook is not None:
            if sys.excepthook is _abort:
                sys.excepthook = _state.excepthook
            _state.excepthook = None


def is_initialized() -> bool:
    """Whether there is a world."""
    return _state.default is not None


def world() -> ProcessGroup:
    """The group of all processes.  ValueError where there is none."""
    if _state.default is None:
        raise ValueError(_NOT_INITIALIZED)
    return _state.default


def group_named(name: str) -> ProcessGroup:
    """The group that compiled code means."""
    if name not in _state.groups:
        raise ValueError(f"Invalid process group specified: there is none with the name {name!r} any more")
    return _state.groups[name]


def group_of_ranks(ranks: Sequence[int]) -> ProcessGroup:
    """The group of processes with these ranks, which was made before.  ValueError where there is none."""
    for found in _state.groups.values():
        if list(found._ranks) == list(ranks):
            return found
    raise ValueError(f"there is no group of the ranks {list(ranks)}: make it by new_group")


# -- groups -----------------------------------------------------------------------------------------------------------


def member_of(group: Any) -> ProcessGroup | None:
    """The group that an argument `group` means; None where this process is not in it."""
    if group is None:
        return world()
    if group == GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"Expected group to be a ProcessGroup, but got {type(group).__name__}")
    if _state.groups.get(group.group_name) is not group:
        raise ValueError("Invalid process group specified")
    return group


def _known(group: Any) -> ProcessGroup:
    found = member_of(group)
    if found is None:
        raise ValueError("Invalid process group specified")
    return found


def get_rank(group: ProcessGroup | None = None) -> int:
    """This process's rank in a group, of all processes by default; -1 where it is not in it."""
    found = member_of(group)
    return -1 if found is None else found.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """How many processes a group has; -1 where this one is not in it."""
    found = member_of(group)
    return -1 if found is None else found.size()


def get_backend(group: ProcessGroup | None = None) -> Backend:
    """The name of a group's backend."""
    return _known(group)._backend


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """A group's backends by types of devices, as text."""
    return repr(_known(group)._config)


def get_default_backend_for_device(device: Any) -> str:
    """The backend that serves tensors on a device."""
    served = {"cpu": "gloo", "cuda": "nccl"}
    kind = devices.device(device).type
    if kind not in served:
        raise ValueError(f"Default backend not registered for device : {device}")
    return served[kind]


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_state.groups)


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """The ranks, among all processes, of a group's members."""
    return list(_known(group)._ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The rank in a group of a process with a rank among all."""
    found = _known(group)
    if global_rank not in found._ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return place_of(found, global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank among all of a process with a rank in a group."""
    ranks = _known(group)._ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process's rank among those of its machine, out of the environment variable LOCAL_RANK or MPI's."""
    for name in ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        if name in os.environ:
            return worlds.number_in_environment(name)
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment: pass fallback_rank to allow `get_node_local_rank` to work")


def place_of(group: ProcessGroup, global_rank: int) -> int:
    """The rank in a group of a process with a rank among all.  An error where it is not in it."""
    if global_rank in group._ranks:
        return group._ranks.index(global_rank)
    if group is _state.default:
        raise RuntimeError(f"invalid rank {global_rank}: the world has {group.size()} ranks, from 0 on")
    raise ValueError(f"Global rank {global_rank} is not part of group {group}, whose ranks are {list(group._ranks)}")


def new_group(
    ranks: Sequence[int] | None = None, timeout: datetime.timedelta | None = None, backend: str | None = None,
    pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
    device_id: Any = None, sort_ranks: bool = True,
) -> Any:  # fmt: skip
    """A group of the processes with these ranks, all by default; `GroupMember.NON_GROUP_MEMBER` in the others.

    All processes call it, in the same order (with `use_local_synchronization`: those of the group).
    """
    whole = world()
    chosen = list(range(whole.size())) if ranks is None else [int(r) for r in ranks]
    chosen = sorted(chosen) if sort_ranks else chosen
    if len(chosen) > whole.size():
        raise ValueError("the new group's world size should be less or equal to the world size set by init_process_group")
    for r in chosen:
        if not 0 <= r < whole.size():
            raise ValueError(
                f"The new group's rank should be within the world_size set by init_process_group: {r} of {whole.size()}"
            )
    if len(set(chosen)) != len(chosen):
        raise ValueError(f"ranks are named twice: {chosen}")
    name = whole._backend if backend is None else Backend(backend)
    BackendConfig(name)
    if whole.rank() not in chosen:
        if not use_local_synchronization:
            _state.made += 1
        return GroupMember.NON_GROUP_MEMBER
    try:
        engine = whole._engine.part(chosen)
    except whole._engine.errors as error:
        raise DistBackendError(f"[Rank {whole.rank()}] new_group failed: {error}") from error
    seconds = datetime.timedelta(seconds=whole._timeout) if timeout is None else timeout
    return _registered(engine, chosen, name, seconds, group_desc or "undefined")


def new_subgroups(
    group_size: int | None = None, group: ProcessGroup | None = None, timeout: datetime.timedelta | None = None,
    backend: str | None = None, pg_options: Any = None, group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """Groups of `group_size` neighbours each; this process's, and all of them."""
    if group_size is None:
        raise ValueError("group_size, the number of processes of each group, must be given where there are no GPUs to count")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    ranks = get_process_group_ranks(group)
    if group_size > len(ranks):
        raise ValueError(f"The arg 'group_size' ({group_size}) must not exceed the world size ({len(ranks)})")
    if len(ranks) % group_size:
        raise ValueError(f"The world size ({len(ranks)}) must be divisible by '{group_size=}'")
    parts = [ranks[k : k + group_size] for k in range(0, len(ranks), group_size)]
    return new_subgroups_by_enumeration(parts, timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Sequence[Sequence[int]], timeout: datetime.timedelta | None = None, backend: str | None = None,
    pg_options: Any = None, group_desc: str | None = None,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """A group for each list of ranks, none of them in two lists; this process's (or None), and all of them."""
    if not ranks_per_subgroup_list:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    every = [r for ranks in ranks_per_subgroup_list for r in ranks]
    if len(set(every)) != len(every):
        raise ValueError(f"a rank is in two of the subgroups {[list(ranks) for ranks in ranks_per_subgroup_list]}")
    own, made = None, []
    for ranks in ranks_per_subgroup_list:
        made.append(new_group(ranks, timeout, backend, pg_options, group_desc=group_desc))
        if get_rank() in ranks:
            own = made[-1]
    return own, made


def split_group(
    parent_pg: ProcessGroup | None = None, split_ranks: Sequence[Sequence[int]] | None = None,
    timeout: datetime.timedelta | None = None, pg_options: Any = None, group_desc: str | None = None, backend: str | None = None,
) -> ProcessGroup | None:  # fmt: skip
    """The part of a group that this process is in: `split_ranks` has the parts' ranks in the group.  None where it is in none."""
    parent = _known(parent_pg)
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    lists = [sorted(parent._ranks[r] for r in ranks) for ranks in split_ranks]
    own, _ = new_subgroups_by_enumeration(lists, timeout, backend, pg_options, group_desc)
    return own


__all__ = [
    "Backend", "BackendConfig", "GroupMember", "ProcessGroup", "default_pg_timeout", "destroy_process_group", "get_backend",
    "get_backend_config", "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank",
    "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "is_available",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "new_group", "new_subgroups",
    "new_subgroups_by_enumeration", "split_group",
]  # fmt: skip
