"""A multi-layer perceptron with its own parameters, momentum and weight decay; XOR-like classes."""

import torch
import torch.nn.functional as F

steps = torch.linspace(-1, 1, 24)
gx, gy = torch.meshgrid(steps, steps, indexing="ij")
X = torch.stack([gx.flatten(), gy.flatten()], dim=1)
labels = ((X[:, 0] * X[:, 1]) > 0).long() + (X.norm(dim=1) > 1).long()


def init(rows, cols):
    k = torch.arange(rows * cols, dtype=torch.float32).reshape(rows, cols)
    return (torch.sin(12.9898 * k) * 0.5 / rows**0.5).requires_grad_()


params = [init(2, 32), torch.zeros(32, requires_grad=True), init(32, 32), torch.zeros(32, requires_grad=True), init(32, 3)]
velocity = [torch.zeros_like(p) for p in params]


def model(x):
    w1, b1, w2, b2, w3 = params
    h = torch.relu(x @ w1 + b1)
    h = torch.tanh(h @ w2 + b2)
    return h @ w3


for epoch in range(60):
    loss = F.cross_entropy(model(X), labels)
    for p in params:
        if p.grad is not None:
            p.grad.zero_()
    loss.backward()
    with torch.no_grad():
        total = torch.sqrt(sum(p.grad.pow(2).sum() for p in params))
        for p, v in zip(params, velocity):
            v.mul_(0.9).add_(p.grad.add(p, alpha=1e-4))
            p.add_(v, alpha=-0.2)
    if epoch % 20 == 0:
        print(f"{epoch:3d} loss {loss.item():.3f} norm {total.item():.3f}")

with torch.no_grad():
    scores = F.softmax(model(X), dim=-1)
best, classes = scores.max(dim=1)
print((classes == labels).float().mean() > 0.8, best.shape, classes.dtype)
print(torch.bincount(labels))
confusion = torch.zeros(3, 3, dtype=torch.long)
for truth, guess in zip(labels, labels.flip(0)):
    confusion[truth, guess] += 1
print(confusion)
print(sum(p.numel() for p in params), [tuple(p.shape) for p in params])
