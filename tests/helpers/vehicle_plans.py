"""A plan of every kind of part, as the document that a vehicle reads."""

import copy
import json

from plans import canonical

import fedldp
from fedldp import vehicle
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.cube import CubeCoder


def numbers(epsilon, name="duchi"):
    document = json.loads(fedldp.mechanism(name, epsilon).channel().to_json())
    del document["format"]
    return {"kind": "numbers", **document}


def document():
    """Two of an age, a city and a colour; and a cube of two further numbers."""
    return copy.deepcopy(
        {
            "format": "fedldp plan 1",
            "epsilon": "3.0",
            "schema": [
                {"name": "age", "low": 0.0, "high": 100.0, "missing": 50.0, "size": 1},
                {"name": "city", "categories": ["Oslo", "Rome", "Lima"], "missing": "Oslo"},
                {"name": "way", "low": -1.0, "high": 3.0, "missing": 1.0, "size": 2},
                {"name": "colour", "categories": ["red", "1", "true", "b"], "missing": "red"},
            ],
            "tables": [
                numbers(1.0),
                RandomizedResponse.of(0.5, 3).to_document(),
                UnaryEncoding.of(0.75, 4).to_document(),
            ],
            "parts": [
                {"kind": "sample", "k": 2, "attributes": [0, 1, 3], "tables": [0, 1, 2]},
                {**CubeCoder.of(1.25, 2).to_document(), "attributes": [2]},
            ],
        }
    )


def loaded(plan, cap=3):
    return vehicle.Plan(canonical(plan), cap)
