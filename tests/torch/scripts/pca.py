"""PCA by SVD and by eigenvalues, power iteration, PageRank."""

import torch

t = torch.linspace(0, 6.28, 40, dtype=torch.float64)
data = torch.stack([t, 2 * t + torch.sin(5 * t), torch.cos(t), -t + 0.1 * torch.sin(9 * t)], dim=1)
centred = data - data.mean(dim=0, keepdim=True)
U, S, Vh = torch.linalg.svd(centred, full_matrices=False)
explained = S**2 / (S**2).sum()
print(explained)
print(Vh.abs())
projected = centred @ Vh[:2].T
print(projected.shape, f"{(centred - projected @ Vh[:2]).norm():.6f}")

covariance = centred.T @ centred / (len(data) - 1)
print(torch.allclose(covariance, torch.cov(data.T)))
values, vectors = torch.linalg.eigh(covariance)
print(values.flip(0))
print(torch.allclose(values.flip(0), S**2 / (len(data) - 1)))

v = torch.ones(4, dtype=torch.float64)
for _ in range(200):
    v = covariance @ v
    v = v / torch.linalg.norm(v)
print("power iteration", (v @ covariance @ v).item().__round__(6), v.abs())

links = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 0, 1, 0]], dtype=torch.float32)
P = links / links.sum(1, keepdim=True)
rank = torch.full((4,), 0.25)
for _ in range(100):
    rank = 0.15 / 4 + 0.85 * (P.t() @ rank)
print(rank, rank.argsort(descending=True))
exact = torch.linalg.solve(torch.eye(4) - 0.85 * P.t(), torch.full((4,), 0.15 / 4))
print(torch.allclose(rank, exact, atol=1e-5))
