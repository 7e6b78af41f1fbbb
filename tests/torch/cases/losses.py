"""Losses, distances and similarities."""

from __future__ import annotations

from typing import Any

from tests.torch.table import A, Case, T, case, error, program

F = "nn.functional."
REDUCTIONS = ("none", "mean", "sum")
PAIRS = "mse_loss l1_loss smooth_l1_loss huber_loss".split()
FLOATS = "float32 float16 bfloat16"


def _f(name: str, *more: Any, **about: Any) -> Any:
    """A loss of nn.functional, whose second argument is no variable."""
    return lambda torch, x, y, *others: getattr(torch.nn.functional, name)(x, y.detach(), *others, *more, **about)


def _targets(torch: Any, *shape: int, ignored: int = -100) -> Any:
    """Classes below 5, one of them to be ignored."""
    count = 1
    for n in shape:
        count *= n
    found = torch.arange(count) * 7 % 5
    found[-1] = ignored
    return found.reshape(shape)


def _classes(name: str, shape: tuple[int, ...], weighted: bool = False, **about: Any) -> Case:
    def run(torch: Any, x: Any, w: Any) -> Any:
        targets = _targets(torch, shape[0], *shape[2:], ignored=about.get("ignore_index", -100))
        return getattr(torch.nn.functional, name)(x, targets, w.abs() + 0.1 if weighted else None, **about)

    return program(f"{name} {shape} {weighted} {about}", run, T(*shape), T(5, grad=False), _dtypes="float32", _tolerance=10)


def _ctc(targets: Any, inputs: Any, lengths: Any, **about: Any) -> Case:
    def run(torch: Any, x: Any) -> Any:
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), torch.tensor(targets), inputs, lengths, **about)

    return program(f"ctc_loss {targets} {inputs} {lengths} {about}", run, T(6, 2, 4), _dtypes="float32", _second=False, _tolerance=100)


