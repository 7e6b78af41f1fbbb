"""autograd.Function."""

from __future__ import annotations

from typing import Any

from tests.torch.behaviours import behaviour, fresh, loose, raised


def made(torch: Any, forward: Any, backward: Any = None, **others: Any) -> Any:
    """A Function."""
    methods = {"forward": forward, **others} | ({} if backward is None else {"backward": backward})
    return type("Made", (torch.autograd.Function,), {name: staticmethod(f) for name, f in methods.items()})


def product(torch: Any) -> Any:
    def forward(ctx: Any, x: Any, y: Any, n: int) -> Any:
        ctx.save_for_backward(x, y)
        ctx.n = n
        return x * y

    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y, g * x, None

    return made(torch, forward, backward)


@behaviour
def context_and_node(torch: Any) -> Any:
    x, y = fresh(torch), fresh(torch)
    z = product(torch).apply(x, y, 2)
    node = z.grad_fn
    found = node.name(), node.n, node.needs_input_grad, node.saved_tensors, len(node.next_functions), node.saved_tensors[0] is x
    z.sum().backward()
    return found, x.grad, y.grad, raised(lambda: z.sum().backward()), raised(lambda: node.saved_tensors)


@behaviour
def second_derivative(torch: Any) -> Any:
    x, y = fresh(torch), fresh(torch)
    (g,) = torch.autograd.grad(product(torch).apply(x, y, 2).sum(), x, create_graph=True)
    return torch.autograd.grad((g * g).sum(), y)


@behaviour
def what_backward_must_give(torch: Any) -> Any:
    x, y = fresh(torch, dtype=torch.float32), fresh(torch, dtype=torch.float32)
    results = [
        lambda g: g, lambda g: (g, g, g), lambda g: (g, g, None), lambda g: (g, 3.0), lambda g: (g, torch.ones(2)),
        lambda g: (g, g.double()), lambda g: (None, g), lambda g: (g, g.expand(2, 3)),
    ]  # fmt: skip
    return [
        raised(made(torch, lambda ctx, a, b: a * b, lambda ctx, g, r=r: r(g)).apply(x, y).sum().backward) for r in results
    ] + [x.grad, y.grad]  # fmt: skip


@behaviour
def gradient_for_what_is_no_tensor(torch: Any) -> Any:
    return raised(made(torch, lambda ctx, a, n: a * n, lambda ctx, g: (g, g)).apply(fresh(torch), 2.0).sum().backward)


@behaviour
def without_backward(torch: Any) -> Any:
    function = made(torch, lambda ctx, x: x * 2)
    y = function.apply(fresh(torch))
    return raised(y.sum().backward), raised(lambda: function()(1)), y.requires_grad


@behaviour
def both_backward_and_vjp(torch: Any) -> Any:
    function = made(torch, lambda ctx, x: x * 2, lambda ctx, g: g, vjp=lambda ctx, g: g)
    return raised(lambda: function.apply(fresh(torch)).sum().backward())


@behaviour
def vjp_alone(torch: Any) -> Any:
    x = fresh(torch)
    made(torch, lambda ctx, x: x * 2, vjp=lambda ctx, g: g * 5).apply(x).sum().backward()
    return x.grad


def _written(ctx: Any, x: Any) -> Any:
    ctx.mark_dirty(x)
    x.add_(1)
    return x


@behaviour
def writes_to_inputs(torch: Any) -> Any:
    x = fresh(torch)
    function = made(torch, _written, lambda ctx, g: g * 7)
    a = x * 2
    b = function.apply(a)
    whole = x * 3
    part = whole[:2]
    c = function.apply(part)
    (a.sum() + whole.sum()).backward()
    return (
        b is a, a, a._version, a.grad_fn.name(), c is part, type(part.grad_fn).__name__, type(whole.grad_fn).__name__, x.grad,
        raised(lambda: function.apply(x)),
    )  # fmt: skip


