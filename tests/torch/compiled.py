"""The cases of the conformance table compiled: what a compiled call gives is what the plain call of dynagraph.torch gives.

    python -m tests.torch.compiled pointwise [WORD]    prints what differs, and why captures break, of a module of cases
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dynagraph as dg
import dynagraph.torch as torch
from tests.torch import outcomes
from tests.torch.table import Case, Inputs, families

BACKEND = "numpy"  # of most cases: no C compiler


def call_of(case: Case, form: str) -> Callable[..., Any] | None:
    """A function of the arguments that calls what the case is about."""
    if form == "function":
        return outcomes.function_of(torch, case)
    name = case.name.removeprefix("Tensor.") + ("_" if form == "in place" else "")
    if not outcomes.method_of(torch, case) or not callable(getattr(torch.Tensor, name, None)):
        return None
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


def outcome(function: Callable[..., Any], case: Case, form: str, dtype: str, own: Any = torch) -> dict[str, Any]:
    """As `outcomes.run`: the result, first and, where that is asked for, second gradients, taken within `function`.

    `own` makes the inputs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        inputs = Inputs(own, case, dtype, case.option("grad", True))
        args = [inputs.args[0].clone(), *inputs.args[1:]] if form == "in place" else inputs.args
        try:
            result, gradients = function(args, inputs.kwargs, [x for x in inputs.leaves if x.requires_grad])
        except Exception as error:
            return outcomes.failure(error)
    versions = [x._version for x in inputs.leaves]
    return {
        "result": outcomes.described(torch, result, inputs.leaves), "versions": versions,
        "gradients": [None if g is None else outcomes._number_data(torch, g) for g in gradients],
    }  # fmt: skip


def without_nodes(found: Any) -> Any:
    """An outcome whose texts do not name `grad_fn`: of what a compiled part gives that is one node, whatever it is made of."""
    if isinstance(found, str):
        return re.sub(r",\s+grad_fn=<\w+>", ", grad_fn", found)
    if isinstance(found, dict):
        return {name: without_nodes(value) for name, value in found.items()}
    return [without_nodes(value) for value in found] if isinstance(found, list) else found


def program_of(call: Callable[..., Any], with_gradients: bool) -> Callable[..., Any]:
    """The call and its gradients, weighted by sines, as one function."""

    def program(args: Any, kwargs: Any, leaves: Any) -> Any:
        result = call(*args, **kwargs)
        several = result if isinstance(result, (tuple, list)) else (result,)
        outs = [o for o in several if isinstance(o, torch.Tensor) and o.requires_grad]
        if not with_gradients or not outs or not leaves:
            return result, []
        weights = [torch.arange(o.numel(), dtype=torch.float64).sin().to(o.dtype).reshape(o.shape) for o in outs]
        return result, torch.autograd.grad(outs, leaves, weights, allow_unused=True, retain_graph=True)

    return program


def check(
    case: Case, form: str, dtype: str = "float64", backend: str = BACKEND, own: Any = torch, outside: bool = False
) -> tuple[list[str], list[str]]:
    """What differs between the plain and the compiled run of a case, and the reasons of breaks.

    `outside`: gradients are taken outside of the compiled function.
    """
    call = call_of(case, form)
    if call is None:
        return [], []
    with_gradients = form != "in place" and case.option("grad", True)
    program = program_of(call, with_gradients)
    expected = outcome(program, case, form, dtype, own)
    compiled = dg.compile((lambda *args, **kwargs: call(*args, **kwargs)) if outside else program, backend=backend, mode="max")
    run = program_of(compiled, with_gradients) if outside else compiled
    found = []
    for time in ("first", "second"):
        got = outcome(run, case, form, dtype, own)
        if "error" in expected:
            if got.get("error") != expected["error"] or got["text"] != expected["text"]:
                raised = f"plain raises {expected['error']}: {expected['text'][:150]}"
                found.append(f"{time} call: {raised}; got {got.get('error')} {got.get('text', '')[:150]}")
        else:
            # an error row may raise in one form alone; several operations are one node
            row = replace(case, raises=False, options={**case.options, "grad_fn": False})
            plain, got = without_nodes(expected), without_nodes(got)
            found += [f"{time} call: {text}" for text in outcomes.differences(row, plain, got, form, dtype)]
    failed = [f"compiler failed: {compiled.stats.last_error!r:.300}"] if compiled.stats.fallbacks else []
    return found + failed, [str(b) for b in compiled.stats.breaks]


def main() -> None:
    family, word = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    reasons: Counter[str] = Counter()
    n = whole = 0
    for case in families()[family]:
        if word and word not in str(case):
            continue
        for form in ("function", "method", "in place"):
            found, breaks = check(case, form)
            if form == "function":
                n, whole = n + 1, whole + (not breaks)
            reasons.update(f"{b.split(': ', 1)[-1][:150]}   e.g. {case}" for b in breaks[:1])
            for text in found:
                print(f"{case} [{form}]: {text}")
    for reason, count in reasons.most_common():
        print(f"{count:4} {reason}")
    print(f"{family}: {whole} of {n} functions in one graph")


if __name__ == "__main__":
    main()
