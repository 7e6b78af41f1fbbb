"""Images: filters, convolution, morphology, resizing, colours, fractals."""

from __future__ import annotations

import numpy as np

from .table import program


def image(r, *shape):
    return (r.integers(0, 256, shape).astype(np.uint8),)


@program(lambda r: (r.random((9, 10)), r.random((3, 3))))
def convolve_by_loops(im, k):
    h, w = k.shape
    out = np.zeros((im.shape[0] - h + 1, im.shape[1] - w + 1))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = np.sum(im[i : i + h, j : j + w] * k)
    return out


@program(lambda r: (r.random((20, 21)), r.random((3, 5))))
def convolve_shifted(im, k):
    kh, kw = k.shape
    padded = np.pad(im, ((kh // 2,), (kw // 2,)), mode="edge")
    out = np.zeros_like(im)
    for i in range(kh):
        for j in range(kw):
            out += k[i, j] * padded[i : i + im.shape[0], j : j + im.shape[1]]
    return out


@program(lambda r: image(r, 15, 18))
def sobel(im):
    f = im.astype(np.float64)
    gx, gy = np.zeros_like(f), np.zeros_like(f)
    gx[1:-1, 1:-1] = (f[:-2, 2:] + 2 * f[1:-1, 2:] + f[2:, 2:]) - (f[:-2, :-2] + 2 * f[1:-1, :-2] + f[2:, :-2])
    gy[1:-1, 1:-1] = (f[2:, :-2] + 2 * f[2:, 1:-1] + f[2:, 2:]) - (f[:-2, :-2] + 2 * f[:-2, 1:-1] + f[:-2, 2:])
    mag = np.hypot(gx, gy)
    mag *= 255.0 / mag.max()
    edges = np.zeros(im.shape, dtype=np.uint8)
    edges[mag > 100] = 255
    return mag.astype(np.uint8), edges


@program(lambda r: image(r, 20, 22))
def histogram_equalise(im):
    hist = np.bincount(im.ravel(), minlength=256)
    cdf = hist.cumsum()
    lowest = cdf[cdf > 0].min()
    lut = np.round((cdf - lowest) / (im.size - lowest) * 255)
    return np.clip(lut, 0, 255).astype(np.uint8)[im]


@program(lambda r: image(r, 20, 22))
def histogram_equalise_by_add_at(im):
    hist = np.zeros(256, dtype=np.int64)
    np.add.at(hist, im, 1)
    cdf = np.cumsum(hist)
    lut = (255 * cdf // cdf[-1]).astype(np.uint8)
    return lut[im]


@program(lambda r: (r.integers(0, 2, (14, 15)).astype(bool),))
def morphology(mask):
    def dilate(m):
        out = m.copy()
        out[1:] |= m[:-1]
        out[:-1] |= m[1:]
        out[:, 1:] |= m[:, :-1]
        out[:, :-1] |= m[:, 1:]
        return out

    def erode(m):
        return ~dilate(~m)

    opened = dilate(erode(mask))
    closed = erode(dilate(mask))
    return opened, closed, mask & ~erode(mask)


@program(lambda r: (r.random((8, 9)), 13, 17))
def bilinear_resize(im, h, w):
    ys = np.linspace(0, im.shape[0] - 1, h)
    xs = np.linspace(0, im.shape[1] - 1, w)
    y0 = np.floor(ys).astype(int)
    x0 = np.floor(xs).astype(int)
    y1 = np.minimum(y0 + 1, im.shape[0] - 1)
    x1 = np.minimum(x0 + 1, im.shape[1] - 1)
    fy, fx = (ys - y0)[:, None], (xs - x0)[None, :]
    top = im[np.ix_(y0, x0)] * (1 - fx) + im[np.ix_(y0, x1)] * fx
    bottom = im[y1[:, None], x0] * (1 - fx) + im[y1[:, None], x1] * fx
    return top * (1 - fy) + bottom * fy


@program(lambda r: image(r, 6, 7, 3))
def to_grey_and_yuv(rgb):
    f = rgb / 255.0
    grey = (f @ np.array([0.299, 0.587, 0.114]) * 255).astype(np.uint8)
    m = np.array([[0.299, 0.587, 0.114], [-0.147, -0.289, 0.436], [0.615, -0.515, -0.1]])
    return grey, np.dot(f, m.T), rgb[..., ::-1]


@program(lambda r: (r.random((6, 7, 3)),))
def rgb_to_hsv(rgb):
    r, g, b = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    v = rgb.max(axis=-1)
    delta = np.ptp(rgb, axis=-1)
    s = np.zeros_like(v)
    nz = v > 0
    s[nz] = delta[nz] / v[nz]
    h = np.zeros_like(v)
    idx = (r == v) & (delta > 0)
    h[idx] = ((g[idx] - b[idx]) / delta[idx]) % 6
    idx = (g == v) & (delta > 0)
    h[idx] = 2.0 + (b[idx] - r[idx]) / delta[idx]
    idx = (b == v) & (delta > 0)
    h[idx] = 4.0 + (r[idx] - g[idx]) / delta[idx]
    return np.stack([h / 6, s, v], axis=-1)


@program(lambda r: (r.random((12, 13)),))
def box_blur_integral(im):
    k = 3
    s = np.zeros((im.shape[0] + 1, im.shape[1] + 1))
    s[1:, 1:] = im.cumsum(0).cumsum(1)
    return (s[k:, k:] - s[:-k, k:] - s[k:, :-k] + s[:-k, :-k]) / k**2


@program(lambda r: (r.random((10, 11)),))
def median_filter(im):
    padded = np.pad(im, 1, mode="reflect")
    stack = np.stack([padded[i : i + im.shape[0], j : j + im.shape[1]] for i in range(3) for j in range(3)])
    return np.median(stack, axis=0)


@program(lambda r: image(r, 9, 9))
def floyd_steinberg(im):
    f = im.astype(float)
    h, w = f.shape
    for y in range(h):
        for x in range(w):
            old = f[y, x]
            new = 255.0 if old > 127 else 0.0
            f[y, x] = new
            e = old - new
            if x + 1 < w:
                f[y, x + 1] += e * 7 / 16
            if y + 1 < h:
                f[y + 1, x] += e * 5 / 16
    return f.astype(np.uint8)


@program(lambda r: image(r, 12, 12))
def otsu(im):
    hist, edges = np.histogram(im, bins=32, range=(0, 256))
    p = hist / hist.sum()
    centres = (edges[:-1] + edges[1:]) / 2
    w0, m = np.cumsum(p), np.cumsum(p * centres)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = (m[-1] * w0 - m) ** 2 / (w0 * (1 - w0))
    best = np.nanargmax(between[:-1])
    return best, im > centres[best]


@program(lambda r: (24, 16, 15 + int(r.integers(2))))
def mandelbrot(w, h, n):
    y, x = np.ogrid[-1.4 : 1.4 : h * 1j, -2 : 0.8 : w * 1j]
    c = x + y * 1j
    z = c
    div = n + np.zeros(z.shape, dtype=int)
    for i in range(n):
        z = z**2 + c
        diverged = z * np.conj(z) > 4
        now = diverged & (div == n)
        div[now] = i
        z[diverged] = 2
    return div


@program(lambda r: (r.uniform(-1.5, 1.5, (16, 20)), r.uniform(-1.5, 1.5, (16, 20)), -0.7, 0.27))
def julia_real(x, y, cr, ci):
    count = np.zeros(x.shape, dtype=np.int32)
    alive = np.ones(x.shape, dtype=bool)
    for _ in range(12):
        x, y = np.where(alive, x * x - y * y + cr, x), np.where(alive, 2 * x * y + ci, y)
        alive &= x * x + y * y < 4.0
        count += alive
    return count


@program(lambda r: (r.integers(0, 2, (16, 18)), 5))
def game_of_life(grid, n):
    for _ in range(n):
        p = np.pad(grid, 1)
        neighbours = (p[:-2, :-2] + p[:-2, 1:-1] + p[:-2, 2:] + p[1:-1, :-2]
                      + p[1:-1, 2:] + p[2:, :-2] + p[2:, 1:-1] + p[2:, 2:])
        birth = (neighbours == 3) & (grid == 0)
        survive = ((neighbours == 2) | (neighbours == 3)) & (grid == 1)
        grid[...] = 0
        grid[birth | survive] = 1
    return int(grid.sum())


@program(lambda r: (30 + int(r.integers(2)), 41))
def rule_30(number, width):
    rule = np.array([(number >> i) & 1 for i in range(8)], dtype=np.uint8)
    rows = np.zeros((12, width), dtype=np.uint8)
    rows[0, width // 2] = 1
    for t in range(1, len(rows)):
        left, right = np.roll(rows[t - 1], 1), np.roll(rows[t - 1], -1)
        rows[t] = rule[4 * left + 2 * rows[t - 1] + right]
    return rows


@program(lambda r: (r.integers(0, 2, (10, 12)).astype(np.int64),))
def connected_components(mask):
    labels = np.where(mask > 0, np.arange(1, mask.size + 1).reshape(mask.shape), 0)
    while True:
        old = labels.copy()
        labels[1:] = np.maximum(labels[1:], labels[:-1])
        labels[:-1] = np.maximum(labels[:-1], labels[1:])
        labels[:, 1:] = np.maximum(labels[:, 1:], labels[:, :-1])
        labels[:, :-1] = np.maximum(labels[:, :-1], labels[:, 1:])
        labels[mask == 0] = 0
        if np.array_equal(old, labels):
            return labels
