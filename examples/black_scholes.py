"""Price a million European options: the Black-Scholes formula in plain NumPy.

    python examples/black_scholes.py [--options 1000000]

Source of the formula: F. Black and M. Scholes, The Pricing of Options and Corporate Liabilities (1973); the normal
distribution function by Abramowitz and Stegun 7.1.26 (absolute error below 1.5e-7).
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

import dynagraph as dg


def normal_cdf(x):
    z = np.abs(x) * 0.7071067811865476
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = 1 - poly * np.exp(-z * z)
    return 0.5 * (1 + np.where(x < 0, -erf, erf))


def black_scholes(spot, strike, years, rate, volatility):
    """Prices of call and put.  spot, strike: in money; years to expiry; rate and volatility per year."""
    root = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / root
    d2 = d1 - root
    discounted = strike * np.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    return call, call - spot + discounted


def portfolio(n: int, seed: int = 0) -> tuple:
    rng = np.random.default_rng(seed)
    return rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2, n), 0.03, 0.25


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--options", type=int, default=1_000_000)
    n = parser.parse_args().options
    arguments = portfolio(n)
    compiled = dg.compile(black_scholes, fullgraph=True)
    for ours, numpys in zip(compiled(*arguments), black_scholes(*arguments)):
        np.testing.assert_allclose(ours, numpys, rtol=1e-9, atol=1e-9)
    spot, strike, years, rate, _ = arguments
    call, put = compiled(*arguments)
    parity = np.abs(call - put - (spot - strike * np.exp(-rate * years))).max()
    print(f"call[0] {call[0]:.4f}, put[0] {put[0]:.4f}, greatest violation of put-call parity {parity:.1e}")

    samples: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(9):
        for name, function in (("eager", black_scholes), ("compiled", compiled)):
            start = time.perf_counter()
            function(*arguments)
            samples[name].append(time.perf_counter() - start)
    eager, ours = (statistics.median(s) * 1e3 for s in samples.values())
    print(
        f"{n} options: eager {eager:.1f} ms, compiled {ours:.1f} ms, {eager / ours:.1f}x, {n / ours / 1e3:.0f} million a second"
    )


if __name__ == "__main__":
    main()
