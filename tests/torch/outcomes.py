"""Run cases under one torch or the other, as plain data, and compare what came out.  table.py says what is compared."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.torch.table import DTYPES, Case, Inputs, T, attribute, specs, tensor_of

TOLERANCES = {
    "float64": 1e-9, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2, "complex128": 1e-9, "complex64": 2e-5,
}  # fmt: skip

# -- what came out, as plain data -------------------------------------------------------------------------------------


def array_of(torch: Any, x: Any) -> np.ndarray:
    x = x.detach()
    if x.dtype == torch.bfloat16:
        x = x.to(torch.float32)
    if x.is_complex():
        x = x.resolve_conj()
    if hasattr(x, "resolve_neg"):
        x = x.resolve_neg()
    return np.array(x.numpy(force=True))  # also of what torch keeps as zeros without memory


def _reach(x: Any) -> tuple[int, int]:
    size = x.element_size()
    last = sum((n - 1) * s for n, s in zip(x.shape, x.stride()))
    return x.data_ptr(), x.data_ptr() + (last + 1) * size


def _shares(x: Any, inputs: list[Any]) -> Any:
    """The input that it is ("is 0"), or whose memory it has ("0"), or ""."""
    for k, other in enumerate(inputs):
        if x is other:
            return f"is {k}"
    if x.numel() == 0:
        return ""
    low, high = _reach(x)
    for k, other in enumerate(inputs):
        if other.numel():
            start, stop = _reach(other)
            if low < stop and start < high:
                return str(k)
    return ""


def described(torch: Any, value: Any, inputs: list[Any]) -> Any:
    """A result as nested plain data: tensors are dicts with their numbers as arrays."""
    if isinstance(value, torch.Tensor):
        strides = [s if n > 1 else 0 for n, s in zip(value.shape, value.stride())] if value.numel() else []
        return {
            "dtype": str(value.dtype), "shape": [int(n) for n in value.shape], "strides": strides, "values": array_of(torch, value),
            "shares": _shares(value, inputs), "requires_grad": bool(value.requires_grad),
            "grad_fn": None if value.grad_fn is None else value.grad_fn.name(),
        }  # fmt: skip
    if isinstance(value, (tuple, list)):
        kind = "Size" if isinstance(value, torch.Size) else "list" if isinstance(value, list) else "tuple"
        fields = [n for n in ("values", "indices", "min", "max", "Q", "R") if hasattr(value, n) and not callable(getattr(value, n))]
        return {"kind": kind, "fields": fields, "items": [described(torch, v, inputs) for v in value]}
    if isinstance(value, (bool, int, float, str, type(None))):
        return value
    if isinstance(value, np.ndarray):
        return {"dtype": f"numpy {value.dtype}", "shape": list(value.shape), "values": np.array(value)}
    return repr(value)


def _tensors_in(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors_in(torch, item)


def _cotangents(torch: Any, outs: list[Any], seed: str) -> list[Any]:
    found = []
    for k, out in enumerate(outs):
        name = str(out.dtype).removeprefix("torch.")
        found.append(tensor_of(torch, T(*out.shape), name, f"{seed} {k}", False))
    return found


def _gradients(torch: Any, result: Any, leaves: list[Any], second: bool) -> dict[str, Any]:
    """First gradients by the leaves, and second ones."""
    wanted = [x for x in leaves if x.requires_grad]
    outs = [o for o in _tensors_in(torch, result) if o.requires_grad and (o.grad_fn is not None or any(o is x for x in wanted))]
    if not wanted or not outs:
        return {}
    found: dict[str, Any] = {}
    cotangents = _cotangents(torch, outs, "cotangent")
    first = torch.autograd.grad(outs, wanted, cotangents, create_graph=second, allow_unused=True)
    found["first"] = [None if g is None else _number_data(torch, g) for g in first]
    if not second:
        return found
    again = [g for g in first if g is not None and g.requires_grad]
    if again:
        gradients = torch.autograd.grad(again, wanted, _cotangents(torch, again, "second"), allow_unused=True)
    else:
        gradients = [None] * len(wanted)
    # zero or none is the same here: what stands in the graph of a gradient is an implementation's own affair
    found["second"] = [_number_data(torch, x * 0 if g is None else g) for g, x in zip(gradients, [w.detach() for w in wanted])]
    return found


def _number_data(torch: Any, x: Any) -> dict[str, Any]:
    return {"dtype": str(x.dtype), "shape": list(x.shape), "values": array_of(torch, x)}


def failure(error: BaseException) -> dict[str, Any]:
    """An error as plain data."""
    return {"error": type(error).__name__, "bases": [c.__name__ for c in type(error).__mro__], "text": str(error)}


# -- forms ------------------------------------------------------------------------------------------------------------


def function_of(torch: Any, case: Case) -> Callable[..., Any] | None:
    """torch.<name>, where there is one."""
    if case.function is not None:
        own = case.function
        return lambda *args, **kwargs: own(torch, *args, **kwargs)
    if case.name.startswith("Tensor."):
        return None
    try:
        return attribute(torch, case.name)
    except AttributeError:
        return None


def method_of(torch: Any, case: Case) -> str:
    """The name of the method, where the first argument may have one."""
    if case.function is None and case.args and isinstance(case.args[0], T):
        if case.name.startswith("Tensor."):
            return case.name.removeprefix("Tensor.")
        if "." not in case.name and callable(getattr(torch.Tensor, case.name, None)):
            return case.name
    return ""


def forms_of(torch: Any, case: Case) -> list[tuple[str, str]]:
    """The forms and dtypes that a case is run in, by what real torch has: pairs like ("function", "float64")."""
    found = []
    function, method = function_of(torch, case), method_of(torch, case)
    main = ""
    if function is not None and case.option("function", True):
        main = "function"
        found.append((main, "float64"))
    if method and case.option("method", True):
        found.append(("method", "float64"))
        main = main or "method"
    if not main:
        raise AssertionError(f"{case}: torch has neither function nor method of this name")
    if case.raises:
        return found
    if method and case.option("inplace", True) and callable(getattr(torch.Tensor, f"{method}_", None)) and not method.endswith("_"):
        found += [("in place", "float64"), ("in place", "int64")]
    if function is not None and case.function is None and case.option("out", True) and _takes_out(torch, case):
        found += [("out", "float64"), ("out transposed", "float64")]
    if any(isinstance(x, T) and not x.dtype for x in specs(case)):
        found += [(main, d) for d in case.option("dtypes", " ".join(DTYPES)).split() if d != "float64"]
    return found


def _takes_out(torch: Any, case: Case) -> bool:
    if "out" in case.kwargs:
        return False
    try:
        _call_out(torch, case, "float64", False)
    except TypeError:
        return False
    except Exception:
        pass
    return True


def _call_out(torch: Any, case: Case, dtype: str, transposed: bool) -> Any:
    function = function_of(torch, case)
    assert function is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inputs = Inputs(torch, case, dtype, False)
        plain = function(*inputs.args, **inputs.kwargs)
        tensors = list(_tensors_in(torch, plain))
        outs = [_target(torch, t, transposed) for t in tensors]
        out = outs[0] if isinstance(plain, torch.Tensor) else tuple(outs)
        result = function(*inputs.args, **inputs.kwargs, out=out)
    data = described(torch, result, [*inputs.leaves, *outs])
    return {"result": data, "out": [described(torch, o, []) for o in outs]}


def _target(torch: Any, like: Any, transposed: bool) -> Any:
    if not transposed:
        return torch.empty(0, dtype=like.dtype)
    reverse = tuple(reversed(range(len(like.shape))))
    return torch.zeros(tuple(reversed(like.shape)), dtype=like.dtype).permute(reverse)


def run(torch: Any, case: Case, form: str, dtype: str) -> dict[str, Any]:
    """What one torch makes of a case in a form: plain data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if form.startswith("out"):
                return _call_out(torch, case, dtype, form != "out")
            with_grad = case.option("grad", True) and not case.raises
            inputs = Inputs(torch, case, dtype, with_grad)
            if form == "in place":
                return _in_place(torch, case, dtype, inputs)
            if form == "function":
                function = function_of(torch, case)
                if function is None:
                    raise AttributeError(f"torch has no {case.name}")
                result = function(*inputs.args, **inputs.kwargs)
            else:
                name = case.name.removeprefix("Tensor.")
                result = getattr(inputs.args[0], name)(*inputs.args[1:], **inputs.kwargs)
            outcome: dict[str, Any] = {"result": described(torch, result, inputs.leaves)}
        except Exception as error:
            return failure(error)
        if with_grad and (dtype in ("float64", "float16", "complex128")):
            second = dtype != "float16" and form == "function" and case.option("second", True)
            try:
                outcome["gradients"] = _gradients(torch, result, inputs.leaves, second)
            except Exception as error:
                outcome["gradients"] = failure(error)
        return outcome


