"""Run compiled functions on Dask's arrays: blocks of a large array, on all workers of a cluster.

    python examples/dask_arrays.py [--pixels 6000] [--workers 2] [--threads] [--eager]

An image too large for one computation is smoothed and its edges are found block by block: `map_overlap` hands each block with the
rows and columns around it to one compiled function, `map_blocks` the result to another, and `apply_gufunc` a compiled function of
rows to whatever is left.  Workers get the function by pickle, and find its program in the kernel cache that they share.
"""

from __future__ import annotations

import argparse
import time

import dask
import dask.array as da
import numpy as np
from dask.distributed import Client, LocalCluster

import dynagraph as dg


def edges(image):
    """The length of the gradient of an image that was smoothed 3x3; 0 at the rim."""
    a, b, c = image[:-2], image[1:-1], image[2:]
    rows = 0.25 * a + 0.5 * b + 0.25 * c
    smooth = 0.25 * rows[:, :-2] + 0.5 * rows[:, 1:-1] + 0.25 * rows[:, 2:]
    across, down = smooth[1:-1, 2:] - smooth[1:-1, :-2], smooth[2:, 1:-1] - smooth[:-2, 1:-1]
    found = np.zeros_like(image)
    found[2:-2, 2:-2] = np.sqrt(across * across + down * down)
    return found


def contrast(block):
    """More of what is faint."""
    return np.tanh(3 * np.log1p(4 * block))


def spread(rows):
    """The standard deviation of rows (..., N) by their mean."""
    mean = rows.mean(axis=-1)
    return np.sqrt(((rows - mean[..., None]) ** 2).mean(axis=-1)) / (mean + 1e-6)


def image(pixels: int, block: int) -> da.Array:
    """Rings, made block by block."""

    def piece(place):
        (top, bottom), (left, right) = place[0]["array-location"]
        y, x = np.mgrid[top:bottom, left:right].astype(np.float32) / np.float32(pixels)
        return np.sin(80 * ((x - 0.4) ** 2 + (y - 0.6) ** 2)) + 0.1 * np.sin(500 * x * y)

    blank = da.zeros((pixels, pixels), chunks=block, dtype=np.float32)
    return da.map_blocks(lambda _, block_info=None: piece(block_info), blank, dtype=np.float32)


def pipeline(source: da.Array, functions: tuple) -> da.Array:
    """For each row of the image how much its edges vary."""
    find, sharpen, vary = functions
    found = da.map_overlap(find, source, depth=3, boundary="reflect", dtype=np.float32)
    sharp = da.map_blocks(sharpen, found, dtype=np.float32)
    return da.apply_gufunc(vary, "(n)->()", sharp.rechunk({1: -1}), output_dtypes=np.float32)


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pixels", type=int, default=6000, help="of each side")
    parser.add_argument("--block", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", action="store_true", help="threads of this process instead of a cluster of processes")
    parser.add_argument("--quick", action="store_true", help="a small image")
    parser.add_argument("--eager", action="store_true", help="only as NumPy computes it")
    options = parser.parse_args(arguments)
    if options.quick:
        options.pixels, options.block = 600, 200

    plain = (edges, contrast, spread)
    ways = {"NumPy": plain} if options.eager else {"NumPy": plain, "compiled": tuple(dg.compile(f, mode="max") for f in plain)}
    found: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}

    def compute() -> None:
        source = image(options.pixels, options.block).persist()
        for name, functions in ways.items():
            pipeline(source, functions).compute()  # compiles, in each worker
            begun = time.perf_counter()
            found[name] = pipeline(source, functions).compute()
            seconds[name] = time.perf_counter() - begun

    if options.threads:
        with dask.config.set(scheduler="threads", num_workers=options.workers):
            compute()
    else:
        with LocalCluster(n_workers=options.workers, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
            compute()
    for name, values in found.items():
        np.testing.assert_allclose(values, found["NumPy"], rtol=1e-3, atol=1e-5)
        print(f"{name:9} {seconds[name]:.2f} s, mean {values.mean():.4f}")
    ratio = seconds["NumPy"] / seconds["compiled"] if "compiled" in seconds else 1.0
    print(f"{options.pixels}x{options.pixels} pixels in blocks of {options.block}: {ratio:.1f}x as fast, Dask's own work included")
    return argparse.Namespace(found=found, ratio=ratio)


if __name__ == "__main__":
    main()
