"""`dynagraph dump`: what each stage made of one capture: bytecode, guards, graph, passes, loops, kernels."""

from __future__ import annotations

import dis
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

import click
from rich.console import Console
from rich.syntax import Syntax

from dynagraph.driver.attempts import Program
from dynagraph.frontend.bytecode.decode import decode
from dynagraph.ir import text
from dynagraph.ir.graph import Graph
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.tools.captures import NEVER_CALLED, NOT_FOLLOWED, Captures, captures_of
from dynagraph.tools.targets import parse_target


# -- the sections of one program ---------------------------------------------------------------------------------------
def graph_section(captures: Captures, program: Program) -> str:
    return text.table(program.graph)


def python_section(captures: Captures, program: Program) -> str:
    return text.python_code(program.graph).rstrip()


def passes_section(captures: Captures, program: Program) -> str:
    parts = []
    previous = ""
    for name, table in pass_tables(program.graph):
        parts.append(f"{name}: no change" if table == previous else f"{name}:\n{indented(table)}")
        previous = table
    return "\n".join(parts)


def pass_tables(graph: Graph) -> list[tuple[str, str]]:
    """The graph as a table after each pass."""
    stages: list[tuple[str, str]] = []
    run_passes(graph, observer=lambda name, after: stages.append((name, text.table(after))))
    return stages


def artifact_section(name: str) -> Callable[[Captures, Program], str]:
    def section(captures: Captures, program: Program) -> str:
        artifacts = program.executable.artifacts if program.executable is not None else {}
        return artifacts.get(name, f"there are no {name} to show").rstrip()

    return section


def loops_section(captures: Captures, program: Program) -> str:
    """The user's loops, then the loop program of the kernels."""
    if not program.loops:
        return kernel_loops(captures, program)
    parts = "\n".join(program.loops)
    return f"{parts}\n\n{kernel_loops(captures, program)}" if program.captured.has_operations else parts


kernel_loops = artifact_section("loops")


def placement_section(captures: Captures, program: Program) -> str:
    """For this machine, if it has a GPU, by what was measured on it; else for that of `machines.on_paper`."""
    from dynagraph.backends.device_choice import HOST, place_on
    from dynagraph.backends.measured_machine import machine_here  # for those who ask for it
    from dynagraph.ir.machine_model import on_paper

    home = HOST if program.graph.library == "numpy" else "cuda:0"
    here = machine_here()
    machine = here if len(here.devices) > 1 else on_paper()
    return place_on("auto", run_passes(program.graph), machine, home).describe()


def guards_section(captures: Captures, program: Program) -> str:
    return "\n".join(map(str, program.captured.guards.describe())) or "no guards"


def bytecode_section(captures: Captures, program: Program | None) -> str:
    """As Python has it, and as the frontend reads it."""
    code = captures.function.__code__
    out = io.StringIO()
    dis.dis(code, file=out)
    rows = [(str(k), str(i.line), i.op, "" if i.value is None else repr(i.value)) for k, i in enumerate(decode(code).instructions)]
    return f"{out.getvalue().rstrip()}\n\nnormalised:\n{indented(text.align(rows))}"


def breaks_section(captures: Captures) -> str:
    lines = [f"{count} x {reason}" for reason, count in captures.breaks.items()]
    if not captures.counters and any(p.captured.stop is not None for p in captures.programs):
        lines.append(NOT_FOLLOWED)
    return "\n".join(lines) or (NEVER_CALLED if captures.never_called else "none: no call ran eagerly")


Section = Callable[[Captures, Program], str]


def cuda_sections(architecture: int) -> dict[str, Section]:
    """What a GPU would run, whatever the functions have been compiled for."""
    from dynagraph.backends.cuda import listing  # for those who ask for it

    return {
        "loops": lambda captures, program: listing.loops(program.graph),
        "kernels": lambda captures, program: listing.kernels(program.graph, architecture),
    }


SECTIONS: dict[str, tuple[str, Section]] = {
    "graph": ("The captured graph, as a table.", graph_section),
    "python": ("The captured graph, as runnable NumPy.", python_section),
    "passes": ("The graph after each pass.", passes_section),
    "loops": ("What became of each loop, and why; then the loop program of the kernels.", loops_section),
    "kernels": ("The generated source.", artifact_section("kernels")),
    "placement": ("Which device runs which part under device='auto'; without a GPU here: beside an H200.", placement_section),
    "guards": ("What is checked before the program serves a call.", guards_section),
    "dot": ("The graph for Graphviz.", lambda captures, program: text.dot(program.graph)),
}
_LEXERS = {"kernels": "c", "python": "python"}


FLAGS = {name: doc for name, (doc, _) in SECTIONS.items()} | {
    "bytecode": "The Python bytecode of the function.",
    "breaks": "Why calls ran eagerly, with counts.",
}


