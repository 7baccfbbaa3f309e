"""Linear models as scikit-learn estimators. Needs the extra `learn`: scikit-learn.

Each row is a vehicle, or all rows with the same vehicle_id are one vehicle, whose gradient is their
mean gradient. `fit` simulates the training of a fleet: each vehicle sends one private report of its
gradient, or several if `participations` is larger than 1.

Everything except X and y is public. In particular, the bounds of features and target come from you.
A scaler in front, such as `MinMaxScaler`, would learn them from the data, which is not private.
"""

import warnings
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from numbers import Integral
from typing import Any, ClassVar, Self, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.options import document
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

_BOUNDS = """
    bounds : tuple (low, high)
        The public bounds of the features: two numbers for all features, or two sequences
        ``(lows, highs)`` with a number for each feature. They are required, and must come from
        public knowledge, not from the data. In training, a value outside counts as the bound, and
        a `DataWarning` says how many there are.
"""
_OWN = """
    strict : bool, default=False
        Raise an error, before any vehicle is asked, if a value is outside the bounds.
    random_state : int, RandomState or None, default=None
        None uses the operating system's randomness. A seed makes `fit` reproducible and is for
        study only: anybody who knows it can remove the noise.
"""
_ATTRIBUTES = """
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
        The number of features.
    feature_names_in_ : ndarray of str
        The names of the features, if X has string column names.
"""
_NOTES = """
    Each fit asks the vehicles again, and what they spend adds up. From the second fit on there is a
    `PrivacyWarning`. It counts the fits of clones too, as in `cross_val_score` and `GridSearchCV`,
    but not those in other processes, as with ``n_jobs=2``.

    With ``participations=r``, each report of a vehicle costs an r-th of epsilon. ``mechanism=None``
    trains without privacy, for comparison.
"""
_shared = document(Settings, bounds=_BOUNDS, own=_OWN, attributes=_ATTRIBUTES, notes=_NOTES)


class PrivacyWarning(UserWarning):
    """An estimator is fitted again, and what the vehicles spend adds up.

    Examples
    --------
    >>> import warnings
    >>> warnings.simplefilter("error", PrivacyWarning)  # refuse to ask vehicles twice
    >>> warnings.resetwarnings()
    """


@dataclass(kw_only=True, eq=False, repr=False)
class _LDPLinearModel(BaseEstimator):  # type: ignore[misc]
    """What the estimators share. The fields are the constructor's parameters, which it only stores.

    scikit-learn requires an explicit signature: it is here, and in no subclass. All parameters
    except `bounds`, `strict` and `random_state` are options of `Settings`, which declares what they
    mean and validates them in `fit`. `Settings.reference` is left out: it is about categories, and
    an estimator takes numbers.
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
        """Return an estimator that trains by LDP-FedSGD exactly as in the paper.

        Encode categories yourself; `fedldp.learn.Features(schema, reference="last")` does it as in
        the paper.

        Parameters
        ----------
        epsilon : float
            The privacy budget of a vehicle.
        mechanism : str or None, default="hm-tp"
            One of the paper's mechanisms.
        **options : object
            The options of `Settings.paper`, and the estimator's own parameters: `bounds`, `strict`,
            `random_state` and, for a regression, `target_bounds`.

        Returns
        -------
        estimator
            An estimator that is not fitted yet.

        Raises
        ------
        DomainError
            If an option is given that the paper decides.

        Examples
        --------
        >>> LDPLogisticRegression.paper(1.0, bounds=(0, 1)).optimizer
        'sgd'
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
        """Train; return the coefficients and the intercept for targets on the scale of [-1, 1]."""
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
                stacklevel=4,  # where fit was called
            )
        self._fits.append(epsilon)  # not if the warning is an error: then no vehicle is asked

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self, "coef_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(X @ np.ravel(self.coef_) + self.intercept_)


