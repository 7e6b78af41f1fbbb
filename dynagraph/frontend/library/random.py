"""Random numbers from NumPy's generators and module random: drawn before the program, in order.

A draw whose arguments are known is a step before the program: the entry makes the call, on the generator itself, when its guards
hold, and what it gives is an input of the program.  Its dtype and shape are found by a draw from a generator of our own, which
raises what the arguments make it raise, too.  Steps are taken in the order of the captured code, and nothing that the program
does touches a generator, so that the streams are those of the plain run.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from dynagraph.doors.numpy.arguments import as_shape, nonnegative
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.wrapping import MAX_DIMS, input_slot
from dynagraph.frontend.guards.guards import Is
from dynagraph.frontend.guards.sources import Known, Returned
from dynagraph.frontend.kinds.aliasing import shows
from dynagraph.frontend.kinds.lookup import guard_type, in_mro
from dynagraph.frontend.kinds.slots import items_of
from dynagraph.frontend.kinds.values import Array, Const, Number, Object, Sequence, Value, source_of
from dynagraph.frontend.library.registry import meaning, meaning_of, package
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Meta
from dynagraph.ir.shapes import Dim, SymInt

SIZES = {"permutation": "x", "rand": "args", "randn": "args"}  # the parameter that says how much is drawn; else `size`
WARNS = ("random_integers",)  # that it is deprecated, in the user's name
SIMPLE = (bool, int, float, str, type(None), type, np.dtype, SymInt)
SMALL = 2  # elements along each axis of a draw that is only tried
MOST_TRIED = 1 << 20  # elements of one that cannot be made small
GLOBAL = "global"  # among `Executor.fresh`: the generator of np.random's functions
MAX_STEPS = 100  # in one program: what else it takes needs room, too
LARGEST_SEED = (1 << 32) - 1  # of the legacy generators


@dataclass(frozen=True)
class Method:
    """A method that draws."""

    name: str
    function: Any
    signature: inspect.Signature
    own: Any  # a generator of ours

    @property
    def size(self) -> str:
        return SIZES.get(self.name, "size")


# -- draws ------------------------------------------------------------------------------------------------------------------------


def _draw(method: Method, frame: Frame, /, *args: Any, **kwargs: Any) -> Value:
    ex = frame.ex
    owner = _generator(frame, method, args)
    if len(ex.prologue) >= MAX_STEPS:
        refuse("UNROLL_LIMIT", f"more than {MAX_STEPS} draws")
    if any(shows(function) for function, _ in ex.effects):
        refuse("SIDE_EFFECT", "random numbers are drawn after an effect that may draw some, too")
    given = _bound(frame, method, args[1:], kwargs)
    try:
        _check_symbolic(method, given)
        sizes = _sizes(method, given)
    except TypeError as error:  # of a size that is none
        _raises(method, str(error))
    result = _tried(method, given, sizes)
    lasts = not _is_fresh(ex, owner)
    function, passed = _call_of(method, given)
    step = ex.precede(function, method.name, owner, *map(ex.constant, passed), seen=lasts, lasts=lasts)
    value = _input(ex, method, step.made, result, sizes)
    step.node = value.node
    bounds = _range(method, given)
    if bounds is not None:
        ex.builder.ranges[value.node] = bounds
    return value


def _generator(frame: Frame, method: Method, args: tuple[Any, ...]) -> Object:
    owner = frame.ex.resolve(args[0]) if args else None
    if not isinstance(owner, Object) or owner.kind is not type(method.own):
        return refuse("UNSUPPORTED_ARGUMENT", f"{method.name}() of something that is no {type(method.own).__name__}")
    guard_type(frame, owner)
    return owner


def _bound(frame: Frame, method: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are given, by name."""
    known = [_known(frame, a) for a in args]
    named = {name: _known(frame, value) for name, value in kwargs.items()}
    try:
        given = method.signature.bind(None, *known, **named).arguments
    except TypeError as error:
        refuse("WOULD_RAISE", str(error))
    return dict(list(given.items())[1:])


