"""What frames of one code object have in common: its instructions, with the handlers of their opcodes, and its loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING

from dynagraph.frontend.bytecode.decode import Instruction, Program, Same, UndecodableCode, decode
from dynagraph.frontend.bytecode.liveness import loop_heads, start_of
from dynagraph.frontend.executor.breaks import Break

if TYPE_CHECKING:
    from dynagraph.frontend.executor.executor import Frame

Handler = Callable[["Frame", Instruction], None]
HANDLERS: dict[str, Handler] = {}


def handler(*ops: str) -> Callable[[Handler], Handler]:
    """Register the handler of normalised opcodes."""

    def register(function: Handler) -> Handler:
        for op in ops:
            HANDLERS[op] = function
        return function

    return register


def unknown(frame: Frame, i: Instruction) -> None:
    """Stands for the handler of an opcode that has none."""
    raise Break("UNKNOWN_OPCODE", None, i.op)


class Code:
    """A program that is to be run.  `handlers`: by instruction."""

    __slots__ = ("_heads", "handlers", "program")

    def __init__(self, program: Program):
        self.program = program
        self.handlers = tuple(HANDLERS.get(i.op, unknown) for i in program.instructions)
        self._heads: tuple[frozenset[int], frozenset[int]] | None = None

    @property
    def heads(self) -> tuple[frozenset[int], frozenset[int]]:
        """The heads of its loops, and where it starts."""
        if self._heads is None:
            self._heads = loop_heads(self.program), frozenset({start_of(self.program)})
        return self._heads


def code_of(code: CodeType) -> Code:
    """Raises Break where it cannot be decoded."""
    try:
        return _code_of(Same(code))
    except UndecodableCode as error:
        raise Break("UNKNOWN_OPCODE", None, str(error)) from None


@functools.lru_cache(maxsize=2048)
def _code_of(same: Same) -> Code:
    return Code(decode(same.code))


__all__ = ["HANDLERS", "Code", "Handler", "code_of", "handler"]
