"""The Attribute protocol: the only place where kinds of attributes differ.

An attribute knows how its values are read from a table, what its coder takes, what is estimated
about it, what a model sees of it, and how it is declared in TOML and in JSON. To add a kind, write
a class in a file of its own, derive it from `Measured` (its coder takes numbers) or from `Labelled`
(its coder takes one of some labels), and list it in `fedldp.schema.attributes.ATTRIBUTES`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields
from math import inf, isfinite
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from fedldp._internal.text import listed
from fedldp._internal.validation import Floats, is_real
from fedldp.coders.base import Coder, ForCategories
from fedldp.errors import DomainError
from fedldp.schema.attributes.grouped import GroupMeans, TwoWay, moved_ratio
from fedldp.schema.attributes.results import Frequencies, Numbers, Result
from fedldp.schema.frames import Cells, is_missing, shown, to_float
from fedldp.vehicle import PLAN_FORMAT

__all__ = ["Attribute", "Labelled", "Measured"]

Values = npt.NDArray[Any]  # what `read` returns, or a column in which it is stored


class Coders(Protocol):
    """The coders that a plan offers to its attributes. Equal arguments give the same object."""

    variance: float  # a public guess of the variance of numbers on the scale of [-1, 1]

    def for_numbers(self, epsilon: float) -> Coder:
        """Return the coder of numbers in [-1, 1]."""

    def for_labels(self, epsilon: float, number: int) -> ForCategories:
        """Return the coder of a number of labels, as plans of format 1 have it if they can."""

    def compact(self, epsilon: float, number: int) -> ForCategories:
        """Return the coder of a number of labels with few bits, for plans of format 2."""

    def noise(self, epsilon: float) -> float:
        """Return the largest variance of an answer of the coder of numbers."""


class Attribute(ABC):
    """A named column of a schema, or several: how it is read, asked for, estimated and learned.

    `read` turns cells of a table into values: floats, with NaN for those that cannot be used. A
    value v becomes the input (v - centre) * scale of a coder, clipped to `inputs`; a missing value
    becomes `missing_input`. An estimate on the scale of the inputs is turned back by `from_unit`.

    Attributes
    ----------
    name
        Its name.
    size
        How many coordinates it has.
    missing
        The public value that replaces one that is missing, unreadable or unknown.
    centre, scale
        How a value becomes an input.
    half_width
        An error on the scale of the inputs is multiplied by it.
    length
        The public bound on the length of a vector, if it has one.
    optional
        Whether "missing" is a value like others, and not replaced.
    constant
        Whether the value of a vehicle never changes: see `fedldp.Plan.constant`. A field of the
        class with the default False, and `kw_only`.
    unsettled
        Whether it leaves something to the plan: see `settled`.
    rounds
        Whether an input may lie between two labels, and is rounded to one of them at random.
    numeric
        Whether its coder takes numbers in [-1, 1]. Otherwise it takes the numbers of labels.
    reads_floats
        Whether `read` returns an array of numbers as it is.
    invalid
        What a value is called that cannot be used: "unreadable" or "unknown".
    declared_as
        Which entries declare it in TOML, for messages.
    plan_format
        The first format of plans that can have such an attribute.

    Examples
    --------
    >>> import fedldp
    >>> schema = fedldp.Schema.of(age=(0, 100), city=["Oslo", "Rome"])
    >>> [each.numeric for each in schema.attributes]
    [True, False]
    """

    name: str
    size: int
    missing: Any
    centre: float
    scale: float
    half_width: float
    length: float | None
    optional: bool = False
    constant: bool = False

    unsettled: bool = False
    rounds: bool = False
    numeric: ClassVar[bool]
    reads_floats: ClassVar[bool]
    invalid: ClassVar[str]
    declared_as: ClassVar[str]
    plan_format: ClassVar[str] = PLAN_FORMAT

    # How it is declared.

    @classmethod
    @abstractmethod
    def from_shorthand(cls, name: str, given: Any, size: int) -> "Attribute | None":
        """Return the attribute that an argument of `Schema.of` describes.

        Parameters
        ----------
        name
            The name of the attribute.
        given
            The argument, such as (0, 100).
        size
            How many numbers a cell of its column holds.

        Returns
        -------
        Attribute or None
            The attribute; None if the argument does not describe one of this kind.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> Number.from_shorthand("age", (0, 100), 1).high, Category.from_shorthand("a", (0, 1), 1)
        (100.0, None)
        """

    @classmethod
    @abstractmethod
    def from_table(cls, name: str, table: Mapping[str, Any]) -> "Attribute | None":
        """Return the attribute that a table in TOML declares.

        Parameters
        ----------
        name
            The name of the attribute.
        table
            The entries of the table.

        Returns
        -------
        Attribute or None
            The attribute; None if the table has entries of another kind.

        Raises
        ------
        DomainError
            If the entries are of this kind, and a value is invalid.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number.from_table("age", {"low": 0, "high": 100}).missing
        50.0
        """

    @classmethod
    @abstractmethod
    def is_entry(cls, options: Mapping[str, Any]) -> bool:
        """Return whether `options` of an attribute of this kind can look like this in JSON.

        Parameters
        ----------
        options
            The entries beside the name.

        Returns
        -------
        bool
            Whether exactly the expected keys are there, with values of the expected types.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category.is_entry({"categories": ["Oslo", "Rome"], "missing": "Oslo"})
        True
        """

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the entries that declare it in JSON and TOML, without its name.

        Returns
        -------
        dict
            Plain values.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome"]).options()
        {'categories': ['Oslo', 'Rome'], 'missing': 'Oslo'}
        """

    def declaration(self) -> dict[str, Any]:
        """Return all entries that declare it in JSON and TOML, without its name.

        Returns
        -------
        dict
            Those of `options`, and `constant` if its value never changes. The parts of an attribute
            with several columns say that themselves.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome"], constant=True).declaration()
        {'categories': ['Oslo', 'Rome'], 'missing': 'Oslo', 'constant': True}
        """
        declared = self.constant and self.parts == (self,)
        return self.options() | ({"constant": True} if declared else {})

    def __repr__(self) -> str:
        keys = [each.name for each in fields(self) if each.name != "constant"]  # type: ignore[arg-type]
        return self._shown(keys)

    def _shown(self, keys: Iterable[str]) -> str:
        """Return the call that makes it, with some of its arguments."""
        shown = [*keys, *(["constant"] if self.constant and self.parts == (self,) else [])]
        given = ", ".join(f"{key}={getattr(self, key)!r}" for key in shown)
        return f"{type(self).__name__}({given})"

    @property
    @abstractmethod
    def domain(self) -> str:
        """The values that it can have, for display."""

    # How it is read.

    @property
    def parts(self) -> "tuple[Attribute, ...]":
        """The attributes whose columns it reads: by default itself."""
        return (self,)

    def joined(self, values: "list[Floats]") -> Floats:
        """Return one value from those of its parts.

        Parameters
        ----------
        values
            What `read` of each part returned, a row for each vehicle.

        Returns
        -------
        array of float
            A row for each vehicle.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).joined([np.array([[31.0], [54.0]])])
        array([[31.],
               [54.]])
        """
        return values[0]

    @abstractmethod
    def read(self, cells: Cells) -> Floats:
        """Return a value for each cell of a table.

        Parameters
        ----------
        cells
            A column of a table: texts, numbers or None.

        Returns
        -------
        array of float
            The numbers, or the codes of the categories, and NaN for every cell that is missing,
            unreadable or unknown.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> Number("age", 0, 100).read([31, "54", None])
        array([31., 54., nan])
        >>> Category("city", ["Oslo", "Rome"]).read(["Rome", "Bonn"])
        array([ 1., nan])
        """

    def is_missing(self, cell: object) -> bool:
        """Return whether a cell stands for a missing value.

        Parameters
        ----------
        cell
            A cell whose value is NaN.

        Returns
        -------
        bool
            True if the cell is missing, and False if it is unreadable or unknown.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> Number("age", 0, 100).is_missing("nan"), Category("a", ["b", "c"]).is_missing("nan")
        (True, False)
        """
        return is_missing(cell)

    def fault(self, cell: object, is_entry: bool = True) -> str:
        """Return why the value of a cell is NaN.

        Parameters
        ----------
        cell
            The cell, or an entry of it.
        is_entry
            Whether it is one entry of a vector, and not the whole of it.

        Returns
        -------
        str
            The reason, for the owner of the data.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Paris"]).fault("Pari")
        "'Pari' is not one of the 2 categories (did you mean 'Paris'?)"
        """
        if self.is_missing(cell):
            return "the value is missing"
        return f"{shown(cell)} is not {self._expected(cell, is_entry)}"

    @abstractmethod
    def _expected(self, cell: object, is_entry: bool) -> str:
        """Return what was expected instead of a cell."""

    @property
    @abstractmethod
    def limits(self) -> str:
        """What values are clipped to, in words; empty if they are not clipped."""

    @property
    @abstractmethod
    def replacement(self) -> str:
        """The public value that replaces an unusable one, in words."""

    @abstractmethod
    def clipped(self, values: Floats, least: float, most: float) -> int:
        """Return how many values will be clipped.

        Parameters
        ----------
        values
            Values, a row for each vehicle.
        least, most
            The smallest and the largest of them; NaN if one of them is.

        Returns
        -------
        int
            The number of values beyond a bound by more than a millionth of the range.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).clipped(np.array([[31.0], [130.0]]), 31.0, 130.0)
        1
        """

    @abstractmethod
    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        """Return which values are usable: `read` can return them, and they are not NaN.

        Parameters
        ----------
        values
            Numbers that may be anything.

        Returns
        -------
        array of bool
            Whether each of them is usable.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome"]).known(np.array([0.0, 1.0, 2.0, 0.5, np.nan]))
        array([ True,  True, False, False, False])
        """

    # How it is stored in a data set.

    @abstractmethod
    def compact(self, values: Floats) -> Values:
        """Return values in few bytes, clipped, with the public default for NaN.

        Parameters
        ----------
        values
            Values, a row for each vehicle.

        Returns
        -------
        array
            A column of a data set.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).compact(np.array([[31.0], [130.0], [np.nan]]))
        array([ 31., 100.,  50.], dtype=float32)
        """

    @abstractmethod
    def check_column(self, column: Values) -> None:
        """Refuse a column of a data set that does not hold values of this attribute.

        Parameters
        ----------
        column
            The column.

        Raises
        ------
        DomainError
            If the column holds something else.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome"]).check_column(np.array([0, 1, 1]))
        """

    # What its coder takes.

    @property
    @abstractmethod
    def inputs(self) -> tuple[float, float]:
        """The least and the largest input of a coder."""

    @property
    @abstractmethod
    def missing_input(self) -> float:
        """The input of a missing value."""

    @abstractmethod
    def to_inputs(self, values: Values) -> Floats:
        """Return the inputs that a coder takes for some values.

        Parameters
        ----------
        values
            Values as `read` returns them, NaN for a missing one.

        Returns
        -------
        array of float
            The inputs, scaled and clipped.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome", "other"]).to_inputs(np.array([1.0, np.nan]))
        array([1., 2.])
        """

    def settled(self, epsilon: float, coders: Coders) -> "Attribute":
        """Return the attribute with all that it leaves to the plan.

        Parameters
        ----------
        epsilon
            The privacy budget of one answer.
        coders
            The coders that the plan offers.

        Returns
        -------
        Attribute
            The attribute as it is written in the plan; most leave nothing open.

        Examples
        --------
        >>> from fedldp import OptionalNumber
        >>> from fedldp.plan.strategies import Offered
        >>> speed = OptionalNumber("speed", 0, 130)
        >>> [speed.settled(epsilon, Offered("hm-tp")).grid for epsilon in (0.5, 4.0)]
        [2, 5]
        """
        return self

    @abstractmethod
    def coder(self, epsilon: float, coders: Coders) -> Coder:
        """Return the coder that it prefers.

        Parameters
        ----------
        epsilon
            The privacy budget of one answer.
        coders
            The coders that the plan offers.

        Returns
        -------
        Coder
            A coder whose `inputs` are those of the attribute.

        Examples
        --------
        >>> from fedldp import Category
        >>> from fedldp.plan.strategies import Offered
        >>> Category("city", ["Oslo", "Rome"]).coder(1.0, Offered("hm-tp")).inputs
        (0.0, 1.0)
        """

    @abstractmethod
    def expected_error(self, epsilon: float, coders: Coders) -> float:
        """Return the squared error of one answer to each coordinate, summed over all estimates.

        Parameters
        ----------
        epsilon
            The privacy budget of one answer.
        coders
            The coders that the plan offers.

        Returns
        -------
        float
            The largest variance of the noise, and the spread that the data are assumed to have.

        Examples
        --------
        >>> from fedldp import Number
        >>> from fedldp.plan.strategies import Offered
        >>> round(Number("way", 0, 1, size=3).expected_error(1.0, Offered("duchi")), 1)
        15.0
        """

    # What is estimated.

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The public labels of which frequencies are estimated; a number has none."""

    @property
    @abstractmethod
    def estimates(self) -> int:
        """How many numbers are estimated about it."""

    @property
    @abstractmethod
    def ends(self) -> tuple[float, float]:
        """The least and the largest true value of an estimate, in its own units."""

    @abstractmethod
    def from_unit(self, mean: Any) -> Any:
        """Convert a mean from the scale of the inputs to the attribute's own units.

        Parameters
        ----------
        mean
            A number or an array on the scale of the inputs. A frequency stays as it is.

        Returns
        -------
        float or array
            The mean in the attribute's own units.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> Number("age", 0, 100).from_unit(0.1), Category("city", ["Oslo", "Rome"]).from_unit(0.1)
        (55.0, 0.1)
        """

    @abstractmethod
    def result(self, numbers: Numbers) -> Result:
        """Return what `estimate["name"]` is.

        Parameters
        ----------
        numbers
            The estimates in the attribute's own units, with errors and intervals.

        Returns
        -------
        Result
            The result that a user sees.

        Examples
        --------
        >>> from fedldp import Number
        >>> one, ends = np.array([31.0]), np.array([[30.0, 32.0]])
        >>> Number("age", 0, 100).result(Numbers(one, one / 62, ends, ends, np.array([900])))
        <Mean 31.0 ± 1.0, 900 answers>
        """

    @abstractmethod
    def name_of(self, place: int) -> str:
        """Return the name of one of the estimates, for display.

        Parameters
        ----------
        place
            The number of the estimate: of an entry of a vector, or of a category.

        Returns
        -------
        str
            The name.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> Number("way", 0, 1, size=3).name_of(2), Category("city", ["Oslo", "Rome"]).name_of(1)
        ('way[2]', 'city = Rome')
        """

    def coordinate_name(self, place: int) -> str:
        """Return the name of one of its coordinates, for display.

        Parameters
        ----------
        place
            The number of the coordinate.

        Returns
        -------
        str
            The name.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> [each.coordinate_name(0) for each in (Number("way", 0, 1, size=3), Number("x", 0, 1))]
        ['way[0]', 'x']
        """
        return self.name if self.size == 1 else f"{self.name}[{place}]"

    def described(self, place: int) -> tuple[str, tuple[float, float]]:
        """Return the name of one of the numbers of its result, and the range it can have.

        Parameters
        ----------
        place
            The number of the line among `Result.lines`.

        Returns
        -------
        tuple
            The name, for display, and the least and the largest true value.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).described(0)
        ('age', (0.0, 100.0))
        """
        return self.name_of(place), self.ends

    # As a part of another attribute: see `fedldp.Within`.

    def settled_within(self, groups: int, epsilon: float, coders: Coders) -> "Attribute":
        """Return the attribute with all that it leaves to the plan, within groups.

        Parameters
        ----------
        groups
            How many groups there are.
        epsilon
            The privacy budget of one answer.
        coders
            The coders that the plan offers.

        Returns
        -------
        Attribute
            The attribute as it is written in the plan; most leave nothing open.

        Examples
        --------
        >>> from fedldp import Number
        >>> from fedldp.plan.strategies import Offered
        >>> speed = Number("speed", 0, 130)
        >>> speed.settled_within(3, 1.0, Offered("hm-tp")) is speed
        True
        """
        return self

    @property
    @abstractmethod
    def letters(self) -> tuple[str, ...]:
        """The labels between which its position lies, if it is asked for within groups."""

    @abstractmethod
    def positions(self, values: Values) -> Floats:
        """Return where values lie among the letters.

        Parameters
        ----------
        values
            Values as `joined` returns them, NaN for a missing one.

        Returns
        -------
        array of float
            Positions from 0 to the number of letters less 1: 0.25 is rounded to 0 or to 1.

        Examples
        --------
        >>> from fedldp import Category, Number
        >>> Number("age", 0, 100).positions(np.array([25.0, np.nan]))
        array([0.25, 0.5 ])
        >>> Category("city", ["Oslo", "Rome"]).positions(np.array([1.0, np.nan]))
        array([1., 0.])
        """

    @abstractmethod
    def within(self, groups: tuple[str, ...], numbers: Numbers) -> Result:
        """Return the result of this attribute within groups.

        Parameters
        ----------
        groups
            The labels of the groups.
        numbers
            The frequencies of all letters in the first group, then in the second, and so on.

        Returns
        -------
        Result
            A mean for each group, or a table of frequencies.

        Examples
        --------
        >>> import fedldp
        >>> speed, model = fedldp.Number("speed", 0, 130), fedldp.Category("model", ["A", "B"])
        >>> plan = fedldp.Plan(fedldp.Schema((fedldp.Within("by model", speed, model),)), 4.0)
        >>> rows = {"speed": [26, 104] * 20_000, "model": ["A", "B"] * 20_000}
        >>> plan.simulate(rows, fedldp.source(1)).estimate()["by model"].means.mean.round(-1)
        array([ 30., 100.])
        """

    @abstractmethod
    def sums_within(self, groups: Values, number: int, positions: Floats) -> tuple[Values, Values]:
        """Return what `sums` returns, within groups.

        Parameters
        ----------
        groups
            The number of the group of each vehicle.
        number
            How many groups there are.
        positions
            The position of each vehicle's value.

        Returns
        -------
        tuple of array
            A sum, and the number of rows that count, for each number of the result of `within`.

        Examples
        --------
        >>> from fedldp import Number
        >>> groups, positions = np.array([0, 1, 1]), np.array([0.5, 0.0, 1.0])
        >>> Number("age", 0, 100).sums_within(groups, 2, positions)
        (array([ 50., 100.,   1.,   2.]), array([1., 2., 3., 3.]))
        """

    # What liars can do: see `fedldp.Plan.influence`.

    def moved(self, coder: Any, liars: float, group: float) -> float:
        """Return how far liars can move the estimate at most, in its own units.

        Parameters
        ----------
        coder
            The coder of the attribute.
        liars
            Their share of all answers.
        group
            The share of honest vehicles in the group of which something is estimated.

        Returns
        -------
        float
            The largest shift, from the worst honest data to the worst answers.

        Examples
        --------
        >>> import fedldp
        >>> from fedldp.mechanisms import Duchi
        >>> round(fedldp.Number("x", 0, 1).moved(Duchi(1.0).channel(), 0.01, 0.0), 4)
        0.0158
        """
        return float(coder.reach * self.half_width * liars)

    def moved_within(self, coder: Any, liars: float, group: float) -> float:
        """Return how far liars can move what is estimated within a group.

        Parameters
        ----------
        coder
            The coder of the attribute and its groups together.
        liars
            Their share of all answers.
        group
            The share of honest vehicles in the group.

        Returns
        -------
        float
            The largest shift.

        Examples
        --------
        >>> import fedldp
        >>> coder = fedldp.coders.RandomizedResponse.of(8.0, 4)
        >>> round(fedldp.Number("x", 0, 100).moved_within(coder, 0.01, 0.03), 1)
        25.2
        """
        return self.moved(coder, liars, group)

    # The truth, if all data are known, as in a simulation.

    @abstractmethod
    def sums(self, values: Values) -> tuple[Values, Any]:
        """Return the sums of what is estimated, and by how much to divide each for the truth.

        Parameters
        ----------
        values
            Values, a row for each vehicle. NaN adds nothing to a sum.

        Returns
        -------
        tuple
            A sum for each estimate, and the number of rows that count.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome"]).sums(np.array([[1.0], [np.nan], [1.0]]))
        (array([0, 2]), 3)
        """

    def used(self, values: Values) -> Floats:
        """Return the values that vehicles use: clipped, and replaced where one is missing.

        Parameters
        ----------
        values
            Values as `read` returns them.

        Returns
        -------
        array of float
            Values in the attribute's own units, none of them NaN.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).used(np.array([31.0, 130.0, np.nan]))
        array([ 31., 100.,  50.])
        """
        return np.asarray(self.from_unit(self.to_inputs(values)))

    @abstractmethod
    def summary(self, values: Values) -> dict[str, Any]:
        """Return what is known about a column of a data set, for JSON.

        Parameters
        ----------
        values
            All values of the column, a row for each vehicle.

        Returns
        -------
        dict
            Plain values.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).summary(np.array([[31.0], [130.0]]))
        {'mean': 80.5, 'outside': 0.5}
        """

    @abstractmethod
    def typical(self, summary: Mapping[str, Any]) -> str:
        """Return the typical value, for display.

        Parameters
        ----------
        summary
            What `summary` returned.

        Returns
        -------
        str
            The mean of a number, or the most frequent label.

        Examples
        --------
        >>> from fedldp import Category
        >>> Category("city", ["Oslo", "Rome"]).typical({"frequencies": [0.25, 0.75]})
        'Rome (75%)'
        """

    # What a model sees.

    @property
    @abstractmethod
    def feature_labels(self) -> tuple[str, ...]:
        """The labels that can become features; empty if it becomes `size` numbers."""

    def to_features(self, values: Values) -> Floats:
        """Return what a model sees of some values.

        Parameters
        ----------
        values
            Values as `read` returns them.

        Returns
        -------
        array of float
            Numbers in [-1, 1] or, if there are `feature_labels`, the number of a label.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).to_features(np.array([75.0, np.nan]))
        array([0.5, 0. ])
        """
        return self.to_inputs(values)

    def from_features(self, numbers: Any) -> Any:
        """Convert numbers that a model predicts to the attribute's own units.

        Parameters
        ----------
        numbers
            Numbers on the scale of `to_features`.

        Returns
        -------
        float or array
            Numbers in the attribute's own units.

        Examples
        --------
        >>> from fedldp import Number
        >>> Number("age", 0, 100).from_features(0.5)
        75.0
        """
        return self.from_unit(numbers)


class Measured(Attribute):
    """An attribute whose coder takes numbers in [-1, 1], and whose means are estimated.

    Examples
    --------
    >>> import fedldp
    >>> isinstance(fedldp.Number("age", 0, 100), Measured)
    True
    """

    numeric = True
    inputs = (-1.0, 1.0)
    labels = ()
    feature_labels = ()

    @property
    def estimates(self) -> int:
        """How many numbers are estimated about the attribute: `size`."""
        return self.size

    letters = ("-", "+")

    def positions(self, values: Values) -> Floats:
        return (1 + self.to_inputs(values)) / 2

    def within(self, groups: tuple[str, ...], numbers: Numbers) -> Result:
        return GroupMeans.of(groups, 2, np.array(self.ends), numbers)

    def moved_within(self, coder: Any, liars: float, group: float) -> float:
        low, high = self.ends
        return (high - low) * moved_ratio(coder, np.array([0.0, 1.0]), liars, group)

    def sums_within(self, groups: Values, number: int, positions: Floats) -> tuple[Values, Values]:
        (low, high), present = self.ends, positions <= 1
        counts = np.bincount(groups[present], minlength=number).astype(np.float64)
        sums = np.bincount(groups[present], positions[present], minlength=number)
        totals = np.full(number, float(len(groups)))
        return np.append(low * counts + (high - low) * sums, counts), np.append(counts, totals)

    def coder(self, epsilon: float, coders: Coders) -> Coder:
        return coders.for_numbers(epsilon)

    def expected_error(self, epsilon: float, coders: Coders) -> float:
        return self.size * (coders.noise(epsilon) + coders.variance)

    def from_unit(self, mean: Any) -> Any:
        return self.centre + mean * self.half_width

    def name_of(self, place: int) -> str:
        return self.coordinate_name(place)

    def sums(self, values: Values) -> tuple[Values, Any]:
        known = self.known(values)
        with np.errstate(invalid="ignore", over="ignore"):  # values may be infinite
            return np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)


class Labelled(Attribute):
    """An attribute whose coder takes one of some labels, and whose frequencies are estimated.

    Its values are the numbers of the labels, from 0; a value beyond the last counts as the last.

    Examples
    --------
    >>> import fedldp
    >>> isinstance(fedldp.Category("city", ["Oslo", "Rome"]), Labelled)
    True
    """

    size: ClassVar[int] = 1  # type: ignore[misc]
    centre, scale, half_width, length = 0.0, 1.0, 1.0, None
    numeric = False
    reads_floats = False
    ends = (0.0, 1.0)

    @property
    def inputs(self) -> tuple[float, float]:
        """The least and the largest input of a coder: labels are numbered from 0."""
        return 0.0, float(len(self.labels) - 1)

    @property
    def estimates(self) -> int:
        """How many numbers are estimated about the attribute: the frequency of each label."""
        return len(self.labels)

    @property
    def feature_labels(self) -> tuple[str, ...]:
        """The labels that can become features."""
        return self.labels

    @property
    def domain(self) -> str:
        """The labels, for display."""
        return listed(self.labels, room=60)

    def to_inputs(self, values: Values) -> Floats:
        # The work is the same for every value, also for a missing one.
        known = np.where(values == values, values, self.missing_input)
        return np.clip(known.astype(np.float64, copy=False), *self.inputs)

    @property
    def letters(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels

    def positions(self, values: Values) -> Floats:
        return self.to_inputs(values)

    def within(self, groups: tuple[str, ...], numbers: Numbers) -> Result:
        return TwoWay.of(groups, self.labels, numbers)

    def moved_within(self, coder: Any, liars: float, group: float) -> float:
        return moved_ratio(coder, np.eye(len(self.letters))[0], liars, group)

    def sums_within(self, groups: Values, number: int, positions: Floats) -> tuple[Values, Values]:
        letters = len(self.letters)
        cells = groups * letters + positions.astype(np.int64)
        sums = np.bincount(cells, minlength=number * letters).astype(np.float64)
        return sums, np.full(sums.size, float(len(groups)))

    def coder(self, epsilon: float, coders: Coders) -> Coder:
        return self._coder(epsilon, coders)

    def _coder(self, epsilon: float, coders: Coders) -> ForCategories:
        number = len(self.labels)
        in_format_1 = self.plan_format == PLAN_FORMAT
        return (coders.for_labels if in_format_1 else coders.compact)(epsilon, number)

    def expected_error(self, epsilon: float, coders: Coders) -> float:
        return self._coder(epsilon, coders).variance + 1 - 1 / len(self.labels)

    def from_unit(self, mean: Any) -> Any:
        return mean

    def result(self, numbers: Numbers) -> Result:
        return Frequencies.of(self.labels, numbers)

    def name_of(self, place: int) -> str:
        return f"{self.name} = {self.labels[place]}"

    def known(self, values: Values) -> npt.NDArray[np.bool_]:
        return np.isin(values, np.arange(len(self.labels)))

    def clipped(self, values: Floats, least: float, most: float) -> int:
        low, high = self.inputs
        if least >= low and most <= high:
            return 0
        return int(np.count_nonzero((values < low) | (values > high)))

    def compact(self, values: Floats) -> Values:
        smallest = np.min_scalar_type(len(self.labels) - 1)
        return self.to_inputs(values[:, 0]).astype(smallest)

    def check_column(self, column: Values) -> None:
        if column.dtype.kind not in "iu" or not self.known(column).all():
            raise DomainError(
                f"column {self.name!r} must hold codes of its categories, from 0 to "
                f"{len(self.labels) - 1}."
            )

    def sums(self, values: Values) -> tuple[Values, Any]:
        codes = self.to_inputs(values[~np.isnan(values)]).astype(np.int64)
        return np.bincount(codes, minlength=len(self.labels)), len(values)

    def summary(self, values: Values) -> dict[str, Any]:
        found, number = self.sums(values)
        return {"frequencies": (found / number).tolist()}

    def typical(self, summary: Mapping[str, Any]) -> str:
        frequencies = summary["frequencies"]
        most = int(np.argmax(frequencies))
        return f"{self.labels[most]} ({frequencies[most]:.0%})"


def finite(name: str, key: str, value: Any) -> float:
    """Return an option of an attribute as a float, or refuse it.

    >>> finite("speed", "low", 30)
    30.0
    """
    number = to_float(value) if is_real(value) else inf
    if not isfinite(number):
        raise DomainError(f"{key} of {name!r} must be a finite number; got {shown(value)}.")
    return number + 0.0  # not -0.0, which is equal but is written differently
