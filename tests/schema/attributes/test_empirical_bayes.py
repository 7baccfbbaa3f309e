"""The frequencies that people are shown: less squared error than the projection's alone.

Fleets are drawn as tallies, with other seeds than the constants were settled on. The figures below
are ratios of squared errors, summed over some fleets: that of `projected` to the projection's.
"""

import numpy as np
import pytest
from simulated_fleets import codes_of

from fedldp import Plan, Schema, Tally, combine_estimates
from fedldp.coders.categories import project
from fedldp.schema.attributes import empirical_bayes
from fedldp.schema.attributes.results import Frequencies, Numbers


def shapes(labels, rng):
    """Return frequencies of many shapes, by name."""
    rank = np.arange(1.0, labels + 1)
    odds = {f"power {power}": rank**-power for power in (0.0, 0.5, 1.0, 1.5, 2.0)}
    odds |= {f"{count} occur": rank <= count for count in (1, 5, labels // 10)}
    odds |= {f"halved every {each}": 0.5 ** (rank / each) for each in (6.5, labels / 20)}
    odds |= {f"Dirichlet {a}": rng.dirichlet(np.full(labels, a)) for a in (0.03, 0.3, 3.0)}
    odds["two sizes"] = np.where(rank <= labels // 2, 1.0, 3.0)
    odds["log-normal"] = np.exp(1.5 * rng.normal(size=labels))
    odds["bell"] = np.exp(-(((rank - labels / 2) / (labels / 12)) ** 2) / 2)
    odds["three stand out"] = 0.5 / labels + (rank <= 3) / 6
    return {name: row / row.sum() for name, row in odds.items()}


def results(plan, frequencies, vehicles, fleets, rng):
    """Yield the result of each of some fleets."""
    (part,) = plan.parts
    for labels in rng.multinomial(vehicles, frequencies, size=fleets):
        counters = codes_of(part.coders[0], labels[None], rng)
        yield Tally("", (part,), vehicles, (counters[0],)).estimate()["label"]


def ratios(labels, vehicles, epsilon, fleets, seed):
    """Return the ratio of squared errors for each shape."""
    rng = np.random.default_rng(seed)
    plan = Plan(Schema.of(label=[str(i) for i in range(labels)]), epsilon=epsilon)
    found = {}
    for name, frequencies in shapes(labels, rng).items():
        errors = np.zeros(2)
        for result in results(plan, frequencies, vehicles, fleets, rng):
            shown = result.projected, project(result.frequencies)
            errors += [np.sum((each - frequencies) ** 2) for each in shown]
        found[name] = max(errors[0] / errors[1], 0.01) if errors[1] else 1.0
    return found


CELLS = [
    (64, 20_000, 1.0, 0.60),
    (100, 20_000, 4.0, 0.80),
    (300, 50_000, 2.0, 0.45),
    (1_000, 100_000, 1.0, 0.35),
]
MORE_CELLS = [
    *((64, 3_000, epsilon, 0.95) for epsilon in (0.5, 1.0, 2.0, 4.0, 6.0)),
    *((64, 20_000, epsilon, 1.0) for epsilon in (0.5, 1.0, 2.0, 4.0, 6.0)),
    *((100, 20_000, epsilon, 1.0) for epsilon in (0.5, 1.0, 2.0, 4.0, 6.0)),
    *((300, 50_000, epsilon, 0.7) for epsilon in (0.5, 1.0, 2.0, 4.0, 6.0)),
    *((1_000, 100_000, epsilon, 0.5) for epsilon in (0.5, 1.0, 2.0, 4.0, 6.0)),
    *((4_000, 200_000, epsilon, 0.45) for epsilon in (1.0, 2.0, 4.0)),
]


@pytest.mark.parametrize(("labels", "vehicles", "epsilon", "most"), CELLS)
def test_less_error_than_the_projection(labels, vehicles, epsilon, most):
    found = ratios(labels, vehicles, epsilon, fleets=3, seed=20)
    assert np.exp(np.mean(np.log(list(found.values())))) < most
    assert max(found.values()) < 1.25, found


@pytest.mark.slow
@pytest.mark.parametrize(("labels", "vehicles", "epsilon", "most"), MORE_CELLS)
def test_less_error_than_the_projection_in_more_fleets(labels, vehicles, epsilon, most):
    found = ratios(labels, vehicles, epsilon, fleets=20 if labels < 1_000 else 4, seed=21)
    assert np.exp(np.mean(np.log(list(found.values())))) < most
    assert max(found.values()) < 1.25, found


def result_of(frequencies, stderr):
    ends = np.stack([frequencies - 2 * stderr, frequencies + 2 * stderr], axis=-1)
    names = tuple(f"label {i}" for i in range(frequencies.size))
    return Frequencies.of(names, Numbers(frequencies, stderr, ends, ends, np.full(1, 900)))


def noisy(labels, stderr, seed=3):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(labels, 0.5)) + stderr * rng.normal(size=labels)


def test_what_is_shown_is_possible_and_keeps_the_order():
    values = noisy(200, 0.004)
    result = result_of(values, np.full(200, 0.004))
    assert result.projected_by == "empirical Bayes"
    assert result.projected.min() >= 0
    np.testing.assert_allclose(result.projected.sum(), 1, rtol=1e-12)
    assert np.all(np.diff(result.projected[np.argsort(values)]) >= -1e-12)
    assert np.array_equal(result.frequencies, values)  # these stay unbiased
    assert repr(result).endswith("900 answers; projected by empirical Bayes>")


@pytest.mark.parametrize(
    ("labels", "stderr"),
    [(63, 0.004), (64, 0.5 / (64 * empirical_bayes.LARGEST_SIGNAL)), (64, 0.0), (64, np.inf)],
)
def test_the_rule_that_keeps_the_projection(labels, stderr):
    """Few labels, labels that stand out of the noise, and unknown errors."""
    values = noisy(labels, 0.004)
    result = result_of(values, np.full(labels, stderr))
    assert result.projected_by == "projection"
    assert np.array_equal(result.projected, project(values))
    assert repr(result).endswith("900 answers>")


def test_nobody_answered():
    result = result_of(np.full(64, np.nan), np.full(64, np.inf))
    assert np.isnan(result.projected).all()


def test_labels_that_differ_by_chance_alone_become_alike():
    stderr = 0.002
    values = 1 / 500 + stderr * np.random.default_rng(5).normal(size=500)
    shown = result_of(values, np.full(500, stderr)).projected
    assert shown.std() < stderr / 4


def test_labels_far_out_of_the_noise_stay():
    values = np.full(500, 0.0)
    values[:2] = 0.7, 0.3
    shown = result_of(values, np.full(500, 0.002)).projected
    np.testing.assert_allclose(shown[:2], [0.7, 0.3], atol=0.004)


def test_the_prior_has_the_mean_that_frequencies_have():
    rng = np.random.default_rng(8)
    values, stderr = rng.dirichlet(np.full(300, 0.2)), np.full(300, 0.003)
    values = values + stderr * rng.normal(size=300)
    rows = empirical_bayes._DistinctEstimates.of(values, stderr)
    assert rows.counts.sum() == 300
    np.testing.assert_allclose(rows.counts @ rows.values, values.sum())
    prior = empirical_bayes._NormalMixture.fitted(rows, 0.003, 300, 0.0)
    np.testing.assert_allclose(prior.weights.sum(), 1)
    np.testing.assert_allclose(prior.weights @ prior.centres, 1 / 300, rtol=1e-4)


def test_posterior_means_are_those_of_the_definition():
    """By numerical integration over one frequency."""
    prior = empirical_bayes._NormalMixture(
        np.array([0.0, 0.01, 0.05]), np.array([0.0, 4e-6, 1e-4]), np.array([0.5, 0.3, 0.2]), 0.0
    )
    frequencies = np.linspace(-0.1, 0.2, 600_001)
    step = frequencies[1] - frequencies[0]

    def density(centre, variance):
        return np.exp(-((frequencies - centre) ** 2) / 2 / variance) / np.sqrt(2 * np.pi * variance)

    laws = [np.where(np.abs(frequencies) < step / 2, 1 / step, 0.0)]
    laws += [density(0.01, 4e-6), density(0.05, 1e-4)]
    for value in (-0.004, 0.006, 0.03):
        posterior = (prior.weights @ np.array(laws)) * density(value, 0.003**2)
        expected = posterior @ frequencies / posterior.sum()
        found = prior.posterior(np.array([value]), np.array([0.003]))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_many_labels_in_blocks(monkeypatch):
    values, stderr = noisy(900, 0.003), np.full(900, 0.003)
    whole = empirical_bayes.posterior_means(values, stderr)
    monkeypatch.setattr(empirical_bayes, "_BLOCK", 128)
    np.testing.assert_allclose(empirical_bayes.posterior_means(values, stderr), whole, rtol=1e-12)


def test_levels_of_epsilon_that_are_combined():
    rng = np.random.default_rng(6)
    frequencies = shapes(100, rng)["power 1.0"]
    levels = [
        Plan(Schema.of(label=[str(i) for i in range(100)]), epsilon=epsilon)
        for epsilon in (1.0, 2.0)
    ]
    estimates = []
    for plan in levels:
        (part,) = plan.parts
        labels = rng.multinomial(20_000, frequencies)
        counters = codes_of(part.coders[0], labels[None], rng)
        estimates.append(Tally("", (part,), 20_000, (counters[0],)).estimate())
    both = combine_estimates(*estimates)["label"]
    assert both.projected_by == "empirical Bayes"
    error = [np.sum((each["label"].projected - frequencies) ** 2) for each in estimates]
    assert np.sum((both.projected - frequencies) ** 2) < min(error)
