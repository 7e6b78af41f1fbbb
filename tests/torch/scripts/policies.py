"""Reinforcement learning by tables and gradients: value iteration, Q-learning, REINFORCE on a bandit, generalized advantages."""

import torch
import torch.nn.functional as F

S, A = 5, 2
P = torch.zeros(S, A, S)
for s in range(S):
    P[s, 0, max(s - 1, 0)] = 1.0
    P[s, 1, min(s + 1, S - 1)] = 1.0
R = torch.zeros(S, A)
R[S - 2, 1] = 1.0
V = torch.zeros(S)
for sweep in range(1000):
    Q = R + 0.9 * torch.einsum("sat,t->sa", P, V)
    new = Q.amax(dim=1)
    if torch.max(torch.abs(new - V)) < 1e-6:
        break
    V = new
print(sweep, V, Q.argmax(-1))

table = torch.zeros(S, A)
state = 0
for t in range(400):
    action = t * 7 % 3 % 2
    following = P[state, action].argmax().item()
    target = R[state, action] + 0.9 * table[following].max()
    table[state, action] += 0.5 * (target - table[state, action])
    state = following if t % 40 else 0
print((table * 100).round() / 100)

means = torch.tensor([0.2, 0.5, 0.9])
logits = torch.zeros(3, requires_grad=True)
baseline = 0.0
for t in range(300):
    log_probs = F.log_softmax(logits, dim=-1)
    arm = torch.searchsorted(log_probs.detach().exp().cumsum(0), torch.tensor((t * 0.618034) % 1.0)).clamp(max=2)
    reward = means[arm] + 0.1 * torch.sin(torch.tensor(float(t)))
    loss = -(reward - baseline) * log_probs[arm]
    baseline += 0.05 * (reward.item() - baseline)
    (g,) = torch.autograd.grad(loss, logits)
    with torch.no_grad():
        logits -= 0.3 * g
print(logits.softmax(0).argmax(), logits.softmax(0)[2] > 0.8, f"{baseline:.2f}")

rewards = torch.tensor([0.0, 0.0, 1.0, 0.0, 2.0])
values = torch.tensor([0.1, 0.2, 0.5, 0.3, 0.4, 0.0])
done = torch.tensor([0, 0, 1, 0, 1], dtype=torch.bool)
advantages = torch.zeros_like(rewards)
last = 0.0
for t in reversed(range(5)):
    alive = 1.0 - done[t].float()
    delta = rewards[t] + 0.99 * values[t + 1] * alive - values[t]
    last = delta + 0.99 * 0.95 * alive * last
    advantages[t] = last
print(advantages, (advantages - advantages.mean()) / (advantages.std() + 1e-8))
ratio = torch.exp(torch.tensor([0.3, -0.2, 0.1, 0.0, 0.5]))
print(torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean(), F.smooth_l1_loss(values[:-1], rewards))
