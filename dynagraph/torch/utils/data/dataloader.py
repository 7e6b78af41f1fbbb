"""The DataLoader: batches of a dataset, in the process itself or by workers."""

from __future__ import annotations

import functools
import multiprocessing
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dynagraph.torch import cuda
from dynagraph.torch.core.generator import Generator, default_generator
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.utils.data.collate import default_collate, default_convert
from dynagraph.torch.utils.data.dataset import IterableDataset
from dynagraph.torch.utils.data.fetching import Exhausted, Failure, OfIterable, OfMap
from dynagraph.torch.utils.data.sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, fresh_seed
from dynagraph.torch.utils.data.workers import Workers

PREFETCH = 2  # batches that each worker makes ahead


class _Forever(Sampler[None]):
    """Of iterable datasets, whose samples have no indices."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def _fetcher(auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool, is_iterable: bool, dataset: Any) -> Any:
    return (OfIterable if is_iterable else OfMap)(dataset, auto_collation, collate_fn, drop_last)


class DataLoader:
    """Iterates over batches of a dataset.

    batch_size: samples of a batch; None: single samples, as the dataset gives them.  shuffle, sampler, batch_sampler: the order.
    num_workers: processes that make batches; 0: the process itself.  collate_fn: makes a batch of samples.  drop_last: leave out a
    last batch that is shorter.  timeout: seconds to wait for workers; 0: any.  worker_init_fn: called with each worker's number.
    multiprocessing_context: "fork", "spawn", "forkserver" or a context.  generator: of the order, and of the workers' seeds.
    prefetch_factor: batches that each worker makes ahead.  persistent_workers: keep workers after a pass.  pin_memory: page-locked
    memory, for copies to a GPU.  in_order: False: batches as they become ready.

    `state_dict` and `load_state_dict` go on in the middle of a pass.  Random numbers that datasets draw in workers are the same for
    any number of workers: the streams of `torch`, `random` and NumPy start anew with each batch.  With a `worker_init_fn`, and in
    `torch_compatible`, they start with each worker, as PyTorch's do.

    >>> from dynagraph.torch.utils.data import DataLoader
    >>> [batch.tolist() for batch in DataLoader(range(5), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    _iterator: Any = None  # of persistent workers
    _latest: weakref.ref[Any] | None = None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ):
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        self.dataset, self.num_workers, self.pin_memory, self.timeout = dataset, num_workers, pin_memory, timeout
        self.prefetch_factor = PREFETCH if num_workers and prefetch_factor is None else prefetch_factor
        self.pin_memory_device, self.worker_init_fn, self.in_order = pin_memory_device, worker_init_fn, in_order
        self.multiprocessing_context = _context(multiprocessing_context, num_workers)
        self.is_iterable = isinstance(dataset, IterableDataset)
        shuffle = bool(shuffle) if not self.is_iterable else _refuse_order(shuffle, sampler, batch_sampler)
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = _Forever() if self.is_iterable else (
                RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            )  # fmt: skip
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size, self.drop_last, self.sampler, self.batch_sampler = batch_size, drop_last, sampler, batch_sampler
        self.generator, self.persistent_workers = generator, persistent_workers
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)
        self._resume: dict[str, Any] | None = None
        if pin_memory and not cuda.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=2,
            )

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __iter__(self) -> Any:
        if self.persistent_workers and self.num_workers:
            if self._iterator is None:
                self._iterator = _ByWorkers(self)
            else:
                self._iterator.begin()
            return self._iterator
        made = _ByWorkers(self) if self.num_workers else _InProcess(self)
        self._latest = weakref.ref(made)
        return made

    def __len__(self) -> int:
        if not self.is_iterable:
            return len(self._index_sampler)
        n = len(self.dataset)
        if self.batch_size is None:
            return n
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)

    # -- where it is ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Any]:
        """Where the latest pass stands: the state of the generator before it, and how many batches it has given."""
        latest = self._iterator or (None if self._latest is None else self._latest())
        if latest is None or latest.ended:
            return {"generator": None, "given": 0}
        return {"generator": latest.generator_state, "given": latest.given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next pass go on where another one, of a loader with the same arguments, has been stopped."""
        if not isinstance(state, dict) or set(state) != {"generator", "given"}:
            raise ValueError(f"DataLoader.load_state_dict: expected what DataLoader.state_dict() gave, got {state!r}")
        self._resume = dict(state)


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable multiprocessing, "
            "otherwise set prefetch_factor to None."
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")


def _context(given: Any, num_workers: int) -> Any:
    if given is None or not num_workers:
        if given is not None:
            raise ValueError(
                "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers="
                f"{num_workers}"
            )
        return None
    if isinstance(given, str):
        if given not in multiprocessing.get_all_start_methods():
            raise ValueError(
                "multiprocessing_context option should specify a valid start method in "
                f"{multiprocessing.get_all_start_methods()}, but got multiprocessing_context={given!r}"
            )
        return multiprocessing.get_context(given)
    if not isinstance(given, multiprocessing.context.BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but got "
            f"multiprocessing_context={given}"
        )
    return given


def _refuse_order(shuffle: Any, sampler: Any, batch_sampler: Any) -> bool:
    if shuffle not in {False, None}:
        raise ValueError(
            f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
        )
    for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
        if given is not None:
            raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}")
    return False


def _pinned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {key: _pinned(part) for key, part in value.items()}
    if isinstance(value, tuple):
        parts = [_pinned(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_pinned(part) for part in value]
    return value.pin_memory() if hasattr(value, "pin_memory") else value


class _Pass:
    """One pass over a loader's batches.  `given`: how many it has given so far."""

    def __init__(self, loader: DataLoader):
        self.loader = loader
        self.pins = loader.pin_memory and cuda.is_available()
        self.make_fetcher = functools.partial(
            _fetcher, loader._auto_collation, loader.collate_fn, loader.drop_last, loader.is_iterable
        )
        self.base_seed: int | None = None
        self._start()

    def _start(self) -> None:
        loader = self.loader
        resume, loader._resume = loader._resume, None
        generator = loader.generator or default_generator
        if resume is not None and resume["generator"] is not None:
            generator.set_state(resume["generator"])
        self.generator_state = generator.get_state()
        if self.base_seed is None:  # workers that stay keep theirs
            self.base_seed = fresh_seed(loader.generator)
        self.indices = iter(loader._index_sampler)
        self.given = 0 if resume is None else resume["given"]
        self.skipped = self.given
        self.ended = False
        if not loader.is_iterable:
            for _ in range(self.skipped):
                next(self.indices, None)
            self.skipped = 0

    def __iter__(self) -> Any:
        return self

    def __len__(self) -> int:
        return len(self.loader._index_sampler)

    def __next__(self) -> Any:
        while True:
            try:
                batch = self._next()
            except StopIteration:
                self.ended = True
                raise
            if self.skipped:  # of an iterable dataset, which has to make what was given already
                self.skipped -= 1
                continue
            self.given += 1
            return _pinned(batch) if self.pins else batch

    def _next(self) -> Any:
        raise NotImplementedError


class _InProcess(_Pass):
    def _start(self) -> None:
        super()._start()
        self.fetcher = self.make_fetcher(self.loader.dataset)

    def _next(self) -> Any:
        indices = next(self.indices)
        try:
            return self.fetcher.fetch(indices)
        except Exhausted:
            raise StopIteration from None


class _ByWorkers(_Pass):
    """Workers are asked in turn, `prefetch_factor` batches ahead each; batches are given in the order of asking."""

    def __init__(self, loader: DataLoader):
        super().__init__(loader)
        context = loader.multiprocessing_context or multiprocessing.get_context()
        self.workers = Workers(
            context, loader.dataset, self.make_fetcher, loader.num_workers, self.base_seed or 0, loader.worker_init_fn,
            loader.prefetch_factor or PREFETCH,
        )  # fmt: skip
        self._fill()

    def begin(self) -> None:
        """Another pass with the same workers."""
        self._drain()
        self._start()
        for worker in range(self.loader.num_workers):
            self.workers.ask(worker, -1, None)
        self._fill()

    def _start(self) -> None:
        super()._start()
        # numbers of the next batch to ask for, and to give
        self.asked = self.expected = 0 if self.loader.is_iterable else self.given
        self.waiting: dict[int, int] = {}  # number -> worker
        self.there: dict[int, Any] = {}  # that came before their turn
        self.arrived: deque[int] = deque()
        self.live = deque(range(self.loader.num_workers))  # in the order in which they are asked

    def _fill(self) -> None:
        ahead = (self.loader.prefetch_factor or PREFETCH) * self.loader.num_workers
        while self.live and self.asked - self.expected < ahead:
            try:
                indices = next(self.indices)
            except StopIteration:
                return
            worker = self.live[0]
            self.live.rotate(-1)
            self.workers.ask(worker, self.asked, indices)
            self.waiting[self.asked] = worker
            self.asked += 1

    def _drain(self) -> None:
        while self.waiting:
            for _, number, _ in self.workers.replies(self.loader.timeout):
                self.waiting.pop(number, None)

    def _receive(self) -> None:
        for worker, number, batch in self.workers.replies(self.loader.timeout):
            self.waiting.pop(number, None)
            self.there[number] = batch
            self.arrived.append(number)
            if isinstance(batch, Exhausted) and worker in self.live:
                self.live.remove(worker)

    def _next(self) -> Any:
        try:
            while True:
                if self.expected >= self.asked:
                    self._fill()
                    if self.expected >= self.asked:
                        raise StopIteration
                number = self.expected if self.loader.in_order else (self.arrived[0] if self.arrived else -1)
                if number not in self.there:
                    self._receive()
                    continue
                batch = self.there.pop(number)
                self.arrived.remove(number)
                self.expected += 1
                if isinstance(batch, Exhausted):
                    self._fill()
                    continue
                self._fill()
                if isinstance(batch, Failure):
                    batch.reraise()
                return batch
        except StopIteration:
            if not self.loader.persistent_workers:
                self.workers.stop()
            raise


__all__ = ["DataLoader"]
