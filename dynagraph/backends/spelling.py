"""Spell statements in the C family, one after the other; `CStyle` spells the expressions in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dynagraph.backends.cstyle import CStyle, Scope, is_wrapped
from dynagraph.ir.expr import Expr
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import Define, Store
from dynagraph.ir.statements import (
    Address,
    Assign,
    AxisKind,
    Barrier,
    Block,
    Break,
    Call,
    Code,
    Declare,
    For,
    If,
    Let,
    LoadPack,
    Move,
    Opaque,
    Plain,
    Powers,
    Safepoint,
    StorePack,
    Value,
    While,
    assigned,
    values,
)

NAMING = (Define, Let, Declare)


class Speller:
    """Statements of one function.  Those of one block share names for what they compute in common."""

    def __init__(self, c: CStyle):
        self.c, self.out = c, c.out

    def body(self, items: Sequence[Code], scope: Scope | None = None) -> None:
        """Statements of one block."""
        scope = Scope() if scope is None else scope
        changed = assigned(items)
        unset = {s.name for s in items if isinstance(s, NAMING)}
        for k, s in enumerate(items):
            if isinstance(s, Plain):
                before = items[k - 1] if k else None
                if not isinstance(before, Plain) or isinstance(before, NAMING):  # what depends on it is named after it
                    self.c.name_shared(_values(items[k:]), scope, unset | changed)
                if changed:  # what depends on a variable is named for one statement
                    self.c.name_shared(values(s), scope, unset)
                self._plain(s, scope)
                if isinstance(s, NAMING):
                    unset.discard(s.name)
            else:
                self._nested(s, scope)
            stale = assigned([s])
            if stale:
                scope.forget(stale)

    # -- one line each ----------------------------------------------------------------------------------------------
    def _plain(self, s: Code, scope: Scope) -> None:
        c = self.c
        if isinstance(s, Define):
            self.out.line(f"const {c.type(s.value.dtype)} {s.name} = {c.expr(s.value, scope)};")
        elif isinstance(s, Store):
            place = "" if s.place is None else f" + {c.expr(s.place, scope)}"
            target = c.element(s.buffer, c.integer(s.index) + place)
            self.out.line(c.store(s, target, c.stored(c.expr(s.value, scope), s.value.dtype), scope))
        elif isinstance(s, Let):
            self.out.line(f"const {c.index_type} {s.name} = {c.integer(s.value)};")
        elif isinstance(s, Assign):
            target = s.name if s.index is None else f"{s.name}[{c.integer(s.index)}]"
            self.out.line(f"{target} = {self.value(s.value, scope)};")
        elif isinstance(s, Declare):
            self._declare(s, scope)

    def _declare(self, s: Declare, scope: Scope) -> None:
        kind = self.c.index_type if s.dtype is None else self.c.number_type(s.dtype)
        if s.dtype is not None and (s.pack or s.as_stored):
            kind = self.c.memory_type(s.dtype) if s.pack is None else self.c.pack_type(s.dtype, s.pack)
        size = "" if s.size is None else f"[{self.c.integer(IntExpr.of(s.size))}]"
        value = " = {}" if s.is_zeroed else "" if s.value is None else f" = {self.value(s.value, scope)}"
        aligned = " __attribute__((aligned(64)))" if s.aligned else ""
        self.out.line(f"{'__shared__ ' if s.shared else ''}{kind} {s.name}{size}{aligned}{value};")

    def value(self, value: Value, scope: Scope) -> str:
        return self.c.integer(value) if isinstance(value, IntExpr) else self.c.expr(value, scope)

    # -- what has statements within -----------------------------------------------------------------------------------
    def _nested(self, s: Code, scope: Scope) -> None:
        if isinstance(s, For):
            self._for(s, scope)
        elif isinstance(s, Powers):
            within, further = (">=", "/=") if s.first >= s.last else ("<=", "*=")
            head = f"for (int {s.name} = {s.first}; {s.name} {within} {s.last}; {s.name} {further} 2)"
            self._unroll(s.kind, None)
            self._block(head, s.body, Scope())
        elif isinstance(s, While):
            self._while(s)
        elif isinstance(s, If):
            self._if(s, scope)
        elif isinstance(s, Block):
            self._block("", s.body, Scope(scope))
        elif isinstance(s, Call):
            self._call(s)
        elif isinstance(s, Move):
            source = self.c.element(s.buffer, self.c.integer(s.source))
            self.out.line(f"{s.name}[{self.c.integer(s.index)}] = {source};")
        elif isinstance(s, LoadPack):
            name = s.name if s.declared else f"const {self.c.pack_type(s.dtype, s.width)} {s.name}"
            load = f"dg_load_pack<{self.c.memory_type(s.dtype)}, {s.width}>"
            self.out.line(f"{name} = {load}({self._start(s)});")
        elif isinstance(s, StorePack):
            self.out.line(f"dg_store_pack({self._start(s)}, {s.name});")
        elif isinstance(s, Break):
            self.out.line("break;")
        elif isinstance(s, Safepoint):
            self.c.safepoint()
        elif isinstance(s, Opaque):
            self.out.line(f'__asm__("" : "+r"({s.name}));')
        else:
            assert isinstance(s, Barrier)
            self.out.line("__syncthreads();" if s.of is AxisKind.BLOCK else "__syncwarp();")

    def _start(self, s: LoadPack | StorePack) -> str:
        return f"{s.buffer} + ({self.c.integer(s.index)})"

    def _block(self, head: str, body: Sequence[Code], scope: Scope) -> None:
        self.out.open(head)
        self.body(body, scope)
        self.out.close()

    def _for(self, s: For, scope: Scope) -> None:
        outer = self.c.before_loop(s.name, [x for x in s.body if isinstance(x, (Define, Store))]) if s.hoist else None
        kind, c = _counter(s.kind, self.c), self.c
        self._unroll(s.kind, s.unroll)
        start, step = c.share(s)
        further = f"++{s.name}" if step == "1" else f"{s.name} += {step}"
        end = self.value(s.end, Scope())
        self._block(f"for ({kind} {s.name} = {start}; {s.name} < {end}; {further})", s.body, Scope(outer))

    def _while(self, s: While) -> None:
        test = "" if s.test is None else _bare(self.c.expr(s.test, Scope()))
        further = "" if s.further is None else f"{s.further.name} = {self.value(s.further.value, Scope())}"
        self._unroll(AxisKind.SERIAL, s.unroll)
        self._block(f"for (; {test}; {further})", s.body, Scope())

    def _unroll(self, kind: AxisKind, turns: int | None) -> None:
        turns = 0 if kind is AxisKind.UNROLLED else turns
        if turns is not None:
            self.out.line(self.c.unroll(turns))

    def _if(self, s: If, scope: Scope) -> None:
        (test,) = self.c.values([s.test], scope)
        self.out.open(f"if (__builtin_expect({test}, 0))" if s.is_rare else f"if ({_bare(test)})")
        self.body(s.then, Scope(scope))
        if s.otherwise:
            self.out.close(" else {")
            self.out.depth += 1
            self.body(s.otherwise, Scope(scope))
        self.out.close()

    def _call(self, s: Call) -> None:
        text = f"{s.function}({', '.join(map(self._argument, s.args))})"
        kind = self.c.index_type if s.dtype is None else self.c.number_type(s.dtype)
        self.out.line(f"{kind} {s.result} = {text};" if s.result else f"{text};")

    def _argument(self, arg: Value | Address) -> str:
        if not isinstance(arg, Address):
            return self.value(arg, Scope())
        at = arg.name if arg.index is None else self.c.element(arg.name, self.c.integer(arg.index))
        return f"&{at}" if arg.dtype is None else f"(const {self.c.memory_type(arg.dtype)} *)&{at}"


def _values(items: Sequence[Code]) -> Iterable[Expr]:
    """What the statements up to the next one with others within compute."""
    for s in items:
        if not isinstance(s, Plain):
            return
        yield from values(s)


def _bare(text: str) -> str:
    """A condition without parentheses around all of it."""
    return text[1:-1] if is_wrapped(text) else text


def _counter(kind: AxisKind, c: CStyle) -> str:
    """The type of a loop's variable."""
    return "int" if kind in (AxisKind.LANE, AxisKind.UNROLLED) else c.index_type
