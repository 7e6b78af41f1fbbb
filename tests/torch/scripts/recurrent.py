"""A recurrent network and an LSTM by hand, gradients clipped, on a wave; hidden states detached between pieces."""

import math

import torch

wave = torch.sin(torch.arange(0, 121, dtype=torch.float32) * 0.3)
H = 8


def weights(rows, cols, shift):
    k = torch.arange(rows * cols, dtype=torch.float32)
    return (torch.cos(k * 1.7 + shift) / math.sqrt(rows)).reshape(rows, cols)


params = {
    "Wx": weights(1, 4 * H, 0.0), "Wh": weights(H, 4 * H, 1.0), "b": torch.zeros(4 * H),
    "Wo": weights(H, 1, 2.0), "bo": torch.zeros(1),
}  # fmt: skip
for p in params.values():
    p.requires_grad_(True)


def cell(x, state):
    h, c = state
    gates = x @ params["Wx"] + h @ params["Wh"] + params["b"]
    i, f, g, o = gates.chunk(4, dim=1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def clip(grads, most):
    norm = torch.norm(torch.stack([g.norm() for g in grads]))
    scale = torch.clamp(most / (norm + 1e-6), max=1.0)
    for g in grads:
        g.mul_(scale)
    return norm


for epoch in range(12):
    state = (torch.zeros(1, H), torch.zeros(1, H))
    total = 0.0
    for start in range(0, 120, 30):
        state = tuple(s.detach() for s in state)
        losses = []
        for t in range(start, start + 30):
            state = cell(wave[t].view(1, 1), state)
            prediction = state[0] @ params["Wo"] + params["bo"]
            losses.append((prediction.squeeze() - wave[t + 1]) ** 2)
        loss = torch.stack(losses).mean()
        total += loss.item()
        loss.backward()
        norm = clip([p.grad for p in params.values()], 1.0)
        with torch.no_grad():
            for p in params.values():
                p -= 0.3 * p.grad
                p.grad.zero_()
    if epoch % 4 == 3:
        print(f"epoch {epoch}: {total / 4:.4f} {norm:.3f}")

outputs = []
state = (torch.zeros(1, H), torch.zeros(1, H))
with torch.inference_mode():
    for t in range(10):
        state = cell(wave[t : t + 1, None], state)
        outputs.append(state[0])
stacked = torch.cat(outputs)
print(stacked.shape, stacked.requires_grad, stacked.is_inference(), stacked[:, :3].round(decimals=2))
