"""An integer of NumPy is an integer, wherever an argument is one: the result is the same."""

import tempfile

import numpy as np
import pytest

import fedldp
from fedldp import Plan, Schema, datasets, learn
from fedldp.baselines import comparison
from fedldp.baselines.distributions import HierarchicalHistogram, SquareWave
from fedldp.baselines.frequencies import FREQUENCY_ORACLES
from fedldp.baselines.means import PrivUnitG, ProjUnit
from fedldp.coders import CubeCoder, DirectionsCoder, Lines, RandomizedResponse, UnaryEncoding
from fedldp.learn import objective
from fedldp.learn.layers import Conv, Dense, LogVariance, Pool
from fedldp.learn.objectives import Softmax
from fedldp.mechanisms import Dominant, Optimal
from fedldp.plan.advice import advise

SCHEMA = Schema.of(speed=(0, 130), weight=(0, 9), model=["a", "b", "c"])
VECTOR = Schema.vector(4, length=1.0)
PLAN = Plan(SCHEMA, 1.0)
ROWS = [{"speed": 50, "weight": 3, "model": "a"}] * 20
X, Y = fedldp.source(1).uniform((300, 2)), np.arange(300) % 3


def answered_in_a_period(integer):
    calendar = fedldp.Calendar(PLAN, integer(3), integer(3))
    with fedldp.Ledger.create(tempfile.mkdtemp() + "/ledger.db", cap=integer(3)) as ledger:
        vehicle = fedldp.Vehicle(ledger, "car-7")
        answer = vehicle.answer_period(calendar, integer(2), ROWS[0])
        return len(answer.report), ledger.spent("car-7")


def network(integer):
    layers = Conv(integer(4), integer(5), integer(2)), Pool(integer(2), integer(2), "max")
    made = learn.Network(
        (integer(3), integer(64)), (*layers, LogVariance(integer(1))), Softmax(integer(6))
    )
    return made.to_json(), made.start(seed=integer(1)).tolist()


def trained(integer):
    model = fedldp.LDPLogisticRegression(
        epsilon=integer(4), bounds=(0, 1), max_iter=integer(3), random_state=integer(1)
    )
    return model.fit(X, Y).coef_.tolist()


def layers_trained(integer):
    model = fedldp.LDPMLPClassifier(
        epsilon=4.0, bounds=(0, 1), hidden_layer_sizes=(integer(3),), random_state=integer(1)
    )
    return model.fit(X, Y).predict(X).tolist()


MADE = {
    "Softmax": lambda i: Softmax(i(6)),
    "with_outputs": lambda i: (
        objective("softmax").with_outputs(i(3)),
        objective("squared").with_outputs(i(1)),
    ),
    "Sample": lambda i: Plan(SCHEMA, i(1), fedldp.Sample(k=i(2), outputs=i(5))).to_json(),
    "Directions": lambda i: Plan(VECTOR, i(1), fedldp.Directions(fleet=i(1000))).to_json(),
    "Split": lambda i: Plan(SCHEMA, i(2), fedldp.Split(outputs=i(5))).to_json(),
    "vector": lambda i: Schema.vector(i(4), i(1)).to_toml(),
    "bins": lambda i: Schema.of(x={"low": i(0), "high": i(9), "bins": i(5)}).to_toml(),
    "size": lambda i: Schema.of(x={"low": i(0), "high": i(1), "size": i(5)}).to_toml(),
    "Number": lambda i: Plan(Schema.of(x=(i(0), i(9))), 1.0).to_json(),
    "BinnedNumber": lambda i: fedldp.BinnedNumber.of("x", i(0), i(9), bins=i(16)),
    "Calendar": lambda i: fedldp.Calendar(PLAN, i(4), i(2)).to_json(),
    "period": answered_in_a_period,
    "RandomizedResponse": lambda i: RandomizedResponse.of(i(1), i(4)),
    "UnaryEncoding": lambda i: UnaryEncoding.of(i(1), i(4)),
    "Lines": lambda i: Lines.of(i(1), i(4)),
    "DirectionsCoder": lambda i: DirectionsCoder.of(i(1), i(4), directions=i(63), fleet=i(1000)),
    "CubeCoder": lambda i: CubeCoder.of(i(1), i(4)),
    "channel": lambda i: fedldp.mechanism("pm", i(1)).channel(i(31)).to_json(),
    "Optimal": lambda i: Optimal(i(1), i(5)).channel().to_json(),
    "Dominant": lambda i: Dominant(i(1), i(5)).channel().to_json(),
    "source": lambda i: fedldp.source(i(3)).uniform(i(3)).tolist(),
    "expect": lambda i: (PLAN.expect(i(1000)), PLAN.expected_error(i(1000))),
    "count": lambda i: PLAN.count(
        [PLAN.report(ROWS, fedldp.source(1)).to_bytes()], most_listed=i(5)
    ).tally.to_json(),
    "vehicles_for": lambda i: PLAN.vehicles_for(speed=i(9)),
    "advise": lambda i: advise(SCHEMA, i(1000)).sentences,
    "shuffled_epsilon": lambda i: fedldp.shuffled_epsilon(i(1), i(1000), 1e-9),
    "forecast": lambda i: str(learn.forecast(SCHEMA, i(1), i(1000))),
    "Settings": lambda i: (
        learn.Settings(i(4), group=i(10), max_iter=i(3), participations=i(2)).plan(i(4)).to_json()
    ),
    "group_size": lambda i: learn.Settings(i(4)).group_size(i(4), i(1000)),
    "paper": lambda i: learn.Settings.paper(i(4), group=i(10), outputs=i(5)).plan(i(4)).to_json(),
    "Dense": lambda i: learn.Network((i(5),), (Dense(i(3)),), Softmax(i(2))).to_json(),
    "perceptron": lambda i: learn.Network.perceptron(i(5), Softmax(i(2)), hidden=(i(3),)).to_json(),
    "Network": network,
    "Window": lambda i: learn.Convolutions(
        learn.Window(i(3), i(64), low=i(-2), high=i(2)), i(10), i(0)
    ).schema.to_toml(),
    "QuantileSearch": lambda i: learn.QuantileSearch(
        fedldp.Number("speed", 0, 130), 0.5, epsilon=i(1), vehicles=i(5000)
    ).plan.to_json(),
    "LDPLogisticRegression": trained,
    "LDPMLPClassifier": layers_trained,
    "load": lambda i: len(datasets.load("flights", rows=i(100))),
    "oracles": lambda i: [oracle(i(1), i(8)) for oracle in FREQUENCY_ORACLES],
    "vectors": lambda i: [PrivUnitG(i(1), i(20)), ProjUnit(i(1), i(20))],
    "histograms": lambda i: [SquareWave(i(1), i(16)), HierarchicalHistogram(i(1), i(16))],
    "compare": lambda i: [
        (row.mechanism, row.worst) for row in comparison.compare_categories([i(1)], i(8))
    ],
}


@pytest.mark.parametrize("kind", [np.int64, np.int16])
@pytest.mark.parametrize("name", MADE)
def test_an_integer_of_numpy_is_an_integer(name, kind):
    assert repr(MADE[name](kind)) == repr(MADE[name](int))
