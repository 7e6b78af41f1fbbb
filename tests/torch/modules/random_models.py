"""Random small models over layers, trained for some steps: under real torch, under dynagraph.torch, and compiled.

A model, its loss and its optimizer are texts that both torches evaluate.

    python -m tests.torch.modules.random_models 17          the model of a number, and what differs
    python -m tests.torch.modules.random_models 0 1000      those from one number to another
    python -m tests.torch.modules.random_models record      writes down what real torch makes of some of them
"""

from __future__ import annotations

import importlib
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dynagraph as dg
import dynagraph.torch as own
from tests.torch.modules.layers import _Names, fill

STEPS = 3
FILE = Path(__file__).with_name("random_models.npz")
RECORDED = range(1000, 1012)  # other models than those that are compared live
# (the gradient of PyTorch's CELU has 1 / alpha in single precision: alpha is a power of two)
_ACTIVATIONS = (
    "ReLU()", "ReLU(inplace=True)", "Tanh()", "Sigmoid()", "GELU()", "GELU('tanh')", "SiLU()", "ELU()", "LeakyReLU(0.1)",
    "Mish()", "Softplus()", "PReLU()", "Hardtanh()", "Hardswish()", "Softsign()", "LogSigmoid()", "SELU()", "CELU(0.5)",
    "Softmax(-1)", "Identity()", "Dropout(0.0)", "Tanhshrink()", "Softshrink(0.1)", "ReLU6()",
)  # fmt: skip
# of nn.functional: of three numbers for each sample (`out`), the class of each sample, and three numbers that are wanted
_LOSSES = (
    "cross_entropy(out, classes)", "cross_entropy(out, classes, label_smoothing=0.1)", "cross_entropy(out, wanted.softmax(-1))",
    "nll_loss(F.log_softmax(out, -1), classes, reduction='sum')", "mse_loss(out, wanted)", "l1_loss(out, wanted)",
    "smooth_l1_loss(out, wanted, beta=0.5)", "huber_loss(out, wanted, delta=0.7)", "soft_margin_loss(out, wanted.sign())",
    "binary_cross_entropy_with_logits(out, wanted.sigmoid())", "poisson_nll_loss(out, wanted.exp())",
    "kl_div(out.log_softmax(-1), wanted.softmax(-1), reduction='batchmean')", "gaussian_nll_loss(out, wanted, wanted.exp())",
    "cosine_embedding_loss(out, wanted, classes.sign() * 2 - 1)", "multi_margin_loss(out, classes)",
)  # fmt: skip
# `eps` is large, and there is no Rprop: gradients that are zero but for rounding (of biases before norms, of attention's keys) must
# not become steps
_OPTIMIZERS = (
    "SGD(parameters, lr=0.05)", "SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)",
    "SGD(parameters, lr=0.05, weight_decay=0.1)", "Adam(parameters, lr=0.01, eps=1e-3)",
    "Adam(parameters, lr=0.01, amsgrad=True, weight_decay=0.1, eps=1e-3)", "AdamW(parameters, lr=0.01, eps=1e-3)",
    "RMSprop(parameters, lr=0.01, momentum=0.5, centered=True, eps=1e-3)", "Adagrad(parameters, lr=0.05, eps=1e-3)",
    "Adadelta(parameters, eps=1e-3)", "Adamax(parameters, lr=0.01, eps=1e-3)", "NAdam(parameters, lr=0.01, eps=1e-3)",
    "RAdam(parameters, lr=0.01, eps=1e-3)", "ASGD(parameters, lr=0.05)",
)  # fmt: skip


