"""Break reasons: the catalogue of why a capture ends, and `Break`, the exception that ends it.

Every reason is a row: what happened, and what the user can do.  ``dynagraph explain --reason array-branch`` prints one.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.location import Location


@dataclass(frozen=True)
class Reason:
    """One row of the catalogue."""

    name: str
    what: str
    cure: str
    raises: bool = False  # what happens is an exception of the user's: outside of try, the whole call runs eagerly, and raises it
    whole: bool = False  # outside of try, the whole call runs eagerly

    @property
    def slug(self) -> str:
        """The name as the command line spells it."""
        return self.name.lower().replace("_", "-")


_ROWS = (
    Reason(
        "ARRAY_BRANCH",
        "the branch depends on the value of an array",
        "write it as np.where(cond, a, b), or branch outside the compiled function",
    ),
    Reason(
        "ARRAY_LOOP",
        "how often a loop runs depends on the value of an array",
        "run a fixed number of iterations and keep results with np.where(done, old, new), or compile only the loop's body",
    ),
    Reason(
        "LOOP_AROUND_BREAK",
        "the loop contains another break, so each iteration is compiled by itself",
        "fix the other break in this loop; it is listed too",
    ),
    Reason(
        "LOOP_IN_PYTHON",
        "the loop stays in Python, and its body is compiled once for all turns",
        "none is needed; loops over numbers and elements run as machine code: see docs/loops.md",
    ),
    Reason(
        "LOOP_ON_DEVICE",
        "the loop's body is compiled once for all turns, which follow one another in C and launch its kernels",
        "none is needed; see docs/loops.md",
    ),
    Reason(
        "GRADIENT_BY_STEPS",
        "a derivative of a native loop without machine code, or a Jacobian of what has no rule for many items, is taken by steps",
        "take derivatives of at most second order, and none of a Jacobian of a loop",
    ),
    Reason(
        "COLD_CACHE",
        "a function with a cache is called with arguments that it does not hold yet",
        "none is needed: the first call of the compiled function fills the cache, and the next one is captured",
    ),
    Reason(
        "FIRST_IMPORT",
        "a module is imported for the first time",
        "none is needed: the first call of the compiled function imports it, and the next one is captured",
    ),
    Reason("NATIVE_LOOP", "the loop runs as machine code", "none: this is no break"),
    Reason(
        "AMBIGUOUS_TRUTH",
        "the truth value of an array of several elements is ambiguous",
        "use np.any(x) or np.all(x), and choose with np.where",
        raises=True,
    ),
    Reason(
        "DATA_DEPENDENT",
        "a Python value or a shape depends on the values of an array",
        "do this step outside the compiled function, or keep the value in an array",
    ),
    Reason(
        "IN_PLACE_WRITE", "an array is written in a way that is not captured", "assign to slices or masks, or build a new array"
    ),
    Reason("OVERLAP", "an array is written that shares memory with another array of the caller's", "pass a copy of one of them"),
    Reason(
        "SIDE_EFFECT",
        "the code changes or reads state outside of the call",
        "return the new value, and do the effect outside the compiled function",
    ),
    Reason(
        "WOULD_RAISE",
        "the code raises an exception here",
        "none if the exception is intended: the call raises it as the plain function does; else check the arguments",
        raises=True,
    ),
    Reason(
        "NUMPY_ERROR",
        "NumPy raises an error here",
        "none if the error is intended: the call raises it as the plain function does; else check shapes, dtypes and axes",
        raises=True,
    ),
    Reason("UNSUPPORTED_FUNCTION", "this function is not captured", "call it outside the compiled function, or on its result"),
    Reason("UNSUPPORTED_ARGUMENT", "this argument of the function is not captured", "leave it out, or write the step differently"),
    Reason(
        "UNSUPPORTED_DTYPE",
        "the dtype is not captured",
        "use bool, an integer of 8 to 64 bits, float16, float32, float64, complex64 or complex128; docs/bfloat16.md for bfloat16",
    ),
    Reason("UNSUPPORTED_INDEX", "this way of indexing is not captured", "use integers, slices, None and Ellipsis"),
    Reason(
        "UNSUPPORTED_INPUT",
        "an input is not a plain array, Python number or container",
        "pass np.asarray(x), of a native dtype and aligned",
    ),
    Reason(
        "MIXED_LIBRARIES",
        "NumPy arrays are mixed with CuPy arrays, or arrays of two devices",
        "move them to one side first: cupy.asarray(x), or x.get()",
    ),
    Reason("UNSUPPORTED_VALUE", "this kind of Python value is not followed", "use numbers, tuples, lists and dicts"),
    Reason(
        "UNSUPPORTED_RESULT",
        "the function returns a new object of a kind that is not captured",
        "return arrays, numbers, tuples, lists and dicts of them",
    ),
    Reason("UNKNOWN_OPCODE", "this Python construct is not captured", "write the array part as a function of its own"),
    Reason("CONTEXT_MANAGER", "a with block enters a context manager written in C", "enter it outside the compiled function"),
    Reason(
        "ITERATOR",
        "the code advances an iterator that was made outside of the function",
        "pass what it iterates over, such as a list, and call iter(), zip() or enumerate() in the compiled function",
    ),
    Reason("METACLASS", "a class is made, or its metaclass decides what a call means", "do this outside the compiled function"),
    Reason(
        "FRAME_ACCESS",
        "the code inspects its own frame: eval, exec, vars() or dir()",
        "do this outside the compiled function",
        whole=True,
    ),
    Reason("GRAPH_BREAK", "dg.graph_break() was called", "remove the call"),
    Reason("GENERATOR", "a generator or coroutine is made or run", "use a list, or a plain loop"),
    Reason(
        "ATTRIBUTE",
        "reading the attribute runs code that is not captured",
        "read it outside the compiled function and pass the value",
    ),
    Reason(
        "RECURSION",
        "calls are nested too deeply to be inlined",
        "write the recursion as a loop, or raise dg.config.inline_depth",
    ),
    Reason(
        "STACK_FULL",
        "Python's stack has no room for the compiler",
        "call it at a smaller recursion depth, or raise sys.setrecursionlimit()",
    ),
    Reason(
        "TOO_MANY_VALUES",
        "the call has more arrays, or more guarded objects, than one program takes",
        "stack arrays that belong together, or compile parts of the function",
    ),
    Reason(
        "GRAPH_FROM_OUTSIDE",
        "backward() goes through many operations that were recorded before this part of the function",
        "none is needed: it runs as it does outside of compiled functions; operations of one part are one node",
    ),
    Reason("LOOP_IN_CALL", "a function that is called has a long loop", "none: it is compiled by itself"),
    Reason("UNROLL_LIMIT", "the loop has too many iterations to unroll", "work on whole arrays, or raise dg.config.unroll_limit"),
    Reason("NOTHING_TO_COMPILE", "there is no array operation in this call", "compile functions that work on arrays"),
    Reason("FLOATING_POINT_ERRORS", "np.errstate asks for more than warnings", "leave the error state at warn or ignore"),
    Reason(
        "REPLACED_BUILTIN",
        "a builtin function was replaced after dynagraph was imported",
        "put the original back; give the replacement another name, or a module of its own",
    ),
    Reason(
        "RANDOM_DRAW",
        "random numbers are drawn, which cannot be undone, in a call that may still raise an error that depends on data",
        "draw from a generator that is made in the function, or draw first and index in a function of its own",
    ),
    Reason(
        "COMPILE_BUDGET",
        "compiling takes longer than plain calls have earned so far, and is put off",
        "none if many more calls follow; else unroll less (arrays instead of Python loops), or lift the budget: mode=\"max\", or "
        "dg.config.compile_budget = None",
    ),
    Reason(
        "COMPILER_AT_WORK",
        "the C compiler takes longer than plain calls have earned so far, and goes on beside them",
        "none: calls run eagerly until it has ended",
    ),
    Reason("DISABLED", "dg.disable was applied to this function", "remove the decorator"),
)
REASONS: dict[str, Reason] = {r.name: r for r in _ROWS}


class Break(Exception):
    """A capture stops here: `reason` is a name of the catalogue."""

    def __init__(self, reason: str, location: Location | None = None, detail: str = ""):
        self.reason = REASONS[reason]
        self.location = location
        self.detail = detail
        super().__init__(reason, location, detail)

    @property
    def happened(self) -> str:
        """Where, and what."""
        where = f"{self.location}: " if self.location else ""
        return f"{where}{self.reason.what}{f' ({self.detail})' if self.detail else ''}"

    @property
    def line(self) -> str:
        """The break on one line, as `stats.breaks` counts it."""
        return f"{self.happened}; fix: {self.reason.cure} [{self.reason.slug}]"

    def __str__(self) -> str:
        return f"{self.happened}\n  fix: {self.reason.cure}\n  more: dynagraph explain --reason {self.reason.slug}"


def bare(stop: Break) -> Break:
    """A break without the frames that it came through, which hold the caller's objects, and perhaps the break: a cycle."""
    stop.__context__ = stop.__cause__ = None
    return stop.with_traceback(None)
