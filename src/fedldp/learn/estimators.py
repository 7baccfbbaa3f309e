"""Models as scikit-learn estimators. Needs the extra `learn`: scikit-learn.

Each row is a vehicle, or all rows with the same vehicle_id are one vehicle, whose gradient is their
mean gradient. `fit` simulates the training of a fleet: each vehicle sends one private report of its
gradient, or several if `participations` is larger than 1.

Everything except X and y is public. In particular, the bounds and labels of columns, and of the
target, come from you. A `MinMaxScaler` or a `OneHotEncoder` in front would learn them from the
data, which is not private. The labels of a classifier are public: declare them with `classes`, or
those in y count as public.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar, Self, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.options import document
from fedldp._internal.validation import Floats, reals, whole
from fedldp.errors import AccuracyWarning, DomainError, MissingExtra
from fedldp.learn.columns import (
    EncodedMatrix,
    declared_features,
    declares_labels,
    linear_scores,
    named_columns,
    public_pair,
    read_columns,
)
from fedldp.learn.comparison import Comparison
from fedldp.learn.examples import Array, Examples, VehicleRows
from fedldp.learn.features import Features, Scaling
from fedldp.learn.forecasting import too_few, too_wide
from fedldp.learn.layers import Activation
from fedldp.learn.model import LARGEST_WEIGHT
from fedldp.learn.networks import Network
from fedldp.learn.objectives import Objective, objective
from fedldp.learn.optimizer import Optimizer, State
from fedldp.learn.privacy import Privacy
from fedldp.learn.settings import Settings
from fedldp.learn.tasks import Layered, Linear, Task
from fedldp.learn.training import Round, Training
from fedldp.mechanisms import AnyMechanism
from fedldp.plan.plan import Plan
from fedldp.plan.strategies import PAPER_MECHANISM, Strategy
from fedldp.randomness import Source, source
from fedldp.schema.attributes import Number
from fedldp.schema.frames import is_missing
from fedldp.schema.quality import DataQuality
from fedldp.schema.schema import Schema
from fedldp.vehicle import label

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
    from sklearn.utils.validation import (  # type: ignore[import-untyped]
        check_array,
        check_is_fitted,
        check_X_y,
        validate_data,
    )
except ImportError as error:
    raise MissingExtra("scikit-learn", "learn") from error

__all__ = [
    "LDPLinearRegression",
    "LDPLinearSVC",
    "LDPLogisticRegression",
    "LDPMLPClassifier",
    "LDPMLPRegressor",
    "PrivacyWarning",
]

Bounds = tuple[npt.ArrayLike, npt.ArrayLike] | Sequence[Any] | Mapping[str, Any]

_NO_WEIGHTS = np.empty(0)

_CHOICES = [
    each.name for each in fields(Settings) if each.name not in ("reference", "survey_share")
]
_OWN_NAMES = {
    *("bounds", "strict", "random_state", "classes", "target_bounds"),
    *("hidden_layer_sizes", "activation"),
}

_BOUNDS = """
    bounds : tuple, list or dict
        The public bounds and labels of the columns: ``(low, high)`` for all numbers,
        ``([low, ...], [high, ...])``, a list with an entry for each column, or a dict or `Schema`
        with an entry for each name. An entry is ``(low, high)``, a list of labels,
        ``["Oslo", "Rome"]``, or ``bool`` for a column that is false or true, 0 or 1. Labels that
        the type of a column declares, such as the categories of a pandas ``Categorical``, need no
        entry. Bounds and labels are required, and must come from public knowledge, not from the
        data. A value outside counts as the bound, an unknown or missing label as "other" or the
        first one, and a `DataWarning` says how many there are.
"""
_OWN = """
    strict : bool, default=False
        Raise an error, before any vehicle is asked, if a value would be clipped or replaced.
    random_state : int, RandomState or None, default=None
        None uses the operating system's randomness. A seed makes `fit` reproducible and is for
        study only: anybody who knows it can remove the noise.
"""
_CLASSES = """
    classes : array-like of shape (n_classes,), optional
        The labels, which are public. Declare those that may occur, whether or not they are in y; a
        label in y that is not declared is refused. By default they are those in y, which then count
        as public.
"""
_TARGET_BOUNDS = """
    target_bounds : tuple (low, high)
        The public bounds of the target. They are required, and values outside count as the bound.
"""
_LAYERS = """
    hidden_layer_sizes : tuple of int, default=(8,)
        The number of units of each hidden layer. Noise grows with the number of weights: keep them
        few.
    activation : {"relu", "tanh", "logistic", "silu"}, default="tanh"
        The function of the hidden units.
"""
_COEFS = """
    coefs_ : list of ndarray
        The weights of each layer, (inputs, units), as in scikit-learn; those of the first layer are
        in the units of the data.
    intercepts_ : list of ndarray
        The biases of each layer.
    network_ : fedldp.learn.Network
        The network, which has features on the scale of [-1, 1] or as `scaling_` makes them.
    weights_ : ndarray
        Its weights.
    n_layers_ : int
        The number of layers, with those of inputs and outputs.
    out_activation_ : {"identity", "logistic", "softmax"}
        The function of the outputs.
