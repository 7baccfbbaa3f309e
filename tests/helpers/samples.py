"""Small samples of every registered kind of coder and of attribute, which the contracts share."""

from plans import directions_of

from fedldp import Angle, BinnedNumber, Category, Number, OptionalNumber, Plan, Schema, Within
from fedldp.coders import CubeCoder, DirectionsCoder, Lines, RandomizedResponse, UnaryEncoding
from fedldp.coders.base import VectorCoder
from fedldp.mechanisms import HMTP, Duchi
from fedldp.plan.parts import Part
from fedldp.schema.attributes import HashedCategory, WholeNumbers

CODER_SAMPLES = {
    "numbers": [Duchi(0.5).channel(), HMTP(2.0).channel(7)],
    "response": [RandomizedResponse.of(0.7, 2), RandomizedResponse.of(3.0, 5)],
    "unary": [UnaryEncoding.of(0.7, 3), UnaryEncoding.of(3.0, 6)],
    "lines": [
        Lines.of(0.7, 3, bits=3),
        Lines.of(3.0, 5),
        Lines.of(1.0, 9),
        Lines.of(0.3, 8, bits=4),
    ],
    "cube": [CubeCoder.of(0.7, 3), CubeCoder.of(3.0, 4), CubeCoder.of(1.0, 1)],
    "directions": [
        directions_of(0.7, 3, directions=7, best=2, null=False),
        directions_of(3.0, 2, directions=3, best=1, null=True),
        DirectionsCoder.of(2.0, 1, mean_length=0.3),
    ],
}
SPEED, MODEL = Number("speed", 0, 130), Category("model", ["A", "B", "C"])
TEMPERATURE = BinnedNumber.of("temperature", -40, 60, bins=10)
ATTRIBUTE_SAMPLES = {
    "number": [SPEED, Number("way", -2, 2, size=3), Number("force", -2, 2, size=4, length=2.0)],
    "category": [MODEL, Category("colour", [f"colour {i}" for i in range(40)])],
    "optional number": [OptionalNumber("range", 0, 500)],
    "number in bins": [TEMPERATURE],
    "angle": [Angle("heading", bins=8)],
    "whole numbers": [WholeNumbers("seats", 1, 7)],
    "hashed category": [HashedCategory("app", 16)],
    "within": [
        Within("speed by model", SPEED, MODEL),
        Within("colour by model", Category("colour", ["red", "blue"]), MODEL),
        Within("temperature by model", TEMPERATURE, MODEL),
    ],
}


def schema_for(coder):
    """Return a schema with one attribute that fits a coder, twice if the coder is not joint."""
    if coder.inputs != (-1.0, 1.0):
        labels = [str(i) for i in range(coder.estimates)]
        return Schema.of(a=labels, b=labels)
    if isinstance(coder, VectorCoder):
        return Schema.vector(coder.coordinates, length=1.0)
    return Schema.vector(coder.coordinates, bound=1.0) if coder.joint else Schema.vector(2, 1.0)


def plan_around(coder, k=1):
    schema = schema_for(coder)
    attributes = tuple(range(len(schema)))
    coders = (coder,) if coder.joint else (coder,) * len(attributes)
    part = Part(schema, attributes, coders, k)
    return Plan.from_parts(schema, k * coder.epsilon, [part])
