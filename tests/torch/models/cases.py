"""Models in training: how each is made, what it is given, and its loss; under one torch or the other.

    python -m tests.torch.models.record      writes down what real torch computes
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.torch.models.on_torch import models_of

STEPS = 10
Batch = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model by the text that makes it, the shapes of a batch, the loss, and the optimizer by its text."""

    model: str
    inputs: tuple[str, ...]  # "images 4 3 32 32", "tokens:11 2 8": numbers, or integers below 11
    loss: Callable[..., Any]  # of torch, the model and the inputs
    optimizer: str = "SGD(parameters, lr=0.02, momentum=0.9)"


def classes(torch: Any, model: Any, x: Any, target: Any) -> Any:
    """Cross entropy of classes of samples, or of each pixel."""
    return torch.nn.functional.cross_entropy(model(x), target)


def next_tokens(torch: Any, model: Any, tokens: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def next_tokens_of_states(torch: Any, model: Any, tokens: Any) -> Any:
    logits, state = model(tokens[:-1])
    again, _ = model(tokens[:-1], tuple(s.detach() for s in state))
    both = torch.stack([logits, again])
    return torch.nn.functional.cross_entropy(both.flatten(0, 2), tokens[1:].flatten().repeat(2))


def sequences(torch: Any, model: Any, tokens: Any, kept: Any, target: Any) -> Any:
    sequence, summary = model(tokens, (kept > 0).long(), (kept > 1).long())
    return (sequence - target).square().mean() + summary.square().mean()


def bound(torch: Any, model: Any, x: Any) -> Any:
    """The bound at the mean of the code: no random number."""
    mean, logvar = model.encode(x.sigmoid())
    return -0.5 * (1 + logvar - mean**2 - logvar.exp()).mean() + (model.decode(mean) - x.sigmoid()).square().mean()


def adversarial(torch: Any, pair: Any, codes: Any) -> Any:
    generator, discriminator = pair
    real = discriminator(generator(codes))
    return torch.nn.functional.binary_cross_entropy(real, torch.ones_like(real))


ADAMW = "AdamW(parameters, lr=0.001)"
PAIR = "torch.nn.ModuleList([models.Generator(6, 4, 1, 16), models.Discriminator(4, 1, 16)])"
CASES = {
    "MLP": Case("models.MLP(6, [8, 5], norm_layer=torch.nn.LayerNorm)", ("numbers 4 6", "tokens:5 4"), classes),
    "LeNet": Case("models.LeNet(image_size=20)", ("numbers 4 1 20 20", "tokens:10 4"), classes),
    "AlexNet": Case("models.alexnet(num_classes=5, dropout=0, width=4, hidden=8)", ("numbers 2 3 64 64", "tokens:5 2"), classes),
    "VGG-11": Case("models.vgg11_bn(num_classes=5, dropout=0, width=4, hidden=8)", ("numbers 3 3 40 40", "tokens:5 3"), classes),
    "ResNet-18": Case("models.resnet18(num_classes=5, width=8)", ("numbers 4 3 64 64", "tokens:5 4"), classes),
    "ResNet-50": Case("models.ResNet(models.Bottleneck, [1, 1, 1, 1], 5, True, width=4)",
        ("numbers 4 3 64 64", "tokens:5 4"), classes),
    "MobileNetV2": Case(
        "models.MobileNetV2(5, 0.25, [(1, 8, 1, 1), (3, 16, 2, 2)], dropout=0)", ("numbers 4 3 24 24", "tokens:5 4"), classes
    ),
    "DenseNet": Case("models.DenseNet(4, (2, 2), 8, num_classes=5)", ("numbers 4 3 32 32", "tokens:5 4"), classes),
    "U-Net": Case("models.UNet(2, 3, width=2)", ("numbers 2 2 34 37", "tokens:3 2 34 37"), classes),
    "U-Net, bilinear": Case("models.UNet(2, 3, bilinear=True, width=2)", ("numbers 2 2 34 37", "tokens:3 2 34 37"), classes),
    "ViT": Case("models.VisionTransformer(16, 8, 2, 2, 8, 12, num_classes=5, representation_size=6)",
        ("numbers 3 3 16 16", "tokens:5 3"), classes, ADAMW),
    "GPT": Case("models.GPT(17, 12, 2, 3, 12)", ("tokens:17 3 10",), next_tokens, ADAMW),
    "BERT": Case("models.BertModel(17, 8, 2, 2, 12, 0.0, 0.0, 9)",
        ("tokens:17 3 7", "tokens:3 3 7", "numbers 3 7 8"), sequences, ADAMW),
    "LSTM": Case("models.LSTMLanguageModel(17, 6, 8, 2, 0.0)", ("tokens:17 9 4",), next_tokens_of_states),
    "LSTM, tied": Case("models.LSTMLanguageModel(17, 6, 6, 1, 0.0, True)", ("tokens:17 9 4",), next_tokens_of_states),
    "VAE": Case("models.VAE(12, 8, 3)", ("numbers 5 12",), bound, ADAMW),
    "DCGAN": Case(PAIR, ("numbers 4 6 1 1",), adversarial, ADAMW),
}  # fmt: skip
# in the sizes that people use, in single precision; those that are recorded first
LARGE = {
    "ResNet-18 of 16": Case("models.resnet18(num_classes=10, width=16)", ("numbers 4 3 64 64", "tokens:10 4"), classes,
        "SGD(parameters, lr=0.005, momentum=0.9)"),
    "GPT-2's width": Case("models.GPT(64, 16, 2, 12, 768)", ("tokens:64 2 13",), next_tokens, "AdamW(parameters, lr=0.0001)"),
    "LSTM of 200": Case("models.LSTMLanguageModel(100, 200, 200, 2, 0.0)", ("tokens:100 21 4",), next_tokens_of_states),
    "ResNet-18 whole": Case("models.resnet18(num_classes=10)", ("numbers 4 3 64 64", "tokens:10 4"), classes,
        "SGD(parameters, lr=0.005, momentum=0.9)"),
    "GPT-2's depth": Case("models.GPT(64, 16, 12, 12, 768)", ("tokens:64 2 13",), next_tokens, "AdamW(parameters, lr=0.0001)"),
}  # fmt: skip
RECORDED = [*LARGE][:3]


def numbers(name: str, shape: Any, dtype: str) -> np.ndarray:
    """The numbers of a parameter, buffer or input: the same for every torch, in a size that lets a model train."""
    values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape, np.float32)
    if "running_var" in name:
        values = 1 + 0.1 * np.abs(values)
    elif name.endswith(".weight") and len(shape) <= 1:
        values = 1 + 0.1 * values
    elif len(shape) <= 1:
        values = 0.1 * values
    elif name.startswith("input") is False:
        values = values / np.sqrt(np.prod(shape[1:]) if len(shape) > 1 else 1)
    return values.astype(dtype)