@final
@_shared
@dataclass(kw_only=True, eq=False, repr=False)
class LDPLinearRegression(RegressorMixin, _LDPLinearModel):  # type: ignore[misc]
    """Linear regression with epsilon-local differential privacy for each vehicle.

    `fit` simulates the training of a fleet in which each row is a vehicle.

    Parameters
    ----------
    {bounds}
    {options}
    {own}
    target_bounds : tuple (low, high)
        The public bounds of the target. They are required, and values outside count as the bound.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        The coefficients, in the units of the data.
    intercept_ : float
        The intercept, in the units of the target.
    coef_std_ : ndarray of shape (n_features,) or None
        The standard deviation of each coefficient that noise and prior leave; None unless the
        server is noise-aware.
    {attributes}

    See Also
    --------
    fedldp.learn.Settings : The options, and what follows from them.
    LDPLogisticRegression : For two classes, with probabilities.
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
    (4.0, 20000, 69000)
    """

    target_bounds: tuple[float, float] | None = None

    _objective = "squared"

    def fit(self, X: Any, y: Any, vehicle_ids: Any = None, epsilons: Any = None) -> Self:
        """Train on rows and their targets.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The features.
        y : array-like of shape (n_rows,)
            The targets.
        vehicle_ids : array-like of shape (n_rows,), optional
            The id of each row's vehicle, if vehicles have several rows. By default each row is a
            vehicle.
        epsilons : array-like of shape (n_rows,), optional
            The epsilon of each row's vehicle, if vehicles choose their own instead of `epsilon`.
            What they choose is public.

        Returns
        -------
        LDPLinearRegression
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
        """Predict the target of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The features.

        Returns
        -------
        ndarray of shape (n_rows,)
            The predictions, in the units of the target.
        """
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # there is too much noise for a few hundred vehicles
        return tags


class _LDPClassifier(ClassifierMixin, _LDPLinearModel):  # type: ignore[misc]
    """A linear model that predicts one of two classes."""

    def fit(self, X: Any, y: Any, vehicle_ids: Any = None, epsilons: Any = None) -> Self:
        """Train on rows and their labels.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The features.
        y : array-like of shape (n_rows,)
            The labels: two different values, which count as public.
        vehicle_ids : array-like of shape (n_rows,), optional
            The id of each row's vehicle, if vehicles have several rows. By default each row is a
            vehicle.
        epsilons : array-like of shape (n_rows,), optional
            The epsilon of each row's vehicle, if vehicles choose their own instead of `epsilon`.
            What they choose is public.

        Returns
        -------
        estimator
            The fitted estimator.

        Raises
        ------
        DomainError
            If y does not have two labels, a parameter is invalid, bounds are missing, or the
            training diverges.
        """
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
        """Return a score for each row; `predict` returns the second class if it is above 0.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The features.

        Returns
        -------
        ndarray of shape (n_rows,)
            The scores.
        """
        return self._scores(X)

    def predict(self, X: Any) -> Array:
        """Predict the label of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The features.

        Returns
        -------
        ndarray of shape (n_rows,)
            The labels, from `classes_`.
        """
        scores = self._scores(X)
        return self.classes_[(scores > 0).astype(np.intp)]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True  # there is too much noise for a few hundred vehicles
        return tags


@final
@_shared
class LDPLogisticRegression(_LDPClassifier):
    """Logistic regression with epsilon-local differential privacy for each vehicle.

    `fit` simulates the training of a fleet in which each row is a vehicle. It predicts one of two
    classes, whose labels are taken from y and count as public.

    Parameters
    ----------
    {bounds}
    {options}
    {own}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        The coefficients, in the units of the data.
    intercept_ : ndarray of shape (1,)
        The intercept.
    coef_std_ : ndarray of shape (1, n_features) or None
        The standard deviation of each coefficient that noise and prior leave; None unless the
        server is noise-aware.
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    {attributes}

    See Also
    --------
    fedldp.learn.Settings : The options, and what follows from them.
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
    """

    _objective = "logistic"

    def predict_proba(self, X: Any) -> Floats:
        """Return the probabilities of the two classes.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The features.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            The probability of each class, in the order of `classes_`.

        Examples
        --------
        >>> X = np.tile([[0.0], [1.0]], (500, 1))
        >>> model = LDPLogisticRegression(epsilon=4.0, bounds=(0, 1), random_state=0)
        >>> model.fit(X, X[:, 0] > 0.5).predict_proba([[0.0], [1.0]]).round()
        array([[1., 0.],
               [0., 1.]])
        """
        from scipy.special import expit

        scores = self._scores(X)
        return np.stack([expit(-scores), expit(scores)], axis=1)


@final
@_shared
class LDPLinearSVC(_LDPClassifier):
    """A linear support vector machine with epsilon-local differential privacy for each vehicle.

    `fit` simulates the training of a fleet in which each row is a vehicle. It predicts one of two
    classes, whose labels are taken from y and count as public.

    Parameters
    ----------
    {bounds}
    {options}
    {own}

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features)
        The coefficients, in the units of the data.
    intercept_ : ndarray of shape (1,)
        The intercept.
    coef_std_ : ndarray of shape (1, n_features) or None
        The standard deviation of each coefficient that noise and prior leave; None unless the
        server is noise-aware.
    classes_ : ndarray of shape (2,)
        The labels, sorted.
    {attributes}

    See Also
    --------
    fedldp.learn.Settings : The options, and what follows from them.
    LDPLogisticRegression : With probabilities.
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

    _objective = "hinge"


