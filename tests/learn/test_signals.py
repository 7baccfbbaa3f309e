"""Fixed features of signals: what they are, that they are public, and that they suffice."""

import numpy as np
import pytest

import fedldp
from fedldp.errors import DomainError
from fedldp.learn import Network, objective
from fedldp.learn.signals import LEAST_LOG, MOST_LOG, Convolutions, Window, WindowStatistics

WINDOW = Window(channels=3, length=64, low=-2, high=2)
MAPS = (Convolutions(WINDOW), Convolutions(WINDOW, filters=3, seed=7), WindowStatistics(WINDOW))


def windows(n, seed):
    return np.random.default_rng(seed).normal(0, 1, (n, 3, 64))


@pytest.mark.parametrize("maps", MAPS)
def test_numbers_are_within_their_public_bounds(maps):
    samples = np.concatenate([windows(50, 1), 100 * windows(50, 2), np.zeros((1, 3, 64))])
    samples[0] = np.nan
    numbers = maps.transform(samples)
    low, high = maps.bounds
    assert numbers.shape == (101, len(maps.schema.attributes))
    assert (numbers >= np.array(low) - 1e-12).all()
    assert (numbers <= np.array(high) + 1e-12).all()


@pytest.mark.parametrize("maps", MAPS)
def test_each_window_is_its_own(maps):
    samples = windows(40, 1)
    alone = np.concatenate([maps.transform(window[None]) for window in samples])
    np.testing.assert_allclose(maps.transform(samples), alone, rtol=1e-9)


def test_filters_by_hand():
    maps, samples = Convolutions(WINDOW, filters=6, seed=3), windows(4, 1)
    found = maps.transform(samples)
    units = np.clip(samples / 2, -1, 1)
    for place, kernel in enumerate(maps.kernels):
        span = kernel.shape[1]
        outputs = [
            [np.sum(window[:, t : t + span] * kernel) for t in range(64 - span + 1)]
            for window in units
        ]
        expected = np.clip(np.log10(np.var(outputs, axis=1)), LEAST_LOG, MOST_LOG)
        np.testing.assert_allclose(found[:, place], expected, rtol=1e-9)
    np.testing.assert_allclose(found[:, 6:], 2 * units.mean(axis=2), rtol=1e-9, atol=1e-12)


def test_filters_follow_from_the_public_seed():
    one, same = Convolutions(WINDOW, seed=1).kernels, Convolutions(WINDOW, seed=1).kernels
    assert all((a == b).all() for a, b in zip(one, same, strict=True))
    assert any(
        a.shape != b.shape or (a != b).any()
        for a, b in zip(one, Convolutions(WINDOW, seed=2).kernels, strict=True)
    )
    for kernel in one:
        np.testing.assert_allclose(kernel.sum(axis=1), 0, atol=1e-12)
        assert np.sum(kernel**2) == pytest.approx(1)
        assert kernel.shape[1] <= 25


def test_statistics_by_hand():
    samples = np.clip(windows(5, 1), -2, 2)
    found = WindowStatistics(WINDOW).transform(samples)
    for window, numbers in zip(samples, found, strict=True):
        length = np.linalg.norm(window, axis=0)
        expected = [*window.mean(axis=1), *window.std(axis=1), length.mean(), length.std()]
        expected += [np.abs(np.diff(length)).mean(), length.max() - length.min()]
        np.testing.assert_allclose(numbers, expected, rtol=1e-9)


def test_a_linear_model_tells_signals_apart():
    """Three frequencies in noise, with random phases: no linear model of raw samples can."""
    draw, n = np.random.default_rng(1), 12_000
    labels = draw.integers(0, 3, n)
    phases = draw.uniform(0, 2 * np.pi, (n, 1, 1))
    angles = np.array([0.3, 0.7, 1.3])[labels][:, None, None] * np.arange(64) + phases
    samples = np.sin(angles) + draw.normal(0, 0.2, (n, 3, 64))
    maps = Convolutions(WINDOW)
    model = fedldp.LDPLogisticRegression(
        epsilon=4.0, bounds=maps.bounds, classes=[0, 1, 2], random_state=1
    )
    model.fit(maps.transform(samples[:10_000]), labels[:10_000])
    assert model.score(maps.transform(samples[10_000:]), labels[10_000:]) > 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Window(0, 64, -1, 1), "at least 1 channel"),
        (lambda: Window(1, 8, -1, 1), "32 samples"),
        (lambda: Window(1, 64, 1, -1), "low below high"),
        (lambda: Window(1, 64, "a", 1), "must be numbers"),
        (lambda: Convolutions(WINDOW, filters=0), "at least 1"),
        (lambda: MAPS[0].transform(np.zeros((2, 64, 3))), "must have the shape"),
        (lambda: MAPS[2].transform(np.zeros((3, 64))), "must have the shape"),
    ],
)
def test_invalid_arguments(make, message):
    with pytest.raises(DomainError, match=message):
        make()


def test_a_network_of_fixed_filters_computes_nearly_the_same_numbers():
    maps, samples = Convolutions(WINDOW), windows(200, 1)
    network = maps.network(objective("softmax").with_outputs(4))
    assert network.only_last
    assert network.dimensions == 4 * (13 + 1)
    assert Network.from_json(network.to_json()) == network
    units = np.clip(samples / 2, -1, 1).reshape(200, -1)
    found = network.hidden(np.c_[units, np.ones(200)])
    low, high = (np.array(ends) for ends in maps.bounds)
    expected = (maps.transform(samples) - (low + high) / 2) / ((high - low) / 2)
    # Fewer places, but the same filters. Means are of means, which leave out a little at the ends.
    assert np.abs(found[:, :10] - expected[:, :10]).max() < 0.25
    assert np.abs(found[:, 10:] - expected[:, 10:]).max() < 0.15
    widest = max(kernel.shape[1] for kernel in maps.kernels)
    full = [place for place, kernel in enumerate(maps.kernels) if kernel.shape[1] == widest]
    np.testing.assert_allclose(found[:, full], expected[:, full], rtol=1e-9)
