"""Models: names of parameters, weights of others' files, text generation, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import math
import pkgutil
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.torch import models, nn
from tests.torch.models.cases import numbers
from tests.torch.models.record import FILE, NAMES, state_of

# each model of torchvision's with all its layers, and few numbers
SMALL: dict[str, Any] = {
    "alexnet": lambda: models.alexnet(width=4, hidden=8),
    **{name: (lambda name=name: getattr(models, name)(width=4, hidden=8)) for name in ("vgg11", "vgg16", "vgg19_bn")},
    **{name: (lambda name=name: getattr(models, name)(width=4)) for name in ("resnet18", "resnet34", "resnet50")},
    "mobilenet_v2": lambda: models.mobilenet_v2(width_mult=0.1),
    "densenet121": lambda: models.DenseNet(4, (6, 12, 24, 16), 8),
    "vit_b_16": lambda: models.vit_b_16(image_size=32, hidden_dim=12, mlp_dim=8),
}
MODULES = sorted(f"{models.__name__}.{m.name}" for m in pkgutil.iter_modules(models.__path__))


@pytest.mark.parametrize("module", [models.__name__, *MODULES])
def test_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted and not result.failed


@pytest.mark.parametrize("name", NAMES)
def test_names_are_torchvisions(name: str) -> None:
    found = [text.split()[0] for text in state_of(SMALL[name]())]
    assert found == [text.split()[0] for text in recorded_state(name)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2", "densenet121"])
def test_names_and_shapes_are_torchvisions(name: str) -> None:
    assert state_of(getattr(models, name)()) == recorded_state(name)


def recorded_state(name: str) -> list[str]:
    with np.load(FILE) as recorded:
        return bytes(recorded[name].item()).decode().split("\n")


def test_names_of_densenets_published_file() -> None:
    model = models.DenseNet(4, (2, 2), 8, num_classes=3)
    old = {}
    for name, value in model.state_dict().items():
        for layer in ("norm1", "norm2", "conv1", "conv2"):
            name = name.replace(f".{layer}.", f".{layer[:4]}.{layer[4:]}.") if "denselayer" in name else name
        old[name] = value + 1
    expected = {name: value + 1 for name, value in model.state_dict().items()}
    assert list(old) != list(expected)
    model.load_state_dict(old)
    assert all((model.state_dict()[name] == value).all() for name, value in expected.items())


def test_first_names_of_the_vision_transformers_layers() -> None:
    model = models.VisionTransformer(8, 4, 1, 2, 4, 6, num_classes=3)
    given = model.state_dict().items()
    state = {name.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): value for name, value in given}
    assert "encoder.layers.encoder_layer_0.mlp.linear_2.bias" in state
    model.load_state_dict(state)


# -- GPT-2 ------------------------------------------------------------------------------------------------------------


def gpt2_file(prefix: str, width: int, layers: int, vocabulary: int, length: int) -> dict[str, Any]:
    """A state dict with the names, shapes and buffers of GPT-2's file, or with those of `GPT2LMHeadModel`."""
    shapes = {"wte.weight": (vocabulary, width), "wpe.weight": (length, width)}
    for k in range(layers):
        for name, inner, outer in (
            ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width), ("mlp.c_fc", width, 4 * width),
            ("mlp.c_proj", 4 * width, width),
        ):  # fmt: skip
            shapes |= {f"h.{k}.{name}.weight": (inner, outer), f"h.{k}.{name}.bias": (outer,)}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{k}.{name}.weight": (width,), f"h.{k}.{name}.bias": (width,)}
        shapes[f"h.{k}.attn.bias"] = (1, 1, length, length)
    shapes |= {"ln_f.weight": (width,), "ln_f.bias": (width,)}
    return {f"{prefix}{name}": torch.from_numpy(numbers(name, shape, "float64")) for name, shape in shapes.items()}


def gpt2(state: dict[str, Any], tokens: np.ndarray, heads: int) -> np.ndarray:
    """GPT-2's logits, written out in NumPy."""
    w = {name: value.numpy() for name, value in state.items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ w[f"{name}.weight"] + w[f"{name}.bias"])

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return np.asarray(centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"])

    length = len(tokens)
    x = w["wte.weight"][tokens] + w["wpe.weight"][:length]
    for k in range(sum(name.endswith("c_attn.bias") for name in w)):
        q, key, value = np.split(linear(f"h.{k}.attn.c_attn", norm(f"h.{k}.ln_1", x)), 3, -1)
        parts = []
        for a, b, c in zip(*(np.split(t, heads, -1) for t in (q, key, value))):
            scores = np.where(np.tri(length, dtype=bool), a @ b.T / math.sqrt(a.shape[-1]), -np.inf)
            odds = np.exp(scores - scores.max(-1, keepdims=True))
            parts.append(odds / odds.sum(-1, keepdims=True) @ c)
        x = x + linear(f"h.{k}.attn.c_proj", np.concatenate(parts, -1))
        hidden = linear(f"h.{k}.mlp.c_fc", norm(f"h.{k}.ln_2", x))
        hidden = 0.5 * hidden * (1 + np.tanh(math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)))
        x = x + linear(f"h.{k}.mlp.c_proj", hidden)
    return np.asarray(norm("ln_f", x) @ w["wte.weight"].T)


