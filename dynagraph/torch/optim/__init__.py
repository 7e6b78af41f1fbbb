"""``torch.optim``: what changes parameters by their gradients."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of as _getattr_of
from dynagraph.torch.optim import lr_scheduler as lr_scheduler
from dynagraph.torch.optim import swa_utils as swa_utils
from dynagraph.torch.optim._adafactor import Adafactor as Adafactor
from dynagraph.torch.optim._muon import Muon as Muon
from dynagraph.torch.optim._stateless import swap_in_optimizer_params_and_state as swap_in_optimizer_params_and_state
from dynagraph.torch.optim.adadelta import Adadelta as Adadelta
from dynagraph.torch.optim.adagrad import Adagrad as Adagrad
from dynagraph.torch.optim.adam import Adam as Adam
from dynagraph.torch.optim.adamax import Adamax as Adamax
from dynagraph.torch.optim.adamw import AdamW as AdamW
from dynagraph.torch.optim.asgd import ASGD as ASGD
from dynagraph.torch.optim.lbfgs import LBFGS as LBFGS
from dynagraph.torch.optim.nadam import NAdam as NAdam
from dynagraph.torch.optim.optimizer import Optimizer as Optimizer
from dynagraph.torch.optim.radam import RAdam as RAdam
from dynagraph.torch.optim.rmsprop import RMSprop as RMSprop
from dynagraph.torch.optim.rprop import Rprop as Rprop
from dynagraph.torch.optim.sgd import SGD as SGD
from dynagraph.torch.optim.sparse_adam import SparseAdam as SparseAdam

__getattr__ = _getattr_of(__name__)
