"""Units: what a number means to people, and how dates, times and truth values become values.

A unit is for those who read tables, and for the reading of rows. It is no part of a plan: a plan
has a number of days, hours or seconds, or a label.
"""

import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from fedldp._internal.text import rounded
from fedldp.schema.frames import Cells, is_missing
from fedldp.vehicle import label

DATE, HOUR, WEEKDAY = "date", "hour of day", "weekday"
LIST = "list"  # of labels, which counts if it has one
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_EPOCH = date(1970, 1, 1)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_SECONDS_OF = {
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "days": 86400.0,
    "hours": 3600.0,
    "minutes": 60.0,
    "seconds": 1.0,
}
TRUTH_ALIASES = {  # spellings of true and false
    **dict.fromkeys(["True", "yes", "1"], "true"),
    **dict.fromkeys(["False", "no", "0"], "false"),
}


def days_of(when: date) -> float:
    """Return the days from 1970-01-01 to a date; of a date with a time, with a fraction.

    >>> days_of(date(1970, 1, 3)), days_of(datetime(1970, 1, 3, 12))
    (2.0, 2.5)
    """
    days = float((date(when.year, when.month, when.day) - _EPOCH).days)
    return days + (hours_of(when) / 24 if isinstance(when, datetime) else 0.0)


def hours_of(when: datetime | time) -> float:
    """Return the hours since midnight, as the clock shows them.

    >>> hours_of(time(8, 30))
    8.5
    """
    return when.hour + when.minute / 60 + (when.second + when.microsecond / 1e6) / 3600


def shown_date(days: float, error: float) -> str:
    """Return a number of days as a date, or as it is if no calendar has it.

    >>> shown_date(19_500.4, 3.0)
    '2023-05-23'
    """
    try:
        return (_EPOCH + timedelta(days=round(days))).isoformat()
    except (OverflowError, ValueError):
        return rounded(days, error)


def shown(number: float, error: float, unit: str) -> str:
    """Return a number of a unit, rounded to two digits of its error.

    >>> shown(31.234, 0.5, "km/h"), shown(19_500.4, 3.0, "date")
    ('31.23', '2023-05-23')
    """
    return shown_date(number, error) if unit == DATE else rounded(number, error)


def named(name: str, unit: str) -> str:
    """Return a name with its unit, for people.

    >>> named("speed", "km/h"), named("speed", "")
    ('speed (km/h)', 'speed')
    """
    return f"{name} ({unit})" if unit else name


def converted(
    cells: Cells,
    unit: str,
    codes: Mapping[str, int] = _NOTHING,
    aliases: Mapping[str, str] = _NOTHING,
) -> Cells:
    """Return cells as numbers or labels; what cannot be converted stays as it is.

    `codes` are the numbers of the labels of a category, and empty for a number.

    >>> converted(["2024-02-29", 5, "soon"], "date")
    [19782.0, 5, 'soon']
    >>> converted([timedelta(minutes=90), "1:30:00", 2], "h")
    [1.5, 1.5, 2]
    >>> converted(["True", "yes", 0, "maybe"], "", {"false": 0, "true": 1}, TRUTH_ALIASES)
    ['true', 'true', 'false', 'maybe']
    """
    if unit == LIST:
        return [_only(cell) for cell in cells]
    convert = _converter(unit, codes, aliases)
    if convert is None or (isinstance(cells, np.ndarray) and cells.ndim > 1):
        return cells
    if isinstance(cells, np.ndarray):
        if cells.dtype.kind in "biuf":
            if not codes:
                return cells  # numbers already
            distinct, places = np.unique(cells, return_inverse=True)
            found = converted(distinct.tolist(), unit, codes, aliases)
            return [found[place] for place in places.tolist()]
        cells = _python(cells)

    def one(cell: Any) -> Any:
        try:
            return cell if is_missing(cell) else convert(cell)
        except Exception:  # a cell may be anything, and stays so
            return cell

    if {*map(type, cells)} <= {str, bool, type(None)}:  # equal values of these are alike
        table = {cell: one(cell) for cell in {*cells}}
        return [table[cell] for cell in cells]
    return [one(cell) for cell in cells]


def _converter(
    unit: str, codes: Mapping[str, int], aliases: Mapping[str, str]
) -> Callable[[Any], Any] | None:
    if unit == DATE:
        return lambda cell: cell if _is_number(cell) else days_of(_moment(cell, with_date=True))
    if unit == HOUR:
        return lambda cell: cell if _is_number(cell) else hours_of(_moment(cell))
    if unit == WEEKDAY:
        labels = [*codes]
        return lambda cell: labels[_moment(cell, with_date=True).weekday()]
    if unit in _SECONDS_OF and not codes:
        return lambda cell: cell if _is_number(cell) else _seconds(cell) / _SECONDS_OF[unit]
    return partial(_label, codes=codes, aliases=aliases) if aliases else None


def _label(cell: Any, codes: Mapping[str, int], aliases: Mapping[str, str]) -> Any:
    text = label(cell.item() if isinstance(cell, np.generic) else cell)
    return cell if text in codes else aliases[text]


def _only(cell: Any) -> Any:
    """Return the only entry of a list; anything else as it is."""
    return cell[0] if isinstance(cell, list | tuple) and len(cell) == 1 else cell


def _python(cells: np.ndarray[Any, Any]) -> list[Any]:
    kind = {"M": "datetime64[us]", "m": "timedelta64[us]"}.get(cells.dtype.kind)
    return [*(cells if kind is None else cells.astype(kind)).tolist()]


def _is_number(cell: Any) -> bool:
    try:
        return math.isfinite(float(cell))
    except (TypeError, ValueError):
        return False


def _moment(cell: Any, *, with_date: bool = False) -> Any:
    """Return a date, a time or both; texts as ISO 8601 writes them."""
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    if isinstance(cell, datetime) or (isinstance(cell, date) and with_date):
        return cell
    if isinstance(cell, time) and not with_date:
        return cell
    text = str(cell).strip()
    if with_date:
        return datetime.fromisoformat(text)
    try:
        return time.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _seconds(cell: Any) -> float:
    """Return the seconds of a duration; a text is hours, minutes and seconds with colons."""
    if isinstance(cell, np.timedelta64):
        cell = cell.astype("timedelta64[us]").item()
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    sign = -1 if str(cell).strip().startswith("-") else 1
    hours, minutes, *rest = str(cell).strip().lstrip("-").split(":")
    return sign * (60 * (60 * int(hours) + int(minutes)) + sum(map(float, rest)))
