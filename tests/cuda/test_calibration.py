"""What is measured of a machine, on one whose speeds are known, for its programs only let time pass; then kept, and used."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import dynagraph as dg
from dynagraph.backends import calibration, kernel_cache
from dynagraph.backends import measured_machine as machine_module
from dynagraph.backends.calibration import Figures, measure
from dynagraph.backends.cuda import driver
from dynagraph.backends.cuda.backend import lower_graph
from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.measured_machine import Identity, as_json, from_json, identity, keep, kept_figures, machine_here, machine_of
from dynagraph.backends.registry import BACKENDS, backends_here, get_backend
from dynagraph.errors import PlacementError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.loops import Kernel
from dynagraph.ir.machine_model import CLASSES, CPU, H200, Device, Link, on_paper
from dynagraph.ir.passes.estimate import seconds_on
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.tools.cli import main
from dynagraph.tools.doctor import check_costs
from tests.cuda.device import QueuedDevice
from tests.cupy_arrays.conftest import real_cupy

TRUE_CPU = replace(
    CPU, bandwidth=17e9, launch_seconds=0.4e-6, call_seconds=7e-6,
    additions={"float16": 1e9, "float32": 40e9, "float64": 20e9, "integer": 15e9},
    products={"float16": 3e9, "float32": 200e9, "float64": 90e9, "integer": 10e9},
)  # fmt: skip
TRUE_GPU = replace(
    H200, bandwidth=3.9e12, launch_seconds=7e-6,
    additions={"float16": 21e12, "float32": 27e12, "float64": 14e12, "integer": 12e12},
    products={"float16": 610e12, "float32": 48e12, "float64": 52e12, "integer": 2e12},
)  # fmt: skip
LINKS = {
    ("cpu", "cuda:0"): Link(11e9, 20e-6), ("cuda:0", "cpu"): Link(8e9, 30e-6), ("cpu", "cuda:1"): Link(9e9, 25e-6),
    ("cuda:1", "cpu"): Link(7e9, 35e-6), ("cuda:0", "cuda:1"): Link(300e9, 9e-6), ("cuda:1", "cuda:0"): Link(280e9, 8e-6),
}  # fmt: skip


# -- machines whose speeds are known ----------------------------------------------------------------------------------------------
class Time:
    """The time of a machine without devices: what runs lets it pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls = 0

    def pass_(self, seconds: float) -> None:
        self.now += seconds

    def __call__(self) -> float:
        return self.now


def kernels_of(graph: Graph) -> list[list[Node]]:
    """The nodes behind each output, which have none in common."""

    def behind(node: Node) -> set[Node]:
        found, waiting = {node}, [node]
        while waiting:
            new = {a for a in waiting.pop().args if a.kind == "call_function"} - found
            found |= new
            waiting += new
        return found

    return [[n for n in graph.nodes if n in inside] for inside in map(behind, graph.outputs)]


def timed_host(true: Device, time: Time, jitter: Callable[[int], float] = lambda call: 1.0) -> Backend:
    """A backend whose programs take what a device of these numbers takes."""

    def backend(graph: Graph) -> Executable:
        seconds = sum(seconds_on(nodes, true) for nodes in kernels_of(graph))

        def call(*arrays: np.ndarray) -> tuple[()]:
            assert [a.shape for a in arrays] == [n.shape for n in graph.placeholders]
            time.calls += 1
            time.pass_(seconds * jitter(time.calls))
            return ()

        return Executable(call)

    return backend


def close(found: Mapping[str, Any], true: Device | Link, within: float = 0.02) -> None:
    for name, value in found.items():
        assert value == pytest.approx(getattr(true, name), rel=within), name


def test_the_numbers_of_a_processor_are_found() -> None:
    time = Time()
    figures = measure({"cpu": timed_host(TRUE_CPU, time)}, time)
    close(figures.devices["cpu"], TRUE_CPU)
    assert figures.devices["cpu"].keys() == {"bandwidth", "launch_seconds", "call_seconds", "additions", "products"}
    assert not figures.links and figures.seconds == time.now < 0.5


