"""scaled_dot_product_attention, flex_attention, causal biases, and multi_head_attention_forward without weights."""

from __future__ import annotations

import importlib
import math
from typing import Any

from tests.torch.table import T, case, error, program

SDPA = "nn.functional.scaled_dot_product_attention"
QKV = (T(2, 4, 5, 3), T(2, 4, 7, 3), T(2, 4, 7, 3))
ABOUT: dict[str, Any] = {"_dtypes": "float32 float16 bfloat16", "_second": False, "_strides": False, "_tolerance": 10}
MASKS = ((5, 7), (1, 7), (5, 1), (1, 1, 5, 7), (4, 5, 7), (2, 1, 1, 7), (2, 4, 5, 7), (1, 4, 1, 7), (2, 1, 5, 7))


def flex(torch: Any, *args: Any, mod: Any = None, mask: Any = None, **about: Any) -> Any:
    own = importlib.import_module(f"{torch.__name__}.nn.attention.flex_attention")
    if torch.__name__ == "torch":
        own._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    size = (args[0].shape[-2], args[1].shape[-2])
    block = None if mask is None else own.create_block_mask(mask, None, None, *size, device="cpu", BLOCK_SIZE=4)
    found = own.flex_attention(*args, score_mod=mod, block_mask=block, **about)
    return (found, *block.as_tuple()[2:6]) if block is not None else found


def biased(torch: Any, name: str, q: Any, k: Any) -> Any:
    bias = importlib.import_module(f"{torch.__name__}.nn.attention.bias")
    mask = getattr(bias, name)(q.shape[-2], k.shape[-2])
    return torch.nn.functional.scaled_dot_product_attention(q, k, k, attn_mask=mask)


def forward(torch: Any, q: Any, k: Any, w: Any, b: Any, **about: Any) -> Any:
    function = torch.nn.functional.multi_head_attention_forward
    return function(q, k, k, 4, 2, w, b, None, None, False, 0.0, w[:4], b[:4], need_weights=False, **about)[0]


def masked_whole(torch: Any, hidden: float, q: Any, k: Any, v: Any) -> Any:
    """Some rows, and some keys of others."""
    mask = torch.zeros(q.shape[-2], k.shape[-2], dtype=q.dtype)
    mask[1], mask[2, 3:] = hidden, hidden
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask.requires_grad_())


CASES = [
    case(SDPA, *QKV, **ABOUT),
    *(case(SDPA, *QKV, T(*shape, kind="bool"), **ABOUT) for shape in MASKS),
    *(case(SDPA, *QKV, T(*shape, grad=False), **ABOUT) for shape in MASKS),
    *(case(SDPA, *QKV, T(*shape), **{**ABOUT, "_dtypes": dtypes}) for shape, dtypes in (((5, 7), "float32 float16"), ((2, 1, 1, 7), "float32"),
                                                                                        ((4, 1, 1), "float32"), ((2, 4, 5, 7), "float32"))),
    *(case(SDPA, *QKV, is_causal=True, scale=scale, **ABOUT) for scale in (None, 0.3)),
    *(case(SDPA, *QKV, scale=scale, **ABOUT) for scale in (-2.0, 0.0)),
    case(SDPA, T(2, 4, 9, 3), T(2, 4, 5, 3), T(2, 4, 5, 2), is_causal=True, **ABOUT),
    case(SDPA, T(2, 4, 1, 8), T(2, 4, 5, 8), T(2, 4, 5, 8), **ABOUT),
    case(SDPA, T(1, 1, 5, 1), T(1, 1, 5, 1), T(1, 1, 5, 1), **ABOUT),
    case(SDPA, T(1, 2, 70, 3), T(1, 2, 101, 3), T(1, 2, 101, 3), is_causal=True, **{**ABOUT, "_dtypes": "float32"}),
    case(SDPA, T(4, 5, 3), T(4, 7, 3), T(4, 7, 2), **{**ABOUT, "_dtypes": ""}),
    case(SDPA, T(2, 2, 4, 5, 3), T(2, 2, 4, 7, 3), T(2, 2, 4, 7, 2), **{**ABOUT, "_dtypes": ""}),
    case(SDPA, T(2, 3, 5, 4, layout="T"), T(2, 3, 7, 4, layout="T"), T(2, 3, 7, 4, layout="step"), **ABOUT),
    *(case(SDPA, T(2, 6, 5, 3), T(2, n, 7, 3), T(2, n, 7, 3), enable_gqa=True, is_causal=c, **ABOUT) for n in (1, 2, 3) for c in (True, False)),
    case(SDPA, T(2, 4, 0, 3), T(2, 4, 7, 3), T(2, 4, 7, 3), **{**ABOUT, "_dtypes": "float32"}),
    case(SDPA, T(2, 4, 5, 3), T(2, 4, 0, 3), T(2, 4, 0, 3), **{**ABOUT, "_dtypes": "float32"}),
    case(SDPA, T(0, 4, 5, 3), T(0, 4, 7, 3), T(0, 4, 7, 3), **{**ABOUT, "_dtypes": "float32"}),
    error(SDPA, T(2, 4, 5, 3), T(2, 4, 7, 2), T(2, 4, 7, 3)),
    error(SDPA, *QKV, T(5, 6, kind="bool")),
    error(SDPA, T(2, 4, 5, 3), T(2, 3, 7, 3), T(2, 3, 7, 3), enable_gqa=True),
    *(program(f"attention with rows masked by {hidden}", lambda torch, q, k, v, h=hidden: masked_whole(torch, h, q, k, v), *QKV,
              **{**ABOUT, "_dtypes": "float32"}) for hidden in (-math.inf, -1e30, -1e4)),
    *(program(f"attention with {n}", lambda torch, q, k, n=n: biased(torch, n, q, k), T(1, 2, 3, 4), T(1, 2, 5, 4), **{**ABOUT, "_dtypes": ""})
      for n in ("causal_upper_left", "causal_lower_right")),
    program("flex_attention", lambda torch, q, k: flex(torch, q, k, k), T(1, 2, 6, 4), T(1, 2, 6, 4), _grad=False, _dtypes="float32"),
    program("flex_attention with a causal mask", lambda torch, q, k: flex(torch, q, k, k, mask=lambda b, h, i, j: i >= j), T(1, 2, 9, 4),
            T(1, 2, 13, 4), _grad=False, _dtypes="float32"),
    program("flex_attention with scores", lambda torch, q, k: flex(torch, q, k, k, mod=lambda s, b, h, i, j: s + h * (i - j)), T(1, 2, 6, 4),
            T(1, 2, 6, 4), _grad=False, _dtypes="float32", _tolerance=10),
    *(program(f"multi_head_attention_forward, no weights, {a}", lambda torch, q, k, w, b, m, a=a: forward(torch, q, k, w, b, **dict.fromkeys(a, m)),
              T(3, 2, 4), T(5, 2, 4), T(12, 4), T(12), T(*s, kind=kind, grad=False), _second=False, _dtypes="float32", _strides=False, _tolerance=10)
      for a, s in (((), (1,)), (("attn_mask",), (3, 5)), (("attn_mask",), (4, 3, 5)), (("key_padding_mask",), (2, 5))) for kind in ("bool", "normal")),
]  # fmt: skip
