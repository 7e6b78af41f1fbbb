"""Arrays: rows, masks, views, aliases and shapes; where their values reach Python; and no arrays at all."""

from __future__ import annotations

import sys

import numpy as np

from .harness import behaviour, collected


def four() -> np.ndarray:
    return np.arange(4.0) - 1


def matrix() -> np.ndarray:
    return np.arange(12.0).reshape(3, 4) / 2 - 2


# iteration


@behaviour("1")
def rows_are_iterated():
    def f(x):
        total = 0
        for row in x:
            total = total * 2 + row
        return total

    return f, lambda: (matrix(),)


@behaviour("1")
def rows_of_rows_and_elements_are_iterated():
    def f(x):
        total = 0.0
        for row in x:
            for v in row:
                total = total + v * v
        return total, [row.sum() for row in x], max(len(row) for row in x)

    return f, lambda: (matrix(),)


@behaviour("1")
def rows_with_zip_enumerate_and_reversed():
    def f(x, w):
        total = 0
        for k, (a, b) in enumerate(zip(x, w)):
            total = total + a * b * k
        for row in reversed(x):
            total = total * 2 + row
        return total

    return f, lambda: (matrix(), matrix() + 1)


@behaviour("1")
def rows_are_unpacked():
    def f(x):
        a, b, c = x
        first, *rest = x[:, :2]
        return a + b * c, first * 2, len(rest), [*x.T][1] + 1

    return f, lambda: (matrix(),)


@behaviour("1")
def rows_are_written_through():
    def f(x):
        for k, row in enumerate(x):
            row += k
            row[0] = -1.0
        return x * 2

    return f, lambda: (matrix(),)


@behaviour("1")
def an_iterator_over_rows():
    def f(x):
        rows = iter(x)
        first = next(rows)
        for row in rows:
            first = first + row
        return first, next(rows, None)

    return f, lambda: (matrix(),)


# masks and writes


@behaviour("1")
def masked_assignment_of_a_scalar():
    def f(x):
        y = x * 2
        y[y < 0] = 0.0
        return y + 1

    return f, lambda: (four(),)


@behaviour("1")
def masked_assignment_into_an_argument():
    def f(x):
        x[x > 1] = -1.0
        x[x == 0] += 5
        return x * 2

    return f, lambda: (four(),)


@behaviour("1")
def masked_assignment_of_rows():
    def f(x, keep):
        y = x + 1
        y[keep] = 0.0
        y[~keep, 1] = 7.0
        y[:, x[0] < 0] *= 2
        return y

    return f, lambda: (matrix(), np.array([True, False, True]))


@behaviour("1")
def item_assignment_of_many_kinds():
    def f(x, w):
        x[0] = 5.0
        x[1, 2] = w[0]
        x[-1, ::2] = w[:2]
        x[:, 3] += 1
        x[..., 1] = x[..., 0] * 2
        return x + 1

    return f, lambda: (matrix(), four())


@behaviour("1")
def fancy_assignment():
    def f(x, at):
        y = x * 2
        y[at] = x[:2] - 1
        y[[0, 3]] += 10
        return y

    return f, lambda: (four(), np.array([2, 1]))


@behaviour("1")
def assignment_that_casts():
    def f(x, n):
        n[1:3] = x[1:3] * 1.75
        x[:] = n
        return n + 1, x * 0.5

    return f, lambda: (four(), np.arange(4))


@behaviour("1")
def assignment_of_a_part_onto_itself():
    def f(x):
        x[1:] = x[:-1]
        y = x * 2
        y[:-1] += y[1:]
        return y

    return f, lambda: (four(),)


# views and aliases


@behaviour("1")
def mutation_through_a_view_of_an_input():
    def f(x):
        tail = x[1:]
        tail += 10
        return x * 2, tail + 1

    return f, lambda: (four(),)


@behaviour("1")
def mutation_through_a_chain_of_views():
    def f(x):
        view = x.T[1:, ::2].reshape(3, 2)
        flat = x.reshape(-1)
        flat[::5] = 0.0
        view *= 2
        x[0] -= 1
        return view + 0.5, flat * 2

    return f, lambda: (matrix(),)


