"""Rows of linear algebra: systems, inverses, determinants, factors, norms.

Factors are unique only up to signs or phases: rows of their own compare what does not depend on these.
"""

from __future__ import annotations

import math
from typing import Any

from tests.torch.table import A, T, case, error, program

FLOATS = "float32 complex128 int64 float16"
M, B = (3, 3), (2, 3, 3)
ALL: Any = {"_dtypes": FLOATS, "_tolerance": 100}
EXP: Any = {"_dtypes": "float32 complex128 int64", "_tolerance": 1000}
REAL: Any = {"_dtypes": "float32", "_tolerance": 100}


def _mend(torch: Any, a: Any) -> Any:
    """A matrix far from singular ones."""
    return a + 4 * torch.eye(a.shape[-1], dtype=a.dtype)


def _hermitian(torch: Any, a: Any) -> Any:
    return a + a.mH


def _of_values(name: str, value: float) -> Any:
    """What a function does with numbers that are not finite."""

    def compute(torch: Any, a: Any) -> Any:
        try:
            found = getattr(torch.linalg, name)(a * value)
        except RuntimeError as error:
            return type(error).__name__, str(error)
        return found if name in ("inv", "det", "svdvals") else found[1] if name == "svd" else None

    return compute


def _symmetric(a: Any) -> Any:
    return a + a.mT


def _positive(torch: Any, a: Any) -> Any:
    return a @ a.mH + torch.eye(a.shape[-1], dtype=a.dtype)


def _apart(torch: Any, a: Any) -> Any:
    """Whose singular values, and eigenvalues, are well apart."""
    n = min(a.shape[-2:])
    return a * 0.2 + torch.eye(n, dtype=a.dtype) * torch.arange(1.0, n + 1).to(a.dtype)


