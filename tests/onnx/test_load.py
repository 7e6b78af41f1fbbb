"""ONNX in: models against onnxruntime, onnx's own cases of operators, gradients, captures."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import warnings

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.backend.test.case import node as node_cases  # noqa: E402

import dynagraph as dg  # noqa: E402
from dynagraph import torch  # noqa: E402
from tests.onnx.checks import run  # noqa: E402
from tests.onnx.test_export import WHOLE  # noqa: E402
from tests.sampling import some  # noqa: E402

RNG = np.random.default_rng(5)


def of(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of(nodes, inputs, outputs, weights=(), opset=20):
    """A model of float32 arrays."""
    graph = helper.make_graph(
        nodes, "model", [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in outputs.items()],
        [numpy_helper.from_array(array, name) for name, array in dict(weights).items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


# -- onnx's cases of operators ----------------------------------------------------------------------------------------------------

# what is not there: no arrays of such elements, no such operator, or an old opset
REFUSALS = ("operators that dynagraph does not know", "element type", "the model is of opset")
DIFFERENT = {
    "test_attention_4d_causal_fp16": "half precision rounds elsewhere", "test_attention_4d_causal_fp16_expanded": "likewise",
    "test_training_dropout": "training", "resize_tf_crop_and_resize": "no regions of interest", "bf16": "rounds elsewhere",
    "test_cast_": "elements of less than a byte, or of float8", "test_castlike_": "likewise", "test_quantizelinear_blocked": "int4",
}  # fmt: skip


def cases():
    """Those of some operators' modules: importing one makes its cases."""
    names = sorted(module.name for module in pkgutil.iter_modules(node_cases.__path__))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in some(names, 12, "modules"):
            importlib.import_module(f"{node_cases.__name__}.{name}")
    return node_cases._NodeTestCases


def failure_of(case):
    """Why a case fails; None where it does not, "" where the model is refused."""
    try:
        model = dg.onnx.load(case.model)
    except dg.ExportError as error:
        return "" if any(reason in str(error) for reason in REFUSALS) else str(error)
    for given, expected in case.data_sets:
        try:
            got = model(*(None if g is None else np.array(g) for g in given))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        for one, other in zip(got if isinstance(got, tuple) else (got,), map(np.asarray, expected)):
            array = np.asarray(one.detach()._array)
            if array.dtype != other.dtype or array.shape != other.shape:
                return f"{array.dtype}{array.shape} where {other.dtype}{other.shape} is expected"
            wide = [a.astype(float) if a.dtype.kind == "f" else a for a in (array, other)]
            if not np.allclose(*wide, rtol=case.rtol, atol=case.atol, equal_nan=True):
                return "other values"
    return None


def test_cases_of_onnx():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {case.name: failure_of(case) for case in cases()}
    failed = {name: why for name, why in found.items() if why and not any(known in name for known in DIFFERENT)}
    assert not failed
    assert sum(why is None for why in found.values()) > 0.6 * len(found)


# -- our own exports come back ----------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("name", WHOLE)
def test_what_is_exported_can_be_loaded(name):
    function, args, shapes = WHOLE[name]
    proto = dg.onnx.export(function, args, dynamic_shapes=shapes)
    arrays = [a.numpy() if isinstance(a, torch.Tensor) else a for a in args]
    expected = run(proto, *arrays)
    got = dg.onnx.load(proto)(*arrays)
    for one, other in zip(got if isinstance(got, tuple) else (got,), expected, strict=True):
        np.testing.assert_allclose(one.detach().numpy(), other, rtol=2e-5, atol=1e-6)


# -- models -----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def convolutional():
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=0, end=1),
        helper.make_node("Concat", ["n", "rest"], ["flat"], axis=0),
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "flat"], ["f"]),
        helper.make_node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    weights = {
        "conv.weight": of(4, 3, 3, 3), "conv.bias": of(4), "fc.weight": of(5, 64), "fc.bias": of(5), "rest": np.array([-1]),
    }  # fmt: skip
    return model_of(nodes, {"x": ["N", 3, 8, 8]}, {"y": ["N", 5]}, weights)


def test_a_model_from_bytes(convolutional, tmp_path):
    model = dg.onnx.load(convolutional.SerializeToString())
    x = of(2, 3, 8, 8)
    np.testing.assert_allclose(model(x).detach().numpy(), run(convolutional, x)[0], rtol=1e-4, atol=1e-4)
    assert list(model.state_dict()) == ["conv.weight", "conv.bias", "fc.weight", "fc.bias"]
    assert model.input_names == ("x",) and torch.equal(model(x=x), model(x))
    onnx.save(copy.deepcopy(convolutional), tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0)
    assert torch.equal(dg.onnx.load(tmp_path / "model.onnx")(x), model(x))


