"""Functions: closures, signatures, builtins, generators. PYTEST_DONT_REWRITE: rows are captured as they stand."""
# rows are programs as people write them
# ruff: noqa: B006, B007, B008, B009, C400, C408, C417, E731, PIE800, PIE804, RUF017, UP033

import bisect
import collections
import functools
import itertools
import operator
import struct
import traceback
import zlib

import numpy as np

import dynagraph as dg

from .harness import behaviour, collected


def line():
    return np.arange(4.0)


def given(*others):
    """A maker of [0, 1, 2, 3] and these, one after the other."""
    turn = itertools.cycle(others)
    return lambda: (line(), next(turn))


# ---- 1: nested functions and closures


@behaviour("1")
def nested_def():
    def f(x):
        def double(v):
            return v * 2

        return double(double(x)) + 1

    return f, lambda: (line(),)


@behaviour("1")
def nested_def_with_defaults_and_annotations():
    def f(x, n):
        def g(v: "np.ndarray", k: int = n + 1, *, j=n) -> np.ndarray:
            return v * k + j

        return g(x) + g(x, 2) + g(x, j=0)

    return f, given(2, 3)


@behaviour("1")
def nested_def_two_deep():
    def f(x):
        y = x + 1

        def outer(a):
            def inner(b):
                return a * b + y

            return inner(a) - inner(2)

        return outer(x) * 3

    return f, lambda: (line(),)


@behaviour("1")
def nested_def_with_attributes():
    def f(x):
        def g(v):
            g.count += 1
            return v * g.count

        g.count = 3
        return g(x) + g(x), g.count, g.__name__

    return f, lambda: (line(),)


@behaviour("1")
def lambda_is_called():
    def f(x):
        scale = lambda v, k=3: v * k
        return scale(x) + scale(x, k=2) + (lambda: x)()

    return f, lambda: (line(),)


@behaviour("1")
def closure_is_read():
    scale, bias = 3, 0.5

    def f(x):
        return x * scale + bias

    return f, lambda: (line(),)


@behaviour("1")
def closure_over_an_array_is_read():
    weights = np.arange(4.0, 8.0)

    def f(x):
        return x * weights, weights

    return f, lambda: (line(),)


@behaviour("1")
def closure_over_a_list_and_a_function():
    scales = [2, 3]

    def twice(v):
        return v * scales[0]

    def f(x):
        return twice(x) + scales[1] + len(scales)

    return f, lambda: (line(),)


@behaviour("1")
def closure_over_own_name():
    def f(x, n=2):
        return x * 3 if n == 0 else f(x + n, n - 1)

    return f, lambda: (line(),)


@behaviour("1")
def closure_sees_a_later_binding():
    def f(x):
        def g(v):
            return v * k

        k = 2
        y = g(x)
        k = 5
        return y + g(x)

    return f, lambda: (line(),)


@behaviour("1")
def closure_over_an_array_that_is_mutated():
    def f(x):
        y = x * 2

        def g():
            return y + 1

        y[0] = 9
        a = g()
        y = x - 1
        return a, g(), y

    return f, lambda: (line(),)


# ---- 1: nonlocal


@behaviour("1")
def nonlocal_is_rebound():
    def f(x):
        n = 0

        def step(v):
            nonlocal n
            n += 1
            return v * n

        return step(x) + step(x) + step(x), n

    return f, lambda: (line(),)


@behaviour("1")
def nonlocal_array_is_rebound():
    def f(x):
        total = x * 0

        def add(v):
            nonlocal total
            total = total + v

        for k in range(3):
            add(x * k)
        return total + 1

    return f, lambda: (line(),)


@behaviour("1")
def nonlocal_two_levels_up():
    def f(x):
        k = 1

        def outer():
            def inner():
                nonlocal k
                k *= 3

            inner()
            inner()

        outer()
        return x * k

    return f, lambda: (line(),)


@behaviour("1", calls=4)
def nonlocal_of_an_enclosing_scope_is_rebound():
    count = 0

    def f(x):
        nonlocal count
        count += 1
        return x * 2 + count, count

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def nonlocal_array_of_an_enclosing_scope_is_rebound():
    state = np.zeros(4)

    def f(x):
        nonlocal state
        state = state * 0.5 + x
        return state + 1

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def nonlocal_is_seen_by_others():
    last = None

    def f(x):
        nonlocal last
        last = x * 3
        return x + 1

    return f, lambda: (line() if last is None else last + 1,)


# ---- 1: late binding


@behaviour("1")
def late_binding_lambdas():
    def f(x):
        functions = [lambda v: v * k for k in range(1, 4)]
        return [g(x) for g in functions]

    return f, lambda: (line(),)


@behaviour("1")
def early_binding_lambdas():
    def f(x):
        functions = [lambda v, k=k: v * k for k in range(1, 4)]
        return [g(x) for g in functions]

    return f, lambda: (line(),)


@behaviour("1")
def defs_in_a_loop():
    def f(x):
        late, early = [], []
        for k in (2, 3):

            def g(v):
                return v + k

            def h(v, k=k):
                return v + k

            late.append(g)
            early.append(h)
        k = 10
        return late[0](x), late[1](x), early[0](x), early[1](x)

    return f, lambda: (line(),)


@behaviour("1")
def late_binding_in_an_enclosing_scope():
    functions = [lambda v: v * k for k in range(1, 4)]

    def f(x):
        for g in functions:
            x = g(x) + 1
        return x

    return f, lambda: (line(),)


# ---- 1: signatures


@behaviour("1")
def args_are_forwarded():
    def g(a, b, c=1, *rest, d=2):
        return a * b + c - d, rest

    def wrapper(*args, **kwargs):
        return g(*args, **kwargs)

    def f(x):
        return wrapper(x, 2), wrapper(x, 3, 4, 5, 6, d=0), wrapper(b=x, a=x + 1)

    return f, lambda: (line(),)


@behaviour("1")
def args_are_changed_on_the_way():
    def g(*args, **kwargs):
        return args[0] * kwargs["k"] + sum(args[1:]), sorted(kwargs)

    def wrapper(first, *args, k=2, **kwargs):
        kwargs.setdefault("extra", 0)
        return g(first + 1, *args[::-1], k=k * 2, **kwargs)

    def f(x):
        return wrapper(x, 1, 2), wrapper(x, k=5, other=1, extra=3)

    return f, lambda: (line(),)


@behaviour("1")
def args_of_the_function_itself():
    def f(x, *args, **kwargs):
        for a in args:
            x = x + a
        for name, k in kwargs.items():
            x = x * k
        return x, args, kwargs, len(args), list(kwargs)

    return f, lambda: ((line(), 1, np.ones(4)), {"b": 2, "a": 3})


