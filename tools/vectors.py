"""Write test vectors for vehicles in other languages, drawn by `vehicle.py` itself.

python tools/vectors.py docs/vectors.json
"""

import hashlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fedldp
from fedldp import vehicle

Document = dict[str, Any]


class Recorder(random.Random):
    """Dice whose throws are written down, and fall alike on every machine."""

    def __init__(self, seed: int) -> None:
        super().__init__(0)
        self._source = fedldp.source(seed)
        self.thrown: list[tuple[str, Any]] = []

    def getrandbits(self, bits: int) -> int:
        """Throw a word of 64 or 32 bits."""
        word = int(self._source.words(1)[0]) >> (vehicle.WORD - bits)
        self.thrown.append(("word" if bits == vehicle.WORD else "rounding", word))
        return word

    def sample(self, population: Sequence[int], k: int, **_: Any) -> list[int]:  # type: ignore[override]
        """Choose k of them."""
        chosen = self._source.choose(k, len(population), 1)[0].tolist() if k else []
        self.thrown.append(("chosen", sorted(chosen)))
        return [population[i] for i in chosen]

    def randrange(self, stop: int, *_: Any) -> int:  # type: ignore[override]
        """Choose a number below `stop`; only the places that follow from it are written down."""
        return int(self._source.words(1)[0]) * stop >> vehicle.WORD


# Tables made by hand, small enough to check with a pencil; and those of the library.

_UNEVEN = {
    "kind": "numbers",
    "epsilon": "1.7",
    "letters": [-1.0, -0.25, 0.5, 1.0],
    "values": [-2.0, 0.0, 2.0],
    "counts": [[5, 2, 1], [3, 3, 2], [2, 2, 4], [1, 2, 5]],
}
_RESPONSE = {"kind": "response", "epsilon": "1.8", "categories": 3, "same": 6, "other": 1}
_UNARY = {"kind": "unary", "epsilon": "1.1", "categories": 4, "total": 4, "absent": 1}


def _numbers(name: str, epsilon: float, outputs: int | None = None) -> Document:
    document = fedldp.mechanism(name, epsilon).channel(outputs).document()
    return {"kind": "numbers", **document}


def _number(name: str, low: float, high: float, missing: float, size: int = 1) -> Document:
    return {"name": name, "low": low, "high": high, "missing": missing, "size": size}


def _plan(
    epsilon: str, schema: list[Document], tables: list[Document], *parts: Document
) -> Document:
    return {
        "format": vehicle.PLAN_FORMAT,
        "epsilon": epsilon,
        "schema": schema,
        "tables": tables,
        "parts": list(parts),
    }


def _sample(k: int, attributes: list[int], tables: list[int]) -> Document:
    return {"kind": "sample", "k": k, "attributes": attributes, "tables": tables}


_SPEED = _number("speed", 0.0, 130.0, 65.0)
_WAY = _number("way", -1.0, 3.0, 2.0, size=3)
_MODEL = {"name": "model", "categories": ["Alpha", "Beta", "Gamma"], "missing": "Beta"}
_DOOR = {"name": "door", "categories": ["true", "false", "1", "Tür"], "missing": "1"}
_CUBE = {"kind": "cube", "epsilon": "1.6", "threshold": 0, "heavy": 4, "light": 1}

PLANS = {
    "one number, one bit": _plan("1.0", [_SPEED], [_numbers("duchi", 1.0)], _sample(1, [0], [0])),
    "letters that are not evenly spaced": _plan("1.7", [_SPEED], [_UNEVEN], _sample(1, [0], [0])),
    "evenly spaced letters, seven outputs": _plan(
        "1.0", [_SPEED], [_numbers("hm-tp", 1.0, 7)], _sample(1, [0], [0])
    ),
    "randomised response": _plan("1.8", [_MODEL], [_RESPONSE], _sample(1, [0], [0])),
    "unary encoding": _plan("1.1", [_DOOR], [_UNARY], _sample(1, [0], [0])),
    "two of six coordinates": _plan(
        "3.5",
        [_SPEED, _WAY, _MODEL, _DOOR],
        [_UNEVEN, _RESPONSE, _UNARY],
        _sample(2, [0, 1, 2, 3], [0, 0, 1, 2]),
    ),
    "all coordinates, no indexes": _plan(
        "4.6",
        [_SPEED, _MODEL, _DOOR],
        [_UNEVEN, _RESPONSE, _UNARY],
        _sample(3, [0, 1, 2], [0, 1, 2]),
    ),
    "a cube and a category": _plan(
        "3.4",
        [_SPEED, _WAY, _MODEL],
        [_RESPONSE],
        {**_CUBE, "attributes": [0, 1]},
        _sample(1, [2], [0]),
    ),
}

