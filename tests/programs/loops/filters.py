"""Signals and images: filters, recurrences, transforms, windows, histograms."""

from __future__ import annotations

import cmath
import math

import numpy as np

from .table import loop


@loop(lambda r, n: (r.random((n, n + 1)), r.random((3, 3))), sizes=(1, 2, 3, 5), large=120)
def convolve_2d(image, kernel):
    h, w = image.shape
    kh, kw = kernel.shape
    out = np.zeros((max(h - kh + 1, 0), max(w - kw + 1, 0)))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            s = 0.0
            for k in range(kh):
                for l in range(kw):
                    s += image[i + k, j + l] * kernel[k, l]
            out[i, j] = s
    return out


@loop(lambda r, n: (r.random((n, n + 1)), r.random((3, 5))), sizes=(1, 2, 3, 5), large=120)
def convolve_2d_with_edges(image, kernel):
    h, w = image.shape
    kh, kw = kernel.shape
    out = np.zeros_like(image)
    for i in range(h):
        for j in range(w):
            for k in range(kh):
                for l in range(kw):
                    y, x = i + k - kh // 2, j + l - kw // 2
                    if 0 <= y < h and 0 <= x < w:
                        out[i, j] += image[y, x] * kernel[k, l]
    return out


@loop(lambda r, n: (r.random((2, n + 2, n + 2, 3)), r.random((3, 3, 3, 4)), r.random(4)), sizes=(1, 2, 3), large=50)
def convolution_layer(images, weights, bias):
    k = weights.shape[0]
    n, height, width = images.shape[0], images.shape[1] - k + 1, images.shape[2] - k + 1
    out = np.empty((n, height, width, weights.shape[3]))
    for i in range(height):
        for j in range(width):
            window = images[:, i : i + k, j : j + k, :, np.newaxis]
            out[:, i, j, :] = np.sum(window * weights[np.newaxis], axis=(1, 2, 3))
    return out + bias


@loop(lambda r, n: (np.array([0.2, 0.3, 0.1]), np.array([1.0, -0.5, 0.25]), r.standard_normal(n)), sizes=(0, 1, 2, 9), large=20_000)
def iir_filter(b, a, x):
    y = np.zeros(len(x))
    for n in range(len(x)):
        for k in range(len(b)):
            if n - k >= 0:
                y[n] += b[k] * x[n - k]
        for k in range(1, len(a)):
            if n - k >= 0:
                y[n] -= a[k] * y[n - k]
        y[n] /= a[0]
    return y


@loop(lambda r, n: (r.standard_normal(n).astype(np.float32), 0.2, 0.4, 0.2, -0.5, 0.3), sizes=(0, 1, 2, 9), large=100_000)
def biquad(x, b0, b1, b2, a1, a2):
    y = np.empty_like(x)
    x1 = x2 = y1 = y2 = 0.0
    for i, x0 in enumerate(x):
        y0 = b0 * x0 + b1 * x1 + b2 * x2 - a1 * y1 - a2 * y2
        y[i] = y0
        x2, x1 = x1, x0
        y2, y1 = y1, y0
    return y


@loop(lambda r, n: (r.random(n), 0.1), sizes=(1, 2, 9), large=200_000)
def exponential_moving_average(x, alpha):
    ema = np.zeros_like(x)
    ema[0] = x[0]
    for i in range(1, len(x)):
        ema[i] = alpha * x[i] + (1 - alpha) * ema[i - 1]
    return ema


@loop(lambda r, n: ([float(v) for v in r.random(n)], 10), sizes=(0, 1, 2, 9), large=300_000)
def moving_average_of_a_list(prices, span):
    alpha = 2 / (span + 1)
    average = None
    out = []
    for price in prices:
        if average is None:
            average = price
        else:
            average += alpha * (price - average)
        out.append(average)
    return out


@loop(lambda r, n: (r.standard_normal(n) + 5, 1e-4, 0.5), sizes=(0, 1, 2, 9), large=100_000)
def kalman_of_a_number(z, process, noise):
    x, p = 0.0, 1.0
    estimates = np.zeros(len(z))
    for k in range(len(z)):
        p = p + process
        gain = p / (p + noise)
        x = x + gain * (z[k] - x)
        p = (1 - gain) * p
        estimates[k] = x
    return estimates, p


@loop(lambda r, n: (r.standard_normal((n, 1)) + np.arange(n)[:, None], 1.0), sizes=(0, 1, 2, 6), large=1000)
def kalman(measured, dt):
    f = np.array([[1.0, dt], [0.0, 1.0]])
    h = np.array([[1.0, 0.0]])
    q = 0.01 * np.eye(2)
    r = np.array([[1.0]])
    x = np.zeros(2)
    p = np.eye(2)
    track = []
    for z in measured:
        x = f @ x
        p = f @ p @ f.T + q
        innovation = z - h @ x
        s = h @ p @ h.T + r
        gain = p @ h.T @ np.linalg.inv(s)
        x = x + gain @ innovation
        p = (np.eye(2) - gain @ h) @ p
        track.append(x)
    return np.array(track), p


@loop(lambda r, n: (r.random(n), 10, 0.0, 1.0), sizes=(0, 1, 2, 9), large=150_000)
def histogram(x, bins, low, high):
    counts = np.zeros(bins, dtype=np.int64)
    width = (high - low) / bins
    for value in x:
        if low <= value < high:
            counts[int((value - low) / width)] += 1
    return counts


