"""Fresh layers: the same numbers as PyTorch's, from the same seed, and the same state of the generator behind them."""

from __future__ import annotations

from typing import Any

from tests.torch.distributions.tools import seed
from tests.torch.modules.layers import _Names
from tests.torch.table import Case, program

LAYERS = (
    "Linear(3, 40)", "Linear(3, 4, bias=False)", "Linear(3, 0)", "Bilinear(2, 3, 4)", "Conv1d(4, 6, 3, groups=2)", "Conv2d(3, 8, (3, 5))", "Conv3d(2, 2, 2, bias=False)",
    "ConvTranspose1d(2, 4, 3)", "ConvTranspose2d(2, 4, 3, groups=2)", "ConvTranspose3d(2, 2, 2)", "BatchNorm1d(3)", "InstanceNorm2d(2, affine=True, track_running_stats=True)",
    "LayerNorm((2, 3))", "GroupNorm(2, 4)", "RMSNorm(3)", "Embedding(10, 3, padding_idx=-1)", "EmbeddingBag(4, 3, padding_idx=1)", "PReLU(3)",
    "AdaptiveLogSoftmaxWithLoss(16, 20, [3, 7], head_bias=True)", "LinearCrossEntropyLoss(8, 3, bias=True)", "utils.parametrizations.spectral_norm(Linear(3, 4))", "utils.spectral_norm(Linear(3, 4))",
    "utils.parametrizations.weight_norm(Linear(3, 4))", "utils.parametrizations.orthogonal(Linear(3, 3))", "Sequential(Linear(2, 3), ReLU(), Sequential(Conv1d(1, 2, 1), Linear(3, 3)))",
    "Linear(3, 4, dtype=torch.float64)",
)  # fmt: skip


def _row(text: str) -> Case:
    def run(torch: Any) -> Any:
        with seed(torch, 3):
            module = eval(text, {}, _Names(torch))
            after = torch.rand(2)
            if hasattr(module, "reset_parameters") and type(module).__name__ in text:
                module.reset_parameters()
            return [after, list(module.state_dict().values())]

    return program(text, run, _dtypes="", _grad=False, _strides=False)


CASES = [_row(text) for text in LAYERS]
