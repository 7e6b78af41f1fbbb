"""CuPy functions: the door of the NumPy function of the same name, if it means the same; anything else breaks.

CuPy differs from NumPy in ways that a graph would not show: it checks no index, its reductions give 0-d arrays rather than
scalars, its new arrays lie in C order whatever the operands' order is, its functions take fewer arguments, and where it computes
otherwise the result may be another one at the last bit, at an infinity, or for arguments that contradict each other.  So the
tables name what is captured, with the arguments that may be given, and the ops that graphs of CuPy's arrays may hold: those whose
eager function is CuPy's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from dynagraph.array_libraries import ArrayLibrary
from dynagraph.array_libraries import cupy as imported_cupy
from dynagraph.doors.numpy import Door, Unsupported, lookup, method, operator_door
from dynagraph.doors.numpy.builder import default_dtype, is_weak, leaves
from dynagraph.doors.numpy.elementwise import UFUNCS as NUMPYS_UFUNCS
from dynagraph.doors.numpy.indexing import ARRAY_ITEM
from dynagraph.doors.numpy.table import DISPATCHER
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import Reduction, Scan
from dynagraph.ir.optable import OPS as NUMPYS_OPS
from dynagraph.python_operators import ARITHMETIC, COMPARISONS
from dynagraph.python_operators import UNARY as NUMPYS_UNARY

# -- what has NumPy's meaning -------------------------------------------------------------------------------------------------
# The parameters of CuPy's functions, in CuPy's order.  A leading "-": where it is given, the call is not captured.  "*": the rest.

UFUNCS = frozenset(name for name, f in vars(np).items() if isinstance(f, np.ufunc) and (row := NUMPYS_UFUNCS.get(f)) and row.cupy)
FUNCTIONS: dict[str, str] = {
    "sum": "a axis dtype -out keepdims", "prod": "a axis dtype -out keepdims",
    "max": "a axis -out keepdims", "amax": "a axis -out keepdims", "min": "a axis -out keepdims", "amin": "a axis -out keepdims",
    "any": "a axis -out keepdims", "all": "a axis -out keepdims",
    "argmax": "a axis -dtype -out keepdims", "argmin": "a axis -dtype -out keepdims",
    "mean": "a axis -dtype -out keepdims", "var": "a axis -dtype -out ddof keepdims", "std": "a axis -dtype -out ddof keepdims",
    "cumsum": "a axis dtype -out", "cumprod": "a axis dtype -out",
    "where": "condition x y", "matmul": "x1 x2", "dot": "a b -out", "outer": "a b -out", "tensordot": "a b axes",
    "reshape": "a newshape -order -copy", "ravel": "a -order", "transpose": "a axes", "swapaxes": "a axis1 axis2",
    "moveaxis": "a source destination", "expand_dims": "a axis", "squeeze": "a axis", "broadcast_to": "array shape",
    "concatenate": "tup axis -out -dtype -casting", "stack": "tup axis -out -dtype -casting", "vstack": "tup -dtype -casting",
    "hstack": "tup -dtype -casting", "roll": "a shift axis", "tile": "A reps", "repeat": "a repeats axis",
    "take": "a indices axis -out",
    "tril": "m k", "triu": "m k", "copy": "a order", "shape": "a", "ndim": "a",
    "zeros": "shape dtype order", "ones": "shape dtype order", "full": "shape fill_value dtype order",
    "empty": "shape dtype order", "zeros_like": "a dtype order -subok shape", "ones_like": "a dtype order -subok shape",
    "full_like": "a fill_value dtype order -subok shape", "empty_like": "prototype dtype order -subok shape",
    "eye": "N M k dtype -order", "identity": "n dtype",
    "arange": "start stop step dtype", "linspace": "start stop num endpoint -retstep dtype -axis",
    "array": "obj dtype -copy -order -subok -ndmin -blocking", "asarray": "a dtype -order -copy -blocking",
}  # fmt: skip
# which the program calls as they are: steps between kernels
CALLED: dict[str, str] = {
    **dict.fromkeys(("fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.hfft", "fft.ihfft"), "a n axis norm"),
    **dict.fromkeys(("fft.fft2", "fft.ifft2", "fft.rfft2", "fft.irfft2"), "a s axes norm"),
    **dict.fromkeys(("fft.fftn", "fft.ifftn", "fft.rfftn", "fft.irfftn"), "a s axes norm"),
    "linalg.solve": "a b", "linalg.inv": "a", "linalg.det": "a", "linalg.slogdet": "a", "linalg.cholesky": "a",
    "linalg.qr": "a mode", "linalg.svd": "a full_matrices compute_uv", "linalg.eigh": "a UPLO", "linalg.eigvalsh": "a UPLO",
    "sort": "a axis -kind", "argsort": "a axis -kind",
}  # fmt: skip
FUNCTIONS |= CALLED
METHODS: dict[str, str] = {
    "sum": "axis dtype -out keepdims", "prod": "axis dtype -out keepdims", "max": "axis -out keepdims", "min": "axis -out keepdims",
    "any": "axis -out keepdims", "all": "axis -out keepdims", "argmax": "axis -out -dtype keepdims",
    "argmin": "axis -out -dtype keepdims", "mean": "axis -dtype -out keepdims", "var": "axis -dtype -out ddof keepdims",
    "std": "axis -dtype -out ddof keepdims", "cumsum": "axis dtype -out", "cumprod": "axis dtype -out",
    "reshape": "*shape -order -copy",
    "transpose": "*axes", "swapaxes": "axis1 axis2", "ravel": "-order", "flatten": "-order", "squeeze": "axis",
    "astype": "dtype order -casting -subok copy", "copy": "order", "dot": "b -out", "repeat": "repeats axis", "fill": "value",
    "take": "indices axis -out",
}  # fmt: skip
BINARY = {symbol: row.ufunc.__name__ for symbol, row in (ARITHMETIC | COMPARISONS).items()}
UNARY = {symbol: row.ufunc.__name__ for symbol, row in NUMPYS_UNARY.items() if symbol != "pos"}
ATTRIBUTES = ("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "T", "real", "imag")
TAKES_LISTS = ("concatenate", "stack", "vstack", "hstack")  # of arrays
FROM_NUMBERS = ("array", "asarray")  # which take lists of numbers
CREATES = ("zeros", "ones", "full", "empty", "eye", "identity", "arange", "linspace", *FROM_NUMBERS)  # of no array
# how many arguments are arrays, and no numbers; else one
ARRAYS = {"linalg.solve": 2, "dot": 2, "matmul": 2, "@": 2, "outer": 2, "tensordot": 2, "take": 2}
OWN_DISPATCH = frozenset(FUNCTIONS) - frozenset(CREATES)  # NumPy hands these over to CuPy where an argument is an array of its own

OPS = frozenset(row.name for row in NUMPYS_OPS.values() if row.cupy)  # what they do not name is left to the plain run
ALONG_AXES = frozenset((
    "amax", "amin", "mean", "var", "std",
    *(name for name in OPS if isinstance(NUMPYS_OPS[name].lowering, (Reduction, Scan))),
))  # fmt: skip
IN_ANY_ORDER = OPS - ALONG_AXES - {"concatenate", "roll", "repeat", "tile", "gather"}  # in which operands may lie
POWERS = ("power", "power_int", "square", "multiply")  # what ** may become: sqrt(-inf) is not CuPy's (-inf) ** 0.5


# -- the map of names -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Names:
    """CuPy's callables by identity, and the doors that arrays of CuPy may go through."""

    library: ArrayLibrary
    by_id: dict[int, tuple[Any, str]]  # a callable, kept, and its name
    doors: dict[Door, str]

    def name_of(self, function: Any) -> str | None:
        found = self.by_id.get(id(function))
        return None if found is None else found[1]


