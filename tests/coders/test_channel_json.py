"""Channels as JSON: canonical, exact, and checked again on the way in."""

import json
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedldp
from fedldp import Channel, audit, vehicle
from fedldp.errors import PrivacyError, WireError
from fedldp.mechanisms import Duchi

TINY = Channel(1.0, [[8, 4, 4], [6, 4, 6], [4, 4, 8]], [-1.0, 0.0, 1.0], [-4.0, 0.0, 4.0])
TEXT = (
    '{"counts":[[8,4,4],[6,4,6],[4,4,8]],"epsilon":"1.0","format":"fedldp channel 1",'
    '"letters":[-1.0,0.0,1.0],"values":[-4.0,0.0,4.0]}'
)


def test_is_fixed_forever():
    assert TINY.to_json() == TEXT
    assert TINY.fingerprint == "604477cdc13bfe4a362166945f78edaf3d40c914ba127fd0720692b9b92ec3e4"


@pytest.mark.parametrize("name", [n for n in fedldp.mechanism_names() if n != "laplace"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_round_trip(name, epsilon):
    c = fedldp.mechanism(name, epsilon).channel()
    text = c.to_json()
    again = Channel.from_json(text)
    assert again == c
    assert again.to_json() == text
    assert again.fingerprint == c.fingerprint == sha256(text.encode()).hexdigest()
    document = json.loads(text)
    assert text == json.dumps(document, sort_keys=True, separators=(",", ":"))
    shuffled = json.dumps(dict(reversed(document.items())), indent=1)
    assert Channel.from_json(shuffled).fingerprint == c.fingerprint
    # No floats in what privacy depends on, and no integers that a reader might turn into floats.
    assert document["epsilon"] == repr(epsilon)
    for row in document["counts"]:
        assert {type(count) for count in row} <= {int, str}
        assert all(isinstance(count, str) == (int(count) > 2**53) for count in row)


def test_a_tampered_table_is_refused():
    document = json.loads(Duchi(1.0).channel().to_json())
    for row, column, step in ((0, 0, 300), (1, 1, 300), (0, 1, -300), (1, 0, -300)):
        counts = [list(map(int, counts)) for counts in document["counts"]]
        counts[row][column] += step
        counts[row][1 - column] -= step
        counts = [list(map(vehicle.json_integer, each)) for each in counts]
        with pytest.raises(PrivacyError, match=r"column [01] has a count 2\.71828"):
            Channel.from_json(json.dumps({**document, "counts": counts}))
    with pytest.raises(PrivacyError, match=r"not an epsilon = 0\.5 channel: column 0"):
        Channel.from_json(json.dumps({**document, "epsilon": "0.5"}))
    with pytest.raises(PrivacyError, match="row 1 is not made of 2 counts"):
        Channel.from_json(json.dumps({**document, "counts": [document["counts"][0], [1, 1]]}))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("channel 1", "channel 2", "it is a 'fedldp channel 2', which a newer version of fedldp"),
        ('"1.0"', '"nan"', "epsilon must be a number"),
        ('"1.0"', '"17"', "epsilon must be a number from 0.001 to 16; got 17"),
        ('"1.0"', "null", "written as a text"),
        ('"epsilon":"1.0",', "", "its entries must be counts, epsilon, letters, values"),
        ('{"counts"', '{"more":1,"counts"', "its entries must be counts, epsilon, letters, values"),
        ("[8,4,4]", "[8,4,null]", "a count must be a whole number; got None"),
        ("[8,4,4]", "[8.0,4,4]", "a count must be a whole number; got 8.0"),
        ("[8,4,4]", "[8.9,4.9,4.9]", "a count must be a whole number; got 8.9"),
        ("[8,4,4]", "[true,4,4]", "whole number"),
        ('"1.0"', "1.0", "written as a text"),
        ('"1.0"', "true", "written as a text"),
        ("[8,4,4]", '["\u0668",4,4]', "whole number"),
        ("[8,4,4]", '"844"', "list of lists"),
        ("[8,4,4]", '["8.0",4,4]', "whole number"),
        ("[8,4,4]", "[Infinity,4,4]", "a count must be a whole number; got inf"),
        ("[8,4,4]", "[8,4]", "counts must be in rows of one length"),
        ("[8,4,4]", f'["{2**64}",4,4]', "counts must be integers"),
        ("[8,4,4]", f'["{"9" * 5000}",4,4]', "digits"),
        ("[-4.0", f"[-{'9' * 400}", "values must be"),
        ("[-4.0,0.0,4.0]", "[-1e308,0.0,1e308]", "unbiased"),
        ("[-4.0,0.0,4.0]", "[-1.7e308,0.0,1.7e308]", "unbiased"),
        ("[-4.0,0.0,4.0]", "[-4.0,0.0,4.001]", "unbiased"),
        ("[-1.0,0.0,1.0]", "[-1.0,0.0,0.5]", "ascending letters from -1 to 1"),
        ("[-1.0,0.0,1.0]", "[[-1.0,0.0,1.0]]", "list of numbers"),
        ("[-1.0,0.0,1.0]", "{}", "list of numbers"),
    ],
)
def test_a_changed_document_is_a_wire_error(old, new, said):
    assert old in TEXT
    with pytest.raises(WireError, match=f"not a 'fedldp channel 1': .*{said}"):
        Channel.from_json(TEXT.replace(old, new))


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", '"x"', "1", "{", "NaN", None, b"\xff", TEXT[:-1], "[" * 10**5],
    ids=range(12),
)
def test_other_text_is_a_wire_error(text):
    with pytest.raises(WireError, match="not a 'fedldp channel 1'"):
        Channel.from_json(text)


# Whatever comes in, only the two announced errors come out


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.integers(-1, 20),
        st.floats(),
        st.text(max_size=6),
        st.sampled_from(["1.0", "8", str(2**60), "nan", "1e999", 2**63, 2**64, vehicle.FORMAT]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=10,
)
KEYS = st.sampled_from(sorted(json.loads(TEXT)))


def accept_or_refuse(text):
    try:
        c = Channel.from_json(text)
    except (WireError, PrivacyError):
        return
    assert Channel.from_json(c.to_json()) == c
    assert audit.exact(c).holds


@given(text=st.text() | st.binary() | JSON.map(json.dumps))
@settings(max_examples=200)
def test_fuzz_any_text(text):
    accept_or_refuse(text)


@given(
    changes=st.dictionaries(KEYS | st.just("other"), JSON, max_size=2),
    missing=st.sets(KEYS, max_size=1),
)
@settings(max_examples=300)
def test_fuzz_changed_documents(changes, missing):
    document = {**json.loads(TEXT), **changes}
    accept_or_refuse(json.dumps({key: document[key] for key in document if key not in missing}))


ENTRIES = st.sampled_from(["letters", "values", *["counts"] * 3])


@given(entries=st.lists(st.tuples(ENTRIES, st.integers(0, 2), JSON), min_size=1, max_size=3))
@settings(max_examples=300)
def test_fuzz_changed_entries(entries):
    document = json.loads(TEXT)
    for number, (key, i, new) in enumerate(entries):
        place = document[key][number] if key == "counts" else document[key]
        place[i] = new
    accept_or_refuse(json.dumps(document))


@given(start=st.integers(0, len(TEXT)), length=st.integers(0, 20), new=st.text(max_size=5))
@settings(max_examples=400)
def test_fuzz_changed_text(start, length, new):
    accept_or_refuse(TEXT[:start] + new + TEXT[start + length :])


def test_numbers_of_any_type_make_the_same_channel():
    other = Channel(1, TINY.counts.astype(np.uint8), [-1, 0, 1], np.array([-4, 0, 4]))
    assert other == TINY
    assert isinstance(other.epsilon, float)
    assert (other.counts.dtype, other.values.dtype) == (np.int64, np.float64)
    assert repr(other) == "<Channel: epsilon 1, 3 letters to 3 outputs, 2 bits>"
