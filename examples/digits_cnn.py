"""Train a convolutional network on handwritten digits.

    python -m dynagraph.torch examples/digits_cnn.py [--epochs 30] [--eager] [--device cuda] [--checkpoint digits_cnn.pt]

The data are scikit-learn's 1797 real 8x8 images; every fifth is kept for the test, of which the network gets about 99 % right.
A training step, with `backward()` and the optimizer's step, is one compiled program.  `python examples/digits_cnn.py` runs the same
text under PyTorch.
"""

from __future__ import annotations

import argparse

import common
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Network(nn.Module):
    """Images (N, 1, 8, 8) to scores (N, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.norm2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.conv3, self.norm3 = nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64)
        self.head = nn.Linear(64 * 2 * 2, 10)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        x = F.max_pool2d(F.relu(self.norm3(self.conv3(x))), 2)
        return self.head(self.dropout(x.flatten(1)))


def load(device: str) -> tuple[TensorDataset, TensorDataset]:
    """Images and labels to train on, and to test with."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16, dtype=torch.float32, device=device).view(-1, 1, 8, 8)
    y = torch.tensor(labels, device=device)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(device)
    test, rest = order[::5], order[torch.arange(len(x), device=device) % 5 != 0]
    return TensorDataset(x[rest], y[rest]), TensorDataset(x[test], y[test])


def draw(plt, losses: list[float], images: Tensor, labels: Tensor, said: Tensor):
    """The losses by epoch, and test images with what the network says; wrong ones in red."""
    figure = plt.figure(figsize=(9, 5), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(3, 1.2))
    axis = above.subplots()
    axis.plot(range(1, len(losses) + 1), losses)
    axis.set(xlabel="epoch", ylabel="mean loss", yscale="log")
    wrong = (said != labels).nonzero().flatten().tolist()
    right = (said == labels).nonzero().flatten().tolist()
    for axis, k in zip(below.subplots(1, 12), [*wrong[:4], *right]):
        axis.imshow(images[k, 0].cpu().numpy(), cmap="gray_r")
        text = f"{int(said[k])}" if said[k] == labels[k] else f"{int(said[k])}, is {int(labels[k])}"
        axis.set_title(text, fontsize=9, color="black" if said[k] == labels[k] else "red")
        axis.axis("off")
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "digits_cnn", turns=30, quick=3, unit="epochs"), arguments)
    torch.manual_seed(0)
    train, test = load(options.device)
    model = Network().to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.93)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer, scheduler=scheduler)
    loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    for _ in run.turns():
        run.log(sum(fast(x, y) for x, y in loader) / len(loader))
        scheduler.step()

    model.eval()
    images, labels = test.tensors
    with torch.no_grad():
        said = model(images).argmax(1)
    accuracy = (said == labels).float().mean().item()
    print(f"{options.turns} epochs in {sum(run.times):.1f} s: loss {run.losses[-1]:.4f}, "
          f"{accuracy:.1%} of {len(test)} test images right")  # fmt: skip
    common.picture(options, lambda plt: draw(plt, run.losses, images, labels, said))
    model.train()
    ratio = common.compare(options, step, fast, *next(iter(loader)))
    return argparse.Namespace(losses=run.losses, accuracy=accuracy, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
