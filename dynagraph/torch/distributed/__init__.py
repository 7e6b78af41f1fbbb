"""``torch.distributed``: programs of several processes, which exchange tensors by MPI on CPUs and by NCCL on GPUs.

``mpiexec -n 4 python train.py`` starts the processes.  [docs/distributed.md](../../../docs/distributed.md) says how to use it.
"""

from dynagraph.torch.distributed.collectives import _all_gather_base as _all_gather_base
from dynagraph.torch.distributed.collectives import _reduce_scatter_base as _reduce_scatter_base
from dynagraph.torch.distributed.collectives import *  # noqa: F403
from dynagraph.torch.distributed.engines import (
    DistBackendError, DistError, DistNetworkError, DistStoreError, QueueEmptyError,
)  # fmt: skip
from dynagraph.torch.distributed.groups import (
    Backend, BackendConfig, GroupMember, ProcessGroup, default_pg_timeout, destroy_process_group, get_backend, get_backend_config,
    get_default_backend_for_device, get_global_rank, get_group_rank, get_node_local_rank, get_pg_count, get_process_group_ranks,
    get_rank, get_world_size, group, init_process_group, is_available, is_backend_available, is_gloo_available, is_initialized,
    is_mpi_available, is_nccl_available, is_torchelastic_launched, is_ucc_available, is_xccl_available, new_group, new_subgroups,
    new_subgroups_by_enumeration, split_group,
)  # fmt: skip
from dynagraph.torch.distributed.objects import *  # noqa: F403
from dynagraph.torch.distributed.point_to_point import *  # noqa: F403
from dynagraph.torch.distributed.reduce_ops import RedOpType as RedOpType
from dynagraph.torch.distributed.reduce_ops import ReduceOp, reduce_op, supports_complex
from dynagraph.torch.distributed.transfers import DebugLevel, get_debug_level, set_debug_level, set_debug_level_from_env
from dynagraph.torch.distributed.work import Work
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
