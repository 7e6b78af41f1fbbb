"""``python -m dynagraph.torch.run``: a script on several ranks, watched and started again, as ``torchrun`` does it.

    python -m dynagraph.torch.run --nproc-per-node 4 --max-restarts 3 train.py --epochs 10

`command.py` reads the command line; `launcher.py` runs attempts by MPI's mpiexec, or by `local.py` where there
is no MPI; `supervisor.py` stands beside each rank and tells
the launcher how it is; `rank.py` is the rank's own start; `report.py` prints what failed.
"""
