"""MultiheadAttention and the transformer layers: results, gradients by inputs and parameters, names, how they are printed."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tests.torch.table import Case, T, error, program

MHA = "nn.MultiheadAttention"
ENCODER = "nn.TransformerEncoderLayer(4, 2, 6, 0.0"
DECODER = "nn.TransformerDecoderLayer(4, 2, 6, 0.0"
L, S = 3, 5


def made(torch: Any, text: str, dtype: Any) -> Any:
    """The module that a text makes, with numbers that are the same in both torches."""
    module = eval(text, {"torch": torch, "nn": torch.nn}).to(dtype)
    with torch.no_grad():
        for name, p in module.named_parameters():
            rng = np.random.default_rng(zlib.crc32(f"{name} {tuple(p.shape)}".encode()))
            p.copy_(torch.from_numpy(np.asarray(rng.standard_normal(p.shape) / 2)))
    return module


def layer(text: str, *inputs: Any, train: bool = True, no_grad: bool = False, **about: Any) -> Case:
    """`about`: keywords of the call that are inputs, or other values."""
    names = [n for n, v in about.items() if isinstance(v, T)]
    static = {n: v for n, v in about.items() if n not in names}

    def run(torch: Any, *given: Any) -> Any:
        module = made(torch, text, given[0].dtype).train(train)
        n = len(inputs)
        named = {**dict(zip(names, given[n:])), **static}
        if "src_key_padding_mask" in named:  # padding comes last, and is not all
            named["src_key_padding_mask"] = named["src_key_padding_mask"].cumsum(1) > 1
        if no_grad:
            with torch.no_grad():
                return module(*given[:n], **named)
        found = module(*given[:n], **named)
        outs = [o for o in (found if isinstance(found, tuple) else (found,)) if o is not None]
        total = sum((o * torch.arange(o.numel(), dtype=o.dtype).sin().view(o.shape)).sum() for o in outs)
        by = torch.autograd.grad(total, list(module.parameters()), retain_graph=True, allow_unused=True)
        return (*outs, *(g for g in by if g is not None), repr(module), list(module.state_dict()))

    name = f"{text} of {', '.join(map(repr, inputs))}, {about}{'' if train else ', in evaluation'}{', without gradients' * no_grad}"
    values = [about[n] for n in names]
    return program(name, run, *inputs, *values, _dtypes="float32", _second=False, _strides=False, _tolerance=100, _grad=not no_grad)


MASK, PADDING = T(L, L, kind="bool"), T(2, L, kind="bool")
CASES = [
    *(layer(f"{MHA}(4, 2{more})", T(L, 2, 4), T(S, 2, 4), T(S, 2, 4), need_weights=w, average_attn_weights=False)
      for more in ("", ", bias=False", ", add_bias_kv=True", ", add_zero_attn=True") for w in (True, False)),
    *(layer(f"{MHA}(4, 2, batch_first=True)", T(2, L, 4), T(2, S, 4), T(2, S, 4), need_weights=w, attn_mask=T(L, S, kind=kind, grad=False))
      for w in (True, False) for kind in ("bool", "normal")),
    layer(f"{MHA}(4, 2, kdim=3, vdim=6)", T(L, 2, 4), T(S, 2, 3), T(S, 2, 6)),
    layer(f"{MHA}(4, 2)", T(L, 4), T(S, 4), T(S, 4), key_padding_mask=T(S, kind="bool")),
    *(layer(f"{ENCODER}{more})", T(L, 2, 4)) for more in ("", ", 'gelu'", ", norm_first=True", ", bias=False", ", torch.tanh")),
    *(layer(f"{ENCODER}, batch_first=True)", T(2, L, 4), src_mask=m, train=t) for m in (MASK, T(L, L, grad=False)) for t in (True, False)),
    layer(f"{ENCODER}, batch_first=True)", T(2, L, 4), src_key_padding_mask=PADDING, train=False, no_grad=True),
    layer(f"{ENCODER}, batch_first=True)", T(2, L, 4), src_mask=T(L, L), src_key_padding_mask=PADDING),
    layer(f"{MHA}(4, 2, add_zero_attn=True)", T(L, 2, 4), T(S, 2, 4), T(S, 2, 4), need_weights=False, attn_mask=T(4, L, S),
          key_padding_mask=T(2, S)),
    layer(f"{DECODER}, batch_first=True)", T(2, L, 4), T(2, S, 4), tgt_mask=T(L, L), memory_mask=T(L, S), memory_key_padding_mask=T(2, S)),
    *(layer(f"{DECODER}{more})", T(L, 2, 4), T(S, 2, 4)) for more in ("", ", 'gelu'", ", norm_first=True", ", batch_first=False, bias=False")),
    layer(f"{DECODER}, batch_first=True)", T(2, L, 4), T(2, S, 4), tgt_mask=MASK, memory_mask=T(L, S, kind="bool")),
    layer(f"nn.TransformerEncoder({ENCODER}), 2, nn.LayerNorm(4), enable_nested_tensor=False)", T(L, 2, 4), mask=T(L, L, grad=False)),
    layer(f"nn.TransformerDecoder({DECODER}), 2)", T(L, 2, 4), T(S, 2, 4)),
    *(layer(f"nn.TransformerEncoder({ENCODER}, batch_first=True), 2, nn.LayerNorm(4))", T(2, L, 4), train=False, no_grad=n, src_key_padding_mask=PADDING)
      for n in (True, False)),
    *(layer(f"nn.Transformer(4, 2, 1, 1, 6, 0.0{more})", T(2, L, 4), T(2, L, 4), tgt_is_causal=True, tgt_mask=T(L, L, grad=False))
      for more in (", batch_first=True", ", batch_first=True, norm_first=True")),
    program("a causal mask", lambda torch, x: torch.nn.Transformer.generate_square_subsequent_mask(4, dtype=x.dtype), T(2), _dtypes="float32"),
    error(f"{MHA}", 5, 2, _text=True), error(f"{MHA}", 0, 2),
    error("nn.TransformerEncoderLayer", 4, 2, activation="tanh", _text=True),
]  # fmt: skip
