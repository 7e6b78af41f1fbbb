"""Losses and distances."""

from __future__ import annotations

from tests.torch.modules.layers import layer
from tests.torch.table import T

_X, _Y, _P, _CONSTANT = T(4, 3), T(4, 3), T(4, 3, kind="unit"), T(4, 3, kind="unit", grad=False)
_CLASSES = T(4, kind="index:3")


def _each(name: str, *inputs: T, more: tuple[str, ...] = ()) -> list[object]:
    """A loss by its defaults, unreduced, added up, and with other arguments."""
    return [layer(f"{name}({args})", *inputs) for args in ("", "reduction='none'", "reduction='sum'", *more)]


CASES = [
    *_each("L1Loss", _X, _Y, more=("reduce=False", "size_average=False", "size_average=True, reduce=True")),
    *_each("MSELoss", _X, _Y),
    *_each("SmoothL1Loss", _X, _Y, more=("beta=0.3",)),
    *_each("HuberLoss", _X, _Y, more=("'sum', 0.3",)),
    *_each("NLLLoss", _X, _CLASSES, more=("torch.tensor([1.0, 2.0, 0.5])", "ignore_index=1", "size_average=False")),
    layer("NLLLoss2d()", T(2, 3, 2, 2), T(2, 2, 2, kind="index:3")),
    *_each("CrossEntropyLoss", _X, _CLASSES, more=("weight=torch.tensor([1.0, 2.0, 0.5])", "ignore_index=1", "label_smoothing=0.2")),
    layer("CrossEntropyLoss(label_smoothing=0.1)", T(3), T(kind="index:3")),
    layer("CrossEntropyLoss()", T(2, 3, 4), T(2, 4, kind="index:3")),
    layer("CrossEntropyLoss()", T(4, 3), T(4, 3, kind="positive")),
    *_each("BCELoss", T(4, 3, kind="zeros"), T(4, 3, kind="ones"), more=("torch.tensor([1.0, 2.0, 0.5])",)),
    layer("BCELoss()", T(2, kind="ones"), T(2, kind="ones")),
    *_each("BCEWithLogitsLoss", _X, _P, more=("torch.tensor([1.0, 2.0, 0.5])", "pos_weight=torch.tensor([1.0, 2.0, 0.5])")),
    *_each("MultiLabelMarginLoss", _X, T(4, 3, kind="index:3")),
    *_each("MultiLabelSoftMarginLoss", _X, _P, more=("torch.tensor([1.0, 2.0, 0.5])",)),
    *_each("MultiMarginLoss", _X, _CLASSES, more=("2", "margin=0.5", "weight=torch.tensor([1.0, 2.0, 0.5])")),
    *_each("PoissonNLLLoss", _X, T(4, 3, kind="positive"), more=("log_input=False, full=True", "full=True, eps=0.1")),
    *_each("GaussianNLLLoss", _X, _Y, T(4, 3, kind="positive"), more=("full=True, eps=0.1",)),
    layer("GaussianNLLLoss()", _X, _Y, 0.5),
    *_each("KLDivLoss", _X, T(4, 3, kind="positive"), more=("reduction='batchmean'", "log_target=True")),
    *_each("SoftMarginLoss", _X, _CONSTANT),
    *_each("HingeEmbeddingLoss", _X, T(4, 3, kind="ones", grad=False), more=("margin=0.5",)),
    *_each("CosineEmbeddingLoss", _X, _Y, T(4, kind="ones", grad=False), more=("0.3",)),
    *_each("MarginRankingLoss", T(4), T(4), T(4, kind="ones", grad=False), more=("margin=0.3",)),
    *_each("TripletMarginLoss", _X, _Y, T(4, 3, kind="ints"), more=("0.5, p=1, eps=0.01, swap=True",)),
    *_each("TripletMarginWithDistanceLoss", _X, _Y, T(4, 3, kind="ints"), more=("distance_function=nn.functional.l1_loss, margin=2.0, swap=True",)),
    *_each("CTCLoss", T(5, 2, 4), T(2, 2, kind="ones", dtype="int64"), T(2, kind="ones", dtype="int64") , T(2, kind="ones", dtype="int64"), more=("blank=3, zero_infinity=True",)),
    layer("PairwiseDistance()", _X, _Y),
    layer("PairwiseDistance(p=1, eps=0.1, keepdim=True)", T(3), T(3)),
    layer("CosineSimilarity()", _X, _Y),
    layer("CosineSimilarity(dim=0, eps=0.1)", _X, _Y),
]
