"""Modules that answer for parts of PyTorch that there are not: version, jit, backends, library, compiler, hub and others."""

from __future__ import annotations

import collections
import hashlib
import importlib
import math
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as own
from dynagraph.torch.torch_version import TorchVersion
from dynagraph.torch.utils import _pytree

Point = collections.namedtuple("Point", "x y")

# -- version ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["2.13.0+dynagraph", "2.13.0", "2.9.1", "1.0.0rc1", "2.13", "2.13.0.dev20260101", "2.0a2"])
@pytest.mark.parametrize(
    "other", ["2.13", "2.13.0", "2.9", "2.13.1", "1.0", "2.13.0+dynagraph", (2, 13), (2, 9, 1), "1.0.0rc2", "2.0b1"]
)
def test_versions_compare_as_pytorchs(text: str, other: Any) -> None:
    theirs = pytest.importorskip("torch").torch_version.TorchVersion
    for compare in (lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a == b, lambda a, b: a > b, lambda a, b: a >= b):
        assert compare(TorchVersion(text), other) == compare(theirs(text), other)


def test_versions_are_strings() -> None:
    assert own.__version__ >= "2.9" and own.__version__ > (2, 0) and own.__version__.split(".")[:2] == ["2", "13"]
    assert own.version.cuda is None and own.version.hip is None and own.version.__version__ is own.__version__
    assert own.__version__ in {own.__version__: 1} and (own.__version__ == "x") is False


# -- testing ----------------------------------------------------------------------------------------------------------

NAN, INF = math.nan, math.inf
COMPARED: list[tuple[str, Callable[[Any], tuple[Any, Any]], dict[str, Any]]] = [
    ("one of three", lambda t: (t.tensor([1.0, 2, 3]), t.tensor([1.0, 2.1, 3])), {}),
    ("close", lambda t: (t.tensor([1.0, 2]), t.tensor([1.0, 2 + 1e-6])), {}),
    ("scalar tensors", lambda t: (t.tensor(1.0), t.tensor(1.1)), {}),
    ("floats", lambda t: (1.0, 1.1), {}),
    ("ints", lambda t: (1, 2), {}),
    ("by nothing", lambda t: (1, 0), {}),
    ("types of numbers", lambda t: (1.0, 1), {}),
    ("types may differ", lambda t: (1.0, 1), {"check_dtype": False}),
    ("complex numbers", lambda t: (1 + 1j, 1 + 2j), {}),
    ("numbers that are none", lambda t: (1.0, NAN), {}),
    ("bools", lambda t: (True, False), {}),
    ("dtypes", lambda t: (t.tensor([1.0]), t.tensor([1.0], dtype=t.float64)), {}),
    ("dtypes may differ", lambda t: (t.tensor([1.0, 2]), t.tensor([1, 3])), {"check_dtype": False}),
    ("shapes", lambda t: (t.ones(2), t.ones(3)), {}),
    ("strides", lambda t: (t.ones(2, 3).t(), t.ones(3, 2)), {"check_stride": True}),
    ("lists", lambda t: ([t.ones(1), t.ones(1)], [t.ones(1), 2 * t.ones(1)]), {}),
    ("nested", lambda t: ({"a": [1.0, (t.ones(1),)]}, {"a": [1.0, (t.zeros(1),)]}), {}),
    ("lengths", lambda t: ([1], [1, 2]), {}),
    ("keys", lambda t: ({"a": 1}, {"b": 1}), {}),
    ("integers", lambda t: (t.tensor([1, 2]), t.tensor([1, 3])), {}),
    ("small integers", lambda t: (t.tensor([250, 3], dtype=t.uint8), t.tensor([3, 250], dtype=t.uint8)), {}),
    ("bool tensors", lambda t: (t.tensor([True, True]), t.tensor([True, False])), {}),
    ("halves", lambda t: (t.tensor([1.0], dtype=t.float16), t.tensor([1.1], dtype=t.float16)), {}),
    ("complex tensors", lambda t: (t.tensor([1 + 1j]), t.tensor([1 + 2j])), {}),
    ("nan", lambda t: (t.tensor([NAN]), t.tensor([NAN])), {}),
    ("nan is nan", lambda t: (t.tensor([NAN, 1.0]), t.tensor([NAN, 1.0])), {"equal_nan": True}),
    ("inf", lambda t: (t.tensor([INF, -INF]), t.tensor([INF, -INF])), {}),
    ("inf and 1", lambda t: (t.tensor([1.0, INF]), t.tensor([1.0, 1.0])), {}),
    ("matrix", lambda t: (t.tensor([[1.0, 2], [3, 4]]), t.tensor([[1.0, 2], [3.5, 4.2]])), {}),
    ("tolerances", lambda t: (t.tensor([1.0]), t.tensor([1.05])), {"rtol": 0.1, "atol": 0.0}),
    ("exactly", lambda t: (t.tensor([1.0]), t.tensor([1.1])), {"rtol": 0, "atol": 0}),
    ("one tolerance", lambda t: (t.ones(1), t.ones(1)), {"rtol": 1}),
    ("other tolerance", lambda t: (t.ones(1), t.ones(1)), {"atol": 1}),
    ("message", lambda t: (t.ones(1), t.zeros(1)), {"msg": "wrong"}),
    ("made message", lambda t: ([t.ones(1)], [t.zeros(1)]), {"msg": lambda m: "wrong: " + m}),
    ("arrays", lambda t: (np.array([1.0]), np.array([1.2])), {}),
    ("none", lambda t: (None, None), {}),
    ("none and 1", lambda t: (None, 1), {}),
    ("tensor and list", lambda t: (t.ones(2), [1.0, 1.0]), {}),
    ("tensor and float", lambda t: (t.ones(1), 1.0), {}),
    ("texts", lambda t: ("a", "a"), {}),
    ("empty", lambda t: (t.tensor([]), t.tensor([])), {}),
    ("tuple and list", lambda t: ((t.ones(1),), [t.ones(1)]), {}),
    ("that require gradients", lambda t: (t.ones(1, requires_grad=True), t.zeros(1)), {}),
]


