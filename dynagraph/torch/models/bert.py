"""BERT's encoder (Devlin, Chang, Lee and Toutanova 2018, "Pre-training of deep bidirectional transformers").

Names as Hugging Face's `BertModel`.  State dicts of larger models load, too (``bert.`` before each name; heads are left out), and
those with the first names of layer norms, `gamma` and `beta`.
"""

from __future__ import annotations

from typing import Any

from dynagraph import torch
from dynagraph.torch import Tensor, nn
from dynagraph.torch.nn import functional as F

_OLD_ENDS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


class _Embeddings(nn.Module):
    """Words, places and segments, added up and normalized."""

    def __init__(self, vocab_size: int, width: int, positions: int, types: int, dropout: float, eps: float, padding: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, width, padding_idx=padding)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(types, width)
        self.LayerNorm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(types) + self.position_embeddings(places)
        return self.dropout(self.LayerNorm(x))


class _SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        n, length, width = x.shape
        parts = [layer(x).view(n, length, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        y = F.scaled_dot_product_attention(*parts, attn_mask=mask, dropout_p=self.dropout if self.training else 0.0)
        return y.transpose(1, 2).reshape(n, length, width)


class _Output(nn.Module):
    """A linear layer, dropout, and the norm of the sum with what went in before."""

    def __init__(self, before: int, width: int, dropout: float, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(before, width)
        self.LayerNorm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float, attention_dropout: float, eps: float) -> None:
        super().__init__()
        self.self = _SelfAttention(width, heads, attention_dropout)
        self.output = _Output(width, width, dropout, eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return self.output(self.self(x, mask), x)


class _Dense(nn.Module):
    """A linear layer alone, under the name that state dicts have it."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(before, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x)


class _Layer(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, dropout: float, attention_dropout: float, eps: float) -> None:
        super().__init__()
        self.attention = _Attention(width, heads, dropout, attention_dropout, eps)
        self.intermediate = _Dense(width, hidden)
        self.output = _Output(hidden, width, dropout, eps)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = self.attention(x, mask)
        return self.output(F.gelu(self.intermediate(x)), x)


class _Encoder(nn.Module):
    def __init__(self, layers: list[Any]) -> None:
        super().__init__()
        self.layer = nn.ModuleList(layers)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        for layer in self.layer:
            x = layer(x, mask)
        return x


class BertModel(nn.Module):
    """Tokens (N, T) to (N, T, hidden_size), and a summary (N, hidden_size) computed from the first token.

    `attention_mask` (N, T): 1 where a token is, 0 where the sequence is padded.  `token_type_ids` (N, T): which of two sequences a
    token belongs to.  The defaults are those of bert-base; without `add_pooling_layer` the summary is None.

    >>> from dynagraph import torch
    >>> model = BertModel(vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    >>> sequence, summary = model(torch.tensor([[1, 2, 3]]))
    >>> sequence.shape, summary.shape
    (torch.Size([1, 3, 8]), torch.Size([1, 8]))
    """

    def __init__(
        self, vocab_size: int = 30522, hidden_size: int = 768, num_hidden_layers: int = 12, num_attention_heads: int = 12,
        intermediate_size: int = 3072, hidden_dropout_prob: float = 0.1, attention_probs_dropout_prob: float = 0.1,
        max_position_embeddings: int = 512, type_vocab_size: int = 2, layer_norm_eps: float = 1e-12, pad_token_id: int = 0,
        add_pooling_layer: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if hidden_size % num_attention_heads:
            raise ValueError(f"hidden_size: expected a multiple of num_attention_heads, but got {hidden_size}")
        dropout, eps = hidden_dropout_prob, layer_norm_eps
        sizes = (vocab_size, hidden_size, max_position_embeddings, type_vocab_size)
        self.embeddings = _Embeddings(*sizes, dropout, eps, pad_token_id)
        about = (hidden_size, intermediate_size, num_attention_heads, dropout, attention_probs_dropout_prob, eps)
        self.encoder = _Encoder([_Layer(*about) for _ in range(num_hidden_layers)])
        self.pooler = _Dense(hidden_size, hidden_size) if add_pooling_layer else None
        for layer in self.modules():
            if isinstance(layer, (nn.Linear, nn.Embedding)):
                nn.init.normal_(layer.weight, std=0.02)
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            self.embeddings.word_embeddings.weight[pad_token_id].fill_(0)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        mask = None if attention_mask is None else (attention_mask != 0)[:, None, None, :]
        sequence = self.encoder(self.embeddings(input_ids, token_type_ids), mask)
        return sequence, None if self.pooler is None else self.pooler(sequence[:, 0]).tanh()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        whole = any(name.startswith(f"{prefix}bert.") for name in state_dict)
        for name in [name for name in state_dict if name.startswith(prefix)]:
            value = state_dict.pop(name)
            inner = name.removeprefix(prefix)
            if whole and not inner.startswith("bert."):  # the heads of a larger model
                continue
            inner = inner.removeprefix("bert.")
            for old, new in _OLD_ENDS.items():
                inner = inner.replace(old, new)
            if inner == "embeddings.position_ids" or (self.pooler is None and inner.startswith("pooler.")):
                continue
            state_dict[prefix + inner] = value
        super()._load_from_state_dict(state_dict, prefix, *args)


__all__ = ["BertModel"]
