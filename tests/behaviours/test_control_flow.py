"""Control flow: branches, loops, match. PYTEST_DONT_REWRITE: an assert inside a row is captured as it stands."""
# rows are programs as people write them
# ruff: noqa: B007, RET502, RET504, RUF021

import itertools
from dataclasses import dataclass

import numpy as np

from .harness import behaviour, collected


def signs(*values):
    """A maker of [1, 2, 3, 4] times these, one after the other."""
    turn = itertools.cycle(values)
    return lambda: (np.arange(1.0, 5.0) * next(turn),)


def given(*others):
    """A maker of [0, 1, 2, 3] and these, one after the other."""
    turn = itertools.cycle(others)
    return lambda: (np.arange(4.0), next(turn))


# ---- 1: branches on what is known


@behaviour("1", calls=4)
def branch_on_a_bool():
    def f(x, flag):
        if flag:
            y = x * 2
        else:
            y = x - 1
        return y + 3

    return f, given(True, False)


@behaviour("1")
def branch_on_not():
    def f(x, flag):
        if not flag:
            return x + 1
        return x * 3

    return f, given(True, False)


@behaviour("1", calls=4)
def branch_on_a_shape():
    turn = itertools.cycle([2, 5])

    def f(x):
        return x + 1 if x.shape[0] > 2 else x - 1

    return f, lambda: (np.arange(float(next(turn))),)


@behaviour("1", calls=4)
def branch_on_a_dtype():
    turn = itertools.cycle([np.float32, np.int64])

    def f(x):
        if x.dtype == np.float32:
            return x * 2
        return x + 1

    return f, lambda: (np.arange(4).astype(next(turn)),)


@behaviour("1", calls=3)
def branch_on_ndim():
    turn = itertools.cycle([(4,), (2, 2), (1, 2, 2)])

    def f(x):
        if x.ndim == 1:
            return x + 1
        elif x.ndim == 2:
            return x * 2
        else:
            return x - 3

    return f, lambda: (np.arange(4.0).reshape(next(turn)),)


@behaviour("1", calls=3)
def branch_on_the_length_of_a_list():
    turn = itertools.cycle([[], [2.0], [2.0, 3.0]])

    def f(x, scales):
        if scales:
            x = x * scales[-1]
        return x + len(scales)

    return f, lambda: (np.arange(4.0), list(next(turn)))


@behaviour("1", calls=4)
def branch_on_and_and_or_of_bools():
    def f(x, flags):
        a, b = flags
        if (a and b) or not (a or b):
            x = x + 1
        return x * (a and 2 or 3)

    return f, given((True, True), (True, False), (False, True), (False, False))


@behaviour("1", calls=4)
def nested_branches_join():
    def f(x, n):
        if n > 1:
            if n > 2:
                y = x * 2
            else:
                y = x * 3
            y = y + 1
        else:
            y = x
        return y - 5

    return f, given(0, 1, 2, 3)


@behaviour("1")
def branch_on_is_none():
    def f(x, bias):
        y = x * 2
        return y if bias is None else y + bias

    return f, given(None, 4.0)


@behaviour("1")
def branch_on_an_array_being_none():
    turn = itertools.cycle([True, False])

    def f(x, bias=None):
        if bias is not None:
            x = x + bias
        return x * 2

    return f, lambda: (np.arange(4.0), np.ones(4) if next(turn) else None)


# ---- 1: x or default


@behaviour("1", calls=3)
def none_or_default():
    def f(x, scale=None):
        scale = scale or 3
        return x * scale

    return f, given(None, 2, 0)


@behaviour("1")
def none_or_an_array():
    def f(x, bias=None):
        bias = bias or x * 2
        return x + bias

    return f, lambda: (np.arange(4.0),)


@behaviour("1", calls=3)
def or_gives_the_operand_itself():
    def f(x, names):
        names = names or ["default"]
        names.append(x + 1)
        return names

    return f, lambda: (np.arange(4.0), ["a"])


@behaviour("1")
def none_and_something():
    def f(x, options):
        scale = options and options["scale"]
        return -x if scale is None else x * scale

    return f, given(None, {"scale": 2.5})


# ---- 1: comparisons of ints


