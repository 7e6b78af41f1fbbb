"""``torch.profiler``: what operations on tensors took, eager ones and those of backward, and regions that programs mark.

A profile is of the CPU's clock.  Operations of GPUs are measured as they are started, and what a compiled function does is part of
the region around it: its program runs without Python, and nobody looks.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.markers import is_compiling
from dynagraph.torch.core.primitives import Primitive
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import getattr_of

_active: list[profile] = []
__dynagraph_mutable__ = ("_active",)


class ProfilerActivity(enum.Enum):
    """What a profile is of: all are accepted, and the CPU is measured."""

    CPU = 0
    CUDA = 2
    XPU = 1
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5


class ProfilerAction(enum.Enum):
    """What a profile does in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Steps of a profile: after `skip_first`, again and again (`repeat` times, 0: for ever) waits, warms up, and is active."""

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError("Step must be non-negative.")
        step -= skip_first
        if skip_first_wait:
            step += wait
        if step < 0:
            return ProfilerAction.NONE
        cycle = wait + warmup + active
        if 0 < repeat <= step // cycle:
            return ProfilerAction.NONE
        place = step % cycle
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if place == cycle - 1 else ProfilerAction.RECORD

    if wait < 0 or warmup < 0 or active <= 0 or repeat < 0 or skip_first < 0:
        raise AssertionError("Invalid profiler schedule arguments")
    return action


@dataclass
class FunctionEvent:
    """An operation or region: when it ran (nanoseconds of the monotonic clock), in which thread, on what shapes."""

    name: str
    begin: int
    end: int
    thread: int
    input_shapes: list[list[int]] = field(default_factory=list)
    is_user_annotation: bool = False
    inner: int = 0  # nanoseconds of the events within it

    count = 1

    @property
    def key(self) -> str:
        """Its name."""
        return self.name

    @property
    def cpu_time_total(self) -> float:
        """Microseconds from its begin to its end."""
        return (self.end - self.begin) / 1000

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds without those of the events within it."""
        return (self.end - self.begin - self.inner) / 1000

    cpu_time = cpu_time_total


@dataclass
class FunctionEventAvg:
    """All events of a name."""

    key: str
    input_shapes: list[list[int]]
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    is_user_annotation: bool = False
    device_time_total = self_device_time_total = cuda_time_total = self_cuda_time_total = 0.0  # GPUs are not measured

    @property
    def cpu_time(self) -> float:
        """Microseconds of one, on average."""
        return self.cpu_time_total / self.count

    def add(self, event: FunctionEvent) -> None:
        """Count an event, too."""
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total


_COLUMNS = ("Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


class EventList(list[Any]):
    """Events, or averages of them."""

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all of them, each counted once."""
        return float(sum(event.self_cpu_time_total for event in self))

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """The events by name, and by shapes."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shape else []
            key = event.name, str(shapes)
            if key not in found:
                found[key] = FunctionEventAvg(event.name, shapes, is_user_annotation=event.is_user_annotation)
            found[key].add(event)
        return EventList(found.values())

    def total_average(self) -> FunctionEventAvg:
        """All of them as one."""
        total = FunctionEventAvg("Total", [])
        for event in self:
            total.count += event.count
            total.cpu_time_total += event.cpu_time_total
            total.self_cpu_time_total += event.self_cpu_time_total
        return total

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_src_column_width: int = 75, max_name_column_width: int = 55,
        max_shapes_column_width: int = 80, header: str | None = None, top_level_events_only: bool = False,
    ) -> str:  # fmt: skip
        """A text of columns: `row_limit` rows (-1: all), by `sort_by` downward ("cpu_time_total", "count"...)."""
        rows = list(self)
        if sort_by is not None:
            rows.sort(key=lambda row: getattr(row, sort_by), reverse=True)
        has_shapes = any(row.input_shapes for row in rows)
        total = self.self_cpu_time_total
        texts = [[*_COLUMNS, *(["Input Shapes"] if has_shapes else [])]]
        for row in rows if row_limit < 0 else rows[:row_limit]:
            name = row.key if len(row.key) <= max_name_column_width else row.key[: max_name_column_width - 3] + "..."
            parts = [f"{100 * part / total if total else 0.0:.2f}%" for part in (row.self_cpu_time_total, row.cpu_time_total)]
            texts.append([
                name, parts[0], _time(row.self_cpu_time_total), parts[1], _time(row.cpu_time_total), _time(row.cpu_time),
                str(row.count), *([str(row.input_shapes)[:max_shapes_column_width]] if has_shapes else []),
            ])  # fmt: skip
        widths = [max(len(text[k]) for text in texts) for k in range(len(texts[0]))]
        line = "  ".join("-" * width for width in widths)
        lines = ["  ".join(text[k].rjust(widths[k]) for k in range(len(widths))) for text in texts]
        first = [header] if header else []
        return "\n".join([*first, line, lines[0], line, *lines[1:], line, f"Self CPU time total: {_time(total)}", ""])

    def export_chrome_trace(self, path: Any) -> None:
        """Write a file for chrome://tracing and Perfetto."""
        pid = os.getpid()
        events = [
            {
                "ph": "X", "cat": "user_annotation" if event.is_user_annotation else "cpu_op", "name": event.name, "pid": pid,
                "tid": event.thread, "ts": event.begin / 1000, "dur": event.cpu_time_total,
                "args": {"Input Dims": event.input_shapes} if event.input_shapes else {},
            }
            for event in self
        ]  # fmt: skip
        with open(path, "w") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, file)


