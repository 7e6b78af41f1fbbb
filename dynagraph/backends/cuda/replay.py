"""CUDA graphs, for ``mode="reduce-overhead"``: a call that repeats an earlier one is one launch of a graph.

A graph holds addresses, so it serves the calls of one key: stream, sizes, addresses of the inputs, numbers passed by value.  The
second call of a key that comes through a launcher is recorded: the program's launches go to a stream that captures them instead of
running them, into results and a workspace that are made for this graph.  Then the graph is launched on the current stream, which is
the call; so is each later call of the key.  Nothing runs before that one launch: what fails until then leaves no trace.

Why no result is overwritten that somebody still has: of a graph's results only the memory is kept.  Each call makes new arrays over
it, and everything that reaches memory of CuPy's (arrays, their views and pointers, exports) holds a reference to its memory object.
A graph is launched only if the arrays of the call are the only holders: CuPy's pool would give the memory to somebody else then. As
with the pool, what the stream has to do already comes first; calls on another stream are of another key, with other memory.
Otherwise the call uses another graph with results of its own (`SETS`), or launches its kernels one by one into new arrays.

Threads keep what they have recorded for themselves.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

from dynagraph.array_libraries import ArrayLibrary
from dynagraph.backends.cuda.checks import CheckFailedError
from dynagraph.driver.signals import is_of_signal
from dynagraph.errors import is_final

MOST_KEYS = 8  # with graphs, in each thread
SETS = 2  # of results for a key: in `y = f(x)` the last result lives until the next one is there
MOST_SEEN = 64  # keys of single calls that are remembered
# where addresses keep changing, recording must not cost more than replays save: so many replays, or calls not recorded, pay for one
FIRST_RECORDINGS, REPLAYS_FOR_ANOTHER, CALLS_FOR_ANOTHER = 8, 16, 256
LEGACY_STREAMS = (0, 1)  # which cannot be captured

_log = logging.getLogger("dynagraph.kernels")


def _references_to_a_variable() -> int:
    """What `getrefcount` says of an object that a local variable holds."""
    memory = object()
    return getrefcount(memory)


# of the memory of a result that nobody else has, in `Recording.take`: the recording, its pointer, and the new array have it too
UNSHARED = _references_to_a_variable() + 3



class Stage(NamedTuple):
    """Part of a call: what launches its kernels, if it has any, and what the host does behind these, which no graph holds."""

    start: Callable[[], None] | None
    then: Callable[[], None] | None


Prepared = tuple[list[Any], Any, Sequence[Stage]]  # the outputs of a call, its workspaces, and its stages


class Recording:
    """The CUDA graphs of a call, the stream that they are launched on, the memory of the results, and whatever else they use.

    `stages`: each with its graph, or None, and what the host does behind it.  `into`: by output, the input that it is written to,
    or None.  Launches are functions of C, behind which no signal's handler runs: one that raises has nothing launched twice.
    """

    __slots__ = ("_array_type", "_is_captured", "_launch", "_results")

    def __init__(
        self,
        stages: Sequence[tuple[Any, Callable[[], None] | None]],
        stream: Any,
        outputs: Sequence[Any],
        into: Sequence[int | None],
        kept: list[Any],
    ):
        # with the stream, as another one could get its address
        launches = [functools.partial(graph.launch, stream) for graph, _ in stages if graph is not None]
        vars(launches[0])["kept"] = kept  # by those too who are about to launch what has been forgotten here
        each = iter(launches)
        steps = [step for graph, then in stages for step in (None if graph is None else next(each), then) if step is not None]
        self._launch = tuple(steps)
        self._is_captured = None if stream.ptr in LEGACY_STREAMS else stream.is_capturing
        self._array_type: Any = type(outputs[0]) if outputs else None
        self._results = tuple((position, x.shape, x.dtype, *_memory_of(x, position)) for x, position in zip(outputs, into))

    def take(self, inputs: Sequence[Any]) -> list[Any] | None:
        """What launches the graphs, in order, then the results of doing so.

        None: somebody has one of the last results, or is capturing the stream for a graph of his own.
        """
        if self._is_captured is not None and self._is_captured():
            return None
        taken: list[Any] = [self._launch]
        for position, shape, dtype, pointer, memory in self._results:
            if position is not None:
                taken.append(inputs[position])
                continue
            # first taken, then counted: code that runs in between (a finalizer, a signal's handler) may call the function too
            taken.append(self._array_type(shape, dtype, pointer + 0))
            if getrefcount(memory) != UNSHARED:
                return None
        return taken


def _memory_of(output: Any, into: int | None) -> tuple[Any, Any]:
    """A pointer to a result's memory, and the memory, which belongs to somebody else where it is an input's."""
    if into is not None:
        return None, None
    pointer = output.data
    return pointer, pointer.mem


class _OfThread(threading.local):
    """What one thread has recorded, and its stream for doing so."""

    def __init__(self) -> None:
        self.recorded: OrderedDict[bytes, list[Recording]] = OrderedDict()
        self.seen: dict[bytes, None] = {}
        self.stream: Any = None


class Replayer:
    """Calls of one program as launches of CUDA graphs; a launcher's `replay`.

    `prepare` makes the arrays of a call of given inputs; `into` says which outputs are written to which inputs.  A key is of bytes,
    the first eight of which are the address of the current stream.
    recordings: graphs that were captured, or tried to be; replays: calls that were launches of graphs; failure: why there will be
    no others, or None.  The numbers are approximate where several threads count at the same time.
    """

    def __init__(self, library: ArrayLibrary, into: Sequence[int | None], prepare: Callable[[Sequence[Any]], Prepared]):
        self.library, self.into, self.prepare = library, tuple(into), prepare
        self.recordings = self.replays = self._declined = 0
        self.failure: str | None = None
        self._mine = _OfThread()

    def __call__(self, key: bytes, inputs: tuple[Any, ...]) -> list[Any] | None:
        """What does all of a call's launches, and its results; None: launch them."""
        recorded = self._mine.recorded
        found = recorded.get(key)
        if found is None:
            return self._record(key, inputs) if self._was_seen(key) else None
        for recording in found:
            taken = recording.take(inputs)
            if taken is not None:
                self.replays += 1
                if key in recorded:  # still
                    recorded.move_to_end(key)
                return taken
        return self._record(key, inputs) if len(found) < SETS else None

    def failed(self, error: BaseException) -> bool:
        """Note what a recording or a launch of a graph raised, and do without from here on; False: it came from elsewhere."""
        of_values = isinstance(error, CheckFailedError) or is_final(error)  # the caller's, or what an earlier call has left
        if of_values or not isinstance(error, Exception) or is_of_signal(error):
            return False
        self.failure = f"{type(error).__name__}: {error}"
        self._mine.recorded.clear()
        _log.info("kernels are launched one by one from here on, as a CUDA graph of them failed: %s", self.failure)
        return True

    def _was_seen(self, key: bytes) -> bool:
        seen = self._mine.seen
        if key in seen:
            return True
        if len(seen) >= MOST_SEEN:
            del seen[next(iter(seen))]
        seen[key] = None
        return False

    def _record(self, key: bytes, inputs: tuple[Any, ...]) -> list[Any] | None:
        if self.failure is not None or self.recordings >= self._allowed():
            self._declined += 1
            return None
        stream = self.library.module.cuda.get_current_stream()  # type: ignore[attr-defined]
        if stream.ptr != int.from_bytes(key[:8], sys.byteorder, signed=True):
            return None  # a signal's handler made another stream current
        if stream.ptr not in LEGACY_STREAMS and stream.is_capturing():
            return None
        self.recordings += 1
        recording = self._captured(inputs, stream)
        taken = recording.take(inputs)
        if taken is None:
            raise RuntimeError("the allocator of arrays shares their memory objects")
        recorded = self._mine.recorded
        recorded[key] = [*recorded.pop(key, ()), recording]
        if len(recorded) > MOST_KEYS:
            recorded.popitem(last=False)
        _log.debug("recorded a CUDA graph, the %dth of its program", self.recordings)
        return taken

    def _allowed(self) -> int:
        """How many recordings have paid, or may do so yet."""
        return FIRST_RECORDINGS + self.replays // REPLAYS_FOR_ANOTHER + self._declined // CALLS_FOR_ANOTHER

    def _captured(self, inputs: tuple[Any, ...], stream: Any) -> Recording:
        """The launches of a call as a graph that is launched on the current stream."""
        mine = self._mine
        outputs, workspace, stages = self.prepare(inputs)
        kept: list[Any] = [workspace]
        recorded: list[tuple[Any, Callable[[], None] | None]] = []
        if mine.stream is None:
            mine.stream = self.library.module.cuda.Stream(non_blocking=True)  # type: ignore[attr-defined]
        on = mine.stream
        with self._instead(stream, on, kept):
            try:
                for stage in stages:
                    recorded.append((None if stage.start is None else self._graph_of(stage.start, on), stage.then))
            except BaseException:
                mine.stream = None
                with contextlib.suppress(Exception):  # where it had not begun, or had ended
                    on.end_capture()
                raise
        return Recording(recorded, stream, outputs, self.into, kept)

    @staticmethod
    def _graph_of(start: Callable[[], None], on: Any) -> Any:
        on.begin_capture()
        start()
        return on.end_capture()

    @contextlib.contextmanager
    def _instead(self, stream: Any, on: Any, kept: list[Any]) -> Iterator[None]:
        """Make the stream `on` current, but allocate for `stream`: with some allocators, what CuPy's functions allocate would else
        become part of the graph.  It is kept, as the graph goes on using it.
        """
        cuda: Any = self.library.module.cuda
        allocate = cuda.get_allocator()

        def allocate_and_keep(size: int) -> Any:
            stream.use()
            try:
                kept.append(allocate(size))
            finally:
                on.use()
            return kept[-1]

        with cuda.using_allocator(allocate_and_keep):
            on.use()
            try:
                yield
            finally:
                stream.use()  # leaving a `with` block of CuPy's would not bring back one that was set by use()


__all__ = ["Prepared", "Recording", "Replayer"]
