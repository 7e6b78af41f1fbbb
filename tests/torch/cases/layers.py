"""Linear layers, convolutions, normalization, embeddings and attention, as functions."""

from __future__ import annotations

from typing import Any

from tests.torch.table import Case, T, case, error, program

F = "nn.functional."
FLOATS = "float32 float16 bfloat16 int64"
_MASK = T(3, 4, kind="bool")


def _of_constants(torch: Any, weight: Any, bias: Any) -> Any:
    """Channels of one value, and others: their variance is zero, or it is not."""
    x = torch.stack([torch.ones(3, 5), torch.arange(15.0).reshape(3, 5)]).to(weight.dtype)
    found = torch.nn.functional.instance_norm(x, weight=weight, bias=bias, eps=0.0)
    return found, torch.nn.functional.instance_norm(x, torch.zeros_like(weight), torch.ones_like(weight), eps=0.0)


def _running(name: str, training: bool) -> Case:
    """The result, and the running statistics afterwards."""

    def run(torch: Any, x: Any, mean: Any, var: Any, weight: Any, bias: Any) -> Any:
        compute = getattr(torch.nn.functional, name)
        return compute(x, mean, var, weight, bias, training, 0.3), mean, var

    options: dict[str, Any] = {"_dtypes": "float32", "_shares": False}
    return program(
        f"{name} {training}", run, T(4, 3, 5), T(3, grad=False), T(3, kind="positive", grad=False), T(3), T(3), **options
    )