def test_weights_of_gpt2() -> None:
    state = gpt2_file("", 8, 2, 11, 6)
    model = models.GPT(11, 6, 2, 2, 8).double().load_gpt2(state)
    tokens = np.array([3, 1, 10, 0, 7])
    with torch.no_grad():
        got = model(torch.from_numpy(tokens[None])).numpy()[0]
    np.testing.assert_allclose(got, gpt2(state, tokens, 2), rtol=1e-12, atol=1e-12)
    given_back = model.gpt2_state_dict()
    of_head_model = {f"transformer.{name}": value for name, value in state.items() if not name.endswith(".attn.bias")}
    assert {*given_back} == {*of_head_model, "lm_head.weight"}
    assert all((given_back[name] == value).all() for name, value in of_head_model.items())
    assert model.lm_head.weight is model.transformer.wte.weight


def test_text_is_generated() -> None:
    model = models.GPT(11, 6, 1, 2, 8)
    start = torch.tensor([[1, 2], [3, 4]])
    likeliest = model.generate(start, 7, temperature=0)
    assert likeliest.shape == (2, 9) and (likeliest[:, :2] == start).all()
    assert (model.generate(start, 7, top_k=1) == likeliest).all()
    assert (likeliest[:, 3] == model(likeliest[:, :3])[:, -1].argmax(-1)).all()
    drawn = [model.generate(start, 20, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(ValueError, match="at most 6 tokens, but got 7"):
        model(torch.zeros(1, 7, dtype=torch.int64))


# -- BERT -------------------------------------------------------------------------------------------------------------


def test_berts_layers_are_those_of_transformers() -> None:
    torch.manual_seed(1)
    model = models.BertModel(11, 8, 1, 2, 12, 0.0, 0.0, 9).double()
    layer = nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", 1e-12, batch_first=True, dtype=torch.float64)
    state = model.encoder.layer[0].state_dict()
    renamed = {
        "out_proj": "attention.output.dense", "norm1": "attention.output.LayerNorm", "linear1": "intermediate.dense",
        "linear2": "output.dense", "norm2": "output.LayerNorm",
    }  # fmt: skip
    for name, parameter in layer.named_parameters():
        kind = name.rpartition(".")[2].removeprefix("in_proj_")
        if "in_proj" in name:
            given = torch.cat([state[f"attention.self.{part}.{kind}"] for part in ("query", "key", "value")])
        else:
            given = state[f"{renamed[name.split('.')[-2]]}.{kind}"]
        parameter.data.copy_(given)
    tokens, mask = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    sequence, summary = model(tokens, mask)
    expected = layer(model.embeddings(tokens, None), src_key_padding_mask=mask == 0)
    kept = mask.bool()
    np.testing.assert_allclose(sequence[kept].detach(), expected[kept].detach(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(summary.detach(), model.pooler.dense(expected[:, 0]).tanh().detach(), rtol=1e-9, atol=1e-12)


def test_weights_of_larger_models_of_bert() -> None:
    first, second = (models.BertModel(11, 8, 1, 2, 12, max_position_embeddings=9) for _ in range(2))
    state: dict[str, Any] = {}
    for name, value in first.state_dict().items():
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        state[f"bert.{old}"] = value
    state |= {"cls.predictions.bias": torch.zeros(11), "bert.embeddings.position_ids": torch.arange(9)}
    second.load_state_dict(state)
    assert all((second.state_dict()[name] == value).all() for name, value in first.state_dict().items())
    without = models.BertModel(11, 8, 1, 2, 12, max_position_embeddings=9, add_pooling_layer=False)
    without.load_state_dict(state)
    assert without(torch.tensor([[1, 2]]))[1] is None


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: models.LeNet(image_size=12), "image_size: expected at least 16, but got 12"),
        (lambda: models.GPT(n_embd=10, n_head=3), "n_embd: expected a multiple of n_head 3, but got 10"),
        (lambda: models.Generator(image_size=48), "image_size: expected a power of two from 16, but got 48"),
        (lambda: models.LSTMLanguageModel(5, 4, 6, tie_weights=True), "tie_weights: expected nhid to be ninp 4, but got 6"),
        (lambda: models.VisionTransformer(10, 4, 1, 1, 4, 4), "image_size: expected a multiple of patch_size 4, but got 10"),
    ],
)
def test_sizes_that_do_not_fit(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
