"""Teach a network that knows some digits the others, with most of its layers frozen.

    python examples/finetune.py [--epochs 20] [--eager] [--device cuda] [--checkpoint finetune.pt] [--out finetune.png]

A small ResNet-18 learns the digits 0 to 4 first.  Its first half is then frozen, statistics of its batch normalization included,
and it gets a new head for 5 to 9, of which it is shown four images each.  After twenty steps it is far ahead of a network that has
to learn them from nothing, and its steps take less work, as no gradients are computed below what is trained.  With many more steps
that one overtakes: digits are too different to share more.  The data are scikit-learn's 8x8 images, enlarged to 32x32, so that the
layers behind the frozen ones have more than one place to look at.
"""

from __future__ import annotations

import argparse

import common

from dynagraph import torch
from dynagraph.torch import Tensor, nn
from dynagraph.torch.datasets import digits
from dynagraph.torch.models import resnet18
from dynagraph.torch.nn import functional as F
from dynagraph.torch.utils.data import DataLoader, TensorDataset

FEW = 4  # images of each new digit to learn from


def tasks(device: str) -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Images (N, 3, 32, 32) and classes 0 to 4: of the first five digits; a few of the others to train on; the rest of them."""
    images, labels = (t.to(device) for t in digits().tensors)
    images = F.interpolate(images, scale_factor=4, mode="bilinear", align_corners=False).expand(-1, 3, -1, -1)
    old, new = labels < 5, labels >= 5
    x, y = images[new], labels[new] - 5
    seen = F.one_hot(y, 5).cumsum(0).gather(1, y.unsqueeze(1)).squeeze(1)  # how many of its class came up to an image
    few = seen <= FEW
    return TensorDataset(images[old], labels[old]), TensorDataset(x[few], y[few]), TensorDataset(x[~few], y[~few])


def accuracy(model: nn.Module, data: TensorDataset) -> float:
    model.eval()
    with torch.no_grad():
        images, labels = data.tensors
        return (model(images).argmax(1) == labels).float().mean().item()


def stepper(model: nn.Module, optimizer: torch.optim.Optimizer):
    """A training step: images and labels to the loss."""

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def train(options, model: nn.Module, data: TensorDataset, epochs: int, frozen: list[nn.Module], keep: bool = False):
    """Train what is not frozen; the run, the plain step and the compiled one.  keep: go on from the checkpoint, and write it."""
    for module in frozen:
        module.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    step = stepper(model, optimizer)
    fast = common.compiled(torch, step, options)
    run = common.Run(argparse.Namespace(**{**vars(options), "turns": epochs, "checkpoint": options.checkpoint if keep else None}),
                     torch, model=model, optimizer=optimizer)  # fmt: skip
    loader = DataLoader(data, batch_size=20, shuffle=True, drop_last=True)
    for _ in run.turns():
        model.train()
        for module in frozen:
            module.eval()  # else its batch normalization would take the few images' means and variances
        run.log(sum(fast(x, y) for x, y in loader) / len(loader))
    return run, step, fast


def draw(plt, curves: dict[str, list[float]]):
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, losses in curves.items():
        axis.plot(range(1, len(losses) + 1), losses, label=name)
    axis.set(xlabel="epoch", ylabel="mean loss")
    axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "finetune", turns=20, quick=8, unit="epochs"), arguments)
    torch.manual_seed(0)
    old, few, rest = tasks(options.device)
    model = resnet18(num_classes=5, width=8).to(options.device)
    train(options, model, old, 1 if options.quick else 4, [])
    print(f"digits 0 to 4: {accuracy(model, old):.1%} of those it was trained on right")

    model.fc = nn.Linear(model.fc.in_features, 5, device=options.device)
    frozen = [model.conv1, model.bn1, model.layer1, model.layer2]
    before = [t.clone() for module in frozen for t in module.state_dict().values()]
    run, step, fast = train(options, model, few, options.turns, frozen, keep=True)
    tuned = accuracy(model, rest)
    assert all(map(torch.equal, before, (t for module in frozen for t in module.state_dict().values())))

    new = resnet18(num_classes=5, width=8).to(options.device)
    alone, *_ = train(options, new, few, options.turns, [])
    scratch = accuracy(new, rest)
    print(f"digits 5 to 9, {FEW} images each, {options.turns} epochs: fine-tuned {tuned:.1%} of {len(rest)} others right, "
          f"from nothing {scratch:.1%}")  # fmt: skip
    curves = {f"fine-tuned, {tuned:.1%} right": run.losses, f"from nothing, {scratch:.1%}": alone.losses}
    common.picture(options, lambda plt: draw(plt, curves))
    ratio = common.compare(options, step, fast, few.tensors[0][:20], few.tensors[1][:20])
    return argparse.Namespace(losses=run.losses, tuned=tuned, scratch=scratch, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
