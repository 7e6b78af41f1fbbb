"""The sizes at which people run the programs of tests/programs: a maker of arguments for each, or why it is not measured.

A plain call takes between one and some hundred milliseconds, most of which is spent in array operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Union

import numpy as np

Maker = Callable[[np.random.Generator], tuple]


def grey(r: np.random.Generator, *shape: int) -> np.ndarray:
    return r.integers(0, 256, shape).astype(np.uint8)


def spd(r: np.random.Generator, n: int) -> np.ndarray:
    a = r.standard_normal((n, n))
    return a @ a.T / n + np.eye(n)


def labelled(r: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    x = r.standard_normal((n, d))
    return x, (x @ np.arange(1, d + 1) > 0).astype(float)


def with_gaps(r: np.random.Generator, *shape: int) -> np.ndarray:
    return np.where(r.random(shape) < 0.3, np.nan, r.standard_normal(shape))


def distances(r: np.random.Generator, n: int) -> np.ndarray:
    return np.where(r.random((n, n)) < 0.4, r.integers(1, 10, (n, n)).astype(float), np.inf)


PER_ELEMENT = "a Python loop over elements"
PER_RESULT = "a Python loop over elements, each one short dot product or window"
SCALARS = "a Python loop over numbers or arrays of a few elements"
FIXED = "the function itself fixes sizes that are small"

SIZES: dict[str, Union[Maker, str]] = {
    "chance.american_put": lambda r: (100.0 + 10 * r.random(), 100.0, 1.0, 0.05, 0.2, 500),
    "chance.annealing": lambda r: (int(r.integers(1000)), r.integers(0, 5000, (20_000, 2))),
    "chance.asian_option": FIXED,
    "chance.black_scholes": lambda r: (r.uniform(50, 150, 1_000_000), 100.0, 0.5, 0.03, 0.25),
    "chance.bootstrap": lambda r: (r.random(10_000), 100),
    "chance.drawdown_and_signals": lambda r: (np.abs(np.cumsum(r.standard_normal(500_000))) + 100,),
    "chance.estimate_pi": lambda r: (int(r.integers(1000)), 1_000_000),
    "chance.markov_stationary": lambda r: (r.random((1000, 1000)),),
    "chance.markov_walk": PER_ELEMENT,
    "chance.metropolis": SCALARS,
    "chance.pagerank": lambda r: ((r.random((1000, 1000)) < 0.01).astype(float), 0.85),
    "chance.portfolio": FIXED,
    "images.bilinear_resize": lambda r: (r.random((512, 512)), 768, 1024),
    "images.box_blur_integral": lambda r: (r.random((1000, 1000)),),
    "images.connected_components": lambda r: (r.integers(0, 2, (256, 256)),),
    "images.convolve_by_loops": PER_RESULT,
    "images.convolve_shifted": lambda r: (r.random((1000, 1000)), r.random((5, 5))),
    "images.floyd_steinberg": PER_ELEMENT,
    "images.game_of_life": lambda r: (r.integers(0, 2, (512, 512)), 20),
    "images.histogram_equalise": lambda r: (grey(r, 1024, 1024),),
    "images.histogram_equalise_by_add_at": lambda r: (grey(r, 1024, 1024),),
    "images.julia_real": lambda r: (r.uniform(-1.5, 1.5, (512, 512)), r.uniform(-1.5, 1.5, (512, 512)), -0.7, 0.27),
    "images.mandelbrot": lambda r: (400, 300, 30),
    "images.median_filter": lambda r: (r.random((256, 256)),),
    "images.morphology": lambda r: (r.integers(0, 2, (1024, 1024)).astype(bool),),
    "images.otsu": lambda r: (grey(r, 1024, 1024),),
    "images.rgb_to_hsv": lambda r: (r.random((512, 512, 3)),),
    "images.rule_30": lambda r: (30, 100_001),
    "images.sobel": lambda r: (grey(r, 1024, 1024),),
    "images.to_grey_and_yuv": lambda r: (grey(r, 512, 512, 3),),
    "learning.adam": lambda r: (r.standard_normal((512, 512)), r.standard_normal((512, 512))),
    "learning.gaussian_mixture": lambda r: (r.standard_normal(100_000),),
    "learning.group_by": lambda r: (r.integers(0, 4, 500_000), r.standard_normal(500_000)),
    "learning.hidden_markov_forward": SCALARS,
    "learning.kalman_1d": PER_ELEMENT,
    "learning.kalman_2d": SCALARS,
    "learning.kmeans": lambda r: (r.standard_normal((20_000, 2)), r.standard_normal((8, 2)), 5),
    "learning.kmeans_by_add_at": lambda r: (r.standard_normal((20_000, 2)), r.standard_normal((8, 2))),
    "learning.logistic_regression": lambda r: (*labelled(r, 10_000, 50), 0.1),
    "learning.masked_statistics": lambda r: (with_gaps(r, 2000, 200),),
    "learning.nearest_neighbours": lambda r: (r.standard_normal((1000, 2)), r.integers(0, 3, 1000), r.standard_normal((500, 2))),
    "learning.network_of_a_dict": lambda r: (r.standard_normal((256, 64)), r.standard_normal((256, 10)),
                                             {"w1": r.standard_normal((64, 128)) / 8, "w2": r.standard_normal((128, 10)) / 12}),
    "learning.network_of_layers": lambda r: (r.standard_normal((20_000, 20)), r.integers(0, 3, 20_000),
                                             r.standard_normal((20, 5)), r.standard_normal((5, 3))),
    "learning.perceptron": PER_ELEMENT,
    "learning.running_statistics": PER_ELEMENT,
    "learning.sinkhorn": lambda r: (r.random((1000, 1000)),),
    "learning.softmax_cross_entropy": lambda r: (r.standard_normal((4096, 256)), r.integers(0, 4, 4096)),
    "learning.viterbi": lambda r: (r.random((32, 32)), r.random((32, 16)), r.integers(0, 16, 12)),
    "learning.welford": lambda r: (r.standard_normal((100, 10_000)),),
    "linear.cholesky": PER_RESULT,
    "linear.conjugate_gradients": lambda r: (spd(r, 1000), r.standard_normal(1000)),
    "linear.gauss_seidel": PER_RESULT,
    "linear.gauss_with_pivoting": lambda r: (r.standard_normal((40, 40)), r.standard_normal(40)),
    "linear.gram_schmidt": lambda r: (r.standard_normal((2000, 20)),),
    "linear.householder": lambda r: (r.standard_normal((300, 20)),),
    "linear.jacobi": lambda r: (spd(r, 1000) + 40 * np.eye(1000), r.standard_normal(1000)),
    "linear.jacobi_rotations": lambda r: (spd(r, 12),),
    "linear.least_squares": lambda r: (r.standard_normal((100_000, 10)), r.standard_normal(100_000)),
    "linear.lu_in_place": lambda r: (spd(r, 100),),
    "linear.lu_with_permutation": lambda r: (r.standard_normal((100, 100)),),
    "linear.matrix_exponential": lambda r: (r.standard_normal((300, 300)) / 20,),
    "linear.matrix_power": lambda r: (r.integers(0, 5, (100, 100)), 100),
    "linear.pca": lambda r: (r.standard_normal((20_000, 50)) * np.linspace(1, 3, 50), 2),
    "linear.power_iteration": lambda r: (spd(r, 1000), r.standard_normal(1000)),
    "linear.sherman_morrison": lambda r: (np.linalg.inv(spd(r, 1000)), r.standard_normal(1000), r.standard_normal(1000)),
    "linear.thomas": PER_ELEMENT,
    "physics.double_pendulum": SCALARS,
    "physics.gray_scott": lambda r: (r.random((512, 512)), r.random((512, 512))),
    "physics.heat_1d": lambda r: (r.standard_normal(20_000), 0.1, 100),
    "physics.heat_2d_in_place": lambda r: (r.standard_normal((1000, 1000)),),
    "physics.ising": lambda r: (r.integers(0, 2, (256, 256)) * 2 - 1, r),
    "physics.laplace_jacobi": lambda r: (r.random((500, 500)), r.random((500, 500)), 1e-3),
    "physics.lorenz": SCALARS,
    "physics.n_body": lambda r: (r.standard_normal((300, 3)), r.standard_normal((300, 3)), r.random(300) + 0.1),
    "physics.particles_in_a_box": lambda r: (r.random((50_000, 2)), r.standard_normal((50_000, 2)) * 0.3),
    "physics.rk4": SCALARS,
    "physics.upwind_advection": lambda r: (r.random(200_000), r.random(200_000) * 0.5),
    "physics.wave_1d": lambda r: (r.standard_normal(50_000), 30),
    "puzzles.binary_search": PER_ELEMENT,
    "puzzles.bitonic_sort": lambda r: (r.standard_normal(4096),),
    "puzzles.bubble_sort": PER_ELEMENT,
    "puzzles.common_subsequence_by_where": PER_ELEMENT,
    "puzzles.counting_sort": PER_ELEMENT,
    "puzzles.dijkstra": lambda r: (r.integers(1, 9, (300, 300)).astype(float),),
    "puzzles.edit_distance": PER_ELEMENT,
    "puzzles.floyd_warshall": lambda r: (distances(r, 100),),
    "puzzles.knapsack": lambda r: (r.integers(1, 100, 100), r.integers(1, 200, 100), 10_000),
    "puzzles.knapsack_of_lists": lambda r: (r.integers(1, 100, 100).tolist(), r.integers(1, 200, 100).tolist(), 10_000),
    "puzzles.largest_subarray": PER_ELEMENT,
    "puzzles.longest_common_subsequence": PER_ELEMENT,
    "puzzles.matrix_chain": PER_ELEMENT,
    "puzzles.n_queens_board": "recursion over arrays of a few elements",
    "puzzles.odd_even_sort": lambda r: (r.integers(0, 50_000, 500),),
    "puzzles.prefix_sums": lambda r: (r.integers(-9, 9, 500_000),),
    "puzzles.run_length_encode": lambda r: (r.integers(0, 3, 500_000),),
    "puzzles.sets_and_ranks": lambda r: (r.integers(0, 20_000, 50_000), r.integers(0, 20_000, 30_000)),
    "puzzles.sieve": lambda r: (1_000_000,),
    "puzzles.transitive_closure": lambda r: (r.random((150, 150)) < 0.01,),
    "signals.bezier": lambda r: (r.standard_normal((4, 2)), 100_000),
    "signals.bisection": SCALARS,
    "signals.convex_hull": PER_ELEMENT,
    "signals.cross_correlation": lambda r: (r.random(5100), r.random(5000)),
    "signals.dft_by_cosines": lambda r: (r.standard_normal(600),),
    "signals.distance_matrices": lambda r: (r.standard_normal((1000, 16)), r.standard_normal((500, 16))),
    "signals.fft_by_hand": "a Python call for each element: it recurses to length 1",
    "signals.fft_low_pass": lambda r: (r.standard_normal(1 << 18), 2000),
    "signals.fft_peaks": lambda r: (r.standard_normal(1 << 17),),
    "signals.gradient_descent_with_line_search": SCALARS,
    "signals.haar_wavelet": lambda r: (r.standard_normal(1 << 19),),
    "signals.iir_filter": PER_ELEMENT,
    "signals.linear_interpolation": lambda r: (np.sort(r.random(1000)), r.standard_normal(1000), r.random(100_000)),
    "signals.natural_spline": lambda r: (np.linspace(0, 1, 300), r.standard_normal(300), r.random(100_000)),
    "signals.newton_method": SCALARS,
    "signals.newton_polynomial": lambda r: (np.linspace(-1, 1, 20), r.standard_normal(20), r.uniform(-1, 1, 200_000)),
    "signals.points_in_polygon": lambda r: (r.random((100_000, 2)), r.random((12, 2))),
    "signals.romberg": lambda r: (0.0, 1.0 + r.random(), 18),
    "signals.rotate": lambda r: (r.standard_normal((100_000, 3)), 0.3, np.array([0.0, 0.6, 0.8])),
    "whole.attention": lambda r: tuple(r.standard_normal((3, 8, 256, 64))),
    "whole.batchnorm": lambda r: (r.standard_normal((64, 100, 64)), r.standard_normal(64), r.standard_normal(64)),
    "whole.conv1": lambda r: (r.standard_normal(1_000_000), r.standard_normal(9)),
    "whole.conv_b": lambda r: (r.standard_normal((256, 8, 8, 32)), r.standard_normal((3, 3, 32, 32))),
    "whole.cov": lambda r: (r.standard_normal((20_000, 64)),),
    "whole.dist": lambda r: (r.standard_normal((1000, 3)), r.standard_normal((1000, 3))),
    "whole.hist_eq": lambda r: (r.integers(0, 16, (512, 512)),),
    "whole.kmeans": lambda r: (r.standard_normal((20_000, 3)), r.standard_normal((8, 3))),
    "whole.life": lambda r: (r.integers(0, 2, (512, 512)),),
    "whole.logsum": lambda r: (r.standard_normal((1000, 1000)),),
    "whole.lstm": lambda r: (r.standard_normal((128, 128)), r.standard_normal((128, 256)), r.standard_normal((128, 256)),
                             r.standard_normal((384, 1024)) / 20),
    "whole.mandel": lambda r: (r.standard_normal((2, 400, 400)),),
    "whole.markov": lambda r: (r.random((1000, 1000)) / 500, r.standard_normal(1000)),
    "whole.nbody": lambda r: (r.standard_normal((300, 3)), r.standard_normal((300, 3)), r.random(300)),
    "whole.normalize": lambda r: (r.standard_normal((1000, 64)),),
    "whole.poly": lambda r: (r.standard_normal(1_000_000), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
    "whole.stats": lambda r: (r.uniform(-1.5, 1.5, (500, 500)),),
}
