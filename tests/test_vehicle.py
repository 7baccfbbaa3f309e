"""The single file for a vehicle: alone with nothing but Python, and in step with the library."""

import ast
import itertools
import json
import math
import shutil
import subprocess
import sys
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import Scripted

import fedldp
from fedldp import vehicle

FILE = Path(vehicle.__file__)
WORDS = 1 << vehicle.ROUNDING


@cache
def channel(name, epsilon, outputs=None):
    return fedldp.mechanism(name, epsilon).channel(outputs)


@cache
def prepared(name, epsilon, outputs=None):
    return vehicle.Channel(channel(name, epsilon, outputs).to_json(), epsilon)


def tampered(**changes):
    return json.dumps({**json.loads(channel("duchi", 1.0).to_json()), **changes})


# Alone in an empty directory


@pytest.fixture
def alone(tmp_path):
    """Run a copy of the file with a bare interpreter, given the text of a channel."""
    shutil.copy(FILE, tmp_path / "vehicle.py")

    def run(text, *arguments):
        if text is not None:
            data = text if isinstance(text, bytes) else text.encode()
            (tmp_path / "channel.json").write_bytes(data)
        return subprocess.run(
            [sys.executable, "-I", "-S", "vehicle.py", "channel.json", *arguments],
            cwd=tmp_path,
            env={},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


def refusal(result):
    """The one line that is said when nothing is sent."""
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("vehicle: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_imports_nothing_but_the_standard_library():
    imported = set()
    for node in ast.walk(ast.parse(FILE.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(node.module.split(".")[0])
    assert "secrets" in imported
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("name", "outputs", "values", "digits"),
    [
        ("duchi", None, ["0.3"] * 9, 4),
        ("duchi", None, ["-1e-3", "-inf", "-1E-05", "-.5", "+1"], 2),
        ("three-outputs-flat", None, ["-1", "1", "0", "-0.25"], 2),
        ("hm-tp", 31, ["0.3", "-0.7"], 4),
        ("pm", 2001, ["0.3", "-0.7", "1"], 10),
        ("pm", 31, ["nan", "inf", "7", "-7.5"], 6),
    ],
)
def test_encodes_alone(alone, name, outputs, values, digits):
    result = alone(channel(name, 1.0, outputs).to_json(), "--cap", str(len(values)), *values)
    assert result.stderr == ""
    assert result.returncode == 0
    assert len(bytes.fromhex(result.stdout)) * 2 == digits == len(result.stdout) - 1


def test_sends_what_it_encodes_with_new_randomness_each_time(alone):
    """Duchi's sign at epsilon 16 is wrong once in 10^7; forty times five bits are never equal."""
    values = ["1"] * 5 + ["-1"] * 2 + ["1"] + ["-1"] * 4
    assert alone(channel("duchi", 16.0).to_json(), "--cap", "192", *values).stdout == "f900\n"
    text = channel("hm-tp", 1.0, 31).to_json()
    first, second = (alone(text, "--cap", "40", *["0.3"] * 40).stdout for _ in range(2))
    assert len(first) == len(second) == 51
    assert first != second


def test_the_cap_is_for_all_values_together(alone):
    text = channel("three-outputs", 1.0).to_json()
    assert alone(text, "--cap", "1", "0.3").returncode == 0
    assert alone(text, "--cap", "2", "0.3", "-0.7").returncode == 0
    assert "refused: column 0 has a count 2.71" in refusal(alone(text, "--cap", "0.99", "0.3"))
    assert "more than e^0.5" in refusal(alone(text, "--cap", "1", "0.3", "-0.7"))
    assert "more than e^0.995" in refusal(alone(text, "--cap", "1.99", "0.3", "-0.7"))


def test_a_value_that_cannot_be_read_is_sent_like_any_other(alone):
    text = channel("hm-tp", 1.0, 31).to_json()
    for value in ("abc", "", "1e999", "--help"):
        result = alone(text, "--cap", "1", value)
        assert (result.returncode, result.stderr, len(result.stdout)) == (0, "", 3), value


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (tampered(counts=[[3 << 58, 1 << 58], [1 << 58, 3 << 58]]), ["0.3"], "column 0 has a coun"),
        (b"\xff\xfe\x00", ["0.3"], "codec can't decode"),
        (None, ["0.3"], "No such file"),
        (tampered(), [], "usage: vehicle.py CHANNEL.json --cap EPSILON X [X ...]"),
    ],
    ids=itertools.count(),
)
def test_says_in_one_line_why_nothing_is_sent(alone, text, arguments, said):
    assert said in refusal(alone(text, "--cap", "1", *arguments))


# What it accepts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"counts": [[3 << 58, 1 << 58], [1 << 58, 3 << 58]]}, "column 0 has a count 3 times"),
        ({"counts": [[9, 7], [13, 3]]}, r"column 1 has a count 2\.333"),
        ({"counts": [[1 << 60, 0], [0, 1 << 60]]}, "column 0 has a count beside a zero"),
        ({"counts": [[8, 8], [8, 9]]}, "row 1 is not made of 2 counts"),
        ({"counts": [[8, 8], [16]]}, "row 1 is not made of 2 counts"),
        ({"counts": [[-8, 24], [8, 8]]}, "row 0 is not made of"),
        ({"counts": [[9, 8], [8, 9]]}, "no power of two"),
        ({"counts": [[1 << 62, 1 << 62]] * 2}, "one of the wrong size"),
        ({"counts": []}, "it is empty"),
        ({"counts": [[], []]}, "it is empty"),
        ({"letters": None}, "not a 'fedldp channel 1'"),
        ({"counts": 7}, "not a 'fedldp channel 1'"),
        ({"counts": [[8.5, 8], [8, 8]]}, "not a .*a count must be a whole number; got 8.5"),
        ({"counts": [[math.inf, 1]]}, "a count must be a whole number; got inf"),
        ({"counts": [["x", "y"]]}, "not a 'fedldp channel 1'"),
        ({"format": "fedldp channel 2"}, "the format differs"),
    ],
)
def test_refuses_what_leaks_and_what_is_no_channel(changes, said):
    with pytest.raises(ValueError, match=said):
        vehicle.Channel(tampered(**changes), "0.8")


