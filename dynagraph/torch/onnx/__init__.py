"""``torch.onnx``: models to ONNX, by `dynagraph.onnx.export`.  What libraries register at their import is kept."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dynagraph
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules import Module

SYMBOLIC: dict[tuple[str, int], Callable[..., Any]] = {}
DEFAULT_OPSET = 20


class TrainingMode(enum.Enum):
    """What mode a model is exported in, by exporters that set it (``dynamo=False``)."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class ONNXProgram:
    """What `export` gives: the model, which `save` writes to a file."""

    def __init__(self, model_proto: Any):
        self.model_proto = model_proto

    def save(self, destination: Any, *, include_initializers: bool = True, keep_initializers_as_inputs: bool = False,
             external_data: bool | None = None) -> None:  # fmt: skip
        """Write the model to a file."""
        if not include_initializers or keep_initializers_as_inputs:
            raise NotImplementedError("ONNXProgram.save: weights are initializers, and are written")
        with open(os.fspath(destination), "wb") as file:
            file.write(self.model_proto.SerializeToString())


def export(
    model: Any, args: Any = (), f: Any = None, *, kwargs: Mapping[str, Any] | None = None, verbose: bool | None = None,
    input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, opset_version: int | None = None,
    dynamo: bool = True, external_data: bool = False, dynamic_shapes: Any = None, dynamic_axes: Mapping[str, Any] | None = None,
    export_params: bool = True, keep_initializers_as_inputs: bool = False, training: TrainingMode = TrainingMode.EVAL,
    do_constant_folding: bool = True, optimize: bool = True, verify: bool = False, report: bool = False, fallback: bool = False,
) -> ONNXProgram | None:  # fmt: skip
    """Write a model as ONNX, by `dynagraph.onnx.export`.

    f: the file that it is written to.  dynamic_shapes, or dynamic_axes: which sizes may change.  opset_version: 18 to 23; 20 if it
    is not given.  dynamo: False sets the mode that `training` says meanwhile, and gives None.  external_data: write the weights
    beside the model.  The other arguments are taken for their names' sake: there is one exporter, constants are folded, weights
    are written.

    Raises ExportError where the model cannot be captured whole, or computes what ONNX has no operator for.
    """
    if not export_params or keep_initializers_as_inputs:
        raise NotImplementedError("torch.onnx.export: weights are initializers, and are written")
    mode = model.training if isinstance(model, Module) and not dynamo and training is not TrainingMode.PRESERVE else None
    if mode is not None:
        model.train(training is TrainingMode.TRAINING)
    try:
        proto = dynagraph.onnx.export(
            model, args, f, kwargs=None if kwargs is None else dict(kwargs), opset_version=opset_version or DEFAULT_OPSET,
            input_names=input_names, output_names=output_names, dynamic_shapes=dynamic_shapes, dynamic_axes=dynamic_axes,
            external_data=external_data,
        )  # fmt: skip
    finally:
        if mode is not None:
            model.train(mode)
    return ONNXProgram(proto) if dynamo else None


def is_in_onnx_export() -> bool:
    """False: captures follow models as they are."""
    return False


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """Keep how an operator is written in ONNX."""
    SYMBOLIC[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget how an operator is written in ONNX."""
    SYMBOLIC.pop((symbolic_name, opset_version), None)


__getattr__ = getattr_of(__name__)
__all__ = [
    "ONNXProgram", "TrainingMode", "export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic",
]  # fmt: skip
