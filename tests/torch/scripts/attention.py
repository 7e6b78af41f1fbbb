"""Attention by hand, with masks and several heads, against scaled_dot_product_attention."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = F.softmax(scores, dim=-1)
    return torch.matmul(weights, v), weights


B, T, C, H = 2, 6, 8, 2
x = torch.sin(torch.arange(B * T * C, dtype=torch.float32)).view(B, T, C)
wq, wk, wv, wo = (torch.cos(torch.arange(C * C, dtype=torch.float32) * s).view(C, C) / C for s in (1.0, 1.1, 1.2, 1.3))
for w in (wq, wk, wv, wo):
    w.requires_grad_()

q, k, v = (F.linear(x, w).view(B, T, H, C // H).transpose(1, 2) for w in (wq, wk, wv))
causal = torch.tril(torch.ones(T, T)).view(1, 1, T, T)
out, weights = attention(q, k, v, causal)
print(weights[0, 0])
print(weights.sum(-1).allclose(torch.ones(B, H, T)))
merged = out.transpose(1, 2).contiguous().view(B, T, C)
y = merged @ wo.t() + x
print(y.shape, y.mean().item().__round__(4))
y.pow(2).mean().backward()
for name, w in (("wq", wq), ("wk", wk), ("wv", wv), ("wo", wo)):
    print(name, f"{w.grad.norm().item():.5f}")

builtin = F.scaled_dot_product_attention(q, k, v, is_causal=True)
print("builtin", torch.allclose(out, builtin, atol=1e-6))


def positional(length: int, dim: int) -> Tensor:
    position = torch.arange(length).unsqueeze(1)
    div_term = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
    pe = torch.zeros(length, dim)
    pe[:, 0::2] = torch.sin(position * div_term)
    pe[:, 1::2] = torch.cos(position * div_term)
    return pe


print(positional(4, 6))
