"""Write test vectors for vehicles in other languages, drawn by `vehicle.py` itself.

python tools/vectors.py docs/vectors.json
"""

import hashlib
import json
import random
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import vector_plans

import fedldp
from fedldp import vehicle
from fedldp.plan.report import Report

Document = dict[str, Any]


class Recorder(random.Random):
    """Dice whose throws are written down, and fall alike on every machine: first those `given`."""

    def __init__(self, seed: int, given: Sequence[int]) -> None:
        super().__init__(0)
        self._source, self._given = fedldp.source(seed), iter(given)
        self.thrown: list[tuple[str, Any]] = []

    def getrandbits(self, bits: int) -> int:
        """Throw a word of 64 or 32 bits."""
        word = next(self._given, None)
        if word is None:
            word = int(self._source.words(1)[0]) >> (vehicle.WORD - bits)
        self.thrown.append(("word" if bits == vehicle.WORD else "rounding", word))
        return word

    def sample(self, population: Sequence[int], k: int, **_: Any) -> list[int]:  # type: ignore[override]
        """Choose k of them."""
        chosen = self._source.choose(k, len(population), 1)[0].tolist() if k else []
        self.thrown.append(("chosen", sorted(chosen)))
        return [population[i] for i in chosen]

    def agreements(self, odds: Sequence[int]) -> list[bool]:
        """Choose the places of a cube that agree; how they were drawn is not written down."""
        number = int(self._source.words(1)[0]) * odds[-1] >> vehicle.WORD
        places = range(len(odds) - 1)
        agree = self.sample(places, bisect_right(odds, number))
        return [place in agree for place in places]


def answers(plan: vehicle.Plan, row: Any, seed: int, given: Sequence[int] = ()) -> Document:
    """Return a report and the throws that led to it, in the order in which they were needed."""
    dice = Recorder(seed, given)
    with mock.patch.object(vehicle, "agreements", lambda odds, _: dice.agreements(odds)):
        report = plan.report(row, dice)
    digits = {"word": 16, "rounding": 8}
    thrown = [
        {kind: what if kind == "chosen" else f"{what:0{digits[kind]}x}"}
        for kind, what in dice.thrown
    ]
    record = "".join(f"{octet:08b}" for octet in report[16:])[: plan.bits]
    return {
        "row": row,
        "inputs": plan.inputs(row),
        "thrown": thrown,
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


def vectors() -> Document:
    """Return all vectors."""
    cases = [case(name, document) for name, document in vector_plans.PLANS.items()]
    return {"format": "fedldp vectors 1", "cases": cases, "refused": list(refused())}


def to_text(document: Document) -> str:
    """Return a document as it stands in the file: lines that people can read."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(to_text(vectors()), "utf-8")
