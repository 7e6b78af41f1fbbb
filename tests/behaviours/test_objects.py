"""Objects: attributes, special methods, descriptors and subclasses, seen by the caller as if nothing had been compiled."""

from __future__ import annotations

import abc
import collections
import functools
import itertools
import numbers
import operator
import threading
import types
import typing
import weakref

import numpy as np

from .harness import behaviour, collected


def four() -> np.ndarray:
    return np.arange(4.0) - 1


# attributes and methods


@behaviour("1")
def attributes_and_methods():
    class Affine:
        bias = 0.5

        def __init__(self):
            self.scale = 2.0
            self.weights = np.array([1.0, -1.0, 2.0, 0.5])

        def shifted(self, x):
            return x + self.bias

        def forward(self, x):
            return self.shifted(x * self.scale) * self.weights

    def f(x, layer):
        return layer.forward(x) - layer.scale

    return f, lambda: (four(), Affine())


@behaviour("1")
def attributes_that_are_set_again():
    """The order of attributes is that of the first stores, and the values those of the last."""

    class Holder:
        __slots__ = ("__dict__", "total")

    def f(x, holder, other):
        holder.total = x * 3
        holder.second = x + 1
        other.first = x - 1
        holder.first = x + 2
        holder.second = x * 2
        holder.total = None
        other.first = holder.second
        del holder.first
        holder.first = x + 4
        return list(holder.__dict__), x

    return f, lambda: (four(), Holder(), Holder())


@behaviour("1")
def bound_and_unbound_methods_as_values():
    class Scale:
        def __init__(self, k):
            self.k = k

        def apply(self, x):
            return x * self.k

    def f(x, a, b):
        bound = a.apply
        unbound = Scale.apply
        return bound(x) + unbound(b, x), bound.__self__ is a, bound.__func__ is Scale.apply

    return f, lambda: (four(), Scale(2.0), Scale(3.0))


@behaviour("1")
def attributes_through_several_objects():
    class Node:
        def __init__(self, **named):
            self.__dict__.update(named)

    def f(x, root):
        return x * root.left.right.value + root.left.value

    return f, lambda: (four(), Node(left=Node(value=1.0, right=Node(value=four()))))


@behaviour("1")
def attribute_writes_are_replayed():
    class State:
        pass

    def f(x, state):
        state.last = x * 2
        state.steps = state.steps + 1
        state.mean = state.last.mean()
        state.last = state.last + state.steps
        return state.last - 1

    def state():
        made = State()
        made.steps = 3
        return made

    return f, lambda: (four(), state())


@behaviour("1")
def attribute_writes_to_an_object_that_lives_on():
    class Counter:
        def __init__(self):
            self.calls = 0
            self.total = np.zeros(4)

    counter = Counter()

    def f(x):
        counter.calls += 1
        counter.total = counter.total + x
        return counter.total * 2 + 1

    return f, lambda: (four(),)


@behaviour("1", calls=3)
def attribute_writes_are_seen_by_the_next_caller():
    class Counter:
        calls = 0

    counter = Counter()

    def f(x, seen):
        counter.calls += 1
        return x * 2 + counter.calls

    return f, lambda: (four(), [counter.calls, "calls" in vars(counter)])


@behaviour("1")
def an_input_array_is_stored_on_an_object():
    class Holder:
        pass

    def f(x, holder):
        holder.kept = x
        holder.more = [x, x * 2]
        return holder.kept + 1, holder

    return f, lambda: (four(), Holder())


@behaviour("1")
def two_names_for_one_object():
    class Holder:
        value = 1.0

    def f(x, a, b):
        a.value = x * 2
        return b.value + 1, a is b

    def arguments():
        holder = Holder()
        return four(), holder, holder

    return f, arguments


# properties, static and class methods


@behaviour("1")
def property_is_read():
    class Layer:
        def __init__(self):
            self.w = four()

        @property
        def doubled(self):
            return self.w * 2

    def f(x, layer):
        return x @ layer.doubled + layer.doubled

    return f, lambda: (four(), Layer())


@behaviour("1")
def property_with_a_setter():
    class Layer:
        def __init__(self):
            self.written = 0
            self._w = four()

        @property
        def w(self):
            return self._w

        @w.setter
        def w(self, value):
            self.written += 1
            self._w = value - 1

    def f(x, layer):
        layer.w = x * 3
        layer.w = layer.w + x
        return layer.w * 2

    return f, lambda: (four(), Layer())


@behaviour("1")
def property_with_a_deleter():
    class Layer:
        def __init__(self):
            self._w = four()
            self.events = []

        @property
        def w(self):
            return self._w

        @w.deleter
        def w(self):
            self.events.append("gone")
            del self._w

    def f(x, layer):
        y = layer.w * x + 1
        del layer.w
        return y, hasattr(layer, "w")

    return f, lambda: (four(), Layer())


