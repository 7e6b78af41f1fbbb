/* C's functions of complex numbers, which CUDA has not got: dg_c<function> for C's c<function> and c<function>f.

   Zeros, infinities and NaNs give what C99's Annex G says, and glibc where that leaves a choice; the sign of a zero says on which
   side of a branch cut an argument lies.  Each part of a result is within a few units in the last place of its own, but for powers,
   whose error grows with the logarithm of the result (as C's and NumPy's does).  Nothing overflows on the way to a finite result.
   Float is computed as float: most GPUs have few units for double.

   The formulas are those of
   - W. Kahan, "Branch cuts for complex elementary functions, or: Much ado about nothing's sign bit", in The State of the Art in
     Numerical Analysis, 1987: csqrt, casin, cacos, catanh;
   - T. E. Hull, T. F. Fairgrieve, P. T. P. Tang, "Implementing complex elementary functions using exception handling", ACM TOMS 20
     (1994): clog with its exact sum near 1, the scales of csqrt;
   - ISO C99, Annex G.6: special values, and the functions that others give: csin(z) = -i csinh(iz) and such. */

template <class T>
struct dg_real;
template <>
struct dg_real<float> {
    static constexpr float pi_2 = 0x1.921fb6p+0f, ln2 = 0x1.62e43p-1f;
    static constexpr float huge = 0x1p125f, tiny = 0x1p-100f; /* beyond these sums of squares and roots are made of scaled parts */
    static constexpr float shrink = 0x1p-4f, grow = 0x1p48f;
    static constexpr float shrunk_root = 0x1p2f, grown_root = 0x1p-24f;
    static constexpr float grown_log = 0x1.0a2b24p+5f; /* 48 ln 2 */
    static constexpr float far = 0x1p14f;              /* 1 + 1/far^2 is 1 */
    static constexpr float flat = 10, exp_end = 88;    /* 1 - exp(-2 flat) is 1; exp(exp_end) is finite */
    DG_INL float infinity() { return dg_inff(); }
    DG_INL float rounded_product(float x, float y) { return __fmul_rn(x, y); } /* never a part of a fused multiply-add */
};
template <>
struct dg_real<double> {
    static constexpr double pi_2 = 0x1.921fb54442d18p+0, ln2 = 0x1.62e42fefa39efp-1;
    static constexpr double huge = 0x1p1021, tiny = 0x1p-900;
    static constexpr double shrink = 0x1p-4, grow = 0x1p200;
    static constexpr double shrunk_root = 0x1p2, grown_root = 0x1p-100;
    static constexpr double grown_log = 0x1.1542457337d43p+7; /* 200 ln 2 */
    static constexpr double far = 0x1p28;
    static constexpr double flat = 20, exp_end = 709;
    DG_INL double infinity() { return dg_inf(); }
    DG_INL double rounded_product(double x, double y) { return __dmul_rn(x, y); }
};

template <class T>
DG_INL bool dg_is_infinite(T x)
{
    return fabs(x) == dg_real<T>::infinity();
}
template <class T>
DG_INL bool dg_is_finite(T x)
{
    return fabs(x) < dg_real<T>::infinity();
}

/* i conj(z): what C99 says by iz, where functions are the same of both sides of an axis */
template <class T>
DG_INL dg_complex_number<T> dg_mirrored(dg_complex_number<T> z)
{
    return {z.im, z.re};
}

/* x + y is sum + rest */
template <class T>
DG_INL T dg_two_sum(T x, T y, T &rest)
{
    const T sum = x + y, part = sum - x;
    rest = (x - (sum - part)) + (y - part);
    return sum;
}

/* x^2 + y^2 - 1 for x >= y >= 0 where x^2 + y^2 is between 1/2 and 2.  The squares are exact as two numbers each.  1 is taken from
   one of them, or half from each, whichever makes no error where the result is small. */