# Every estimator: the contract suite of the tests goes through them.
ESTIMATORS = (LDPLinearRegression, LDPLogisticRegression, LDPLinearSVC)


@final
@dataclass(frozen=True, eq=False)
class _Encoded:
    """Rows whose features are scaled when they are read, without a second copy of X."""

    features: Features
    matrix: Array
    targets: Singles

    @property
    def dimensions(self) -> int:
        """The number of features, including the constant."""
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
    """Return the two ends of public bounds, or raise an error that explains why they are needed."""
    if ends is None:
        raise DomainError(
            f"{name} needs {keyword}=(low, high), the smallest and the largest possible value. "
            "Bounds are public and must come from you, never from the data: the extremes of the "
            "data would reveal the values of single vehicles. Use what is known without the data, "
            "such as (0, 120) for an age; a value outside counts as the bound."
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
    """Return what is clipped in the rows and the targets, with the names that `fit` uses."""
    found = schema.check(X)
    names = ["X"] if len(schema) == 1 else [f"X[:, {i}]" for i in range(len(schema))]
    attributes = [
        replace(each, name=name) for each, name in zip(found.attributes, names, strict=True)
    ]
    return replace(found, attributes=(*attributes, *([] if target is None else [target])))


def _own_units(features: Features, weights: Floats) -> tuple[Floats, float]:
    """Return the coefficients and the intercept for rows in their own units."""
    if not np.abs(weights).max() <= LARGEST_WEIGHT:
        raise DomainError(
            f"the training diverged: a weight became {np.abs(weights).max():g}. Use a lower "
            "learning_rate or a smaller alpha."
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
    """Return the vehicle_id of each row; raise an error if one is missing."""
    ids = np.asarray(vehicle_ids)
    if ids.dtype.kind == "O" and not any(is_missing(each) for each in ids.reshape(-1)):
        ids = ids.astype(str)  # values of several types, which cannot be sorted
    if ids.shape != (rows,):
        raise DomainError(
            f"vehicle_ids must have one for each of {rows} rows; got an array of shape {ids.shape}."
        )
    if ids.dtype.kind in "fO" and any(is_missing(each) for each in ids.tolist()):
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


def _source(random_state: Any) -> Source:
    """Return the operating system's randomness or, for study, a source from a seed."""
    if random_state is None or isinstance(random_state, Integral):
        return source(random_state)
    return source(int(check_random_state(random_state).randint(1 << 62)))