@behaviour("1", calls=4)
def chained_comparison():
    def f(x, n):
        if 0 < n < 5:
            return x + n
        return x - n

    return f, given(3, 0, 5, 7)


@behaviour("1", calls=3)
def long_chained_comparison():
    def f(x, n):
        inside = 0 <= n <= x.shape[0] != 7 > 2
        return x * 2 if inside else x * 3

    return f, given(1, 4, 6)


@behaviour("1", calls=3)
def chained_comparison_stops_early():
    def f(x, n):
        seen = []

        def note(k):
            seen.append(k)
            return k

        inside = note(1) < note(n) < note(6)
        return x + inside, seen

    return f, given(3, 0, 9)


# ---- 1: while and for


@behaviour("1")
def counted_while():
    def f(x):
        n = 0
        while n < 3:
            x = x * 2 + n
            n += 1
        return x, n

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def while_over_a_shape():
    def f(x):
        steps, n = 0, x.shape[0]
        while n > 1:
            x = x + n
            n //= 2
            steps += 1
        return x, steps

    return f, lambda: (np.arange(9.0),)


@behaviour("1", calls=3)
def while_true_with_break():
    def f(x, n):
        k = 0
        while True:
            x = x + k
            k += 1
            if k > n:
                break
        return x

    return f, given(0, 2, 3)


@behaviour("1", calls=3)
def while_else():
    def f(x, stop):
        k = 0
        while k < 3:
            if k == stop:
                break
            x = x + 1
            k += 1
        else:
            x = x * 10
        return x - 1

    return f, given(0, 1, 9)


@behaviour("1", calls=3)
def while_pops_a_local_list():
    def f(x, n):
        todo = list(range(n))
        while todo:
            x = x + todo.pop()
        return x * 2

    return f, given(0, 2, 4)


@behaviour("1")
def for_over_a_range():
    def f(x, n):
        y = x * 0
        for k in range(1, n, 2):
            y = y + x**k
        return y

    return f, given(5, 6)


@behaviour("1", calls=3)
def for_else_with_break():
    def f(x, wanted):
        for k in range(4):
            if k == wanted:
                x = x * 2
                break
            x = x + 1
        else:
            x = x - 100
        return x, k

    return f, given(2, 7, 0)


@behaviour("1")
def for_else_without_break():
    def f(x):
        for k in (1, 2):
            x = x + k
        else:
            x = x * 3
        return x

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def for_over_nothing():
    def f(x, items):
        k = "unset"
        for k in items:
            x = x + k
        else:
            x = x * 2
        return x, k

    return f, given((), (1, 2))


@behaviour("1")
def continue_skips():
    def f(x):
        for k in range(5):
            if k % 2:
                continue
            x = x + k
        return x

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def nested_break():
    def f(x):
        for i in range(4):
            for j in range(4):
                if j > i:
                    break
                x = x + i * j
            x = x * 2
        return x

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def continue_and_break_of_two_loops():
    def f(x, limit):
        trace = []
        for i in range(4):
            if i == 1:
                continue
            for j in range(4):
                if j == 1:
                    continue
                if i + j > limit:
                    break
                trace.append((i, j))
                x = x + i - j
            else:
                trace.append("whole")
                continue
            if i == 3:
                break
        else:
            trace.append("end")
        return x, trace

    return f, given(4, 9)


@behaviour("1", calls=3)
def return_from_inside_a_loop():
    def f(x, wanted):
        for k in range(4):
            x = x + k
            if k == wanted:
                return x * 2
        return x

    return f, given(1, 3, 8)


@behaviour("1", calls=3)
def return_from_inside_two_loops():
    def f(x, wanted):
        for i in range(3):
            for j in range(3):
                if i * j == wanted:
                    return x + 1, (i, j)
                x = x * 2
        return x, None

    return f, given(0, 2, 5)


@behaviour("1")
def return_from_inside_while():
    def f(x):
        k = 0
        while True:
            x = x + k
            k += 1
            if k == 3:
                return x

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def loop_variable_outlives_the_loop():
    def f(x):
        for k, (a, b) in enumerate([(1, 2), (3, 4)]):
            x = x * a + b
        return x + k, a, b

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def loop_over_arrays_of_a_list():
    def f(xs):
        total = 0
        for x in xs:
            total = total + x * 2
        return total

    return f, lambda: ([np.arange(4.0), np.ones(4), np.full(4, 3.0)],)


