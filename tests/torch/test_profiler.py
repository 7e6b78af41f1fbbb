"""torch.profiler: which operations it sees, times that nest, schedules, tables and trace files."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch.autograd import profiler as autograd_profiler
from dynagraph.torch.profiler import ProfilerAction, profile, record_function, schedule, tensorboard_trace_handler


def counts(events) -> dict[str, int]:
    return {row.key: row.count for row in events.key_averages()}


def test_operations_forward_and_backward_are_counted():
    x = torch.ones(3, requires_grad=True)
    with profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        (x.exp() * x.exp()).sum().backward()
    found = counts(prof)
    assert (found["exp"], found["ExpBackward0"], found["MulBackward0"]) == (2, 2, 1)
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp(2), rtol=1e-6)
    before = len(prof.events())
    x.exp()
    assert len(prof.events()) == before  # nobody looks any more


def test_times_nest():
    with profile() as prof, record_function("outer"):
        time.sleep(0.002)
        with record_function("inner"):
            torch.ones(3).exp()
    outer, inner, exp = (next(e for e in prof.events() if e.name == name) for name in ("outer", "inner", "exp"))
    assert outer.begin <= inner.begin <= exp.begin <= exp.end <= inner.end <= outer.end
    assert outer.self_cpu_time_total >= 2000
    assert outer.self_cpu_time_total + inner.cpu_time_total == pytest.approx(outer.cpu_time_total)
    assert prof.events().self_cpu_time_total == pytest.approx(outer.cpu_time_total)


def test_shapes_and_the_table():
    with profile(record_shapes=True) as prof:
        for n in (2, 3, 3):
            torch.ones(n, 2).exp()
    rows = {str(row.input_shapes): row.count for row in prof.key_averages(group_by_input_shape=True) if row.key == "exp"}
    assert rows == {"[[2, 2]]": 1, "[[3, 2]]": 2}
    text = prof.key_averages().table(sort_by="cpu_time_total", row_limit=1)
    assert text.splitlines()[1].split("  ")[-1].strip() == "# of Calls"
    assert len([line for line in text.splitlines() if "%" in line]) == 2  # the titles and a row
    assert "CUDA" not in text and "Mem" not in text


def test_a_schedule():
    action = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    none, warmup, record, save = ProfilerAction
    assert [action(step) for step in range(7)] == [none, none, warmup, record, save, none, none]
    seen = []
    with profile(schedule=schedule(wait=1, warmup=0, active=2), on_trace_ready=lambda prof: seen.append(counts(prof))) as prof:
        for step in range(6):
            for _ in range(step):
                torch.ones(1).exp()
            prof.step()
    assert [each["exp"] for each in seen] == [1 + 2, 4 + 5]
    assert {"ProfilerStep#1", "ProfilerStep#2"} <= set(seen[0])


def test_trace_files(tmp_path):
    with profile(on_trace_ready=tensorboard_trace_handler(str(tmp_path / "logs"), "me")) as prof:
        prof.add_metadata("who", "me")
        torch.ones(3).exp()
    (path,) = (tmp_path / "logs").glob("me.*.pt.trace.json")
    trace = json.loads(path.read_text())
    assert trace["who"] == "me"
    (event,) = (event for event in trace["traceEvents"] if event["name"] == "exp")
    assert event["ph"] == "X" and event["dur"] > 0 and event["cat"] == "cpu_op"


def test_compiled_functions_are_the_same_with_and_without():
    @dg.compile
    def f(x):
        with record_function("region"):
            return x.exp() + 1

    x = torch.ones(3)
    with profile():
        inside = f(x)
    compiled = f.stats.compiles
    np.testing.assert_array_equal(f(x).numpy(), inside.numpy())
    assert f.stats.compiles == compiled and not f.stats.breaks
    np.testing.assert_allclose(inside.numpy(), np.exp(1) + 1, rtol=1e-6)


def test_one_at_a_time_and_none_where_it_is_not_enabled():
    with profile(), pytest.raises(RuntimeError, match="already enabled"):
        profile().start()
    with autograd_profiler.profile(enabled=False) as prof:
        torch.ones(1).exp()
    assert not prof.events()
    with autograd_profiler.profile() as prof:
        torch.ones(1).exp()
    assert counts(prof)["exp"] == 1
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=0, warmup=0, active=0)


def test_an_operation_that_raises_is_its_own_error():
    with profile(), pytest.raises(RuntimeError):
        torch.ones(2) + torch.ones(3)
    assert torch.ones(2).sum() == 2
