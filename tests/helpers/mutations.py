"""Plans and calendars in which a seeded generator changes something, for tests that compare."""

import copy
import json
from collections import defaultdict
from pathlib import Path

from fedldp import vehicle

VECTORS = json.loads((Path(__file__).parents[2] / "docs/vectors.json").read_text("utf-8"))
PLANS = [json.loads(case["plan"]) for case in VECTORS["cases"]]

_WHOLE = [0, 1, 2, 3, 8, 255, 256, 1 << 16, 1 << 17, 1 << 20, 1 << 24, 1 << 53, (1 << 53) + 1]
_WHOLE += [-1, 10**30, str((1 << 53) + 1), str(1 << 62), str(1 << 63), "1", "01", "\u0661"]
_WHOLE += [True, False, None, 1.0]
_REAL = [-0.0, 0.0, 1.0, -1.0, 0.5, 5e-324, 1e-300, 1e300, 1.7e308, -1.7e308, 0.1, float("inf")]
_REAL += [float("nan"), 1, -1, "1.0", None, True]
_TEXTS = ["", "a", " ", "\0", "\ud800", "\ude00", "\ud83d\ude00", "\u00e9", "true", "other"]
_TEXTS += ["missing", "nan", "None", "1", "0.0", "x" * 300, "horvitz-thompson", "ratio", None, 1]
_TEXTS += ["fedldp plan 1", "fedldp plan 2", "fedldp plan 3"]
_EPSILONS = ["1.0", "1", "16.0", "16.1", "64.0", "100.0", "0.001", "0.0009", "1e0", "1.00", "nan"]
_EPSILONS += ["inf", "-1.0", ".5", "0.5", 1.0, "\u0663.0", "1_0.0", " 1.0", "2.0", "4.0", ""]


def _paths(document, path=()):
    if path:
        yield path
    pairs = ()
    if isinstance(document, dict):
        pairs = document.items()
    elif isinstance(document, list):
        pairs = enumerate(document)
    for key, inner in pairs:
        yield from _paths(inner, (*path, key))


def _at(document, path):
    for key in path:
        document = document[key]
    return document


def _name(path):
    """Return the name of the entry that a path leads to or into, and whether it leads into it."""
    return [key for key in path if isinstance(key, str)][-1], isinstance(path[-1], int)


_POOL = defaultdict(list)  # what stands under each name in some plan
for _plan in PLANS:
    for _path in _paths(_plan):
        if len(json.dumps(_at(_plan, _path))) < 3000:
            _POOL[_name(_path)].append(_at(_plan, _path))
_NAMES = sorted({name for name, within in _POOL if not within})


def changed(document, rng):
    """Return a copy in which one thing is different."""
    document = copy.deepcopy(document)
    path = rng.choice(list(_paths(document)))
    parent, key = _at(document, path[:-1]), path[-1]
    kind = rng.random()
    if kind < 0.25:
        parent[key] = copy.deepcopy(rng.choice(_POOL[_name(path)] or [None]))
    elif kind < 0.33 and isinstance(parent, dict):
        name = rng.choice(_NAMES)
        if rng.random() < 0.5:
            value = parent.pop(key)
            if rng.random() < 0.5:
                parent[name] = value
        else:
            parent[name] = copy.deepcopy(rng.choice(_POOL[name, False]))
    elif kind < 0.5 and isinstance(parent, list):
        _rearrange(parent, key, rng)
    else:
        parent[key] = _other(parent[key], _name(path)[0], rng)
    return document


def _rearrange(items, place, rng):
    kind = rng.randrange(4)
    if kind == 0:
        del items[place]
    elif kind == 1:
        items.insert(rng.randrange(len(items) + 1), copy.deepcopy(items[place]))
    elif kind == 2:
        other = rng.randrange(len(items))
        items[place], items[other] = items[other], items[place]
    else:
        items.reverse()


def _other(value, name, rng):
    """Return another value: near by, at a limit, or of another type."""
    if isinstance(value, bool):
        return rng.choice([not value, int(value), None, 1.0])
    if isinstance(value, int):
        near = [value + 1, value - 1, 2 * value, value // 2, -value, float(value), str(value)]
        return rng.choice([*_WHOLE, *near])
    if isinstance(value, float):
        near = [value * (1 + 2.0**-k) for k in (20, 30, 38, 41, 52)]
        near += [-value, 2 * value, value / 2, value + 2.0**-21]
        return rng.choice([*_REAL, *near])
    if isinstance(value, str) and name == "epsilon":
        return rng.choice(_EPSILONS)
    if isinstance(value, str) and value.isdigit():
        number = int(value)
        return rng.choice([str(number + 1), str(number - 1), number, f"0{value}", f"{value} "])
    if isinstance(value, str):
        return rng.choice([*_TEXTS, f"{value}a", value.upper()])
    if isinstance(value, list):
        return rng.choice([[], value * 2, value[:1], value[1:], [value], None, {}])
    return rng.choice([{}, [], [value], None, 1])


def plan_text(rng):
    """Return the text of a plan with up to three changes."""
    document = rng.choice(PLANS)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        document = changed(document, rng)
    return _written(document, rng)


def calendar_text(rng):
    """Return the text of a calendar with changes in it or in its plan."""
    answers, periods = rng.choice((1, 2, 7)), rng.choice((1, 2, 7, vehicle.MOST_PERIODS))
    document = {"format": vehicle.CALENDAR_FORMAT, "answers": answers, "periods": periods}
    document["plan"] = rng.choice(PLANS)
    for _ in range(rng.choice((0, 1, 1, 2))):
        document = changed(document, rng)
    return _written(document, rng)


def _written(document, rng):
    text = vehicle.canonical(document)
    if rng.random() < 0.03:
        changes = [text + " ", text.replace(":", ": ", 1), text[:-1], text.replace("\\u", "\\U")]
        changes += [text.replace(",", ',"format":"fedldp plan 1",', 1), f"[{text}]", "null"]
        text = rng.choice(changes)
    return text
