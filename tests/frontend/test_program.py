"""decode and assemble: one stream for all versions, nothing lost on the way, and code objects for what frames resume."""

from __future__ import annotations

import dis
import importlib.util
import inspect
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dynagraph.frontend.bytecode.assemble import assemble
from dynagraph.frontend.bytecode.decode import Instruction, Program, Region, UndecodableCode, decode

HERE = Path(__file__).parent
LIBRARY = Path(os.__file__).parent
VERSION = sys.version_info[:2]


def ops(function: Callable) -> list[tuple]:
    """The instructions of a function as (name, value), without the frame's own."""
    return [(i.op, i.value) for i in decode(function.__code__).instructions if i.op not in ("RESUME", "NOP", "MAKE_CELL")]


def instruction(op: str, value: object = None, line: int = 1) -> Instruction:
    return Instruction(op, value, line)


def all_code(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from all_code(constant)


# --- the stream ---


def test_calls_with_keywords_carry_their_names():
    call = ("CALL_KW", (2, ("b",)))
    assert call in ops(lambda f: f(1, b=2))
    assert not any(op in ("KW_NAMES", "PRECALL") for op, _ in ops(lambda f: f(1, b=2)))


def test_keyword_names_where_branches_meet():
    program = decode((lambda f, c: [f(b=1 if c else 2), c]).__code__)
    (call,) = [k for k, i in enumerate(program.instructions) if i.op == "CALL_KW"]
    assert call in [i.value for i in program.instructions if i.op == "JUMP"]


def test_a_global_to_call_and_its_null():
    expected = [("PUSH_NULL", None), ("LOAD_GLOBAL", "len")]
    found = ops(lambda: len(()))
    assert found[:2] == (expected if VERSION < (3, 13) else expected[::-1])


def test_methods_and_attributes():
    assert ops(lambda x: x.real.conjugate())[1:4] == [("LOAD_ATTR", "real"), ("LOAD_METHOD", "conjugate"), ("CALL", 0)]


def test_conditions_say_that_they_test():
    def f(x):
        if not x > 1:
            return 2
        return x and 3

    found = ops(f)
    tests = [k for k, (op, _) in enumerate(found) if op.startswith("POP_JUMP_IF_")]
    assert len(tests) == 2
    assert all(found[k - 1] == ("TO_BOOL", None) for k in tests)
    assert found[tests[1] - 2] == ("COPY", 1)
    assert found[tests[1] + 1] == ("POP_TOP", None)


def test_not_says_that_it_tests():
    assert ops(lambda x: not x)[1:3] == [("TO_BOOL", None), ("UNARY_NOT", None)]


def test_operators_are_symbols():
    def f(a, b):
        a += b
        return a @ b, a < b, a is not b, a in b, +a, a % b

    found = ops(f)
    for expected in [("BINARY_OP", "+="), ("BINARY_OP", "@"), ("COMPARE_OP", "<"), ("IS_OP", True), ("CONTAINS_OP", False),
                     ("UNARY_POSITIVE", None), ("BINARY_OP", "%")]:  # fmt: skip
        assert expected in found


def test_loops_are_left_behind_their_end():
    def f(x):
        for _ in x:
            pass
        return 1

    program = decode(f.__code__)
    (loop,) = [i for i in program.instructions if i.op == "FOR_ITER"]
    assert program.instructions[loop.value].op == "LOAD_CONST"
    assert (program.instructions[loop.value - 1].op == "END_FOR") == (VERSION >= (3, 12))


def test_every_variable_is_loaded_by_itself():
    def f(a, b):
        c = d = a
        return c, d, b

    assert ops(f)[-6:-1] == [("STORE_FAST", "d"), ("LOAD_FAST", "c"), ("LOAD_FAST", "d"), ("LOAD_FAST", "b"), ("BUILD_TUPLE", 3)]


def test_cells_are_loaded_as_cells():
    def f(a):
        b = 1
        return lambda: (a, b), b

    assert [value for op, value in ops(f) if op == "LOAD_CLOSURE"] == ["a", "b"]
    assert ("STORE_DEREF", "b") in ops(f)
    assert ("LOAD_DEREF", "a") in ops(f(1)[0])


@pytest.mark.skipif(VERSION < (3, 12), reason="comprehensions are functions")
def test_a_comprehension_borrows_the_slot_of_a_cell():
    def f(x):
        return [x for x in range(3)], lambda: x  # noqa: C416

    found = ops(f)
    assert ("LOAD_FAST", "x") in found
    assert found.count(("LOAD_CLOSURE", "x")) == 1


@pytest.mark.skipif(VERSION < (3, 12), reason="super() is a call")
def test_super():
    class A(dict):
        def get(self, key):
            return super().get(key), super(A, self).keys  # noqa: UP008

    values = [value for op, value in ops(A.get) if op == "LOAD_SUPER_ATTR"]
    assert values == [("get", True, False), ("keys", False, True)]


def test_regions_hold_instructions():
    def f(x):
        try:
            g(x)
        except ValueError:
            return 1

    program = decode(f.__code__)
    (call,) = [k for k, i in enumerate(program.instructions) if i.op == "CALL"]
    handler = program.handlers[call]
    assert handler in program.regions
    assert handler.depth == 0
    assert program.instructions[handler.target].op == "PUSH_EXC_INFO"
    assert len(program.handlers) == len(program.instructions)


def g(x):
    return x


def test_code_is_decoded_once_and_as_itself():
    source = "def f(x): return x"
    codes = [next(all_code(compile(source, file, "exec").co_consts[0])) for file in ("a.py", "b.py")]
    assert decode(codes[0]) is decode(codes[0])
    assert [decode(code).code.co_filename for code in codes] == ["a.py", "b.py"]


def test_constants_need_not_be_hashable():
    code = (lambda: 1.5).__code__
    assert ("LOAD_CONST", [1]) in [(i.op, i.value) for i in decode(code.replace(co_consts=([1], [1]))).instructions]


@pytest.mark.skipif(VERSION < (3, 12), reason="comprehensions are functions")
def test_two_variables_of_one_name_have_no_stream():
    def f(x):
        def inner():
            return [lambda: x for x in range(3)], x

        return inner

    with pytest.raises(UndecodableCode, match=r"f\.<locals>\.inner: a cell variable and a free variable of the same name"):
        decode(f(1).__code__)


# --- there and back ---

FILES = [
    "_pydecimal.py", "argparse.py", "ast.py", "asyncio/base_events.py", "asyncio/tasks.py", "asyncio/taskgroups.py", "calendar.py",
    "collections/__init__.py", "contextlib.py", "copy.py", "csv.py", "dataclasses.py", "difflib.py", "dis.py", "enum.py",
    "fractions.py", "functools.py", "heapq.py", "inspect.py", "json/decoder.py", "json/encoder.py", "logging/__init__.py",
    "pickle.py", "random.py", "statistics.py", "string.py", "tarfile.py", "textwrap.py", "tokenize.py",
    "traceback.py", "typing.py", "unittest/case.py", "unittest/mock.py", "zipfile.py",
]  # fmt: skip
ATTRIBUTES = (
    "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_varnames", "co_cellvars", "co_freevars", "co_flags", "co_name",
    "co_qualname", "co_filename", "co_firstlineno",
)  # fmt: skip


def key(instruction: Instruction) -> tuple:
    same = instruction.value if isinstance(instruction.value, (str, int, bool)) else id(instruction.value)
    if instruction.op in ("CALL_KW", "LOAD_SUPER_ATTR"):
        same = instruction.value
    return instruction.op, type(instruction.value), same, instruction.line, instruction.positions


def check_round_trip(code: types.CodeType) -> None:
    before = decode(code)
    made = assemble(before.instructions, before.regions, like=code)
    after = decode(made)
    assert list(map(key, before.instructions)) == list(map(key, after.instructions)), code
    assert before.regions == after.regions, code
    assert before.handlers == after.handlers, code
    for attribute in ATTRIBUTES:
        assert getattr(code, attribute) == getattr(made, attribute), (attribute, code)
    assert made.co_consts[:1] == code.co_consts[:1]
    assert made.co_stacksize >= code.co_stacksize
    assert list(made.co_lines()) != [] or code.co_code == b""


def check_file(path: Path) -> int:
    count = 0
    for code in all_code(compile(path.read_bytes(), str(path), "exec", dont_inherit=True)):
        try:
            decode(code)
        except UndecodableCode:
            continue
        check_round_trip(code)
        count += 1
    return count


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", FILES)
def test_round_trip(name: str):
    path = LIBRARY / name
    if not path.exists():  # a package in some versions
        path = LIBRARY / name.replace(".py", "/__init__.py")
    assert check_file(path) > 2


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore")
def test_round_trip_of_all_there_is():
    found = 0
    for path in sorted(LIBRARY.rglob("*.py")):
        if "site-packages" in path.parts:
            continue
        try:
            compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        found += check_file(path)
    assert found > 10_000


# CPython's tests, themselves and what they test through decode and assemble; those that cannot pass look at code objects.
CPYTHON = {
    "test_argparse": "argparse",
    "test_bisect": "bisect",
    "test_collections": "collections",
    "test_contextlib": "contextlib",
    "test_contextlib_async": "contextlib",
    "test_copy": "copy",
    "test_coroutines": "",
    "test_dataclasses": "dataclasses",
    "test_descr": "",
    "test_difflib": "difflib",
    "test_enum": "enum",
    "test_except_star": "",
    "test_exceptions": "",
    "test_extcall": "",
    "test_fractions": "fractions",
    "test_fstring": "",
    "test_functools": "functools",
    "test_generators": "",
    "test_grammar": "",
    "test_heapq": "heapq",
    "test_listcomps": "",
    "test_patma": "",
    "test_scope": "",
    "test_statistics": "statistics",
    "test_string": "string",
    "test_super": "",
    "test_textwrap": "textwrap",
    "test_unpack_ex": "",
    "test_with": "",
    "test_yield_from": "",
}
LONG = {"test_statistics", "test_functools", "test_argparse"}
CPYTHON_LONG = {
    "test_asyncgen": "",
    "test_ast": "ast",
    "test_configparser": "configparser",
    "test_decimal": "_pydecimal",
    "test_email": "email",
    "test_json": "json",
    "test_logging": "logging",
    "test_pickle": "pickle",
    "test_random": "random",
    "test_re": "re",
    "test_sys_settrace": "",
    "test_threading": "threading",
    "test_traceback": "traceback",
    "test_typing": "typing",
    "test_xml_etree": "xml.etree.ElementTree",
}


def check_cpython(test: str, modules: str) -> None:
    if importlib.util.find_spec("test") is None or importlib.util.find_spec(f"test.{test}") is None:
        pytest.skip("this interpreter comes without this test")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONWARNINGS", "PYTHONPATH")}
    command = [sys.executable, str(HERE / "run_round_tripped.py"), f"test.{test}", *modules.split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-4000:]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("test", [pytest.param(t, marks=pytest.mark.soak) if t in LONG else t for t in CPYTHON])
def test_cpythons_tests_pass(test: str):
    check_cpython(test, CPYTHON[test])


@pytest.mark.soak
@pytest.mark.parametrize("test", CPYTHON_LONG)
def test_cpythons_long_tests_pass(test: str):
    check_cpython(test, CPYTHON_LONG[test])


# --- parts of functions ---


def resume(
    function: Callable, stack: list[str], variables: list[str], *, after: str = "stop", null_at: int | None = None
) -> Callable:
    """What remains of a function after its call of `after`: takes what is on the stack, the call's result, and variables."""
    program = decode(function.__code__)
    landing = 1 + call_of(program, after)
    parameters = [*stack, "result", *variables]
    loads = [instruction("LOAD_FAST", name) for name in [*stack, "result"]]
    if null_at is not None:
        loads.insert(null_at, instruction("PUSH_NULL"))
    free = function.__code__.co_freevars
    start = [instruction("COPY_FREE_VARS", len(free))] * bool(free) + [instruction("RESUME", 0), *loads]
    body = program.instructions
    shift = len(start) + 1
    jumps = {"JUMP", "FOR_ITER", "SEND"}
    moved = [
        replace(i, value=i.value + shift) if i.op in jumps or i.op.startswith("POP_JUMP_IF_") else i
        for i in [
            instruction("NOP") if i.op in ("RESUME", "COPY_FREE_VARS", "MAKE_CELL") and k < landing else i
            for k, i in enumerate(body)
        ]
    ]
    regions = [replace(r, start=r.start + shift, end=r.end + shift, target=r.target + shift) for r in program.regions]
    code = assemble(
        [*start, instruction("JUMP", landing + shift), *moved],
        regions,
        function.__code__,
        parameters=parameters,
        name=f"{function.__name__}_resumed",
    )
    assert code.co_argcount == len(parameters)
    return types.FunctionType(code, function.__globals__, closure=function.__closure__)


def call_of(program: Program, name: str) -> int:
    loads = [k for k, i in enumerate(program.instructions) if i.op == "LOAD_GLOBAL" and i.value == name]
    return next(k for k in range(loads[0], len(program.instructions)) if program.instructions[k].op == "CALL")


class Manager:
    def __init__(self, log: list, swallows: bool = False) -> None:
        self.log = log
        self.swallows = swallows

    def __enter__(self) -> Manager:
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace) -> bool:
        self.log.append(("exit", kind and kind.__name__))
        return self.swallows


