"""One handler per normalised opcode; importing this package registers them all."""

from dynagraph.frontend.handlers import containers, control, functions, names, operators  # noqa: F401
