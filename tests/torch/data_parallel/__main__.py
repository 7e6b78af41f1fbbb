"""``mpiexec -n 2 python -m tests.torch.data_parallel [CHECK ...]``: all checks, or those that are named."""

from tests.torch.data_parallel import ddp, sharded
from tests.torch.data_parallel.common import run

if __name__ == "__main__":
    run([*ddp.CHECKS, *sharded.CHECKS])
