"""Python's and NumPy's integers: hashes, checksums, generators of numbers, number theory."""

from __future__ import annotations

import numpy as np

from .table import loop


@loop(lambda r, n: (r.integers(0, 256, n).astype(np.uint8),), sizes=(0, 1, 2, 9), large=20_000)
def crc32_by_bits(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= int(byte)
        for _ in range(8):
            if crc & 1:
                crc = (crc >> 1) ^ 0xEDB88320
            else:
                crc >>= 1
    return crc ^ 0xFFFFFFFF


@loop(lambda r, n: (r.integers(0, 256, n).astype(np.uint8).tobytes(),), sizes=(0, 1, 9), large=500_000)
def crc32_by_table(data):
    table = []
    for i in range(256):
        c = i
        for _ in range(8):
            c = (c >> 1) ^ 0xEDB88320 if c & 1 else c >> 1
        table.append(c)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


@loop(lambda r, n: (r.integers(0, 256, n).astype(np.uint8).tobytes(),), sizes=(0, 1, 9), large=400_000)
def fnv1a(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h ^= byte
        h = (h * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


@loop(lambda r, n: ("".join(chr(97 + k) for k in r.integers(0, 26, n)),), sizes=(0, 1, 9), large=400_000)
def djb2(text):
    h = 5381
    for c in text:
        h = ((h << 5) + h + ord(c)) % 2**32
    return h


@loop(lambda r, n: ("".join(chr(97 + k) for k in r.integers(0, 26, n)), 131, 10**9 + 7), sizes=(0, 1, 9), large=300_000)
def polynomial_hashes(text, base, modulus):
    h = [0]
    for c in text:
        h.append((h[-1] * base + ord(c)) % modulus)
    return h


@loop(lambda r, n: (r.integers(0, 256, n),), sizes=(0, 1, 9), large=300_000)
def adler32(data):
    a, b = 1, 0
    for x in data.tolist():
        a = (a + x) % 65521
        b = (b + a) % 65521
    return (b << 16) | a


@loop(lambda r, n: (12345, n), sizes=(0, 1, 9), large=200_000)
def lcg(seed, n):
    state = seed
    out = np.empty(n)
    for i in range(n):
        state = (6364136223846793005 * state + 1442695040888963407) % 2**64
        out[i] = (state >> 11) / 9007199254740992.0
    return out


@loop(lambda r, n: (88172645463325252, n), sizes=(0, 1, 9), large=200_000)
def xorshift64(x, n):
    total = 0
    for _ in range(n):
        x ^= (x << 13) & 0xFFFFFFFFFFFFFFFF
        x ^= x >> 7
        x ^= (x << 17) & 0xFFFFFFFFFFFFFFFF
        total += x % 6 + 1
    return total, x


@loop(lambda r, n: (np.uint32(2463534242), n), sizes=(0, 1, 9), large=100_000)
def xorshift32_of_numpy(x, n):
    out = np.zeros(n, dtype=np.uint32)
    for i in range(n):
        x ^= x << np.uint32(13)
        x ^= x >> np.uint32(17)
        x ^= x << np.uint32(5)
        out[i] = x
    return out


@loop(lambda r, n: (n,), sizes=(2, 3, 30), large=300_000)
def sieve(n):
    prime = np.ones(n + 1, dtype=bool)
    prime[:2] = False
    i = 2
    while i * i <= n:
        if prime[i]:
            for j in range(i * i, n + 1, i):
                prime[j] = False
        i += 1
    return prime


@loop(lambda r, n: (n,), sizes=(2, 3, 30), large=12_000_000)
def sieve_slices(n):
    prime = np.ones(n + 1, dtype=bool)
    prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return np.flatnonzero(prime)


@loop(lambda r, n: (n,), sizes=(0, 2, 3, 30), large=60_000)
def primes_by_division(n):
    primes = []
    for k in range(2, n):
        for p in primes:
            if p * p > k:
                primes.append(k)
                break
            if k % p == 0:
                break
        else:
            primes.append(k)
    return primes


@loop(lambda r, n: (n,), sizes=(1, 2, 9), large=20_000)
def longest_collatz(limit):
    best, length = 1, 1
    for start in range(1, limit):
        n = start
        steps = 1
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        if steps > length:
            best, length = start, steps
    return best, length


@loop(lambda r, n: (n,), sizes=(1, 2, 7), large=10_000)
def longest_collatz_sequence(limit):
    longest = []
    for n in range(1, limit + 1):
        sequence = [n]
        while n > 1:
            if n % 2:
                n = 3 * n + 1
            else:
                n //= 2
            sequence.append(n)
        if len(sequence) > len(longest):
            longest = sequence
    return longest


@loop(lambda r, n: (n,), sizes=(1, 2, 8), large=400)
def coprime_pairs(n):
    count = 0
    for a in range(1, n + 1):
        for b in range(1, n + 1):
            x, y = a, b
            while y:
                x, y = y, x % y
            count += x == 1
    return count


@loop(lambda r, n: ([int(k) for k in r.integers(2, 10**6, n)],), sizes=(0, 1, 3), large=15_000)
def fermat_test(numbers):
    found = 0
    for n in numbers:
        result, base, exponent = 1, 2 % n, n - 1
        while exponent > 0:
            if exponent & 1:
                result = result * base % n
            base = base * base % n
            exponent >>= 1
        if result == 1:
            found += 1
    return found


@loop(lambda r, n: (r.integers(0, 2**63 - 1, n),), sizes=(0, 1, 5), large=10_000)
def bits_set(x):
    total = 0
    for k in x:
        while k:
            k &= k - 1
            total += 1
    return total


@loop(lambda r, n: (n, 3), sizes=(1, 2, 7), large=1_000_000)
def josephus(n, k):
    survivor = 0
    for i in range(2, n + 1):
        survivor = (survivor + k) % i
    return survivor + 1


@loop(lambda r, n: (n,), sizes=(0, 1, 2, 100), large=60_000)
def fibonacci(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


@loop(lambda r, n: (n,), sizes=(1, 2, 10), large=3000)
def perfect_numbers(limit):
    found = []
    for n in range(2, limit):
        if sum(d for d in range(1, n // 2 + 1) if n % d == 0) == n:
            found.append(n)
    return found


@loop(lambda r, n: (n,), sizes=(0, 1, 7), large=100_000)
def digit_sums(n):
    happy = 0
    for k in range(n):
        s = k
        while s > 9:
            t = 0
            while s:
                s, digit = divmod(s, 10)
                t += digit
            s = t
        happy += s == 7
    return happy
