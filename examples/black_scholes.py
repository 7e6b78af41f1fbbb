"""Price a portfolio of a million European options day by day: the Black-Scholes formula in plain NumPy.

    python examples/black_scholes.py [--days 60] [--options 1000000] [--eager] [--device cuda] [--out black_scholes.png]

Each day the shares move at random, and all options are priced anew.  Source of the formula: F. Black and M. Scholes, The Pricing of
Options and Corporate Liabilities (1973); the normal distribution function by Abramowitz and Stegun 7.1.26 (absolute error below
1.5e-7).  `--device cuda` computes on a GPU by CuPy's arrays.
"""

from __future__ import annotations

import argparse

import common
import numpy as np

import dynagraph as dg
from dynagraph import torch  # saves the checkpoint

DAY = 1 / 365  # in years


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


class Portfolio:
    """n options on n shares, half of them calls, half puts.  Rate and volatility are per year."""

    def __init__(self, n: int, device: str) -> None:
        self.random = np.random.default_rng(0)
        self.rate, self.volatility = 0.03, 0.25
        self.spot, self.strike = self.random.uniform(50, 150, n), self.random.uniform(50, 150, n)
        self.years = self.random.uniform(0.5, 2, n)
        self.device = device

    def arguments(self) -> tuple:
        arrays = self.spot, self.strike, self.years
        if self.device != "cpu":
            import cupy  # only `--device cuda` needs it

            arrays = tuple(map(cupy.asarray, arrays))
        return *arrays, self.rate, self.volatility

    def next_day(self) -> None:
        """A step of geometric Brownian motion."""
        moved = self.volatility * np.sqrt(DAY) * self.random.standard_normal(len(self.spot))
        self.spot = self.spot * np.exp((self.rate - 0.5 * self.volatility**2) * DAY + moved)
        self.years = self.years - DAY

    def state_dict(self) -> dict:
        state = self.random.bit_generator.state["state"]
        return {"spot": self.spot, "years": self.years, "random": {name: str(number) for name, number in state.items()}}

    def load_state_dict(self, saved: dict) -> None:
        self.spot, self.years = saved["spot"], saved["years"]
        numbers = {name: int(number) for name, number in saved["random"].items()}
        self.random.bit_generator.state = {**self.random.bit_generator.state, "state": numbers}


def draw(plt, values: list[float], spot, strike, call):
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.plot(values)
    left.set(xlabel="day", ylabel="mean price of an option")
    right.plot(spot[:3000] / strike[:3000], call[:3000] / strike[:3000], ".", markersize=2)
    right.set(xlabel="share / strike", ylabel="call / strike", title="calls on the last day")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    made = common.parser(__doc__, "black_scholes", turns=60, quick=3, unit="days", noted="mean price")
    made.add_argument("--options", type=int, default=1_000_000, help="a million by default")
    options = common.parsed(made, arguments)
    portfolio = Portfolio(options.options, options.device)
    fast = black_scholes if options.eager else dg.compile(black_scholes, fullgraph=True, mode="max")
    run = common.Run(options, torch, portfolio=portfolio)
    for _ in run.turns():
        portfolio.next_day()
        given = portfolio.arguments()
        call, put = fast(*given)
        run.log((call[::2].sum() + put[1::2].sum()) / len(call))

    spot, strike, years, rate, _ = given
    parity = float(abs(call - put - (spot - strike * np.exp(-rate * years))).max())
    apart = max(float(abs(a - b).max()) for a, b in zip(black_scholes(*given), (call, put)))
    print(f"{options.turns} days, {options.options} options: {options.options * run.speed / 1e6:.0f} million a second; "
          f"greatest violation of put-call parity {parity:.1e}, greatest difference to the plain function {apart:.1e}")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, run.losses, portfolio.spot, portfolio.strike, fast(*given)[0]))
    ratio = common.compare(options, black_scholes, fast, *given)
    return argparse.Namespace(losses=run.losses, parity=parity, apart=apart, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
