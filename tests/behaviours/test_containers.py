"""Containers: lists, dicts, sets, records, texts. PYTEST_DONT_REWRITE: rows are captured as they stand."""
# rows are programs as people write them
# ruff: noqa: B007, C406, C408, C416, C420, PIE796, RUF037, UP003, UP030, UP031, UP032

import collections
import copy
import dataclasses
import enum
import itertools
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import numpy as np

from .harness import behaviour, collected


def line():
    return np.arange(4.0)


def given(*others):
    """A maker of [0, 1, 2, 3] and copies of these, one after the other."""
    turn = itertools.cycle(others)
    return lambda: (line(), copy.deepcopy(next(turn)))


# ---- operators by name, and the order of ordered dicts


@behaviour("1")
def operators_of_containers_by_name():
    def f(x, items):
        found = [items.__eq__([1, 2]), items.__eq__((1, 2)), items.__add__([3]), items.__rmul__(2), items.__lt__([5])]
        found += [items.__ne__(3), list.__add__([1], [2])]
        found += [(1, 2).__mul__(2), {1: 2}.__eq__({1: 2}), {1: 2}.__or__({3: 4}), {1: 2}.__ror__({3: 4})]
        found += [{1}.__eq__([1]), {1, 2}.__and__({2}), {1, 2}.__sub__({2}), {1}.__rsub__({1, 5}), {1}.__or__([2])]
        return x * 2, found

    return f, lambda: (line(), [1, 2])


@behaviour("1")
def operators_of_arrays_by_name():
    def f(x, y):
        z = x * 2
        z.__iadd__(1)
        z.__imul__(y)
        seen = x.__len__(), x.__getitem__(2), list(x.__iter__())
        return z, x.__radd__(2), x.__rsub__(y), x.__rpow__(2), seen

    return f, lambda: (line(), line() + 1)


@behaviour("1")
def ordered_dicts_are_equal_in_the_same_order():
    def f(x, one, other):
        made = OrderedDict(a=1, b=2)
        return x * 2, one == other, one != other, made == one, made == other, made == {"b": 2, "a": 1}, made.__eq__(other)

    return f, lambda: (line(), OrderedDict(a=1, b=2), OrderedDict(b=2, a=1))


# ---- 1: input lists


@behaviour("1")
def append_to_an_input_list():
    def f(x, items):
        items.append(x * 2)
        items.append(7)
        return x + len(items)

    return f, lambda: (line(), [1])


@behaviour("1", calls=3)
def append_to_a_list_that_is_kept():
    kept = []

    def f(x, items):
        items.append(x * 2)
        return items[0] + 1

    return f, lambda: (line(), kept)


@behaviour("1")
def append_the_input_itself():
    def f(x, items):
        items.append(x)
        x += 1
        items.append(x)
        return items[-1] is x, x * 2

    return f, lambda: (line(), [])


@behaviour("1")
def extend_and_insert_on_an_input_list():
    def f(x, items):
        items.extend([x + 1, x + 2])
        items.insert(0, "first")
        items += [x * 3]
        items.extend(k for k in range(2))
        items[1] = x - 1
        return items[2] * 2

    return f, lambda: (line(), [1])


@behaviour("1")
def pop_and_remove_on_an_input_list():
    def f(x, items):
        last, first = items.pop(), items.pop(0)
        items.remove("b")
        del items[-1]
        return x * last + first, items.index("a"), items.count("a")

    return f, lambda: (line(), [2, "a", "b", "a", "c", 5])


@behaviour("1")
def clear_and_reverse_on_input_lists():
    def f(x, items, others):
        y = x * items[0] + others[-1]
        items.reverse()
        others.clear()
        items *= 2
        return y, len(items), others == []

    return f, lambda: (line(), [2, 3], [4, 5])


@behaviour("1")
def one_list_passed_as_two_arguments():
    def made():
        items = [2]
        return line(), items, items

    def f(x, a, b):
        a.append(x * 2)
        b.append(3)
        return b[1] * len(a), a is b

    return f, made


@behaviour("1")
def arrays_of_an_input_list_are_replaced():
    def f(items):
        for k, x in enumerate(items):
            items[k] = x * (k + 2)
        return items[0] + items[1]

    return f, lambda: ([line(), line() + 1],)


@behaviour("1")
def array_of_an_input_list_is_changed_in_place():
    def f(items):
        items[0] += 5
        items[1][1:3] = 0
        return items[0] * items[1]

    return f, lambda: ([line(), line() + 1],)


@behaviour("1")
def a_nested_input_list_is_changed():
    def f(x, tree):
        tree["a"][1].append(x * 2)
        tree["b"] = tree["a"]
        return tree["a"][0] + x

    return f, lambda: (line(), {"a": [3, []]})


@behaviour("1")
def returned_input_list_keeps_its_identity():
    def f(x, items):
        items.append(x * 2)
        return items

    return f, lambda: (line(), [1])


@behaviour("1")
def returned_untouched_containers_keep_their_identity():
    def f(x, items, table):
        return x * 2, items, {"table": table, "inner": items[0]}, table["x"]

    return f, lambda: (line(), [[1]], {"x": line()})


@behaviour("1")
def input_list_is_stored_in_another():
    def f(x, items, others):
        others.append(items)
        items.append(x + 1)
        return others[0][0] * 2, others[0] is items

    return f, lambda: (line(), [], [])


# ---- 1: local lists


@behaviour("1")
def alias_of_a_local_list():
    def f(x):
        a = [x]
        b = a
        b.append(x * 2)
        a += [x + 1]
        a = a + [1]
        return a, b, a is b, len(a) - len(b)

    return f, lambda: (line(),)


@behaviour("1")
def alias_through_a_callee():
    def push(items, value):
        items.append(value)
        return items

    def f(x):
        a = []
        b = push(a, x * 2)
        c = push(b, 3)
        return [a, b, c], a is c

    return f, lambda: (line(),)


