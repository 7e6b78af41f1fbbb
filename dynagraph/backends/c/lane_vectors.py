"""Spells what is done lane by lane: a statement for each vector, of the C compiler's vector types.

The lanes of a bool are a mask: -1 or 0 in ints as wide as a vector of the strip has room for.  What has no operator of vectors is
computed for each lane as it is elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dynagraph.backends.cstyle import WRAPPING, CStyle, Scope, has_zero
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import FUNCTIONS, Expr, var
from dynagraph.ir.regions import CHECKED, CheckedLanes, LaneType, LoadLanes, SetLanes, StoreLanes

I64, BOOL = dtypes.int64, dtypes.bool_
VECTOR = 32  # bytes of a mask
EXACT = {"exact_add": "add", "exact_sub": "sub", "exact_mul": "mul"}
COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
MASK_OF_SIZE = {8: "i64", 4: "i32", 2: "i16", 1: "i8"}
MASKED = {(8, 4): "pd256, double, long long", (4, 8): "ps256, float, int", (4, 4): "ps, float, int"}  # by bytes, and lanes
SIGNED = {"i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t"}


def parts_of(name: str, kind: LaneType) -> list[str]:
    """The vectors of a variable that has lanes."""
    return [f"{name}_{k}" for k in range(kind.parts)]


class LaneVectors:
    """Of the variables of one region.  `used`: the vector types, as `DG_DEFINE_LANES` declares them."""

    def __init__(self, style: CStyle, variables: Mapping[str, LaneType], used: dict[str, None]):
        self.c, self.variables, self.used = style, variables, used

    # -- types ------------------------------------------------------------------------------------------------------------------
    def type(self, dtype: DType, part: int) -> str:
        """The vector type of a dtype; of bools, that of masks."""
        return self._mask(part) if dtype.is_bool else self._declared(dtype.suffix, dtype.ctype, dtype.itemsize, part)

    def _mask(self, part: int) -> str:
        name = MASK_OF_SIZE[VECTOR // part]
        return self._declared(name, SIGNED[name], VECTOR // part, part)

    def _ints(self, size: int, part: int) -> str:
        name = MASK_OF_SIZE[size]
        return self._declared(name, SIGNED[name], size, part)

    def _declared(self, suffix: str, ctype: str, size: int, part: int) -> str:
        ints = MASK_OF_SIZE[size]
        self.used[f"DG_DEFINE_LANES({ctype}, {suffix}, {ints}, {SIGNED[ints]}, {part})"] = None
        masked = MASKED.get((size, part))
        given = f"{ctype}, {suffix}, {part}"
        self.used[f"DG_DEFINE_MASKED_LANES({given}, {masked})" if masked else f"DG_DEFINE_MASKED_LANES_BY_ONE({given})"] = None
        return f"dg_{suffix}x{part}"

    def _function(self, name: str, dtype: DType, part: int) -> str:
        return f"dg_{name}_{self.type(dtype, part).removeprefix('dg_')}"

    def declarations(self) -> list[str]:
        by_type: dict[str, list[str]] = {}
        for name, kind in self.variables.items():
            by_type.setdefault(self.type(kind.dtype, kind.part), []).extend(parts_of(name, kind))
        return [f"{ctype} {', '.join(names[k : k + 12])};" for ctype, names in by_type.items() for k in range(0, len(names), 12)]

    # -- statements -------------------------------------------------------------------------------------------------------------
    def lines(self, i: SetLanes | LoadLanes | StoreLanes | CheckedLanes, place: str, step: str) -> list[str]:
        """`place`: of the first lane's element; `step`: the bytes between two."""
        made: list[str] = []
        for k in range(i.lanes.parts):
            self.k, self.part = k, i.lanes.part
            if isinstance(i, SetLanes):
                made.append(f"{i.name}_{k} = {self.text(i.value)};")
            elif isinstance(i, CheckedLanes):
                made += self._checked(i)
            else:
                made.append(self._memory(i, place + (f" + {k * self.part} * {step}" if k else ""), step))
        return made

    def _memory(self, i: LoadLanes | StoreLanes, at: str, step: str) -> str:
        dtype, given = i.place.dtype, [at]
        stored = dtypes.uint8 if dtype.is_bool else dtype
        name = "strided_" * (i.step is not None)
        if i.step is not None:
            given.append(step)
        if i.mask is not None:
            name = "masked_" + name
            given.append(self._as_wide(self.text(i.mask), VECTOR // self.part, stored.itemsize))
        if isinstance(i, LoadLanes):
            loaded = f"{self._function(f'load_{name}lanes', stored, self.part)}({', '.join(given)})"
            if dtype.is_bool:
                loaded = self._as_wide(f"({self._ints(1, self.part)})({loaded} != 0)", 1, VECTOR // self.part)
            return f"{i.name}_{self.k} = {loaded};"
        value = self.text(i.value)
        if dtype.is_bool:
            value = f"__builtin_convertvector(-({value}), {self.type(stored, self.part)})"
        return f"{self._function(f'store_{name}lanes', stored, self.part)}({', '.join([*given, value])});"

    def _checked(self, i: CheckedLanes) -> list[str]:
        failed, kind = f"{i.failed.value}_{self.k}", self.type(i.lanes.dtype, self.part)
        mask = None if i.mask is None else self.text(i.mask)
        only = "" if mask is None else f" & {mask}"
        if i.function in ("int_add", "int_sub"):
            sign, first = ("+", "(a_ ^ r_)") if i.function == "int_add" else ("-", "(a_ ^ b_)")
            second = "(b_ ^ r_)" if i.function == "int_add" else "(a_ ^ r_)"
            unsigned = self.type(dtypes.uint64, self.part)
            test = self._mask_of(f"({first} & {second}) < 0", 8)
            a, b = (f"const {kind} {x}_ = {self.text(e)};" for x, e in zip("ab", i.args))
            computed = f"const {kind} r_ = ({kind})(({unsigned})a_ {sign} ({unsigned})b_);"
            return [f"{{ {a} {b} {computed} {failed} |= {test}{only}; {i.name}_{self.k} = r_; }}"]
        if i.function == "int_mul":
            return [self._product(i, kind, failed, only)]
        if i.function == "float_div":
            a, b = (f"const {kind} {x}_ = {self.text(e)};" for x, e in zip("ab", i.args))
            return [f"{{ {a} {b} {failed} |= {self._mask_of('b_ == 0', 8)}{only}; {i.name}_{self.k} = a_ / b_; }}"]
        return [self._checked_one_by_one(i, failed, mask)]

    def _product(self, i: CheckedLanes, kind: str, failed: str, only: str) -> str:
        """A product of ints: fails, too, where factors are so large that it would have to be looked at."""
        unsigned, (x, y) = self.type(dtypes.uint64, self.part), i.args
        a, b = (f"const {kind} {name}_ = {self.text(e)};" for name, e in zip("ab", i.args))
        numbers = [(name, abs(int(e.value))) for name, e in (("b_", x), ("a_", y)) if e.op == "const" and e.value]  # type: ignore[call-overload]
        if numbers:
            (other, factor), *_ = numbers
            most = (2**63 - 1) // factor
            test = f"{other} > {most}LL | {other} < -{most}LL"
        else:
            test = f"((({unsigned})a_ + {2**31}ULL | ({unsigned})b_ + {2**31}ULL) >> 32) != 0"
        computed = f"{i.name}_{self.k} = ({kind})(({unsigned})a_ * ({unsigned})b_);"
        return f"{{ {a} {b} {failed} |= {self._mask_of(test, 8)}{only}; {computed} }}"

    def _checked_one_by_one(self, i: CheckedLanes, failed: str, mask: str | None) -> str:
        name, given = f"{i.name}_{self.k}", [a for a in i.args if a.op != "name"]
        lines = [f"const {self.type(a.dtype, self.part)} a{n}_ = {self.text(a)};" for n, a in enumerate(given)]
        lines.append(f"{self.type(i.lanes.dtype, self.part)} r_ = {{0}};")
        args = [self._lane(f"a{n}_", a.dtype) for n, a in enumerate(given)]
        result = self.c.type(i.lanes.dtype)
        if i.function == "math":
            call = f"const {result} s_ = dg_math_{i.args[0].value}({', '.join(args)}); const int e_ = !__builtin_isfinite(s_);"
        else:
            call = f"{result} s_ = 0; const int e_ = dg_{CHECKED[i.function].support}({', '.join([*args, '&s_'])});"
        only = "" if mask is None else "if (m_[l_]) "
        lines += [] if mask is None else [f"const {self._mask(self.part)} m_ = {mask};"]
        lines.append(f"for (int l_ = 0; l_ < {self.part}; l_++) {only}{{ {call} r_[l_] = s_; {failed}[l_] |= -e_; }}")
        return f"{{ {' '.join(lines)} {name} = r_; }}"

    # -- expressions ------------------------------------------------------------------------------------------------------------
    def text(self, e: Expr) -> str:
        """One vector of an expression: `k`."""
        if e.op == "counting":
            first, by = (self.c.expr(a, Scope()) for a in e.args)
            return f"{self._function('counting', I64, self.part)}({first} + {self.k * self.part} * {by}, {by})"
        if e.op == "var" and e.value in self.variables:
            return f"{e.value}_{self.k}"
        if not self._has_lanes(e):
            text = self.c.expr(e, Scope())
            return f"{self._function('in_all', e.dtype, self.part)}({f'-({text})' if e.dtype.is_bool else text})"
        return self._call(e)

    def _has_lanes(self, e: Expr) -> bool:
        return any(p.op == "counting" or (p.op == "var" and p.value in self.variables) for p in e.walk())

    def _call(self, e: Expr) -> str:
        op, operand = EXACT.get(e.op, e.op), e.args[-1].dtype
        if op == "cast":
            return self._cast(e)
        if op == "select":
            mask, x, y = map(self.text, e.args)
            if e.dtype.is_bool:
                return f"(({x} & {mask}) | ({y} & ~{mask}))"
            wide = self._as_wide(mask, VECTOR // self.part, e.dtype.itemsize)
            return f"{self._function('blend', e.dtype, self.part)}({wide}, {x}, {y})"
        if op in COMPARED and not operand.is_bool:
            x, y = map(self.text, e.args)
            return self._mask_of(f"{x} {FUNCTIONS[op].operator} {y}", operand.itemsize)
        if op in ("and", "or", "xor"):
            return f"({self.text(e.args[0])} {FUNCTIONS[op].operator} {self.text(e.args[1])})"
        if op == "not" and operand.is_bool:
            return f"(~{self.text(e.args[0])})"
        if op in WRAPPING and operand.is_integer:
            kind, unsigned = self.type(e.dtype, self.part), self._unsigned(e.dtype)
            x, y = (f"({unsigned}){self.text(a)}" for a in e.args)
            return f"(({kind})({x} {FUNCTIONS[op].operator} {y}))"
        less_from_zero = op == "sub" and e.args[0].op == "const" and has_zero(e.args[0].value)
        if operand.is_float and op in ("add", "sub", "mul", "div") and not less_from_zero:
            return f"({self.text(e.args[0])} {FUNCTIONS[op].operator} {self.text(e.args[1])})"
        if operand.is_float and op == "neg":
            return f"(-{self.text(e.args[0])})"
        if operand.is_float and op == "abs":
            return f"{self._function('abs', operand, self.part)}({self.text(e.args[0])})"
        if op == "numpy_pow" and e.dtype is dtypes.float64 and _number(e.args[1]) == 2 and 8 * self.part == VECTOR:
            kind = self.type(e.dtype, self.part)
            self.used[f"DG_DEFINE_SQUARES({self.part})"] = None
            return f"{kind.replace('dg_', 'dg_squares_')}({self.text(e.args[0])})"
        return self._one_by_one(replace(e, op=op, _hash=0))

    def _unsigned(self, dtype: DType) -> str:
        return self.type(dtypes.BY_NAME[f"uint{8 * dtype.itemsize}"], self.part)

    def _cast(self, e: Expr) -> str:
        (x,) = e.args
        if x.dtype.is_bool:
            text = self.text(x)
            return text if e.dtype.is_bool else f"__builtin_convertvector(-({text}), {self.type(e.dtype, self.part)})"
        if e.dtype.is_bool:
            return self._mask_of(f"{self.text(x)} != 0", x.dtype.itemsize)
        if x.dtype.is_float and e.dtype.is_integer:
            return self._one_by_one(e)
        return f"__builtin_convertvector({self.text(x)}, {self.type(e.dtype, self.part)})"

    def _mask_of(self, comparison: str, size: int) -> str:
        """A comparison of vectors, which is as wide as its operands are."""
        return self._as_wide(f"({self._ints(size, self.part)})({comparison})", size, VECTOR // self.part)

    def _as_wide(self, mask: str, size: int, wanted: int) -> str:
        return f"({mask})" if size == wanted else f"__builtin_convertvector({mask}, {self._ints(wanted, self.part)})"

    def _lane(self, name: str, dtype: DType) -> str:
        return f"({name}[l_] != 0)" if dtype.is_bool else f"{name}[l_]"

    def _one_by_one(self, e: Expr) -> str:
        kind = self.type(e.dtype, self.part)
        lines = [f"const {self.type(a.dtype, self.part)} a{n}_ = {self.text(a)};" for n, a in enumerate(e.args) if a.op != "const"]
        names = {f"a{n}_": a for n, a in enumerate(e.args) if a.op != "const"}
        args = tuple(a if a.op == "const" else var(self._lane(f"a{n}_", a.dtype), a.dtype) for n, a in enumerate(e.args))
        assert names
        value = self.c.expr(Expr(e.op, args, e.dtype, e.value), Scope())
        value = f"-({value})" if e.dtype.is_bool else value
        return f"({{ {' '.join(lines)} {kind} r_; for (int l_ = 0; l_ < {self.part}; l_++) r_[l_] = {value}; r_; }})"


def _number(e: Expr) -> object:
    """The value of a constant, as it may be cast."""
    return _number(e.args[0]) if e.op == "cast" else e.value if e.op == "const" else None