"""
_ATTRIBUTES = """
    features_ : fedldp.learn.Features
        How columns became features: a column of numbers one feature, a column of labels a feature
        for each label. `features_.names` has the names of the features, in the order of the
        coefficients, and then "1" for the intercept.
    scaling_ : Scaling or None
        How the features were scaled, if a survey was made.
    privacy_ : Privacy or None
        What each vehicle has spent at most, and what all of them have sent; None without privacy.
    levels_ : dict of float to Privacy
        The same for each epsilon that vehicles have chosen; empty without privacy.
    history_ : list of Round
        What was known after each round.
    n_iter_ : int
        The number of rounds.
    price_ : float
        How many times larger the squared error of a mean gradient is than with one participation.
    n_features_in_ : int
        The number of columns.
    feature_names_in_ : ndarray of str
        The names of the columns, if X is a data frame.
"""
_NOTES = """
    Each fit asks the vehicles again, and what they spend adds up. From the second fit on there is a
    `PrivacyWarning`. It counts the fits of clones too, as in `cross_val_score` and `GridSearchCV`,
    but not those in other processes, as with ``n_jobs=2``.

    With ``participations=r``, each report of a vehicle costs an r-th of epsilon. ``epsilon=None``
    trains without privacy, for comparison.

    There is no ``sample_weight``: each vehicle has one report of bounded length, and so the same
    weight. Rows of one vehicle count equally in its report. To count a vehicle less, leave it out.