@behaviour("1")
def property_without_a_setter_refuses():
    class Layer:
        @property
        def w(self):
            return 2.0

    def f(x, layer):
        try:
            layer.w = 3.0
        except AttributeError:
            x = x + 10
        return x * layer.w

    return f, lambda: (four(), Layer())


@behaviour("1")
def static_methods():
    class Tools:
        @staticmethod
        def shift(x, by=1):
            return x + by

        def both(self, x):
            return self.shift(x) * Tools.shift(x, by=2)

    def f(x, tools):
        return tools.both(x) + Tools.shift(x) + tools.shift(x, 3)

    return f, lambda: (four(), Tools())


@behaviour("1")
def class_methods():
    class Base:
        k = 2.0

        def __init__(self, w):
            self.w = w

        @classmethod
        def scaled(cls, x):
            return cls(x * cls.k)

    class Child(Base):
        k = 3.0

    def f(x, child):
        a, b, c = Base.scaled(x), Child.scaled(x), child.scaled(x + 1)
        return a.w + b.w + c.w, type(c).__name__, type(a) is Base, c

    return f, lambda: (four(), Child(None))


# new objects


@behaviour("1")
def a_new_object_is_returned():
    class Point:
        def __init__(self, x, y):
            self.x = x
            self.y = y
            self.label = "p"

    def f(x):
        p = Point(x * 2, x + 1)
        p.y = p.y - p.x
        p.extra = (p.x, 3)
        return p

    return f, lambda: (four(),)


@behaviour("1")
def new_objects_refer_to_each_other():
    class Node:
        def __init__(self, value, parent=None):
            self.value = value
            self.parent = parent
            self.children = []
            if parent is not None:
                parent.children.append(self)

    def f(x):
        root = Node(x * 2)
        left = Node(root.value + 1, root)
        Node(left.value + root.value, root)
        return root

    return f, lambda: (four(),)


@behaviour("1")
def an_object_that_does_not_escape():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def total(self):
            return self.a + self.b

    def f(x):
        pair = Pair(x, x * 2)
        return pair.total() * 3

    return f, lambda: (four(),)


@behaviour("1")
def a_new_object_is_stored_in_an_argument():
    class Box:
        def __init__(self, value):
            self.value = value

    def f(x, boxes):
        box = Box(x * 2)
        boxes.append(box)
        boxes[0].next = box
        return box.value + 1, box

    return f, lambda: (four(), [Box(1)])


@behaviour("1")
def super_init_and_methods():
    class Base:
        def __init__(self, w):
            self.w = w

        def forward(self, x):
            return x * self.w

    class Middle(Base):
        def forward(self, x):
            return super().forward(x) + 1

    class Child(Middle):
        def __init__(self, w, b):
            super().__init__(w)
            self.b = b

        def forward(self, x):
            return super().forward(x) * 2 + super(Middle, self).forward(x) + self.b

    def f(x):
        child = Child(x + 1, 0.5)
        return child.forward(x), child

    return f, lambda: (four(),)


@behaviour("1")
def super_in_a_diamond():
    class A:
        def go(self, x):
            return x + 1

    class B(A):
        def go(self, x):
            return super().go(x) * 2

    class C(A):
        def go(self, x):
            return super().go(x) * 3

    class D(B, C):
        @classmethod
        def made(cls):
            return cls()

        def go(self, x):
            return super().go(x) - 1

    def f(x):
        return D.made().go(x)

    return f, lambda: (four(),)


@behaviour("B")
def super_finds_what_the_class_overrides_in_c():
    class Table(dict):
        @classmethod
        def fromkeys(cls, keys, value=None):
            return super().fromkeys(keys, 7)

        def again(self):
            return super().fromkeys("ab", 3)

    class Number(float):
        @classmethod
        def fromhex(cls, text):
            return super().fromhex(text) + 1

    class Base:
        __slots__ = ("v",)

    class Child(Base):
        __slots__ = ("v",)

        def both(self, x):
            return x * super().v + self.v

    child = Child()
    Base.v.__set__(child, 3.0)
    Child.v.__set__(child, 50.0)

    def f(x):
        y = child.both(x * 2) + Table.fromkeys("ab")["a"]
        return y * Number.fromhex("0x1p3"), Table().again()

    return f, lambda: (four(),)