def told(torch: Any, make: Callable[[Any], tuple[Any, Any]], options: dict[str, Any]) -> str:
    try:
        torch.testing.assert_close(*make(torch), **options)
    except (AssertionError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}".replace("dynagraph.torch.core.tensor.Tensor", "torch.Tensor")
    return ""


@pytest.mark.parametrize("name, make, options", COMPARED, ids=[row[0] for row in COMPARED])
def test_assert_close_says_what_pytorchs_says(name: str, make: Any, options: dict[str, Any]) -> None:
    assert told(own, make, options) == told(pytest.importorskip("torch"), make, options)


def test_tensors_to_test_with() -> None:
    for dtype in (own.bool, own.uint8, own.int32, own.float16, own.float32, own.complex64):
        made = own.testing.make_tensor(4, 5, dtype=dtype, device="cpu")
        assert made.dtype is dtype and made.shape == (4, 5)
    bounded = own.testing.make_tensor((1000,), dtype=own.float64, low=2, high=3)
    assert bounded.min() >= 2 and bounded.max() <= 3 and bounded.std() > 0.2
    apart = own.testing.make_tensor(3, 4, dtype=own.float32, noncontiguous=True, requires_grad=True)
    assert not apart.is_contiguous() and apart.requires_grad and apart.is_leaf
    assert (own.testing.make_tensor(200, dtype=own.int8, low=0, high=2, exclude_zero=True) != 0).all()
    with pytest.raises(ValueError, match="must be less than `high`"):
        own.testing.make_tensor(2, dtype=own.float32, low=3, high=2)
    with pytest.raises(ValueError, match="not supported for boolean and integral"):
        own.testing.make_tensor(2, dtype=own.int32, requires_grad=True)


