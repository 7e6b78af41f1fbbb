"""Searching and sorting: recursion, stacks, games, graphs, grids."""

from __future__ import annotations

from collections import deque

import numpy as np

from .table import loop


@loop(lambda r, n: (n, 0, 0, 0), sizes=(1, 2, 4, 5), large=11)
def queens(n, columns, left, right):
    full = (1 << n) - 1
    if columns == full:
        return 1
    count = 0
    free = full & ~(columns | left | right)
    while free:
        bit = free & -free
        free ^= bit
        count += queens(n, columns | bit, (left | bit) << 1, (right | bit) >> 1)
    return count


@loop(lambda r, n: (n,), sizes=(1, 2, 4), large=9)
def queens_by_a_stack(n):
    solutions = 0
    stack = [[]]
    while stack:
        queens = stack.pop()
        row = len(queens)
        if row == n:
            solutions += 1
            continue
        for column in range(n):
            if all(column != c and abs(column - c) != row - k for k, c in enumerate(queens)):
                stack.append(queens + [column])
    return solutions


@loop(lambda r, n: (n,), sizes=(1, 2, 4), large=9)
def queens_by_backtracking(n):
    at = np.full(n, -1)
    row = 0
    count = 0
    while row >= 0:
        at[row] += 1
        if at[row] == n:
            at[row] = -1
            row -= 1
            continue
        safe = True
        for k in range(row):
            if at[k] == at[row] or abs(at[k] - at[row]) == row - k:
                safe = False
                break
        if safe:
            if row == n - 1:
                count += 1
            else:
                row += 1
    return count


@loop(lambda r, n: (n,), sizes=(0, 1, 2, 8), large=28)
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@loop(lambda r, n: (2, n), sizes=(0, 1, 2), large=300)
def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


@loop(lambda r, n: (n, n + 1, 2, True), sizes=(0, 1, 2), large=5)
def nim(a, b, c, my_turn):
    if a + b + c == 0:
        return -1 if my_turn else 1
    best = -1 if my_turn else 1
    for pile in range(3):
        for left in range((a, b, c)[pile]):
            if pile == 0:
                value = nim(left, b, c, not my_turn)
            elif pile == 1:
                value = nim(a, left, c, not my_turn)
            else:
                value = nim(a, b, left, not my_turn)
            if my_turn and value > best:
                best = value
            elif not my_turn and value < best:
                best = value
            if best == (1 if my_turn else -1):
                return best
    return best


WINNING = (0o700, 0o070, 0o007, 0o444, 0o222, 0o111, 0o421, 0o124)


@loop(lambda r, n: (sum(1 << k for k in range(0, 9 - n, 2)), sum(1 << k for k in range(1, 9 - n, 2)), -2, 2), sizes=(2, 4), large=9)
def tic_tac_toe(mine, theirs, alpha, beta):
    for line in WINNING:
        if theirs & line == line:
            return -1
    if mine | theirs == 0o777:
        return 0
    for square in range(9):
        bit = 1 << square
        if (mine | theirs) & bit == 0:
            value = -tic_tac_toe(theirs, mine | bit, -beta, -alpha)
            if value >= beta:
                return value
            alpha = max(alpha, value)
    return alpha