@behaviour("B")
def subclasses_are_told():
    class Base:
        def __init_subclass__(cls, scale=1, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.scale = scale

    class Middle(Base):
        pass

    def f(x):
        y = x * 2

        class Child(Middle, scale=3):
            pass

        return y * Child.scale

    return f, lambda: (four(),)


@behaviour("1")
def new_is_overridden():
    class Named:
        def __new__(cls, x, name="n"):
            made = super().__new__(cls)
            made.origin = name
            return made

        def __init__(self, x, name="n"):
            self.x = x * 2

    def f(x):
        a = Named(x)
        b = Named(a.x + 1, name="second")
        return a.x + b.x, a, b

    return f, lambda: (four(),)


# attribute access that user code decides


@behaviour("1")
def getattr_hook():
    class Lazy:
        def __init__(self):
            self.real = 2.0

        def __getattr__(self, name):
            if name.startswith("times_"):
                return float(name[6:])
            raise AttributeError(name)

    def f(x, lazy):
        return x * lazy.times_3 + lazy.real * lazy.times_10

    return f, lambda: (four(), Lazy())


@behaviour("1")
def getattr_with_a_default():
    class Options:
        def __init__(self):
            self.scale = 3.0

    def f(x, options):
        return x * getattr(options, "scale", 1.0) + getattr(options, "bias", 0.25) + getattr(options, "sca" + "le")

    return f, lambda: (four(), Options())


@behaviour("1")
def hasattr_of_both_kinds():
    class Options:
        scale = 3.0

        def __getattr__(self, name):
            if name == "known":
                return 1
            raise AttributeError(name)

    def f(x, options):
        if hasattr(options, "scale"):
            x = x * options.scale
        if hasattr(options, "known"):
            x = x + 1
        if hasattr(options, "unknown"):
            x = x * 100
        return x, hasattr(x, "shape"), hasattr(x, "nothing")

    return f, lambda: (four(), Options())


@behaviour("1")
def getattribute_hook():
    class Proxy:
        def __init__(self, target):
            object.__setattr__(self, "target", target)

        def __getattribute__(self, name):
            if name.startswith("__") or name == "target":
                return object.__getattribute__(self, name)
            return object.__getattribute__(self, "target")[name] * 2

    def f(x, proxy):
        return x * proxy.scale + proxy.bias

    return f, lambda: (four(), Proxy({"scale": 2.0, "bias": 0.5}))


@behaviour("1")
def setattr_hook():
    class Recorded:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)
            object.__setattr__(self, "writes", getattr(self, "writes", ()) + (name,))

    def f(x, recorded):
        recorded.a = x * 2
        recorded.b = recorded.a + 1
        return recorded.b * 2, recorded.writes

    return f, lambda: (four(), Recorded())


@behaviour("1")
def dunder_dict_and_vars():
    class Options:
        shared = 5

        def __init__(self):
            self.a = 2.0
            self.b = 3.0

    def f(x, options):
        for name, value in vars(options).items():
            x = x * value + len(name)
        options.__dict__["c"] = x
        return x + options.c, list(options.__dict__), "shared" in vars(options)

    return f, lambda: (four(), Options())


# special methods


@behaviour("1")
def length_and_items():
    class Stack:
        def __init__(self):
            self.arrays = [four(), four() * 2, four() + 1]

        def __len__(self):
            return len(self.arrays)

        def __getitem__(self, k):
            return self.arrays[k]

    def f(x, stack):
        for k in range(len(stack)):
            x = x + stack[k] * k
        return x, stack[-1] * 2, [a + 1 for a in stack[1:]]

    return f, lambda: (four(), Stack())


@behaviour("1")
def items_set_and_deleted():
    class Table:
        def __init__(self):
            self.rows = {}
            self.log = []

        def __setitem__(self, key, value):
            self.log.append(("set", key))
            self.rows[key] = value

        def __delitem__(self, key):
            self.log.append(("del", key))
            del self.rows[key]

        def __getitem__(self, key):
            return self.rows[key]

    def f(x, table):
        table["a"] = x * 2
        table["b"] = table["a"] + 1
        table[1, 2] = 3
        del table["a"]
        table["b"] += 1
        return table["b"] * 2

    return f, lambda: (four(), Table())


@behaviour("1")
def iteration_method():
    class Layers:
        def __init__(self):
            self.scales = [1.0, 2.0, 3.0]

        def __iter__(self):
            return iter(self.scales)

    def f(x, layers):
        for s in layers:
            x = x * s + 1
        first, *rest = layers
        return x + first, rest, list(layers), sum(layers)

    return f, lambda: (four(), Layers())


@behaviour("1")
def iteration_method_that_is_a_generator():
    class Layers:
        def __iter__(self):
            yield 1.0
            yield from (2.0, 3.0)

    def f(x, layers):
        for s in layers:
            x = x * s + 1
        return x, max(layers)

    return f, lambda: (four(), Layers())


@behaviour("1")
def iteration_through_getitem_alone():
    class Old:
        def __getitem__(self, k):
            if k >= 3:
                raise IndexError(k)
            return k * 2

    def f(x, old):
        for v in old:
            x = x + v
        return x, list(old), 4 in old, 5 in old

    return f, lambda: (four(), Old())


@behaviour("1")
def contains_method():
    class Evens:
        def __contains__(self, n):
            return n % 2 == 0

    def f(x, evens):
        if 2 in evens:
            x = x * 2
        if 3 not in evens:
            x = x + 1
        return x, 5 in evens

    return f, lambda: (four(), Evens())


