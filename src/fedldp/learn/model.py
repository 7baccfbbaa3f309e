"""A trained model as data: its objective, its schema and its weights, without code.

The server writes it, and vehicles and others read it. A vehicle that knows the objective, the
schema and the weights can compute its gradient from its raw row.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from fedldp._internal import documents, notebook
from fedldp._internal.text import counted
from fedldp._internal.validation import Floats, Integers, is_real
from fedldp._internal.vectors import without_tiny
from fedldp.errors import DomainError
from fedldp.learn.features import Features, Scaling
from fedldp.learn.gradients import BLOCK
from fedldp.learn.networks import Network
from fedldp.learn.noise_aware import Prior
from fedldp.learn.objectives import Objective, objective
from fedldp.plan.parts import VehicleValues
from fedldp.schema.attributes import Attribute
from fedldp.schema.frames import shown
from fedldp.schema.quality import DataQuality, total
from fedldp.schema.rows import Rows
from fedldp.schema.schema import Schema
from fedldp.vehicle import canonical

FORMAT = "fedldp model 1"
FORMAT_2 = "fedldp model 2"  # of models with another `reference`, which version 0.1 refuses
FORMAT_3 = "fedldp model 3"  # of models with a `scaling`
FORMAT_4 = "fedldp model 4"  # of models with several scores, or with layers
FORMAT_5 = "fedldp model 5"  # of models whose `scaling` maps the target too
FORMAT_6 = "fedldp model 6"  # of models whose hidden numbers are scaled, which only questions are
FORMATS = FORMAT, FORMAT_2, FORMAT_3, FORMAT_4, FORMAT_5, FORMAT_6
_ENTRIES = {"objective", "schema", "target", "weights"}
_OPTIONAL = "reference", "scaling", "network", "hidden_scaling"
OF_A_NUMBER = 64  # multiplications take as long as writing a number of a gradient, or ranking it
LARGEST_WEIGHT = 1e25  # so that scores stay finite, in 32 bits and with any number of features


@final
@dataclass(frozen=True, repr=False)
class Model:
    """A model that predicts a target from the attributes of a schema.

    Equal models have equal JSON, and so equal fingerprints. `data` in the methods are rows in any
    form that `Schema.rows` reads; they may contain the target too. As on a vehicle, values outside
    the bounds are clipped, and missing, unreadable or unknown values count as the public default of
    the schema. A `DataWarning` then says how many there are.

    Parameters
    ----------
    objective : str
        The name of the objective: "squared", "logistic", "hinge" or "softmax".
    schema : Schema
        The attributes from which the model predicts.
    target : Number or Category
        What it predicts: a number for "squared", a category with any labels for "softmax",
        otherwise a category with two.
    weights : sequence of float
        A weight for each feature, in the order of `Features.names`; the last is the intercept. For
        "softmax" there are as many for each label, one label after the other. A model with layers
        has the weights of its `Network`.
    reference : {"first", "last", "none"}, default="first"
        Which label of a category has no feature: see `Features`.
    scaling : Scaling, optional
        How the numbers are scaled: see `Features`. If it maps the target of a linear regression
        too, gradients are those of the mapped target; the weights always predict the target itself.
    layers : Network, optional
        The layers between features and scores; by default the model is linear.
    hidden_scaling : Scaling, optional
        How a survey has scaled what the last layer gets, if it alone is trained. It is for
        questions: `folded` makes it a layer.

    Attributes
    ----------
    network : Network
        The model that gives scores and gradients: `layers`, scaled or not, or the linear one.

    Raises
    ------
    DomainError
        If the target does not fit the objective, or the weights do not fit the schema.

    Examples
    --------
    >>> from fedldp import Category
    >>> schema = Schema.of(age=(0, 100), city=["Oslo", "Rome"])
    >>> model = Model("logistic", schema, Category("sold", ["no", "yes"]), [1.0, 0.5, -0.2])
    >>> model
    <Model: logistic, predicts sold from 2 attributes with 3 weights>
    >>> rows = {"age": [90, 31], "city": ["Rome", "Oslo"], "sold": ["yes", "yes"]}
    >>> model.scores(rows).round(2)
    array([ 1.1 , -1.08])
    >>> model.predict(rows).tolist(), model.errors(rows).tolist(), model.error(rows)
    (['yes', 'no'], [0.0, 1.0], 0.5)
    >>> scores, quality = model.checked_scores(rows)
    >>> model.predictions(scores).tolist(), quality.clean
    (['yes', 'no'], True)
    >>> model.checked_errors(rows)[0]
    array([0., 1.])
    >>> Model.from_json(model.to_json()) == model
    True
    """

    objective: str
    schema: Schema
    target: Attribute
    weights: tuple[float, ...]
    reference: str = "first"
    scaling: Scaling | None = None
    layers: Network | None = None
    hidden_scaling: Scaling | None = None

    one_row: ClassVar[bool] = False  # a vehicle with several rows answers their mean gradient

    def __post_init__(self) -> None:
        if not isinstance(self.schema, Schema) or not isinstance(self.target, Attribute):
            raise DomainError(
                "a model needs a Schema and a target that is a Number or a Category; "
                f"got {self.schema!r:.200} and {self.target!r:.200}."
            )
        if self.layers is not None:
            _check_layers(self.layers, self.goal, self.features.dimensions)
        if self.hidden_scaling is not None and not self._has_linear_head:
            raise DomainError("hidden_scaling is for a classifier that trains only its last layer.")
        mapped = self.scaling is not None and self.scaling.target is not None
        if mapped and (self.layers is not None or self.goal.classifies):
            raise DomainError("only the target of a linear regression can be mapped by a scaling.")
        if self.target.name in self.schema:
            raise DomainError(f"the target {self.target.name!r} must not be in the schema too.")
        object.__setattr__(self, "weights", _checked(self.weights, self.network.dimensions))

    def __repr__(self) -> str:
        return (
            f"<Model: {self.objective}, predicts {self.target.name} from "
            f"{counted(len(self.schema), 'attribute')} with {counted(len(self.weights), 'weight')}>"
        )

    def _repr_html_(self) -> str:
        if self.layers is not None:
            rows: Any = enumerate(self.weights)
            return notebook.table(repr(self)[1:-1], ["number", "weight"], rows)
        of_labels = np.reshape(self.weights, (self.goal.outputs, -1))
        columns = ["weight"] if len(of_labels) == 1 else [*self.target.feature_labels]
        rows = zip(self.features.names, *of_labels.tolist(), strict=True)
        return notebook.table(repr(self)[1:-1], ["feature", *columns], rows)

    @cached_property
    def goal(self) -> Objective:
        """The objective, with as many scores as the target needs."""
        return objective(self.objective).for_target(self.target)

    @cached_property
    def network(self) -> Network:
        """The model that gives scores and gradients."""
        if self.layers is not None:
            scaling = self.hidden_scaling
            return self.layers if scaling is None else self.layers.scaled(scaling)
        goal = self.goal
        if self.scaling is not None and self.scaling.target is not None:
            goal = goal.with_factor(self.scaling.target[1])
        return Network.linear(self.features.dimensions, goal)

    @property
    def features(self) -> Features:
        """The encoding of a row as features."""
        return Features(self.schema, self.reference, self.scaling)

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        """The attributes of a row with a gradient: those of the schema, and the target."""
        return (*self.schema.attributes, self.target)

    @property
    def dimensions(self) -> int:
        """The number of weights, and of coordinates of a gradient."""
        return len(self.weights)

    @property
    def prior(self) -> Prior | None:
        """What is known before any vehicle is asked; None of layers that are trained."""
        if self.layers is None:
            return Prior.of(self.features, self.goal)
        return Prior.of_hidden(self.layers, standardized=self.hidden_scaling is not None)

    @property
    def _has_linear_head(self) -> bool:
        """Whether it is a linear model of what fixed layers compute."""
        return self.layers is not None and self.prior is not None

    @property
    def numbers(self) -> int:
        """How many numbers a survey can ask for; none of signals, whose values are alike."""
        if self.hidden_scaling is not None:
            return len(self.hidden_scaling.centres)
        return 0 if self.network.signals else self.features.numbers

    @property
    def to_survey(self) -> "Model":
        """The model before a survey: if it is linear in hidden numbers, these are asked for."""
        if self.layers is None or not self._has_linear_head:
            return self
        numbers = self.layers.hidden_numbers
        return replace(self, hidden_scaling=Scaling((0.0,) * numbers, (1.0,) * numbers))

    def scaled(self, scaling: Scaling) -> "Model":
        """Return the model with what a survey has found: its numbers, or hidden ones, scaled.

        Parameters
        ----------
        scaling : Scaling
            The map of the numbers.

        Returns
        -------
        Model
            The model.

        Examples
        --------
        >>> from fedldp import Number
        >>> model = Model("squared", Schema.of(x=(-1, 1)), Number("y", -1, 1), [0.0, 0.0])
        >>> model.scaled(Scaling((0.5,), (4.0,))).scaling.factors
        (4.0,)
        """
        if self.hidden_scaling is not None:
            return replace(self, hidden_scaling=scaling)
        return replace(self, scaling=scaling)

    @property
    def folded(self) -> "Model":
        """The same model with one more fixed layer instead of `hidden_scaling`."""
        if self.hidden_scaling is None:
            return self
        return replace(self, layers=self.network, hidden_scaling=None)

    @property
    def cost(self) -> int:
        """How long the gradient of a row takes, in multiplications of its scores."""
        if self.layers is None:
            return max(self.network.operations, self.dimensions)
        return self.network.operations + OF_A_NUMBER * self.dimensions

    @property
    def room(self) -> int:
        """How many numbers the gradient of a row needs in memory while others are computed."""
        return max(self.dimensions, self.features.dimensions)

    def answers(self, matrix: Floats, begins: Integers | None = None) -> VehicleValues:
        """Return the gradients of some vehicles.

        Parameters
        ----------
        matrix : ndarray of shape (rows, attributes)
            The rows of the first vehicle, then those of the second, and so on, with the columns of
            `attributes`.
        begins : ndarray of int, optional
            Where the rows of each vehicle begin. By default each vehicle has one row.

        Returns
        -------
        VehicleValues
            The mean gradient of the rows of each vehicle, computed when it is needed.

        Examples
        --------
        >>> from fedldp import Number
        >>> model = Model("squared", Schema.of(x=(-1, 1)), Number("y", -1, 1), [0.0, 0.0])
        >>> model.answers(np.array([[0.5, 1.0]])).all(np.arange(2))
        array([[-0.5, -1. ]])
        """
        targets = self.goal.targets(self.target, matrix[:, -1])
        features = self.features.encode(matrix[:, :-1])
        weights = without_tiny(np.array([self.weights]))
        return self.network.gradients(weights, features, targets, begins)

    def scores(self, data: Any) -> Floats:
        """Return the score of each row.

        Parameters
        ----------
        data : object
            Rows.

        Returns
        -------
        ndarray of shape (rows,) or (rows, labels)
            The scores. If a score is above 0, the second label is predicted; for "softmax" that of
            the largest score. The score of a linear regression is the prediction on the scale of
            [-1, 1].
        """
        scores, quality = self.checked_scores(data)
        quality.warn(stacklevel=2, strict=False)
        return scores

    def predict(self, data: Any) -> npt.NDArray[Any]:
        """Return the prediction for each row.

        Parameters
        ----------
        data : object
            Rows.

        Returns
        -------
        ndarray of shape (rows,)
            Labels or, for a linear regression, numbers in the units of the target.
        """
        scores, quality = self.checked_scores(data)
        quality.warn(stacklevel=2, strict=False)
        return self.predictions(scores)

    def probabilities(self, data: Any) -> Floats:
        """Return the probability of each label for each row.

        Parameters
        ----------
        data : object
            Rows.

        Returns
        -------
        ndarray of shape (rows, labels)
            The probabilities, in the order of the target's labels.

        Raises
        ------
        DomainError
            If the objective is not "logistic" or "softmax".

        Examples
        --------
        >>> from fedldp import Category
        >>> target = Category("sold", ["no", "yes"])
        >>> model = Model("logistic", Schema.of(age=(0, 100)), target, [0.0, 0.0])
        >>> model.probabilities({"age": [31]})
        array([[0.5, 0.5]])
        """
        scores, quality = self.checked_scores(data)
        quality.warn(stacklevel=2, strict=False)
        return self.goal.probabilities(scores)

    def errors(self, data: Any) -> Floats:
        """Return the error of each row.

        Parameters
        ----------
        data : object
            Rows with the target.

        Returns
        -------
        ndarray of shape (rows,)
            1 for a wrong label and 0 for a right one; for a number, the squared difference on the
            scale of [-1, 1]. NaN if the target is missing.
        """
        errors, quality = self.checked_errors(data)
        quality.warn(stacklevel=2, strict=False)
        return errors

    def error(self, data: Any) -> float:
        """Return the mean error of the rows that have a target.

        Parameters
        ----------
        data : object
            Rows with the target.

        Returns
        -------
        float
            The mean of `errors`, without rows whose target is missing.

        Raises
        ------
        DomainError
            If no row has a target.
        """
        errors, quality = self.checked_errors(data)
        known = ~np.isnan(errors)
        if not known.any():
            raise DomainError(
                f"expected at least one row with the target {self.target.name!r}; got none."
            )
        quality.warn(stacklevel=2, strict=False)
        return float(errors[known].mean())

    def checked_scores(self, data: Any, first_row: int = 0) -> tuple[Floats, DataQuality]:
        """Return the scores and, instead of a warning, the quality of the rows.

        Parameters
        ----------
        data : object
            Rows.
        first_row : int, default=0
            The number of the first row, for messages.

        Returns
        -------
        scores : ndarray of shape (rows,) or (rows, labels)
            The scores.
        quality : DataQuality
            What is clipped or replaced in the rows.
        """
        rows = self.schema.rows(data, first_row)
        scores, quality = self._each(rows, lambda scores, _: scores)
        return scores, quality.using(self.target.name)

    def checked_errors(self, data: Any, first_row: int = 0) -> tuple[Floats, DataQuality]:
        """Return the errors and, instead of a warning, the quality of the rows.

        A missing target is not replaced, and so it is not counted.

        Parameters
        ----------
        data : object
            Rows with the target.
        first_row : int, default=0
            The number of the first row, for messages.

        Returns
        -------
        errors : ndarray of shape (rows,)
            The errors; NaN if the target is missing.
        quality : DataQuality
            What is clipped or replaced in the rows.
        """
        rows = Schema((*self.schema.attributes, self.target)).rows(data, first_row)

        def error(scores: Floats, targets: Floats) -> Floats:
            row_errors = self.goal.error(scores, self.goal.targets(self.target, targets))
            return np.where(np.isnan(targets), np.nan, row_errors)

        errors, quality = self._each(rows, error)
        *features, target = quality.attributes
        target = replace(target, missing=0, unreadable=0, unknown=0, example="")
        return errors, replace(quality, attributes=(*features, target))

    def predictions(self, scores: Floats) -> npt.NDArray[Any]:
        """Return the prediction that belongs to each score.

        Parameters
        ----------
        scores : ndarray of shape (rows,) or (rows, labels)
            Scores.

        Returns
        -------
        ndarray of shape (rows,)
            Labels or, for a linear regression, numbers in the units of the target.
        """
        decided = self.goal.decide(scores)
        if self.target.feature_labels:
            return np.array(self.target.feature_labels).take(decided)
        return np.asarray(self.target.from_features(decided))

    def _each(
        self, rows: Rows, function: Callable[[Floats, Floats], Floats]
    ) -> tuple[Floats, DataQuality]:
        """Apply a function to the score and the last column of each row; return the quality too."""
        features, weights = self.features, np.array([self.weights])
        blocks, qualities = [], []
        for start in range(0, max(len(rows), 1), BLOCK):
            matrix, quality = rows.read(start, start + BLOCK)
            (scores,) = self.network.scores(weights, features.encode(matrix))
            blocks.append(function(scores.astype(np.float64), matrix[:, -1]))
            qualities.append(quality)
        return np.concatenate(blocks), total(qualities)

    @property
    def declaration(self) -> dict[str, Any]:
        """What vehicles are asked with this model, as JSON: all but the weights and the scaling."""
        document: dict[str, Any] = {
            "computes": "gradient",
            "objective": self.objective,
            "reference": self.reference,
            "schema": self.schema.to_document(),
            "target": Schema((self.target,)).to_document()[0],
        }
        if self.layers is not None:
            document["network"] = self.layers.to_document()
        return document

    def to_json(self) -> str:
        """Return the model as canonical JSON, from which `from_json` reads it exactly.

        Returns
        -------
        str
            The JSON.
        """
        document = {
            "format": FORMAT,
            "objective": self.objective,
            "schema": self.schema.to_document(),
            "target": Schema((self.target,)).to_document()[0],
            "weights": self.weights,
        }
        if self.reference != Model.reference:
            document |= {"format": FORMAT_2, "reference": self.reference}
        if self.scaling is not None:
            mapped = self.scaling.target is not None
            document |= {"format": FORMAT_5 if mapped else FORMAT_3}
            document |= {"scaling": self.scaling.to_document()}
        if self.goal.outputs > 1 or self.layers is not None:
            document |= {"format": FORMAT_4}
        if self.layers is not None:
            document |= {"network": self.layers.to_document()}
        if self.hidden_scaling is not None:
            document |= {"format": FORMAT_6, "hidden_scaling": self.hidden_scaling.to_document()}
        return canonical(document)

    @classmethod
    def from_json(cls, text: str) -> "Model":
        """Read a model and validate all of it.

        Parameters
        ----------
        text : str
            JSON that `to_json` returned.

        Returns
        -------
        Model
            The model.

        Raises
        ------
        WireError
            If the text is not a valid model.
        """
        advice = ". Give a file that `fedldp train --save` wrote."
        with documents.reading(repr(FORMAT), advice):
            document = documents.parse(text, FORMATS, _ENTRIES, *_OPTIONAL)
            schema = Schema.from_document(document["schema"])
            (target,) = Schema.from_document([document["target"]]).attributes
            reference = document.get("reference", Model.reference)
            scaling, hidden = (
                Scaling.from_document(document[name]) if name in document else None
                for name in ("scaling", "hidden_scaling")
            )
            weights = document["weights"]
            layers = None
            if "network" in document:
                goal = objective(document["objective"]).for_target(target)
                layers = Network.from_document(document["network"], goal)
            kind = document["objective"]
            model = cls(kind, schema, target, weights, reference, scaling, layers, hidden)
            documents.check_written(model.to_json(), canonical(document))
        return model

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the canonical JSON, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _check_layers(layers: Network, goal: Objective, features: int) -> None:
    """Refuse a network for another objective, or for other features."""
    if layers.objective != goal or math.prod(layers.inputs) + 1 != features:
        raise DomainError(
            f"the network must have {features - 1} inputs and be for {goal.name} with "
            f"{goal.outputs} output{'s' * (goal.outputs > 1)}; got {layers!r}."
        )
    if not layers.layers:
        raise DomainError("a linear model has no layers: leave the network out.")


def _checked(weights: Sequence[float] | Floats, width: int) -> tuple[float, ...]:
    sequence = isinstance(weights, list | tuple | np.ndarray)
    if not sequence or len(weights) != width:
        raise DomainError(
            f"weights must be {width} numbers, for each score one for each feature and one for the "
            "constant, or those of the layers; "
            f"got {len(weights) if sequence else shown(weights)}."
        )
    for weight in weights:
        if not is_real(weight) or not abs(weight) <= LARGEST_WEIGHT:
            raise DomainError(
                f"a weight must be a number within +-{LARGEST_WEIGHT:g}; got {shown(weight)}. "
                "If a training led there, use a lower learning rate."
            )
    return tuple(float(weight) + 0.0 for weight in weights)  # not -0.0, which JSON writes as such