def inputs_of(torch: Any, case: Case, dtype: str) -> list[Any]:
    """A batch."""
    found = []
    for k, text in enumerate(case.inputs):
        kind, *sizes = text.split()
        shape = tuple(map(int, sizes))
        if kind == "numbers":
            found.append(torch.from_numpy(numbers(f"input {k}", shape, dtype)))
        else:
            below = int(kind.partition(":")[2])
            found.append(torch.from_numpy(np.random.default_rng(k).integers(0, below, shape)))
    return found


def made(torch: Any, case: Case, dtype: str) -> tuple[Any, Any]:
    """A model, filled with its numbers, and its optimizer."""
    models = models_of(torch)
    model = eval(case.model, {"torch": torch, "models": models}).to(getattr(torch, dtype))
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            if value.is_floating_point():
                value.copy_(torch.from_numpy(numbers(name, tuple(value.shape), dtype)))
    optimizer = eval(case.optimizer, vars(torch.optim), {"parameters": model.parameters()})
    return model, optimizer


def step(torch: Any, loss: Any, model: Any, optimizer: Any, inputs: Any) -> Any:
    """A step of training: the loss before it."""
    optimizer.zero_grad()
    value = loss(torch, model, *inputs)
    value.backward()
    optimizer.step()
    return value.detach()


def losses(torch: Any, case: Case, dtype: str, one_step: Callable[..., Any] = step, steps: int = STEPS) -> np.ndarray:
    """The losses of some steps."""
    model, optimizer = made(torch, case, dtype)
    inputs = inputs_of(torch, case, dtype)
    return np.asarray([one_step(torch, case.loss, model, optimizer, inputs).item() for _ in range(steps)])
