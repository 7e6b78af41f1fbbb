"""The Mandelbrot set, and the Game of Life by shifts."""

import torch

Y, X = torch.meshgrid(torch.linspace(-1.2, 1.2, 24), torch.linspace(-2, 0.7, 60), indexing="ij")
c = torch.complex(X, Y)
z = torch.zeros_like(c)
counts = torch.zeros(c.shape, dtype=torch.int32)
for _ in range(40):
    z = torch.where(z.abs() < 4, z * z + c, z)
    counts += (z.abs() < 2).to(torch.int32)
for row in counts:
    print("".join(" .:-=+*#%@"[min(9, int(v) // 4)] for v in row.tolist()))
print(counts.sum(), counts.max().item(), z.dtype)

board = torch.zeros(8, 8, dtype=torch.uint8)
board[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
for _ in range(12):
    neighbours = sum(torch.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
    board = ((neighbours == 3) | ((board == 1) & (neighbours == 2))).to(torch.uint8)
print(board)
print(board.nonzero().tolist())
