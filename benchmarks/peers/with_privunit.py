"""PrivUnitG and ProjUnit, written here from their papers: no package has them.

PrivUnitG (Asi, Feldman and Talwar, "Optimal Algorithms for Mean Estimation under Local Differential
Privacy", ICML 2022, arXiv:2205.02466) sends a normal vector of variance 1/d in each coordinate
whose product with the own unit vector is above a threshold with the probability p, and below it
otherwise. With q the probability that a normal number is below, it is private if p q / ((1 - p)
(1 - q)) is at most e^epsilon. The q with the least error is searched for.

ProjUnit (Asi, Feldman, Nelson, Nguyen and Talwar, "Fast Optimal Locally Private Mean Estimation via
Random Projections", NeurIPS 2023, arXiv:2306.04444) projects a vector to k random dimensions, and
sends PrivUnitG of the projection, scaled to length 1. Here these are rows of a Hadamard matrix with
random signs, which a seed stands for. The authors' own code is at github.com/apple/ml-projunit.

Both send floating-point numbers, whose last bits depend on the data: the promise is that of the
formulas. They are for a comparison of errors and speed only.
"""

import numpy as np
from work import Task, Work

PACKAGES = ()  # it is in no package
DIMENSIONS = (16, 64)  # of projections


def tasks(work: Work) -> dict[str, Task]:
    vectors = work.vectors(20_000)
    found = {"vector, PrivUnitG": Task(len(vectors), lambda: work.vector_means(sent(vectors)))}

    def sent(x: np.ndarray) -> np.ndarray:
        return PrivUnitG(work.asked["train_epsilon"], x.shape[1]).sent(x, draw)

    draw = np.random.default_rng()
    for k in DIMENSIONS:
        projected = ProjUnit(work.asked["train_epsilon"], vectors.shape[1], k)
        found[f"vector, ProjUnit to {k}"] = Task(
            len(vectors), lambda way=projected: work.vector_means(way.sent(vectors, draw))
        )
    return found


class PrivUnitG:
    """The mechanism for unit vectors of d numbers; `error` is its squared error, exactly."""

    def __init__(self, epsilon: float, d: int) -> None:
        self.d = d
        shares = np.linspace(0.5, 1 - 1e-6, 200_001)  # q: more often below the threshold
        odds = np.exp(epsilon) * (1 - shares) / shares
        above = odds / (1 + odds)  # p
        ends = quantile(shares)
        density = np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi)
        scale = density * (above / (1 - shares) - (1 - above) / shares) / np.sqrt(d)
        # The mean square of the product: of a normal number above the threshold, or below it.
        tail = density * ends * (above / (1 - shares) - (1 - above) / shares)
        errors = ((1 + tail) / d + (d - 1) / d) / scale**2 - 1
        best = int(np.argmin(errors))
        self.q, self.p, self.scale = shares[best], above[best], scale[best]
        self.error = float(errors[best])

    def sent(self, vectors: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Return what vehicles send, whose mean is that of their vectors."""
        n = len(vectors)
        above = draw.random(n) < self.p
        places = np.where(above, self.q + (1 - self.q) * draw.random(n), self.q * draw.random(n))
        along = quantile(np.clip(places, 1e-300, 1 - 1e-16))
        noise = draw.standard_normal(vectors.shape)
        noise += (along - np.einsum("ij,ij->i", noise, vectors))[:, None] * vectors
        noise /= np.sqrt(self.d) * self.scale
        return noise


class ProjUnit:
    """PrivUnitG of a random projection to k of d dimensions, where d is a power of 2."""

    def __init__(self, epsilon: float, d: int, k: int) -> None:
        self.inner, self.d, self.k = PrivUnitG(epsilon, k), d, k
        signs = np.ones((1, 1))
        while len(signs) < d:
            signs = np.block([[signs, signs], [signs, -signs]])
        self._hadamard = signs / np.sqrt(d)
        self._length = root_of_beta(k / 2, (d - k) / 2)  # of a projection of a unit vector

    def sent(self, vectors: np.ndarray, draw: np.random.Generator) -> np.ndarray:
        """Return what the server makes of what vehicles send."""
        signs = draw.choice([-1.0, 1.0], vectors.shape)
        rows = np.argsort(draw.random(vectors.shape), axis=1)[:, : self.k]
        seen = np.take_along_axis((vectors * signs) @ self._hadamard, rows, axis=1)
        seen /= np.maximum(np.sqrt(np.einsum("ij,ij->i", seen, seen)), 1e-12)[:, None]
        back = np.zeros(vectors.shape)
        np.put_along_axis(back, rows, self.inner.sent(seen, draw) / self._length, axis=1)
        return signs * (back @ self._hadamard)


def quantile(shares: np.ndarray) -> np.ndarray:
    """Return the quantiles of a normal number."""
    from scipy.special import ndtri

    return ndtri(shares)


def root_of_beta(a: float, b: float) -> float:
    """Return the mean square root of a number with a beta distribution; 1 if b is 0."""
    from scipy.special import gammaln

    return float(np.exp(gammaln(a + 0.5) + gammaln(a + b) - gammaln(a) - gammaln(a + b + 0.5)))
