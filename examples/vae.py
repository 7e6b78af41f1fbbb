"""Train a variational autoencoder on handwritten digits, and draw digits that nobody wrote.

    python -m dynagraph.torch examples/vae.py [--epochs 60] [--eager] [--device cuda] [--checkpoint vae.pt] [--out vae.png]

The encoder gives a normal distribution over two numbers for each image, the decoder an image for two numbers (Kingma and Welling
2013).  The picture shows the decoder's images over a grid of them.  `python examples/vae.py` runs the same text under PyTorch.
"""

from __future__ import annotations

import argparse

import common
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader


class Autoencoder(nn.Module):
    """Images (N, 64) to their reconstructions' logits (N, 64), and means and logarithms of variances of the code (N, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 4))
        self.decoder = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        return self.decoder(code), mean, log_variance


def bound(x: Tensor, logits: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """The negative evidence lower bound of an image, in nats: how badly it is reconstructed, and what the code says of it."""
    entropy = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum()
    return (entropy + divergence) / len(x)


def draw(plt, losses: list[float], images: Tensor, codes: Tensor, labels):
    """The losses, the codes of all images by their class, and images over a grid of codes."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    left.plot(losses)
    left.set(xlabel="epoch", ylabel="nats per image")
    points = middle.scatter(codes[:, 0].cpu().numpy(), codes[:, 1].cpu().numpy(), c=labels, cmap="tab10", s=6)
    figure.colorbar(points, ax=middle)
    middle.set_title("codes of the images")
    side = int(len(images) ** 0.5)
    tiles = images.view(side, side, 8, 8).transpose(1, 2).reshape(8 * side, 8 * side)
    right.imshow(tiles.cpu().numpy(), cmap="gray_r", extent=(-2, 2, -2, 2))
    right.set_title("images of codes")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "vae", turns=60, quick=4, unit="epochs"), arguments)
    torch.manual_seed(0)
    found = load_digits()
    data = torch.tensor(found.data / 16, dtype=torch.float32, device=options.device)
    model = Autoencoder().to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = bound(x, *model(x))
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer)
    loader = DataLoader(data, batch_size=64, shuffle=True, drop_last=True)
    for _ in run.turns():
        run.log(sum(fast(x) for x in loader) / len(loader))
    print(f"{options.turns} epochs in {sum(run.times):.1f} s: {run.losses[0]:.2f} nats per image, then {run.losses[-1]:.2f}")

    with torch.no_grad():
        line = torch.linspace(-2, 2, 15, device=options.device)
        images = model.decoder(torch.cartesian_prod(line.flip(0), line).flip(1)).sigmoid()
        codes = model.encoder(data)[:, :2]
    common.picture(options, lambda plt: draw(plt, run.losses, images, codes, found.target))
    ratio = common.compare(options, step, fast, data[:64])
    return argparse.Namespace(losses=run.losses, images=images, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
