"""`dynagraph measure`: measure the devices and links of this machine, for `device="auto"`."""

from __future__ import annotations

import json

import click

from dynagraph.backends.measured_machine import as_json, identity, kept_figures, machine_of, measure_here
from dynagraph.backends.registry import backends_here
from dynagraph.errors import BackendError, CompilerError, CudaError
from dynagraph.ir.machine_model import CLASSES, Device, Link, Machine
from dynagraph.ir.placement import time_text
from dynagraph.ir.text import align


@click.command()
@click.option("--kept", is_flag=True, help="Measure nothing: show what was measured before.")
@click.option("--json", "as_data", is_flag=True, help="As JSON.")
def measure(kept: bool, as_data: bool) -> None:
    """Measure processor, GPUs and the links between them, in about two seconds, and keep the figures.

    They decide where functions compiled with device='auto' run.  They are taken by themselves when the first of these is
    compiled; measure again where other programs kept the machine busy then.
    """
    of = identity()
    if kept:
        figures = kept_figures(of)
        if figures is None:
            raise click.ClickException("nothing was measured on this machine: `dynagraph measure` does it")
    else:
        try:
            figures = measure_here(backends_here())
        except (BackendError, CompilerError, CudaError, MemoryError, RuntimeError) as error:
            raise click.ClickException(f"this machine could not be measured: {error}") from error
    if as_data:
        click.echo(json.dumps(as_json(figures), indent=2))
        return
    gpus = "".join(f"; cuda:{k} is {name}" for k, (name, _) in enumerate(of.gpus))
    click.echo(f"{of.processor}, {of.threads} threads{gpus}; measured in {figures.seconds:.1f} s\n")
    pinned = {pair: Link(**row) for pair, row in figures.pinned.items()}
    click.echo(describe(machine_of(of, figures), pinned))


def describe(machine: Machine, pinned: dict[tuple[str, str], Link]) -> str:
    """The numbers of a machine to read: of its devices, and of its links, whose copies of page-locked memory stand in brackets."""
    head = ("device", "copies", "a kernel", *(f"{what} {name}" for what in ("additions", "products") for name in CLASSES))
    parts = [align([head, *map(_device_row, machine.devices)])]
    pairs = [(a, b) for a in machine.names for b in machine.names if a != b]
    if pairs:
        rows = [(a, b, *_link_row(machine.link(a, b), pinned.get((a, b)))) for a, b in pairs]
        parts.append(align([("from", "to", "latency", "carries", "page-locked"), *rows]))
    return "\n\n".join(parts)


def _device_row(device: Device) -> tuple[str, ...]:
    rates = [table[name] for table in (device.additions, device.products) for name in CLASSES]
    return device.name, f"{rate_text(device.bandwidth)}B/s", time_text(device.launch_seconds), *(f"{rate_text(r)}/s" for r in rates)


def _link_row(link: Link, pinned: Link | None) -> tuple[str, ...]:
    return time_text(link.latency), f"{rate_text(link.bandwidth)}B/s", "" if pinned is None else f"{rate_text(pinned.bandwidth)}B/s"


def rate_text(rate: float) -> str:
    """
    >>> rate_text(4.8e12), rate_text(310e9)
    ('4.8 T', '310 G')
    """
    for prefix, size in (("T", 1e12), ("G", 1e9)):
        if rate >= size:
            return f"{rate / size:.3g} {prefix}"
    return f"{rate / 1e6:.3g} M"


__all__ = ["describe", "measure", "rate_text"]
