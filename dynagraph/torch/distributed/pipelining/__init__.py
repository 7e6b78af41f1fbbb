"""``torch.distributed.pipelining``: a model in stages, on devices or ranks, through which parts of a batch go.

>>> from dynagraph import torch
>>> from dynagraph.torch.distributed.pipelining import PipelineStage, Schedule1F1B
>>> parts = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)
>>> stages = [PipelineStage(part, k, len(parts), device="cpu") for k, part in enumerate(parts)]
>>> schedule = Schedule1F1B(stages, n_microbatches=2, loss_fn=torch.nn.functional.mse_loss)
>>> schedule.step(torch.ones(4, 3), target=torch.zeros(4, 2)).shape
torch.Size([4, 2])
>>> parts[0].weight.grad.shape
torch.Size([4, 3])
"""

from __future__ import annotations

from dynagraph.torch.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks
from dynagraph.torch.distributed.pipelining.pipe import Pipe, SplitPoint, pipeline
from dynagraph.torch.distributed.pipelining.schedules import Schedule1F1B, ScheduleGPipe
from dynagraph.torch.distributed.pipelining.stage import PipelineStage, build_stage
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleGPipe", "SplitPoint", "TensorChunkSpec", "build_stage", "merge_chunks",
    "pipeline", "split_args_kwargs_into_chunks",
]  # fmt: skip