CASES = [
    # systems
    case("linalg.solve", T(*M), T(3, 2), **ALL),
    case("linalg.solve", T(*B), T(2, 3, 2), **ALL),
    case("linalg.solve", T(*B), T(3, 2), **ALL),
    case("linalg.solve", T(*B), T(2, 3), _strides=False, **ALL),
    case("linalg.solve", T(*M), T(3), **ALL),
    case("linalg.solve", T(*M), T(2, 3), left=False, **ALL),
    case("linalg.solve", T(*M, layout="T"), T(2, 3, 2), **ALL),
    case("linalg.solve", T(0, 0), T(0, 2), **REAL),
    case("linalg.solve", T(0, 3, 3), T(0, 3, 2), **REAL),
    case("linalg.solve_ex", T(*M), T(3, 2), **ALL),
    case("linalg.solve_ex", T(*M, kind="ones"), T(3, 2), _grad=False, _dtypes="", _strides=False, _compare="meta"),
    case("linalg.solve_ex", T(2, 2, kind="ones"), T(2, 2), _grad=False, _dtypes="", _strides=False),
    error("linalg.solve", T(*M, kind="ones"), T(3, 2), _text=True),
    error("linalg.solve", T(2, 3), T(3, 2), _text=True),
    error("linalg.solve", T(*M), T(2, 2), _text=True),
    error("linalg.solve", T(*M), T(3, 2, dtype="float32"), _text=True),
    error("linalg.solve", T(*M, dtype="int64"), T(3, 2, dtype="int64"), _text=True),
    error("linalg.solve", T(3), T(3), _text=True),
    *(
        case("linalg.solve_triangular", T(*shape, kind="positive"), T(*right), upper=upper, left=left, unitriangular=unit, _strides=left, **ALL)
        for shape, right, left in ((M, (3, 2), True), (B, (2, 3, 2), True), (M, (2, 3), False), (B, (3, 2), True))
        for upper in (True, False)
        for unit in (True, False)
    ),
    case("linalg.solve_triangular", T(40, 40, kind="psd"), T(40, 2), upper=True, **REAL),
    case("linalg.solve_triangular", T(70, 70, kind="psd"), T(70, 2), upper=False, **REAL),
    case("linalg.solve_triangular", T(3, 3, kind="zeros"), T(3, 2), upper=True, _grad=False, _dtypes=""),
    error("linalg.solve_triangular", T(*M), T(2, 2), upper=True, _text=True),
    case("triangular_solve", T(3, 2), T(*M, kind="positive"), True, _strides=False, **ALL),
    case("triangular_solve", T(3, 2), T(*M, kind="positive"), True, True, _strides=False, **ALL),
    case("cholesky_solve", T(3, 2), T(*M, kind="positive"), _strides=False, **ALL),
    case("cholesky_solve", T(3, 2), T(*M, kind="positive"), True, _strides=False, **ALL),
    case("cholesky_inverse", T(*M, kind="positive"), _strides=False, **{**REAL, "_tolerance": 10000}),
    case("cholesky_inverse", T(*M, kind="positive"), True, _strides=False, **{**REAL, "_tolerance": 10000}),
    program("cholesky_inverse of complex", lambda torch, a: torch.cholesky_inverse(torch.linalg.cholesky(_positive(torch, a))), T(*M),
            _strides=False, **ALL),
    # inverses
    case("linalg.inv", T(*M), **ALL),
    case("linalg.inv", T(*B, kind="psd"), **ALL),
    case("linalg.inv", T(0, 0), **ALL),
    case("inverse", T(*B), **ALL),
    case("linalg.inv_ex", T(*B), **ALL),
    case("linalg.inv_ex", T(2, 2, 2, kind="ones"), _grad=False, _strides=False, _dtypes=""),
    error("linalg.inv", T(*M, kind="zeros"), _text=True),
    error("linalg.inv", T(*B, kind="ones"), _text=True),
    error("linalg.inv", T(2, 3), _text=True),
    error("linalg.inv", T(3), _text=True),
    error("linalg.inv", T(3, 3, dtype="int64"), _text=True),
    error("linalg.inv", T(3, 3, dtype="float16"), _text=True),
    case("linalg.pinv", T(3, 2), **ALL),
    case("linalg.pinv", T(2, 3), **ALL),
    case("linalg.pinv", T(2, 4, 3), **ALL),
    case("linalg.pinv", T(3, 3, kind="psd"), hermitian=True, **REAL),
    case("linalg.pinv", T(3, 3, kind="psd"), rtol=0.5, _grad=False, **REAL),
    case("linalg.pinv", T(3, 3, kind="psd"), atol=4.0, _grad=False, **REAL),
    case("linalg.pinv", T(3, 0), **REAL),
    case("pinverse", T(3, 2), **ALL),
    case("linalg.matrix_rank", T(3, 2), **ALL),
    case("linalg.matrix_rank", T(2, 3, 3, kind="ones"), **ALL),
    case("linalg.matrix_rank", T(3, 3, kind="psd"), hermitian=True, **REAL),
    case("linalg.matrix_rank", T(3, 3, kind="psd"), atol=4.0, **REAL),
    case("linalg.lstsq", T(4, 3), T(4, 2), _strides=False, _second=False, **ALL),
    case("linalg.lstsq", T(2, 4, 3), T(2, 4, 2), _strides=False, _second=False, **ALL),
    case("linalg.lstsq", T(3, 4), T(3, 2), _strides=False, _second=False, **ALL),
    case("linalg.lstsq", T(4, 3), T(4, 2), driver="gelsd", _strides=False, _second=False, **ALL),
    case("linalg.lstsq", T(4, 3), T(4, 2), driver="gels", _strides=False, _second=False, **ALL),
    case("linalg.lstsq", T(4, 3), T(4), _strides=False, _second=False, **ALL),
    error("linalg.lstsq", T(4, 3), T(4, 2), driver="other", _text=True),
    error("linalg.lstsq", T(4, 3), T(3, 2), _text=True),
    case("linalg.tensorinv", T(2, 3, 6), _strides=False, **ALL),
    case("linalg.tensorinv", T(6, 2, 3), ind=1, _strides=False, **ALL),
    error("linalg.tensorinv", T(2, 3), _text=True),
    case("linalg.tensorsolve", T(2, 3, 6), T(2, 3), _strides=False, **ALL),
    case("linalg.tensorsolve", T(2, 6, 3), T(2, 3), dims=(1,), _strides=False, **ALL),
    # determinants
    case("linalg.det", T(*M), **ALL),
    case("linalg.det", T(*B), **ALL),
    case("linalg.det", T(0, 0), **REAL),
    case("det", T(*M), **ALL),
    case("linalg.det", T(*M, kind="ones"), _grad=False, _dtypes=""),
    error("linalg.det", T(2, 3), _text=True),
    error("linalg.det", T(3, 3, dtype="int64"), _text=True),
    case("linalg.slogdet", T(*B), **ALL),
    case("slogdet", T(*M), **ALL),
    case("slogdet", T(*M, kind="zeros"), _grad=False, _dtypes=""),
    case("logdet", T(*B, kind="psd"), **REAL),
    program("slogdet of a singular matrix", lambda torch, a: torch.linalg.slogdet(a)[1], T(2, 2, kind="ones"), _second=False, _dtypes=""),
    case("logdet", T(*B), _grad=False, **REAL),
    # powers
    *(case("linalg.matrix_power", T(*B), n, _strides=False, **ALL) for n in (0, 1, 2, 3, 5, -1, -2)),
    case("matrix_power", T(*M), 3, _strides=False, **ALL),
    error("linalg.matrix_power", T(2, 3), 2, _text=True),
    error("linalg.matrix_power", T(*M, kind="zeros"), -1, _text=True),
    case("linalg.matrix_exp", T(*M), _strides=False, **EXP),
    case("linalg.matrix_exp", T(*B), _strides=False, **EXP),
    case("matrix_exp", T(2, 2, kind="psd"), _strides=False, **REAL),
    case("matrix_exp", T(0, 0), _strides=False, **REAL),
    program("matrix_exp of large", lambda torch, a: torch.matrix_exp(a * 20), T(*B), _strides=False, **EXP),
    # Cholesky
    case("linalg.cholesky", T(*M, kind="psd"), _grad=False, **REAL),
    program("cholesky", lambda torch, a: torch.linalg.cholesky(_positive(torch, a)), T(*B), **ALL),
    program("cholesky upper", lambda torch, a: torch.linalg.cholesky(_positive(torch, a), upper=True), T(*B), _strides=False, **ALL),
    program("old cholesky", lambda torch, a: torch.linalg.cholesky_ex(_positive(torch, a)).L, T(*M), **ALL),
    case("linalg.cholesky_ex", T(*M, kind="zeros"), _grad=False, _dtypes=""),
    error("linalg.cholesky", T(*M, kind="zeros"), _text=True),
    error("linalg.cholesky", T(*B, kind="zeros"), _text=True),
    # LU
    *(case("linalg.lu", T(*shape), **ALL) for shape in (M, B, (2, 4, 3), (3, 5))),
    case("linalg.lu", T(0, 3), **REAL),
    *(case("linalg.lu_factor", T(*shape), **ALL) for shape in (M, B, (2, 4, 3), (3, 5))),
    case("linalg.lu_factor", T(40, 40), **REAL),
    case("linalg.lu_factor_ex", T(*B, kind="ones"), _grad=False, _dtypes=""),
    case("lu", T(*M), _strides=False, _method=False, **ALL),
    error("linalg.lu_factor", T(*M, kind="ones"), _text=True),
    error("linalg.lu", T(*M), pivot=False, _text=True),
    program("lu_unpack", lambda torch, a: torch.lu_unpack(*torch.linalg.lu_factor(a)), T(*B), _strides=False, **ALL),
    *(
        program(
            f"lu_solve {left} {adjoint}",
            lambda torch, a, b, left=left, adjoint=adjoint: torch.linalg.lu_solve(
                *torch.linalg.lu_factor(a), b, left=left, adjoint=adjoint
            ),
            T(*B), T(2, 3, 3), _strides=False, **ALL,
        )
        for left in (True, False) for adjoint in (True, False)
    ),
    program("old lu_solve", lambda torch, a, b: torch.lu_solve(b, *torch.linalg.lu_factor(a)), T(*M), T(3, 2), _strides=False, **ALL),
    # LDL
    *(program(f"ldl {n}", lambda torch, a: torch.linalg.ldl_factor(_symmetric(a)), T(n, n), _grad=False, **ALL) for n in (1, 3, 6, 9)),
    program("ldl of several", lambda torch, a: torch.linalg.ldl_factor(_symmetric(a)), T(2, 7, 7), _grad=False, **ALL),
    program("ldl of Hermitian", lambda torch, a: torch.linalg.ldl_factor(_hermitian(torch, a), hermitian=True), T(7, 7), _grad=False, **ALL),
    case("linalg.ldl_factor_ex", T(3, 3, kind="zeros"), _grad=False, _dtypes=""),
    *(
        program(
            f"ldl_solve {hermitian}",
            lambda torch, a, b, hermitian=hermitian: torch.linalg.ldl_solve(
                *torch.linalg.ldl_factor(a + (a.mH if hermitian else a.mT), hermitian=hermitian), b, hermitian=hermitian
            ),
            T(2, 6, 6), T(6, 3), _grad=False, **ALL,
        )
        for hermitian in (True, False)
    ),
    # QR: LAPACK's signs
    *(case("linalg.qr", T(*shape), **REAL) for shape in (M, B, (2, 4, 3), (3, 5))),
    case("linalg.qr", T(*M), _dtypes="complex128"),
    case("linalg.qr", T(4, 3), "complete", _grad=False, **REAL),
    case("linalg.qr", T(3, 4), "complete", **REAL),
    case("linalg.qr", T(4, 3), "r", _grad=False, **REAL),
    case("qr", T(4, 3), **REAL),
    case("qr", T(4, 3), False, _grad=False, **REAL),
    error("linalg.qr", T(4, 3), "other", _text=True),
    case("geqrf", T(4, 3), _grad=False, _strides=False, **REAL),
    case("linalg.householder_product", T(4, 3), T(3), _strides=False, **ALL),
    case("linalg.householder_product", T(2, 4, 3), T(2, 2), _strides=False, **ALL),
    case("orgqr", T(4, 3), T(3), _strides=False, **ALL),
    *(case("ormqr", T(4, 3), T(3), T(4, 4), left, turn, _strides=False, _second=False, **ALL) for left in (True, False)
      for turn in (True, False)),
    # singular values
    *(case("linalg.svdvals", T(*shape), **ALL) for shape in (M, (2, 4, 3), (3, 5))),
    case("linalg.svdvals", T(0, 3), **REAL),
    program("svd S", lambda torch, a: torch.linalg.svd(a).S, T(4, 3), **ALL),
    *(
        program(f"svd {shape}", _svd, T(*shape), _strides=False, **{**ALL, "_tolerance": 1000})
        for shape in (M, (2, 4, 3), (3, 5))
        for _svd in [lambda torch, a: _rebuilt(torch, torch.linalg.svd(a, full_matrices=False))]
    ),
    program("old svd", lambda torch, a: abs(torch.svd(a).V), T(4, 3), _strides=False, **ALL),
    program("svd strides", lambda torch, a: [abs(x) for x in torch.linalg.svd(a)], T(4, 3), _grad=False, **REAL),
    program("svd without vectors", lambda torch, a: torch.svd(a, compute_uv=False), T(4, 3), _strides=False, _grad=False, **REAL),
    error("linalg.svd", T(3, 3, dtype="int64"), _text=True),
    error("linalg.svd", T(*M), driver="gesvd", _text=True),
    program("svd_lowrank", lambda torch, a, b: torch.svd_lowrank(a @ b, 3)[1], T(9, 3), T(3, 7), _strides=False, _second=False, **REAL),
    program("svd_lowrank of wide", lambda torch, a, b: torch.svd_lowrank(a @ b, 3, M=a[:, :1])[1][:1] * 0, T(5, 3), T(3, 7),
            _strides=False, _grad=False, **REAL),
    program("pca_lowrank", lambda torch, a: torch.pca_lowrank(a)[1], T(9, 4), _strides=False, _second=False, **REAL),
    error("pca_lowrank", T(4, 3), 4, _text=True),
    # eigenvalues
    program("eigh values", lambda torch, a: torch.linalg.eigh(_hermitian(torch, a)).eigenvalues, T(*B), **ALL),
    program("eigvalsh", lambda torch, a: torch.linalg.eigvalsh(_hermitian(torch, a)), T(*B), **ALL),
    program("eigh vectors", lambda torch, a: abs(torch.linalg.eigh(_hermitian(torch, _apart(torch, a))).eigenvectors), T(*M), **ALL),
    program("eigh unsymmetric", lambda torch, a: torch.linalg.eigh(a)[0], T(*M), **ALL),
    program("eigh upper", lambda torch, a: torch.linalg.eigh(a, "U")[0], T(*M), **ALL),
    case("linalg.eigvalsh", T(*B), "U", _second=False, **ALL),
    error("linalg.eigh", T(*M), "X", _text=True),
    *(program(f"eigenvalues of {value}", lambda torch, a, value=value: torch.linalg.eigh(a * value)[0], T(2, n, n, kind="ones"), **REAL)
      for value in (math.nan, math.inf) for n in (2,)),
    *(program(f"{name} of {value}", _of_values(name, value), T(2, 3, 3, kind="ones"), _dtypes="", _grad=False)
      for name in ("eig", "svd", "svdvals", "inv", "det", "cholesky_ex", "qr") for value in (math.nan,)),
    program("eigvals", lambda torch, a: _sorted(torch.linalg.eigvals(_apart(torch, a))), T(*M), **ALL),
    program("eig values", lambda torch, a: _sorted(torch.linalg.eig(_apart(torch, a))[0]), T(*M), **ALL),
    program("eig vectors", lambda torch, a: abs(torch.linalg.eig(_apart(torch, a))[1]).sum(-1), T(*B), **ALL),
    error("linalg.eig", T(2, 3), _text=True),
    # norms
    *(case("linalg.vector_norm", T(3, 4), p, _dtypes="float32 float16 complex128 int64") for p in (0, 0.5, 1, 1.5, 2, 3, math.inf)),
    *(case("linalg.vector_norm", T(2, 3, 4), p, (0, 2), True, _dtypes="float32") for p in (0, 1, 2.5, -1, -math.inf, math.inf)),
    case("linalg.vector_norm", T(3, 4, kind="zeros"), 2, _second=False),
    case("linalg.vector_norm", T(3, 4, kind="ints"), math.inf, 1),
    case("linalg.vector_norm", T(0, 4), 2, 0),
    case("linalg.vector_norm", T(), 2),
    case("linalg.vector_norm", T(3, dtype="float32"), 2, dtype=A("float64")),
    error("linalg.vector_norm", T(0), math.inf, _text=True),
    error("linalg.vector_norm", T(0, 3), -1, 0),
    error("linalg.vector_norm", T(3, dtype="int64"), _text=True),
    *(case("linalg.matrix_norm", T(*M), p, **ALL) for p in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf)),
    *(case("linalg.matrix_norm", T(2, 3, 4), p, (0, 2), True, **ALL) for p in ("fro", "nuc", 1, 2, math.inf)),
    error("linalg.matrix_norm", T(3), _text=True),
    error("linalg.matrix_norm", T(3, 3), 3),
    case("linalg.norm", T(2, 3, 4), **ALL),
    case("linalg.norm", T(3, 4), 2, **ALL),
    case("linalg.norm", T(4), 3, **ALL),
    case("linalg.norm", T(2, 3, 4), None, (0, 1), **ALL),
    case("linalg.norm", T(2, 3, 4), "fro", (0, 1), **ALL),
    case("linalg.norm", T(2, 3, 4), 1, 1, True, **ALL),
    error("linalg.norm", T(3, 3, 3), 2, _text=True),
    error("linalg.norm", T(3), "fro", _text=True),
    case("norm", T(2, 3, 4)),
    case("norm", T(2, 3, 4), 1),
    case("norm", T(2, 3, 4), 3, 1),
    case("norm", T(2, 3, 4), 2, (0, 2), True),
    case("norm", T(3, 4), "nuc", **ALL),
    case("norm", T(2, 3, 4), "fro", 1),
    case("norm", T(2, 3, 4), p=math.inf, dim=-1),
    case("norm", T(2, 3, dtype="float32"), 2, 1, dtype=A("float64")),
    error("norm", T(3, dtype="int64"), _text=True),
    *(case("linalg.cond", T(*B), p, **ALL) for p in (None, 2, -2)),
    *(case("linalg.cond", T(*B), p, _grad=False, **ALL) for p in (1, math.inf, "fro", "nuc")),  # PyTorch's own gradient raises
    case("linalg.cond", T(*M, kind="ones"), 1, _grad=False, _dtypes=""),
    case("linalg.cond", T(4, 3), **ALL),
    case("dist", T(3, 4), T(3, 4), 0, _grad=False, _dtypes="float32"),
    *(case("dist", T(3, 4), T(3, 4), p, _dtypes="float32") for p in (1, 2, 3, math.inf)),
    case("dist", T(3, 4), T(4)),
    *(case("cdist", T(2, 4, 3), T(2, 5, 3), p, _second=False, _dtypes="float32") for p in (0, 1, 1.5, 2, 3, math.inf)),
    case("cdist", T(30, 3), T(27, 3), _second=False, _tolerance=100),
    case("cdist", T(4, 3), T(2, 5, 3), _second=False),
    error("cdist", T(4, 3), T(5, 2), _text=True),
    *(case("pdist", T(5, 3), p, _second=False, _dtypes="float32") for p in (0, 1, 2, 3, math.inf)),
    error("pdist", T(2, 5, 3)),
    case("renorm", T(3, 4), 2, 0, 1.0, _dtypes="float32"),
    case("renorm", T(3, 4), 1, 1, 1.0, _dtypes="float32"),
]


def _rebuilt(torch: Any, factors: Any) -> Any:
    """What does not depend on the vectors' phases."""
    u, s, v = factors
    return (u * torch.exp(-s).unsqueeze(-2).to(u.dtype)) @ v, s


def _sorted(values: Any) -> Any:
    return values[values.real.detach().argsort()]


