"""``torch.distributed``: programs of several processes, which exchange tensors by MPI or over sockets on CPUs and by NCCL on GPUs.

``mpiexec -n 4 python train.py`` starts the processes, or `torch.multiprocessing.spawn`.
[docs/distributed.md](../../../docs/distributed.md) says how to use it.
"""

from dynagraph.torch.distributed.collectives import _all_gather_base as _all_gather_base
from dynagraph.torch.distributed.collectives import _reduce_scatter_base as _reduce_scatter_base
from dynagraph.torch.distributed.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
)  # fmt: skip
from dynagraph.torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from dynagraph.torch.distributed.engines import DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError
from dynagraph.torch.distributed.groups import (
    Backend,
    BackendConfig,
    GroupMember,
    ProcessGroup,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
)  # fmt: skip
from dynagraph.torch.distributed.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)  # fmt: skip
from dynagraph.torch.distributed.point_to_point import P2POp, batch_isend_irecv, irecv, isend, recv, send
from dynagraph.torch.distributed.reduce_ops import ReduceOp, reduce_op, supports_complex
from dynagraph.torch.distributed.stores import FileStore, HashStore, PrefixStore, Store, TCPStore
from dynagraph.torch.distributed.transfers import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from dynagraph.torch.distributed.work import Work
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__, {"GradBucket": "dynagraph.torch.distributed.buckets"})
__all__ = [
    "Backend", "BackendConfig", "DebugLevel", "DeviceMesh", "DistBackendError", "DistError", "DistNetworkError",
    "DistStoreError", "FileStore", "GroupMember", "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "QueueEmptyError",
    "ReduceOp", "Store", "TCPStore", "Work", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single",
    "barrier", "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group",
    "gather", "gather_object", "get_backend", "get_backend_config", "get_debug_level", "get_default_backend_for_device",
    "get_global_rank", "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank",
    "get_world_size", "group", "init_device_mesh", "init_process_group", "irecv", "is_available", "is_backend_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "isend", "monitored_barrier", "new_group", "new_subgroups",
    "new_subgroups_by_enumeration", "recv", "recv_object_list", "reduce", "reduce_op", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send", "send_object_list",
    "set_debug_level", "set_debug_level_from_env", "split_group", "supports_complex",
]  # fmt: skip
