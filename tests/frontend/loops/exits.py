"""Programs whose native loops are left: by what raises, by what native code cannot do, by values that do not fit."""

# ruff: noqa: B007, F841  (as people write them)

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import dynagraph as dg

PROGRAMS: list[tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = []


def program(arguments: Callable[[], tuple[Any, ...]]) -> Callable[[Any], Any]:
    """A program, and what makes its arguments."""

    def register(function: Any) -> Any:
        PROGRAMS.append((function, arguments))
        return function

    return register


def ramp(n: int = 50) -> np.ndarray:
    return np.arange(float(n))


# -- exceptions ----------------------------------------------------------------------------------------------------------


@program(lambda: (ramp(), 60))
def index_error(x, n):
    for i in range(n):
        x[i] = x[i] * 2 + 1
    return x


@program(lambda: (ramp(), 60))
def negative_index_error(x, n):
    i = 0
    while i < n:
        i += 1
        x[-i] += 1.0
    return i


@program(lambda: (np.zeros((6, 7)), 8))
def index_error_of_second_axis(a, n):
    for i in range(n):
        for j in range(n):
            a[i, j] = i * 10 + j
    return a


@program(lambda: (ramp(),))
def zero_division_of_ints(x):
    total = 0
    for i in range(40):
        x[i] = -1.0
        total += 100 // (20 - i)
    return total


@program(lambda: (ramp(),))
def zero_division_of_floats(x):
    total = 1.0
    for i in range(40):
        x[i] = -1.0
        total = total / (20.0 - i)
    return total


@program(lambda: (ramp(),))
def zero_modulo(x):
    total = 0
    for i in range(40):
        x[i] += 100 % (20 - i)
        total += 1
    return total


@program(lambda: (ramp(),))
def overflow_of_float_power(x):
    y = 2.0
    for i in range(40):
        y = y**2
        x[i] = y
    return x


@program(lambda: (ramp(),))
def zero_to_a_negative_power(x):
    total = 0.0
    for i in range(40):
        x[i] = 3.0
        total += (20.0 - i) ** -1.0
    return total


@program(lambda: (ramp(),))
def negative_base_to_a_fraction(x):
    total = 0.0
    for i in range(40):
        x[i] = 3.0
        y = (20.0 - i) ** 0.5
        total += y.real
    return total, y


@program(lambda: (ramp(),))
def math_domain_error(x):
    total = 0.0
    for i in range(40):
        x[i] = total
        total += math.sqrt(20.0 - i)
    return total


@program(lambda: (ramp(),))
def math_range_error(x):
    total = 0.0
    for i in range(4000):
        x[i % 50] = total
        total += math.exp(float(i))
    return total


@program(lambda: (ramp(),))
def math_log_of_zero(x):
    total = 0.0
    for i in range(40):
        x[i] = total
        total += math.log(20.0 - i)
    return total


@program(lambda: (np.array([1.0, 2.0, np.nan, 4.0]),))
def int_of_nan(x):
    total = 0
    for i in range(4):
        v = float(x[i])
        x[i] = 7.0
        total += int(v)
    return total


@program(lambda: (np.array([1.0, 2.0, np.inf, 4.0]),))
def int_of_infinity(x):
    total = 0
    for i in range(4):
        v = float(x[i])
        x[i] = 7.0
        total += int(v)
    return total


@program(lambda: (ramp(),))
def negative_shift(x):
    total = 0
    for i in range(40):
        x[i] = i
        total += 1 << (20 - i)
    return total


@program(lambda: (ramp(),))
def assertion(x):
    for i in range(40):
        x[i] = 0.0
        assert x[i + 1] < 30.0, f"at {i}"
    return x


@program(lambda: (ramp(),))
def raised_in_the_loop(x):
    s = 0.0
    for i in range(40):
        s += x[i]
        if s > 100.0:
            raise ValueError("too much", i, s)
        x[i] = s
    return s


@program(lambda: (ramp(),))
def value_error_of_a_value(x):
    for i in range(40):
        x[i] = 1.0
        if i == 30:
            x[:3] = np.ones(4)
    return x


@program(lambda: (ramp(),))
def type_error(x):
    s = 0.0
    for i in range(40):
        x[i] = s
        s = s + ("a" if i == 30 else 1.0)
    return s


@program(lambda: (ramp(), 0))
def unbound_after_no_turns(x, n):
    for i in range(n):
        y = x[i]
    for k in range(20):
        x[k] = 1.0
        x[k] = y
    return x


@program(lambda: (ramp(),))
def unbound_in_the_loop(x):
    for i in range(40):
        x[i] = 5.0
        if i == 100:
            late = 1.0
        if i == 30:
            x[i] = late
    return x


@program(lambda: (ramp(),))
def deleted_in_the_loop(x):
    y = 2.0
    for i in range(40):
        x[i] = i
        x[i] += 1.0 * y
        if i == 30:
            del y
    return x


@program(lambda: (ramp(),))
def undefined_name(x):
    for i in range(40):
        x[i] = 1.0
        if i > 25:
            x[i] = no_such_name  # noqa: F821
    return x


@program(lambda: (np.zeros(50, dtype=np.uint8),))
def out_of_bounds_for_a_dtype(x):
    for i in range(50):
        x[i] = i * 10
    return x


@program(lambda: (np.zeros(50, dtype=np.int64),))
def int_too_large_to_store(x):
    v = 1
    for i in range(50):
        x[i] = v
        v = v * 5
    return x


@program(lambda: (np.arange(50) - 20,))
def divides_by_a_list_of_ints(x):
    s = 0
    for i in range(len(x)):
        s += 1000 // int(x[i])
        x[i] = s
    return s


# -- ints beyond 64 bits -------------------------------------------------------------------------------------------------


@program(lambda: (100,))
def factorial(n):
    f = 1
    for i in range(1, n):
        f *= i
    return f


@program(lambda: (200,))
def fibonacci(n):
    a, b = 0, 1
    while n > 0:
        a, b = b, a + b
        n -= 1
    return a


@program(lambda: (ramp(),))
def once_beyond_and_back(x):
    s = 0
    for i in range(50):
        v = 2**62 + i
        if i % 10 == 3:
            v = (v * 8) >> 20
        s ^= v
        x[i] = s % 1000
    return s, x


@program(lambda: (-(2**63),))
def least_int(n):
    found = 0
    for i in range(40):
        if i == 20:
            found = abs(n) + -n
        found += i
    return found, n // -1


@program(lambda: (2**62,))
def sum_to_the_limit(n):
    total = 0
    for i in range(7):
        total += n
        total -= i
    return total


@program(lambda: (40,))
def large_float_to_int(n):
    x, s = 1.0, 0
    for i in range(n):
        x *= 7.0
        s = int(x)
    return s, x


@program(lambda: (70,))
def shifts_out(n):
    s = 1
    for i in range(n):
        s = (s << 1) | 1
    return s


@program(lambda: (70,))
def powers(n):
    s = 0
    for i in range(n):
        s += 3**i
    return s


# -- handlers ------------------------------------------------------------------------------------------------------------


@program(lambda: (ramp(),))
def caught_in_the_loop(x):
    bad = 0
    for i in range(40):
        try:
            x[i] = 10 // (i % 7)
        except ZeroDivisionError:
            bad += 1
            x[i] = -1.0
    return bad, x


@program(lambda: (ramp(),))
def caught_around_the_loop(x):
    i = -1
    try:
        for i in range(60):
            x[i] += 1.0
    except IndexError as error:
        return i, str(error), x
    return i


@program(lambda: (ramp(),))
def finally_around(x):
    i = -1
    try:
        for i in range(60):
            x[i] += 1.0
    finally:
        x[0] = i
    return x


@program(lambda: (ramp(),))
def finally_in_the_loop(x):
    n = 0
    for i in range(60):
        try:
            x[i] += 1.0
        finally:
            n += 1
            x[0] = n
    return x


@program(lambda: (ramp(),))
def else_of_try(x):
    n = 0
    for i in range(45):
        try:
            v = 1.0 / (float(i) - 20.0)
        except ZeroDivisionError:
            n += 100
        else:
            n += 1
        finally:
            x[i] = n
    return n, x


@program(lambda: (ramp(),))
def nested_handlers(x):
    trace = 0
    for i in range(40):
        try:
            try:
                x[i + 20] = 8 // (i - 10)
            except ZeroDivisionError:
                trace += 1
                x[i] = x[i + 100]
        except IndexError:
            trace += 1000
    return trace, x


@program(lambda: (ramp(),))
def chained(x):
    for i in range(40):
        try:
            x[i] = 8 // (i - 10)
        except ZeroDivisionError as error:
            raise KeyError(i) from error
    return x


class Log:
    def __init__(self, swallow=False):
        self.swallow, self.seen = swallow, []

    def __enter__(self):
        self.seen.append("in")
        return self

    def __exit__(self, kind, value, tb):
        self.seen.append((kind and kind.__name__, str(value)))
        return self.swallow


@program(lambda: (ramp(), Log()))
def with_around(x, log):
    with log:
        for i in range(60):
            x[i] += 2.0
    return x


@program(lambda: (ramp(), Log(True)))
def with_that_swallows(x, log):
    i = -1
    with log:
        for i in range(60):
            x[i] += 2.0
    return i, x, log.seen


@program(lambda: (ramp(12), Log(True)))
def with_in_the_loop(x, log):
    for i in range(15):
        with log:
            x[i] = 1.0
            for k in range(12):
                x[k] += 10 // (k - 3 + 10 * (i % 3))
    return x, log.seen


@program(lambda: (np.zeros(20),))
def errstate_around(x):
    with np.errstate(all="ignore"):
        for i in range(20):
            x[i] = x[i] / x[i]
        for i in range(25):
            x[i] = 1.0
    return x


# -- inlined calls -------------------------------------------------------------------------------------------------------


def reciprocal(v):
    w = v - 3
    return 100 // w


def twice(v):
    a = reciprocal(v) + 1
    return a + reciprocal(v + 10)


def looked_up(x, i):
    value = x[i]
    return value * 2


def caught_inside(v):
    try:
        return reciprocal(v)
    except ZeroDivisionError:
        return -1


def big(v):
    y = v * v
    return y * v


def summed(x, n):
    total = 0.0
    for k in range(n):
        total += x[k]
    return total


@program(lambda: (ramp(),))
def error_in_a_helper(x):
    s = 0
    for i in range(20):
        x[i] = s
        s += reciprocal(i)
    return s


@program(lambda: (ramp(),))
def error_in_a_nested_helper(x):
    s = 0
    for i in range(-40, 20):
        x[i] = s
        s += twice(i)
    return s


@program(lambda: (ramp(), 60))
def index_error_in_a_helper(x, n):
    s = 0.0
    for i in range(n):
        s += looked_up(x, i)
        x[i] = s
    return s


@program(lambda: (ramp(),))
def error_caught_by_the_helper(x):
    s = 0
    for i in range(20):
        s += caught_inside(i)
        x[i] = s
    return s, x


@program(lambda: (ramp(),))
def error_of_a_helper_caught_outside(x):
    s = 0
    for i in range(20):
        try:
            s += twice(i)
        except ZeroDivisionError:
            s -= 1
        x[i] = s
    return s, x


@program(lambda: (2**20,))
def overflow_in_a_helper(n):
    s = 0
    for i in range(30):
        s ^= big(n + (i << (i % 4)))
    return s


@program(lambda: (2**22,))
def overflow_in_a_nested_helper(n):
    def outer(v):
        return 1 + big(v)

    s = 0
    for i in range(30):
        s ^= big(n * (i % 3) + i) + 1
    return s


@program(lambda: (ramp(),))
def loop_in_a_helper(x):
    s = 0.0
    for i in range(45, 60):
        s += summed(x, i)
    return s


# -- and back again ------------------------------------------------------------------------------------------------------


@program(lambda: (1000, []))
def reports_sometimes(n, out):
    s = 0.0
    for i in range(n):
        s += math.sin(i)
        if i % 100 == 0:
            out.append((i, s))
    return s, out


@program(lambda: (300, {}))
def a_dict_by_data(n, found):
    k = 7
    for i in range(n):
        k = k * 31 % 1009
        if k < 50:
            found[k] = found.get(k, 0) + 1
    return found, k


@program(lambda: (200,))
def a_string_by_data(n):
    text, k = "", 3
    while n:
        n -= 1
        k = (k * 5 + 1) % 257
        if k % 50 == 0:
            text += chr(k % 26 + 97)
    return text, k


@program(lambda: (ramp(),))
def print_each_ten(x):
    total = 0.0
    for i in range(50):
        total += x[i]
        if i % 10 == 9:
            print(i, total)
    return total


@program(lambda: (ramp(),))
def sorted_sometimes(x):
    total = 0.0
    for i in range(49, -1, -1):
        x[i] = total
        total += x[i - 1] * 0.5
        if i % 20 == 0:
            total += sorted([3.0, total, 1.0])[1]
    return total, x


# -- the state behind ----------------------------------------------------------------------------------------------------


@program(lambda: (ramp(),))
def loop_variables_behind(x):
    for i in range(30):
        for j in range(i):
            x[j] += i
    return i, j, x


@program(lambda: (ramp(), 30.0))
def else_clause(x, limit):
    for i in range(50):
        if x[i] > limit:
            break
    else:
        i = -5
    for j in range(50):
        if x[j] > 1000.0:
            break
    else:
        j = -6
    return i, j


@program(lambda: (ramp(),))
def iterator_used_behind(x):
    it = iter(range(40))
    s = 0.0
    for i in it:
        s += x[i]
        if i == 25:
            break
    rest = list(it)
    return s, i, rest


@program(lambda: (ramp(),))
def iterator_shared_by_loops(x):
    it = iter(range(40))
    s = 0.0
    for i in it:
        s += x[i]
        for j in it:
            s -= x[j]
            if j % 5 == 0:
                break
    return s, i, j, list(it)


@program(lambda: (ramp(),))
def rows_used_behind(x):
    it = iter(x)
    s = 0.0
    for v in it:
        s += v
        if v > 20:
            break
    return s, v, next(it), len(list(it))


@program(lambda: (ramp(), ramp()))
def zip_used_behind(x, y):
    it = zip(x, y)
    s = 0.0
    for u, v in it:
        s += u * v
        if s > 1000.0:
            break
    return s, u, v, next(it)


@program(lambda: (ramp(),))
def enumerate_used_behind(x):
    it = enumerate(x, 5)
    for k, v in it:
        x[0] += v
        if k == 25:
            break
    return x, k, v, next(it)


@program(lambda: (ramp(), iter(range(40))))
def iterator_of_the_callers(x, it):
    s = 0.0
    for i in it:
        s += x[i]
        if i == 25:
            print(i)
        if i == 30:
            break
    return s, list(it)


class Holder:
    pass


@program(lambda: (ramp(), Holder()))
def iterator_in_an_attribute(x, holder):
    holder.it = iter(range(40))
    s = 0.0
    for i in holder.it:
        s += x[i]
        if i % 10 == 4:
            print(i, next(holder.it))
    return s


@program(lambda: (ramp(),))
def pairs_from_one_iterator(x):
    it = iter(range(40))
    s = 0.0
    for i, j in zip(it, it):
        s += x[i] - 3 * x[j]
    return s


@program(lambda: (ramp(),))
def pairs_from_one_iterator_across_breaks(x):
    it = iter([1, 2, 3, 4, 5, 6])
    s = x * 1
    for i, j in zip(it, it):
        dg.graph_break()
        s = s + x[i] - 3 * x[j]
    return s


@program(lambda: (ramp(),))
def iterators_made_in_the_loop(x):
    s = 0.0
    for k in range(20):
        it = enumerate(x)
        for i, v in it:
            s += v
            if i > k:
                break
        for i, v in it:
            s -= v
            if i > k + 3:
                break
    return s, i, k


@program(lambda: (ramp(), 9))
def nest_of_three(x, n):
    count = 0
    out = []
    for i in range(n):
        j = 0
        while j < n:
            j += 1
            for k in range(n):
                count += i * j - k
                if k == 7 and j == 6:
                    out.append((i, j, k, count))
                x[k] += 1.0
            if count % 17 == 3:
                break
        else:
            out.append(("else", i))
    return count, out, x, i, j, k


@program(lambda: (ramp(), 9))
def nest_that_raises(x, n):
    count = 0
    for i in range(n):
        j = n
        while j > 0:
            j -= 1
            for k in range(n):
                count += 1
                x[k] = 100 // (i * 81 + j * 9 + k - 360)
    return count


@program(lambda: (np.arange(12.0).reshape(3, 4),))
def rows_of_a_matrix(a):
    for row in a:
        for j in range(5):
            row[j] += 1.0
    return a


@program(lambda: (np.arange(24.0).reshape(4, 6), []))
def views_handed_out(a, out):
    for i in range(4):
        row = a[i]
        for j in range(6):
            row[j] *= 2.0
        if i % 2:
            out.append(row)
    out[0][0] = -1.0
    return a, out, [o.base is a for o in out], [o.flags.writeable for o in out]


@program(lambda: (np.arange(24.0).reshape(4, 6)[:, ::2],))
def view_of_a_view(a):
    kept = []
    for i in range(4):
        part = a[i]
        s = 0.0
        for j in range(3):
            s += part[j]
        if s > 10:
            kept.append(part)
    return kept, [k.base is a.base for k in kept], [k.base.base is None for k in kept]


def read_only() -> np.ndarray:
    x = ramp()
    x.flags.writeable = False
    return x


@program(lambda: (read_only(),))
def writes_to_read_only(x):
    s = 0.0
    for i in range(20):
        s += x[i]
        if i == 15:
            x[i] = s
    return s


@program(lambda: (read_only().reshape(5, 10),))
def views_of_read_only(a):
    kept = []
    for i in range(5):
        row = a[i]
        s = 0.0
        for j in range(10):
            s += row[j]
        if i == 3:
            kept.append(row)
            kept[0][0] = 1.0
    return s


@program(lambda: (ramp(),))
def comprehension_behind(x):
    s = 0.0
    for i in range(40):
        s += x[i]
    return [v + s for v in x[:3]], i


@program(lambda: (ramp(), 5))
def locals_that_are_cells(x, n):
    s = 0.0
    for i in range(40):
        s += x[i] * n

    def more(v):
        return v + s + n

    return more(1.0), i


class Counter:
    def __init__(self):
        self.n = 0


@program(lambda: (ramp(), Counter()))
def attributes(x, counter):
    s = 0.0
    for i in range(60):
        counter.n += 1
        s += x[i]
    return s


class Model:
    def __init__(self):
        self.x = ramp()
        self.n = 0

    def step(self, i):
        self.n += 1
        return self.x[i]


@program(lambda: (Model(),))
def methods(model):
    s = 0.0
    for i in range(60):
        s += model.step(i)
    return s