_names: list[Names] = []  # of the module that was met last


def names() -> Names | None:
    """The map of the CuPy that the program has imported, made when it is first met; None where there is none."""
    library = imported_cupy()
    if library is None:
        return None
    if not _names or _names[0].library is not library:
        _names[:] = [_walk(library)]
    return _names[0]


def _walk(library: ArrayLibrary) -> Names:
    by_id: dict[int, tuple[Any, str]] = {}
    doors: dict[Door, str] = {}
    for name in sorted((*UFUNCS, *FUNCTIONS)):
        theirs, door = _at(library.module, name), lookup(_at(np, name))
        if callable(theirs) and door is not None:
            by_id[id(theirs)] = (theirs, name)
            doors[door] = name
    doors |= {door: name for name in METHODS if (door := method(name)) is not None}
    doors |= {operator_door(symbol): symbol for symbol in (*BINARY, *UNARY, "len", "getitem", "bool")}
    doors[ARRAY_ITEM] = "getitem"
    switch = vars(library.module)["get_array_module"]
    by_id[id(switch)] = (switch, "get_array_module")
    return Names(library, by_id, doors)


def _at(module: Any, name: str) -> Any:
    """What stands under a dotted name; None where there is nothing."""
    for part in name.split("."):
        module = vars(module).get(part) if hasattr(module, "__dict__") else None
    return module