"""
_shared = document(
    Settings,
    bounds=_BOUNDS,
    own=_OWN,
    declared=_CLASSES,
    target=_TARGET_BOUNDS,
    layers=_LAYERS,
    coefs=_COEFS,
    attributes=_ATTRIBUTES,
    notes=_NOTES,
)


class PrivacyWarning(UserWarning):
    """An estimator is fitted again, and what the vehicles spend adds up.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", PrivacyWarning)  # refuse to ask vehicles twice
    >>> warnings.resetwarnings()
    """


@final
@dataclass(frozen=True, eq=False)
class _PreviousFit:
    """What an estimator keeps about the vehicles it has asked, to continue with others."""

    settings: Settings
    objective: Objective
    state: State
    vehicle_ids: frozenset[str]
    calls: int

    def check(self, settings: Settings, objective: Objective) -> None:
        """Refuse to continue another training."""
        if (settings, objective) != (self.settings, self.objective):
            raise DomainError(
                "partial_fit continues with the options and classes of the first call; got others. "
                "Use fit for a new model."
            )


@dataclass(kw_only=True, eq=False, repr=False)
class _LDPModel(BaseEstimator, ABC):  # type: ignore[misc]
    """What the estimators share. The fields are the constructor's parameters, which it only stores.

    scikit-learn requires an explicit signature: it is here, and in no subclass. All parameters
    except `bounds`, `strict` and `random_state` are options of `Settings`, which declares what they
    mean and validates them in `fit`. `reference` and `survey_share` are left out.
    """

    bounds: Bounds | None = None
    epsilon: float | None = 1.0
    strategy: str | Strategy = "auto"
    bound: float | str = "auto"
    participations: int = 1
    group: int | str = "auto"
    max_iter: int | None = None
    survey: str | None = "auto"
    optimizer: str | Optimizer = "auto"
    alpha: float = 0.0
    strict: bool = False
    random_state: int | np.random.RandomState | None = None
    _fits: list[float] = field(init=False, default_factory=list)  # their epsilons, with all clones'
    _before: _PreviousFit | None = field(init=False, default=None)

    _objective: ClassVar[str]

    @classmethod
    def paper(
        cls, epsilon: float | None, mechanism: AnyMechanism = PAPER_MECHANISM, **options: Any
    ) -> Self:
        """Return an estimator that trains by LDP-FedSGD exactly as in the paper.

        Encode categories yourself; `fedldp.learn.Features(schema, reference="last")` does it as in
        the paper.

        Parameters
        ----------
        epsilon : float or None
            The privacy budget of a vehicle; None is without privacy.
        mechanism : str, default="hm-tp"
            One of the paper's mechanisms.
        **options : object
            The options of `Settings.paper`, and the estimator's own parameters: `bounds`, `strict`,
            `random_state`, for a regression `target_bounds`, for a classifier `classes`.

        Returns
        -------
        estimator
            An estimator that is not fitted yet.

        Raises
        ------
        DomainError
            If an option is invalid.

        Examples
        --------
        >>> LDPLogisticRegression.paper(1.0, bounds=(0, 1)).optimizer.name
        'sgd'
        """
        own = {name: options.pop(name) for name in _OWN_NAMES if name in options}
        settings = Settings.paper(epsilon, mechanism, **options)
        return cls(**own, **{name: getattr(settings, name) for name in _CHOICES})

    def __sklearn_clone__(self) -> Self:
        twin = super().__sklearn_clone__()
        twin._fits = self._fits  # searches fit clones, and clones of clones
        return cast(Self, twin)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False  # given a random_state; without one every fit differs
        return tags

    def _task(self, objective: Objective, examples: Examples, rows: VehicleRows | None) -> Task:
        """Return what is trained."""
        return Linear(objective, examples, rows)

    @abstractmethod
    def _keep(self, training: Training, objective: Objective) -> None:
        """Set the attributes that make predictions."""

    @abstractmethod
    def _scores(self, X: Any) -> Floats:
        """Return a row of scores for each row, on the scale of the objective."""

    def _read(
        self, X: Any, y: Any, *, more: bool, number: bool = False
    ) -> tuple[Features, Array, Array, DataQuality]:
        """Return features, rows and targets to train with, and what vehicles clip or replace."""
        first, name = not more or self._before is None, type(self).__name__
        labelled = declares_labels(self.bounds) if first else self._has_labels
        if labelled or named_columns(X) is not None:
            X = self._labelled(X, reset=first)
            features = declared_features(self.bounds, X, name) if first else self.features_
            matrix, quality = read_columns(features, X)
            finite = "allow-nan"  # for labels that are missing or unknown
            matrix, y = check_X_y(matrix, y, ensure_all_finite=finite, y_numeric=number)
            return features, matrix, y, quality
        kinds = (np.float64, np.float32)
        X, y = validate_data(self, X, y, reset=first, dtype=kinds, y_numeric=number)
        features = declared_features(self.bounds, X, name) if first else self.features_
        return features, X, y, features.schema.check(X)

    def _read_new(self, X: Any) -> Array:
        """Return rows to predict for, in the columns' own units."""
        if named_columns(X) is None and not self._has_labels:
            return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))
        matrix, quality = read_columns(self.features_, self._labelled(X, reset=False))
        replaced = tuple(replace(each, clipped=0) for each in quality.attributes)
        replace(quality, attributes=replaced).warn(stacklevel=4, strict=False)
        return matrix

    def _labelled(self, X: Any, *, reset: bool) -> Any:
        """Return a data frame, or an array that may hold labels, whose columns are checked."""
        validate_data(self, X, reset=reset, skip_check_array=True)
        if named_columns(X) is not None:
            return X
        kind = None if isinstance(X, np.ndarray) else object  # so that a list keeps its types
        return check_array(X, dtype=kind, ensure_all_finite=False)

    @property
    def _has_labels(self) -> bool:
        return bool(self.features_.kinds[1].any())

    def _train(
        self,
        features: Features,
        X: Array,
        targets: Floats,
        quality: DataQuality,
        objective: Objective,
        vehicle_ids: Any,
        epsilons: Any,
        *,
        more: bool,
    ) -> None:
        """Train with vehicles; `more` continues from what was learned from others."""
        settings = Settings(**{name: getattr(self, name) for name in _CHOICES})
        quality.refuse_unusable()
        if self.strict:
            quality.refuse()
        quality.warn(stacklevel=4)  # where fit was called
        ids = None if vehicle_ids is None else _checked_ids(vehicle_ids, len(X))
        before = self._before if more else None
        if before is not None:
            before.check(settings, objective)
        seen = _once(ids, before)
        rows = None if ids is None else VehicleRows(ids)
        task = self._task(objective, EncodedMatrix(features, X, targets.astype(np.float32)), rows)
        if before is not None and self.scaling_ is not None:
            task = task.scaled(self.scaling_)
        levels, chosen = [settings], None
        if epsilons is not None:
            chosen = _one_each(epsilons, rows, len(X))
            levels, _ = settings.levels(chosen)
        training = settings.training(
            task,
            task.distance,
            _source(self.random_state, 0 if before is None else before.calls),
            epsilons=chosen,
            state=None if before is None else before.state,
        )
        if settings.private and before is None:
            self._forecast(settings, features, objective, task, X, targets)
            self._spend(levels[-1].budget)
        if before is None:
            self.history_: list[Round] = []
            self.levels_: dict[float, Privacy] = {}
        self.history_ += training
        if before is None:
            self.scaling_: Scaling | None = training.scaling
            self.clipped_ = training.clipped
            self.features_ = replace(features, scaling=self.scaling_)
        spent = _spent(settings, levels, task, training)
        for level, earlier in self.levels_.items():
            spent[level] = Privacy.of_levels([earlier, spent[level]])
        self.n_iter_ = len(self.history_)
        self.levels_ = spent
        self.privacy_ = Privacy.of_levels([*spent.values()]) if spent else None
        self.price_ = levels[-1].price(task.dimensions)
        self._before = _PreviousFit(
            settings,
            objective,
            training.state,
            seen,
            1 if before is None else before.calls + 1,
        )
        _check_weights(training.models[0])
        if training.clipped is not None and training.clipped.is_biased:
            warnings.warn(training.clipped.warning, AccuracyWarning, stacklevel=4)
        self._keep(training, objective)

    def _forecast(
        self,
        settings: Settings,
        features: Features,
        objective: Objective,
        task: Task,
        X: Array,
        targets: Floats,
    ) -> None:
        """Warn if the model will probably be no better than always the same answer."""
        if task.prior is None:
            return
        y = None if objective.classifies else targets
        for text in (
            too_few(settings, features, objective, len(task)),
            too_wide(features, X, y),
        ):
            if text is not None:
                warnings.warn(text, AccuracyWarning, stacklevel=5)  # where fit was called

    def _spend(self, epsilon: float) -> None:
        """Warn before vehicles are asked again, and record what they spend.

        A search makes many fits. Only the 2nd, 4th, 8th and so on warn, to keep the output short.
        """
        number, total = len(self._fits) + 1, sum(self._fits) + epsilon
        if number > 1 and number.bit_count() == 1:
            warnings.warn(
                f"this is fit number {number} of one {type(self).__name__} and its clones. Each "
                f"fit asks the vehicles again, and what they spend adds up: to epsilon = {total:g} "
                "for a vehicle in all of them. Scores on the vehicles' own data are not private "
                "either: search and cross-validate on public data.",
                PrivacyWarning,
                stacklevel=5,  # where fit was called
            )
        self._fits.append(epsilon)  # not if the warning is an error: then no vehicle is asked