# -- compile ----------------------------------------------------------------------------------------------------------


def test_compile_takes_pytorchs_arguments() -> None:
    def f(x: Any) -> Any:
        return x * 2 + 1

    x = own.arange(3.0)
    for options in (
        {}, {"mode": "reduce-overhead"}, {"mode": "max-autotune"}, {"fullgraph": False, "dynamic": True}, {"backend": "numpy"},
        {"options": {"max_autotune": True}}, {"name": "f", "recompile_limit": 3},
    ):  # fmt: skip
        compiled = own.compile(f, **options)
        assert compiled is not f and compiled(x).tolist() == [1.0, 3.0, 5.0]
    assert own.compile(f, disable=True) is f and own.compile(f, backend="eager") is f
    assert own.compile(mode="max-autotune")(f)(x).tolist() == [1.0, 3.0, 5.0]
    assert own.compile is own.compiler.compile


@pytest.mark.parametrize("options, error, text", [
    ({"mode": "fastest"}, RuntimeError, "Unrecognized mode=fastest, should be one of: default"),
    ({"backend": "nothing"}, RuntimeError, "Invalid backend: 'nothing', see `torch.compiler.list_backends()`"),
    ({"backend": lambda graph, inputs: graph}, RuntimeError, "backends of your own take PyTorch's FX graphs"),
    ({"options": {"unknown": 1}}, RuntimeError, "Unexpected optimization option unknown, known options are"),
    ({"mode": "default", "options": {"max_autotune": True}}, RuntimeError, "Either mode or options can be specified"),
    ({"dynamic": 3}, TypeError, "dynamic=3"),
])  # fmt: skip
def test_compile_refuses_what_it_does_not_know(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        own.compile(lambda x: x, **options)
    assert text in str(raised.value)


def test_what_steers_compiling() -> None:
    assert own.compiler.is_compiling() is False and own.compiler.is_dynamo_compiling() is False
    assert "inductor" in own.compiler.list_backends() and "eager" in own.compiler.list_backends(None)

    @own.compiler.disable
    def plain(x: Any) -> Any:
        return x

    @own.compiler.disable(recursive=False, reason="a test")
    def other(x: Any) -> Any:
        return x

    assert plain(1) == other(1) == 1
    own.compiler.reset()
    own._dynamo.reset()
    own._dynamo.config.suppress_errors = False
    with own.compiler.set_stance("force_eager"):
        assert own.compile(plain)(2) == 2
    with pytest.raises(TypeError, match="A callable function is expected"):
        own.compile(1)
    own._dynamo.mark_dynamic(own.ones(3), 0)


# -- jit --------------------------------------------------------------------------------------------------------------


def test_what_marks_functions_for_torchscript_gives_them_back() -> None:
    jit = own.jit

    def f(x: Any) -> Any:
        return x

    for mark in (
        jit.script, jit.ignore, jit.ignore(), jit.ignore(drop=True), jit.unused, jit.export, jit.script_if_tracing, jit.interface,
        jit._script_if_tracing, jit._overload, jit._overload_method, jit.freeze,
    ):  # fmt: skip
        assert mark(f) is f
    assert not jit.is_scripting() and not jit.is_tracing()
    assert jit.annotate(int, 3) == 3 and jit.isinstance([1], list[int]) and not jit.isinstance(1, (str, list[int]))
    assert jit.wait(jit.fork(f, 3)) == 3 and not isinstance(f, (jit.ScriptModule, jit.ScriptFunction))
    for refused in (jit.trace, jit.save, jit.load, jit.trace_module, jit.ScriptModule):
        with pytest.raises(RuntimeError, match=r"^torch\.jit\.\w+: dynagraph\.torch has no TorchScript"):
            refused(f)


# -- backends, accelerator, distributed -------------------------------------------------------------------------------


def test_flags_are_kept() -> None:
    cudnn = own.backends.cudnn
    assert not cudnn.is_available() and cudnn.version() is None and not cudnn.is_acceptable(own.ones(1))
    cudnn.benchmark = True
    with cudnn.flags(enabled=False, benchmark=False, deterministic=True):
        assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (False, False, True)
    assert (cudnn.enabled, cudnn.benchmark, cudnn.deterministic) == (True, True, False)
    before = cudnn.set_flags(_benchmark=False)
    assert before[:3] == (True, True, 10) and cudnn.benchmark is False
    matmul = own.backends.cuda.matmul
    matmul.allow_tf32 = True
    assert matmul.allow_tf32
    matmul.allow_tf32 = False
    with pytest.raises(AttributeError):
        matmul.no_such_flag = True
    with own.backends.cuda.sdp_kernel(enable_flash=False):
        assert not own.backends.cuda.flash_sdp_enabled() and own.backends.cuda.math_sdp_enabled()
    assert own.backends.cuda.flash_sdp_enabled()
    x = own.ones(1, 2, 3, 4)
    call = own.nn.attention.SDPAParams(x, x, x, None, 0.0, False, False)
    assert call.query is x and not call.enable_gqa and not own.backends.cuda.can_use_cudnn_attention(call)
    assert not own.nn.attention.can_use_flash_attention(call)
    with pytest.warns(UserWarning, match="memory efficient attention is not there"):
        assert not own.nn.attention.can_use_efficient_attention(call, debug=True)
    for part in ("mkl", "mkldnn", "mps", "openmp", "nnpack", "opt_einsum"):
        assert getattr(own.backends, part).is_available() is False
    assert own.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2", "AVX512") and own.backends.quantized.engine == "none"
    with own.backends.mkldnn.flags(enabled=False):
        assert own.backends.mkldnn.enabled is False


def test_there_is_an_accelerator_where_cupy_finds_one() -> None:
    found = own.accelerator.is_available()
    assert found == dg.cuda.is_available() and own.accelerator.device_count() == dg.cuda.device_count()
    assert own.accelerator.current_accelerator() == (own.device("cuda") if found else None)
    if not found:
        for call in (own.accelerator.synchronize, own.accelerator.current_device_index, own.accelerator.memory_allocated):
            with pytest.raises(RuntimeError, match=r"^Cannot access accelerator device when none is available\.$"):
                call()
    with own.accelerator.device_index(None):
        pass


def test_there_is_no_world_before_it_is_made() -> None:
    distributed = own.distributed
    assert distributed.is_available() and not distributed.is_initialized() and not distributed.is_ucc_available()
    with pytest.raises(ValueError, match=r"^Default process group has not been initialized, please"):
        distributed.get_rank()


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_of_the_process() -> None:
    threads = own.get_num_threads()
    with dg.config.override(threads=threads):
        own.set_num_threads(1)
        assert own.get_num_threads() == dg.config.threads == 1
    assert own.get_num_threads() == threads and own.get_num_interop_threads() == 1
    for wrong, text in ((0, "expects a positive integer"), ("a", "expects an int, but got str")):
        with pytest.raises(RuntimeError, match=f"^set_num_threads {text}$"):
            own.set_num_threads(wrong)
    own.use_deterministic_algorithms(True, warn_only=True)
    assert own.are_deterministic_algorithms_enabled() and own.get_deterministic_debug_mode() == 1
    own.set_deterministic_debug_mode("default")
    assert not own.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match="expected one of `default`, `warn`, `error`, but got x"):
        own.set_deterministic_debug_mode("x")
    with pytest.raises(TypeError, match="argument 'mode' must be bool, not int"):
        own.use_deterministic_algorithms(1)
    own.set_float32_matmul_precision("high")
    assert own.get_float32_matmul_precision() == "high"
    own.set_float32_matmul_precision("highest")
    assert own.set_flush_denormal(False) and not own.set_flush_denormal(True)
    assert own.is_storage(own.ones(1).untyped_storage()) and not own.is_storage(own.ones(1))


