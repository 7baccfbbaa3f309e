"""What is published: signed, in one form, for one purpose."""

import datetime
import json

import pytest
from campaigns import HOUR, KEY, NOW, PLAN, asked

from fedldp import Plan, Schema, signing, vehicle
from fedldp.budget.vehicle import new_nonce
from fedldp.campaigns.campaign import FORMAT, Campaign, check_plan, is_same, packed
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.signing import PrivateKey


def test_a_vehicle_reads_what_the_server_signed():
    campaign = asked()
    text = campaign.signed(KEY)
    assert Campaign.read(packed(text), KEY.public) == campaign
    assert Campaign.own(text) == campaign
    assert len(packed(text)) < len(text) / 5
    assert is_same(packed(text), text)
    assert not is_same(packed(asked(number=2).signed(KEY)), text)
    assert not is_same(b"", text)


@pytest.mark.parametrize("payload", [b"", b"{}", packed("x" * (1 << 22)), packed("\0\0")[:-1]])
def test_what_is_not_a_campaign_at_all_is_refused(payload):
    with pytest.raises(WireError):
        Campaign.read(payload, KEY.public)


def test_a_vehicle_on_the_standard_library_reads_the_same():
    campaign = asked()
    document = vehicle.signed_document(campaign.signed(KEY), KEY.public.raw, FORMAT)
    assert vehicle.canonical(document.pop("plan")) == campaign.plan
    assert document == {
        "format": FORMAT,
        "fleet": "north",
        "job": "spring",
        "round": 1,
        "issued": "2027-03-01T12:00:00Z",
        "deadline": "2027-03-02T12:00:00Z",
    }


def altered(text):
    """Yield texts with one thing changed, and why they are refused."""
    yield text.replace("spring", "sprin9"), "signature"
    yield text.replace('"round":1', '"round":2'), "signature"
    yield text.replace(KEY.public.fingerprint, "0" * 64), "key"
    yield text[:-1], "signed"
    yield text + " ", "signed"
    yield asked().signed(PrivateKey.generate()), "key"
    yield signing.sign(KEY, {"format": "fedldp job 1"}), "format|not a"


def test_what_was_altered_is_refused_by_both_vehicles():
    for text, why in altered(asked().signed(KEY)):
        with pytest.raises(WireError, match=why):
            Campaign.read(packed(text), KEY.public)
        with pytest.raises(ValueError, match="refused: "):
            vehicle.signed_document(text, KEY.public.raw, FORMAT)


@pytest.mark.parametrize(
    "changes",
    [
        {"fleet": "north/../south"},
        {"job": "a+b"},
        {"job": "#"},
        {"job": ".."},
        {"round": 0},
        {"round": True},
        {"round": 1.0},
        {"issued": "now"},
        {"deadline": "2027-03-01T12:00:00Z"},
        {"extra": 1},
    ],
)
def test_a_signed_document_with_invalid_entries_is_refused(changes):
    found = signing.read_unverified(asked().signed(KEY), FORMAT)
    text = signing.sign(KEY, found | changes)
    with pytest.raises(FedLDPError):
        Campaign.read(packed(text), KEY.public)


def test_a_deadline_comes_after_the_beginning():
    with pytest.raises(DomainError, match="the deadline must come after"):
        Campaign("north", "spring", 1, PLAN.to_json(), NOW, NOW)


def test_topics_are_those_of_the_documentation():
    identifier = new_nonce()
    campaign = asked(number=7)
    assert campaign.topic == "fedldp/north/campaign/spring"
    assert campaign.answers == "fedldp/north/answers/spring/7"
    assert campaign.shared_answers == "$share/counters/fedldp/north/answers/spring/7"
    expected = f"fedldp/north/ack/spring/7/{identifier.hex()}"
    assert campaign.acknowledgement(identifier) == expected


@pytest.mark.parametrize("bits", [1, 255, 256])
def test_an_answer_has_at_most_64_bytes_if_a_record_has_at_most_256_bits(bits):
    # One bit for each sign of a cube.
    plan = Plan(Schema.vector(bits, bound=1.0), epsilon=4.0, strategy="cube")
    assert plan.bits == bits
    payload = new_nonce() + vehicle.Plan(plan.to_json(), 4).report({"x": [0.0] * bits})
    assert len(payload) == 32 + -(-bits // 8) <= 64


def test_a_plan_must_fit_into_a_message(monkeypatch):
    assert check_plan(PLAN.to_json()) == PLAN
    monkeypatch.setattr("fedldp.campaigns.campaign.MOST_BITS", PLAN.bits - 1)
    with pytest.raises(DomainError, match="Ask fewer attributes"):
        check_plan(PLAN.to_json())


def test_times_are_whole_seconds_in_utc():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    campaign = asked(issued=NOW.astimezone(zone))
    text = campaign.signed(KEY)
    assert Campaign.read(packed(text), KEY.public).deadline == NOW + 24 * HOUR
    assert json.loads(text)["signed"]["issued"] == "2027-03-01T12:00:00Z"