def _known(frame: Frame, value: Any) -> Any:
    """A parameter as a Python object, in which sizes may be symbolic."""
    value = frame.ex.resolve(value)
    if isinstance(value, Sequence) and value.kind in (list, tuple):
        return value.kind(_known(frame, item) for item in items_of(frame, value))
    changes = isinstance(value, Const) and type(value.value) is float and value.source in frame.ex.profile.changing
    if isinstance(value, Number) or changes:
        refuse("UNSUPPORTED_ARGUMENT", "a float that changes is a parameter of a draw")
    if not isinstance(value, Const) or not isinstance(value.value, SIMPLE):
        refuse("UNSUPPORTED_ARGUMENT", "a parameter of a draw is computed, or is an array")
    return value.value


def _check_symbolic(method: Method, given: dict[str, Any]) -> None:
    """Whatever size a symbol stands for, the draw takes it."""
    symbolic = {name for name, value in given.items() if _holds_symbols(value)} - {method.size}
    if method.name == "choice" and "p" not in given:
        a, size = given["a"], given.get("size")
        count = math.prod(as_shape(size, "choice")) if size is not None else 1
        replaces = given.get("replace", True) is True
        if isinstance(a, (int, SymInt)) and not (a >= 1 and (replaces or count <= a)):
            _raises(method, "the choice is too small")
        symbolic -= {"a"}
    if method.name in ("integers", "randint"):
        bounds = _bounds(given)
        if bounds is None or not bounds[0] <= bounds[1]:
            _raises(method, "low >= high")
        if given.get("dtype") in (None, int, np.int64, "int64", np.dtype(np.int64)):
            symbolic -= {"low", "high"}
    if symbolic:
        refuse("UNSUPPORTED_ARGUMENT", f"{method.name}(): {', '.join(sorted(symbolic))} depends on sizes")


def _bounds(given: dict[str, Any]) -> tuple[Dim, Dim] | None:
    """The smallest and the largest integer that may be drawn; None where they are arrays."""
    low, high = given["low"], given.get("high")
    low, high = (0, low) if high is None else (low, high)
    if not isinstance(low, (int, SymInt)) or not isinstance(high, (int, SymInt)):
        return None
    return low, high if given.get("endpoint", False) else high - 1


def _range(method: Method, given: dict[str, Any]) -> tuple[Dim, Dim] | None:
    """What is known of the integers that are drawn."""
    if method.name in ("integers", "randint"):
        return _bounds(given)
    items = given.get({"permutation": "x", "choice": "a"}.get(method.name, ""))
    return (0, items - 1) if isinstance(items, (int, SymInt)) else None


def _sizes(method: Method, given: dict[str, Any]) -> tuple[Dim, ...] | None:
    """The shape that is asked for; None for a single draw."""
    size = given.get(method.size)
    if size is None or (size == () and method.size == "args"):
        return None
    if method.name == "permutation" and not isinstance(size, (int, SymInt)):
        return None
    return nonnegative(as_shape(size, method.name), method.name)


def _tried(method: Method, given: dict[str, Any], sizes: tuple[Dim, ...] | None) -> Any:
    """What the draw gives from a generator of our own, with less of it where only the size tells how much."""
    hints = {name: _hint(value) for name, value in given.items()}
    counts = method.name != "choice" or given.get("replace", True) is True  # as often as one likes
    if sizes is not None and counts and not any(isinstance(v, (list, tuple)) for name, v in given.items() if name != method.size):
        hints[method.size] = _like(hints[method.size], tuple(min(_hint(d), SMALL) for d in sizes))
    elif sizes is not None and math.prod(map(_hint, sizes)) > MOST_TRIED:
        refuse("UNSUPPORTED_ARGUMENT", f"{method.name}(): many draws whose parameters depend on one another")
    if "check_valid" in method.signature.parameters:
        hints["check_valid"] = "raise"  # not a warning, which belongs to the user's call
    function, passed = _call_of(method, hints)
    try:
        return function(method.own, *passed)
    except (TypeError, ValueError, OverflowError, MemoryError, ArithmeticError) as error:
        _raises(method, str(error))


def _like(size: Any, small: tuple[int, ...]) -> Any:
    return small if isinstance(size, (tuple, list)) else small[0]


def _raises(method: Method, text: str) -> NoReturn:
    refuse("WOULD_RAISE", f"{method.name}(): {text}")


