"""Train a small GPT on the characters of Python's own manual, and let it write.

    python -m dynagraph.torch examples/char_gpt.py [--steps 1000] [--eager] [--device cuda] [--checkpoint gpt.pt] [--out gpt.png]

The text is what `help()` knows of Python's language, half a million characters that come with every Python, and its licence.
Each character is a token.  The model is GPT-2's (Radford et al. 2019), with 4 layers of width 128.  `python examples/char_gpt.py`
runs the same text under PyTorch, with the same numbers of parameters and tokens.
"""

from __future__ import annotations

import argparse
import math
import sysconfig
from pathlib import Path
from pydoc_data.topics import topics

import common
import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, LENGTH = 16, 128


class Block(nn.Module):
    """Causal attention and a feed-forward network, each added to what it was given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.attend(self.norm1(x)).split(width, dim=2)
        query, key, value = (part.view(n, length, self.heads, -1).transpose(1, 2) for part in parts)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.project(found.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Tokens (N, T) to scores (N, T, tokens) of what follows each."""

    def __init__(self, tokens: int, layers: int = 4, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                narrower = math.sqrt(2 * layers) if name.endswith(("project.weight", "narrow.weight")) else 1
                nn.init.normal_(parameter, std=0.02 / narrower)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.token(x) + self.place(places))))


def manual() -> str:
    """What Python says of itself, in ASCII."""
    licence = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")  # some distributions leave it out
    texts = [topics[name] for name in sorted(topics)] + ([licence.read_text()] if licence.exists() else [])
    return "\n\n".join(texts).encode("ascii", "ignore").decode()


def batch(tokens: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Pieces of the text (BATCH, LENGTH), and what follows each character."""
    starts = torch.randint(len(tokens) - LENGTH, (BATCH, 1), generator=generator)
    places = (starts + torch.arange(LENGTH)).to(tokens.device)
    return tokens[places], tokens[places + 1]


def write(model: nn.Module, tokens: Tensor, characters: int) -> Tensor:
    """The tokens (1, T), and so many more, each drawn by the model's probabilities."""
    with torch.no_grad():
        for _ in range(characters):
            scores = model(tokens[:, -LENGTH:])[:, -1] / 0.7
            tokens = torch.cat([tokens, torch.multinomial(scores.softmax(1), 1)], 1)
    return tokens


def draw(plt, losses: list[float], alphabet: int):
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.plot(losses, color="tab:blue", alpha=0.3)
    width = max(1, len(losses) // 50)
    means = [sum(losses[k : k + width]) / width for k in range(0, len(losses) - width + 1, width)]
    axis.plot([width * (k + 0.5) for k in range(len(means))], means, color="tab:blue")
    axis.axhline(math.log(alphabet), color="gray", linestyle=":", label="guessing")
    axis.set(xlabel="step", ylabel="cross-entropy per character")
    axis.legend()
    return figure


def main(arguments: list[str] | None = None) -> argparse.Namespace:
    options = common.parsed(common.parser(__doc__, "char_gpt", turns=1000, quick=12), arguments)
    torch.manual_seed(0)
    text = manual()
    alphabet = sorted(set(text))
    numbers = {character: k for k, character in enumerate(alphabet)}
    tokens = torch.tensor([numbers[character] for character in text], device=options.device)

    model = GPT(len(alphabet)).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: min(1.0, (k + 1) / 20))

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    fast = common.compiled(torch, step, options)
    run = common.Run(options, torch, model=model, optimizer=optimizer, scheduler=scheduler)
    for _ in run.turns():
        run.log(fast(*batch(tokens)))
        scheduler.step()

    speed = run.speed * BATCH * LENGTH
    print(f"{len(run.losses)} steps on {len(text)} characters, {len(alphabet)} of them different: loss "
          f"{run.losses[-1]:.3f}, {speed:.0f} tokens per second")  # fmt: skip
    begin = torch.tensor([[numbers[character] for character in "The "]], device=options.device)
    said = write(model, begin, 20 if options.quick else 400)
    print("".join(alphabet[k] for k in said[0].tolist()))
    common.picture(options, lambda plt: draw(plt, run.losses, len(alphabet)))
    ratio = common.compare(options, step, fast, *batch(tokens))
    return argparse.Namespace(losses=run.losses, times=run.times, speed=speed, step=fast, ratio=ratio)


if __name__ == "__main__":
    main()
