"""Why gradients need noise: a clipped gradient tells the row it comes from, and reports do not.

The gradient of a linear model is a slope times the features, and one feature is the constant. So
each feature is the quotient of two numbers of the gradient, and the slope's sign tells the label:
anyone who receives the gradient has the row. Clipping each number to [-1, 1] changes nothing, since
features and slopes of a logistic regression lie there.

A report is one number of the gradient through Three-Outputs, as in the paper. What it says about
the row is told by the best attack there is: an attacker who knows all rows of a fleet, and that one
of them has sent the report, names the row with the largest likelihood. However the attacker
chooses, the chance to be right is at most e^epsilon times that of guessing.
"""

from dataclasses import replace
from functools import cache
from math import exp, sqrt
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from fedldp import datasets, source
from fedldp._internal.validation import Floats
from fedldp.learn.features import written_out
from fedldp.learn.objectives import objective
from fedldp.mechanisms import mechanism
from fedldp_reproduction.results import ClaimVerdict, FigureResult, Point
from fedldp_reproduction.theory.checks import result

EPSILONS = (4.0, 2.0, 1.0)
_ROWS = 1000  # of the fleet that the attacker knows
_SEED = 1
_MECHANISM = "three-outputs"
_ROUNDING = 1e-5


@final
class Fleet(NamedTuple):
    """The rows of a fleet, as a model sees them, and the gradients that they lead to."""

    features: Floats
    targets: Floats
    gradients: Floats
    title: str
    line: str


@cache
def fleet() -> Fleet:
    """Return a fleet of made-up people, and their first gradients of a logistic regression."""
    data = replace(datasets.load("br", rows=_ROWS, seed=_SEED), reference="last")
    found, targets = data.examples("logistic").read(slice(None))
    features = written_out(found).astype(np.float64)
    weights = 2 * source(_SEED).uniform(features.shape[1]) - 1  # any model that the server sends
    slopes = objective("logistic").slope(features @ weights, targets)
    gradients = np.clip(slopes[:, None] * features, -1, 1)
    about = data.about
    line = f"{about.title}: {len(data):,} rows. License: {about.licence}. {about.note}"
    return Fleet(features, targets, gradients, about.title, line)


def reconstructed(gradients: Floats) -> tuple[Floats, Floats]:
    """Return the features and labels that gradients of a logistic regression come from.

    The last feature is the constant 1, whose gradient is the slope.

    >>> reconstructed(np.array([[-0.1, 0.05, 0.2]]))
    (array([[-0.5 ,  0.25,  1.  ]]), array([-1.]))
    """
    slopes = gradients[:, -1:]
    return gradients / slopes, -np.sign(slopes[:, 0])


def named(epsilon: float, gradients: Floats) -> float:
    """Return the chance that the best attacker names the row that a report comes from.

    It is exact: over all rows, coordinates and outputs. Of rows that are equally likely one is
    named by chance.
    """
    channel = mechanism(_MECHANISM, epsilon)
    n, d = gradients.shape
    right = 0.0
    for column in gradients.T:
        laws: npt.NDArray[np.float64] = channel.probabilities(column)
        # The attacker names the likeliest row, and is right as often as this row sent the output.
        right += float(laws.max(axis=0).sum()) / (n * d)
    return right


def missed(epsilon: float, gradients: Floats, features: Floats) -> float:
    """Return the error of the best reconstruction of a row's features from its report.

    It is a root mean square, over rows and features. The attacker knows all rows, and takes the
    mean of their features, weighted by how likely each row sends this report: the least error that
    any reconstruction has.
    """
    channel = mechanism(_MECHANISM, epsilon)
    n, d = gradients.shape
    explained = 0.0  # of the mean square of a row
    for column in gradients.T:
        laws: npt.NDArray[np.float64] = channel.probabilities(column)
        total = laws.sum(axis=0)
        means = laws.T @ features / total[:, None]
        explained += float((total * (means**2).sum(axis=1)).sum()) / (n * d)
    square = float((features**2).sum(axis=1).mean())
    return sqrt((square - explained) / features.shape[1])


