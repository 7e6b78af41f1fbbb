"""Rows of special functions."""

from __future__ import annotations

from typing import Any

from tests.torch.table import T, case, error, program

D: Any = {"_dtypes": "float32 int64 float16", "_tolerance": 20}
NONE: Any = {"_dtypes": "float32 int64", "_tolerance": 20}
WIDE = T(8, 5)
POSITIVE = T(8, 5, kind="positive")
UNIT = T(8, 5, kind="unit")
SPECIAL = T(4, 10, kind="special")


def _at(name: str, low: float, high: float, **options: Any) -> Any:
    """A function of torch.special over a range of numbers, of which there are 101."""

    def compute(torch: Any) -> Any:
        x = torch.linspace(low, high, 101, dtype=torch.float64)
        return [getattr(torch.special, name)(x), getattr(torch.special, name)(x.float())]

    return program(f"special.{name} from {low} to {high}", compute, **{"_tolerance": 100, **options})


def _of_two(name: str, first: tuple[float, float], second: tuple[float, float]) -> Any:
    def compute(torch: Any) -> Any:
        x, y = (torch.linspace(*ends, 25, dtype=torch.float64) for ends in (first, second))
        return getattr(torch.special, name)(x[:, None], y)

    return program(f"special.{name} over {first} and {second}", compute, _tolerance=1000)


