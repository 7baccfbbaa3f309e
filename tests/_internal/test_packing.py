"""Records against a plain text of 0 and 1."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedldp._internal import packing

# Both sides of each size at which numbers or bytes are kept in another way; hypothesis tries more.
WIDTHS = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 70, 128, 129, 1001)
WIDEST_NUMBER = 32  # of a single field


def split(width, rng):
    """Return fields that fill a record: as (first bit, width)."""
    fields, first = [], 0
    while first < width:
        size = rng.randint(1, min(WIDEST_NUMBER, width - first))
        fields.append((first, size))
        first += size
    return fields


def packed(texts):
    """Return the bytes of records that are texts of 0 and 1."""
    bits = "".join(texts)
    bits += "0" * (-len(bits) % 8)
    return int("1" + bits, 2).to_bytes(len(bits) // 8 + 1, "big")[1:]


def numbers_of(texts, first, size):
    return [int(text[first : first + size], 2) for text in texts]


def bits_of(texts, first, size):
    rows = [[int(bit) for bit in text[first : first + size]] for text in texts]
    return np.array(rows, np.uint8).reshape(len(texts), size)


def some_texts(count, width, rng):
    return [f"{rng.getrandbits(width):0{width}b}" for _ in range(count)]


def check(texts, width, fields, as_bits, order, rows):
    """Write the texts field by field, in some order and for some rows at a time, and read them."""
    filled = packing.empty(len(texts), width)
    for place in order:
        first, size = fields[place]
        for some in rows:
            chosen = texts if some is None else [texts[row] for row in some]
            if as_bits[place]:
                filled.put_bits(first, bits_of(chosen, first, size), some)
            else:
                filled.put(first, size, np.array(numbers_of(chosen, first, size), np.int64), some)
    data = filled.to_bytes()
    assert data == packed(texts)
    assert len(data) == packing.length(len(texts), width)
    for read in (filled, packing.parse(data, len(texts), width)):
        assert len(read) == len(texts)
        assert read.to_bytes() == data
        for first, size in fields:
            assert read.get(first, size).tolist() == numbers_of(texts, first, size)
            found = read.get_bits(first, size)
            assert found.dtype == np.uint8
            assert found.tolist() == bits_of(texts, first, size).tolist()


@pytest.mark.parametrize("width", WIDTHS)
def test_any_width_count_and_split_round_trip(width):
    rng = random.Random(width)
    for count in (0, 1, 2, 7, 8, 9, 16, 61, 64):
        texts, fields = some_texts(count, width, rng), split(width, rng)
        places = list(range(len(fields)))
        as_bits = [rng.random() < 0.5 for _ in places]
        check(texts, width, fields, as_bits, rng.sample(places, len(places)), [None])


@pytest.mark.parametrize("width", WIDTHS)
def test_all_ones_and_a_single_one_keep_their_places(width):
    """Whatever is shifted too far, or not masked, shows here."""
    for count in (5, 8):
        fields = split(width, random.Random(1))
        places = range(len(fields))
        check(["1" * width] * count, width, fields, [False for _ in places], places, [None])
        for place in {0, width // 2, width - 1}:
            text = "0" * place + "1" + "0" * (width - 1 - place)
            filled = packing.empty(count, width)
            filled.put(place, 1, np.ones(1, np.int64), np.array([3]))
            blank = "0" * width
            texts = [blank] * 3 + [text] + [blank] * (count - 4)
            assert filled.to_bytes() == packed(texts)
            read = packing.parse(filled.to_bytes(), count, width)
            assert read.get(place, 1).tolist() == [0, 0, 0, 1] + [0] * (count - 4)


@given(st.data())
def test_rows_and_fields_in_any_order(data):
    width, count = data.draw(st.integers(1, 90)), data.draw(st.integers(0, 40))
    rng = data.draw(st.randoms(use_true_random=False))
    texts, fields = some_texts(count, width, rng), split(width, rng)
    order = data.draw(st.permutations(range(len(fields))))
    as_bits = data.draw(st.lists(st.booleans(), min_size=len(fields), max_size=len(fields)))
    shuffled = rng.sample(range(count), count)
    cuts = sorted(rng.randrange(count + 1) for _ in range(data.draw(st.integers(0, 3))))
    pairs = zip([0, *cuts], [*cuts, count], strict=True)
    rows = [np.array(shuffled[start:end], np.int64) for start, end in pairs]
    check(texts, width, fields, as_bits, order, rows)


@given(st.integers(1, 90), st.integers(0, 300), st.randoms(use_true_random=False))
def test_any_bytes_are_the_records_of_their_bits(width, count, rng):
    """Also with bits after the last record, which are ignored."""
    data = rng.randbytes(packing.length(count, width))
    text = "".join(f"{octet:08b}" for octet in data)
    texts = [text[row * width : (row + 1) * width] for row in range(count)]
    read = packing.parse(memoryview(data), count, width)
    for first, size in split(width, rng):
        assert read.get(first, size).tolist() == numbers_of(texts, first, size)
    assert read.to_bytes() == packed(texts)


@pytest.mark.parametrize("width", [9, 40, 70])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int32, np.int64, np.uint64])
def test_any_kind_of_integers_can_be_put(width, kind):
    filled = packing.empty(3, width)
    filled.put(1, 7, np.array([127, 0, 5], kind))
    assert filled.get(1, 7).tolist() == [127, 0, 5]
    assert filled.get(0, 1).tolist() == filled.get(8, 1).tolist() == [0, 0, 0]


@pytest.mark.parametrize("width", [1, 8, 9, 16, 33, 64, 65])
def test_what_is_put_in_stays_as_it_was(width):
    numbers = np.ones(4, np.uint16 if width <= 16 else np.uint32 if width <= 32 else np.uint64)
    packing.empty(4, width).put(0, 1, numbers)
    assert numbers.tolist() == [1, 1, 1, 1]


def test_length():
    assert [packing.length(n, 9) for n in (0, 1, 7, 8, 9)] == [0, 2, 8, 9, 11]
    assert packing.length(2**32 - 1, 1 << 27) == (2**32 - 1) << 24


@pytest.mark.parametrize("width", [1, 5, 8, 16, 17, 32, 63, 64, 65, 94, 128, 1001])
def test_records_are_split_into_bytes_of_their_own_and_joined_again(width):
    texts = some_texts(61, width, random.Random(width))
    pieces = [packed([text]) for text in texts]
    read = packing.parse(packed(texts), len(texts), width)
    assert read.split() == pieces
    joined = packing.join(pieces, width)
    assert joined.to_bytes() == packed(texts)
    assert joined.split() == pieces
    assert packing.join([], width).to_bytes() == b""
    assert packing.parse(b"", 0, width).split() == []
