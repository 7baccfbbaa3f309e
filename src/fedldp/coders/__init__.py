"""Coders turn a value into a code, exactly private, with integers as their odds.

`base` has the protocol that all of them follow, and says what a new coder takes: a file, an entry
below and, before vehicles answer through it, its check and its draw in `fedldp.vehicle`.
`channel` answers one number through a table, `categories` one category, `lines` one of very many,
`cube` all numbers at once, with one sign each, and `directions` a whole vector of bounded length.
`study` has floating-point noise, as in the paper, and is never sent.
"""

from fedldp.coders.base import Coder
from fedldp.coders.categories import RandomizedResponse, UnaryEncoding
from fedldp.coders.channel import Channel
from fedldp.coders.cube import CubeCoder
from fedldp.coders.directions import DirectionsCoder
from fedldp.coders.lines import Lines

__all__ = [
    "Channel",
    "Coder",
    "CubeCoder",
    "DirectionsCoder",
    "Lines",
    "RandomizedResponse",
    "UnaryEncoding",
]

CODERS: dict[str, type[Coder]] = {
    each.kind: each
    for each in (Channel, RandomizedResponse, UnaryEncoding, Lines, CubeCoder, DirectionsCoder)
}
"""The coders that a plan's JSON can name, by their kind."""
