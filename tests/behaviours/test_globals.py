"""Globals and impurity: what a function reads and writes beside its arguments, and the order in which it is heard."""

from __future__ import annotations

import atexit
import functools
import logging
import math
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import types
import warnings
from pathlib import Path

import numpy as np

from .harness import behaviour, collected

SCALE = 3.0
OPTIONS = types.MappingProxyType({"bias": 0.5})
COUNT = 0
ITEMS: list = []
TABLE: dict = {}
WEIGHTS = np.array([1.0, -1.0, 2.0, 0.5])
STATE = np.zeros(4)
MADE_LATER: object
VARIABLE = "BEHAVIOURS_SCALE"
FOLDER = Path(tempfile.mkdtemp(prefix="behaviours-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def four() -> np.ndarray:
    return np.arange(4.0) - 1


class Echo(logging.Handler):
    """Prints its records, so that they stand among the printed output."""

    def emit(self, record):
        print("log:", self.format(record))


def echoing() -> logging.Logger:
    """A logger of one row's own, known to no one else."""
    logger = logging.Logger("row", logging.INFO)
    logger.addHandler(Echo())
    return logger


class Noted(UserWarning):
    """The category of the warnings here, which the rows print; pytest sets the filters back."""


def print_warnings(print_one) -> None:
    before = warnings.showwarning

    def show(message, category, filename, lineno, file=None, line=None):
        if category is Noted:
            print_one(message, filename, lineno)
        else:
            before(message, category, filename, lineno, file, line)

    warnings.filterwarnings("always", category=Noted)
    warnings.showwarning = show


# globals


@behaviour("1")
def global_constant():
    def f(x):
        return x * SCALE + OPTIONS["bias"] + len(VARIABLE)

    return f, lambda: (four(),)


@behaviour("1")
def global_function_and_class():
    def f(x):
        return four() * x + Path("a/b").name.count("b")

    return f, lambda: (four(),)


@behaviour("1", calls=3)
def global_is_rebound():
    global COUNT
    COUNT = 0

    def f(x, seen):
        global COUNT
        COUNT = COUNT + 1
        y = x * COUNT
        COUNT += 10
        return y + COUNT

    return f, lambda: (four(), COUNT)


@behaviour("1")
def global_is_rebound_to_an_array():
    global STATE
    STATE = np.zeros(4)

    def f(x, seen):
        global STATE
        STATE = STATE + x * 2
        return STATE - 1

    return f, lambda: (four(), STATE.copy())


@behaviour("1")
def global_is_rebound_by_a_callee():
    global COUNT
    COUNT = 5

    def bump():
        global COUNT
        COUNT += 1
        return COUNT

    def f(x, seen):
        y = x * bump()
        return y + bump() + COUNT

    return f, lambda: (four(), [COUNT])


@behaviour("1")
def global_is_made_and_deleted():
    def f(x, seen):
        global MADE_LATER
        MADE_LATER = x * 2
        y = MADE_LATER + 1
        del MADE_LATER
        try:
            return MADE_LATER
        except NameError:
            return y * 3

    return f, lambda: (four(), "MADE_LATER" in globals())


@behaviour("1")
def global_list_is_mutated():
    ITEMS.clear()

    def f(x, seen):
        ITEMS.append(x * 2)
        ITEMS.append(len(ITEMS))
        return ITEMS[-2] + ITEMS[-1]

    return f, lambda: (four(), list(ITEMS))


@behaviour("1")
def global_dict_is_mutated():
    TABLE.clear()
    TABLE["n"] = 0

    def f(x, seen):
        TABLE["n"] += 1
        TABLE["last"] = x * TABLE["n"]
        return TABLE["last"] + 1

    return f, lambda: (four(), dict(TABLE))


@behaviour("1")
def global_array_is_read():
    def f(x):
        return x * WEIGHTS + WEIGHTS.sum()

    return f, lambda: (four(),)


@behaviour("1")
def global_array_is_written():
    STATE[:] = 0

    def f(x, seen):
        STATE[1:3] = x[:2]
        np.add(STATE, 1, out=STATE)
        return STATE * 2 + x

    return f, lambda: (four(), STATE.copy())


@behaviour("1")
def global_array_is_an_argument_too():
    STATE[:] = 0

    def f(x, state):
        state += x
        return STATE * 2, state is STATE

    return f, lambda: (four(), STATE)


@behaviour("1")
def attribute_of_a_module_is_rebound():
    module = types.ModuleType("made_here")
    module.k = 1.0

    def f(x, seen):
        y = x * module.k
        module.k = module.k + 2
        module.last = y
        return y + module.k

    return f, lambda: (four(), [module.k, getattr(module, "last", None)])


# imports and mathematics


@behaviour("1")
def import_in_the_body():
    def f(x):
        import functools
        import math as m
        import os.path

        return functools.reduce(lambda a, b: a * b, [x, 2, m.pi]) + len(os.path.sep)

    return f, lambda: (four(),)


@behaviour("1")
def import_from_in_the_body():
    def f(x):
        from math import pi, sqrt
        from operator import add as plus

        from numpy import tanh

        return plus(tanh(x) * pi, sqrt(4.0))

    return f, lambda: (four(),)


@behaviour("B")
def import_that_is_not_there():
    def f(x):
        try:
            import there_is_no_such_module_anywhere  # noqa: F401
        except ImportError as error:
            return x * 2 + 1, error.name
        return x

    return f, lambda: (four(),)


@behaviour("1")
def relative_import_in_the_body():
    def f(x):
        from .harness import RANKS

        return x * 2 + RANKS["B"]

    return f, lambda: (four(),)


@behaviour("1")
def math_functions_of_python_values():
    def f(x, a, n):
        k = math.sqrt(a) + math.exp(-a) * math.sin(a) + math.log(a, 2) + math.atan2(a, 2) + math.hypot(3, 4)
        j = math.floor(a) + math.ceil(a) + math.gcd(n, 4) + math.factorial(3) + math.prod([n, 2]) + math.isqrt(n) + math.comb(5, 2)
        return x * k + j, math.isclose(a, 2.5), math.inf, math.isnan(math.nan), math.tau > math.e

    return f, lambda: (four(), 2.5, 6)


@behaviour("1")
def math_functions_of_a_size():
    def f(x):
        return x / math.sqrt(x.shape[-1]) + math.log2(x.size)

    return f, lambda: (four(),)


# what is heard


@behaviour("1")
def print_of_python_values():
    def f(x, n):
        print("start", n, 2.5, None, True)
        y = x * 2
        print("shape", y.shape, "dims", y.ndim, y.dtype)
        print(n, n + 1, sep="-", end="!\n")
        print()
        return y + n

    return f, lambda: (four(), 3)


@behaviour("1", calls=3)
def print_of_a_size_that_changes():
    sizes = iter((4, 5, 6))

    def f(x):
        print(f"rows: {x.shape[0]:>4d}", len(x), x.shape)
        return x * 2 + 1

    return f, lambda: (np.arange(float(next(sizes))),)


@behaviour("1")
def print_shows_a_list_as_it_is_then():
    def f(x, items):
        print(items)
        items.append(4)
        print(items, {"items": items})
        items.clear()
        print(items)
        items.append("end")
        return x * 2

    return f, lambda: (four(), [1, 2])


@behaviour("1")
def print_in_a_callee_and_a_loop():
    def step(x, k):
        print("step", k)
        return x * 2 + k

    def f(x):
        for k in range(3):
            x = step(x, k)
            if k == 1:
                print("in the middle")
        print("done")
        return x

    return f, lambda: (four(),)


@behaviour("1")
def print_calls_str_of_an_object():
    class Label:
        asked = 0

        def __str__(self):
            self.asked += 1
            return f"label {self.asked}"

    def f(x, label):
        print(label)
        print(label, str(label))
        return x * 2 + label.asked

    return f, lambda: (four(), Label())


@behaviour("1")
def print_before_an_exception_that_is_caught():
    def f(x):
        try:
            print("before")
            x = x * 2
            raise ValueError("v")
        except ValueError as error:
            print("caught", error, repr(error))
        finally:
            print("finally")
        return x + 1

    return f, lambda: (four(),)


@behaviour("1")
def print_to_a_file_of_the_caller():
    class Sink:
        def __init__(self):
            self.written = []

        def write(self, text):
            self.written.append(text)

    def f(x, sink):
        print("to the sink", 3, file=sink)
        return x * 2 + len(sink.written)

    return f, lambda: (four(), Sink())


@behaviour("B")
def written_to_stdout_itself():
    def f(x):
        y = x * 2
        print("printed")
        sys.stdout.write("written\n")
        print("printed again", file=sys.stdout)
        return y + 1

    return f, lambda: (four(),)


@behaviour("B")
def print_before_and_behind_a_break():
    def f(x):
        print("one")
        y = x * 2 + 1
        print("two", y.shape)
        print("array", y)
        print("three")
        y = y * 3
        print("four")
        return y - 1

    return f, lambda: (four(),)


@behaviour("1")
def logging_of_python_values():
    logger = echoing()

    def f(x, n):
        logger.info("start %d of %s", n, x.shape)
        y = x * 2
        logger.debug("not heard %s", n)
        logger.warning("close to the end")
        if logger.isEnabledFor(logging.ERROR):
            y = y + 1
        return y

    return f, lambda: (four(), 3)


@behaviour("1")
def logging_among_prints():
    logger = echoing()

    def f(x, items):
        print("one")
        logger.info("two %s", items)
        items.append(2)
        print("three", items)
        logger.error("four %s", items)
        return x * 2

    return f, lambda: (four(), [1])


@behaviour("B")
def logging_of_an_exception():
    logger = logging.Logger("row", logging.INFO)

    class Kinds(logging.Handler):
        def emit(self, record):
            print(record.getMessage(), record.exc_info[0].__name__)

    logger.addHandler(Kinds())

    def f(x):
        y = x * 2
        try:
            raise ValueError("v")
        except ValueError:
            logger.exception("went wrong")
        return y + 1

    return f, lambda: (four(),)


@behaviour("1")
def warnings_of_python_values():
    print_warnings(lambda message, *_: print("warning:", message))

    def f(x, n):
        print("before")
        if n > 2:
            warnings.warn(f"{n} is large", Noted, stacklevel=1)
        print("behind")
        y = x * 2
        warnings.warn(Noted("an instance"), stacklevel=2)
        return y + 1

    return f, lambda: (four(), 3)


@behaviour("B")
def warnings_name_the_users_line():
    print_warnings(lambda message, filename, lineno: print(message, Path(filename).name, lineno))

    def helper(x):
        warnings.warn("in the caller", Noted, stacklevel=2)
        return x * 3

    def f(x):
        y = x * 2
        warnings.warn("here", Noted, stacklevel=1)
        return helper(y) + 1

    return f, lambda: (four(),)


@behaviour("B")
def warnings_count_no_frame_of_a_function_in_c():
    print_warnings(lambda message, filename, lineno: print(message, Path(filename).name, lineno))

    def add(a, b):
        warnings.warn("whoever called reduce", Noted, stacklevel=2)
        return a + b

    def f(x):
        return functools.reduce(add, [x, x * 2, x * 3])

    return f, lambda: (four(),)


@behaviour("E")
def warning_that_is_an_error():
    warnings.filterwarnings("error", category=Noted)

    def f(x):
        y = x * 2
        try:
            warnings.warn("raised", Noted, stacklevel=1)
        except Noted as warning:
            y = y + len(warning.args)
        return y * 3

    return f, lambda: (four(),)


# the environment, locals


@behaviour("1", calls=4)
def environ_is_read():
    values = iter(("2", "2", "5", None))

    def f(x):
        return x * float(os.environ.get(VARIABLE, "7")) + 1

    def arguments():
        value = next(values)
        os.environ.pop(VARIABLE, None)
        if value is not None:
            os.environ[VARIABLE] = value
        return (four(),)

    return f, arguments


@behaviour("1")
def environ_by_item_and_by_getenv():
    def f(x):
        os_value = os.getenv(VARIABLE)
        try:
            return x * float(os.environ[VARIABLE])
        except KeyError:
            return x * 2 + 1, os_value, VARIABLE in os.environ

    def arguments():
        os.environ.pop(VARIABLE, None)
        return (four(),)

    return f, arguments


@behaviour("1")
def locals_of_the_frame():
    def f(x, k=2.0):
        y = x * k
        names = list(locals())
        z = locals()["y"] + 1
        return z * locals().get("k", 100), names, "z" in locals(), "absent" in locals()

    return f, lambda: (four(),)


@behaviour("1")
def locals_as_keywords():
    def f(x):
        k, bias = 2.0, 0.5
        text = "{k:.1f}-{bias}".format(**locals())
        return x * k + bias, text, dict(locals(), x=x * 2)

    return f, lambda: (four(),)


@behaviour("B")
def locals_are_the_ones_of_that_moment():
    def f(x):
        before = locals()
        y = x * 2
        behind = locals()
        behind["y"] = "not written back"
        return y + 1, "y" in before, "before" in behind, before is behind

    return f, lambda: (four(),)


# NumPy's functions, int arithmetic


@behaviour("1")
def np_interp():
    def f(x, xp, fp):
        return np.interp(x * 0.7, xp, fp) + 1, np.interp(x, xp, fp, left=-9.0, right=9.0)

    return f, lambda: (four() * 1.5, np.array([-1.0, 0.5, 2.0]), np.array([10.0, 20.0, -5.0]))


@behaviour("1")
def np_interp_of_a_python_float():
    def f(x, k):
        return x * np.interp(k, [0.0, 1.0, 2.0], [1.0, 3.0, 9.0])

    return f, lambda: (four(), 1.25)


@behaviour("1")
def other_numpy_functions_elementwise():
    def f(x):
        y = np.where(x > 0, np.sqrt(np.abs(x)), np.sign(x))
        z = np.clip(np.exp(-y) + np.log1p(y * y), 0.25, 2.0)
        return np.hypot(y, z) + np.maximum(x, z), np.isfinite(z), np.floor(z * 4), np.arctan2(y, z)

    return f, lambda: (four(),)


@behaviour("1")
def other_numpy_functions_of_shapes():
    def f(x):
        m = np.stack([x, x * 2])
        joined = np.concatenate([m, m + 1], axis=1)
        rolled, flipped = np.roll(joined, 1, axis=1), np.flip(joined, 0)
        return rolled + flipped, np.tile(x, 2), np.repeat(x, 2), np.expand_dims(x, 0) - np.squeeze(m[:1]), np.swapaxes(m, 0, 1) * 1

    return f, lambda: (four(),)


@behaviour("1")
def other_numpy_functions_that_reduce():
    def f(x):
        return np.mean(x), np.std(x), np.cumsum(x * 2), np.diff(x), np.argmax(x), np.prod(x), np.linalg.norm(x)

    return f, lambda: (four() + 0.5,)


@behaviour("1")
def other_numpy_functions_of_linear_algebra():
    def f(x):
        m = np.outer(x, x) + np.eye(4)
        return np.einsum("ij,j->i", m, x), np.dot(m, x), np.trace(m), np.tril(m)

    return f, lambda: (four(),)


@behaviour("1")
def other_numpy_functions_that_are_rarer():
    def f(x):
        return np.median(x), np.kron(x[:2], x[2:]), np.cross(x[:3], x[1:]), np.gradient(x * x), np.convolve(x, x[:2])

    return f, lambda: (four() + 0.5,)


@behaviour("1")
def int_bit_arithmetic():
    def f(x, n, m):
        bits = ((n << 3) ^ m) & 0xFF | ~n & 5
        n ^= m
        n |= 64
        n >>= 1
        return x * bits + n, bits.bit_length(), bits.bit_count(), -n >> 1, hex(bits), f"{bits:08b}", 1 << 70

    return f, lambda: (four(), 13, 6)


@behaviour("1")
def int_arithmetic_beyond_bits():
    def f(x, n, m):
        q, r = divmod(-n, m)
        return x * q + r, -n // m, -n % m, pow(n, m, 7), n**m, abs(-n), int("ff", 16), round(n, -1), n.to_bytes(2, "big")

    return f, lambda: (four(), 13, 6)


@behaviour("1")
def ints_that_outgrow_a_machine_word():
    def f(x, n):
        h = 14695981039346656037
        for k in range(4):
            h = ((h ^ (n + k)) * 1099511628211) % 2**64
        return x * (h % 1000), h, h * h

    return f, lambda: (four(), 13)


@behaviour("1")
def bit_arithmetic_of_a_size():
    def f(x):
        n = x.shape[0]
        return x * (n & (n - 1)) + (n >> 1) + (1 << n.bit_length())

    return f, lambda: (four(),)


# what breaks


@behaviour("B")
def print_of_an_array():
    def f(x):
        y = x * 2 + 1
        print("y =", y, y.sum())
        return y * 3

    return f, lambda: (four(),)


@behaviour("B")
def logging_of_an_array():
    logger = echoing()

    def f(x):
        y = x * 2 + 1
        logger.info("y = %s", y)
        return y * 3

    return f, lambda: (four(),)


@behaviour("B", calls=3)
def time_is_asked_anew():
    times = []

    def f(x, all_different):
        y = x * 2 + 1
        times.append(time.time())
        start = time.perf_counter()
        y = y * 3
        return y - 1, time.perf_counter() >= start, isinstance(time.monotonic(), float)

    return f, lambda: (four(), len(set(times)) == len(times))


@behaviour("B")
def random_random():
    random.seed(7)

    def f(x):
        y = x * 2 + 1
        y = y * random.random()
        return y + random.randint(1, 100), random.choice("abc")

    return f, lambda: (four(),)


@behaviour("B")
def random_shuffle_of_an_input_list():
    random.seed(8)

    def f(x, items):
        y = x * 2 + 1
        random.shuffle(items)
        return y * items[0]

    return f, lambda: (four(), [1, 2, 3, 4, 5])


@behaviour("1")
def random_of_an_own_generator():
    generator = random.Random(9)

    def f(x):
        y = x * 2 + 1
        return y * generator.gauss(0, 1) + generator.random()

    return f, lambda: (four(),)


@behaviour("B")
def np_random():
    np.random.seed(7)

    def f(x):
        y = x * 2 + 1
        y = y + np.random.rand(4)
        noise = np.random.normal(size=x.shape)
        return y * noise, np.random.randint(0, 100)

    return f, lambda: (four(),)


@behaviour("1")
def np_random_of_a_generator():
    generator = np.random.default_rng(7)

    def f(x, given):
        y = x * 2 + 1
        y = y + generator.standard_normal(4)
        return y * given.random(), given.integers(0, 100, 3)

    return f, lambda: (four(), np.random.default_rng(11))


@behaviour("1")
def np_random_seeded_in_the_body():
    def f(x):
        np.random.seed(3)
        y = x * 2 + np.random.rand(4)
        state = np.random.RandomState(4)
        return y * state.rand(), np.random.default_rng(5).random(2)

    return f, lambda: (four(),)


@behaviour("B", calls=3)
def random_branch():
    random.seed(1)

    def f(x):
        y = x * 2 + 1
        if random.random() < 0.5:
            return y * 3
        return y * 5

    return f, lambda: (four(),)


@behaviour("B")
def globals_is_called():
    global COUNT
    COUNT = 5

    def f(x):
        y = x * 2 + 1
        k = globals()["COUNT"]
        globals()["COUNT"] = k + 1
        return y * k + COUNT

    return f, lambda: (four(),)


@behaviour("B")
def open_reads_and_writes():
    path = FOLDER / "numbers.txt"
    path.unlink(missing_ok=True)

    def f(x, written):
        y = x * 2 + 1
        with open(path, "a") as file:
            file.write(f"{y.shape[0]}\n")
        with open(path) as file:
            k = sum(int(line) for line in file)
        return y * k - 1

    return f, lambda: (four(), path.read_text() if path.exists() else "")


@behaviour("B")
def open_without_with():
    def f(x):
        y = x * 2 + 1
        file = open(os.devnull)  # noqa: SIM115
        text = file.read()
        file.close()
        return y * 3, text, file.closed

    return f, lambda: (four(),)


@behaviour("B")
def current_thread():
    def f(x):
        y = x * 2 + 1
        name = threading.current_thread().name
        return y * 3, name == threading.main_thread().name, isinstance(threading.get_ident(), int)

    return f, lambda: (four(),)


@behaviour("B")
def an_iterator_of_the_caller_is_advanced():
    stream = iter([1.0, 2.0, 3.0, 4.0])

    def f(x):
        y = x * 2 + 1
        y = y * next(stream)
        return y + next(stream)

    return f, lambda: (four(),)


@behaviour("B")
def print_to_a_stdout_that_raises():
    class Closed:
        def write(self, text):
            raise RuntimeError(f"no {text!r}")

    def f(x):
        y = x * 2
        before, sys.stdout = sys.stdout, Closed()
        try:
            print("text")
        except RuntimeError as e:
            said = str(e)
        finally:
            sys.stdout = before
        return y + 1, said

    return f, lambda: (four(),)


test_globals = collected(__name__)