def name_in_numpy(function: Any) -> str | None:
    """The name by which NumPy hands a call of its own function over to CuPy, where one of the arguments is CuPy's array."""
    if isinstance(function, np.ufunc):
        name = function.__name__
        ours = getattr(np, name, None) is function and (name in UFUNCS or name == "matmul")
        return name if ours else None
    if type(function) is DISPATCHER and str(function.__module__).split(".")[0] == "numpy":
        name = ".".join([*function.__module__.split(".")[1:], function.__name__])
        return name if name in OWN_DISPATCH and _at(np, name) is function else None
    return None


def is_numpys_callable(function: Any) -> bool:
    """Whether calling this asks NumPy, which asks its arguments what the call means."""
    if isinstance(function, np.ufunc) or type(function) is DISPATCHER or lookup(function) is not None:
        return True
    is_function = isinstance(function, (type, FunctionType, BuiltinFunctionType))
    return is_function and str(function.__module__).split(".")[0] == "numpy"


# -- arguments --------------------------------------------------------------------------------------------------------------------


def arguments(who: str, parameters: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by CuPy's parameters as NumPy's function takes them; Unsupported for what is not captured."""
    given: list[Any] = []
    named: dict[str, Any] = {}
    rest = list(args)
    by_position = True
    keywords = dict(kwargs)
    for position, parameter in enumerate(parameters.split()):
        name, refused = parameter.lstrip("-*"), parameter.startswith("-")
        if parameter.startswith("*"):
            given, rest = [*given, *rest], []
            continue
        here = bool(rest)
        if not here and name not in keywords:
            by_position = False
            continue
        value = rest.pop(0) if here else keywords.pop(name)
        if refused:
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"{who}: the argument {name}= is not captured; leave it out")
        if here and by_position:
            given.append(value)
        elif position:
            named[name] = value
        else:  # of which NumPy has another name, perhaps
            given.append(value)
        by_position = by_position and here
    if rest or keywords:
        what = f"{len(args)} arguments" if rest else f"the argument {next(iter(keywords))}="
        raise Unsupported("NUMPY_ERROR", f"{who}: {what}, which CuPy does not take")
    return given, named


def ufunc_arguments(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Operands, and at most an array that takes the result."""
    ufunc: np.ufunc = getattr(np, name)
    if set(kwargs) - {"out"} or len(args) < ufunc.nin or len(args) > ufunc.nargs or (kwargs and len(args) > ufunc.nin):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: arguments besides operands and out=")
    out = kwargs.get("out", args[ufunc.nin] if len(args) > ufunc.nin else None)
    return list(args[: ufunc.nin]), {} if out is None else {"out": out}


# -- what the graph may hold ------------------------------------------------------------------------------------------------------


def check_operands(name: str, given: Sequence[Any], is_scalar: Callable[[Node], bool]) -> None:
    """Refuse operands that CuPy does not take: lists, where it wants arrays, and what is neither array nor number."""
    first, *others = (*given, None)
    if name in ALONG_AXES and isinstance(first, Node) and first.ndim == 0 and any(type(v) is int for v in others):
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: along an axis of a 0-d array, which NumPy lets pass")
    elementwise = name in BINARY or name in UNARY or name in UFUNCS
    n_arrays = 0 if name in CREATES or name in TAKES_LISTS else ARRAYS.get(name, int(name in FUNCTIONS or name in METHODS))
    for k, value in enumerate(given):
        if name in TAKES_LISTS and k == 0:
            if not isinstance(value, (list, tuple)) or not all(isinstance(v, Node) and not is_scalar(v) for v in value):
                raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: of anything but a list of arrays")
        elif k < n_arrays and not (isinstance(value, Node) and not is_scalar(value)):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: of anything but an array")
        elif not elementwise and isinstance(value, Node) and is_scalar(value):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: of a NumPy scalar")
        elif elementwise and not (isinstance(value, Node) or is_weak(value)):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy: {name} of an array and a {type(value).__name__}")
        elif name == "broadcast_to" and k == 1 and not isinstance(value, tuple):
            raise Unsupported("UNSUPPORTED_ARGUMENT", "cupy.broadcast_to: to a shape that is not a tuple")
        elif name in CREATES and name not in FROM_NUMBERS and isinstance(value, Node):
            raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: of an array")
        elif name in FROM_NUMBERS and k == 0 and isinstance(value, (list, tuple)):
            if not all(type(v) in (bool, int, float, complex) for v in leaves(value)):
                raise Unsupported("UNSUPPORTED_ARGUMENT", f"cupy.{name}: of a list that holds more than numbers")
        elif name == "getitem" and k == 1:
            _check_key(value)


def check_loop(own: Names, name: str, given: Sequence[Any], is_scalar: Callable[[Node], bool], result: Any) -> None:
    """Refuse what the installed CuPy has no loop for, or one of another result; `given`: operands first."""
    ufunc = BINARY.get(name) or UNARY.get(name) or name
    theirs: Any = vars(own.library.module).get(ufunc)
    operands = given[: getattr(np, ufunc).nin]
    arrays = [x.dtype.numpy for x in operands if isinstance(x, Node) and not is_scalar(x)]
    for x in operands:  # which NumPy scalars decide the dtype, and which do not, is left to CuPy
        if isinstance(x, Node) and is_scalar(x) and any(d != x.dtype.numpy for d in arrays):
            if dtypes.bfloat16 in map(_ir_dtype, operands):
                raise Unsupported("UNSUPPORTED_ARGUMENT", f"CuPy: a NumPy scalar of {x.dtype} with bfloat16")
            weak = np.result_type(*arrays, x.dtype.numpy.type(0).item())
            if np.result_type(*arrays, x.dtype.numpy) != weak:
                raise Unsupported("UNSUPPORTED_ARGUMENT", f"CuPy: a NumPy scalar of {x.dtype} that decides the dtype of a result")
    if not isinstance(result, Node) or not hasattr(theirs, "types") or any(_kind(x) > 2 for x in operands if is_weak(x)):
        return
    highest = max(_kind(x) for x in operands if isinstance(x, Node))
    wanted = [None if not isinstance(x, Node) and _kind(x) <= highest else _dtype(x) for x in operands]
    of_bfloat16 = dtypes.bfloat16 in (result.dtype, *(_ir_dtype(x) for x in operands))
    if of_bfloat16:  # beside which a Python float counts as float32, as in NumPy
        wanted = [np.dtype(np.float32) if is_weak(x) and _kind(x) == 2 else d for x, d in zip(operands, wanted)]
    for loop in theirs.types:
        taken, given_back = loop.split("->")
        if "E" in loop and not of_bfloat16:
            continue  # that of float16, before it, takes all else
        if len(taken) == len(wanted) and all(d is None or np.can_cast(d, _dtype_of(c)) for d, c in zip(wanted, taken)):
            if _dtype_of(given_back[0]) == result.dtype.numpy:
                return
            break
    raise Unsupported("UNSUPPORTED_DTYPE", f"CuPy: {name} of these dtypes, which gives another dtype than NumPy's, or is none")


_KINDS = {"b": 0, "u": 1, "i": 1, "f": 2}


def _kind(x: Any) -> int:
    return _KINDS.get(_ir_dtype(x).kind, 3)


def _dtype(x: Any) -> np.dtype:
    return _ir_dtype(x).numpy


def _ir_dtype(x: Any) -> DType:
    return x.dtype if isinstance(x, Node) else default_dtype(x)  # type: ignore[no-any-return]


def _dtype_of(character: str) -> np.dtype:
    """CuPy's characters are NumPy's, but for that of bfloat16, of which it has loops where ml_dtypes is installed."""
    return dtypes.bfloat16.numpy if character == "E" else np.dtype(character)


def _check_key(key: Any) -> None:
    parts = key if isinstance(key, tuple) else (key,)
    if any(isinstance(part, (bool, np.generic)) for part in parts):
        raise Unsupported("UNSUPPORTED_INDEX", "an index that is a bool or a NumPy scalar")
    if any(type(v) is bool for part in parts if isinstance(part, (list, tuple)) for v in leaves(part)):
        raise Unsupported("UNSUPPORTED_INDEX", "a mask given as a list")


def check_op(name: str, operands_in_c_order: Callable[[], bool], rank: int) -> None:
    """Refuse an op that does not run on CuPy's arrays as it does on NumPy's, or that may lay out its result otherwise."""
    if name not in OPS:
        raise Unsupported("UNSUPPORTED_FUNCTION", f"CuPy: the operation {name} is not captured")
    if rank > 1 and name not in IN_ANY_ORDER and not operands_in_c_order():
        raise Unsupported("UNSUPPORTED_ARGUMENT", f"CuPy: {name} of an array that does not lie in C order")


def check_result(name: str, result: Any) -> None:
    """Refuse results that CuPy computes in another way."""
    if not isinstance(result, Node):
        return
    if name in ("**", "power", "pow") and not result.is_op(*POWERS):
        raise Unsupported("UNSUPPORTED_ARGUMENT", "CuPy: a power that NumPy computes as another function")
    if name in ("arange", "array", "asarray") and result.is_op("iota") and result.dtype.is_inexact:
        raise Unsupported("UNSUPPORTED_ARGUMENT", "cupy.arange of floats, whose steps CuPy rounds in a way of its own")


__all__ = [
    "ATTRIBUTES", "BINARY", "CREATES", "FUNCTIONS", "METHODS", "OPS", "UFUNCS", "UNARY", "Names", "arguments", "check_loop",
    "check_op", "check_operands", "check_result", "is_numpys_callable", "name_in_numpy", "names", "ufunc_arguments",
]  # fmt: skip
