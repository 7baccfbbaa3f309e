"""The data sets that are made: censuses and Gaussian numbers."""

from fractions import Fraction

import numpy as np
import pytest
from origins import check_about, check_features, check_generated
from scipy import stats

from fedldp import datasets, source
from fedldp.datasets.dataset import seeded_source
from fedldp.errors import DomainError
from fedldp.schema.attributes import Category
from fedldp_reproduction.datasets import census, gaussian

MADE = [name for name in datasets.names() if datasets.origin(name).generated]


@pytest.mark.parametrize("name", MADE)
def test_a_made_up_set_is_what_it_promises(name):
    check_about(name)
    check_features(name)
    check_generated(name)
    # It does not share the words of a simulation.
    assert not np.array_equal(seeded_source(name, 7).words(4), source(7).words(4))


def test_which_sets_are_made():
    censuses = {"br", "mx", "br-skewed", "mx-skewed", "br-rich"}
    numbers = {each.name for each in (*gaussian.SETS, *gaussian.CLIPPED)}
    assert set(MADE) == censuses | numbers
    for name in datasets.names():
        about = datasets.about(name)
        assert about.synthetic == ("SYNTHETIC" in about.title) == (name in MADE)


def test_what_cannot_be_made_is_refused():
    with pytest.raises(DomainError, match="leave the path out"):
        datasets.load("br", "x")
    with pytest.raises(DomainError, match="whole number"):
        datasets.load("br", rows=1, seed="x")
    with pytest.raises(DomainError, match="gaussian-0 has no target for 'squared'"):
        datasets.load("gaussian-0", rows=1).examples("squared")


@pytest.mark.parametrize("each", gaussian.SETS, ids=lambda each: each.name)
def test_gaussian_sets_are_truncated_and_not_clipped(each):
    values = each.make(2000, seed=1).matrix()
    assert values.shape == (2000, 16)
    assert np.abs(values).max() <= 1
    mean = float(each.mean)
    law = stats.truncnorm((-1 - mean) * 4, (1 - mean) * 4, mean, 0.25)
    # A false alarm in 10^6, had the seed not been fixed.
    assert stats.kstest(values.reshape(-1), law.cdf).pvalue > 1e-6
    assert abs(np.corrcoef(values.T) - np.eye(16)).max() < 0.15


def test_clipped_gaussian_sets_have_values_at_the_bound():
    for each in gaussian.CLIPPED:
        values = each.make(4000, seed=1).matrix()
        share = stats.norm.sf((1 - float(each.mean)) * 4)
        assert (values == 1).mean() == pytest.approx(share, abs=0.01)  # of 64,000 values
        assert values.max() == 1


def test_skewed_incomes_lie_near_the_bound():
    plain, skewed = (census.BR.make(5000, 1), census.BR_SKEWED.make(5000, 1))
    scaled = [
        each.schema["income"].inputs.of(each.matrix(slice(None), ("income",)))[:, 0]
        for each in (plain, skewed)
    ]
    assert np.median(scaled[1]) < -0.98 < np.median(scaled[0]) < 0.5
    assert scaled[1].max() > np.median(scaled[1]) + 0.02  # a long tail
    assert 0.2 < skewed.matrix(slice(None), ("high_income",)).mean() < 0.6
    rich = census.BR_RICH.make(5000, 1).matrix(slice(None), ("high_income",)).mean()
    assert 0.02 < rich < plain.matrix(slice(None), ("high_income",)).mean()


def test_the_gaussian_sets_have_the_means_of_the_paper():
    assert [each.mean for each in gaussian.SETS] == [0, Fraction(1, 3), Fraction(2, 3), 1]


@pytest.mark.parametrize(
    ("made", "numbers", "categories", "labels", "dimensions"),
    [(census.BR, 6, 10, 94, 90), (census.MX, 5, 14, 103, 94)],
    ids=["br", "mx"],
)
def test_a_census_has_the_shape_of_the_paper(made, numbers, categories, labels, dimensions):
    asked = made.make(10, seed=0).asked
    sizes = [len(each.categories) for each in asked.attributes if isinstance(each, Category)]
    assert len(asked) - len(sizes) == numbers
    assert len(sizes) == categories
    assert sum(sizes) == labels
    # The income is not a feature, and the constant is one: as many as the paper counts.
    assert numbers + labels - categories == made.make(10, seed=0).dimensions == dimensions


@pytest.mark.parametrize("made", [census.BR, census.MX], ids=["br", "mx"])
def test_a_census_can_be_learned_but_not_memorized(made):
    data = made.make(40_000, seed=1)
    assert all(len(np.unique(column)) > 1 for column in data.columns)
    features, incomes = data.examples("squared").read(slice(None))
    known, new = slice(30_000), slice(30_000, None)
    weights = np.linalg.lstsq(features[known], incomes[known], rcond=None)[0]
    left = np.mean((features[new] @ weights - incomes[new]) ** 2) / incomes[new].var()
    assert 0.2 < left < 0.6
    high = data.examples("logistic").read(slice(None))[1]
    weights = np.linalg.lstsq(features[known], high[known], rcond=None)[0]
    errors = np.mean(np.sign(features[new] @ weights) != high[new])
    assert 0.1 < errors < 0.6 * np.mean(high > 0)
    assert 0.3 < np.mean(high > 0) < 0.5


@pytest.mark.parametrize("made", [census.BR, census.MX], ids=["br", "mx"])
def test_traits_hang_together(made):
    data = made.make(20_000, seed=1)
    matrix = data.matrix(names=["education", "occupation", "religion", "sex"])
    together = np.corrcoef(matrix.T)
    assert together[0, 1] > 0.2
    assert abs(together[2, 3]) < 0.05


def test_the_far_ends_of_chance_give_labels_too():
    trait = census.BR.traits[5]
    ends = np.array([2.0**-53, 1 - 2.0**-53])
    for number in range(6):
        drawn = trait.draw(np.full(2, number), ends)
        assert drawn.tolist() == [0, 26]