@pytest.mark.parametrize(
    "letters",
    [
        *([], [1], [1, -1], [-1, 0.5], [-1, 1.5], [-1, math.nan], [-1, math.nan, 1]),
        *([-1, 0.5, 0.5, 1], [-1, 0, 2**-21, 1], [-math.inf, -1, 1, math.inf]),
    ],
)
def test_refuses_letters_that_do_not_ascend_or_are_too_close(letters):
    text = tampered(letters=letters, counts=[[8, 8]] * max(len(letters), 1))
    with pytest.raises(ValueError, match="it needs a letter for each row, ascending from -1 to 1"):
        vehicle.Channel(text, 1.0)
    with pytest.raises(ValueError, match="it needs a letter for each row"):
        vehicle.Channel(tampered(counts=[[8, 8]] * 3), 1.0)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "null", "[" * 100_000], ids=range(5))
def test_refuses_other_text(text):
    with pytest.raises(ValueError, match="not a 'fedldp channel 1'"):
        vehicle.Channel(text, 1.0)


@pytest.mark.parametrize("cap", [1.0, "1", "1.0", Fraction(1), 1])
def test_caps_are_read_as_written(cap):
    text = channel("duchi", 1.0).to_json()
    assert vehicle.Channel(text, cap).bits == 1
    with pytest.raises(ValueError, match="refused: column 0"):
        vehicle.Channel(text, Fraction(cap) * Fraction(999_999_999, 10**9))
    assert vehicle.exact(0.1) == vehicle.exact("0.1") == Fraction(1, 10)


@pytest.mark.parametrize("cap", [0, "-1", -0.5, "x", "1/0", "nan", math.inf, None])
def test_refuses_a_cap_that_is_no_positive_number(cap):
    said = "positive" if cap in (0, "-1", -0.5) else "a number"
    with pytest.raises(ValueError, match=f"^epsilon must be {said}; got "):
        vehicle.Channel(tampered(), cap)


# The same codes as the library


