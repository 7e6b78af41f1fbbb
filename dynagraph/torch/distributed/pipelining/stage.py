"""One stage of a pipeline: forward and backward of single micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.autograd import backward
from dynagraph.torch.core import devices
from dynagraph.torch.core.grad_mode import is_grad_enabled
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules.module import Module


def as_tuple(output: Any) -> tuple[Any, ...]:
    """What a module returns, as the arguments of the next stage."""
    return tuple(output) if isinstance(output, (list, tuple)) else (output,)


class PipelineStage:
    """A part of a model on a device.

    stage_index, num_stages: which of how many.  group: the ranks that have a stage each, in their order; None: all.  A process that
    has all stages needs no group: see the schedules.  input_args and output_args are accepted; shapes are found as they come.
    """

    def __init__(
        self, submodule: Module, stage_index: int, num_stages: int, device: Any, input_args: Any = None, output_args: Any = None,
        group: Any = None,
    ):  # fmt: skip
        if stage_index >= num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        self.submod, self.stage_index, self.num_stages, self.group = submodule, stage_index, num_stages, group
        self.device = devices.device(device)
        self.submod.to(self.device)
        self.kept: dict[int, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}  # inputs and outputs, by micro-batch, until backward
        self.most_kept = 0  # how many were kept at once
        self.losses: dict[int, Tensor] = {}

    @property
    def is_first(self) -> bool:
        """Whether it gets the batch."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether its results are the model's."""
        return self.stage_index == self.num_stages - 1

    def clear_runtime_states(self) -> None:
        """Forget what a step has left."""
        self.kept.clear()
        self.losses.clear()
        self.most_kept = 0

    def forward_one_chunk(self, index: int, args: Sequence[Any], kwargs: dict[str, Any], keeps: bool) -> Any:
        """A micro-batch's results; `keeps`: what its backward needs stays."""
        placed = tuple(arg.to(self.device) if isinstance(arg, Tensor) else arg for arg in args)
        if not self.is_first:  # where the gradients for the stage before are found
            records = is_grad_enabled() and keeps
            placed = tuple(_leaf(arg, records) if isinstance(arg, Tensor) else arg for arg in placed)
        named = {name: value.to(self.device) if isinstance(value, Tensor) else value for name, value in kwargs.items()}
        output = self.submod(*placed, **named)
        if keeps:
            self.kept[index] = placed, as_tuple(output)
            self.most_kept = max(self.most_kept, len(self.kept))
        return output

    def backward_one_chunk(self, index: int, gradients: Sequence[Any] = (), loss: Tensor | None = None) -> tuple[Any, ...]:
        """Backward of a micro-batch, from its loss or its results' gradients; those of what came from the stage before."""
        inputs, outputs = self.kept.pop(index)
        if loss is not None:
            backward(loss)
        else:
            pairs = [(out, grad) for out, grad in zip(outputs, gradients) if grad is not None and out.requires_grad]
            if pairs:
                backward([out for out, _ in pairs], [grad.to(self.device) for _, grad in pairs])
        return () if self.is_first else tuple(arg.grad if isinstance(arg, Tensor) else None for arg in inputs)


def _leaf(arg: Tensor, records: bool) -> Tensor:
    made = arg.detach()
    return made.requires_grad_() if records and (made.is_floating_point() or made.is_complex()) else made


def build_stage(stage_module: Module, stage_index: int, pipe_info: Any, device: Any, group: Any = None) -> PipelineStage:
    """The stage of a part of a model that `pipeline` has divided; pipe_info: its Pipe, or ``Pipe.info()``."""
    return PipelineStage(stage_module, stage_index, pipe_info.num_stages, device, group=group)


__all__ = ["PipelineStage", "build_stage"]