@behaviour("1")
def a_list_inside_itself():
    def f(x):
        a = [x * 2]
        a.append(a)
        return a

    return f, lambda: (line(),)


@behaviour("1")
def rows_of_a_multiplied_list_are_one():
    def f(x):
        grid = [[0] * 2] * 3
        grid[0][1] = x * 2
        grid[2].append(5)
        return grid

    return f, lambda: (line(),)


@behaviour("1")
def local_list_operations():
    def f(x):
        a = [3, 1, 2]
        b = a[:] + a[::-1] + a * 2
        values = a[-1], a[1:], b[::3], 3 in a, 9 not in a, a == [3, 1, 2], a < [3, 2], len(b), a.index(2), b.count(1)
        return x * b[4], values, [x][0] is x

    return f, lambda: (line(),)


@behaviour("1")
def tuple_operations():
    def f(x, pair):
        a = pair + (3,) + (x * 2,)
        values = a[:2], pair * 2, a[1:][0], pair == (1, 2), pair < (1, 3), 2 in pair, hash(pair) == hash((1, 2)), a.index(3), ()
        return a, values, len(a)

    return f, lambda: (line(), (1, 2))


@behaviour("1")
def slice_assignment():
    def f(x):
        a = [0, 1, 2, 3, 4]
        a[1:3] = [x, x + 1, x + 2]
        a[-1:] = []
        a[::2] = "abc"
        a[0:0] = (k for k in range(2))
        del a[1]
        return a

    return f, lambda: (line(),)


@behaviour("1")
def slice_assignment_on_an_input_list():
    def f(x, items):
        items[:2] = [x * items[0]]
        items[1:1] = ["new", 9]
        del items[-2:]
        return items[0] + 1

    return f, lambda: (line(), [2, 3, 4, 5, 6])


@behaviour("1")
def whole_slice_assignment_keeps_the_list():
    def f(x, items):
        old = items
        items[:] = [v * 2 for v in (x, x + 1)]
        return items is old, items[1] - 1

    return f, lambda: (line(), [1, 2, 3])


@behaviour("1")
def appending_to_a_list_while_iterating_it():
    def f(x):
        items = [1, 2]
        for k in items:
            x = x * 2 + k
            if len(items) < 6:
                items.append(k + 2)
        return x, items

    return f, lambda: (line(),)


@behaviour("1")
def appending_to_an_input_list_while_iterating_it():
    def f(x, items):
        total = x * 0
        for k in items:
            total = total + x * k
            if k < 4:
                items.append(k + 1)
        return total

    return f, lambda: (line(), [1, 3])


@behaviour("1")
def removing_from_a_list_while_iterating_it():
    def f(x):
        items = [1, 2, 3, 4, 5]
        seen = []
        for k in items:
            seen.append(k)
            if k % 2:
                items.remove(k)
        return x * sum(seen), items, seen

    return f, lambda: (line(),)


@behaviour("1")
def list_sort_by_key():
    def f(x):
        words = ["ccc", "a", "bb", "dd"]
        words.sort(key=len)
        pairs = [(2, "b"), (1, "z"), (2, "a")]
        pairs.sort(key=lambda p: p[0], reverse=True)
        numbers = [3, 1, 2]
        return x * len(words[0]), words, pairs, numbers.sort(), numbers

    return f, lambda: (line(),)


@behaviour("1")
def sort_of_an_input_list_that_holds_arrays():
    def f(items):
        items.sort(key=lambda pair: -pair[0])
        return items[0][1] * 2 + items[1][1]

    return f, lambda: ([(1, line()), (3, line() + 1), (2, line() * 5)],)


# ---- 1: comprehensions


@behaviour("1")
def list_comprehension():
    def f(x):
        parts = [x * k for k in range(3)]
        return parts, [p.shape[0] for p in parts], [v for v in [x, x]]

    return f, lambda: (line(),)


@behaviour("1")
def dict_comprehension():
    def f(x, names):
        table = {name: x * k for k, name in enumerate(names)}
        back = {len(k): k for k in table}
        return table, back, {k: v for k, v in table.items() if k != "a"}, {**{k: 1 for k in "ab"}}

    return f, lambda: (line(), ["a", "bc", "d"])


@behaviour("1")
def set_comprehension():
    def f(x, ks):
        kinds = {k % 3 for k in ks}
        return x * len(kinds), kinds, sorted({str(k) for k in ks})

    return f, lambda: (line(), [1, 4, 5, 6])


@behaviour("1")
def nested_comprehensions():
    def f(x):
        grid = [[x * i + j for j in range(2)] for i in range(2)]
        flat = [v + 1 for row in grid for v in row]
        table = {i: {j: [i, j] for j in range(i)} for i in range(3)}
        return grid, flat, table, [i + j for i in range(2) for j in range(i, 3)]

    return f, lambda: (line(),)


@behaviour("1")
def filtered_comprehensions():
    def f(x, ks):
        chosen = [x * k for k in ks if k > 1 if k % 2]
        either = [k if k > 2 else -k for k in ks]
        return chosen, either, {k: "big" for k in ks if not k < 3}, [p for p in [None, x, None] if p is not None]

    return f, lambda: (line(), [1, 2, 3, 5])


@behaviour("1")
def comprehension_variables_stay_inside():
    def f(x):
        k = 10
        parts = [x + k for k in range(2)]
        functions = [lambda: k for k in range(3)]
        return parts, x * k, functions[0]()

    return f, lambda: (line(),)


@behaviour("1")
def comprehension_over_a_closure():
    def f(x, n):
        y = x + 1

        def g(z):
            return [y * z + n + k for k in range(n)]

        return [v * n for v in g(x)]

    return f, given(2, 3)


# ---- 1: input dicts


