"""pfl: its Laplace mechanism as local privacy, alone and in its simulator.

Its noise has the scale bound / epsilon. Two vehicles can differ by twice the bound, so that what a
vehicle sends is then 2 epsilon-private: it is asked for half of epsilon here. The server's steps
are those of fedldp, so that the answers of the vehicles are all that differs.
"""

from itertools import count

import numpy as np
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import FederatedAlgorithm
from pfl.common_types import Population
from pfl.context import CentralContext
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.metrics import Metrics
from pfl.model.base import Model
from pfl.privacy.laplace_mechanism import LaplaceMechanism
from pfl.stats import MappedVectorStatistics
from work import Task, Work

from fedldp.learn.optimizer import Adam, Recipe, State, step

PACKAGES = ("pfl",)


def tasks(work: Work) -> dict[str, Task]:
    return {
        "mean": Task(20_000, mean(work, 20_000)),
        "training": Task(20_000, training(work, 20_000)),
    }


def mean(work: Work, vehicles: int):
    mechanism, x = LaplaceMechanism(1.0, work.epsilon / 2), work.numbers(vehicles)

    def noisy(number: float) -> float:
        found, _ = mechanism.privatize(MappedVectorStatistics({"x": np.array([number])}))
        return found["x"][0]

    return lambda: work.means([noisy(each) for each in x])


class Weights(Model):
    """A model of which only the algorithm knows what it is."""

    def __init__(self, dimensions: int) -> None:
        self.state = State.start(np.zeros(dimensions))

    def save(self, dir_path: str) -> None:
        raise NotImplementedError

    def load(self, dir_path: str) -> None:
        raise NotImplementedError

    def apply_model_update(self, statistics):
        raise NotImplementedError


class LogisticSteps(FederatedAlgorithm):
    """FedSGD: a vehicle's gradient of the logistic loss; a step for each cohort."""

    def __init__(self, rounds: int, cohort: int, recipe: Recipe) -> None:
        super().__init__()
        self._rounds, self._cohort, self._recipe = rounds, cohort, recipe

    def get_next_central_contexts(
        self, model, iteration, algorithm_params, model_train_params, model_eval_params=None
    ):
        if iteration == self._rounds:
            return None, model, Metrics()
        context = CentralContext(
            current_central_iteration=iteration,
            do_evaluation=False,
            cohort_size=self._cohort,
            population=Population.TRAIN,
            algorithm_params=algorithm_params,
            model_train_params=model_train_params,
            model_eval_params=model_eval_params,
        )
        return (context,), model, Metrics()

    def simulate_one_user(self, model, user_dataset, central_context):
        x, y = user_dataset.raw_data
        slope = -y / (1 + np.exp(y * (x @ model.state.weights[0])))
        return MappedVectorStatistics({"gradient": slope * x}), Metrics()

    def process_aggregated_statistics(self, central_context, aggregate_metrics, model, statistics):
        gradient = statistics["gradient"][None] / central_context.cohort_size
        model.state = step(self._recipe, model.state, gradient)
        return model, Metrics()


def training(work: Work, vehicles: int):
    x, y = work.examples(vehicles)
    cohort, recipe = work.asked["group"], Recipe(Adam(work.asked["rate"]))
    bound = x.shape[1] / 2  # the largest L1 norm of a gradient at the start
    mechanism = LaplaceMechanism(bound, work.asked["train_epsilon"] / 2)

    def run() -> list[float]:
        order = count()
        data = FederatedDataset(
            lambda number: Dataset((x[number], y[number]), user_id=str(number)),
            lambda: next(order),
        )
        backend = SimulatedBackend(data, data, postprocessors=[mechanism])
        algorithm = LogisticSteps(vehicles // cohort, cohort, recipe)
        model = algorithm.run(
            None, backend, Weights(x.shape[1]), None, send_metrics_to_platform=False
        )
        return model.state.average[0].tolist()

    return run
