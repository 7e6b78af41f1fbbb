"""Import the compiler: frontend, IR, passes and backends, joined to the C runtime.  loading.py gives it to the rest of the package.

Importing this module is what loads frontend, IR, passes and backends, and joins them to the C runtime.
"""

from __future__ import annotations

import time
import types
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.api import Explanation
from dynagraph.array_libraries import is_array
from dynagraph.autodiff import mapping_meanings  # noqa: F401  (importing it registers what vmap means)
from dynagraph.autodiff.primitive_meanings import TAPE
from dynagraph.backends.registry import get_backend, loop_compiler
from dynagraph.backends.toolchain import find_compiler
from dynagraph.driver.attempts import Program
from dynagraph.driver.compilation import Compilation
from dynagraph.frontend.bytecode.resume import Resumes
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.capture import capture
from dynagraph.frontend.executor.watch import may_be_captured
from dynagraph.frontend.kinds.lookup import shown_namespace

try:
    from dynagraph._core import _frame_hook
except ImportError:  # a CPython version that the hook does not know
    _frame_hook = None  # type: ignore[assignment]


def explained(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    """What `dg.explain` gives for a call of a compiled function."""
    function, options = compiled.__wrapped__, compiled.decorated.options
    values = _dispatch.bind(function, args, kwargs)
    earlier = tuple(compiled.stats.breaks)
    start = time.perf_counter()
    try:
        resumes = None if options.fullgraph else Resumes(lambda target: None)
        compile_loop = loop_compiler(options.backend)
        captured = capture(
            function,
            values,
            dynamic=options.dynamic,
            resumes=resumes,
            native_loops=not options.whole and compile_loop is not None,
            compile_loop=None if options.names_device else compile_loop,
            device=options.device,
        )
    except Break as stop:
        return Explanation(function.__qualname__, None, str(stop), earlier)
    captured_at = time.perf_counter()
    backend = get_backend(options.backend, options.mode, options.device)
    executable = backend(captured.graph) if captured.has_operations else None
    if executable is not None and executable.native is not None:
        _ = executable.native.address  # waits for the C compiler
    program = Program(captured, executable, captured_at - start, time.perf_counter() - captured_at)
    return Explanation(function.__qualname__, program, None, earlier)


def has_c_compiler() -> bool:
    """Whether functions of NumPy arrays become machine code here."""
    return find_compiler() is not None


# -- frames that a broken part enters ---------------------------------------------------------------------------------------------


def _on_frame(function: types.FunctionType, code: types.CodeType, values: tuple) -> Any:
    """The frame hook's watcher: called as a frame starts in the extent of a broken part."""
    root = getattr(_frame_hook.watched(), "compilation", None)
    if root is None or not may_be_captured(function, code):
        return _frame_hook.SKIP
    holds = any(map(_holds_arrays, values)) or any(map(_holds_arrays, _enclosed(function)))
    return root.on_frame(function, code, values) if holds else None


def _enclosed(function: types.FunctionType) -> list[Any]:
    """What the variables of enclosing functions hold, as far as they are set."""
    return [value for cell in function.__closure__ or () for value in [_contents(cell)] if value is not cell]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not set yet
        return cell


def _holds_arrays(value: Any) -> bool:
    kind = type(value)
    return issubclass(kind, (np.ndarray, list, tuple, dict)) or is_array(value) or bool(shown_namespace(value))


if _frame_hook is not None:
    _frame_hook.set_watcher(_on_frame)
    _dispatch.set_monitoring_tools(_frame_hook.monitoring_tools())
    _dispatch.set_pending_signals(_frame_hook.pending_signals())

__all__ = ["TAPE", "Compilation", "explained"]
