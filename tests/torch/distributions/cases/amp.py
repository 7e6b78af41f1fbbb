"""torch.amp: dtypes of functions in regions, the state of a thread, gradients, and GradScaler."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from tests.torch.distributions.tools import wrong
from tests.torch.table import Case, T, attribute, program

# what is called in a region of bfloat16 with float32, bfloat16 and one of each: the arguments, "i" is an index
KINDS = (("float32", "bfloat16"), ("bfloat16", "bfloat16"), ("float32 bfloat16", "bfloat16"), ("float32", "float16"))
OF_ONE_DTYPE = ("mv", "dot", "addmv", "linalg.multi_dot", "chain_matmul", "inner", "tensordot", "nn.functional.bilinear")
M, V, B, X = T(3, 3), T(3), T(2, 3, 3), T(2, 3, 6)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("mm", (M, M), {}), ("matmul", (M, V), {}), ("matmul", (B, M), {}), ("bmm", (B, B), {}), ("mv", (M, V), {}),
    ("dot", (V, V), {}),
    ("addmm", (M, M, M), {}), ("baddbmm", (B, B, B), {}), ("addbmm", (M, B, B), {}), ("addmv", (V, M, V), {}),
    ("outer", (V, V), {}),
    ("linalg.vecdot", (M, M), {}), ("linalg.multi_dot", ([M, M, M],), {}), ("chain_matmul", (M, M, M), {}), ("inner", (M, M), {}),
    ("inner", (V, V), {}), ("tensordot", (M, M), {"dims": 1}), ("einsum", ("ij,jk,kl->il", M, M, M), {}),
    ("einsum", ("i,i->", V, V), {}), ("einsum", ("i,j->ij", V, V), {}), ("einsum", ("ij,k->i", M, V), {}), ("cov", (M,), {}),
    ("nn.functional.linear", (M, M, V), {}), ("nn.functional.bilinear", (M, M, T(2, 3, 3)), {}),
    ("nn.functional.conv1d", (X, T(2, 3, 2), T(2)), {}), ("nn.functional.conv2d", (T(1, 2, 4, 4), T(3, 2, 2, 2)), {}),
    ("nn.functional.conv_transpose1d", (X, T(3, 2, 2)), {}), ("nn.functional.prelu", (M, T(1)), {}),
    ("nn.functional.scaled_dot_product_attention", (B, B, B), {}),
    ("nn.functional.mse_loss", (M, M), {}), ("nn.functional.l1_loss", (M, M), {}), ("nn.functional.smooth_l1_loss", (M, M), {}),
    ("nn.functional.huber_loss", (M, M), {}), ("nn.functional.kl_div", (M, M), {"reduction": "sum"}),
    ("nn.functional.binary_cross_entropy_with_logits", (M, M), {}), ("nn.functional.soft_margin_loss", (M, M), {}),
    ("nn.functional.cosine_embedding_loss", (M, M, V), {}), ("nn.functional.triplet_margin_loss", (M, M, M), {}),
    ("nn.functional.poisson_nll_loss", (M, M), {}), ("nn.functional.margin_ranking_loss", (V, V, V), {}),
    ("nn.functional.cross_entropy", (M, T(3, kind="index:3")), {}), ("nn.functional.nll_loss", (M, T(3, kind="index:3")), {}),
    ("nn.functional.softmax", (M, 0), {}), ("softmax", (M, 0), {}), ("log_softmax", (M, 0), {}), ("logsumexp", (M, 0), {}),
    ("nn.functional.layer_norm", (M, (3,)), {}), ("nn.functional.group_norm", (X, 3), {}), ("nn.functional.gelu", (M,), {}),
    ("nn.functional.avg_pool3d", (T(1, 1, 2, 2, 2), 2), {}), ("nn.functional.max_pool3d", (T(1, 1, 2, 2, 2), 2), {}),
    ("nn.functional.pad", (X, (1, 1)), {"mode": "reflect"}), ("nn.functional.pad", (X, (1, 1)), {"mode": "circular"}),
    ("nn.functional.interpolate", (T(1, 1, 2, 2),), {"scale_factor": 2}), ("cdist", (M, M), {}), ("prod", (M,), {}),
    ("prod", (M, 1), {}), ("cumprod", (M, 1), {}), ("sum", (M,), {}), ("sum", (M, 1), {}), ("trace", (M,), {}), ("exp", (M,), {}),
    ("pow", (M, 2), {}), ("add", (M, M), {}), ("mul", (M, M), {}), ("quantile", (V, 0.5), {}), ("fft.rfft", (M,), {}),
    ("linalg.solve", (T(3, 3, kind="psd"), V), {}), ("inverse", (T(3, 3, kind="psd"),), {}), ("cat", ([M, M],), {}),
    ("stack", ([M, M],), {}), ("index_copy", (M, 0, T(1, kind="index:3"), T(1, 3)), {}), ("nn.functional.dropout", (M, 0.0), {}),
]  # fmt: skip


def within(name: str, kinds: str, lower: str, about: dict[str, Any]) -> Callable[..., Any]:
    """What a function gives in a region, for tensors of one dtype, or of two in turn."""

    def run(torch: Any, *args: Any) -> Any:
        dtypes, count = [getattr(torch, k) for k in kinds.split()], 0

        def cast(value: Any) -> Any:
            nonlocal count
            if isinstance(value, list):
                return [cast(v) for v in value]
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                count += 1
                return value.to(dtypes[count % len(dtypes)])
            return value

        given = [cast(a) for a in args]
        with torch.autocast("cpu", dtype=getattr(torch, lower)):
            return attribute(torch, name)(*given, **about)

    return run


def methods(torch: Any, x: Any) -> Any:
    with torch.autocast("cpu"):
        y = x.float()
        results = [
            y @ y,
            y.mm(y),
            y.matmul(y.half()),
            y.sum(),
            y.prod(),
            y.exp(),
            y.softmax(0),
            y.bfloat16().addmm_(y.bfloat16(), y.bfloat16()),
        ]
        target = torch.empty(3, 3)
        torch.mm(y.detach(), y.detach(), out=target)
    return [r.dtype for r in results], target.dtype, (x.double() @ x.double()).dtype


def state(torch: Any) -> Any:
    """What the thread's state is in regions within regions."""
    seen: list[Any] = []

    def see() -> None:
        seen.extend((torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()))
        seen.extend((torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), torch.is_autocast_enabled()))

    x = torch.ones(2, 2)
    see()
    with torch.autocast("cpu", cache_enabled=False):
        see()
        with torch.autocast("cpu", torch.float16):
            see()
            seen.append((x @ x).dtype)
            with torch.autocast(device_type="cpu", enabled=False):
                see()
                seen.append((x @ x).dtype)
                with torch.amp.autocast("cpu"):
                    seen.append((x @ x).dtype)
        seen.append((x @ x).dtype)
    try:
        with torch.autocast("cpu"):
            raise KeyError
    except KeyError:
        see()
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)
    see()
    seen.append((x @ x).dtype)
    torch.set_autocast_cpu_enabled(False)
    torch.set_autocast_cpu_dtype(torch.bfloat16)
    torch.set_autocast_cache_enabled(True)
    torch.clear_autocast_cache()
    see()
    seen.extend((torch.get_autocast_gpu_dtype(), torch.get_autocast_cpu_dtype(), torch.is_autocast_cpu_enabled()))
    seen.extend(
        (torch.amp.is_autocast_available("cpu"), torch.amp.is_autocast_available("cuda"), torch.amp.is_autocast_available("meta"))
    )
    return [str(s) for s in seen]


