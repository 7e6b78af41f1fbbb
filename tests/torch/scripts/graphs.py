"""Message passing by index_add and sparse matrices, union of components, shortest paths, conjugate gradients."""

import torch

edges = torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5], [1, 0, 2, 1, 4, 3, 5, 4]])
source, target = edges
n = 6
features = torch.eye(n)[:, :4] + 0.1 * torch.arange(n).unsqueeze(1)
degree = torch.zeros(n).index_add_(0, target, torch.ones(edges.size(1)))
print(degree, torch.bincount(target, minlength=n))
norm = degree.rsqrt()[source] * degree.rsqrt()[target]
weight = torch.linspace(-1, 1, 8).view(4, 2).requires_grad_()
messages = features[source] @ weight * norm[:, None]
out = torch.zeros(n, 2).index_add(0, target, messages)
adjacency = torch.zeros(n, n)
adjacency[target, source] = norm
print(torch.allclose(out, adjacency @ features @ weight), out)
groups = torch.tensor([0, 0, 0, 1, 1, 1])[:, None].expand(-1, 2)
pooled = torch.zeros(2, 2).scatter_reduce(0, groups, out, "amax", include_self=False)
pooled.sum().backward()
print(pooled, weight.grad)

A = torch.sparse_coo_tensor(edges, norm.detach(), (n, n)).coalesce()
print(A.is_sparse, A.values()[:3], A.indices()[:, :3], torch.allclose(torch.sparse.mm(A, features), adjacency.t() @ features))
print(A.to_dense().equal(adjacency.t()))

label = torch.arange(n)
for _ in range(n):
    label = label.scatter_reduce(0, target, label[source], reduce="amin")
print(label, label.unique().tolist())

distance = torch.full((n, n), float("inf")).fill_diagonal_(0)
distance[source, target] = 1
for k in range(n):
    distance = torch.minimum(distance, distance[:, k : k + 1] + distance[k : k + 1, :])
print(distance)

M = torch.diag(torch.full((n,), 4.0)) - adjacency
b = torch.arange(1.0, n + 1)
x = torch.zeros(n)
r = b - M @ x
p = r.clone()
for iteration in range(20):
    Mp = M @ p
    step = r.dot(r) / p.dot(Mp)
    x = x + step * p
    new = r - step * Mp
    if new.norm() < 1e-5:
        break
    p = new + (new.dot(new) / r.dot(r)) * p
    r = new
print(iteration < 8, x, torch.dist(M @ x, b) < 1e-4)
