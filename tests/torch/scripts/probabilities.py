"""A Gaussian process, a hidden Markov model, Sinkhorn's algorithm and a mixture by expectation maximization."""

import math

import torch


def kernel(a, b, scale):
    return torch.exp(-0.5 * (a[:, None] - b[None, :]).pow(2) / scale**2)


train = torch.tensor([-2.0, -1.0, 0.0, 1.5, 2.5], dtype=torch.float64)
values = torch.sin(train)
log_scale = torch.tensor(0.0, dtype=torch.float64, requires_grad=True)
for step in range(20):
    K = kernel(train, train, log_scale.exp()) + 1e-2 * torch.eye(5, dtype=torch.float64)
    L = torch.linalg.cholesky(K)
    alpha = torch.cholesky_solve(values[:, None], L)
    nll = 0.5 * values @ alpha.squeeze() + L.diagonal().log().sum() + 0.5 * 5 * math.log(2 * math.pi)
    (g,) = torch.autograd.grad(nll, log_scale)
    log_scale.data -= 0.1 * g
print(f"{nll.item():.5f} {log_scale.exp().item():.5f}")
with torch.no_grad():
    test = torch.linspace(-3, 3, 5, dtype=torch.float64)
    Ks = kernel(train, test, log_scale.exp())
    v = torch.linalg.solve_triangular(L, Ks, upper=False)
    print(Ks.T @ alpha.squeeze(), 1 - (v**2).sum(0))

A = torch.tensor([[0.9, 0.1], [0.2, 0.8]]).log()
B = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]]).log()
start = torch.tensor([0.5, 0.5]).log()
seen = torch.tensor([0, 0, 1, 2, 2, 1, 0, 0])
alpha = start + B[:, seen[0]]
best = alpha.clone()
back = []
for o in seen[1:]:
    alpha = torch.logsumexp(alpha.unsqueeze(1) + A, dim=0) + B[:, o]
    best, where = (best.unsqueeze(1) + A).max(dim=0)
    best = best + B[:, o]
    back.append(where)
path = [best.argmax().item()]
for where in reversed(back):
    path.insert(0, where[path[0]].item())
print(f"{torch.logsumexp(alpha, 0).item():.4f} {best.max().item():.4f}", path)

cost = (torch.arange(4.0)[:, None] - torch.arange(5.0)[None] * 0.8).abs()
mu, nu = torch.full((4,), 0.25), torch.full((5,), 0.2)
f, g = torch.zeros(4), torch.zeros(5)
for _ in range(200):
    f = 0.1 * (mu.log() - torch.logsumexp((g[None] - cost) / 0.1, dim=1))
    g = 0.1 * (nu.log() - torch.logsumexp((f[:, None] - cost) / 0.1, dim=0))
plan = ((f[:, None] + g[None] - cost) / 0.1).exp()
print(plan, torch.allclose(plan.sum(0), nu), f"{(plan * cost).sum():.5f}")

x = torch.cat([torch.linspace(-3, -1, 20), torch.linspace(0.5, 4, 30)])
means, deviations, mix = torch.tensor([-1.0, 1.0]), torch.ones(2), torch.tensor([0.5, 0.5])
for _ in range(50):
    log_p = -0.5 * ((x[:, None] - means) / deviations) ** 2 - deviations.log() + mix.log()
    r = torch.softmax(log_p, dim=1)
    n = r.sum(0)
    means = (r * x[:, None]).sum(0) / n
    deviations = ((r * (x[:, None] - means) ** 2).sum(0) / n).sqrt()
    mix = n / len(x)
print(means, deviations, mix)
print(torch.special.entr(mix).sum(), torch.erf(torch.tensor(1 / math.sqrt(2))), torch.lgamma(torch.tensor(5.0)).exp())