@behaviour("1")
def dict_get_with_a_default():
    def f(x, table):
        a, b, c = table.get("a"), table.get("b", 5), table.get("none")
        return x * a + b, c, table.get("y", x) is x, table.get("x", None) * 2

    return f, lambda: (line(), {"a": 2, "x": line() + 1})


@behaviour("1", calls=3)
def dict_get_depends_on_the_keys():
    def f(x, table):
        return x * table.get("k", 3) + ("bias" in table)

    return f, given({"k": 2}, {}, {"bias": 1})


@behaviour("1")
def dict_set_on_an_input():
    def f(x, table):
        table["new"] = x * 2
        table["old"] = table["old"] + 1
        table["old"] += 5
        return x + table["old"]

    return f, lambda: (line(), {"old": 1, "other": 2})


@behaviour("1")
def dict_del_on_an_input():
    def f(x, table):
        y = x * table["a"]
        del table["a"]
        table["a"] = y
        del table["c"]
        return "c" in table, y + 1

    return f, lambda: (line(), {"a": 2, "b": 3, "c": 4})


@behaviour("1")
def dict_pop_on_an_input():
    def f(x, table):
        y = x * table.pop("a") + table.pop("none", 7)
        last = table.popitem()
        return y, last, len(table)

    return f, lambda: (line(), {"a": 2, "b": 3, "c": 4})


@behaviour("1")
def dict_setdefault_on_an_input():
    def f(x, table):
        table.setdefault("list", []).append(x * 2)
        table.setdefault("list", ["unused"]).append(3)
        k = table.setdefault("k", 9)
        return x + k, table.setdefault("none")

    return f, lambda: (line(), {"k": 2})


@behaviour("1")
def dict_update_on_an_input():
    def f(x, table):
        table.update({"a": x * 2}, b=4)
        table.update([("c", 5), ("a2", x)])
        table.update(k=table["b"])
        return table["a"] + table["k"]

    return f, lambda: (line(), {"b": 1, "a": 0})


@behaviour("1")
def dict_clear_and_refill_on_an_input():
    def f(x, table):
        y = x * table["k"]
        table.clear()
        table["y"] = y
        return not table, len(table), y + 1

    return f, lambda: (line(), {"k": 3, "j": 1})


@behaviour("1", calls=4)
def dict_that_is_kept_counts_calls():
    state = {"calls": 0}

    def f(x, state):
        state["calls"] += 1
        state["last"] = x * state["calls"]
        return state["last"] + 1

    return f, lambda: (line(), state)


@behaviour("1")
def array_of_an_input_dict_is_changed_in_place():
    def f(params, grads):
        for name in params:
            params[name] -= 0.5 * grads[name]
        return params["w"] * 2

    return f, lambda: ({"w": line(), "b": np.ones(2)}, {"w": np.ones(4), "b": np.full(2, 3.0)})


@behaviour("1")
def arrays_of_an_input_dict_are_replaced():
    def f(params):
        for name, value in params.items():
            params[name] = value * 2 + 1
        return sum(v.sum() for v in params.values())

    return f, lambda: ({"w": line(), "b": np.ones(2)},)


# ---- 1: dicts


@behaviour("1", calls=3)
def order_of_keys():
    def f(x, table):
        for name in table:
            x = x * 2 + len(name)
        return x, list(table), list(table.keys()), list(reversed(table))

    return f, given({"a": 1, "bb": 2, "ccc": 3}, {"ccc": 3, "a": 1, "bb": 2}, {"bb": 1})


@behaviour("1", calls=2)
def order_of_items():
    def f(x, table):
        for name, k in table.items():
            x = x * k + 1
        return x, list(table.items()), list(table.values()), [k for k, v in table.items() if v > 2]

    return f, given({"a": 2, "b": 3}, {"b": 3, "a": 2})


@behaviour("1")
def order_after_changes():
    def f(x, table):
        table["a"] = 9
        b = table.pop("b")
        table["new"] = x * 2
        table["b"] = b
        return list(table), next(iter(table)), table["new"] + 1

    return f, lambda: (line(), {"a": 1, "b": 2, "c": 3})


@behaviour("1")
def views_follow_the_dict():
    def f(x):
        table = {"a": x}
        keys, values, items = table.keys(), table.values(), table.items()
        table["b"] = x * 2
        return (
            list(keys),
            list(values),
            len(items),
            "b" in keys,
            keys & {"b", "c"},
            keys == {"b": 1, "a": 2}.keys(),
            ("c", 3) in items,
        )

    return f, lambda: (line(),)


@behaviour("1")
def changing_a_dict_while_iterating_it_is_noticed():
    def f(x):
        table = {"a": 1, "b": 2}
        try:
            for name in table:
                table[name + "2"] = 3
        except RuntimeError as error:
            return x * len(table), str(error)
        return x

    return f, lambda: (line(),)


@behaviour("1")
def merge_with_stars():
    def f(x, a, b):
        c = {**a, "y": x * 2, **b}
        d = dict(a, **b, z=1)
        return c, d, list(c), a is not c

    return f, lambda: (line(), {"k": 1, "x": 2}, {"x": 3, "w": 4})


@behaviour("1")
def merge_with_bars():
    def f(x, a, b):
        c = a | b | {"y": x * 2}
        d = c
        d |= {"z": x + 1}
        a |= [("new", 5)]
        return c, d, c is d, list(b | a)

    return f, lambda: (line(), {"k": 1, "x": 2}, {"x": 3, "w": 4})


@behaviour("1")
def dict_construction():
    def f(x):
        a = dict(k=1, y=x * 2)
        b = dict([("a", 1), ("b", x)])
        c = dict(zip("ab", range(2)))
        d = dict.fromkeys("ab", x)
        e = dict.fromkeys([1, 2])
        return a, b, c, d, e, a == {"k": 1}, dict(c) == c

    return f, lambda: (line(),)


