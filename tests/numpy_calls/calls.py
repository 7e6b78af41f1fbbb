"""A representative call of each public callable of NumPy's: expressions over the arguments that `arguments` makes.

What is not tried here, because it reads or writes files, shows texts or sets how NumPy works, stands in `NOT_TRIED` with why.
"""

from __future__ import annotations

from typing import Any

import numpy as np

UNARY = """
absolute abs acos acosh angle arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh cbrt ceil conj conjugate cos cosh
deg2rad degrees exp exp2 expm1 fabs fix floor i0 imag isfinite isinf isnan isneginf isposinf log log10 log1p log2 modf frexp
nan_to_num negative positive rad2deg radians real real_if_close reciprocal rint round around sign signbit sin sinc sinh spacing sqrt
square tan tanh trunc all any amax amin max min argmax argmin argsort argwhere average cumprod cumsum
diff ediff1d flatnonzero mean median nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmedian nanmin nanprod nanstd nansum
nanvar nonzero prod ptp sort std sum var count_nonzero unique unique_all unique_counts unique_inverse unique_values
asanyarray asarray asarray_chkfinite ascontiguousarray asfortranarray array copy diag diagflat diagonal trace tril triu
ones_like zeros_like atleast_1d atleast_2d atleast_3d fliplr flipud flip ravel rot90 squeeze transpose permute_dims
matrix_transpose shape ndim size sort_complex common_type iscomplex iscomplexobj isreal isrealobj isscalar isfortran iterable
min_scalar_type result_type array_repr array_str array2string corrcoef cov gradient trapezoid unwrap unstack
histogram histogram_bin_edges asmatrix ndenumerate column_stack dstack hstack vstack row_stack block
"""
BINARY = """
add arctan2 atan2 copysign divide divmod equal float_power floor_divide fmax fmin fmod greater greater_equal heaviside hypot less
less_equal logaddexp logaddexp2 maximum minimum mod multiply nextafter not_equal pow power remainder subtract true_divide
allclose array_equal array_equiv isclose union1d setdiff1d setxor1d intersect1d isin kron inner may_share_memory shares_memory
"""
OF_INTEGERS = "bitwise_count bitwise_invert bitwise_not invert"
OF_TWO_INTEGERS = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor gcd lcm left_shift right_shift"
OF_BOOLS = "logical_and logical_or logical_xor"
SCALAR_TYPES = """
bool bool_ byte double float16 float32 float64 half int16 int32 int64 int8 int_ intc intp long longlong short single ubyte uint
uint16 uint32 uint64 uint8 uintc uintp ulong ulonglong ushort longdouble float96 float128
"""
COMPLEX_TYPES = "complex64 complex128 complex256 cdouble csingle clongdouble"