CASES: list[Case] = [
    *(case(F + name, T(3, 4), T(3, 4), reduction=reduction, _dtypes=FLOATS) for name in PAIRS for reduction in REDUCTIONS),
    *(case(F + name, T(3, 4), T(3, 4), _grad_fn=True, _second=False, _dtypes="") for name in PAIRS),
    *(program(name, lambda torch, x, y, name=name: getattr(torch.nn.functional, name)(x, y.expand(3, 4)), T(3, 4), T(4), _dtypes="")
      for name in PAIRS),
    *(case(F + name, T(0, 4), T(0, 4), _dtypes="") for name in PAIRS),
    *(case(F + name, T(3, 4), T(3, 4), weight=T(3, 4, kind="positive"), reduction=reduction, _dtypes="")
      for name in ("mse_loss", "l1_loss", "huber_loss") for reduction in REDUCTIONS),
    case(F + "smooth_l1_loss", T(3, 4), T(3, 4), beta=0.3, _dtypes=""),
    case(F + "smooth_l1_loss", T(3, 4), T(3, 4), beta=0.0, _dtypes=""),
    case(F + "huber_loss", T(3, 4), T(3, 4), delta=2.0, _dtypes=""),
    error(F + "smooth_l1_loss", T(3), T(3), beta=-1.0, _text=True),
    error(F + "huber_loss", T(3), T(3), delta=0.0, _text=True),
    error(F + "mse_loss", T(3), T(3), reduction="foo", _text=True),
    error(F + "mse_loss", T(3, dtype="int64"), T(3, dtype="int64"), _text=True),
    # probabilities
    *(program(f"binary_cross_entropy {reduction}", lambda torch, x, y, reduction=reduction: torch.nn.functional.binary_cross_entropy(
        x.sigmoid(), y.sigmoid(), reduction=reduction), T(3, 4), T(3, 4), _dtypes=FLOATS) for reduction in REDUCTIONS),
    case(F + "binary_cross_entropy", T(3, kind="ones"), T(3, kind="zeros"), reduction="none", _dtypes="", _second=False),
    *(case(F + "binary_cross_entropy_with_logits", T(3, 4), T(3, 4), reduction=reduction, _dtypes=FLOATS) for reduction in REDUCTIONS),
    case(F + "binary_cross_entropy_with_logits", T(3, 4), T(3, 4), T(4, grad=False), pos_weight=T(4, kind="positive", grad=False),
         _dtypes="float32"),
    error(F + "binary_cross_entropy", T(3), T(3)),
    error(F + "binary_cross_entropy", T(3, 4), T(4), _text=True),
    error(F + "binary_cross_entropy_with_logits", T(3, 4), T(4), _text=True),
    *(case(F + "kl_div", T(3, 4), T(3, 4, kind="positive"), reduction=reduction, _dtypes=FLOATS)
      for reduction in ("none", "batchmean", "sum")),
    case(F + "kl_div", T(3, 4), T(3, 4), reduction="sum", log_target=True, _dtypes="float32"),
    *(case(F + "poisson_nll_loss", T(3, 4), T(3, 4, kind="positive"), reduction=reduction, _dtypes="float32") for reduction in REDUCTIONS),
    case(F + "poisson_nll_loss", T(3, 4, kind="positive"), T(3, 4, kind="positive"), False, True, _dtypes=""),
    *(case(F + "gaussian_nll_loss", T(3, 4), T(3, 4), T(*shape, kind="positive"), full, reduction=reduction, _dtypes="")
      for shape in ((3, 4), (3, 1), (3,)) for full, reduction in ((False, "mean"), (True, "none"))),
    error(F + "gaussian_nll_loss", T(3, 4), T(3, 4), T(3, 2, kind="positive"), _text=True),
    # margins
    *(case(F + "margin_ranking_loss", T(3, 4), T(3, 4), T(3, 4), 0.5, reduction=reduction, _dtypes="float32") for reduction in REDUCTIONS),
    *(program(f"hinge_embedding_loss {reduction}", lambda torch, x, y, reduction=reduction: torch.nn.functional.hinge_embedding_loss(
        x, y.detach().sign(), 0.5, reduction=reduction), T(3, 4), T(3, 4), _dtypes="float32") for reduction in REDUCTIONS),
    *(program(f"soft_margin_loss {reduction}", _f("soft_margin_loss", reduction=reduction), T(3, 4), T(3, 4), _dtypes="float32")
      for reduction in REDUCTIONS),
    *(program(f"multilabel_soft_margin_loss {reduction}", _f("multilabel_soft_margin_loss", reduction=reduction), T(3, 4), T(3, 4),
              _dtypes="float32") for reduction in REDUCTIONS),
    *(program(f"cosine_embedding_loss {reduction}", lambda torch, x, y, t, reduction=reduction: torch.nn.functional.cosine_embedding_loss(
        x, y, t.sign(), 0.1, reduction=reduction), T(3, 4), T(3, 4), T(3, grad=False), _dtypes="float32") for reduction in REDUCTIONS),
    *(case(F + "triplet_margin_loss", T(3, 4), T(3, 4), T(3, 4), p=p, swap=swap, reduction=reduction, _dtypes="")
      for p, swap, reduction in ((2, False, "mean"), (1, True, "none"), (2, True, "sum"))),
    case(F + "triplet_margin_with_distance_loss", T(3, 4), T(3, 4), T(3, 4), swap=True, _dtypes="float32"),
    *(program(f"multi_margin_loss {p} {reduction}", lambda torch, x, w, p=p, reduction=reduction: torch.nn.functional.multi_margin_loss(
        x, torch.tensor([0, 4, 2]), p, 0.7, w.abs(), reduction=reduction), T(3, 5), T(5, grad=False), _dtypes="float32", _second=False)
      for p in (1, 2) for reduction in REDUCTIONS),
    *(program(f"multilabel_margin_loss {reduction}", lambda torch, x, reduction=reduction: torch.nn.functional.multilabel_margin_loss(
        x, torch.tensor([[0, 2, -1, 1], [1, 1, 3, -1], [-1, 0, 0, 0]]), reduction=reduction), T(3, 4), _dtypes="float32", _second=False)
      for reduction in REDUCTIONS),
    error(F + "margin_ranking_loss", T(3, 4), T(3, 4), T(3), _text=True),
    error(F + "triplet_margin_loss", T(3, 4), T(3, 4), T(3, 4), margin=0, _text=True),
    error(F + "triplet_margin_loss", T(3, 4), T(4), T(3, 4), _text=True),
    error(F + "multi_margin_loss", T(3, 5), T(3, kind="index:5"), p=3, _text=True),
    error(F + "multi_margin_loss", T(3, 5), T(2, kind="index:5"), _text=True),
    error(F + "cosine_embedding_loss", T(3, 4), T(3, 4), T(3, 4), _text=True),
    # classes
    *(_classes(name, shape, weighted, reduction=reduction) for name in ("nll_loss", "cross_entropy")
      for shape in ((4, 5), (2, 5, 3), (2, 5, 3, 2)) for weighted in (False, True) for reduction in REDUCTIONS),
    *(_classes("cross_entropy", (4, 5), weighted, reduction=reduction, label_smoothing=0.1) for weighted in (False, True)
      for reduction in REDUCTIONS),
    _classes("cross_entropy", (4, 5), ignore_index=2),
    _classes("nll_loss", (4, 5), True, ignore_index=2),
    *(case(F + "cross_entropy", T(4, 5), T(4, 5, kind="positive"), reduction=reduction, label_smoothing=smoothing, _dtypes="float32")
      for reduction in REDUCTIONS for smoothing in (0.0, 0.2)),
    case(F + "cross_entropy", T(5), T(5, kind="positive"), _dtypes=""),
    case(F + "cross_entropy", T(4, 5), T(4, kind="index:5"), _dtypes="float32 float16 bfloat16", _tolerance=10),
    case(F + "cross_entropy", T(4, 5), T(4, kind="index:5"), _grad_fn=True, _second=False, _dtypes=""),
    case(F + "cross_entropy", T(5), T(kind="index:5"), _dtypes=""),
    case(F + "cross_entropy", T(0, 5), T(0, kind="index:5"), _dtypes=""),
    program("cross_entropy of what is ignored", lambda torch, x: torch.nn.functional.cross_entropy(x, torch.full((4,), -100)), T(4, 5),
            _dtypes=""),
    error(F + "cross_entropy", T(4, 5), T(4, kind="index:5"), T(4), _text=True),
    error(F + "cross_entropy", T(9, 2), T(9, kind="index:9"), _text=True),
    error(F + "cross_entropy", T(4, 5), T(3, kind="index:5"), _text=True),
    error(F + "cross_entropy", T(4, 5), T(4), _text=True),
    error(F + "cross_entropy", T(4, 5), T(4, kind="index:5"), reduction="foo", _text=True),
    error(F + "cross_entropy", T(4, 5), T(4, 5, kind="index:5"), _text=True),
    error(F + "cross_entropy", T(4, 5), T(4, kind="index:5"), label_smoothing=1.5, _text=True),
    error(F + "nll_loss", T(2, 3, 4), T(2, 5, kind="index:3"), _text=True),
    error(F + "nll_loss", T(), T(4, kind="index:3"), _text=True),
    # sequences
    *(_ctc(targets, inputs, lengths, reduction=reduction, zero_infinity=zero)
      for targets, inputs, lengths in (([[1, 2], [2, 2]], (6, 5), (2, 2)), ([[1, 2, 1], [2, 3, 3]], (5, 6), (1, 3)),
                                       ([[1, 2], [2, 3]], (6, 6), (0, 2)), ([[1, 2, 1, 1], [2, 3, 1, 1]], (3, 6), (4, 4)))
      for reduction, zero in (("none", False), ("mean", True), ("sum", True))),
    _ctc([1, 2, 2, 3], (6, 6), (2, 2)),
    _ctc([[1, 2], [2, 1]], (6, 6), (2, 2), blank=3),
    error(F + "ctc_loss", T(6, 2, 4), T(2, 2, kind="index:3"), (6, 6), (2, 2), blank=9, _text=True),
    error(F + "ctc_loss", T(6, 2, 4), T(2, 2, kind="index:3"), (6,), (2, 2), _text=True),
    error(F + "ctc_loss", T(6, 2, 4), T(2, 2, kind="index:3"), (7, 6), (2, 2), _text=True),
    error(F + "ctc_loss", T(6, 2, 4), T(2, 2, kind="index:3"), (6, 6), (2, 3), _text=True),
    # distances
    *(case("pairwise_distance", T(3, 4), T(3, 4), p, _dtypes="float32") for p in (1.0, 2.0, 3.0, float("inf"))),
    case("pairwise_distance", T(3, 4), T(4), keepdim=True, _dtypes=""),
    case("pairwise_distance", T(4), T(4), _dtypes=""),
    *(case("cosine_similarity", T(3, 4), T(3, 4), dim, _dtypes=FLOATS, _tolerance=10) for dim in (0, 1, -1)),
    case("cosine_similarity", T(3, 4), T(4), 1, 0.1, _dtypes=""),
    case("cosine_similarity", T(3, 4, dtype="float32"), T(3, 4), _dtypes="", _tolerance=1e7),
    error("cosine_similarity", T(3, 4), T(3, 3), _text=True),
    error("cosine_similarity", T(3, 4), T(3, 4), 2, _text=True),
    error("cosine_similarity", T(3, dtype="int64"), T(3, dtype="int64"), 0, _text=True),
    # torch's own, whose reductions are numbers
    *(case(name, T(3, 4), T(3, 4, kind="positive"), _dtypes="", _out=False) for name in ("kl_div", "binary_cross_entropy_with_logits")),
    case("margin_ranking_loss", T(3, 4), T(3, 4), T(3, 4), 0.5, 1, _dtypes=""),
    case("triplet_margin_loss", T(3, 4), T(3, 4), T(3, 4), 1.0, 2.0, 1e-6, True, 2, _dtypes=""),
    case("poisson_nll_loss", T(3, 4), T(3, 4, kind="positive"), True, False, 1e-8, 1, _dtypes=""),
    program("dtypes", lambda torch, x: torch.nn.functional.softmax(x, 1, dtype=torch.float64), T(3, 4), _dtypes="float32"),
    case(F + "softmax", T(3, 4, dtype="int64"), 1, dtype=A("float32")),
]  # fmt: skip
