"""The tour of tensors that tutorials begin with: types, views, broadcasting, NumPy, printing."""

import numpy as np
import torch

data = [[1, 2], [3, 4]]
x = torch.tensor(data)
print(x, x.dtype, x.shape, x.device, x.layout)
print(torch.ones_like(x), torch.zeros_like(x, dtype=torch.float))
print(torch.arange(0, 10, 2.5), torch.linspace(0, 1, 3), torch.eye(2, dtype=torch.int64))
t = torch.arange(12.0).reshape(3, 4)
print(f"First row: {t[0]}\nFirst column: {t[:, 0]}\nLast column: {t[..., -1]}")
t[:, 1] = 0
print(t)
print(torch.cat([t, t], dim=1).shape, torch.stack([t, t]).shape, t.T.shape, t.view(-1).size())
print(t.matmul(t.T), t.sum(), t.sum().item(), t.mean(dim=0), t.std(1))
t.add_(5)
print(t, t.is_contiguous(), t.T.is_contiguous(), t.T.stride(), t.storage_offset(), t[1:].storage_offset())

a = torch.ones(5)
n = a.numpy()
a.add_(1)
print(n, type(n).__name__)
array = np.arange(3)
shared = torch.from_numpy(array)
array += 1
print(shared, shared.dtype)
print(torch.tensor([1.5]).int(), torch.tensor([True, False]).float(), torch.tensor([3]) / 2)
print(torch.tensor([3]) // 2, torch.tensor(7) % 3)
print((torch.tensor([1], dtype=torch.int32) + torch.tensor([1.5], dtype=torch.float16)).dtype)
print(torch.result_type(torch.tensor(1), 1.0))
print(torch.tensor([1e-8, 1.0, 1e6]), torch.tensor([0.1, 100.0]), torch.tensor(3.14159), torch.tensor([1 + 2j]))
print(torch.arange(2000), torch.zeros(0, 3), torch.tensor([float("nan"), float("inf"), -1.0]))
print(torch.tensor([[1.0, -2.0]], dtype=torch.float64), torch.tensor([1, 2], dtype=torch.int8), torch.tensor(True))
print(torch.rand(2, 3).shape, torch.randn(4).dtype, torch.randint(0, 9, (3,)).dtype, sorted(torch.randperm(4).tolist()))
v = torch.arange(4)
print(v.unsqueeze(0).expand(2, 4), v.repeat(2), v[None].shape, v.view(2, 2).permute(1, 0).tolist(), v[v > 1], v[[0, -1]])
print(torch.broadcast_tensors(torch.ones(3, 1), torch.zeros(1, 2))[0].shape, torch.meshgrid(v, v, indexing="xy")[0][0])
print(torch.equal(v, v.clone()), torch.allclose(t, t + 1e-9), (v == 2).any(), v.max(), v.argmax(), t.max(dim=1))
for call in (
    lambda: torch.ones(2) + torch.ones(3),
    lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    lambda: torch.ones(6).view(4, -1),
    lambda: torch.ones(3)[5],
    lambda: torch.cat([torch.ones(2, 2), torch.ones(3, 3)]),
    lambda: torch.tensor([1, 2]).mean(),
):
    try:
        call()
    except (RuntimeError, IndexError) as error:
        print(type(error).__name__, str(error).splitlines()[0])
print(v.chunk(2), torch.split(v, 3), v.float().var().item(), torch.where(v > 1, v, -v), torch.clamp(v, 1, 2))
print(isinstance(v, torch.Tensor), torch.is_tensor(3), len(v), [int(i) for i in v], bool(torch.tensor(1)), float(torch.tensor(2)))
print(v.type(), v.double().type(), v.to(torch.uint8), v.new_zeros(2), v.nelement(), v.element_size(), repr(torch.Size([1, 2])))
torch.set_printoptions(precision=2, sci_mode=False)
print(torch.tensor([1.23456, 1000.5]))
