"""New tensors."""

from __future__ import annotations

import numpy as np

from tests.torch.table import A, Case, T, case, error, program

NUMBERS = [1, 1.5, True, 1 + 2j, [1, 2], [1.0, 2], [True, False], [[1, 2], [3, 4]], [], [[]], [1j, 2], (1, 2), [True, 2], [True, 2.5], 2**40, float("nan"), [[1.0], [2]]]
DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
EMPTY = {"_compare": "meta"}

CASES: list[Case] = [
    *(case("tensor", n) for n in NUMBERS),
    *(case("tensor", [1, 0, 2], dtype=A(d)) for d in DTYPES),
    *(case("tensor", 1.7, dtype=A(d)) for d in DTYPES),
    *(case("as_tensor", n) for n in NUMBERS[:8]),
    case("as_tensor", T(2, 3)),
    case("as_tensor", T(2, 3), dtype=A("float32")),
    case("asarray", T(2, 3)),
    case("asarray", [1, 2], dtype=A("float32")),
    *(program(f"tensor of NumPy's {d}", lambda torch, d=d: (torch.tensor(np.arange(3).astype(d)), torch.as_tensor(np.arange(3).astype(d)), torch.from_numpy(np.arange(3).astype(d))))
      for d in ("float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64", "complex128", "int8", "int16")),
    program("tensor of NumPy's scalars", lambda torch: (torch.tensor(np.float32(1.5)), torch.tensor(np.float64(1.5)), torch.tensor(np.int32(3)), torch.tensor(np.bool_(True)))),
    program("tensor of lists of NumPy's scalars", lambda torch: (torch.tensor([np.float32(1.5)]), torch.tensor([np.float64(1.5)]), torch.tensor([np.int32(3)]))),
    program("tensor of lists of tensors", lambda torch: (torch.tensor([torch.tensor(1), torch.tensor(2)]), torch.tensor([torch.tensor(1.5), 2]))),
    program("tensor of lists of arrays", lambda torch: torch.tensor(np.array([[1.0, 2], [3, 4]]))),
    program("tensor that requires gradients", lambda torch: torch.tensor([1.0], requires_grad=True).requires_grad),
    program("tensor of a range", lambda torch: torch.tensor(range(3))),
    error("tensor", "a"),
    error("tensor", [1, "a"]),
    error("tensor", [[1, 2], [3]], _text=True),
    error("tensor", [[1, 2], 3]),
    error("tensor", None),
    error("tensor", [None]),
    error("tensor", 2**70),
    error("tensor", [1, 2], dtype=A("int64"), requires_grad=True),
    error("tensor", [1, 2], requires_grad=True, _text=True),
    error("tensor", [1], dtype="float32"),
    error("tensor", {}),
    error("tensor", object()),
    error("tensor"),
    *(case(name, 2, 3) for name in ("zeros", "ones")),
    *(case(name, (2, 3)) for name in ("zeros", "ones")),
    *(case(name, [2, 3], dtype=A("int32")) for name in ("zeros", "ones")),
    *(case(name, 0) for name in ("zeros", "ones", "empty")),
    *(case(name, ()) for name in ("zeros", "ones")),
    *(case("zeros", 2, dtype=A(d)) for d in DTYPES),
    *(case("ones", 2, dtype=A(d)) for d in DTYPES),
    case("zeros", size=(2, 3)),
    case("empty", 2, 3, **EMPTY),
    case("empty", (2, 3), dtype=A("int64"), **EMPTY),
    case("empty", (2, 3, 4, 5), memory_format=A("channels_last"), _out=False, **EMPTY),
    error("zeros", -1, _text=True),
    error("zeros", 2.5),
    error("zeros", "a"),
    error("zeros", 2, dtype="float32"),
    error("zeros", 2, out=T(3), dtype=A("float32")),
    case("full", (2, 3), 7),
    case("full", (2, 3), 7.5),
    case("full", (2,), True),
    case("full", (2,), 1j),
    case("full", (), 2),
    case("full", (2,), 7, dtype=A("float32")),
    case("full", (2,), 7.5, dtype=A("int64")),
    case("full", [2], T(dtype="float32", grad=False)),
    error("full", 2),
    error("full", (-1,), 2),
    *(case(name, T(2, 3, layout=layout), _grad=False, _inplace=False) for name in ("zeros_like", "ones_like") for layout in ("", "T", "step", "expand")),
    *(case("empty_like", T(2, 3, 4, layout=layout), _grad=False, _inplace=False, _dtypes="", **EMPTY) for layout in ("", "T", "step", "expand")),
    case("zeros_like", T(2, 3, 4, 5, layout="channels_last"), _grad=False, _dtypes=""),
    case("zeros_like", T(2, 3, 4, 5, layout="channels_last"), memory_format=A("contiguous_format"), _grad=False, _dtypes=""),
    case("full_like", T(2, 3), 7, _grad=False),
    case("full_like", T(2, 3), 7.5, dtype=A("int32"), _grad=False),
    case("ones_like", T(2, 3), dtype=A("float32"), _grad=False),
    error("zeros_like", 3),
    case("Tensor.new_zeros", T(2, dtype="float32"), 2, 3),
    case("Tensor.new_zeros", T(2, dtype="float32"), (2, 3), dtype=A("int32")),
    case("Tensor.new_ones", T(2), 3, _dtypes="int64 float16"),
    case("Tensor.new_empty", T(2), (3, 2), _compare="meta", _dtypes="int64"),
    case("Tensor.new_full", T(2), (3,), 7, _dtypes="int64 float16"),
    case("Tensor.new_tensor", T(2, dtype="float32"), [1, 2]),
    case("Tensor.new_tensor", T(2), [1, 2], dtype=A("int64")),
    program("Tensor.new", lambda torch, x: (x.new([1, 2]), x.new(2, 3).shape, x.new().shape), T(2, dtype="float32")),
    *(case("arange", *a) for a in [(5,), (1, 5), (1, 5, 2), (5, 1, -2), (5.0,), (0, 1, 0.25), (0, 1, 0.1), (0,), (2.5,), (1, 5, 1.5), (0.5, 3), (-3, 0), (3, 3)]),
    *(case("arange", 5, dtype=A(d)) for d in DTYPES if d not in ("bool", "complex64", "complex128")),
    *(case("arange", 0, 5, 1.5, dtype=A(d)) for d in ("int64", "float32", "int32", "float64")),
    case("arange", start=1, end=4),
    case("arange", end=4),
    case("arange", 1, end=4, step=2),
    case("arange", 1, 4, step=2),
    error("arange", 5, 1, _text=True),
    error("arange", 0, 5, 0, _text=True),
    error("arange", 0, float("inf")),
    error("arange", 5, dtype=A("bool")),
    error("arange"),
    *(case("linspace", *a) for a in [(0, 1, 5), (0, 10, 1), (1, 0, 4), (0, 1, 0), (0, 1, 2), (-3.5, 7.25, 11)]),
    *(case("linspace", 0, 10, 4, dtype=A(d)) for d in ("int64", "float64", "float16", "int32", "complex64")),
    case("linspace", T(grad=False, dtype="float32"), 1, 4),
    error("linspace", 0, 1, -1, _text=True),
    error("linspace", 0, 1),
    *(case("logspace", *a) for a in [(0, 2, 5), (0, 2, 1), (0, 3, 4, 2.0), (2, 0, 3)]),
    case("logspace", 0, 2, 3, dtype=A("int64")),
    *(case("eye", *a) for a in [(3,), (2, 3), (3, 2), (0,)]),
    case("eye", 2, dtype=A("int64")),
    error("eye", -1),
    *(case(name, *a) for name in ("tril_indices", "triu_indices") for a in [(3, 3), (3, 4, 1), (4, 3, -1), (0, 3), (3, 3, 5)]),
    case("tril_indices", 3, 3, dtype=A("int32")),
    case("vander", T(3), _grad=False),
    case("vander", T(3), 4, True, _grad=False),
    case("vander", T(3), 0, _grad=False),
    error("vander", T(2, 3), _text=True),
    error("vander", T(3), -1, _text=True),
    case("empty_strided", (2, 3), (1, 2), **EMPTY),
    case("Tensor.new_empty_strided", T(2, grad=False), (2, 3), (1, 2), **EMPTY, _dtypes="int64"),
    case("scalar_tensor", 2.5),
    case("scalar_tensor", 2, dtype=A("int64")),
    case("complex", T(2, dtype="float32"), T(2, dtype="float32")),
    *(case(f"{name}_window", *a) for name in ("hann", "hamming", "blackman", "bartlett", "kaiser") for a in [(5,), (6, False), (1,), (0,)]),
    case("hamming_window", 5, True, 0.5, 0.4),
    case("kaiser_window", 5, True, 3.0),
    case("is_tensor", T(2)),
    case("is_tensor", 2),
    program("Tensor(2, 3) and Tensor(list)", lambda torch: (torch.Tensor(2, 3).shape, torch.Tensor([1, 2]), torch.Tensor().shape, torch.Tensor([[1], [2]]))),
    program("types by their old names", lambda torch: (torch.LongTensor([1, 2]), torch.FloatTensor(2, 3).shape, torch.DoubleTensor([1]), torch.BoolTensor([True]), torch.IntTensor([1.5]), torch.ByteTensor([3]))),
    program("isinstance by old names", lambda torch, x: (isinstance(x, torch.FloatTensor), isinstance(x, torch.DoubleTensor), isinstance(x, torch.Tensor), isinstance(x.long(), torch.LongTensor)), T(2)),
    program("out= of creation", lambda torch: [f(3, out=torch.empty(0)) for f in (torch.zeros, torch.ones, torch.arange, torch.eye)]),
    program("default dtype", lambda torch: _defaults(torch)),
    program("frombuffer", lambda torch: torch.frombuffer(bytearray(range(16)), dtype=torch.int32, count=2, offset=4)),
    program("from_dlpack", lambda torch: torch.from_dlpack(np.arange(3.0))),
    program("from_numpy shares", lambda torch: _shared(torch)),
    error("frombuffer", bytearray(3), dtype=A("int32")),
    error("frombuffer", bytearray(0), dtype=A("int32")),
    error("from_numpy", [1]),
    program("negative strides are refused", lambda torch: _error_of(lambda: torch.from_numpy(np.arange(3)[::-1])), _text=False),
    case("range", 1, 4, _out=False),
    case("cartesian_prod", T(2), T(2), T(2)),
    program("meshgrid without indexing", lambda torch, x: torch.meshgrid(x, x), T(2), _second=False),
    program("finfo", lambda torch: [str(torch.finfo(getattr(torch, d))) for d in ("float32", "float64", "float16", "bfloat16", "complex64")]),
    program("iinfo", lambda torch: [str(torch.iinfo(getattr(torch, d))) for d in ("int64", "int32", "int8", "uint8", "int16")]),
]


def _defaults(torch):  # type: ignore[no-untyped-def]
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        return [torch.tensor(1.5), torch.zeros(2), torch.arange(0, 1, 0.5), torch.tensor([1, 2]) / 2, torch.tensor(1j), torch.ones(2, dtype=torch.int64) + 1.5, torch.full((2,), 1.5)]
    finally:
        torch.set_default_dtype(before)


def _shared(torch):  # type: ignore[no-untyped-def]
    array = np.zeros(3)
    x = torch.from_numpy(array)
    x[0] = 1
    array[1] = 2
    return x, array, x.numpy() is array or np.shares_memory(x.numpy(), array)


def _error_of(function):  # type: ignore[no-untyped-def]
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return "nothing"
