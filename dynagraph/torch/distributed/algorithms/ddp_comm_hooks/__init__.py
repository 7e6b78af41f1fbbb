"""``torch.distributed.algorithms.ddp_comm_hooks``: other ways to average the buckets of a DistributedDataParallel."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from dynagraph.torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from dynagraph.torch.missing import getattr_of


class DDPCommHookType(Enum):
    """The hooks by name."""

    ALLREDUCE = partial(default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(default_hooks.fp16_compress_hook)
    BF16_COMPRESS = partial(default_hooks.bf16_compress_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register a hook of this module with a model; `state`: its process group."""
    model.register_comm_hook(state, comm_hook_type.value.func)


__getattr__ = getattr_of(__name__)
__all__ = ["DDPCommHookType", "default_hooks", "register_ddp_comm_hook"]
