"""Numerical analysis and physics: roots, quadrature, differential equations, particles, fractals."""

from __future__ import annotations

import math

import numpy as np

from .table import loop


@loop(lambda r, n: (n, n + 1, 50), sizes=(1, 2, 4), large=160)
def mandelbrot(height, width, limit):
    counts = np.zeros((height, width), dtype=np.int32)
    for i in range(height):
        for j in range(width):
            c = complex(-2.0 + 3.0 * j / width, -1.5 + 3.0 * i / height)
            z = 0j
            for k in range(limit):
                z = z * z + c
                if abs(z) > 2.0:
                    break
            counts[i, j] = k
    return counts


@loop(lambda r, n: (np.linspace(-2, 1, n), np.linspace(-1.5, 1.5, n), 60), sizes=(1, 2, 4), large=80)
def mandelbrot_of_floats(xs, ys, limit):
    image = np.zeros((len(ys), len(xs)), dtype=np.uint8)
    for i, cy in enumerate(ys):
        for j, cx in enumerate(xs):
            x = y = 0.0
            n = 0
            while x * x + y * y <= 4.0 and n < limit:
                x, y = x * x - y * y + cx, 2.0 * x * y + cy
                n += 1
            image[i, j] = n
    return image


@loop(lambda r, n: (n, 40), sizes=(1, 2, 8), large=400)
def mandelbrot_arrays(n, limit):
    c = np.linspace(-2, 1, n)[None, :] + 1j * np.linspace(-1.5, 1.5, n)[:, None]
    z = np.zeros_like(c)
    counts = np.zeros(c.shape, dtype=int)
    for k in range(limit):
        inside = z.real * z.real + z.imag * z.imag <= 4
        z[inside] = z[inside] * z[inside] + c[inside]
        counts += inside
    return counts


@loop(lambda r, n: (r.random((n, 3)), r.random((n, 3)), r.random(n), 0.01, 3), sizes=(1, 2, 4), large=60)
def n_body(x, v, mass, dt, steps):
    n = len(mass)
    for _ in range(steps):
        for i in range(n):
            ax = ay = az = 0.0
            for j in range(n):
                if i != j:
                    dx = x[j, 0] - x[i, 0]
                    dy = x[j, 1] - x[i, 1]
                    dz = x[j, 2] - x[i, 2]
                    d2 = dx * dx + dy * dy + dz * dz + 0.01
                    scale = mass[j] / (d2 * math.sqrt(d2))
                    ax += dx * scale
                    ay += dy * scale
                    az += dz * scale
            v[i, 0] += dt * ax
            v[i, 1] += dt * ay
            v[i, 2] += dt * az
        for i in range(n):
            for k in range(3):
                x[i, k] += dt * v[i, k]


@loop(lambda r, n: (r.random((n, 3)), r.random((n, 3)), r.random(n), 0.01, 20), sizes=(1, 2, 5), large=150)
def n_body_arrays(x, v, mass, dt, steps):
    energies = np.empty(steps)
    for t in range(steps):
        d = x[None, :, :] - x[:, None, :]
        d2 = (d * d).sum(axis=-1) + 0.01
        v += dt * (d * (mass[None, :] / (d2 * np.sqrt(d2)))[:, :, None]).sum(axis=1)
        x += dt * v
        energies[t] = 0.5 * (mass * (v * v).sum(axis=1)).sum()
    return energies


def planets(r: np.random.Generator) -> list:
    return [(r.random(3).tolist(), r.random(3).tolist(), r.random()) for _ in range(5)]


@loop(lambda r, n: (planets(r), 0.01, n), sizes=(0, 1, 2), large=6000)
def n_body_of_lists(bodies, dt, steps):
    for _ in range(steps):
        for i, ((x1, y1, z1), v1, m1) in enumerate(bodies):
            for (x2, y2, z2), v2, m2 in bodies[i + 1 :]:
                dx = x1 - x2
                dy = y1 - y2
                dz = z1 - z2
                magnitude = dt * ((dx * dx + dy * dy + dz * dz + 0.01) ** -1.5)
                v1[0] -= dx * m2 * magnitude
                v1[1] -= dy * m2 * magnitude
                v1[2] -= dz * m2 * magnitude
                v2[0] += dx * m1 * magnitude
                v2[1] += dy * m1 * magnitude
                v2[2] += dz * m1 * magnitude
        for position, (vx, vy, vz), _ in bodies:
            position[0] += dt * vx
            position[1] += dt * vy
            position[2] += dt * vz
    return sum(m * (v[0] ** 2 + v[1] ** 2 + v[2] ** 2) for _, v, m in bodies) / 2


