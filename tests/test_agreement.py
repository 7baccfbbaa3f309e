"""The library and `vehicle.py` accept the same plans, calendars, keys and signatures.

Both read thousands of documents in which a seeded generator has changed something.
"""

import base64
import json
import random

import pytest
from mutations import calendar_text, plan_text

from fedldp import Calendar, Plan, signing, vehicle
from fedldp.errors import PrivacyError, WireError
from fedldp.signing import PrivateKey, PublicKey

MOST = vehicle.MOST_PERIODS * 16  # what no calendar exceeds
FORMAT = "fedldp greeting 1"


def by_library(read, text):
    """Return whether the library accepts a text; only its own errors may escape."""
    try:
        read(text)
    except (WireError, PrivacyError):
        return False
    return True


def by_vehicle(read, *arguments):
    """Return whether `vehicle.py` accepts something; only `ValueError` may escape."""
    try:
        read(*arguments)
    except ValueError as error:
        assert str(error).startswith("refused: ")  # noqa: PT017
        return False
    return True


def compare(make, library, on_vehicle, cases, seed):
    """Return how many of some texts both accept; fail where they differ."""
    rng, accepted = random.Random(seed), 0
    for _ in range(cases):
        text = make(rng)
        verdicts = by_library(library, text), by_vehicle(on_vehicle, text, MOST)
        assert verdicts[0] == verdicts[1], f"library: {verdicts[0]}, vehicle: {verdicts[1]}: {text}"
        accepted += verdicts[0]
    return accepted


PLANS = plan_text, Plan.from_json, vehicle.Plan
CALENDARS = calendar_text, Calendar.from_json, vehicle.Calendar


def test_plans():
    assert 100 < compare(*PLANS, cases=4000, seed=1) < 2000


def test_calendars():
    assert 50 < compare(*CALENDARS, cases=1000, seed=2) < 800


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_many_plans_and_calendars(seed):
    assert compare(*PLANS, cases=100_000, seed=f"plans {seed}") > 5000
    assert compare(*CALENDARS, cases=25_000, seed=f"calendars {seed}") > 2000


@pytest.mark.parametrize(
    "text", ['{"a":' * 3000 + "1" + "}" * 3000, "[" * 100_000 + "]" * 100_000, "[" * 100_000]
)
@pytest.mark.parametrize(("library", "on_vehicle"), [PLANS[1:], CALENDARS[1:]])
def test_deep_texts(library, on_vehicle, text):
    assert not by_library(library, text)
    assert not by_vehicle(on_vehicle, text, 1)


# Keys and signatures


def torsion():
    """Return the eight points of small order, each in its only form."""
    found = {(1).to_bytes(32, "little")}
    y = 2
    while len(found) < 8:
        point = vehicle.point(y.to_bytes(32, "little"))
        y += 1
        if point is None:
            continue
        # The order of the curve's prime subgroup, times a point, has small order.
        small, power = (0, 1, 1, 0), point
        for bit in range(vehicle.ORDER.bit_length()):
            small = vehicle.added(small, power) if vehicle.ORDER >> bit & 1 else small
            power = vehicle.doubled(power)
        found.add(encoded(small))
    return sorted(found)


def encoded(point):
    inverse = pow(point[2], -1, vehicle.FIELD)
    x, y = point[0] * inverse % vehicle.FIELD, point[1] * inverse % vehicle.FIELD
    return (y + ((x & 1) << 255)).to_bytes(32, "little")


TORSION = torsion()


def odd_keys():
    """Return keys of small order, in all forms that some reader accepts, and mixed ones."""
    yield from TORSION
    for key in range(19):  # another form of 0 to 18
        for sign in (0, 1):
            yield (vehicle.FIELD + key + (sign << 255)).to_bytes(32, "little")
    yield (1 + (1 << 255)).to_bytes(32, "little")
    yield (vehicle.FIELD - 1 + (1 << 255)).to_bytes(32, "little")
    honest = vehicle.point(PrivateKey.generate().public.raw)
    for small in TORSION:
        yield encoded(vehicle.added(honest, vehicle.point(small)))


