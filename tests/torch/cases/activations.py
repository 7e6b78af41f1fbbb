"""Activation functions."""

from __future__ import annotations

from tests.torch.table import A, Case, T, case, error, program

F = "nn.functional."
PLAIN = (
    "relu relu6 leaky_relu elu selu celu gelu silu mish softplus softsign logsigmoid hardtanh hardswish hardshrink "
    "softshrink tanhshrink sigmoid tanh"
).split()
IN_PLACE = "relu relu6 leaky_relu elu selu celu silu mish hardtanh hardswish".split()
UNDERSCORE = "relu_ leaky_relu_ elu_ selu_ celu_ hardtanh_".split()

CASES: list[Case] = [
    *(case(F + name, T(3, 4)) for name in PLAIN),
    # PyTorch's float32 kernel of gelu gives NaN for infinity in vectors, and infinity in a single element: test_edges.py
    *(case(F + name, T(2, 5, kind="special"), _grad=False, _dtypes="" if name == "gelu" else "float32") for name in PLAIN),
    *(case(F + name, T(3, 4, layout=layout), _dtypes="") for name in ("relu", "gelu", "silu", "leaky_relu") for layout in ("T", "step")),
    *(case(F + name, T(0, 3), _dtypes="") for name in PLAIN),
    *(case(F + name, T(), _dtypes="") for name in PLAIN),
    *(case(F + name, T(5, kind="ints"), _dtypes="", _second=False) for name in PLAIN),
    *(case(F + "hardsigmoid", T(3, 4), inplace=inplace, _second=False, _tolerance=1e4) for inplace in (False,)),
    *(program(f"{name} in place", lambda torch, x, name=name: getattr(torch.nn.functional, name)(x * 2, inplace=True), T(3, 4),
              _dtypes="float32", _second=name != "hardswish") for name in IN_PLACE),
    *(program(name, lambda torch, x, name=name: getattr(torch.nn.functional, name)(x * 2), T(3, 4), _dtypes="float32")
      for name in UNDERSCORE),
    case(F + "gelu", T(3, 4), approximate="tanh"),
    error(F + "gelu", T(3), approximate="tan", _text=True),
    case(F + "leaky_relu", T(3, 4), 0.3),
    case(F + "elu", T(3, 4), alpha=0.5),
    case(F + "celu", T(3, 4), 2.0),
    error(F + "celu", T(3), 0.0, _text=True),
    case(F + "softplus", T(3, 4), 2, 1),
    case(F + "hardtanh", T(3, 4), -2, 0.5),
    error(F + "hardtanh", T(3), 2.0, 1.0, _text=True),
    case(F + "hardshrink", T(3, 4), 1.0),
    case(F + "softshrink", T(3, 4), 0.2),
    error(F + "softshrink", T(3, dtype="float32"), -1.0, _text=True),
    case(F + "threshold", T(3, 4), 0.1, 5.0),
    program("threshold_", lambda torch, x: torch.threshold_(x * 2, 0.1, 5.0), T(3, 4), _dtypes=""),
    case("relu", T(3, 4), _inplace=False),
    case("selu", T(3, 4)),
    case("celu", T(3, 4)),
    case("hardshrink", T(3, 4)),
    case("softmax", T(3, 4), 1),
    case("softmax", T(3, 4), 0),
    case("softmax", T(2, 3, 4, layout="T"), -2),
    case("softmax", T(3, 4), -1, dtype=A("float32"), _second=False, _tolerance=1e6),
    case("softmax", T(), 0, _dtypes="float32"),
    case("softmax", T(0, 3), 1, _dtypes="float32"),
    case("softmax", T(2, 4, kind="special"), 1, _grad=False, _dtypes="float32"),
    error("softmax", T(3, 4), 2, _text=True),
    case("log_softmax", T(3, 4), 1),
    case("log_softmax", T(3, 4), 0),
    case("log_softmax", T(2, 3, 4), -2),
    case(F + "softmax", T(3, 4), dim=1),
    case(F + "log_softmax", T(3, 4), dim=-1),
    case(F + "softmin", T(3, 4), dim=1),
    case(F + "softmax", T(3, 4), dim=0, dtype=A("float64")),
    *(case(F + "softmax", T(*(2, 3, 4, 2)[:n]), _dtypes="") for n in (1, 2, 3, 4)),
    case(F + "glu", T(3, 4)),
    case(F + "glu", T(4, 3), 0),
    error(F + "glu", T(3), _text=True),
    error(F + "glu", T(), _text=True),
    case("prelu", T(2, 3, 4), T(3)),
    case("prelu", T(2, 3, 4), T(1)),
    case("prelu", T(4), T(1)),
    case("prelu", T(2, 3, 4), T()),
    error("prelu", T(2, 3), T(2), _text=True),
    error("prelu", T(2, 3), T(1, 1), _text=True),
    case(F + "rrelu", T(3, 4), 0.1, 0.5, _dtypes="float32"),
    error(F + "rrelu", T(3), 0.5, 0.1, training=True, _text=True),
    case(F + "rrelu", T(3, 4), training=True, _grad=False, _compare="meta", _dtypes="float32"),
    case(F + "gumbel_softmax", T(3, 4), _grad=False, _compare="meta", _dtypes="float32"),
    case(F + "gumbel_softmax", T(3, 4), hard=True, _grad=False, _compare="meta", _dtypes="float32"),
    program("softmax saves its result", lambda torch, x: torch.softmax(x * 2, 1).mul(2), T(3, 4), _dtypes=""),
    # names of nodes
    *(case(F + name, T(3, 4), _dtypes="", _second=False, _grad_fn=True) for name in PLAIN),
    # dropout
    *(case(F + name, T(3, 4, 2, 2), 0.0, _dtypes="float32") for name in ("dropout", "dropout2d", "alpha_dropout")),
    *(case(F + name, T(3, 4), training=False, _dtypes="float32") for name in ("dropout", "alpha_dropout", "feature_alpha_dropout")),
    *(case(F + "dropout", T(3, 4), 1.0, _dtypes="float32") for _ in (1,)),
    *(case(F + name, T(2, 3, 4, 2), 0.3, training=True, _grad=False, _compare="meta", _dtypes="float32")
      for name in ("dropout", "dropout2d", "alpha_dropout", "feature_alpha_dropout")),
    case(F + "dropout1d", T(2, 3, 4), _grad=False, _compare="meta", _dtypes=""),
    case(F + "dropout3d", T(2, 3, 4, 2, 2), _grad=False, _compare="meta", _dtypes=""),
    error(F + "dropout", T(3), 2.0, _text=True),
    error(F + "dropout1d", T(2, 3, 4, 5)),
    error("dropout", T(3), 2.0, True, _text=True),
]  # fmt: skip
