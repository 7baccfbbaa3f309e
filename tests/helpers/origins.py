"""Data sets of the tests' own, registered as another package would, and what all sets promise."""

from typing import NamedTuple

import numpy as np

from fedldp import Schema, datasets
from fedldp.datasets import About, Dataset, Generated, Origin, registry
from fedldp.datasets.dataset import seeded_source

SCHEMA = Schema.of(speed=(-1, 1), city=["Oslo", "Rome"], minutes=(-1, 1), late=["no", "yes"])
TARGETS = {"logistic": "late", "hinge": "late", "squared": "minutes"}
ABOUT = About(
    name="toy",
    title="SYNTHETIC trips",
    source="made for a test",
    licence="Apache-2.0",
    citation="None.",
    rows=2000,
    dimensions=3,
    synthetic=True,
)


def toy(rows, seed):
    """Make trips that last the longer, the slower they are, and in Rome."""
    drawn = seeded_source("toy", seed).uniform((rows, 2))
    speeds, cities = 2 * drawn[:, 0] - 1, (drawn[:, 1] > 0.5).astype(np.uint8)
    minutes = 0.4 * cities - 0.5 * speeds
    columns = speeds, cities, minutes, (minutes > 0).astype(np.uint8)
    return Dataset(ABOUT, SCHEMA, columns, TARGETS, derived=("late",))


TOY = Generated(ABOUT, toy)


class _Entry(NamedTuple):
    """What an entry point does."""

    origin: Origin

    def load(self):
        return self.origin


def register(monkeypatch, **origins):
    """Have these data sets registered, and no others."""
    entries = {name: _Entry(origin) for name, origin in origins.items()}
    monkeypatch.setattr(registry, "_entry_points", lambda: entries)


def check_about(name):
    """What is said about a data set is true."""
    data, about = datasets.load(name, rows=200), datasets.about(name)
    assert data.about == about
    assert (data.name, data.title, data.dimensions) == (name, about.title, about.dimensions)
    assert len(data) == 200
    assert about.licence
    assert about.citation
    assert about.source
    assert about.rows
    assert about.synthetic == ("SYNTHETIC" in about.title) == datasets.origin(name).generated


def check_features(name):
    """Features are on the scale of [-1, 1] and end with the constant, whatever rows are read."""
    data = datasets.load(name, rows=200)
    for objective in data.targets:
        examples = data.examples(objective)
        features, targets = examples.read(slice(20, 120))
        assert features.shape == (100, examples.dimensions)
        assert features.dtype == np.float32
        assert features.flags.c_contiguous
        assert np.abs(features).max() <= 1
        assert (features[:, -1] == 1).all()
        assert targets.shape == (100,)
        assert targets.dtype == np.float64
        assert np.abs(targets).max() <= 1
        rows = np.array([119, 20, 20])
        again = examples.read(rows)
        assert np.array_equal(again[0], features[rows - 20])
        assert np.array_equal(again[1], targets[rows - 20])


def check_generated(name):
    """Fewer rows are the first of more, and another seed gives others."""
    many = datasets.load(name, rows=(1 << 16) + 5, seed=3)  # more than one chunk
    for rows in (1, 1000, (1 << 16) + 1):
        few = datasets.load(name, rows=rows, seed=3)
        assert np.array_equal(few.matrix(), many.matrix(slice(rows)))
    other = datasets.load(name, rows=1000, seed=4)
    assert not np.array_equal(other.matrix(), many.matrix(slice(1000)))
