"""diffprivlib: Laplace noise for one value at a time, and a model for those who hold all data."""

import math
import warnings

from diffprivlib.mechanisms import Laplace
from diffprivlib.models import LogisticRegression
from work import Task, Work

PACKAGES = ("diffprivlib", "scikit-learn")


def tasks(work: Work) -> dict[str, Task]:
    vehicles = len(work.examples(None)[0])
    return {
        "mean": Task(20_000, mean(work, 20_000)),
        "training, by a curator": Task(vehicles, training(work, vehicles)),
    }


def mean(work: Work, vehicles: int):
    noisy, x = Laplace(epsilon=work.epsilon, sensitivity=2.0), work.numbers(vehicles).tolist()
    return lambda: work.means([noisy.randomise(each) for each in x])


def training(work: Work, vehicles: int):
    x, y = work.examples(vehicles)
    norm = math.sqrt(x.shape[1])  # of the longest row there can be

    def fit() -> list[float]:
        model = LogisticRegression(
            epsilon=work.asked["train_epsilon"], data_norm=norm, fit_intercept=False
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(x, y).coef_[0].tolist()

    return fit