@loop(lambda r, n: (r.integers(0, 100, n), 0, n - 1), sizes=(0, 1, 2, 7), large=10_000)
def quicksort(a, low, high):
    if low >= high:
        return
    pivot = a[(low + high) // 2]
    i, j = low, high
    while i <= j:
        while a[i] < pivot:
            i += 1
        while a[j] > pivot:
            j -= 1
        if i <= j:
            a[i], a[j] = a[j], a[i]
            i += 1
            j -= 1
    quicksort(a, low, j)
    quicksort(a, i, high)


@loop(lambda r, n: (r.random(n),), sizes=(0, 1, 2, 7), large=10_000)
def quicksort_by_a_stack(x):
    stack = [(0, len(x) - 1)]
    while stack:
        low, high = stack.pop()
        if low >= high:
            continue
        pivot = x[high]
        i = low - 1
        for j in range(low, high):
            if x[j] <= pivot:
                i += 1
                x[i], x[j] = x[j], x[i]
        x[i + 1], x[high] = x[high], x[i + 1]
        stack.append((low, i))
        stack.append((i + 2, high))
    return x


@loop(lambda r, n: ([int(k) for k in r.integers(0, 100, n)],), sizes=(0, 1, 2, 7), large=60_000)
def quicksort_of_lists(items):
    if len(items) <= 1:
        return items
    pivot = items[len(items) // 2]
    less = [x for x in items if x < pivot]
    same = [x for x in items if x == pivot]
    more = [x for x in items if x > pivot]
    return quicksort_of_lists(less) + same + quicksort_of_lists(more)


@loop(lambda r, n: (r.random(n),), sizes=(0, 1, 2, 7), large=700)
def insertion_sort(x):
    for i in range(1, len(x)):
        key = x[i]
        j = i - 1
        while j >= 0 and x[j] > key:
            x[j + 1] = x[j]
            j -= 1
        x[j + 1] = key


@loop(lambda r, n: ([int(k) for k in r.integers(0, 100, n)],), sizes=(0, 1, 2, 6), large=1200)
def bubble_sort(x):
    swapped = True
    n = len(x)
    while swapped:
        swapped = False
        for i in range(1, n):
            if x[i - 1] > x[i]:
                x[i - 1], x[i] = x[i], x[i - 1]
                swapped = True
        n -= 1
    return x


@loop(lambda r, n: (r.random(n),), sizes=(0, 1, 2, 7), large=5000)
def heap_sort(a):
    n = len(a)
    for start in range((n - 2) // 2, -1, -1):
        root = start
        while root * 2 + 1 < n:
            child = root * 2 + 1
            if child + 1 < n and a[child] < a[child + 1]:
                child += 1
            if a[root] >= a[child]:
                break
            a[root], a[child] = a[child], a[root]
            root = child
    for end in range(n - 1, 0, -1):
        a[end], a[0] = a[0], a[end]
        root = 0
        while root * 2 + 1 < end:
            child = root * 2 + 1
            if child + 1 < end and a[child] < a[child + 1]:
                child += 1
            if a[root] >= a[child]:
                break
            a[root], a[child] = a[child], a[root]
            root = child


@loop(lambda r, n: (np.sort(r.random(n)), r.random(n)), sizes=(0, 1, 2, 7), large=20_000)
def binary_search(x, wanted):
    found = np.empty(len(wanted), dtype=np.int64)
    for k, value in enumerate(wanted):
        low, high = 0, len(x)
        while low < high:
            middle = (low + high) // 2
            if x[middle] < value:
                low = middle + 1
            else:
                high = middle
        found[k] = low
    return found


@loop(lambda r, n: (n, r.integers(0, max(n, 1), (n, 2))), sizes=(0, 1, 2, 8), large=20_000)
def union_find(n, edges):
    parent = np.arange(n)
    components = n
    for a, b in edges:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a != b:
            parent[a] = b
            components -= 1
    return components, parent


@loop(lambda r, n: ((r.random((n, n)) < 0.3).astype(int), n // 2, n // 2, 7), sizes=(1, 2, 5), large=200)
def flood_fill(image, row, column, colour):
    old = image[row, column]
    if old == colour:
        return 0
    stack = [(row, column)]
    filled = 0
    while stack:
        i, j = stack.pop()
        if i < 0 or j < 0 or i >= image.shape[0] or j >= image.shape[1] or image[i, j] != old:
            continue
        image[i, j] = colour
        filled += 1
        stack.append((i - 1, j))
        stack.append((i + 1, j))
        stack.append((i, j - 1))
        stack.append((i, j + 1))
    return filled


@loop(lambda r, n: (r.random((n, n)) < 0.3,), sizes=(1, 2, 5), large=150)
def maze_distance(walls):
    n, m = walls.shape
    distance = np.full((n, m), -1)
    if walls[0, 0]:
        return distance
    distance[0, 0] = 0
    queue = deque([(0, 0)])
    while queue:
        i, j = queue.popleft()
        for di, dj in ((0, 1), (1, 0), (0, -1), (-1, 0)):
            k, l = i + di, j + dj
            if 0 <= k < n and 0 <= l < m and not walls[k, l] and distance[k, l] == -1:
                distance[k, l] = distance[i, j] + 1
                queue.append((k, l))
    return distance


@loop(lambda r, n: ([int(k) for k in r.integers(1, 50, n)], 0, 25 * n // 2), sizes=(0, 1, 2, 5), large=20)
def subset_sums(numbers, i, target):
    if target == 0:
        return 1
    if i == len(numbers) or target < 0:
        return 0
    return subset_sums(numbers, i + 1, target - numbers[i]) + subset_sums(numbers, i + 1, target)


@loop(lambda r, n: (list(range(n)),), sizes=(0, 1, 2, 4), large=8)
def permutations_by_heap(a):
    n = len(a)
    c = [0] * n
    checksum = 0
    i = 0
    while i < n:
        if c[i] < i:
            if i % 2 == 0:
                a[0], a[i] = a[i], a[0]
            else:
                a[c[i]], a[i] = a[i], a[c[i]]
            checksum += a[0] * a[-1]
            c[i] += 1
            i = 0
        else:
            c[i] = 0
            i += 1
    return checksum


@loop(lambda r, n: (r.random(n), 0.5), sizes=(0, 1, 2, 9), large=300_000)
def first_crossing(x, level):
    last = None
    crossings = []
    for i, value in enumerate(x):
        above = value > level
        if last is not None and above != last:
            crossings.append(i)
        last = above
    return crossings


@loop(lambda r, n: ("".join("ab c\n"[k] for k in r.integers(0, 5, n)),), sizes=(0, 1, 2, 9), large=2_000_000)
def word_count(text):
    words = lines = 0
    inside = False
    for c in text:
        if c == "\n":
            lines += 1
        if c == " " or c == "\n":
            inside = False
        elif not inside:
            inside = True
            words += 1
    return lines, words, len(text)


def brackets(r: np.random.Generator, n: int) -> str:
    return "".join("()[]"[k] for k in r.integers(0, 4, n)) if n % 2 else "([])" * (n // 4)


@loop(lambda r, n: (brackets(r, n),), sizes=(0, 1, 8, 9), large=800_000)
def balanced_brackets(text):
    stack = []
    for c in text:
        if c in "([":
            stack.append(c)
        else:
            if not stack:
                return False
            opening = stack.pop()
            if (opening == "(") != (c == ")"):
                return False
    return not stack
