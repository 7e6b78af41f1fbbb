"""Runs test modules of CPython's own suite with code that went through decode and assemble, theirs and that of modules they test.

python run_round_tripped.py test.test_json json json.decoder ... -- TestCase.test_that_cannot ...
"""

from __future__ import annotations

import gc
import importlib
import sys
import types
import unittest
from importlib.machinery import PathFinder, SourceFileLoader

from dynagraph.frontend.bytecode.assemble import assemble
from dynagraph.frontend.bytecode.decode import UndecodableCode, decode

CHANGED = 0


def round_tripped(code: types.CodeType) -> types.CodeType:
    """The code, and all code in it, decoded and assembled."""
    global CHANGED
    consts = tuple(round_tripped(c) if isinstance(c, types.CodeType) else c for c in code.co_consts)
    code = code.replace(co_consts=consts)
    try:
        program = decode(code)
    except UndecodableCode:
        return code
    CHANGED += 1
    return assemble(program.instructions, program.regions, code)


class Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> types.CodeType:
        return round_tripped(super().get_code(fullname))


class Finder:
    """Finds the modules of some packages and files."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if not any(name == n or name.startswith(n + ".") for n in self.names):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = Loader(spec.loader.name, spec.loader.path)
        return spec


def main(test: str, modules: list[str], without: list[str]) -> int:
    sys.meta_path.insert(0, Finder([test, *modules]))
    files = {importlib.import_module(name).__file__ for name in modules}
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename in files:
            function.__code__ = round_tripped(function.__code__)
    suite = unittest.defaultTestLoader.loadTestsFromName(test)
    result = unittest.TextTestRunner(verbosity=0).run(select(suite, without))
    print(f"{result.testsRun} tests, {CHANGED} code objects")
    return 0 if result.wasSuccessful() and result.testsRun > len(result.skipped) and CHANGED else 1


def select(suite: unittest.TestSuite, without: list[str]) -> unittest.TestSuite:
    chosen = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            chosen.addTest(select(test, without))
        elif not any(test.id().endswith(name) for name in without):
            chosen.addTest(test)
    return chosen


if __name__ == "__main__":
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    sys.exit(main(sys.argv[1], sys.argv[2:split], sys.argv[split + 1 :]))
