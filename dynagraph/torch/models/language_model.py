"""A language model of LSTM layers (Zaremba, Sutskever and Vinyals 2014, "Recurrent neural network regularization").

Names as in PyTorch's example of a word language model.
"""

from __future__ import annotations

from dynagraph import torch
from dynagraph.torch import Tensor, nn

State = tuple[Tensor, Tensor]


class LSTMLanguageModel(nn.Module):
    """Tokens (T, N) and a state to logits (T, N, ntoken) of the tokens that follow, and the state after them.

    `ninp` is the size of embeddings, `nhid` the size of states.  `tie_weights` has the last layer use the embedding's weights
    (Press and Wolf 2016).  Without a state, it begins with zeros.

    >>> from dynagraph import torch
    >>> model = LSTMLanguageModel(ntoken=11, ninp=6, nhid=8, nlayers=2, dropout=0.0)
    >>> logits, state = model(torch.zeros(5, 3, dtype=torch.int64))
    >>> logits.shape, state[0].shape
    (torch.Size([5, 3, 11]), torch.Size([2, 3, 8]))
    """

    def __init__(
        self, ntoken: int, ninp: int = 200, nhid: int = 200, nlayers: int = 2, dropout: float = 0.5, tie_weights: bool = False
    ) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout if nlayers > 1 else 0.0)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            if nhid != ninp:
                raise ValueError(f"tie_weights: expected nhid to be ninp {ninp}, but got {nhid}")
            self.decoder.weight = self.encoder.weight
        self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, hidden: State | None = None) -> tuple[Tensor, State]:
        outputs, state = self.rnn(self.drop(self.encoder(tokens)), hidden)
        return self.decoder(self.drop(outputs)), state

    def init_hidden(self, bsz: int) -> State:
        """A state of zeros for `bsz` sequences: hidden and cell, each (nlayers, bsz, nhid)."""
        hidden = self.decoder.weight.new_zeros(self.nlayers, bsz, self.nhid)
        return hidden, torch.zeros_like(hidden)


__all__ = ["LSTMLanguageModel"]
