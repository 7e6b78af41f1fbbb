"""What people do with optimizers beside stepping: options, groups, states that are loaded, hooks; for one torch or the other.

Each scenario trains 50 steps by any optimizer and gives what the parameters were on the way.  Steps may be wrapped by
``dg.compile``.  Errors are results, too.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.torch.optim.cases import OPTIMIZERS, STEPS, Case, name_of, parameters, weight_of

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
SHOWN = (0, 1, 2, 9, 10, 11, 20, 29, 30, 31, STEPS - 1)  # steps after which parameters are compared


class Training:
    """Parameters, their optimizer and a step."""

    def __init__(self, torch: Any, case: Case, dtype: str, wrap: Wrap, roundings: int = 0):
        self.torch, (self.name, self.options), self.dtype = torch, case, dtype
        self.params, self.targets = parameters(torch, self.name, dtype, roundings)
        self.wrap = wrap
        self.make_optimizer(self.params)
        self.seen: list[list[np.ndarray]] = []
        self.makes = [True] * len(self.params)  # which parameters have gradients
        self.after: Callable[[], None] | None = None
        self.keeps_grads = False
        self.make_step()

    def make_optimizer(self, params: Any, **options: Any) -> None:
        self.optimizer = getattr(self.torch.optim, self.name)(params, **{**self.options, **options})

    def has(self, option: str) -> bool:
        return option in inspect.signature(getattr(self.torch.optim, self.name).__init__).parameters

    def make_step(self) -> None:
        optimizer, params, targets, makes = self.optimizer, self.params, self.targets, self.makes
        after, sets_to_none = self.after, not self.keeps_grads

        def closure_of(weight: Any) -> Callable[[], Any]:
            def closure() -> Any:
                optimizer.zero_grad(sets_to_none)
                loss = 0.0
                for p, t, is_made in zip(params, targets, makes):
                    if is_made:
                        loss = loss + (((p - t) ** 2) * weight + (p * 1.3).sin() * 0.3).sum()
                loss.backward()
                return loss

            return closure

        def step(weight: Any) -> Any:
            closure = closure_of(weight)
            if self.name == "LBFGS":
                loss = optimizer.step(closure)
            else:
                loss = closure()
                optimizer.step()
            if after is not None:
                after()
            return loss

        self.step = self.wrap(step)

    def run(self, start: int, stop: int, change: Callable[[int], None] | None = None) -> None:
        for k in range(start, stop):
            if change is not None:
                change(k)
            self.step(self.torch.tensor(weight_of(self.name, k), dtype=getattr(self.torch, self.dtype)))
            if k in SHOWN:
                self.show()

    def show(self) -> None:
        self.seen.append([p.detach().numpy().copy() for p in self.params])

    def states(self) -> list[np.ndarray]:
        """The states that are tensors and numbers, in the order of the state dict."""
        found = []
        for state in self.optimizer.state_dict()["state"].values():
            for name in sorted(state):
                value = state[name]
                if isinstance(value, self.torch.Tensor):
                    found.append(value.detach().numpy().astype("d").copy())
                elif isinstance(value, (int, float)) and not isinstance(value, bool):
                    found.append(np.array(float(value)))
        return found


def _simple(training: Training) -> None:
    training.run(0, STEPS)


def _with(**options: Any) -> Callable[[Training], None]:
    def scenario(training: Training) -> None:
        training.make_optimizer(training.params, **options)
        training.make_step()
        training.run(0, STEPS)

    return scenario


def _default_lr(training: Training) -> float:
    return float(training.optimizer.param_groups[0]["lr"])


def _lr_tensor(training: Training) -> None:
    lr = training.torch.tensor(_default_lr(training), dtype=training.torch.float64)
    training.make_optimizer(training.params, lr=lr)
    training.make_step()

    def change(k: int) -> None:
        if k == 10 or k > 40:
            lr.mul_(0.9)

    training.run(0, STEPS, change)


def _lr_of_one_element(training: Training) -> None:
    training.make_optimizer(training.params, lr=training.torch.tensor([_default_lr(training)], dtype=training.torch.float64))
    training.make_step()
    training.run(0, STEPS)


def _betas_tensors(training: Training) -> None:
    tensor, float64 = training.torch.tensor, training.torch.float64
    training.make_optimizer(training.params, betas=(tensor(0.8, dtype=float64), tensor(0.95, dtype=float64)))
    training.make_step()
    training.run(0, STEPS)


def _decay_tensor(training: Training) -> None:
    training.make_optimizer(training.params, weight_decay=training.torch.tensor(0.1, dtype=training.torch.float64))
    training.make_step()
    training.run(0, STEPS)


def _lr_changes(training: Training) -> None:
    def change(k: int) -> None:
        for group in training.optimizer.param_groups:
            group["lr"] *= 0.97

    training.run(0, STEPS, change)


OTHER_OPTIONS: list[tuple[str, Any]] = [
    ("weight_decay", 0.2), ("maximize", True), ("momentum", 0.5), ("betas", (0.6, 0.7)), ("eps", 1e-4), ("rho", 0.7),
    ("alpha", 0.8), ("lambd", 0.2), ("etas", (0.4, 1.3)), ("lr_decay", 0.2), ("momentum_decay", 0.1), ("d", 1.5),
]  # fmt: skip


def _groups(training: Training) -> None:
    """Two groups whose options all differ."""
    others = {name: value for name, value in OTHER_OPTIONS if training.has(name)}
    if training.name == "Adafactor":
        others["eps"] = (1e-5, 0.01)
    if training.name == "RMSprop":
        others["centered"] = True
    if training.name in ("Adam", "AdamW"):
        others["amsgrad"] = True
    others["lr"] = _default_lr(training) * 0.7
    if training.options.get("nesterov"):
        others.pop("momentum", None)
    training.make_optimizer([{"params": training.params[:1]}, {"params": training.params[1:], **others}])
    training.make_step()
    training.run(0, STEPS)


def _added_group(training: Training) -> None:
    training.make_optimizer(training.params[:1])
    training.make_step()
    training.run(0, 10)
    training.optimizer.add_param_group({"params": training.params[1:], "lr": _default_lr(training) * 0.5})
    training.run(10, STEPS)


def _options_change(training: Training) -> None:
    """What a user sets in groups between steps."""
    group = training.optimizer.param_groups[0]

    def change(k: int) -> None:
        if k == 10:
            for name, value in OTHER_OPTIONS:
                if name in group and not (name == "momentum" and group[name] == 0) and name not in ("eps", "maximize"):
                    group[name] = value
        if k == 30 and "maximize" in group:
            group["maximize"] = not group["maximize"]

    training.run(0, STEPS, change)


def _loaded(training: Training) -> None:
    """The optimizer loads its own states twice."""
    training.run(0, 10)
    saved = copy.deepcopy(training.optimizer.state_dict())
    kept = [p.detach().clone() for p in training.params]
    training.run(10, 20)
    for p, before in zip(training.params, kept):
        p.data.copy_(before)
    training.optimizer.load_state_dict(saved)
    training.run(10, 30)
    training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    training.run(30, STEPS)


def _another_goes_on(training: Training) -> None:
    """A new optimizer of the same parameters, with the states of the one before."""
    training.run(0, 20)
    saved = copy.deepcopy(training.optimizer.state_dict())
    training.make_optimizer(training.params)
    training.optimizer.load_state_dict(saved)
    training.make_step()
    training.run(20, STEPS)


def _hooks(training: Training) -> None:
    counts = {"before": 0, "after": 0}

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        counts["before"] += 1
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(0.5)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        counts["after"] += 1
        with training.torch.no_grad():
            for group in optimizer.param_groups:
                for p in group["params"]:
                    p.mul_(0.999)

    first, second = training.optimizer.register_step_pre_hook(before), training.optimizer.register_step_post_hook(after)
    training.run(0, 30)
    first.remove(), second.remove()
    training.run(30, STEPS)
    training.seen.append([np.array([counts["before"], counts["after"]])])


def _some_without_gradients(training: Training) -> None:
    """The second parameter has a gradient at every third step only, the last one none before step 20."""

    def change(k: int) -> None:
        training.makes[1] = k % 3 == 0
        if len(training.makes) > 2:
            training.makes[-1] = k >= 20

    training.run(0, STEPS, change)


def _grads_kept(training: Training) -> None:
    training.keeps_grads = True
    training.make_step()
    training.run(0, STEPS)


def _scheduled(kind: str, **options: Any) -> Callable[[Training], None]:
    """A scheduler within the step."""

    def scenario(training: Training) -> None:
        if kind == "OneCycleLR" and not (training.has("momentum") or training.has("betas")):
            options["cycle_momentum"] = False
        scheduler = getattr(training.torch.optim.lr_scheduler, kind)(training.optimizer, **options)
        training.after = scheduler.step
        training.make_step()
        training.run(0, STEPS)
        training.seen.append([np.array(scheduler.get_last_lr())])

    return scenario


def _clipped(training: Training) -> None:
    clip = training.torch.nn.utils.clip_grad_norm_
    if training.name != "LBFGS":
        training.optimizer.register_step_pre_hook(lambda *_: (clip(training.params, 0.5), None)[1])
    training.run(0, STEPS)


SCENARIOS: dict[str, Callable[[Training], None]] = {
    "simple": _simple,
    "foreach": _with(foreach=True),
    "no foreach": _with(foreach=False),
    "fused": _with(fused=True),
    "capturable": _with(capturable=True),
    "maximize": _with(maximize=True),
    "decay": _with(weight_decay=0.05),
    "lr tensor": _lr_tensor,
    "lr of one element": _lr_of_one_element,
    "betas tensors": _betas_tensors,
    "decay tensor": _decay_tensor,
    "lr changes": _lr_changes,
    "groups": _groups,
    "added group": _added_group,
    "options change": _options_change,
    "loaded": _loaded,
    "another goes on": _another_goes_on,
    "hooks": _hooks,
    "some without gradients": _some_without_gradients,
    "grads kept": _grads_kept,
    "exponential": _scheduled("ExponentialLR", gamma=0.97),
    "cosine": _scheduled("CosineAnnealingLR", T_max=20, eta_min=1e-4),
    "one cycle": _scheduled("OneCycleLR", max_lr=0.05, total_steps=60),
    "clipped": _clipped,
}

Outcome = tuple[list[list[np.ndarray]], list[np.ndarray]] | tuple[str, str]


def outcome(
    torch: Any, case: Case, scenario: str, dtype: str = "float64", wrap: Wrap = lambda step: step, roundings: int = 0
) -> Outcome:
    """What was seen on the way, and the states at the end; or the error's type and text.  `roundings`: of `parameters`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            training = Training(torch, case, dtype, wrap, roundings)
            SCENARIOS[scenario](training)
        except (TypeError, ValueError, RuntimeError, AssertionError, KeyError, AttributeError) as error:
            return type(error).__name__, str(error)
    return training.seen, training.states()


