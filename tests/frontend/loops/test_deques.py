"""Deques in native loops: as plain Python has them, the same objects before and after."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg


def outcome(function: Callable, *args: Any) -> Any:
    try:
        return "gives", function(*args)
    except Exception as error:
        return "raises", type(error), str(error)


def check(function: Callable, *makers: Callable[[], tuple], native: bool = True) -> Any:
    """The same results, errors and arguments, in turn."""
    compiled = dg.compile(function)
    for make in makers * 3:
        mine, its = make(), make()
        got, want = outcome(compiled, *its), outcome(function, *mine)
        assert repr(got) == repr(want)
        assert repr(its) == repr(mine)
        for a, b in zip(its, mine):
            assert type(a) is type(b) and (type(a) is not deque or list(map(type, a)) == list(map(type, b)))
    loops = [loop for program in compiled.programs for loop in program.loops]
    assert not native or any("machine code" in loop for loop in loops), loops
    return compiled


def breadth_first(n):
    queue = deque([(0, 0)])
    seen, order = 0, []
    while queue:
        node, depth = queue.popleft()
        order.append(node * 100 + depth)
        seen += 1
        for child in (2 * node + 1, 2 * node + 2):
            if child < n:
                queue.append((child, depth + 1))
    return seen, order, len(queue)


def test_a_queue_that_the_function_makes() -> None:
    check(breadth_first, lambda: (0,), lambda: (1,), lambda: (1000,), lambda: (37,))


def test_one_for_each_turn() -> None:
    def components(edges, n):
        label = [-1] * n
        for start in range(n):
            if label[start] >= 0:
                continue
            queue = deque()
            queue.append(start)
            label[start] = start
            while len(queue) > 0:
                at = queue.pop()
                for k in range(len(edges)):
                    if edges[k, 0] == at and label[edges[k, 1]] < 0:
                        label[edges[k, 1]] = start
                        queue.appendleft(int(edges[k, 1]))
        return label

    edges = np.random.default_rng(0).integers(0, 40, (60, 2))
    check(components, lambda: (edges, 40), lambda: (edges[:0], 3))


def both_ends(q, commands):
    taken = 0
    for k, c in enumerate(commands):
        if c == 0:
            q.append(k)
        elif c == 1:
            q.appendleft(-k)
        elif c == 2:
            taken += q.pop()
        elif c == 3:
            taken += q.popleft()
        elif c == 4:
            q[-1] = taken
        elif c == 5:
            taken += q[0] + q[len(q) // 2]
        elif c == 6:
            q.clear()
        else:
            print("python's", len(q), q[0] if q else None)
    return taken, len(q)


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_operations(seed: int, capsys: pytest.CaptureFixture) -> None:
    r = random.Random(seed)
    weights = [r.choice((1, 5, 20)) for _ in range(4)] + [1, 1, 0.1, 0.5]
    commands = np.array(r.choices(range(8), weights, k=3000))
    start = [r.randint(-5, 500) for _ in range(r.choice((0, 1, 300)))]
    compiled = dg.compile(both_ends)
    for n in (0, 1, 50, 3000, 3000):
        mine, its = deque(start), deque(start)
        want = outcome(both_ends, mine, commands[:n])
        said = capsys.readouterr().out
        got = outcome(compiled, its, commands[:n])
        assert repr(got) == repr(want) and its == mine and capsys.readouterr().out == said


def test_empty_ones_raise() -> None:
    def drained(q, n):
        total = 0
        for _ in range(n):
            total += q.popleft()
        return total

    def drained_from_behind(q, n):
        total = 0
        for _ in range(n):
            total += q.pop()
        return total

    for function in (drained, drained_from_behind):
        check(function, lambda: (deque([1, 2, 3] * 10), 30), lambda: (deque([1, 2]), 5), lambda: (deque([5]), 0))


def test_indices() -> None:
    def read(q, at):
        total = 0
        for k in at:
            total += q[k]
        return total

    check(read, lambda: (deque(range(20)), [0, -1, 19, -20]), lambda: (deque(range(20)), [3, 20]), lambda: (deque(range(2)), [-3]))


def test_items_that_stay_are_the_same_objects() -> None:
    def turn(q, n):
        for k in range(n):
            q.append((k, k + 0.5))
            q.popleft()
            q.appendleft((k, -0.0))
            q.popleft()
        return len(q)

    compiled = dg.compile(turn)
    for n in (0, 3, 20, 60):
        items = [(k + 1000, float(k)) for k in range(40)]
        q, plain = deque(items), deque(items)
        assert compiled(q, n) == turn(plain, n) and list(map(repr, q)) == list(map(repr, plain))
        assert [a is b for a, b in zip(q, items[n:])] == [a is b for a, b in zip(plain, items[n:])]


def test_two_names_of_one() -> None:
    def shuffle(p, q, n):
        for k in range(n):
            p.append(k)
            q.appendleft(p.pop() + q[0])
        return len(p) - len(q)

    q = deque([1, 2])
    plain = deque([1, 2])
    compiled = dg.compile(shuffle)
    for _ in range(3):
        assert compiled(q, q, 30) == shuffle(plain, plain, 30) and q == plain
    assert compiled(q, deque([4]), 30) == shuffle(plain, deque([4]), 30) and q == plain


class Held(deque):
    def popleft(self):
        return 7


@pytest.mark.parametrize("make", [
    lambda: deque([1, 2, 3], maxlen=3), lambda: deque(maxlen=0), lambda: Held([1, 2, 3]), lambda: [1, 2, 3],
    lambda: deque([1, 2.5, 3]), lambda: deque([1, "a", None]), lambda: deque([2**70, 1]), lambda: deque([True, 2]),
    lambda: deque([float("nan"), -0.0]),
    lambda: deque([np.float32(2), np.float32(3)]), lambda: deque([[1], [2]]), lambda: deque([(1, 2)]),
])  # fmt: skip
def test_other_kinds_and_items(make: Callable) -> None:
    def move(q, n):
        for k in range(n):
            q.append(q.popleft())
            if k > 2:
                q.append(q.pop())
        return q

    check(move, lambda: (make(), 0), lambda: (make(), 10), native=False)


def test_of_other_types_in_turn() -> None:
    def move(q, n):
        for _ in range(n):
            q.appendleft(q.pop())
        return q

    makers = [lambda: (deque([1, 2, 3]), 5), lambda: (deque([1.5, 2]), 5), lambda: ([1, 2], 0), lambda: (deque(maxlen=4), 0),
              lambda: (deque([(1, 2), (3, 4)]), 3), lambda: (deque(), 2)]  # fmt: skip
    check(move, *makers)


def test_made_of_others() -> None:
    def made(n):
        found = []
        for k in range(n):
            a, b, c, d = deque([k, 2]), deque((k,)), deque(), deque(found)
            c.append(a.pop() + b.pop())
            c.extend(a)
            d.append(k)
            found.append(len(d) + c[0] + c[-1])
        return found, a, b, c, d

    check(made, lambda: (1,), lambda: (30,))


def test_what_stays_python() -> None:
    def bounded(n):
        q = deque([0], maxlen=3)
        for k in range(n):
            q.append(k)
        return q, q.maxlen

    def through(q, n):
        total = 0
        for k in range(n):
            for x in q:
                total += x
            q.append(k)
        return total

    def added(q, n):
        for k in range(n):
            q.append(k)
            if k > 20:
                return [1] + q
        return q

    def others(q, n):
        for k in range(n):
            q.rotate(k)
            q.extend([k, k])
            q.insert(1, k)
            q.reverse()
            q.remove(k)
        return list(q), sum(q), max(q), 3 in q, q.count(2), q.index(1), q.copy() == q

    check(bounded, lambda: (0,), lambda: (30,), native=False)
    for function in (through, added, others):
        check(function, lambda: (deque([1, 2, 3]), 2), lambda: (deque(range(9)), 30), native=False)


def test_asks_of_a_native_one() -> None:
    def asked(n):
        q = deque([1])
        hits = 0
        for k in range(n):
            q.append(k % 7)
            hits += (k in q) + len(list(q)) + bool(q)
            if len(q) > 10:
                q.popleft()
        return hits, list(q)

    check(asked, lambda: (0,), lambda: (100,))


class Server:
    def __init__(self, items):
        self.waiting, self.served = deque(items), 0

    def run(self, n):
        for k in range(n):
            self.waiting.append(k)
            if k % 3 == 2:
                self.served += self.waiting.popleft()
        return self.served


def test_attributes() -> None:
    compiled = dg.compile(Server.run)
    for n in (0, 5, 100):
        mine, its = Server([1, 2]), Server([1, 2])
        held = its.waiting
        assert compiled(its, n) == mine.run(n) and its.waiting == mine.waiting and its.waiting is held


def test_a_long_queue_takes_no_more_memory_than_its_items() -> None:
    def pushed_through(n):
        q = deque([0, 1, 2])
        total = 0
        for k in range(n):
            q.append(k)
            total += q.popleft()
        return total, len(q)

    check(pushed_through, lambda: (500_000,))


# -- that change while a loop goes through them ---------------------------------------------------------------------------


def appended(q, n):
    total = 0
    for x in q:
        total += x
        if x > n:
            q.append(x)
    return total


def balanced(q, n):
    total = 0
    for x in q:
        total += x
        if x > n:
            q.append(x)
            q.pop()
    return total


def rotated(q, n):
    total = 0
    for x in q:
        total += x
        q.rotate(0 if x < 4 else 1)
    return total


def cleared(q, n):
    total = 0
    for x in q:
        total += x
        if x > n:
            q.clear()
    return total


def deleted(q, n):
    total = 0
    for x in q:
        total += x
        if x > n:
            del q[0]
    return total


def reversed_(q, n):
    total = 0
    for x in q:
        total = total * 2 + x
        if x > n:
            q.reverse()
        q[0] += 1
    return total


def nothing(q, n):
    total = 0
    for x in q:
        total = total * 2 + x
        q.extend([])
        if x == n:
            q.append(1)
            break
    return total


def broken(q, n):
    total = 0
    for x in q:
        total = total * 2 + x
        if x > n:
            q.append(1)
        print("a turn", len(q))
    return total


def put_before(q, n):
    total = 0
    for x in q:
        total += x
        if x > n:
            q.appendleft(x)
    return total


def moved(q, n):
    total = 0
    for x in q:
        total += x
        if x > n:
            q.append(q.popleft())
    return total


def in_a_comprehension(q, n):
    return [q.append(x) if x > n else x for x in q]


def in_a_sum(q, n):
    return sum(q.append(x) or x for x in q)


def sums_of_one_that_grows(q, n):
    total = 0
    for k in range(3 * n):
        q.append(k)
        total += sum(q) + sum([2 * x for x in q]) + sum(x for x in q)
        if k == 4:
            total += sum(q.append(x) or x for x in q)
    return total


def by_an_iterator(q, n):
    total, items = 0, iter(q)
    for k in range(n + 2):
        total += next(items)
        if k == n:
            q.append(3)
    return total


CHANGING = [put_before, moved, in_a_comprehension, in_a_sum, sums_of_one_that_grows, by_an_iterator]
CHANGING += [appended, balanced, rotated, cleared, deleted, reversed_, nothing, broken]


@pytest.mark.parametrize("function", CHANGING, ids=lambda f: f.__name__)
def test_a_loop_over_one_that_changes_ends_where_pythons_does(function: Callable) -> None:
    makers = [lambda: (deque([1, 2, 3]), 2), lambda: (deque(range(9)), 2), lambda: (deque([1, 2]), 2), lambda: (deque(), 2),
              lambda: (deque([5]), 2), lambda: (deque([1, 2, 3, 4, 5], maxlen=5), 2)]  # fmt: skip
    check(function, *makers, native=False)
