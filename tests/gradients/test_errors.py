"""Every error of the transformations, by its text: the same compiled and on the tape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dynagraph as dg

pytestmark = [pytest.mark.usefixtures("way"), pytest.mark.sampled(3)]
X = np.array([0.3, -1.2, 2.5])
Y = np.array([1.5, 0.4, -0.7])


def total(x: Any, y: Any = 1.0) -> Any:
    return np.sum(x * y)


def several(x: Any) -> Any:
    return x, 2 * x


def scattered(x: Any) -> Any:
    y = x * 1.0
    np.multiply.at(y, [0, 0], x[:2])
    return np.sum(y)


def writing(x: Any) -> Any:
    x[0] = 1.0
    return np.sum(x)


def adding(x: Any) -> Any:
    x += 1.0
    return np.sum(x)


def into(x: Any) -> Any:
    return np.sum(np.exp(x, out=x))


ERRORS: dict[str, tuple[Any, str]] = {
    # what is differentiated
    "an integer": (lambda: dg.grad(total)(3), r"^grad of total: argument 0 is 3, and integers have no derivatives; pass a float"),
    "a bool": (lambda: dg.grad(total, 1)(X, True), r"^grad of total: argument 1 is True, and integers have no derivatives"),
    "an array of integers": (
        lambda: dg.value_and_grad(total)(np.arange(3)),
        r"^value_and_grad of total: argument 0 has dtype int64, which has no derivatives; pass argument 0\.astype\(np\.float64\)",
    ),
    "an integer in a tree": (
        lambda: dg.grad(lambda p: np.sum(p["w"][0]))({"w": (X, 2)}),
        r"^grad of .*<lambda>: argument 0\['w'\]\[1\] is 2, and integers have no derivatives",
    ),
    "a mask in a tree": (
        lambda: dg.grad(lambda p: np.sum(p[0]))([X, X > 0]),
        r"^grad of .*<lambda>: argument 0\[1\] has dtype bool, which has no derivatives",
    ),
    "a masked array": (
        lambda: dg.grad(total)(np.ma.array(X, mask=X > 0)),
        r"test_errors\.py:\d+: a gradient by a numpy\.ma\.MaskedArray is asked for; pass a plain array: np\.asarray\(x\)$",
    ),
    "a matrix": (lambda: dg.vjp(total, X.view(np.matrix)), r"a gradient by a numpy\.matrix is asked for; pass a plain array"),
    "other bytes": (
        lambda: dg.grad(total)(X.astype(">f8")),
        r"a gradient by an array of dtype >f8 is asked for; pass x\.astype\(np\.float64\)$",
    ),
    "long numbers": (lambda: dg.grad(total)(X.astype(np.longdouble)), r"a gradient by an array of dtype \w+ is asked for; pass"),
    "a long number": (lambda: dg.grad(total)(np.longdouble(1)), r"a gradient by an array of dtype \w+ is asked for; pass"),
    # argnums
    "argnums out of range": (
        lambda: dg.grad(total, 2)(X, Y),
        r"^grad of total: argnums=2, but the call has 2 positional arguments; pass what is differentiated by position$",
    ),
    "argnums below": (lambda: dg.grad(total, -2)(X), r"^grad of total: argnums=-2, but the call has 1 positional argument; pass"),
    "by keyword": (lambda: dg.grad(total)(x=X), r"^grad of total: argnums=0, but the call has 0 positional arguments"),
    "argnums twice": (lambda: dg.grad(total, (0, -2))(X, Y), r"^grad of total: argnums=\(0, -2\) names an argument twice$"),
    "no argnums": (lambda: dg.grad(total, ())(X, Y), r"^grad of total: argnums=\(\) names no argument$"),
    "a list of argnums": (lambda: dg.grad(total, [0, 1])(X, Y), r"^grad of total: argnums=\[0, 1\]: expected an integer or"),
    "argnums by name": (lambda: dg.jacobian(total, "x")(X, Y), r"^jacobian of total: argnums='x': expected an integer or a tuple"),
    "a bool of argnums": (lambda: dg.grad(total, True)(X, Y), r"^grad of total: argnums=True: expected an integer or a tuple"),
    # results
    "an array": (
        lambda: dg.grad(lambda x: x * 2)(X),
        r"must return a real number, got an array of shape \(3,\); sum it, or use dg\.jacobian or dg\.vjp$",
    ),
    "a tuple": (lambda: dg.grad(several)(X), r"^grad of several: the function must return a real number, got a tuple; for several"),
    "nothing": (lambda: dg.grad(lambda x: None)(X), r"the function must return a real number, got a NoneType; for several results"),
    "an integer result": (lambda: dg.grad(lambda x: np.argmax(x))(X), r"must return a real number, got int64; take its real part"),
    "a complex result": (lambda: dg.grad(lambda x: np.sum(x * 1j))(X), r"must return a real number, got complex128; take its real"),
    "no aux": (
        lambda: dg.grad(total, has_aux=True)(X),
        r"^grad of total: with has_aux=True the function must return \(value, aux\), got a float64$",
    ),
    "a jacobian of integers": (
        lambda: dg.jacobian(lambda x: {"n": np.argsort(x)})(X),
        r"the result\['n'\] is of dtype int64, which has no derivatives; cast it, or leave it out$",
    ),
    "a hessian of an array": (lambda: dg.hessian(lambda x: x**2)(X), r"^grad of .*: the function must return a real number, got"),
    # tangents and cotangents
    "another tangent": (
        lambda: dg.jvp(total, (X,), (X[:2],)),
        r"^jvp of total: the tangent \[0\] has shape \(2,\), and its primal has shape \(3,\)$",
    ),
    "too many tangents": (
        lambda: dg.jvp(total, (X, Y), (X,)),
        r"^jvp of total: the tangents must be nested as the primals are, \['array\[3\]', 'array\[3\]'\], got \['array\[3\]'\]$",
    ),
    "no tuples": (
        lambda: dg.jvp(total, X, X),
        r"^jvp of total: primals and tangents must be tuples of arguments, got a ndarray and a ndarray$",
    ),
    "a complex tangent": (
        lambda: dg.jvp(total, (X,), (X * 1j,)),
        r"^jvp of total: the tangent \[0\] is complex, and its primal is float64; take its real part$",
    ),
    "another cotangent": (
        lambda: dg.vjp(lambda x: {"y": x}, X)[1]({"y": np.ones(4)}),
        r"the cotangent \['y'\] has shape \(4,\), and its value has shape \(3,\)$",
    ),
    "another nesting": (
        lambda: dg.vjp(several, X)[1](X),
        r"^vjp of several: the cotangents must be nested as the values are, \('?array\[3\]'?, '?array\[3\]'?\), got array\[3\]$",
    ),
    "hvp of no tuple": (lambda: dg.hvp(total, X, X), r"^hvp of total: primals and tangents must be tuples of arguments, got a nd"),
    # on the way
    "no gradient of an op": (
        lambda: dg.grad(lambda x: np.sum(np.nextafter(x, 1.0)))(X),
        r"^test_errors\.py:\d+: nextafter: no gradient passes through nextafter; write the step with other functions",
    ),
    "no gradient of a scatter": (lambda: dg.grad(scattered)(X), r"no gradient passes through scatter with multiply"),
    "no gradient of a call": (
        lambda: dg.grad(lambda x: np.histogram(Y, weights=x)[0].sum())(X),
        r"^test_errors\.py:\d+: no gradient passes through np\.histogram",
    ),
    "no meaning": (
        lambda: dg.grad(lambda x: np.sum(np.unique(x)))(X),
        r"^test_errors\.py:\d+: no gradient passes through np\.unique: .*write the step with other functions, or take it",
    ),
    "a float": (lambda: dg.grad(lambda x: float(x[0]) * x[1])(X), r"^test_errors\.py:\d+: float\(\) of a value that is being diff"),
    "an argument is assigned to": (
        lambda: dg.grad(writing)(X.copy()),
        r"^test_errors\.py:\d+: an argument by which a gradient is taken is written; write to a copy of it: x = x\.copy\(\)$",
    ),
    "an argument changes in place": (lambda: dg.grad(adding)(X.copy()), r"^test_errors\.py:\d+: an argument by which a gradient"),
    "an argument is out": (lambda: dg.grad(into)(X.copy()), r"^test_errors\.py:\d+: an argument by which a gradient is taken is"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_say_who_what_and_how_to_mend_it(name: str) -> None:
    call, message = ERRORS[name]
    for _ in range(2):
        with pytest.raises(dg.GradientError, match=message):
            call()


@pytest.mark.parametrize("name", ERRORS)
def test_errors_within_compiled_functions_are_the_same(name: str) -> None:
    call, message = ERRORS[name]
    with pytest.raises(dg.GradientError, match=message):
        dg.compile(call)()


@pytest.mark.parametrize("make", [dg.grad, dg.value_and_grad, dg.jacobian, dg.hessian, dg.checkpoint, dg.custom_vjp])
def test_what_is_no_function_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match=r": expected a function, got 3 of type int"):
        make(3)


def test_other_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"jacobian: mode='forward': expected 'auto' or 'fwd' or 'rev'"):
        dg.jacobian(total, mode="forward")
    with pytest.raises(TypeError, match=r"jvp: expected a function, got"):
        dg.jvp(X, (X,), (X,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"vjp: expected a function, got"):
        dg.vjp(X, X)  # type: ignore[arg-type]


def test_errors_of_the_function_are_its_own() -> None:
    def f(x: Any) -> Any:
        return np.sum(x @ np.ones(4))

    with pytest.raises(ValueError, match="matmul: Input operand 1 has a mismatch"):
        dg.grad(f)(X)
    with pytest.raises(ZeroDivisionError):
        dg.grad(lambda x: np.sum(x) * (1 // 0))(X)
    with pytest.raises(KeyError, match="'w'"):
        dg.grad(lambda p: np.sum(p["w"]))({"x": X})
    with pytest.raises(TypeError, match=r"missing 1 required positional argument"):
        dg.grad(lambda x, y: np.sum(x))(X)


def test_two_functions_of_one_class_are_named_each(way: str) -> None:
    for ufunc in (np.nextafter, np.ldexp):
        with pytest.raises(dg.GradientError, match=rf"^grad of {ufunc.__name__}: argument 0 is 3"):
            dg.grad(ufunc)(3, 1)
