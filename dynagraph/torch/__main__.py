"""``python -m dynagraph.torch script.py``: runs a script that says ``import torch`` on dynagraph.torch.

The script runs as ``python script.py`` runs it: as the module `__main__`, with its own `sys.argv` and `sys.path[0]`, and tracebacks
that begin in it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import multiprocessing.spawn
import os
import runpy
import sys
import types
import zipfile
from typing import Any

from dynagraph.torch.import_hook import install

USAGE = """\
usage: python -m dynagraph.torch SCRIPT.py [ARGUMENTS]
       python -m dynagraph.torch -m MODULE [ARGUMENTS]
       python -m dynagraph.torch -c PROGRAM [ARGUMENTS]

Runs a program that says `import torch`, on dynagraph.torch. What dynagraph.torch does not have is an error that names it.
"""


def main(arguments: list[str]) -> None:
    """Run what the command line names."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        raise SystemExit(0 if arguments else 2)
    first, *others = arguments
    if first in ("-m", "-c"):
        if not others:
            print(f"python -m dynagraph.torch: argument expected for the {first} option", file=sys.stderr)
            raise SystemExit(2)
        if first == "-m":
            run_module(others[0], others[1:])
        else:
            run_program(others[0], others[1:])
    elif first.startswith("-") and first != "-":
        print(f"python -m dynagraph.torch: unknown option {first}\n{USAGE}", end="", file=sys.stderr)
        raise SystemExit(2)
    else:
        run_script(first, others)


def run_script(script: str, arguments: list[str]) -> None:
    """As ``python script.py arguments``; `script` may be "-", a directory or an archive that holds `__main__.py`."""
    sys.argv = [script, *arguments]
    if script == "-":
        put_first("")
        as_main(sys.stdin.read(), "<stdin>", {"__loader__": importlib.machinery.BuiltinImporter})
        return
    if os.path.isdir(script) or zipfile.is_zipfile(script):
        if not sys.flags.safe_path:
            del sys.path[0]  # run_path puts the directory or archive there
        runpy.run_path(script, run_name="__main__")
        return
    path = os.path.abspath(script)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"python -m dynagraph.torch: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        raise SystemExit(2) from None
    put_first(os.path.dirname(os.path.realpath(script)))
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    as_main(source, path, {"__file__": path, "__cached__": None, "__loader__": loader})


def run_program(program: str, arguments: list[str]) -> None:
    """As ``python -c program arguments``."""
    sys.argv = ["-c", *arguments]
    put_first("")
    as_main(program, "<string>", {"__loader__": importlib.machinery.BuiltinImporter})


def run_module(name: str, arguments: list[str]) -> None:
    """As ``python -m name arguments``."""
    sys.argv = ["-m", *arguments]
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        spec = None
    if spec is None or spec.loader is None or not hasattr(spec.loader, "get_code"):
        print(f"python -m dynagraph.torch: No module named {name}", file=sys.stderr)
        raise SystemExit(1)
    code = spec.loader.get_code(spec.name)
    sys.argv[0] = spec.origin or name
    as_main(code, spec.origin or name, {
        "__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader, "__package__": spec.parent, "__spec__": spec,
    })  # fmt: skip


def put_first(directory: str) -> None:
    """Where the script's own imports are looked for first, in place of the current directory, which ``python -m`` put there."""
    if not sys.flags.safe_path:
        sys.path[0] = directory


def as_main(source: Any, filename: str, attributes: dict[str, Any]) -> None:
    """Run source or code as the module `__main__`.  The traceback of an exception that it leaves begins in it."""
    module = types.ModuleType("__main__")
    module.__dict__.update({"__package__": None, "__builtins__": sys.modules["builtins"], "__annotations__": {}, **attributes})
    sys.modules["__main__"] = module
    try:
        code = source if isinstance(source, types.CodeType) else compile(source, filename, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except SystemExit as ended:
        end_other_ranks(ended.code)
        raise
    except BaseException as error:
        below = None if error.__traceback__ is None else error.__traceback__.tb_next
        shown = sys.excepthook  # the script may have set it
        sys.excepthook = lambda kind, value, _: shown(kind, value.with_traceback(below), below)
        raise


def end_other_ranks(code: Any) -> None:
    """A rank of `torch.distributed` that gives up (``sys.exit(1)``) ends all: the others would wait for it."""
    groups = sys.modules.get("dynagraph.torch.distributed.groups")
    if groups is not None and code not in (None, 0):
        if not isinstance(code, int):
            print(code, file=sys.stderr)
        groups.abort(code if isinstance(code, int) else 1)


class Installing:
    """When it is unpickled, ``import torch`` gives dynagraph.torch in that process, too."""

    def __reduce__(self) -> Any:
        return install, ()


def install_in_children() -> None:
    """Have processes that multiprocessing starts anew (spawn, forkserver) install the import hook before they import the script."""
    prepared = multiprocessing.spawn.get_preparation_data
    multiprocessing.spawn.get_preparation_data = lambda name: {**prepared(name), "dynagraph.torch": Installing()}


if __name__ == "__main__":
    install()
    install_in_children()
    main(sys.argv[1:])
