"""``torch.nn.utils``: helpers for parameters, gradients and sequences."""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.utils import clip_grad as _clip_grad
from dynagraph.torch.nn.utils import parametrizations as parametrizations
from dynagraph.torch.nn.utils import parametrize as parametrize
from dynagraph.torch.nn.utils import rnn as rnn
from dynagraph.torch.nn.utils import stateless as stateless
from dynagraph.torch.nn.utils.clip_grad import clip_grad_norm as clip_grad_norm
from dynagraph.torch.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from dynagraph.torch.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from dynagraph.torch.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from dynagraph.torch.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from dynagraph.torch.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from dynagraph.torch.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from dynagraph.torch.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from dynagraph.torch.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from dynagraph.torch.nn.utils.init import skip_init as skip_init
from dynagraph.torch.nn.utils.memory_format import convert_conv2d_weight_memory_format as convert_conv2d_weight_memory_format
from dynagraph.torch.nn.utils.memory_format import convert_conv3d_weight_memory_format as convert_conv3d_weight_memory_format
from dynagraph.torch.nn.utils.spectral_norm import remove_spectral_norm as remove_spectral_norm
from dynagraph.torch.nn.utils.spectral_norm import spectral_norm as spectral_norm
from dynagraph.torch.nn.utils.weight_norm import remove_weight_norm as remove_weight_norm
from dynagraph.torch.nn.utils.weight_norm import weight_norm as weight_norm

clip_grads_with_norm_, get_total_norm = _clip_grad._clip_grads_with_norm_, _clip_grad._get_total_norm

__getattr__ = getattr_of(__name__)
