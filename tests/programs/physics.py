"""Time steppers: stencils, waves, particles, differential equations."""

from __future__ import annotations

import numpy as np

from .table import program


@program(lambda r: (r.standard_normal(40), 0.1, 12))
def heat_1d(u, alpha, steps):
    u = u.copy()
    for _ in range(steps):
        un = u.copy()
        u[1:-1] = un[1:-1] + alpha * (un[2:] - 2 * un[1:-1] + un[:-2])
        u[0] = u[-1] = 0.0
    return u


@program(lambda r: (r.standard_normal((14, 17)),))
def heat_2d_in_place(u):
    for _ in range(6):
        u[1:-1, 1:-1] += 0.2 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
        u[0, :] = u[1, :]
        u[-1, :] = u[-2, :]
        u[:, 0] = u[:, 1]
        u[:, -1] = u[:, -2]


@program(lambda r: (r.standard_normal(50), 10))
def wave_1d(u0, steps):
    c, dt, dx = 1.0, 0.5, 1.0
    prev, cur = u0.copy(), u0.copy()
    energy = np.empty(steps)
    for t in range(steps):
        nxt = np.zeros_like(cur)
        nxt[1:-1] = 2 * cur[1:-1] - prev[1:-1] + (c * dt / dx) ** 2 * (cur[2:] - 2 * cur[1:-1] + cur[:-2])
        prev, cur = cur, nxt
        energy[t] = 0.5 * np.sum(((cur - prev) / dt) ** 2)
    return cur, energy


@program(lambda r: (r.standard_normal((12, 3)), r.standard_normal((12, 3)), r.random(12) + 0.1))
def n_body(pos, vel, mass):
    """Leapfrog, arrays written in place."""
    dt, soft = 0.01, 0.1

    def acceleration():
        dx = pos[np.newaxis, :, :] - pos[:, np.newaxis, :]
        inv = (np.sum(dx**2, axis=2) + soft**2) ** -1.5
        np.fill_diagonal(inv, 0.0)
        return np.einsum("ij,ijk,j->ik", inv, dx, mass)

    acc = acceleration()
    for _ in range(4):
        vel += acc * dt / 2
        pos += vel * dt
        acc = acceleration()
        vel += acc * dt / 2
    return 0.5 * np.sum(mass * (vel**2).sum(axis=1))


class Oscillator:
    def __init__(self, omega, gamma):
        self.omega, self.gamma = omega, gamma

    def __call__(self, t, y):
        return np.array([y[1], -self.omega**2 * y[0] - self.gamma * y[1] + np.cos(t)])


def rk4_step(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


@program(lambda r: (r.standard_normal(2), 20, 0.05))
def rk4(y0, n, h):
    f = Oscillator(2.0, 0.1)
    ys = np.zeros((n + 1, len(y0)))
    ys[0] = y0
    for i in range(n):
        ys[i + 1] = rk4_step(f, i * h, ys[i], h)
    return ys


@program(lambda r: (r.standard_normal(3), 30))
def lorenz(state, n):
    out = np.empty((n, 3))
    for i in range(n):
        x, y, z = state
        state = state + 0.01 * np.array([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])
        out[i] = state
    return out


@program(lambda r: (r.random((16, 16)), r.random((16, 16))))
def gray_scott(u, v):
    def laplacian(a):
        return np.roll(a, 1, 0) + np.roll(a, -1, 0) + np.roll(a, 1, 1) + np.roll(a, -1, 1) - 4 * a

    for _ in range(5):
        uvv = u * v * v
        u += 0.16 * laplacian(u) - uvv + 0.06 * (1 - u)
        v += 0.08 * laplacian(v) + uvv - (0.06 + 0.062) * v
    return u, v


@program(lambda r: (r.random((11, 13)), r.random((11, 13)), 1e-3))
def laplace_jacobi(phi, rho, tol):
    new = phi.copy()
    for it in range(40):  # noqa: B007
        new[1:-1, 1:-1] = 0.25 * (phi[1:-1, :-2] + phi[1:-1, 2:] + phi[:-2, 1:-1] + phi[2:, 1:-1] + rho[1:-1, 1:-1])
        err = np.abs(new - phi).max()
        phi, new = new, phi
        if err < tol:
            break
    return phi, it, err


@program(lambda r: (r.random(30), r.random(30) * 0.5))
def upwind_advection(q, vel):
    for _ in range(8):
        flux = np.where(vel > 0, q * vel, np.roll(q, -1) * vel)
        q[1:] -= flux[1:] - flux[:-1]
        q[0] = q[-1]
        np.clip(q, 0, 1, out=q)


@program(lambda r: (r.integers(0, 2, (12, 10)) * 2 - 1, r))
def ising(spins, rng):
    n, m = spins.shape
    for _ in range(3):
        for colour in (0, 1):
            mask = (np.add.outer(np.arange(n), np.arange(m)) % 2) == colour
            neighbours = sum(np.roll(spins, s, axis) for s in (1, -1) for axis in (0, 1))
            flip = mask & (rng.random(spins.shape) < np.exp(-0.8 * spins * neighbours))
            spins[flip] *= -1
    return spins.sum()


@program(lambda r: (r.random((20, 2)), r.standard_normal((20, 2)) * 0.3))
def particles_in_a_box(p, v):
    for _ in range(5):
        p += v * 0.1
        low, high = p < 0, p > 1
        p[low] = -p[low]
        p[high] = 2 - p[high]
        v[low | high] *= -0.9
    return np.linalg.norm(v, axis=1).mean()


@program(lambda r: (r.standard_normal(4), ))
def double_pendulum(state):
    def derivs(s):
        d = np.zeros_like(s)
        d[0] = s[1]
        delta = s[2] - s[0]
        den = 2.0 - np.cos(delta) ** 2
        d[1] = (s[1] ** 2 * np.sin(delta) * np.cos(delta) + 9.8 * np.sin(s[2]) * np.cos(delta) + s[3] ** 2 * np.sin(delta)) / den
        d[2] = s[3]
        d[3] = (-s[3] ** 2 * np.sin(delta) * np.cos(delta) - 9.8 * np.sin(s[0]) - 2 * s[1] ** 2 * np.sin(delta)) / den
        return d

    track = [state]
    for _ in range(6):
        state = state + 0.01 * derivs(state)
        track.append(state)
    return np.array(track)
