"""What `make gpu-check` found, judged by the bars, as JSON and as Markdown.  Only the standard library.

A row is what `benchmarks/gpu.py` prints of one workload; `bars` are in one table, here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Bar:
    """`kind`: "copy" for the share of the copy's bandwidth in the same run, "us" for microseconds a call, at most; else the name of
    a peer, whose time over ours must be at least `threshold`.  `contenders`: the best of their figures counts.
    """

    row: str
    kind: str
    threshold: float
    contenders: tuple[str, ...] = ("dynagraph",)

    def __str__(self) -> str:
        mode = f" by {self.contenders[0]}" if self.contenders == FAST else ""
        if self.kind == "copy":
            return f">= {100 * self.threshold:.0f} % of copy{mode}"
        if self.kind == "us":
            return f"<= {self.threshold:g} us{mode}"
        return f">= {self.threshold:.2f}x {self.kind}{mode}"


FAST = ("dynagraph fast",)  # divides and takes roots as torch.compile does: not rounded correctly
REPLAYING = ("dynagraph", "dynagraph reduce-overhead")

BARS = (
    Bar("chain of 5, 1e8 float32", "copy", 0.85),
    Bar("chain of 5, 1e8 float32", "torch.compile", 1.0),
    Bar("Black-Scholes, 1e8 float32", "copy", 0.85),
    Bar("Black-Scholes, 1e8 float32", "torch.compile", 1.0),
    Bar("Black-Scholes, 1e8 float32", "copy", 0.85, FAST),
    Bar("Black-Scholes, 1e8 float32", "torch.compile", 1.0, FAST),
    Bar("softmax, 16384x4096 float32", "copy", 0.80),
    Bar("softmax, 16384x4096 float32", "torch.compile", 1.0),
    Bar("layernorm, 16384x4096 float32", "copy", 0.80),
    Bar("layernorm, 16384x4096 float32", "torch.compile", 1.0),
    Bar("sum, 1e9 float32", "copy", 0.85),
    Bar("GELU MLP training step", "torch.compile", 1 / 1.1),
    Bar("20 operations on 1e4 float32", "cupy", 3.0, REPLAYING),
    Bar("20 operations with sums on 1e4 float32", "cupy", 3.0, REPLAYING),
    Bar("host time of one kernel", "us", 5.0, REPLAYING),
)

PEERS = (
    "dynagraph fast", "dynagraph reduce-overhead", "cupy", "cupy.fuse", "torch", "torch.compile", "torch.compile max-autotune",
    "torch.compile reduce-overhead", "jax",
)  # fmt: skip


# -- judging ------------------------------------------------------------------------------------------------------------------


def time_of(row: Row, contender: str) -> float | None:
    """Microseconds of a contender that ran and was right."""
    found = row.get("contenders", {}).get(contender, {})
    return None if found.get("status", "ok") != "ok" else found.get("us")


def value_of(bar: Bar, row: Row) -> float | None:
    """The figure that a bar is about, or None where it was not measured."""
    ours = min((t for c in bar.contenders if (t := time_of(row, c)) is not None), default=None)
    if ours is None or bar.kind == "us":
        return ours
    other = time_of(row, bar.kind)
    return None if other is None else other / ours


def judge(row: Row, bars: Sequence[Bar] = BARS) -> list[dict[str, Any]]:
    """The bars of a row, with what was measured; `met` is None where a figure is missing, or sizes were not those of the bar."""
    judged = []
    for bar in bars:
        if bar.row != row["row"]:
            continue
        value = value_of(bar, row) if row.get("shrink", 1) == 1 else None
        met = None if value is None else value <= bar.threshold if bar.kind == "us" else value >= bar.threshold
        judged.append({"bar": str(bar), "kind": bar.kind, "threshold": bar.threshold, "value": value, "met": met})
    return judged


def status_of(row: Row) -> str:
    """ "ok", "WRONG", or why there are no figures."""
    for word in ("skipped", "failed", "died"):
        if word in row:
            return f"{word}: {row[word]}"
    ours = {n: c for n, c in row.get("contenders", {}).items() if n.startswith("dynagraph")}
    wrong = [f"{n}: {c.get('why', '')}" for n, c in ours.items() if c.get("status") == "wrong"]
    if wrong:
        return "WRONG: " + "; ".join(wrong)
    if "broken" in row:
        return f"the device broke: {row['broken']}"
    main = ours.get("dynagraph", {})
    if main.get("status") != "ok":
        return f"{main.get('status', 'not run')}: {main.get('why', '')}"
    compiled = main.get("compiled", {})
    if compiled.get("fallbacks"):
        return f"the compiler failed: {compiled.get('last_error')}"
    breaks = compiled.get("breaks", ())
    return f"not captured: {_one_line(breaks[0])}" if breaks else "ok"


def is_failure(row: Row) -> bool:
    """Whether a row says that something is wrong, rather than that time ran out or that a function is not supported."""
    return not status_of(row).startswith(("ok", "skipped", "not captured", "unsupported"))


def _one_line(reason: str) -> str:
    return " / ".join(part.strip() for part in reason.splitlines())


def notes_of(row: Row) -> list[str]:
    """What the reader must know of a row: breaks, plain calls, peers that failed."""
    notes = []
    for name, found in row.get("contenders", {}).items():
        compiled = found.get("compiled", {})
        for reason in compiled.get("breaks", ()):
            notes.append(f"{name} breaks: {_one_line(reason)}")
        for counter in ("stayed_eager", "refusals", "fallbacks"):
            if compiled.get(counter):
                error = f", {compiled['last_error']}" if counter == "fallbacks" else ""
                notes.append(f"{name}: {counter} {compiled[counter]}{error}")
        if compiled.get("programs") and not compiled.get("own_kernels"):
            notes.append(f"{name} ran node by node, not in kernels of its own")
        if name != "dynagraph" and found.get("status", "ok") not in ("ok", "missing"):
            notes.append(f"{name} {found['status']}: {found.get('why', '')}")
    return notes


# -- the report ---------------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """All that was found, written to every folder of `folders` as soon as it is known."""

    folders: list[Path]
    environment: dict[str, Any] = field(default_factory=dict)
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)  # by file
    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # what stopped a part of the check

    def add_row(self, row: dict[str, Any]) -> None:
        self.rows = [r for r in self.rows if r["row"] != row["row"]]
        self.rows.append(row | {"bars": judge(row), "result": status_of(row)})
        self.save()

    def as_json(self) -> dict[str, Any]:
        return {"environment": self.environment, "problems": self.problems, "tests": self.tests, "rows": self.rows}

    @property
    def failed(self) -> bool:
        """Whether tests failed or did not end, a result was wrong, or a part of the check could not run."""
        tests = any(t["failed"] or t["errors"] or t["outcome"] != "ended" for t in self.tests.values())
        return tests or bool(self.problems) or any(is_failure(row) for row in self.rows)

    def save(self) -> None:
        """Write gpu.json and gpu.md; a folder that cannot be written to does not stop the check."""
        texts = {"gpu.json": json.dumps(self.as_json(), indent=1) + "\n", "gpu.md": markdown(self)}
        for folder in self.folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                for name, text in texts.items():
                    fresh = folder / f".{name}.new"
                    fresh.write_text(text)
                    os.replace(fresh, folder / name)
            except OSError as error:
                print(f"{folder}: {error}", flush=True)

    def keep(self, log: Path) -> None:
        """Put a log beside the copies of the report."""
        for folder in self.folders[1:]:
            try:
                shutil.copy(log, folder / log.name)
            except OSError as error:
                print(f"{folder}: {error}", flush=True)


def number(value: float | None, digits: int = 3) -> str:
    """A figure with so many digits that count, without an exponent."""
    if value is None:
        return "-"
    if value >= 10**digits:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def line_of(row: Row) -> list[str]:
    """A row of the table of times: the name, us, GB/s or TFLOP/s, share of the copy, and each peer's time over ours, or in
    microseconds where there is none of ours."""
    ours = time_of(row, "dynagraph")
    copy = time_of(row, "copy")
    rate = "-"
    if ours and row.get("flops"):
        rate = f"{row['flops'] / ours / 1e6:.1f} TFLOP/s"
    elif ours and row.get("timing") == "device":
        rate = f"{row['nbytes'] / ours / 1e3:.0f} GB/s"
    share = f"{100 * copy / ours:.0f} %" if ours and copy else "-"
    ratios = []
    for peer in PEERS:
        theirs = time_of(row, peer)
        ratios.append(f"{theirs / ours:.2f}x" if ours and theirs else f"{number(theirs)} us" if theirs else "-")
    return [str(row["row"]), number(ours), rate, share, *ratios]


def verdict(bar: Mapping[str, Any]) -> str:
    """A bar, what was measured, and whether that meets it."""
    if bar["value"] is None:
        return f"{bar['bar']}: not measured"
    shown = {"copy": f"{100 * bar['value']:.0f} %", "us": f"{bar['value']:.2f} us"}.get(bar["kind"], f"{bar['value']:.2f}x")
    return f"{bar['bar']}: {shown}, {'met' if bar['met'] else 'MISSED'}"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]


def markdown(report: Report) -> str:
    """The whole report."""
    env = report.environment
    versions = ", ".join(f"{k} {v}" for k, v in env.get("versions", {}).items() if v)
    lines = ["# What `make gpu-check` found", ""]
    if "device" in env:
        copy = f"a copy of 4 GB at {env.get('copy_gb_per_s', 0):.0f} GB/s, read and written together"
        lines += [f"{env['device']}, driver {env.get('driver')}; {copy}; {versions}.", ""]
    lines += [f"- {problem}" for problem in report.problems] + ([""] if report.problems else [])
    lines += ["## Tests", "", tests_line(report), ""]
    for name, found in report.tests.items():
        if found["failed"] or found["errors"] or found["outcome"] != "ended":
            counts = f"{found['failed']} failed, {found['errors']} errors, {found['passed']} passed"
            lines.append(f"- {name}: {counts}, {found['outcome']}")
            lines += [f"  - `{text[:200]}`" for text in found["failures"][:20]]
    lines += ["", "## Bars", ""]
    judged = [[r["row"], r["result"], *(verdict(b) for b in r["bars"])] for r in report.rows if r["bars"]]
    width = max((len(j) for j in judged), default=2)
    bars = [f"bar {k + 1}" for k in range(width - 2)]
    lines += table(["workload", "result", *bars], [j + [""] * (width - len(j)) for j in judged])
    how = "Medians of one run, the contenders in turn; ratios are a peer's time over ours. JAX is timed by the host's clock."
    lines += ["", "## Times", "", how, ""]
    shrunk = {row["shrink"] for row in report.rows if row.get("shrink", 1) != 1}
    lines += [f"All sizes are divided by {shrink}: the bars do not apply.\n" for shrink in shrunk]
    lines += table(["workload", "us", "rate", "of copy", *PEERS], [line_of(r) for r in report.rows])
    lines += ["", "First calls in seconds, compilation included:", ""]
    firsts = [
        [r["row"], *(number(r.get("contenders", {}).get(c, {}).get("first_call_s")) for c in ("dynagraph", *PEERS))]
        for r in report.rows
    ]
    lines += table(["workload", "dynagraph", *PEERS], firsts)
    results = [(r, [r["result"]] if r["result"] != "ok" else []) for r in report.rows]
    notes = [f"- {r['row']}: {text}" for r, result in results for text in (*result, *notes_of(r))]
    lines += ["", "## Notes", "", *notes] if notes else []
    missing = [f"- {name}: {why}" for name, why in env.get("missing", {}).items()]
    lines += ["", "Not there:", "", *missing] if missing else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def tests_line(report: Report) -> str:
    """The sum over all files of tests."""
    sums = {k: sum(t[k] for t in report.tests.values()) for k in ("passed", "failed", "errors", "skipped")}
    unfinished = [name for name, t in report.tests.items() if t["outcome"] != "ended"]
    text = f"{len(report.tests)} files: " + ", ".join(f"{v} {k}" for k, v in sums.items())
    return text + (f"; did not end: {', '.join(unfinished)}" if unfinished else "")


def summary(report: Report) -> str:
    """What is printed at the end: the sum of the tests, and the bars."""
    lines = [*report.problems, "tests: " + tests_line(report)]
    for name, found in report.tests.items():
        lines += [f"  {text[:160]}" for text in found["failures"][:3]]
        if found["outcome"] not in ("ended", "not run"):
            lines.append(f"  {name}: {found['outcome']}")
    for row in report.rows:
        judged = "; ".join(verdict(b) for b in row["bars"])
        us = number(time_of(row, "dynagraph"))
        lines.append(f"{row['row']:40s} {us:>8s} us  {row['result'][:110]}  {judged}")
    return "\n".join(lines)
