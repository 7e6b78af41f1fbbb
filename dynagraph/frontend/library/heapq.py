"""heapq, as its own Python source defines it: followed where the heap is a list and nothing derived from one."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds.values import Sequence, Value
from dynagraph.frontend.library.definitions import followed
from dynagraph.frontend.library.registry import meaning

D = TypeVar("D", bound=Callable[..., Any])
sift_down: Any = heapq._siftdown  # type: ignore[attr-defined]
sift_up: Any = heapq._siftup  # type: ignore[attr-defined]


def defines(function: Any) -> Callable[[D], D]:
    def register(definition: D) -> D:
        assert isinstance(definition, FunctionType)
        follow = followed(definition)

        @meaning(function)
        def of_lists(frame: Frame, heap: Any, *args: Any) -> Value:
            given = frame.ex.resolve(heap)
            if not isinstance(given, Sequence) or given.kind is not list:
                refuse("UNSUPPORTED_ARGUMENT", f"heapq.{function.__name__}() of what is no list")
            return follow(frame, heap, *args)

        return definition

    return register


@defines(heapq.heappush)
def heappush(heap: Any, item: Any, /) -> None:
    heap.append(item)
    sift_down(heap, 0, len(heap) - 1)


@defines(heapq.heappop)
def heappop(heap: Any, /) -> Any:
    last = heap.pop()
    if not heap:
        return last
    first = heap[0]
    heap[0] = last
    sift_up(heap, 0)
    return first


@defines(heapq.heapreplace)
def heapreplace(heap: Any, item: Any, /) -> Any:
    first = heap[0]
    heap[0] = item
    sift_up(heap, 0)
    return first


@defines(heapq.heappushpop)
def heappushpop(heap: Any, item: Any, /) -> Any:
    if heap and heap[0] < item:
        item, heap[0] = heap[0], item
        sift_up(heap, 0)
    return item


@defines(heapq.heapify)
def heapify(heap: Any, /) -> None:
    for k in reversed(range(len(heap) // 2)):
        sift_up(heap, k)
