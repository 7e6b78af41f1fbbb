"""What both directions are checked by: onnx's checker, and onnxruntime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime

import dynagraph as dg
from dynagraph import torch


def arrays_in(value: Any) -> list[np.ndarray]:
    """Arrays and tensors of a result, as arrays, from left to right."""
    if isinstance(value, (tuple, list)):
        return [array for item in value for array in arrays_in(item)]
    if isinstance(value, dict):
        return arrays_in(list(value.values()))
    return [np.asarray(value.detach().numpy() if isinstance(value, torch.Tensor) else value)]


def run(model: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime gives."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {given.name: array for given, array in zip(session.get_inputs(), arrays, strict=True)})


def check_export(function: Any, args: tuple[Any, ...], shapes: Any = None, opset: int = 20, others: Any = ()) -> list[str]:
    """Export it, have onnx check the file and onnxruntime give our values, for `args` and for `others` too; gives the operators."""
    model = dg.onnx.export(function, args, dynamic_shapes=shapes, opset_version=opset)
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version == opset
    for given in (args, *others):
        expected = arrays_in(function(*given))
        got = run(model, *(array for array in arrays_in(given)))
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-6)
    return [node.op_type for node in model.graph.node]
