"""Make docs/playground/data.js: the numbers that the interactive page shows.

python tools/playground.py

Each table is written by its columns' least and largest count and, for each letter up to the middle
one, a text with a character for each output: "-" is the column's least, "+" its largest, and "o"
the next of `others`. The rows below the middle are those above it, backwards.

The distribution is that of a fleet that does not exist: how many of a thousand vehicles drive at
which speed. Each budget has the odds of randomised response with a label for each bin.
"""

import json
import sys
from pathlib import Path
from typing import Any

import fedldp
from fedldp.coders.categories import RandomizedResponse
from fedldp.coders.channel import Channel
from fedldp.errors import DomainError
from fedldp.mechanisms import Finite, Laplace, Mechanism, Solved

EPSILONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
OUTPUTS = (3, 7, 15, 31)
SPEEDS = fedldp.BinnedNumber.of("speed", 0, 130, bins=13)
FLEET = (50, 20, 40, 110, 190, 160, 80, 60, 70, 90, 80, 40, 10)  # of a thousand vehicles, made up
OUTPUT = Path(__file__).parents[1] / "docs" / "playground" / "data.js"


def document(epsilons: tuple[float, ...] = EPSILONS) -> dict[str, Any]:
    """Return all that the page shows."""
    return {
        "version": fedldp.__version__,
        "outputs": list(OUTPUTS),
        "fleet": {"edges": list(SPEEDS.edges), "vehicles": list(FLEET)},
        "budgets": [_budget(epsilon) for epsilon in epsilons],
    }


def _budget(epsilon: float) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "lowerBound": fedldp.mechanisms.Optimal(epsilon).lower_bound,
        "response": _response(epsilon),
        "mechanisms": [_mechanism(name, epsilon) for name in fedldp.mechanism_names()],
    }


def _response(epsilon: float) -> dict[str, str]:
    """Return the odds with which a vehicle sends its own bin, and each of the others."""
    coder = RandomizedResponse.of(epsilon, len(FLEET))
    return {"same": str(coder.same), "other": str(coder.other)}


def _mechanism(name: str, epsilon: float) -> dict[str, Any]:
    mechanism = fedldp.mechanism(name, epsilon)
    return {
        "name": name,
        "worstCase": mechanism.worst_case_variance,
        "tables": [
            {"asked": outputs, **_table(mechanism.channel(outputs))}
            for outputs in _outputs(mechanism)
        ],
    }


def _outputs(mechanism: Mechanism) -> tuple[int, ...]:
    """Return how many outputs to ask a mechanism for, once for each of its tables."""
    if isinstance(mechanism, Laplace):
        return ()  # without a bound there is no table
    if isinstance(mechanism, Finite) and not isinstance(mechanism, Solved):
        return (len(mechanism.values),)  # those that it has
    return OUTPUTS


def _table(channel: Channel) -> dict[str, Any]:
    counts = channel.counts
    if (counts != counts[::-1, ::-1]).any():
        raise DomainError("the page expects tables that are their own mirror image.")
    least, most = counts.min(axis=0), counts.max(axis=0)
    rows, others = [], []
    for row in counts[: (len(counts) + 1) // 2]:
        kinds = [
            "-" if c == a else "+" if c == b else "o"
            for c, a, b in zip(row, least, most, strict=True)
        ]
        others += [str(c) for c, kind in zip(row, kinds, strict=True) if kind == "o"]
        rows.append("".join(kinds))
    return {
        "worstCase": channel.worst_case_variance,
        "letters": channel.letters.tolist(),
        "values": channel.values.tolist(),
        "least": [str(count) for count in least],
        "most": [str(count) for count in most],
        "rows": rows,
        "others": others,
    }


def main() -> None:
    """Write the file."""
    text = json.dumps(document(), separators=(",", ":"))
    # A script, not JSON: a page that is opened from the disk may not fetch a file beside it.
    OUTPUT.write_text(f"window.FEDLDP = {text};\n", encoding="utf-8")
    print(f"{OUTPUT}: {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 1:
        sys.exit(__doc__)
    main()
