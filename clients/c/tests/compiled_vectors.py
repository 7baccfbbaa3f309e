"""Write compiled.json: what `fedldp compile` makes of each plan and calendar of the vectors.

python clients/c/tests/compiled_vectors.py

For each name stand the SHA-256 of the header, the bytes in flash, and those of working memory.
"""

import hashlib
import json
from pathlib import Path

from fedldp.plan.compiled import compile_plan

TESTS = Path(__file__).parent
VECTORS = json.loads((TESTS.parents[2] / "docs/vectors.json").read_text("utf-8"))


def compiled() -> dict[str, dict[str, object]]:
    """Return what is written."""
    texts = {case["name"]: case["plan"] for case in VECTORS["cases"]}
    texts |= {f"calendar {i}": case["calendar"] for i, case in enumerate(VECTORS["calendars"], 1)}
    return {name: _described(text) for name, text in texts.items()}


def _described(text: str) -> dict[str, object]:
    made = compile_plan(text, "99")
    return {
        "header": hashlib.sha256(made.to_header().encode()).hexdigest(),
        "flash": made.flash_bytes,
        "scratch": 8 * made.plan.entries["scratch"],
    }


if __name__ == "__main__":
    (TESTS / "compiled.json").write_text(f"{json.dumps(compiled(), indent=1)}\n", "ascii")
