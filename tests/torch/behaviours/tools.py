"""autograd.functional, gradcheck, utils.checkpoint."""

from __future__ import annotations

from typing import Any

from tests.torch.behaviours import behaviour, fresh, loose, module_of, raised


def cube(x: Any) -> Any:
    return x**3


def two(x: Any, y: Any) -> Any:
    return x * y, (x**2).sum()


def scalar(x: Any, y: Any) -> Any:
    return (x**2 * y).sum()


# -- functional -------------------------------------------------------------------------------------------------------


def _all_products(torch: Any, **options: Any) -> Any:
    functional = module_of(torch, "autograd.functional")
    x, y = fresh(torch), fresh(torch, 2.0, 1.0, 1.0)
    if not options.get("create_graph"):
        x, y = x.detach(), y.detach()
    return [
        functional.jacobian(cube, x, **options),
        functional.jacobian(two, (x, y), **options),
        functional.hessian(scalar, (x, y), **options),
        functional.vjp(cube, x, y, **options),
        functional.vjp(two, (x, y), (y, torch.tensor(2.0, dtype=torch.float64)), **options),
        functional.jvp(two, (x, y), (y, x), **options),
        functional.hvp(scalar, (x, y), (y, x), **options),
        functional.vhp(scalar, (x, y), (y, x), **options),
    ]


@behaviour
def products(torch: Any) -> Any:
    return _all_products(torch)


@behaviour
def recorded_products(torch: Any) -> Any:
    return _all_products(torch, create_graph=True)


@behaviour
def strict_products(torch: Any) -> Any:
    return _all_products(torch, strict=True)