@behaviour("1")
def pass_and_bare_return():
    def f(x, flag):
        x += 1
        if flag:
            pass
        else:
            return
        return x * 2

    return f, given(True, False)


@behaviour("1")
def no_return_at_all():
    def f(x):
        x[...] = x * 2

    return f, lambda: (np.arange(4.0),)


# ---- 1: assert on a shape, walrus


@behaviour("1")
def assert_on_a_shape():
    def f(x):
        assert x.shape == (4,)
        assert x.ndim == 1, "a vector, please"
        assert x.shape[0] % 2 == 0, f"{x.shape[0]} is odd"
        return x * 2

    return f, lambda: (np.arange(4.0),)


@behaviour("E", calls=3)
def assert_on_a_shape_fails():
    turn = itertools.cycle([4, 3, 6])

    def f(x):
        y = x + 1
        assert x.shape[0] % 2 == 0, f"{x.shape[0]} is odd"
        return y

    return f, lambda: (np.arange(float(next(turn))),)


@behaviour("1")
def walrus_in_if():
    def f(x, n):
        if (half := n // 2) > 1:
            x = x * half
        return x + half

    return f, given(6, 2)


@behaviour("1")
def walrus_in_while():
    def f(x):
        rest = [3, 2, 0, 5]
        while k := rest.pop(0):
            x = x + k
        return x, rest

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def walrus_of_an_array():
    def f(x):
        return (y := x * 2) + y.shape[0] - (z := y + 1) * z

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def walrus_in_a_comprehension():
    def f(x):
        parts = [last for k in range(5) if (last := k * k) > 3]
        return x * last, parts

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def walrus_in_call_arguments():
    def f(x):
        return np.add(y := x * 2, y + (k := 3)) * k

    return f, lambda: (np.arange(4.0),)


# ---- 1: match


@behaviour("1", calls=6)
def match_on_ints():
    def f(x, n):
        match n:
            case 0:
                return x - 7
            case 1:
                x = x + 1
            case -2:
                x = x * 2
            case _:
                x = x - n
        return x * 3

    return f, given(0, 1, -2, 5, True, 1.0)


@behaviour("1", calls=4)
def match_on_strings():
    def f(x, mode):
        match mode:
            case "double":
                y = x * 2
            case "negate":
                y = -x
            case b"double":
                y = x * 4
            case other:
                return x + 9, other
        return y + 1, mode

    return f, given("double", "negate", b"double", "unknown")


@behaviour("1", calls=5)
def match_on_singletons():
    def f(x, flag):
        match flag:
            case None:
                return -x
            case True:
                return x + 1
            case False:
                return x - 1
        return x * 2

    return f, given(None, True, False, 1, 0)


@behaviour("1", calls=3)
def match_without_a_case():
    def f(x, n):
        match n:
            case 1:
                x = x + 1
            case 2:
                x = x + 2
        return x * 3

    return f, given(1, 2, 3)


@behaviour("1", calls=5)
def match_or_patterns():
    def f(x, n):
        match n:
            case 1 | 2 | 3:
                return x + n
            case "a" | "b" as name:
                return -x, name
            case _:
                return x * 2

    return f, given(2, "b", 3, "c", 8)


@behaviour("1", calls=4)
def match_guards():
    def f(x, n):
        match n:
            case k if k > 10:
                x = x + k
            case k if k % 2 == 0:
                x = x * k
            case k:
                x = x - k
        return x, k

    return f, given(12, 4, 3, 11)


@behaviour("1", calls=3)
def match_guard_on_a_shape():
    turn = itertools.cycle([(4,), (2, 2), (4, 1)])

    def f(x):
        match x.shape:
            case (n,):
                return x + n
            case (n, m) if n == m:
                return x @ x
            case (n, m):
                return x * n + m

    return f, lambda: (np.arange(4.0).reshape(next(turn)),)


@behaviour("1", calls=6)
def match_sequences():
    def f(x, items):
        match items:
            case []:
                return -x
            case [a]:
                return x + a
            case [1, b]:
                return x * b
            case [a, b]:
                return x + a + b
            case [first, *middle, last]:
                return x * first + last, middle

    return f, given([], [5], (1, 2), [2, 3], [1, 2, 3, 4], range(3))


@behaviour("1", calls=4)
def match_sequences_with_stars():
    def f(x, items):
        match items:
            case ["scale", *factors]:
                for k in factors:
                    x = x * k
                return x + 1
            case [*_, "end"]:
                return -x
            case [*rest]:
                return x - 1, rest

    return f, given(["scale", 2, 3], (4, 5, "end"), (1, 2), ["scale"])


@behaviour("1", calls=4)
def match_nested_sequences():
    def f(x, items):
        match items:
            case [("add", n), ("mul", m)]:
                return (x + n) * m
            case [("mul", m), *others]:
                return x * m, others
            case str():
                return x - 1, items
            case _:
                return -x

    return f, given([("add", 1), ("mul", 2)], [("mul", 3), 4, 5], "not a sequence", {"a": 1})


@behaviour("1")
def match_a_sequence_of_arrays():
    def f(pair):
        match pair:
            case [a, b]:
                return a * 2 + b
            case [a]:
                return a

    return f, lambda: ((np.arange(4.0), np.ones(4)),)


@behaviour("1", calls=4)
def match_mappings():
    def f(x, options):
        match options:
            case {"scale": s, "bias": b}:
                return x * s + b
            case {"scale": int() as s}:
                return x * s
            case {}:
                return x - 1

    return f, given({"scale": 2, "bias": 1}, {"scale": 3, "other": 0}, {}, {"scale": 2.5})


@behaviour("1", calls=3)
def match_mappings_with_rest():
    def f(x, options):
        match options:
            case {"scale": s, **rest}:
                return x * s, rest
            case {**rest}:
                return x + 1, rest

    return f, given({"scale": 2, "a": 1, "b": 2}, {"z": 0}, {"scale": 2})


@behaviour("1")
def match_a_mapping_that_holds_an_array():
    def f(state):
        match state:
            case {"kind": "linear", "w": w, **rest}:
                return w * 2 + rest["b"]

    return f, lambda: ({"kind": "linear", "w": np.arange(4.0), "b": np.ones(4)},)


@behaviour("1", calls=3)
def match_classes():
    @dataclass
    class Scale:
        by: float

    @dataclass
    class Shift:
        by: float
        left: bool = False

    turn = itertools.cycle([Scale(2.0), Shift(1.0), Shift(1.0, True)])

    def f(x, op):
        match op:
            case Scale(k):
                return x * k
            case Shift(by=k, left=True):
                return x - k
            case Shift(k):
                return x + k

    return f, lambda: (np.arange(4.0), next(turn))


@behaviour("1", calls=4)
def match_builtin_classes():
    def f(x, n):
        match n:
            case bool(b):
                return x / 2 if b else -x
            case int(k):
                return x + k
            case float() as k:
                return x * k
            case str(name):
                return x - 1, name

    return f, given(True, 3, 2.5, "name")


@behaviour("1", calls=2)
def match_args_of_a_class():
    class Point:
        __match_args__ = ("a", "b")

        def __init__(self, a, b):
            self.a, self.b = a, b

    turn = itertools.cycle([Point(0, 5), Point(2, 3)])

    def f(x, p):
        match p:
            case Point(0, b):
                return x + b
            case Point(a, Point()) | Point(a, 3):
                return x * a

    return f, lambda: (np.arange(4.0), next(turn))


@behaviour("1", calls=3)
def match_an_array_by_class():
    turn = itertools.cycle([np.arange(4.0), np.ones((2, 2)), 3])

    def f(x, other):
        match other:
            case np.ndarray(shape=(n,)):
                return x + other * n
            case np.ndarray(ndim=d):
                return x * d + other.sum()
            case int(k):
                return x - k

    return f, lambda: (np.arange(4.0), next(turn))


@behaviour("1", calls=3)
def match_dotted_values():
    class Mode:
        DOUBLE = "double"
        HALF = "half"

    def f(x, mode):
        match mode:
            case Mode.DOUBLE:
                return x * 2
            case Mode.HALF:
                return x / 2
        return -x

    return f, given("double", "half", "none")


# ---- 1: del and augmented assignment


@behaviour("1")
def del_then_rebind():
    def f(x):
        y = x * 2
        z = y + 1
        del y
        y = z * z
        del z
        return y

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def del_of_an_argument_then_rebind():
    def f(x, k):
        y = x + k
        del x, k
        x = y * 2
        return x

    return f, given(2, 3)


@behaviour("1")
def del_in_a_loop():
    def f(x):
        for k in range(3):
            part = x * k
            x = x + part
            del part
        return x

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def iadd_on_an_argument():
    def f(x):
        x += 1
        return x * 2

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def iadd_returns_the_argument_itself():
    def f(x):
        y = x
        x += 1
        return x, y is x

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def iadd_seen_through_an_alias():
    def f(x):
        y = x
        before = x * 1
        x += 10
        return y * 2, before

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def other_augmented_assignments():
    def f(x, y):
        x -= y
        x *= 3
        x **= 2
        x /= 2
        y //= 2
        y %= 3
        return x + y

    return f, lambda: (np.arange(1.0, 5.0), np.arange(5.0, 9.0))


@behaviour("1")
def augmented_assignments_on_integers():
    def f(x, y):
        x <<= 1
        x |= 5
        y &= 6
        y ^= x
        y >>= 1
        return x * y

    return f, lambda: (np.arange(4), np.arange(4, 8))


@behaviour("1")
def iadd_on_an_element():
    def f(x):
        x[0] += 5
        x[1:3] *= 2
        return x + 1

    return f, lambda: (np.arange(4.0),)


@behaviour("1")
def imatmul_and_iadd_on_an_attribute():
    class Box:
        pass

    def made():
        box = Box()
        box.value, box.n = np.eye(2), 1
        return box

    def f(x, box):
        box.value += x
        box.n += 2
        x @= box.value
        return x * box.n

    return f, lambda: (np.arange(4.0).reshape(2, 2), made())


@behaviour("1")
def rebinding_is_not_seen_by_the_caller():
    def f(x, n):
        x = x + 1
        n += 1
        return x * n

    return f, given(2, 3)


@behaviour("1")
def iadd_in_a_loop():
    def f(x):
        for k in range(3):
            x += k
        return x.sum()

    return f, lambda: (np.arange(4.0),)


# ---- B: branches on data


@behaviour("B", calls=4)
def if_on_an_array_value():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        else:
            y = y - 1
        return y * 3

    return f, signs(1, -1)


@behaviour("B", calls=3)
def if_elif_else_on_array_values():
    def f(x):
        y = x + 1
        if y.max() > 4:
            z = y * 2
        elif y.min() < -2:
            z = y / 2
        else:
            z = -y
        return z + x

    return f, signs(1, -1, 0)


@behaviour("B", calls=3)
def nested_ifs_on_array_values():
    def f(x):
        y = x * 3
        if y.sum() > 0:
            y = y + 1
            if y.max() > 20:
                y = y * 2
            y = y - 4
        return y * x

    return f, signs(1, -1, 10)


@behaviour("B", calls=4)
def two_ifs_in_a_row():
    def f(x):
        if x.sum() > 0:
            x = x * 2
        x = x + 1
        if x[0] > 0:
            x = x * 3
        return x + 1

    return f, signs(1, -1, 0)


@behaviour("B", calls=4)
def if_on_any_and_all():
    def f(x):
        y = x * 2
        if not (y > 6).any():
            y = y + 1
        if (y < 0).all():
            return -y
        return y - 5

    return f, signs(1, -1, 0)


@behaviour("B", calls=4)
def if_on_an_array_value_keeps_locals():
    def f(x, scale=3, *more):
        names = ["a"]
        table = {"x": x}
        y = x * scale
        if y.sum() > 0:
            names.append("positive")
            table["y"] = y
        else:
            names.append("negative")
        return y + len(names), names, table

    return f, signs(1, -1)


@behaviour("B", calls=4)
def if_on_an_array_value_with_effects():
    def f(x):
        y = x * 2
        print("before")
        if y.sum() > 0:
            print("positive")
        else:
            print("negative")
        y += 1
        print("after")
        return y

    return f, signs(1, -1)


@behaviour("B", calls=4)
def if_on_an_array_value_with_a_mutated_argument():
    def f(x):
        x += 1
        if x[0] > 0:
            x *= 2
        x -= 3
        return x + 0.5

    return f, signs(1, -1)


@behaviour("B", calls=4)
def if_on_an_array_value_with_early_return():
    def f(x):
        y = x + 1
        if y.sum() > 0:
            return y * 2
        z = y - 3
        return z * x

    return f, signs(1, -1)


@behaviour("B", calls=3)
def early_returns_of_different_structure():
    def f(x):
        y = x * 2
        if y.max() > 20:
            return None
        if y.sum() > 0:
            return {"y": y, "n": 1}
        return y - 1, "negative"

    return f, signs(1, -1, 100)


@behaviour("B", calls=4)
def if_on_an_array_value_with_pure_arms():
    def f(x):
        y = np.tanh(x)
        z = y * 2 if x.sum() > 0 else y + 1
        return z - x

    return f, signs(1, -1)


@behaviour("B", calls=4)
def match_on_an_array_value():
    def f(x):
        y = x * 2
        match x.argmax() == 0:
            case k if k:
                y = y + 1
            case _:
                y = y - 1
        return y * 3

    return f, signs(1, -1)


@behaviour("B", calls=4)
def chained_comparison_of_array_values():
    def f(x):
        y = x * 2
        if 0 < y.sum() < 50:
            y = y + 1
        return y * 3

    return f, signs(1, -1, 10)


# ---- B: ternary among call arguments


@behaviour("B", calls=4)
def ternary_on_an_array_value_among_call_arguments():
    def f(x):
        return np.add(x * 2, x + 1 if x.sum() > 0 else x - 1) * 3

    return f, signs(1, -1)


@behaviour("B", calls=4)
def ternary_on_an_array_value_among_arguments_of_a_python_function():
    def g(a, b, *c, d, e=1):
        return a + b * d, c, e

    def f(x):
        y = x + 1
        return g(x * 2, y if y.min() > 0 else -y, "rest", d=y if y.max() > 3 else 0, e=7)

    return f, signs(1, -1)


@behaviour("B", calls=4)
def ternary_on_an_array_value_inside_an_expression():
    def f(x):
        return [x * 2, (x + 3) * (2 if x.sum() > 0 else 5) - x, {"k": x - 1 if x[0] > 0 else None}]

    return f, signs(1, -1)


# ---- B: and, or


@behaviour("B", calls=4)
def and_of_array_values():
    def f(x):
        y = x * 2
        if y.sum() > 0 and y.max() < 50:
            y = y + 1
        else:
            y = y - 1
        return y * 3

    return f, signs(1, -1, 10)


@behaviour("B", calls=4)
def or_of_array_values():
    def f(x):
        y = x * 2
        if y.sum() < 0 or y.max() > 50:
            y = y + 1
        return y * 3

    return f, signs(1, -1, 10)


@behaviour("B", calls=4)
def and_gives_an_operand():
    def f(x):
        y = x * 2
        both = (y.sum() > 0) and y + 1
        return both, y - 1

    return f, signs(1, -1)


@behaviour("B", calls=4)
def or_gives_an_operand():
    turn = itertools.cycle([0.0, 2.0])

    def f(x, y):
        z = x[:1] or y * 3
        return z * 2, z.shape

    return f, lambda: (np.full(1, next(turn)), np.arange(4.0))


@behaviour("B", calls=4)
def and_of_a_python_and_an_array_value():
    sign, flag = itertools.cycle([1, 1, -1, -1]), itertools.cycle([True, False])

    def f(x, flag=True):
        y = x * 2
        if flag and y.sum() > 0:
            return y + 1
        return y - 1

    return f, lambda: (np.arange(1.0, 5.0) * next(sign), next(flag))


@behaviour("B", calls=4)
def not_of_an_array_value():
    def f(x):
        y = x * 2
        negative = not y.sum() > 0
        return y + negative, negative

    return f, signs(1, -1)


@behaviour("E")
def truth_of_several_elements():
    def f(x):
        y = x * 2
        if y and x:
            y = y + 1
        return y

    return f, signs(1, -1)


# ---- B: while on data


@behaviour("B", calls=3)
def while_on_an_array_value():
    def f(x):
        y = x * 1.5
        while y.sum() < 100:
            y = y * 2
        return y + x

    return f, signs(1, 3, 100)


@behaviour("B", calls=3)
def while_on_an_array_value_with_counter():
    def f(x):
        steps = 0
        while np.abs(x).max() > 1 and steps < 4:
            x = x / 2
            steps += 1
        return x + steps, steps

    return f, signs(1, 0.1, 100)


@behaviour("B")
def newton_until_converged():
    def f(x):
        y = x / 2
        while True:
            z = (y + x / y) / 2
            if np.abs(z - y).max() < 1e-9:
                break
            y = z
        return z * 2

    return f, signs(1, 5)


@behaviour("B", calls=3)
def while_on_an_array_value_with_else_and_continue():
    def f(x):
        k = 0
        y = x + 1
        while y.sum() < 60:
            k += 1
            if k % 2:
                y = y + 1
                continue
            y = y * 2
            if k > 5:
                break
        else:
            y = y - 1000
        return y * 2, k

    return f, signs(1, -5, 0)


# ---- B: assert on data


@behaviour("B")
def assert_on_data():
    def f(x):
        y = x * 2
        assert y.sum() > 0
        assert (y < 100).all(), "too large"
        return y + 1

    return f, signs(1, 2)


@behaviour("E", calls=3)
def assert_on_data_fails():
    def f(x):
        y = x * 2
        assert y.sum() > 0, f"{x.shape} is not positive"
        return y + 1

    return f, signs(1, -1)


# ---- B: branches on data inside loops


@behaviour("B", calls=4)
def if_on_an_array_value_inside_a_for_loop():
    def f(x):
        y = x + 1
        for k in range(4):
            if y.sum() > k * 10:
                y = y * 0.5
            else:
                y = y + k
        return y * 2

    return f, signs(1, -1, 10)


@behaviour("B", calls=4)
def continue_on_an_array_value():
    def f(x):
        y = x * 0
        for k in range(4):
            if x[k] < 2:
                continue
            y = y + x * k
        return y + 1

    return f, signs(1, -1, 0.6)


@behaviour("B", calls=4)
def break_on_an_array_value():
    def f(x):
        for k in range(5):
            x = x * 2
            if x.max() > 20:
                x = x + 1
                break
        else:
            x = x - 1
        return x, k

    return f, signs(1, -1, 3)


@behaviour("B", calls=4)
def return_from_a_loop_on_an_array_value():
    def f(x):
        for k, scale in enumerate([2, 3, 5]):
            x = x * scale
            if x.sum() > 50:
                return x + k
        return -x

    return f, signs(1, -1, 4)


@behaviour("B", calls=3)
def branch_on_data_inside_two_loops():
    def f(x):
        log = []
        for i in range(2):
            for j in (1, 2):
                x = x * j + i
                if x.sum() > 15:
                    log.append((i, j))
                    x = x - 4
            x = x + 1
        return x, log

    return f, signs(1, -1)


@behaviour("B", calls=3)
def rows_are_kept_that_are_positive():
    def f(x):
        kept = []
        for row in x.reshape(2, 2):
            if row.sum() > 3:
                kept.append(row * 2)
        return kept, len(kept)

    return f, signs(1, -1, 2)


@behaviour("B", calls=3)
def branch_on_data_inside_a_loop_over_a_dict():
    def f(x, table):
        for name, scale in table.items():
            y = x * scale
            if y.sum() > 0:
                x = y + 1
            else:
                print(name)
        return x * 2

    return f, lambda: (np.arange(1.0, 5.0), {"a": 2, "b": -3, "c": 4})


@behaviour("B", calls=3)
def branch_on_data_inside_a_loop_over_zip():
    def f(x):
        total = x * 0
        for k, (a, b) in enumerate(zip((1, 2, 3), [x, x + 1, x * x])):
            if b.sum() > 12:
                total = total + a * b
            total = total + k
        return total

    return f, signs(1, -1)


@behaviour("B", calls=3)
def branch_on_data_inside_a_comprehension():
    def f(x):
        parts = [x * k for k in range(4) if x[k] > 1]
        return parts, x + 1

    return f, signs(1, -1, 0.6)


test_control_flow = collected(__name__)