def _in_place(torch: Any, case: Case, dtype: str, inputs: Inputs) -> dict[str, Any]:
    name = case.name.removeprefix("Tensor.")
    x = inputs.args[0].clone()
    before = x._version
    result = getattr(x, f"{name}_")(*inputs.args[1:], **inputs.kwargs)
    data = described(torch, result, [x])
    data.pop("grad_fn")  # torch has names of its own for some of these forms
    outcome = {"result": data, "version": x._version > before}
    if dtype == "float64":
        try:
            outcome["gradients"] = _gradients(torch, result, inputs.leaves, False)
        except Exception as error:
            outcome["gradients"] = failure(error)
    return outcome


# -- comparing --------------------------------------------------------------------------------------------------------


def differences(case: Case, expected: Any, got: Any, form: str, dtype: str, coarse: float = 1.0) -> list[str]:
    """What differs between two outcomes, in words; nothing where they agree."""
    if "error" in expected:
        if not case.raises and any(t in expected["text"] for t in ("not implemented for", "inplace version of", "ComplexHalf")):
            return []
        if "error" not in got:
            return [f"torch raises {expected['error']}: {expected['text'][:200]!r}; got a result"]
        found = []
        if expected["error"] not in got["bases"]:
            found.append(f"torch raises {expected['error']}: {expected['text'][:200]!r}; got {got['error']}: {got['text'][:200]!r}")
        if case.option("text", False) and expected["text"] != got["text"]:
            found.append(f"text of the error: torch {expected['text']!r}; got {got['text']!r}")
        return found
    if case.raises:
        return ["torch raises nothing"]
    if "error" in got:
        return [f"got {got['error']}: {got['text'][:300]}"]
    found = []
    for key, value in expected.items():
        wider = coarse * (1 if key in ("result", "out") else 4)
        found += _compared(case, value, got.get(key), key, wider)
    return found