@loop(lambda r, n: (r.integers(0, 256, (n, n)).astype(np.uint8),), sizes=(1, 2, 5), large=300)
def equalize_grey(image):
    counts = [0] * 256
    for row in image:
        for pixel in row:
            counts[pixel] += 1
    total, running = image.size, 0
    lookup = np.zeros(256, dtype=np.uint8)
    for k in range(256):
        running += counts[k]
        lookup[k] = 255 * running // total
    out = np.empty_like(image)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            out[i, j] = lookup[image[i, j]]
    return out


@loop(lambda r, n: (r.random(n), 3), sizes=(3, 4, 9), large=200_000)
def moving_average(x, w):
    out = np.zeros(len(x) - w + 1)
    s = 0.0
    for i in range(w):
        s += x[i]
    out[0] = s / w
    for i in range(w, len(x)):
        s += x[i] - x[i - w]
        out[i - w + 1] = s / w
    return out


@loop(lambda r, n: (r.random((n, n)),), sizes=(1, 2, 3, 4), large=100)
def median_filter(image):
    out = image.copy()
    for i in range(1, image.shape[0] - 1):
        for j in range(1, image.shape[1] - 1):
            window = []
            for di in range(-1, 2):
                for dj in range(-1, 2):
                    window.append(image[i + di, j + dj])
            window.sort()
            out[i, j] = window[4]
    return out


@loop(lambda r, n: (r.random((n, n)), 1.0, 0.2), sizes=(2, 3, 4), large=40, rtol=1e-13)
def bilateral_filter(image, sigma, spread):
    h, w = image.shape
    out = np.zeros_like(image)
    for i in range(h):
        for j in range(w):
            total = weights = 0.0
            for k in range(max(i - 2, 0), min(i + 3, h)):
                for l in range(max(j - 2, 0), min(j + 3, w)):
                    near = np.exp(-((i - k) ** 2 + (j - l) ** 2) / (2 * sigma**2))
                    weight = near * np.exp(-((image[i, j] - image[k, l]) ** 2) / (2 * spread**2))
                    total += weight * image[k, l]
                    weights += weight
            out[i, j] = total / weights
    return out


@loop(lambda r, n: (r.random(n),), sizes=(0, 1, 2, 5), large=300)
def fourier_transform(x):
    n = len(x)
    out = np.zeros(n, dtype=complex)
    for k in range(n):
        s = 0j
        for t in range(n):
            s += x[t] * cmath.exp(-2j * cmath.pi * k * t / n)
        out[k] = s
    return out


@loop(lambda r, n: (r.random(2**n) + 0j,), sizes=(0, 1, 2, 3), large=13)
def fast_fourier_transform(x):
    n = len(x)
    j = 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j |= bit
        if i < j:
            x[i], x[j] = x[j], x[i]
    length = 2
    while length <= n:
        step = complex(math.cos(2 * math.pi / length), -math.sin(2 * math.pi / length))
        for i in range(0, n, length):
            w = 1 + 0j
            for k in range(length // 2):
                u = x[i + k]
                v = x[i + k + length // 2] * w
                x[i + k] = u + v
                x[i + k + length // 2] = u - v
                w *= step
        length *= 2
    return x


@loop(lambda r, n: (r.random(n).tolist(), 0.17), sizes=(0, 1, 9), large=500_000)
def goertzel(samples, frequency):
    coefficient = 2.0 * math.cos(2.0 * math.pi * frequency)
    before = last = 0.0
    for sample in samples:
        now = sample + coefficient * last - before
        before = last
        last = now
    return last * last + before * before - coefficient * last * before


@loop(lambda r, n: (r.integers(0, 3, n),), sizes=(1, 2, 9), large=200_000)
def run_lengths(x):
    values, lengths = [], []
    current, length = x[0], 1
    for i in range(1, len(x)):
        if x[i] == current:
            length += 1
        else:
            values.append(current)
            lengths.append(length)
            current, length = x[i], 1
    values.append(current)
    lengths.append(length)
    return values, lengths


@loop(lambda r, n: (r.random(n), 0.6), sizes=(0, 1, 2, 3, 9), large=150_000)
def peaks(x, height):
    found = []
    for i in range(1, len(x) - 1):
        if x[i] > height and x[i - 1] < x[i] >= x[i + 1]:
            found.append(i)
    return np.array(found, dtype=int)


@loop(lambda r, n: (np.sort(r.random(n)), r.random(n), r.random(n)), sizes=(2, 3, 9), large=10_000)
def interpolate(xs, ys, at):
    out = np.zeros(len(at))
    for k in range(len(at)):
        x = at[k]
        if x <= xs[0]:
            out[k] = ys[0]
        elif x >= xs[-1]:
            out[k] = ys[-1]
        else:
            i = np.searchsorted(xs, x) - 1
            t = (x - xs[i]) / (xs[i + 1] - xs[i])
            out[k] = (1 - t) * ys[i] + t * ys[i + 1]
    return out


@loop(lambda r, n: (r.random(n), r.integers(0, 5, n)), sizes=(0, 1, 2, 9), large=150_000)
def group_means(values, groups):
    sums = {}
    counts = {}
    for v, g in zip(values, groups):
        sums[g] = sums.get(g, 0.0) + v
        counts[g] = counts.get(g, 0) + 1
    return {g: sums[g] / counts[g] for g in sorted(sums)}