def test_names_of_types() -> None:
    assert own.typename(own.ones(1)) == "torch.FloatTensor" and own.typename(1) == "int" and own.typename(len) == "len"
    assert own.typename(own.autograd.Function).startswith("torch.autograd.")


# -- library ----------------------------------------------------------------------------------------------------------


def test_operators_of_ones_own() -> None:
    @own.library.custom_op("answers::scaled", mutates_args=())
    def scaled(x: own.Tensor, factor: float = 2.0) -> own.Tensor:
        return x * factor

    x = own.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"no autograd formula was registered.*register_autograd"):
        scaled(x).sum().backward()

    @scaled.register_fake
    def _(x: Any, factor: float = 2.0) -> Any:
        return own.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    scaled.register_autograd(lambda ctx, g: (g * ctx.factor, None), setup_context=setup)
    own.ops.answers.scaled(x, factor=3.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0] and scaled(x.detach()).tolist() == [2.0, 2.0]
    assert own.ops.answers.scaled.default(x).requires_grad and dir(own.ops.answers) == ["scaled"]
    with pytest.raises(AttributeError, match=r"^dynagraph\.torch has no operator torch\.ops\.answers\.other: nothing has"):
        own.ops.answers.other  # noqa: B018
    with pytest.raises(OSError, match=r"Could not load this library: x\.so"):
        own.ops.load_library("x.so")


