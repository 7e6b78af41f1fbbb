"""Models to train or to load weights into: ``from dynagraph.torch import models``.

Parameters are named as in torchvision, or in the implementation that each module's docstring names, so that state dicts pass
both ways.  Sizes are arguments: a test needs no large model.

>>> from dynagraph import torch
>>> from dynagraph.torch import models
>>> model = models.resnet18(num_classes=10, width=8)
>>> model(torch.zeros(2, 3, 32, 32)).shape
torch.Size([2, 10])
"""

from __future__ import annotations

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.models.alexnet import AlexNet, alexnet
from dynagraph.torch.models.bert import BertModel
from dynagraph.torch.models.dcgan import Discriminator, Generator
from dynagraph.torch.models.densenet import DenseNet, densenet121
from dynagraph.torch.models.gpt import GPT
from dynagraph.torch.models.language_model import LSTMLanguageModel
from dynagraph.torch.models.lenet import LeNet
from dynagraph.torch.models.mlp import MLP
from dynagraph.torch.models.mobilenet import MobileNetV2, mobilenet_v2
from dynagraph.torch.models.resnet import BasicBlock, Bottleneck, ResNet, resnet18, resnet34, resnet50
from dynagraph.torch.models.unet import UNet
from dynagraph.torch.models.vae import VAE, vae_loss
from dynagraph.torch.models.vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from dynagraph.torch.models.vision_transformer import VisionTransformer, vit_b_16

__getattr__ = getattr_of(__name__)
__all__ = [
    "GPT", "MLP", "VAE", "VGG", "AlexNet", "BasicBlock", "BertModel", "Bottleneck", "DenseNet", "Discriminator", "Generator",
    "LSTMLanguageModel", "LeNet", "MobileNetV2", "ResNet", "UNet", "VisionTransformer", "alexnet", "densenet121", "mobilenet_v2",
    "resnet18", "resnet34", "resnet50", "vae_loss", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19",
    "vgg19_bn", "vit_b_16",
]  # fmt: skip
