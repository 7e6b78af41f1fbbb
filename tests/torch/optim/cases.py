"""Optimizers and schedulers with their options, and how they are run, by one torch or the other."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

STEPS = 50
Case = tuple[str, dict[str, Any]]
SHORT = 0.12  # steps of LBFGS that do not come to the minimum soon, after which nothing would be left to do

OPTIMIZERS: list[Case] = [
    ("SGD", {}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    ("Adam", {"betas": (0.7, 0.8), "eps": 1e-3, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"amsgrad": True, "weight_decay": 0.3}),
    ("NAdam", {}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "momentum_decay": 0.1}),
    ("NAdam", {"weight_decay": 0.1, "maximize": True}),
    ("RAdam", {}),
    ("RAdam", {"betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("RAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"rho": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.9}),
    ("RMSprop", {"momentum": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {}),
    ("Rprop", {"etas": (0.3, 1.5), "step_sizes": (1e-3, 0.1), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"t0": 10, "lambd": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1, "maximize": True, "eps": (1e-6, 0.1), "d": 2.0}),
    ("Muon", {}),
    ("Muon", {"lr": 0.01, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}),
    ("LBFGS", {"max_iter": 3}),
    ("LBFGS", {"lr": SHORT, "max_iter": 3}),
    ("LBFGS", {"lr": SHORT, "max_iter": 4, "line_search_fn": "strong_wolfe", "history_size": 3}),
]
PER_ELEMENT = [case for case in OPTIMIZERS if case[0] not in ("Adafactor", "Muon", "LBFGS")]


def lambda_of(factor: float) -> Callable[[int], float]:
    return lambda step: factor**step


SCHEDULERS: list[Case] = [
    ("StepLR", {"step_size": 3}),
    ("MultiStepLR", {"milestones": [3, 5, 5, 20]}),
    ("ConstantLR", {}),
    ("LinearLR", {"start_factor": 0.3, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 60, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 7, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 5, "step_size_down": 3, "mode": "exp_range", "gamma": 0.99}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 60}),
    ("OneCycleLR", {"max_lr": [0.3, 0.2], "epochs": 10, "steps_per_epoch": 6, "three_phase": True, "anneal_strategy": "linear"}),
    ("LambdaLR", {"lr_lambda": lambda_of(0.95)}),
    ("MultiplicativeLR", {"lr_lambda": lambda_of(0.99)}),
    ("ReduceLROnPlateau", {"patience": 2, "cooldown": 1}),
    ("ReduceLROnPlateau", {"mode": "max", "threshold_mode": "abs", "threshold": 0.1, "patience": 1}),
    ("SWALR", {"swa_lr": 0.05, "anneal_epochs": 4}),
    ("sequential", {}),
    ("chained", {}),
]
COMBINED = ("sequential", "chained", "ReduceLROnPlateau", "SWALR")  # which take no epoch


def name_of(case: Case) -> str:
    name, options = case
    return "-".join([name, *(f"{key}={value}" for key, value in options.items() if not callable(value))]).replace(" ", "")


def parameters(torch: Any, name: str, dtype: str, roundings: int = 0) -> tuple[list[Any], list[Any]]:
    """Parameters, each so many roundings off, up or down, and what they shall become."""
    rng = np.random.default_rng(0)
    shapes: list[tuple[int, ...]] = [(4, 3), (3, 5)] if name == "Muon" else [(4, 3), (3,), (2, 2, 3), (1,), ()]
    given = [np.array(rng.normal(size=shape)) for shape in shapes], [rng.normal(size=shape) for shape in shapes]
    for x in given[0] if roundings else []:
        x *= 1 + rng.choice([-roundings, roundings], size=x.shape) * np.finfo(dtype).eps
    kind = getattr(torch, dtype)
    return [torch.tensor(x, dtype=kind, requires_grad=True) for x in given[0]], [torch.tensor(x, dtype=kind) for x in given[1]]


def weight_of(name: str, k: int) -> float:
    """Of a part of the loss in step `k`: it changes, but for LBFGS.

    That takes the change of the gradient from one step to the next for the curvature of one function.  Near the minimum of a
    function that changes, the function's change is most of it, and a rounding grows to 1e13 times its size in fifty steps, in
    PyTorch as here: test_optimizers.py measures how little it grows now.
    """
    return 1.0 if name == "LBFGS" else 1 + 0.1 * k


def closure_of(torch: Any, optimizer: Any, params: list[Any], targets: list[Any], weight: float) -> Callable[[], Any]:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum((((p - t) ** 2) * weight + (p * 1.3).sin() * 0.3).sum() for p, t in zip(params, targets))
        loss.backward()
        return loss

    return closure


def advance(torch: Any, name: str, optimizer: Any, params: list[Any], targets: list[Any], steps: range) -> None:
    for k in steps:
        closure = closure_of(torch, optimizer, params, targets, weight_of(name, k))
        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


def run(torch: Any, case: Case, dtype: str, steps: int = STEPS) -> tuple[list[np.ndarray], Any]:
    """Parameters after some steps, and the optimizer."""
    name, options = case
    params, targets = parameters(torch, name, dtype)
    optimizer = getattr(torch.optim, name)(params, **options)
    advance(torch, name, optimizer, params, targets, range(steps))
    return [p.detach().numpy().copy() for p in params], optimizer


def tolerance_of(case: Case, dtype: str) -> float:
    """How far parameters may be apart, in units of 1: of bfloat16 for Muon, after some iterations for LBFGS in float32."""
    name = case[0]
    if name == "Muon":
        return 0.02
    if dtype == "float64":
        return 1e-6
    return {"LBFGS": 2e-2}.get(name, 5e-6)


def make_scheduler(torch: Any, case: Case, name: str = "SGD", in_tensors: bool = False) -> tuple[Any, Any]:
    """An optimizer of two groups, and its scheduler.  `in_tensors`: learning rates are tensors."""
    kind, options = case
    params = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    first, second = (torch.tensor(lr, dtype=torch.float64) if in_tensors else lr for lr in (0.1, 0.05))
    about = {"momentum": 0.9} if name == "SGD" else {}
    groups = [{"params": params[:1]}, {"params": params[1:], "lr": second}]
    optimizer = getattr(torch.optim, name)(groups, lr=first, **about)
    schedulers = torch.optim.lr_scheduler
    if kind == "sequential":
        some = [schedulers.ConstantLR(optimizer, 0.1, 2), schedulers.ExponentialLR(optimizer, 0.9), schedulers.StepLR(optimizer, 5)]
        return optimizer, schedulers.SequentialLR(optimizer, some, [3, 20])
    if kind == "chained":
        some = [schedulers.ConstantLR(optimizer, 0.1, 2), schedulers.ExponentialLR(optimizer, 0.9)]
        return optimizer, schedulers.ChainedScheduler(some)
    found = torch.optim.swa_utils.SWALR if kind == "SWALR" else getattr(schedulers, kind)
    return optimizer, found(optimizer, **options)


def schedule(torch: Any, case: Case, by_epoch: bool = False) -> tuple[np.ndarray, list[str], list[str]]:
    """Rates and momentums at each step, the names in the state dict, and warnings."""
    optimizer, scheduler = make_scheduler(torch, case)
    rates = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for k in range(STEPS):
            optimizer.step()
            if case[0] == "ReduceLROnPlateau":
                scheduler.step(abs(math.sin(k)) * (1 if k < 20 else 3))
            elif by_epoch:
                scheduler.step(k)
            else:
                scheduler.step()
            rates.append([*scheduler.get_last_lr(), *(g[n] for g in optimizer.param_groups for n in ("lr", "momentum"))])
    return np.array(rates), list(scheduler.state_dict()), sorted({str(w.message) for w in said})
