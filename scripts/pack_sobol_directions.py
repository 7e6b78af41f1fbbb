"""Write dynagraph/torch/sobol_directions.npz: Joe and Kuo's direction numbers (new-joe-kuo-6.21201) out of SciPy.

`polynomials`: a primitive polynomial for each dimension, as the differences from one to the next.  `numbers`: the first direction
numbers of all dimensions as bits: number k (from 0) is odd and less than 2**(k+1), so that its k bits above the lowest are kept.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.stats


def main() -> None:
    with np.load(Path(scipy.stats.__file__).with_name("_sobol_direction_numbers.npz")) as given:
        polynomials, numbers = given["poly"], given["vinit"]
    bits: list[np.ndarray] = []
    for k in range(1, numbers.shape[1]):
        column = numbers[:, k][numbers[:, k] > 0] >> 1
        bits.append(((column[:, None] >> np.arange(k)) & 1).astype(np.uint8).ravel())
    np.savez_compressed(
        Path(__file__).parents[1] / "dynagraph/torch/sobol_directions.npz",
        polynomials=np.diff(polynomials, prepend=0).astype(np.int32), numbers=np.packbits(np.concatenate(bits)),
    )  # fmt: skip


if __name__ == "__main__":
    main()
