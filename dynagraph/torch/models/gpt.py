"""GPT-2 (Radford et al. 2019, "Language models are unsupervised multitask learners").

Parameters are named as in nanoGPT (Karpathy), whose linear layers have weights (out, in).  GPT-2's own files, and Hugging Face's
`GPT2LMHeadModel`, keep the weights of blocks as (in, out): `GPT.load_gpt2` reads these, `GPT.gpt2_state_dict` gives them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping

from dynagraph import torch
from dynagraph.torch import Generator, Tensor, nn
from dynagraph.torch.nn import functional as F

_TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")  # Hugging Face's Conv1D
_MASKS = (".attn.bias", ".attn.masked_bias")  # buffers of GPT-2's files, which hold the causal mask


class _Attention(nn.Module):
    """Causal self-attention of several heads: (N, T, n_embd) to the same."""

    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd, bias=bias)
        self.c_proj = nn.Linear(n_embd, n_embd, bias=bias)
        self.resid_dropout = nn.Dropout(dropout)
        self.n_head, self.n_embd, self.dropout = n_head, n_embd, dropout

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        heads = [t.view(n, length, self.n_head, -1).transpose(1, 2) for t in self.c_attn(x).split(self.n_embd, 2)]
        y = F.scaled_dot_product_attention(*heads, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).reshape(n, length, width)))


class _FeedForward(nn.Module):
    def __init__(self, n_embd: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.c_fc = nn.Linear(n_embd, 4 * n_embd, bias=bias)
        self.gelu = nn.GELU("tanh")
        self.c_proj = nn.Linear(4 * n_embd, n_embd, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


class _Block(nn.Module):
    """Attention and a feedforward network, each of normalized input and added to it."""

    def __init__(self, n_embd: int, n_head: int, dropout: float, bias: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd, bias=bias)
        self.attn = _Attention(n_embd, n_head, dropout, bias)
        self.ln_2 = nn.LayerNorm(n_embd, bias=bias)
        self.mlp = _FeedForward(n_embd, dropout, bias)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Tokens (N, T), T at most `block_size`, to logits (N, T, vocab_size) of the tokens that follow each.

    The defaults are those of GPT-2's smallest model (124 million parameters).  The last layer's weights are the embedding's.

    >>> from dynagraph import torch
    >>> model = GPT(vocab_size=11, block_size=8, n_layer=2, n_head=2, n_embd=8)
    >>> tokens = torch.tensor([[1, 2, 3]])
    >>> model(tokens).shape
    torch.Size([1, 3, 11])
    >>> model.generate(tokens, 4).shape
    torch.Size([1, 7])
    """

    def __init__(
        self, vocab_size: int = 50257, block_size: int = 1024, n_layer: int = 12, n_head: int = 12, n_embd: int = 768,
        dropout: float = 0.0, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if n_embd % n_head:
            raise ValueError(f"n_embd: expected a multiple of n_head {n_head}, but got {n_embd}")
        self.block_size = block_size
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab_size, n_embd),
            "wpe": nn.Embedding(block_size, n_embd),
            "drop": nn.Dropout(dropout),
            "h": nn.ModuleList([_Block(n_embd, n_head, dropout, bias) for _ in range(n_layer)]),
            "ln_f": nn.LayerNorm(n_embd, bias=bias),
        })  # fmt: skip
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):  # what is added to the stream of 2 n_layer sums
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * n_layer))
            elif name.endswith(".weight") and parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith(".bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        if length > self.block_size:
            raise ValueError(f"expected at most {self.block_size} tokens, but got {length}")
        parts = self.transformer
        x = parts.drop(parts.wte(tokens) + parts.wpe(torch.arange(length, device=tokens.device)))
        for block in parts.h:
            x = block(x)
        return self.lm_head(parts.ln_f(x))

    def generate(
        self, tokens: Tensor, max_new_tokens: int, temperature: float = 1.0, top_k: int | None = None,
        generator: Generator | None = None,
    ) -> Tensor:  # fmt: skip
        """Tokens (N, T) with `max_new_tokens` more, each drawn given the last `block_size` before it.

        `temperature` divides the logits; 0 takes the likeliest token.  `top_k` draws from the likeliest ones alone.
        """
        with torch.no_grad():
            for _ in range(max_new_tokens):
                logits = self(tokens[:, -self.block_size :])[:, -1]
                if temperature == 0:
                    new = logits.argmax(-1, keepdim=True)
                else:
                    logits = logits / temperature
                    if top_k is not None:
                        least = torch.topk(logits, min(top_k, logits.shape[-1]))[0][:, -1:]
                        logits = logits.masked_fill(logits < least, -math.inf)
                    new = torch.multinomial(logits.softmax(-1), 1, generator=generator)
                tokens = torch.cat([tokens, new], 1)
        return tokens

    def load_gpt2(self, state_dict: Mapping[str, Tensor]) -> GPT:
        """Take the weights of GPT-2: of its published files, `GPT2Model` or `GPT2LMHeadModel`.  Gives the model itself.

        >>> from dynagraph import torch
        >>> first, second = (GPT(vocab_size=5, block_size=4, n_layer=1, n_head=1, n_embd=4) for _ in range(2))
        >>> tokens = torch.tensor([[1, 2]])
        >>> bool((second.load_gpt2(first.gpt2_state_dict())(tokens) == first(tokens)).all())
        True
        """
        state: OrderedDict[str, Tensor] = OrderedDict()
        for name, value in state_dict.items():
            if name.endswith(_MASKS):
                continue
            full = name if name.startswith(("transformer.", "lm_head.")) else f"transformer.{name}"
            state[full] = value.t() if name.endswith(_TRANSPOSED) else value
        state.setdefault("lm_head.weight", state["transformer.wte.weight"])
        self.load_state_dict(state)
        return self

    def gpt2_state_dict(self) -> OrderedDict[str, Tensor]:
        """The weights as `GPT2LMHeadModel` names and keeps them."""
        return OrderedDict((name, value.t() if name.endswith(_TRANSPOSED) else value) for name, value in self.state_dict().items())


__all__ = ["GPT"]
