"""Checks of gradients against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.autograd.functional import batched_gradients
from dynagraph.torch.core.engine import run_backward
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.func.batch import vmap
from dynagraph.torch.func.transforms import jvp


class GradcheckError(RuntimeError):
    """A gradient is wrong."""


_UNDEFINED = define("undefined_grad", lambda x: x[...], (lambda d, g: None,), ("",), backward="UndefinedGradBackward")
_SLOW = (
    "\nThe above quantities relating the numerical and analytical jacobians are computed \nin fast mode. See: "
    "https://github.com/pytorch/pytorch/issues/53876 for more background \nabout fast mode. Below, we recompute numerical and "
    "analytical jacobians in slow mode:\n\nNumerical:\n {}\nAnalytical:\n{}\n"
)


class _Check:
    """One check: a function, its inputs, and tolerances."""

    def __init__(self, func: Callable[..., Any], inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float):
        self.func, self.inputs, self.eps, self.atol, self.rtol, self.nondet_tol = func, inputs, eps, atol, rtol, nondet_tol
        self.wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        self.random = np.random.default_rng(0)

    def outputs(self) -> list[Tensor]:
        """The results that can be differentiated."""
        given = self.func(*self.inputs)
        several = [given] if isinstance(given, Tensor) else list(given)
        for x in several:
            if not isinstance(x, Tensor):
                raise ValueError(f"gradcheck expects functions of tensors, got a result of type {type(x).__name__}")
        return several

    def values(self, k: int) -> np.ndarray:
        return np.array(self.outputs()[k]._array)

    # -- Jacobians: (elements of the input, of the result); of complex results one for the real parts, one for the others --
    def numerical(self, x: Tensor, k: int) -> list[np.ndarray]:
        array = x._array
        is_complex = array.dtype.kind == "c"
        rows = []
        for place in np.ndindex(array.shape):
            row = self.along(array, place, self.eps, k)
            if is_complex:
                across = self.along(array, place, 1j * self.eps, k)
                rows.append([a + 1j * b for a, b in zip(row, across)])
            else:
                rows.append(row)
        count = self.values(k).size
        parts = 2 if self.values(k).dtype.kind == "c" else 1
        kind = np.complex128 if is_complex else np.float64
        return [np.array([row[p] for row in rows], kind).reshape(array.size, count) for p in range(parts)]

    def along(self, array: Any, place: Any, step: Any, k: int) -> list[np.ndarray]:
        before = array[place].copy()
        try:
            array[place] = before + step
            after = self.values(k)
            array[place] = before - step
            difference = (after - self.values(k)).reshape(-1) / (2 * self.eps)
        finally:
            array[place] = before
        return _parts(difference)

    def pulled(self, out: Tensor, weight: np.ndarray, create: bool = False) -> list[Tensor]:
        found = run_backward([out], [wrap(weight)], True, create, self.wanted, False)
        return [wrap(np.zeros_like(x._array)) if g is None else g for g, x in zip(found, self.wanted)]

    def analytical(self, out: Tensor) -> list[list[np.ndarray]]:
        """For each part of the result, for each input."""
        parts = (1, 1j) if out._array.dtype.kind == "c" else (1,)
        return [self.columns(out, unit) for unit in parts]

    def columns(self, out: Tensor, unit: Any) -> list[np.ndarray]:
        found = [np.zeros((x._array.size, out._array.size), x._array.dtype) for x in self.wanted]
        for k in range(out._array.size):
            weight = np.zeros(out._array.size, out._array.dtype)
            weight[k] = unit
            for matrix, g in zip(found, self.pulled(out, weight.reshape(out._array.shape))):
                matrix[:, k] = g._array.reshape(-1)
        return found

    def close(self, a: Any, b: Any) -> bool:
        return bool(np.allclose(a, b, self.rtol, self.atol, equal_nan=True))

    # -- the checks --
    def slow(self, outputs: list[Tensor]) -> None:
        for k, out in enumerate(outputs):
            if out._array.dtype.kind not in "fc":
                continue
            analytical = self.analytical(out) if out.requires_grad else None
            for j, x in enumerate(self.wanted):
                for p, numerical in enumerate(self.numerical(x, k)):
                    own = np.zeros_like(numerical) if analytical is None else analytical[p][j]
                    if not self.close(own, numerical):
                        raise GradcheckError(
                            self.considered(out, p)
                            + f"Jacobian mismatch for output {k} with respect to input {j},\n"
                            + f"numerical:{wrap(numerical)}\nanalytical:{wrap(own)}\n"
                        )

    def considered(self, out: Tensor, part: int) -> str:
        if out._array.dtype.kind != "c":
            return ""
        return f"While considering the {('real', 'imaginary')[part]} part of complex outputs only, "

    def fast(self, outputs: list[Tensor]) -> None:
        for k, out in enumerate(outputs):
            if out._array.dtype.kind not in "fc":
                continue
            for part, unit in enumerate((1, 1j) if out._array.dtype.kind == "c" else (1,)):
                v = self.random.standard_normal(out._array.shape)
                grads = self.pulled(out, (v * unit).astype(out._array.dtype)) if out.requires_grad else None
                for j, x in enumerate(self.wanted):
                    u = self.direction(x)
                    change = _parts(self.step(x, u, k))[part]
                    numerical = float((change * v).sum())
                    own = 0.0 if grads is None else float((grads[j]._array.conj() * u).real.sum())
                    scale = max(1.0, float(np.sqrt(v.size)) * float(np.sqrt(max(u.size, 1))))
                    if not abs(own - numerical) <= self.atol * scale + self.rtol * abs(numerical):
                        matrix = self.numerical(x, k)[part]
                        slow = np.zeros_like(matrix) if grads is None else self.analytical(out)[part][j]
                        raise GradcheckError(
                            self.considered(out, part)
                            + f"Jacobian mismatch for output {k} with respect to input {j},\n"
                            + f"numerical:{numerical}\nanalytical:{own}\n"
                            + _SLOW.format(wrap(matrix), wrap(slow))
                        )

    def direction(self, x: Tensor) -> np.ndarray:
        u = self.random.standard_normal(x._array.shape)
        if x._array.dtype.kind == "c":
            u = u + 1j * self.random.standard_normal(x._array.shape)
        return np.asarray(u / max(float(np.sqrt((abs(u) ** 2).sum())), 1e-30)).astype(x._array.dtype)

    def step(self, x: Tensor, u: np.ndarray, k: int) -> np.ndarray:
        array = x._array
        before = array.copy()
        try:
            array[...] = before + self.eps * u
            after = self.values(k)
            array[...] = before - self.eps * u
            return (after - self.values(k)) / (2 * self.eps)  # type: ignore[no-any-return]
        finally:
            array[...] = before

    def reentrant(self, outputs: list[Tensor]) -> None:
        for out in outputs:
            if not out.requires_grad:
                continue
            weight = self.random.standard_normal(out._array.shape).astype(out._array.dtype)
            for a, b in zip(self.pulled(out, weight), self.pulled(out, weight)):
                if a._array.size and float(abs(a._array - b._array).max()) > self.nondet_tol:
                    raise GradcheckError(
                        "Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                        "different values, although analytical gradient matches numerical gradient."
                        f"The tolerance for nondeterminism was {self.nondet_tol}.\n"
                    )

    def undefined(self, outputs: list[Tensor]) -> None:
        """Backward with results that no gradient comes to."""
        own = [x for x in outputs if x.requires_grad]
        choices = [{k} for k in range(len(own))] if len(own) > 1 else []
        for missing in [*choices, set(range(len(own)))]:
            ends = [apply(_UNDEFINED, x) if k in missing else x for k, x in enumerate(own)]
            try:
                run_backward(ends, [wrap(np.ones_like(x._array)) for x in ends], True, False, self.wanted, False)
            except RuntimeError as error:
                raise GradcheckError(
                    'Expected backward function to handle undefined output grads. Please look at "Notes about undefined output '
                    'gradients" in "tools/autograd/derivatives.yaml"'
                ) from error

    def batched(self, outputs: list[Tensor]) -> None:
        for out in outputs:
            if not out.requires_grad:
                continue
            weights = [self.random.standard_normal(out._array.shape).astype(out._array.dtype) for _ in range(2)]
            rows = [self.pulled(out, w) for w in weights]
            found = batched_gradients([out], self.wanted, [wrap(np.stack(weights))], False)
            for j, g in enumerate(found):
                expected = np.stack([row[j]._array for row in rows])
                if not self.close(np.zeros_like(expected) if g is None else g._array, expected):
                    raise GradcheckError(
                        "gradcheck or gradgradcheck failed while testing batched gradient computation. This could have been "
                        f"invoked in a number of ways. Got:\n{g}\nExpected:\n{wrap(expected)}"
                    )

    def forward(self, outputs: list[Tensor], batched: bool) -> None:
        """Tangents against finite differences."""
        primals = tuple(self.wanted)

        def call(*given: Tensor) -> tuple[Tensor, ...]:
            replaced = iter(given)
            full = [next(replaced) if isinstance(x, Tensor) and x.requires_grad else x for x in self.inputs]
            results = self.func(*full)
            return (results,) if isinstance(results, Tensor) else tuple(results)

        for j, x in enumerate(self.wanted):
            for _ in range(2):
                u = self.direction(x)
                tangents = tuple(wrap(u if k == j else np.zeros_like(other._array)) for k, other in enumerate(self.wanted))
                _, pushed = jvp(call, primals, tangents)
                for k, (own, out) in enumerate(zip(pushed, outputs)):
                    if out._array.dtype.kind not in "fc":
                        continue
                    numerical = self.step(x, u, k)
                    if not self.close(own._array, numerical):
                        raise GradcheckError(
                            f"Jacobian computed with forward mode mismatch for output {k} with respect to input {j},\n"
                            f"numerical:{wrap(numerical)}\nanalytical:{own.detach()}\n"
                        )
            if batched:
                self.forward_batched(call, primals, j)

    def forward_batched(self, call: Any, primals: tuple[Tensor, ...], j: int) -> None:
        rows = [self.direction(self.wanted[j]) for _ in range(2)]

        def push(u: Tensor) -> tuple[Tensor, ...]:
            tangents = tuple(u if k == j else wrap(np.zeros_like(x._array)) for k, x in enumerate(primals))
            return jvp(call, primals, tangents)[1]

        found = vmap(push)(wrap(np.stack(rows)))
        for k, got in enumerate(found):
            expected = np.stack([push(wrap(u))[k]._array for u in rows])
            if not self.close(got._array, expected):
                raise GradcheckError(
                    f"While computing batched gradients of tangents of output {k}: got\n{got}\nexpected:\n{wrap(expected)}"
                )


def _parts(array: np.ndarray) -> list[np.ndarray]:
    return [array.real, array.imag] if array.dtype.kind == "c" else [array]


def _inputs(given: Any) -> tuple[Any, ...]:
    inputs = (given,) if isinstance(given, Tensor) else tuple(given)
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )
    for k, x in enumerate(inputs):
        if not isinstance(x, Tensor) or not x.requires_grad:
            continue
        x.retain_grad()
        array = x._array
        if array.dtype not in (np.float64, np.complex128):
            warnings.warn(
                f"Input #{k} requires gradient and is not a double precision floating point or complex. This check will likely "
                "fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=4,
            )
        if any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape)):
            raise RuntimeError(
                f"The {k}th input has a dimension with stride 0. gradcheck only supports inputs that are non-overlapping to be "
                "able to compute the numerical gradients correctly. You should call .contiguous on the input before passing it "
                "to gradcheck."
            )
    return inputs


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
    check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None,
) -> bool:  # fmt: skip
    """Whether gradients by those inputs that require them are what finite differences of double precision say.

    GradcheckError where not, or False without `raise_exception`.  `fast_mode`: in one random direction, not by each element.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError("Expected at least one of check_forward_ad or check_backward_ad to be True")
    if check_batched_grad and not check_backward_ad:
        raise AssertionError("Setting check_batched_grad=True requires check_backward_ad to be True")
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError("Setting check_batched_forward_grad=True requires check_forward_ad to be True")
    try:
        check = _Check(func, _inputs(inputs), eps, atol, rtol, nondet_tol)
        outputs = check.outputs()
        with np.errstate(all="ignore"):
            if check_backward_ad:
                (check.fast if fast_mode else check.slow)(outputs)
                check.reentrant(outputs)
            if check_forward_ad:
                check.forward(outputs, check_batched_forward_grad)
            if check_backward_ad:
                if check_batched_grad:
                    check.batched(outputs)
                if check_undefined_grad:
                    check.undefined(outputs)
                if check_grad_dtypes:
                    _check_dtypes(check, outputs)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_dtypes(check: _Check, outputs: list[Tensor]) -> None:
    for out in outputs:
        if out.requires_grad:
            for g, x in zip(check.pulled(out, np.ones_like(out._array)), check.wanted):
                if g.dtype is not x.dtype:
                    raise GradcheckError(f"Gradient has dtype mismatch: got {g.dtype} for an input of {x.dtype}")


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0,
    check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True, fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """As `gradcheck`, of the function that gives the gradients: whether second derivatives are right."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError("Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True")
    own = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    if grad_outputs is None:
        weights = _random_weights(_several(func(*own)), gen_non_contig_grad_outputs)
    else:
        weights = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    count = len(weights)

    def gradients(*args: Any) -> tuple[Tensor, ...]:
        given, outer = args[:-count] if count else args, args[-count:] if count else ()
        outputs = [x for x in _several(func(*given)) if x.requires_grad]
        wanted = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
        found = run_backward(outputs, list(outer), True, True, wanted, False)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients, (*own, *weights), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes, check_batched_grad=check_batched_grad,
        fast_mode=fast_mode, check_forward_ad=check_fwd_over_rev, check_backward_ad=check_rev_over_rev, masked=masked,
    )  # fmt: skip


def _several(outputs: Any) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else [x for x in outputs if isinstance(x, Tensor)]


def _random_weights(outputs: Sequence[Tensor], with_gaps: bool) -> list[Tensor]:
    random = np.random.default_rng(0)
    found = []
    for x in outputs:
        if not x.requires_grad:
            continue
        shape, kind = x._array.shape, x._array.dtype
        values = random.standard_normal((*shape, 2)) + (1j * random.standard_normal((*shape, 2)) if kind.kind == "c" else 0)
        array = values.astype(kind)[..., 0]
        found.append(wrap(array if with_gaps else array.copy()).requires_grad_())
    return found


__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]
