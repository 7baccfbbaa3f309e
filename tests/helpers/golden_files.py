"""Write golden files: what fixed seeds give, so that a change of behaviour is noticed.

    python tests/golden_files.py tests/golden/NEW

`tests/test_golden.py` computes the same again and compares. Everything is compared byte by byte,
except for floating-point results of training and estimation, which may differ in the last digits
between versions of NumPy and SciPy. Tables that a linear program finds may differ between versions
of the solver: their plans are read from the golden file, and only what follows is computed again.

`files` writes a ledger as it lies on a disk. Those of earlier versions are kept and must still
open; they cannot be written again.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ledgers import open_ledger
from spellings import flat_plan, nested

import fedldp

Document = dict[str, Any]

VEHICLES = 200
SCHEMAS = {
    "mixed": fedldp.Schema.of(
        age={"low": 0, "high": 100, "missing": 20},
        city={"categories": ["Oslo", "Rome", "Lima"], "missing": "Rome"},
        way={"low": -1, "high": 3, "size": 3, "missing": 3},
        colour=[f"colour {i}" for i in range(40)],
    ),
    "numbers": fedldp.Schema.of(age=(0, 100), way={"low": -1, "high": 3, "size": 3}),
    "categories": fedldp.Schema.of(city=["Oslo", "Rome"], colour=[f"colour {i}" for i in range(9)]),
    "one": fedldp.Schema.of(speed=(0, 130)),
    "gradient": fedldp.Schema.vector(20, bound=1.0),
}
SOLVED = ("optimal", "dominant", "near-zero")
CLOSED = ("duchi", "pm", "hm", "three-outputs", "pm-sub", "pm-opt", "hm-tp", "three-outputs-flat")
PLANS: list[tuple[str, float, Document]] = [
    *(("one", 1.0, {"mechanism": name}) for name in CLOSED + SOLVED),
    *(("one", 4.0, {"mechanism": name, "outputs": 15}) for name in ("pm", "hm-tp", "dominant")),
    *(
        (schema, epsilon, {"mechanism": "hm-tp", "strategy": strategy})
        for schema in ("mixed", "numbers", "categories", "gradient")
        for strategy in ("sample", "split", "paper", "cube")
        for epsilon in (1.0, 6.0)
    ),
    ("mixed", 4.0, {"k": 3}),
    ("mixed", 7.0, {"k": "paper", "mechanism": "three-outputs"}),
    ("gradient", 4.0, {"mechanism": "near-zero"}),
    ("gradient", 4.0, {"strategy": "cube", "threshold": 2}),
]
MODELS: list[tuple[str, Document]] = [
    ("LDPLogisticRegression", {"epsilon": 4.0, "mechanism": "hm-tp"}),
    ("LDPLogisticRegression", {"epsilon": 4.0, "mechanism": "hm-tp", "strategy": "cube"}),
    ("LDPLogisticRegression", {"epsilon": 4.0, "mechanism": "hm-tp", "participations": 2}),
    ("LDPLogisticRegression", {"epsilon": 4.0, "mechanism": None}),
    ("LDPLogisticRegression", {"epsilon": 4.0, "mechanism": "pm", "study": True, "k": 2}),
    ("LDPLinearRegression", {"epsilon": 4.0, "mechanism": "hm-tp"}),
    ("LDPLinearSVC", {"epsilon": 4.0, "mechanism": "hm-tp", "optimizer": "sgd"}),
]


def rows(schema: fedldp.Schema, seed: int) -> list[Document]:
    """Return the rows of some vehicles: values within the bounds, beyond them, and missing ones."""
    found = []
    draws = fedldp.source(seed).uniform((VEHICLES, schema.dimensions)).tolist()
    for number, row in enumerate(draws):
        values, places = {}, iter(row)
        for attribute in schema.attributes:
            if isinstance(attribute, fedldp.Category):
                labels = [*attribute.categories, "unknown"]
                values[attribute.name] = labels[int(next(places) * len(labels))]
            else:
                width = (attribute.high - attribute.low) * 1.1
                numbers = [attribute.low + next(places) * width for _ in range(attribute.size)]
                values[attribute.name] = numbers if attribute.size > 1 else numbers[0]
        if number % 20 == 7:
            del values[schema.names[number % len(schema.names)]]
        found.append(values)
    return found


def collected(name: str, plan: fedldp.Plan, seed: int) -> Document:
    """Return the report, the tally and the estimates of a plan's vehicles."""
    report = plan.report(rows(SCHEMAS[name], seed), fedldp.source(seed + 1)).to_bytes()
    tally = plan.parse(report)
    return {
        "fingerprint": plan.fingerprint,
        "report": report.hex(),
        "tally": json.loads(tally.to_json()),
        "means": {
            estimator: {
                each: np.atleast_1d(getattr(found, "mean", getattr(found, "frequencies", None)))
                .astype(float)
                .tolist()
                for each, found in tally.estimate(estimator=estimator).items()
            }
            for estimator in ("ratio", "horvitz-thompson")
        },
    }


def collection() -> list[Document]:
    """Return what each plan gives."""
    found = []
    for number, (name, epsilon, options) in enumerate(PLANS):
        plan = flat_plan(SCHEMAS[name], epsilon, **options)
        case = {"schema": name, "epsilon": epsilon, "options": options}
        if is_solved(options):
            case["plan"] = plan.to_json()
        found.append(case | collected(name, plan, 10 * number))
    return found


def is_solved(options: Document) -> bool:
    """Return whether a plan's table was found by a linear program."""
    return options.get("mechanism", "dominant") in SOLVED and options.get("strategy") != "cube"


def models() -> list[Document]:
    """Return what estimators learn."""
    x = fedldp.source(1).uniform((2000, 3)) * 2 - 1
    noise = fedldp.source(2).uniform(2000) - 0.5
    score = x @ [0.7, -0.4, 0.1] + 0.2 * noise
    found = []
    for name, options in MODELS:
        chosen = {"strategy": "sample"} | options  # what was the default in version 0.1
        chosen = nested(chosen, gradients=True)
        model = getattr(fedldp, name)(bounds=(-1, 1), random_state=3, **chosen)
        if name == "LDPLinearRegression":
            model.set_params(target_bounds=(-1, 1))
        model.fit(x, score if name == "LDPLinearRegression" else score > 0)
        coefficients = [*np.ravel(model.coef_).tolist(), *np.ravel(model.intercept_).tolist()]
        found.append({"estimator": name, "options": options, "coefficients": coefficients})
    return found


def files(folder: Path) -> None:
    """Write a ledger with some spendings."""
    with open_ledger(folder / "ledger.db", cap=4) as ledger:
        ledger.release("car 1", 1, "question 1", lambda: b"first", run="spring")
        ledger.release("car 1", "1/3", b"\x00question 2", lambda: b"second", run="summer")
        ledger.release_many(
            ["car 1", "car 2", "car 3"], 0.5, "autumn/1", b"digest",
            lambda keys: {key: key.encode() for key in keys[:2]}, run="autumn",
        )  # fmt: skip


def write(path: Path, document: Any) -> None:
    """Write a document, with a line for each entry of its list."""
    lines = ",\n".join(json.dumps(each, sort_keys=True) for each in document)
    path.write_text(f"[\n{lines}\n]\n", "utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True)
    write(target / "collection.json", collection())
    write(target / "models.json", models())
    files(target)
