"""Random programs (programs.py) as compiled functions: each call does what the plain call of the same function does.

    python -m tests.torch.compiled_programs 1234      a program by its number, made small if it differs, and where captures break
    python -m tests.torch.compiled_programs 0 300     those from one number to another
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import dynagraph as dg
import dynagraph.torch as torch
from tests.torch.programs import MOST, STEPS, WRITES, State, Step, _about, _overlaps, _same, _Skip, program

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
        about["grad_fn"] = t.grad_fn.name() if about.get("requires_grad") and t.grad_fn is not None else None
        found.append(about)
    return found


def _outcome(function: Callable[..., Any], steps: list[Step], notes: list[Notes]) -> tuple[Any, list[dict[str, Any]]]:
    """The error and all tensors, after a call with the leaves that a program begins with."""
    state = Noted(torch)
    for step, note in zip(steps, notes):
        state.note = note
        step_done(state, step)
    try:
        function(state)
    except Exception as error:
        return (type(error).__name__, str(error)), _described(state.tensors)
    return None, _described(state.tensors)


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
            error, plain = _outcome(function, steps[:given], notes[:given])
            other, found = _outcome(compiled, steps[:given], notes[:given])
            if error != other:
                return f"call {call}: plain raises {error}, compiled {other}", []
            if len(plain) != len(found):
                return f"call {call}: {len(plain)} tensors, compiled {len(found)}", []
            for k, (a, b) in enumerate(zip(plain, found)):
                for name in a:
                    if not _same(a[name], b.get(name)):
                        return f"call {call}: {name} of tensor {k}: plain {a[name]!r}, compiled {b.get(name)!r}", []
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
