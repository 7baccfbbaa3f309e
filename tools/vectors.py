"""Write test vectors for vehicles in other languages, drawn by `vehicle.py` itself.

python tools/vectors.py docs/vectors.json
"""

import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import vector_plans

import fedldp
from fedldp import vehicle
from fedldp.plan.report import Report

Document = dict[str, Any]


class Recorder(random.Random):
    """Dice whose throws are written down, and fall alike on every machine: first those `given`.

    Bytes are given for what is chosen, which may be a set or a number below another.
    """

    def __init__(self, seed: int, given: Sequence[int | bytes] = ()) -> None:
        super().__init__(0)
        self._source = fedldp.source(seed)
        self._given = (word for word in given if isinstance(word, int))
        self._chosen = (drawn for drawn in given if isinstance(drawn, bytes))
        self._drawn: bytes | None = None  # while something is chosen
        self.thrown: list[Document] = []

    def getrandbits(self, bits: int) -> int:
        """Throw some bits: whole bytes, the most significant first, without the last bits."""
        if self._drawn is None:
            word = next(self._given, None)
            if word is None:
                word = int(self._source.words(1)[0]) >> (vehicle.WORD - bits)
            kind = "word" if bits == vehicle.WORD else "rounding"
            self.thrown.append({kind: f"{word:0{bits // 4}x}"})
            return word
        size = -(-bits // 8)
        drawn = next(self._chosen, None) or self._source.words(size, np.uint8).tobytes()
        self._drawn += drawn
        return int.from_bytes(drawn, "big") >> (8 * size - bits)

    def choosing(self, choose: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that chooses, and writes down what it threw for that."""

        def chooses(*arguments: Any) -> Any:
            if self._drawn is not None:  # a number, for a set that is being chosen
                return choose(*arguments)
            self._drawn = b""
            found = choose(*arguments)
            is_set = isinstance(found, list) and found and type(found[0]) is bool
            chosen = [i for i, agrees in enumerate(found) if agrees] if is_set else found
            self.thrown.append({"chosen": chosen, "drawn": self._drawn.hex()})
            self._drawn = None
            return found

        return chooses

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Write down each set and each number below another that `vehicle.py` chooses."""
        names = ("agreements", "subset", "below")
        chooses = {name: self.choosing(getattr(vehicle, name)) for name in names}
        with mock.patch.multiple(vehicle, **chooses):
            yield


def answers(plan: vehicle.Plan, row: Any, seed: int, given: Sequence[int | bytes] = ()) -> Document:
    """Return a report and the throws that led to it, in the order in which they were needed."""
    dice = Recorder(seed, given)
    with dice.recorded():
        report = plan.report(row, dice)
    record = "".join(f"{octet:08b}" for octet in report[16:])[: plan.bits]
    return {
        "row": row,
        "inputs": plan.inputs(row),
        "thrown": dice.thrown,
        "record": record,
        "report": report.hex(),
    }


def batch(plan: vehicle.Plan, records: Sequence[str]) -> str:
    """Return one report of several vehicles, in hexadecimal."""
    size = -(-len(records) * plan.bits // 8)
    packed = int("".join(records).ljust(8 * size, "0"), 2).to_bytes(size, "big")
    return Report(plan.fingerprint, plan.bits, len(records), packed).to_bytes().hex()


def refused() -> Iterator[Document]:
    """Yield plans that a vehicle must not answer, with a cap that would allow them."""
    for why, plan, changes in vector_plans.REFUSED:
        yield {
            "why": why,
            "cap": "9999",
            "plan": vehicle.canonical(vector_plans.changed(plan, changes)),
        }
    for why, plan, old, new in vector_plans.REFUSED_TEXTS:
        text = vehicle.canonical(plan)
        yield {"why": why, "cap": "9999", "plan": text.replace(old, new, 1)}
    for why, cap in (
        ("a cost above the cap", "3.49"),
        ("a cost above the cap by less than doubles tell", "3.4" + "9" * 30),
    ):
        yield {"why": why, "cap": cap, "plan": vehicle.canonical(vector_plans.MIXED)}


def case(name: str, document: Document) -> Document:
    """Return a plan, and the answers to it."""
    text = vehicle.canonical(document)
    plan = vehicle.Plan(text, "9")
    asked = [*((row, []) for row in vector_plans.ROWS), *vector_plans.EDGES.get(name, [])]
    answered = [answers(plan, row, seed, given) for seed, (row, given) in enumerate(asked)]
    return {
        "name": name,
        "plan": text,
        "fingerprint": hashlib.sha256(text.encode()).hexdigest(),
        "cost": str(float(plan.epsilon)),
        "bits": plan.bits,
        **({"constant": True} if plan.constant else {}),
        "answers": answered,
        "batch": batch(plan, [answer["record"] for answer in answered]),
    }


def calendar(periods: int, answers: int) -> Document:
    """Return a calendar, and the periods that vehicles draw."""
    plan = vector_plans.ONE_BIT
    text = vehicle.canonical(
        {
            "format": vehicle.CALENDAR_FORMAT,
            "periods": periods,
            "answers": answers,
            "plan": plan,
        }
    )
    drawn = []
    for seed in range(4):
        dice = Recorder(seed)
        with dice.recorded():
            found = vehicle.Calendar(text, "9999").draw(dice)
        drawn.append({"thrown": dice.thrown, "periods": found})
    return {"calendar": text, "drawn": drawn}


def vectors() -> Document:
    """Return all vectors."""
    cases = [case(name, document) for name, document in vector_plans.PLANS.items()]
    calendars = [calendar(*sizes) for sizes in vector_plans.CALENDARS]
    return {
        "format": "fedldp vectors 1",
        "cases": cases,
        "calendars": calendars,
        "refused": list(refused()),
    }


def to_text(document: Document) -> str:
    """Return a document as it stands in the file: lines that people can read."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(to_text(vectors()), "utf-8")