template <class T>
DG_INL T dg_square_beyond_one(T x, T y)
{
    const T xx = dg_real<T>::rounded_product(x, x), yy = dg_real<T>::rounded_product(y, y);
    T rest, low, lowest, last;
    const bool even = xx < (T)0.5;
    const T sum = dg_two_sum(even ? xx - (T)0.5 : xx - 1, even ? yy - (T)0.5 : yy, rest);
    T small = dg_two_sum(fma(x, x, -xx), fma(y, y, -yy), lowest);
    small = dg_two_sum(rest, small, low);
    const T total = dg_two_sum(sum, small, last);
    return total + (last + (low + lowest));
}

/* log |z| */
template <class T>
DG_INL T dg_log_abs(dg_complex_number<T> z)
{
    using R = dg_real<T>;
    const T x = fabs(z.re), y = fabs(z.im), large = x < y ? y : x, small = x < y ? x : y;
    if (large > (T)0.5 && large < (T)1.5) {
        const T square = large * large + small * small;
        if (square > (T)0.5 && square < 2)
            return (T)0.5 * log1p(dg_square_beyond_one(large, small));
    }
    const bool down = large > R::huge, up = large < R::tiny;
    const T scale = down ? R::shrink : up ? R::grow : (T)1, shift = down ? 4 * R::ln2 : up ? -R::grown_log : (T)0;
    return log(hypot(x * scale, y * scale)) + shift;
}

template <class T>
DG_INL dg_complex_number<T> dg_clog(dg_complex_number<T> z)
{
    return {dg_log_abs(z), atan2(z.im, z.re)};
}

template <class T>
DG_INL dg_complex_number<T> dg_csqrt(dg_complex_number<T> z)
{
    using R = dg_real<T>;
    if (dg_is_infinite(z.im))
        return {R::infinity(), z.im};
    if (dg_is_infinite(z.re)) {
        const T other = z.im == z.im ? (T)0 : z.im;
        return z.re > 0 ? dg_complex_number<T>(z.re, copysign(other, z.im))
                        : dg_complex_number<T>(other, copysign(z.re, z.im));
    }
    if (z == dg_complex_number<T>(0))
        return {0, z.im};
    const T x = fabs(z.re), y = fabs(z.im), large = x < y ? y : x;
    const bool down = large > R::huge, up = large < R::tiny;
    const T scale = down ? R::shrink : up ? R::grow : (T)1, back = down ? R::shrunk_root : up ? R::grown_root : (T)1;
    const T root = sqrt((x * scale + hypot(x * scale, y * scale)) * (T)0.5);
    const T other = y * scale / (2 * root) * back;
    return z.re >= 0 ? dg_complex_number<T>(root * back, copysign(other, z.im))
                     : dg_complex_number<T>(other, copysign(root * back, z.im));
}

/* exp(x) (cos y + i sin y); where exp(x) would overflow it is taken in two halves. */
template <class T>
DG_INL dg_complex_number<T> dg_cexp(dg_complex_number<T> z)
{
    const T x = z.re, y = z.im;
    if (dg_is_infinite(x) && !dg_is_finite(y))
        return x > 0 ? dg_complex_number<T>(x, y - y) : dg_complex_number<T>(0, copysign((T)0, y));
    const bool far = x > dg_real<T>::exp_end;
    const T size = exp(far ? x / 2 : x), again = far ? size : (T)1;
    T s, c;
    sincos(y, &s, &c);
    return {size * c * again, y == 0 ? y : size * s * again};
}

/* sinh(x) cos(y) + i cosh(x) sin(y) */
template <class T>
DG_INL dg_complex_number<T> dg_csinh(dg_complex_number<T> z)
{
    const T x = z.re, y = z.im;
    T s, c;
    sincos(y, &s, &c);
    if (!dg_is_finite(y))
        return {x == 0 ? x : dg_is_infinite(x) ? fabs(x) : y - y, y - y};
    if (fabs(x) > dg_real<T>::exp_end) {
        const T root = exp(fabs(x) / 2), half = root / 2;
        return {copysign(half, x) * c * root, y == 0 ? y : half * s * root};
    }
    return {sinh(x) * c, y == 0 ? y : cosh(x) * s};
}

