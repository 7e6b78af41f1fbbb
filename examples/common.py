"""What the examples share: their command line, progress, checkpoints, and the comparison of eager and compiled steps.

Under PyTorch it serves as well: each function that needs the library is given it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def parser(doc: str, name: str, turns: int, quick: int, unit: str = "steps", noted: str = "loss") -> argparse.ArgumentParser:
    """The command line that all examples have.  turns: how many steps or epochs; quick: how many of them with `--quick`.

    noted: what the number is that is logged for each.
    """
    made = argparse.ArgumentParser(description=doc.splitlines()[0])
    made.add_argument(f"--{unit}", dest="turns", metavar="N", type=int, help=f"{turns} by default")
    made.add_argument("--quick", action="store_true", help=f"{quick} {unit}, to see that it runs")
    way = made.add_mutually_exclusive_group()
    way.add_argument("--compile", action="store_true", default=True, help="compile what is repeated (the default)")
    way.add_argument("--eager", action="store_true", help="run it operation by operation; nothing is compared at the end")
    made.add_argument("--device", default="cpu", help="cpu (the default) or cuda")
    made.add_argument("--checkpoint", metavar="FILE", help="go on from this file if it is there, and save to it")
    made.add_argument("--out", metavar="PNG", default=f"{name}.png", help="where the picture goes; '' for none")
    # silent: another process says and writes all
    made.set_defaults(name=name, unit=unit, usual=turns, few=quick, noted=noted, silent=False)
    return made


def parsed(made: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    """The options; `turns` as asked for."""
    options = made.parse_args(arguments)
    if options.turns is None:
        options.turns = options.few if options.quick else options.usual
    return options


class Run:
    """A training that shows how far it is and can be stopped and resumed.

    parts: what has to be saved, by name: anything with `state_dict` and `load_state_dict`.

        run = Run(options, torch, model=model, optimizer=optimizer)
        for _ in run.turns():
            run.log(step(...))

    `losses` holds what was logged, and `times` the seconds of each turn, before the checkpoint too.
    """

    def __init__(self, options: argparse.Namespace, torch: Any, **parts: Any) -> None:
        self.options, self.torch, self.parts = options, torch, parts
        self.done, self.losses, self.times = 0, [], []
        if options.checkpoint and os.path.exists(options.checkpoint):
            saved = torch.load(options.checkpoint)
            for name, part in parts.items():
                part.load_state_dict(saved[name])
            torch.set_rng_state(saved["random numbers"])
            self.done, self.losses, self.times = saved["done"], saved["losses"], saved["times"]

    def save(self) -> None:
        """Write the checkpoint: the whole new file or none."""
        if self.options.checkpoint and not self.options.silent:
            states = {name: part.state_dict() for name, part in self.parts.items()}
            more = {"random numbers": self.torch.get_rng_state(), "done": self.done, "losses": self.losses, "times": self.times}
            written = f"{self.options.checkpoint}.new"
            self.torch.save({**states, **more}, written)
            os.replace(written, self.options.checkpoint)

    @property
    def speed(self) -> float:
        """Turns per second, by the median turn: the first ones compile."""
        return 1 / statistics.median(self.times) if self.times else 0.0

    def log(self, loss: Any) -> None:
        """Note a loss: a number, or a tensor with one."""
        self.losses.append(float(loss))

    def turns(self, saves: int = 10) -> Iterator[int]:
        """The numbers of the steps or epochs that are left; `saves` checkpoints are written on the way."""
        total, every = self.options.turns, max(1, self.options.turns // saves)
        columns = (TextColumn("{task.description:12}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[said]}"))
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), disable=self.options.silent) as progress:
            task = progress.add_task(f"{self.options.name}, {self.options.unit}", total=total, completed=self.done, said="")
            while self.done < total:
                begun = time.perf_counter()
                yield self.done
                self.times.append(time.perf_counter() - begun)
                self.done += 1
                progress.update(task, advance=1, said=f"{self.options.noted} {self.losses[-1]:.4g}" if self.losses else "")
                if self.done % every == 0 or self.done == total:
                    self.save()


def compiled(torch: Any, function: Callable, options: argparse.Namespace) -> Callable:
    """The function compiled, whatever that takes; itself with `--eager`.

    PyTorch's own "max-autotune" would try kernels for minutes: there it is the default mode.
    """
    if options.eager:
        return function
    ours = torch.__spec__.name == "dynagraph.torch"  # whose name is "torch" where it stands in for it
    return torch.compile(function, mode="max-autotune" if ours else "default")  # type: ignore


def settle(function: Callable, *arguments: Any, seconds: float = 60.0) -> None:
    """Call it until no compiler works beside it any more, for so many seconds at most.

    dynagraph's C compiler works twice: quickly at the first call, and with all optimisations beside those that follow.
    """
    end = time.perf_counter() + seconds
    stats = getattr(function, "stats", None)  # PyTorch's functions have none
    while stats is not None and stats.improving and time.perf_counter() < end:
        function(*arguments)
        time.sleep(0.05)  # the compiler wants the processor


def compare(options: argparse.Namespace, eager: Callable, fast: Callable, *arguments: Any) -> float:
    """Print and give how many times as fast the compiled function is: medians of calls in turn, once its code is final."""
    if fast is eager:
        return 1.0
    settle(fast, *arguments)
    rounds = 5 if options.quick else 15
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(rounds + 1):
        for function, samples in zip((eager, fast), times):
            begun = time.perf_counter()
            function(*arguments)
            samples += [time.perf_counter() - begun] * (k > 0)
    plain, ours = map(statistics.median, times)
    if not options.silent:
        print(f"eager {1e3 * plain:.2f} ms, compiled {1e3 * ours:.2f} ms: {plain / ours:.1f}x as fast")
    return plain / ours


def picture(options: argparse.Namespace, draw: Callable[[Any], Any]) -> None:
    """Have `draw(pyplot)` make a figure, and write it.  Only this needs matplotlib."""
    if not options.out or options.silent:
        return
    try:
        import matplotlib
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = draw(pyplot)
    figure.savefig(options.out, dpi=110)
    pyplot.close(figure)
    print(f"wrote {options.out}")
