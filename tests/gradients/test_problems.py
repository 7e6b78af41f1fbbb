"""Problems from end to end, with checks of what comes out: fits that converge to known solutions, closed forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

import dynagraph as dg


def test_logistic_regression_converges_to_the_newton_solution() -> None:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(size=(200, 3)), np.ones(200)])
    y = (x @ [1.0, -2.0, 0.5, 0.3] + rng.logistic(size=200) > 0).astype(float)

    def loss(w: Any) -> Any:
        margin = x @ w
        return np.mean(np.logaddexp(0.0, margin) - y * margin) + 0.005 * np.sum(w**2)

    @dg.compile
    def step(w: Any, velocity: Any) -> Any:
        value, gradient = dg.value_and_grad(loss)(w)
        velocity *= 0.9
        velocity -= gradient
        w += velocity
        return value

    descended, velocity = np.zeros(4), np.zeros(4)
    values = [step(descended, velocity) for _ in range(400)]
    assert step.stats.compiles == 1 and not step.stats.breaks and values[-1] < values[0]

    newton, gradient, hessian = np.zeros(4), dg.grad(loss), dg.hessian(loss)
    for _ in range(8):
        newton = newton - np.linalg.solve(hessian(newton), gradient(newton))
    assert np.max(np.abs(gradient(newton))) < 1e-12
    np.testing.assert_allclose(descended, newton, atol=1e-6)


def test_the_marginal_likelihood_of_a_gaussian_process() -> None:
    rng = np.random.default_rng(1)
    x = np.sort(rng.uniform(-3, 3, 20))
    y = np.sin(x) + 0.1 * rng.normal(size=20)
    distances = (x[:, None] - x[None]) ** 2

    def kernel(theta: Any) -> Any:
        scale, length, noise = np.exp(theta)
        return scale * np.exp(-0.5 * distances / length**2) + noise * np.eye(20)

    def likelihood(theta: Any) -> Any:
        k = kernel(theta)
        factor = np.linalg.cholesky(k)
        return -0.5 * y @ np.linalg.solve(k, y) - np.sum(np.log(np.diagonal(factor))) - 10 * np.log(2 * np.pi)

    theta = np.array([0.2, -0.1, -2.0])
    value, gradient = dg.value_and_grad(likelihood)(theta)

    # Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, equation 5.9
    k, inverse = kernel(theta), np.linalg.inv(kernel(theta))
    _, length, noise = np.exp(theta)
    smooth = k - noise * np.eye(20)
    changes = [smooth, smooth * distances / length**2, noise * np.eye(20)]
    alpha = inverse @ y
    want = [0.5 * np.trace((np.outer(alpha, alpha) - inverse) @ change) for change in changes]
    np.testing.assert_allclose(gradient, want, rtol=1e-8)

    found = scipy.optimize.minimize(lambda t: tuple(-v for v in dg.value_and_grad(likelihood)(t)), theta, jac=True, method="BFGS")
    assert -found.fun > value + 1 and np.max(np.abs(dg.grad(likelihood)(found.x))) < 1e-3


def kalman(params: Any, observed: Any) -> Any:
    """The log-likelihood of observations of a constant velocity with noise."""
    a = np.array([[1.0, 0.1], [0.0, 1.0]])
    h = np.array([1.0, 0.0])
    noise, drift = np.exp(params["noise"]), np.exp(params["drift"])
    mean, cov = params["start"], np.eye(2)
    total = 0.0
    for y in observed:
        mean, cov = a @ mean, a @ cov @ a.T + drift * np.eye(2)
        variance = h @ cov @ h + noise
        residual = y - h @ mean
        total = total - 0.5 * (np.log(2 * np.pi * variance) + residual**2 / variance)
        gain = cov @ h / variance
        mean, cov = mean + gain * residual, cov - np.outer(gain, h @ cov)
    return total


def test_the_likelihood_of_a_kalman_filter() -> None:
    rng = np.random.default_rng(2)
    observed = 0.5 * np.arange(12) * 0.1 + 0.3 * rng.normal(size=12)
    params = {"noise": -1.0, "drift": -3.0, "start": np.array([0.1, 0.2])}
    dg.check_grads(dg.compile(lambda p: kalman(p, observed), backend="reference"), (params,), order=2, modes=("rev",))
    with dg.disable():
        plain = dg.grad(kalman)(params, observed)
    compiled = dg.grad(kalman)(params, observed)
    for name in params:
        np.testing.assert_allclose(compiled[name], plain[name], rtol=1e-10)

    # the same by the covariance of all observations at once
    def joint(start: Any) -> Any:
        return kalman({**params, "start": start}, observed)

    curvature = dg.hessian(joint)(params["start"])
    assert np.all(np.linalg.eigvalsh(curvature) <= 1e-9)  # a Gaussian's logarithm is concave in its mean
    np.testing.assert_allclose(curvature, dg.hessian(joint)(np.zeros(2)), atol=1e-9)


def rhs(params: Any, state: Any) -> Any:
    return np.tanh(state @ params["w1"] + params["b1"]) @ params["w2"]


def rk4(params: Any, state: Any, n: int = 10, step: float = 0.1) -> Any:
    for _ in range(n):
        k1 = rhs(params, state)
        k2 = rhs(params, state + step / 2 * k1)
        k3 = rhs(params, state + step / 2 * k2)
        k4 = rhs(params, state + step * k3)
        state = state + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state


def test_a_neural_ode_has_the_gradient_of_its_adjoint() -> None:
    rng = np.random.default_rng(3)
    params = {"w1": rng.normal(size=(2, 6)), "b1": rng.normal(size=6), "w2": 0.4 * rng.normal(size=(6, 2))}
    start, target = np.array([1.0, -0.5]), np.array([0.3, 0.8])

    def loss(params: Any, state: Any) -> Any:
        return np.sum((rk4(params, state) - target) ** 2)

    gradient, by_start = dg.grad(loss, (0, 1))(params, start)

    # the adjoint equation, integrated back in time (Chen et al., "Neural Ordinary Differential Equations", 2018)
    def backward(along: Any) -> Any:
        state, adjoint, _ = along
        _, pull = dg.vjp(rhs, params, state)
        by_params, by_state = pull(adjoint)
        return -rhs(params, state), by_state, by_params["b1"]

    n, step = 400, 1.0 / 400
    state = rk4(params, start, n, step)
    along = (state, 2 * (state - target), np.zeros(6))
    moved = lambda along, by, slope: tuple(a + by * s for a, s in zip(along, slope))  # noqa: E731
    with dg.disable():
        for _ in range(n // 8):
            k1 = backward(along)
            k2 = backward(moved(along, 4 * step, k1))
            k3 = backward(moved(along, 4 * step, k2))
            k4 = backward(moved(along, 8 * step, k3))
            along = moved(along, 8 * step / 6, tuple(a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4)))
    np.testing.assert_allclose(along[1], by_start, rtol=1e-3)
    np.testing.assert_allclose(along[2], gradient["b1"], rtol=1e-3, atol=1e-4)

    @dg.compile
    def train(params: Any) -> Any:
        value, g = dg.value_and_grad(loss)(params, start)
        return value, {k: params[k] - 0.05 * g[k] for k in params}

    values = []
    for _ in range(60):
        value, params = train(params)
        values.append(value)
    assert values[-1] < 0.05 * values[0] and train.stats.compiles == 1


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


@pytest.mark.parametrize("plainly", [False, True], ids=["compiled", "tape"])
def test_scipy_minimises_with_our_derivatives(plainly: bool) -> None:
    start = np.array([1.3, 0.7, 0.8, 1.9])
    gradient, hessian = dg.grad(rosenbrock), dg.hessian(rosenbrock)
    np.testing.assert_allclose(gradient(start), scipy.optimize.rosen_der(start))
    np.testing.assert_allclose(hessian(start), scipy.optimize.rosen_hess(start))
    with dg.stance("force_eager" if plainly else "default"):
        for method, options in (("BFGS", {}), ("trust-exact", {"hess": hessian}), ("Newton-CG", {"hess": hessian})):
            found = scipy.optimize.minimize(rosenbrock, start, jac=gradient, method=method, **options)
            assert found.success or found.fun < 1e-12
            np.testing.assert_allclose(found.x, np.ones(4), atol=1e-4)
        found = scipy.optimize.minimize(
            rosenbrock, start, jac=gradient, hessp=lambda x, p: dg.hvp(rosenbrock, (x,), (p,))[0], method="trust-ncg"
        )
        np.testing.assert_allclose(found.x, np.ones(4), atol=1e-4)


def test_variational_inference_finds_the_exact_posterior() -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(30, 2))
    y = x @ [0.7, -1.1] + 0.5 * rng.normal(size=30)
    precision = np.eye(2) + x.T @ x / 0.25
    mean = np.linalg.solve(precision, x.T @ y / 0.25)

    def bound(q: Any, noise: Any) -> Any:
        """The evidence lower bound, by samples that are functions of the parameters (Kingma and Welling, 2014)."""
        factor = np.tril(q["factor"], -1) + np.diag(np.exp(np.diagonal(q["factor"])))
        w = q["mean"] + noise @ factor.T
        fit = -0.5 * np.sum((y - w @ x.T) ** 2, axis=1) / 0.25 - 0.5 * np.sum(w**2, axis=1)
        return np.mean(fit) + np.sum(np.diagonal(q["factor"]))

    # antithetic, and whitened, so that the samples have the moments of the distribution
    noise = rng.normal(size=(100, 2))
    noise = np.concatenate([noise, -noise])
    noise = noise @ np.linalg.inv(np.linalg.cholesky(noise.T @ noise / len(noise))).T

    @dg.compile
    def step(q: Any, rate: Any) -> Any:
        g = dg.grad(bound)(q, noise)
        return {k: q[k] + rate * g[k] for k in q}

    q = {"mean": np.zeros(2), "factor": np.diag([-1.0, -1.0])}
    for _ in range(3000):
        q = step(q, 0.004)
    factor = np.tril(q["factor"], -1) + np.diag(np.exp(np.diagonal(q["factor"])))
    np.testing.assert_allclose(q["mean"], mean, atol=1e-4)
    np.testing.assert_allclose(factor @ factor.T, np.linalg.inv(precision), atol=1e-4)
    assert step.stats.compiles == 1 and not step.stats.breaks


def test_a_network_learns_a_differential_equation() -> None:
    """u'' = -u with u(0) = 0 and u'(0) = 1: the second derivatives by the input are in the loss."""
    rng = np.random.default_rng(5)
    params = {"w1": rng.normal(size=12), "b1": rng.normal(size=12), "w2": rng.normal(size=12) * 0.3}
    points = np.linspace(0.0, 2.0, 16)

    def u(params: Any, x: Any) -> Any:
        return np.tanh(x[:, None] * params["w1"] + params["b1"]) @ params["w2"]

    def loss(params: Any) -> Any:
        def slope(x: Any) -> Any:
            return dg.jvp(lambda x: u(params, x), (x,), (np.ones_like(x),))[1]

        value, (first, second) = u(params, points), dg.jvp(slope, (points,), (np.ones_like(points),))
        return np.mean((second + value) ** 2) + value[0] ** 2 + (first[0] - 1) ** 2

    @dg.compile
    def step(params: Any, m: Any, v: Any, t: Any) -> Any:
        value, g = dg.value_and_grad(loss)(params)
        for k in params:
            m[k] *= 0.9
            m[k] += 0.1 * g[k]
            v[k] *= 0.99
            v[k] += 0.01 * g[k] ** 2
            params[k] -= 0.02 * (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.99**t)) + 1e-8)
        return value

    m, v = ({k: np.zeros_like(p) for k, p in params.items()} for _ in range(2))
    values = [step(params, m, v, np.float64(t)) for t in range(1, 1501)]
    assert values[-1] < 1e-3 * values[0]
    np.testing.assert_allclose(u(params, points), np.sin(points), atol=0.03)
    assert step.stats.compiles == 1 and not step.stats.breaks


def test_a_network_of_dataclasses_learns_with_branches_on_data() -> None:
    """The function cannot be captured: it leaves its loop by what it has computed."""
    rng = np.random.default_rng(6)
    a = rng.normal(size=(5, 5)) * 0.3

    def fixed_point(b: Any) -> Any:
        x = np.zeros_like(b)
        for _ in range(100):
            new = np.tanh(a @ x + b)
            if np.max(np.abs(new - x)) < 1e-12:
                break
            x = new
        return x

    b = rng.normal(size=5)
    x = fixed_point(b)
    slope = np.diag(1 - x**2)
    want = np.linalg.solve(np.eye(5) - slope @ a, slope)  # the implicit function theorem
    np.testing.assert_allclose(dg.jacobian(fixed_point)(b), want, rtol=1e-7, atol=1e-9)
