"""Between dtypes, devices, NumPy and Python; writes of whole tensors."""

from __future__ import annotations

import copy
import pickle

import numpy as np

from tests.torch.table import A, Case, T, case, error, program

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
NAMES = ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble")

CASES: list[Case] = [
    *(case("Tensor.to", T(3, dtype=a), A(b)) for a in ("float64", "int64", "bool", "float16", "complex128") for b in DTYPES if not (a == "complex128" and b in ("uint8", "int8"))),
    *(case(f"Tensor.{name}", T(3)) for name in NAMES),
    *(case("Tensor.to", T(2, 3, layout=layout), A("float32"), _dtypes="") for layout in ("T", "step", "expand")),
    case("Tensor.to", T(3), "cpu"),
    case("Tensor.to", T(3), "cpu", A("float32")),
    case("Tensor.to", T(3), T(2, dtype="int32")),
    case("Tensor.to", T(3), dtype=A("float32")),
    case("Tensor.to", T(3), device="cpu"),
    case("Tensor.to", T(3), A("float64"), copy=True),
    case("Tensor.to", T(3), A("float64"), False, True),
    case("Tensor.to", T(3), "cpu", A("float64"), False, True),
    case("Tensor.to", T(3)),
    case("Tensor.to", T(3), "cpu", non_blocking=True),
    error("Tensor.to", T(3), "nowhere"),
    error("Tensor.to", T(3), dtype="float32"),
    case("Tensor.type", T(3)),
    case("Tensor.type", T(3), A("int64")),
    case("Tensor.type", T(3), "torch.FloatTensor"),
    case("Tensor.type", T(3), A("FloatTensor")),
    case("Tensor.type_as", T(3), T(2, dtype="int32")),
    case("Tensor.cpu", T(3)),
    case("Tensor.item", T(1)),
    case("Tensor.item", T()),
    case("Tensor.item", T(1, 1, dtype="int64")),
    case("Tensor.item", T(dtype="bool")),
    error("Tensor.item", T(2), _text=True),
    error("Tensor.item", T(0), _text=True),
    case("Tensor.tolist", T(2, 3)),
    case("Tensor.tolist", T()),
    case("Tensor.tolist", T(0)),
    case("Tensor.numpy", T(2, 3, grad=False)),
    case("Tensor.numpy", T(2, 3), force=True),
    error("Tensor.numpy", T(2, dtype="bfloat16", grad=False)),
    program("numpy of what requires gradients", lambda torch, x: _error_of(lambda: x.numpy()), T(2), _dtypes=""),
    program("numpy of the result of what requires gradients", lambda torch, x: _error_of(lambda: (x * 2).numpy()), T(2), _dtypes=""),
    program("np.asarray", lambda torch, x: (np.asarray(x), np.array(x), np.asarray(x, np.float32)), T(2, grad=False), _grad=False, _dtypes="float32 int64"),
    program("np functions", lambda torch, x: (np.sin(x), np.add(x, 1)), T(2, grad=False), _grad=False, _dtypes="float32"),
    program("int, float, bool, complex", lambda torch, x: (int(x), float(x), bool(x), complex(x)), T(1, grad=False)),
    program("bool of several", lambda torch, x: _error_of(lambda: bool(x)), T(2, grad=False)),
    program("bool of none", lambda torch, x: _error_of(lambda: bool(x)), T(0, grad=False)),
    program("int of several", lambda torch, x: _error_of(lambda: int(x)), T(2, grad=False)),
    program("index of a float", lambda torch, x: _error_of(lambda: [1, 2, 3][x]), T(grad=False)),
    program("a range of a tensor", lambda torch: list(range(torch.tensor(3)))),
    program("len", lambda torch, x: (len(x), _error_of(lambda: len(x[0, 0]))), T(2, 3)),
    program("in", lambda torch, x: (1 in x, x[0] in x, 100 in x, _error_of(lambda: "a" in x)), T(4, grad=False, kind="ints")),
    program("format", lambda torch, x: (f"{x:.3f}", f"{x:10.2e}", format(x)), T(grad=False), _dtypes="float32"),
    program("format of several", lambda torch, x: _error_of(lambda: f"{x:.3f}"), T(2, grad=False)),
    program("hash and identity", lambda torch, x: (hash(x) == hash(x), x in {x: 1}), T(2)),
    program("copy", lambda torch, x: (copy.copy(x), copy.deepcopy(x), copy.deepcopy([x, x])[0]), T(2, 3), _grad=False, _shares=False),
    program("deepcopy of a result", lambda torch, x: _error_of(lambda: copy.deepcopy(x * 2)), T(2), _dtypes=""),
    program("deepcopy of a view shares", lambda torch, x: _deep(torch, x), T(3, grad=False)),
    program("pickle", lambda torch, x: pickle.loads(pickle.dumps(x)), T(2, 3), _grad=False),
    program("about", lambda torch, x: (x.dtype, str(x.device), x.is_cuda, x.is_cpu, x.itemsize, x.nbytes, x.element_size(), x.is_floating_point(), x.is_complex(), x.is_signed(),
      x.is_sparse, x.is_quantized, x.is_meta, x.get_device(), x.is_leaf, x.output_nr, str(x.layout), x.is_inference(), x.is_pinned(), x.is_nested), T(2, 3)),
    case("is_floating_point", T(2)),
    case("is_complex", T(2)),
    case("is_nonzero", T(1)),
    error("is_nonzero", T(2)),
    case("Tensor.copy_", T(2, 3, grad=False), T(3)),
    case("Tensor.copy_", T(2, 3, grad=False), T(2, 3, dtype="float32")),
    case("Tensor.copy_", T(2, 3, grad=False, dtype="int64"), T(2, 3)),
    error("Tensor.copy_", T(2, 3, grad=False), T(4), _text=True),
    case("Tensor.copy_", T(2, 3, grad=False), 3.0),
    error("Tensor.copy_", T(2, 3, grad=False), "a"),
    error("Tensor.copy_", T(3, grad=False), T(2, 3), _text=True),
    program("copy_ with gradients", lambda torch, x, y: (x * 1).copy_(y), T(2, 3), T(3)),
    program("copy_ to a part", lambda torch, x, y: _copied(x, y), T(2, 3), T(3)),
    case("Tensor.fill_", T(2, 3, grad=False), 7),
    case("Tensor.fill_", T(2, 3, grad=False), 7.5),
    case("Tensor.fill_", T(2, 3, grad=False), T()),
    error("Tensor.fill_", T(2, 3, grad=False), T(2), _text=True),
    error("Tensor.fill_", T(2, 3, grad=False), 1j),
    program("fill_ with gradients", lambda torch, x, y: (x * 1).fill_(y), T(2, 3), T()),
    program("fill_ of what is expanded", lambda torch, x: x.expand(2, 3).fill_(2), T(1, grad=False)),
    case("Tensor.zero_", T(2, 3, grad=False)),
    program("zero_ with gradients", lambda torch, x: (x * 1).zero_() + x, T(2, 3)),
    case("fill", T(2, 3), 7),
    program("set_", lambda torch, x, y: x.set_(y), T(2, grad=False), T(3, grad=False), _shares=False, _grad=False),
    program("data", lambda torch, x: (x.data, x.data.requires_grad, x.detach()), T(2), _grad=False),
    program("assignment to data", lambda torch, x: _data(torch, x), T(2, grad=False), _grad=False, _dtypes="float32"),
    program("storage", lambda torch, x: (x.untyped_storage().nbytes(), x[1:].untyped_storage().nbytes(), x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr()), T(4, grad=False)),
    program("requires_grad_", lambda torch, x: (x.requires_grad_().requires_grad, x.requires_grad_(False).requires_grad), T(2, grad=False), _dtypes="float32", _grad=False),
    program("requires_grad_ of ints", lambda torch: _error_of(lambda: torch.ones(2, dtype=torch.int64).requires_grad_())),
    program("detach_", lambda torch, x: (x * 2).detach_().requires_grad, T(2)),
    program("versions", lambda torch, x: _versions(torch, x), T(3, grad=False), _dtypes=""),
    case("Tensor.apply_", T(2, 3, grad=False), abs, _dtypes=""),
    case("Tensor.map_", T(2, 3, grad=False), T(2, 3, grad=False), max, _dtypes=""),
    case("Tensor.map2_", T(2, grad=False), T(2, grad=False), T(2, grad=False), max, _dtypes=""),
    program("float and int of tensors that require gradients", lambda torch, x: (float(x), int(x)), T(kind="positive"), _dtypes=""),
]


def _error_of(function):  # type: ignore[no-untyped-def]
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def _copied(x, y):  # type: ignore[no-untyped-def]
    z = x * 1
    z[0].copy_(y)
    return z


def _data(torch, x):  # type: ignore[no-untyped-def]
    before = x._version
    x.data = torch.ones(3, dtype=x.dtype)
    return x, x._version - before


def _versions(torch, x):  # type: ignore[no-untyped-def]
    y = x.clone()
    found = [y._version]
    y.add_(1)
    found.append(y._version)
    y[0] = 2
    found.append(y._version)
    y.view(3)[1].mul_(2)
    found.append(y._version)
    y.detach().zero_()
    found.append(y._version)
    y.data.fill_(3)
    found.append(y._version)
    torch.add(y, 1, out=y)
    found.append(y._version)
    return found


def _deep(torch, x):  # type: ignore[no-untyped-def]
    a, b = copy.deepcopy((x, x[1:]))
    a[1] = 7
    return b