def verdicts(public, text):
    """Return whether the library and `vehicle.py` accept a signed text."""
    return (
        by_library(lambda text: signing.verify(PublicKey(public), text, FORMAT), text),
        by_vehicle(vehicle.signed_document, text, public, FORMAT),
    )


def forged(public, signature, signed):
    return signing._write(PublicKey(public), signature, signed)


def test_keys_of_small_order_and_in_other_forms():
    """With R = key and s = 0 such a key signs one message in eight, or all."""
    for public in odd_keys():
        for number in range(16):
            signed = vehicle.canonical({"format": FORMAT, "n": number})
            for first in (public, TORSION[0], TORSION[1]):
                text = forged(public, first + bytes(32), signed)
                assert verdicts(public, text) == (False, False), public.hex()


@pytest.mark.parametrize(
    "public",
    [key for key in odd_keys() if key in TORSION or vehicle.point(key) is None],
    ids=bytes.hex,
)
def test_such_keys_are_not_read_from_files_either(public):
    line = f"ed25519 {base64.b64encode(public).decode()}\n"
    with pytest.raises(WireError, match="not a public key"):
        PublicKey.from_text(line)


def damaged(text, rng):
    """Return a signed text that is altered, most often in one character."""
    document = json.loads(text)
    kind = rng.randrange(6)
    if kind == 0:
        raw = bytearray(base64.b64decode(document["signature"]))
        raw[rng.randrange(64)] ^= 1 << rng.randrange(8)
        return text.replace(document["signature"], base64.b64encode(raw).decode())
    if kind == 1:  # the same signature with a larger s
        raw = base64.b64decode(document["signature"])
        s = int.from_bytes(raw[32:], "little") + rng.randrange(1, 8) * vehicle.ORDER
        raw = raw[:32] + s.to_bytes(32, "little")
        return text.replace(document["signature"], base64.b64encode(raw).decode())
    place = rng.randrange(len(text))
    if kind == 2:
        return text[:place] + text[place + 1 :]
    letter = rng.choice('AQgw=+/09af{}[]",: \n\u00e9')
    return text[:place] + letter + text[place + (kind > 3) :]


def test_signed_texts():
    rng, accepted = random.Random(3), 0
    private = PrivateKey.generate()
    for number in range(300):
        inner = rng.choice([1, -0.0, float("nan"), "\ud800", [[[]]], {"b": 1, "a": 2}, "\u00fc"])
        text = signing.sign(private, {"format": FORMAT, "n": number, "inner": inner})
        for each in (text, damaged(text, rng)):
            library, on_vehicle = verdicts(private.public.raw, each)
            assert library == on_vehicle, each
            accepted += library
    assert accepted >= 300


def test_signed_texts_that_no_library_has_written():
    """Their signature is right, and still they are refused, by both or by none."""
    private = PrivateKey.generate()
    deep = "[" * 100_000 + "]" * 100_000
    for signed in (
        "{}",
        f'{{"format":"{FORMAT}"}}',
        f'{{"format": "{FORMAT}"}}',
        f'{{"a":1,"format":"{FORMAT}","a":1}}',
        f'{{"a":{deep},"format":"{FORMAT}"}}',
        f'{{"a":{"[" * 990}{"]" * 990},"format":"{FORMAT}"}}',
        f'{{"a":"{"x" * (1 << 20)}","format":"{FORMAT}"}}',
        f'{{"a":{"9" * 5000},"format":"{FORMAT}"}}',
        '{"format":1}',
        "{1}",
    ):
        text = forged(private.public.raw, private.signature(signed.encode()), signed)
        library, on_vehicle = verdicts(private.public.raw, text)
        assert library == on_vehicle, signed[:80]