CASES: list[Case] = [
    # linear
    *(case(F + "linear", T(*shape), T(5, 4), T(5), _out=len(shape) < 3) for shape in ((4,), (3, 4), (2, 3, 4))),
    case(F + "linear", T(0, 4), T(5, 4), T(5), _dtypes="float32"),
    *(case(F + "linear", T(*shape), T(5, 4), _dtypes="float32", _out=len(shape) < 3) for shape in ((4,), (3, 4), (2, 3, 4))),
    case(F + "linear", T(4, 3, layout="T"), T(5, 3, layout="step"), T(5), _dtypes=""),
    case(F + "linear", T(3, 4), T(4), _dtypes=""),
    case(F + "linear", T(3, 4), T(5, 4), T(5), _grad_fn=True, _dtypes=""),
    error(F + "linear", T(3, 4), T(5, 3), _text=True),
    error(F + "linear", T(2, 3, 4), T(5, 3), _text=True),
    error(F + "linear", T(3, 4), T(5, 4), T(3)),
    error(F + "linear", T(3, 4), T(5, 4, dtype="float32"), _text=True),
    error(F + "linear", T(), T(5, 4), _text=True),
    case(F + "bilinear", T(3, 4), T(3, 2), T(5, 4, 2), T(5), _dtypes="float32"),
    case(F + "bilinear", T(2, 3, 4), T(2, 3, 2), T(5, 4, 2), _dtypes=""),
    error(F + "bilinear", T(3, 4), T(3, 2), T(5, 4, 3), _text=True),
    # convolution
    case(F + "conv1d", T(2, 3, 8), T(4, 3, 3), T(4), _tolerance=10),
    case(F + "conv2d", T(2, 3, 6, 5), T(4, 3, 3, 2), T(4), _tolerance=10),
    case(F + "conv3d", T(1, 2, 4, 5, 3), T(3, 2, 2, 3, 2), T(3), _dtypes="float32", _tolerance=10),
    *(case(F + "conv2d", T(2, 4, 7, 6), T(4, 4 // groups, 3, 3), T(4), _dtypes="", groups=groups, **about)
      for groups in (1, 2, 4)
      for about in ({"stride": 2}, {"padding": 1}, {"padding": "same"}, {"padding": "valid"}, {"dilation": 2},
                    {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)})),
    case(F + "conv2d", T(2, 3, 6, 5), T(4, 3, 2, 4), padding="same", dilation=(1, 3), _dtypes=""),
    case(F + "conv2d", T(3, 6, 5), T(4, 3, 3, 3), _dtypes=""),
    case(F + "conv2d", T(0, 3, 6, 5), T(4, 3, 3, 3), _dtypes=""),
    case(F + "conv2d", T(2, 3, 6, 5), T(4, 3, 1, 1), _dtypes=""),
    case(F + "conv2d", T(2, 3, 6, 5, layout="step"), T(4, 3, 3, 3, layout="T"), _dtypes=""),
    case(F + "conv2d", T(2, 3, 6, 5), T(4, 3, 3, 3), T(4), _grad_fn=True, _dtypes=""),
    case(F + "conv1d", T(2, 4, 9), T(4, 4, 3), stride=3, _dtypes=""),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 2, 3, 3), _text=True),
    error(F + "conv2d", T(5), T(4, 3, 3, 3), _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 7, 7), _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3, dtype="float32"), _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), T(3), _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), groups=2, _text=True),
    error(F + "conv2d", T(1, 4, 5, 5), T(3, 2, 3, 3), groups=2, _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), groups=0, _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), padding=-1, _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), stride=0, _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), dilation=0, _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), padding="same", stride=2, _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), padding="foo", _text=True),
    error(F + "conv2d", T(1, 3, 5, 5), T(4, 3, 3, 3), stride=(1, 1, 1), _text=True),
    *(case(F + "conv_transpose2d", T(2, 4, 4, 3), T(4, 3, 3, 2), T(3 * about.get("groups", 1)), _dtypes="", **about)
      for about in ({}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1}, {"dilation": 2, "output_padding": 1},
                    {"groups": 2}, {"groups": 4, "stride": 2})),
    case(F + "conv_transpose1d", T(2, 4, 5), T(4, 3, 3), T(3), _dtypes="float32 float16", _tolerance=10),
    case(F + "conv_transpose3d", T(1, 2, 3, 2, 3), T(2, 3, 2, 2, 2), stride=2, _dtypes=""),
    case(F + "conv_transpose2d", T(4, 4, 3), T(4, 3, 3, 2), _dtypes=""),
    error(F + "conv_transpose2d", T(1, 3, 5, 5), T(4, 2, 3, 3), _text=True),
    error(F + "conv_transpose2d", T(1, 3, 5, 5), T(3, 4, 3, 3), output_padding=1, _text=True),
    error(F + "conv_transpose2d", T(1, 3, 5, 5), T(3, 4, 3, 3), padding=8, _text=True),
    case("conv_tbc", T(6, 2, 4), T(3, 4, 5), T(5), 1, _dtypes="", _strides=False, _second=False),
    *(case(F + "unfold", T(2, 3, 5, 6), *args, _dtypes="float32") for args in ((2,), ((2, 3), 2, 1, (2, 1)))),
    case(F + "unfold", T(3, 5, 6), 2, _dtypes=""),
    case(F + "fold", T(2, 12, 20), (5, 6), 2, _dtypes="float32"),
    case(F + "fold", T(2, 8, 4), (4, 4), 2, stride=2, _dtypes=""),
    case(F + "fold", T(12, 20), (5, 6), 2, _dtypes=""),
    error(F + "unfold", T(1, 3, 5, 5), 9, _text=True),
    error(F + "fold", T(1, 8, 4), (4, 4), 2, _text=True),
    error(F + "fold", T(1, 8, 4), (4, 4), 3, _text=True),
    # normalization
    *(_running(name, training) for name in ("batch_norm", "instance_norm") for training in (True, False)),
    program("batch_norm alone", lambda torch, x: torch.nn.functional.batch_norm(x, None, None, training=True), T(3, 4)),
    program("batch_norm of images", lambda torch, x, w: torch.nn.functional.batch_norm(x, None, None, w, w * 2, True),
            T(2, 3, 4, 2), T(3), _dtypes=""),
    program("batch_norm by running statistics", lambda torch, x, m, v: torch.nn.functional.batch_norm(x, m, v, eps=0.1),
            T(2, 3, 4), T(3, grad=False), T(3, kind="positive", grad=False), _dtypes="float32"),
    case(F + "layer_norm", T(2, 3, 4), (4,), T(4), T(4), _tolerance=10),
    case(F + "layer_norm", T(2, 3, 4), (3, 4), _tolerance=10),
    case(F + "layer_norm", T(2, 3, 4), (4,), T(4), eps=0.1, _dtypes=""),
    case(F + "layer_norm", T(0, 4), (4,), T(4), _dtypes=""),
    case(F + "layer_norm", T(4, 3, layout="T"), (3,), T(3), T(3), _dtypes=""),
    case("layer_norm", T(2, 3, 4), (4,), T(4), T(4), _dtypes=""),
    case(F + "group_norm", T(2, 4, 3), 2, T(4), T(4), _tolerance=10),
    case(F + "group_norm", T(2, 4, 3, 2), 4, _dtypes="float32"),
    case(F + "group_norm", T(2, 4), 2, T(4), _dtypes=""),
    case(F + "instance_norm", T(2, 3, 4, 2), _dtypes="float32"),
    program("instance_norm of constants, without eps", _of_constants, T(3), T(3)),
    case(F + "rms_norm", T(2, 3, 4), (4,), T(4), _tolerance=10, _dtypes=FLOATS),
    case(F + "rms_norm", T(2, 3, 4), (3, 4), _tolerance=10, _dtypes=FLOATS),
    *(case(F + name, T(4, 3, 2, layout="T"), *args, _dtypes="")
      for name, args in (("layer_norm", ((3, 2),)), ("group_norm", (3,)), ("instance_norm", ()), ("rms_norm", ((2,),)),
                         ("batch_norm", (None, None, None, None, True)))),
    case(F + "rms_norm", T(2, 3), (3,), T(3), 0.1, _dtypes=""),
    case(F + "local_response_norm", T(2, 5, 3), 2, _dtypes="float32"),
    case(F + "local_response_norm", T(2, 5, 3, 2), 3, 0.1, 0.5, 2.0, _dtypes=""),
    *(case(F + "normalize", T(3, 4), *args, _dtypes="float32", _out=False) for args in ((), (1, 0), (3.0, -1), (2, (0, 1)))),
    case(F + "normalize", T(3, 4, kind="zeros"), _dtypes="", _second=False),
    error(F + "batch_norm", T(2, 3), None, None, _text=True),
    error(F + "batch_norm", T(1, 3), None, None, training=True, _text=True),
    error(F + "batch_norm", T(2, 3), T(4), T(3), training=True, _text=True),
    error(F + "batch_norm", T(2, 3), T(3), T(3), T(4), training=True, _text=True),
    error(F + "batch_norm", T(2, 3), T(3, dtype="float32"), T(3)),
    error(F + "layer_norm", T(2, 3), (4,), _text=True),
    error(F + "layer_norm", T(2, 3), 3, _text=True),
    error(F + "layer_norm", T(2, 3), (), _text=True),
    error(F + "layer_norm", T(2, 3), (3,), T(4), _text=True),
    error(F + "group_norm", T(2, 4, 3), 3, _text=True),
    error(F + "group_norm", T(2, 4, 3), 2, T(3), _text=True),
    error(F + "group_norm", T(4), 2, _text=True),
    error(F + "instance_norm", T(2, 4, 1), _text=True),
    error(F + "rms_norm", T(2, 3), (4,), _text=True),
    error(F + "local_response_norm", T(2, 3), 2, _text=True),
    # embeddings
    *(case(F + "embedding", T(2, 3, kind="index:5"), T(5, 4), **about)
      for about in ({}, {"padding_idx": 1}, {"padding_idx": -2, "_dtypes": ""}, {"scale_grad_by_freq": True, "_dtypes": ""})),
    case(F + "embedding", T(kind="index:5"), T(5, 4), _dtypes=""),
    case(F + "embedding", T(0, 2, kind="index:5"), T(5, 4), _dtypes=""),
    case(F + "embedding", T(3, kind="index:5", dtype="int32"), T(5, 4), _dtypes=""),
    program("embedding with max_norm", lambda torch, i, w: (torch.nn.functional.embedding(i, w, max_norm=0.8), w),
            T(6, kind="index:5"), T(5, 4, grad=False), _dtypes="float32", _shares=False),
    *(case(F + "embedding_bag", T(3, 4, kind="index:5"), T(5, 4), mode=mode, _dtypes="float32") for mode in ("sum", "mean", "max")),
    *(program(f"embedding_bag {mode} with offsets",
              lambda torch, i, w, mode=mode: torch.nn.functional.embedding_bag(i, w, torch.tensor([0, 2, 2, 5]), mode=mode),
              T(9, kind="index:5"), T(5, 4), _dtypes="") for mode in ("sum", "mean", "max")),
    *(case(F + "embedding_bag", T(3, 4, kind="index:5"), T(5, 4), mode=mode, padding_idx=1, _dtypes="")
      for mode in ("sum", "mean", "max")),
    case(F + "embedding_bag", T(3, 4, kind="index:5"), T(5, 4), mode="sum", per_sample_weights=T(3, 4), _dtypes="", _second=False),
    case(F + "one_hot", T(2, 3, kind="index:4"), 5),
    case(F + "one_hot", T(0, 3, kind="index:4"), 5),
    error(F + "one_hot", T(2, 3, kind="index:4"), 1, _text=True),
    error(F + "one_hot", T(2, 3), 5, _text=True),
    error(F + "embedding", T(9, kind="index:9"), T(2, 4), _text=True),
    error(F + "embedding", T(2), T(5, 4), _text=True),
    error(F + "embedding", T(2, kind="index:5"), T(5), _text=True),
    error(F + "embedding", T(2, kind="index:5"), T(5, 4), padding_idx=9, _text=True),
    error(F + "embedding_bag", T(2, kind="index:5"), T(5, 4), _text=True),
    error(F + "embedding_bag", T(2, 2, kind="index:5"), T(5, 4), mode="foo", _text=True),
    # attention
    *(case(F + "scaled_dot_product_attention", T(2, 2, 3, 4), T(2, 2, 4, 4), T(2, 2, 4, 4), *mask, _strides=False, _second=False, _tolerance=10,
           _dtypes="float32 float16", **about)
      for mask, about in (((), {}), ((_MASK,), {}), ((), {"is_causal": True}), ((), {"scale": 0.3}))),
    case(F + "scaled_dot_product_attention", T(2, 2, 3, 4), T(2, 2, 4, 4), T(2, 2, 4, 4), T(3, 4), _dtypes="", _strides=False),
    case(F + "scaled_dot_product_attention", T(3, 4), T(5, 4), T(5, 2), _dtypes="", _strides=False),
    case(F + "scaled_dot_product_attention", T(2, 4, 3, 4), T(2, 2, 5, 4), T(2, 2, 5, 4), enable_gqa=True, _dtypes="", _strides=False, _second=False),
    program("attention to nothing", lambda torch, q, mask: torch.nn.functional.scaled_dot_product_attention(q, q, q, mask > 1),
            T(3, 4), T(3, 3, kind="ones", grad=False), _dtypes="", _strides=False),
    error(F + "scaled_dot_product_attention", T(3, 4), T(5, 4, dtype="float32"), T(5, 4), _text=True),
    error(F + "scaled_dot_product_attention", T(4), T(5, 4), T(5, 4), _text=True),
    error(F + "scaled_dot_product_attention", T(3, 4), T(3, 4), T(3, 4), T(3, 3, kind="index:2"), _text=True),
    *(case(F + "multi_head_attention_forward", T(3, 2, 4), T(5, 2, 4), T(5, 2, 4), 4, 2, T(12, 4), T(12), None, None, zero, 0.0,
           T(4, 4), T(4), _dtypes="float32", _strides=False, _shares=False, _tolerance=10, **about)
      for zero, about in ((False, {}), (True, {"key_padding_mask": T(2, 5, kind="bool")}), (False, {"attn_mask": T(3, 5)}),
                          (False, {"average_attn_weights": False}), (False, {"need_weights": False, "_second": False}),
                          (True, {"attn_mask": T(3, 5), "key_padding_mask": T(2, 5, grad=False)}))),
    case(F + "multi_head_attention_forward", T(3, 4), T(5, 4), T(5, 4), 4, 2, T(12, 4), T(12), T(1, 1, 4), T(1, 1, 4), False, 0.0,
         T(4, 4), T(4), _dtypes="", _strides=False, _shares=False),
    error(F + "multi_head_attention_forward", T(3, 2, 4), T(5, 2, 4), T(5, 2, 4), 5, 2, T(12, 4), T(12), None, None, False, 0.0,
          T(4, 4), T(4), _text=True),
    error(F + "multi_head_attention_forward", T(3, 2, 4), T(5, 2, 4), T(5, 2, 4), 4, 3, T(12, 4), T(12), None, None, False, 0.0,
          T(4, 4), T(4), _text=True),
]  # fmt: skip