@loop(lambda r, n: ((0.0, 1.0, 1.05), 0.01, n), sizes=(0, 1, 2, 9), large=200_000)
def lorenz(state, dt, steps):
    x, y, z = state
    for _ in range(steps):
        x, y, z = x + dt * 10.0 * (y - x), y + dt * (x * (28.0 - z) - y), z + dt * (x * y - 8.0 / 3.0 * z)
    return x, y, z


@loop(lambda r, n: (np.array([0.0, 1.0, 1.05]), 0.01, n), sizes=(0, 1, 2), large=4000)
def runge_kutta_arrays(y, h, steps):
    def f(t, y):
        return np.array([10.0 * (y[1] - y[0]), y[0] * (28.0 - y[2]) - y[1], y[0] * y[1] - 8.0 / 3.0 * y[2]])

    path = np.zeros((steps + 1, 3))
    path[0] = y
    t = 0.0
    for i in range(steps):
        k1 = f(t, y)
        k2 = f(t + h / 2, y + h / 2 * k1)
        k3 = f(t + h / 2, y + h / 2 * k2)
        k4 = f(t + h, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        t += h
        path[i + 1] = y
    return path


@loop(lambda r, n: (1.0, 0.0, float(n), 1e-8), sizes=(0, 1, 2), large=2000)
def runge_kutta_fehlberg(y, t, end, tol):
    h = 0.1
    steps = rejected = 0
    while t < end:
        if t + h > end:
            h = end - t
        k1 = h * (math.cos(t) - 0.5 * y)
        k2 = h * (math.cos(t + h / 4) - 0.5 * (y + k1 / 4))
        k3 = h * (math.cos(t + 3 * h / 8) - 0.5 * (y + 3 * k1 / 32 + 9 * k2 / 32))
        k4 = h * (math.cos(t + 12 * h / 13) - 0.5 * (y + (1932 * k1 - 7200 * k2 + 7296 * k3) / 2197))
        k5 = h * (math.cos(t + h) - 0.5 * (y + 439 * k1 / 216 - 8 * k2 + 3680 * k3 / 513 - 845 * k4 / 4104))
        k6 = h * (math.cos(t + h / 2) - 0.5 * (y - 8 * k1 / 27 + 2 * k2 - 3544 * k3 / 2565 + 1859 * k4 / 4104 - 11 * k5 / 40))
        error = abs(k1 / 360 - 128 * k3 / 4275 - 2197 * k4 / 75240 + k5 / 50 + 2 * k6 / 55)
        if error <= tol or h < 1e-6:
            t += h
            y += 25 * k1 / 216 + 1408 * k3 / 2565 + 2197 * k4 / 4104 - k5 / 5
            steps += 1
        else:
            rejected += 1
        h *= min(4.0, max(0.1, 0.84 * (tol / error) ** 0.25)) if error > 0 else 4.0
    return t, y, steps, rejected


@loop(lambda r, n: (np.array([1.0, 0.0]), float(n), 1e-6), sizes=(0, 1, 2), large=100, rtol=1e-13)
def adaptive_heun_of_arrays(y, end, tol):
    def f(y):
        return np.array([y[1], -y[0] - 0.1 * y[1]])

    t, h = 0.0, 0.01
    times = [t]
    while t < end:
        h = min(h, end - t)
        k1 = f(y)
        k2 = f(y + h * k1)
        error = np.abs(h / 2 * (k2 - k1)).max()
        if error <= tol:
            t += h
            y = y + h / 2 * (k1 + k2)
            times.append(t)
        h = 0.9 * h * (tol / error) ** 0.5 if error > 0 else 2 * h
    return y, np.array(times)


@loop(lambda r, n: (r.uniform(1, 1000, n),), sizes=(0, 1, 4), large=40_000)
def square_roots_by_newton(values):
    roots = np.zeros_like(values)
    for i, a in enumerate(values):
        x = a / 2
        while abs(x * x - a) > 1e-12 * a:
            x = 0.5 * (x + a / x)
        roots[i] = x
    return roots


@loop(lambda r, n: (r.uniform(0, 1, n), r.uniform(0, 6.28, n)), sizes=(0, 1, 4), large=20_000)
def kepler(eccentricities, anomalies):
    worst = 0
    result = []
    for e, m in zip(eccentricities, anomalies):
        x = m if e < 0.8 else math.pi
        k = 0
        while True:
            step = (x - e * math.sin(x) - m) / (1 - e * math.cos(x))
            x -= step
            k += 1
            if abs(step) < 1e-10 or k == 50:
                break
        worst = max(worst, k)
        result.append(x)
    return result, worst


@loop(lambda r, n: (n, 1e-12), sizes=(0, 1, 3), large=5000)
def bisection(n, tol):
    roots = []
    for k in range(n):
        low, high = 0.0, 2.0 + k
        while high - low > tol:
            middle = (low + high) / 2
            if middle == low or middle == high:
                break
            if middle**3 - middle - 1.0 - k < 0:
                low = middle
            else:
                high = middle
        roots.append((low + high) / 2)
    return roots


@loop(lambda r, n: (0.0, 3.0, n), sizes=(1, 2, 9), large=300_000)
def simpson(a, b, n):
    h = (b - a) / (2 * n)
    s = math.sin(a * a) + math.sin(b * b)
    for i in range(1, 2 * n):
        x = a + i * h
        s += (4 if i % 2 else 2) * math.sin(x * x)
    return s * h / 3


@loop(lambda r, n: (r.random(n), np.sort(r.random(n))), sizes=(0, 1, 2, 9), large=150_000)
def trapezoid_of_a_generator(y, x):
    return sum((x[i + 1] - x[i]) * (y[i] + y[i + 1]) / 2 for i in range(len(x) - 1))


@loop(lambda r, n: (n,), sizes=(1, 2, 5), large=18)
def romberg(depth):
    table = np.zeros((depth, depth))
    for i in range(depth):
        n = 2**i
        h = 1.0 / n
        s = 0.5 * (math.exp(0.0) + math.exp(-1.0))
        for k in range(1, n):
            x = k * h
            s += math.exp(-x * x)
        table[i, 0] = h * s
        for j in range(1, i + 1):
            table[i, j] = table[i, j - 1] + (table[i, j - 1] - table[i - 1, j - 1]) / (4**j - 1)
    return table[depth - 1, depth - 1]


@loop(lambda r, n: (r.random((n, 2)) * n, r.standard_normal((n, 2)), float(n), 0.001, 2), sizes=(1, 2, 4), large=120, rtol=1e-11)
def lennard_jones(x, v, box, dt, steps):
    n = len(x)
    energy = 0.0
    for _ in range(steps):
        force = np.zeros_like(x)
        energy = 0.0
        for i in range(n):
            for j in range(i + 1, n):
                d = x[i] - x[j]
                d -= box * np.round(d / box)
                r2 = max(d[0] ** 2 + d[1] ** 2, 0.5)
                if r2 < 9.0:
                    r6 = 1.0 / r2**3
                    force[i] += 24 * (2 * r6 * r6 - r6) / r2 * d
                    force[j] -= 24 * (2 * r6 * r6 - r6) / r2 * d
                    energy += 4 * (r6 * r6 - r6)
        v += dt * force
        x += dt * v
        x %= box
    return energy


@loop(lambda r, n: (n, 3.0), sizes=(1, 2, 9), large=300_000)
def logistic_map(steps, r):
    x = 0.5
    low, high = 1.0, 0.0
    for _ in range(steps):
        x = r * x * (1 - x)
        if x < low:
            low = x
        if x > high:
            high = x
        r = min(r + 1e-6, 4.0)
    return x, low, high


@loop(lambda r, n: (n,), sizes=(0, 1, 9), large=800_000)
def leibniz_pi(n):
    total, sign = 0.0, 1
    for k in range(n):
        total += sign / (2 * k + 1)
        sign = -sign
    return 4 * total


@loop(lambda r, n: (r.random((n, n)), 0.1, 20), sizes=(3, 5), large=600)
def lid_driven_pressure(b, dx, iterations):
    p = np.zeros_like(b)
    for _ in range(iterations):
        old = p.copy()
        p[1:-1, 1:-1] = 0.25 * (old[1:-1, 2:] + old[1:-1, :-2] + old[2:, 1:-1] + old[:-2, 1:-1]) - dx**2 * b[1:-1, 1:-1] / 4
        p[:, -1] = p[:, -2]
        p[0, :] = p[1, :]
        p[:, 0] = p[:, 1]
        p[-1, :] = 0
    return p