def warned(torch: Any) -> Any:
    """What regions and scalers warn of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast("cpu", dtype=torch.float64):
            off = torch.is_autocast_enabled("cpu"), str(torch.get_autocast_dtype("cpu"))
        with torch.cpu.amp.autocast():
            dtype = str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype)
        scaler = torch.cpu.amp.GradScaler(init_scale=4.0)
    return off, dtype, scaler.get_scale(), [(w.category.__name__, str(w.message)) for w in caught]


def decorated(torch: Any, x: Any, w: Any) -> Any:
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(a: Any, b: Any) -> Any:
        """Of two."""
        return a @ b

    result = product(x.float(), w.float())
    return result, product.__name__, product.__doc__, (x.float() @ w.float()).dtype


def weights(torch: Any, w: Any, cache: bool) -> Any:
    """Gradients of a weight that is used several times: with the cache they are added up as bfloat16."""
    w = w.detach().float().requires_grad_()
    x = torch.ones(2, 3)
    with torch.autocast("cpu", cache_enabled=cache):
        y = x
        for _ in range(4):
            y = torch.tanh(y @ w)
        loss = torch.nn.functional.mse_loss(y, torch.zeros(2, 3))
    loss.backward()
    return loss.detach(), w.grad


def customs(torch: Any, x: Any) -> Any:
    seen: list[Any] = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu")
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.save_for_backward(a, b)
            seen.append(torch.is_autocast_enabled("cpu"))
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            seen.append((torch.is_autocast_enabled("cpu"), str(g.dtype), str((g @ b.t()).dtype)))
            return g @ b.t(), a.t() @ g

    class Cast(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx: Any, a: Any, more: Any) -> Any:
            seen.append((str(a.dtype), str(more[0].dtype), torch.is_autocast_enabled("cpu")))
            return a * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(torch.is_autocast_enabled("cpu"))
            return g * 2, None

    leaf = x.detach().float().requires_grad_()
    with torch.autocast("cpu"):
        product = Product.apply(leaf, leaf)
        doubled = Cast.apply(product, [product.detach()])
    (product.float().sum() + doubled.sum()).backward()
    outside = Cast.apply(product.detach(), [x.half()])
    return product.dtype, doubled.dtype, outside.dtype, [str(s) for s in seen], leaf.grad


def computed_again(torch: Any, x: Any, reentrant: bool) -> Any:
    """What a checkpoint computes again outside of the region is computed as it was within."""
    checkpoint = importlib.import_module(f"{torch.__name__}.utils.checkpoint").checkpoint
    leaf, seen = x.detach().float().requires_grad_(), []

    def block(y: Any) -> Any:
        seen.append(torch.is_autocast_enabled("cpu"))
        return torch.tanh(y @ y)

    with torch.autocast("cpu"):
        y = checkpoint(block, leaf, use_reentrant=reentrant)
    y.float().sum().backward()
    return y.dtype, seen, torch.is_autocast_enabled("cpu"), leaf.grad


class Descent:
    """An optimizer: what a scaler asks of it."""

    def __init__(self, torch: Any, *parameters: Any, rate: float = 0.1):
        self.torch, self.rate, self.steps, self.param_groups = torch, rate, 0, [{"params": list(parameters)}]

    def step(self) -> int:
        self.steps += 1
        with self.torch.no_grad():
            for parameter in self.param_groups[0]["params"]:
                if parameter.grad is not None:
                    parameter -= self.rate * parameter.grad
        return self.steps


def training(torch: Any, x: Any, w: Any) -> Any:
    """Steps with a scaler, one of which is skipped, whose factor grows."""
    a, b = (w.detach().float().requires_grad_() for _ in range(2))
    first, second = Descent(torch, a), Descent(torch, b)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    seen: list[Any] = [scaler.get_scale(), scaler.is_enabled()]
    for k in range(6):
        a.grad = b.grad = None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.mse_loss(x.float() @ a @ b, x.float())
        scaler.scale(loss * (float("inf") if k == 3 else 1.0)).backward()
        if k % 2:
            scaler.unscale_(first)
            seen.append(a.grad)
        results = scaler.step(first), scaler.step(second)
        scaler.update()
        seen.append((results, scaler.get_scale(), scaler.state_dict()["_growth_tracker"]))
    saved = scaler.state_dict()
    other = torch.amp.GradScaler("cpu")
    other.load_state_dict(saved)
    seen += [
        sorted(saved.items()),
        other.get_scale(),
        other.get_growth_factor(),
        other.get_backoff_factor(),
        other.get_growth_interval(),
    ]
    scaler.scale(a.sum()).backward()
    scaler.unscale_(first)
    scaler.update(3.0)
    seen.append(scaler.get_scale())
    scaler.update(torch.tensor(5.0))
    scaled = scaler.scale([a.detach(), (b.detach(),)])
    off = torch.amp.GradScaler("cpu", enabled=False)
    seen += [scaler.get_scale(), scaled, off.scale(3), off.step(first), off.get_scale(), off.state_dict(), off.update()]
    return a.detach(), b.detach(), seen


def misused(how: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    def run(torch: Any) -> Any:
        w = torch.ones(2, requires_grad=True)
        scaler = torch.amp.GradScaler("cpu")
        return how(torch, scaler, Descent(torch, w))

    return run


def _scaled(scaler: Any, optimizer: Any) -> Any:
    scaler.scale(optimizer.param_groups[0]["params"][0].sum()).backward()
    return scaler


MISUSES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "step before scale": lambda torch, s, o: s.step(o),
    "update before scale": lambda torch, s, o: s.update(),
    "unscale_ before scale": lambda torch, s, o: s.unscale_(o),
    "unscale_ twice": lambda torch, s, o: (_scaled(s, o).unscale_(o), s.unscale_(o)),
    "unscale_ after step": lambda torch, s, o: (_scaled(s, o).step(o), s.unscale_(o)),
    "step twice": lambda torch, s, o: (_scaled(s, o).step(o), s.step(o)),
    "step with closure": lambda torch, s, o: _scaled(s, o).step(o, closure=lambda: 0),
    "step without gradients": lambda torch, s, o: (s.scale(torch.ones(1)), s.step(o)),
    "update without step": lambda torch, s, o: (s.scale(torch.ones(1)), s.update()),
    "scale of a number": lambda torch, s, o: s.scale(3),
    "empty state": lambda torch, s, o: s.load_state_dict({}),
    "growth": lambda torch, s, o: torch.amp.GradScaler("cpu", growth_factor=1.0),
    "backoff": lambda torch, s, o: torch.amp.GradScaler("cpu", backoff_factor=1.0),
    "half gradients": lambda torch, s, o: (
        o.param_groups[0]["params"].__setitem__(0, torch.ones(1, dtype=torch.float16, requires_grad=True)),
        _scaled(s, o).unscale_(o),
    ),
    "new scale of two": lambda torch, s, o: _scaled(s, o).update(torch.ones(2)),
    "device type": lambda torch, s, o: torch.autocast(3),
    "dtype": lambda torch, s, o: torch.set_autocast_dtype("cpu", 3),
    "decorating nothing": lambda torch, s, o: torch.autocast("cpu")(3),
    "promotion of both halves": lambda torch, s, o: torch.autocast("cpu")(torch.cat)([torch.ones(1).half()] * 2),
    "device of custom_fwd": lambda torch, s, o: torch.amp.custom_fwd(device_type=3),
}  # fmt: skip
CASES: list[Case] = [
    *(
        program(
            f"{name} of {kinds} in {lower} {k}", within(name, kinds, lower, about), *args, _dtypes="", _grad=False, _strides=False
        )
        for k, (name, args, about) in enumerate(CALLS)
        for kinds, lower in KINDS
        if " " not in kinds or name not in OF_ONE_DTYPE
    ),
    program("methods in a region", methods, T(3, 3), _dtypes="", _grad=False),
    program("state", state),
    program("warnings", warned),
    program("decorated", decorated, T(2, 3), T(3, 2), _dtypes="", _grad=False),
    program("a weight used again", lambda torch, w: weights(torch, w, True), T(3, 3), _dtypes=""),
    program("a weight used again, without cache", lambda torch, w: weights(torch, w, False), T(3, 3), _dtypes=""),
    program("custom_fwd and custom_bwd", customs, T(3, 3), _dtypes=""),
    *(
        program(f"computed again, {which}", lambda torch, x, which=which: computed_again(torch, x, which), T(3, 3), _dtypes="")
        for which in (False, True)
    ),
    program("training", training, T(4, 3), T(3, 3), _dtypes=""),
    *(wrong(name, misused(how)) for name, how in MISUSES.items()),
]
