"""A private model in a scikit-learn pipeline: it predicts which flights arrive late.

Needs: pip install '.[learn,parquet]'

python examples/scikit_learn_pipeline.py            # all flights, each a vehicle
python examples/scikit_learn_pipeline.py 50000      # some of them
"""

import sys
import warnings

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import fedldp
from fedldp import datasets

NAMES = ("dep_delay", "distance", "hour", "origin")


def pipeline(schema: fedldp.Schema, epsilon: float, seed: int | None = None) -> Pipeline:
    """Return an encoder and a model; neither is fitted to private data without noise."""
    *numbers, origin = (schema[name] for name in NAMES)
    # The encoder is given its categories. If it learned them, or a MinMaxScaler its range, then
    # what a vehicle sends would depend on the data of all the others, without any noise.
    codes = list(range(len(origin.categories)))
    columns = make_column_transformer(
        (OneHotEncoder(categories=[codes], sparse_output=False), [len(numbers)]),
        remainder="passthrough",
    )
    # The model scales its features by public bounds, and clips values outside them.
    low = [0.0 for _ in codes] + [each.low for each in numbers]
    high = [1.0 for _ in codes] + [each.high for each in numbers]
    model = fedldp.LDPLogisticRegression(epsilon=epsilon, bounds=(low, high), random_state=seed)
    return make_pipeline(columns, model)


def main(rows: int | None = None, seed: int | None = None) -> float:
    """Train, and print how good the model is on flights that were held out."""
    fleet, public = datasets.load("flights", rows=rows).split(0.1)
    late = np.array(["on time", "late"])

    def examples(part: datasets.Dataset) -> tuple[np.ndarray, np.ndarray]:
        answers = part.matrix(names=("late",))[:, 0].astype(int)
        return part.matrix(names=NAMES), late[answers]

    # fit() asks every vehicle once. A grid search on the fleet would ask them again for each
    # candidate, at a cost each time: search on public data instead.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedldp.errors.DataWarning)  # a few delays are clipped
        model = pipeline(fleet.schema, epsilon=4.0, seed=seed).fit(*examples(fleet))
    right, spent = model.score(*examples(public)), model[-1].privacy_
    print(f"{spent.reports} vehicles, epsilon {float(spent.epsilon):g}, {spent.bits} bits each")
    print(f"always saying on time: {np.mean(examples(public)[1] == 'on time'):.1%} right")
    print(f"the private model:     {right:.1%} right")
    return float(right)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
