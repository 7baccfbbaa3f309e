"""A few bytes can describe what would take all memory: it is refused before anything is made."""

import json
import tracemalloc
import zlib
from dataclasses import replace

import pytest
from plans import canonical, changed, cube, document
from signed import KEY, pinned_vault
from vaults import asked, gradients, vault

from fedldp import Plan, Schema, vehicle
from fedldp.errors import FedLDPError, WireError
from fedldp.fleet.gateway.relay import relay
from fedldp.fleet.protocol import MOST_BITS, MOST_BYTES, _width, inflated
from fedldp.fleet.sockets import REFUSED, Address
from fedldp.fleet.vault.vault import _checked

LIMIT = 8 * MOST_BYTES  # what a plan may take: the largest cube takes five times a question


def most(act):
    """Return what some code gives, or how it refuses, and the most bytes that it held at a time."""
    for cached in (_width, _checked):
        cached.cache_clear()
    tracemalloc.start()
    try:
        try:
            found = act()
        except FedLDPError as error:
            found = error
        return found, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def one_of(coordinates):
    """Return a plan for a vector, of which each vehicle sends one number."""
    plan = json.loads(Plan(Schema.vector(4, 1.0), 1.0, mechanism="three-outputs", k=1).to_json())
    return canonical(changed(plan, ("schema", 0, "size"), coordinates))


def cubes(number):
    sides = {"low": -1, "high": 1, "size": vehicle.MOST_CUBE_SIGNS}
    schema = Schema.of(**{f"x{i}": sides for i in range(number)})
    parts = [cube([i], "1.1", 0, heavy=3, light=1) for i in range(number)]
    return canonical(document(f"{1.1 * number:.1f}", schema.to_document(), [], *parts))


HUGE = {
    "the longest vector": one_of(vehicle.MOST_COORDINATES),
    "a longer one": one_of(vehicle.MOST_COORDINATES + 1),
    "no end": one_of(10**30),
    "the largest cube": cubes(1),
    "many cubes": cubes(10),
}


@pytest.mark.parametrize("ask", [asked, gradients])
@pytest.mark.parametrize("name", HUGE)
def test_a_vault_refuses_a_huge_plan_before_it_takes_memory(tmp_path, name, ask):
    """Not for its price, which is within the cap, but as it does not fit the data and the model."""
    held = vault(tmp_path / "ledger", cap=64.0)
    assert len(HUGE[name]) < 5000
    refusal, peak = most(lambda: held.answer(ask(n=1, plan=HUGE[name])))
    assert isinstance(refusal, FedLDPError)
    assert peak < LIMIT


BOMBS = {
    "not signed": "{" * MOST_BYTES,
    "as long as it may be": '{"a":[' + "{}," * (1 << 18) + "0]}",
    "deep": '{"a":' * (1 << 17) + "0" + "}" * (1 << 17),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_vault_does_not_parse_what_its_operator_has_not_signed(tmp_path, name):
    """Parsed, these would take many times their length, or all of the stack."""
    held = pinned_vault(tmp_path / "ledger")
    head = {
        "format": "fedldp signed 1",
        "key": KEY.public.fingerprint,
        "signature": "A" * 86 + "==",
    }
    signed = f'{canonical(head)[:-1]},"signed":{BOMBS[name]}}}'
    refusal, peak = most(lambda: held.answer(replace(asked(), signed=signed)))
    assert isinstance(refusal, WireError)
    assert peak < 2 * MOST_BYTES


@pytest.mark.parametrize("name", ["a longer one", "no end", "many cubes"])
def test_a_gateway_refuses_a_huge_plan_before_it_takes_memory(tmp_path, name):
    data, address = asked(n=1, plan=HUGE[name]).to_bytes(), Address.of(str(tmp_path / "away"))
    answer, peak = most(lambda: relay(data, [address], 0.1))
    assert answer == REFUSED
    assert peak < LIMIT


def test_a_gateway_makes_no_room_for_a_batch_that_is_too_long(tmp_path):
    question = asked(n=4 * MOST_BITS // vehicle.MOST_CUBE_SIGNS, plan=HUGE["the largest cube"])
    address = Address.of(str(tmp_path / "away"))
    answer, peak = most(lambda: relay(question.to_bytes(), [address], 0.1))
    assert answer == REFUSED
    assert peak < LIMIT < question.size


def test_a_bomb_is_inflated_no_further_than_a_question_may_be():
    bomb = zlib.compress(bytes(64 * MOST_BYTES), 9)
    assert len(bomb) < MOST_BYTES
    refusal, peak = most(lambda: inflated(bomb))
    assert isinstance(refusal, WireError)
    assert peak < LIMIT
