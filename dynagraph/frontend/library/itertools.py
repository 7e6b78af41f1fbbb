"""itertools in captured code."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.kinds.iterators import Count, Filter, Repeat, Stepped, called
from dynagraph.frontend.kinds.slots import binary, items_of, iterate, known_number, plain, same_or_equal, truth
from dynagraph.frontend.kinds.values import NULL, Const, Dict, Sequence, Value
from dynagraph.frontend.library.builtins import born
from dynagraph.frontend.library.registry import meaning
from dynagraph.ir.shapes import SymInt


def _lazily(
    what: str, function: Any, first: int = 0, last: int | None = 0, stateless: bool = False, take: Callable[..., Any] = iterate
) -> Callable[..., Any]:
    """Register a Python generator over values as the meaning of an iterator class.

    The arguments from `first` up to `last` are iterated at once.  `stateless`: what is left is all in their iterators.
    """

    def register(steps: Callable[..., Any]) -> Callable[..., Any]:
        @meaning(function)
        def make(frame: Frame, *args: Any, **kwargs: Any) -> Value:
            given = list(args)
            given[first:last] = [take(frame, a) for a in given[first:last]]
            again = called, (Const(function), Sequence(tuple, list(given)), Dict(dict(kwargs)))
            return born(frame, Stepped(what, steps(frame, *given, **kwargs), again, stateless))

        return steps

    return register


def each(frame: Frame, iterable: Any) -> Any:
    iterator = iterate(frame, iterable)
    while (item := iterator.step(frame)) is not NULL:
        yield item


@_lazily("chain", itertools.chain)
def _chain(frame: Frame, *iterables: Any) -> Any:
    for iterable in iterables:
        yield from each(frame, iterable)


@_lazily("chain", itertools.chain.from_iterable)
def _chain_from(frame: Frame, iterable: Any) -> Any:
    for inner in each(frame, iterable):
        yield from each(frame, inner)


def _all_items(frame: Frame, iterable: Any) -> Value:
    return Sequence(tuple, items_of(frame, iterable))


def _rows(name: str) -> Any:
    function = getattr(itertools, name)

    def steps(frame: Frame, *iterables: Any, **options: Any) -> Any:
        split = len(iterables) if name == "product" else 1
        columns = [items_of(frame, i) for i in iterables[:split]]
        rest = [known_number(plain(frame, i)) for i in iterables[split:]]
        try:
            rows = function(*columns, *rest, **{k: known_number(plain(frame, v)) for k, v in options.items()})
        except (TypeError, ValueError, OverflowError, MemoryError) as error:
            return throw(error)
        return (Sequence(tuple, list(row)) for row in rows)

    return steps


for _name in ("product", "permutations", "combinations", "combinations_with_replacement"):
    _lazily(_name, getattr(itertools, _name), last=None if _name == "product" else 1, take=_all_items)(_rows(_name))


@_lazily("islice", itertools.islice, last=1)
def _islice(frame: Frame, iterable: Any, *bounds: Any) -> Any:
    window = [known_number(plain(frame, b)) for b in bounds]
    try:
        itertools.islice((), *window)
    except (TypeError, ValueError) as error:
        throw(error)
    return _window(frame, iterable, slice(*window))


def _window(frame: Frame, iterable: Any, window: slice) -> Any:
    start, step = (window.start or 0), (window.step or 1)
    iterator, wanted = iterate(frame, iterable), start
    for position in itertools.count():
        if window.stop is not None and position >= window.stop:
            return
        item = iterator.step(frame)
        if item is NULL:
            return
        if position == wanted:
            wanted += step
            yield item


@meaning(itertools.count)
def _count(frame: Frame, start: Any = Const(0), step: Any = Const(1)) -> Value:
    value = frame.ex.resolve(start)
    if isinstance(value, Const) and not isinstance(value.value, (int, float, complex, SymInt)):
        refuse("WOULD_RAISE", "count() of something that is not a number")
    return born(frame, Count(binary, value, frame.ex.resolve(step)))


@_lazily("accumulate", itertools.accumulate, last=1)
def _accumulate(frame: Frame, iterable: Any, func: Any = Const(None), *, initial: Any = Const(None)) -> Any:
    total = frame.ex.resolve(initial)
    adds = isinstance(frame.ex.resolve(func), Const) and frame.ex.resolve(func).value in (None, operator.add)
    started = not (isinstance(total, Const) and total.value is None)
    if started:
        yield total
    for item in each(frame, iterable):
        if started:
            total = binary(frame, "+", total, item) if adds else call(frame, func, [total, item], {})
        else:
            total, started = item, True
        yield total


@meaning(itertools.repeat)
def _repeat(frame: Frame, object: Any, times: Any = NULL) -> Value:
    count = None if times is NULL else plain(frame, times)
    if times is not NULL and not isinstance(count, (int, SymInt)):
        refuse("WOULD_RAISE", "repeat() of something that is not a number of times")
    return born(frame, Repeat(object, None if count is None else int(count)))


@_lazily("cycle", itertools.cycle, last=1)
def _cycle(frame: Frame, iterable: Any) -> Any:
    seen = []
    for item in each(frame, iterable):
        seen.append(item)
        yield item
    while seen:
        yield from seen


@_lazily("zip_longest", itertools.zip_longest, last=None, stateless=True)
def _zip_longest(frame: Frame, *iterables: Any, fillvalue: Any = Const(None)) -> Any:
    columns = [iterate(frame, i) for i in iterables]
    while True:
        row = [c.step(frame) for c in columns]
        if all(item is NULL for item in row):
            return
        yield Sequence(tuple, [frame.ex.resolve(fillvalue) if item is NULL else item for item in row])


@_lazily("pairwise", itertools.pairwise, last=1)
def _pairwise(frame: Frame, iterable: Any) -> Any:
    before = NULL
    for item in each(frame, iterable):
        if before is not NULL:
            yield Sequence(tuple, [before, item])
        before = item


@_lazily("starmap", itertools.starmap, first=1, last=2, stateless=True)
def _starmap(frame: Frame, function: Any, iterable: Any) -> Any:
    for row in each(frame, iterable):
        yield call(frame, function, items_of(frame, row), {})


@_lazily("takewhile", itertools.takewhile, first=1, last=2)
def _takewhile(frame: Frame, predicate: Any, iterable: Any) -> Any:
    for item in each(frame, iterable):
        if not truth(frame, call(frame, predicate, [item], {})):
            return
        yield item


@_lazily("dropwhile", itertools.dropwhile, first=1, last=2)
def _dropwhile(frame: Frame, predicate: Any, iterable: Any) -> Any:
    dropping = True
    for item in each(frame, iterable):
        dropping = dropping and truth(frame, call(frame, predicate, [item], {}))
        if not dropping:
            yield item


@_lazily("compress", itertools.compress, last=2, stateless=True)
def _compress(frame: Frame, data: Any, selectors: Any) -> Any:
    for item, chosen in zip(each(frame, data), each(frame, selectors)):
        if truth(frame, chosen):
            yield item


@_lazily("groupby", itertools.groupby, last=1)
def _groupby(frame: Frame, iterable: Any, key: Any = Const(None)) -> Any:
    none = isinstance(frame.ex.resolve(key), Const) and frame.ex.resolve(key).value is None
    groups: list[tuple[Any, list[Any]]] = []
    for item in each(frame, iterable):
        name = item if none else call(frame, key, [item], {})
        if groups and same_or_equal(frame, groups[-1][0], name):
            groups[-1][1].append(item)
        else:
            groups.append((name, [item]))
    for name, items in groups:
        yield Sequence(tuple, [name, iterate(frame, Sequence(list, items))])


@meaning(itertools.filterfalse)
def _filterfalse(frame: Frame, function: Any, iterable: Any) -> Value:
    return born(frame, Filter(call, frame.ex.resolve(function), iterate(frame, iterable), keep=False))
