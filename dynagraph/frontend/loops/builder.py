"""The loop compiler: runs bytecode on typed native values, and builds a region.

Each place in the bytecode is compiled once for each combination of types that its live values have there (basic block versioning:
Chevalier-Boisvert and Feeley, 2015).  A variable that is a float before the first turn and an np.float64 after it gives the first
turn a version of its own; so does what is unbound, None, or an int or float by data.  Types are thus known everywhere, and exits
know how to make Python objects of variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType
from typing import Any

from dynagraph.driver import deadline
from dynagraph.frontend.bytecode.decode import JUMPS, Instruction, Program, decode
from dynagraph.frontend.bytecode.liveness import computed_in_loops, live_names_of, sees_frame
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import Raised
from dynagraph.frontend.executor.executor import Executor, Function
from dynagraph.frontend.executor.executor import Frame as CapturedFrame
from dynagraph.frontend.loops import left, unions
from dynagraph.frontend.loops.operations import meaning_of
from dynagraph.frontend.loops.operators import NotNative, refuse_iterators
from dynagraph.frontend.loops.plain_cells import plain_cells
from dynagraph.frontend.loops.types import INT, NOTHING, NULL, SMALL_INT, Bound, Int, Items, Known, Null, Type, Value
from dynagraph.ir import regions
from dynagraph.ir.dtypes import DType, bool_, int64
from dynagraph.ir.expr import Expr, const, var
from dynagraph.ir.regions import OWNED, Block, Branch, Checked, Exit, Hold, Interruptible, Jump, Leave, Region, Require, Set

EFFECTS = (regions.Store, regions.Changed, regions.SetLength)
FIELD = "="  # begins the names of variables that stand for attributes and dict items: locals of the captured function's frame
MAX_VERSIONS = 16  # of one place, in one turn of loops that are written out
MAX_VERSIONS_OF_OBJECTS = 64  # of one in a loop through a list of objects, which is written out
MAX_BLOCKS = 600
MAX_DEPTH = 6  # of calls that are inlined
Handler = Callable[["Builder", Instruction], None]
HANDLERS: dict[str, Handler] = {}


def handler(*ops: str) -> Callable[[Handler], Handler]:
    """Register the handler of normalised opcodes."""

    def register(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(ops, function))
        return function

    return register


class TooMany(Exception):
    """The region would become too large.  `mixed`: the variables that are Python's floats or NumPy's, by code and name."""

    def __init__(self, text: str, mixed: frozenset[tuple[int, str]]):
        super().__init__(text)
        self.mixed = mixed


class Restart(Exception):
    """The types of items are known now: the loop is compiled again, when this attempt has come to all that it can."""

    def __init__(self, found: list[tuple[Any, Type]]):
        self.found = found


def live_at(program: Program, index: int) -> frozenset[str]:
    return live_names_of(program)[index]


@dataclass(eq=False, repr=False)
class Frame:
    """One call: the captured function's from a loop's head on, or one that is inlined."""

    program: Program
    function: Function
    names: CapturedFrame  # looks up globals and cells
    ip: int = 0
    stack: list[Value] = field(default_factory=list)
    locals: dict[str, Value] = field(default_factory=dict)
    whole: bool = False  # a comprehension's, a getter's: it has no effects, and where it cannot go on Python does it as a whole
    base: int = 0  # of a generator's: from there on the caller's stack is what its consumer holds
    consumer: Any = None
    plain: frozenset[str] = frozenset()  # cells of its own that are variables like others

    def copy(self) -> "Frame":
        copied = Frame(self.program, self.function, self.names, self.ip, list(self.stack), dict(self.locals), self.whole)
        copied.base, copied.consumer, copied.plain = self.base, self.consumer, self.plain
        return copied

    def at_rest(self) -> "Frame":
        """Where it stands, without its values: programs must not keep the arguments of the call that they were made for."""
        function = replace(self.function, defaults=(), kwdefaults={}, closure=(), fields={})
        stack, locals = [_nothing_of(v) for v in self.stack], {name: _nothing_of(v) for name, v in self.locals.items()}
        return Frame(self.program, function, None, self.ip, stack, locals, plain=self.plain)  # type: ignore[arg-type]

    def live(self) -> dict[str, Value]:
        live = live_at(self.program, self.ip)
        return {name: self.locals[name] for name in sorted(n for n in self.locals if n in live or n[0] == FIELD)}

    def fields(self) -> dict[str, Value]:
        """What attributes and dict items hold that are variables of the region."""
        return {name: value for name, value in self.locals.items() if name[0] == FIELD}


@dataclass(eq=False, repr=False)
class Way:
    """How an exit goes on: the frames, innermost last, where each stands before its next instruction.

    `again`: the innermost frame's instruction is a loop's head or one that cannot stand alone: the rest is resumed from there,
    rather than the instruction be done by itself.  `raises`: it has raised what the object on the top of the stack raises.
    """

    frames: list[Frame]
    again: bool = False
    returned: Value | None = None
    reason: str = ""
    raises: bool = False
    fields: dict[str, Value] = field(default_factory=dict)

    def at_rest(self) -> "Way":
        frames, returned = [f.at_rest() for f in self.frames], self.returned and _nothing_of(self.returned)
        return replace(self, frames=frames, returned=returned, fields={})


def _nothing_of(value: Value) -> Value:
    return EMPTY_PLACE if isinstance(value.type, Null) else NO_VALUE


@dataclass(eq=False, repr=False)
class Version:
    """A place of the bytecode for one combination of types."""

    block: Block
    frames: list[Frame]


class Builder:
    """Builds a region from a frame at a loop's head."""

    def __init__(self, ex: Executor, frames: list[Frame], name: str):
        self.ex = ex
        self.region = Region(name)
        self.versions: dict[tuple, Version] = {}
        self.per_place: dict[tuple, int] = {}
        self.waiting: list[Version] = []
        self.exits: list[Way] = []  # by number
        self.frames: list[Frame] = []
        self.block: Block | None = None  # None: the one before has ended
        self.before: list[Frame] = []  # the state before the current instruction
        self.exit: Exit | None = None  # of the current instruction, once one is needed
        self.refusals: dict[str, int] = {}  # why instructions are left to Python, by line
        self.n_temporaries = 0
        self.leaders: dict[int, frozenset[int]] = {}
        self.heads: dict[int, dict[int, frozenset[str]]] = {}
        self.stored: dict[tuple[str, Type], Value] = {}
        self.sites: Any = {}  # what is known of the types of lists' items
        self.mixed: frozenset[tuple[int, str]] = frozenset()  # variables that are Python's floats or NumPy's, by code and name
        self.on_parameter: Callable[[Any], Value] | None = None
        self.on_outside: Callable[[Any], Value] | None = None
        self.on_recursion: Callable[[Builder, Function, Program, dict[str, Value]], Value] | None = None
        self.recursives: Any = None  # functions that call themselves
        self.on_refusal: Callable[[Builder, Instruction, str], bool] | None = None  # whether it has had Python do an instruction
        self.n_calls_out = 0
        self.may_stay: set[Any] = set()  # lists that were given, which Python may keep
        self.on_generator: Callable[[Any, str], Expr] | None = None  # the bits of a generator, by a method of its
        self.on_text: Callable[[Any], Value] | None = None  # a string of the code's, as one that is given
        self.carries = True  # what turns leave for what follows a loop has a tag
        self.seen = left.Seen()
        self.choices: list[left.Choice] = []  # blocks from which control goes on by what turns have left
        self.fields: Any = None  # attributes and dict items that are variables
        entry = Block(0)
        self.region.blocks.append(entry)
        self.block = entry
        self.frames = frames

    # -- the work list ----------------------------------------------------------------------------------------------------
    def run(self) -> Region:
        self.end(Jump(self.edge()))
        found: list[tuple[Any, Type]] = []
        while self.waiting or self.choices:
            deadline.check()
            try:
                if self.waiting:
                    self._interpret(self.waiting.pop())
                elif not left.choose(self):
                    break
            except Restart as restart:
                found += restart.found
                if not self.sites.widens:
                    break
            except TooMany:
                if not found:
                    raise
                break
        if found:
            raise Restart(found)
        left.finish(self)
        return self.region

    def _interpret(self, version: Version) -> None:
        self.block = version.block
        self.frames = [f.copy() for f in version.frames]
        first = True
        while self.block is not None:
            frame = self.frames[-1]
            if not first and frame.ip in self._leaders(frame.program):
                self.end(Jump(self.edge()))
                return
            first = False
            instruction = frame.program.instructions[frame.ip]
            self.block.line = self.block.line or instruction.line
            self.before, self.exit = [f.copy() for f in self.frames], None
            try:
                self._step(frame, instruction)
            except NotNative as refusal:
                if self._parted():
                    return
                if not self._called_out(instruction, str(refusal)):
                    self._leave_to_python(str(refusal), instruction)
            except Break as stop:
                self._leave_to_python(stop.detail or stop.reason.what, instruction)
            except Raised as raised:
                self._leave_to_python(f"it raises {raised.value.kind.__name__}", instruction)

    def _parted(self) -> bool:
        """Whether a number of several types is on the stack: the instruction is done once more, in a version for each type.

        That of the last one: the instruction may take no more than this.
        """
        self.frames = [f.copy() for f in self.before]
        stack = self.top.stack
        at = next((k for k in reversed(range(len(stack))) if unions.is_mixed(stack[k].type)), None)
        if at is None:
            return False
        tests, values = unions.alternatives(stack[at])
        for test, value in zip(tests, values):
            then, otherwise = self.edge_after(partial(self._set_on_stack, at, value)), self.new_block()
            self.end(Branch(test, then, otherwise))
            self.block = otherwise
        self.end(Jump(self.edge_after(partial(self._set_on_stack, at, values[-1]))))
        return True

    def _set_on_stack(self, at: int, value: Value) -> None:
        self.top.stack[at] = value

    def _step(self, frame: Frame, instruction: Instruction) -> None:
        found = HANDLERS.get(instruction.op)
        if found is None:
            raise NotNative(f"the instruction {instruction.op}")
        frame.ip += 1
        found(self, instruction)

    def _called_out(self, instruction: Instruction, reason: str) -> bool:
        """Whether Python does the instruction without native code being left."""
        if self.on_refusal is None:
            return False
        self.frames, self.exit = [f.copy() for f in self.before], None
        self.top.ip += 1
        try:
            return self.on_refusal(self, instruction, reason)
        except NotNative:
            return False

    def _leave_to_python(self, reason: str, instruction: Instruction) -> None:
        """End the block: Python does the instruction, and what the block has done of it is dropped."""
        assert self.block is not None
        where = f"line {instruction.line}: {reason}"
        self.refusals[where] = self.refusals.get(where, 0) + 1
        self.frames = self.before
        self.end(Leave(self.exit_of(Way(self.before, reason=reason))))

    def _leaders(self, program: Program) -> frozenset[int]:
        found = self.leaders.get(id(program))
        if found is None:
            found = self.leaders[id(program)] = frozenset(i.value for i in program.instructions if i.op in JUMPS)
        return found

    # -- blocks -----------------------------------------------------------------------------------------------------------
    def emit(self, instruction: regions.Instruction) -> None:
        assert self.block is not None
        if isinstance(instruction, EFFECTS) and not getattr(instruction, "kept", False):
            self.effect()
        self.block.body.append(instruction)

    def store(self, place: regions.Place, value: Expr, given: bool = True) -> None:
        """Set an element of an array; of one that was `given`, others see it."""
        self.emit(regions.Store(place, value))

    def calls_what_keeps(self) -> None:
        """A function that writes to arrays is called."""
        self.effect()

    def effect(self) -> None:
        """Something changes that can be seen from outside of the region's innermost frame."""
        if any(f.whole for f in self.frames):
            raise NotNative("a comprehension that changes something")

    def end(self, end: regions.End) -> None:
        assert self.block is not None
        self.block.end, self.block = end, None

    def new_block(self) -> Block:
        if len(self.region.blocks) >= MAX_BLOCKS:
            raise TooMany(f"more than {MAX_BLOCKS} blocks", self._mixed())
        block = Block(len(self.region.blocks))
        self.region.blocks.append(block)
        return block

    def edge(self, ip: int | None = None, push: Sequence[Value] = (), drop: int = 0, chosen: str = "") -> Block:
        """A block that takes the present state to `ip` of the innermost frame, with further values on its stack.

        `chosen`: a variable whose type has been chosen for this instruction.
        """
        frames = [f.copy() for f in self.frames]
        top = frames[-1]
        if ip is not None:
            backward = ip < self.before[-1].ip if self.before else False
            top.ip = ip
        else:
            backward = False
        if drop:
            del top.stack[-drop:]
        top.stack += push
        block = self.new_block()
        held, self.block = self.block, block
        held_frames, self.frames = self.frames, frames
        if backward:
            self.emit(Interruptible(self.exit_of(Way([f.copy() for f in frames], again=True))))
        self._widen(top)
        self._merge(frames)
        mixed = left.carry(self, top, chosen)
        if mixed is None:
            version = self._version(frames)
            self._assign(frames, version)
            self.end(Jump(version.block))
        else:
            self.choices.append(left.Choice(block, frames, mixed))
        self.block, self.frames = held, held_frames
        return block

    def edge_after(self, change: Callable[[], None]) -> Block:
        """A block that takes the state that `change` makes of the present one to where it stands."""
        held = self.frames
        self.frames = [f.copy() for f in held]
        change()
        block = self.edge()
        self.frames = held
        return block

    def _widen(self, frame: Frame) -> None:
        """At a loop's head: counters may become large in later turns, which are then of the same version as the first."""
        heads = self.heads.get(id(frame.program))
        if heads is None:
            heads = self.heads[id(frame.program)] = computed_in_loops(frame.program)
        for name in heads.get(frame.ip, ()):
            value = frame.locals.get(name)
            if value is not None and value.type == SMALL_INT:
                frame.locals[name] = Value(INT, value.parts)

    def _merge(self, frames: list[Frame]) -> None:
        """Where versions would be too many, variables that are Python's floats in some and NumPy's in others have a tag."""
        for frame in frames if self.mixed else ():
            for name, value in frame.locals.items():
                if (id(frame.program.code), name) in self.mixed and value.type in unions.FLOATS.kinds:
                    frame.locals[name] = unions.held(value, unions.FLOATS)

    def _mixed(self) -> frozenset[tuple[int, str]]:
        kinds: dict[tuple[int, str], set[Type]] = {}
        for version in self.versions.values():
            for frame in version.frames:
                for name, value in frame.locals.items():
                    kinds.setdefault((id(frame.program.code), name), set()).add(value.type)
        return frozenset(key for key, found in kinds.items() if found.issuperset(unions.FLOATS.kinds))

    def _version(self, frames: list[Frame]) -> Version:
        places = tuple((id(f.program), f.ip) for f in frames)
        lives = [f.live() for f in frames]
        kinds = ((tuple(v.type for v in f.stack), tuple((n, v.type) for n, v in live.items())) for f, live in zip(frames, lives))
        key = (places, tuple(kinds))
        found = self.versions.get(key)
        if found is None:
            turns = tuple(v.type for f in frames for v in f.stack if isinstance(v.type, Items))  # of loops that are written out
            through_objects = any(kind.given is not None for kind in turns)
            where = (places, None if through_objects else turns)
            n = self.per_place[where] = self.per_place.get(where, 0) + 1
            if n > (MAX_VERSIONS_OF_OBJECTS if through_objects else MAX_VERSIONS):
                raise TooMany("the types of its variables change too often", self._mixed())
            made = []
            for depth, (f, live) in enumerate(zip(frames, lives)):
                stack = [self._stored(f"{depth}_{k}", v.type) for k, v in enumerate(f.stack)]
                names = {n: self._stored(f"{depth}_{n}", v.type) for n, v in live.items()}
                made.append(replace(f, stack=stack, locals=names))
            found = self.versions[key] = Version(self.new_block(), made)
            self.waiting.append(found)
        return found

    def _stored(self, name: str, kind: Type) -> Value:
        """The variables that hold a value between blocks."""
        found = self.stored.get((name, kind))
        if found is None:
            found = self.stored[name, kind] = self._new_stored(name, kind)
        return found

    def _new_stored(self, name: str, kind: Type) -> Value:
        parts = []
        for suffix, part in kind.parts:
            plain = name.isascii() and name.replace("_", "a").isalnum()
            full = f"v{name}_{suffix}" if plain else f"v{name.encode('ascii', 'backslashreplace').hex()}_{suffix}"
            self.region.variables[full] = part
            parts.append(variable(full, part))
        return Value(kind, tuple(parts))

    def _assign(self, frames: list[Frame], version: Version) -> None:
        """Set a version's variables, all at the same time."""
        moves: list[tuple[Expr, Expr]] = []
        for given, wanted in zip(frames, version.frames):
            pairs = [*zip(given.stack, wanted.stack), *((given.locals[n], v) for n, v in wanted.locals.items())]
            for value, stored in pairs:
                moves += [(t, p) for t, p in zip(stored.parts, value.parts) if p.op != "var" or t.value != p.value]
        targets = {target.value for target, _ in moves}
        late = []
        for target, part in moves:
            if any(e.op == "var" and e.value in targets for e in part.walk()):
                part = self.temporary(part, always=True)
            late.append((str(target.value), part))
        for name, part in late:
            self.set(name, part)

    # -- values -------------------------------------------------------------------------------------------------------------
    def fresh(self, kind: regions.VariableType) -> str:
        name = f"t{self.n_temporaries}"
        self.n_temporaries += 1
        self.region.variables[name] = kind
        return name

    def temporary(self, value: Expr, always: bool = False) -> Expr:
        """A value computed here and now."""
        if value.op in ("var", "const") and not always:
            return value
        kind = self._kind_of(value)
        name = self.fresh(kind)
        self.set(name, value)
        return variable(name, kind)

    def _kind_of(self, value: Expr) -> regions.VariableType:
        if value.op == "select":
            return self._kind_of(value.args[1])
        kind = self.region.variables.get(str(value.value)) if value.op == "var" else None
        return kind if isinstance(kind, str) else value.dtype

    def set(self, name: str, value: Expr) -> None:
        owned = self.region.variables[name] == OWNED
        self.emit(Hold(name, value) if owned else Set(name, value))

    def checked(self, function: str, dtype: DType, *args: Expr) -> Expr:
        name = self.fresh(dtype)
        self.emit(Checked(name, function, args, self.way_out()))
        return var(name, dtype)

    def require(self, test: Expr) -> None:
        if test.op == "const" and test.value:
            return
        self.emit(Require(test, self.way_out()))

    def way_out(self) -> Exit:
        """The exit before the current instruction, which Python then does."""
        if self.exit is None:
            self.exit = self.exit_of(Way(self.before))
        return self.exit

    def exit_of(self, way: Way) -> Exit:
        whole = next((k for k, f in enumerate(way.frames) if f.whole), None)
        if whole is not None:
            caller = way.frames[whole - 1].copy()
            if way.frames[whole].consumer is not None:
                del caller.stack[way.frames[whole].base :]
            way = Way([*way.frames[: whole - 1], caller], reason=way.reason)
        found = Exit(len(self.exits))
        way.fields = (way.frames or self.frames)[0].fields()
        self.exits.append(way)
        self.region.exits.append(found)
        return found

    def leave_with(self, value: Value) -> None:
        """The captured function's return."""
        self.end(Leave(self.exit_of(Way([], returned=value))))

    def is_in_loop(self) -> bool:
        """Whether the captured function's instruction is one of a loop."""
        frame = self.before[0]
        ahead = frame.program.instructions[frame.ip :]
        return any(i.op in JUMPS and i.value <= frame.ip for i in ahead)

    # -- the stack ----------------------------------------------------------------------------------------------------------
    @property
    def top(self) -> Frame:
        return self.frames[-1]

    def push(self, value: Value) -> None:
        self.top.stack.append(value)

    def pop(self) -> Value:
        return self.whole(self.top.stack.pop())

    def whole(self, value: Value) -> Value:
        """With all its bits."""
        found = meaning_of("whole", value.type)
        return value if found is None else found(self, value)  # type: ignore[no-any-return]

    def popn(self, n: int, whole: bool = True) -> list[Value]:
        """`whole`: ints with all their bits."""
        items = self.top.stack[len(self.top.stack) - n :]
        del self.top.stack[len(self.top.stack) - n :]
        return [self.whole(v) for v in items] if whole else items

    # -- control ------------------------------------------------------------------------------------------------------------
    def branch(self, test: Expr, then: Callable[[], Block], otherwise: Callable[[], Block]) -> None:
        if test.op == "const":
            self.end(Jump(then() if test.value else otherwise()))
            return
        test = self.temporary(test)
        first, second = then(), otherwise()
        self.end(Branch(test, first, second))

    def choose(self, test: Expr, then: Value, otherwise: Value) -> None:
        """Push one of two values; of two types: go on in two versions."""
        if then.type == otherwise.type or (isinstance(then.type, Int) and isinstance(otherwise.type, Int)):
            kind = then.type if then.type == otherwise.type else Int()
            parts = tuple(self.temporary(Expr("select", (test, x, y), x.dtype)) for x, y in zip(then.parts, otherwise.parts))
            low, high = min(v.bounds[0] for v in (then, otherwise)) if isinstance(kind, Int) else 0, 0
            if isinstance(kind, Int):
                high = max(v.bounds[1] for v in (then, otherwise))
                self.push(Value(kind, parts, (low, high)))
            else:
                self.push(Value(kind, parts))
            return
        ip = self.top.ip
        self.branch(test, lambda: self.edge(ip, [then]), lambda: self.edge(ip, [otherwise]))

    def choose_among(self, tests: Sequence[Expr], values: Sequence[Value]) -> None:
        """Push one of several values, the last one where no test holds: go on in a version for each."""
        ip = self.top.ip
        for test, value in zip(tests, values):
            then, otherwise = self.edge(ip, [value]), self.new_block()
            self.end(Branch(test, then, otherwise))
            self.block = otherwise
        self.end(Jump(self.edge(ip, [values[-1]])))

    # -- the executor's values ------------------------------------------------------------------------------------------------
    def native(self, value: Any) -> Value:
        """A value of the executor's; one that changes becomes a parameter of the region."""
        assert self.on_parameter is not None
        return self.on_parameter(value)

    def outside(self, value: Any) -> Value:
        """A value of the captured frame's, of which the region need not know more than its type."""
        assert self.on_outside is not None
        return self.on_outside(value)

    def inline(self, function: Function, arguments: dict[str, Value], taken: int) -> None:
        """Go on in a Python function; its return drops `taken` values of the caller's stack."""
        if len(self.frames) > MAX_DEPTH:
            raise NotNative("calls are nested too deeply")
        if function.object is None and not function.code.co_freevars:  # the captured code makes it
            function = replace(function, object=FunctionType(function.code, function.globals, function.name))
        if not isinstance(function.object, FunctionType):
            raise NotNative(f"{function.name} is made by the captured code, with variables of that")
        if any(hasattr(v.type, "operands") for f in self.frames for v in f.stack):
            raise NotNative("a call within an array expression")
        program = decode(function.code)
        if sees_frame(program) or function.code.co_flags & (0x20 | 0x80 | 0x100 | 0x200):
            raise NotNative(f"{function.name} is a generator, a coroutine, or looks at its frame")
        refuse_iterators(arguments.values())
        if any(f.function.code is function.code for f in self.frames):
            assert self.on_recursion is not None
            result = self.on_recursion(self, function, program, arguments)
            self.popn(taken)
            self.push(result)
            return
        own = function.code.co_cellvars
        plain = plain_cells(self.ex, function.code, function.globals)
        if plain.issuperset(own):
            arguments = {**{name: Value(NULL) for name in own}, **arguments}
        elif any(name in own for name in arguments):
            raise NotNative(f"an inner function of {function.name} uses its parameters")
        else:
            plain = frozenset()
        self._enter(function, program, arguments, False)
        self.top.plain = plain
        self.taken = taken

    def inline_whole(self, function: Function, arguments: dict[str, Value]) -> None:
        """Go on in a comprehension, or in the getter of a property."""
        if len(self.frames) > MAX_DEPTH:
            raise NotNative("calls are nested too deeply")
        self._enter(function, decode(function.code), arguments, True)

    def _enter(self, function: Function, program: Program, arguments: dict[str, Value], whole: bool) -> None:
        self.top.ip -= 1  # it stands at the call until that returns
        names = CapturedFrame(self.ex, function, {}, len(self.frames), program)
        self.frames.append(Frame(program, function, names, 0, [], dict(arguments), whole))

    def return_from_call(self, value: Value) -> None:
        done = self.frames.pop()
        caller = self.top
        if done.consumer is not None:
            del caller.stack[done.base :]
        i = caller.program.instructions[caller.ip]
        n = 1 if i.op == "LOAD_ATTR" else n_given(i) + 2
        del caller.stack[-n:]
        caller.ip += 1
        caller.stack.append(value)


def n_given(i: Instruction) -> int:
    """How many values of the stack are the arguments of a call."""
    if i.op == "CALL_FUNCTION_EX":
        return 1 + (i.value & 1)  # type: ignore[no-any-return]
    return i.value if i.op == "CALL" else i.value[0]  # type: ignore[no-any-return]


def variable(name: str, kind: regions.VariableType) -> Expr:
    return var(name, kind if isinstance(kind, DType) else int64)


TRUE = const(True, bool_)
NO_VALUE, EMPTY_PLACE = Value(NOTHING), Value(NULL)


__all__ = ["HANDLERS", "Bound", "Builder", "Frame", "Known", "Null", "TooMany", "Way", "handler"]
