"""``python -m tests.torch.distributions [module of cases] [part of a row's text]``: print what differs from real torch."""

from __future__ import annotations

import sys

from tests.torch.__main__ import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], package="tests.torch.distributions"))
