"""Images as tensors: normalization, resizing, warping, boxes and their overlaps, patches, positions, losses of styles."""

import torch
import torch.nn.functional as F

h = torch.arange(8).view(8, 1)
w = torch.arange(8).view(1, 8)
image = torch.stack([h * 32 + w, w * 32 + h, (h + w) * 16]).to(torch.uint8)
print(image.shape, image.dtype, image.float().mean((1, 2)))
x = image.float().div(255)
mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
x = x.sub(mean[:, None, None]).div_(std[:, None, None]).unsqueeze(0)
print(x.amin((0, 2, 3)), x.amax((0, 2, 3)))
small = F.interpolate(x, size=(4, 4), mode="bilinear", align_corners=False)
large = F.interpolate(x, scale_factor=2, mode="nearest")
print(small[0, 0], large.shape, F.interpolate(x, size=5, mode="bicubic", align_corners=True)[0, 1, 2])
theta = torch.tensor([[[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]])
grid = F.affine_grid(theta, x.shape, align_corners=False)
print(torch.allclose(F.grid_sample(x, grid, align_corners=False), torch.rot90(x, 1, (2, 3)), atol=1e-5)
      or torch.allclose(F.grid_sample(x, grid, align_corners=False), torch.rot90(x, -1, (2, 3)), atol=1e-5))  # fmt: skip
print(F.pad(small, (1, 1, 0, 0), mode="reflect")[0, 0, 0], F.pad(small, (0, 2), value=9.0)[0, 0, 0])
patches = x.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(1, 4, -1)
print(patches.shape, patches.flatten()[:3])
flat = x.flatten(2)
gram = flat @ flat.transpose(1, 2) / flat.size(-1)
print(gram)

boxes = torch.tensor([[0, 0, 4, 4], [1, 1, 5, 5], [6, 6, 8, 8], [0, 0, 4, 3.5]], dtype=torch.float)
scores = torch.tensor([0.9, 0.8, 0.7, 0.95])


def iou(a, b):
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])  # noqa: E731
    lt, rb = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
    inter = (rb - lt).clamp(min=0).prod(2)
    return inter / (area(a)[:, None] + area(b) - inter)


def nms(boxes, scores, threshold):
    order, keep = scores.sort(descending=True)[1], []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        order = order[1:][iou(boxes[i : i + 1], boxes[order[1:]])[0] <= threshold]
    return torch.tensor(keep)


print(iou(boxes, boxes), nms(boxes, scores, 0.3))
mask = torch.zeros(8, 8, dtype=torch.bool)
mask[2:5, 3:7] = True
print(mask.nonzero().aminmax(dim=0), torch.where(mask.any(1))[0], mask.sum(), x.masked_fill(~mask, 0).sum() != 0)
logits = x[:, :1].clone().requires_grad_()
target = mask.float()[None, None]
dice = 1 - 2 * (logits.sigmoid() * target).sum() / (logits.sigmoid().sum() + target.sum())
focal = (F.binary_cross_entropy_with_logits(logits, target, reduction="none") * (1 - logits.sigmoid()) ** 2).mean()
(dice + focal).backward()
print(f"{dice.item():.4f} {focal.item():.4f} {logits.grad.abs().sum().item():.4f}")
x4 = torch.nn.functional.pixel_shuffle(torch.arange(16.0).view(1, 4, 2, 2), 2)
print(x4, F.adaptive_avg_pool2d(x4, 1).item(), torch.flip(x4, [3])[0, 0, 0])
print(x4.contiguous(memory_format=torch.channels_last).stride())