def test_operators_by_schema() -> None:
    library = own.library.Library("answers", "FRAGMENT")
    library.define("halved(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match=r"Could not run 'answers::halved' on 'cpu'"):
        own.ops.answers.halved(own.ones(1))
    library.impl("halved", lambda x: x / 2, "CompositeImplicitAutograd")
    x = own.ones(1, requires_grad=True)
    own.ops.answers.halved(x).backward()
    assert x.grad.item() == 0.5
    own.library.define("answers::squared", "(Tensor x) -> Tensor")
    own.library.impl("answers::squared", "cpu", lambda x: x * x)
    assert own.ops.answers.squared(own.tensor(3.0)).item() == 9.0
    for wrong in ("no_namespace", "a::b::c", ""):
        with pytest.raises(ValueError, match="Expected `qualname` to be a string of the form 'namespace::name'"):
            own.library.custom_op(wrong, lambda x: x, mutates_args=())
    with pytest.raises(RuntimeError, match="could not parse dispatch key: Nowhere"):
        library.impl("halved", lambda x: x, "Nowhere")


# -- trees ------------------------------------------------------------------------------------------------------------

TREES = [
    1, None, [], (), {}, [1, (2, None)], {"a": 1, "b": [2, {"c": 3}]}, collections.OrderedDict(x=[1], y=2), Point(1, (2, 3)),
    collections.deque([1, 2], maxlen=3), collections.defaultdict(list, a=[1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=str)
def test_trees_are_those_of_pytorch(tree: Any) -> None:
    pytest.importorskip("torch")
    theirs = importlib.import_module("torch.utils._pytree")
    leaves, spec = _pytree.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0] and spec.unflatten(leaves) == tree and type(spec.unflatten(leaves)) is type(tree)
    assert spec.num_leaves == len(leaves) and spec == _pytree.tree_structure(tree)
    assert _pytree.tree_map(str, tree) == theirs.tree_map(str, tree)
    assert [_pytree.keystr(path) for path, _ in _pytree.tree_leaves_with_path(tree)] == [
        theirs.keystr(path) for path, _ in theirs.tree_leaves_with_path(tree)
    ]
    assert _pytree.tree_map_only(int, lambda x: x + 1, tree) == theirs.tree_map_only(int, lambda x: x + 1, tree)


@pytest.mark.parametrize("others", [((1, [2]), (1, 2)), ((1, 2), (1, 2, 3)), ({"a": 1}, {"b": 1}), ((1, 2), [1, 2])], ids=str)
def test_trees_that_differ_are_refused_as_pytorch_does(others: Any) -> None:
    pytest.importorskip("torch")
    theirs = importlib.import_module("torch.utils._pytree")
    texts = []
    for trees in (_pytree, theirs):
        with pytest.raises(ValueError) as raised:
            trees.tree_map(lambda a, b: a + b, *others)
        texts.append(str(raised.value).partition(", but got")[0])
    assert texts[0] == texts[1]


def test_containers_of_ones_own() -> None:
    class Pair:
        def __init__(self, a: Any, b: Any):
            self.parts = [a, b]

    _pytree.register_pytree_node(Pair, lambda p: (p.parts, None), lambda parts, _: Pair(*parts))
    assert _pytree.tree_leaves({"p": Pair(1, [2, 3])}) == [1, 2, 3]
    assert _pytree.tree_map(lambda x: x * 2, Pair(1, 2)).parts == [2, 4]
    with pytest.raises(ValueError, match="already registered as pytree node"):
        _pytree.register_pytree_node(Pair, lambda p: (p.parts, None), lambda parts, _: Pair(*parts))
    del _pytree.SUPPORTED_NODES[Pair]


# -- others -----------------------------------------------------------------------------------------------------------


def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "weights-x.pth", tmp_path / "there"
    source.write_bytes(b"weights" * 1000)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    own.hub.download_url_to_file(source.as_uri(), str(target), hash_prefix=digest[:8], progress=False)
    assert target.read_bytes() == source.read_bytes()
    with pytest.raises(RuntimeError, match="invalid hash value"):
        own.hub.download_url_to_file(source.as_uri(), str(tmp_path / "wrong"), hash_prefix="0000", progress=False)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["there", "weights-x.pth"]
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("dynagraph.torch.hub._directory", None)  # set_dir's is put back
    assert own.hub.get_dir() == str(tmp_path / "hub")
    own.hub.set_dir(tmp_path / "other")
    assert own.hub.get_dir() == str(tmp_path / "other")
    with pytest.raises(RuntimeError, match=r"^torch\.hub\.load: dynagraph\.torch does not"):
        own.hub.load("https://example.org/x.pth")


def test_the_protocol_of_torch_function() -> None:
    class Mine:
        @classmethod
        def __torch_function__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function.__name__, kinds

    overrides = own.overrides

    @overrides.wrap_torch_function(lambda x: (x,))
    def twice(x: Any) -> Any:
        return x * 2

    assert twice(3) == 6 and twice(Mine()) == ("twice", (Mine,))
    assert not overrides.has_torch_function((own.ones(1), 2)) and overrides.has_torch_function_unary(Mine())
    assert overrides.is_tensor_like(Mine()) and not overrides.is_tensor_like(3)
    assert overrides.resolve_name(own.add) == "torch.add" and overrides.is_tensor_method_or_property(own.Tensor.add)


def test_what_else_is_touched() -> None:
    with own.profiler.record_function("region"), own.autograd.profiler.record_function("inner"):
        assert own.profiler.record_function("f")(lambda: 3)() == 3
    assert own._C._get_tracing_state() is None and not own.onnx.is_in_onnx_export()
    with pytest.raises(RuntimeError, match=r"^torch\.utils\.cpp_extension\.load: extensions in C\+\+ and CUDA"):
        own.utils.cpp_extension.load("x", [])
    assert "PyTorch version: 2.13.0" in own.utils.collect_env.get_pretty_env_info()
    assert own.utils.dlpack.from_dlpack(own.ones(2)).tolist() == [1.0, 1.0]
    own._assert(True, "")
    with pytest.raises(AssertionError, match="no"):
        own._assert(False, "no")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        own.testing.assert_allclose([1.0], np.array([1.0]))


def test_importing_loads_what_is_needed_only() -> None:
    lazy = "backends jit library hub accelerator testing onnx distributed overrides _dynamo optim distributions export".split()  # noqa: SIM905
    program = f"import sys, dynagraph.torch; print([n for n in {lazy} if 'dynagraph.torch.' + n in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_numpys_names_of_arguments() -> None:
    x = own.arange(6.0).view(2, 3)
    assert x.sum(axis=1).tolist() == own.sum(x, axis=-1).tolist() == [3.0, 12.0]
    assert x.mean(axis=0, keepdims=True).shape == x.mean(dim=0, keepdims=True).shape == (1, 3)
    assert own.stack([x, x], axis=2).shape == (2, 3, 2) and own.sum(x, axis=0, out=own.empty(0)).tolist() == [3.0, 5.0, 7.0]
    assert x.softmax(axis=1).sum().item() == pytest.approx(2) and x.clone().cumsum_(axis=0)[1, 0].item() == 3.0
    with pytest.raises(TypeError, match="axis"):
        x.sum(dim=1, axis=1)
    with pytest.raises(TypeError, match="multiple values for argument 'dim'"):
        x.sum(1, axis=1)


def test_what_code_for_symbolic_sizes_asks() -> None:
    assert (own.sym_int(-3.7), own.sym_max(3, 2.5), own.sym_min(1, 2), own.sym_not(0), own.sym_sum([1, 2])) == (-3, 3.0, 1, True, 3)
    assert not isinstance(3, own.SymInt) and own.sym_ite(True, 1, 2) == 1 and own.sym_sqrt(4) == 2.0 and own.sym_float(3) == 3.0
    x = own.ones(2)
    assert own.cond(x.sum() > 1, lambda a: a + 1, lambda a: a - 1, (x,)).tolist() == [2.0, 2.0]
    assert own.while_loop(lambda n, a: n < 3, lambda n, a: (n + 1, a * 2), (0, x))[1].tolist() == [8.0, 8.0]
    with pytest.raises(RuntimeError, match="Expected pred to be bool or single-element tensor"):
        own.cond(x, lambda: 1, lambda: 2)


def test_what_code_asks_of_tensors_and_the_process() -> None:
    x = own.ones(2)
    assert not any((own.is_conj(x), own.is_neg(x), own.is_inference(x), own.is_distributed(x), own.is_vulkan_available()))
    assert own.get_device(x) == -1 and own.get_device_module("cpu") is own.cpu and not own.is_autocast_enabled("cpu")
    assert own.get_autocast_dtype("cuda") is own.float16 and own.has_lapack and not own.has_mkl
    own.set_anomaly_enabled(True, False)
    assert own.is_anomaly_enabled() and not own.is_anomaly_check_nan_enabled()
    own.set_anomaly_enabled(False)
    assert own.zero_(x).tolist() == [0.0, 0.0] and own.fill_(x, 3).tolist() == [3.0, 3.0] and len(own.unsafe_chunk(x, 2)) == 2


@pytest.mark.parametrize("call", [
    lambda x: x.flip(dims=[0]),
    lambda x: x.permute(dims=(1, 0)).t(),
    lambda x: x.tile(dims=(1, 1)),
    lambda x: x.repeat(repeats=(1, 1)),
    lambda x: x.reshape(shape=(2, 3)),
    lambda x: own.reshape(x, shape=(2, 3)),
    lambda x: x.view(size=(2, 3)),
    lambda x: x[:1].expand(size=(2, 3)),
    lambda x: x[:1].broadcast_to(size=(2, 3)),
    lambda x: x.clone().resize_(size=(2, 3)),
    lambda x: x.swapaxes(axis0=0, axis1=1).t(),
    lambda x: own.cat(x.split(split_size=1)),
    lambda x: own.cat(x.tensor_split(sections=2)),
    lambda x: own.cat(own.tensor_split(x, indices=(1,))),
    lambda x: own.cat(x.hsplit(sections=3), dim=1),
])  # fmt: skip
def test_sizes_and_parts_may_be_given_by_name(call: Any) -> None:
    assert call(own.ones(2, 3)).tolist() == own.ones(2, 3).tolist()