@behaviour("1")
def dict_keys_of_many_types():
    def f(x):
        table = {1: "int", "1": "str", (1, 2): x, None: 0, 2.5: "float", b"a": "bytes", frozenset({1}): "set", int: "type"}
        table[True] = "bool"
        table[(0, 1) + (2,)] = x * 2
        return (
            table[1],
            table[(1, 2)] + 1,
            table[None],
            table[0, 1, 2],
            table[2.5],
            table[frozenset([1])],
            table[type(3)],
            len(table),
        )

    return f, lambda: (line(),)


# ---- 1: defaultdict, OrderedDict, Counter


@behaviour("1")
def defaultdict_of_lists():
    def f(x, names):
        groups = defaultdict(list)
        for k, name in enumerate(names):
            groups[name].append(x * k)
        return groups, "z" in groups, groups.get("z"), len(groups["y"]), groups.default_factory is list

    return f, lambda: (line(), ["a", "b", "a"])


@behaviour("1")
def defaultdict_of_numbers_and_lambdas():
    def f(x):
        counts = collections.defaultdict(int, {"a": 5})
        for c in "abba":
            counts[c] += 1
        totals = defaultdict(lambda: x * 0)
        totals["t"] += x
        totals["t"] += 1
        return counts, dict(totals)

    return f, lambda: (line(),)


@behaviour("1")
def defaultdict_as_an_argument():
    def f(x, groups):
        groups["new"].append(x * 2)
        groups["old"].append(3)
        return x + len(groups)

    return f, lambda: (line(), defaultdict(list, old=[1]))


@behaviour("1")
def ordered_dict_move_to_end():
    def f(x):
        table = OrderedDict([("a", x), ("b", x + 1), ("c", 3)])
        table.move_to_end("a")
        table.move_to_end("c", last=False)
        order = list(table)
        first = table.popitem(last=False)
        return table, order, first, table == OrderedDict(b=1), list(reversed(table))

    return f, lambda: (line(),)


@behaviour("1")
def ordered_dict_as_an_argument():
    def f(x, table):
        table["new"] = x * table["a"]
        table.move_to_end("a")
        return list(table), table["new"] + 1

    return f, lambda: (line(), OrderedDict(a=2, b=3))


@behaviour("1")
def ordered_dict_as_a_cache():
    def f(x, keys):
        cache = OrderedDict()
        for k in keys:
            if k in cache:
                cache.move_to_end(k)
            else:
                cache[k] = x * k
            if len(cache) > 2:
                cache.popitem(last=False)
        return cache

    return f, lambda: (line(), [1, 2, 1, 3, 1])


@behaviour("1")
def counter():
    def f(x, word):
        counts = Counter(word)
        counts["z"] += 2
        counts.update("ab")
        return x * counts["b"], counts, counts["none"], counts.most_common(2), sum(counts.values())

    return f, lambda: (line(), "abracadabra")


@behaviour("1")
def counter_arithmetic():
    def f(x):
        a, b = Counter(a=3, b=1), Counter({"a": 1, "b": 2})
        c = Counter(a)
        c.subtract(b)
        return x * (a + b)["a"], a + b, a - b, a & b, a | b, c, sorted(a.elements()), a == Counter("aaab"), +c

    return f, lambda: (line(),)


# ---- 1: sets


@behaviour("1")
def set_algebra():
    def f(x, a, b):
        values = a | b, a & b, a - b, a ^ b, a <= b, a < a | b, a == {2, 1}, a.isdisjoint({9}), a.issubset(b), a.issuperset({1})
        return x * len(a | b), values, a.union([7], (8,)), a.intersection(b, [2]), a.difference([1]), a.symmetric_difference({1, 5})

    return f, lambda: (line(), {1, 2}, {2, 3})


@behaviour("1")
def set_changes_on_an_input():
    def f(x, a):
        a.add(5)
        a.add(1)
        a.discard(9)
        a.remove(2)
        a |= {10, 11}
        a -= {3}
        a.update([20], {21})
        a.intersection_update(range(21))
        return x * len(a), 5 in a

    return f, lambda: (line(), {1, 2, 3})


@behaviour("1")
def local_sets():
    def f(x, words):
        seen, order = set(), []
        for w in words:
            if w not in seen:
                seen.add(w)
                order.append(w)
        one = {7}
        return x * len(seen), seen, order, one.pop(), one, sorted(set(words) - {"a"}), min(seen), set("ab") == {"b", "a"}

    return f, lambda: (line(), ["a", "b", "a", "c"])


@behaviour("1")
def frozensets():
    def f(x, names):
        kinds = frozenset(names)
        table = {kinds: x * 2, frozenset(): 1}
        return (
            table[frozenset(["b", "a"])],
            kinds | {"c"},
            kinds & {"a"},
            type({1} | frozenset([2])) is set,
            type(kinds | {1}) is frozenset,
            "a" in kinds,
            kinds,
        )

    return f, lambda: (line(), ["a", "b", "a"])


@behaviour("1", calls=2)
def frozenset_as_an_argument():
    def f(x, kinds):
        return x * len(kinds) + ("a" in kinds)

    return f, given(frozenset("ab"), frozenset("cde"))


# ---- 1: deque


@behaviour("1")
def bounded_deque():
    def f(x):
        last = deque(maxlen=2)
        for k in range(4):
            last.append(x * k)
        last.appendleft("left")
        return last, len(last), last.maxlen

    return f, lambda: (line(),)


@behaviour("1", calls=4)
def bounded_deque_that_is_kept():
    window = deque([], 2)

    def f(x, window):
        window.append(x * (len(window) + 1))
        return sum(window) / len(window)

    return f, lambda: (line(), window)


@behaviour("1")
def deque_operations():
    def f(x, queue):
        first, last = queue.popleft(), queue.pop()
        queue.extend([x + 1, 7])
        queue.extendleft("ab")
        queue.rotate(1)
        queue[1] = "set"
        return x * first + last, list(queue), queue[0], list(reversed(deque([1, 2]))), deque([1, 2]) == deque([1, 2])

    return f, lambda: (line(), deque([2, 3, 4]))


