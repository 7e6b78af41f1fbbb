"""Logistic regression on two moons, with binary cross entropy and accuracy."""

import math

import torch
import torch.nn.functional as F

n = 100
t = torch.arange(n, dtype=torch.float32) / n * math.pi
upper = torch.stack([torch.cos(t), torch.sin(t)], dim=1)
lower = torch.stack([1 - torch.cos(t), 0.5 - torch.sin(t)], dim=1)
X = torch.cat([upper, lower])
y = torch.cat([torch.zeros(n), torch.ones(n)])
X = (X - X.mean(0)) / X.std(0)

weights = torch.zeros(2, requires_grad=True)
bias = torch.tensor(0.0, requires_grad=True)

for step in range(300):
    logits = X.mv(weights) + bias
    loss = F.binary_cross_entropy_with_logits(logits, y)
    gw, gb = torch.autograd.grad(loss, [weights, bias])
    weights.data.sub_(0.5 * gw)
    bias.data.sub_(0.5 * gb)
    if step % 100 == 0:
        accuracy = ((logits > 0).float() == y).float().mean()
        print(step, round(loss.item(), 4), round(accuracy.item(), 3))

print(weights.detach(), bias.item() > -1)
probabilities = torch.sigmoid(X @ weights + bias)
print(probabilities[:5])
print((probabilities.round() == y).sum().item(), "of", len(y))
