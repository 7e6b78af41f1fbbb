"""Write down what real torch's optimizers and schedulers do: ``python -m tests.torch.optim.record`` writes recorded*.npz."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.torch.optim.cases import OPTIMIZERS, SCHEDULERS, name_of, run, schedule
from tests.torch.optim.scenarios import id_of, last_of, outcome, recorded_scenarios
from tests.torch.optim.sparse_cases import SPARSE, train

FILE = Path(__file__).with_name("recorded.npz")
SPARSE_FILE = Path(__file__).with_name("recorded_sparse.npz")


def main() -> None:
    import torch

    found = {}
    for case in OPTIMIZERS:
        for k, param in enumerate(run(torch, case, "float64")[0]):
            found[f"{name_of(case)}|{k}"] = param
    for case in SCHEDULERS:
        found[name_of(case)] = schedule(torch, case)[0]
    for pair in recorded_scenarios():
        found[id_of(pair)] = last_of(outcome(torch, *pair))
    np.savez_compressed(FILE, **found)
    sparse = {f"{name_of(case)}|{k}": array for case in SPARSE for k, array in enumerate(train(torch, case)[0])}
    np.savez_compressed(SPARSE_FILE, **sparse)


if __name__ == "__main__":
    main()