@behaviour("1")
def mutation_through_a_view_of_a_local():
    def f(x):
        y = x * 2
        left, right = y[:, :2], y[:, 2:]
        left += right
        right[...] = 1.0
        return y + 1, left

    return f, lambda: (matrix(),)


@behaviour("1")
def mutation_behind_a_read():
    def f(x):
        before = x + 1
        kept = x.copy()
        view = x[:2]
        x += 100
        return before, kept * 2, view - 1

    return f, lambda: (four(),)


@behaviour("1")
def in_place_operators_on_an_argument():
    def f(x, w):
        alias = x
        x += w
        x *= 2
        x -= 1
        x **= 2
        return alias is x, alias + 1

    return f, lambda: (four(), four())


@behaviour("1")
def a_view_from_a_callee_shares_its_memory():
    def views(x):
        y = x * 2
        return x[1:], y, y[:2], x.T, x

    def f(x):
        tail, y, head, transposed, same = views(x)
        tail[...] = 50.0
        head[...] = 60.0
        return y, transposed, same is x

    return f, lambda: (matrix(),)


@behaviour("1", calls=3)
def a_view_that_the_caller_writes_to():
    x = matrix()
    given = []

    def f(x, seen):
        y = x * 2
        given.extend([x[1:], y, y[:2]])
        return y + 1

    def arguments():
        seen = []
        if given:
            tail, y, head = given
            tail += 1
            head[...] = 60.0
            seen.append(y.copy())
            given.clear()
        return x, seen

    return f, arguments


@behaviour("1")
def methods_that_write():
    def f(x):
        y = x * 2
        y.fill(3.0)
        x.sort()
        y[1:] = x[1:]
        np.copyto(x, y)
        return y + x

    return f, lambda: (-four(),)


@behaviour("1")
def out_of_a_function():
    def f(x, w, out):
        result = np.add(x, w, out=out)
        np.multiply(out, 2, out=out)
        return result is out, out + 1

    return f, lambda: (four(), four(), np.zeros(4))


@behaviour("1")
def out_that_is_an_operand():
    def f(x):
        np.exp(x, out=x)
        np.subtract(x, 1, x)
        return x * 2

    return f, lambda: (four(),)


@behaviour("1")
def out_that_is_a_view_or_fresh():
    def f(x, out):
        fresh = np.empty_like(x)
        np.sqrt(x * x, out=fresh)
        np.add(fresh, 1, out=out[1])
        np.sum(out, axis=0, out=fresh)
        return fresh, out[1] * 2

    return f, lambda: (four(), np.zeros((3, 4)))


@behaviour("1")
def out_of_a_reduction_and_of_matmul():
    def f(x, total, product):
        x.sum(axis=1, out=total)
        np.matmul(x, x.T, out=product)
        return product + total

    return f, lambda: (matrix(), np.zeros(3), np.zeros((3, 3)))


@behaviour("1")
def out_with_where():
    def f(x, out):
        np.add(x, 10, out=out, where=x > 0)
        return out * 2

    return f, lambda: (four(), np.full(4, -1.0))


@behaviour("1")
def one_array_is_two_arguments():
    def f(a, b):
        a += 1
        c = b * 2
        b[0] = 9.0
        return c, a - b, a is b

    def arguments():
        x = four()
        return x, x

    return f, arguments


@behaviour("1", calls=4)
def one_array_as_two_arguments_now_and_then():
    calls = []

    def f(a, b):
        a *= 2
        return a + b

    def arguments():
        calls.append(1)
        x = four()
        return (x, x) if len(calls) % 2 else (x, four())

    return f, arguments


@behaviour("1")
def overlapping_views_of_one_base():
    def f(base, a, b):
        a += 1
        b *= 2
        return base + 1, a - b

    def arguments():
        base = np.arange(5.0)
        return base, base[:-1], base[1:]

    return f, arguments


@behaviour("1")
def overlapping_views_without_their_base():
    def f(a, b):
        a[:] = b * 2
        return b + 1

    def arguments():
        base = np.arange(5.0)
        return base[:-1], base[1:]

    return f, arguments


@behaviour("1")
def views_of_one_base_that_do_not_overlap():
    def f(a, b):
        a += b
        b[0] = 7.0
        return a * 2

    def arguments():
        base = np.arange(8.0)
        return base[::2], base[1::2]

    return f, arguments