CASES = [
    *(case(name, WIDE, **D) for name in ("erf", "erfc", "i0", "sinc", "special.i0e", "special.ndtr",
                                          "special.log_ndtr", "special.expit", "special.exp2", "special.expm1")),
    *(case(name, WIDE, **NONE) for name in ("special.erfcx", "special.i1", "special.i1e")),
    *(case(name, POSITIVE, **D) for name in ("lgamma", "digamma", "special.gammaln", "special.psi", "special.digamma")),
    *(case(name, UNIT, _inplace=False, **{**D, "_dtypes": "float32"}) for name in ("erfinv", "special.erfinv")),
    *(case(name, SPECIAL, _grad=False, _dtypes="float32") for name in (
        "erf", "erfc", "erfinv", "lgamma", "digamma", "sinc", "special.erfcx", "special.i0e", "special.i1e",
        "special.entr", "special.ndtr", "special.log_ndtr", "special.ndtri", "special.airy_ai",
        "special.modified_bessel_k0", "special.modified_bessel_k1",
        "special.scaled_modified_bessel_k0", "special.scaled_modified_bessel_k1", "special.spherical_bessel_j0", "logit",
    )),
    case("sinc", T(4, dtype="complex128"), _dtypes=""),
    case("sinc", T(4, kind="zeros"), _second=False, _dtypes="float32"),
    *(_at(name, -6, 6) for name in ("erf", "erfc", "erfcx", "i0", "i0e", "i1", "i1e", "ndtr", "log_ndtr", "sinc",
                                     "spherical_bessel_j0", "modified_bessel_i0", "modified_bessel_i1")),
    # PyTorch's own values have an error of 1e-12, and below -5 of 1e-7
    *(_at(name, -5, 30, _tolerance=1e5) for name in ("bessel_j0", "bessel_j1")),
    *(_at(name, 0.02, 30, _tolerance=1e5) for name in ("bessel_y0", "bessel_y1")),
    *(_at(name, -35, 35) for name in ("erf", "erfc", "i0", "i0e", "i1", "i1e", "log_ndtr")),
    *(_at(name, 0.02, 30) for name in ("gammaln", "digamma", "modified_bessel_k0", "modified_bessel_k1",
                                       "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "entr")),
    *(_at(name, -9.87, 10) for name in ("gammaln", "digamma")),
    _at("gammaln", 10, 1e6),
    _at("airy_ai", -6, 6, _tolerance=1e4),
    *(_at(name, 0.0, 1.0) for name in ("ndtri", "logit", "entr")),
    _at("erfinv", -1.0, 1.0),
    _at("log_ndtr", -1000, -10),
    case("special.ndtri", T(5, kind="positive"), _grad=False, _dtypes="float32"),
    program("gradient of ndtri", lambda torch, x: torch.special.ndtri(x * 0.4 + 0.5), UNIT, _dtypes="float32", _tolerance=100),
    program("gradient of logit", lambda torch, x: torch.logit(x * 0.4 + 0.5), UNIT, **NONE),
    case("logit", UNIT, 0.2, _dtypes="float32", _tolerance=20),
    case("logit", UNIT, eps=0.1, _dtypes="float32", _tolerance=20),
    case("special.logit", POSITIVE, _grad=False, _dtypes="float32"),
    case("special.entr", POSITIVE, **D),
    *(case("polygamma", n, POSITIVE, _second=n != 1, **{**NONE, "_tolerance": 1e8 if n == 1 else 100}) for n in (0, 1, 2, 3)),
    case("special.polygamma", 2, POSITIVE, **{**NONE, "_tolerance": 100}),
    case("Tensor.polygamma", POSITIVE, 2, **{**NONE, "_tolerance": 100}),
    error("polygamma", -1, POSITIVE, _text=True),
    program("mvlgamma", lambda torch, x: torch.mvlgamma(x + 2, 3), POSITIVE, _second=False, **NONE),
    case("special.multigammaln", T(4, kind="positive"), 1, _second=False, **NONE),
    error("mvlgamma", T(3), 0, _text=True),
    case("igamma", T(5, kind="positive", grad=False), T(4, 5, kind="positive"), _dtypes="float32", _tolerance=100),
    case("igammac", T(5, kind="positive", grad=False), T(4, 5, kind="positive"), _dtypes="float32", _tolerance=100),
    case("special.gammainc", T(4, 5, kind="ints"), T(4, 5, kind="ints"), _grad=False, _dtypes="float32"),
    case("special.gammaincc", T(4, 5, kind="ints"), T(4, 5, kind="ints"), _grad=False, _dtypes="float32"),
    *(_of_two(name, *ends) for name in ("gammainc", "gammaincc")
      for ends in (((0.01, 2), (0.01, 3)), ((0.5, 50), (0.5, 80)), ((30, 400), (20, 500)), ((1e3, 1.1e3), (0.9e3, 1.2e3)))),
    error("igamma", T(3, dtype="int64"), T(3, dtype="int64")),
    case("special.zeta", T(4, kind="positive", grad=False), 2.5, _grad=False, _dtypes="float32"),
    case("special.zeta", 2.5, POSITIVE, _dtypes="float32", _tolerance=100),
    _of_two("zeta", (1.1, 20), (0.1, 15)),
    _of_two("zeta", (2, 26), (-4.3, 3)),
    case("special.xlog1py", POSITIVE, POSITIVE, **D),
    case("special.xlog1py", 2.0, POSITIVE, **D),
    case("special.xlog1py", POSITIVE, 2.0, **D),
    case("special.xlog1py", T(4, 10, kind="special"), T(4, 10, kind="special"), _grad=False, _dtypes="float32"),
    case("special.xlogy", POSITIVE, POSITIVE, _dtypes="float32"),
    case("special.softmax", T(3, 4), 1, _dtypes="float32"),
    case("special.log_softmax", T(3, 4), 1, _dtypes="float32"),
    case("special.logsumexp", T(3, 4), 1, _dtypes="float32"),
    case("special.round", T(3, 4), decimals=1, _dtypes="float32", _second=False),
    case("special.log1p", POSITIVE, _dtypes="float32"),
    *(
        case(f"special.{kind}", UNIT, n, _grad=False, _dtypes="float32", _tolerance=1000)
        for kind in (
            *(f"{shift}chebyshev_polynomial_{letter}" for shift in ("", "shifted_") for letter in "tuvw"),
            "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
        )
        for n in (0, 1, 4, 9, -1)
    ),
    case("special.legendre_polynomial_p", T(3, 1), T(5, kind="index:7", dtype="float64"), _grad=False, _dtypes=""),
    case("special.chebyshev_polynomial_t", 0.3, T(5, kind="positive"), _grad=False, _dtypes=""),
]
