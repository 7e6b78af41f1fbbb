"""The launcher's command."""

from __future__ import annotations

import sys

from dynagraph.torch.run.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
