"""Blur a photograph and find its edges: a 5x5 Gaussian and the Sobel operator in plain NumPy.

    python examples/sobel.py [--out sobel.png]

Reads scikit-learn's sample photograph of a Chinese temple; writes the grey photograph beside its edges.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

import dynagraph as dg

GAUSSIAN = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)


def grey(rgb):
    """ITU-R BT.601 luma of an image (height, width, 3) of bytes, as float32 from 0 to 1."""
    scaled = rgb.astype(np.float32) / 255
    return 0.299 * scaled[:, :, 0] + 0.587 * scaled[:, :, 1] + 0.114 * scaled[:, :, 2]


def blur(image):
    """A separable Gaussian; the result is 4 pixels narrower and lower."""
    a, b, c, d, e = GAUSSIAN
    rows = a * image[:-4] + b * image[1:-3] + c * image[2:-2] + d * image[3:-1] + e * image[4:]
    return a * rows[:, :-4] + b * rows[:, 1:-3] + c * rows[:, 2:-2] + d * rows[:, 3:-1] + e * rows[:, 4:]


def sobel(image):
    """The length of the gradient; the result is 2 pixels narrower and lower."""
    across = (
        (image[:-2, 2:] - image[:-2, :-2]) + 2 * (image[1:-1, 2:] - image[1:-1, :-2]) + (image[2:, 2:] - image[2:, :-2])
    )
    down = (
        (image[2:, :-2] - image[:-2, :-2]) + 2 * (image[2:, 1:-1] - image[:-2, 1:-1]) + (image[2:, 2:] - image[:-2, 2:])
    )
    return np.sqrt(across * across + down * down)


def edges(rgb):
    """Edges of a photograph, from 0 (none) to 1."""
    strength = sobel(blur(grey(rgb)))
    return np.minimum(strength / (0.6 * strength.max()), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="sobel.png")
    options = parser.parse_args()
    photograph = load_sample_image("china.jpg")
    compiled = dg.compile(edges, fullgraph=True)
    result = compiled(photograph)
    np.testing.assert_allclose(result, edges(photograph), rtol=1e-4, atol=1e-5)

    samples: dict[str, list[float]] = {"eager": [], "compiled": []}
    for _ in range(15):
        for name, function in (("eager", edges), ("compiled", compiled)):
            start = time.perf_counter()
            function(photograph)
            samples[name].append(time.perf_counter() - start)
    eager, ours = (statistics.median(s) * 1e3 for s in samples.values())
    print(
        f"{photograph.shape[1]}x{photograph.shape[0]} pixels: eager {eager:.2f} ms, compiled {ours:.2f} ms, {eager / ours:.1f}x"
    )
    height, width = result.shape
    left = grey(photograph)[3 : 3 + height, 3 : 3 + width]
    Image.fromarray((np.hstack([left, 1 - result]) * 255).astype(np.uint8)).save(options.out)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
