"""``python -m tests.torch [module of cases] [part of a row's text]``: print what differs from real torch."""

from __future__ import annotations

import sys
from typing import Any

import torch

import dynagraph.torch as own
from tests.torch.outcomes import check
from tests.torch.table import families


def main(family: str = "", part: str = "", *_: Any, package: str = "tests.torch") -> int:
    count = wrong = 0
    for name, cases in families(family, package).items():
        for case in cases:
            if part not in str(case):
                continue
            count += 1
            found = check(torch, own, case)
            if found:
                wrong += 1
                print(f"{name}: {case}")
                for text in found:
                    print(f"    {text}")
    print(f"{count} cases, {wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
