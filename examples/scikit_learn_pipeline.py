"""A private model in a scikit-learn pipeline: it predicts which flights arrive late.

Needs: pip install '.[learn,pandas,parquet]'

python examples/scikit_learn_pipeline.py            # all flights, each a vehicle
python examples/scikit_learn_pipeline.py 50000      # some of them
"""

import sys
import warnings

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import fedldp
from fedldp import datasets

NAMES = ["dep_delay", "distance", "hour", "origin"]


def add_night(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the flights with another column; what a vehicle computes depends on its row alone."""
    return flights.assign(night=(flights["hour"] < 6) | (flights["hour"] > 21))


def pipeline(schema: fedldp.Schema, epsilon: float, seed: int | None = None) -> Pipeline:
    """Return a private model of the columns, after a step that learns nothing from the data."""
    # A MinMaxScaler or a OneHotEncoder would learn bounds or labels from the data. Then what a
    # vehicle sends would depend on the data of all the others, without any noise. The model
    # scales numbers by public bounds, and has a coefficient for each public label.
    bounds = {name: schema[name] for name in NAMES} | {"night": bool}
    model = fedldp.LDPLogisticRegression(epsilon=epsilon, bounds=bounds, random_state=seed)
    return make_pipeline(FunctionTransformer(add_night), model)


def main(rows: int | None = None, seed: int | None = None) -> float:
    """Train, and print how good the model is on flights that were held out."""
    fleet, public = datasets.load("flights", rows=rows).split(0.1)

    def examples(part: datasets.Dataset) -> tuple[pd.DataFrame, pd.Series]:
        return part.frame(NAMES), part.frame(["late"])["late"]

    # fit() asks every vehicle once. A grid search on the fleet would ask them again for each
    # candidate, at a cost each time: search on public data instead.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fedldp.errors.DataWarning)  # a few delays are clipped
        model = pipeline(fleet.schema, epsilon=4.0, seed=seed).fit(*examples(fleet))
    x, late = examples(public)
    right, spent = model.score(x, late), model[-1].privacy_
    print(f"{spent.reports} vehicles, epsilon {float(spent.epsilon):g}, {spent.bits} bits each")
    print(f"always saying on time: {np.mean(late == 'no'):.1%} right")
    print(f"the private model:     {right:.1%} right")
    return float(right)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else None)
