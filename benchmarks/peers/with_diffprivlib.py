"""diffprivlib: Laplace noise for one value at a time, and a model for those who hold all data."""

import math
import warnings

import numpy as np
from diffprivlib.mechanisms import ExponentialCategorical, Laplace
from diffprivlib.models import LogisticRegression
from work import Task, Work

PACKAGES = ("diffprivlib", "scikit-learn")


def tasks(work: Work) -> dict[str, Task]:
    vehicles = len(work.examples(None)[0])
    return {
        "mean": Task(20_000, mean(work, 20_000)),
        "response": Task(20_000, response(work, 20_000)),
        "training, by a curator": Task(vehicles, training(work, vehicles)),
    }


def mean(work: Work, vehicles: int):
    noisy, x = Laplace(epsilon=work.epsilon, sensitivity=2.0), work.numbers(vehicles).tolist()
    return lambda: work.means([noisy.randomise(each) for each in x])


def response(work: Work, vehicles: int):
    """With a utility of 1 for any other category, its exponential mechanism is that."""
    names = [str(number) for number in range(work.categories)]
    others = [[a, b, 1.0] for place, a in enumerate(names) for b in names[:place]]
    answer = ExponentialCategorical(epsilon=work.epsilon, utility_list=others)
    own = [names[each] for each in work.own(vehicles)]
    q = 1 / (math.exp(work.epsilon) + len(names) - 1)

    def frequencies(codes: list[str]) -> list[float]:  # which it leaves to the user
        counts = np.bincount([int(code) for code in codes], minlength=len(names))
        return ((counts / len(codes) - q) / (q * math.expm1(work.epsilon))).tolist()

    return lambda: [
        frequencies(part) for part in work.parts([answer.randomise(each) for each in own])
    ]


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