def _call_of(method: Method, given: dict[str, Any]) -> tuple[Any, list[Any]]:
    """The function and its positional arguments after the generator."""
    passed: list[Any] = []
    named: dict[str, Any] = {}
    n_given = 0
    for name, parameter in list(method.signature.parameters.items())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            named |= {name: given[name]} if name in given else {}
        elif parameter.kind is parameter.VAR_POSITIONAL:
            passed += given.get(name, ())
            n_given = len(passed)
        else:
            passed.append(given.get(name, parameter.default))
            n_given = len(passed) if name in given else n_given
    return functools.partial(method.function, **named) if named else method.function, passed[:n_given]


def _input(ex: Executor, method: Method, made: Returned, result: Any, sizes: tuple[Dim, ...] | None) -> Array | Number:
    """What is drawn, as an input of the program."""
    kind = type(result)
    if kind is float:
        input_slot(ex)
        return Number(ex.graph.placeholder(method.name, Meta(dtypes.float64, ())), made)
    dtype = dtypes.from_numpy(result.dtype) if kind is np.ndarray or issubclass(kind, np.generic) else None
    if dtype is None:
        refuse("DATA_DEPENDENT", f"{method.name}() gives a {kind.__name__}")
    shape: tuple[Dim, ...] = np.shape(result)
    if sizes is not None:
        shape = (*sizes, *shape[len(sizes) :])
    if len(shape) > MAX_DIMS:
        refuse("UNSUPPORTED_VALUE", f"an array of more than {MAX_DIMS} dimensions")
    input_slot(ex)
    node = ex.graph.placeholder(method.name, Meta(dtype, shape))
    if kind is not np.ndarray:
        ex.scalars.add(node)
    return ex.own(Array(node, is_scalar=kind is not np.ndarray, source=made))


def _holds_symbols(value: Any) -> bool:
    return isinstance(value, SymInt) or (isinstance(value, (list, tuple)) and any(map(_holds_symbols, value)))