# -- the command -------------------------------------------------------------------------------------------------------
def _section_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One flag per section."""
    for name, doc in reversed(FLAGS.items()):
        command = click.option(f"--{name}", is_flag=True, help=doc)(command)
    return command


@click.command()
@click.argument("target", metavar="FILE.py[:FUNC]")
@click.argument("script_arguments", nargs=-1, metavar="[SCRIPT ARGUMENTS]...")
@_section_options
@click.option("--args", "expression", help="Arguments of FUNC as a Python expression, such as 'np.ones((3, 4)), 2.0'.")
@click.option("--shapes", help="Arguments of FUNC as shapes, such as 'f32[3,4] f64[10] 2.0'.")
@click.option("--run", "runs", is_flag=True, help="Run the call of FUNC, too: so the parts after its first break are captured.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True,
              help="What loops and kernels are shown for; cuda needs no GPU.")
@click.option("--arch", type=click.IntRange(min=50), default=90, show_default=True, metavar="NN",
              help="With --device cuda: the architecture sm_NN that kernels are compiled for.")
@click.option("--json", "as_json", is_flag=True, help="The sections (all, unless some are named) as JSON.")
def dump(target: str, script_arguments: tuple[str, ...], expression: str | None, shapes: str | None, runs: bool, device: str,
         arch: int, as_json: bool, **flags: bool) -> None:
    """Show what was captured and generated for compiled functions; without a section, graph and breaks.

    FILE.py:FUNC captures one call of FUNC, which is not run: with --args, --shapes, or arguments that the file offers
    as FUNC.example_inputs, EXAMPLE_INPUTS or example_inputs(). Without any of these, and for FILE.py alone, the file
    runs as a script, and what its compiled functions captured is shown; what it prints goes to stderr.
    """
    names = tuple(name for name, wanted in flags.items() if wanted)
    sections = {name: section for name, (_, section) in SECTIONS.items()} | (cuda_sections(arch) if device == "cuda" else {})
    found = captures_of(parse_target(target), expression, shapes, script_arguments, runs)
    if as_json:
        click.echo(json.dumps([as_dict(c, names, sections) for c in found], indent=2))
        return
    for captures in found:
        show(captures, names or ("graph", "breaks"), sections)
    if not any(c.programs for c in found) and set(names) & SECTIONS.keys():
        why = "; ".join(_reasons(found)) or "no compiled function was called"
        raise click.ClickException(f"nothing was captured: {why}")


def _reasons(found: list[Captures]) -> list[str]:
    return [f"{c.name}: {reason}" for c in found for reason in c.breaks]


def show(captures: Captures, names: tuple[str, ...], sections: Mapping[str, Section]) -> None:
    """Print the sections of every program of a function."""
    if "bytecode" in names:
        print_section(f"{captures.name}: bytecode", bytecode_section(captures, None))
    for number, program in enumerate(captures.programs, start=1):
        which = f" (program {number} of {len(captures.programs)})" if len(captures.programs) > 1 else ""
        for name in names:
            if name in sections:
                body = sections[name](captures, program)
                print_section(f"{captures.name}{which}: {name}", body, _LEXERS.get(name))
    if "breaks" in names:
        print_section(f"{captures.name}: breaks", breaks_section(captures))
    elif captures.programs and captures.breaks:
        click.echo(f"{captures.name}: this is not all of it; --breaks says where it breaks, and why", err=True)


def print_section(title: str, body: str, lexer: str | None = None) -> None:
    """A heading and a body; source code is coloured on a terminal. Graphviz text stands alone, to be piped."""
    console = Console()
    if body.startswith("digraph"):
        click.echo(body)
        return
    click.echo(click.style(f"== {title}", bold=True))
    if lexer is not None and console.is_terminal:
        console.print(Syntax(body, lexer, background_color="default"))
    else:
        click.echo(body)
    click.echo()


def indented(body: str) -> str:
    return "\n".join(f"  {line}" for line in body.splitlines())


def as_dict(captures: Captures, names: tuple[str, ...], sections: Mapping[str, Section]) -> dict[str, Any]:
    """The sections of a function for JSON: graphs as data, the rest as text."""
    wanted = names or tuple(FLAGS)
    entry: dict[str, Any] = {"function": captures.name}
    if "bytecode" in wanted:
        entry["bytecode"] = bytecode_section(captures, None)
    if "breaks" in wanted:
        entry["breaks"] = captures.breaks
    entry["programs"] = [_program_dict(captures, p, wanted, sections) for p in captures.programs]
    return entry


def _program_dict(
    captures: Captures, program: Program, wanted: tuple[str, ...], sections: Mapping[str, Section]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"capture_seconds": program.capture_seconds, "compile_seconds": program.compile_seconds}
    for name in wanted:
        if name == "graph":
            entry["graph"] = text.as_dict(program.graph)
        elif name == "passes":
            entry["passes"] = [{"pass": stage, "graph": table} for stage, table in pass_tables(program.graph)]
        elif name in sections:
            entry[name] = sections[name](captures, program)
    return entry


__all__ = ["FLAGS", "SECTIONS", "dump"]
