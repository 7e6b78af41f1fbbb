"""torch.func: gradients, Jacobians, gradients by example with vmap, Hessian-vector products."""

import torch
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap


def predict(weight, bias, x):
    return torch.tanh(x @ weight.t() + bias)


weight = torch.linspace(-1, 1, 6).view(2, 3)
bias = torch.tensor([0.1, -0.1])
x = torch.linspace(0, 1, 12).view(4, 3)
y = torch.ones(4, 2)


def loss(weight, bias, x, y):
    return ((predict(weight, bias, x) - y) ** 2).mean()


gw, gb = grad(loss, argnums=(0, 1))(weight, bias, x, y)
print(gw, gb)
by_example = vmap(grad(loss), in_dims=(None, None, 0, 0))(weight, bias, x, y)
print(by_example.shape, torch.allclose(by_example.mean(0), gw, atol=1e-6))
print(jacrev(predict, argnums=1)(weight, bias, x).shape)
forward, reverse = jacfwd(predict, argnums=2)(weight, bias, x[0]), jacrev(predict, argnums=2)(weight, bias, x[0])
print(torch.allclose(forward, reverse, atol=1e-6), reverse)
print(hessian(lambda b: loss(weight, b, x, y))(bias))
value, pullback = vjp(lambda w: predict(w, bias, x).sum(0), weight)
print(value, pullback(torch.tensor([1.0, 2.0]))[0])
print(jvp(torch.sin, (torch.tensor(0.5),), (torch.tensor(2.0),)))
print(vmap(lambda a, b: (a * b).sum())(x, x.flip(0)), vmap(torch.outer)(x[:2], x[2:])[0])
print(grad(grad(grad(lambda t: t**4)))(torch.tensor(2.0)))


def hvp(f, primal, tangent):
    return jvp(grad(f), (primal,), (tangent,))[1]


print(hvp(lambda t: (t**3).sum(), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.5])))
