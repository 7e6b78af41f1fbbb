"""``torch.nn.modules``: the layers, each in the module of its family."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules import (
    activation,
    adaptive,
    batchnorm,
    channelshuffle,
    container,
    conv,
    distance,
    dropout,
    flatten,
    fold,
    instancenorm,
    linear,
    linear_cross_entropy_options,
    loss,
    normalization,
    padding,
    pixelshuffle,
    pooling,
    rnn,
    sparse,
    transformer,
    upsampling,
)
from dynagraph.torch.nn.modules.activation import *  # noqa: F403
from dynagraph.torch.nn.modules.adaptive import *  # noqa: F403
from dynagraph.torch.nn.modules.batchnorm import *  # noqa: F403
from dynagraph.torch.nn.modules.channelshuffle import *  # noqa: F403
from dynagraph.torch.nn.modules.container import *  # noqa: F403
from dynagraph.torch.nn.modules.conv import *  # noqa: F403
from dynagraph.torch.nn.modules.distance import *  # noqa: F403
from dynagraph.torch.nn.modules.dropout import *  # noqa: F403
from dynagraph.torch.nn.modules.flatten import *  # noqa: F403
from dynagraph.torch.nn.modules.fold import *  # noqa: F403
from dynagraph.torch.nn.modules.instancenorm import *  # noqa: F403
from dynagraph.torch.nn.modules.linear import *  # noqa: F403
from dynagraph.torch.nn.modules.linear_cross_entropy_options import *  # noqa: F403
from dynagraph.torch.nn.modules.loss import *  # noqa: F403
from dynagraph.torch.nn.modules.module import Module as Module
from dynagraph.torch.nn.modules.normalization import *  # noqa: F403
from dynagraph.torch.nn.modules.padding import *  # noqa: F403
from dynagraph.torch.nn.modules.pixelshuffle import *  # noqa: F403
from dynagraph.torch.nn.modules.pooling import *  # noqa: F403
from dynagraph.torch.nn.modules.rnn import *  # noqa: F403
from dynagraph.torch.nn.modules.sparse import *  # noqa: F403
from dynagraph.torch.nn.modules.transformer import *  # noqa: F403
from dynagraph.torch.nn.modules.upsampling import *  # noqa: F403

__all__ = ["Module"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += batchnorm.__all__
__all__ += channelshuffle.__all__
__all__ += container.__all__
__all__ += conv.__all__
__all__ += distance.__all__
__all__ += dropout.__all__
__all__ += flatten.__all__
__all__ += fold.__all__
__all__ += instancenorm.__all__
__all__ += linear.__all__
__all__ += linear_cross_entropy_options.__all__
__all__ += loss.__all__
__all__ += normalization.__all__
__all__ += padding.__all__
__all__ += pixelshuffle.__all__
__all__ += pooling.__all__
__all__ += rnn.__all__
__all__ += sparse.__all__
__all__ += transformer.__all__
__all__ += upsampling.__all__
__getattr__ = getattr_of(__name__, {"SyncBatchNorm": "dynagraph.torch.nn.modules.sync_batchnorm"})
