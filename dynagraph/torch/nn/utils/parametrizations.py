"""Parametrizations that there are: orthogonal matrices, weights of given lengths, weights whose largest singular value is one."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from dynagraph.torch.core.dtypes import finfo
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.functions.norms import norm_except_dim
from dynagraph.torch.functions.norms import weight_norm as _weight_norm_of
from dynagraph.torch.nn import functional as F
from dynagraph.torch.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.utils.parametrize import register_parametrization

_torch, _linalg = NAMESPACES["torch"], NAMESPACES["linalg"]
_add, _allclose, _cat, _eye, _geqrf = (_torch[name] for name in ("add", "allclose", "cat", "eye", "geqrf"))
_householder_product, _matrix_exp, _solve = (_linalg[name] for name in ("householder_product", "matrix_exp", "solve"))
_randn, _zeros_like = _torch["randn"], _torch["zeros_like"]


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.size(-2), q.size(-1)
    identity = _eye(k, dtype=q.dtype, device=q.device)
    return _allclose(q.mH @ q, identity, atol=10.0 * n * finfo(q.dtype).eps)


def _make_orthogonal(a: Tensor) -> Tensor:
    """The factor Q of A, with the signs that make it continuous."""
    reflectors, scales = _geqrf(a)
    return _householder_product(reflectors, scales) * reflectors.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """Matrices with orthonormal columns, or rows where these are fewer.

    With trivialization it is ``base @ map(x)``, so that it can be set to any orthogonal matrix: that becomes `base`.
    """

    def __init__(self, weight: Tensor, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        is_wide = X.size(-2) < X.size(-1)
        x = X.mT if is_wide else X
        q = self._by_reflections(x) if self.orthogonal_map == _OrthMaps.householder else self._by_skew_matrix(x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if is_wide else q

    def _by_skew_matrix(self, x: Tensor) -> Tensor:
        n, k = x.size(-2), x.size(-1)
        x = x.tril()
        if n != k:
            x = _cat([x, x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)], dim=-1)
        a = x - x.mH
        if self.orthogonal_map == _OrthMaps.matrix_exp:
            q = _matrix_exp(a)
        else:
            identity = _eye(n, dtype=a.dtype, device=a.device)
            q = _solve(_add(identity, a, alpha=-0.5), _add(identity, a, alpha=0.5))
        return q if n == k else q[..., :k]

    def _by_reflections(self, x: Tensor) -> Tensor:
        a = x.tril(diagonal=-1)
        scales = 2.0 / (1.0 + (a * a).sum(dim=-2))
        # the diagonal is ones and minus ones: the signs of the columns
        return _householder_product(a, scales) * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    def right_inverse(self, Q: Tensor) -> Tensor:
        with no_grad():
            return self._inverse(Q)

    def _inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}.")
        is_wide = Q.size(-2) < Q.size(-1)
        q: Any = Q.mT if is_wide else Q
        n, k = q.size(-2), q.size(-1)
        if not hasattr(self, "base"):
            if self.orthogonal_map != _OrthMaps.householder:
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            a, scales = _geqrf(q)
            diagonal = a.diagonal(dim1=-2, dim2=-1)
            diagonal.sign_()
            diagonal[scales == 0.0] *= -1  # of the last column there is no reflection
            return a.mT if is_wide else a
        if n == k:
            self.base = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        else:
            more = _randn(*q.size()[:-2], n, n - k, dtype=q.dtype, device=q.device)
            self.base = _make_orthogonal(_cat([q, more], dim=-1))
        # what each of the maps makes the identity of
        result = _zeros_like(Q)
        result.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return result


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """Make a parameter a matrix, or a batch of matrices, with orthonormal columns, or rows where these are fewer.

    orthogonal_map: "matrix_exp" or "cayley" of a skew-symmetric matrix, or "householder", a product of reflections; by default the
    first for square and complex matrices, the last for others (Lezcano-Casado 2019).
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        is_square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if is_square or weight.is_complex() else "householder"
    kind = getattr(_OrthMaps, orthogonal_map, None)
    if kind is None:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(weight, kind, use_trivialization=use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


class _WeightNorm(Module):
    """``g * v / |v|``, the norms over all dimensions but one."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _weight_norm_of(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


class _FromOldNames:
    """Takes states that the older `weight_norm` has saved."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        g, v = f"{prefix}{self.name}_g", f"{prefix}{self.name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{self.name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{self.name}.original1"] = state_dict.pop(v)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Make a parameter ``g * v / |v|``: lengths, one for each index of `dim`, and directions (Salimans and Kingma 2016).

    `dim` None: one length.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(_FromOldNames(name))
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which each call in training approximates further (Miyato et al. 2018)."""

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(
                f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}"
            )  # fmt: skip
        self.dim, self.eps = dim % ndim, eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight)
            rows, columns = matrix.size()
            u, v = (matrix.new_empty(size).normal_(0, 1) for size in (rows, columns))
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Tensor) -> Tensor:
        if self.dim:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    def _power_method(self, matrix: Tensor, n_power_iterations: int) -> None:
        with no_grad():
            for _ in range(n_power_iterations):
                F.normalize(matrix.mv(self._v), dim=0, eps=self.eps, out=self._u)
                F.normalize(matrix.H.mv(self._u), dim=0, eps=self.eps, out=self._v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # backward wants them as they are now
        return weight / u.vdot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_dim(module: Module, dim: int | None) -> int:
    """The dimension of a weight that the layer's outputs are counted by."""
    if dim is not None:
        return dim
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a parameter by its largest singular value, as a matrix of `dim` and all other dimensions.

    It is approximated by power iterations, 15 now and `n_power_iterations` in each call in training.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    made = _SpectralNorm(weight, n_power_iterations, spectral_dim(module, dim), eps)
    return register_parametrization(module, name, made)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