def cases_of_scenarios() -> list[tuple[Case, str]]:
    """All optimizers with all options in all scenarios, but for what only CUDA has in torch.

    LBFGS of torch keeps a learning rate that is a tensor in its state as the last step's length, and so changes it afterwards.
    """
    pairs = [(case, name) for case in OPTIMIZERS for name in SCENARIOS if name != "capturable"]
    return [(case, name) for case, name in pairs if (case[0], name) != ("LBFGS", "lr tensor")]


def recorded_scenarios() -> list[tuple[Case, str]]:
    """One of each optimizer in all scenarios."""
    first = {case[0]: case for case in reversed(OPTIMIZERS)}
    return [(case, name) for case, name in cases_of_scenarios() if first[case[0]] is case]


def id_of(pair: tuple[Case, str]) -> str:
    return f"{name_of(pair[0])}: {pair[1]}"


def is_error(found: Outcome) -> bool:
    return isinstance(found[0], str)


def last_of(found: Outcome) -> np.ndarray:
    """The parameters at the end as one row; NaN for errors."""
    if is_error(found):
        return np.array([np.nan])
    return np.concatenate([np.ravel(p) for p in found[0][-1]])


def check_same(got: Outcome, wanted: Outcome, tolerance: float, of_states: float) -> None:
    if is_error(got) or is_error(wanted):
        assert got == wanted
        return
    for some, others in zip(got[0], wanted[0], strict=True):
        for a, b in zip(some, others, strict=True):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    for a, b in zip(got[1], wanted[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=of_states, atol=of_states)
