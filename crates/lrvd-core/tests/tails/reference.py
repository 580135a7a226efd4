"""Writes reference.json: tail probabilities and sums of exponentials at the ends of their ranges.

By mpmath with 60 digits. Nothing here is shared with the crate.

    python reference.py > reference.json
"""

import json

import mpmath as mp
import numpy as np

mp.mp.dps = 60
SIZES = [30, 300, 3_000, 10_000, 100_000, 1_000_000]
RATES = [0.5, 1, 2, 4, 10]
TARGETS = [0.001, 0.01, 0.05, 0.2]


def binomial_cdf(k, n, p):
    """P(X <= k): the terms of the shorter tail, each by its ratio to the one before."""
    p = mp.mpf(p)
    if k >= n:
        return mp.mpf(1)

    def term(i):
        return mp.binomial(n, i) * p**i * (1 - p) ** (n - i)

    lower = k <= n * p
    i = k if lower else k + 1
    value = total = term(i)
    while 0 < i < n:
        value *= i * (1 - p) / ((n - i + 1) * p) if lower else (n - i) * p / ((i + 1) * (1 - p))
        i += -1 if lower else 1
        total += value
        if value < total * mp.mpf(10) ** -50:
            break
    return total if lower else 1 - total


def log_softmax(row):
    row = [mp.mpf(z) for z in row]
    top = max(row)
    total = top + mp.log(sum(mp.exp(z - top) for z in row))
    return [float(z - total) for z in row]


def softplus(z):
    return mp.log1p(mp.exp(mp.mpf(z)))


def kl_fit(a):
    return mp.mpf("0.63576") / (1 + mp.exp(mp.mpf("1.87320") + mp.mpf("1.48695") * a)) + softplus(-a) / 2


def scale_kl(n, energy, logs, a0, b0):
    a0, b0, energy = mp.mpf(a0), mp.mpf(b0), mp.mpf(energy)
    a, b = a0 + mp.mpf(n) / 2, b0 + energy / 2
    entries = (n * (mp.log(b) - mp.digamma(a)) - mp.mpf(logs) + energy * a / b - n) / 2
    prior = ((a - a0) * mp.digamma(a) - mp.loggamma(a) + mp.loggamma(a0) + a0 * mp.log(b / b0)
             + a * (b0 - b) / b)
    return entries + prior


def aurocs(inside, outside):
    """Area and standard error by DeLong's definition, all pairs."""
    psi = (outside[:, None] > inside[None, :]) + 0.5 * (outside[:, None] == inside[None, :])
    v_in, v_out = psi.mean(0), psi.mean(1)
    error = np.sqrt(v_in.var(ddof=1) / len(inside) + v_out.var(ddof=1) / len(outside))
    return [inside.tolist(), outside.tolist(), float(psi.mean()), float(error)]


binomial = []
for n in SIZES:
    for target in TARGETS:
        for rate in RATES:
            k = min(round(rate * target * n), n - 1)
            binomial.append([k, n, target, float(binomial_cdf(k, n, target))])

ends = [-1e300, -1e6, -800, -745, -700, -40, -1, -1e-9, 0, 1e-9, 1, 36.5, 40, 700, 1e6, 1e300]
rows = [[0, 0], [0, -800], [1e6, 1e6 + 1], [-1e6, -1e6 - 1], [1e13, 1e13], [1e300, -1e300], [0, 36, 40],
        [-745.5, -745.25, -746], [1e12, 1e12 + 0.5, 1e12 - 3]]
alphas = [-1e300, -700, -36, -1.55, 0, 36, 400]
scales = [[n, q, logs, a0, b0] for n in [1, 4096] for q, logs in [(1e-9, -20.0), (10.0, -8.0)]
          for a0, b0 in [(1e-9, 1e-9), (1e-3, 1e-3), (1.0, 1.0), (1e6, 1e6)]]
rng = np.random.default_rng(20251128)
near = rng.normal(size=40)
areas = [aurocs(near, near + 1e-9), aurocs(near, near + 50), aurocs(np.zeros(6), np.zeros(9)),
         aurocs(np.round(near, 1), np.round(rng.normal(1, 1, 25), 1))]

json.dump({
    "binomial": binomial,
    "logistic": [[z, float(1 / (1 + mp.exp(-mp.mpf(z))))] for z in ends],
    "softplus": [[z, float(softplus(z) if z < 1e5 else z)] for z in ends],
    "log_softmax": [[row, log_softmax(row)] for row in rows],
    "kl_fit": [[a, float(kl_fit(mp.mpf(a)) if a > -1e5 else mp.mpf("0.63576") - mp.mpf(a) / 2)] for a in alphas],
    "scale_kl": [[*s, float(scale_kl(*s))] for s in scales],
    "ln_gamma": [[x, float(mp.loggamma(mp.mpf(x)))] for x in [1e-300, 1e-9, 0.5, 1e6 + 1, 1e15, 1e300]],
    "digamma": [[x, float(mp.digamma(mp.mpf(x)))] for x in [1e-300, 1e-9, 0.5, 1e6 + 1, 1e15, 1e300]],
    "areas": areas,
}, __import__("sys").stdout, separators=(",", ":"))
print()