def test_samples_that_something_else_has_disturbed_do_not_matter() -> None:
    time, rng = Time(), random.Random(0)
    figures = measure({"cpu": timed_host(TRUE_CPU, time, lambda call: 10.0 if rng.random() < 0.1 else 1.0)}, time)
    rates = {k: v for k, v in figures.devices["cpu"].items() if k != "launch_seconds" and k != "call_seconds"}
    close(rates, TRUE_CPU, within=0.05)


def test_the_first_round_warms_up() -> None:
    time = Time()
    seen: set[str] = set()

    def cold(graph: Graph) -> Executable:
        program = timed_host(TRUE_CPU, time)(graph)

        def call(*arrays: np.ndarray) -> tuple[()]:
            time.pass_(0.0 if id(graph) in seen else 1e-2)
            seen.add(id(graph))  # type: ignore[arg-type]
            return program(*arrays)  # type: ignore[return-value]

        return Executable(call)

    close(measure({"cpu": cold}, time).devices["cpu"], TRUE_CPU)


def test_a_slow_processor_is_measured_in_fewer_rounds() -> None:
    slow = replace(TRUE_CPU, **{
        what: {name: rate / 30 for name, rate in getattr(TRUE_CPU, what).items()} for what in ("additions", "products")
    })  # fmt: skip
    time, fast = Time(), Time()
    found = measure({"cpu": timed_host(slow, time)}, time).devices["cpu"]
    close({what: found[what] for what in ("additions", "products")}, slow)
    measure({"cpu": timed_host(TRUE_CPU, fast)}, fast)
    assert time.calls < fast.calls
    assert time.calls * 4 == fast.calls  # one to warm up, and one of seven


