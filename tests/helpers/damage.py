"""Damage to documents: what a parser must refuse or survive."""

import json

from plans import places

WRONG = ["x", "1.5", None, True, {}, [], [[]], [[1.0]], -1, 2.5, 10**400, "\ud800", [None]]


def damaged(document, rng):
    """Return a document in which one entry is missing, doubled or something else."""
    document = json.loads(json.dumps(document))
    *path, last = rng.choice(places(document))
    place = document
    for key in path:
        place = place[key]
    kind = rng.randrange(3)
    if kind == 0:
        del place[last]
    elif kind == 1 and isinstance(place, list):
        place.insert(last, place[last])
    else:
        place[last] = rng.choice(WRONG)
    return document