@behaviour("1")
def deque_as_a_work_list():
    def f(x, tree):
        todo, order = deque([tree]), []
        while todo:
            node = todo.popleft()
            if isinstance(node, list):
                todo.extend(node)
            else:
                order.append(node)
                x = x * 2 + node
        return x, order

    return f, lambda: (line(), [1, [2, [3]], 4])


# ---- 1: named tuples


@behaviour("1")
def namedtuple_replace():
    Point = namedtuple("Point", "a b c", defaults=[7])

    def f(x):
        p = Point(x, 2)
        q = p._replace(a=x * p.b, c=p.c + 1)
        return p, q, q.a + q[1], len(q), q._fields, p.a is x

    return f, lambda: (line(),)


@behaviour("1")
def namedtuple_as_an_argument():
    State = namedtuple("State", ["x", "step"])

    def f(state):
        x, step = state
        return state._replace(x=x * 2 + state.step, step=step + 1), state._asdict(), state == state, State._make([x, 1])

    return f, lambda: (State(line(), 3),)


@behaviour("1")
def namedtuple_as_a_class():
    class Layer(typing.NamedTuple):
        w: np.ndarray
        scale: float = 2.0

        def apply(self, x):
            return self.w * x * self.scale

    def f(x):
        layer = Layer(x + 1)
        other = layer._replace(scale=3)
        return layer.apply(x), other.apply(layer.w), other, isinstance(other, tuple)

    return f, lambda: (line(),)


# ---- 1: dataclasses


@behaviour("1")
def dataclass_is_built_and_returned():
    @dataclass
    class Out:
        y: np.ndarray
        n: int = 2
        log: list = field(default_factory=list)

    def f(x):
        out = Out(x * 2)
        out.log.append("made")
        return out, Out(out.y, n=out.n + 1, log=[x])

    return f, lambda: (line(),)


@behaviour("1")
def dataclass_is_mutated():
    @dataclass
    class State:
        x: np.ndarray
        step: int = 0

    def f(state):
        state.x = state.x * 2 + state.step
        state.step += 1
        state.x += 1
        return state.x - 3

    return f, lambda: (State(line(), 5),)


@behaviour("1", calls=4)
def dataclass_that_is_kept():
    @dataclass
    class State:
        x: np.ndarray
        steps: int = 0
        log: list = field(default_factory=list)

    state = State(line())

    def f(state, scale):
        state.x = state.x * scale
        state.steps += 1
        state.log.append(state.steps)
        return state

    return f, lambda: (state, np.full(4, 0.5))


@behaviour("1")
def dataclass_with_post_init_and_methods():
    @dataclass
    class Layer:
        w: np.ndarray
        k: int = 2
        doubled: np.ndarray = field(init=False)

        def __post_init__(self):
            self.doubled = self.w * self.k

        @property
        def size(self):
            return self.w.shape[0]

        def __call__(self, x):
            return x * self.doubled + self.size

    def f(x):
        layer = Layer(x + 1, k=3)
        return layer(x), layer

    return f, lambda: (line(),)


@behaviour("1")
def dataclass_inheritance_and_equality():
    @dataclass(order=True)
    class Base:
        a: int
        b: int = 2

    @dataclass(order=True)
    class Derived(Base):
        c: int = 3

    def f(x):
        p, q = Derived(1), Derived(1, c=4)
        return (
            x * p.c + q.c,
            p == Derived(1, 2, 3),
            p != q,
            p < q,
            isinstance(p, Base),
            repr(q).split("(")[1],
            dataclasses.astuple(q),
        )

    return f, lambda: (line(),)


@behaviour("1")
def dataclass_with_slots():
    @dataclass(slots=True)
    class Pair:
        a: np.ndarray
        b: int = 2

    def f(x, pair):
        pair.b += 1
        pair.a = pair.a * pair.b
        return Pair(x + 1), pair

    return f, lambda: (line(), Pair(line()))


@behaviour("1")
def frozen_dataclass_and_replace():
    @dataclass(frozen=True)
    class Config:
        scale: float
        bias: int = 1

    def f(x, config):
        other = dataclasses.replace(config, scale=config.scale * 2)
        return x * other.scale + other.bias, other, config == Config(1.5), hash(config) == hash(Config(1.5))

    return f, lambda: (line(), Config(1.5))


@behaviour("1")
def frozen_dataclass_that_holds_an_array():
    @dataclass(frozen=True)
    class State:
        x: np.ndarray
        step: int = 0

        def next(self):
            return dataclasses.replace(self, x=self.x * 2, step=self.step + 1)

    def f(state):
        return state.next().next(), State(state.x + 1)

    return f, lambda: (State(line()),)


@behaviour("1")
def frozen_dataclass_refuses_changes():
    @dataclass(frozen=True)
    class Config:
        scale: float

    def f(x):
        config = Config(2.0)
        try:
            config.scale = 3.0
        except dataclasses.FrozenInstanceError as error:
            return x * config.scale, str(error)
        return x

    return f, lambda: (line(),)


@behaviour("1")
def dataclass_fields_and_asdict():
    @dataclass
    class Options:
        scale: int = 2
        bias: int = 1

    def f(x, options):
        names = [fld.name for fld in dataclasses.fields(options)]
        for name in names:
            x = x * 2 + getattr(options, name)
        return x, names, dataclasses.asdict(options), dataclasses.is_dataclass(options)

    return f, lambda: (line(), Options(3))


# ---- 1: texts


@behaviour("1")
def fstrings_as_keys():
    def f(x, n, name):
        table = {f"{name}.{k}": x * k for k in range(n)}
        table[f"{name!r:>8}|{n:03d}|{n / 3:.2f}|{n=}"] = x + 1
        return table, table[f"{name}.{n - 1}"] * 2

    return f, lambda: (line(), 3, "layer")