def test_gradients_pass_through_it(convolutional):
    model = dg.onnx.load(convolutional)
    x = torch.tensor(of(2, 3, 8, 8), requires_grad=True)
    model(x).square().sum().backward()
    step, weight = 1e-2, model.get_parameter("fc.weight")
    with torch.no_grad():
        before = model(x).square().sum()
        weight[0, 0] += step
        after = model(x).square().sum()
    slope = (after - before) / step
    assert abs(slope - weight.grad[0, 0]) < 0.05 * abs(slope) + 0.5 and x.grad.abs().max() > 0


def test_it_is_captured_whole(convolutional):
    model, x = dg.onnx.load(convolutional), torch.tensor(of(2, 3, 8, 8))
    with torch.no_grad():
        compiled = dg.compile(model.forward, fullgraph=True, mode="max")
        assert torch.allclose(compiled(x), model(x), rtol=1e-4, atol=1e-4) and compiled.stats.compiles == 1
    program = dg.export(model, (x,), dynamic_shapes=({0: dg.Dim("batch")},))
    more = of(5, 3, 8, 8)
    np.testing.assert_allclose(program(torch.tensor(more)).detach().numpy(), run(convolutional, more)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind, gates", [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_recurrent_layers(kind, gates, direction):
    d, hidden = (2 if direction == "bidirectional" else 1), 5
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["x", "w", "r", "b"], ["y", "h"], hidden_size=hidden, direction=direction, **more)
    weights = {"w": of(d, gates * hidden, 3), "r": of(d, gates * hidden, hidden), "b": of(d, 2 * gates * hidden)}
    proto = model_of([node], {"x": [7, 2, 3]}, {"y": [7, d, 2, hidden], "h": [d, 2, hidden]}, weights)
    x = of(7, 2, 3)
    for got, expected in zip(dg.onnx.load(proto)(x), run(proto, x), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, rtol=1e-4, atol=1e-5)


def test_weights_may_be_given_as_inputs():
    node = helper.make_node("Add", ["x", "w"], ["y"])
    proto = model_of([node], {"x": [2], "w": [2]}, {"y": [2]}, {"w": np.ones(2, np.float32)})
    model = dg.onnx.load(proto)
    assert model(np.zeros(2, np.float32)).tolist() == [1, 1]
    assert model(np.zeros(2, np.float32), w=np.full(2, 5, np.float32)).tolist() == [5, 5]
    with pytest.raises(TypeError, match="inputs x are missing"):
        model()
    with pytest.raises(TypeError, match="takes the inputs x, w, got 0 and z"):
        model(z=1)


# -- what is no model -------------------------------------------------------------------------------------------------------------


def test_unknown_operators_are_one_error():
    rows = (("Foo", "x", "a", ""), ("DFT", "a", "b", ""), ("Foo", "b", "y", "my"))
    nodes = [helper.make_node(kind, [x], [y], domain=domain) for kind, x, y, domain in rows]
    with pytest.raises(dg.ExportError, match=r"operators that dynagraph does not know: DFT, Foo, my\.Foo"):
        dg.onnx.load(model_of(nodes, {"x": [2]}, {"y": [2]}))


def test_what_is_no_model(convolutional, tmp_path):
    whole = convolutional.SerializeToString()
    for data in (b"", b"not a model", whole[: len(whole) // 2]):
        with pytest.raises(dg.ExportError, match=r"onnx\.load"):
            dg.onnx.load(data)
    with pytest.raises(dg.ExportError, match="nothing gives the value 'z'"):
        dg.onnx.load(model_of([helper.make_node("Relu", ["z"], ["y"])], {"x": [2]}, {"y": [2]}))
    with pytest.raises(dg.ExportError, match="is of opset 6"):
        dg.onnx.load(model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, {"y": [2]}, opset=6))
    outside = {"save_as_external_data": True, "size_threshold": 0, "location": "w.data"}
    onnx.save(copy.deepcopy(convolutional), tmp_path / "model.onnx", **outside)
    (tmp_path / "w.data").unlink()
    with pytest.raises(dg.ExportError, match="cannot be read"):
        dg.onnx.load(tmp_path / "model.onnx")
