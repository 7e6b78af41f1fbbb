"""Every switch of dynagraph, in one table.

    import dynagraph as dg
    dg.config.threads = 2                  # checked when it is set
    with dg.config.override(strict=True):
        ...

Each switch is also an environment variable, read when dynagraph is imported.
"""

from __future__ import annotations

import difflib
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dynagraph.driver.scopes import Scopes
from dynagraph.errors import ConfigError

PREFIX = "DYNAGRAPH_"  # of environment variables
LOG_TOPICS = ("dispatch", "capture", "passes", "kernels", "cache")


@dataclass(frozen=True)
class Switch:
    """One row: `parse` gives the value for a text or a Python value and raises ValueError where it is not `expected`."""

    name: str
    default: Any
    parse: Callable[[Any], Any]
    expected: str
    doc: str

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.name.upper()}"


MOST = 2**63 - 1  # what C code takes
MOST_THREADS = 1000


def _integer(low: int, high: int = MOST) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        number = int(value) if isinstance(value, str) else value
        if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
            raise ValueError
        return number

    return parse


def _seconds(value: Any) -> float:
    number = float(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else value
    if not isinstance(number, float) or not 0 < number < math.inf:
        raise ValueError
    return number


def _or_unlimited(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or value == "unlimited" else parse(value)


def _optional(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None or (isinstance(value, str) and not value) else parse(value)


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (str, int)):
        raise ValueError
    return {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
        "": False,
    }[str(value).lower()]


def _text(value: Any) -> str:
    text = os.fspath(value)
    if not isinstance(text, str):
        raise ValueError
    return text


def _topics(value: Any) -> frozenset[str]:
    names = value.split(",") if isinstance(value, str) else list(value)
    if not all(isinstance(n, str) for n in names):
        raise ValueError
    topics = frozenset(n.strip() for n in names if n.strip())
    if "all" in topics:
        return frozenset(LOG_TOPICS)
    if topics - set(LOG_TOPICS):
        raise ValueError
    return topics


PRODUCTS = ("auto", "own", "blas")
TIERS = ("both", "best", "quick")
CUDA_ERRORS = ("now", "later")


def _one_of(*names: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in names:
            raise ValueError
        return str(value)

    return parse


MEBIBYTE = 1 << 20

SWITCHES: tuple[Switch, ...] = (
    Switch(
        "threads",
        None,
        _optional(_integer(1, MOST_THREADS)),
        f"an integer of 1 to {MOST_THREADS}, or unset",
        "threads that one compiled call may use; unset: the processors that this process may run on",
    ),
    Switch(
        "products",
        "auto",
        _one_of(*PRODUCTS),
        f"one of {', '.join(PRODUCTS)}",
        "what multiplies float32 and float64 matrices on the CPU; own: dynagraph's threads; blas: the library that NumPy uses; "
        "auto: dynagraph's threads in dynagraph.torch, else the library, whose bits NumPy's functions have; for programs compiled "
        "from then on",
    ),
    Switch(
        "strict", False, _flag, "0 or 1", "let errors inside the compiler reach the caller instead of running eagerly"
    ),
    Switch(
        "log",
        frozenset(),
        _topics,
        f"a comma-separated list of {', '.join(LOG_TOPICS)} or all",
        "what to write to the loggers dynagraph.<topic>, on stderr unless logging is configured",
    ),
    Switch("cache", True, _flag, "0 or 1", "keep compiled kernels on disk"),
    Switch(
        "cache_dir",
        None,
        _optional(_text),
        "a path, or unset",
        "the folder of compiled kernels; unset: dynagraph in the user's cache directory",
    ),
    Switch(
        "cache_programs",
        True,
        _flag,
        "0 or 1",
        "keep programs with their guards beside the kernels, so that later processes need not capture them",
    ),
    Switch("cache_limit", 256 * MEBIBYTE, _integer(0), "bytes, an integer of at least 0", "the size it is trimmed to"),
    Switch(
        "cc",
        None,
        _optional(_text),
        "the name or path of a C compiler, with options if need be, or unset",
        "unset: $CC, cc, gcc, clang, ziglang (the wheel of dynagraph[compiler])",
    ),
    Switch(
        "compiler_timeout",
        120.0,
        _optional(_seconds),
        "seconds, a number above 0, or unset",
        "time limit of the C compiler for one program; when it passes, the function runs eagerly; unset: no limit",
    ),
    Switch(
        "nvrtc",
        None,
        _optional(_text),
        "the path of a libnvrtc, or unset",
        "the compiler of CUDA C; unset: NVIDIA's pip packages, $CUDA_PATH, $CUDA_HOME, /usr/local/cuda, the loader's search",
    ),
    Switch(
        "cublaslt",
        None,
        _optional(_text),
        "the path of a libcublasLt, off, or unset",
        "the library for matrix products on CUDA devices; off: CuPy's functions; unset: what CuPy has loaded, NVIDIA's pip "
        "packages, $CUDA_PATH, $CUDA_HOME, /usr/local/cuda, the loader's search; for programs compiled from then on",
    ),
    Switch(
        "cuda_check",
        False,
        _flag,
        "0 or 1",
        "check every index of CUDA kernels: a wrong one raises KernelError, which names kernel, array, index and line; slow; for "
        "programs compiled from then on",
    ),
    Switch(
        "cuda_errors",
        "now",
        _one_of(*CUDA_ERRORS),
        f"one of {', '.join(CUDA_ERRORS)}",
        "when compiled functions of tensors on a CUDA device raise errors about values (an index out of bounds, say); now: in the "
        "call that is given them, as plain calls do, which waits until the device has looked at them; later: as a CudaError in a "
        "later call; for programs compiled from then on",
    ),
    Switch(
        "measure_devices",
        True,
        _flag,
        "0 or 1",
        "measure this machine's devices once, when a function is first compiled with device='auto': it takes seconds, and the "
        "figures are kept with the kernels; off: devices are chosen by data sheets, until `dynagraph measure` has run",
    ),
    Switch(
        "entry_limit",
        32,
        _integer(1),
        "an integer of at least 1",
        "programs kept for one compiled function; further kinds of arguments run eagerly",
    ),
    Switch(
        "break_limit",
        64,
        _integer(0),
        "an integer of at least 0",
        "graph breaks after which one compiled function goes on; after further ones it runs eagerly",
    ),
    Switch(
        "stay_eager",
        True,
        _flag,
        "0 or 1",
        "run calls eagerly if that is measured to be faster than their program, at the first few calls of each kind and ever more "
        "rarely later; for functions compiled from then on",
    ),
    Switch(
        "compile_budget",
        0.5,
        _or_unlimited(_seconds),
        "seconds, a number above 0, or unlimited",
        "seconds that compiling one function may cost beyond the time of its plain calls, and 20 times as much for all functions "
        "of the process; compiling that would cost more is put off until plain calls have taken as long",
    ),
    Switch(
        "tiers",
        "both",
        _one_of(*TIERS),
        f"one of {', '.join(TIERS)}",
        "both: compile native loops, and programs that the C compiler takes long for, quickly before their first call and with all "
        "optimisations beside the calls after it; best: once, with all optimisations; quick: once, quickly (-O1); the results are "
        "the same",
    ),
    Switch(
        "compiler_processes",
        0,
        _integer(0),
        "an integer of at least 0",
        "processes of the C compiler that share the work on one large program, at most; 0: one for each processor, up to 8",
    ),
    Switch(
        "tape_limit",
        1024 * MEBIBYTE,
        _integer(0),
        "bytes, an integer of at least 0",
        "memory that the gradient of one long loop may take for what its way back needs; a loop that needs more is run once more, "
        "from checkpoints, which take memory by the square root of its turns; 0: every long loop",
    ),
    Switch("unroll_limit", 2000, _integer(1), "an integer of at least 1", "loop iterations that one capture unrolls"),
    Switch("inline_depth", 32, _integer(1), "an integer of at least 1", "nested Python calls that one capture inlines"),
    Switch(
        "pool_limit",
        None,
        _optional(_integer(0)),
        "bytes, an integer of at least 0, or unset",
        "memory kept for reuse by later results; unset: an eighth of the memory, at most 512 MiB",
    ),
)
BY_NAME: Mapping[str, Switch] = {s.name: s for s in SWITCHES}


class Config(ModuleType):
    """The module's own class: attributes are the switches."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        self._scopes[name] = _parse(_switch(name), f"config.{name}", value)
        self._tell([name])

    def __delattr__(self, name: str) -> None:
        if name in BY_NAME:
            raise AttributeError(f"config.{name}: a switch cannot be deleted; its default is {BY_NAME[name].default!r}")
        super().__delattr__(name)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_scopes"][name]
        except KeyError:
            raise AttributeError(_unknown(name)) from None

    @contextmanager
    def override(self, **switches: Any) -> Iterator[None]:
        """Set switches for the extent of a ``with`` block, in all threads.

        >>> import dynagraph as dg
        >>> with dg.config.override(strict=True):
        ...     dg.config.strict
        True
        """
        scope = self._scopes.enter({name: _parse(_switch(name), f"config.{name}", value) for name, value in switches.items()})
        self._tell(switches)
        try:
            yield
        finally:
            self._scopes.leave(scope)
            self._tell(switches)

    def _tell(self, names: Iterable[str]) -> None:
        for name in names:
            for listener in self._listeners:
                listener(name)

    def describe(self) -> list[tuple[str, Any, str, str]]:
        """A row for each switch: name, value, environment variable, meaning."""
        return [(s.name, self._scopes[s.name], s.variable, s.doc) for s in SWITCHES]

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have `listener` called with the name of each switch that is set from now on."""
        self._listeners.append(listener)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, BY_NAME, n=1)
    return f"config has no switch {name!r}; {f'did you mean {close[0]}? ' if close else ''}it has {', '.join(BY_NAME)}"


def _switch(name: str) -> Switch:
    try:
        return BY_NAME[name]
    except KeyError:
        raise AttributeError(_unknown(name)) from None


def _parse(switch: Switch, who: str, value: Any) -> Any:
    try:
        return switch.parse(value)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise ConfigError(f"{who}={value!r}: expected {switch.expected}") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values = {}
    for switch in SWITCHES:
        text = environment.get(switch.variable)
        values[switch.name] = switch.default if text is None else _parse(switch, switch.variable, text)
    _warn_of_unknown([name for name in environment if name.startswith(PREFIX)])
    return values


def _warn_of_unknown(variables: list[str]) -> None:
    """Of variables that look like switches and are none; another version of dynagraph may know them, so that they are no errors."""
    for name in sorted(set(variables) - {s.variable for s in SWITCHES}):
        close = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), BY_NAME, n=1)
        hint = f"did you mean {BY_NAME[close[0]].variable}?" if close else f"it knows {', '.join(s.variable for s in SWITCHES)}"
        warnings.warn(f"the environment variable {name} is none of dynagraph's, and does nothing; {hint}", stacklevel=2)


_scopes = Scopes(_from_environment(os.environ))
_listeners: list[Callable[[str], None]] = []
sys.modules[__name__].__class__ = Config
