"""Tensors as arrays: heat on a plate, planets by automatic forces, spectra, a Kalman filter."""

import torch

plate = torch.zeros(16, 16, dtype=torch.float64)
plate[0], plate[-1] = 100.0, 50.0
for _ in range(200):
    plate[1:-1, 1:-1] = (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]) / 4
print(plate[::5, ::5])


def energy(q):
    d = (q[:, None] - q[None]).pow(2).sum(-1)
    i, j = torch.triu_indices(len(q), len(q), 1)
    return -(1.0 / d[i, j].sqrt()).sum()


q = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.5]], dtype=torch.float64)
v = torch.tensor([[0.0, 0.3], [0.0, -0.3], [0.2, 0.0]], dtype=torch.float64)


def force(q):
    q = q.detach().requires_grad_()
    return -torch.autograd.grad(energy(q), q)[0]


start = (energy(q) + 0.5 * v.square().sum()).item()
for _ in range(100):
    v = v + 0.005 * force(q)
    q = q + 0.01 * v
    v = v + 0.005 * force(q)
print(q, f"{start:.4f} {(energy(q) + 0.5 * v.square().sum()).item():.4f}")

time = torch.arange(64, dtype=torch.float64) / 64
signal = torch.sin(2 * torch.pi * 5 * time) + 0.5 * torch.cos(2 * torch.pi * 12 * time)
spectrum = torch.fft.rfft(signal).abs() / 32
print(spectrum.topk(2), torch.fft.rfftfreq(64, d=1 / 64)[spectrum > 0.1])
filtered = torch.fft.irfft(torch.fft.rfft(signal) * (torch.fft.rfftfreq(64, 1 / 64) < 8), n=64)
print(torch.allclose(filtered, torch.sin(2 * torch.pi * 5 * time), atol=1e-9))

F = torch.tensor([[1.0, 0.1], [0.0, 1.0]])
H = torch.tensor([[1.0, 0.0]])
state, P = torch.zeros(2, 1), torch.eye(2)
for step in range(20):
    state, P = F @ state, F @ P @ F.mT + 0.01 * torch.eye(2)
    measured = torch.tensor([[0.1 * step + 0.05 * (-1) ** step]])
    K = P @ H.mT @ torch.linalg.inv(H @ P @ H.mT + 0.1)
    state = state + K @ (measured - H @ state)
    P = (torch.eye(2) - K @ H) @ P
print(state.squeeze(), torch.linalg.eigvalsh(P), torch.linalg.det(P) > 0)
A = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
L = torch.linalg.cholesky(A)
print(L, torch.allclose(L @ L.T, A), torch.linalg.inv(A), torch.trace(A), torch.linalg.matrix_rank(A))
print(torch.linalg.lstsq(A, torch.ones(2, 1)).solution)