/* cosh(x) cos(y) + i sinh(x) sin(y) */
template <class T>
DG_INL dg_complex_number<T> dg_ccosh(dg_complex_number<T> z)
{
    const T x = z.re, y = z.im;
    T s, c;
    sincos(y, &s, &c);
    if (!dg_is_finite(y))
        return {dg_is_infinite(x) ? fabs(x) : y - y, x == 0 ? (T)0 : y - y};
    if (y == 0)
        return {cosh(x), x == x ? y * copysign((T)1, x) : y};
    if (fabs(x) > dg_real<T>::exp_end) {
        const T root = exp(fabs(x) / 2), half = root / 2;
        return {half * c * root, copysign(half, x) * s * root};
    }
    return {cosh(x) * c, sinh(x) * s};
}

/* (sinh(x) cosh(x) + i sin(y) cos(y)) / (sinh(x)^2 + cos(y)^2) */
template <class T>
DG_INL dg_complex_number<T> dg_ctanh(dg_complex_number<T> z)
{
    const T x = z.re, y = z.im;
    T s, c;
    sincos(y, &s, &c);
    if (!dg_is_finite(y)) {
        const bool far = dg_is_infinite(x);
        return {x == 0 ? x : far ? copysign((T)1, x) : y - y, far ? copysign((T)0, y) : y - y};
    }
    if (fabs(x) > dg_real<T>::flat) {
        const T size = exp(-fabs(x));
        return {copysign((T)1, x), 4 * s * c * size * size};
    }
    const T sh = sinh(x), divisor = sh * sh + c * c;
    return {sh * cosh(x) / divisor, y == 0 ? y : s * c / divisor};
}

template <class T>
DG_INL dg_complex_number<T> dg_csin(dg_complex_number<T> z)
{
    return dg_mirrored(dg_csinh(dg_mirrored(z)));
}

template <class T>
DG_INL dg_complex_number<T> dg_ccos(dg_complex_number<T> z)
{
    return dg_ccosh(dg_complex_number<T>(-z.im, z.re));
}

template <class T>
DG_INL dg_complex_number<T> dg_ctan(dg_complex_number<T> z)
{
    return dg_mirrored(dg_ctanh(dg_mirrored(z)));
}

/* What the arcus functions are made of, for y >= 0: the real part of casin and of cacos, and the imaginary part of both, up to its
   sign. */
template <class T>
struct dg_arcs {
    T sine, cosine, imaginary;
};

template <class T>
DG_INL dg_arcs<T> dg_arcs_of(T x, T y)
{
    using R = dg_real<T>;
    if (fabs(x) > R::far * R::far || y > R::far * R::far)
        return {atan2(x, y), atan2(y, x), dg_log_abs(dg_complex_number<T>(x, y)) + R::ln2};
    const dg_complex_number<T> plus = dg_csqrt(dg_complex_number<T>(1 + x, y)), minus = dg_csqrt(dg_complex_number<T>(1 - x, y));
    return {
        atan2(x, minus.re * plus.re + minus.im * plus.im),
        2 * atan2(minus.re, plus.re),
        asinh(minus.re * plus.im + minus.im * plus.re),
    };
}

template <class T>
DG_INL dg_complex_number<T> dg_casin(dg_complex_number<T> z)
{
    const dg_arcs<T> arcs = dg_arcs_of(fabs(z.re), fabs(z.im));
    return {z.re == 0 ? z.re : copysign(arcs.sine, z.re), copysign(arcs.imaginary, z.im)};
}