@dataclass(kw_only=True, eq=False, repr=False)
class _LinearModel(_LDPModel):
    """A model that is linear in the user's units: `coef_` and `intercept_` have a row a score."""

    def _keep(self, training: Training, objective: Objective) -> None:
        models, deviations = training.models.reshape(objective.outputs, -1), training.deviations
        self.coef_, self.intercept_ = self.features_.weights_in_own_units(models)
        self.coef_std_ = None
        if deviations is not None:
            deviations = deviations.reshape(models.shape)
            self.coef_std_ = self.features_.deviations_in_own_units(deviations)

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        coefficients, intercepts = np.atleast_2d(self.coef_), np.atleast_1d(self.intercept_)
        return linear_scores(self.features_, self._read_new(X), coefficients, intercepts)


@dataclass(kw_only=True, eq=False, repr=False)
class _LayeredModel(_LDPModel):
    """A network with hidden layers: `coefs_` and `intercepts_` as in scikit-learn."""

    hidden_layer_sizes: tuple[int, ...] | int = (8,)
    activation: str = "tanh"

    def _network(self, objective: Objective, inputs: int) -> Network:
        sizes = self.hidden_layer_sizes
        sizes = (sizes,) if isinstance(sizes, Integral) else sizes
        if not isinstance(sizes, list | tuple | np.ndarray) or not len(sizes):
            raise DomainError(
                "hidden_layer_sizes must be a number of units for each hidden layer, such as (8,); "
                f"got {sizes!r:.80}."
            )
        hidden = [whole(size, "hidden_layer_sizes") for size in sizes]
        return Network.perceptron(inputs + 1, objective, hidden, self.activation)

    def _task(self, objective: Objective, examples: Examples, rows: VehicleRows | None) -> Task:
        network = self._network(objective, examples.dimensions - 1)
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else 0
        return Layered(network, examples, rows, seed)

    def _keep(self, training: Training, objective: Objective) -> None:
        self.network_ = self._network(objective, self.features_.dimensions - 1)
        self.weights_ = training.models[0]
        self.coefs_, self.intercepts_ = [], []
        for number, layer in enumerate(self.network_.dense_weights(self.weights_)):
            if number == 0:
                coefficients, intercepts = self.features_.weights_in_own_units(layer)
            else:
                coefficients, intercepts = layer[:, :-1], layer[:, -1]
            self.coefs_.append(coefficients.T)
            self.intercepts_.append(intercepts)
        self.n_layers_ = len(self.coefs_) + 1

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self, "coefs_")
        (first, *others), (intercepts, *_) = self.coefs_, self.intercepts_
        values = linear_scores(self.features_, self._read_new(X), first.T, intercepts)
        activation = Activation(self.activation)
        for coefficients, intercepts in zip(others, self.intercepts_[1:], strict=True):
            values, _ = activation.forward(_NO_WEIGHTS, values)
            values = values @ coefficients + intercepts
        return np.asarray(values)