def stop(value):
    return value


def nested(log, n):
    total = 0
    with Manager(log):
        for i in range(n):
            try:
                total += stop(i)
                if total > 4:
                    raise KeyError(total)
                log.append(10 // (2 - i))
            except ZeroDivisionError:
                total += 100
            finally:
                log.append(i)
    return total


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_function_resumes_within_with_for_and_try(n: int):
    expected: list = []
    result = outcome(nested, expected, n)
    resumed = resume(nested, ["exit", "iterator", "left"], ["log", "n", "total", "i"])
    for k in range(min(n, 3)):
        log: list = ["enter", *expected[1 : 1 + 2 * k]]
        numbers = iter(range(n))
        for _ in range(k + 1):
            next(numbers)
        total = sum(range(k))
        assert outcome(resumed, Manager(log).__exit__, numbers, total, k, log, n, total, k) == result
        assert log == expected


def test_an_exception_after_a_resume_leaves_with_its_line():
    log: list = []
    resumed = resume(nested, ["exit", "iterator", "left"], ["log", "n", "total", "i"])
    with pytest.raises(KeyError) as caught:
        resumed(Manager(log).__exit__, iter([]), 4, 1, log, 3, 4, 0)
    assert log == [0, ("exit", "KeyError")]
    frame = caught.traceback[-1]
    assert frame.name == "nested_resumed"
    assert "raise KeyError(total)" in str(frame.statement)


def outcome(function: Callable, *args: object) -> object:
    try:
        return function(*args)
    except Exception as error:
        return type(error), error.args


def test_a_resume_with_a_null_on_the_stack():
    def f(a):
        return max(a, stop(2), 5)

    n_before = 1 if VERSION >= (3, 13) else 0
    resumed = resume(f, ["callee", "first"], ["a"], null_at=n_before)
    assert resumed(max, 9, 3, 9) == 9
    assert resumed(min, 9, 3, 9) == 3


def test_a_resumed_function_keeps_its_free_variables_and_globals():
    factor = 3

    def f(a):
        b = stop(a)
        return b * factor + g(1)

    assert resume(f, [], ["a"])(5, 0) == 16


def test_a_while_loop_resumes():
    def f(n):
        found = []
        while n > 0:
            n -= stop(1)
            found.append(n)
        return found

    assert resume(f, ["left"], ["n", "found"])(10, 8, 10, []) == [2, 1, 0]


# --- cells ---


def test_a_parameter_without_make_cell_is_the_cell():
    def f(x, y):
        def inner():
            return x + y

        x += stop(1)
        return inner, x

    resumed = resume(f, ["left"], ["x", "y", "inner"])
    x, y = types.CellType(10), types.CellType(100)
    inner = types.FunctionType(next(c for c in f.__code__.co_consts if isinstance(c, types.CodeType)), globals(), closure=(x, y))
    assert resumed(10, 1, x, y, inner) == (inner, 11)
    assert x.cell_contents == 11
    assert inner() == 111


def test_variables_in_cells_are_shown_as_variables():
    def f(x):
        def inner():
            return x

        stop(1)
        return locals()

    shown = resume(f, [], ["x", "inner"])(None, types.CellType(7), 8)
    assert shown["x"] == 7
    assert shown["inner"] == 8


def test_a_cell_made_in_the_stream_takes_the_value():
    def f(x):
        return (lambda: x)()

    program = decode(f.__code__)
    code = assemble(program.instructions, program.regions, f.__code__, parameters=["x"])
    assert types.FunctionType(code, globals())(3) == 3


def test_empty_cells_and_new_closures():
    def f():
        def inner():
            return value

        stop(1)
        value = 5
        return inner

    cell = types.CellType()
    inner = types.FunctionType(next(c for c in f.__code__.co_consts if isinstance(c, types.CodeType)), globals(), closure=(cell,))
    resumed = resume(f, [], ["value", "inner"])
    assert resumed(None, cell, inner)() == 5
    assert cell.cell_contents == 5


@pytest.mark.parametrize("trace", [False, True])
def test_a_closure_over_a_cell_of_the_caller(trace: bool):
    def f(x):
        stop(1)
        return lambda: x

    lines = []

    def tracer(frame, event, arg):
        lines.append((frame.f_code.co_name, event, frame.f_lineno - f.__code__.co_firstlineno, frame.f_locals.get("x")))
        return tracer

    resumed = resume(f, [], ["x"])
    before = sys.gettrace()
    if trace:
        sys.settrace(tracer)
    try:
        made = resumed(None, types.CellType(4))
    finally:
        sys.settrace(before)
    assert made() == 4
    if trace:
        assert [(name, event) for name, event, *_ in lines if event != "line"] == [("f_resumed", "call"), ("f_resumed", "return")]
        assert ("f_resumed", "line", 2, 4) in lines


# --- what a caller may write ---


def made(
    instructions: list[Instruction], regions: Sequence[Region] = (), parameters: Sequence[str] = (), name: str | None = None
) -> types.FunctionType:
    code = assemble([instruction("RESUME", 0), *instructions], regions, g.__code__, parameters=parameters, name=name)
    return types.FunctionType(code, globals())


def test_any_object_is_a_constant_and_itself():
    first, second = [], []
    function = made(
        [
            instruction("LOAD_CONST", first),
            instruction("LOAD_CONST", second),
            instruction("LOAD_CONST", first),
            instruction("LOAD_CONST", 0.0),
            instruction("LOAD_CONST", -0.0),
            instruction("BUILD_TUPLE", 5),
            instruction("RETURN_VALUE"),
        ]
    )
    a, b, c, zero, negative = function()
    assert a is first and b is second and c is first
    assert str(zero) == "0.0" and str(negative) == "-0.0"


@pytest.mark.parametrize(
    "jump, jumps",
    [
        ("POP_JUMP_IF_TRUE", bool),
        ("POP_JUMP_IF_FALSE", lambda x: not x),
        ("POP_JUMP_IF_NONE", lambda x: x is None),
        ("POP_JUMP_IF_NOT_NONE", lambda x: x is not None),
    ],
)
@pytest.mark.parametrize("far", [False, True])
def test_conditions_jump_backward(jump: str, jumps: Callable, far: bool):
    test = [instruction("TO_BOOL")] if jump.endswith(("TRUE", "FALSE")) else []
    body = [
        instruction("JUMP", 4),  # over the landing
        instruction("LOAD_CONST", "jumped"),
        instruction("RETURN_VALUE"),
        *[instruction("NOP")] * (70_000 if far else 0),
        instruction("LOAD_FAST", "x"),
        *test,
        instruction(jump, 2),
        instruction("LOAD_CONST", "fell"),
        instruction("RETURN_VALUE"),
    ]
    function = made(body, parameters=("x",))
    for value in None, 0, 1, "x", "":
        assert function(value) == ("jumped" if jumps(value) else "fell")


@pytest.mark.parametrize("handles", [False, True])
def test_loops_may_leave_for_anywhere(handles: bool):
    body = [
        instruction("JUMP", 4),  # over the landing
        instruction("LOAD_FAST", "x"),
        instruction("RETURN_VALUE"),
        instruction("LOAD_FAST", "x"),
        instruction("GET_ITER"),
        instruction("FOR_ITER", 2),
        instruction("STORE_FAST", "x"),
        instruction("JUMP", 6),
    ]
    regions = []
    if handles:
        body += [instruction("POP_TOP"), instruction("LOAD_CONST", "caught"), instruction("RETURN_VALUE")]
        regions = [Region(4, 9, 9, 0, False)]
    function = made(body, regions, parameters=("x",))
    assert function([1, 2, 3]) == 3
    assert function([]) == []
    if handles:
        assert function(5) == "caught"
    else:
        with pytest.raises(TypeError, match="not iterable"):
            function(5)


def test_a_truth_value_on_the_stack():
    assert (
        made([instruction("LOAD_FAST", "x"), instruction("TO_BOOL"), instruction("RETURN_VALUE")], parameters=("x",))([]) is False
    )


def test_calls_with_keywords_are_written():
    for keywords in ("k",), ("k", "m"), ():
        body = [
            *([instruction("PUSH_NULL")] if VERSION < (3, 13) else []),
            instruction("LOAD_FAST", "f"),
            *([instruction("PUSH_NULL")] if VERSION >= (3, 13) else []),
            *[instruction("LOAD_CONST", 1 + k) for k in range(3)],
            instruction("CALL_KW", (3, keywords)),
            instruction("RETURN_VALUE"),
        ]
        function = made(body, parameters=("f",))
        args, kwargs = function(lambda *args, **kwargs: (args, kwargs))
        assert [*args, *kwargs.values()] == [1, 2, 3]
        assert tuple(kwargs) == keywords


def test_many_variables():
    names = [f"v{k}" for k in range(700)]
    body = [instruction("LOAD_FAST", name) for name in names] + [instruction("BUILD_LIST", 700), instruction("RETURN_VALUE")]
    assert made(body, parameters=tuple(names))(*range(700)) == list(range(700))


def test_a_region_of_code_that_is_far():
    body = [
        instruction("LOAD_FAST", "x"),
        instruction("LOAD_ATTR", "nothing"),
        instruction("RETURN_VALUE"),
        *[instruction("NOP")] * 70_000,
        instruction("PUSH_EXC_INFO"),
        instruction("POP_TOP"),
        instruction("POP_EXCEPT"),
        instruction("LOAD_CONST", "caught"),
        instruction("RETURN_VALUE"),
    ]
    assert made(body, [Region(1, 3, 70_004, 0, False)], parameters=("x",))(1) == "caught"


def test_names_and_lines():
    function = made([instruction("LOAD_CONST", 1, line=40), instruction("RETURN_VALUE", line=41)], name="other")
    assert function.__code__.co_name == function.__code__.co_qualname == "other"
    assert function.__code__.co_filename == __file__
    assert [line for _, _, line in function.__code__.co_lines()] == [1, 40, 41]


def test_the_qualified_name_keeps_its_place():
    def f():
        return 1

    program = decode(f.__code__)
    code = assemble(program.instructions, program.regions, f.__code__, name="rest")
    assert code.co_qualname == "test_the_qualified_name_keeps_its_place.<locals>.rest"


def test_parameters_replace_the_signature():
    def f(a, /, b=1, *args, c, **kw):
        return a, b, args, c, kw

    program = decode(f.__code__)
    code = assemble(program.instructions, program.regions, f.__code__, parameters=["kw", "c", "args", "b", "a"])
    assert not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    assert types.FunctionType(code, {})(1, 2, 3, 4, 5) == (5, 4, 3, 2, 1)
    same = assemble(program.instructions, program.regions, f.__code__)
    assert types.FunctionType(same, {}, argdefs=(1,))(0, c=2, d=3) == (0, 1, (), 2, {"d": 3})


def test_a_variable_without_a_value_is_an_error_not_a_crash():
    function = made([instruction("LOAD_FAST", "lost"), instruction("RETURN_VALUE")])
    with pytest.raises(UnboundLocalError, match="lost"):
        function()


def test_a_variable_with_a_value_on_one_way_only():
    body = [
        instruction("LOAD_FAST", "x"),
        instruction("TO_BOOL"),
        instruction("POP_JUMP_IF_FALSE", 6),
        instruction("LOAD_CONST", 1),
        instruction("STORE_FAST", "y"),
        instruction("LOAD_FAST", "y"),
        instruction("RETURN_VALUE"),
    ]
    function = made(body, parameters=("x",))
    assert function(1) == 1
    with pytest.raises(UnboundLocalError, match="y"):
        function(0)


@pytest.mark.parametrize(
    "body, message",
    [
        ([instruction("POP_TOP")], "POP_TOP None in line 1: takes from an empty stack"),
        ([instruction("LOAD_CONST", 1)], "the code has no end"),
        ([instruction("NO_SUCH_THING")], "has no NO_SUCH_THING"),
        ([instruction("LOAD_DEREF", "x")], "nothing makes the cells of \\['x'\\]"),
        ([instruction("LOAD_CONST", 1), instruction("JUMP", 1)], "LOAD_CONST 1 in line 1: the stack is 0 or 1 deep"),
    ],
)
def test_streams_that_would_crash_are_refused(body: list[Instruction], message: str):
    with pytest.raises(ValueError, match=message):
        made(body)


def test_two_regions_at_one_place_are_refused():
    body = [instruction("LOAD_CONST", 1), instruction("RETURN_VALUE"), instruction("RERAISE", 0)]
    with pytest.raises(ValueError, match="two regions hold the same instruction"):
        made(body, [Region(1, 3, 3, 0, False), Region(2, 3, 3, 0, False)])
    with pytest.raises(ValueError, match="the stack is 0 deep, its handler needs 1"):
        made(body, [Region(1, 3, 3, 1, False)])


def test_interrupts_of_an_await_are_for_the_innermost():
    async def f(x):
        await x

    program = decode(f.__code__)
    code = assemble(program.instructions, program.regions, f.__code__)
    assert "JUMP_BACKWARD_NO_INTERRUPT" in [i.opname for i in dis.get_instructions(code)]