NUMPY: dict[str, str] = {
    **{name: f"np.{name}(x)" for name in UNARY.split()},
    **{name: f"np.{name}(x, y)" for name in BINARY.split()},
    **{name: f"np.{name}(n)" for name in OF_INTEGERS.split()},
    **{name: f"np.{name}(n, n + 1)" for name in OF_TWO_INTEGERS.split()},
    **{name: f"np.{name}(b, b)" for name in OF_BOOLS.split()},
    **{name: f"np.{name}(n)" for name in SCALAR_TYPES.split()},
    **{name: f"np.{name}(n)" for name in COMPLEX_TYPES.split()},
    "acosh": "np.acosh(y + 2)", "arccosh": "np.arccosh(y + 2)", "append": "np.append(x, y, axis=0)",
    "apply_along_axis": "np.apply_along_axis(np.sum, 0, x)", "apply_over_axes": "np.apply_over_axes(np.sum, x, [0, 1])",
    "arange": "np.arange(5) + x[0, 0]", "argpartition": "np.argpartition(v, 2)", "array_split": "np.array_split(v, 3)",
    "astype": "np.astype(x, np.float32)", "average": "np.average(x, axis=1, weights=v)", "bartlett": "np.bartlett(4) * v",
    "base_repr": "np.base_repr(10, 3)", "binary_repr": "np.binary_repr(10)", "bincount": "np.bincount(i)",
    "blackman": "np.blackman(4) * v", "bmat": "np.bmat([[x, y]])", "broadcast": "np.broadcast(x, v).shape",
    "broadcast_arrays": "np.broadcast_arrays(x, v)", "broadcast_shapes": "np.broadcast_shapes(x.shape, v.shape)",
    "broadcast_to": "np.broadcast_to(v, (3, 4))", "can_cast": "np.can_cast(np.float32, np.float64)",
    "cumulative_prod": "np.cumulative_prod(v)", "cumulative_sum": "np.cumulative_sum(v)", "poly1d": "np.poly1d(v)(x)",
    "typename": "np.typename('d')", "choose": "np.choose(i, [v, v + 1, v + 2])", "clip": "np.clip(x, 0.1, 0.5)",
    "compress": "np.compress(v > 1, x, axis=1)",
    "concat": "np.concat([x, y])", "concatenate": "np.concatenate([x, y])", "convolve": "np.convolve(v, v)",
    "copyto": "np.copyto(x, y)", "correlate": "np.correlate(v, v)", "cross": "np.cross(x[:, :3], y[:, :3])",
    "delete": "np.delete(x, 1, axis=1)", "diag_indices": "m[np.diag_indices(4)]",
    "diag_indices_from": "m[np.diag_indices_from(m)]",
    "digitize": "np.digitize(x, [0.2, 0.5])", "dot": "np.dot(x, v)", "dsplit": "np.dsplit(x.reshape(1, 3, 4), 2)",
    "dtype": "np.dtype(float)", "einsum": "np.einsum('ij,j->i', x, v)", "einsum_path": "np.einsum_path('ij,j->i', x, v)",
    "empty": "np.empty(3).shape", "empty_like": "np.empty_like(x).shape", "errstate": "np.errstate(all='ignore')",
    "expand_dims": "np.expand_dims(x, 1)",
    "extract": "np.extract(x > 0.3, x)", "eye": "np.eye(3, 4) + x", "fill_diagonal": "np.fill_diagonal(m, 1.0)",
    "finfo": "np.finfo(x.dtype).eps", "format_float_positional": "np.format_float_positional(1.5)",
    "format_float_scientific": "np.format_float_scientific(1.5)", "frombuffer": "np.frombuffer(b'12345678')",
    "fromfunction": "np.fromfunction(lambda p, q: p + q, (3, 4)) + x", "fromiter": "np.fromiter([1.0, 2.0], float)",
    "frompyfunc": "np.frompyfunc(abs, 1, 1)(x)", "fromstring": "np.fromstring('1 2', sep=' ')",
    "from_dlpack": "np.from_dlpack(x)", "full": "np.full((3, 4), 2.0) + x", "full_like": "np.full_like(x, 2.0)",
    "geomspace": "np.geomspace(1, 8, 4) * v", "geterr": "np.geterr()", "hamming": "np.hamming(4) * v",
    "hanning": "np.hanning(4) * v",
    "histogram2d": "np.histogram2d(v, v)", "histogramdd": "np.histogramdd(x[:, :2], 2)", "hsplit": "np.hsplit(x, 2)",
    "identity": "np.identity(3)", "iinfo": "np.iinfo(np.int32).max", "indices": "np.indices((3, 4)) + x",
    "insert": "np.insert(x, 1, 5.0, axis=1)", "interp": "np.interp(x, [0.0, 0.5, 1.0], [1.0, 2.0, 3.0])",
    "is_busday": "np.is_busday('2024-01-01')", "isdtype": "np.isdtype(x.dtype, 'real floating')",
    "isnat": "np.isnat(np.datetime64('NaT'))", "issubdtype": "np.issubdtype(x.dtype, np.floating)",
    "ix_": "m[np.ix_([0, 1], [1, 2])]", "kaiser": "np.kaiser(4, 14.0) * v", "ldexp": "np.ldexp(v, i)",
    "lexsort": "np.lexsort((v, i))", "linspace": "np.linspace(0.0, 1.0, 4) + v", "logical_not": "np.logical_not(b)",
    "logspace": "np.logspace(0.0, 1.0, 4) + v", "mask_indices": "m[np.mask_indices(4, np.triu)]", "matmul": "np.matmul(x, m)",
    "matrix": "np.matrix([[1, 2]])", "matvec": "np.matvec(x, v)", "meshgrid": "np.meshgrid(v, v)",
    "mintypecode": "np.mintypecode('fd')", "moveaxis": "np.moveaxis(x, 0, 1)", "nanpercentile": "np.nanpercentile(x, 30)",
    "nanquantile": "np.nanquantile(x, 0.3)", "ndarray": "np.ndarray((2,)).shape", "ndindex": "list(np.ndindex(2, 2))",
    "nditer": "[float(k) for k in np.nditer(v)]", "ones": "np.ones(4) + v", "outer": "np.outer(v, v)",
    "packbits": "np.packbits(b)", "pad": "np.pad(x, 1)", "partition": "np.partition(v, 2)",
    "percentile": "np.percentile(x, 30)",
    "piecewise": "np.piecewise(v, [v < 1, v >= 1], [-1, lambda t: t * 2])", "place": "np.place(x, x > 0.3, [1.0, 2.0])",
    "poly": "np.poly(v)", "polyadd": "np.polyadd(v, v[:2])", "polyder": "np.polyder(v)", "polydiv": "np.polydiv(v, v[:2])",
    "polyfit": "np.polyfit(v, v * 2, 1)", "polyint": "np.polyint(v)", "polymul": "np.polymul(v, v)",
    "polysub": "np.polysub(v, v)",
    "polyval": "np.polyval(v, x)", "promote_types": "np.promote_types(np.int8, x.dtype)",
    "put": "np.put(x, [0, 2], [5.0, 6.0])",
    "put_along_axis": "np.put_along_axis(x, n % 4, 0.0, axis=1)", "putmask": "np.putmask(x, x > 0.3, y)",
    "quantile": "np.quantile(x, 0.3)", "ravel_multi_index": "np.ravel_multi_index((i % 3, i), (3, 4))",
    "repeat": "np.repeat(x, 2)",
    "require": "np.require(x, np.float64)", "reshape": "np.reshape(x, (4, 3))", "resize": "np.resize(x, (2, 2))",
    "roll": "np.roll(x, 1)", "rollaxis": "np.rollaxis(x, 1)", "roots": "np.roots(v)", "searchsorted": "np.searchsorted(v, x)",
    "select": "np.select([x < 0.3, x > 0.6], [x, -x])", "seterr": "np.seterr()", "split": "np.split(v, 2)",
    "stack": "np.stack([x, y])",
    "swapaxes": "np.swapaxes(x, 0, 1)", "take": "np.take(x, i, axis=1)",
    "take_along_axis": "np.take_along_axis(x, n % 4, axis=1)",
    "tensordot": "np.tensordot(x, m, 1)", "tile": "np.tile(x, (2, 1))", "tri": "np.tri(3, 4) * x",
    "tril_indices": "m[np.tril_indices(4)]",
    "tril_indices_from": "m[np.tril_indices_from(m)]", "trim_zeros": "np.trim_zeros(v)",
    "triu_indices": "m[np.triu_indices(4)]",
    "triu_indices_from": "m[np.triu_indices_from(m)]", "unpackbits": "np.unpackbits(n.astype(np.uint8))",
    "unravel_index": "np.unravel_index(i, (2, 2))", "vander": "np.vander(v, 3)", "vdot": "np.vdot(v, v)",
    "vecdot": "np.vecdot(x, y)",
    "vecmat": "np.vecmat(v, m)", "vectorize": "np.vectorize(lambda t: t + 1)(v)", "vsplit": "np.vsplit(x, 3)",
    "where": "np.where(x > 0.3, x, y)", "zeros": "np.zeros(4) + v", "object_": "np.object_(1)", "str_": "np.str_('a')",
    "bytes_": "np.bytes_(b'a')", "datetime64": "np.datetime64('2024-01-01')", "timedelta64": "np.timedelta64(1, 'D')",
    "void": "np.void(b'abc')", "busday_count": "np.busday_count('2024-01-01', '2024-02-01')",
    "busday_offset": "np.busday_offset('2024-01-01', 1)", "busdaycalendar": "np.busdaycalendar().weekmask",
    "datetime_as_string": "np.datetime_as_string(np.datetime64('2024-01-01'))", "datetime_data": "np.datetime_data('M8[D]')",
    "asarray_chkfinite": "np.asarray_chkfinite(x)", "recarray": "np.recarray(2, dtype=[('a', float)]).shape",
    "c_[...]": "np.c_[v, v]", "r_[...]": "np.r_[v, 1.0, v]", "s_[...]": "x[np.s_[:2, 1]]",
    "mgrid[...]": "np.mgrid[0:3, 0:4] + x",
    "ogrid[...]": "np.ogrid[0:3, 0:4][0] + x", "index_exp[...]": "x[np.index_exp[1]]",
    "add.reduce": "np.add.reduce(x)", "add.accumulate": "np.add.accumulate(x)", "add.outer": "np.add.outer(v, v)",
    "add.at": "np.add.at(v, i, 1.0)", "add.reduceat": "np.add.reduceat(v, [0, 2])",
}  # fmt: skip
ABSTRACT_TYPES = "character complexfloating flexible floating generic inexact integer number signedinteger unsignedinteger"
OF_FILES = "fromfile fromregex genfromtxt load loadtxt memmap save savetxt savez savez_compressed"
SETTINGS = """
get_include get_printoptions getbufsize geterrcall info printoptions set_printoptions setbufsize seterrcall show_config show_runtime
test
"""
CONTAINERS = "flatiter nested_iters record ufunc"
OF_A_MATRIX = """
cholesky cond det diagonal eig eigh eigvals eigvalsh inv matrix_norm matrix_rank matrix_transpose norm pinv qr slogdet svd svdvals
trace
"""
TRANSFORMS = "fft ifft rfft irfft hfft ihfft fftshift ifftshift"
TRANSFORMS_OF_SEVERAL = "fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn"
OF_ARRAYS = """
all any argmax argmin argsort conj conjugate copy cumprod cumsum diagonal flatten max mean min nonzero prod ravel round sort squeeze
std
sum swapaxes tolist tobytes trace transpose var byteswap view __copy__
"""
LAYOUT = "T mT shape ndim size dtype itemsize nbytes real imag strides device"
BIT_GENERATORS = "BitGenerator Generator MT19937 PCG64 PCG64DXSM Philox RandomState SFC64 SeedSequence"
STATE = "get_bit_generator set_bit_generator test"
ABSTRACT = "types of NumPy's hierarchy, of which no instance is made"
EFFECT = "sets or tells how NumPy works"
FILES = "reads or writes files"
CONTAINER = "a class of NumPy's own objects"
NOT_TRIED: dict[str, str] = {
    **dict.fromkeys(ABSTRACT_TYPES.split(), ABSTRACT),
    **dict.fromkeys(OF_FILES.split(), FILES),
    **dict.fromkeys(SETTINGS.split(), EFFECT),
    **dict.fromkeys(CONTAINERS.split(), CONTAINER),
}  # fmt: skip