@behaviour
def writes_that_are_not_returned(torch: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x.add_(1) * 2

    return raised(lambda: made(torch, forward, lambda ctx, g: g).apply(fresh(torch) * 1))


@behaviour
def inputs_that_are_returned(torch: Any) -> Any:
    x = fresh(torch)
    y = made(torch, lambda ctx, x: x, lambda ctx, g: g * 2).apply(x)
    z = made(torch, lambda ctx, x: x[:2], lambda ctx, g: torch.cat([g * 3, g[:1]])).apply(x)
    texts = raised(lambda: y.add_(1)), raised(lambda: z.add_(1))
    (y.sum() + z.sum()).backward()
    return y is x, y._is_view(), z._is_view(), y.grad_fn.name(), texts, x.grad


@behaviour
def outputs_that_cannot_be_differentiated(torch: Any) -> Any:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        other = x * 1
        ctx.mark_non_differentiable(other)
        return x * 2, x > 1, other

    x = fresh(torch)
    outs = made(torch, forward, lambda ctx, *g: seen.extend(g) or g[0]).apply(x)
    outs[0].sum().backward()
    return [o.requires_grad for o in outs], seen, x.grad


@behaviour
def gradients_that_are_not_materialized(torch: Any) -> Any:
    seen: list[Any] = []

    def forward(ctx: Any, x: Any) -> Any:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    x = fresh(torch)
    made(torch, forward, lambda ctx, a, b: seen.extend((a, b)) or b).apply(x)[1].sum().backward()
    return seen, x.grad


@behaviour
def results_that_are_no_tensors(torch: Any) -> Any:
    return made(torch, lambda ctx, x: (x * 2, 5, "text"), lambda ctx, *g: g[0]).apply(fresh(torch))


@behaviour
def once_differentiable(torch: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Any) -> Any:
        return g * 2 * ctx.saved_tensors[0]

    x = fresh(torch)
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    y = made(torch, forward, backward).apply(x)
    (plain,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (g,) = torch.autograd.grad(y, x, weight, create_graph=True)
    return plain, g, raised(lambda: g.sum().backward())


@behaviour
def saved_results(torch: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    function = made(torch, forward, lambda ctx, g: g * ctx.saved_tensors[0])
    x = fresh(torch, dtype=torch.float32)
    y = function.apply(x)
    kept = y.grad_fn.saved_tensors
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    second = torch.autograd.grad(g.sum(), x)
    y = function.apply(x)
    y.add_(1)
    return kept, second, raised(y.sum().backward).replace("output 0 of Made", "output 0 of it")


@behaviour
def setup_context(torch: Any) -> Any:
    seen: list[Any] = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        seen.append((len(inputs), output.requires_grad))
        ctx.k = inputs[1]

    function = made(torch, lambda x, k=3: x * k, lambda ctx, g: (g * ctx.k, None), setup_context=setup)
    x = fresh(torch)
    function.apply(x, k=4).sum().backward()
    function.apply(x).sum().backward()
    return seen, x.grad


@loose
def what_can_be_saved(torch: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x, 3)
        return x * 2

    return made(torch, forward, lambda ctx, g: g).apply(fresh(torch))


@behaviour
def none_is_saved(torch: Any) -> Any:
    def forward(ctx: Any, x: Any, bias: Any) -> Any:
        ctx.save_for_backward(x, bias)
        return x * 2

    y = made(torch, forward, lambda ctx, g: (g * 2, None)).apply(fresh(torch), None)
    return y.grad_fn.saved_tensors


@behaviour
def recording_is_off_in_forward_and_follows_create_graph_in_backward(torch: Any) -> Any:
    seen: list[bool] = []

    def forward(ctx: Any, x: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return x * 2

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(torch.is_grad_enabled())
        return g * 2

    x = fresh(torch)
    y = made(torch, forward, backward).apply(x)
    torch.autograd.grad(y.sum(), x, retain_graph=True)
    torch.autograd.grad(y.sum(), x, create_graph=True)
    with torch.no_grad():
        off = made(torch, forward, backward).apply(x)
    return seen, off.requires_grad


@behaviour
def needs_input_grad(torch: Any) -> Any:
    seen: list[Any] = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return g, None, g

    x, y = fresh(torch), torch.ones(3, dtype=torch.float64)
    made(torch, lambda ctx, a, b, c: a + b + c, backward).apply(x, y, x).sum().backward()
    return seen, x.grad


@behaviour
def halves(torch: Any) -> Any:
    seen: list[str] = []
    x = fresh(torch, dtype=torch.float16)
    made(torch, lambda ctx, a: a * 2, lambda ctx, g: seen.append(str(g.dtype)) or g * 2).apply(x).sum().backward()
    return seen, x.grad


@behaviour
def forward_mode_calls_jvp(torch: Any) -> Any:
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_forward(x)
        ctx.save_for_backward(x)
        return x * x

    def jvp(ctx: Any, t: Any) -> Any:
        return ctx.saved_tensors[0] * t * 10

    function = made(torch, forward, lambda ctx, g: g, jvp=jvp)
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 1.0]))
        return forward_ad.unpack_dual(function.apply(dual).sum() * 2).tangent


@behaviour
def attributes_named_as_those_of_nodes(torch: Any) -> Any:
    def forward(ctx: Any, a: Any) -> Any:
        ctx.x, ctx.out, ctx.saved, ctx.edges, ctx.attrs = 1, 2, 3, 4, 5
        return a * 2

    def backward(ctx: Any, g: Any) -> Any:
        return g * (ctx.x + ctx.out + ctx.saved + ctx.edges + ctx.attrs)

    x = fresh(torch)
    made(torch, forward, backward).apply(x).sum().backward()
    return x.grad
