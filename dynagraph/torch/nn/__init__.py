"""``torch.nn``: what models are made of."""

from __future__ import annotations

from dynagraph.torch.core.parameter import Buffer as Buffer
from dynagraph.torch.core.parameter import Parameter as Parameter
from dynagraph.torch.core.parameter import UninitializedBuffer as UninitializedBuffer
from dynagraph.torch.core.parameter import UninitializedParameter as UninitializedParameter
from dynagraph.torch.missing import getattr_of as _getattr_of
from dynagraph.torch.nn import attention as attention
from dynagraph.torch.nn import functional as functional
from dynagraph.torch.nn import grad as grad
from dynagraph.torch.nn import init as init
from dynagraph.torch.nn import modules as modules
from dynagraph.torch.nn import parallel as parallel
from dynagraph.torch.nn import parameter as parameter
from dynagraph.torch.nn import utils as utils
from dynagraph.torch.nn.modules import *  # noqa: F403
from dynagraph.torch.nn.parallel import DataParallel as DataParallel

__getattr__ = _getattr_of(__name__, {"SyncBatchNorm": "dynagraph.torch.nn.modules.sync_batchnorm"})
__all__ = [name for name in dir() if not name.startswith("_") and name != "annotations"] + ["SyncBatchNorm"]  # noqa: F405
