"""Convolution by unfold, image filters, pooling, against conv2d."""

import torch
import torch.nn.functional as F

image = torch.zeros(1, 1, 12, 12)
image[..., 3:9, 3:9] = 1.0
sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]])
kernels = torch.stack([sobel, sobel.t()]).unsqueeze(1)

columns = F.unfold(image, kernel_size=3, padding=1)
print(columns.shape)
by_hand = (kernels.view(2, -1) @ columns).view(1, 2, 12, 12)
built_in = F.conv2d(image, kernels, padding=1)
print(torch.equal(by_hand, built_in))
edges = by_hand.pow(2).sum(1).sqrt()
print(edges[0, 2:6, 2:6])
pooled = F.max_pool2d(edges.unsqueeze(1), 2)
print(pooled.squeeze().int())
print(F.avg_pool2d(image, 4).flatten())

strided = image.unfold(2, 3, 3).unfold(3, 3, 3)
print(strided.shape, strided.sum((-1, -2)).squeeze())

x = torch.linspace(0, 1, 2 * 3 * 5 * 5).view(2, 3, 5, 5).requires_grad_()
w = torch.linspace(-1, 1, 4 * 3 * 3 * 3).view(4, 3, 3, 3).requires_grad_()
b = torch.zeros(4, requires_grad=True)
out = F.conv2d(x, w, b, stride=2, padding=1)
print(out.shape)
loss = F.relu(out).sum()
loss.backward()
print(f"{loss.item():.3f}", b.grad, f"{w.grad.abs().sum().item():.3f}", x.grad[0, 0])
