"""Connectionist temporal classification: the loss of a sequence of labels whose places are not known."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import any_wrong, is_on_gpu, library_of_array, number_in, put_beside, ufunc_at
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.arithmetic import div
from dynagraph.torch.functions.common import check_tensor, function
from dynagraph.torch.functions.indexing import MASKED_FILL
from dynagraph.torch.functions.losses import mode_of
from dynagraph.torch.functions.reductions import mean
from dynagraph.torch.functions.reductions import sum as total
from dynagraph.torch.functions.shapes import squeeze, unsqueeze


def _logsumexp(*terms: Any) -> Any:
    top = functools.reduce(np.maximum, terms)
    shift = np.where(np.isfinite(top), top, 0)
    return np.log(functools.reduce(np.add, [np.exp(t - shift) for t in terms])) + shift


def _states(targets: Any, blank: int) -> tuple[Any, Any]:
    """Labels with blanks between and around them; and where a state may be reached from the one before the last."""
    batch, length = targets.shape
    library = library_of_array(targets)
    labels = library.full((batch, 2 * length + 1), blank)
    labels[:, 1::2] = targets
    skips = library.zeros(labels.shape, bool)
    skips[:, 3::2] = labels[:, 3::2] != labels[:, 1:-2:2]
    return labels, skips


def _forward_variables(scores: Any, skips: Any) -> Any:
    """The logarithm of the probability of all ways to each state, at each time: (T, N, states)."""
    steps, batch, states = scores.shape
    library = library_of_array(scores)
    ways = library.full(scores.shape, -np.inf, scores.dtype)
    ways[0, :, : min(2, states)] = scores[0, :, : min(2, states)]
    nowhere = library.full((batch, 2), -np.inf, scores.dtype)
    for t in range(1, steps):
        before = np.concatenate((nowhere, ways[t - 1]), axis=1)
        two = np.where(skips, before[:, :-2], -np.inf)
        ways[t] = _logsumexp(before[:, 2:], before[:, 1:-1], two) + scores[t]
    return ways


def _ends(ways: Any, input_lengths: Any, target_lengths: Any) -> Any:
    """The logarithm of the probability of ending in the last label, or the blank behind it."""
    numbers = library_of_array(ways).arange(ways.shape[1])
    last = ways[np.maximum(input_lengths - 1, 0), numbers]
    final = 2 * target_lengths
    label = np.where(target_lengths > 0, last[numbers, np.maximum(final - 1, 0)], -np.inf)
    return np.where(input_lengths > 0, _logsumexp(last[numbers, final], label), np.where(target_lengths == 0, 0.0, -np.inf))


def _scores(log_probs: Any, labels: Any) -> Any:
    index = np.broadcast_to(labels, (log_probs.shape[0], *labels.shape))
    return np.take_along_axis(log_probs, index, 2)


def _ctc(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> tuple[Any, Any]:
    """The losses, and the gradients of each by the logarithms of probabilities."""
    labels, skips = _states(targets, blank)
    scores = _scores(log_probs, labels)
    steps, batch, _ = log_probs.shape
    states = labels.shape[1]
    ways = _forward_variables(scores, skips)
    loss = -_ends(ways, input_lengths, target_lengths)
    library = library_of_array(log_probs)
    numbers = library.arange(batch)
    back = library.full((batch, states), -np.inf, scores.dtype)
    nowhere = library.full((batch, 2), -np.inf, scores.dtype)
    skips_on = np.concatenate((skips, library.zeros((batch, 2), bool)), axis=1)[:, 2:]
    gradient = library.zeros(log_probs.shape, log_probs.dtype)
    for t in range(steps - 1, -1, -1):
        after = np.concatenate((back + (scores[t + 1] if t + 1 < steps else 0), nowhere), axis=1)
        on = _logsumexp(after[:, :-2], after[:, 1:-1], np.where(skips_on, after[:, 2:], -np.inf))
        first = library.full((batch, states), -np.inf, scores.dtype)
        first[numbers, 2 * target_lengths] = 0
        first[numbers, np.maximum(2 * target_lengths - 1, 0)] = 0
        back = np.where((input_lengths - 1 == t)[:, None], first, np.where((t < input_lengths - 1)[:, None], on, -np.inf))
        share = np.exp(ways[t] + back + loss[:, None])
        ufunc_at(np.add, gradient[t], (numbers[:, None], labels), (-np.where(np.isnan(share), 0, share)).astype(gradient.dtype))
    gradient = np.where(np.isinf(loss)[None, :, None], np.nan, gradient)
    exp = np.exp(log_probs) if steps else log_probs  # PyTorch's gradient is that by scores before a log_softmax
    inside = (library.arange(steps)[:, None] < input_lengths)[:, :, None]
    return loss.astype(log_probs.dtype), np.where(inside, gradient + exp, 0).astype(log_probs.dtype)


def _no_second(d: Any, g: Any) -> Any:
    raise RuntimeError("derivative for aten::_ctc_loss_backward is not implemented")


def _none(d: Any, g: Any) -> None:
    return


CTC = define(
    "ctc_loss",
    _ctc,
    (lambda d, g: None if g[0] is None else g[0].call("ctc_loss_back", d.outs[1]), _none, _none, _none),
    ("p", "", "", ""),
    outputs=2,
    differentiable=(0,),
)


def _back(g: Any, gradient: Any) -> Any:
    return np.where(np.isfinite(gradient) | (g[None, :, None] != 0), g[None, :, None] * gradient, 0)


define("ctc_loss_back", _back, (_no_second, _none), ("", ""))


def _lengths(value: Any, batch: int, name: str, beside: Tensor) -> Any:
    array = value._array if isinstance(value, Tensor) else np.asarray(value)
    if array.dtype.kind not in "iu":
        raise RuntimeError(f"{name} must be integral")
    array = array.reshape(-1).astype(np.int64)
    if array.size != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return array if is_on_gpu(array) else put_beside(array, beside._array)


def _longest(lengths: Any, given: Any) -> int:
    """The greatest of some lengths; `given`: the same as the user gave them, which captures can have guards look at."""
    if not lengths.size:
        return 0
    if isinstance(given, (list, tuple)):
        return int(max(given))
    return number_in(given._array if isinstance(given, Tensor) and given._array.dtype == np.int64 else lengths, "greatest")


def _padded_targets(targets: Tensor, lengths: Any, given: Any) -> Any:
    """As rows, one for each sequence."""
    array = targets._array.astype(np.int64)
    if array.ndim == 1:
        if any_wrong(lengths.sum() != array.size):
            raise RuntimeError(
                f"Expected tensor to have size {int(lengths.sum())} at dimension 0, but got size {array.size} for argument #2 "
                "'targets' (while checking arguments for ctc_loss_allocate_outputs)"
            )
        numbers = library_of_array(array).arange(_longest(lengths, given))
        places = (np.cumsum(lengths) - lengths)[:, None] + numbers
        return np.where(numbers < lengths[:, None], array[np.minimum(places, array.size - 1)] if array.size else 0, 0)
    if array.shape[0] != lengths.size:
        raise RuntimeError(
            f"Expected tensor to have size {lengths.size} at dimension 0, but got size {array.shape[0]} for argument #2 'targets' "
            "(while checking arguments for ctc_loss_allocate_outputs)"
        )
    if any_wrong(lengths > array.shape[1]):
        raise RuntimeError(
            f"Expected tensor to have size at least {int(lengths.max())} at dimension 1, but got size {array.shape[1]} for "
            "argument #2 'targets' (while checking arguments for ctc_loss_allocate_outputs)"
        )
    are_labels = library_of_array(array).arange(array.shape[1]) < lengths[:, None]
    return np.where(are_labels, array, 0)  # what is behind them may be anything


@function(method=False, namespace="functional")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The negative logarithm of the probability of the targets, over all ways to place them; the mean divides by their lengths."""
    mode = mode_of(reduction)
    x, y = check_tensor(log_probs, "ctc_loss", "log_probs"), check_tensor(targets, "ctc_loss", "targets", 2)
    single = x._array.ndim == 2
    if single:
        x = unsqueeze(x, 1)
        y = unsqueeze(y, 0) if y._array.ndim == 1 else y
    if x.dtype not in (dtypes.float32, dtypes.float64):
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    steps, batch, classes = x._array.shape
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    lengths, labels = _lengths(input_lengths, batch, "input_lengths", x), _lengths(target_lengths, batch, "target_lengths", x)
    if any_wrong(lengths > steps):
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value {int(lengths.max())} (while checking arguments "
            "for ctc_loss_allocate_outputs)"
        )
    rows = _padded_targets(y, labels, target_lengths)
    loss = apply(CTC, x, wrap(rows), wrap(lengths), wrap(labels), blank=blank)[0]
    if zero_infinity:
        zero = wrap(library_of_array(x._array).zeros((), x._array.dtype))
        loss = apply(MASKED_FILL, loss, zero, wrap(np.isposinf(loss._array)))
    if single:
        loss = squeeze(loss, 0)
    if mode == "mean":
        counts = wrap(np.maximum(labels, 1).astype(x._array.dtype))
        return mean(div(loss, counts if not single else squeeze(counts, 0)))
    return total(loss) if mode == "sum" else loss


def _torch_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = 0,
    zero_infinity: bool = False,
) -> Tensor:
    """``torch.ctc_loss``: the reduction is a number."""
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, mode_of(reduction), zero_infinity)


function("ctc_loss", method=False)(_torch_ctc_loss)