LINALG: dict[str, str] = {
    **{name: f"np.linalg.{name}(m)" for name in OF_A_MATRIX.split()},
    "cross": "np.linalg.cross(x[:, :3], y[:, :3])", "lstsq": "np.linalg.lstsq(m, v)", "matmul": "np.linalg.matmul(x, m)",
    "matrix_power": "np.linalg.matrix_power(m, 3)", "multi_dot": "np.linalg.multi_dot([x, m, v])",
    "outer": "np.linalg.outer(v, v)",
    "solve": "np.linalg.solve(m, v)", "tensordot": "np.linalg.tensordot(x, m, axes=1)",
    "tensorinv": "np.linalg.tensorinv(m.reshape(4, 2, 2), ind=1)", "tensorsolve": "np.linalg.tensorsolve(m, v)",
    "vecdot": "np.linalg.vecdot(x, y)", "vector_norm": "np.linalg.vector_norm(v)",
}  # fmt: skip
FFT: dict[str, str] = {
    **{name: f"np.fft.{name}(v)" for name in TRANSFORMS.split()},
    **{name: f"np.fft.{name}(x)" for name in TRANSFORMS_OF_SEVERAL.split()},
    "fftfreq": "np.fft.fftfreq(4) * v", "rfftfreq": "np.fft.rfftfreq(4) + v[:3]",
}  # fmt: skip
STRIDES: dict[str, str] = {
    "as_strided": "np.lib.stride_tricks.as_strided(v, (2, 2), (8, 8))",
    "sliding_window_view": "np.lib.stride_tricks.sliding_window_view(v, 2)",
}

