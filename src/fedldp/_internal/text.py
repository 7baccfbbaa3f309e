"""Text for display: short lists, hints at misspelt names, numbers with their errors."""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from math import ceil, floor, isfinite, log10

from fedldp.errors import UnknownName

_LONGEST_COMPARED_WORD = 100
_MOST_CHOICE_CHARACTERS = 300
_LONGEST_LISTED_TEXT = 40
_LEAST_SYMMETRIC_RATIO = 0.9  # of the sides of an interval: below it, both are shown


def listed(texts: Sequence[str], room: int = 100) -> str:
    """Return the first texts, in about `room` characters, and how many more there are.

    >>> listed(["age", "city", "speed"]), listed(["age", "city", "speed"], room=10)
    ('age, city, speed', 'age, city and 1 more')
    """
    short = [
        text if len(text) <= _LONGEST_LISTED_TEXT else f"{text[:_LONGEST_LISTED_TEXT]}..."
        for text in texts[:room]
    ]
    lengths = accumulate(len(text) + 2 for text in short)
    most = max(1, sum(length - 2 <= room for length in lengths))
    shown = ", ".join(short[:most])
    return shown if len(texts) <= most else f"{shown} and {len(texts) - most:,} more"


def counted(number: int, what: str) -> str:
    """Return a number with a noun whose plural ends in s.

    >>> counted(1, "report"), counted(40_000, "report")
    ('1 report', '40,000 reports')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def rounded(number: float, error: float) -> str:
    """Return a number rounded to two digits of its error.

    >>> rounded(41.2345, 0.0678), rounded(41.2345, 0.0)
    ('41.234', '41.23')
    """
    if not isfinite(number):
        return "-"
    if not error or not isfinite(error):
        return f"{number:.4g}"
    return f"{number:.{_digits(error)}f}"


def _digits(error: float) -> int:
    return max(0, 1 - floor(log10(error)))


def number_and_interval(number: float, low: float, high: float) -> tuple[str, str]:
    """Return a number and its interval: its reach if both sides are alike, and else both ends.

    Of sides that differ a little the longer one is shown, and ends are rounded outward, so that the
    text never says less than the interval.

    >>> number_and_interval(41.2, 40.2, 42.2), number_and_interval(0.0, 0.0, 0.00218)
    (('41.2', '± 1.0'), ('0.0000', '0.0000 to 0.0022'))
    """
    half = (high - low) / 2
    reach, shorter = max(number - low, high - number), min(number - low, high - number)
    if not isfinite(half) or half <= 0 or shorter >= _LEAST_SYMMETRIC_RATIO * reach:
        return rounded(number, half), f"± {rounded(reach if half > 0 else half, half)}"
    unit = 10 ** _digits(half)
    ends = (floor(low * unit + 1e-6) / unit + 0.0, ceil(high * unit - 1e-6) / unit + 0.0)
    texts = (f"{end:.{_digits(half)}f}" for end in ends)
    return rounded(number, half), f"{next(texts)} to {next(texts)}"


def with_interval(number: float, low: float, high: float) -> str:
    """Return a number with its interval in one text.

    >>> with_interval(41.2, 40.2, 42.2), with_interval(0.0, 0.0, 0.00218)
    ('41.2 ± 1.0', '0.0000 (0.0000 to 0.0022)')
    """
    shown, interval = number_and_interval(number, low, high)
    return f"{shown} {interval}" if interval.startswith("±") else f"{shown} ({interval})"


def or_none(number: float) -> float | None:
    """Return a number for JSON: None, which becomes null, if it is not finite.

    >>> or_none(float("nan")), or_none(1.5)
    (None, 1.5)
    """
    return number if isfinite(number) else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a hint at the most similar known word, or an empty text.

    >>> did_you_mean("Pari", ["Oslo", "Paris"])
    " (did you mean 'Paris'?)"
    """
    near = closest(word, known)
    return f" (did you mean {near!r}?)" if near is not None else ""


def closest(word: object, known: Iterable[str]) -> str | None:
    """Return the most similar known word, as if the case of letters did not matter; or None.

    >>> closest("HM-TP", ["hm", "hm-tp"]), closest("xyz", ["hm"])
    ('hm-tp', None)
    """
    from difflib import get_close_matches

    if type(word) is not str or len(word) > _LONGEST_COMPARED_WORD:
        return None
    words = list(known)
    near = get_close_matches(word, words, n=1)
    if not near:
        folded = {known_word.casefold(): known_word for known_word in reversed(words)}
        near = [folded[match] for match in get_close_matches(word.casefold(), folded, n=1)]
    return near[0] if near else None


def unknown(kind: str, name: object, known: Collection[str], *, hint: str = "") -> UnknownName:
    """Return the error for an unknown name, with a hint at known ones.

    >>> print(unknown("mechanism", "hm_tp", ["hm", "hm-tp"]))
    there is no mechanism 'hm_tp' (did you mean 'hm-tp'?); choose from hm, hm-tp.
    """
    choices = listed([*known], _MOST_CHOICE_CHARACTERS)
    return UnknownName(
        f"there is no {kind} {name!r:.100}{did_you_mean(name, known)}; choose from {choices}{hint}."
    )
