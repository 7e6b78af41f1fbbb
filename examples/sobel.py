"""Find the edges in what a camera sees that pans over a photograph: a 5x5 Gaussian and the Sobel operator in plain NumPy.

    python examples/sobel.py [--frames 200] [--eager] [--device cuda] [--checkpoint sobel.pt] [--out sobel.png]

The photograph is scikit-learn's, of a Chinese temple.  The picture shows the last frame beside its edges, and how strong these were
in each frame.  `--device cuda` computes on a GPU by CuPy's arrays.
"""

from __future__ import annotations

import argparse

import common
import numpy as np
from sklearn.datasets import load_sample_image

import dynagraph as dg
from dynagraph import torch  # saves the checkpoint

WIDTH = 400  # of a frame, in pixels
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


def frame(photograph, k: int):
    """What the camera sees at the k-th moment: it goes to and fro, two pixels each time."""
    room = photograph.shape[1] - WIDTH
    left = abs((2 * k + room) % (2 * room) - room)
    return photograph[:, left : left + WIDTH]


def draw(plt, shares: list[float], seen, found):
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    left.imshow(seen)
    middle.imshow(1 - found, cmap="gray")
    for axis in (left, middle):
        axis.axis("off")
    right.plot(shares)
    right.set(xlabel="frame", ylabel="mean strength of its edges")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    made = common.parser(__doc__, "sobel", turns=200, quick=4, unit="frames", noted="edges")
    options = common.parsed(made, arguments)
    photograph = load_sample_image("china.jpg")
    if options.device != "cpu":
        import cupy  # only `--device cuda` needs it

        photograph = cupy.asarray(photograph)
    fast = edges if options.eager else dg.compile(edges, fullgraph=True, mode="max")
    run = common.Run(options, torch)
    for k in run.turns():
        found = fast(frame(photograph, k))
        run.log(found.mean())

    last = frame(photograph, options.turns - 1)
    apart = float(abs(fast(last) - edges(last)).max())
    height, width = last.shape[:2]
    print(f"{options.turns} frames of {width}x{height} pixels, {run.speed:.0f} a second; "
          f"greatest difference to the plain function {apart:.1e}")  # fmt: skip
    seen, shown = (np.asarray(a.get() if options.device != "cpu" else a) for a in (last, fast(last)))
    common.picture(options, lambda plt: draw(plt, run.losses, seen, shown))
    ratio = common.compare(options, edges, fast, last)
    return argparse.Namespace(losses=run.losses, apart=apart, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
