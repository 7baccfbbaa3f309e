"""What client and server share: the plan, the model and the data."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

PLAN = Path(__file__).with_name("plan.json")  # both sides must have the same file
TEST = 50  # flowers that no node has


def flowers() -> tuple[np.ndarray, np.ndarray]:
    """Return all flowers, on a public scale, in a public order."""
    x, y = load_iris(return_X_y=True)
    order = np.random.default_rng(7).permutation(len(x))
    return (x[order] - [6, 3, 4, 1]) / [1, 1, 2, 1], y[order]


def own_flowers(node: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ten flowers of a node."""
    x, y = flowers()
    rows = np.random.default_rng(node).integers(TEST, len(x), size=10)
    return x[rows], y[rows]


def probabilities(weights: np.ndarray, bias: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return how likely a model finds each species."""
    odds = np.exp(x @ weights.T + bias)
    return odds / odds.sum(axis=1, keepdims=True)


def trained(
    weights: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray
) -> list[np.ndarray]:
    """Return the model after ten steps of gradient descent."""
    for _ in range(10):
        error = probabilities(weights, bias, x) - np.eye(3)[y]
        weights, bias = weights - 0.5 * error.T @ x / len(x), bias - 0.5 * error.mean(axis=0)
    return [weights, bias]


def accuracy(weights: np.ndarray, bias: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """Return the share of flowers that a model gets right."""
    return float(np.mean(probabilities(weights, bias, x).argmax(axis=1) == y))
