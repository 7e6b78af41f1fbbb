"""Run a compiled function by joblib's processes: how sure is a fit?  The bootstrap says, by a thousand fits.

    python examples/joblib_bootstrap.py [--fits 1000] [--jobs 2] [--eager]

A decaying oscillation was measured with noise.  Each fit draws as many measurements anew, with replacement, and finds the four
parameters by 15 steps of the Gauss-Newton method with damping (Levenberg 1944, Marquardt 1963).  How far the fits are apart is how
sure one of them is.  The compiled fit, which is a closure, goes to the processes by pickle; each of them compiles it at its first
call, with kernels from the cache on disk.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from joblib import Parallel, delayed

import dynagraph as dg

TRUE = np.array([2.0, 0.4, 3.0, 0.5])  # height, decay, frequency, phase


def model(theta, t):
    return theta[0] * np.exp(-theta[1] * t) * np.cos(theta[2] * t + theta[3])


def slopes(theta, t):
    """The derivatives (N, 4) of the model by the parameters."""
    height, decay, frequency, phase = theta
    envelope, angle = np.exp(-decay * t), frequency * t + phase
    swing, turned = envelope * np.cos(angle), -height * envelope * np.sin(angle)
    return np.stack([swing, -height * t * swing, t * turned, turned], axis=1)


def fit_of(steps: int):
    """A function that fits the model to measurements y at times t, beginning near the truth."""

    def fit(t, y):
        theta = np.array([1.5, 0.3, 2.8, 0.3])
        for _ in range(steps):
            jacobian = slopes(theta, t)
            square = jacobian.T @ jacobian
            theta = theta + np.linalg.solve(square + 0.1 * np.diag(np.diagonal(square)), jacobian.T @ (y - model(theta, t)))
        return theta

    return fit


def measured(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    t = np.sort(random.uniform(0, 6, n))
    return t, model(TRUE, t) + 0.2 * random.standard_normal(n)


def fits(fit, t, y, seeds) -> np.ndarray:
    """What one process does: a fit for each seed."""
    found = []
    for seed in seeds:
        chosen = np.random.default_rng(seed).integers(len(t), size=len(t))
        found.append(fit(t[chosen], y[chosen]))
    return np.array(found)


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few fits")
    parser.add_argument("--eager", action="store_true", help="only as NumPy computes it")
    options = parser.parse_args(arguments)
    count = 40 if options.quick else options.fits

    t, y = measured()
    plain = fit_of(15)
    ways = {"NumPy": plain} if options.eager else {"NumPy": plain, "compiled": dg.compile(plain, mode="max")}
    found: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}
    with Parallel(n_jobs=options.jobs) as parallel:
        for name, fit in ways.items():
            parallel(delayed(fits)(fit, t, y, [k]) for k in range(2 * options.jobs))  # starts the processes; compiles
            begun = time.perf_counter()
            parts = parallel(delayed(fits)(fit, t, y, range(k, count, 2 * options.jobs)) for k in range(2 * options.jobs))
            found[name] = np.concatenate(parts)
            seconds[name] = time.perf_counter() - begun
    for name, values in found.items():
        np.testing.assert_allclose(values, found["NumPy"], rtol=1e-6, atol=1e-8)
        print(f"{name:9} {seconds[name]:.2f} s, {len(values) / seconds[name]:.0f} fits per second")
    for name, true, values in zip(("height", "decay", "frequency", "phase"), TRUE, found["NumPy"].T):
        print(f"{name:9} {values.mean():.3f} +- {values.std():.3f}, in truth {true}")
    ratio = seconds["NumPy"] / seconds["compiled"] if "compiled" in seconds else 1.0
    print(f"{count} fits by {options.jobs} processes: {ratio:.1f}x as fast")
    return argparse.Namespace(found=found, ratio=ratio)


if __name__ == "__main__":
    main()
