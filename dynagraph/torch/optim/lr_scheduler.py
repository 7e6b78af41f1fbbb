"""``torch.optim.lr_scheduler``"""

from __future__ import annotations

from bisect import bisect_right as bisect_right

from dynagraph.torch.missing import getattr_of as _getattr_of
from dynagraph.torch.optim.schedules.base import EPOCH_DEPRECATION_WARNING as EPOCH_DEPRECATION_WARNING
from dynagraph.torch.optim.schedules.base import LRScheduler as LRScheduler
from dynagraph.torch.optim.schedules.base import _LRScheduler as _LRScheduler
from dynagraph.torch.optim.schedules.combined import ChainedScheduler as ChainedScheduler
from dynagraph.torch.optim.schedules.combined import ReduceLROnPlateau as ReduceLROnPlateau
from dynagraph.torch.optim.schedules.combined import SequentialLR as SequentialLR
from dynagraph.torch.optim.schedules.cycles import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from dynagraph.torch.optim.schedules.cycles import CyclicLR as CyclicLR
from dynagraph.torch.optim.schedules.cycles import OneCycleLR as OneCycleLR
from dynagraph.torch.optim.schedules.factors import ConstantLR as ConstantLR
from dynagraph.torch.optim.schedules.factors import CosineAnnealingLR as CosineAnnealingLR
from dynagraph.torch.optim.schedules.factors import ExponentialLR as ExponentialLR
from dynagraph.torch.optim.schedules.factors import LambdaLR as LambdaLR
from dynagraph.torch.optim.schedules.factors import LinearLR as LinearLR
from dynagraph.torch.optim.schedules.factors import MultiplicativeLR as MultiplicativeLR
from dynagraph.torch.optim.schedules.factors import MultiStepLR as MultiStepLR
from dynagraph.torch.optim.schedules.factors import PolynomialLR as PolynomialLR
from dynagraph.torch.optim.schedules.factors import StepLR as StepLR

__getattr__ = _getattr_of(__name__)
