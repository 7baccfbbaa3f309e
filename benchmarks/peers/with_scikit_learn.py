"""scikit-learn: one pass of stochastic gradient descent, without any privacy."""

from sklearn.linear_model import SGDClassifier
from work import Task, Work

PACKAGES = ("scikit-learn",)


def tasks(work: Work) -> dict[str, Task]:
    vehicles = len(work.examples(None)[0])
    return {"training, no privacy": Task(vehicles, training(work, vehicles))}


def training(work: Work, vehicles: int):
    x, y = work.examples(vehicles)

    def fit() -> list[float]:
        model = SGDClassifier("log_loss", max_iter=1, tol=None, fit_intercept=False, average=True)
        return model.fit(x, y).coef_[0].tolist()

    return fit
