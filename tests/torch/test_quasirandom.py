"""torch.quasirandom: Sobol's points are PyTorch's (recorded), and SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from dynagraph import torch
from dynagraph.torch.quasirandom import SobolEngine

RECORDED = [  # PyTorch 2.13's, in units of 2**-30
    [214182640, 183537056, 804615872],
    [743252992, 763961856, 525950752],
    [913270144, 318118176, 846087744],
    [384199552, 898610560, 46297072],
]


@pytest.mark.parametrize("dimension", [1, 2, 33, 1111])
def test_points_are_scipys(dimension):
    expected = scipy.stats.qmc.Sobol(dimension, scramble=False, bits=30).random(16)
    engine = SobolEngine(dimension)
    found = [engine.draw(), engine.draw(3, dtype=torch.float64), engine.fast_forward(4).draw(8)]
    assert [points.dtype for points in found] == [torch.float32, torch.float64, torch.float32]
    drawn = np.concatenate([points.double().numpy() for points in found])
    np.testing.assert_array_equal(drawn, np.delete(expected, range(4, 8), 0))


def test_points_of_the_last_dimensions():
    points = SobolEngine(21201).fast_forward(6).draw()
    assert (points[0, [5000, 12345, 21200]].double() * 2**30).long().tolist() == [939524096, 402653184, 402653184]  # PyTorch's


def test_scrambled_points_are_pytorchs():
    with torch.random.torch_compatible():
        points = SobolEngine(3, scramble=True, seed=7).draw(4)
    assert (points.double() * 2**30).long().tolist() == RECORDED


def test_scrambled_points_fill_the_cube():
    points = SobolEngine(4, scramble=True).draw_base2(8).numpy()
    for column in points.T:  # one point in each of 256 intervals
        assert len(set((column * 256).astype(int))) == 256


def test_the_engine():
    engine = SobolEngine(2)
    first = engine.draw(5)
    assert engine.num_generated == 5 and engine.reset().draw(5).equal(first)
    out = torch.empty(0)
    assert engine.reset().draw(5, out=out) is out and out.equal(first)
    with pytest.raises(ValueError, match=r"^The balance properties of Sobol' points require n to be a power of 2\. 5 points"):
        engine.draw_base2(2)
    with pytest.raises(ValueError, match=r"^Supported range of dimensionality for SobolEngine is \[1, 21201\]$"):
        SobolEngine(21202)
    assert repr(SobolEngine(3, scramble=True, seed=1)) == "SobolEngine(dimension=3, scramble=True, seed=1)"
