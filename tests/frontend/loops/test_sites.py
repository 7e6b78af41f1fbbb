"""What an attempt to compile a loop finds out of its lists is not found out once more."""

import pytest

import dynagraph as dg
from dynagraph.driver import deadline
from dynagraph.driver.compilation import Compilation
from dynagraph.frontend.loops import capture
from dynagraph.frontend.loops.sites import Sites
from dynagraph.frontend.loops.types import FLOAT, INT, List, Tuple
from dynagraph.frontend.loops.unions import Either, common

MIXED = common(FLOAT, INT)


@pytest.fixture
def made(monkeypatch):
    """The attempts."""
    found = []

    class Counted(capture.Maker):
        def __init__(self, *args):
            found.append(args)
            super().__init__(*args)

    monkeypatch.setattr(capture, "Maker", Counted)
    return found


def rows(n, turns):
    def a(i, j):
        return 1.0 / (i + j + 1)

    u = [1.0] * n
    v = u
    for _ in range(turns):
        v = []
        for i in range(n):
            v.append(sum(a(i, j) * u[j] for j in range(n)))
        u = []
        for i in range(n):
            u.append(sum(a(j, i) * v[j] for j in range(n)))
    return u, v


def pairs(n):
    found, k = [], 0
    while k < n:
        inner = []
        for j in range(k):
            inner.append(j * 0.5)
            if j == 3:
                inner.append(j)
        found.append(inner)
        k += 1
    return found


@pytest.mark.parametrize(("function", "args"), [(rows, (12, 9)), (rows, (0, 20)), (pairs, (30,))])
def test_results_are_the_same(function, args):
    got, want = dg.compile(function)(*args), function(*args)
    assert repr(got) == repr(want)


def test_the_last_attempt_of_a_capture_begins_where_the_first_one_ended(made):
    compiled = dg.compile(rows)
    assert repr(compiled(12, 9)) == repr(rows(12, 9))
    assert not compiled.stats.side_exits
    heads = [maker[0].ip for maker in made]
    last = heads[-1]
    assert len([ip for ip in heads if ip == last]) <= 5  # of which one is made anew as the other head was tried before


@pytest.mark.filterwarnings("ignore::dynagraph.CompileBudgetWarning")
def test_an_attempt_whose_deadline_came_is_gone_on_with(made, monkeypatch):
    given, plain = [], Compilation._capture

    def late(self, function, values, learned, gives_up_at):
        given.append(dict(learned))
        captured = plain(self, function, values, learned, gives_up_at)
        if len(given) == 1:
            raise deadline.OutOfTime
        return captured

    monkeypatch.setattr(Compilation, "_capture", late)
    with dg.config.override(compile_budget=None):
        compiled = dg.compile(pairs)
        assert repr(compiled(30)) == repr(pairs(30))
        n = len(made)
        for _ in range(3):
            assert repr(compiled(30)) == repr(pairs(30))
    assert len(given) == 2 and not given[0] and any(given[1].values())
    assert len(made) - n < n


# -- what is kept --------------------------------------------------------------------------------------------------------

HERE, THERE, GIVEN = ((1, 2),), ((1, 5),), (7, 0)


def test_types_of_the_first_list_alone_are_taken():
    sites = Sites()
    sites.learn([(HERE, FLOAT), (THERE, INT), (HERE, INT)])
    assert sites == {HERE: MIXED}
    sites.learn([(THERE, INT)])
    assert sites == {HERE: MIXED, THERE: INT}


def test_what_has_no_common_type_is_left():
    sites = Sites()
    sites.learn([(HERE, Tuple((INT,))), (HERE, FLOAT)])
    assert sites == {HERE: Tuple((INT,))}


def test_narrowed_to_what_came_first():
    sites = Sites()
    assert not sites.narrowed()
    sites.learn([(HERE, FLOAT), (HERE, INT)])
    sites.learn([(THERE, List(MIXED, HERE))])
    assert sites.narrowed()
    assert sites == {HERE: FLOAT} and not sites.widens
    assert isinstance(MIXED, Either) and not sites.narrowed()


def test_values_of_another_attempt_are_forgotten():
    sites = Sites()
    sites.learn([(HERE, FLOAT)])
    sites.learn([(GIVEN, INT)])
    sites.forget_values()
    assert sites == {HERE: FLOAT} == sites.first
