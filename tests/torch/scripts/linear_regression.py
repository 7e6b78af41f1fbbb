"""Linear regression by hand: gradients by backward, weights updated in no_grad."""

import torch

x = torch.linspace(-1, 1, 100).unsqueeze(1)
noise = 0.1 * torch.sin(37 * x)
y = 3 * x + 2 + noise

w = torch.zeros(1, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
lr = 0.1

for epoch in range(200):
    pred = x @ w + b
    loss = ((pred - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        w -= lr * w.grad
        b -= lr * b.grad
        w.grad.zero_()
        b.grad.zero_()
    if epoch % 50 == 0:
        print(f"epoch {epoch}: loss {loss.item():.4f}")

print("w", w)
print("b", b)
print(f"r2 {1 - loss.item() / y.var(unbiased=False).item():.4f}")
