"""`dynagraph explain`: why calls run eagerly, and what to do about it."""

from __future__ import annotations

import difflib
import json

import click

from dynagraph.frontend.executor.breaks import REASONS, Reason
from dynagraph.frontend.loops.reasons import NOT_NATIVE, SIDE_EXITS
from dynagraph.tools.captures import NEVER_CALLED, NOT_FOLLOWED, Captures, captures_of
from dynagraph.tools.targets import parse_target

ALL = (*REASONS.values(), *NOT_NATIVE.values(), *SIDE_EXITS.values())


@click.command()
@click.argument("target", required=False, metavar="[FILE.py[:FUNC]]")
@click.argument("script_arguments", nargs=-1, metavar="[SCRIPT ARGUMENTS]...")
@click.option("--args", "expression", help="Arguments of FUNC as a Python expression, such as 'np.ones((3, 4)), 2.0'.")
@click.option("--shapes", help="Arguments of FUNC as shapes, such as 'f32[3,4] f64[10] 2.0'.")
@click.option("--run", "runs", is_flag=True, help="Run the call of FUNC, too: so the parts after its first break are captured.")
@click.option("--reason", metavar="NAME", help="Print the catalogue's entry for a reason, such as array-branch.")
@click.option("--reasons", is_flag=True, help="List all reasons.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def explain(target: str | None, script_arguments: tuple[str, ...], expression: str | None, shapes: str | None, runs: bool,
            reason: str | None, reasons: bool, as_json: bool) -> None:
    """Say which compiled functions run as programs, which run eagerly, and why.

    FILE.py:FUNC and FILE.py are looked at as `dynagraph dump` does.
    """
    if reasons:
        rows = [reason_dict(r) for r in ALL]
        lines = [f"{r.slug:24}{r.what}" for r in ALL]
        click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(lines))
    elif reason is not None:
        row = find_reason(reason)
        click.echo(json.dumps(reason_dict(row), indent=2) if as_json else f"{row.slug}: {row.what}\n  fix: {row.cure}")
    elif target is None:
        raise click.UsageError("give FILE.py or FILE.py:FUNC, --reason NAME, or --reasons")
    else:
        found = captures_of(parse_target(target), expression, shapes, script_arguments, runs)
        if as_json:
            click.echo(json.dumps([as_dict(c) for c in found], indent=2))
        else:
            click.echo("\n\n".join(map(describe, found)))


# -- the catalogue -----------------------------------------------------------------------------------------------------
def find_reason(name: str) -> Reason:
    """The row of a reason, by ``array-branch`` or ``ARRAY_BRANCH``."""
    slug = name.lower().replace("_", "-")
    by_slug = {r.slug: r for r in ALL}
    if slug not in by_slug:
        close = difflib.get_close_matches(slug, by_slug, n=1)
        hint = f"did you mean {close[0]}?" if close else "`dynagraph explain --reasons` lists them"
        raise click.UsageError(f"there is no reason {name!r}; {hint}")
    return by_slug[slug]


def reason_dict(reason: Reason) -> dict[str, str]:
    return {"reason": reason.slug, "what": reason.what, "cure": reason.cure}


# -- functions ---------------------------------------------------------------------------------------------------------
def describe(captures: Captures) -> str:
    """A paragraph on one function."""
    lines = [f"{captures.name}: {verdict(captures)}"]
    lines += dict.fromkeys(f"  {loop}" for program in captures.programs for loop in program.loops)
    for program in captures.programs:
        captured, compiled = 1e3 * program.capture_seconds, 1e3 * program.compile_seconds
        spent = f"captured in {captured:.1f} ms, compiled in {compiled:.1f} ms"
        lines.append(f"  one graph of {len(program.graph)} nodes, {spent}")
    for reason, count in captures.breaks.items():
        text = reason.replace("; fix: ", "\n    fix: ")
        happened = "breaks, and goes on after it" if reason in resumed(captures) else "ran eagerly"
        lines.append(f"  {happened}{f' ({count} times)' if count > 1 else ''}: {text}")
    if not captures.counters and resumed(captures):
        lines.append(f"  {NOT_FOLLOWED}")
    if captures.counters:
        lines.append(f"  {captures.counters}")
    return "\n".join(lines)


def resumed(captures: Captures) -> set[str]:
    """The breaks after which a program goes on."""
    return {p.captured.stop.line for p in captures.programs if p.captured.stop is not None}


def verdict(captures: Captures) -> str:
    if captures.programs and resumed(captures):
        return "compiled in parts, around breaks"
    if captures.programs and captures.breaks:
        return "compiled for some arguments, eager for others"
    if captures.programs:
        return "compiled"
    return "runs eagerly" if captures.breaks else NEVER_CALLED


def as_dict(captures: Captures) -> dict[str, object]:
    programs = [
        {"nodes": len(p.graph), "loops": p.loops, "capture_seconds": p.capture_seconds, "compile_seconds": p.compile_seconds}
        for p in captures.programs
    ]
    return {"function": captures.name, "verdict": verdict(captures), "programs": programs, "breaks": captures.breaks}


__all__ = ["explain"]