@behaviour("1", calls=3)
def the_number_of_args_changes():
    turn = itertools.cycle([((1,), {}), ((1, 2), {}), ((), {"k": 3})])

    def f(x, *args, k=1):
        return x * (len(args) + 1) + k

    def made():
        args, kwargs = next(turn)
        return (line(), *args), dict(kwargs)

    return f, made


@behaviour("1")
def kwargs_are_a_new_dict():
    def g(**kwargs):
        kwargs["k"] += 1
        kwargs["new"] = 0
        return kwargs

    def f(x):
        given = {"k": 1, "x": x * 2}
        taken = g(**given)
        return given, taken, taken is given

    return f, lambda: (line(),)


@behaviour("1")
def positional_only():
    def g(a, b=2, /, c=3, **kwargs):
        return a * b + c, kwargs

    def f(x, /, k=1):
        return g(x), g(x, 1, 5), g(x, 4, c=k, a=7, b=8)

    return f, lambda: ((line(),), {"k": 2})


@behaviour("1")
def positional_only_names_among_kwargs():
    def f(x, /, **kwargs):
        return x * kwargs["x"] + len(kwargs)

    return f, lambda: ((line(),), {"x": 3, "y": 1})


@behaviour("1")
def keyword_only():
    def g(a, *, b, c=3):
        return a * b + c

    def f(x, *, k, j=2):
        return g(x, b=k) + g(x, c=0, b=j) + g(b=x, a=1)

    return f, lambda: ((line(),), {"k": 5})


@behaviour("1")
def keyword_only_after_args():
    def g(*args, k=2, j):
        return sum(args[1:], args[0]) * k + j

    def f(x):
        return g(x, 1, j=0) + g(x, x, x, j=x, k=3)

    return f, lambda: (line(),)


@behaviour("1")
def every_kind_of_parameter():
    def f(x, /, a, b=2, *c, d, e=5, **g):
        return x * a + b * d - e + len(c), c, g

    return f, lambda: ((line(), 1, 3, 4, 5), {"d": np.ones(4), "z": 1, "y": 2})


@behaviour("1")
def defaults():
    offset = np.ones(4)

    def g(a, b=2, c=offset, d=None, *, e="e", h=(1, 2)):
        return a * b + c, d, e, h, c is offset

    def f(x, k=3, table={"a": 1}):
        return g(x), g(x, k, d=table, e="other"), table

    return f, lambda: (line(),)


@behaviour("1")
def defaults_are_evaluated_once():
    made = []

    def default():
        made.append(len(made))
        return made[-1]

    def f(x):
        def g(v, k=default()):
            return v * 2 + k

        return g(x) + g(x), len(made)

    return f, lambda: (line(),)


@behaviour("1")
def arguments_are_evaluated_from_left_to_right():
    def f(x):
        order = []

        def note(name, value):
            order.append(name)
            return value

        def g(*args, **kwargs):
            return sum(args) + kwargs["k"] * kwargs["j"]

        y = g(note("a", x), *note("b", [x, 1]), note("c", 2), k=note("d", 3), **note("e", {"j": 2}))
        return y, order

    return f, lambda: (line(),)


# ---- 1: functools.partial


@behaviour("1")
def partial_made_outside():
    def g(a, b, c=1):
        return a * b + c

    double = functools.partial(g, 2)
    shifted = functools.partial(g, b=3, c=5)

    def f(x):
        return double(x) + shifted(x) + double(b=x, c=9)

    return f, lambda: (line(),)


@behaviour("1")
def partial_made_inside():
    def g(a, b, c=1):
        return a * b + c

    def f(x):
        h = functools.partial(g, x, c=4)
        return h(2) + h(3, c=x)

    return f, lambda: (line(),)


@behaviour("1")
def partial_of_a_partial():
    def g(a, b, c=1, d=2):
        return a - b * c + d

    def f(x):
        first = functools.partial(g, x, d=3)
        second = functools.partial(first, 2, c=5)
        return second(), second(d=0), second.args, second.keywords, second.func is g

    return f, lambda: (line(),)


@behaviour("1")
def partial_of_a_ufunc():
    add = functools.partial(np.add, 3)

    def f(x):
        return add(x) * functools.partial(np.power, x)(2)

    return f, lambda: (line(),)


@behaviour("1")
def partial_of_a_method():
    class Scale:
        def __init__(self, k):
            self.k = k

        def apply(self, v, bias):
            return v * self.k + bias

        tripled = functools.partialmethod(apply, bias=3)

    def f(x):
        scale = Scale(2)
        return functools.partial(scale.apply, bias=1)(x) + scale.tripled(x)

    return f, lambda: (line(),)


@behaviour("1")
def partial_is_returned():
    def g(a, b):
        return a + b

    def f(x):
        return functools.partial(g, x * 2)

    return f, lambda: (line(),)


@behaviour("1")
def partial_is_an_argument():
    def g(a, b):
        return a * b

    def f(x, h):
        return h(x) + 1

    return f, lambda: (line(), functools.partial(g, 3))


# ---- 1: decorators


@behaviour("1")
def wraps_decorator():
    def doubled(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return wrapper

    @doubled
    def g(v, k=1):
        return v + k

    def f(x):
        return g(x) + g(x, k=3), g.__name__

    return f, lambda: (line(),)


@behaviour("1")
def wraps_decorator_with_arguments():
    def scaled(k, *, bias=0):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args) * k + bias

            return wrapper

        return decorate

    @scaled(3)
    @scaled(2, bias=1)
    def g(v):
        return v - 1

    def f(x):
        return g(x) + g.__wrapped__.__wrapped__(x)

    return f, lambda: (line(),)


@behaviour("1")
def decorator_on_the_function_itself():
    def shifted(function):
        @functools.wraps(function)
        def wrapper(x, *args, **kwargs):
            return function(x + 1, *args, **kwargs)

        return wrapper

    @shifted
    def f(x, k=2):
        return x * k

    return f, lambda: ((line(),), {"k": 3})


@behaviour("1")
def decorator_applied_inside():
    def traced(log):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(v):
                log.append(function.__name__)
                return function(v)

            return wrapper

        return decorate

    def f(x):
        log = []

        @traced(log)
        def double(v):
            return v * 2

        @traced(log)
        def negate(v):
            return -v

        return double(negate(double(x))), log

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def decorator_that_counts_calls():
    def counted(function):
        @functools.wraps(function)
        def wrapper(*args):
            wrapper.calls += 1
            return function(*args)

        wrapper.calls = 0
        return wrapper

    @counted
    def g(v):
        return v * 2

    def f(x):
        return g(x) + g(x + 1), g.calls

    return f, lambda: (line(),)


