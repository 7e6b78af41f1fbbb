"""k-means, with cdist, one_hot and scatter."""

import torch
import torch.nn.functional as F

k = torch.arange(150, dtype=torch.float64)
centres = torch.tensor([[0.0, 0.0], [5.0, 5.0], [0.0, 6.0]], dtype=torch.float64)
points = centres.repeat_interleave(50, dim=0) + torch.stack([torch.sin(k * 7.3), torch.cos(k * 3.1)], 1)

means = points[[0, 60, 120]].clone()
for iteration in range(10):
    distances = torch.cdist(points, means)
    assigned = distances.argmin(dim=1)
    members = F.one_hot(assigned, num_classes=3).to(points.dtype)
    counts = members.sum(0)
    new = members.t() @ points / counts.unsqueeze(1)
    moved = (new - means).norm()
    means = new
    if moved < 1e-9:
        break

print("iterations", iteration)
print(means)
print(counts.long())
sums = torch.zeros(3, 2, dtype=torch.float64).scatter_add_(0, assigned.unsqueeze(1).expand(-1, 2), points)
print(torch.allclose(sums / counts[:, None], means))
inertia = distances.gather(1, assigned[:, None]).pow(2).sum()
print(f"inertia {inertia:.6f}")
print(torch.unique(assigned, return_counts=True))