class _Regression(RegressorMixin, _LDPModel):  # type: ignore[misc]
    """Predicts a number with public bounds."""

    target_bounds: tuple[float, float] | None
    _objective = "squared"

    def _fit(self, X: Any, y: Any, vehicle_ids: Any, epsilons: Any, *, more: bool) -> Self:
        features, X, y, quality = self._read(X, y, more=more, number=True)
        target = Number("y", *public_pair(self.target_bounds, "target_bounds", type(self).__name__))
        of_target = Schema((target,)).check(np.asarray(y)).attributes
        quality = replace(quality, attributes=quality.attributes + of_target)
        goal = objective(self._objective)
        targets = goal.targets(target, y)
        self._train(features, X, targets, quality, goal, vehicle_ids, epsilons, more=more)
        self._to_units(target)
        return self

    @abstractmethod
    def _to_units(self, target: Number) -> None:
        """Turn scores on the scale of [-1, 1] into those in the units of the target."""

    def fit(
        self, X: Any, y: Any, vehicle_ids: Any = None, epsilons: Any = None, **unsupported: Any
    ) -> Self:
        """Train on rows and their targets.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.
        y : array-like of shape (n_rows,)
            The targets.
        vehicle_ids : array-like of shape (n_rows,), optional
            The id of each row's vehicle, if vehicles have several rows. By default each row is a
            vehicle.
        epsilons : array-like of shape (n_rows,), optional
            The epsilon of each row's vehicle, if vehicles choose their own instead of `epsilon`.
            What they choose is public.
        **unsupported : object
            Nothing else is taken: `sample_weight` is refused with the reason.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        DomainError
            If a parameter is invalid, bounds are missing, or the training diverges.

        Examples
        --------
        >>> model = LDPLinearRegression(
        ...     epsilon=4.0, bounds=(0, 1), target_bounds=(0, 1), random_state=0
        ... )
        >>> X = np.tile([[0.0], [1.0]], (500, 1))
        >>> model.fit(X, X[:, 0], vehicle_ids=np.arange(1000) // 2).privacy_.reports
        500
        """
        _refuse(unsupported)
        return self._fit(X, y, vehicle_ids, epsilons, more=False)

    def partial_fit(self, X: Any, y: Any, vehicle_ids: Any = None, **unsupported: Any) -> Self:
        """Go on with vehicles that were not asked before: for fleets that grow.

        Each vehicle is asked once. A vehicle_id that was asked before is refused; without ids, each
        row must be a new vehicle. Options, bounds and what a survey found stay those of the first
        call.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.
        y : array-like of shape (n_rows,)
            The targets.
        vehicle_ids : array-like of shape (n_rows,), optional
            The id of each row's vehicle, if vehicles have several rows. By default each row is a
            vehicle.
        **unsupported : object
            Nothing else is taken: `sample_weight` is refused with the reason.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        DomainError
            If a vehicle was asked before, or an option has changed since.

        Examples
        --------
        >>> model = LDPLinearRegression(
        ...     epsilon=4.0, bounds=(0, 1), target_bounds=(0, 1), random_state=0
        ... )
        >>> X = np.tile([[0.0], [1.0]], (500, 1))
        >>> model.partial_fit(X, X[:, 0]).partial_fit(X, X[:, 0]).privacy_.reports
        2000
        """
        _refuse(unsupported)
        return self._fit(X, y, vehicle_ids, None, more=True)

    def predict(self, X: Any) -> Floats:
        """Predict the target of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.

        Returns
        -------
        ndarray of shape (n_rows,)
            The predictions, in the units of the target.

        Examples
        --------
        >>> model = LDPLinearRegression(epsilon=4.0, bounds=(0, 1), target_bounds=(0, 1))
        >>> X = np.tile([[0.0], [1.0]], (500, 1))
        >>> model.fit(X, X[:, 0]).predict(X).shape
        (1000,)
        """
        return self._scores(X)[:, 0]

    def compare(self, X: Any, y: Any) -> Comparison:
        """Say whether the model beats the base rate: the mean of all targets, on public rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            Rows that are public.
        y : array-like of shape (n_rows,)
            Their targets.

        Returns
        -------
        fedldp.learn.Comparison
            Both mean squared errors; printed, a plain statement.

        Examples
        --------
        >>> import fedldp
        >>> X = fedldp.source(1).uniform((2000, 1))
        >>> model = LDPLinearRegression(epsilon=4.0, bounds=(0, 1), target_bounds=(0, 1))
        >>> model.fit(X, X[:, 0]).compare(X, X[:, 0]).beats_base_rate
        True
        """
        return Comparison.of_numbers(y, self.predict(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # there is too much noise for a few hundred vehicles
        return tags


class _Classification(ClassifierMixin, _LDPModel):  # type: ignore[misc]
    """Predicts one of some classes, whose labels are public."""

    classes: npt.ArrayLike | None
    _several: ClassVar[str | None] = "softmax"  # the objective for more than two classes

    def _fit(
        self, X: Any, y: Any, classes: Any, vehicle_ids: Any, epsilons: Any, *, more: bool
    ) -> Self:
        features, X, y, quality = self._read(X, y, more=more)
        check_classification_targets(y)
        labels, codes = self._codes(y, classes, more=more)
        goal = objective(self._objective)
        if len(labels) > 2:
            goal = objective(cast(str, self._several)).with_outputs(len(labels))
        targets = codes.astype(np.float64) if goal.outputs > 1 else np.where(codes, 1.0, -1.0)
        self._train(features, X, targets, quality, goal, vehicle_ids, epsilons, more=more)
        self.classes_ = labels
        return self

    def _codes(self, y: Array, classes: Any, *, more: bool) -> tuple[Array, Array]:
        """Return the classes, and which of them each row has."""
        labels_found, codes = np.unique(y, return_inverse=True)
        declared = self.classes if classes is None else classes
        if declared is None and more and self._before is not None:
            declared = self.classes_
        if declared is not None:
            labels = np.unique(np.asarray(declared))
            if not np.isin(labels_found, labels).all():
                unknown = labels_found[~np.isin(labels_found, labels)][0]
                raise DomainError(
                    f"y must have the declared classes {labels.tolist()!r:.200} only; "
                    f"got {unknown!r}."
                )
            labels_found, codes = labels, np.searchsorted(labels, labels_found)[codes]
        count = "1 class" if len(labels_found) == 1 else f"{len(labels_found)} classes"
        if len(labels_found) < 2:
            raise DomainError(f"y must have at least two labels; got {count}.")
        if len(labels_found) > 2 and self._several is None:
            raise DomainError(
                f"Only binary classification is supported. y must have two labels; got {count}. "
                "For several use LDPLogisticRegression."
            )
        return labels_found, codes

    def fit(
        self, X: Any, y: Any, vehicle_ids: Any = None, epsilons: Any = None, **unsupported: Any
    ) -> Self:
        """Train on rows and their labels.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.
        y : array-like of shape (n_rows,)
            The labels. Which labels there are is public: see `classes`.
        vehicle_ids : array-like of shape (n_rows,), optional
            The id of each row's vehicle, if vehicles have several rows. By default each row is a
            vehicle.
        epsilons : array-like of shape (n_rows,), optional
            The epsilon of each row's vehicle, if vehicles choose their own instead of `epsilon`.
            What they choose is public.
        **unsupported : object
            Nothing else is taken: `sample_weight` is refused with the reason.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        DomainError
            If y has fewer than two labels, or labels that were not declared, a parameter is
            invalid, bounds are missing, or the training diverges.
        """
        _refuse(unsupported)
        return self._fit(X, y, None, vehicle_ids, epsilons, more=False)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, vehicle_ids: Any = None, **unsupported: Any
    ) -> Self:
        """Go on with vehicles that were not asked before: for fleets that grow.

        Each vehicle is asked once. A vehicle_id that was asked before is refused; without ids, each
        row must be a new vehicle. Options, bounds and what a survey found stay those of the first
        call.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.
        y : array-like of shape (n_rows,)
            The labels.
        classes : array-like of shape (n_classes,), optional
            The labels that may occur, in this call or later; by default the parameter `classes`, or
            the labels of the first call.
        vehicle_ids : array-like of shape (n_rows,), optional
            The id of each row's vehicle, if vehicles have several rows. By default each row is a
            vehicle.
        **unsupported : object
            Nothing else is taken: `sample_weight` is refused with the reason.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        DomainError
            If a vehicle was asked before, a label is new, or an option has changed since.

        Examples
        --------
        >>> X = np.tile([[0.0], [1.0]], (500, 1))
        >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), classes=[0, 1])
        >>> model.partial_fit(X, X[:, 0]).partial_fit(X, X[:, 0]).privacy_.reports
        2000
        """
        _refuse(unsupported)
        return self._fit(X, y, classes, vehicle_ids, None, more=True)

    def decision_function(self, X: Any) -> Floats:
        """Return the scores of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.

        Returns
        -------
        ndarray of shape (n_rows,) or (n_rows, n_classes)
            With two classes, a score above 0 means the second one. With more, there is a score for
            each, and `predict` returns the class with the largest.
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> Array:
        """Predict the label of each row.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.

        Returns
        -------
        ndarray of shape (n_rows,)
            The labels, from `classes_`.
        """
        scores = self.decision_function(X)
        codes = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(np.intp)
        return np.asarray(self.classes_[codes])

    def compare(self, X: Any, y: Any) -> Comparison:
        """Say whether the model beats the base rate: the most frequent label, on public rows.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            Rows that are public.
        y : array-like of shape (n_rows,)
            Their labels.

        Returns
        -------
        fedldp.learn.Comparison
            Both shares of wrong labels; printed, a plain statement.

        Examples
        --------
        >>> import fedldp
        >>> X = fedldp.source(1).uniform((4000, 1))
        >>> late = X[:, 0] > 0.6
        >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), random_state=0)
        >>> print(model.fit(X[:3000], late[:3000]).compare(X[3000:], late[3000:]))
        The model errs by 0.012 on 1,000 rows, and always the same answer by 0.399: 0.387 ± 0.0317
        less. It beats the base rate.
        """
        return Comparison.of_labels(y, self.predict(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self._several is not None
        tags.classifier_tags.poor_score = True  # there is too much noise for a few hundred vehicles
        return tags


class _Probabilities(_Classification):
    """A classifier whose scores are about probabilities."""

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the classes.

        Parameters
        ----------
        X : array-like or data frame of shape (n_rows, n_columns)
            The columns, which `bounds` declares.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            The probability of each class, in the order of `classes_`.

        Examples
        --------
        >>> X = np.tile([[0.0], [1.0]], (500, 1))
        >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), random_state=0)
        >>> model.fit(X, X[:, 0] > 0.5).predict_proba([[0.0], [1.0]]).round()
        array([[1., 0.],
               [0., 1.]])
        """
        scores = self.decision_function(X)
        name = cast(str, self._several) if scores.ndim > 1 else self._objective
        return objective(name).probabilities(scores)


