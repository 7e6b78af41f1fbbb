"""Custom functions, hooks, and gradient checkpointing by hand."""

import torch


class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, g):
        return g, None


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, *args):
        ctx.run = run
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return run(*args)

    @staticmethod
    def backward(ctx, *grads):
        args = [a.detach().requires_grad_() for a in ctx.saved_tensors]
        with torch.enable_grad():
            outputs = ctx.run(*args)
        torch.autograd.backward(outputs, *grads)
        return (None, *(a.grad for a in args))


x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
y = MyReLU.apply(x)
print(y)
y.sum().backward()
print(x.grad)

x.grad = None
q = StraightThrough.apply(x, 4)
print(q)
(q * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(x.grad)

w = torch.tensor([[0.1, 0.2], [0.3, 0.4]], requires_grad=True)
h = torch.tensor([1.0, -1.0], requires_grad=True)
calls = []


def layer(w, h):
    calls.append(torch.is_grad_enabled())
    return torch.tanh(w @ h) * h


plain = layer(w, h).sum()
plain_grads = torch.autograd.grad(plain, (w, h))
again = Checkpoint.apply(layer, w, h).sum()
grads = torch.autograd.grad(again, (w, h))
print(calls, all(torch.allclose(a, b) for a, b in zip(plain_grads, grads)))

seen = []
v = torch.ones(3, requires_grad=True)
handle = v.register_hook(lambda g: seen.append(g.tolist()))
mid = v * 3
mid.retain_grad()
mid.register_hook(lambda g: g * 10)
mid.sum().backward()
handle.remove()
print(seen, mid.grad, v.grad)
print(mid.grad_fn.name(), mid.is_leaf, v.is_leaf, v.requires_grad)
try:
    leaf = torch.ones(2, requires_grad=True)
    leaf += 1
except RuntimeError as error:
    print(error)
e = torch.ones(2, requires_grad=True)
s = e.exp()
s.mul_(2)
try:
    s.sum().backward()
except RuntimeError as error:
    print(str(error)[:100])
print(torch.autograd.gradcheck(MyReLU.apply, (torch.tensor([-1.0, 2.0], dtype=torch.double, requires_grad=True),)))