@behaviour("1")
def call_method():
    class Layer:
        def __init__(self, k):
            self.k = k
            self.calls = 0

        def __call__(self, x, *, bias=0):
            self.calls += 1
            return x * self.k + bias

    def f(x, layers):
        for layer in layers:
            x = layer(x, bias=1)
        return x, callable(layers[0]), callable(layers)

    return f, lambda: (four(), [Layer(2), Layer(3), Layer(4)])


@behaviour("1")
def bool_method():
    class Switch:
        def __init__(self, on):
            self.on = on
            self.asked = 0

        def __bool__(self):
            self.asked += 1
            return self.on

    def f(x, on, off):
        x = x * 2 if on else x * 3
        if not off:
            x = x + 1
        chosen = off or on
        return x, chosen is on, bool(off), on and 5

    return f, lambda: (four(), Switch(True), Switch(False))


@behaviour("1")
def length_decides_the_truth():
    class Bag:
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

    def f(x, full, empty):
        if full:
            x = x * 2
        if empty:
            x = x * 100
        return x + len(full), bool(empty)

    return f, lambda: (four(), Bag(2), Bag(0))


@behaviour("1")
def equality_method():
    class Version:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return isinstance(other, Version) and self.n == other.n

        def __hash__(self):
            return hash(self.n)

    def f(x, a, b, c):
        if a == b:
            x = x * 2
        if a != c:
            x = x + 1
        table = {a: 10.0, c: 20.0}
        return x + table[b], b in [c, a], c == 3, len({a, b, c})

    return f, lambda: (four(), Version(1), Version(1), Version(2))


@behaviour("1")
def ordering_methods():
    @functools.total_ordering
    class Version:
        def __init__(self, n):
            self.n = n

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    def f(x, a, b):
        if a < b:
            x = x * 2
        if a >= b:
            x = x * 100
        return x + max(a, b).n, sorted([b, a])[0] is a

    return f, lambda: (four(), Version(1), Version(2))


@behaviour("1")
def index_int_float_and_round_methods():
    class Number:
        def __index__(self):
            return 2

        def __int__(self):
            return 3

        def __float__(self):
            return 0.5

        def __round__(self, digits=None):
            return 7

        def __abs__(self):
            return 8

    def f(x, n):
        return x * int(n) + float(n) + round(n) + abs(n), [10, 20, 30][n], list(range(n))

    return f, lambda: (four(), Number())


@behaviour("1")
def str_repr_and_format_methods():
    class Label:
        def __str__(self):
            return "str"

        def __repr__(self):
            return "repr"

        def __format__(self, spec):
            return f"<{spec}>"

    def f(x, label):
        return {str(label): x * 2, repr(label): x + 1, f"{label:wide}{label!r}{label!s}": x, "{}".format(label): 1}  # noqa: UP032

    return f, lambda: (four(), Label())


# user iterators


@behaviour("1")
def a_user_iterator():
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    def f(x, given):
        for k in given:
            x = x + k
        for k in Countdown(3):
            x = x * (k + 1)
        return x, next(given, "empty")

    return f, lambda: (four(), Countdown(4))


@behaviour("1")
def a_user_iterator_is_left_half_way():
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n == 0:
                raise StopIteration
            self.n -= 1
            return self.n

    def f(x, given):
        x = x * next(given)
        for k in given:
            x = x + k
            if k == 2:
                break
        return x, next(given)

    return f, lambda: (four(), Countdown(6))


# slots and descriptors


@behaviour("1")
def slots_are_read_and_written():
    class Point:
        __slots__ = ("x", "y", "z")

        def __init__(self, x, y):
            self.x = x
            self.y = y

    def f(a, point):
        point.x = point.x + a
        point.z = point.x * point.y
        fresh = Point(a * 2, 1)
        return point.z + 1, fresh

    return f, lambda: (four(), Point(four(), 2.0))


@behaviour("1")
def an_empty_slot_raises():
    class Point:
        __slots__ = ("x", "y")

    def f(a, point):
        try:
            a = a + point.y
        except AttributeError:
            a = a * 2
        point.y = a
        del point.x
        return point.y + 1, hasattr(point, "x")

    def arguments():
        point = Point()
        point.x = 1
        return four(), point

    return f, arguments


@behaviour("1")
def slots_of_a_base_class():
    class Base:
        __slots__ = ("w",)

    class Child(Base):
        def __init__(self, w):
            self.w = w
            self.b = 1.0

    def f(x, child):
        child.w = child.w * x
        child.c = child.w + child.b
        return child.c * 2

    return f, lambda: (four(), Child(four()))


@behaviour("1")
def data_descriptors():
    class Positive:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, obj, owner=None):
            return self if obj is None else getattr(obj, self.name) * 2

        def __set__(self, obj, value):
            if value <= 0:
                raise ValueError(f"{self.name} of {value}")
            setattr(obj, self.name, value)

    class Layer:
        scale = Positive()

        def __init__(self, scale):
            self.scale = scale

    def f(x, layer):
        layer.scale = layer.scale + 1
        try:
            layer.scale = -1
        except ValueError as error:
            x = x + len(str(error))
        return x * layer.scale, Layer(3).scale, Layer.scale is vars(Layer)["scale"]

    return f, lambda: (four(), Layer(2))