def guessed(epsilon: float, gradients: Floats, targets: Floats) -> float:
    """Return the chance that the best attacker guesses the label of the row of a report.

    The attacker knows how many rows have which label, and is right at least as often as the more
    frequent one is.
    """
    channel = mechanism(_MECHANISM, epsilon)
    n, d = gradients.shape
    right = 0.0
    for column in gradients.T:
        laws: npt.NDArray[np.float64] = channel.probabilities(column)
        by_label = [laws[targets == label].sum(axis=0) for label in (-1, 1)]
        right += float(np.max(by_label, axis=0).sum()) / (n * d)
    return right


def leak() -> FigureResult:
    """Return how often a row is named from what its vehicle sends."""
    people = fleet()
    n, guess = len(people.features), 1 / len(people.features)
    features, labels = reconstructed(people.gradients)
    error = float(np.abs(features - people.features).max())
    exact = error < _ROUNDING and bool((labels == people.targets).all())
    same = len(np.unique(people.gradients.round(6), axis=0)) == n
    chances = {epsilon: named(epsilon, people.gradients) for epsilon in EPSILONS}
    bounds = {epsilon: min(1.0, exp(epsilon) * guess) for epsilon in EPSILONS}
    labelled = {each: guessed(each, people.gradients, people.targets) for each in EPSILONS}
    curves = {
        "clipped gradient": dict.fromkeys(EPSILONS, 1.0 if exact and same else guess),
        "at most: e^ε / rows": bounds,
        "report": chances,
        "guess": dict.fromkeys(EPSILONS, guess),
    }
    drawn = tuple(
        Point("", name, each, curve[each], None, None, 0)
        for name, curve in curves.items()
        for each in sorted(EPSILONS)
    )
    misses = {each: missed(each, people.gradients, people.features) for each in EPSILONS}
    spread = sqrt(float(people.features.var(axis=0).mean()))  # of those who guess the mean
    majority = float(max((people.targets > 0).mean(), (people.targets < 0).mean()))
    told = "100%" if exact and same else "not all"
    rows = (
        ("What a vehicle sends", "Rows named", "At most", "Labels guessed", "Error of features"),
        ("its clipped gradient", told, "100%", told, f"{error:.2f}"),
        *(
            (
                f"a report with ε = {each:g}",
                f"{chances[each]:.2%}",
                f"{bounds[each]:.2%}",
                f"{labelled[each]:.1%}",
                f"{misses[each]:.3f}",
            )
            for each in EPSILONS
        ),
        ("nothing", f"{guess:.2%}", f"{guess:.2%}", f"{majority:.1%}", f"{spread:.3f}"),
    )
    found = result(
        "leak",
        "What a gradient tells about a row, and what a report tells",
        "beyond the paper: the motive of its introduction",
        drawn,
        (
            ClaimVerdict(
                "A clipped gradient reveals the row it comes from (beyond the paper)",
                exact,
                f"Each of {n:,} rows follows from its gradient, to within {error:.0e} in every "
                "feature, and its label too.",
                "" if exact else "Some rows follow from their gradients.",
                beyond=True,
            ),
            ClaimVerdict(
                "A report does not reveal the row it comes from, at ε = 4, 2 and 1 (beyond the "
                "paper)",
                all(chances[each] <= bounds[each] for each in EPSILONS),
                "The best attacker, who knows all rows, names the right one in "
                + ", ".join(f"{chances[each]:.2%} at ε = {each:g}" for each in EPSILONS)
                + f" of the cases; a guess is right in {guess:.2%}. The label is guessed in "
                + ", ".join(f"{labelled[each]:.1%}" for each in EPSILONS)
                + f"; without a report in {majority:.1%}. The best reconstruction of a row has an "
                "error of "
                + ", ".join(f"{misses[each]:.3f}" for each in EPSILONS)
                + f" in a feature (root mean square); the mean of all rows has {spread:.3f}.",
                beyond=True,
            ),
        ),
        (
            f"{n:,} rows with {people.features.shape[1]} features; logistic regression, any model",
            "report: one coordinate through Three-Outputs, as in the paper for ε below 5",
            "the chances are exact, over all rows, coordinates and outputs, for the best attacker, "
            "who knows all rows of the fleet",
        ),
        y_label="chance to name the row",
        y_log=True,
        table=rows,
    )
    return replace(found, data=(people.line,), synthetic=True)