@behaviour("1")
def one_array_in_an_argument_and_on_an_object():
    class Layer:
        pass

    def f(x, layer, items):
        x += 1
        items[0][1:] *= 2
        return layer.w + x, layer.w is x

    def arguments():
        x, layer = four(), Layer()
        layer.w = x
        return x, layer, [x]

    return f, arguments


@behaviour("1")
def views_that_are_transposed_reversed_and_broadcast():
    def f(x, w):
        return x.T @ x, x[::-1, ::-1] * 2, w + x, np.broadcast_to(w, (2, 4)) * 1

    return f, lambda: (np.asfortranarray(matrix())[::2], four()[::-1])


# shapes and indices


@behaviour("1", calls=3)
def shape_arithmetic_in_reshape():
    sizes = iter((4, 6, 8))

    def f(x):
        n, m = x.shape
        y = x.reshape(n * m // 2, 2)
        z = y.reshape((m, -1)).reshape(n, *x.shape[1:])
        return z + np.zeros((n, m)) + n * m, x.reshape(-1, m // 2).shape

    return f, lambda: (np.arange(3.0 * (size := next(sizes))).reshape(3, size),)


@behaviour("1")
def shapes_in_python():
    def f(x):
        b, *rest = x.shape
        k = 1
        for d in x.shape[1:]:
            k *= d
        flat = x.reshape(b, k)
        return flat / k, rest, x.shape == (3, 4), x.size, x.nbytes, x.itemsize, x.shape + (1,), x.shape.index(4)

    return f, lambda: (matrix(),)


@behaviour("1")
def lengths():
    def f(x):
        total = x * len(x)
        for k in range(len(x)):
            total = total + x[k] * k
        return total, len(x[0]), len(x) == x.shape[0]

    return f, lambda: (matrix(),)


@behaviour("1")
def length_of_an_array_without_dimensions():
    def f(x):
        total = x.sum() * 2
        try:
            len(np.asarray(total))
        except TypeError as error:
            return total + 1, str(error)
        return total

    return f, lambda: (four(),)


@behaviour("1")
def ellipsis_and_none_indices():
    def f(x):
        column = x[..., None]
        return column * 2, x[None, ...] + x[:, None], x[..., 0] * 1, x[0, ..., np.newaxis] + 1, x[..., ::-1, 1:3][..., 0]

    return f, lambda: (matrix(),)


@behaviour("1")
def slices_of_many_kinds():
    def f(x, n):
        part = slice(n, None, 2)
        return x[:, part] * 2, x[-2:] + x[:2], x[n:-n], x[5:], x[::-1][0], x[(1, 2)] + 1, x[()] * 3

    return f, lambda: (matrix(), 1)


@behaviour("1")
def integer_array_indices():
    def f(x, at):
        return x[at] * 2, x[at, at], x[:, [0, -1]] + 1, np.take(x, at, axis=1) * 1

    return f, lambda: (matrix(), np.array([2, 0, 2]))


@behaviour("1")
def an_element_as_a_scalar():
    def f(x):
        a = x[1, 2]
        b = x[0][3]
        return x * a + b, a, type(a).__name__, a.dtype == x.dtype

    return f, lambda: (matrix(),)


@behaviour("1")
def dtypes_in_python():
    def f(x):
        if x.dtype == np.float64 and np.issubdtype(x.dtype, np.floating):
            x = x.astype(np.float32)
        return x * 2, x.dtype, x.dtype.kind, x.dtype.name, np.result_type(x, 1.0), x.astype(int).sum()

    return f, lambda: (matrix(),)


# modules, scalars


@behaviour("1")
def module_forward():
    class Module:
        def __init__(self):
            self.training = True

        def __call__(self, *args):
            return self.forward(*args)

        def parameters(self):
            for value in vars(self).values():
                if isinstance(value, Module):
                    yield from value.parameters()
                elif isinstance(value, np.ndarray):
                    yield value

    class Linear(Module):
        def __init__(self, n, m):
            super().__init__()
            self.w = np.arange(float(n * m)).reshape(n, m) / 10
            self.b = np.ones(m)

        def forward(self, x):
            return x @ self.w + self.b

    class Net(Module):
        def __init__(self):
            super().__init__()
            self.first = Linear(4, 5)
            self.second = Linear(5, 2)
            self.layers = [self.first, np.tanh, self.second]

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            if self.training:
                x = x * 2
            return x

    def f(x, net):
        y = net(x)
        return y, sum((p * p).sum() for p in net.parameters())

    return f, lambda: (matrix(), Net())


@behaviour("1")
def a_module_with_running_state():
    class Norm:
        def __init__(self):
            self.mean = np.zeros(4)
            self.seen = 0

        def __call__(self, x):
            batch = x.mean(axis=0)
            self.mean = 0.9 * self.mean + 0.1 * batch
            self.seen += 1
            return x - batch

    norm = Norm()

    def f(x, given):
        return norm(x) + given(x) + norm.mean

    return f, lambda: (matrix(), Norm())


@behaviour("1")
def a_method_is_compiled():
    class Layer:
        def __init__(self):
            self.w = four()

        def forward(self, x):
            self.last = x * self.w
            return self.last + 1

    return Layer().forward, lambda: (four(),)


@behaviour("1")
def scalar_arguments_of_numpy_types():
    def f(x, a, b, c, d):
        y = x * a + b
        if d:
            y = y - c
        return y, a + b, a * 2.0, c // 2, y.dtype

    return f, lambda: (four(), np.float32(1.5), np.float64(2.5), np.int64(3), np.bool_(True))


@behaviour("1")
def scalar_arguments_promote():
    def f(x, n, a, b, c):
        return x * a, x * b, n + c, n * 2, x + 2.5, n / c, a**2

    return f, lambda: (four().astype(np.float32), np.arange(4, dtype=np.int32), np.float32(0.1), np.float64(0.1), np.int64(7))


@behaviour("1")
def scalar_arguments_as_sizes_and_indices():
    def f(x, n):
        return x[n] + np.zeros(n).sum(), x[:n] * 2, x.reshape(n, -1) + 1, [10, 20, 30][n], list(range(n))

    return f, lambda: (four(), np.int64(2))


@behaviour("1")
def arrays_without_dimensions():
    def f(x, a):
        return x * a, a + 1, a[()] * 2, a.reshape(1) + x

    return f, lambda: (four(), np.array(2.5))


@behaviour("1")
def arrays_of_size_zero_and_one():
    def f(x, empty, one):
        return x + one, empty * 2, empty.sum(), np.concatenate([empty, x]) + 1, one * 2

    return f, lambda: (four(), np.zeros(0), np.array([3.0]))


@behaviour("1")
def comparisons_in_chains_of_arrays():
    def f(x):
        return (x > 0) & (x < 2) | ~(x != -1), (x > 0).any(), np.logical_not(x), x == four(), x.clip(0, 1) == x

    return f, lambda: (four(),)


# where values reach Python


@behaviour("B")
def item_of_an_array():
    def f(x):
        y = x * 2 + 1
        k = y.sum().item()
        z = y * k
        return z + x.item(1), k

    return f, lambda: (four(),)


@behaviour("B")
def float_of_an_array():
    def f(x):
        y = x * 2 + 1
        k = float(y.mean())
        return y * k - 1, k

    return f, lambda: (four(),)


@behaviour("B")
def int_and_bool_of_an_array():
    def f(x):
        y = x * 2 + 1
        k = int(y.max())
        y = y * k
        flag = bool(y[0] > 0)
        return y + flag, k, flag, complex(y[1])

    return f, lambda: (four(),)


@behaviour("B", calls=3)
def a_value_that_differs_in_every_call():
    starts = iter((0.0, 5.0, 5.0))

    def f(x):
        y = x * 2 + 1
        k = float(y.sum())
        return y * 3 - k if k < 20 else y * 5 + k

    return f, lambda: (four() + next(starts),)


@behaviour("B")
def float_of_several_in_a_row():
    def f(x):
        y = x * 2 + 1
        a, b = float(y.min()), float(y.max())
        y = (y - a) / (b - a)
        return y * 2, {"min": a, "max": b, "sum": float(y.sum())}

    return f, lambda: (four(),)


@behaviour("B")
def int_of_an_array_as_a_loop_bound():
    def f(x):
        y = x * 2 + 1
        for k in range(int(y.max())):
            y = y + x * k
        return y - 1

    return f, lambda: (four(),)


@behaviour("B")
def an_array_as_an_index_of_python():
    def f(x, items):
        y = x * 2 + 1
        k = items[y.argmax()]
        return y * k + 1, items[: y.astype(int)[1]]

    return f, lambda: (four(), [1.0, 2.0, 3.0, 4.0])


@behaviour("B")
def an_item_in_a_loop():
    def f(x):
        y = x + 1
        log = []
        for k in range(3):
            y = y * 2 + k
            log.append(y.sum().item())
        return y - 1, log

    return f, lambda: (four(),)


@behaviour("B")
def tolist():
    def f(x):
        y = x * 2 + 1
        values = y.tolist()
        return y * values[1] + sum(values), values

    return f, lambda: (four(),)


@behaviour("B")
def tolist_of_a_matrix_and_list_of_rows():
    def f(x):
        y = x * 2 + 1
        nested = y.tolist()
        y = y * len(nested)
        return y + max(map(max, nested)), list(map(float, y[0]))

    return f, lambda: (matrix(),)


@behaviour("B")
def str_and_repr_of_an_array():
    def f(x):
        y = x * 2 + 1
        text = str(y)
        y = y * len(text)
        return y - 1, repr(y), f"{y[0]:.3f}"

    return f, lambda: (four(),)


@behaviour("B")
def boolean_mask_load():
    def f(x):
        y = x * 2 + 1
        kept = y[y > 0]
        return kept * 3 + kept.sum(), y - 1, kept.shape

    return f, lambda: (four(),)


@behaviour("B", calls=3)
def boolean_mask_load_of_different_sizes():
    limits = iter((0.0, 2.0, 100.0))

    def f(x, limit):
        y = x * 2 + 1
        kept = y[y > limit]
        return kept * 2, kept.size

    return f, lambda: (four(), np.float64(next(limits)))


@behaviour("B")
def nonzero():
    def f(x):
        y = x * 2 + 1
        (places,) = np.nonzero(y > 0)
        z = y[places] * 3
        return z + 1, places, np.flatnonzero(z > 5) * 2, np.argwhere(y < 0)

    return f, lambda: (four(),)


@behaviour("B")
def unique_and_where_of_one_argument():
    def f(x):
        y = np.abs(x) * 2
        values = np.unique(y)
        return values * 3, np.where(y > 0)[0] + 1

    return f, lambda: (four(),)


@behaviour("B")
def array_of_python_values_that_depend_on_data():
    def f(x):
        y = x * 2 + 1
        made = np.zeros(int(y.max()))
        return made + 1, np.arange(float(y.sum()))[:2] * 2

    return f, lambda: (four(),)


# breaks in callees, and what is pending at a break


@behaviour("B")
def break_in_an_inlined_callee():
    def normed(x):
        y = x * 2 + 1
        k = float(y.sum())
        return y / k

    def f(x):
        a = x + 1
        b = normed(a)
        return b * a - 1

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_callee_of_a_callee():
    def inner(x, log):
        y = x * 2
        log.append(float(y.sum()))
        return y + 1

    def middle(x, log):
        y = inner(x + 1, log)
        log.append("middle")
        return y * 3

    def f(x, log):
        y = middle(x - 1, log) + x
        log.append("f")
        return y * 2

    return f, lambda: (four(), [])


@behaviour("B")
def break_in_a_callee_that_is_called_twice():
    def normed(x):
        return x / float(x.max())

    def f(x):
        a = normed(x + 1)
        b = normed(x * x + 2)
        return a + b

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_method_that_writes_attributes():
    class Meter:
        def __init__(self):
            self.values = []

        def update(self, y):
            self.last = y * 2
            self.values.append(float(self.last.sum()))
            self.count = len(self.values)
            return self.last + 1

    def f(x, meter):
        y = meter.update(x + 1)
        y = meter.update(y)
        return y * meter.count

    return f, lambda: (four(), Meter())


@behaviour("B")
def break_in_a_callee_under_a_loop():
    def step(x, k):
        y = x * 2 + k
        return y, float(y.sum())

    def f(x):
        total = 0.0
        for k in range(4):
            x, s = step(x, k)
            total += s
            if total > 50:
                break
        return x - 1, total

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_closure_that_rebinds():
    def f(x):
        total = 0.0
        calls = 0

        def add(y):
            nonlocal total, calls
            calls += 1
            total = total + float(y.sum())
            return y * 2

        y = add(x + 1)
        y = add(y) + total
        return y - 1, total, calls

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_recursion():
    def halved(x, depth):
        y = x * 0.5
        if depth == 0 or float(y.max()) < 0.1:
            return y
        return halved(y, depth - 1) + 1

    def f(x):
        return halved(x + 1, 3) * 2

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_comprehension():
    def f(x):
        y = x + 1
        values = [float((y * k).sum()) for k in range(3)]
        named = {k: float(y[k]) for k in range(2)}
        return y * values[-1] + named[1], values, named

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_comprehension_with_a_cell():
    def f(x):
        y = x + 1
        first = [float((y * k).sum()) + sum(k for _ in range(2)) for k in range(3)]
        second = [sum(k + v for v in first) for k in range(3)]
        return y + 1, first, second

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_generator():
    def f(x):
        def sums(y):
            for k in range(3):
                y = y * 2 + k
                yield float(y.sum())

        total = 0.0
        for s in sums(x + 1):
            total = total + s
        return x * total - 1

    return f, lambda: (four(),)


@behaviour("B")
def break_in_a_lambda_given_to_map_and_sorted():
    def f(x):
        rows = [x * 2, x * -3, x + 1]
        rows = sorted(rows, key=lambda r: float(r.sum()))
        return rows[0] * 2 + 1, [float(v) for v in map(lambda r: r.max(), rows)]  # noqa: C417

    return f, lambda: (four(),)


@behaviour("B")
def pending_operand():
    def f(x):
        return x * 2 + float((x + 1).sum()) * (x - 1)

    return f, lambda: (four(),)


@behaviour("B")
def pending_arguments_of_a_call():
    def scaled(a, b, *rest, k=1, **named):
        return a * b + sum(rest) * k, sorted(named)

    def f(x):
        return scaled(x * 2, x + 1, float(x.sum()), 3, k=float(x.max()), other=x)

    return f, lambda: (four(),)


@behaviour("B")
def pending_arguments_that_are_splatted():
    def scaled(a, *rest, k=1, **named):
        return a * k + sum(rest), sorted(named)

    def f(x, given):
        return scaled(x * 2, *given, *[float(x.sum()), 1], **{"k": float(x.max())}, **{"m": 1})  # noqa: PIE804

    return f, lambda: (four(), (1.0, 2.0))


@behaviour("B")
def pending_method_and_its_receiver():
    class Layer:
        k = 3.0

        def apply(self, x, bias):
            return x * self.k + bias

    def f(x, layer, items):
        items.append(float(x.sum()))
        return layer.apply(x * 2, float(x.max())) + 1

    return f, lambda: (four(), Layer(), [])


@behaviour("B")
def pending_parts_of_displays():
    def f(x):
        return [x * 2, float(x.sum()), {"a": x + 1, "b": float(x.max())}, (x, x.sum().item(), x - 1), {1, int(x.max())}]

    return f, lambda: (four(),)


@behaviour("B")
def pending_parts_of_an_f_string():
    def f(x):
        y = x * 2 + 1
        text = f"{y.shape} {float(y.sum()):.2f} {'k'!r} {y.max()}"
        return y * len(text), text

    return f, lambda: (four(),)


@behaviour("B")
def pending_comparison_and_boolean_chains():
    def f(x, n):
        y = x * 2 + 1
        inside = 0 < float(y.sum()) <= n < float(y.max()) * 100
        kept = (n and float(y.min())) or n + 1
        return y * kept, inside, n if float(y.max()) > 1 else None

    return f, lambda: (four(), 20)


@behaviour("B")
def pending_iterators():
    def f(x, table):
        y = x
        for name, k in table.items():
            for a, b in zip(range(k), "abc"):
                y = y * 2 + a
                table[name] = float(y.max())
                y = y + len(b)
        return y - 1

    return f, lambda: (four(), {"a": 2, "b": 1})


@behaviour("B")
def pending_target_of_an_assignment():
    class Box:
        pass

    def f(x, items, box):
        y = x * 2 + 1
        items[int(y.argmax()) - 3] = float(y.sum())
        items[1] += float(y.max())
        box.value = box.total = float(y.min())
        y[int(y.argmin())] += float(y.max())
        return y * 3

    return f, lambda: (four(), [1.0, 2.0], Box())


@behaviour("B")
def pending_values_with_names():
    def f(x):
        if (k := float((y := x * 2 + 1).sum())) > 3 and (m := float(y.max())) > 1:
            return y * k + m
        return y

    return f, lambda: (four(),)


@behaviour("B")
def deleted_and_unbound_names_over_a_break():
    def f(x, n):
        y = x * 2 + 1
        if n > 5:
            late = y
        gone = y + 1
        del gone
        k = float(y.sum())
        try:
            return late * k
        except UnboundLocalError:
            pass
        try:
            return gone * k
        except NameError:
            return y * k - 1

    return f, lambda: (four(), 3)


@behaviour("B")
def cells_over_a_break():
    def f(x):
        k = 2.0

        def scaled(v):
            return v * k

        y = scaled(x) + 1
        k = float(y.sum())
        z = scaled(y)
        k = 1.0
        return z - 1, scaled, [scaled(v) for v in (1.0, k)]

    return f, lambda: (four(),)


@behaviour("B")
def aliases_over_a_break():
    def f(x, items):
        y = x * 2 + 1
        same, view, held = y, y[1:], [y, items]
        print(y)
        same += 1
        view *= 2
        items.append(held)
        return y, same is y, held[0] is y, held[1] is items, x + y

    return f, lambda: (four(), [])


@behaviour("B")
def writes_into_an_argument_around_a_break():
    def f(x):
        x += 1
        k = float(x.sum())
        x *= k
        x[0] = 5.0
        print(x)
        x[1:] -= 1
        return x * 2

    return f, lambda: (four(),)


@behaviour("B")
def two_breaks_in_one_line():
    def f(x):
        y = x * 2 + 1
        return y * float(y.sum()) + float(y.max()) - (y / float(y[1])).sum().item()

    return f, lambda: (four(),)


# no arrays at all


@behaviour("E")
def no_arrays_at_all():
    def f(a, b=2):
        total = 0
        for k in range(a):
            total += k * b
        return total, [total, {"b": b}], f"{total:>5}"

    return f, lambda: (5,)


@behaviour("E")
def no_arrays_but_effects():
    def f(items, table):
        items.append(len(items))
        table["n"] = sum(items)
        print("items", items)
        return items

    return f, lambda: ([1, 2], {})


@behaviour("E")
def no_arguments_at_all():
    def f():
        return {"a": (1, 2.5), "b": None}

    return f, lambda: ()


@behaviour("E")
def no_arrays_and_an_exception():
    def f(a):
        if a > 3:
            raise ValueError(f"{a} is too large")
        return a

    return f, lambda: (5,)


@behaviour("E")
def an_array_that_is_only_passed_on():
    def f(x, items):
        items.append(x)
        return x, items

    return f, lambda: (four(), [])


@behaviour("E")
def an_array_of_objects_or_strings():
    def f(objects, strings):
        return objects + objects, strings == "b", np.char.upper(strings)

    return f, lambda: (np.array([1, 2.5, 10**30], dtype=object), np.array(["a", "b"]))


if sys.version_info >= (3, 12):

    @behaviour("1")
    def generic_functions_and_type_aliases():
        namespace: dict = {}
        exec("def scaled[T](x: T, k: float) -> T:\n    return x * k\n", namespace)
        scaled = namespace["scaled"]

        def f(x):
            return scaled(x, 2.0) + 1

        return f, lambda: (four(),)


@behaviour("B")
def flat_with_indices_that_only_arrays_take():
    def f(x):
        y = x * 2
        kept = [x.flat[2], x.flat[...], x.flat[[0, -1]]]
        for key in (None, (0, 0)):
            try:
                kept.append(x.flat[key])
            except IndexError as error:
                kept.append(str(error))
        return y + 1, kept

    return f, lambda: (np.arange(4.0).reshape(2, 2),)


test_arrays = collected(__name__)
