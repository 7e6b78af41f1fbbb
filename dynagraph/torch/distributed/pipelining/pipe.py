"""Models divided into stages."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dynagraph.torch.distributed.pipelining.stage import PipelineStage, build_stage
from dynagraph.torch.nn.modules.container import Sequential
from dynagraph.torch.nn.modules.module import Module


class SplitPoint(enum.Enum):
    """Where a new stage begins: before a module, or after it."""

    BEGINNING = 1
    END = 2


@dataclass(frozen=True)
class PipeInfo:
    """What stages know of their model."""

    num_stages: int
    has_loss_and_backward: bool = False


class Pipe(Module):
    """A model in stages.  It has the model's modules under their names, and computes what the model computes."""

    def __init__(self, parts: list[Sequential]):
        super().__init__()
        self.parts = parts  # a plain list: the names of parameters stay the model's
        for part in parts:
            for name, module in part.named_children():
                self.add_module(name, module)

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.parts)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        first, *others = self.parts
        value = first(*args, **kwargs)
        for part in others:
            value = part(value)
        return value

    def get_stage_module(self, stage_idx: int) -> Module:
        """A stage's part of the model."""
        if not 0 <= stage_idx < self.num_stages:
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return self.parts[stage_idx]

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """A stage on a device."""
        return build_stage(self.get_stage_module(stage_index), stage_index, self.info(), device, group)

    def info(self) -> PipeInfo:
        """How many stages there are, and nothing of the modules."""
        return PipeInfo(self.num_stages)


def pipeline(
    module: Module, mb_args: tuple[Any, ...], mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None, split_policy: Callable[[Module], Module] | None = None,
) -> Pipe:  # fmt: skip
    """Divide an nn.Sequential into stages, before or after the children that `split_spec` names.

    PyTorch divides any model that torch.export can trace.  Others than nn.Sequential are divided by hand here: PipelineStage takes
    any module.  mb_args and mb_kwargs, a micro-batch, are accepted and not needed.
    """
    if not isinstance(module, Sequential) or split_policy is not None:
        raise NotImplementedError(
            f"pipeline() divides nn.Sequential by split_spec, not {type(module).__name__}: put the layers of a stage into a module "
            "of their own, and give it to PipelineStage"
        )
    spec = dict(split_spec or {})
    parts: list[OrderedDict[str, Module]] = [OrderedDict()]
    for name, child in module.named_children():
        point = spec.pop(name, None)
        if point is SplitPoint.BEGINNING and parts[-1]:
            parts.append(OrderedDict())
        parts[-1][name] = child
        if point is SplitPoint.END:
            parts.append(OrderedDict())
    if spec:
        raise ValueError(f"split_spec names what is no child of the model: {', '.join(spec)}")
    return Pipe([Sequential(part) for part in parts if part])


__all__ = ["Pipe", "SplitPoint", "pipeline"]
