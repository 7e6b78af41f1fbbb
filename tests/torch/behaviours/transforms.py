"""torch.func."""

from __future__ import annotations

from typing import Any

from tests.torch.behaviours import behaviour, fresh, raised


def vector(torch: Any) -> Any:
    return torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def rows(torch: Any) -> Any:
    return torch.arange(6.0, dtype=torch.float64).reshape(3, 2)


@behaviour
def gradients(torch: Any) -> Any:
    grad, x = torch.func.grad, vector(torch)
    return (
        grad(lambda x: (x * x).sum())(x),
        grad(lambda x, y: (x * y).sum(), argnums=(0, 1))(x, x),
        grad(lambda d: (d["a"] * d["b"][0]).sum())({"a": x, "b": (x * 2,)}),
        grad(lambda x: ((x * x).sum(), x), has_aux=True)(x),
        grad(lambda x: torch.ones(()))(x),
        torch.func.grad_and_value(lambda x: ((x * x).sum(), x * 3), has_aux=True)(x),
        grad(grad(grad(lambda x: x**4)))(torch.tensor(2.0)),
    )


@behaviour
def errors_of_grad(torch: Any) -> Any:
    grad, x = torch.func.grad, vector(torch)
    return [
        raised(lambda: grad(lambda x: x)(x)),
        raised(lambda: grad(lambda x: 3)(x)),
        raised(lambda: grad(lambda x: x.sum(), has_aux=True)(x)),
        raised(lambda: grad(lambda x: x.sum(), argnums=2)(x)),
        raised(lambda: grad(lambda x: x.sum(), argnums="a")(x)),
        raised(lambda: grad(lambda x, y: (x * y).sum(), argnums=(0, 0))(x, x)),
        raised(lambda: grad(lambda x: x.sum())(torch.ones(3, dtype=torch.int64))),
    ]


@behaviour
def products_with_jacobians(torch: Any) -> Any:
    func, x = torch.func, vector(torch)
    value, pull = func.vjp(lambda x, y: (x * y, y), x, x)
    output, push = func.linearize(lambda x: x * x, x)
    return (
        value, pull((x, x)), output, push(x), func.vjp(lambda x: (x * x, x), x, has_aux=True)[::2],
        func.jvp(lambda x: x * x, (x,), (x * 2,)),
        func.jvp(lambda x: (x * x, x), (x,), (x * 2,), has_aux=True),
        func.jvp(lambda x: torch.ones(2), (x,), (x,)),
        func.jvp(lambda x, d: {"a": x * d["b"]}, (x, {"b": x}), (x, {"b": x})),
    )  # fmt: skip


@behaviour
def errors_of_products(torch: Any) -> Any:
    func, x = torch.func, vector(torch)
    _, pull = func.vjp(lambda x: x * x, x)
    return [
        raised(lambda: pull(torch.ones(2, dtype=torch.float64))),
        raised(lambda: func.vjp(lambda x: 3, x)),
        raised(lambda: func.jvp(lambda x: x * x, x, x)),
        raised(lambda: func.jvp(lambda x: x * x, (x,), (torch.ones(2),))),
        raised(lambda: func.jvp(lambda x: torch.ones(2), (x,), (x,), strict=True)),
    ]


@behaviour
def jacobians(torch: Any) -> Any:
    func, x = torch.func, vector(torch)
    found = []
    for jacobian in (func.jacrev, func.jacfwd):
        found += [
            jacobian(lambda x: (x * x, x.sum()))(x),
            jacobian(lambda x, y: x * y, argnums=(0, 1))(x, x),
            jacobian(lambda d: {"o": d["a"] * 2})({"a": x}),
            jacobian(lambda x: (x * x, x), has_aux=True)(x),
            jacobian(lambda x: torch.ones(2, dtype=torch.float64))(x),
            jacobian(lambda x: x.reshape(3, 1) * x)(x),
        ]
    return [*found, func.jacrev(lambda x: x * x, chunk_size=2)(x), func.jacrev(lambda x: x * x, chunk_size=1)(x)]


