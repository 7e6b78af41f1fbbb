"""One handler per normalised opcode; importing this package registers them all."""

from dynagraph.frontend.handlers import (  # noqa: F401
    containers,
    functions,
    generators,
    jumps,
    names,
    operators,
    patterns,
    raising,
)