@final
@_shared
@dataclass(kw_only=True, eq=False, repr=False)
class LDPLinearRegression(_Regression, _LinearModel):
    """Linear regression with epsilon-local differential privacy for each vehicle.

    `fit` simulates the training of a fleet in which each row is a vehicle.

    Parameters
    ----------
    {bounds}
    {options}
    {own}
    {target}

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The coefficients, in the units of the data.
    intercept_ : float
        The intercept, in the units of the target.
    coef_std_ : ndarray of shape (n_features,) or None
        The standard deviation of each coefficient that noise and prior leave; None unless the
        server is noise-aware. It is cautious: on synthetic problems, two of them held the
        coefficient in 98% to 100% of the cases (docs/learning.md).
    clipped_ : ClippedShare or None
        The share of gradients that were clipped, as a survey of the target has found it. If it is
        surely large, an `AccuracyWarning` says so.
    {attributes}

    See Also
    --------
    fedldp.learn.Settings : The options, and what follows from them.
    LDPMLPRegressor : For what is not linear.
    LDPLogisticRegression : For classes, with probabilities.
    LDPLinearSVC : For two classes.

    Notes
    -----
    {notes}

    Examples
    --------
    >>> import fedldp
    >>> X = 100 * fedldp.source(1).uniform((20_000, 1))
    >>> public = {"bounds": (0, 100), "target_bounds": (0, 400)}
    >>> model = LDPLinearRegression(epsilon=4.0, **public, random_state=0)
    >>> model = model.fit(X, 3 * X[:, 0] + 50)
    >>> model.predict([[20.0], [80.0]]).round(-1)
    array([110., 290.])
    >>> float(model.privacy_.epsilon), model.privacy_.reports, model.privacy_.bytes
    (4.0, 20000, 64452)
    """

    target_bounds: tuple[float, float] | None = None

    def _to_units(self, target: Number) -> None:
        self.coef_ = self.coef_[0] * target.half_width
        if self.coef_std_ is not None:
            self.coef_std_ = self.coef_std_[0] * target.half_width
        self.intercept_ = target.from_unit(float(self.intercept_[0]))