@behaviour("1")
def class_as_a_decorator():
    class Scaled:
        def __init__(self, function):
            self.function = function
            self.k = 3
            functools.update_wrapper(self, function)

        def __call__(self, *args):
            return self.function(*args) * self.k

    @Scaled
    def g(v):
        return v + 1

    def f(x):
        return g(x) - g.k

    return f, lambda: (line(),)


# ---- 1: recursion


@behaviour("1")
def recursion_with_a_bound():
    def power(v, n):
        if n == 0:
            return v * 0 + 1
        return v * power(v, n - 1)

    def f(x):
        return power(x, 4) + 1

    return f, lambda: (line(),)


@behaviour("1")
def mutual_recursion():
    def even(v, n):
        return v if n == 0 else odd(v + 1, n - 1)

    def odd(v, n):
        return -v if n == 0 else even(v * 2, n - 1)

    def f(x):
        return even(x, 4) + even(x, 3)

    return f, lambda: (line(),)


@behaviour("1")
def recursion_over_a_shape():
    def total(v):
        n = v.shape[0]
        if n == 1:
            return v * 1
        return total(v[: n // 2]) + total(v[n // 2 :])

    def f(x):
        return total(x) * 2

    return f, lambda: (np.arange(8.0),)


@behaviour("1")
def recursion_over_a_tree():
    def f(tree):
        def walk(node):
            if isinstance(node, dict):
                return {k: walk(v) for k, v in node.items()}
            if isinstance(node, list):
                return [walk(v) for v in node]
            if isinstance(node, tuple):
                return tuple(walk(v) for v in node)
            return node * 2

        return walk(tree)

    return f, lambda: ({"a": line(), "b": [line() + 1, (3, {"c": np.ones(2)})], "d": ()},)


@behaviour("1")
def recursion_that_counts_down_two_ways():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def f(x, n):
        return x * fib(n)

    return f, given(6, 7)


# ---- 1: closures that leave


@behaviour("1")
def closure_over_an_intermediate_is_returned():
    def f(x):
        y = x * 2

        def g(v):
            return v + y

        return g

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def closure_over_an_intermediate_is_called_later():
    kept = {}

    def f(x, earlier, kept):
        y = x * 2
        n = len(kept)

        def g(v):
            return v * y + n

        kept["g"] = g
        return y + 1

    return f, lambda: (line(), kept["g"](3.0) if kept else None, kept)


@behaviour("1", calls=3)
def closure_over_an_intermediate_is_called_by_the_next_call():
    kept = []

    def f(x, kept):
        y = x * 2
        for g in kept:
            y = g(y)
        kept[:] = [lambda v: v + y]
        return y * 3

    return f, lambda: (line(), kept)


@behaviour("1")
def closures_share_a_cell():
    def f(x):
        state = x + 1

        def get():
            return state

        def put(v):
            nonlocal state
            state = v

        put(state * 2)
        return {"get": get, "put": put}, state

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def closures_that_share_a_cell_are_called_later():
    kept = {}

    def used():
        if not kept:
            return None
        kept["put"](kept["get"]() * 10)
        return kept["get"]()

    def f(x, earlier, kept):
        state = x + 1

        def get():
            return state

        def put(v):
            nonlocal state
            state = v

        put(state * 2)
        kept.update(get=get, put=put)
        return get() - 1

    return f, lambda: (line(), used(), kept)


@behaviour("1")
def lambda_with_an_array_default_is_returned():
    def f(x):
        y = x - 1
        return lambda v, k=y, *, j=x: v * k + j

    return f, lambda: (line(),)


@behaviour("1")
def bound_method_over_an_intermediate_is_returned():
    class Box:
        def __init__(self, value):
            self.value = value

        def plus(self, v):
            return self.value + v

    def f(x):
        box = Box(x * 2)
        return box.plus, box

    return f, lambda: (line(),)


# ---- 1: dispatch


@behaviour("1", calls=4)
def dispatch_through_a_dict_of_functions():
    table = {"double": lambda v: v * 2, "negate": lambda v: -v, "tanh": np.tanh}

    def f(x, name):
        return table[name](x) + 1

    return f, given("double", "negate", "tanh")


@behaviour("1", calls=3)
def dispatch_with_a_default():
    def same(v):
        return v + 0.5

    def f(x, name):
        table = {"double": lambda v: v * 2, "shift": lambda v, k=1: v + k}
        return table.get(name, same)(x) * 3

    return f, given("double", "shift", "other")


@behaviour("1", calls=3)
def dispatch_through_a_registry_that_is_filled_by_decorators():
    registry = {}

    def register(name):
        def decorate(function):
            registry[name] = function
            return function

        return decorate

    @register("double")
    def double(v):
        return v * 2

    @register("square")
    def square(v):
        return v * v

    def f(x, names):
        for name in names:
            x = registry[name](x)
        return x + len(registry)

    return f, given(("double",), ("square", "double"), ("square",))


@behaviour("1", calls=2)
def dispatch_through_getattr():
    def f(x, name):
        return getattr(np, name)(x) + getattr(x, "sum")()

    return f, given("exp", "tanh")


@behaviour("1", calls=3)
def dispatch_by_type():
    def f(x, v):
        table = {int: lambda k: x + k, float: lambda k: x * k, str: lambda k: x - len(k)}
        return table[type(v)](v)

    return f, given(2, 2.5, "abc")


@behaviour("1", calls=3)
def singledispatch():
    @functools.singledispatch
    def apply(k, v):
        return v - 1

    @apply.register
    def _(k: int, v):
        return v + k

    @apply.register
    def _(k: str, v):
        return v * len(k)

    def f(x, k):
        return apply(k, x) * 2

    return f, given(2, "abc", None)


# ---- 1: lru_cache


@behaviour("1", calls=3)
def lru_cache_callee():
    @functools.lru_cache
    def scale(n):
        return n * 2 + 1

    def f(x):
        return x * scale(3) + scale(4)

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def lru_cache_is_used_and_filled():
    @functools.lru_cache(maxsize=None)
    def scale(n):
        return n * 2 + 1

    def f(x, info):
        return x * scale(3) + scale(4) + scale(3)

    return f, lambda: (line(), scale.cache_info())


@behaviour("1", calls=3)
def lru_cache_runs_its_body_once():
    bodies = []

    @functools.lru_cache
    def scale(n):
        bodies.append(n)
        return n + 0.5

    def f(x, seen):
        return x * scale(2) - scale(3)

    return f, lambda: (line(), tuple(bodies))


@behaviour("1", calls=3)
def lru_cache_keeps_what_it_knows():
    config = {"k": 1}

    @functools.lru_cache
    def scale(n):
        return n + config["k"]

    def made():
        config["k"] += 10
        return (line(),)

    def f(x):
        return x * scale(2)

    return f, made


@behaviour("1", calls=4)
def lru_cache_that_is_cleared():
    config = {"k": 0}

    @functools.lru_cache
    def scale(n):
        return n + config["k"]

    def made():
        config["k"] += 10
        if config["k"] in (20, 40):
            scale.cache_clear()
        return (line(),)

    def f(x):
        return x * scale(2)

    return f, made


@behaviour("1", calls=4)
def lru_cache_that_forgets():
    bodies = []

    @functools.lru_cache(maxsize=2)
    def scale(n, k=1):
        bodies.append((n, k))
        return n * k

    def f(x, seen, n):
        return x * scale(n) + scale(1) + scale(n, k=2)

    turn = itertools.cycle([1, 2, 3])
    return f, lambda: (line(), tuple(bodies), next(turn))


@behaviour("1")
def lru_cache_tells_types_apart_when_asked():
    @functools.lru_cache(typed=True)
    def scale(n):
        return [n]

    def f(x):
        return x * scale(1)[0] + scale(1.0)[0], scale(1) is scale(1), scale(1) is scale(1.0)

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def cache_of_an_array():
    @functools.cache
    def weights(n):
        return np.arange(float(n)) + 1

    def f(x, known):
        w = weights(4)
        return x * w, w, w is known

    return f, lambda: (line(), weights(4))


@behaviour("1", calls=3)
def cache_of_a_list_that_is_mutated():
    @functools.cache
    def log(name):
        return [name]

    def f(x):
        log("a").append(len(log("a")))
        return x * len(log("a")), list(log("a"))

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def cache_on_a_method():
    class Model:
        def __init__(self):
            self.bodies = 0

        @functools.lru_cache  # noqa: B019
        def scale(self, n):
            self.bodies += 1
            return n * 3

    model = Model()

    def f(x, bodies):
        return x * model.scale(2) + model.scale(2)

    return f, lambda: (line(), model.bodies)


# ---- 1: functools.reduce, operator


@behaviour("1")
def reduce_over_arrays():
    def f(x):
        return functools.reduce(lambda a, b: a * 2 + b, [x, x + 1, x - 1]), functools.reduce(operator.add, (x, 1, 2))

    return f, lambda: (line(),)


@behaviour("1")
def reduce_with_an_initial_value():
    def f(x):
        y = functools.reduce(lambda v, g: g(v), [np.tanh, np.exp, lambda v: v + 1], x)
        return y, functools.reduce(operator.mul, x.shape, 1), functools.reduce(max, [], 7)

    return f, lambda: (line(),)


@behaviour("1")
def operator_arithmetic():
    def f(x, k):
        y = operator.add(x, k) * operator.sub(k, 1) + operator.mul(x, x)
        y = operator.truediv(y, 4) - operator.neg(x) + operator.pow(x, 2) + operator.pos(k) + operator.abs(-k)
        return operator.floordiv(y, 2) + operator.mod(y, 3)

    return f, given(2, 3)


@behaviour("1")
def operator_matmul_and_comparison():
    def f(x):
        y = x.reshape(2, 2)
        return operator.matmul(y, y), operator.lt(x, 2), operator.eq(x, 1), operator.ge(x.shape[0], 4)

    return f, lambda: (line(),)


@behaviour("1")
def operator_on_integers():
    def f(x, k):
        y = operator.and_(x, k) + operator.or_(x, 4) - operator.xor(x, 1)
        return operator.lshift(y, 1), operator.invert(x), operator.rshift(k, 1), operator.index(k)

    return f, lambda: (np.arange(4), 6)


@behaviour("1")
def operator_items_and_attributes():
    class Box:
        def __init__(self, value):
            self.value = value
            self.inner = self

        def plus(self, k, j=0):
            return self.value + k + j

    def f(x, table):
        box = Box(x * 2)
        both = operator.itemgetter("a", "b")(table)
        y = operator.attrgetter("inner.value")(box) + operator.methodcaller("plus", 2, j=3)(box)
        return y, both, operator.itemgetter(1)(x.shape + (7,)), operator.attrgetter("ndim", "shape")(x)

    return f, lambda: (line(), {"a": 1, "b": 2})


@behaviour("1")
def operator_changes_in_place():
    def f(x, items):
        operator.setitem(x, 0, 9)
        x = operator.iadd(x, 2)
        items = operator.iconcat(items, [3, 4])
        operator.delitem(items, 0)
        return (
            operator.getitem(x, slice(1, 3)) * 2,
            operator.contains(items, 3),
            operator.countOf(items, 4),
            operator.indexOf(items, 4),
        )

    return f, lambda: (line(), [1, 2])


@behaviour("1")
def operator_truth():
    def f(x, k):
        flags = operator.not_(k), operator.truth(k), operator.is_(k, None), operator.is_not(k, None), operator.length_hint([1, 2])
        return x * flags[1] + 1, flags

    return f, given(2, 0)


# ---- 1: builtins on Python values


@behaviour("1")
def builtin_zip():
    def f(xs, ks):
        y = sum(x * k for x, k in zip(xs, ks))
        return y, list(zip(ks, "abc", range(9))), dict(zip(["a", "b"], xs)), list(zip(*[(1, 2), (3, 4)])), list(zip())

    return f, lambda: ([line(), line() + 1], [2, 3])


@behaviour("1")
def builtin_zip_strict():
    def f(x):
        pairs = list(zip((1, 2), (3, 4), strict=True))
        try:
            list(zip((1, 2), (3,), strict=True))
        except ValueError as error:
            return x * len(pairs), str(error)
        return x

    return f, lambda: (line(),)


@behaviour("1")
def builtin_enumerate():
    def f(x, names):
        for k, name in enumerate(names):
            x = x * (k + 1) + len(name)
        return x, list(enumerate(names, start=5)), list(enumerate(x.shape, 2))

    return f, lambda: (line(), ["a", "bc", "def"])


@behaviour("1")
def builtin_reversed():
    def f(x, items, table):
        for k in reversed(items):
            x = x * 2 + k
        return x, list(reversed(range(4))), list(reversed("ab")), list(reversed(table)), list(reversed((1, (2,))))

    return f, lambda: (line(), [1, 2, 3], {"b": 1, "a": 2})


@behaviour("1")
def builtin_map():
    def f(x):
        ys = list(map(lambda v: v * 2, [x, x + 1]))
        zs = list(map(np.add, ys, (1, 2, 3)))
        return zs, tuple(map(str, (1, 2))), sum(map(int, "123"))

    return f, lambda: (line(),)


@behaviour("1")
def builtin_filter():
    def f(x, ks):
        for k in filter(lambda k: k > 1, ks):
            x = x * k
        return x, list(filter(None, [0, 1, "", "a", None, []])), list(filter(str.isdigit, "a1b2"))

    return f, lambda: (line(), [1, 2, 0, 3])


@behaviour("1")
def map_and_filter_are_lazy():
    def f(x):
        order = []

        def note(k):
            order.append(k)
            return k * 2

        lazy = map(note, filter(lambda k: order.append(-k) or k > 1, [1, 2, 3]))
        order.append("made")
        y = x + next(lazy)
        order.append("first")
        return y + sum(lazy), order

    return f, lambda: (line(),)


@behaviour("1")
def builtin_sum():
    def f(x, ks):
        return sum([x, x * 2, x + 1]) + sum(ks), sum(ks, 10), sum([[1], [2]], []), sum(()), sum((0.1,) * 10), sum([x, 1], start=x)

    return f, lambda: (line(), [1, 2, 3])


@behaviour("1")
def builtin_min_and_max():
    def f(x, ks):
        low, high = min(ks), max(ks)
        others = (
            max(3, 1, 2),
            min("b", "a"),
            max([], default="none"),
            max(["aa", "b"], key=len),
            min(ks, key=lambda k: -k),
            max(1, 1.0),
        )
        return x * low + high, others, max(x.shape), min(2.5, x.ndim)

    return f, lambda: (line(), [4, 2, 7])


@behaviour("1")
def builtin_any_and_all():
    def f(x, ks):
        seen = []

        def note(k):
            seen.append(k)
            return k > 1

        flags = any(ks), all(ks), any([]), all([]), any(note(k) for k in ks), all(note(k) for k in ks)
        return x * 2 if flags[0] else -x, flags, seen

    return f, lambda: (line(), [1, 0, 2, 3])


@behaviour("1")
def builtin_sorted():
    def f(x, table):
        for name in sorted(table):
            x = x * 2 + table[name]
        words = ["bb", "a", "ccc", "dd"]
        return (
            x,
            sorted(words, key=len),
            sorted(words, key=lambda w: (-len(w), w)),
            sorted(words, reverse=True),
            sorted({3, 1, 2}),
            words,
        )

    return f, lambda: (line(), {"b": 1, "c": 2, "a": 3})


@behaviour("1")
def sorted_is_stable_and_takes_arrays_along():
    def f(x):
        pairs = sorted([(2, x), (1, x + 1), (2, x * 3), (0, x - 1)], key=lambda p: p[0])
        back = sorted(pairs, key=operator.itemgetter(0), reverse=True)
        return [p[1] for p in pairs], [p[1] for p in back]

    return f, lambda: (line(),)


@behaviour("1")
def builtin_iter_and_next():
    def f(x, items):
        it = iter(items)
        first = next(it)
        rest = list(it)
        return x * first, rest, next(it, "end"), next(iter({"k": 1})), iter(it) is it

    return f, lambda: (line(), [3, 4, 5])


@behaviour("1")
def builtin_iter_with_a_sentinel():
    def f(x):
        todo = [3, 2, 0, 5]
        for k in iter(lambda: todo.pop(0), 0):
            x = x + k
        return x, todo

    return f, lambda: (line(),)


@behaviour("1")
def builtin_numbers():
    def f(x, n, a):
        values = (
            abs(-n),
            round(a, 1),
            round(a),
            divmod(n, 3),
            pow(n, 2, 5),
            int(a),
            float(n),
            bool(n),
            int("12"),
            complex(n, 1),
            hex(n),
        )
        return x * abs(-a) + pow(n, 2), values

    return f, lambda: (line(), 7, 2.56)


@behaviour("1")
def builtin_texts_and_types():
    def f(x, n):
        values = (
            str(n),
            repr("a"),
            chr(97 + n),
            ord("b"),
            bin(n),
            format(n, "03d"),
            len("abc"),
            callable(len),
            isinstance(n, (int, str)),
        )
        return x + n, values, tuple("ab"), list("ab"), bytes([1, n])

    return f, given(2, 3)


# ---- 1: stars


@behaviour("1")
def star_in_assignment_targets():
    def f(x, items):
        first, *rest = items
        *head, last = items
        a, *middle, b = items
        (c, *d), *e = [items, 1, 2]
        [g, *nothing] = [x * 2]
        return g * first + last + a + b + c, rest, head, middle, d, e, nothing

    return f, lambda: (line(), [1, 2, 3, 4])


@behaviour("1")
def star_in_assignment_from_other_things():
    def f(x):
        a, *b = "abc"
        c, *d = range(3)
        *e, g = {"x": 1, "y": 2}
        h, *i = (k * 2 for k in range(3))
        first, *others = [x, x + 1, x * 2]
        return first + others[0] * others[1] + c + h, a, b, d, e, g, i

    return f, lambda: (line(),)


@behaviour("1")
def star_in_displays():
    def f(x, items, table):
        a = [0, *items, *range(2), 9]
        b = (*items, x * 2, *"ab")
        c = {*items, 1, 7}
        d = {"a": 0, **table, "z": 1, **{"a": 5}}
        return a, b, c, d, (*(),), [*table]

    return f, lambda: (line(), [1, 2], {"a": 1, "b": 2})


@behaviour("1")
def star_in_calls():
    def g(*args, **kwargs):
        return args[0] * args[1] + len(args), args[2:], kwargs

    def f(x, items, table):
        return g(x, *items), g(*[x, 1], 2, *items, k=1, **table), g(*(x, x), **table, **{"z": 2}), np.add(*[x, 1])

    return f, lambda: (line(), [2, 3], {"a": 1, "b": 2})


@behaviour("1")
def star_in_return_and_loop():
    def f(x, items):
        log = []
        for a, *b in [(1, 2, 3), (4,), "xy"]:
            log.append((a, b))
        for k in *items, 5:
            x = x + k
        return x, *items, *log

    return f, lambda: (line(), [2, 3])


@behaviour("1")
def star_in_a_subscript():
    def f(x, table):
        index = (slice(None), 0)
        table[*(1, 2)] = 5
        return x[*index] + x[..., *(1,)], table[1, 2]

    return f, lambda: (np.arange(4.0).reshape(2, 2), {})


@behaviour("1")
def rows_of_an_array_are_unpacked():
    def f(x):
        a, b = x
        (c, d), e = a + 1, b
        first, *rest = x * 2
        return a * b, c, d, e - first, rest

    return f, lambda: (np.arange(4.0).reshape(2, 2),)


@behaviour("1")
def swap_and_chained_assignment():
    def f(x, y):
        x, y = y, x
        a = b = x * 2
        (c, d), [e] = (1, 2), [y]
        i, table = 1, [0, 0, 0]
        i, table[i] = 2, 7
        return x - y, a is b, c + d + e, i, table

    return f, lambda: (line(), np.ones(4))


# ---- 1: generators


@behaviour("1")
def generator_consumed_by_a_loop():
    def parts(v, n):
        for k in range(n):
            yield v * k

    def f(x):
        total = x * 0
        for part in parts(x, 4):
            total = total + part
        return total

    return f, lambda: (line(),)


@behaviour("1")
def generator_consumed_by_builtins():
    def parts(v):
        yield v
        yield v + 1
        yield v * 2

    def f(x):
        a, b, c = parts(x)
        return list(parts(x)), tuple(parts(a)), sum(parts(b)), [*parts(c)], dict(enumerate(parts(x))), list(zip(parts(x), "ab"))

    return f, lambda: (line(),)


@behaviour("1")
def generator_with_next_and_default():
    def parts(v):
        yield v * 2
        yield v * 3

    def f(x):
        g = parts(x)
        first = next(g)
        second = next(g)
        return first + second, next(g, None), next(g, "again")

    return f, lambda: (line(),)


@behaviour("1")
def generator_with_send():
    def running(total):
        while True:
            v = yield total
            if v is None:
                return
            total = total + v

    def f(x):
        g = running(x * 0)
        values = [next(g)]
        for k in range(3):
            values.append(g.send(x * k))
        try:
            g.send(None)
        except StopIteration:
            values.append("end")
        return values

    return f, lambda: (line(),)


@behaviour("1")
def generator_with_a_return_value():
    def parts(v):
        yield v
        return v * 5

    def f(x):
        g = parts(x)
        y = next(g)
        try:
            next(g)
        except StopIteration as stop:
            return y + stop.value
        return y

    return f, lambda: (line(),)


@behaviour("1")
def generator_with_yield_from():
    def inner(v):
        got = yield v
        yield v * got
        return v + 100

    def outer(v):
        result = yield from inner(v)
        yield result
        yield from [1, 2]
        yield from (k * 2 for k in range(2))

    def f(x):
        g = outer(x)
        first = next(g)
        second = g.send(3)
        return first, second, list(g)

    return f, lambda: (line(),)


@behaviour("1")
def recursive_generator():
    def flat(tree):
        for node in tree:
            if isinstance(node, list):
                yield from flat(node)
            else:
                yield node

    def f(x):
        return [v * 2 for v in flat([x, [1, [x + 1, 2]], []])]

    return f, lambda: (line(),)


@behaviour("1")
def generator_is_lazy():
    def parts(v, order):
        order.append("start")
        for k in range(3):
            order.append(k)
            yield v + k
        order.append("end")

    def f(x):
        order = []
        g = parts(x, order)
        order.append("made")
        total = x * 0
        for part in g:
            order.append("body")
            total = total + part
        return total, order

    return f, lambda: (line(),)


@behaviour("1")
def generator_prints_in_order():
    def parts(n):
        for k in range(n):
            print("give", k)
            yield k

    def f(x):
        for k in parts(3):
            print("take", k)
            x = x * 2 + k
        return x

    return f, lambda: (line(),)


@behaviour("1")
def endless_generator_that_is_left():
    def numbers():
        k = 0
        while True:
            yield k
            k += 1

    def f(x):
        for k in numbers():
            if k > 3:
                break
            x = x + k
        return x, k

    return f, lambda: (line(),)


@behaviour("1")
def generator_is_closed():
    def parts(v, log):
        try:
            yield v
            yield v + 1
        finally:
            log.append("closed")

    def f(x):
        log = []
        g = parts(x, log)
        y = next(g)
        log.append("next")
        g.close()
        log.append("after")
        return y * 2, log, next(g, "end")

    return f, lambda: (line(),)


@behaviour("1")
def generator_is_thrown_into():
    def parts(v):
        try:
            yield v
        except ValueError as error:
            yield str(error)
        yield v * 2

    def f(x):
        g = parts(x)
        return next(g) + 1, g.throw(ValueError("thrown")), next(g)

    return f, lambda: (line(),)


@behaviour("1")
def generators_in_a_pipeline():
    def scaled(vs, k):
        for v in vs:
            yield v * k

    def shifted(vs):
        for v in vs:
            yield v + 1

    def f(x):
        return list(shifted(scaled(shifted([x, x * 2]), 3)))

    return f, lambda: (line(),)


@behaviour("1")
def generator_over_a_closure_and_a_changing_list():
    def f(x):
        items = [1, 2]

        def parts():
            for k in items:
                if k < 3:
                    items.append(k + 2)
                yield x * k

        return list(parts()), items

    return f, lambda: (line(),)


@behaviour("1")
def two_generators_in_turn():
    def counted(v, step):
        while True:
            v = v + step
            yield v

    def f(x):
        a, b = counted(x, 1), counted(x, 10)
        return [next(a), next(b), next(a), next(b) - next(a)]

    return f, lambda: (line(),)


@behaviour("1")
def generator_method_and_iter():
    class Model:
        def __init__(self, parts):
            self.parts = parts

        def __iter__(self):
            for k, part in enumerate(self.parts):
                yield part * (k + 1)

    def f(x):
        model = Model([x, x + 1])
        return sum(model), list(model), max(len(p) for p in model)

    return f, lambda: (line(),)


@behaviour("1")
def generator_expressions():
    def f(x, ks):
        total = sum(x * k for k in ks if k != 2)
        pairs = list((a, b) for a in ks for b in range(a) if b)
        return total, pairs, max(k * k for k in ks), tuple(v + 1 for v in (x * k for k in ks)), ",".join(str(k) for k in ks)

    return f, lambda: (line(), [1, 2, 3])


@behaviour("1")
def generator_expression_binds_late():
    def f(x):
        k = 2
        items = [x, x + 1]
        g = (v * k for v in items)
        k = 5
        items = []
        first = next(g)
        k = 7
        return first, list(g)

    return f, lambda: (line(),)


@behaviour("1")
def membership_stops_a_generator():
    def f(x):
        g = (k * k for k in range(6))
        return x * 2, 4 in g, list(g)

    return f, lambda: (line(),)


# ---- 1: mutable defaults


@behaviour("1", calls=3)
def mutable_default_of_the_function():
    def f(x, seen=[]):
        seen.append(x.shape[0])
        return x * len(seen), seen

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def mutable_default_of_a_callee():
    def g(v, known={}):
        known[len(known)] = v.ndim
        return v + len(known)

    def f(x):
        return g(x) * g(x), g(x, {}), len(g.__defaults__[0])

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def array_as_a_mutable_default():
    def f(x, total=np.zeros(4)):
        total += x
        return total * 2

    return f, lambda: (line(),)


@behaviour("1", calls=3)
def mutable_default_keeps_arrays():
    def f(x, *, last=[]):
        y = x * 2 + sum(last)
        last[:] = [y]
        return y - 1

    return f, lambda: (line(),)


# ---- 1: itertools


@behaviour("1")
def itertools_chain():
    def f(x, items):
        for k in itertools.chain(items, (4,), range(2)):
            x = x * 2 + k
        return x, list(itertools.chain()), list(itertools.chain.from_iterable([[1], "ab", (x,)]))

    return f, lambda: (line(), [1, 2])


@behaviour("1")
def itertools_product():
    def f(x, items):
        for a, b in itertools.product(items, range(2)):
            x = x + a * b
        return x, list(itertools.product("ab", repeat=2)), list(itertools.product())

    return f, lambda: (line(), [1, 2])


@behaviour("1")
def itertools_islice():
    def f(x, items):
        for k in itertools.islice(items, 2):
            x = x * k
        it = iter(items)
        taken = list(itertools.islice(it, 1))
        return x, taken, list(it), list(itertools.islice(items, 1, None, 2)), list(itertools.islice(items, 1, 3))

    return f, lambda: (line(), [1, 2, 3, 4, 5])


@behaviour("1")
def itertools_count():
    def f(x, names):
        for k, name in zip(itertools.count(), names):
            x = x + k * len(name)
        numbers = itertools.count(5, 2)
        return x * next(numbers) + next(numbers), list(itertools.islice(itertools.count(0.5, 0.25), 3))

    return f, lambda: (line(), ["a", "bc"])


@behaviour("1")
def itertools_accumulate():
    def f(x, ks):
        for k in itertools.accumulate(ks):
            x = x + k
        runs = list(itertools.accumulate([x, x + 1, x * 2])), list(itertools.accumulate(ks, operator.mul, initial=10))
        return x, runs, list(itertools.accumulate(ks, lambda a, b: a * 2 + b)), list(itertools.accumulate([]))

    return f, lambda: (line(), [1, 2, 3])


@behaviour("1")
def itertools_repeat():
    def f(x, n):
        for v in itertools.repeat(x, n):
            x = x + v
        return x, list(map(pow, range(4), itertools.repeat(2))), list(itertools.repeat("a", 2))

    return f, given(2, 3)


@behaviour("1")
def itertools_zip_longest():
    def f(x, items):
        for k, scale in itertools.zip_longest(items, (2,), fillvalue=1):
            x = x * scale + k
        return x, list(itertools.zip_longest("ab", [1], (x,)))

    return f, lambda: (line(), [1, 2, 3])


@behaviour("1")
def itertools_pairwise():
    def f(x, items):
        for a, b in itertools.pairwise(items):
            x = x * a + b
        return x, [v - u for u, v in itertools.pairwise([x, x * 2, x * 5])], list(itertools.pairwise([1]))

    return f, lambda: (line(), [1, 2, 3])


@behaviour("B")
def other_itertools():
    def f(x, items):
        for k in itertools.takewhile(lambda k: k < 3, items):
            x = x * 2 + k
        values = list(itertools.dropwhile(lambda k: k < 3, items)), list(itertools.starmap(pow, [(2, 3), (3, 2)]))
        groups = [(key, list(group)) for key, group in itertools.groupby(items, key=lambda k: k % 2)]
        pairs = (
            list(itertools.combinations(items, 2)),
            list(itertools.permutations(items[:2])),
            list(itertools.compress("abc", [1, 0, 1])),
        )
        cycle = itertools.cycle(items)
        return x + next(cycle), values, groups, pairs, list(itertools.filterfalse(lambda k: k > 2, items))

    return f, lambda: (line(), [1, 2, 4, 3])


@behaviour("1")
def itertools_of_a_generator_take_only_what_is_asked():
    def f(x):
        log = []

        def numbers():
            for k in range(9):
                log.append(k)
                yield k

        g = numbers()
        taken = list(itertools.islice(g, 2))
        joined = itertools.chain(g, ["end"])
        return x * next(joined), taken, log, next(g)

    return f, lambda: (line(),)


# ---- 1: kwargs


@behaviour("1", calls=3)
def built_kwargs_are_splatted():
    def g(v, k=1, bias=0, **more):
        return v * k + bias, more

    def f(x, scale):
        kwargs = {"bias": 3}
        if scale:
            kwargs["k"] = scale
        kwargs.update(other=x * 2)
        return g(x, **kwargs), kwargs

    return f, given(2, None, 5)


@behaviour("1")
def merged_kwargs_are_splatted():
    def g(v, k=1, bias=0):
        return v * k + bias

    def f(x, options):
        base = dict(k=2, bias=1)
        return g(x, **{**base, **options}), g(x, **(base | {"k": 7})), g(**dict(base, v=x)), g(x, **{}), base

    return f, lambda: (line(), {"bias": 4})


@behaviour("1")
def kwargs_of_an_array_function_are_splatted():
    def f(x):
        kwargs = {"axis": 0}
        kwargs["keepdims"] = True
        args = [x.reshape(2, 2)]
        return np.sum(*args, **kwargs) * 2, np.concatenate([x, x], **{"axis": 0})

    return f, lambda: (line(),)


# ---- B/E: generators across the border, opaque calls, async


@behaviour("E")
def generator_passed_in_half_consumed():
    def parts():
        yield from range(1, 6)

    def made():
        g = parts()
        next(g)
        return line(), g

    def f(x, g):
        y = x * 2 + next(g)
        return y + next(g)

    return f, made


@behaviour("E")
def generator_of_arrays_passed_in_half_consumed():
    def made():
        g = (np.full(4, float(k)) for k in range(4))
        next(g)
        return line(), g

    def f(x, g):
        y = x * 2
        for part in g:
            y = y + part
        return y - 1

    return f, made


@behaviour("E")
def iterator_of_a_list_passed_in_half_consumed():
    def made():
        it = iter([1, 2, 3, 4])
        next(it)
        return line(), it

    def f(x, it):
        return x * next(it) + 1

    return f, made


@behaviour("E")
def generator_is_returned():
    def f(x):
        y = x * 2

        def parts():
            for k in range(3):
                print("give", k)
                yield y + k

        return parts()

    return f, lambda: (line(),)


@behaviour("E")
def half_consumed_generator_is_returned():
    def parts(v):
        for k in range(4):
            yield v * k

    def f(x):
        g = parts(x + 1)
        first = next(g)
        return first, g, next(g)

    return f, lambda: (line(),)


@behaviour("E")
def generator_expression_is_returned():
    def f(x):
        y = x + 1
        return (y * k for k in range(3)), type(k for k in ()).__name__

    return f, lambda: (line(),)


@behaviour("E")
def lazy_iterators_are_returned():
    def f(x):
        y = x + 1
        return (
            map(lambda k: y * k, [1, 2]),
            zip([y], "a"),
            enumerate([y]),
            reversed([y, 2]),
            itertools.chain([y], [1]),
            iter([1, y]),
        )

    return f, lambda: (line(),)


@behaviour("E")
def generator_function_itself():
    def f(x):
        y = x * 2
        yield y
        got = yield y + 1
        yield got is None
        return y

    return f, lambda: (line(),)


@behaviour("E")
def generator_function_that_mutates_its_argument():
    def f(x):
        for k in range(3):
            x += k
            yield x * 2

    return f, lambda: (line(),)


@behaviour("E")
def opaque_call_on_python_values():
    def f(x, items):
        y = x * 2
        k = bisect.bisect_left(items, 3)
        a, b = struct.unpack("<hh", struct.pack("<hh", 1, k))
        return y * a + b

    return f, lambda: (line(), [1, 2, 4, 8])


@behaviour("E")
def opaque_call_on_an_array():
    def f(x):
        y = x * 2 + 1
        k = zlib.crc32(y.tobytes()) % 7
        return y * k, k

    return f, lambda: (line(),)


@behaviour("E")
def opaque_call_that_calls_back():
    def f(x):
        order = []

        def key(k):
            order.append(k)
            return -k

        items = [5, 3, 1]
        bisect.insort(items, 2, key=key)
        return x * len(items) + 1, items, order

    return f, lambda: (line(),)


@behaviour("E")
def async_function_itself():
    async def f(x):
        y = x * 2
        return y + 1

    return f, lambda: (line(),)


@behaviour("E")
def async_function_that_awaits():
    async def shifted(v, k=1):
        return v + k

    async def f(x):
        y = await shifted(x * 2)
        for k in range(2):
            y = y + await shifted(y, k)
        return y - 1

    return f, lambda: (line(),)


@behaviour("E")
def coroutine_is_driven_inside():
    async def g(v):
        return v * 3

    def f(x):
        c = g(x + 1)
        try:
            c.send(None)
        except StopIteration as end:
            return end.value - 1
        return x

    return f, lambda: (line(),)


@behaviour("B", calls=4)
def closures_made_anew_that_break_in_a_loop():
    def f(x, numbers):
        def fill(k):
            for i in range(len(x)):
                x[i] = i * 3

        fill(int(numbers[1]))

    return f, lambda: (line(), np.arange(3))


@behaviour("B", calls=4)
def closures_made_anew_that_write_in_place():
    def f(x, n):
        def grow(items):
            for _ in x[::-1][:3]:
                np.add(x, 1, out=x)

        match n % 3:
            case 1 | 2:
                grow(list(range(n)))
        return x + n

    return f, given(4, 5, 7, 8)


@behaviour("E")
def async_for_async_with_and_async_generators():
    class Block:
        def __init__(self, log):
            self.log = log

        async def __aenter__(self):
            self.log.append("enter")
            return 3

        async def __aexit__(self, *details):
            self.log.append("exit")

    async def parts(v):
        for k in range(3):
            yield v * k

    async def f(x):
        log = []
        total = x * 0
        async with Block(log) as scale:
            async for part in parts(x):
                total = total + part * scale
        return total, log, [p + 1 async for p in parts(x)]

    return f, lambda: (line(),)


@behaviour("1", calls=4)
def itertools_with_sizes_that_change():
    turn = itertools.cycle((1, 2, 3, 2))

    def f(x, r):
        rows = list(itertools.permutations("abc", r)), list(itertools.combinations("abc", r))
        return x * len(rows[0]), rows, list(itertools.islice(itertools.product("ab", repeat=r), r))

    return f, lambda: (line(), next(turn))


@behaviour("1")
def itertools_that_raise_at_once():
    def f(x):
        said = []
        for make in (
            lambda: itertools.permutations("abc", "s"),
            lambda: itertools.combinations("abc", -1),
            lambda: itertools.islice("abc", -1),
        ):
            try:
                make()
            except (TypeError, ValueError) as e:
                said.append((type(e).__name__, str(e)))
        return x * 2, said

    return f, lambda: (line(),)


@behaviour("B")
def deep_recursion_behind_a_break():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    def f(x):
        y = x * 2
        first = float(y[0])
        return y * first + down(600)

    return f, lambda: (line(),)


@behaviour("1")
def unexpected_keyword_with_a_suggestion():
    def callee(x, *, bluchin=None):
        return x

    def f(x):
        try:
            callee(x, bluch=1)
        except TypeError as e:
            return x * 2, str(e)

    return f, lambda: (line(),)


@behaviour("1")
def close_of_a_generator_that_returns():
    def parts(x):
        try:
            yield x
        except GeneratorExit:
            return 3

    def f(x):
        made = parts(x)
        first = next(made)
        return first * 2, made.close(), made.close()

    return f, lambda: (line(),)


@behaviour("1")
def reduce_of_many():
    def f(x):
        return functools.reduce(operator.add, range(200)) + x, operator.indexOf(range(200), 150), operator.countOf(range(200), 5)

    return f, lambda: (line(),)


@behaviour("1")
def reduce_of_nothing():
    def f(x):
        try:
            functools.reduce(operator.add, [])
        except TypeError as e:
            return x * 2, str(e), e.__context__

    return f, lambda: (line(),)


@behaviour("1")
def counts_and_places_by_module_operator():
    def f(x):
        counts = collections.Counter("abracadabra")
        places = operator.indexOf(iter([1, 2, 3]), 3), operator.countOf((1, 2, 1.0), 1)
        return x * counts.most_common(1)[0][1], counts.most_common(2), counts.most_common(-1), counts.most_common(), places

    return f, lambda: (line(),)


@behaviour("1")
def too_many_arguments_besides_keyword_only_ones():
    def callee(x, *, by=1):
        return x * by

    def f(x):
        try:
            callee(x, 2, by=3)
        except TypeError as e:
            return x * 2, str(e)

    return f, lambda: (line(),)


test_functions = collected(__name__)


def test_functions_in_c_have_no_frames():
    """The Python that is followed in their place is not in tracebacks."""

    def divide(a, b):
        return a / b

    def f(x):
        try:
            functools.reduce(divide, [1, 0])
        except ZeroDivisionError as e:
            return x * 2, e

    def names(function):
        return [place.name for place in traceback.extract_tb(function(line())[1].__traceback__)]

    assert names(dg.compile(f, fullgraph=True)) == names(f) == ["f", "divide"]
