"""`make references`: default trainings beside what solvers reach that hold all data, unprotected.

    python benchmarks/references.py linear [--diamonds FILE] [--write docs/learning.md]
    python benchmarks/references.py features [--path FILE] [--diamonds FILE] \
      [--write docs/networks.md]

`linear` trains linear models on the flights and the diamonds. A seed decides what is held out (a
tenth), the order in which vehicles are asked, and the noise. `features` trains a softmax on fixed
features of the windows of `networks.py`, SYNTHETIC gaits and WISDM 2019, and on the columns of the
diamonds; runs differ in their noise. `--path` and `--diamonds` are as in `networks.py`; without
these files there are no such rows. All options are the library's defaults.

Converged is the linear model with the least loss; boosted trees are scikit-learn's
`HistGradientBoosting` with its default settings. Both see the features that the library makes of a
row, without noise. Errors are shares of wrong answers, or mean squared errors on the scale of
[-1, 1], with their standard errors.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import flights
import networks
import numpy as np
from flights import EPSILONS, Parts, with_error
from pages import Table, busy, machine, options, publish
from rich.progress import track
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedldp
from fedldp.datasets import Dataset
from fedldp.learn import Convolutions, Window, WindowStatistics
from fedldp.learn.features import written_out
from fedldp.learn.settings import Settings

HEADINGS = [*(f"ε = {epsilon:g}" for epsilon in EPSILONS), "converged", "boosted trees"]
EXPENSIVE = 2500  # a price near the median of the diamonds
WINDOW = Window(channels=3, length=networks.LENGTH, low=-2, high=2)  # in g
Errors = dict[str, list[list[float]]]  # of each column, those of the runs


def arrays(data: Dataset, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of all rows and their targets, as the objective takes them."""
    features, targets = data.examples(kind).read(slice(None))
    return written_out(features)[:, :-1], targets


def boosted_trees(parts: Parts, kind: str) -> float:
    """Return the error of boosted trees."""
    (x, y), (tested, targets) = (arrays(part, kind) for part in parts)
    if kind == "squared":
        found = HistGradientBoostingRegressor(random_state=0).fit(x, y).predict(tested)
        return float(np.mean((found - targets) ** 2))
    model = HistGradientBoostingClassifier(random_state=0).fit(x, y)
    return float(1 - model.score(tested, targets))


def converged_softmax(parts: Parts) -> float:
    """Return the error of a softmax that a solver fits."""
    (x, y), (tested, targets) = (arrays(part, "softmax") for part in parts)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1e4, max_iter=1000)).fit(x, y)
    return float(1 - model.score(tested, targets))


# Linear models


def priced(path: Path, seed: int) -> Parts:
    """Return diamonds that are expensive or not, each a vehicle, and a tenth that is held out."""
    whole = networks.diamond_table(path)
    price = whole.columns[whole.schema.names.index("price")]
    attributes = [each for each in whole.schema.attributes if each.name != "price"]
    columns = [whole.columns[whole.schema.names.index(each.name)] for each in attributes]
    schema = fedldp.Schema((*attributes, fedldp.Category("expensive", ["no", "yes"])))
    columns.append((price > EXPENSIVE).astype(np.uint8))
    data = Dataset(whole.about, schema, tuple(columns), {"logistic": "expensive"}, reference="none")
    order, held = np.argsort(fedldp.source(seed).words(len(data))), len(data) // 10
    return data.take(order[held:]), data.take(order[:held])


def linear_rows(seed: int, path: Path | None) -> Iterator[tuple[str, str, Parts]]:
    """Yield what is trained with a seed: its name, the objective and the data."""
    fleet, test = flights.parts_of(seed, vehicles=1 << 40)
    yield "flights, logistic", "logistic", (fleet, test)
    part = fleet.take(np.arange(len(fleet) // 16))
    yield "flights, a sixteenth of the vehicles", "logistic", (part, test)
    yield "flights, linear regression, mean squared error", "squared", (fleet, test)
    yield "flights, SVM", "hinge", (fleet, test)
    if path is not None:
        yield f"diamonds, price above {EXPENSIVE:,}", "logistic", priced(path, seed)


def linear(seeds: range, path: Path | None) -> Table:
    """Return a row for each linear model."""
    errors: Errors = {}
    for seed in track(seeds, "Training", transient=True):
        for name, kind, parts in linear_rows(seed, path):
            found = [flights.trained(Settings(each), parts, kind, seed) for each in EPSILONS]
            found += [flights.converged(parts, kind), boosted_trees(parts, kind)]
            errors.setdefault(name, []).append(found)
    return table(f"with {len(seeds)} seeds from {seeds.start}", ["data"], errors)


# Fixed features


def window_parts(fleet: networks.Fleet, maps: Convolutions | WindowStatistics) -> Parts:
    """Return the windows of a fleet, and of the test, as fixed features."""
    labels = fedldp.Category("activity", [str(each) for each in range(fleet.classes)])
    schema = fedldp.Schema((*maps.schema.attributes, labels))
    train, test = (
        networks.table(fleet.title, schema, [*maps.transform(inputs).T, targets], "activity")
        for inputs, targets in (fleet.train, fleet.test)
    )
    return train, test


def feature_rows(given: argparse.Namespace) -> Iterator[tuple[str, Parts]]:
    """Yield what is trained: its name and the data."""
    fleets = [networks.synthetic(given.vehicles)]
    if given.path is not None:
        fleets.append(networks.wisdm(given.path, given.vehicles))
    for fleet in fleets:
        for maps in (Convolutions(WINDOW), WindowStatistics(WINDOW)):
            yield f"{fleet.title}, `{type(maps).__name__}`", window_parts(fleet, maps)
    if given.diamonds is not None:
        yield "diamonds, cut, all columns", networks.diamonds(given.diamonds, given.vehicles)


def features(given: argparse.Namespace) -> Table:
    """Return a row for each kind of features."""
    errors: Errors = {}
    for name, parts in feature_rows(given):
        references = [converged_softmax(parts), boosted_trees(parts, "softmax")]
        for run in track(range(given.seeds), name, transient=True):
            seed = given.first + run
            found = [
                networks.table_error(networks.linear, 0, parts, seed, 1, {"epsilon": epsilon})[1]
                for epsilon in EPSILONS
            ]
            errors.setdefault(name, []).append([*found, *references])
    conditions = f"with {given.vehicles:,} vehicles, in {given.seeds} runs"
    return table(conditions, ["data and features"], errors)


def table(conditions: str, first: list[str], errors: Errors) -> Table:
    """Return a row for each name; what is the same in all runs has no standard error."""
    rows = [
        [
            name,
            *(
                with_error([*column], 4) if len({*column}) > 1 else f"{column[0]:.4f}"
                for column in zip(*runs, strict=True)
            ),
        ]
        for name, runs in errors.items()
    ]
    title = f"Errors {conditions}. The last two columns are without privacy."
    return Table(title, [*first, *HEADINGS], rows)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("what", choices=("linear", "features"))
    parser.add_argument("--path", type=Path, help="the WISDM 2019 file")
    parser.add_argument("--diamonds", type=Path, help="diamonds.csv of the package plotnine")
    parser.add_argument("--vehicles", type=int, default=200_000, help="of fixed features")
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first", type=int, default=2000, help="the first seed")
    given = parser.parse_args()
    where = f"Measured on {machine('scikit-learn')}; {busy()}"
    seeds = range(given.first, given.first + given.seeds)
    made = linear(seeds, given.diamonds) if given.what == "linear" else features(given)
    publish(given.what, [made], where, given.write)


if __name__ == "__main__":
    main()