@final
@_shared
@dataclass(kw_only=True, eq=False, repr=False)
class LDPLogisticRegression(_Probabilities, _LinearModel):
    """Logistic regression with epsilon-local differential privacy for each vehicle.

    `fit` simulates the training of a fleet in which each row is a vehicle. With more than two
    classes it is softmax regression, whose weights add up to 0 over the classes.

    Parameters
    ----------
    {bounds}
    {options}
    {own}
    {declared}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The coefficients, in the units of the data; one row for two classes.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        The intercepts.
    coef_std_ : ndarray of the shape of coef_, or None
        The standard deviation of each coefficient that noise and prior leave; None unless the
        server is noise-aware. It is cautious: on synthetic problems, two of them held the
        coefficient in 98% to 100% of the cases (docs/learning.md).
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    {attributes}

    See Also
    --------
    fedldp.learn.Settings : The options, and what follows from them.
    LDPMLPClassifier : For what is not linear.
    LDPLinearSVC : Without probabilities.
    LDPLinearRegression : For a numeric target.

    Notes
    -----
    {notes}

    Examples
    --------
    >>> import fedldp
    >>> X = fedldp.source(1).uniform((20_000, 2))
    >>> y = np.where(X[:, 0] + X[:, 1] > 1.2, "late", "on time")
    >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), random_state=0).fit(X, y)
    >>> model.predict([[0.9, 0.8], [0.1, 0.2]])
    array(['late', 'on time'], dtype='<U7')
    >>> model.decision_function([[0.9, 0.8], [0.1, 0.2]]) > 0
    array([False,  True])

    Several classes:

    >>> y = np.select([X[:, 0] < 0.3, X[:, 1] < 0.5], ["early", "late"], "on time")
    >>> labels = ["early", "late", "on time"]
    >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), classes=labels, random_state=0)
    >>> model.fit(X, y).predict([[0.05, 0.5], [0.9, 0.1], [0.9, 0.9]])
    array(['early', 'late', 'on time'], dtype='<U7')
    >>> model.predict_proba([[0.05, 0.5]]).shape, model.coef_.shape
    ((1, 3), (3, 2))
    """

    classes: npt.ArrayLike | None = None

    _objective = "logistic"


@final
@_shared
@dataclass(kw_only=True, eq=False, repr=False)
class LDPLinearSVC(_Classification, _LinearModel):
    """A linear support vector machine with epsilon-local differential privacy for each vehicle.

    `fit` simulates the training of a fleet in which each row is a vehicle. It predicts one of two
    classes.

    Parameters
    ----------
    {bounds}
    {options}
    {own}
    {declared}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        The coefficients, in the units of the data.
    intercept_ : ndarray of shape (1,)
        The intercept.
    coef_std_ : ndarray of shape (1, n_features) or None
        The standard deviation of each coefficient that noise and prior leave; None unless the
        server is noise-aware. It is cautious: on synthetic problems, two of them held the
        coefficient in 98% to 100% of the cases (docs/learning.md).
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    {attributes}

    See Also
    --------
    fedldp.learn.Settings : The options, and what follows from them.
    LDPLogisticRegression : With probabilities, and for several classes.
    LDPLinearRegression : For a numeric target.

    Notes
    -----
    {notes}

    Examples
    --------
    >>> import fedldp
    >>> X = fedldp.source(1).uniform((20_000, 2))
    >>> model = LDPLinearSVC(epsilon=4.0, bounds=(0, 1), random_state=0)
    >>> model.fit(X, X[:, 0] > X[:, 1]).predict([[0.9, 0.1], [0.3, 0.7]])
    array([ True, False])
    >>> model.decision_function([[0.9, 0.1], [0.3, 0.7]]) > 0
    array([ True, False])
    """

    classes: npt.ArrayLike | None = None

    _objective = "hinge"
    _several = None


@final
@_shared
@dataclass(kw_only=True, eq=False, repr=False)
class LDPMLPClassifier(_Probabilities, _LayeredModel):
    """A small neural network for classes, with epsilon-local differential privacy.

    `fit` simulates the training of a fleet in which each row is a vehicle. Try
    `LDPLogisticRegression` first: it has fewer weights, and so less noise.

    Parameters
    ----------
    {layers}
    {bounds}
    {options}
    {own}
    {declared}

    Attributes
    ----------
    {coefs}
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    {attributes}

    See Also
    --------
    fedldp.learn.Network : Networks with other layers, for signals too.
    LDPLogisticRegression : With fewer weights.
    LDPMLPRegressor : For a numeric target.

    Notes
    -----
    {notes}

    The first weights are public. They follow from `random_state` if that is a number, and are
    always the same otherwise.

    Examples
    --------
    >>> import fedldp
    >>> X = fedldp.source(1).uniform((20_000, 2)) * 2 - 1
    >>> model = LDPMLPClassifier(epsilon=8.0, bounds=(-1, 1), random_state=0)
    >>> model = model.fit(X, X[:, 0] * X[:, 1] > 0)
    >>> model.predict([[0.7, 0.7], [-0.7, 0.7]])
    array([ True, False])
    >>> bool(model.score(X, X[:, 0] * X[:, 1] > 0) > 0.8), model.coefs_[0].shape
    (True, (2, 8))
    >>> model.predict_proba([[0.7, 0.7]]).shape, model.decision_function([[0.7, 0.7]]).shape
    ((1, 2), (1,))
    """

    classes: npt.ArrayLike | None = None

    _objective = "logistic"

    @property
    def out_activation_(self) -> str:
        """The function of the outputs."""
        check_is_fitted(self, "coefs_")
        return cast(str, self._several) if self.coefs_[-1].shape[1] > 1 else self._objective


