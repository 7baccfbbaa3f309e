"""LDP-FedSGD: train a model on a fleet, with one small report from each vehicle.

`Settings` holds all options of a training, a task such as `Linear` the data, and `Training` runs
it. The scikit-learn estimators are in `fedldp` itself. A `Network` is a list of layers as data;
`fedldp.learn.torch` trains any network of PyTorch.
"""

from typing import TYPE_CHECKING

from fedldp._internal.lazy import attribute_loader

__all__ = [
    "SGD",
    "Activation",
    "Adam",
    "Arrays",
    "ChannelMean",
    "Comparison",
    "Conv",
    "Convolutions",
    "Dense",
    "Features",
    "Flatten",
    "Forecast",
    "Layered",
    "Linear",
    "LogVariance",
    "Model",
    "Network",
    "NoPrivacy",
    "NoiseAware",
    "Objective",
    "Observed",
    "Pool",
    "Prior",
    "Privacy",
    "Procedure",
    "Quantile",
    "QuantileSearch",
    "Recipe",
    "Round",
    "Scaling",
    "Settings",
    "State",
    "Survey",
    "Training",
    "VehicleRows",
    "Window",
    "WindowStatistics",
    "forecast",
    "objective",
]

if TYPE_CHECKING:
    from fedldp.learn.comparison import Comparison
    from fedldp.learn.examples import Arrays, VehicleRows
    from fedldp.learn.features import Features, Scaling
    from fedldp.learn.forecasting import Forecast, forecast
    from fedldp.learn.layers import Activation, ChannelMean, Conv, Dense, Flatten, LogVariance, Pool
    from fedldp.learn.model import Model
    from fedldp.learn.networks import Network
    from fedldp.learn.noise_aware import Observed, Prior
    from fedldp.learn.objectives import Objective, objective
    from fedldp.learn.optimizer import SGD, Adam, NoiseAware, Recipe, State
    from fedldp.learn.privacy import NoPrivacy, Privacy
    from fedldp.learn.quantiles import Quantile, QuantileSearch
    from fedldp.learn.settings import Settings
    from fedldp.learn.signals import Convolutions, Window, WindowStatistics
    from fedldp.learn.survey import Survey
    from fedldp.learn.tasks import Layered, Linear
    from fedldp.learn.training import Procedure, Round, Training
else:
    # An agent needs only the modules for models and gradients.
    __getattr__ = attribute_loader(
        __name__,
        {
            "comparison": "Comparison",
            "examples": "Arrays VehicleRows",
            "features": "Features Scaling",
            "forecasting": "Forecast forecast",
            "layers": "Activation ChannelMean Conv Dense Flatten LogVariance Pool",
            "model": "Model",
            "networks": "Network",
            "objectives": "Objective objective",
            "noise_aware": "Observed Prior",
            "optimizer": "Adam NoiseAware Recipe SGD State",
            "privacy": "NoPrivacy Privacy",
            "quantiles": "Quantile QuantileSearch",
            "settings": "Settings",
            "signals": "Convolutions Window WindowStatistics",
            "survey": "Survey",
            "tasks": "Layered Linear",
            "training": "Procedure Round Training",
        },
    )

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
