"""torch.nn.init: the numbers themselves, by PyTorch's own random stream, and errors."""

from __future__ import annotations

import warnings
from typing import Any

from tests.torch.distributions.tools import seed
from tests.torch.table import Case, error, program

FILLS: list[tuple[str, tuple[Any, ...], list[tuple[int, ...]]]] = [
    ("uniform_", (-1.0, 2.0), [(3, 5)]),
    ("normal_", (2.0, 3.0), [(3, 5), (20,)]),
    ("trunc_normal_", (), [(4, 5), (0, 3)]),
    ("trunc_normal_", (1.0, 2.0, 0.5, 2.5), [(4, 5)]),
    ("trunc_normal_", (0.0, 1.0, 2.0, 3.0), [(4, 5), (3,)]),
    ("trunc_normal_", (0.0, 1.0, 4.0, 4.5), [(4, 5)]),
    ("constant_", (0.3,), [(2, 3), ()]),
    ("ones_", (), [(2, 3)]),
    ("zeros_", (), [(2, 3)]),
    ("eye_", (), [(2, 4), (4, 2)]),
    ("dirac_", (), [(4, 3, 2), (2, 4, 3, 3), (2, 2, 3, 4, 2)]),
    ("dirac_", (2,), [(6, 3, 3)]),
    ("xavier_uniform_", (2.0,), [(3, 5), (4, 3, 2, 2)]),
    ("xavier_normal_", (), [(3, 5), (4, 3, 2)]),
    ("kaiming_uniform_", (1, "fan_out"), [(3, 5), (4, 3, 2)]),
    ("kaiming_uniform_", (0.2, "FAN_IN", "leaky_relu"), [(3, 5), (0, 3)]),
    ("kaiming_normal_", (0, "fan_in", "relu"), [(3, 5), (0, 3)]),
    ("orthogonal_", (2.0,), [(5, 3), (3, 5), (4, 3, 2), (0, 3)]),
    ("sparse_", (0.3,), [(5, 3), (3, 5)]),
    *((name, (), [(3, 4)]) for name in ("xavier_uniform", "kaiming_normal", "orthogonal", "eye", "uniform", "normal")),
    ("constant", (3.0,), [(3, 4)]),
]
WRONG: list[tuple[str, tuple[Any, ...], tuple[int, ...]]] = [
    ("eye_", (), (2, 3, 4)), ("dirac_", (), (2, 3)), ("dirac_", (3,), (4, 3, 2)), ("xavier_normal_", (), (4,)),
    ("xavier_uniform_", (), ()), ("kaiming_normal_", (0, "fan", "relu"), (2, 3)),
    ("kaiming_normal_", (0, "fan_in", "gelu"), (2, 3)),
    ("orthogonal_", (), (3,)), ("sparse_", (0.1,), (3,)), ("normal_", (0.0, -1.0), (3,)), ("uniform_", (2.0, 1.0), (3,)),
]  # fmt: skip


def filled(name: str, args: tuple[Any, ...], shape: tuple[int, ...], generator: bool) -> Any:
    """What is in a leaf that was filled, whether it is what was returned, and what was warned of."""

    def run(torch: Any) -> Any:
        x = torch.full(shape, 7.0, requires_grad=True)
        with seed(torch, 3), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = getattr(torch.nn.init, name)(x, *args, **({"generator": torch.default_generator} if generator else {}))
        return x.detach(), result is x, x.requires_grad, [str(w.message) for w in caught]

    return run


def gain(torch: Any) -> Any:
    names = ("linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu")
    return [torch.nn.init.calculate_gain(n) for n in names] + [torch.nn.init.calculate_gain("leaky_relu", 0.3)]


WITHOUT_GENERATOR = ("constant", "ones", "zeros", "eye", "dirac")
CASES: list[Case] = [
    *(
        program(f"{name} {args} of {shape}{' with generator' * given}", filled(name, args, shape, given))
        for name, args, shapes in FILLS
        for shape in shapes
        for given in (False, True)
        if not given or not name.startswith(WITHOUT_GENERATOR)
    ),
    program("calculate_gain", gain),
    *(error("nn.init.calculate_gain", *args, _text=True) for args in (("gelu",), ("leaky_relu", True), ("leaky_relu", "a"))),
]
for _name, _args, _shape in WRONG:
    _case = program(f"{_name} {_args} of {_shape}", filled(_name, _args, _shape, False), _text=True)
    _case.raises = True
    CASES.append(_case)
