"""ONNX out: every export is checked by onnx, and run by onnxruntime against our values."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import dynagraph as dg  # noqa: E402
from dynagraph import torch  # noqa: E402
from dynagraph.torch import nn  # noqa: E402
from dynagraph.torch.nn import functional as F  # noqa: E402
from tests.onnx.checks import check_export, run  # noqa: E402

RNG = np.random.default_rng(11)
B, S = dg.Dim("batch"), dg.Dim("seq", min=2)


def of(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def tensor(*shape):
    return torch.tensor(of(*shape))


IMAGE, ROWS, HEADS = tensor(4, 3, 8, 8), tensor(4, 5, 8), tensor(4, 2, 8, 16)
BS = ({0: B, 1: S},)


def update(x):
    y = x.copy()
    y[1:3, ::2] = 7
    y[0] = 1
    y[:, -1] += 2
    return y


def recurrent(x, h):
    return torch.stack([torch.tanh(x[:, t] + h) for t in range(5)], 1)


# function, arguments, dynamic shapes
WHOLE = {
    "linear": (lambda x, w: F.linear(x, w), (ROWS, tensor(3, 8)), (*BS, None)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q), (HEADS,), ({0: B, 2: S},)),
    "causal attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (HEADS,), ({0: B, 2: S},)),
    "convolution": (lambda x, k: F.conv2d(x, k, padding=1), (IMAGE, tensor(4, 3, 3, 3)), ({0: B}, None)),
    "convolution of any size": (
        lambda x, k: F.conv2d(x, k, padding=1), (IMAGE, tensor(4, 3, 3, 3)), ({0: B, 2: dg.Dim("h"), 3: dg.Dim("w")}, None)
    ),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (IMAGE,), ({0: B},)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), (IMAGE,), ({0: B},)),
    "flatten": (lambda x: x.flatten(1), (IMAGE,), ({0: B},)),
    "heads": (lambda x: x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2) * 1, (ROWS,), BS),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (tensor(4, 5), torch.tensor([0, 1, 2, 3])), ({0: B}, {0: B})),
    "embedding": (lambda x, t: F.embedding(t, x), (tensor(4, 5), torch.tensor([0, 1, 2, 3])), (None, {0: B})),
    "chunk": (lambda x: x.chunk(2, -1), (ROWS,), BS),
    "cat": (lambda x: torch.cat([x, x], 0), (ROWS,), BS),
    "arange": (lambda x: torch.arange(x.shape[1]) + x.sum(2), (ROWS,), BS),
    "tril": (lambda x: torch.tril(x), (ROWS,), BS),
    "var": (lambda x: x.var(0), (ROWS,), BS),
    "group_norm": (lambda x: F.group_norm(x, 2), (tensor(4, 6, 8),), ({0: B, 2: S},)),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2), (IMAGE,), ({0: B},)),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,), None),
    "topk": (lambda x: x.topk(2), (tensor(4, 8),), ({0: B},)),
    "sort": (lambda x: x.sort(), (tensor(4, 8),), ({0: B},)),
    "last": (lambda x: x[:, -1], (ROWS,), BS),
    "steps": (lambda x: x[:, ::2], (ROWS,), None),
    "flip": (lambda x: x.flip(1), (ROWS,), None),
    "gather": (lambda x, i: torch.gather(x, 1, i), (tensor(3, 8), torch.tensor([[0, 0], [1, 2], [7, 3]])), ({0: B}, {0: B})),
    "pad": (lambda x: F.pad(x, (1, 1, 1, 1), value=2.0), (IMAGE,), ({0: B},)),
    "unfold": (lambda x: F.unfold(x, 3), (IMAGE,), ({0: B},)),
    "recurrent": (recurrent, (ROWS, tensor(8)), ({0: B}, None)),
    "places": (lambda x: (x.argmax(1), x.max(1), x.argmax()), (tensor(4, 8),), ({0: B},)),
    "cumsum": (lambda x: x.cumsum(1), (tensor(4, 8),), ({0: B},)),
    "scatter": (lambda x, i: torch.zeros(4, 8).scatter(1, i, 1.0) + x, (tensor(4, 8), torch.zeros(4, 2, dtype=torch.int64)), None),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(2, 8)), (tensor(4, 8), torch.tensor([0, 0])), None),
    "masked_fill": (lambda x: x.masked_fill(x > 0, -1.0), (tensor(4, 8),), ({0: B},)),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), (ROWS,), BS),
    "update": (update, (of(4, 5),), None),
    "move": (lambda x: (np.roll(x, 1, 0), np.repeat(x, 2, 1), np.tile(x, (2, 1)), np.diagonal(x[:4, :4])), (of(4, 5),), ({0: B},)),
    "mask": (lambda x: (x > 0).any(0) | (x < 0).all(1)[0], (of(4, 5),), ({0: B},)),
    "indices": (lambda x, i: (x[i], x[i, i - 1], x[:, i]), (of(4, 5), np.array([0, -1, 2])), None),
    "integers": (
        lambda x, y: (x // y, x % y, np.fmod(x, y), x**2, x & y, x | y, ~x, x << 1, x >> 1, -x, abs(x), np.sign(x)),
        (np.array([7, -7, 5, -3]), np.array([2, 2, -3, -3])), None,
    ),
    "floats": (
        lambda x, y: (x // y, x % y, np.fmod(x, y), x**2, np.hypot(x, y), np.logaddexp(x, y), np.copysign(x, y), np.fmax(x, y),
                      np.trunc(x), np.rint(x), np.signbit(x), np.arctan2(x, y), np.floor(x), np.isfinite(x / 0),
                      np.heaviside(x, y)),
        (np.array([7.5, -7, 5, -3, 0], "f4"), np.array([2.0, 2.5, -3, -3, -0.0], "f4")), None,
    ),
    "transcendentals": (
        lambda x: (np.expm1(x), np.log1p(x), np.exp2(x), np.log2(x + 2), np.log10(x + 2), np.cbrt(x), np.sinh(x),
                   np.arctanh(x / 2)),
        (np.array([0.5, -0.3, 1e-6, 0.0, 3e-4], "f4"),), None,
    ),
    "created": (
        lambda x: (np.eye(3, 4, 1) + x[:3, :4], np.linspace(0, 1, 5) * x, np.full(5, 2.0) * x), (of(4, 5, dtype=np.float64),), None
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", WHOLE)
def test_values(name):
    check_export(*WHOLE[name])


ONE = {
    "relu": F.relu, "sigmoid": F.sigmoid, "silu": F.silu, "mish": F.mish, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
    "selu": F.selu, "softsign": F.softsign, "softplus": F.softplus, "elu": F.elu, "leaky_relu": F.leaky_relu, "erf": torch.erf,
    "gelu": F.gelu,
}  # fmt: skip
OPERATORS = {
    "relu": "Relu", "sigmoid": "Sigmoid", "mish": "Mish", "hardswish": "HardSwish", "hardsigmoid": "HardSigmoid", "selu": "Selu",
    "softsign": "Softsign", "softplus": "Softplus", "elu": "Elu", "leaky_relu": "LeakyRelu", "erf": "Erf", "gelu": "Gelu",
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_functions_that_onnx_has_are_one_operator(name):
    assert check_export(ONE[name], (ROWS,), BS) == [OPERATORS[name]] if name != "silu" else ["Sigmoid", "Mul"]


NORMS = {
    "softmax": (lambda x: F.softmax(x, -1), (), ["Softmax"]),
    "softmax of a middle axis": (lambda x: F.softmax(x, 1), (), ["Softmax"]),
    "log_softmax": (lambda x: F.log_softmax(x, -1), (), ["LogSoftmax"]),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"), (), ["Gelu"]),
    "elu": (lambda x: F.elu(x, 0.3), (), ["Elu"]),
    "layer_norm": (lambda x: F.layer_norm(x, (8,)), (), ["LayerNormalization"]),
    "layer_norm of two axes": (lambda x, w: F.layer_norm(x, (5, 8), w), ((5, 8),), ["LayerNormalization"]),
    "affine layer_norm": (lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-3), ((8,), (8,)), ["LayerNormalization"]),
    "linear": (lambda x, w, b: F.linear(x, w, b), ((3, 8), (3,)), ["Transpose", "MatMul", "Add"]),
}


@pytest.mark.parametrize("name", NORMS)
def test_functions_of_axes_are_one_operator(name):
    function, shapes, operators = NORMS[name]
    dynamic = ({0: B},) if "two" in name else BS
    assert check_export(function, (ROWS, *(tensor(*s) for s in shapes)), (*dynamic, *(None for _ in shapes))) == operators


def test_batch_norm_is_one_operator():
    rest = (tensor(3), tensor(3).abs(), tensor(3), tensor(3))
    shapes = ({0: B}, None, None, None, None)
    assert check_export(lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), (IMAGE, *rest), shapes) == ["BatchNormalization"]


def test_newer_operators_are_decomposed_for_older_opsets():
    assert "Gelu" not in check_export(F.gelu, (ROWS,), opset=18)
    assert check_export(lambda x, w: F.rms_norm(x, (8,), w), (ROWS, tensor(8)), opset=23) == ["RMSNormalization"]
    assert "RMSNormalization" not in check_export(lambda x, w: F.rms_norm(x, (8,), w), (ROWS, tensor(8)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(tensor(8, 8))
        self.bias = nn.Parameter(tensor(8))
        self.register_buffer("scale", tensor(8))

    def forward(self, x, y):
        return {"a": F.gelu(F.linear(x, self.weight, self.bias)) * self.scale, "b": (x + y).sum(-1)}


@pytest.fixture
def net():
    return Net()


def test_a_module(net, tmp_path):
    x = tensor(1, 5, 8)
    model = dg.onnx.export(
        net, (x, x), tmp_path / "net.onnx", input_names=["left", "right"], output_names=["wide", "narrow"],
        dynamic_axes={"left": {0: "batch"}, "right": {0: "batch"}, "wide": {0: "batch"}},
    )  # fmt: skip
    assert {t.name for t in model.graph.initializer} >= {"weight", "bias", "scale"}
    assert [i.name for i in model.graph.input] == ["left", "right"] and [o.name for o in model.graph.output] == ["wide", "narrow"]
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    many = tensor(7, 5, 8)
    wide, narrow = run(onnx.load(tmp_path / "net.onnx"), many.numpy(), many.numpy())
    expected = net(many, many)
    np.testing.assert_allclose(wide, expected["a"].detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(narrow, expected["b"].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_weights_beside_the_model(net, tmp_path):
    dg.onnx.export(net, (ROWS, ROWS), tmp_path / "net.onnx", external_data=True)
    assert (tmp_path / "net.onnx.data").stat().st_size > 4 * 64
    got = run(onnx.load(tmp_path / "net.onnx"), ROWS.numpy(), ROWS.numpy())[0]
    np.testing.assert_allclose(got, net(ROWS, ROWS)["a"].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_an_exported_program(net, tmp_path):
    dg.export(net, (ROWS, ROWS)).save(tmp_path / "net.dgx")
    got = run(dg.onnx.export(dg.load_exported(tmp_path / "net.dgx")), ROWS.numpy(), ROWS.numpy())[1]
    np.testing.assert_allclose(got, net(ROWS, ROWS)["b"].detach().numpy(), rtol=1e-5, atol=1e-5)


def test_ops_without_an_operator_are_one_error():
    def f(x):
        return np.gcd(x, 2), np.linalg.inv(x * 1.0), np.gcd(x, 4)

    with pytest.raises(dg.ExportError, match=r"f computes what ONNX has no operator for:\n  gcd of int64 .*\n.*\n?.*np.linalg.inv"):
        dg.onnx.export(f, (np.eye(3, dtype=int),))


def test_what_is_written_has_no_place():
    def step(x):
        x += 1
        return x * 2

    with pytest.raises(dg.ExportError, match=r"step writes to x, which ONNX has no way to say; export after model.eval\(\)"):
        dg.onnx.export(step, (of(3),))


@pytest.mark.parametrize(
    "more, message",
    [
        ({"opset_version": 12}, r"opset_version must be from 18 to 23, got 12"),
        ({"input_names": ["a", "b"]}, r"input_names has 2 names for 1 \(x\)"),
        ({"dynamic_axes": {"x": [0]}, "dynamic_shapes": {"x": {0: B}}}, r"not both"),
    ],
)
def test_wrong_arguments(more, message):
    with pytest.raises(dg.ExportError, match=message):
        dg.onnx.export(lambda x: x + 1, (of(3),), **more)


def test_torch_onnx_export(tmp_path):
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.5), nn.ReLU())
    torch.onnx.export(
        model, (ROWS,), tmp_path / "m.onnx", input_names=["x"], dynamic_axes={"x": {0: "batch"}}, dynamo=False, opset_version=18
    )
    assert model.training
    got = run(onnx.load(tmp_path / "m.onnx"), tensor(9, 5, 8).numpy())[0]
    assert got.shape == (9, 5, 4)
    program = torch.onnx.export(model.eval(), (ROWS,), dynamic_shapes=({0: B},))
    program.save(tmp_path / "n.onnx")
    got = run(onnx.load(tmp_path / "n.onnx"), ROWS.numpy())[0]
    np.testing.assert_allclose(got, model(ROWS).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_transformer_layer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu").eval()
    operators = check_export(layer, (tensor(3, 7, 16),), BS, others=[(tensor(2, 9, 16),)])
    assert operators.count("LayerNormalization") == 2 and "Gelu" in operators and "Softmax" in operators
    assert "Attention" in check_export(layer, (tensor(3, 7, 16),), BS, opset=23)


POOLS = [(2, 2, 0, 8), (3, 2, 1, 9), (3, 1, 1, 7), (2, 2, 0, 9), (3, 3, 0, 11)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kernel, stride, padding, size", POOLS)
def test_pools_are_one_operator(kernel, stride, padding, size):
    assert check_export(lambda x: F.max_pool2d(x, kernel, stride, padding), (tensor(4, 3, size, size),), ({0: B},)) == ["MaxPool"]


POOLS_OF = {
    "any ceiling": lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
    "dilation": lambda x: F.max_pool2d(x, 2, 1, 1, 3),
    "a border as wide as the windows": lambda x: F.max_pool2d(x, 2, 2, 1, 5, ceil_mode=True),
    "places": lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "images alone": lambda x: F.max_pool2d(x[0], 2, return_indices=True),
    "one dimension": lambda x: F.max_pool1d(x.flatten(2), 3, 2, return_indices=True),
    "three dimensions": lambda x: F.max_pool3d(x, 2, return_indices=True),
    "adaptive maxima": lambda x: F.adaptive_max_pool2d(x, (3, 4), return_indices=True),
    "adaptive means": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
    "float16": lambda x: F.max_pool2d((x * 8).round().half(), 2).float(),
    "averages beyond the border": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "averages beyond the array": lambda x: F.avg_pool2d(x, 2, 2, 0, ceil_mode=True, count_include_pad=False),
    "averages, the border left out": lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "averages by another divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
    "averages of one dimension": lambda x: F.avg_pool1d(x.flatten(2), 3, 2, 1),
    "averages of three dimensions": lambda x: F.avg_pool3d(x, (2, 3, 2), padding=1),
    "averages of float64": lambda x: F.avg_pool2d(x.double(), 3, 2, 1).float(),
    "averages of float16": lambda x: F.avg_pool2d((x * 8).round().half(), 2).float(),
    "norms": lambda x: F.lp_pool2d(x, 2, 2),
}
AVERAGES = [(2, None, 0), (3, 2, 1), (3, 2, 0, True), (3, 2, 1, False, False), (3, 2, 1, True, False), (3, 2, 1, False, True, 5)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("about", AVERAGES, ids=str)
def test_average_pools_are_one_operator(about):
    wanted = ["AveragePool", "Mul"] if len(about) == 6 else ["AveragePool"]
    assert check_export(lambda x: F.avg_pool2d(x, *about), (tensor(4, 3, 9, 7),), ({0: B},)) == wanted


@pytest.mark.parametrize("about", [(2, None, 0), (3, 2, 1), (3, 2, 1, True), (3, 2, 1, True, False)], ids=str)
def test_average_pools_of_any_size(about):
    sizes = {0: B, 2: dg.Dim("height", min=4), 3: dg.Dim("width", min=4)}
    check_export(lambda x: F.avg_pool2d(x, *about), (tensor(4, 3, 9, 7),), (sizes,))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("batch", [None, B], ids=["one size", "any batch"])
@pytest.mark.parametrize("name", POOLS_OF)
def test_pools_of_all_kinds(name, batch):
    check_export(POOLS_OF[name], (tensor(4, 3, 9, 7),), None if batch is None else ({0: batch},))


def test_gradients_of_pools():
    def gradient(x):
        x = x.clone().requires_grad_()
        y = F.max_pool2d(x, 2, 1, 1, 3) + F.adaptive_avg_pool2d(x, F.max_pool2d(x, 2, 1, 1, 3).shape[2:])
        y = y + F.avg_pool2d(x, 3, 2, 1, ceil_mode=True).sum()
        return torch.autograd.grad(y.clamp(min=-9.0).sum(), x)[0]

    check_export(gradient, (tensor(2, 3, 6, 7),))


HEADS_OF = {
    "mask": (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (HEADS, torch.rand(8, 8) > 0.3)),
    "bias": (lambda q, m: F.scaled_dot_product_attention(q, q, q, m), (HEADS, tensor(8, 8))),
    "shared heads": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), (tensor(4, 4, 8, 16), HEADS)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("name", HEADS_OF)
def test_attention(name, opset):
    assert ("Attention" in check_export(*HEADS_OF[name], opset=opset)) == (opset == 23)


def test_attention_with_a_mask_and_padding():
    layer = torch.nn.MultiheadAttention(16, 2, batch_first=True)

    def attend(x, mask, padding):
        return layer(x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False)[0]

    assert "Softmax" in check_export(attend, (tensor(2, 7, 16), tensor(7, 7), tensor(2, 7)), opset=23)
