"""Time-stepped stencils in one to three dimensions, by elements and by slices; relaxation; cellular automata."""

from __future__ import annotations

import numpy as np

from .table import loop


@loop(lambda r, n: (n // 8 + 1, r.random(n), np.zeros(n)), sizes=(0, 1, 2, 3, 9), large=800)
def jacobi_1d(steps, a, b):
    n = len(a)
    for _ in range(steps):
        for i in range(1, n - 1):
            b[i] = 0.33333 * (a[i - 1] + a[i] + a[i + 1])
        for i in range(1, n - 1):
            a[i] = 0.33333 * (b[i - 1] + b[i] + b[i + 1])


@loop(lambda r, n: (n // 8 + 1, r.random(n), np.zeros(n)), sizes=(0, 1, 2, 3, 9), large=16_000)
def jacobi_1d_slices(steps, a, b):
    for _ in range(1, steps):
        b[1:-1] = 0.33333 * (a[:-2] + a[1:-1] + a[2:])
        a[1:-1] = 0.33333 * (b[:-2] + b[1:-1] + b[2:])


@loop(lambda r, n: (4, r.random((n, n))), sizes=(1, 2, 3, 5), large=128)
def jacobi_2d(steps, grid):
    n, m = grid.shape
    new = grid.copy()
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                new[i, j] = 0.2 * (grid[i, j] + grid[i, j - 1] + grid[i, j + 1] + grid[i + 1, j] + grid[i - 1, j])
        grid, new = new, grid
    return grid


@loop(lambda r, n: (20, r.random((n, n + 1)), np.zeros((n, n + 1))), sizes=(2, 3, 5), large=700)
def jacobi_2d_slices(steps, a, b):
    for _ in range(1, steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


@loop(lambda r, n: (2, r.random((n, n, n))), sizes=(1, 2, 3, 4), large=32)
def heat_3d(steps, a):
    n = a.shape[0]
    b = a.copy()
    for t in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    b[i, j, k] = (
                        0.125 * (a[i + 1, j, k] - 2.0 * a[i, j, k] + a[i - 1, j, k])
                        + 0.125 * (a[i, j + 1, k] - 2.0 * a[i, j, k] + a[i, j - 1, k])
                        + 0.125 * (a[i, j, k + 1] - 2.0 * a[i, j, k] + a[i, j, k - 1])
                        + a[i, j, k]
                    )
        a, b = b, a
    return a


@loop(lambda r, n: (10, r.random((n, n, n))), sizes=(2, 3, 4), large=96)
def heat_3d_slices(steps, a):
    b = np.copy(a)
    for _ in range(1, steps):
        b[1:-1, 1:-1, 1:-1] = (
            0.125 * (a[2:, 1:-1, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[:-2, 1:-1, 1:-1])
            + 0.125 * (a[1:-1, 2:, 1:-1] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, :-2, 1:-1])
            + 0.125 * (a[1:-1, 1:-1, 2:] - 2.0 * a[1:-1, 1:-1, 1:-1] + a[1:-1, 1:-1, :-2])
            + a[1:-1, 1:-1, 1:-1]
        )
        a, b = b, a
    return a


@loop(lambda r, n: (3, n, r.random((n, n))), sizes=(1, 2, 3, 5), large=100)
def seidel_2d(steps, n, a):
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                a[i, j] = (
                    a[i - 1, j - 1] + a[i - 1, j] + a[i - 1, j + 1] + a[i, j - 1] + a[i, j] + a[i, j + 1]
                    + a[i + 1, j - 1] + a[i + 1, j] + a[i + 1, j + 1]
                ) / 9.0  # fmt: skip


@loop(lambda r, n: (r.random((n, n)), r.random((n, n)), 1e-2), sizes=(2, 3, 4), large=48)
def gauss_seidel_until(u, f, tol):
    n = u.shape[0]
    h2 = 1.0 / (n - 1) ** 2
    error = tol + 1.0
    sweeps = 0
    while error > tol:
        error = 0.0
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                new = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] - h2 * f[i, j])
                error = max(error, abs(new - u[i, j]))
                u[i, j] = new
        sweeps += 1
    return sweeps, error


@loop(lambda r, n: (r.random((n, n)), 1.5, 10), sizes=(3, 4, 7), large=256)
def red_black_sor(u, omega, sweeps):
    for _ in range(sweeps):
        for colour in (0, 1):
            for i in range(1, u.shape[0] - 1):
                start = 1 + (i + colour) % 2
                middle = u[i, start:-1:2]
                around = u[i - 1, start:-1:2] + u[i + 1, start:-1:2] + u[i, start - 1 : -2 : 2] + u[i, start + 1 :: 2]
                u[i, start:-1:2] = middle + omega * (around / 4 - middle)
    return u


@loop(lambda r, n: (10, *r.random((3, n, n + 1)), np.arange(10.0)), sizes=(1, 2, 4), large=800)
def fdtd_2d(tmax, ex, ey, hz, fict):
    for t in range(tmax):
        ey[0, :] = fict[t]
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])


@loop(lambda r, n: (n, 2, r.random((n, n))), sizes=(2, 3, 5), large=60)
def adi(n, steps, u):
    v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    dx = dy = 1.0 / n
    dt = 1.0 / steps
    mul1 = 2.0 * dt / (dx * dx)
    mul2 = 1.0 * dt / (dy * dy)
    a = c = -mul1 / 2.0
    b = 1.0 + mul1
    d = f = -mul2 / 2.0
    e = 1.0 + mul2
    for _ in range(1, steps + 1):
        for i in range(1, n - 1):
            v[0, i] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = v[0, i]
            for j in range(1, n - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = (-d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - f * u[j, i + 1] - a * q[i, j - 1]) / (a * p[i, j - 1] + b)
            v[n - 1, i] = 1.0
            for j in range(n - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, n - 1):
            u[i, 0] = 1.0
            p[i, 0] = 0.0
            q[i, 0] = u[i, 0]
            for j in range(1, n - 1):
                p[i, j] = -f / (d * p[i, j - 1] + e)
                q[i, j] = (-a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - c * v[i + 1, j] - d * q[i, j - 1]) / (d * p[i, j - 1] + e)
            u[i, n - 1] = 1.0
            for j in range(n - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]


@loop(lambda r, n: (n, 3, r.random((n, n))), sizes=(2, 3, 6), large=400)
def adi_slices(n, steps, u):
    v, p, q = np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    mul = 2.0 / steps * n * n
    a = -mul / 2.0
    b = 1.0 + mul
    for _ in range(steps):
        v[0, 1 : n - 1] = 1.0
        p[1 : n - 1, 0] = 0.0
        q[1 : n - 1, 0] = v[0, 1 : n - 1]
        for j in range(1, n - 1):
            p[1 : n - 1, j] = -a / (a * p[1 : n - 1, j - 1] + b)
            q[1 : n - 1, j] = (
                -a * u[j, 0 : n - 2] + (1.0 + 2.0 * a) * u[j, 1 : n - 1] - a * u[j, 2:n] - a * q[1 : n - 1, j - 1]
            ) / (a * p[1 : n - 1, j - 1] + b)
        v[n - 1, 1 : n - 1] = 1.0
        for j in range(n - 2, 0, -1):
            v[j, 1 : n - 1] = p[1 : n - 1, j] * v[j + 1, 1 : n - 1] + q[1 : n - 1, j]
        u[1 : n - 1, 1 : n - 1] = v[1 : n - 1, 1 : n - 1]
    return u


@loop(lambda r, n: (r.standard_normal(n), 0.1, n // 4 + 2), sizes=(1, 2, 3, 8), large=500)
def burgers_upwind(u, c, steps):
    n = len(u)
    for _ in range(steps):
        old = u.copy()
        for i in range(n):
            if old[i] > 0:
                u[i] = old[i] - c * old[i] * (old[i] - old[i - 1])
            else:
                u[i] = old[i] - c * old[i] * (old[(i + 1) % n] - old[i])
    return u


@loop(lambda r, n: (np.sin(np.arange(n) * 0.3), 0.4, 2 * n), sizes=(2, 3, 9), large=3000)
def wave_1d(u, courant, steps):
    before, now = u.copy(), u.copy()
    for _ in range(steps):
        after = np.zeros_like(now)
        after[1:-1] = 2 * now[1:-1] - before[1:-1] + courant**2 * (now[2:] - 2 * now[1:-1] + now[:-2])
        before, now = now, after
    return now


@loop(lambda r, n: (r.integers(0, 2, (n, n)), 4), sizes=(1, 2, 5), large=120)
def game_of_life(board, generations):
    rows, columns = board.shape
    for _ in range(generations):
        new = np.zeros_like(board)
        for i in range(rows):
            for j in range(columns):
                alive = 0
                for di in (-1, 0, 1):
                    for dj in (-1, 0, 1):
                        if (di or dj) and board[(i + di) % rows, (j + dj) % columns]:
                            alive += 1
                if alive == 3 or (alive == 2 and board[i, j]):
                    new[i, j] = 1
        board = new
    return board


@loop(lambda r, n: (r.random((n, n)) < 0.4, 50), sizes=(2, 3, 6), large=600)
def game_of_life_slices(board, generations):
    for _ in range(generations):
        count = np.zeros(board.shape, dtype=np.int8)
        count[1:, :] += board[:-1, :]
        count[:-1, :] += board[1:, :]
        count[:, 1:] += board[:, :-1]
        count[:, :-1] += board[:, 1:]
        count[1:, 1:] += board[:-1, :-1]
        count[:-1, :-1] += board[1:, 1:]
        count[1:, :-1] += board[:-1, 1:]
        count[:-1, 1:] += board[1:, :-1]
        board = (count == 3) | (board & (count == 2))
    return board


@loop(lambda r, n: (30, n, n // 2 + 1), sizes=(1, 2, 9), large=500)
def cellular_automaton(rule, width, steps):
    cells = np.zeros((steps, width), dtype=np.uint8)
    cells[0, width // 2] = 1
    for t in range(steps - 1):
        for i in range(width):
            left, middle, right = cells[t, i - 1], cells[t, i], cells[t, (i + 1) % width]
            pattern = 4 * left + 2 * middle + right
            cells[t + 1, i] = (rule >> pattern) & 1
    return cells


@loop(lambda r, n: (n, 20 * n), sizes=(1, 3, 11), large=5000)
def langtons_ant(n, steps):
    grid = np.zeros((n, n), dtype=bool)
    x = y = n // 2
    dx, dy = 0, 1
    for _ in range(steps):
        if grid[y, x]:
            dx, dy = -dy, dx
        else:
            dx, dy = dy, -dx
        grid[y, x] = not grid[y, x]
        x = (x + dx) % n
        y = (y + dy) % n
    return grid.sum(), x, y
