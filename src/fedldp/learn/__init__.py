"""LDP-FedSGD: train on a fleet, with one tiny report from each vehicle.

The scikit-learn estimators are in `fedldp` itself, neural networks in `fedldp.learn.torch`.
"""

from fedldp.learn.examples import Arrays, Owners
from fedldp.learn.features import Features
from fedldp.learn.model import Model
from fedldp.learn.objectives import Objective, objective
from fedldp.learn.optimizer import Recipe, State
from fedldp.learn.privacy import Privacy
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Linear
from fedldp.learn.training import Progress, Training

__all__ = [
    "Arrays",
    "Features",
    "Linear",
    "Model",
    "Objective",
    "Owners",
    "Privacy",
    "Progress",
    "Recipe",
    "Settings",
    "State",
    "Training",
    "objective",
]
