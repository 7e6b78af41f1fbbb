"""``torch.distributed.constants``: how long groups wait."""

from dynagraph.torch.distributed.groups import default_pg_timeout as default_pg_timeout

default_pg_nccl_timeout = default_pg_timeout
_DEFAULT_PG_TIMEOUT = default_pg_timeout
__all__ = ["default_pg_nccl_timeout", "default_pg_timeout"]