template <class T>
DG_INL dg_complex_number<T> dg_cacos(dg_complex_number<T> z)
{
    const dg_arcs<T> arcs = dg_arcs_of(z.re, fabs(z.im));
    return {z.re == 0 ? dg_real<T>::pi_2 : arcs.cosine, copysign(arcs.imaginary, -z.im)};
}

template <class T>
DG_INL dg_complex_number<T> dg_casinh(dg_complex_number<T> z)
{
    return dg_mirrored(dg_casin(dg_mirrored(z)));
}

template <class T>
DG_INL dg_complex_number<T> dg_cacosh(dg_complex_number<T> z)
{
    const dg_complex_number<T> arc = dg_cacos(z);
    return {fabs(arc.im), copysign(arc.re, z.im)};
}

template <class T>
DG_INL dg_complex_number<T> dg_catanh(dg_complex_number<T> z)
{
    using R = dg_real<T>;
    const T x = fabs(z.re), y = fabs(z.im);
    T re, im;
    if (dg_is_infinite(x) || dg_is_infinite(y)) {
        re = 0;
        im = y == y ? R::pi_2 : y;
    } else if (x > R::far || y > R::far) { /* i pi/2 + 1/z */
        const T half = hypot(x / 2, y / 2);
        re = x / 2 / half / half / 2;
        im = R::pi_2 - y / 2 / half / half / 2;
    } else {
        const T d = 1 - x;
        re = x == 1 && y * R::far < 1 ? (R::ln2 - log(y)) / 2 : log1p(4 * x / (d * d + y * y)) / 4;
        im = atan2(2 * y, d * (1 + x) - y * y) / 2;
    }
    return {z.re == 0 ? z.re : copysign(re, z.re), copysign(im, z.im)};
}

template <class T>
DG_INL dg_complex_number<T> dg_catan(dg_complex_number<T> z)
{
    return dg_mirrored(dg_catanh(dg_mirrored(z)));
}

/* The direction of an infinity: its infinite parts are 1, others 0. */
template <class T>
DG_INL dg_complex_number<T> dg_direction(dg_complex_number<T> z)
{
    return {copysign(dg_is_infinite(z.re) ? (T)1 : (T)0, z.re), copysign(dg_is_infinite(z.im) ? (T)1 : (T)0, z.im)};
}

template <class T>
DG_INL dg_complex_number<T> dg_without_nans(dg_complex_number<T> z)
{
    return {z.re == z.re ? z.re : copysign((T)0, z.re), z.im == z.im ? z.im : copysign((T)0, z.im)};
}

/* C's product (C99, G.5.1): it is an infinity, where both of its parts came out as NaN, if a factor is one or a part overflowed. */
template <class T>
DG_INL dg_complex_number<T> dg_whole_product(dg_complex_number<T> x, dg_complex_number<T> y)
{
    const T ac = x.re * y.re, bd = x.im * y.im, ad = x.re * y.im, bc = x.im * y.re;
    const dg_complex_number<T> product(ac - bd, ad + bc);
    if (product.re == product.re || product.im == product.im)
        return product;
    const bool left = dg_is_infinite(x.re) || dg_is_infinite(x.im), right = dg_is_infinite(y.re) || dg_is_infinite(y.im);
    if (!left && !right && !dg_is_infinite(ac) && !dg_is_infinite(bd) && !dg_is_infinite(ad) && !dg_is_infinite(bc))
        return product;
    x = dg_without_nans(left ? dg_direction(x) : x);
    y = dg_without_nans(right ? dg_direction(y) : y);
    const T infinity = dg_real<T>::infinity();
    return {infinity * (x.re * y.re - x.im * y.im), infinity * (x.re * y.im + x.im * y.re)};
}

template <class T>
DG_INL dg_complex_number<T> dg_cpow(dg_complex_number<T> x, dg_complex_number<T> y)
{
    return dg_cexp(dg_whole_product(y, dg_clog(x)));
}