def _hint(value: Any) -> Any:
    """A parameter with sizes as they are now."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_hint, value))
    return value.hint if isinstance(value, SymInt) else value


# -- generators -------------------------------------------------------------------------------------------------------------------


def _is_fresh(ex: Executor, owner: Object) -> bool:
    """Whether a plain run of the call would draw the same once more: the call itself has made the generator, or set its state."""
    if owner.source in ex.fresh:
        return True
    if GLOBAL not in ex.fresh or owner.value is not np.random.normal.__self__:  # type: ignore[attr-defined]
        return False
    ex.guards.require(Is(source_of(owner), owner.value, called="the generator of np.random"))
    return True


def _seed_of(frame: Frame, seed: Any, largest: int | None, function: Callable[[Any], Any]) -> Any:
    """A seed that is known, tried."""
    known = _known(frame, seed)
    if isinstance(known, SymInt) and not (known >= 0 and (largest is None or known <= largest)):
        refuse("WOULD_RAISE", "a seed that is too large, or negative")
    if not isinstance(known, SymInt) and _holds_symbols(known):
        refuse("UNSUPPORTED_ARGUMENT", "a seed that depends on sizes")
    try:
        function(_hint(known))
    except (TypeError, ValueError, OverflowError) as error:
        refuse("WOULD_RAISE", f"a seed: {error}")
    return known


def _new(function: Any, kind: type, largest: int | None, frame: Frame, /, seed: Any = Const(None)) -> Value:
    """A call of what makes generators, with a seed."""
    ex = frame.ex
    value = ex.resolve(seed)
    if isinstance(value, Object):
        return _of_object(frame, function, kind, value)
    known = _seed_of(frame, value, largest, function)
    return _made(ex, function, kind, ex.constant(known))


def _of_object(frame: Frame, function: Any, kind: type, value: Object) -> Value:
    guard_type(frame, value)
    if function is np.random.default_rng and value.kind is kind:
        return value
    if value.source not in frame.ex.fresh or not issubclass(value.kind, np.random.BitGenerator):
        refuse("UNSUPPORTED_ARGUMENT", f"a generator made of a {value.kind.__name__}")
    return _made(frame.ex, function, kind, value)


def _made(ex: Executor, function: Any, kind: type, argument: Value) -> Object:
    step = ex.precede(function, kind.__name__, argument, seen=False, lasts=False)
    ex.fresh.add(step.made)
    return Object(kind, source=step.made)


def _new_generator(frame: Frame, /, bit_generator: Any) -> Value:
    value = frame.ex.resolve(bit_generator)
    if not isinstance(value, Object):
        refuse("WOULD_RAISE", "a Generator of something that is not a bit generator")
    return _of_object(frame, np.random.Generator, np.random.Generator, value)


def _set_seed(
    frame: Frame, function: Any, key: Any, owner: tuple[Value, ...], seed: Any, largest: int | None, trial: Callable[[Any], Any]
) -> Value:
    ex = frame.ex
    known = _seed_of(frame, seed, largest, trial)
    if known is None:
        refuse("SIDE_EFFECT", "a generator is seeded by the system")
    if ex.effects or list(ex.memories):
        refuse("SIDE_EFFECT", "a generator is seeded after other effects")  # it may be one that cannot be: that raises
    ex.precede(function, "seed", *owner, ex.constant(known), seen=key not in ex.fresh, lasts=False)
    ex.fresh.add(key)
    return Const(None)


def _seeding(function: Any, cls: type, largest: int | None, trial: Callable[[Any], Any]) -> Callable[..., Value]:
    """The meaning of a method that seeds a generator."""

    def seed_one(frame: Frame, self: Any, /, seed: Any = Const(None)) -> Value:
        owner = frame.ex.resolve(self)
        if not isinstance(owner, Object) or owner.kind is not cls:
            return refuse("UNSUPPORTED_ARGUMENT", f"seed() of something that is no {cls.__name__}")
        guard_type(frame, owner)
        return _set_seed(frame, function, source_of(owner), (owner,), seed, largest, trial)

    return seed_one


def _register_methods(own: Any, names: Any) -> None:
    """Register methods that draw, as functions of the class."""
    for name in names:
        function = in_mro(type(own), name)
        signature = _signature_of(function)
        if signature is not None and name not in WARNS and ("size" in signature.parameters or name in SIZES or name in OF_PYTHON):
            meaning(function)(functools.partial(_draw, Method(name, function, signature, own)))


def _draw_global(hidden: Any, name: str, frame: Frame, /, *args: Any, **kwargs: Any) -> Value:
    """What a function of a module draws, by the method of the generator that the module keeps."""
    draw = meaning_of(in_mro(type(hidden), name))
    assert draw is not None
    return draw(frame, frame.ex.wrap(hidden, Known(hidden, name)), *args, **kwargs)


@package("numpy.random")
def _numpy_random() -> None:
    """Register the objects of ``numpy.random``, which NumPy imports when it is first asked for."""
    random = np.random
    generator, legacy = random.Generator(random.PCG64(0)), random.RandomState(0)
    for own in (generator, legacy):
        _register_methods(own, vars(type(own)))
    for kind in (random.PCG64, random.PCG64DXSM, random.MT19937, random.Philox, random.SFC64):
        meaning(kind)(functools.partial(_new, kind, kind, None))
    meaning(random.default_rng)(functools.partial(_new, random.default_rng, random.Generator, None))
    meaning(random.RandomState)(functools.partial(_new, random.RandomState, random.RandomState, LARGEST_SEED))
    meaning(random.Generator)(_new_generator)

    @meaning(random.seed)
    def seed_global(frame: Frame, /, seed: Any = Const(None)) -> Value:
        return _set_seed(frame, random.seed, GLOBAL, (), seed, LARGEST_SEED, legacy.seed)

    for alias in (random.ranf, random.sample):
        meaning(alias)(functools.partial(_draw_global, random.mtrand._rand, "random_sample"))

    set_seed = vars(random.RandomState)["seed"]
    meaning(set_seed)(_seeding(set_seed, random.RandomState, LARGEST_SEED, legacy.seed))


def _signature_of(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # no function, or one that does not tell
        return None


# -- module random ---------------------------------------------------------------------------------------------------------------

OF_PYTHON = (
    "random", "uniform", "triangular", "gauss", "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate",
    "betavariate", "paretovariate", "weibullvariate",
)  # fmt: skip


@package("random", "_random")
def _python_random() -> None:
    """Register the methods of ``random.Random`` that give floats, and the functions of the module, which are such methods."""
    random: Any = sys.modules["random"]
    own = random.Random(0)
    _register_methods(own, OF_PYTHON)
    hidden = random.random.__self__
    meaning(random.random)(functools.partial(_draw_global, hidden, "random"))
    meaning(random.Random)(functools.partial(_new, random.Random, random.Random, None))
    meaning(random.Random.seed)(_seeding(random.Random.seed, random.Random, None, own.seed))