@pytest.mark.parametrize(
    ("name", "epsilon", "outputs", "n"),
    [
        ("duchi", 1.0, None, 30_000),
        ("three-outputs", 1.0, None, 5_000),
        ("three-outputs-flat", 4.0, None, 10_000),
        ("pm-sub", 0.01, 3, 3_000),
        ("pm", 1.0, 2001, 5_000),
        ("hm", 8.0, 127, 5_000),
        ("hm-tp", 2.0, 31, 10_000),
        ("optimal", 1.0, None, 10_000),
    ],
)
def test_same_codes_from_the_same_words(name, epsilon, outputs, n):
    """For n below 2^15 `Channel.encode` takes all words first, and then all that round."""
    c, ours = channel(name, epsilon, outputs), prepared(name, epsilon, outputs)
    x = fedldp.source(40).uniform(n) * 2 - 1
    special = np.concatenate([c.letters, np.nextafter(c.letters, 0), [-1.0, 0.0, 1.0, -0.0]])
    x[: special.size] = special
    source = fedldp.source(41)
    given = (x.tolist(), source.words(n).tolist(), source.words(n, np.uint32).tolist())
    assert ours.bits == c.bits
    np.testing.assert_array_equal(c.encode(x, fedldp.source(41)), list(map(ours.encode, *given)))


@pytest.mark.parametrize("name", ["duchi", "three-outputs-flat"])
def test_same_codes_at_the_words_that_just_round_up(name):
    """With epsilon 16 the code all but tells the letter."""
    c, ours, n = channel(name, 16.0), prepared(name, 16.0), 3_000
    x, words = fedldp.source(42).uniform(n) * 2 - 1, fedldp.source(43).words(n).tolist()
    places = [vehicle.position(ours.letters, len(c.letters) == 2, value) for value in x.tolist()]
    first = [-int(place * WORDS + 0.5) % WORDS for place in places]  # that rounds up
    codes = []
    for rounding in (first, [word - 1 for word in first]):
        codes.append(c.encode(x, Scripted([*words, *rounding])))
        np.testing.assert_array_equal(
            codes[-1], list(map(ours.encode, x.tolist(), words, rounding))
        )
    assert np.mean(codes[0] > codes[1]) > 0.6  # so the words are those that decide


def test_draws_its_own_words(monkeypatch):
    """Without given words: 20,000 codes, each count within 6 deviations; once in 10^8."""
    c, ours, n = channel("three-outputs", 1.0), prepared("three-outputs", 1.0), 20_000
    observed = np.bincount([ours.encode(1.0) for _ in range(n)], minlength=3)
    p = c.table[-1]
    assert np.all(np.abs(observed - n * p) < 6 * np.sqrt(n * p * (1 - p)))
    asked = []
    monkeypatch.setattr(vehicle.secrets, "randbits", lambda bits: asked.append(bits) or 0)
    ours.encode(0.3)
    assert asked == [vehicle.WORD, vehicle.ROUNDING]  # so what draws and what rounds share no bit


def test_a_cap_beyond_any_table_is_no_trouble():
    text = channel("duchi", 16.0).to_json()
    assert vehicle.Channel(text, "1e400").encode(1.0) in (0, 1)


@pytest.mark.parametrize("x", [None, "0.3x", [], object(), 1j])
def test_what_is_no_number_counts_as_zero(x):
    ours = prepared("hm-tp", 2.0)
    assert ours.encode(x, 12345, 678) == ours.encode(0.0, 12345, 678)


@given(x=st.floats() | st.integers(), word=st.integers(0, 2**64 - 1), up=st.integers(0, WORDS - 1))
@example(x=10**400, word=0, up=0)
@example(x=-(10**400), word=0, up=0)
def test_no_value_makes_a_vehicle_refuse(x, word, up):
    for name in ("duchi", "three-outputs-flat", "hm-tp"):
        ours = prepared(name, 2.0)
        code = ours.encode(x, word, up)
        assert 0 <= code < len(ours.counts[0])
        public = 0.0 if x != x else max(-1.0, min(1.0, x))
        assert code == ours.encode(public, word, up)
