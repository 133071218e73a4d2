#!/usr/bin/env python3
"""Derives the coefficients of src/ops/{exponential,logarithm,trigonometric}.cc.

Needs numpy and mpmath. Each fit minimises the largest relative error of the final function (Lawson's reweighted least
squares on Chebyshev nodes, values from mpmath at 40 digits). Coefficients are then rounded to fp32 one at a time, lowest
order first, refitting the ones that are left, so that later ones make up for the rounding of earlier ones.
Prints C++ lines, lowest order first, and the error that remains (in units of 2^-24).
"""
import mpmath as mp
import numpy as np

mp.mp.dps = 40


def nodes(low, high, count=600):
    k = np.arange(count)
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (k + 0.5) / count)


def evaluate(function, points):
    return np.array([float(function(mp.mpf(float(p)))) for p in points])


def minimax(basis, target, weight, rounds=300):
    """Coefficients c that minimise max |weight * (basis c - target)|."""
    scale = np.max(np.abs(basis * weight[:, None]), axis=0)
    lawson = np.ones(len(target))
    best, best_error = None, np.inf
    for _ in range(rounds):
        rows = np.sqrt(lawson) * weight
        c = np.linalg.lstsq(basis / scale * rows[:, None], target * rows, rcond=None)[0] / scale
        error = np.abs(weight * (basis @ c - target))
        if error.max() < best_error:
            best, best_error = c, error.max()
        lawson = lawson * (error / error.max() + 1e-3)
        lawson /= lawson.sum()
    return best, best_error


def rounded_fit(basis, target, weight):
    """The same, with every coefficient an fp32 number."""
    fixed = []
    for i in range(basis.shape[1]):
        left = target - (basis[:, :i] @ np.array(fixed) if fixed else 0)
        c, _ = minimax(basis[:, i:], left, weight)
        fixed.append(float(np.float32(c[0])))
    return fixed, np.max(np.abs(weight * (basis @ np.array(fixed) - target)))


def show(name, coefficients, error):
    print(f"// {name}: error {error * 2**24:.3f} * 2^-24")
    print("  " + ", ".join(f"{float(np.float32(c)).hex()}" for c in coefficients))


def polynomial(name, function, low, high, degree, weight):
    x = nodes(low, high)
    basis = np.stack([x**i for i in range(degree + 1)], axis=1)
    show(name, *rounded_fit(basis, evaluate(function, x), evaluate(weight, x)))


def split(name, value, parts):
    """value as a sum of fp32 numbers, largest first."""
    out = []
    for _ in range(parts):
        out.append(float(np.float32(float(value))))
        value -= mp.mpf(out[-1])
    print(f"// {name}\n  " + ", ".join(p.hex() for p in out))


if __name__ == "__main__":
    ln2 = float(mp.log(2))
    polynomial("(exp(r) - 1) / r on [0, ln 2]", lambda r: mp.expm1(r) / r, -1e-5, ln2 * 1.00001, 5, lambda r: r / mp.expm1(r))
    polynomial("(exp(r) - 1) / r on [-ln 2 / 2, ln 2 / 2]", lambda r: mp.expm1(r) / r, -ln2 / 2 * 1.0001, ln2 / 2 * 1.0001, 5,
               lambda r: r / mp.exp(r))
    polynomial("(tanh(x) / x - 1) / x^2 in x^2, |x| <= 0.6", lambda u: (mp.tanh(mp.sqrt(u)) / mp.sqrt(u) - 1) / u, 1e-9, 0.36, 4,
               lambda u: mp.sqrt(u) * u / mp.tanh(mp.sqrt(u)))
    polynomial("(log1p(f) - f) / f^2 on [-1/4, 1/2]", lambda f: (mp.log1p(f) - f) / f**2, -0.25, 0.5, 8,
               lambda f: f**2 / mp.log1p(f))
    quarter = float((mp.pi / 4) ** 2) * 1.0001
    polynomial("(sin(r) - r) / r^3 in r^2", lambda s: (mp.sin(mp.sqrt(s)) - mp.sqrt(s)) / mp.sqrt(s) ** 3, 0, quarter, 2,
               lambda s: mp.sqrt(s) ** 3 / mp.sin(mp.sqrt(s)))
    polynomial("(cos(r) - 1 + r^2/2) / r^4 in r^2", lambda s: (mp.cos(mp.sqrt(s)) - 1 + s / 2) / s**2, 0, quarter, 2,
               lambda s: s**2 / mp.cos(mp.sqrt(s)))
    polynomial("erf(x) / x - 1 in x^2, |x| <= 0.85", lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u) - 1, 1e-9, 0.85**2, 5,
               lambda u: mp.sqrt(u) / mp.erf(mp.sqrt(u)))
    polynomial("log(erfc(x)) on [0.85, 4]", lambda t: mp.log(mp.erfc(t)), 0.85, 4.0, 6, lambda t: mp.erfc(t) / mp.erf(t))
    split("pi/2", mp.pi / 2, 3)
    split("ln 2", mp.log(2), 2)