def _nested(events: Iterable[FunctionEvent]) -> EventList:
    """The events in order, each with the time of those directly within it."""
    found = EventList(sorted(events, key=lambda event: (event.thread, event.begin, -event.end)))
    around: list[FunctionEvent] = []
    for event in found:
        while around and (around[-1].thread != event.thread or around[-1].end < event.end):
            around.pop()
        if around:
            around[-1].inner += event.end - event.begin
        around.append(event)
    return found


class record_function(contextlib.ContextDecorator):
    """A region of a name, which profiles show: a context and a decorator.  In compiled functions it is nothing."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self.begun = 0

    def __enter__(self) -> record_function:
        if not is_compiling() and _active:
            self.begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return self

    def __exit__(self, *_: Any) -> None:
        if not is_compiling() and _active and self.begun:
            end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            _active[-1].note(FunctionEvent(self.name, self.begun, end, threading.get_native_id(), is_user_annotation=True))
            self.begun = 0


class profile:
    """A profile of what runs within it: a context, or between `start` and `stop`.

    schedule: what to do in each step, which `step` ends; None: all is recorded.  on_trace_ready: called with the profile where a
    recorded cycle ends.  record_shapes: keep the shapes of operands.  Other arguments are accepted: memory, stacks, modules and
    FLOPs are not recorded, and have no columns.

    >>> from dynagraph import torch
    >>> with torch.profiler.profile() as prof:
    ...     y = torch.ones(3).exp()
    >>> [event.name for event in prof.events() if event.name == "exp"]
    ['exp']
    """

    def __init__(
        self, *, activities: Iterable[Any] | None = None, schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None, record_shapes: bool = False, profile_memory: bool = False,
        with_stack: bool = False, with_flops: bool = False, with_modules: bool = False, experimental_config: Any = None,
        execution_trace_observer: Any = None, acc_events: bool = False, use_cuda: bool | None = None, use_cpu: bool = True,
        custom_trace_id_callback: Any = None,
    ):  # fmt: skip
        self.schedule, self.on_trace_ready = schedule, on_trace_ready
        self.record_shapes, self.acc_events = record_shapes, acc_events
        self.step_num = 0
        self.action = ProfilerAction.RECORD if schedule is None else schedule(0)
        self.recorded: list[FunctionEvent] = []
        self.metadata: dict[str, Any] = {}
        self.step_begun = 0

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def start(self) -> None:
        """Begin."""
        if _active:
            raise RuntimeError("Profiler is already enabled on this thread")
        _active.append(self)
        self.recorded = []
        self._look()

    def stop(self) -> None:
        """End."""
        _dispatch.observe_tensor_calls(None)
        if self in _active:
            _active.remove(self)
        if self._records() and self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def step(self) -> None:
        """The next step begins."""
        if self.schedule is None:
            self.step_num += 1
            return
        before = self.action
        if self._records():
            name = f"ProfilerStep#{self.step_num}"
            self.note(FunctionEvent(name, self.step_begun, _now(), threading.get_native_id(), is_user_annotation=True))
        _dispatch.observe_tensor_calls(None)
        if before is ProfilerAction.RECORD_AND_SAVE and self.on_trace_ready is not None:
            self.on_trace_ready(self)
        self.step_num += 1
        self.action = self.schedule(self.step_num)
        if self._records() and before is not ProfilerAction.RECORD and not self.acc_events:
            self.recorded = []
        self._look()

    def _records(self) -> bool:
        return self.action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)

    def _look(self) -> None:
        self.step_begun = _now()
        _dispatch.observe_tensor_calls(self._observe if self._records() else None)

    def _observe(self, what: Any, begin: int, end: int, operands: Any) -> None:
        name = what.name if isinstance(what, Primitive) else type(what).__name__
        shapes = [list(o.shape) if isinstance(o, Tensor) else [] for o in operands or ()] if self.record_shapes else []
        self.recorded.append(FunctionEvent(name, begin, end, threading.get_native_id(), shapes))

    def note(self, event: FunctionEvent) -> None:
        """Add an event, if this step is recorded."""
        if self._records():
            self.recorded.append(event)

    def add_metadata(self, key: str, value: str) -> None:
        """Say something about the profile, in its trace file."""
        self.metadata[key] = value

    def events(self) -> EventList:
        """What was recorded, in order."""
        for event in self.recorded:
            event.inner = 0
        return _nested(self.recorded)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0) -> EventList:
        """What was recorded, by name."""
        return self.events().key_averages(group_by_input_shape)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all that was recorded."""
        return self.events().self_cpu_time_total

    def table(self, *args: Any, **kwargs: Any) -> str:
        """A text of columns of all events."""
        return self.events().table(*args, **kwargs)

    def export_chrome_trace(self, path: Any) -> None:
        """Write a file for chrome://tracing and Perfetto."""
        self.events().export_chrome_trace(path)
        if self.metadata:
            with open(path) as file:
                trace = json.load(file)
            with open(path, "w") as file:
                json.dump({**trace, **self.metadata}, file)


def _now() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None, use_gzip: bool = False) -> Callable[[Any], None]:
    """For `on_trace_ready`: writes a trace file into a directory, where TensorBoard finds it."""
    os.makedirs(dir_name, exist_ok=True)

    def handle(prof: Any) -> None:
        name = worker_name or f"{os.uname().nodename}_{os.getpid()}"
        prof.export_chrome_trace(os.path.join(dir_name, f"{name}.{time.time_ns()}.pt.trace.json"))

    return handle


def kineto_available() -> bool:
    """False: the library that PyTorch's profiler writes traces by is not there."""
    return False


__getattr__ = getattr_of(__name__)
__all__ = [
    "ProfilerAction", "ProfilerActivity", "kineto_available", "profile", "record_function", "schedule", "tensorboard_trace_handler",
]  # fmt: skip