@behaviour("1")
def fstrings_of_many_values():
    def f(x, n):
        width = 6
        return (
            x * n,
            f"{x.shape} {x.dtype} {x.ndim:>{width}} {None} {True!s} {[n, 'a']} {{}} {n:,} {-n:+d} {n:b} {0.1 + 0.2} {(1,)!a}",
        )

    return f, given(1234567, 3)


@behaviour("1")
def percent_format_as_keys():
    def f(x, params):
        total = x * 0
        for k in range(2):
            total = total + x * params["w%d" % k] + params["%s_%02d" % ("b", k)]
        return total, "%5.2f|%-4s|%x|%%" % (2.5, "a", 255), "%(a)s-%(b)r" % {"a": 1, "b": "c"}

    return f, lambda: (line(), {"w0": 2, "w1": 3, "b_00": 4, "b_01": np.ones(4)})


@behaviour("1")
def format_as_keys():
    def f(x, params):
        y = x * params["{}{}".format("w", 0)] + params["{name}{k:02d}".format(name="b", k=1)]
        return (
            y,
            "{1}-{0}".format("a", "b"),
            "{0[1]} {1.real}".format([1, 2], 3),
            format(255, "#x"),
            "{:^7}".format("mid"),
            format(2.5, ".2e"),
        )

    return f, lambda: (line(), {"w0": 2, "b01": 3})


@behaviour("1")
def format_of_an_object():
    class Unit:
        def __format__(self, spec):
            return f"<{spec or 'plain'}>"

        def __str__(self):
            return "unit"

        def __repr__(self):
            return "Unit()"

    def f(x):
        u = Unit()
        return x * len(str(u)), f"{u} {u:abc} {u!s} {u!r}", "%s %r" % (u, u), "{:q}".format(u)

    return f, lambda: (line(),)


@behaviour("1")
def str_methods():
    def f(x, name):
        parts = name.split(".")
        values = (
            name.upper(),
            name.title(),
            name.replace("a", "b"),
            "-".join(parts),
            name.startswith("lay"),
            name.endswith((".w", ".b")),
        )
        others = (
            name.find("y"),
            name.partition("."),
            name.rsplit(".", 1),
            name.strip("l"),
            name.removeprefix("layer."),
            name.count("a"),
        )
        return x * len(parts) + int(parts[1]), values, others, name[::-1], name[1:3], "er" in name, name * 2, name + "!", name < "m"

    return f, lambda: (line(), "layer.3.w")


@behaviour("1")
def more_str_methods():
    def f(x, text):
        values = (
            text.strip().lower(),
            text.split(),
            "7".zfill(3),
            "a".rjust(3, "."),
            "a".ljust(3) + "|",
            "ab".center(6, "*"),
            "12".isdigit(),
        )
        others = (
            "a\nb".splitlines(),
            "é".encode(),
            b"ab".decode(),
            "ab".translate(str.maketrans("a", "c")),
            "aXb".swapcase(),
            text.isspace(),
        )
        return (
            x * len(text.strip()),
            values,
            others,
            "{a}".format_map({"a": 1}),
            "abc".index("c"),
            ord("a"),
            "ß".casefold(),
            text.lstrip(),
        )

    return f, lambda: (line(), "  Some Words ")


@behaviour("1")
def iteration_over_a_str():
    def f(x, code):
        for c in code:
            if c == "+":
                x = x + 1
            elif c in "*x":
                x = x * 2
            elif c.isdigit():
                x = x - int(c)
        return x, sorted(code), list(code), "".join(c for c in code if c != "+")

    return f, lambda: (line(), "+*3+x")


# ---- 1: enums


@behaviour("1", calls=3)
def enum_identity():
    class Mode(enum.Enum):
        DOUBLE = "double"
        HALF = "half"
        NONE = "none"

    turn = itertools.cycle(Mode)

    def f(x, mode):
        if mode is Mode.DOUBLE:
            x = x * 2
        elif mode == Mode.HALF:
            x = x / 2
        return x + 1, mode, mode.name, mode.value, Mode("half") is Mode.HALF, Mode["NONE"] is mode

    return f, lambda: (line(), next(turn))


@behaviour("1")
def enum_iteration_and_membership():
    class Kind(enum.Enum):
        A = 1
        B = 2
        ALSO_B = 2

        @property
        def scale(self):
            return self.value * 3

    def f(x):
        table = {Kind.A: x * 2, Kind.B: x + 1}
        total = sum(table[k] * k.scale for k in Kind)
        return total, [k.name for k in Kind], Kind.ALSO_B is Kind.B, isinstance(Kind.A, Kind), len(Kind), Kind.B in table

    return f, lambda: (line(),)


@behaviour("1")
def int_enum_and_flag():
    class Size(enum.IntEnum):
        SMALL = 1
        LARGE = 4

    class Option(enum.Flag):
        SHIFT = enum.auto()
        SCALE = enum.auto()

    def f(x, size):
        option = Option.SHIFT | Option.SCALE
        if Option.SCALE in option:
            x = x * size
        if option & Option.SHIFT:
            x = x + Size.SMALL
        return x, size > Size.SMALL, Size.LARGE + 1, option, size == 4, x[: Size.LARGE].shape

    return f, lambda: (line(), Size.LARGE)


# ---- 1: what is returned


@behaviour("1")
def nested_output_structures():
    def f(x):
        y = x * 2
        return {
            "a": [y, (y + 1, {"b": {1, 2}, "c": None})],
            "d": {"e": [[], {}, ()]},
            3: (x.shape, x.dtype, "text", 2.5, True, ...),
        }

    return f, lambda: (line(),)


@behaviour("1")
def nested_output_shares_containers():
    def f(x):
        inner = [x * 2]
        table = {"inner": inner}
        inner.append(table)
        return [inner, table, (inner, [*inner]), {"again": table}]

    return f, lambda: (line(),)


