"""Targets and arguments of commands: what is accepted, and what is said of what is not."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import numpy as np
import pytest

from dynagraph.tools.targets import (
    Target,
    arguments_from_expression,
    arguments_from_shapes,
    example_arguments,
    find_function,
    load_module,
    parse_target,
    run_script,
)


def file_with(folder: Path, text: str, name: str = "model.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_target_is_a_file_or_a_function_in_it(tmp_path: Path) -> None:
    path = file_with(tmp_path, "")
    assert parse_target(str(path)) == Target(path)
    assert parse_target(f"{path}:f") == Target(path, "f")
    assert parse_target(f"{path}:Model.forward") == Target(path, "Model.forward")
    assert str(parse_target(f"{path}:f")) == f"{path}:f"


@pytest.mark.parametrize("text, message", [
    ("{}/nothing.py", "there is no file"), ("{}/nothing.py:f", "there is no file"), ("{}", "is a folder"),
    ("{}/model.py:not a name", "'not a name' is not the name of a function"),
])  # fmt: skip
def test_what_is_wrong_with_a_target_is_said(tmp_path: Path, text: str, message: str) -> None:
    file_with(tmp_path, "")
    with pytest.raises(click.UsageError, match=message):
        parse_target(text.format(tmp_path))


def test_missing_function_names_those_there_are(tmp_path: Path) -> None:
    path = file_with(tmp_path, "import numpy as np\ndef f(x): return x\ndef g(x): return x\ndef _hidden(x): return x\n")
    with pytest.raises(click.UsageError, match=r"model.py has no function 'h'; it defines f, g$"):
        find_function(vars(load_module(path)), Target(path, "h"))


def test_methods_are_found_by_their_class(tmp_path: Path) -> None:
    path = file_with(tmp_path, "class A:\n    def f(self): return 1\n")
    assert find_function(vars(load_module(path)), Target(path, "A.f")).__name__ == "f"
    with pytest.raises(click.UsageError, match="'A' has no attribute 'g'"):
        find_function(vars(load_module(path)), Target(path, "A.g"))


# -- running files ----------------------------------------------------------------------------------------------------
def test_script_runs_as_main_with_its_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file_with(tmp_path, "VALUE = 3", "sibling_of_script.py")
    path = file_with(tmp_path, "import sys, sibling_of_script\nif __name__ == '__main__':\n    seen = sys.argv[1:]\n"
                               "    print('printed', sibling_of_script.VALUE)\n")
    argv, search = list(sys.argv), list(sys.path)
    assert run_script(path, ("a", "b"))["seen"] == ["a", "b"]
    out, err = capsys.readouterr()
    assert out == "", "stdout is the command's own"
    assert err == "printed 3\n"
    assert (sys.argv, sys.path) == (argv, search)


def test_errors_of_a_script_are_shown_from_its_own_lines_on(tmp_path: Path) -> None:
    path = file_with(tmp_path, "def f():\n    raise ValueError('no good')\nf()\n")
    with pytest.raises(click.ClickException) as raised:
        run_script(path)
    message = raised.value.message
    assert message.startswith(f"{path} raised ValueError\n")
    assert message.endswith("ValueError: no good")
    assert "runpy" not in message


def test_leaving_a_script_is_no_error_unless_its_status_is(tmp_path: Path) -> None:
    run_script(file_with(tmp_path, "raise SystemExit(0)"))
    with pytest.raises(click.ClickException, match="exited with status 3"):
        run_script(file_with(tmp_path, "raise SystemExit(3)"))


def test_import_does_not_run_the_main_block(tmp_path: Path) -> None:
    path = file_with(tmp_path, "ran = False\nif __name__ == '__main__':\n    ran = True\n")
    assert load_module(path).ran is False


# -- arguments --------------------------------------------------------------------------------------------------------
def test_arguments_from_an_expression() -> None:
    first, second = arguments_from_expression("np.ones((3, n)), 2.0", {"n": 4})
    assert first.shape == (3, 4)
    assert second == 2.0
    assert arguments_from_expression("2.0", {}) == (2.0,)


def test_faults_of_an_expression_are_said() -> None:
    with pytest.raises(click.UsageError, match=r"--args 'np.ones\(': SyntaxError"):
        arguments_from_expression("np.ones(", {})
    with pytest.raises(click.UsageError, match=r"--args 'nothing': NameError: name 'nothing' is not defined"):
        arguments_from_expression("nothing", {})


def test_arguments_from_shapes() -> None:
    a, b, c, d, e = arguments_from_shapes("f32[3, 4] int64[10] 2.5 b[] u8[0]")
    assert (a.dtype, a.shape) == (np.float32, (3, 4))
    assert (b.dtype, b.shape) == (np.int64, (10,))
    assert c == 2.5
    assert (d.dtype, d.shape) == (np.bool_, ())
    assert e.size == 0
    (f,) = arguments_from_shapes("bf16[2, 3]")
    assert (f.dtype.name, f.shape) == ("bfloat16", (2, 3))
    again = arguments_from_shapes("f32[3, 4]")[0]
    assert np.array_equal(a, again), "the values are the same in every run"


@pytest.mark.parametrize("text, message", [
    ("f8[3]", r"'f8\[3\]': unknown dtype 'f8'; known are b1, b, i8"), ("f32[n]", "sizes must be whole numbers"),
    ("f32[-1]", "sizes must be whole numbers"), ("what", "'what' is neither a shape, such as f32"),
])  # fmt: skip
def test_faults_of_shapes_are_said(text: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        arguments_from_shapes(text)


def test_a_file_offers_arguments_in_several_ways() -> None:
    def function(x: object) -> object:
        return x

    assert example_arguments(function, "f", {}) is None
    assert example_arguments(function, "f", {"example_inputs": lambda: (1, 2)}) == (1, 2)
    assert example_arguments(function, "f", {"EXAMPLE_INPUTS": {"f": (3,), "g": (4,)}}) == (3,)
    assert example_arguments(function, "h", {"EXAMPLE_INPUTS": {"f": (3,)}}) is None
    assert example_arguments(function, "f", {"EXAMPLE_INPUTS": 5}) == (5,)
    function.example_inputs = lambda: [6, 7]  # type: ignore[attr-defined]
    assert example_arguments(function, "f", {"EXAMPLE_INPUTS": 5}) == (6, 7)
