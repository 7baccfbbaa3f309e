"""Several rows of a vehicle become one, by the rule of each attribute.

`fedldp.vehicle.one_row` does the same for one vehicle, and gives the same values to the last bit.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, Integers
from fedldp.schema.attributes import Attribute
from fedldp.schema.attributes.readers import NumberReader
from fedldp.vehicle import RANDOM


def one_row_each(
    attributes: Sequence[Attribute],
    matrix: Floats,
    unjoined: Floats,
    owners: Integers,
    places: Floats,
) -> Floats:
    """Return a row for each vehicle.

    `matrix` and `unjoined` are what `Rows` returns under these names, `owners` has the number of
    the vehicle of each row, and `places` a random number in (0, 1) for each vehicle.

    >>> from fedldp.schema.schema import Schema
    >>> schema = Schema.of(speed={"low": 0, "high": 50, "rule": "mean"}, doors=(2, 5))
    >>> rows = schema.rows({"speed": [30, 40, 80], "doors": [3, 5, 4]})
    >>> owners, places = np.array([1, 1, 0]), np.array([0.5, 0.7])
    >>> one_row_each(schema.attributes, rows.matrix(), rows.unjoined(), owners, places)
    array([[50.,  4.],
           [35.,  5.]])
    """
    sizes = np.bincount(owners, minlength=len(places))
    begins = np.cumsum(sizes) - sizes
    order = np.argsort(owners, kind="stable")
    chosen = matrix[order[begins + (places * sizes).astype(np.int64)]]
    return with_rules(attributes, chosen, by_rule(attributes, unjoined, owners, len(places)))


def with_rules(attributes: Sequence[Attribute], rows: Floats, ruled: Floats) -> Floats:
    """Return a random row of each vehicle, with what the rules say where there are any."""
    sizes = [attribute.size for attribute in attributes]
    is_ruled = np.repeat([attribute.rule != RANDOM for attribute in attributes], sizes)
    return np.where(is_ruled, ruled, rows) if is_ruled.any() else rows


def by_rule(
    attributes: Sequence[Attribute], unjoined: Floats, owners: Integers, vehicles: int
) -> Floats:
    """Return a row for each vehicle, with the attributes that have a rule, and NaN elsewhere."""
    rows = np.full((vehicles, sum(attribute.size for attribute in attributes)), np.nan)
    place = first = 0
    for attribute in attributes:
        if attribute.rule != RANDOM:
            joined = []
            for column in attribute.columns:
                read = unjoined[:, first : first + column.size].T
                values = [_combined(column, each, owners, vehicles) for each in read]
                joined.append(np.stack(values, axis=1))
                first += column.size
            rows[:, place : place + attribute.size] = attribute.join(joined)
        place += attribute.size
    return rows


def _combined(column: Attribute, values: Floats, owners: Integers, vehicles: int) -> Floats:
    """Return a value for each vehicle, of the values of all rows."""
    [reader] = column.readers
    if column.rule == "count":
        counts = np.bincount(owners[~np.isnan(values)], minlength=vehicles)
        return reader.read(counts)
    missing = float(reader.read([None])[0])
    if column.rule == "mean" and isinstance(reader, NumberReader) and reader.bounds:
        values = np.clip(values, *reader.bounds)
    # A label that is unknown is "other" where there may be none, and unusable elsewhere.
    is_other_kept = column.rule == "last" and reader.optional and reader.invalid == "unknown"
    used = (values != missing) & (~np.isnan(values) | is_other_kept)
    of, values = owners[used], values[used]
    if column.rule == "any":
        true, false = (float(code) for code in reader.read(["true", "false"]))
        answers = np.where(_has(of[values == false], vehicles), false, missing)
        return np.where(_has(of[values == true], vehicles), true, answers)
    if column.rule == "mean":
        counts = np.bincount(of, minlength=vehicles)
        sums = np.bincount(of, values, vehicles)  # in the order of rows, as on one vehicle
        return np.where(counts > 0, sums / np.maximum(counts, 1), missing)
    if column.rule == "maximum":
        largest = np.full(vehicles, -np.inf)
        np.maximum.at(largest, of, values)
        return np.where(_has(of, vehicles), largest, missing)
    last = np.full(vehicles, -1)
    np.maximum.at(last, of, np.arange(len(of)))
    return np.where(last >= 0, np.append(values, missing)[last], missing)


def _has(owners: Integers, vehicles: int) -> npt.NDArray[np.bool_]:
    return np.bincount(owners, minlength=vehicles) > 0