@behaviour("1")
def the_same_array_returned_twice():
    def f(x):
        y = x * 2
        z = y
        return y, z, [y], {"y": y}, y + 0

    return f, lambda: (line(),)


@behaviour("1")
def the_input_array_returned_twice():
    def f(x, y):
        z = x + y
        return x, [x, y], z, y, x is y

    return f, lambda: (line(), np.ones(4))


@behaviour("1")
def one_array_is_returned_and_kept_in_arguments():
    def f(x, items, table):
        y = x * 2
        items.append(y)
        table["y"] = y
        return y, items[0] is y

    return f, lambda: (line(), [], {})


@behaviour("1")
def equal_arrays_stay_two_objects():
    def f(x):
        y, z = x * 2, x * 2
        return y, z, y is z, [v + 1 for v in (x, x)]

    return f, lambda: (line(),)


@behaviour("1")
def new_lists_are_new_in_each_call():
    kept = []

    def f(x):
        return [x * 2, []]

    def g(x, earlier, kept):
        new = f(x)
        kept.append(new)
        return new, new is earlier

    return g, lambda: (line(), kept[-1] if kept else None, kept)


@behaviour("1")
def scalars_among_the_outputs():
    def f(x):
        return {"sum": x.sum(), "n": x.shape[0], "mean": x.mean() * 2, "size": x.size, "y": x + 1, "none": None}

    return f, lambda: (line(),)


# ---- 1: copies


@behaviour("1")
def copy_of_a_list():
    def f(x):
        a = [x * 2, [1]]
        b = copy.copy(a)
        b.append(3)
        b[1].append(2)
        return a, b, a is b, a[0] is b[0]

    return f, lambda: (line(),)


@behaviour("1")
def copy_of_an_input_list():
    def f(x, items):
        other = copy.copy(items)
        items.append(x * 2)
        other.insert(0, x + 1)
        return other, items.copy() == items[:-1], list(other) is other

    return f, lambda: (line(), [1, 2])


@behaviour("1")
def copy_of_other_containers():
    def f(x, table):
        a, b, c = copy.copy(table), table.copy(), dict(table)
        table["new"] = x * 2
        a["k"] = 9
        return (
            a,
            b,
            c,
            a["list"] is table["list"],
            copy.copy({1, 2}),
            copy.copy((x,))[0] is x,
            copy.copy("text"),
            copy.copy(deque([1], 3)),
        )

    return f, lambda: (line(), {"k": 1, "list": [1]})


@behaviour("1")
def copy_of_an_object():
    class Box:
        def __init__(self, value):
            self.value, self.log = value, []

    def f(x, box):
        other = copy.copy(box)
        other.value = x * 2 + box.value
        other.log.append("shared")
        return other

    return f, lambda: (line(), Box(3))


@behaviour("1")
def copy_of_an_array():
    def f(x):
        y = copy.copy(x)
        z = x.copy()
        x += 1
        y *= 2
        return x, y, z, y is x

    return f, lambda: (line(),)


@behaviour("1")
def deepcopy_of_nested_containers():
    def f(x, tree):
        other = copy.deepcopy(tree)
        other["a"][0].append(x * 2)
        tree["a"].append("only here")
        return other, other["a"][0] is tree["a"][0], other["pair"] == tree["pair"]

    return f, lambda: (line(), {"a": [[1]], "pair": (1, 2), "b": "text"})


@behaviour("1")
def deepcopy_of_arrays():
    def f(items):
        before = copy.deepcopy(items)
        items[0] += 10
        before[1][0] = -1
        return before, items[0] * 2, before[0] is items[0]

    return f, lambda: ([line(), line() + 1],)


@behaviour("1")
def deepcopy_keeps_sharing():
    def f(x):
        y = x * 2
        a = [y, y, [x]]
        a.append(a[2])
        b = copy.deepcopy(a)
        return a, b, b[0] is b[1], b[2] is b[3], b[0] is y

    return f, lambda: (line(),)


@behaviour("1")
def deepcopy_of_an_object():
    class Model:
        def __init__(self, w):
            self.w, self.history = w, [1]

    def f(x, model):
        old = copy.deepcopy(model)
        model.w = model.w * 0.5 + x
        model.history.append(2)
        return old

    return f, lambda: (line(), Model(line() + 1))


@behaviour("1")
def deepcopy_of_a_dataclass_with_own_method():
    @dataclass
    class State:
        x: np.ndarray
        n: int

        def __deepcopy__(self, memo):
            return State(copy.deepcopy(self.x, memo), self.n + 1)

    def f(state):
        other = copy.deepcopy(state)
        other.x += 1
        return other, state.x * 2

    return f, lambda: (State(line(), 1),)


# ---- 1: ranges


@behaviour("1", calls=3)
def range_as_an_argument():
    def f(x, ks):
        for k in ks:
            x = x + k
        return x * len(ks)

    return f, given(range(3), range(1, 9, 2), range(5, 0, -1))


@behaviour("1")
def range_operations():
    def f(x, ks):
        values = (
            ks[1],
            ks[-1],
            ks[1:3],
            ks.start,
            ks.stop,
            ks.step,
            4 in ks,
            ks == range(2, 10, 2),
            list(reversed(ks)),
            ks.index(6),
            ks.count(3),
        )
        first, *rest = ks
        return x * first + sum(ks), values, rest, range(3), bool(range(0)), max(ks)

    return f, lambda: (line(), range(2, 10, 2))


@behaviour("1")
def slices_as_values():
    def f(x, where):
        middle = slice(1, 3)
        return x[middle] * 2, x[where], [1, 2, 3, 4][middle], middle.start, where.indices(4), middle == slice(1, 3)

    return f, lambda: (line(), slice(None, None, 2))


# ---- B


