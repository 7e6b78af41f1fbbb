"""Print scalar expressions and statements as C or CUDA C."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.accumulation import computed_as
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr, walk
from dynagraph.ir.intexpr import Apply, Atom, IntExpr, Symbol
from dynagraph.ir.loops import Define, Store
from dynagraph.ir.statements import AxisKind, For, depends

WRAPPING = ("add", "sub", "mul")  # signed overflow is undefined in C and wraps in NumPy: done unsigned
# ... in 32 bits or more: C promotes narrower types to int, which a product of uint16 overflows
UNSIGNED = {d.name: f"uint{8 * max(d.itemsize, 4)}_t" for d in dtypes.ALL if d.is_integer}


def has_zero(value: Any) -> bool:
    """Whether a constant, or one of its parts, is 0.0 and not -0.0."""
    return any(part == 0 and math.copysign(1, part) > 0 for part in (value.real, value.imag)[: 1 + isinstance(value, complex)])


MOST_NESTED = 48  # operations within one another: what is deeper has a name


class Writer:
    """Lines of source with their indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self.depth + text if text else "")

    def open(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def close(self, tail: str = "") -> None:
        self.depth -= 1
        self.line("}" + tail)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


class Scope:
    """Names of expressions already computed in a block of statements, and in the blocks around it."""

    def __init__(self, outer: "Scope | None" = None):
        self.names: dict[Expr, str] = {}
        self.outer = outer

    def find(self, e: Expr) -> str | None:
        scope: Scope | None = self
        while scope is not None:
            if e in scope.names:
                return scope.names[e]
            scope = scope.outer
        return None

    def forget(self, changed: Set[str]) -> None:
        """Drop what depends on variables that have changed."""
        scope: Scope | None = self
        while scope is not None:
            scope.names = {e: name for e, name in scope.names.items() if not depends(e, changed)}
            scope = scope.outer


class CStyle:
    """Prints the statements of one kernel, as C; what another target spells otherwise is a method of its own."""

    index_type = "int64_t"
    bool_type = "_Bool"

    def __init__(self, writer: Writer):
        self.out = writer
        self.used_functions: set[str] = set()
        self._temps = 0

    # -- integers ---------------------------------------------------------------------------------------------------
    def integer(self, e: IntExpr) -> str:
        """An index or size."""
        if e.constant is not None:
            return str(e.constant)
        positive: list[str] = []
        negative: list[str] = []
        for monomial, coefficient in sorted(e.terms.items(), key=lambda t: (len(t[0]), [a.name for a in t[0]])):
            factors = [self._atom(a) for a in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            (positive if coefficient > 0 else negative).append(" * ".join(factors))
        text = " + ".join(positive) or "0"
        return text + "".join(f" - {term}" for term in negative)

    def operand(self, e: IntExpr) -> str:
        """An index or size within another expression."""
        text = self.integer(e)
        return text if text.isidentifier() or text.isdigit() or is_wrapped(text) else f"({text})"

    def _atom(self, atom: Atom) -> str:
        if isinstance(atom, Symbol):
            return atom.name
        left, right = self.operand(atom.left), self.operand(atom.right)
        if atom.function in ("min", "max"):
            return f"({left} {'<' if atom.function == 'min' else '>'} {right} ? {left} : {right})"
        return self._division(atom, left, right)

    def _division(self, atom: Apply, left: str, right: str) -> str:
        low, _ = atom.left.bounds()
        if low is not None and low >= 0:
            return f"({left} {'/' if atom.function == '//' else '%'} {right})"
        function = "floordiv" if atom.function == "//" else "remainder"
        self.used_functions.add(f"dg_{function}_i64")
        return f"dg_{function}_i64({left}, {right})"

    # -- expressions ------------------------------------------------------------------------------------------------
    def store(self, s: Store, target: str, value: str, scope: Scope) -> str:
        """The line that stores."""
        return f"{target} = {value};"

    def values(self, roots: Sequence[Expr], scope: Scope, later: Sequence[Store] = ()) -> list[str]:
        """The text of expressions, after lines that compute what they share with each other and with `later` stores."""
        self.name_shared([*roots, *(s.value for s in later)], scope)
        return [self.expr(r, scope) for r in roots]

    def name_shared(self, roots: Iterable[Expr], scope: Scope, unset: Set[str] = frozenset()) -> None:
        """Lines for what is worth a name, and depends on no variable that is `unset`."""
        roots = list(roots)
        if not roots or (len(roots) == 1 and not roots[0].args):
            return
        uses = _count_uses(roots)
        chosen = _loads_in_arms(roots)
        depths: dict[Expr, int] = {}
        for root in roots:
            for e in _walk_here(root):
                if e in depths:
                    continue
                depths[e] = depth = 1 + max((depths[a] for a in e.args if a in depths), default=-1)
                wanted = e.op == "choose" or e in chosen or (uses[e] > 1 and _worth_a_name(e)) or depth >= MOST_NESTED
                if wanted:
                    depths[e] = 0
                if wanted and scope.find(e) is None and not (unset and depends(e, unset)):
                    self._name(e, scope)

    def before_loop(self, name: str, items: Sequence[Define | Store]) -> Scope:
        """Lines for what a loop over the variable would compute anew in each turn, and the scope that has their names.

        gcc does so by itself, but leaves the choice after a comparison where it was, and such a loop is not vectorised.
        """
        scope = Scope()
        found = _invariants(Symbol(name), items)
        self.name_shared(found, scope)
        for e in found:
            if scope.find(e) is None:
                self._name(e, scope)
        return scope

    def _name(self, e: Expr, scope: Scope) -> None:
        name = f"t{self._temps}"
        self._temps += 1
        ctype = self.type(e.dtype)
        if e.op != "choose":
            self.out.line(f"const {ctype} {name} = {self.expr(e, scope)};")
        else:
            condition, value, otherwise = e.args
            self.out.line(f"{ctype} {name};")
            self.out.open(f"if ({self.expr(condition, scope)})")
            self._assign(name, value, scope)
            self.out.close(" else {")
            self.out.depth += 1
            self._assign(name, otherwise, scope)
            self.out.close()
        scope.names[e] = name

    def _assign(self, name: str, value: Expr, scope: Scope) -> None:
        inner = Scope(scope)
        (text,) = self.values([value], inner)
        self.out.line(f"{name} = {text};")

    def expr(self, e: Expr, scope: Scope) -> str:
        """The text of an expression, using names that the scope has."""
        name = scope.find(e)
        if name is not None:
            return name
        if e.op == "const":
            return self.literal(e.value, e.dtype)
        if e.op == "var":
            return str(e.value)
        if e.op == "index":
            return self.index_value(e.value, e.dtype)  # type: ignore[arg-type]
        if e.op == "position":
            return self.operand(e.value)  # type: ignore[arg-type]
        if e.op == "load":
            buffer: str
            index: IntExpr
            buffer, index = e.value  # type: ignore[misc]
            return self.loaded(self.element(buffer, self.integer(index)), e.dtype)
        args = [self.expr(a, scope) for a in e.args]
        if e.op == "gather":
            return self.loaded(self.element(str(e.value), args[0]), e.dtype)
        if e.op == "cast":
            return self.cast(args[0], e.args[0].dtype, e.dtype)
        if e.args[-1].dtype.is_half and e.op != "nextafter":
            return self._of_halves(e, args)
        return self.call(e, args)

    def element(self, buffer: str, index: str) -> str:
        """An element of a buffer, to be read or written."""
        return f"{buffer}[{index}]"

    def index_value(self, index: IntExpr, dtype: DType) -> str:
        """A loop variable or size as a value."""
        return f"({self.type(dtype)})({self.integer(index)})"

    def loaded(self, text: str, dtype: DType) -> str:
        """What stands in memory, as a value."""
        return self.function("load", dtype, [text]) if dtype.is_half else text

    def stored(self, text: str, dtype: DType) -> str:
        """A value as it stands in memory."""
        return self.function("store", dtype, [text]) if dtype.is_half else text

    def rounded(self, text: str, dtype: DType) -> str:
        """What was computed in the type of local values, as a value of the dtype."""
        return self.function("round", dtype, [text]) if dtype.is_half else text

    def _of_halves(self, e: Expr, args: list[str]) -> str:
        """As floats; what a float function makes of halves is rounded."""
        wide = replace(e, args=tuple(replace(a, dtype=computed_as(a.dtype), _hash=0) for a in e.args), _hash=0)
        function = FUNCTIONS[e.op]
        if function.chooses and e.dtype is dtypes.float16:
            args = args[::-1]  # of zeros with two signs NumPy takes the first of halves, the second of wider floats
        text = self.call(wide, args)
        return text if function.keeps_halves else self.rounded(text, e.dtype)

    def call(self, e: Expr, args: list[str]) -> str:
        if e.op not in FUNCTIONS:  # the prelude's alone, as next_maximum
            return self.function(e.op, e.args[-1].dtype, args)
        operand, function = e.args[0].dtype, FUNCTIONS[e.op]
        if e.op == "select":
            return f"({args[0]} ? {args[1]} : {args[2]})"
        if function.operator and function.result == "bool" and (e.op in ("eq", "ne") or not operand.is_complex):
            return f"({args[0]} {function.operator} {args[1]})"
        if e.op == "not":
            return f"(!{args[0]})"
        if e.op == "neg" and operand.is_inexact:
            return f"(-{args[0]})"
        if e.op == "isnan":
            return f"({args[0]} != {args[0]})" if len(args[0]) < 40 else self.function("isnan", operand, args)
        if e.op in WRAPPING and operand.is_integer:
            unsigned = UNSIGNED[operand.name]
            return f"(({operand.ctype})(({unsigned}){args[0]} {function.operator} ({unsigned}){args[1]}))"
        if e.op == "sub" and operand.is_inexact and e.args[0].op == "const" and has_zero(e.args[0].value):
            return self.less_from_zero(e.args[0].value, args[1], operand)
        by_parts = operand.is_complex and e.op in ("add", "sub")
        if e.op == "sub" and operand.is_float and e.args[0].op in ("mul", "var"):
            args = [self.rounded_product(args[0]), args[1]]
        if function.operator and (operand.is_float or by_parts or e.op in ("and", "or", "xor")):
            return f"({args[0]} {function.operator} {args[1]})"
        if function.builtin and operand.is_float:
            return self.builtin(function.builtin, operand, args)
        return self.function(e.op, e.args[-1].dtype, args)

    def rounded_product(self, text: str) -> str:
        """What may be a product, as the first operand of a difference: it is rounded first (arithmetic.h)."""
        return f"DG_ROUNDED({text})"

    def less_from_zero(self, constant: Any, x: str, dtype: DType) -> str:
        """A constant with a part of 0.0, less a number.

        gcc makes -x of 0.0 - x where x is never -0.0 (converted integers, absolute values), although 0.0 - 0.0 is 0.0.
        """
        if not dtype.is_complex:
            return f"({{ const {self.type(dtype)} x_ = {x}; {self._part_less(constant, 'x_', dtype)}; }})"
        real = self._part_less(constant.real, "__real__ x_", dtype.real)
        made = self.complex_literal(real, self._part_less(constant.imag, "__imag__ x_", dtype.real), dtype)
        return f"({{ const {self.type(dtype)} x_ = {x}; {made}; }})"

    def _part_less(self, value: float, x: str, dtype: DType) -> str:
        less = f"{self.real_literal(value, dtype)} - {x}"
        return f"{x} == 0 ? {self.real_literal(0.0, dtype)} : -({x})" if has_zero(value) else less

    def builtin(self, name: str, dtype: DType, args: Sequence[str]) -> str:
        """A call of a function of the compiler's, of floats or doubles."""
        return f"__builtin_{name}{'f' if dtype.itemsize == 4 else ''}({', '.join(args)})"

    def function(self, name: str, dtype: DType, args: Sequence[str]) -> str:
        """A call of the prelude."""
        full = f"dg_{name}_{dtype.suffix}"
        self.used_functions.add(full)
        return f"{full}({', '.join(args)})"

    def cast(self, text: str, source: DType, target: DType) -> str:
        if target.is_bool:
            return f"({text} != 0)"
        if target.is_half:
            direct = source is dtypes.float64 and target is dtypes.float16  # to bfloat16 by way of float32, as ml_dtypes has it
            return self.function("cast_f64", target, [text]) if direct else self.rounded(f"(float){text}", target)
        source = computed_as(source)
        if source.is_float and target.is_integer:
            self.used_functions.add(f"dg_cast_{source.suffix}_{target.suffix}")
            return f"dg_cast_{source.suffix}_{target.suffix}({text})"
        return f"(({self.memory_type(target)}){text})"

    def type(self, dtype: DType) -> str:
        """The type of a local value (memory holds bools as bytes)."""
        return self.bool_type if dtype.is_bool else self.number_type(dtype)

    def number_type(self, dtype: DType) -> str:
        """The type of a local value that is computed with."""
        return self.memory_type(computed_as(dtype))

    def memory_type(self, dtype: DType) -> str:
        """The type of an element in memory."""
        return dtype.ctype

    def literal(self, value: object, dtype: DType) -> str:
        if dtype.is_bool:
            return "1" if value else "0"
        if dtype.is_integer:
            number = int(value)  # type: ignore[call-overload]
            if number == -(2**63):
                return "(-9223372036854775807LL - 1)"
            suffix = "U" * (dtype.kind == "u" and dtype.itemsize >= 4) + "LL" * (dtype.itemsize == 8)
            return f"{number}{suffix}" if number >= 0 or dtype.itemsize == 8 else f"({number})"
        if isinstance(value, complex):
            return self.complex_literal(self.real_literal(value.real, dtype.real), self.real_literal(value.imag, dtype.real), dtype)
        return self.real_literal(float(value), dtype)  # type: ignore[arg-type]

    def complex_literal(self, real: str, imag: str, dtype: DType) -> str:
        return f"__builtin_complex({real}, {imag})"

    def real_literal(self, value: float, dtype: DType) -> str:
        """The shortest decimal that reads back as the same value."""
        suffix = "f" if dtype.itemsize <= 4 else ""
        if math.isnan(value) or math.isinf(value):
            text = self.not_finite("nan" if math.isnan(value) else "inf", suffix)
            return f"(-{text})" if math.copysign(1.0, value) < 0 else text
        text = str(np.float32(value)) if suffix else repr(value)
        if "." not in text and "e" not in text:
            text += ".0"
        return f"({text}{suffix})" if text.startswith("-") else text + suffix

    def not_finite(self, name: str, suffix: str) -> str:
        """NaN or infinity; the suffix is f for floats."""
        argument = '""' if name == "nan" else ""
        return f"__builtin_{name}{suffix}({argument})"

    # -- loops ------------------------------------------------------------------------------------------------------
    def unroll(self, turns: int) -> str:
        """Have the compiler write out a loop's turns, so many at a time (0: all)."""
        return f"#pragma GCC unroll {turns or 65534}"

    def share(self, s: For) -> tuple[str, str]:
        """Where the part of a loop's turns that is this thread's begins, and its step."""
        return "lo" if s.kind is AxisKind.PARALLEL else self.integer(s.start), self.integer(IntExpr.of(s.step))

    def pack_type(self, dtype: DType, width: int) -> str:
        """Neighbours in memory that one access moves."""
        return f"dg_pack<{self.memory_type(dtype)}, {width}>"

    def safepoint(self) -> None:
        """Leave where signals wait."""
        self.out.line("if (dg_stops(stop))")
        self.out.line("    return;")


def is_wrapped(text: str) -> bool:
    """Whether parentheses stand around all of it."""
    depth = 0
    for k, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return k > 0 and k == len(text) - 1
    return False


def _invariants(symbol: Symbol, items: Sequence[Define | Store]) -> list[Expr]:
    """The largest expressions of a loop's statements, of one operation at least, that are the same in each of its turns."""
    set_within = {i.name for i in items if isinstance(i, Define)}
    written = {i.buffer for i in items if isinstance(i, Store)}
    roots = [i.value for i in items] + [i.place for i in items if isinstance(i, Store) and i.place is not None]
    moving: set[Expr] = set()

    def moves(e: Expr) -> bool:
        if e.op == "var":
            return e.value in set_within
        if e.op == "index":
            return symbol in e.value.symbols()  # type: ignore[attr-defined]
        if e.op == "load":
            buffer: str
            place: IntExpr
            buffer, place = e.value  # type: ignore[misc]
            return buffer in written or symbol in place.symbols()
        return (e.op == "gather" and e.value in written) or any(a in moving for a in e.args)

    for root in roots:
        moving.update(e for e in root.walk() if e not in moving and moves(e))
    found: dict[Expr, None] = {}
    for root in roots:
        for e in _walk_here(root):
            if e in moving or e is root:
                parts = (e,) if e not in moving else e.args[:1] if e.op == "choose" else e.args
                found.update(dict.fromkeys(part for part in parts if part.args and part not in moving))
    return list(found)


def _worth_a_name(e: Expr) -> bool:
    return e.op not in ("const", "var", "index", "position")


def _walk_here(root: Expr) -> list[Expr]:
    """Subexpressions, operands first, without what stands only inside the arms of a `choose`."""
    return walk(root, lambda e: e.args[:1] if e.op == "choose" else e.args)


def _loads_in_arms(roots: Iterable[Expr]) -> set[Expr]:
    """What is loaded in the arms of selects.  It is loaded in any case, before them: gcc 12 makes wrong code of a load that only
    one arm makes (a masked one) where the condition comes from memory in strides."""
    found: set[Expr] = set()
    arms = {arm for root in roots for e in _walk_here(root) if e.op == "select" for arm in e.args[1:]}
    for arm in arms:
        found |= {e for e in _walk_here(arm) if e.op in ("load", "gather")}
    return found


def _count_uses(roots: Iterable[Expr]) -> Counter[Expr]:
    uses: Counter[Expr] = Counter()
    seen: set[Expr] = set()
    for root in roots:
        uses[root] += 1
        for e in _walk_here(root):
            if e not in seen:
                seen.add(e)
                for arg in e.args[:1] if e.op == "choose" else e.args:
                    uses[arg] += 1
    return uses
