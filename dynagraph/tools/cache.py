"""`dynagraph cache`: what is kept on disk."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from dynagraph.backends import kernel_cache


@click.group()
def cache() -> None:
    """Look at, or empty, the compiled kernels on disk."""


@cache.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def info(as_json: bool) -> None:
    """Where the kernels are, how many, and how much room they take."""
    found = kernel_cache.cache().info()
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    elif found.folder is None:
        click.echo("no kernels are kept on disk: `dynagraph doctor` says why")
    else:
        room = f"{size(found.nbytes)} of at most {size(found.limit)}"
        click.echo(f"folder   {found.folder}\nkernels  {found.entries}\nsize     {room}")


@cache.command()
def clear() -> None:
    """Take out every kernel; programs that run keep theirs."""
    kept = kernel_cache.cache()
    before = kept.info()
    if before.folder is None:
        raise click.ClickException("no kernels are kept on disk: `dynagraph doctor` says why")
    gone = kept.clear()
    left = kept.info().entries
    click.echo(f"removed {gone} kernel{'s' if gone != 1 else ''} ({size(before.nbytes)}) from {before.folder}")
    if left:
        raise click.ClickException(f"{left} could not be removed from {before.folder}")


def size(nbytes: int) -> str:
    """Bytes in the unit that reads best.

    >>> size(3 * 2**20)
    '3.0 MiB'
    """
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= factor:
            return f"{nbytes / factor:.1f} {unit}"
    return f"{nbytes} B"


__all__ = ["cache", "size"]