@behaviour("1")
def a_data_descriptor_goes_before_the_instance():
    class Fixed:
        def __get__(self, obj, owner=None):
            return 5.0

        def __set__(self, obj, value):
            obj.__dict__["k"] = value

    class Layer:
        k = Fixed()

    def f(x, layer):
        layer.k = 7.0
        return x * layer.k + vars(layer)["k"]

    return f, lambda: (four(), Layer())


@behaviour("1")
def an_instance_goes_before_a_plain_descriptor():
    class Default:
        def __get__(self, obj, owner=None):
            return 5.0

    class Layer:
        k = Default()

    def f(x, layer):
        before = x * layer.k
        layer.k = 7.0
        return before + layer.k, Layer.k

    return f, lambda: (four(), Layer())


# classes


@behaviour("1", calls=3)
def class_attribute_writes():
    class Layer:
        built = 0
        last = None

        def __init__(self, w):
            self.w = w
            Layer.built += 1

    def f(x, seen):
        layer = Layer(x * 2)
        Layer.last = layer.w + 1
        return layer.w + Layer.built, Layer.last

    return f, lambda: (four(), [Layer.built, Layer.last])


@behaviour("1")
def class_attribute_through_an_instance():
    class Layer:
        k = 2.0

    def f(x, layer):
        before = x * layer.k
        type(layer).k = 3.0
        after = x * layer.k
        layer.k = 4.0
        return before, after, x * Layer.k + layer.k

    def arguments():
        Layer.k = 2.0
        return four(), Layer()

    return f, arguments


@behaviour("1")
def isinstance_of_many_kinds():
    class Base:
        pass

    class Child(Base):
        pass

    class Duck(abc.ABC):
        @abc.abstractmethod
        def quack(self): ...

    Duck.register(Base)

    def f(x, child, n):
        score = 0
        score += 1 if isinstance(child, Base) else 0
        score += 2 if isinstance(child, (int, Child)) else 0
        score += 4 if isinstance(n, int | str) else 0
        score += 8 if isinstance(n, bool) else 0
        score += 16 if isinstance(x, np.ndarray) else 0
        score += 32 if isinstance(child, Duck) else 0
        score += 64 if isinstance(n, numbers.Integral) else 0
        score += 128 if isinstance([x], collections.abc.Sequence) else 0
        score += 256 if isinstance(x.sum(), np.floating) else 0
        return x * score, score

    return f, lambda: (four(), Child(), 3)


@behaviour("1")
def isinstance_that_user_code_decides():
    class Meta(type):
        def __instancecheck__(cls, obj):
            return hasattr(obj, "quack")

    class Duck(metaclass=Meta):
        pass

    class Robot:
        quack = 3

    def f(x, robot):
        if isinstance(robot, Duck):
            x = x * robot.quack
        return x, isinstance(x, Duck)

    return f, lambda: (four(), Robot())


@behaviour("1")
def attribute_that_a_property_of_the_metaclass_computes():
    class Meta(type):
        @property
        def world(cls):
            return cls.default + cls.scale

    class Group(metaclass=Meta):
        default = 2
        scale = 3

    def f(x):
        return x * Group.world

    return f, lambda: (four(),)


@behaviour("1")
def issubclass_of_many_kinds():
    class Base:
        pass

    class Child(Base):
        pass

    def f(x, kind):
        if issubclass(kind, Base):
            x = x * 2
        if issubclass(Base, kind):
            x = x * 100
        return x + 1, issubclass(bool, (str, int)), issubclass(kind, collections.abc.Hashable)

    return f, lambda: (four(), Child)


@behaviour("1")
def type_of_objects_and_arrays():
    class Base:
        k = 2

    class Child(Base):
        k = 3

    def f(x, a, b):
        if type(a) is type(b):
            x = x * 100
        if type(x) is np.ndarray and type(x.shape) == tuple:  # noqa: E721
            x = x + 1
        fresh = type(b)()
        return x * fresh.k * a.__class__.k, type(a).__name__, type(fresh) is Child, type(b).__mro__[1] is Base

    return f, lambda: (four(), Base(), Child())


@behaviour("1")
def setattr_and_delattr():
    class Options:
        scale = 5.0

        def __init__(self):
            self.scale = 2.0
            self.old = 1.0

    def f(x, options):
        for k, name in enumerate(("a", "b")):
            setattr(options, name, x * k + 1)
        before = options.scale
        del options.scale
        delattr(options, "old")
        return options.a + options.b * before + options.scale, hasattr(options, "old")

    return f, lambda: (four(), Options())


@behaviour("1")
def delete_and_set_again_changes_the_order():
    class Options:
        def __init__(self):
            self.a = 1.0
            self.b = 2.0

    def f(x, options):
        del options.a
        options.a = x * options.b
        return options.a + 1, list(vars(options))

    return f, lambda: (four(), Options())


