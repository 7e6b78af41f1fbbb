"""Train two networks against each other to draw digits: one makes images, the other tells them from real ones.

    python -m dynagraph.torch examples/dcgan.py [--epochs 60] [--eager] [--device cuda] [--checkpoint gan.pt] [--out dcgan.png]

A deep convolutional generative adversarial network (Radford, Metz and Chintala 2015) for scikit-learn's 8x8 images.  Both networks'
steps, with two optimizers, are one compiled program.  `python examples/dcgan.py` runs the same text under PyTorch.
"""

from __future__ import annotations

import argparse

import common
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader

CODE = 16  # random numbers that an image is made of


def generator() -> nn.Module:
    """Codes (N, CODE, 1, 1) to images (N, 1, 8, 8) from -1 to 1."""
    return nn.Sequential(
        nn.ConvTranspose2d(CODE, 64, 2, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 1, 4, 2, 1), nn.Tanh(),
    )  # fmt: skip


def discriminator() -> nn.Module:
    """Images (N, 1, 8, 8) to logits (N,) of being real."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(32, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(0.2),
        nn.Conv2d(64, 1, 2), nn.Flatten(0),
    )  # fmt: skip


def initialize(layer: nn.Module) -> None:
    """Normal weights, as in the paper."""
    if isinstance(layer, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(layer.weight, 0.0, 0.05)


def draw(plt, images: Tensor, losses: list[float], others: list[float]):
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    left.plot(losses, label="discriminator")
    left.plot(others, label="generator")
    left.set(xlabel="epoch", ylabel="loss")
    left.legend()
    tiles = images.view(8, 8, 8, 8).transpose(1, 2).reshape(64, 64)
    right.imshow(tiles.cpu().numpy(), cmap="gray_r")
    right.axis("off")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "dcgan", turns=60, quick=2, unit="epochs"), arguments)
    torch.manual_seed(0)
    digits = torch.tensor(load_digits().images / 8 - 1, dtype=torch.float32, device=options.device).unsqueeze(1)
    maker, judge = (made.to(options.device).apply(initialize) for made in (generator(), discriminator()))
    makes = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.999))
    judges = torch.optim.Adam(judge.parameters(), lr=5e-4, betas=(0.5, 0.999))

    def step(real: Tensor) -> tuple[Tensor, Tensor]:
        ones, zeros = torch.ones(len(real), device=real.device), torch.zeros(len(real), device=real.device)
        made = maker(torch.randn(len(real), CODE, 1, 1, device=real.device))
        judges.zero_grad()
        judged = F.binary_cross_entropy_with_logits(judge(real), 0.9 * ones)  # not quite sure: gradients stay
        judged = judged + F.binary_cross_entropy_with_logits(judge(made.detach()), zeros)
        judged.backward()
        judges.step()
        makes.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(judge(made), ones)
        fooled.backward()
        makes.step()
        return judged.detach(), fooled.detach()

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, maker=maker, judge=judge, makes=makes, judges=judges)
    loader = DataLoader(digits, batch_size=64, shuffle=True, drop_last=True)
    others: list[float] = []
    for _ in run.turns():
        found = [fast(real) for real in loader]
        run.log(sum(judged for judged, _ in found) / len(found))
        others.append(float(sum(fooled for _, fooled in found) / len(found)))
    print(f"{options.turns} epochs in {sum(run.times):.1f} s: losses {run.losses[-1]:.3f} of the discriminator", end="")
    print(f", {others[-1]:.3f} of the generator" if others else "")

    with torch.no_grad():
        images = maker(torch.randn(64, CODE, 1, 1, device=options.device))[:, 0]
    # how far an image is from the nearest real one, against noise as bright
    apart, noise = (torch.cdist(x.flatten(1), digits.flatten(1)).min(1).values.mean().item()
                    for x in (images, images.flatten()[torch.randperm(images.numel())].view(64, 8, 8)))  # fmt: skip
    print(f"an image is {apart:.2f} away from the nearest real one; the same pixels in any order {noise:.2f}")
    common.picture(options, lambda plt: draw(plt, images, run.losses, others))
    ratio = common.compare(options, step, fast, digits[:64])
    return argparse.Namespace(losses=run.losses, images=images, apart=apart, noise=noise, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
