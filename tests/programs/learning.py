"""Learning and statistics: clustering, filters, networks with backpropagation by hand."""

from __future__ import annotations

import numpy as np

from .table import program


def labelled(r, n=20, d=3):
    x = r.standard_normal((n, d))
    return x, (x @ np.arange(1, d + 1) > 0).astype(float)


@program(lambda r: (r.standard_normal((30, 2)), r.standard_normal((3, 2)), 5))
def kmeans(x, centres, n):
    centres = centres.copy()
    for _ in range(n):
        d = np.linalg.norm(x[:, None] - centres[None], axis=2)
        labels = np.argmin(d, axis=1)
        for k in range(len(centres)):
            if np.any(labels == k):
                centres[k] = x[labels == k].mean(axis=0)
    return centres, labels


@program(lambda r: (r.standard_normal((30, 2)), r.standard_normal((3, 2))))
def kmeans_by_add_at(x, centres):
    for _ in range(4):
        labels = ((x[:, None, :] - centres) ** 2).sum(-1).argmin(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, x)
        counts = np.bincount(labels, minlength=len(centres))
        centres = sums / np.maximum(counts, 1)[:, None]
    return centres


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


@program(lambda r: (*labelled(r), 0.1))
def logistic_regression(x, y, lr):
    w, b = np.zeros(x.shape[1]), 0.0
    losses = []
    for _ in range(10):
        p = sigmoid(x @ w + b)
        losses.append(-np.mean(y * np.log(p + 1e-9) + (1 - y) * np.log(1 - p + 1e-9)))
        g = p - y
        w -= lr * x.T @ g / len(y)
        b -= lr * g.mean()
    return w, b, losses


class Dense:
    def __init__(self, w, b):
        self.w, self.b = w, b

    def forward(self, x):
        self.x = x
        return x @ self.w + self.b

    def backward(self, g, lr):
        dx = g @ self.w.T
        self.w -= lr * self.x.T @ g
        self.b -= lr * g.sum(axis=0)
        return dx


class Relu:
    def forward(self, x):
        self.mask = x > 0
        return x * self.mask

    def backward(self, g, lr):
        return g * self.mask


@program(lambda r: (r.standard_normal((8, 4)), r.integers(0, 3, 8), r.standard_normal((4, 5)), r.standard_normal((5, 3))))
def network_of_layers(x, y, w1, w2):
    layers = [Dense(w1, np.zeros(5)), Relu(), Dense(w2, np.zeros(3))]
    for _ in range(3):
        out = x
        for layer in layers:
            out = layer.forward(out)
        e = np.exp(out - out.max(axis=1, keepdims=True))
        grad = e / e.sum(axis=1, keepdims=True)
        loss = -np.log(grad[np.arange(len(y)), y]).mean()
        grad[np.arange(len(y)), y] -= 1
        grad /= len(y)
        for layer in reversed(layers):
            grad = layer.backward(grad, 0.1)
    return loss


@program(lambda r: (*r.standard_normal((2, 6, 2)), {"w1": r.standard_normal((2, 4)), "w2": r.standard_normal((4, 2))}))
def network_of_a_dict(x, y, params):
    for _ in range(3):
        h = np.tanh(x @ params["w1"])
        error = h @ params["w2"] - y
        grads = {"w2": h.T @ error, "w1": x.T @ (error @ params["w2"].T * (1 - h**2))}
        for name, g in grads.items():
            params[name] -= 0.05 * g
    return np.mean(error**2)


@program(lambda r: (r.standard_normal((5, 3)), r.standard_normal((5, 3))))
def adam(w, target):
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t in range(1, 8):
        g = 2 * (w - target)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g**2
        w = w - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


@program(lambda r: labelled(r, 12))
def perceptron(x, y):
    w = np.zeros(x.shape[1] + 1)
    for _ in range(2):
        for xi, target in zip(x, y):
            update = 0.1 * (target - (1 if xi @ w[1:] + w[0] >= 0 else 0))
            w[1:] += update * xi
            w[0] += update
    return w


@program(lambda r: (r.standard_normal(15), 0.1, 0.5))
def kalman_1d(z, q, r):
    x, p = 0.0, 1.0
    out = np.zeros(len(z))
    for i in range(len(z)):
        p = p + q
        k = p / (p + r)
        x = x + k * (z[i] - x)
        p = (1 - k) * p
        out[i] = x
    return out


@program(lambda r: (r.standard_normal((8, 2)),))
def kalman_2d(zs):
    dt = 0.1
    F = np.array([[1, 0, dt, 0], [0, 1, 0, dt], [0, 0, 1, 0], [0, 0, 0, 1]])
    H = np.eye(2, 4)
    Q, R = 0.01 * np.eye(4), 0.1 * np.eye(2)
    x, P = np.zeros(4), np.eye(4)
    track = []
    for z in zs:
        x = F @ x
        P = F @ P @ F.T + Q
        K = P @ H.T @ np.linalg.inv(H @ P @ H.T + R)
        x = x + K @ (z - H @ x)
        P = (np.eye(4) - K @ H) @ P
        track.append(x.copy())
    return np.vstack(track), P