@behaviour("B")
def fstring_of_an_array():
    def f(x):
        y = x * 2
        text = f"y = {y}"
        return y + 1, text

    return f, lambda: (line(),)


@behaviour("B")
def fstring_of_an_array_with_a_format():
    def f(x):
        y = x * 2
        text = f"{y.sum():.3f} {y!r} {y.mean():>8}"
        print(text)
        z = y - 1
        return z * x, len(text)

    return f, lambda: (line(),)


@behaviour("B")
def other_texts_of_an_array():
    def f(x):
        y = x * 2
        texts = [str(y), repr(y), "%s and %.1f" % (y, y[1]), "{} {:.2f}".format(y, y.max())]
        return texts, y * 3

    return f, lambda: (line(),)


@behaviour("B")
def fstring_of_an_array_as_a_key():
    def f(x):
        y = x + 1
        table = {f"{y[0]}": y * 2, f"{y.shape}": 1}
        return table, y - 1

    return f, lambda: (line(),)


@behaviour("B")
def set_of_arrays():
    def f(x):
        y = x * 2
        try:
            seen = {y, x}
        except TypeError as error:
            seen = str(error)
        return y + 1, seen

    return f, lambda: (line(),)


@behaviour("B")
def set_add_of_an_array():
    def f(x):
        seen = {1}
        y = x * 2
        try:
            seen.add(y)
        except TypeError as error:
            print(error)
        return y + 1, seen

    return f, lambda: (line(),)


@behaviour("B")
def set_of_array_scalars():
    def f(x):
        y = x * 2
        seen = {y[0], y[1], y[0] + 0, y.min()}
        return y + 1, len(seen), sorted(seen)

    return f, lambda: (line(),)


@behaviour("E")
def set_of_arrays_that_escapes():
    def f(x):
        y = x * 2
        return {y, x}

    return f, lambda: (line(),)


@behaviour("E")
def array_as_a_key_that_escapes():
    def f(x, table):
        y = x * 2
        table["before"] = y
        table[y] = 1
        return y

    return f, lambda: (line(), {})


@behaviour("B")
def key_that_is_deleted_and_comes_back_during_iteration():
    def f(x, table):
        y = x * 2
        try:
            for key in table:
                del table[key]
                table[key] = 0
        except RuntimeError as e:
            return y + 1, str(e)
        return y

    return f, lambda: (line(), {"a": 1})


@behaviour("1")
def reversed_follows_the_list():
    def f(x, items):
        backwards = reversed(items)
        found = [next(backwards)]
        items[0] = 7
        items.append(9)
        found += backwards
        return x * 2, found, list(backwards)

    return f, lambda: (line(), [1, 2, 3])


@behaviour("B")
def reversed_is_half_consumed_at_a_break():
    def f(x, items):
        backwards, done = reversed(items), reversed((1,))
        found = [next(backwards), *done]
        first = float(x[0])
        items[0] = 7
        items.append(9)
        return x * first, [*found, *backwards, *done]

    return f, lambda: (line(), [1, 2, 3])


@behaviour("1")
def lists_that_change_while_they_are_compared():
    def f(x):
        def clear():
            left.clear()
            right.clear()
            return False

        left, right = [Asked(clear)], [Asked(clear)]
        return x * 2, left == right

    class Asked:
        def __init__(self, answer):
            self.answer = answer

        def __eq__(self, other):
            return self.answer()

        __hash__ = None

    return f, lambda: (line(),)


@behaviour("B")
def set_operators_in_place_want_sets():
    def f(x, names, more):
        y = x * 2
        try:
            names |= more
        except TypeError as e:
            return y + 1, str(e), names.__ior__(more) is NotImplemented
        return y

    return f, lambda: (line(), {"a"}, {"b": 1})


@behaviour("1")
def containers_are_initialised_again():
    def f(x, items, names):
        items.__init__([4, 5])
        names.__init__("cd")
        frozen = frozenset("ab")
        return x * len(items), frozen.copy() is frozen

    return f, lambda: (line(), [1, 2, 3], {"a"})


@behaviour("1")
def in_place_operators_in_errors():
    def f(x, n):
        try:
            n **= 2
        except TypeError as e:
            return x * 2, str(e)
        return x

    return f, lambda: (line(), None)


@behaviour("1")
def dict_of_two_arguments():
    def f(x):
        try:
            dict({}, {})
        except TypeError as e:
            return x * 2, str(e)
        return x

    return f, lambda: (line(),)


@behaviour("1", calls=4)
def values_of_members_of_an_enum_one_after_the_other():
    class Bits(enum.IntFlag):
        A = 1
        B = 2
        C = 4

        @enum.property
        def label(self):
            return f"bit {self.value}"

    turn = itertools.cycle(Bits)

    def f(x, bit):
        return x * bit.value, bit.name, bit.label

    return f, lambda: (line(), next(turn))


@behaviour("B")
def members_of_an_enum_of_tuples():
    class Size(tuple, enum.Enum):
        SMALL = (1, 2)
        LARGE = (3, 4)

    turn = itertools.cycle(Size)

    def f(x, size):
        y = x * 2
        return y + 1, size.value, size.name

    return f, lambda: (line(), next(turn))


@behaviour("B", calls=3)
def sequences_times_numpy_scalars():
    turn = itertools.cycle([np.int64(2), np.float64(3), np.uint8(1)])

    def f(x, n):
        y = x * 2
        results = []
        for sequence in ([1, 2], (3, 4), "ab", [x, 5]):
            for left, right in ((sequence, n), (n, sequence)):
                try:
                    results.append(left * right)
                except TypeError as error:
                    results.append(str(error))
        items = [6]
        kept = items
        try:
            items *= n
        except TypeError:
            items += [7]
        return y + 1, results, items, kept, np.multiply([1, 2], n)

    return f, lambda: (line(), next(turn))


test_containers = collected(__name__)