@final
@_shared
@dataclass(kw_only=True, eq=False, repr=False)
class LDPMLPRegressor(_Regression, _LayeredModel):
    """A small neural network for a number, with epsilon-local differential privacy.

    `fit` simulates the training of a fleet in which each row is a vehicle. Try
    `LDPLinearRegression` first: it has fewer weights, and so less noise.

    Parameters
    ----------
    {layers}
    {bounds}
    {options}
    {own}
    {target}

    Attributes
    ----------
    {coefs}
    {attributes}

    See Also
    --------
    fedldp.learn.Network : Networks with other layers, for signals too.
    LDPLinearRegression : With fewer weights.
    LDPMLPClassifier : For classes.

    Notes
    -----
    {notes}

    The first weights are public. They follow from `random_state` if that is a number, and are
    always the same otherwise.

    Examples
    --------
    >>> import fedldp
    >>> X = fedldp.source(1).uniform((20_000, 1)) * 2 - 1
    >>> public = {"bounds": (-1, 1), "target_bounds": (0, 10)}
    >>> model = LDPMLPRegressor(epsilon=8.0, **public, random_state=0)
    >>> model = model.fit(X, 10 * X[:, 0] ** 2)
    >>> low, high = model.predict([[0.0], [0.9]])
    >>> bool(high > low + 3), model.out_activation_
    (True, 'identity')
    """

    target_bounds: tuple[float, float] | None = None

    def _to_units(self, target: Number) -> None:
        self.coefs_[-1] = self.coefs_[-1] * target.half_width
        self.intercepts_[-1] = target.from_unit(self.intercepts_[-1])

    @property
    def out_activation_(self) -> str:
        """The function of the outputs."""
        check_is_fitted(self, "coefs_")
        return "identity"


# Every estimator: the contract suite of the tests goes through them.
ESTIMATORS = (
    LDPLinearRegression,
    LDPLogisticRegression,
    LDPLinearSVC,
    LDPMLPClassifier,
    LDPMLPRegressor,
)


def _refuse(unsupported: dict[str, Any]) -> None:
    """Refuse arguments of `fit` that an estimator does not take."""
    if "sample_weight" in unsupported:
        raise DomainError(
            "sample_weight is not supported: each vehicle has one report of bounded length, and so "
            "the same weight. To count a vehicle less, leave it out."
        )
    if unsupported:
        raise TypeError(f"unexpected arguments: {', '.join(unsupported)}.")


def _once(ids: Array | None, before: _PreviousFit | None) -> frozenset[str]:
    """Return which vehicles were asked after this; raise an error if one was asked before."""
    # As texts: the number 7 and the text "7" name the same vehicle.
    now = frozenset() if ids is None else frozenset(map(label, ids.tolist()))
    if before is None:
        return now
    if again := now & before.vehicle_ids:
        raise DomainError(
            f"each vehicle is asked once; {len(again)} of these were asked before, such as "
            f"{min(again)!r:.80}. Give only new vehicles to partial_fit."
        )
    return now | before.vehicle_ids


def _spent(
    settings: Settings, levels: Sequence[Settings], task: Task, training: Training
) -> dict[float, Privacy]:
    """Return what vehicles have spent and sent, for each epsilon that they have chosen."""
    if not settings.private:
        return {}
    times = -(-training.reports // len(task))
    privacy_of = {
        level.budget: Privacy.of(cast(Plan, plan), reports, times)
        for level, plan, reports in zip(
            levels, training.plans, training.reports_by_level, strict=True
        )
    }
    if training.surveys:  # whose reports have other sizes and other tables
        ((only, spent),) = privacy_of.items()
        ratios = (survey.ratio for survey in training.surveys)
        ratio = max(cast(Fraction, spent.ratio), *ratios)
        privacy_of[only] = replace(spent, bytes=training.bytes, ratio=ratio)
    return privacy_of


def _check_weights(weights: Floats) -> None:
    if not np.abs(weights).max() <= LARGEST_WEIGHT:
        raise DomainError(
            f"the training diverged: a weight became {np.abs(weights).max():g}. Use a lower "
            "learning_rate or a smaller alpha."
        )


def _checked_ids(vehicle_ids: Any, rows: int) -> Array:
    """Return the vehicle_id of each row; raise an error if one is missing."""
    ids = np.asarray(vehicle_ids)
    if ids.dtype.kind == "O" and not any(is_missing(vehicle_id) for vehicle_id in ids.reshape(-1)):
        ids = ids.astype(str)  # values of several types, which cannot be sorted
    if ids.shape != (rows,):
        raise DomainError(
            f"vehicle_ids must have one for each of {rows} rows; got an array of shape {ids.shape}."
        )
    if ids.dtype.kind in "fO" and any(is_missing(vehicle_id) for vehicle_id in ids.tolist()):
        raise DomainError("vehicle_ids must have one for each row; some are missing.")
    return ids


def _one_each(epsilons: Any, vehicle_rows: VehicleRows | None, rows: int) -> Array:
    """Return the epsilon of each vehicle, given that of each row."""
    found = reals(epsilons, "epsilons")
    if found.shape != (rows,):
        raise DomainError(
            f"epsilons must have one for each of {rows} rows; got an array of shape {found.shape}."
        )
    each = found if vehicle_rows is None else vehicle_rows.one_each(found)
    if each is None:
        raise DomainError("epsilons must be the same in all rows of a vehicle.")
    return each


def _source(random_state: Any, calls: int = 0) -> Source:
    """Return the operating system's randomness or, for study, a source from a seed.

    Each further call of `partial_fit` has a stream of its own.
    """
    found = _first_source(random_state)
    return found.spawn(calls + 1)[calls] if calls else found


def _first_source(random_state: Any) -> Source:
    if random_state is None or isinstance(random_state, Integral):
        return source(random_state)
    return source(int(check_random_state(random_state).randint(1 << 62)))
