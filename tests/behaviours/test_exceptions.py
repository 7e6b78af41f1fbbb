"""Exceptions and contexts: what is raised and caught inside, what escapes, and what `with` sets is set back.

PYTEST_DONT_REWRITE: an assert inside a row is captured as it stands.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import traceback

import numpy as np

import dynagraph as dg

from .harness import behaviour, collected


def four() -> np.ndarray:
    return np.arange(4.0) - 1


def modes() -> tuple[list, type]:
    """A mode as no_grad is one: the stack of its states, and the context manager that sets it; each caller's own."""
    enabled = [True]

    class Mode:
        def __init__(self, on=False):
            self.on = on

        def __enter__(self):
            self.before = enabled[0]
            enabled[0] = self.on
            return self

        def __exit__(self, kind, error, trace):
            enabled[0] = self.before
            return False

    return enabled, Mode


# raised and caught in the frame


@behaviour("1")
def raise_and_except():
    def f(x):
        y = x * 2
        try:
            y = y + 1
            raise ValueError("stop")
        except ValueError:
            y = y * 3
        return y - 1

    return f, lambda: (four(),)


@behaviour("1")
def except_by_a_base_class_and_in_order():
    def f(x):
        for error in (KeyError("a"), IndexError("b"), ZeroDivisionError("c"), ValueError("d")):
            try:
                raise error
            except (KeyError, TypeError):
                x = x + 1
            except LookupError:
                x = x * 2
            except ArithmeticError as caught:
                x = x + len(caught.args[0])
            except Exception:
                x = x * 3
        return x

    return f, lambda: (four(),)


@behaviour("1")
def finally_without_an_exception():
    def f(x, log):
        try:
            log.append("body")
            x = x * 2
        finally:
            log.append("finally")
            x = x + 1
        return x * 3

    return f, lambda: (four(), [])


@behaviour("1")
def except_and_finally():
    def f(x, log):
        try:
            log.append("body")
            raise KeyError("k")
        except KeyError:
            log.append("except")
            x = x * 2
        finally:
            log.append("finally")
            x = x + 1
        return x * 3

    return f, lambda: (four(), [])


@behaviour("1")
def finally_inside_except():
    def f(x, log):
        try:
            try:
                x = x * 2
                raise ValueError("inner")
            finally:
                log.append("cleaned")
                x = x + 1
        except ValueError as error:
            log.append(str(error))
            x = x * 3
        return x - 1

    return f, lambda: (four(), [])


@behaviour("1")
def nested_handlers():
    def f(x):
        try:
            try:
                raise KeyError("a")
            except KeyError:
                x = x * 2
                raise IndexError("b")  # noqa: B904
        except IndexError as error:
            x = x + len(error.args)
            inner = type(error.__context__).__name__
        return x, inner

    return f, lambda: (four(),)


@behaviour("1")
def raise_again():
    def f(x, log):
        try:
            try:
                x = x * 2
                raise ValueError("again")
            except ValueError as error:
                log.append(error)
                raise
        except ValueError as error:
            return x + 1, error is log[0]

    return f, lambda: (four(), [])


@behaviour("1")
def an_exception_class_without_arguments():
    def f(x):
        try:
            raise ValueError
        except ValueError as error:
            return x * 2, error.args, str(error)

    return f, lambda: (four(),)


@behaviour("1")
def the_name_is_unbound_behind_the_handler():
    def f(x):
        error = 1
        try:
            raise ValueError("v")
        except ValueError as error:  # noqa: F841
            x = x * 2
        try:
            return x, error
        except UnboundLocalError:
            return x + 1, "unbound"

    return f, lambda: (four(),)


@behaviour("1")
def an_exception_in_a_loop():
    def f(x, values):
        for v in values:
            try:
                if v < 0:
                    raise ValueError(v)
                x = x + v
            except ValueError as error:
                x = x * error.args[0]
                continue
            finally:
                x = x + 0.5
            if v == 3:
                break
        return x

    return f, lambda: (four(), [1, -2, 3, 100])


@behaviour("1")
def an_exception_is_returned():
    def f(x):
        try:
            raise ValueError("kept", 3)
        except ValueError as error:
            kept = error
        return x * 2, kept

    return f, lambda: (four(),)


@behaviour("1")
def an_exception_with_an_array():
    def f(x):
        try:
            raise ValueError("with", x * 2)
        except ValueError as error:
            return error.args[1] + 1

    return f, lambda: (four(),)


@behaviour("B")
def sys_exc_info_in_a_handler():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError:
            kind, error, _ = sys.exc_info()
            x = x + len(error.args)
        return x * 2, kind is ValueError, sys.exc_info()[0] is None

    return f, lambda: (four(),)