@behaviour
def second_derivatives(torch: Any) -> Any:
    func, x = torch.func, vector(torch)

    def cube(x: Any) -> Any:
        return (x**3).sum()

    return [
        func.hessian(cube)(x),
        *(outer(inner(cube))(x) for outer in (func.jacrev, func.jacfwd) for inner in (func.jacrev, func.jacfwd)),
        func.hessian(lambda x, y: (x * x * y).sum(), argnums=(0, 1))(x, x),
        func.jvp(func.grad(cube), (x,), (x,)),
        torch.vmap(func.hessian(cube))(rows(torch)),
    ]


@behaviour
def examples(torch: Any) -> Any:
    vmap, x = torch.vmap, rows(torch)
    return [
        vmap(lambda a: a.sum())(x),
        vmap(lambda a: a.sum(), in_dims=1)(x),
        vmap(lambda a: a * 2, out_dims=1)(x),
        vmap(lambda a, b: a * b, in_dims=(0, None))(x, torch.ones(2)),
        vmap(vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(torch.arange(3.0), torch.arange(2.0)),
        vmap(lambda a: torch.ones(2))(x),
        vmap(lambda a: torch.ones(2), out_dims=None)(x),
        vmap(lambda a: {"a": a, "b": (a, a.sum())}, out_dims=0)(x),
        vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(x),
        vmap(lambda d, k: d["a"] * k, in_dims=({"a": 0}, None))({"a": x}, 3),
        vmap(lambda a: a * 2, chunk_size=2)(x),
        vmap(lambda a, b: a + b, in_dims=(-1, 0))(x, x.T),
        vmap(lambda a: a.add_(1))(x.clone()),
    ]


@behaviour
def parts_of_examples(torch: Any) -> Any:
    vmap, x, i = torch.vmap, rows(torch), torch.tensor([0, 1, 0])
    return [
        vmap(lambda a: a[0])(x),
        vmap(lambda a: a[1:])(x),
        vmap(lambda i: x[i])(i),
        vmap(lambda a, i: a.gather(0, i))(x, i[:, None]),
        vmap(lambda a: a.sort(descending=True))(x),
        vmap(lambda a: torch.where(a > 1, a, 0.0))(x),
        vmap(lambda a: torch.einsum("i,j->ij", a, a))(x),
        vmap(lambda a: torch.cat([a, torch.zeros(2, dtype=a.dtype)]))(x),
    ]


@behaviour
def what_one_example_looks_like(torch: Any) -> Any:
    seen: list[Any] = []

    def look(a: Any) -> Any:
        seen.append((tuple(a.shape), a.dim(), str(a.dtype), a.numel(), a.stride(), a.is_contiguous()))
        return a

    torch.vmap(look)(rows(torch))
    return seen


@behaviour
def errors_of_vmap(torch: Any) -> Any:
    vmap, x = torch.vmap, rows(torch)
    return [
        raised(call)
        for call in (
            lambda: vmap(lambda a: 3)(x),
            lambda: vmap(lambda a: a.sum().item())(x),
            lambda: vmap(lambda a, b: a + b)(x, torch.ones(2, 2)),
            lambda: vmap(lambda a: a, in_dims=3)(x),
            lambda: vmap(lambda a: a, in_dims="x")(x),
            lambda: vmap(lambda a: a, in_dims=None)(x),
            lambda: vmap(lambda a: a, in_dims=(None,))(x),
            lambda: vmap(lambda: 1)(),
            lambda: vmap(lambda a: a)(3),
            lambda: vmap(lambda a: a, out_dims=5)(x),
            lambda: vmap(lambda a: a, out_dims=None)(x),
            lambda: vmap(lambda a: a, chunk_size=0)(x),
            lambda: vmap(lambda a: a, randomness="x")(x),
            lambda: vmap(lambda a: a + torch.rand(2))(x),
        )
    ] + [raised(lambda: vmap(lambda a, b: a.add_(b), in_dims=(None, 0))(torch.ones(2), x)).partition(":")[0]]


@behaviour
def random_numbers_of_examples(torch: Any) -> Any:
    vmap, x = torch.vmap, rows(torch)
    found = []
    for draw in (
        lambda a: torch.rand(2), lambda a: torch.randn(2), lambda a: torch.randint(0, 1000, (4,)), lambda a: torch.randperm(20),
        lambda a: torch.rand_like(a), lambda a: torch.nn.functional.dropout(a * 0 + torch.ones(20, 2), 0.5),
    ):  # fmt: skip
        for randomness in ("same", "different"):
            drawn = vmap(lambda a, draw=draw: draw(a) + 0 * a.sum(), randomness=randomness)(x)
            found.append(bool((drawn == drawn[0]).all()))
    return found


@behaviour
def gradients_of_each_example(torch: Any) -> Any:
    func, x, w = torch.func, rows(torch), torch.tensor([1.0, 2.0], dtype=torch.float64)
    p = {"w": torch.arange(6.0, dtype=torch.float64).reshape(3, 2) / 10, "b": torch.ones(3, dtype=torch.float64)}

    def mlp(p: Any, x: Any) -> Any:
        return torch.tanh(torch.nn.functional.linear(x, p["w"], p["b"])).sum()

    return [
        torch.vmap(func.grad(lambda a: (a**2).sum()))(x),
        torch.vmap(func.grad(lambda w, a: (a * w).sum() ** 2), in_dims=(None, 0))(w, x),
        torch.vmap(func.grad(mlp), in_dims=(None, 0))(p, x),
        torch.vmap(func.jacrev(lambda a: a * a))(x),
        torch.vmap(lambda a, v: func.jvp(lambda a: a * a, (a,), (v,)))(x, x),
    ]


@behaviour
def gradients_through_vmap(torch: Any) -> Any:
    func, x, w = torch.func, rows(torch), torch.tensor([1.0, 2.0], dtype=torch.float64)
    leaf = w.clone().requires_grad_()
    torch.vmap(lambda a: (a * leaf).sum() ** 2)(x).sum().backward()
    second = torch.vmap(func.grad(lambda a: (a * leaf).sum() ** 3))(x)
    return [
        leaf.grad,
        torch.autograd.grad(second.sum(), leaf),
        func.grad(lambda w: torch.vmap(lambda a: (a * w).sum() ** 2)(x).sum())(w),
        func.grad(lambda w: torch.vmap(func.grad(lambda a: (a * w).sum() ** 3))(x).sum())(w),
        func.jacrev(lambda w: torch.vmap(lambda a: (a * w).sum() ** 2)(x))(w),
        func.jacfwd(lambda w: torch.vmap(lambda a: (a * w).sum() ** 2)(x))(w),
    ]


@behaviour
def results_lead_to_outer_leaves_only(torch: Any) -> Any:
    func, x = torch.func, vector(torch)
    leaf = fresh(torch)
    with torch.no_grad():
        off = func.grad(lambda x: (x * leaf).sum())(x)
    on = func.grad(lambda x: (x * x * leaf).sum())(x)
    return func.grad(lambda x: (x * x).sum())(x), off, on, torch.autograd.grad(on.sum(), leaf), func.vjp(torch.sin, x)[0]


@behaviour
def functions_with_a_vmap(torch: Any) -> Any:
    seen: list[Any] = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(x: Any, k: Any) -> Any:
            return x * k

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.k = inputs[1]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * ctx.k, None

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, k: Any) -> Any:
            seen.append((info.batch_size, in_dims, tuple(x.shape)))
            return x * k * 10, in_dims[0]

    return torch.vmap(lambda a: Doubled.apply(a, 2))(rows(torch)), seen


@behaviour
def modules(torch: Any) -> Any:
    func = torch.func
    nets = [torch.nn.Linear(2, 3) for _ in range(2)]
    for k, net in enumerate(nets):
        with torch.no_grad():
            net.weight.copy_(torch.arange(6.0).reshape(3, 2) + k)
            net.bias.fill_(k)
    x = torch.tensor([1.0, 2.0])
    parameters, buffers = func.stack_module_state(nets)
    base = nets[0]
    return (
        {k: v.shape for k, v in parameters.items()}, len(buffers),
        torch.vmap(lambda p, b: func.functional_call(base, (p, b), (x,)))(parameters, buffers),
        func.functional_call(base, {"bias": torch.ones(3) * 100}, x),
        func.grad(lambda p: func.functional_call(base, p, (x,)).sum())({k: v.detach() for k, v in base.named_parameters()}),
        base(x),
        raised(lambda: func.functional_call(base, {"bias": torch.ones(3)}, x, strict=True)),
        raised(lambda: func.functional_call(base, [{"bias": torch.ones(3)}, {"bias": torch.ones(3)}], x)),
        raised(lambda: func.stack_module_state([])),
    )  # fmt: skip
