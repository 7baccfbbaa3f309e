"""Linear models as scikit-learn estimators. Needs the extra `learn`: scikit-learn.

Each row is a vehicle, or the rows with one vehicle_id are, and their mean gradient is its gradient.
`fit` simulates the fleet's training: a vehicle sends one private report of its gradient, or as many
as it has `participations`.

Everything but X and y is public. In particular the bounds of features and target come from you. A
scaler in front, such as `MinMaxScaler`, learns them from the data, and that is not private.
"""

import warnings
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar, Self, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, reals
from fedldp.data.frames import is_missing
from fedldp.data.quality import AttributeQuality, DataQuality
from fedldp.errors import DomainError, MissingExtra
from fedldp.learn.examples import Array, Rows, VehicleRows
from fedldp.learn.features import FeatureRows, Features, Scaling, Singles, encode_target
from fedldp.learn.model import LARGEST_WEIGHT
from fedldp.learn.objectives import OBJECTIVES
from fedldp.learn.privacy import Privacy
from fedldp.learn.settings import Settings, paper_options
from fedldp.learn.tasks import Linear
from fedldp.learn.training import Round
from fedldp.plan import Plan
from fedldp.randomness import Source, source
from fedldp.schema import Number, Schema
from fedldp.strategies import PAPER_MECHANISM

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin  # type: ignore[import-untyped]
    from sklearn.utils import check_random_state  # type: ignore[import-untyped]
    from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
    from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]
except ImportError as error:
    raise MissingExtra("scikit-learn", "learn") from error

__all__ = ["LDPLinearRegression", "LDPLinearSVC", "LDPLogisticRegression", "PrivacyWarning"]

Ends = tuple[npt.ArrayLike, npt.ArrayLike]  # the lowest and the highest

_CHOICES = [each.name for each in fields(Settings) if each.name != "reference"]


class PrivacyWarning(UserWarning):
    """Vehicles are asked again: what they spend adds up."""