def _compared(case: Case, a: Any, b: Any, where: str, coarse: float) -> list[str]:
    if isinstance(a, dict) and isinstance(b, dict) and "error" in a:
        if ("error" in b and a["error"] in b["bases"]) or "inplace version of" in a.get("text", ""):
            return []
        own = f"{b.get('error', 'a result')} {b.get('text', '')[:200]}"
        return [f"{where}: torch raises {a['error']}: {a.get('text', '')[:200]}; got {own}"]
    if isinstance(a, dict) and isinstance(b, dict) and "error" in b:
        return [f"{where}: got {b['error']}: {b['text'][:300]}"]
    if isinstance(a, dict) and isinstance(b, dict):
        if "values" in a and "dtype" in a:
            if "values" in b and "dtype" in b:
                return _tensors_differ(case, a, b, where, coarse)
            return [f"{where}: torch gives a tensor"]
        found = []
        for key in a.keys() | b.keys():
            found += _compared(case, a.get(key), b.get(key), f"{where}.{key}", coarse)
        return found
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return [f"{where}: torch gives {len(a)}, got {len(b)}"]
        return [text for k, (x, y) in enumerate(zip(a, b)) for text in _compared(case, x, y, f"{where}[{k}]", coarse)]
    if type(a) is float and type(b) is float and case.option("compare", "close") == "close":
        return [] if np.isclose(a, b, rtol=1e-5 * coarse, atol=1e-7, equal_nan=True) else [f"{where}: torch {a!r}, got {b!r}"]
    if case.option("compare", "close") == "meta" and type(a) is type(b):
        return []
    return [] if type(a) is type(b) and a == b else [f"{where}: torch {_short(a)}, got {_short(b)}"]


def _short(value: Any) -> str:
    if isinstance(value, dict) and "values" in value:
        return f"a tensor of {value['dtype']}{value['shape']} {value['values'].tolist()!r:.80}"
    return repr(value)[:400]


def _tensors_differ(case: Case, a: dict[str, Any], b: dict[str, Any], where: str, coarse: float) -> list[str]:
    found = [f"{where}.{n}: torch {a[n]}, got {b[n]}" for n in ("dtype", "shape") if a[n] != b[n]]
    keys = [k for k in ("strides", "shares") if case.option(k, True)]
    keys += ["requires_grad"] if case.option("grad", True) else []
    keys += ["grad_fn"] if case.option("grad_fn", False) else []
    found += [f"{where}.{n}: torch {a[n]}, got {b[n]}" for n in keys if n in a and n in b and a[n] != b[n]]
    compare = case.option("compare", "close")
    x, y = a["values"], b["values"]
    if compare == "meta" or x.shape != y.shape or a["dtype"] != b["dtype"]:
        return found
    if compare == "sorted":
        x, y = np.sort(x.reshape(-1)), np.sort(y.reshape(-1))
    if x.dtype.kind in "fc":
        tolerance = TOLERANCES[a["dtype"].split()[-1].removeprefix("torch.")] * coarse * case.option("tolerance", 1)
        if not all(np.allclose(p, q, rtol=tolerance, atol=tolerance, equal_nan=True) for p, q in zip(_parts(x), _parts(y))):
            with np.errstate(all="ignore"):
                found.append(f"{where}: values differ: torch {x.tolist()!r:.160}, got {y.tolist()!r:.160}")
    elif not np.array_equal(x, y):
        found.append(f"{where}: values differ: torch {x.tolist()!r:.160}, got {y.tolist()!r:.160}")
    return found


def _parts(x: np.ndarray) -> tuple[np.ndarray, ...]:
    return (x.real, x.imag) if x.dtype.kind == "c" else (x,)


def check(real: Any, own: Any, case: Case) -> list[str]:
    """All that differs between real torch and our own, in all forms of a case."""
    found = []
    if case.function is None and function_of(real, case) is not None and function_of(own, case) is None:
        return [f"there is no {case.name}"]
    if (name := method_of(real, case)) and not hasattr(own.Tensor, name):
        return [f"there is no Tensor.{name}"]
    for form, dtype in forms_of(real, case):
        expected = run(real, case, form, dtype)
        if form in ("function", "method") and dtype == "float64" and "error" in expected and not case.raises:
            return [f"torch itself raises {expected['error']}: {expected['text']}"]
        got = run(own, case, form, dtype)
        found += [f"{form} {dtype}: {text}" for text in differences(case, expected, got, form, dtype)]
    return found
