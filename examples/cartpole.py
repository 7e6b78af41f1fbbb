"""Teach a network to balance a pole on a cart: reinforcement learning, with Python around the model.

    python -m dynagraph.torch examples/cartpole.py [--steps 150] [--eager] [--device cuda] [--checkpoint cartpole.pt]

The cart and the pole are those of Barto, Sutton and Anderson (1983), written out below for many carts at once.  The network says
which way to push and how long it expects to last; what went better than expected is made likelier (advantage actor-critic, with a
bonus for entropy).  An episode ends after 200 pushes at most.  `python examples/cartpole.py` runs the same text under PyTorch.
"""

from __future__ import annotations

import argparse
import math

import common
import torch
import torch.nn.functional as F
from torch import Tensor, nn

CARTS, PUSHES, LAST = 32, 32, 200  # pushes in one batch of each cart; the longest episode


class Carts:
    """Carts with poles: states (N, 4) of place, speed, angle and its speed; all start anew when they fall."""

    def __init__(self, n: int, device: str) -> None:
        self.state = torch.zeros(n, 4, device=device)
        self.age = torch.zeros(n, device=device)
        self.ended: list[float] = []  # how long the episodes lasted
        self._renew(torch.ones(n, dtype=torch.bool, device=device))

    def _renew(self, which: Tensor) -> None:
        fresh = torch.rand(self.state.shape).to(self.state.device) * 0.1 - 0.05
        self.state = torch.where(which.unsqueeze(1), fresh, self.state)
        self.age = torch.where(which, torch.zeros_like(self.age), self.age)

    def push(self, right: Tensor) -> Tensor:
        """Push each cart right (1) or left (0) for 0.02 s; which of them have fallen, left the track or lasted to the end."""
        place, speed, angle, turn = self.state.unbind(1)
        force = 20.0 * right - 10.0
        sin, cos = angle.sin(), angle.cos()
        shared = (force + 0.05 * turn**2 * sin) / 1.1
        bend = (9.8 * sin - cos * shared) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        gain = shared - 0.05 * bend * cos / 1.1
        self.state = torch.stack([place + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turn, turn + 0.02 * bend], 1)
        self.age = self.age + 1
        over = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > math.radians(12)) | (self.age >= LAST)
        if over.any():
            self.ended += self.age[over].tolist()
            self._renew(over)
        return over

    def state_dict(self) -> dict:
        return {"state": self.state, "age": self.age, "ended": self.ended}

    def load_state_dict(self, saved: dict) -> None:
        self.state, self.age, self.ended = saved["state"], saved["age"], saved["ended"]


class Player(nn.Module):
    """States (N, 4) to logits (N, 2) of pushing left and right, and how many of the next pushes it expects to see (N,)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        found = self.head(self.body(x))
        return found[..., :2], 20 * found[..., 2]


def draw(plt, lengths: list[float], losses: list[float]):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(lengths)
    left.set(xlabel="episode", ylabel="pushes that it lasted")
    right.plot(losses)
    right.set(xlabel="step", ylabel="loss")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "cartpole", turns=150, quick=15), arguments)
    torch.manual_seed(0)
    model = Player().to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    carts = Carts(CARTS, options.device)

    def step(states: Tensor, pushes: Tensor, returns: Tensor) -> Tensor:
        optimizer.zero_grad()
        logits, expected = model(states)
        advantage = returns - expected
        likely = F.log_softmax(logits, dim=-1)
        chosen = likely.gather(-1, pushes.unsqueeze(-1)).squeeze(-1)
        entropy = -(likely.exp() * likely).sum(-1).mean()
        loss = -(chosen * advantage.detach()).mean() / 10 + advantage.pow(2).mean() / 200 - 0.01 * entropy
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss.detach()

    act = common.compiled(torch, lambda states: model(states), options)
    fast = common.compiled(torch, step, options)

    def played() -> tuple[Tensor, Tensor, Tensor]:
        """States (PUSHES, CARTS, 4) that were met, what was done there, and the rewards that followed: 1 for each push survived."""
        met, done, over = [], [], []
        with torch.no_grad():
            for _ in range(PUSHES):
                logits, _ = act(carts.state)
                push = torch.multinomial(logits.softmax(1), 1).squeeze(1)
                met.append(carts.state)
                done.append(push)
                over.append(carts.push(push))
            value, found = act(carts.state)[1], []
            for ended in reversed(over):
                value = 1 + 0.98 * torch.where(ended, torch.zeros_like(value), value)
                found.append(value)
        return torch.stack(met), torch.stack(done), torch.stack(found[::-1])

    run = common.Run(options, torch, model=model, optimizer=optimizer, carts=carts)
    for _ in run.turns():
        run.log(fast(*played()))

    lengths = carts.ended
    first, last = (sum(part) / max(1, len(part)) for part in (lengths[:50], lengths[-50:]))
    print(f"{len(run.losses)} steps in {sum(run.times):.1f} s, {len(lengths)} episodes: the first 50 lasted {first:.0f} pushes, "
          f"the last 50 {last:.0f}")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, lengths, run.losses))
    ratio = common.compare(options, step, fast, *played())
    return argparse.Namespace(losses=run.losses, first=first, last=last, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