@behaviour("B")
def exception_notes():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError as error:
            error.add_note("a note")
            return x * 2, error.__notes__

    return f, lambda: (four(),)


@behaviour("1")
def try_else():
    def f(x, log):
        try:
            y = x * 2
        except ValueError:
            log.append("except")
            y = x * 100
        else:
            log.append("else")
            y = y + 1
        finally:
            log.append("finally")
        return y * 3

    return f, lambda: (four(), [])


@behaviour("1")
def try_else_that_raises():
    def f(x, log):
        try:
            try:
                y = x * 2
            except KeyError:
                log.append("not here")
            else:
                raise KeyError("from else")
        except KeyError:
            log.append("here")
            y = y + 1
        return y

    return f, lambda: (four(), [])


# raised by operations


@behaviour("1")
def key_error_is_caught():
    def f(x, table):
        try:
            return x * table["absent"]
        except KeyError as error:
            return x * table["k"] + len(error.args[0])

    return f, lambda: (four(), {"k": 3.0})


@behaviour("1")
def zero_division_error_is_caught():
    def f(x, n):
        y = x * 2
        try:
            y = y * (n // 0)
        except ZeroDivisionError as error:
            y = y + 1
            text = str(error)
        return y, text

    return f, lambda: (four(), 3)


@behaviour("1")
def index_error_is_caught():
    def f(x, items):
        try:
            x = x * items[5]
        except IndexError:
            x = x * items[-1]
        try:
            items.pop(7)
        except IndexError as error:
            return x + 1, str(error)
        return x

    return f, lambda: (four(), [1.0, 2.0])


@behaviour("1")
def index_error_of_an_array_is_caught():
    def f(x):
        try:
            y = x[7]
        except IndexError:
            y = x[-1]
        return y * 2 + x

    return f, lambda: (four(),)


@behaviour("1")
def attribute_error_is_caught():
    class Layer:
        w = 2.0

    def f(x, layer):
        try:
            return x * layer.v
        except AttributeError as error:
            return x * layer.w + 1, error.name, error.obj is layer

    return f, lambda: (four(), Layer())


@behaviour("1")
def attribute_error_of_an_array_is_caught():
    def f(x):
        try:
            return x.cuda() * 2
        except AttributeError:
            return x * 3

    return f, lambda: (four(),)


@behaviour("1")
def stop_iteration_is_caught():
    def f(x):
        steps = iter([1.0, 2.0])
        try:
            while True:
                x = x * 2 + next(steps)
        except StopIteration:
            x = x - 1
        return x

    return f, lambda: (four(),)


@behaviour("1")
def stop_iteration_carries_the_value_of_a_generator():
    def f(x):
        def steps():
            yield 1.0
            return 5.0

        g = steps()
        x = x + next(g)
        try:
            next(g)
        except StopIteration as stop:
            x = x * stop.value
        return x

    return f, lambda: (four(),)


@behaviour("1")
def type_error_and_value_error_are_caught():
    def f(x):
        try:
            len(3)
        except TypeError as error:
            text = str(error)
        try:
            x = x + int("three")
        except ValueError:
            x = x * 2
        try:
            a, b = (1, 2, 3)
        except ValueError as error:
            return x + 1, text, str(error)
        return a, b

    return f, lambda: (four(),)


@behaviour("1")
def a_wrong_call_is_caught():
    def g(a, *, k):
        return a * k

    def f(x):
        try:
            return g(x)
        except TypeError as error:
            return g(x, k=2) + 1, len(error.args)

    return f, lambda: (four(),)


@behaviour("1")
def shapes_that_do_not_fit_are_caught():
    def f(x, w):
        try:
            return x + w
        except ValueError as error:
            return x * 2, str(error)

    return f, lambda: (four(), np.arange(3.0))


@behaviour("1")
def name_error_is_caught():
    def f(x):
        try:
            return x * there_is_no_such_name
        except NameError as error:
            return x * 2, error.name

    return f, lambda: (four(),)


@behaviour("1")
def assertion_error_is_caught():
    def f(x):
        try:
            assert x.ndim == 2, ("ndim", x.ndim)
        except AssertionError as error:
            return x * 2, error.args
        return x

    return f, lambda: (four(),)


# raised by callees


@behaviour("1")
def a_callee_raises_and_its_args_are_read():
    def checked(x, k):
        y = x + k
        if k > 2:
            raise ValueError("too large", k, y.shape)
        return y

    def f(x):
        try:
            x = checked(x, 1)
            x = checked(x, 3)
        except ValueError as error:
            text, k, shape = error.args
            x = x * k + shape[0] + len(text)
        return x

    return f, lambda: (four(),)


@behaviour("1")
def a_callee_of_a_callee_raises():
    def inner(x, log):
        log.append("inner")
        raise LookupError("deep")

    def middle(x, log):
        try:
            return inner(x * 2, log)
        finally:
            log.append("middle")

    def f(x, log):
        try:
            return middle(x, log)
        except LookupError as error:
            log.append(str(error))
            return x * 3

    return f, lambda: (four(), [])


@behaviour("1")
def a_callee_mutates_before_it_raises():
    def failing(x, table):
        table["before"] = x * 2
        table["n"] += 1
        raise RuntimeError("half way")

    def f(x, table):
        try:
            failing(x, table)
        except RuntimeError:
            x = table["before"] + 1
        return x * table["n"]

    return f, lambda: (four(), {"n": 1})


@behaviour("1")
def a_callee_catches_and_gives_a_default():
    def get(table, key, default):
        try:
            return table[key]
        except KeyError:
            return default

    def f(x, table):
        return x * get(table, "a", 1.0) + get(table, "b", 0.5)

    return f, lambda: (four(), {"a": 3.0})


@behaviour("1")
def a_generator_raises():
    def steps(n):
        for k in range(n):
            if k == 2:
                raise ValueError("at", k)
            yield k + 1.0

    def f(x):
        try:
            for s in steps(5):
                x = x * s + 1
        except ValueError as error:
            x = x + error.args[1]
        return x

    return f, lambda: (four(),)


@behaviour("B")
def throw_and_close_a_generator():
    def steps(log):
        try:
            while True:
                try:
                    yield 1.0
                except ValueError as error:
                    log.append(str(error))
                    yield 2.0
        finally:
            log.append("closed")

    def f(x, log):
        g = steps(log)
        x = x + next(g)
        x = x * g.throw(ValueError("thrown"))
        x = x + next(g)
        g.close()
        return x * 3

    return f, lambda: (four(), [])


@behaviour("1")
def system_exit_is_caught_by_the_caller():
    def leaving(x):
        raise SystemExit(x.shape[0])

    def f(x):
        y = x * 2
        try:
            leaving(y)
        except SystemExit as leave:
            return y + leave.code

    return f, lambda: (four(),)


# causes and contexts


@behaviour("1")
def raise_from():
    def f(x):
        try:
            try:
                raise KeyError("low")
            except KeyError as low:
                raise ValueError("high") from low
        except ValueError as high:
            cause = high.__cause__
            return x * 2, type(cause).__name__, cause.args, high.__context__ is cause, high.__suppress_context__

    return f, lambda: (four(),)


@behaviour("1")
def raise_from_none():
    def f(x):
        try:
            try:
                raise KeyError("low")
            except KeyError:
                raise ValueError("high") from None
        except ValueError as high:
            return x * 2, high.__cause__, type(high.__context__).__name__, high.__suppress_context__

    return f, lambda: (four(),)


@behaviour("1")
def raise_from_a_class():
    def f(x):
        try:
            raise ValueError("high") from KeyError
        except ValueError as high:
            return x * 2, type(high.__cause__).__name__, high.__context__

    return f, lambda: (four(),)


@behaviour("1")
def the_context_of_an_exception():
    def f(x, table):
        try:
            try:
                x = x * table["absent"]
            except KeyError:
                x = x + 1 // 0
        except ZeroDivisionError as error:
            context = error.__context__
            return x * 2, type(context).__name__, context.args, error.__cause__, context.__context__

    return f, lambda: (four(), {})


@behaviour("1")
def the_context_of_a_callee_in_a_handler():
    def failing():
        raise IndexError("second")

    def f(x):
        try:
            raise KeyError("first")
        except KeyError:
            try:
                failing()
            except IndexError as error:
                x = x * 2
                context = type(error.__context__).__name__
        try:
            failing()
        except IndexError as error:
            return x + 1, context, error.__context__

    return f, lambda: (four(),)


# exceptions of the user


@behaviour("1")
def custom_exception_with_attributes():
    class OutOfRange(ValueError):
        def __init__(self, value, limit):
            super().__init__(f"{value} is over {limit}")
            self.value = value
            self.limit = limit

        def excess(self):
            return self.value - self.limit

    def checked(x, k):
        if k > 3:
            raise OutOfRange(k, 3)
        return x * k

    def f(x):
        try:
            return checked(x, 5)
        except OutOfRange as error:
            return x * error.limit + error.excess(), str(error), error.args, error

    return f, lambda: (four(),)


@behaviour("1")
def custom_exception_that_carries_an_array():
    class Early(Exception):
        def __init__(self, result):
            self.result = result

    def search(x):
        for k in range(10):
            x = x * 2 + k
            if k == 3:
                raise Early(x)

    def f(x):
        try:
            search(x)
        except Early as early:
            return early.result + 1

    return f, lambda: (four(),)


@behaviour("1")
def custom_exceptions_in_a_hierarchy():
    class Base(Exception):
        code = 1

    class Child(Base):
        code = 2

    def f(x):
        for kind in (Base, Child):
            try:
                raise kind
            except Child as error:
                x = x * 2 + error.code
            except Base as error:
                x = x + error.code
        return x

    return f, lambda: (four(),)


# return, break and continue through finally


@behaviour("1")
def return_in_finally():
    def f(x):
        try:
            y = x * 2
            raise ValueError("lost")
        finally:
            return y + 1  # noqa: B012

    return f, lambda: (four(),)


@behaviour("1")
def return_in_finally_goes_before_another():
    def f(x, log):
        try:
            return log.append("try") or x * 2
        finally:
            return log.append("finally") or x * 3  # noqa: B012, SIM107

    return f, lambda: (four(), [])


@behaviour("1")
def return_through_finally():
    def f(x, log):
        try:
            return x * 2
        finally:
            log.append("left")
            x = x + 100

    return f, lambda: (four(), [])


@behaviour("1")
def return_inside_except():
    def f(x, log):
        try:
            raise ValueError("v")
        except ValueError:
            return x * 2
        finally:
            log.append("left")

    return f, lambda: (four(), [])


@behaviour("1")
def break_and_continue_through_finally():
    def f(x, log):
        for k in range(5):
            try:
                if k == 1:
                    continue
                if k == 3:
                    break
                x = x * 2 + k
            finally:
                log.append(k)
        return x

    return f, lambda: (four(), [])


# contexts


@behaviour("1")
def with_errstate():
    def f(x):
        with np.errstate(divide="ignore", invalid="ignore"):
            y = 1 / x
        return np.where(x == 0, 0.0, y) * 2

    return f, lambda: (four(),)


@behaviour("1")
def the_state_inside_errstate_and_behind_it():
    def f(x):
        before = np.geterr()["over"]
        with np.errstate(over="ignore", under="ignore"):
            inside = np.geterr()["over"]
            y = x * 2
        return y + 1, before, inside, np.geterr()["over"] == before

    return f, lambda: (four(),)


@behaviour("1")
def with_a_mode_as_no_grad_is_one():
    enabled, no_grad = modes()

    def f(x, seen):
        y = x * 2 if enabled[0] else x * 100
        with no_grad():
            z = x * 3 if enabled[0] else x * 5
            with no_grad(on=True):
                z = z + 1 if enabled[0] else z
        return y + z, list(enabled)

    return f, lambda: (four(), list(enabled))


@behaviour("1")
def the_mode_is_restored_when_the_body_raises():
    enabled, no_grad = modes()

    def f(x, seen):
        try:
            with no_grad():
                x = x * 2
                raise ValueError(enabled[0])
        except ValueError as error:
            return x + 1, error.args, enabled[0]

    return f, lambda: (four(), list(enabled))


@behaviour("1")
def a_user_context_manager():
    class Timer:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("enter")
            return self.log

        def __exit__(self, kind, error, trace):
            self.log.append(("exit", kind, error, trace))

    def f(x, timer):
        with timer as log:
            log.append("body")
            x = x * 2
        return x + len(timer.log)

    return f, lambda: (four(), Timer())


@behaviour("1")
def exit_is_given_the_exception():
    class Recorder:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            self.seen = (kind is ValueError, error.args)
            return False

    def f(x, recorder):
        try:
            with recorder as same:
                x = x * 2
                raise ValueError("given", 3)
        except ValueError as error:
            x = x + error.args[1]
        return x, same is recorder

    return f, lambda: (four(), Recorder())


@behaviour("E")
def exit_is_given_the_traceback():
    class Recorder:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            self.lines = 0
            while trace is not None:
                self.lines += 1
                trace = trace.tb_next

    def f(x, recorder):
        try:
            with recorder:
                x = x * 2
                raise ValueError("given")
        except ValueError:
            x = x + recorder.lines
        return x

    return f, lambda: (four(), Recorder())


@behaviour("1")
def several_context_managers_in_one_with():
    class Named:
        def __init__(self, name, log):
            self.name, self.log = name, log

        def __enter__(self):
            self.log.append("+" + self.name)
            return len(self.log)

        def __exit__(self, *given):
            self.log.append("-" + self.name)

    def f(x, log):
        with Named("a", log) as a, Named("b", log) as b:
            x = x * a + b
        return x + 1

    return f, lambda: (four(), [])


@behaviour("1")
def context_manager_from_a_generator():
    def f(x, log):
        @contextlib.contextmanager
        def scaled(k):
            log.append("enter")
            try:
                yield k * 2
            finally:
                log.append("exit")

        with scaled(3) as k:
            log.append("body")
            x = x * k
        return x + 1

    return f, lambda: (four(), [])


@behaviour("1")
def context_manager_from_a_generator_made_outside():
    state = {"k": 1.0}

    @contextlib.contextmanager
    def k_is(value):
        before = state["k"]
        state["k"] = value
        try:
            yield
        finally:
            state["k"] = before

    def f(x, seen):
        with k_is(3.0):
            y = x * state["k"]
            with k_is(5.0):
                y = y + state["k"]
        return y * state["k"]

    return f, lambda: (four(), dict(state))


@behaviour("1")
def context_manager_from_a_generator_sees_the_exception():
    @contextlib.contextmanager
    def noted(log):
        try:
            yield
        except ValueError as error:
            log.append(error.args)
            raise
        finally:
            log.append("exit")

    def f(x, log):
        try:
            with noted(log):
                x = x * 2
                raise ValueError("seen")
        except ValueError:
            x = x + 1
        return x * 3

    return f, lambda: (four(), [])


@behaviour("1")
def suppress_that_has_nothing_to_do():
    def f(x):
        with contextlib.suppress(KeyError):
            x = x * 2
        return x + 1

    return f, lambda: (four(),)


@behaviour("1")
def suppress_that_swallows():
    def f(x, table):
        with contextlib.suppress(KeyError, IndexError):
            x = x * table["k"]
            x = x * table["absent"]
            x = x * 100
        return x + 1

    return f, lambda: (four(), {"k": 3.0})


@behaviour("1")
def suppress_that_does_not_match():
    def f(x, table):
        try:
            with contextlib.suppress(IndexError):
                x = x * 2
                x = x * table["absent"]
        except KeyError:
            x = x + 1
        return x

    return f, lambda: (four(), {})


@behaviour("1")
def nullcontext_and_closing():
    class Resource:
        def __init__(self):
            self.closed = False

        def close(self):
            self.closed = True

    def f(x, resource):
        with contextlib.nullcontext(3.0) as k:
            x = x * k
        with contextlib.closing(resource) as same:
            x = x + 1
        return x, same is resource

    return f, lambda: (four(), Resource())


@behaviour("1")
def return_from_inside_with():
    enabled, no_grad = modes()

    def f(x, seen):
        with no_grad():
            if x.shape[0] > 2:
                return x * 2 if enabled[0] else x * 3
            x = x + 100
        return x - 1

    return f, lambda: (four(), list(enabled))


@behaviour("1")
def return_from_inside_nested_with_and_errstate():
    class Named:
        def __init__(self, name, log):
            self.name, self.log = name, log

        def __enter__(self):
            self.log.append("+" + self.name)

        def __exit__(self, *given):
            self.log.append("-" + self.name)

    def f(x, log):
        with Named("a", log):
            for k in range(5):
                with Named("b", log), np.errstate(over="ignore"):
                    x = x * 2
                    if k == 1:
                        return x + k
        return x

    return f, lambda: (four(), [])


@behaviour("1")
def break_and_continue_out_of_with():
    class Entered:
        count = 0
        left = 0

        def __enter__(self):
            self.count += 1

        def __exit__(self, *given):
            self.left += 1

    def f(x, entered):
        for k in range(5):
            with entered:
                if k == 1:
                    continue
                if k == 3:
                    break
                x = x * 2 + k
        return x, entered.count, entered.left

    return f, lambda: (four(), Entered())


# breaks under a block


@behaviour("B")
def break_inside_errstate():
    def f(x):
        with np.errstate(divide="ignore", over="ignore"):
            y = x * 2 + 1
            total = float(y.sum())
            inside = np.geterr()["divide"]
            z = 1 / (x * total)
        return np.where(x == 0, 0.0, z), inside, np.geterr()["divide"] == "ignore"

    return f, lambda: (four(),)


@behaviour("B")
def break_inside_a_no_grad_block():
    enabled, no_grad = modes()

    def f(x, seen):
        with no_grad():
            y = x * 2 if enabled[0] else x * 3
            print(y)
            y = y + 1 if enabled[0] else y + 2
        return y * 2 if enabled[0] else y * 5

    return f, lambda: (four(), list(enabled))


@behaviour("B")
def break_inside_two_modes():
    enabled, no_grad = modes()

    def f(x, seen):
        with no_grad():
            with no_grad(on=True):
                y = x * 2 + enabled[0]
                print(y.sum())
                y = y * 3 + enabled[0]
            print("left", enabled)
            y = y + 1 + enabled[0]
        return y * 2 + enabled[0]

    return f, lambda: (four(), list(enabled))


@behaviour("B")
def break_inside_a_mode_and_an_exception_behind_it():
    enabled, no_grad = modes()

    def f(x, seen):
        y = x
        try:
            with no_grad():
                y = x * 2 + 1
                print(y)
                y = y * 3
                raise ValueError(enabled[0])
        except ValueError as error:
            return y - 1, error.args, enabled[0]

    return f, lambda: (four(), list(enabled))


@behaviour("B")
def break_inside_a_user_with():
    class Recorder:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("enter")
            return self

        def __exit__(self, kind, error, trace):
            self.log.append(("exit", kind))

    def f(x, recorder):
        with recorder as r:
            y = x * 2 + 1
            r.log.append(float(y.sum()))
            y = y * 3
            r.log.append("body")
        return y - 1

    return f, lambda: (four(), Recorder())


@behaviour("B")
def break_inside_a_user_with_that_returns():
    class Recorder:
        def __init__(self):
            self.log = []

        def __enter__(self):
            self.log.append("enter")

        def __exit__(self, *given):
            self.log.append("exit")

    def f(x, recorder):
        for k in range(3):
            with recorder:
                x = x * 2 + k
                print(x)
                x = x + 1
                if k == 1:
                    return x * 3
        return x

    return f, lambda: (four(), Recorder())


@behaviour("B")
def break_inside_with_of_a_generator():
    @contextlib.contextmanager
    def noted(log):
        log.append("enter")
        try:
            yield 3.0
        finally:
            log.append("exit")

    def f(x, log):
        with noted(log) as k:
            y = x * k + 1
            print(y)
            y = y * 2
        return y - 1

    return f, lambda: (four(), [])


@behaviour("B")
def break_inside_try():
    def f(x):
        try:
            y = x * 2 + 1
            total = float(y.sum())
            y = y * total
        except ValueError:
            y = x * 100
        return y - 1

    return f, lambda: (four(),)


@behaviour("B")
def break_inside_try_and_an_exception_behind_it():
    def f(x, table):
        y = x
        try:
            y = x * 2 + 1
            print(y)
            y = y * 3
            y = y * table["absent"]
        except KeyError as error:
            y = y - len(error.args[0])
        return y * 2

    return f, lambda: (four(), {})


@behaviour("B")
def the_breaking_call_raises_inside_try():
    def f(x):
        try:
            y = x * 2 + 1
            y.item()
        except ValueError:
            y = x * 3 - 1
        return y * 2

    return f, lambda: (four(),)


@behaviour("B")
def break_inside_try_finally():
    def f(x, log):
        try:
            y = x * 2 + 1
            log.append(float(y.sum()))
            y = y * 3
        finally:
            log.append("finally")
        return y - 1

    return f, lambda: (four(), [])


@behaviour("B")
def break_inside_except():
    def f(x, table):
        try:
            y = x * table["absent"]
        except KeyError as error:
            y = x * 2 + 1
            print(y)
            y = y * 3 + len(error.args)
        return y - 1

    return f, lambda: (four(), {})


@behaviour("B")
def raise_again_behind_a_break_inside_except():
    def f(x):
        y = x
        try:
            try:
                raise KeyError("first")
            except KeyError:
                y = x * 2 + 1
                print(y)
                y = y * 3
                raise
        except KeyError as error:
            return y - 1, error.args

    return f, lambda: (four(),)


@behaviour("B")
def the_context_is_kept_over_a_break_inside_except():
    def f(x):
        y = x
        try:
            try:
                raise KeyError("first")
            except KeyError:
                y = x * 2 + 1
                print(y)
                y = y * 3
                raise ValueError("second")  # noqa: B904
        except ValueError as error:
            return y - 1, type(error.__context__).__name__

    return f, lambda: (four(),)


@behaviour("B")
def break_inside_a_callee_under_try():
    def inner(x, k):
        y = x * 2 + 1
        print(y)
        y = y * 3
        if k > 2:
            raise ValueError("too large", k)
        return y

    def f(x):
        try:
            x = inner(x, 1)
            x = inner(x, 3)
        except ValueError as error:
            x = x - error.args[1]
        return x * 2

    return f, lambda: (four(),)


@behaviour("B")
def break_inside_finally():
    def f(x):
        try:
            y = x * 2
        finally:
            y = y + 1
            print(y)
            y = y * 3
        return y - 1

    return f, lambda: (four(),)


@behaviour("B")
def break_inside_else_in_a_loop():
    def f(x, table):
        for key in ("a", "absent", "b"):
            try:
                k = table[key]
            except KeyError:
                continue
            else:
                x = x * k
                print(x)
                x = x + 1
        return x * 2

    return f, lambda: (four(), {"a": 2.0, "b": 3.0})


# what escapes


@behaviour("E")
def an_exception_escapes():
    def f(x):
        y = x * 2
        raise ValueError(f"shape {y.shape}")

    return f, lambda: (four(),)


@behaviour("E")
def an_exception_escapes_behind_effects():
    def f(x, log):
        log.append(x * 2)
        log.append("last")
        raise KeyError("k", len(log))

    return f, lambda: (four(), [])


@behaviour("E")
def an_exception_escapes_from_a_callee():
    def inner(x):
        if x.ndim != 2:
            raise ValueError("a matrix is needed")
        return x * 2

    def middle(x):
        y = x + 1
        return inner(y)

    def f(x):
        y = x * 3
        return middle(y)

    return f, lambda: (four(),)


@behaviour("E")
def an_exception_escapes_with_its_cause():
    def f(x, table):
        try:
            return x * table["absent"]
        except KeyError as error:
            raise ValueError("no such key") from error

    return f, lambda: (four(), {})


@behaviour("E")
def an_exception_escapes_from_an_operation():
    def f(x, w):
        y = x * 2
        return y + w

    return f, lambda: (four(), np.arange(3.0))


@behaviour("E")
def an_exception_escapes_from_a_python_operation():
    def f(x, n):
        y = x * 2
        return y + 1 // n

    return f, lambda: (four(), 0)


@behaviour("E")
def an_exception_escapes_through_finally():
    def f(x, log):
        try:
            x = x * 2
            raise ValueError("through")
        finally:
            log.append("finally")

    return f, lambda: (four(), [])


@behaviour("E")
def an_exception_escapes_through_with():
    enabled, no_grad = modes()

    def f(x, seen):
        with no_grad():
            x = x * 2
            raise ValueError(enabled[0])

    return f, lambda: (four(), list(enabled))


@behaviour("E")
def an_exception_escapes_behind_a_break():
    def f(x):
        y = x * 2 + 1
        print(y)
        y = y * 3
        raise ValueError(
            f"behind the break, shape {y.shape}",
        )

    return f, lambda: (four(),)


@behaviour("E")
def the_breaking_call_raises():
    def f(x, log):
        y = x * 2 + 1
        log.append("before")
        k = y.item()
        log.append("never")
        return x * k

    return f, lambda: (four(), [])


@behaviour("E")
def a_custom_exception_escapes():
    class Refused(Exception):
        def __init__(self, code):
            super().__init__(f"refused, code {code}")
            self.code = code

    def f(x):
        y = x * 2
        raise Refused(y.shape[0])

    return f, lambda: (four(),)


@behaviour("E", calls=3)
def an_exception_escapes_from_one_call_only():
    lengths = iter((4, 0, 4))

    def f(x, n):
        if n == 0:
            raise ValueError("empty")
        return x * 2 + n

    return f, lambda: (four(), next(lengths))


# what runs eagerly


@behaviour("E")
def a_user_context_manager_that_swallows():
    class Swallow:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            self.swallowed = error.args
            return kind is ValueError

    def f(x, swallow):
        with swallow:
            x = x * 2
            raise ValueError("gone")
        return x + 1

    return f, lambda: (four(), Swallow())


@behaviour("E")
def a_generator_context_manager_that_swallows():
    @contextlib.contextmanager
    def swallow(log):
        try:
            yield
        except ValueError as error:
            log.append(error.args)

    def f(x, log):
        with swallow(log):
            x = x * 2
            raise ValueError("gone")
        return x + 1

    return f, lambda: (four(), [])


@behaviour("E")
def exit_stack():
    class Named:
        def __init__(self, name, log):
            self.name, self.log = name, log

        def __enter__(self):
            self.log.append("+" + self.name)
            return len(self.log)

        def __exit__(self, *given):
            self.log.append("-" + self.name)

    def f(x, log):
        with contextlib.ExitStack() as stack:
            for name in "ab":
                x = x * stack.enter_context(Named(name, log))
            stack.callback(log.append, "callback")
            x = x + 1
        return x * 2

    return f, lambda: (four(), [])


@behaviour("E")
def locks():
    lock = threading.Lock()
    reentrant = threading.RLock()

    def f(x):
        with lock:
            y = x * 2
            held = lock.locked()
        with reentrant, reentrant:
            y = y + 1
        return y * 3, held, lock.locked()

    return f, lambda: (four(),)


@behaviour("E")
def a_lock_is_released_when_the_body_raises():
    lock = threading.Lock()

    def f(x):
        with lock:
            x = x * 2
            raise ValueError(lock.locked())

    def released(x):
        try:
            f(x)
        except ValueError as error:
            return x + 1, error.args, lock.locked()

    return released, lambda: (four(),)


@behaviour("E")
def except_star():
    def f(x, log):
        try:
            x = x * 2
            raise ExceptionGroup("several", [ValueError("a"), KeyError("b"), ValueError("c")])
        except* ValueError as group:
            log.append([str(e) for e in group.exceptions])
            x = x + 1
        except* KeyError as group:
            log.append(len(group.exceptions))
            x = x * 3
        return x

    return f, lambda: (four(), [])


@behaviour("E")
def except_star_lets_the_rest_escape():
    def f(x, log):
        try:
            x = x * 2
            raise ExceptionGroup("several", [ValueError("a"), KeyError("b")])
        except* ValueError:
            log.append(x + 1)
        return x

    return f, lambda: (four(), [])


@behaviour("E")
def except_star_wraps_a_plain_exception():
    def f(x):
        try:
            x = x * 2
            raise ValueError("plain")
        except* ValueError as group:
            x = x + len(group.exceptions)
        return x

    return f, lambda: (four(),)


@behaviour("B")
def the_finally_of_a_callee_that_raises_breaks():
    def f(x, text):
        def scaled(v):
            try:
                return v * (text + 1)
            finally:
                x.fill(2.0)

        y = x % 9
        return scaled(y) / 4

    return f, lambda: (four(), "text")


@behaviour("B", calls=3)
def argument_breaks_and_the_callee_raises():
    turn = itertools.cycle((1, 3, 3))

    def check(n):
        if n % 3 == 0:
            raise ValueError(f"a multiple of 3: {n}")
        return n

    def f(x):
        try:
            check(int(x[0]))
        except ValueError as error:
            return x * 2, str(error)
        return x + 1

    return f, lambda: (four() + 1 + next(turn),)


@behaviour("B", calls=3)
def argument_breaks_and_the_callee_raises_within_with():
    turn = itertools.cycle((1, 3, 3))
    stack, mode = modes()

    def check(n):
        if n % 3 == 0:
            raise ValueError(f"a multiple of 3: {n}")
        return n

    def f(x, stack):
        y = x * 2
        with mode():
            check(int(x[0]))
        return y + len(stack)

    return f, lambda: (four() + 1 + next(turn), stack)


@behaviour("1")
def context_of_an_exception_that_is_raised_again():
    def f(x):
        first = ValueError("first")
        try:
            try:
                raise first
            except ValueError as a:
                try:
                    raise KeyError("second")
                except KeyError:
                    raise a  # noqa: B904
        except ValueError as e:
            chain = type(e.__context__).__name__, e.__context__.__context__ is None
        try:
            raise TypeError("third")
        except TypeError:
            try:
                raise first
            except ValueError as e:
                again = type(e.__context__).__name__
        return x * 2, chain, again

    return f, lambda: (four(),)


@behaviour("1")
def cause_that_is_no_exception():
    def f(x):
        try:
            raise ValueError("v") from 5  # type: ignore[misc]
        except TypeError as e:
            return x * 2, str(e)

    return f, lambda: (four(),)


@behaviour("1")
def attribute_errors_have_name_and_obj():
    class Guarded:
        def __getattr__(self, name):
            raise AttributeError("not here")

    def f(x, guarded):
        found = []
        for owner in (guarded, [1], 3):
            try:
                owner.colour  # noqa: B018
            except AttributeError as e:
                found.append((str(e), e.name, e.obj is owner))
        return x * 2, found

    return f, lambda: (four(), Guarded())


@behaviour("B")
def exception_of_the_callers_is_initialised_again():
    def f(x, error):
        y = x * 2
        error.__init__()
        return y + 1, error.args, error.msg, error.name

    return f, lambda: (four(), ImportError("text", name="n", path="p"))


test_exceptions = collected(__name__)


def test_tracebacks_of_equal_functions_of_two_files():
    """Equal code of another file is no reason to show that one."""
    source = "def f(x):\n    try:\n        raise ValueError('here')\n    except ValueError as error:\n        return x + 1, error\n"
    for name in ("one.py", "another.py"):
        scope: dict = {}
        exec(compile(source, name, "exec"), scope)
        error = dg.compile(scope["f"])(four())[1]
        assert [f.filename for f in traceback.extract_tb(error.__traceback__)] == [name]
