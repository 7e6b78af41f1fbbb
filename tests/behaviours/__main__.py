"""The contract as a table, for the Python that runs it: ``python -m tests.behaviours [--rows]``."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

from tests.behaviours.harness import RANKS, outcome, rows

MODULES = sorted(f"tests.behaviours.{path.stem}" for path in Path(__file__).parent.glob("test_*.py"))


def main(show_rows: bool) -> None:
    print(f"CPython {sys.version.split()[0]}\n")
    print("| behaviours of | rows | one graph | break and resume | eager | as asked | short of it | failing |")
    print("|---|---|---|---|---|---|---|---|")
    lines, total = [], Counter()
    for module in MODULES:
        importlib.import_module(module)
        found = {row.name: (row.asked, outcome(row)) for row in rows(module)}
        if not found:
            continue
        name = module.rpartition(".test_")[2]
        counts = Counter(of_class(reached) for _, reached in found.values())
        counts["short"] = sum(reached in RANKS and RANKS[reached] > RANKS[asked] for asked, reached in found.values())
        counts["rows"] = len(found)
        total += counts
        print(line(name, counts))
        lines += [f"{name:14s} {row:55s} asked {asked} reached {reached}" for row, (asked, reached) in found.items()]
    print(line("**all**", total))
    if show_rows:
        print("\n".join(["", *lines]))


def of_class(reached: str) -> str:
    return reached if reached in RANKS else "failing"


def line(name: str, n: Counter) -> str:
    whole = n["rows"] - n["short"] - n["failing"]
    return f"| {name} | {n['rows']} | {n['1']} | {n['B']} | {n['E']} | {whole} | {n['short']} | {n['failing']} |"


if __name__ == "__main__":
    main("--rows" in sys.argv[1:])