@behaviour("1")
def deleting_what_is_not_there():
    class Options:
        pass

    def f(x, options):
        try:
            del options.nothing
        except AttributeError:
            x = x * 2
        return x + 1

    return f, lambda: (four(), Options())


# operators


@behaviour("1")
def operator_overloads():
    class Vector:
        def __init__(self, data):
            self.data = data

        def __add__(self, other):
            return Vector(self.data + other.data)

        def __mul__(self, k):
            return Vector(self.data * k)

        def __matmul__(self, other):
            return self.data @ other.data

        def __neg__(self):
            return Vector(-self.data)

        def __pow__(self, n):
            return Vector(self.data**n)

        def __floordiv__(self, k):
            return Vector(self.data // k)

        def __lt__(self, other):
            return self.data < other.data

        def __invert__(self):
            return "inverted"

        def __divmod__(self, k):
            return self // k, k

    def f(x, v):
        w = (v + Vector(x)) * 2
        return (-w).data + w @ v, v < w, (w**2).data, ~w, divmod(w, 3)

    return f, lambda: (four(), Vector(four() + 2))


@behaviour("1")
def reflected_operators():
    class Scalar:
        __array_ufunc__ = None  # NumPy's operators leave the work to the reflected methods

        def __init__(self, k):
            self.k = k

        def __radd__(self, other):
            return other + self.k

        def __rmul__(self, other):
            return other * self.k

        def __rsub__(self, other):
            return other - self.k

        def __rmatmul__(self, other):
            return other.sum() * self.k

    def f(x, s):
        return 1 + s, x * s, x - s, x @ s, 2.0 * s + x

    return f, lambda: (four(), Scalar(3.0))


@behaviour("1")
def operators_that_are_not_implemented():
    class Left:
        def __add__(self, other):
            return NotImplemented

        def __eq__(self, other):
            return NotImplemented

        __hash__ = None

    class Right:
        def __radd__(self, other):
            return 5.0

    def f(x, left, right):
        x = x * (left + right)
        try:
            left + 1
        except TypeError as error:
            x = x + len(str(error))
        return x, left == right, left == left

    return f, lambda: (four(), Left(), Right())


@behaviour("1")
def a_subclass_answers_first():
    class Base:
        def __add__(self, other):
            return 1.0

        def __radd__(self, other):
            return 2.0

    class Child(Base):
        def __radd__(self, other):
            return 3.0

    def f(x, base, child):
        return x * (base + child) + (child + base) * 10 + (base + base) * 100

    return f, lambda: (four(), Base(), Child())


@behaviour("1")
def in_place_operators():
    class Sum:
        def __init__(self):
            self.total = np.zeros(4)

        def __iadd__(self, other):
            self.total = self.total + other
            return self

        def __imul__(self, k):
            return (self.total * k, "another object")

        def __add__(self, other):
            raise AssertionError("__iadd__ comes first")

    def f(x, s, t):
        alias = s
        s += x
        s += 1
        t *= 3
        return s is alias, s.total * 2, t

    return f, lambda: (four(), Sum(), Sum())


@behaviour("1")
def operators_by_the_operator_module():
    class Scalar:
        def __init__(self, k):
            self.k = k

        def __add__(self, other):
            return self.k + other

        def __getitem__(self, key):
            return self.k * key

    def f(x, s):
        return operator.add(s, x), operator.getitem(s, 3), operator.attrgetter("k")(s) * x, operator.methodcaller("__add__", 1)(s)

    return f, lambda: (four(), Scalar(3.0))


# weak references, identity


@behaviour("1")
def weakref_dereference():
    class Layer:
        def __init__(self):
            self.w = four()

    def f(x, layer, reference):
        found = reference()
        if found is None:
            return x
        found.seen = True
        return x * found.w + 1, found is layer

    def arguments():
        layer = Layer()
        return four(), layer, weakref.ref(layer)

    return f, arguments


@behaviour("1")
def weakref_of_a_dead_object():
    class Layer:
        pass

    def f(x, reference):
        return x * 2 if reference() is None else x * 3

    def arguments():
        layer = Layer()
        reference = weakref.ref(layer)
        del layer
        return four(), reference

    return f, arguments


@behaviour("1", calls=3)
def weakref_that_dies_between_calls():
    class Layer:
        pass

    alive = [Layer()]
    reference = weakref.ref(alive[0])
    makes = []

    def f(x):
        return x * 2 if reference() is None else x * 3

    def arguments():
        makes.append(1)
        if len(makes) == 2:
            alive.clear()
        return (four(),)

    return f, arguments


@behaviour("1")
def identity_of_objects():
    class Token:
        pass

    missing = Token()

    def f(x, a, b, given=missing):
        if a is b:
            x = x * 2
        if a is not missing and given is missing:
            x = x + 1
        y = x
        return x, y is x, (x + 0) is x, x.T is x, None is None

    def arguments():
        token = Token()
        return four(), token, token

    return f, arguments


@behaviour("1")
def id_of_objects():
    class Token:
        pass

    def f(x, a, b):
        places = {id(a): 0, id(b): 1, id(x): 2}
        fresh = Token()
        if id(a) != id(b):
            x = x * 2
        return x + places[id(b)], id(fresh) == id(fresh), id(fresh) in places

    return f, lambda: (four(), Token(), Token())


# subclasses of builtin containers


@behaviour("1")
def a_list_subclass():
    class Arrays(list):
        def total(self):
            result = 0
            for a in self:
                result = result + a
            return result

        def append(self, a):
            super().append(a)
            self.appended = len(self)

    def f(x, arrays):
        arrays.append(x * 2)
        fresh = Arrays([x, x + 1])
        fresh.append(arrays.total())
        return arrays.total() * 2, fresh, len(arrays), isinstance(arrays, list), arrays[0] + 1

    return f, lambda: (four(), Arrays([four(), four() * 3]))


@behaviour("1")
def a_tuple_subclass():
    class Pair(tuple):
        __slots__ = ()

        def __new__(cls, a, b):
            return super().__new__(cls, (a, b))

        @property
        def first(self):
            return self[0]

    def f(x, pair):
        fresh = Pair(x * 2, pair.first + 1)
        a, b = fresh
        return a + b, fresh, fresh + (1,)

    return f, lambda: (four(), Pair(four(), 2))


@behaviour("1")
def attributes_of_thread_locals():
    class Local(threading.local):
        pass

    def f(x, local):
        local.seen = x * 2
        local.count = 3
        return x + 1

    return f, lambda: (four(), Local())


@behaviour("1")
def a_tuple_subclass_with_an_operator_of_its_own():
    class Shape(tuple):
        __slots__ = ()

        def __add__(self, other):
            return Shape(tuple.__add__(self, tuple(other)))

    def f(x, shape):
        same = Shape((2, 3)) == shape, Shape((2,)) != shape, shape == (2, 3), shape < Shape((3,)), (1,) + shape
        return x + len(shape + (1,)), same, shape + Shape((4,))

    return f, lambda: (four(), Shape((2, 3)))


@behaviour("1")
def int_float_and_str_subclasses():
    class Size(int):
        def doubled(self):
            return self * 2

    class Name(str):
        __slots__ = ()

    def f(x, size, name):
        return {name: x * size, name + "!": x + size.doubled()}, size, isinstance(size, int), size == 3, type(size + 1).__name__

    return f, lambda: (four(), Size(3), Name("n"))


@behaviour("1")
def a_dict_with_missing():
    class Defaults(dict):
        def __missing__(self, key):
            self[key] = made = len(key) * 2.0
            return made

    def f(x, table):
        y = x * table["there"] + table["absent"]
        return y, table.get("other", 7), "absent" in table, Defaults(a=x * 3)["bb"]

    return f, lambda: (four(), Defaults(there=3.0))


@behaviour("1")
def a_dict_subclass_with_its_own_items():
    class Upper(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key.upper(), value)

        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

    def f(x, table):
        table["b"] = x * 2
        table.update(c=x)
        return table.B + table.A, list(table), hasattr(table, "nothing")

    return f, lambda: (four(), Upper(A=1.0))


# helpers of the standard library


@behaviour("1")
def cached_property_of_an_argument():
    class Layer:
        def __init__(self):
            self.computed = 0
            self.w = four()

        @functools.cached_property
        def norm(self):
            self.computed += 1
            return (self.w * self.w).sum()

        @functools.cached_property
        def doubled(self):
            return self.w * 2

    def f(x, layer):
        y = x * layer.norm + layer.doubled
        return y, layer.norm - 1, layer.doubled is layer.doubled, list(vars(layer))

    return f, lambda: (four(), Layer())


@behaviour("1", calls=3)
def cached_property_that_is_filled_by_the_first_call():
    class Layer:
        def __init__(self):
            self.computed = 0

        @functools.cached_property
        def scale(self):
            self.computed += 1
            return 2.0

    layer = Layer()

    def f(x, seen):
        return x * layer.scale + 1

    return f, lambda: (four(), dict(vars(layer)))


@behaviour("1")
def typing_cast():
    def f(x, n: int):
        y: np.ndarray = typing.cast(np.ndarray, x * 2)
        z = typing.cast("np.ndarray", y + typing.cast(float, n))
        return z, typing.cast(str, x) is x

    return f, lambda: (four(), 3)


@behaviour("1")
def partialmethod():
    class Layer:
        def scaled(self, x, k):
            return x * k

        doubled = functools.partialmethod(scaled, k=2)

    def f(x, layer):
        return layer.doubled(x) + 1

    return f, lambda: (four(), Layer())


# what breaks


@behaviour("B")
def class_statement_inside():
    def f(x):
        y = x * 2 + 1

        class Local:
            k = 3.0

            def apply(self, v):
                return v * self.k

        return Local().apply(y) - 1

    return f, lambda: (four(),)


@behaviour("B")
def class_statement_with_bases_and_closure():
    class Base:
        def shifted(self, v):
            return v + 1

    def f(x):
        y = x * 2 + 1
        bias = 0.25

        class Local(Base):
            def shifted(self, v):
                return super().shifted(v) * y + bias

        made = Local()
        return made.shifted(x) - 1, made, Local.__mro__[1] is Base, Local.__qualname__

    return f, lambda: (four(),)


@behaviour("E")
def metaclass_call():
    class Single(type):
        def __call__(cls, *args):
            if "made" not in cls.__dict__:
                cls.made = super().__call__(*args)
            return cls.made

    class Config(metaclass=Single):
        def __init__(self, k):
            self.k = k

    def f(x):
        first = Config(2.0)
        second = Config(5.0)
        return x * first.k + second.k, first is second

    return f, lambda: (four(),)


@behaviour("B", calls=3)
def objects_that_are_finalised():
    log = []

    class Noted:
        def __init__(self, k):
            self.k = k

        def __del__(self):
            log.append(self.k)

    def f(x):
        y = x * 2
        made = Noted(3.0)
        return y * made.k, list(log)

    return f, lambda: (four(),)


@behaviour("1")
def builtin_function_as_an_attribute_of_a_class():
    class Owner:
        size = len
        kind = dict.fromkeys

    def f(x, owner):
        return x * owner.size("abc"), owner.kind("ab")

    return f, lambda: (four(), Owner())


@behaviour("1")
def list_asks_an_object_for_its_length():
    class Asked:
        def __init__(self):
            self.log = []

        def __len__(self):
            self.log.append("len")
            return 2

        def __iter__(self):
            self.log.append("iter")
            yield 1
            self.log.append("next")
            yield 2

    def f(x, asked):
        items = list(asked)
        items.extend(asked)
        return x * len(items), tuple(asked), asked.log

    return f, lambda: (four(), Asked())


@behaviour("B")
def module_of_a_class_of_its_own():
    class Loud(types.ModuleType):
        def __getattribute__(self, name):
            log.append(name)
            return super().__getattribute__(name)

    log = []

    def f(x, module):
        y = x * 2
        return y * module.scale, list(log)

    def make():
        log.clear()
        module = Loud("loud")
        module.scale = 3.0
        return four(), module

    return f, make


@behaviour("B")
def super_of_an_object_that_is_no_instance():
    class A:
        pass

    class B(A):
        pass

    def f(x, a):
        y = x * 2
        try:
            super(B, a)
        except TypeError as e:
            return y + 1, str(e)
        return y

    return f, lambda: (four(), A())


@behaviour("1")
def class_patterns_that_are_wrong():
    class Twice:
        __match_args__ = ("a", "a")
        a = 1

    class NoName:
        __match_args__ = (None,)

    class NoTuple:
        __match_args__ = ["a"]  # noqa: RUF012

    def two(thing):
        match thing:
            case Twice(y, z):
                return y, z

    def one(kind):
        match kind():
            case NoName(y) | NoTuple(y):
                return y

    def f(x, keys):
        said = []
        for function, given in ((two, Twice()), (one, NoName), (one, NoTuple)):
            try:
                function(given)
            except TypeError as e:
                said.append(str(e))
        try:
            match {"a": 1, "b": 2}:
                case {keys.KEY: _, "a": _}:
                    pass
        except ValueError as e:
            said.append(str(e))
        return x * 2, said

    class Keys:
        KEY = "a"

    return f, lambda: (four(), Keys)


@behaviour("B")
def unbound_methods_of_c_types_on_other_owners():
    def f(x, items):
        y, said = x * 2, []
        for method, owner in ((list.append, items), (tuple.index, items), (int.__add__, 1.5), (set.add, frozenset())):
            try:
                said.append(method(owner, 2))
            except TypeError as e:
                said.append(str(e))
        return y, said, object.__eq__(1, 1.0)

    return f, lambda: (four(), collections.deque([1]))


@behaviour("B")
def attributes_of_objects_without_dict_of_their_own():
    marker = typing.TypeVar("marker")

    def f(x, marker):
        y = x * 2
        return y + 1, marker.__name__, getattr(marker, "other", None)

    return f, lambda: (four(), marker)


@behaviour("B")
def objects_that_say_what_their_namespace_is():
    class Odd:
        def __init__(self):
            self.scale = 3.0

        @property
        def __dict__(self):
            return {"scale": 9.0}

    def f(x, odd):
        return x * odd.scale

    return f, lambda: (four(), Odd())


@behaviour("B")
def attribute_of_an_immutable_class_is_set():
    def f(x):
        y = x * 2
        try:
            itertools.accumulate.other = 1
        except TypeError as e:
            return y + 1, str(e)
        return y

    return f, lambda: (four(),)


test_objects = collected(__name__)
