"""``python -m dynagraph``: the command of the same name."""

from dynagraph.tools.cli import main

if __name__ == "__main__":
    main(prog_name="dynagraph")
