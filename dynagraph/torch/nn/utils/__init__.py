"""``torch.nn.utils``: helpers for parameters, gradients and sequences."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.utils import clip_grad as _clip_grad
from dynagraph.torch.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from dynagraph.torch.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from dynagraph.torch.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from dynagraph.torch.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from dynagraph.torch.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters

clip_grads_with_norm_, get_total_norm = _clip_grad._clip_grads_with_norm_, _clip_grad._get_total_norm
__getattr__ = getattr_of(__name__)
