"""Reports that the vehicle in C must draw too: those of the vectors, and of random plans."""

import json
import re

from c_vehicle import VECTORS, bytes_of
from random_plans import EdgeTape, RandomPlans
from targets import Case

from fedldp import vehicle


def vector_cases():
    """Return the reports of all vectors."""
    return [
        Case(
            re.sub(r"[^a-z0-9 ]", "", f"{case['name']} {i}"),
            case["plan"],
            answer["row"],
            bytes_of(answer["thrown"]),
            bytes.fromhex(answer["report"]),
        )
        for case in VECTORS["cases"]
        for i, answer in enumerate(case["answers"])
    ]


def random_cases(plans, rows):
    """Return reports of `vehicle.py` for random plans and rows."""
    source, found = RandomPlans(11), []
    for i in range(plans):
        text = source.plan()
        document = json.loads(text)
        plan, words = vehicle.Plan(text, "9999"), source.edge_words(document)
        for _ in range(rows):
            row, tape = source.row(document["schema"]), EdgeTape(source.random.random(), words)
            report = plan.report(row, tape)
            if len(tape.data) < 2000:
                found.append(Case(f"random plan {i}", text, row, bytes(tape.data), report))
    return found
