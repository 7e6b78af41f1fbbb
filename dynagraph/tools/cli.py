"""The `dynagraph` command.  Each subcommand stands in a file of its own."""

from __future__ import annotations

import click

import dynagraph
from dynagraph import config
from dynagraph.tools.bench import bench
from dynagraph.tools.cache import cache
from dynagraph.tools.doctor import doctor
from dynagraph.tools.dump import dump
from dynagraph.tools.explain import explain
from dynagraph.tools.machine import measure


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(dynagraph.__version__, prog_name="dynagraph")
def main() -> None:
    """A graph compiler for NumPy: see what it captures and generates, measure it, find out what is wrong."""
    config.compile_budget = None  # tools show what compiling gives, whatever it costs


for command in (dump, explain, bench, cache, doctor, measure):
    main.add_command(command)

__all__ = ["main"]
