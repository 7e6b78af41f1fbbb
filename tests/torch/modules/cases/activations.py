"""Activations, and dropout where nothing is drawn."""

from __future__ import annotations

from tests.torch.modules.layers import layer
from tests.torch.table import T

_X = T(2, 4)

CASES = [
    *(
        layer(text, _X)
        for text in (
            "ReLU()", "ReLU(inplace=True)", "ReLU6()", "ReLU6(inplace=True)", "SiLU()", "SiLU(inplace=True)", "Mish()",
            "Mish(inplace=True)", "SELU()", "SELU(inplace=True)", "Hardswish()",
            "Hardswish(inplace=True)", "Sigmoid()", "Tanh()", "LogSigmoid()", "Softsign()", "Tanhshrink()", "Threshold(0.1, 20)",
            "Threshold(0.1, 20.0, inplace=True)", "Hardtanh()", "Hardtanh(-0.5, 0.3, inplace=True)", "Hardtanh(min_value=-0.1, max_value=2)",
            "ELU()", "ELU(0.5, inplace=True)", "CELU()", "CELU(0.5, inplace=True)", "LeakyReLU()", "LeakyReLU(0.2, inplace=True)",
            "GLU()", "GLU(0)", "GELU()", "GELU('tanh')", "GELU(approximate='tanh')", "Softplus()", "Softplus(2, 0.5)", "Hardshrink()", "Hardshrink(0.1)",
            "Softshrink()", "Softshrink(0.1)", "Softmax(-1)", "Softmax(dim=0)", "Softmax()", "Softmin(1)", "LogSoftmax(-1)",
            "LogSoftmax()",
        )
    ),
    layer("Hardsigmoid()", _X, _tolerance=100),  # PyTorch's gradient has a sixth of single precision
    layer("Hardsigmoid(inplace=True)", _X, _tolerance=100),
    layer("RReLU()", _X, train=False),
    layer("RReLU(0.1, 0.4, inplace=True)", _X, train=False),
    layer("RReLU()", _X, _compare="meta"),
    layer("Softmax2d()", T(2, 3, 2, 2)),
    layer("Softmax2d()", T(3, 2, 2)),
    *(layer(f"{name}({args})", T(2, 3, 4, 5) if "2d" in name else T(2, 3, 4, 5, 2) if "3d" in name else T(2, 3, 4), train=train)
      for name in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout")
      for args, train in (("0.3", False), ("0.0", True))),
    layer("Dropout(1.0)", _X),
    layer("Dropout(0.3)", _X, _compare="meta"),
    layer("Dropout(0.3, inplace=True)", _X, _compare="meta"),
    layer("Dropout1d(0.3)", T(3, 4), _compare="meta"),
    layer("Dropout2d(0.3)", T(2, 3, 4, 4), _compare="meta"),
    layer("Dropout3d(0.3)", T(2, 3, 4, 4, 2), _compare="meta"),
    layer("AlphaDropout(0.3)", _X, _compare="meta"),
    layer("FeatureAlphaDropout(0.3)", T(2, 3, 4), _compare="meta"),
]  # fmt: skip