@pytest.fixture
def timed(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, whose steps take no time but for copies; what is measured there is small, for it is really copied."""
    small = {"float16": (256, 1024), "float32": (256, 1024), "float64": (256, 1024), "integer": (64, 256, 1024)}
    sizes = {"DEVICE_PRODUCTS": small, "DEVICE_ELEMENTS": 1 << 17, "DEVICE_BYTES": 1 << 20, "LINK_BYTES": (512, 1 << 20)}
    for name, value in sizes.items():
        monkeypatch.setattr(calibration, name, value)
    fake.machine.tick = 0.0
    fake.machine.copy_milliseconds = lambda source, target, size: (
        2e3 * size / TRUE_GPU.bandwidth if source == target else 1e3 * LINKS[source, target].seconds(size)
    )
    return fake.machine


def timed_device(machine: Any, number: int, true: Device) -> Backend:
    def backend(graph: Graph) -> Executable:
        kernels = kernels_of(graph)
        seconds = sum(seconds_on(nodes, replace(true, launch_seconds=0.0)) for nodes in kernels)

        def spend() -> None:
            machine.milliseconds += 1e3 * seconds

        def call(*arrays: Any) -> tuple[()]:
            assert all(a.device.id == number == machine.thread.device for a in arrays)
            machine.milliseconds += 1e3 * true.launch_seconds * len(kernels)  # of the host's time
            machine.queue_of(machine.cuda.get_current_stream()).add(spend)
            return ()

        return Executable(call)

    return backend


def timed_backends(machine: Any, gpus: Sequence[Device]) -> tuple[dict[str, Backend], Callable[[], float]]:
    time = Time()
    time.pass_ = lambda seconds: setattr(machine, "milliseconds", machine.milliseconds + 1e3 * seconds)  # type: ignore[method-assign]
    backends = {"cpu": timed_host(TRUE_CPU, time)}
    return backends | {f"cuda:{k}": timed_device(machine, k, gpu) for k, gpu in enumerate(gpus)}, lambda: machine.milliseconds / 1e3


def test_the_numbers_of_devices_and_links_are_found(timed: Any) -> None:
    other = replace(TRUE_GPU, products={name: rate / 50 for name, rate in TRUE_GPU.products.items()}, launch_seconds=4e-6)
    backends, clock = timed_backends(timed, [TRUE_GPU, other])
    figures = measure(backends, clock)
    close(figures.devices["cpu"], TRUE_CPU)
    for name, true in (("cuda:0", TRUE_GPU), ("cuda:1", other)):
        close({**figures.devices[name], "memory": true.memory}, true)
        assert figures.devices[name]["memory"] == 1 << 30
    assert figures.links.keys() == LINKS.keys()
    for pair, link in LINKS.items():
        close(figures.links[pair], link)
    assert figures.pinned.keys() == {pair for pair in LINKS if "cpu" in pair}
    for pair, row in figures.pinned.items():
        close(row, LINKS[pair])
    assert figures.seconds == pytest.approx(clock()) and clock() < 2.0
    assert timed.peers == {(0, 1), (1, 0)}


def test_nothing_is_left_behind_on_devices(timed: Any) -> None:
    backends, clock = timed_backends(timed, [TRUE_GPU, TRUE_GPU])
    measure(backends, clock)
    assert [dg.cuda.memory_allocated(k) for k in range(2)] == [0, 0] and not timed.streams


def test_the_first_call_measures_and_runs(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By programs of the backends, on the emulator: their times say nothing."""
    small = dict.fromkeys(CLASSES, 16)
    sizes = {
        "DEVICE_PRODUCTS": dict.fromkeys(CLASSES, (8, 16)), "DEVICE_ELEMENTS": 1 << 9, "DEVICE_BYTES": 1 << 10, "CHAINS": 1,
        "LINK_BYTES": (64, 1 << 12), "HOST_PRODUCTS": small, "HOST_ELEMENTS": 1 << 9, "HOST_BYTES": 1 << 12,
    }  # fmt: skip
    for name, value in sizes.items():
        monkeypatch.setattr(calibration, name, value)
    emulated = QueuedDevice(fake)
    driver.install(fake, emulated)
    with dg.config.override(measure_devices=True):
        assert "by costs measured" in compiled_placement()
    driver.install(fake, None)
    assert emulated.launches > 100 and [dg.cuda.memory_allocated(k) for k in range(2)] == [0, 0]
    figures = kept_figures(identity())
    assert figures is not None and figures.devices.keys() == {"cpu", "cuda:0", "cuda:1"} and figures.seconds > 0


def test_this_machine_is_measured() -> None:
    """Whatever it is: with its GPUs, where it has some."""
    real = real_cupy()
    figures = measure(backends_here() if real is not None else {"cpu": get_backend("cpu")})
    machine = machine_of(identity() if real is not None else replace(HERE, gpus=()), figures)
    assert machine.names == tuple(figures.devices) and figures.seconds > 0
    for device in machine.devices:
        slowest, fastest = (1e8, 1e13) if device.kind == "cpu" else (1e10, 1e16)
        rates = [device.bandwidth, device.additions["float32"], device.additions["float64"], device.products["float32"]]
        assert all(slowest < rate < fastest for rate in rates) and 1e-9 <= device.launch_seconds < 1e-3
    assert all(1e8 < row["bandwidth"] < 1e13 and 1e-7 < row["latency"] < 1e-2 for row in figures.links.values())


def test_devices_of_one_name_are_equal(timed: Any, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = fake.cuda.runtime.getDeviceProperties
    monkeypatch.setattr(fake.cuda.runtime, "getDeviceProperties", lambda device: {**properties(device), "name": b"same"})

    def refuse(graph: Graph) -> Executable:
        raise AssertionError("the second was measured")

    backends, clock = timed_backends(timed, [TRUE_GPU])
    figures = measure({**backends, "cuda:1": refuse}, clock)
    assert figures.devices["cuda:1"] == figures.devices["cuda:0"]


@pytest.mark.parametrize("name", CLASSES)
def test_arithmetic_is_one_kernel_in_which_nothing_is_saved(name: str) -> None:
    for chains in (1, calibration.CHAINS):
        graph = calibration._arithmetic(name, 4096, chains, "cupy")
        (amount,) = {calibration._amounts({}, 1, chains)["additions", name]}
        simple = run_passes(graph)
        calls = [node for node in simple.nodes if node.kind == "call_function" and not node.is_op("cast")]
        assert amount - 6 <= len(calls) <= amount  # two of the chains begin alike
        assert len([s for s in lower_graph(simple).steps if isinstance(s, Kernel)]) == 1


def test_each_small_copy_is_a_kernel() -> None:
    graph = run_passes(calibration._negatives(range(8, 16), "cupy"))
    assert len([s for s in lower_graph(graph).steps if isinstance(s, Kernel)]) == 8


def test_operands_keep_values_normal() -> None:
    """Arithmetic with infinities or denormals may take another time."""
    for name in CLASSES:
        graph = calibration._arithmetic(name, 16, calibration.CHAINS, "numpy")
        (result,) = dg.backends.reference.reference(graph)(*calibration._operands(graph))
        assert np.all(np.isfinite(result)) and (name == "integer" or np.all(np.abs(result) > 0.1))


# -- figures that are kept --------------------------------------------------------------------------------------------------------
SOME = Figures(
    {"cpu": {"bandwidth": 2e10}, "cuda:0": {"bandwidth": 1e12}, "cuda:1": {"bandwidth": 2e12}},
    {("cpu", "cuda:0"): {"bandwidth": 1e10, "latency": 1e-5}}, {("cpu", "cuda:0"): {"bandwidth": 5e10, "latency": 1e-6}}, 1.5,
)  # fmt: skip
HERE = Identity("some processor", 4, (("a GPU", "00"), ("a GPU", "01")), 13000)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(machine_module, "_measured", {})
    monkeypatch.setattr(machine_module, "_failed", set())
    with dg.config.override(cache_dir=str(tmp_path / "kept")):
        yield tmp_path / "kept"


def test_figures_are_kept_for_the_machine_that_they_are_of(folder: Path) -> None:
    assert kept_figures(HERE) is None
    assert keep(HERE, SOME) and kept_figures(HERE) == SOME
    others = [
        replace(HERE, processor="another"), replace(HERE, threads=2), replace(HERE, driver=13010),
        replace(HERE, gpus=HERE.gpus[:1]), replace(HERE, gpus=(("a GPU", "00"), ("a GPU", "02"))),
    ]  # fmt: skip
    assert [kept_figures(other) for other in others] == [None] * 5
    (file,) = (f for f in folder.iterdir() if f.suffix == ".figures")
    assert file.stat().st_mode & 0o777 == 0o600


def test_another_format_makes_figures_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    keep(HERE, SOME)
    monkeypatch.setattr(machine_module, "FORMAT", machine_module.FORMAT + 1)
    assert kept_figures(HERE) is None


def test_figures_are_no_kernels() -> None:
    keep(HERE, SOME)
    cache = kernel_cache.cache()
    assert cache.info().entries == 0 and cache.clear() == 0
    assert kept_figures(HERE) == SOME


def test_what_cannot_be_trusted_is_not_read(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    keep(HERE, SOME)
    (file,) = (f for f in folder.iterdir() if f.suffix == ".figures")
    good = file.read_bytes()
    file.write_bytes(good.replace(b"bandwidth", b"bandwidtH", 1))
    assert kept_figures(HERE) is None and "is damaged" in caplog.text
    file.write_bytes(good)
    assert kept_figures(HERE) == SOME
    file.chmod(0o622)
    assert kept_figures(HERE) is None and "is not a file that is private to this user" in caplog.text


@pytest.mark.parametrize("wrong", [
    b"not JSON", b"[]", b"{}", json.dumps({**as_json(SOME), "devices": {"cpu": {"bandwidth": -1.0}}}).encode(),
    json.dumps({**as_json(SOME), "devices": {"cuda:7": {}}}).encode(), json.dumps({**as_json(SOME), "links": [["cpu"]]}).encode(),
])  # fmt: skip
def test_figures_that_are_none_are_not_used(wrong: bytes, caplog: pytest.LogCaptureFixture) -> None:
    kernel_cache.cache().store(HERE.key, wrong, machine_module.SUFFIX)
    assert kept_figures(HERE) is None and "figures of this machine are not understood" in caplog.text


def test_a_folder_that_cannot_be_used_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with dg.config.override(cache_dir=str(tmp_path / "file")):
        assert not keep(HERE, SOME) and kept_figures(HERE) is None


def test_figures_come_through_json() -> None:
    assert from_json(json.loads(json.dumps(as_json(SOME)))) == SOME


def test_a_machine_has_the_figures_and_says_so() -> None:
    machine = machine_of(HERE, SOME)
    assert machine.origin == "measured" and machine.names == ("cpu", "cuda:0", "cuda:1")
    assert machine.device("cuda:1").bandwidth == 2e12 and machine.device("cuda:1").products == H200.products
    assert machine.link("cpu", "cuda:0") == Link(1e10, 1e-5)
    paper = machine_of(HERE, None)
    assert paper.origin == "on paper" and paper == on_paper(count=2)


def test_a_machine_says_what_it_is(fake: Any) -> None:
    found = identity()
    assert found.gpus == (("Stand-in 0", "00" * 16), ("Stand-in 1", "01" * 16)) and found.driver == 13000
    assert found.processor and found.threads == dg._core._dispatch.get_threads()


# -- and used ---------------------------------------------------------------------------------------------------------------------
@pytest.fixture
def measured(fake: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What was measured: nothing of the stand-in's, but `SOME`."""
    asked: list[Any] = []

    def noted(backends: Mapping[str, Backend]) -> Figures:
        asked.append(sorted(backends))
        return SOME

    monkeypatch.setattr(machine_module, "measure", noted)
    driver.install(fake, QueuedDevice(fake))
    with dg.config.override(measure_devices=True):
        yield asked
    driver.install(fake, None)


def compiled_placement(device: str = "auto") -> str:
    f = dg.compile(lambda x: np.tanh(x) + 1, device=device, fullgraph=True)
    np.testing.assert_allclose(f(np.ones(5)), np.tanh(np.ones(5)) + 1)
    return str(f.programs[0].executable.artifacts["placement"])


def test_the_first_compilation_measures(measured: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        assert compiled_placement().startswith("placed on cpu, cuda:0, cuda:1 by costs measured: ")
    assert measured == [["cpu", "cuda:0", "cuda:1"]]
    monkeypatch.setattr(machine_module, "_measured", {})  # as in another process
    assert "costs measured" in compiled_placement() and len(measured) == 1


def test_other_backends_and_modes_are_placed_by_the_usual_ones(measured: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Mapping[str, Backend]] = []
    monkeypatch.setattr(machine_module, "measure", lambda backends: given.append(backends) or SOME)
    f = dg.compile(lambda x: np.tanh(x) + 1, device="auto", backend="reference", mode="fast", fullgraph=True)
    f(np.ones(5))
    (backends,) = given
    assert backends["cpu"] is BACKENDS["cpu"] and "costs measured" in f.programs[0].executable.artifacts["placement"]


def test_without_a_folder_a_process_measures_once(measured: list[Any]) -> None:
    with dg.config.override(cache=False):
        for _ in range(2):
            assert "costs measured" in compiled_placement()
    assert len(measured) == 1


def test_measuring_can_be_switched_off(measured: list[Any]) -> None:
    with dg.config.override(measure_devices=False):
        assert compiled_placement().startswith("placed on cpu, cuda:0, cuda:1 by costs on paper: ")
        keep(identity(), SOME)
        assert "costs measured" in compiled_placement()  # what is there is used
    assert measured == []


def test_nothing_else_measures(measured: list[Any]) -> None:
    assert "costs on paper" in compiled_placement("cuda:1")
    dg.compile(lambda x: x + 1)(np.ones(3))
    assert machine_here().origin == "on paper"
    assert measured == []


def test_a_machine_without_a_device_is_never_measured(measured: list[Any], machine: Any) -> None:
    machine.status = 100
    assert machine_here({"cpu": backends_here()["cpu"]}) == on_paper(count=0) and measured == []
    machine.status = 0


def test_what_cannot_be_measured_is_placed_by_paper(
    measured: list[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(backends: Mapping[str, Backend]) -> Figures:
        measured.append("asked")
        raise MemoryError("the device is full")

    monkeypatch.setattr(machine_module, "measure", broken)
    for _ in range(2):
        assert "costs on paper" in compiled_placement()
    assert measured == ["asked"] and "were not measured; devices are chosen by data sheets: MemoryError" in caplog.text


def test_numbers_that_cannot_be_are_not_kept(measured: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "measure", lambda backends: replace(SOME, devices={"cpu": {"bandwidth": 0.0}}))
    assert "costs on paper" in compiled_placement() and kept_figures(identity()) is None
    with pytest.raises(PlacementError, match="bandwidth must be a number above 0"):
        machine_module.measure_here({})


def test_faster_links_bring_work_to_devices(measured: list[Any]) -> None:
    """The same function, by figures of two machines."""
    x = np.ones((300, 300))
    for latency, expected in ((1.0, {"cpu"}), (0.0, {"cuda:0"})):
        links = {("cpu", f"cuda:{k}"): {"latency": latency, "bandwidth": 1e15} for k in range(2)}
        slow = {"products": dict.fromkeys(CLASSES, 1e6), "additions": dict.fromkeys(CLASSES, 1e6)}
        keep(identity(), Figures({"cpu": slow}, links))
        f = dg.compile(lambda x: np.tanh(x) * x, device="auto", fullgraph=True)
        np.testing.assert_allclose(f(x), np.tanh(x) * x)
        rows = f.programs[0].executable.artifacts["placement"].split("segment  device")[1].splitlines()[1:]
        assert {row.split()[1] for row in rows} == expected


# -- for people -------------------------------------------------------------------------------------------------------------------
def test_the_command_measures_keeps_and_shows(measured: list[Any]) -> None:
    run = CliRunner().invoke
    missing = run(main, ["measure", "--kept"])
    assert missing.exit_code == 1 and "Error: nothing was measured on this machine: `dynagraph measure` does it" in missing.output
    for _ in range(2):
        shown = run(main, ["measure"])
        assert shown.exit_code == 0, shown.output
    assert len(measured) == 2  # each time anew
    assert "; cuda:0 is Stand-in 0; cuda:1 is Stand-in 1; measured in 1.5 s" in shown.output
    lines = [line.split() for line in shown.output.splitlines()]
    assert ["cpu", "cuda:0", "10", "us", "10", "GB/s", "50", "GB/s"] in lines
    assert run(main, ["measure", "--kept"]).output == shown.output
    assert from_json(json.loads(run(main, ["measure", "--json", "--kept"]).output)) == SOME


def test_the_doctor_knows_whether_costs_are_measured(measured: list[Any]) -> None:
    assert (check_costs().status, check_costs().finding) == ("note", "on paper, of an H200")
    keep(identity(), SOME)
    assert check_costs().status == "ok" and "measured on this machine, cpu, cuda:0, cuda:1" in check_costs().finding
    assert measured == []


def test_without_a_gpu_there_is_nothing_to_place_on(machine: Any) -> None:
    machine.status = 100
    assert check_costs().finding == "not needed: there is no GPU to place programs on"
    machine.status = 0


def test_the_command_says_why_nothing_could_be_measured(measured: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(backends: Mapping[str, Backend]) -> Figures:
        raise MemoryError("the device is full")

    monkeypatch.setattr(machine_module, "measure", broken)
    result = CliRunner().invoke(main, ["measure"])
    assert result.exit_code == 1 and "Error: this machine could not be measured: the device is full" in result.output


def test_dumps_are_of_this_machine_where_it_has_a_gpu(measured: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text("import numpy as np\ndef f(x):\n    return np.tanh(x)\n")
    shown = CliRunner().invoke(main, ["dump", f"{file}:f", "--shapes", "f32[8]", "--placement"]).output
    assert "placed on cpu, cuda:0, cuda:1 by costs on paper" in shown and measured == []
    keep(identity(), SOME)
    shown = CliRunner().invoke(main, ["dump", f"{file}:f", "--shapes", "f32[8]", "--placement"]).output
    assert "placed on cpu, cuda:0, cuda:1 by costs measured" in shown