@dataclass(kw_only=True, eq=False, repr=False)
class _LDPLinearModel(BaseEstimator):  # type: ignore[misc]
    """What the estimators share. The fields are the constructor's parameters, and it only stores.

    scikit-learn wants them in an explicit signature: they are listed here, and in no subclass. All
    but `bounds`, `strict` and `random_state` are options of `Settings`, which declares what they
    mean and validates them in `fit`. Its `reference` is left out: it is about categories, and an
    estimator takes numbers.
    """

    bounds: Ends | None = None
    epsilon: float = 1.0
    mechanism: str | None = Settings.mechanism
    bound: float | str = Settings.bound
    k: int | str = Settings.k
    strategy: str = Settings.strategy
    mean_length: float = Settings.mean_length
    outputs: int | None = Settings.outputs
    threshold: int | str = Settings.threshold
    study: bool = Settings.study
    participations: int = Settings.participations
    group: int | str = Settings.group
    max_iter: int | None = Settings.max_iter
    survey: str | None = Settings.survey
    survey_share: float = Settings.survey_share
    learning_rate: float | str = Settings.learning_rate
    optimizer: str = Settings.optimizer
    schedule: str = Settings.schedule
    momentum: float = Settings.momentum
    average: bool = Settings.average
    alpha: float = Settings.alpha
    tol: float = Settings.tol
    estimator: str = Settings.estimator
    strict: bool = False
    random_state: int | np.random.RandomState | None = None
    _fits: list[float] = field(init=False, default_factory=list)  # their epsilons, with all clones'

    _objective: ClassVar[str]

    @classmethod
    def paper(cls, epsilon: float, mechanism: str | None = PAPER_MECHANISM, **options: Any) -> Self:
        """Return an estimator that trains by LDP-FedSGD as the paper prints it.

        `options` are those of `Settings.paper`, and the estimator's own: `bounds`, `strict`,
        `random_state` and, of a regression, `target_bounds`. Categories are yours to encode:
        `fedldp.learn.Features(schema, reference="last")` does it as the paper does.
        """
        choices = paper_options(mechanism, options)
        del choices["reference"]
        return cls(epsilon=epsilon, mechanism=mechanism, **choices)

    def __sklearn_clone__(self) -> Self:
        twin = super().__sklearn_clone__()
        twin._fits = self._fits  # searches fit clones, and clones of clones
        return cast(Self, twin)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = False  # given a random_state; without one every fit differs
        return tags

    def _train(
        self,
        X: Array,
        targets: Floats,
        vehicle_ids: Any,
        epsilons: Any,
        target: AttributeQuality | None = None,
    ) -> tuple[Floats, float]:
        """Train, and return coefficients and intercept for targets on the scale of [-1, 1]."""
        settings = Settings(**{name: getattr(self, name) for name in _CHOICES})
        features = Features(_schema(self.bounds, X.shape[1], type(self).__name__))
        quality = _quality(features.schema, X, target)
        if self.strict:
            quality.refuse()
        quality.warn(stacklevel=3)  # where fit was called
        rows = None if vehicle_ids is None else VehicleRows(_checked_ids(vehicle_ids, len(X)))
        goal = OBJECTIVES[self._objective]
        task = Linear(goal, _Encoded(features, X, targets.astype(np.float32)), rows)
        levels, chosen = [settings], None
        if epsilons is not None:
            chosen = _one_each(epsilons, rows, len(X))
            levels, _ = settings.levels(chosen)
        training = settings.training(
            task, goal.distance, _source(self.random_state), epsilons=chosen
        )
        if settings.private:
            self._spend(float(levels[-1].epsilon))
        self.history_: list[Round] = list(training)
        self.scaling_ = training.scaling
        self.n_iter_ = len(self.history_)
        times = -(-training.reports // len(task))
        self.levels_ = {
            each.epsilon: Privacy.of(cast(Plan, each.plan(task.dimensions)), reports, times)
            for each, reports in zip(levels, training.reports_by_level, strict=True)
            if settings.private
        }
        if (
            training.survey is not None and self.levels_
        ):  # whose reports have other sizes and other tables
            (only,) = self.levels_
            spent = self.levels_[only]
            ratio = max(cast(Fraction, spent.ratio), training.survey.ratio)
            self.levels_[only] = replace(spent, bytes=training.bytes, ratio=ratio)
        self.privacy_ = Privacy.of_levels([*self.levels_.values()]) if self.levels_ else None
        self.price_ = levels[-1].price(task.dimensions)
        features = replace(features, scaling=training.scaling)
        self._deviations = _own_deviations(features, training.deviations)
        return _own_units(features, training.models[0])

    def _spend(self, epsilon: float) -> None:
        """Warn before vehicles are asked again, and note what they spend.

        Of the many fits of a search the 2nd, 4th, 8th and so on warn: a few lines, not hundreds.
        """
        number, total = len(self._fits) + 1, sum(self._fits) + epsilon
        if number > 1 and number.bit_count() == 1:
            warnings.warn(
                f"this is fit number {number} of one {type(self).__name__} and its clones. Each "
                f"fit asks the vehicles again, and what they spend adds up: to epsilon = {total:g} "
                "for a vehicle in all of them. Scores on the vehicles' own data are not private "
                "either: search and cross-validate on public data.",
                PrivacyWarning,
                stacklevel=4,  # where fit was called
            )
        self._fits.append(epsilon)  # not if the warning is made an error: nobody is asked then

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ np.ravel(self.coef_) + self.intercept_)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class LDPLinearRegression(RegressorMixin, _LDPLinearModel):  # type: ignore[misc]
    """Linear regression on a fleet, with epsilon-local differential privacy for each vehicle.

    `bounds` are the public ends of the features, `(low, high)` for all of them or `(lows, highs)`
    with a number for each, and `target_bounds` those of the target; in training, values outside
    count as the end, and a `DataWarning` says how many do. With `strict=True` they are refused
    before any vehicle is asked. The other parameters are those of `Settings`; `mechanism=None` is
    the reference without privacy. With `participations=r` each report has an r-th of epsilon.

    `random_state=None` takes the operating system's randomness. A seed is for study only: whoever
    knows it can undo the noise. Each fit asks the vehicles anew. From the second on, also those of
    clones as in `cross_val_score` and `GridSearchCV`, there is a `PrivacyWarning`; but processes,
    as with `n_jobs=2`, do not know of each other's fits.

    After `fit`: `coef_` and `intercept_` in the units of the data; `coef_std_`, the standard
    deviation of each coefficient that noise and prior leave (None unless the server is
    noise-aware); `scaling_`, what a survey has found out; `privacy_`, what each vehicle
    has spent and all have sent (None without privacy); `levels_`, the same for each epsilon that
    vehicles have chosen; `history_`, a `Round` for each round; `price_`, by what factor the
    participations make the squared error of a gradient grow.

    >>> import fedldp
    >>> X = 100 * fedldp.source(1).uniform((20_000, 1))
    >>> public = {"bounds": (0, 100), "target_bounds": (0, 400)}
    >>> model = LDPLinearRegression(epsilon=4.0, **public, random_state=0)
    >>> model = model.fit(X, 3 * X[:, 0] + 50)
    >>> model.predict([[20.0], [80.0]]).round(-1)
    array([110., 290.])
    >>> float(model.privacy_.epsilon), model.privacy_.reports, model.privacy_.bytes
    (4.0, 20000, 69000)
    """

    target_bounds: tuple[float, float] | None = None

    _objective = "squared"

    def fit(self, X: Any, y: Any, vehicle_ids: Any = None, epsilons: Any = None) -> Self:
        """Train on rows X and their targets y.

        `vehicle_ids` has the id of each row's vehicle, where a vehicle has several rows. `epsilons`
        is for vehicles that choose their own instead of `epsilon`, and has that of each row's
        vehicle. What they choose is public.
        """
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32), y_numeric=True)
        low, high = _pair(self.target_bounds, "target_bounds", type(self).__name__)
        target = Number("target_bounds", low, high)
        (quality,) = Schema((target,)).check(np.asarray(y)).attributes
        quality = replace(quality, name="y")
        coefficients, intercept = self._train(
            X, encode_target(target, y), vehicle_ids, epsilons, quality
        )
        self.coef_ = coefficients * target.half_width
        deviations = self._deviations
        self.coef_std_ = None if deviations is None else deviations * target.half_width
        self.intercept_ = target.from_unit(intercept)
        return self

    def predict(self, X: Any) -> Floats:
        """Return a number for each row, in the units of the target."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # noise drowns a few hundred vehicles
        return tags


class _LDPClassifier(ClassifierMixin, _LDPLinearModel):  # type: ignore[misc]
    """A linear model of which one of two classes a row is in."""

    def fit(self, X: Any, y: Any, vehicle_ids: Any = None, epsilons: Any = None) -> Self:
        """Train on rows X and their labels y. Parameters: see `LDPLinearRegression.fit`."""
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) != 2:
            count = "1 class" if len(self.classes_) == 1 else f"{len(self.classes_)} classes"
            raise DomainError(
                f"Only binary classification is supported. y must have two labels; got {count}."
            )
        targets = np.where(codes, 1.0, -1.0)
        coefficients, intercept = self._train(X, targets, vehicle_ids, epsilons)
        self.coef_, self.intercept_ = coefficients[None], np.array([intercept])
        self.coef_std_ = None if self._deviations is None else self._deviations[None]
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return a score for each row: above 0 the second class is predicted."""
        return self._scores(X)

    def predict(self, X: Any) -> Array:
        """Return the label of each row."""
        scores = self._scores(X)
        return self.classes_[(scores > 0).astype(np.intp)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # noise drowns a few hundred vehicles
        return tags


@final
class LDPLogisticRegression(_LDPClassifier):
    """Logistic regression on a fleet. Parameters and attributes: see `LDPLinearRegression`.

    The labels of the two classes are taken from y, as public.

    >>> import fedldp
    >>> X = fedldp.source(1).uniform((20_000, 2))
    >>> y = np.where(X[:, 0] + X[:, 1] > 1.2, "late", "on time")
    >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), random_state=0).fit(X, y)
    >>> model.predict([[0.9, 0.8], [0.1, 0.2]])
    array(['late', 'on time'], dtype='<U7')
    """

    _objective = "logistic"

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each of the two classes, in a row for each row."""
        from scipy.special import expit

        scores = self._scores(X)
        return np.stack([expit(-scores), expit(scores)], axis=1)


@final
class LDPLinearSVC(_LDPClassifier):
    """A linear support vector machine on a fleet. Parameters: see `LDPLinearRegression`.

    >>> import fedldp
    >>> X = fedldp.source(1).uniform((20_000, 2))
    >>> model = LDPLinearSVC(epsilon=4.0, bounds=(0, 1), random_state=0)
    >>> model.fit(X, X[:, 0] > X[:, 1]).predict([[0.9, 0.1], [0.3, 0.7]])
    array([ True, False])
    """

    _objective = "hinge"


# Every estimator: the contract suite of the tests goes through them.
ESTIMATORS = (LDPLinearRegression, LDPLogisticRegression, LDPLinearSVC)


@final
@dataclass(frozen=True, eq=False)
class _Encoded:
    """Examples whose features are scaled as they are read: no second copy of X."""

    features: Features
    matrix: Array
    targets: Singles

    @property
    def dimensions(self) -> int:
        """How many features there are, the constant included."""
        return self.features.dimensions

    def __len__(self) -> int:
        return len(self.matrix)

    @property
    def encoding(self) -> Features:
        """How a row becomes features."""
        return self.features

    def units(self, rows: Rows) -> Floats:
        """Return the numbers of some rows on the scale of [-1, 1]."""
        return self.features.units(self.matrix[rows])

    def scaled(self, scaling: Scaling) -> "_Encoded":
        """Return the same rows with another scaling of their numbers."""
        return replace(self, features=replace(self.features, scaling=scaling))

    def read(self, rows: Rows) -> tuple[FeatureRows, Any]:
        """Return the features and the targets of some rows."""
        return self.features.encode(self.matrix[rows]), self.targets[rows]


def _pair(ends: Any, keyword: str, name: str) -> tuple[Any, Any]:
    """Return the two ends of public bounds, or teach why they are needed."""
    if ends is None:
        raise DomainError(
            f"{name} needs {keyword}=(low, high), the least and the greatest value that there can "
            "be. Bounds are public and come from you, never from the data: the extremes of the "
            "data would give away the values of single vehicles. Take what is known without "
            "looking, such as (0, 120) for an age; a value outside counts as the bound."
        )
    try:
        low, high = ends
    except (TypeError, ValueError):
        low = high = ()
    if isinstance(low, tuple) or isinstance(high, tuple):  # of pairs, or of too many
        raise DomainError(
            f"{keyword} must be a pair (low, high); got {ends!r:.60}. Bounds of several features "
            "may be two lists, ([low, ...], [high, ...])."
        )
    return low, high


def _schema(bounds: Any, width: int, name: str) -> Schema:
    """Return the schema of rows of numbers with these bounds."""
    low, high = _pair(bounds, "bounds", name)
    if np.ndim(low) == np.ndim(high) == 0:
        return Schema((Number("bounds", low, high, size=width),))
    try:
        lows, highs = (np.broadcast_to(reals(end, "bounds"), width) for end in (low, high))
    except ValueError:
        raise DomainError(
            f"bounds must be (low, high) for all features, or (lows, highs) with a number for "
            f"each of the {width}; got {bounds!r:.60}."
        ) from None
    pairs = zip(lows.tolist(), highs.tolist(), strict=True)
    return Schema(tuple(Number(f"bounds of x{i}", *pair) for i, pair in enumerate(pairs)))


def _quality(schema: Schema, X: Array, target: AttributeQuality | None) -> DataQuality:
    """Return what is clipped in the rows and the targets, under the names that `fit` gives them."""
    found = schema.check(X)
    names = ["X"] if len(schema) == 1 else [f"X[:, {i}]" for i in range(len(schema))]
    attributes = [
        replace(each, name=name) for each, name in zip(found.attributes, names, strict=True)
    ]
    return replace(found, attributes=(*attributes, *([] if target is None else [target])))


def _own_units(features: Features, weights: Floats) -> tuple[Floats, float]:
    """Return the coefficients and the intercept of rows as they are, before scaling."""
    if not np.abs(weights).max() <= LARGEST_WEIGHT:
        raise DomainError(
            f"the training diverged, to a weight of {np.abs(weights).max():g}. Give it a lower "
            "learning_rate, or a smaller alpha."
        )
    slopes, intercept = weights[:-1], weights[-1]
    if features.scaling is not None:
        slopes = slopes @ features.scaling.matrix
        intercept = intercept - slopes @ np.array(features.scaling.centres)
    centres, scales = _bounds(features.schema)
    coefficients = slopes * scales
    return coefficients, float(intercept - coefficients @ centres)


def _own_deviations(features: Features, deviations: Floats | None) -> Floats | None:
    """Return the standard deviations of the coefficients of rows as they are."""
    if deviations is None:
        return None
    variances = deviations[0, :-1] ** 2
    if features.scaling is not None:
        variances = variances @ features.scaling.matrix**2
    return np.sqrt(variances) * _bounds(features.schema)[1]


def _bounds(schema: Schema) -> tuple[Floats, Floats]:
    """Return the centre and the scale of each number of a row."""
    numbers = cast(tuple[Number, ...], schema.attributes)
    sizes = [each.size for each in numbers]
    centres, scales = ([each.centre for each in numbers], [each.scale for each in numbers])
    return np.repeat(centres, sizes), np.repeat(scales, sizes)


def _checked_ids(vehicle_ids: Any, rows: int) -> Array:
    """Return the vehicle_id of each row, or refuse ids that leave a row without one."""
    ids = np.asarray(vehicle_ids)
    if ids.dtype.kind == "O" and not any(is_missing(each) for each in ids.reshape(-1)):
        ids = ids.astype(str)  # of several kinds, which have no order
    if ids.shape != (rows,):
        raise DomainError(f"vehicle_ids must have one for each of {rows} rows; got {ids.shape}.")
    if ids.dtype.kind in "fO" and any(is_missing(each) for each in ids.tolist()):
        raise DomainError("vehicle_ids must have one for each row; some are missing.")
    return ids


def _one_each(epsilons: Any, vehicle_rows: VehicleRows | None, rows: int) -> Array:
    """Return the epsilon of each vehicle, given that of each row."""
    found = reals(epsilons, "epsilons")
    if found.shape != (rows,):
        raise DomainError(f"epsilons must have one for each of {rows} rows; got {found.shape}.")
    each = found if vehicle_rows is None else vehicle_rows.one_each(found)
    if each is None:
        raise DomainError("epsilons must be the same in all rows of a vehicle: it has one budget.")
    return each


def _source(random_state: Any) -> Source:
    """Return the operating system's randomness or, for study, a source from a seed."""
    if random_state is None or isinstance(random_state, Integral):
        return source(random_state)
    return source(int(check_random_state(random_state).randint(1 << 62)))