class Maker:
    """Writes a model, its loss and its optimizer: `shape` is that of a sample as it is by then."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.loss, self.optimizer = self.random.choice(_LOSSES), self.random.choice(_OPTIMIZERS)
        size = self.random.choice((2, 3, 4))
        self.shape = self.random.choice(((size + 2,), (size, 6), (size, 5, 6), (size, 3, 4, 4)))
        self.first = self.shape
        self.batch = self.random.choice((2, 3, 5))

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    # -- layers: the text, with the shape changed ---------------------------------------------------------------------------
    def linear(self) -> str:
        before, after = self.shape[-1], self.random.randint(2, 6)
        self.shape = (*self.shape[:-1], after)
        return f"Linear({before}, {after}, bias={self.one_of(True, True, False)})"

    def convolution(self) -> str:
        n, before = len(self.shape) - 1, self.shape[0]
        groups = self.one_of(1, 1, before)
        after = groups * self.random.randint(1, 3)
        mode = self.one_of("zeros", "zeros", "circular", "replicate") if n < 3 else "zeros"
        if self.one_of(True, True, False):
            kernel, stride, padding = self.one_of((3, 1, 1), (1, 1, 0), (3, 2, 1), (2, 1, "'same'"))
            about = f"stride={stride}, padding={padding}, groups={groups}, padding_mode='{mode}'"
            text = f"Conv{n}d({before}, {after}, {kernel}, {about})"
            sizes = [(size - 1) // stride + 1 for size in self.shape[1:]]
        else:
            text = f"ConvTranspose{n}d({before}, {after}, 2, stride=1, groups={groups}, bias={self.one_of(True, False)})"
            sizes = [size + 1 for size in self.shape[1:]]
        self.shape = (after, *sizes)
        return text

    def norm(self) -> str:
        n, channels = len(self.shape) - 1, self.shape[0]
        options = [f"LayerNorm({self.shape[-1]})", f"LayerNorm({self.shape}, eps=0.01)", f"RMSNorm({self.shape[-1]}, eps=0.01)"]
        affine = f"affine={self.one_of(True, False)}"
        options.append(f"BatchNorm{max(n, 1)}d({channels}, momentum={self.one_of(0.1, 0.3, None)}, {affine})")
        if n and min(self.shape[1:]) > 1:
            options += [f"InstanceNorm{n}d({channels}, {affine})", f"GroupNorm({self.one_of(1, channels)}, {channels})"]
        return str(self.random.choice(options))

    def pool(self) -> str:
        n = len(self.shape) - 1
        kind = self.one_of("MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool")
        if kind.startswith("Adaptive"):
            self.shape = (self.shape[0], *[2] * n)
            return f"{kind}{n}d(2)"
        self.shape = (self.shape[0], *[size // 2 for size in self.shape[1:]])
        return f"{kind}{n}d(2)"

    def pad(self) -> str:
        n = len(self.shape) - 1
        self.shape = (self.shape[0], *[size + 2 for size in self.shape[1:]])
        return f"{self.one_of('ReflectionPad', 'ReplicationPad', 'ZeroPad', 'CircularPad')}{n}d(1)"

    def upsample(self) -> str:
        mode = self.one_of("nearest", ("linear", "bilinear", "trilinear")[len(self.shape) - 2])
        self.shape = (self.shape[0], *[size * 2 for size in self.shape[1:]])
        return f"Upsample(scale_factor=2, mode='{mode}')"

    # -- layers over sequences: a sample is (length, features) ---------------------------------------------------------------
    def recurrent(self) -> str:
        kind, layers, both = self.one_of("LSTM", "GRU", "RNN"), self.one_of(1, 2), self.one_of(True, False)
        before, hidden = self.shape[-1], self.random.randint(2, 4)
        about = f"num_layers={layers}, bidirectional={both}, batch_first=True, bias={self.one_of(True, True, False)}"
        size = hidden
        if kind == "LSTM" and hidden > 2 and self.one_of(True, False):
            size, about = hidden - 1, f"{about}, proj_size={hidden - 1}"
        if kind == "RNN":
            about += f", nonlinearity='{self.one_of('tanh', 'relu')}'"
        self.shape = (self.shape[0], size * (2 if both else 1))
        return f"First({kind}({before}, {hidden}, {about}))"

    def attention(self) -> str:
        width = self.shape[-1]
        heads = self.random.choice([n for n in (1, 2, 3) if width % n == 0])
        return f"Attends(MultiheadAttention({width}, {heads}, batch_first=True, bias={self.one_of(True, False)}))"

    def transformer(self) -> str:
        width = self.shape[-1]
        heads = self.random.choice([n for n in (1, 2, 3) if width % n == 0])
        about = f"dropout=0.0, activation='{self.one_of('relu', 'gelu')}', norm_first={self.one_of(True, False)}, batch_first=True"
        return f"TransformerEncoderLayer({width}, {heads}, {self.random.randint(2, 6)}, {about})"

    def flatten(self) -> str:
        self.shape = (int(np.prod(self.shape)),)
        return "Flatten()"

    # -- structure ----------------------------------------------------------------------------------------------------------
    def layers(self, depth: int) -> str:
        options: list[Callable[[], str]] = [lambda: str(self.random.choice(_ACTIVATIONS))] * 3 + [self.linear] * 2 + [self.norm]
        elements, spatial = int(np.prod(self.shape)), len(self.shape) > 1
        if spatial:
            options += [self.convolution] * 3 + [self.flatten]
            if min(self.shape[1:]) >= 2:
                options += [self.pool, self.pad] if elements < 150 else [self.pool] * 4
            if elements < 60:
                options.append(self.upsample)
        if len(self.shape) == 2:
            options += [self.recurrent, self.attention, self.transformer]
        if depth:
            options += [lambda: self.residual(depth), lambda: self.shared(depth), lambda: self.branches(depth)]
        return self.random.choice(options)()

    def sequence(self, depth: int, most: int) -> str:
        return f"Sequential({', '.join(self.layers(depth) for _ in range(self.random.randint(1, most)))})"

    def unchanged(self, depth: int) -> str:
        """Layers that leave the shape as it is."""
        before = self.shape
        for _ in range(20):
            text = self.sequence(depth - 1, 3)
            if self.shape == before:
                return text
            self.shape = before
        return "Identity()"

    def residual(self, depth: int) -> str:
        return f"Residual({self.unchanged(depth)})"

    def shared(self, depth: int) -> str:
        return f"Twice({self.unchanged(depth)})"

    def branches(self, depth: int) -> str:
        return f"Branches([{', '.join(self.unchanged(depth) for _ in range(2))}])"

    def model(self) -> str:
        body = self.sequence(2, 5)
        head = [self.flatten()] if len(self.shape) > 1 else []
        return f"Sequential({', '.join([body, *head, f'Linear({self.shape[0]}, 3)'])})"


class _WithBlocks(_Names):
    """The names of a torch's nn, and blocks of layers."""

    def __init__(self, torch: Any):
        super().__init__(torch)
        nn = torch.nn

        class Residual(nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, x: Any) -> Any:
                return x + self.inner(x * 1)

        class Twice(nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner
                self.calls = 2

            def forward(self, x: Any) -> Any:
                for _ in range(self.calls):
                    x = self.inner(x * 1)
                return x

        class Branches(nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = nn.ModuleList(inner)
                self.weights = nn.ParameterDict({str(k): torch.zeros(()) for k in range(len(inner))})

            def forward(self, x: Any) -> Any:
                return sum(self.weights[str(k)] * branch(x * 1) for k, branch in enumerate(self.inner))

        class First(nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, x: Any) -> Any:
                return self.inner(x)[0]

        class Attends(nn.Module):
            def __init__(self, inner: Any) -> None:
                super().__init__()
                self.inner = inner

            def forward(self, x: Any) -> Any:
                return self.inner(x, x, x, need_weights=False)[0]

        self.update(Residual=Residual, Twice=Twice, Branches=Branches, First=First, Attends=Attends)


def made(torch: Any, text: str) -> Any:
    model = fill(torch, eval(text, {}, _WithBlocks(torch)).double())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    return model


def loss_of(torch: Any, text: str) -> Callable[..., Any]:
    """A function of a loss's text."""
    return eval(f"lambda out, classes, wanted: F.{text}", {"F": torch.nn.functional})  # type: ignore[no-any-return]


def step(loss_function: Any, model: Any, optimizer: Any, x: Any, classes: Any, wanted: Any) -> Any:
    """A step of training: the loss before it."""
    optimizer.zero_grad()
    loss = loss_function(model(x), classes, wanted)
    loss.backward()
    optimizer.step()
    return loss.detach()


def trained(torch: Any, text: str, maker: Maker, one_step: Callable[..., Any] = step) -> list[Any]:
    """Losses, the state after training, and what the model gives in evaluation."""
    rng = np.random.default_rng(7)
    x = torch.from_numpy(rng.standard_normal((maker.batch, *maker.first)))
    classes = torch.from_numpy(rng.integers(0, 3, maker.batch))
    wanted = torch.from_numpy(rng.standard_normal((maker.batch, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = made(torch, text)
        optimizer = eval(maker.optimizer, vars(torch.optim), {"parameters": model.parameters()})
        loss = loss_of(torch, maker.loss)
        found = [one_step(loss, model, optimizer, x, classes, wanted) for _ in range(STEPS)]
        found += list(model.state_dict().values())
        with torch.no_grad():
            found.append(model.eval()(x))
    return [np.asarray(t.numpy()) for t in found]


def outcome(torch: Any, text: str, maker: Maker, one_step: Callable[..., Any] = step) -> Any:
    """As `trained`; or the type of the error: what writes in place may be refused."""
    try:
        return trained(torch, text, maker, one_step)
    except (RuntimeError, ValueError) as error:
        return type(error).__name__


def compiled(text: str, maker: Maker) -> tuple[Any, Any]:
    """The outcome by a compiled step; and its statistics."""
    function = dg.compile(step, backend="numpy", mode="max")
    return outcome(own, text, maker, function), function.stats


def difference(expected: Any, got: Any) -> str:
    """What differs between two outcomes, or nothing."""
    if isinstance(expected, str) or isinstance(got, str):
        return "" if isinstance(expected, str) and expected == got else f"{expected!r:.200} and {got!r:.200}"
    for k, (a, b) in enumerate(zip(expected, got, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, atol=1e-8, equal_nan=True):
            return f"result {k} of {len(expected)}: {a!r:.200} and {b!r:.200}"
    return ""


def kept(found: Any) -> np.ndarray:
    """What is recorded of an outcome: the losses, the sum of the state, the last result; or the name of an error."""
    if isinstance(found, str):
        return np.array(found)
    state = sum(float(np.sum(a)) for a in found[STEPS:-1])
    return np.array([*map(float, found[:STEPS]), state, *found[-1].ravel()])


def record(torch: Any) -> None:
    """Write down the outcomes of some models."""
    makers = {seed: Maker(seed) for seed in RECORDED}
    np.savez_compressed(FILE, **{str(seed): kept(outcome(torch, maker.model(), maker)) for seed, maker in makers.items()})


def main() -> int:
    real = importlib.import_module("torch")
    if sys.argv[1] == "record":
        record(real)
        return 0
    first = int(sys.argv[1])
    wrong = 0
    for seed in range(first, int(sys.argv[2]) if len(sys.argv) > 2 else first + 1):
        maker = Maker(seed)
        text = maker.model()
        if len(sys.argv) == 2:
            print(text, maker.first, maker.loss, maker.optimizer)
        expected = outcome(real, text, maker)
        results, stats = compiled(text, maker)
        problems = {"plain": difference(expected, outcome(own, text, maker)), "compiled": difference(expected, results)}
        problems["breaks"] = "" if isinstance(expected, str) else "; ".join(map(str, stats.breaks))
        for kind, problem in problems.items():
            if problem:
                wrong += kind != "breaks"
                print(f"model {seed} {kind}: {problem}\n    {text}\n    {maker.loss} {maker.optimizer}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