@program(lambda r: (r.standard_normal((6, 4)), r.integers(0, 4, 6)))
def softmax_cross_entropy(logits, y):
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    onehot = np.zeros_like(p)
    onehot[np.arange(y.size), y] = 1
    return -np.log(p[range(len(y)), y]).mean(), (p - onehot) / len(y), np.eye(4)[y]


@program(lambda r: (r.standard_normal((12, 2)), r.integers(0, 3, 12), r.standard_normal((5, 2))))
def nearest_neighbours(train, y, test):
    d = np.sqrt(((test[:, None, :] - train[None, :, :]) ** 2).sum(axis=2))
    nearest = np.argsort(d, axis=1)[:, :3]
    votes = y[nearest]
    return np.array([np.bincount(v, minlength=3).argmax() for v in votes])


@program(lambda r: (r.standard_normal(40),))
def gaussian_mixture(x):
    mu, sigma, pi = np.array([-1.0, 1.0]), np.ones(2), np.full(2, 0.5)
    for _ in range(5):
        dens = pi * np.exp(-0.5 * ((x[:, None] - mu) / sigma) ** 2) / (sigma * np.sqrt(2 * np.pi))
        resp = dens / dens.sum(axis=1, keepdims=True)
        nk = resp.sum(axis=0)
        mu = (resp * x[:, None]).sum(axis=0) / nk
        sigma = np.sqrt((resp * (x[:, None] - mu) ** 2).sum(axis=0) / nk)
        pi = nk / len(x)
    return mu, sigma, pi


@program(lambda r: (r.standard_normal(25), 5))
def running_statistics(x, w):
    c = np.cumsum(np.insert(x, 0, 0.0))
    mean = (c[w:] - c[:-w]) / w
    windows = np.lib.stride_tricks.sliding_window_view(x, w)
    ema = np.empty_like(x)
    ema[0] = x[0]
    for i in range(1, len(x)):
        ema[i] = 0.3 * x[i] + 0.7 * ema[i - 1]
    return mean, windows.max(axis=1), windows.std(axis=1), ema


class Welford:
    def __init__(self):
        self.n, self.mean, self.m2 = 0, 0.0, 0.0

    def push(self, x):
        self.n += 1
        delta = x - self.mean
        self.mean += delta / self.n
        self.m2 += delta * (x - self.mean)


@program(lambda r: (r.standard_normal((6, 3)),))
def welford(x):
    w = Welford()
    for row in x:
        w.push(row)
    return w.n, w.mean, w.m2 / (w.n - 1)


@program(lambda r: (np.where(r.random((6, 5)) < 0.3, np.nan, r.standard_normal((6, 5))),))
def masked_statistics(x):
    missing = np.isnan(x)
    means = np.nanmean(x, axis=0)
    x[missing] = np.take(means, np.where(missing)[1])
    z = (x - x.mean(0)) / x.std(0)
    z[np.abs(z) > 1.5] = 0
    return z, missing.sum(axis=1), x[x > 0].sum()


@program(lambda r: (r.integers(0, 4, 30), r.standard_normal(30)))
def group_by(keys, values):
    sums, counts = np.zeros(4), np.zeros(4, dtype=int)
    np.add.at(sums, keys, values)
    np.add.at(counts, keys, 1)
    highest = np.full(4, -np.inf)
    np.maximum.at(highest, keys, values)
    return sums, counts, highest, np.bincount(keys, weights=values, minlength=4)


@program(lambda r: (r.random((4, 4)), r.random((4, 3)), r.integers(0, 3, 10)))
def viterbi(a, b, obs):
    a, b = a / a.sum(1, keepdims=True), b / b.sum(1, keepdims=True)
    n, t = a.shape[0], len(obs)
    delta, back = np.zeros((t, n)), np.zeros((t, n), dtype=int)
    delta[0] = np.log(1.0 / n) + np.log(b[:, obs[0]])
    for i in range(1, t):
        for j in range(n):
            scores = delta[i - 1] + np.log(a[:, j])
            back[i, j] = np.argmax(scores)
            delta[i, j] = scores[back[i, j]] + np.log(b[j, obs[i]])
    path = np.zeros(t, dtype=int)
    path[-1] = np.argmax(delta[-1])
    for i in range(t - 2, -1, -1):
        path[i] = back[i + 1, path[i + 1]]
    return path, delta[-1].max()


@program(lambda r: (r.random((3, 3)), r.random((3, 4)), r.integers(0, 4, 8)))
def hidden_markov_forward(a, b, obs):
    alpha = np.zeros((len(obs), 3))
    alpha[0] = b[:, obs[0]] / 3
    scale = 0.0
    for t in range(1, len(obs)):
        alpha[t] = alpha[t - 1].dot(a) * b[:, obs[t]]
        c = alpha[t].sum()
        alpha[t] /= c
        scale += np.log(c)
    return alpha, scale


@program(lambda r: (r.random((6, 6)),))
def sinkhorn(cost):
    k = np.exp(-cost / 0.5)
    u = v = np.ones(len(cost)) / len(cost)
    for _ in range(8):
        u = 1.0 / len(cost) / (k @ v)
        v = 1.0 / len(cost) / (k.T @ u)
    return u[:, None] * k * v[None, :]
