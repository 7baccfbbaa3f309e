"""What the full tests have counted, for figures.py."""

import json

from c_vehicle import ROOT

FULL_FIGURES = ROOT / "build/clients-c"


def keep(name, figures):
    """Write figures of a test to a file of its own."""
    FULL_FIGURES.mkdir(parents=True, exist_ok=True)
    (FULL_FIGURES / f"{name}.json").write_text(json.dumps(figures), "ascii")


def kept():
    """Return all figures by their names."""
    return {path.stem: json.loads(path.read_text()) for path in FULL_FIGURES.glob("*.json")}
