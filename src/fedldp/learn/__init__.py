"""LDP-FedSGD: train on a fleet, with one tiny report from each vehicle.

The scikit-learn estimators are in `fedldp` itself, neural networks in `fedldp.learn.torch`.
"""

from fedldp.learn.examples import Arrays, VehicleRows
from fedldp.learn.features import Features
from fedldp.learn.model import Model
from fedldp.learn.objectives import Objective, objective
from fedldp.learn.optimizer import Recipe, State
from fedldp.learn.privacy import NoPrivacy, Privacy
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.learn.training import Round, Training

__all__ = [
    "Arrays",
    "Features",
    "Linear",
    "Model",
    "NoPrivacy",
    "Objective",
    "Privacy",
    "Recipe",
    "Round",
    "Settings",
    "State",
    "Training",
    "VehicleRows",
    "objective",
]