METHODS: dict[str, str] = {
    **{name: f"x.{name}()" for name in OF_ARRAYS.split()},
    "argpartition": "v.argpartition(2)", "astype": "x.astype(np.float32)", "choose": "i.choose([v, v + 1, v + 2])",
    "clip": "x.clip(0.1, 0.5)", "compress": "x.compress(v > 1, axis=1)", "dot": "x.dot(v)", "fill": "x.fill(1.0)",
    "item": "x.item(0)", "partition": "v.partition(2)", "put": "x.put([0, 2], [5.0, 6.0])", "repeat": "x.repeat(2)",
    "reshape": "x.reshape(4, 3)", "resize": "v.copy().resize(2)", "searchsorted": "v.searchsorted(x)",
    "swapaxes": "x.swapaxes(0, 1)",
    "take": "x.take(i, axis=1)", "getfield": "x.getfield(np.float64)", "setfield": "x.setfield(1.0, np.float64)",
    "setflags": "x.setflags(write=True)", "to_device": "x.to_device('cpu')",
}  # fmt: skip
METHODS_NOT_TRIED = dict.fromkeys(("dump", "dumps", "tofile"), FILES)
ATTRIBUTES: dict[str, str] = {
    **{name: f"x.{name}" for name in LAYOUT.split()},
    "flags": "x.flags.c_contiguous", "flat": "x.flat[1]", "base": "x[1:].base is x", "data": "x.data.nbytes",
    "ctypes": "x.ctypes.data == 0",
}  # fmt: skip