ROWS: list[Any] = [
    {"speed": 91.0, "way": [2.5, -0.5, 0.25], "model": "Gamma", "door": True},
    {"speed": 1e300, "way": [-7, 3, 1], "model": "Alpha", "door": "Tür"},
    {"speed": "32.5", "way": [1, 2], "model": "Delta", "door": 1.0},
    {"speed": None, "model": None},
    {},
]


def canonical(document: Document) -> str:
    """Return a plan as it stands in its file."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def answers(plan: vehicle.Plan, row: Any, seed: int) -> Document:
    """Return a report and the throws that led to it, in the order in which they were needed."""
    dice = Recorder(seed)
    report = plan.report(row, dice)
    digits = {"word": 16, "rounding": 8}
    thrown = [
        {kind: what if kind == "chosen" else f"{what:0{digits[kind]}x}"}
        for kind, what in dice.thrown
    ]
    schema = plan._schema  # what a row is read as is no part of a report, and of use to a reader
    inputs = [each.find(row, offset) for each in schema for offset in range(each.size)]
    record = "".join(f"{octet:08b}" for octet in report[16:])[: plan.bits]
    return {
        "row": row,
        "inputs": inputs,
        "thrown": thrown,
        "record": record,
        "report": report.hex(),
    }


def refused() -> Iterator[Document]:
    """Yield plans that a vehicle must not answer, with a cap that is no reason to refuse them."""
    for name, path, value in (
        ("a count that is too large by one", ("tables", 0, "counts", 0), [6, 1, 1]),
        ("a row with another total", ("tables", 0, "counts", 0), [5, 2, 2]),
        ("a zero in a column", ("tables", 0, "counts", 0), [6, 2, 0]),
        ("a claim below the cost", ("epsilon",), "3.49"),
        ("a response that leaks", ("tables", 1, "epsilon"), "1.79"),
        ("an encoding that leaks", ("tables", 2, "epsilon"), "1.09"),
        ("letters that do not ascend", ("tables", 0, "letters"), [-1.0, 0.5, -0.25, 1.0]),
        ("an attribute in no part", ("parts", 0, "attributes"), [0, 1, 2]),
        ("an unknown kind of table", ("tables", 2, "kind"), "binary"),
        ("an entry that is not known", ("comment",), "hello"),
        ("another format", ("format",), "fedldp plan 2"),
    ):
        plan = json.loads(json.dumps(PLANS["two of six coordinates"]))
        inner = plan
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        yield {"why": name, "cap": "9", "plan": canonical(plan)}
    plan = PLANS["two of six coordinates"]
    yield {"why": "a cost above the cap", "cap": "3.49", "plan": canonical(plan)}


def vectors() -> Document:
    """Return all vectors."""
    cases = []
    for name, document in PLANS.items():
        text = canonical(document)
        plan = vehicle.Plan(text, "9")
        cases.append(
            {
                "name": name,
                "plan": text,
                "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
                "cost": str(float(plan.epsilon)),
                "bits": plan.bits,
                "answers": [answers(plan, row, seed) for seed, row in enumerate(ROWS)],
            }
        )
    return {"format": "fedldp vectors 1", "cases": cases, "refused": list(refused())}


def to_text(document: Document) -> str:
    """Return a document as it stands in the file: lines that people can read."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(to_text(vectors()), "utf-8")
