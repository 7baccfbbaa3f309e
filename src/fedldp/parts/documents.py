"""The parts of a plan as JSON: each distinct table once, and the parts that refer to it."""

from collections.abc import Callable
from typing import Any, cast

from fedldp import vehicle
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.channel import Channel
from fedldp.coders.cube import Cube
from fedldp.parts.sampled import Coder, Sampled
from fedldp.parts.signs import Signs
from fedldp.schema import Schema

Document = dict[str, Any]


def to_documents(parts: tuple[Sampled | Signs, ...]) -> tuple[list[Document], list[Document]]:
    """Return the tables and the parts."""
    tables: list[Document] = []
    places: dict[str, int] = {}  # of the tables, by their text
    documents: list[Document] = []
    for part in parts:
        document: Document = {"attributes": list(part.attributes)}
        if isinstance(part, Signs):
            document |= part.cube.document()
        else:
            numbers = {}
            for coder in part.coders:
                if id(coder) not in numbers:
                    table = _table(cast(Coder, coder))
                    text = vehicle.canonical(table)
                    if text not in places:
                        places[text] = len(tables)
                        tables.append(table)
                    numbers[id(coder)] = places[text]
            document |= {"kind": "sample", "k": part.k}
            document |= {"tables": [numbers[id(coder)] for coder in part.coders]}
        documents.append(document)
    return tables, documents


def _table(coder: Coder) -> Document:
    if isinstance(coder, Channel):
        return {"kind": "numbers", **coder.document()}
    return coder.document()


def from_documents(
    schema: Schema, tables: list[Document], documents: list[Document]
) -> tuple[Sampled | Signs, ...]:
    """Read parts and check them again; raises what `Plan.from_json` turns into `WireError`."""
    vehicle.check_tables(tables, documents)
    coders = [_coder(dict(table)) for table in tables]
    return tuple(_part(schema, coders, dict(document)) for document in documents)


def _coder(table: Document) -> Coder:
    kind = table.pop("kind")
    if kind == "numbers":
        return Channel.from_document(table)
    kinds: dict[str, Callable[..., RandomizedResponse | UnaryEncoding]]
    kinds = {"response": RandomizedResponse, "unary": UnaryEncoding}
    return kinds[kind](
        epsilon=_epsilon(table.pop("epsilon")),
        **{name: vehicle.integer(number) for name, number in table.items()},
    )


def _part(schema: Schema, coders: list[Coder], document: Document) -> Sampled | Signs:
    kind = document.pop("kind")
    attributes = tuple(vehicle.integer(number) for number in document.pop("attributes"))
    if kind == "sample":
        numbers = [vehicle.integer(number) for number in document.pop("tables")]
        chosen = tuple(coders[number] for number in numbers)
        return Sampled(schema, attributes, chosen, k=vehicle.integer(document.pop("k")), **document)
    if kind != "cube":
        raise ValueError(f"there is no kind of part {kind!r}")
    d = sum(schema.attributes[number].size for number in attributes)
    threshold = document.pop("threshold")
    if type(threshold) is not int:
        raise TypeError("a threshold must be a whole number")
    epsilon = _epsilon(document.pop("epsilon"))
    weights = {name: vehicle.integer(number) for name, number in document.items()}
    return Signs(schema, attributes, Cube(epsilon=epsilon, d=d, threshold=threshold, **weights))


def _epsilon(text: Any) -> float:
    if not isinstance(text, str):
        raise TypeError("epsilon must be a number written as a text")
    return float(text)