DISTRIBUTIONS = (
    "beta(2.0, 3.0)",
    "binomial(10, 0.5)",
    "chisquare(2.0)",
    "dirichlet([1.0,2.0])",
    "exponential(1.0)",
    "f(2.0, 3.0)",
    "gamma(2.0)",
    "geometric(0.5)",
    "gumbel()",
    "hypergeometric(3, 4, 2)",
    "laplace()",
    "logistic()",
    "lognormal()",
    "logseries(0.5)",
    "multinomial(5, [0.5,0.5])",
    "multivariate_normal([0.0,0.0], [[1.0,0.0],[0.0,1.0]])",
    "negative_binomial(3, 0.5)",
    "noncentral_chisquare(2.0, 1.0)",
    "noncentral_f(2.0, 3.0, 1.0)",
    "normal()",
    "pareto(2.0)",
    "permutation(4)",
    "poisson(3.0)",
    "power(2.0)",
    "rayleigh()",
    "standard_cauchy()",
    "standard_exponential()",
    "standard_gamma(2.0)",
    "standard_normal()",
    "standard_t(2.0)",
    "triangular(0.0, 0.5, 1.0)",
    "uniform()",
    "vonmises(0.0, 1.0)",
    "wald(1.0, 1.0)",
    "weibull(2.0)",
    "zipf(2.0)",
    "bytes(4)",
    "choice(5)",
    "shuffle(x)",
)
GENERATOR: dict[str, str] = {
    **{d.split("(")[0]: f"g.{d}" for d in DISTRIBUTIONS},
    "integers": "g.integers(0, 10, 4)", "random": "g.random(4) + v",
    "multivariate_hypergeometric": "g.multivariate_hypergeometric([3, 4], 2)", "permuted": "g.permuted(x)",
    "spawn": "len(g.spawn(1))",
}  # fmt: skip
LEGACY: dict[str, str] = {
    **{d.split("(")[0]: f"np.random.{d}" for d in DISTRIBUTIONS},
    "rand": "np.random.rand(4)", "randint": "np.random.randint(0, 10, 4)", "randn": "np.random.randn(4)",
    "random": "np.random.random(4)", "random_sample": "np.random.random_sample(4)", "ranf": "np.random.ranf(4)",
    "sample": "np.random.sample(4)", "random_integers": "np.random.random_integers(5)", "seed": "np.random.seed(1)",
    "default_rng": "np.random.default_rng(1).random()", "get_state": "len(np.random.get_state())",
    "set_state": "np.random.set_state(np.random.get_state())",
}  # fmt: skip
LEGACY_NOT_TRIED = {
    **dict.fromkeys(BIT_GENERATORS.split(), CONTAINER),
    **dict.fromkeys(STATE.split(), EFFECT),
}


def arguments(seed: int = 7) -> dict[str, Any]:
    """New ones at each call: floats, integers that are indices, bools, a matrix that is positive definite, a generator."""
    rng = np.random.default_rng(seed)
    x = rng.random((3, 4))
    square = rng.random((4, 4))
    return {
        "x": x,
        "y": rng.random((3, 4)),
        "v": np.sort(rng.uniform(0.2, 3.0, 4)),
        "i": rng.permuted([0, 2, 1, 2]),
        "n": rng.integers(0, 9, (3, 4)),
        "b": x > 0.4,
        "m": square @ square.T + 4 * np.eye(4),
        "g": np.random.default_rng(3),
    }


__all__ = ["arguments"]
