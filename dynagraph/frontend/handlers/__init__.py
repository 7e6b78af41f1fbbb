"""One handler per normalised opcode; importing this package registers them all."""

from dynagraph.frontend.handlers import (  # noqa: F401
    containers,
    control,
    exceptions,
    functions,
    generators,
    names,
    operators,
    patterns,
)
