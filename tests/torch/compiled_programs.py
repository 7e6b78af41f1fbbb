"""Random programs (programs.py) as compiled functions: each call does what the plain call of the same function does.

    python -m tests.torch.compiled_programs 1234      a program by its number, made small if it differs, and where captures break
    python -m tests.torch.compiled_programs 0 300     those from one number to another
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import dynagraph as dg
import dynagraph.torch as torch
from tests.torch.programs import MOST, STEPS, WRITES, State, Step, _about, _overlaps, _same, _Skip, _values, program

BACKEND = "numpy"
Notes = dict[str, Any]


class Noting(State):
    """Notes what a step chooses by random numbers and by where memory is, as plain data."""

    note: Notes

    def key(self, x: Any, a: int, b: int, c: int) -> Any:
        self.note["key"] = super().key(x, a, b, c)
        return self.note["key"]

    def places(self, x: Any, a: int, b: int) -> Any:
        found = super().places(x, a, b)
        is_mask = isinstance(found, torch.Tensor) and found.dtype is torch.bool
        parts = found if isinstance(found, tuple) else (found,)
        self.note["places"] = None if is_mask else [p.tolist() if isinstance(p, torch.Tensor) else p for p in parts]
        return found

    def like(self, x: Any, a: int, b: int) -> Any:
        found = super().like(x, a, b)
        self.note["like"] = next((k for k, t in enumerate(self.tensors) if t is found), None)
        return found

    def fresh(self, shape: tuple[int, ...], seed: int, dtype: str = "float64") -> Any:
        found = super().fresh(shape, seed, dtype)
        self.note["fresh"] = found.numpy().copy()
        return found


class Noted(State):
    """Chooses what the notes say."""

    note: Notes

    def key(self, x: Any, a: int, b: int, c: int) -> Any:
        return self.note["key"]

    def places(self, x: Any, a: int, b: int) -> Any:
        if self.note["places"] is None:
            return x > self.number(b)
        parts = tuple(torch.tensor(p, dtype=torch.int64) if isinstance(p, list) else p for p in self.note["places"])
        return parts if len(parts) > 1 else parts[0]

    def like(self, x: Any, a: int, b: int) -> Any:
        number = self.note["like"]
        return self.fresh((), 0) if number is None else self.tensors[number]

    def apart(self, x: Any, other: Any) -> Any:
        return other

    def fresh(self, shape: tuple[int, ...], seed: int, dtype: str = "float64") -> Any:
        return torch.from_numpy(self.note["fresh"].copy())


def step_done(state: State, step: Step) -> None:
    with torch.set_grad_enabled(not step.no_grad):
        result = STEPS[step.name][1](state, *step.numbers)
    if isinstance(result, torch.Tensor) and not any(result is t for t in state.tensors):
        state.tensors.append(result)
        if len(state.tensors) > MOST:
            del state.tensors[0]


def doable(steps: list[Step]) -> tuple[list[Step], list[Notes]]:
    """The steps that do not raise, and what they chose; in some programs those up to the first that raises."""
    state = Noting(torch)
    kept: list[Step] = []
    notes: list[Notes] = []
    for step in steps:
        if (not state.tensors and step.name != "leaf") or (step.name in WRITES and _overlaps(state.pick(step.numbers[0]))):
            continue
        state.note = {}
        try:
            step_done(state, step)
        except _Skip:
            continue
        except Exception:
            if len(kept) % 16:
                continue
            return [*kept, step], [*notes, state.note]
        kept.append(step)
        notes.append(state.note)
    return kept, notes


def _described(tensors: list[Any]) -> list[dict[str, Any]]:
    found = []
    for t in tensors:
        about = _about(t)
        about["version"] = t._version
        about["strides"] = tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else ()
        about["base"] = [k for k, other in enumerate(tensors) if other is t._base]
        about["shares"] = [k for k, other in enumerate(tensors) if np.may_share_memory(t._array, other._array)]
        about["has grad_fn"] = bool(about.get("requires_grad")) and t.grad_fn is not None  # of several operations, or of one
        found.append(about)
    return found


def _text(error: Exception) -> tuple[str, str]:
    """An error; whose output a tensor is is said of one operation, or of the call."""
    return type(error).__name__, re.sub(r", which is output \d+ of \w+,|Output \d+ of \w+", "", str(error))


def _gradients(chosen: list[Any], leaves: list[Any], second: bool) -> Any:
    weights = [torch.arange(o.numel(), dtype=torch.float64).sin().to(o.dtype).reshape(o.shape) for o in chosen]
    try:
        found = torch.autograd.grad(chosen, leaves, weights, retain_graph=True, create_graph=second, allow_unused=True)
        if second:
            total: Any = sum((g * g).sum() for g in found if g is not None)
            further = [None if g is None else g.requires_grad for g in found]
            if isinstance(total, torch.Tensor) and total.requires_grad:
                further += torch.autograd.grad(total, leaves, retain_graph=True, allow_unused=True)
            return [None if g is None else _values(g) for g in found], [
                _values(g) if isinstance(g, torch.Tensor) else g for g in further
            ]
        return [None if g is None else _values(g) for g in found], []
    except Exception as error:
        return _text(error)


def _afterwards(tensors: list[Any]) -> list[Any]:
    """Gradients that are taken after the call: by all results, by some, second ones; after a write; twice."""
    live = []
    for t in tensors:
        try:
            if t.requires_grad and t.dtype.is_floating_point:
                live.append((t, t.is_leaf))
        except RuntimeError:  # a view that must not be used any more
            pass
    leaves, outs = [t for t, is_leaf in live if is_leaf], [t for t, is_leaf in live if not is_leaf]
    if not leaves or not outs:
        return []
    found = [_gradients(outs[k:last], leaves, second) for k, last in ((0, None), (-1, None), (0, 1)) for second in (False, True)]
    found.append(_gradients(outs[-1:], [*leaves, *outs], False))  # of results by results
    for t in (outs[-1], leaves[0], outs[0]):
        try:
            with torch.no_grad():
                t.mul_(1.5)
        except RuntimeError as error:
            found.append(_text(error))
        found.append(_gradients(outs[-1:], leaves, False))
    return found


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(_equal, a, b))
    return _same(a, b)


def _outcome(function: Callable[..., Any], steps: list[Step], notes: list[Notes]) -> tuple[Any, list[dict[str, Any]], list[Any]]:
    """The error and all tensors, after a call with the leaves that a program begins with; gradients that are taken then."""
    state = Noted(torch)
    for step, note in zip(steps, notes):
        state.note = note
        step_done(state, step)
    try:
        function(state)
    except Exception as error:
        return (type(error).__name__, str(error)), _described(state.tensors), []
    return None, _described(state.tensors), _afterwards(state.tensors)


def difference(steps: list[Step]) -> tuple[str, list[str]]:
    """The first difference between plain and compiled calls, in words, and the reasons of breaks."""
    steps, notes = doable(steps)
    given = next((k for k, step in enumerate(steps) if step.name != "leaf"), len(steps))
    if given == len(steps):
        return "", []

    def function(state: Any) -> None:
        for step, note in zip(steps[given:], notes[given:]):
            state.note = note
            step_done(state, step)

    compiled = dg.compile(function, backend=BACKEND, mode="max")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for call in range(2):
            error, plain, grads = _outcome(function, steps[:given], notes[:given])
            other, found, others = _outcome(compiled, steps[:given], notes[:given])
            if error != other:
                return f"call {call}: plain raises {error}, compiled {other}", []
            if len(plain) != len(found):
                return f"call {call}: {len(plain)} tensors, compiled {len(found)}", []
            for k, (a, b) in enumerate(zip(plain, found)):
                for name in a:
                    if not _same(a[name], b.get(name)):
                        return f"call {call}: {name} of tensor {k}: plain {a[name]!r}, compiled {b.get(name)!r}", []
            for k, (a, b) in enumerate(zip(grads, others, strict=True)):
                if not _equal(a, b):
                    return f"call {call}: gradients {k}, taken afterwards: plain {a!r}, compiled {b!r}", []
    if compiled.stats.fallbacks:
        return f"compiler failed: {compiled.stats.last_error!r:.300}", []
    return "", [str(b) for b in compiled.stats.breaks]


def made_small(steps: list[Step]) -> list[Step]:
    """A shorter program that still differs."""
    for k in reversed(range(len(steps))):
        fewer = steps[:k] + steps[k + 1 :]
        if difference(fewer)[0]:
            steps = fewer
    return steps


def main(first: str, last: str = "") -> int:
    wrong = 0
    for seed in range(int(first), int(last or int(first) + 1)):
        steps = program(seed)
        found, breaks = difference(steps)
        for text in breaks[:2]:
            print(f"program {seed} breaks: {text[:250]}", flush=True)
        if found:
            wrong += 1
            small = made_small(steps)
            print(f"program {seed}: {difference(small)[0]}")
            print("    " + "; ".join(map(str, doable(small)[0])), flush=True)
    print(f"{wrong} programs differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
