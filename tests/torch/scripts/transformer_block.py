"""A transformer block of einsums, layer norms and GELU, trained on a copy task with cross entropy."""

import math

import torch
import torch.nn.functional as F
from torch import einsum, tanh

torch.set_default_dtype(torch.float64)


def table(*shape, seed):
    n = math.prod(shape)
    return (torch.sin(torch.arange(1, n + 1, dtype=torch.get_default_dtype()) * seed).view(*shape) * 0.3).requires_grad_(True)


V, T, D, H = 7, 5, 8, 2
p = {
    "wte": table(V, D, seed=1.7), "wpe": table(T, D, seed=2.3), "qkv": table(3, H, D, D // H, seed=3.1),
    "out": table(H, D // H, D, seed=0.9),
    "up": table(D, 4 * D, seed=1.3), "down": table(4 * D, D, seed=2.9), "head": table(D, V, seed=0.7),
    "g1": torch.ones(D, requires_grad=True), "b1": torch.zeros(D, requires_grad=True), "g2": torch.ones(D, requires_grad=True),
}


def gelu(x):
    return 0.5 * x * (1.0 + tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def block(x):
    h = F.layer_norm(x, (D,), p["g1"], p["b1"])
    q, k, v = einsum("btd,nhdk->nbhtk", h, p["qkv"]).unbind(0)
    scores = einsum("bhtk,bhsk->bhts", q, k) / math.sqrt(D // H)
    mask = torch.ones(T, T, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(mask, float("-inf"))
    attended = einsum("bhts,bhsk->bhtk", scores.softmax(-1), v)
    x = x + einsum("bhtk,hkd->btd", attended, p["out"])
    h = F.layer_norm(x, (D,)) * p["g2"]
    return x + gelu(h @ p["up"]) @ p["down"]


tokens = torch.arange(4 * T).view(4, T).mul(5).remainder(V)
targets = tokens.roll(1, dims=1)
m = {k: torch.zeros_like(v) for k, v in p.items()}
s = {k: torch.zeros_like(v) for k, v in p.items()}
for step in range(1, 41):
    x = p["wte"][tokens] + p["wpe"]
    logits = block(x) @ p["head"]
    loss = F.cross_entropy(logits.view(-1, V), targets.reshape(-1))
    grads = torch.autograd.grad(loss, list(p.values()))
    with torch.no_grad():
        for (name, value), g in zip(p.items(), grads):
            m[name].lerp_(g, 0.1)
            s[name].mul_(0.99).addcmul_(g, g, value=0.01)
            value.addcdiv_(m[name] / (1 - 0.9**step), (s[name] / (1 - 0.99**step)).sqrt().add_(1e-8), value=-0.02)
    if step % 10 == 0 or step == 1:
        print(step, f"{loss.item():.6f}")
print(logits.argmax(-1))
print(F.gelu(torch.linspace(-2, 2, 5), approximate="tanh") - gelu(torch.linspace(-2, 2, 5)) < 1e-12)
