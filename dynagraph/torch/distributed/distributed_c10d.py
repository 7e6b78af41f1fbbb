"""``torch.distributed.distributed_c10d``: where PyTorch's functions of groups and collectives are defined."""

from typing import Any

from dynagraph.torch.distributed import groups
from dynagraph.torch.distributed.collectives import *  # noqa: F403
from dynagraph.torch.distributed.collectives import _all_gather_base as _all_gather_base
from dynagraph.torch.distributed.collectives import _reduce_scatter_base as _reduce_scatter_base
from dynagraph.torch.distributed.groups import *  # noqa: F403
from dynagraph.torch.distributed.objects import *  # noqa: F403
from dynagraph.torch.distributed.point_to_point import *  # noqa: F403
from dynagraph.torch.distributed.reduce_ops import *  # noqa: F403
from dynagraph.torch.distributed.stores import *  # noqa: F403
from dynagraph.torch.distributed.transfers import DebugLevel as DebugLevel
from dynagraph.torch.distributed.transfers import get_debug_level as get_debug_level
from dynagraph.torch.distributed.work import Work as Work
from dynagraph.torch.missing import getattr_of


def _get_default_group() -> Any:
    """The group of all processes.  ValueError where there is none."""
    return groups.world()


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process is not in a group."""
    return groups.get_rank(group) == -1


__getattr__ = getattr_of(__name__)