@behaviour
def products_at_once(torch: Any) -> Any:
    functional = module_of(torch, "autograd.functional")
    x, y = fresh(torch).detach(), fresh(torch, 2.0, 1.0, 1.0).detach()
    return [
        functional.jacobian(two, (x, y), vectorize=True),
        functional.hessian(scalar, (x, y), vectorize=True),
        functional.jacobian(cube, x, vectorize=True, strategy="forward-mode"),
        functional.hessian(lambda x: cube(x).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode").detach(),
    ]


@behaviour
def errors_of_products(torch: Any) -> Any:
    f = module_of(torch, "autograd.functional")
    x, y = fresh(torch).detach(), fresh(torch).detach()
    return [
        raised(call)
        for call in (
            lambda: f.jacobian(two, (x, y), strategy="q"),
            lambda: f.vjp(cube, x),
            lambda: f.jvp(cube, x),
            lambda: f.vjp(cube, x, y[:2]),
            lambda: f.vjp(cube, x, (x, y)),
            lambda: f.vjp(two, (x, y), x),
            lambda: f.vjp(cube, 3),
            lambda: f.vjp(lambda x: 3, x),
            lambda: f.vjp(lambda x: (x, 3), x),
            lambda: f.hessian(cube, x),
            lambda: f.hessian(two, (x, y)),
            lambda: f.jacobian(lambda x: torch.ones(2), x, strict=True),
            lambda: f.jacobian(lambda x, y: x * 2, (x, y), strict=True),
            lambda: f.vjp(lambda x, y: x * 2, (x, y), x, strict=True),
            lambda: f.hessian(lambda x: x.sum(), x, strict=True),
            lambda: f.jvp(lambda x, y: x * 2, (x, y), (x, y), strict=True),
            lambda: f.jacobian(lambda x: x * 2, x, strict=True, create_graph=True),
        )
    ]


@behaviour
def what_does_not_depend_on_inputs(torch: Any) -> Any:
    f, x = module_of(torch, "autograd.functional"), fresh(torch).detach()
    return f.hessian(lambda x: x.sum(), x), f.jacobian(lambda x: torch.ones(2), x), f.hvp(lambda x: x.sum(), x, x)


# -- gradcheck --------------------------------------------------------------------------------------------------------


def wrong(torch: Any) -> Any:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3 * ctx.saved_tensors[0]

    return Wrong.apply


@behaviour
def right_gradients(torch: Any) -> Any:
    check, second = torch.autograd.gradcheck, torch.autograd.gradgradcheck
    x, y = torch.tensor([[1.0, 2.0], [3.0, 0.5]], dtype=torch.float64, requires_grad=True), fresh(torch, 2.0, 0.3)
    z = torch.tensor([1 + 2j, 0.5 - 1j], dtype=torch.complex128, requires_grad=True)
    found = []
    for fast in (False, True):
        found += [
            check(lambda x, y: (x * y).sin(), (x, y), fast_mode=fast),
            check(lambda x, y: (x * y, x.sum()), (x, y), fast_mode=fast),
            check(lambda x, y: (x * y).sin(), (x, y), fast_mode=fast, check_batched_grad=True),
            check(lambda x, y: (x * y).sin(), (x, y), fast_mode=fast, check_forward_ad=True, check_batched_forward_grad=True),
            second(lambda x, y: (x * y).sin(), (x, y), fast_mode=fast),
            second(lambda x, y: (x * y).sin(), (x, y), fast_mode=fast, check_fwd_over_rev=True),
            check(lambda z: z * z * y.detach() + z.abs(), (z,), fast_mode=fast),
            check(lambda z: (z * z.conj()).real, (z,), fast_mode=fast),
            check(lambda y: torch.complex(y, y * 2) ** 2, (y,), fast_mode=fast),
            second(lambda z: z * z * z.conj(), (z,), fast_mode=fast),
            check(lambda x: torch.ones(2, dtype=torch.float64), (x,), fast_mode=fast),
            check(wrong(torch), (x,), raise_exception=False, fast_mode=fast),
        ]
    return found


@behaviour
def a_wrong_gradient_is_shown(torch: Any) -> Any:
    torch.autograd.gradcheck(wrong(torch), (fresh(torch),))


@loose
def a_wrong_gradient_is_found_in_one_direction(torch: Any) -> Any:
    torch.autograd.gradcheck(wrong(torch), (fresh(torch),), fast_mode=True)


@loose
def gradients_that_change(torch: Any) -> Any:
    calls = [0]

    class Unsteady(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            calls[0] += 1
            return g * (1 + 1e-8 * calls[0])

    assert torch.autograd.gradcheck(Unsteady.apply, (fresh(torch),), nondet_tol=1e-3)
    torch.autograd.gradcheck(Unsteady.apply, (fresh(torch),))


@behaviour
def inputs_of_gradcheck(torch: Any) -> Any:
    check, x = torch.autograd.gradcheck, fresh(torch)
    return [
        raised(lambda: check(lambda x: x, (x.detach(),))),
        raised(lambda: check(lambda x: x * 2, (torch.ones(1, dtype=torch.float64).expand(3).requires_grad_(),))),
        raised(lambda: check(lambda x: x * 2, (x,), check_backward_ad=False)),
        raised(lambda: check(lambda x: x * 2, (x,), check_batched_forward_grad=True)),
        check(lambda x: [x * 2, x * 3], [x]),
        torch.autograd.gradgradcheck(cube, (x,), (torch.ones(3, dtype=torch.float64, requires_grad=True),)),
    ]


# -- checkpoint -------------------------------------------------------------------------------------------------------


def _counted(torch: Any, *more: Any, **options: Any) -> Any:
    calls = []

    def function(x: Any, y: Any = None, k: float = 2) -> Any:
        calls.append(1)
        return (x * x * k).sin() + (0 if y is None else y.exp())

    x = fresh(torch)
    out = module_of(torch, "utils.checkpoint").checkpoint(function, x, *more, **options)
    before = len(calls)
    out.sum().backward()
    return before, len(calls), x.grad, [y.grad for y in more]


@behaviour
def checkpoints(torch: Any) -> Any:
    return [
        _counted(torch, use_reentrant=True),
        _counted(torch, use_reentrant=False),
        _counted(torch, fresh(torch), use_reentrant=True),
        _counted(torch, fresh(torch), use_reentrant=False, k=3.0),
        _counted(torch),
        raised(lambda: _counted(torch, use_reentrant=True, k=3.0)),
    ]


@behaviour
def gradients_of_checkpoints(torch: Any) -> Any:
    checkpoint = module_of(torch, "utils.checkpoint").checkpoint
    x = fresh(torch)
    outs = [checkpoint(lambda x: (x * x).sin(), x, use_reentrant=r).sum() for r in (True, False)]
    (g,) = torch.autograd.grad(outs[1], x, create_graph=True)
    return raised(lambda: torch.autograd.grad(outs[0], x)), g, torch.autograd.grad(g.sum(), x)


@behaviour
def checkpoints_twice(torch: Any) -> Any:
    checkpoint = module_of(torch, "utils.checkpoint").checkpoint
    found = []
    for r in (True, False):
        x, calls = fresh(torch), []
        y = checkpoint(lambda x, calls=calls: calls.append(1) or (x * x).sin(), x, use_reentrant=r).sum()
        y.backward(retain_graph=True)
        y.backward()
        found.append((len(calls), x.grad, raised(y.backward)))
    return found


@behaviour
def random_numbers_of_checkpoints(torch: Any) -> Any:
    checkpoint = module_of(torch, "utils.checkpoint").checkpoint
    found = []
    for r in (True, False):
        for preserve in (True, False):
            drawn: list[Any] = []

            def function(x: Any, drawn: list[Any] = drawn) -> Any:
                drawn.append(torch.rand(3, dtype=x.dtype))
                return x * x * drawn[-1]

            checkpoint(function, fresh(torch), use_reentrant=r, preserve_rng_state=preserve).sum().backward()
            found.append(bool((drawn[0] == drawn[1]).all()))
    return found


@behaviour
def nested_checkpoints(torch: Any) -> Any:
    checkpoint = module_of(torch, "utils.checkpoint").checkpoint
    found = []
    for r in (True, False):
        calls: list[str] = []

        def inner(x: Any, calls: list[str] = calls) -> Any:
            calls.append("inner")
            return x.sin() * x

        def outer(x: Any, r: bool = r, calls: list[str] = calls, inner: Any = inner) -> Any:
            calls.append("outer")
            return checkpoint(inner, x.exp(), use_reentrant=r) * 2

        x = fresh(torch)
        checkpoint(outer, x, use_reentrant=r).sum().backward()
        found.append((calls, x.grad))
    return found


@loose
def a_second_computation_of_other_shapes(torch: Any) -> Any:
    calls: list[int] = []
    module_of(torch, "utils.checkpoint").checkpoint(
        lambda x: calls.append(1) or (x[:2] if len(calls) > 1 else x).sin().exp(), fresh(torch), use_reentrant=False
    ).sum().backward()


@loose
def a_second_computation_that_saves_less(torch: Any) -> Any:
    calls: list[int] = []
    module_of(torch, "utils.checkpoint").checkpoint(
        lambda x: calls.append(1) or (x.sin() if len(calls) > 1 else x.sin().exp().cos()), fresh(torch), use_reentrant=False
    ).sum().backward()


@behaviour
def checkpoints_of_sequences(torch: Any) -> Any:
    sequential = module_of(torch, "utils.checkpoint").checkpoint_sequential
    found = []
    for r in (True, False):
        x = fresh(torch)
        sequential([torch.sin, torch.exp, torch.cos, torch.tanh], 2, x, use_reentrant=r).sum().backward()
        found.append(x.grad)
    return found


@behaviour
def more_of_checkpoints(torch: Any) -> Any:
    module = module_of(torch, "utils.checkpoint")
    checkpoint, x = module.checkpoint, fresh(torch)
    found = []
    for r in (True, False):
        a, b, c = checkpoint(lambda x: (x.sin(), x.exp(), 3), x, use_reentrant=r)
        (a * b).sum().backward()
        with torch.no_grad():
            off = checkpoint(lambda x: x.sin(), x, use_reentrant=r)
        found.append((c, x.grad.clone(), off.requires_grad))
    y = x * 2
    out = checkpoint(lambda a: a.sin(), y, use_reentrant=False)
    y.add_(1)
    return found, [
        raised(out.sum().backward),
        raised(lambda: checkpoint(cube, x, use_reentrant=False, determinism_check="q")),
        raised(lambda: checkpoint(cube, x, use_reentrant=True, context_fn=lambda: (1, 2))),
        checkpoint(cube, torch.ones(2), use_reentrant=True),
    ]
