"""Softmax over very many classes, of which most are rare."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core.arrays import any_wrong, none_is_set
from dynagraph.torch.core.grad_mode import is_grad_enabled
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.ternary import where
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.container import ModuleList, Sequential
from dynagraph.torch.nn.modules.linear import Linear
from dynagraph.torch.nn.modules.module import Module

# scores of rare classes that compiled functions compute for all samples; beyond, they break, and choose each cluster's samples
MOST_SCORES = 1 << 20
_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """An approximate softmax for classes that are sorted by how frequent they are (Grave et al. 2017).

    The most frequent, those before the first of the `cutoffs`, are computed for every sample, and the others in clusters, which end
    at the further cutoffs: first whether it is a cluster, then, where the target is in one, which class of it. The k-th cluster's
    inputs are projected to ``in_features / div_value^k`` features.

    Called with (N, in_features) or (in_features,) and classes (N,) or (), it gives the log-probabilities of these, as `output`, and
    minus their mean, as `loss`.

    >>> from dynagraph import torch
    >>> layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, cutoffs=[5, 10])
    >>> layer(torch.ones(3, 16), torch.tensor([0, 7, 19])).output.shape
    torch.Size([3])
    >>> layer.log_prob(torch.ones(3, 16)).exp().sum(1)
    tensor([1., 1., 1.], grad_fn=<SumBackward1>)
    """

    def __init__(
        self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0, head_bias: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if ends != sorted(set(ends)) or ends[0] <= 0 or ends[-1] > n_classes - 1 or any(int(end) != end for end in ends):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each value is "
                "between 1 and n_classes-1"
            )
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*ends, n_classes]
        self.shortlist_size, self.n_clusters = ends[0], len(ends)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for k, (start, stop) in enumerate(pairwise(self.cutoffs), 1):
            hidden = int(in_features // div_value**k)
            first = Linear(in_features, hidden, bias=False, device=device, dtype=dtype)
            second = Linear(hidden, stop - start, bias=False, device=device, dtype=dtype)
            self.tail.append(Sequential(first, second))

    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> Any:
        if target_.dim() == 1:
            if input_.size(0) != target_.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input_.dim() != 2:
                raise RuntimeError(f"1D target tensor expects 2D input tensors, but found inputs with size {input_.size()}")
            output = self._of_targets(input_, target_)
        elif target_.dim() == 0:
            if input_.dim() != 1:
                raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size {input_.size()}")
            output = self._of_targets(input_.unsqueeze(0), target_.unsqueeze(0))
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        loss = (-output).mean()
        return _ASMoutput(output if target_.dim() else output.squeeze(0), loss)

    def _of_targets(self, x: Tensor, target: Tensor) -> Tensor:
        """The log-probabilities of the samples' classes."""
        if any_wrong(((target < 0) | (target >= self.n_classes))._array):
            low, high = target.min().item(), target.max().item()
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were found. "
            )
        output, places = x.new_zeros(x.size(0)), target
        is_dense = is_compiling() and x.size(0) * (self.n_classes - self.shortlist_size) <= MOST_SCORES
        for k, (start, stop) in enumerate(pairwise(self.cutoffs)):
            inside = (target >= start) & (target < stop)
            if is_dense:
                output = output + self._within_of_all(k, x, inside, target - start)
                places = where(inside, self.shortlist_size + k, places)
                continue
            rows = inside.nonzero().squeeze(1)
            if rows.numel():
                own = self._within(k, x.index_select(0, rows), target.index_select(0, rows) - start)
                output = output.index_copy(0, rows, own)
                places = places.masked_fill(inside, self.shortlist_size + k)
        logs = F.log_softmax(self.head(x), dim=1)
        return output + logs.gather(1, places.unsqueeze(1)).squeeze(1)

    def _within(self, k: int, x: Tensor, places: Tensor) -> Tensor:
        """The log-probabilities of classes within the k-th cluster, which are counted from its first one."""
        return F.log_softmax(self.tail[k](x), dim=1).gather(1, places.unsqueeze(1)).squeeze(1)

    def _within_of_all(self, k: int, x: Tensor, inside: Tensor, places: Tensor) -> Tensor:
        """As `_within`, and zero for the samples outside: how many there are inside is data, which breaks captures.

        A cluster without samples gives its parameters no gradients; captured code takes it that there are some.
        """
        if is_grad_enabled() and any(weight.requires_grad for weight in self.tail[k].parameters()):
            none_is_set([~inside.any()._array])
        scores = self.tail[k](where(inside.unsqueeze(1), x, 0))
        return -F.cross_entropy(scores, where(inside, places, -100), reduction="none")

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """The log-probabilities of all classes."""
        logs = F.log_softmax(head_output, dim=1)
        out = input.new_empty((head_output.size(0), self.n_classes))
        out[:, : self.shortlist_size] = logs[:, : self.shortlist_size]
        for k, (start, stop) in enumerate(pairwise(self.cutoffs)):
            inside = F.log_softmax(self.tail[k](input), dim=1)
            out[:, start:stop] = inside + logs[:, self.shortlist_size + k].unsqueeze(1)
        return out

    def log_prob(self, input: Tensor) -> Tensor:
        """The log-probabilities of all classes: (N, in_features) to (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The most probable classes: (N, in_features) to (N,).  It computes only the clusters of samples that may be in one."""
        head_output = self.head(input)
        output = head_output.argmax(dim=1)
        rare = output >= self.shortlist_size
        if is_compiling():
            return where(rare, self._get_full_log_prob(input, head_output).argmax(dim=1), output)
        if rare.any():
            output[rare] = self._get_full_log_prob(input[rare], head_output[rare]).argmax(dim=1)
        return output


__all__ = ["AdaptiveLogSoftmaxWithLoss"]
