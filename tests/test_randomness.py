"""The keystream and what is drawn from it. Statistical checks alarm by chance once in a million."""

import copy
import ctypes
import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from importlib.metadata import version

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from laws import Scripted
from scipy import stats

import fedldp
from fedldp import Plan, Schema, Source, randomness, source
from fedldp.errors import DomainError
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

PLAN = Plan(Schema.of(speed=(0, 130)), 1.0, Sample(mechanism="duchi"))
STUDY = Plan(Schema.of(speed=(0, 130)), 1.0, Sample(mechanism="laplace", study=True))

# Fixed for ever: a study must give the same numbers on every machine and with every version.
# They are what `openssl enc -aes-256-ctr` gives under the key SHA-256("fedldp source 1: 0").
GOLDEN = {
    0: [0xF44522A444C221BE, 0xB004BA35D46846F4, 0x92C3472837443584],
    2**70: [0x69FB7BB455CA7E35, 0x877C1CBD1D98132C, 0x9746755F771107FA],
}


GOLDEN_SPAWNED = "0x68eaed538ca21ab6"


def chi_square_p(observed, expected):
    observed, expected = np.asarray(observed), np.asarray(expected)
    statistic = np.sum((observed - expected) ** 2 / expected)
    return stats.chi2.sf(statistic, observed.size - 1)


def test_golden_words():
    for seed, words in GOLDEN.items():
        assert [int(w) for w in source(seed).words(3)] == words


def test_is_the_plain_aes_keystream_in_little_endian():
    key = bytes(range(32))
    expected = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(1 << 20))
    words = Source(key, "test").words(1 << 17)
    assert words.astype("<u8").tobytes() == expected


def test_the_stream_is_one_sequence_of_bytes():
    whole = source(5).words(1000).tobytes()
    stream = source(5)
    pieces = [
        stream.words((3, 4), np.uint32),
        stream.words(5, np.uint8),
        stream.words(0),
        stream.words(3, np.uint8),
        stream.words(122, np.uint64),
        stream.words(4000, np.uint16)[:3492],
    ]
    assert b"".join(p.tobytes() for p in pieces)[:8000] == whole


def test_seeds_differ_and_repeat():
    assert np.array_equal(source(1).words(4), source(np.int64(1)).words(4))
    seen = {source(seed).words(1)[0] for seed in (None, None, 0, 1, -1, 2**80)}
    assert len(seen) == 6


@pytest.mark.parametrize("seed", ["1", 1.0, b"1", [1]])
def test_refuses_a_seed_that_is_not_an_integer(seed):
    with pytest.raises(DomainError, match="seed must be a whole number"):
        source(seed)


def test_whole_numbers_of_any_kind_and_nothing_else():
    for n in (np.int32(6), np.uint8(6), np.uint32(6)):
        assert source(3).below(n, 4).tolist() == source(3).below(6, 4).tolist()
    assert source(3).choose(np.uint8(2), np.int16(5), 3).shape == (3, 2)
    assert source(10**5000).words(1).size == 1
    for call in (
        lambda s: s.below(6.5, 1),
        lambda s: s.below("6", 1),
        lambda s: s.choose(2.0, 5, 1),
        lambda s: s.spawn(1.0),
    ):
        with pytest.raises(DomainError, match="must be a whole number"):
            call(source(1))


@pytest.mark.parametrize(
    "out", [np.zeros(4), np.zeros(4, ">u4"), np.zeros((4, 4), np.uint8)[:, :2], np.zeros(3, int)]
)
def test_fill_refuses_what_it_cannot_fill(out):
    with pytest.raises(DomainError, match="C-contiguous array of native unsigned"):
        source(1).fill(out)


def test_uniform():
    u = source(2).uniform((100, 1000))
    assert u.shape == (100, 1000)
    assert u.min() > 0
    assert u.max() < 1
    assert np.all(u * 2**53 % 2 == 1)
    observed = np.histogram(u, 64, (0, 1))[0]
    assert chi_square_p(observed, np.full(64, u.size / 64)) > 1e-6


@pytest.mark.parametrize("n", [1, 2, 3, 7, 94, 2**32 - 1, 2**32, 2**32 + 1, 3 * 2**61, 2**63])
def test_below_is_in_range_and_uniform(n):
    values = source(3).below(n, 60_000)
    assert values.dtype == np.int64
    assert values.min() >= 0
    assert int(values.max()) < n
    bins = n if n < 100 else 64
    observed = np.bincount((values.astype(object) * bins // n).astype(int), minlength=bins)
    if bins > 1:
        assert chi_square_p(observed, np.full(bins, values.size / bins)) > 1e-6


def test_below_rejects_exactly_the_words_that_would_bias_it():
    limit = 2**32 // 6 * 6
    script = Scripted([limit, 5, limit - 1, 2**32 - 1, limit + 2, 4])
    # Three words for three values; the first is refused and redrawn until it is accepted.
    assert list(script.below(6, 3)) == [4, 5, 5]
    assert script.script == []


@pytest.mark.parametrize(
    "p", [0, 1, Fraction(1, 3), Fraction(10**30, 3 * 10**30 + 1), 0.1, np.float32(0.25)]
)
def test_bernoulli_frequency(p):
    hits = source(4).bernoulli(p, (100, 2000))
    assert hits.dtype == np.bool_
    spread = np.sqrt(float(p) * (1 - float(p)) / hits.size)
    assert abs(hits.mean() - float(p)) <= 4.9 * spread


def test_bernoulli_is_exact_beyond_64_bits():
    third = 2**64 // 3  # 1/3 is this many 2^-64, and a third of one more
    script = Scripted([third - 1, third, third + 1, third - 5])
    assert list(script.bernoulli(Fraction(1, 3), 3)) == [True, True, False]
    assert script.script == []
    script = Scripted([third, third, third + 1])
    assert list(script.bernoulli(Fraction(1, 3), 1)) == [False]
    assert list(Scripted([2**63]).bernoulli(Fraction(1, 2), 1)) == [False]


@pytest.mark.parametrize(
    "p", [-0.1, 1.0001, float("nan"), float("inf"), Fraction(4, 3), "0.5", None, 10**400]
)
def test_bernoulli_refuses_an_invalid_probability(p):
    with pytest.raises(DomainError, match="p must be a probability"):
        source(1).bernoulli(p, 1)


@pytest.mark.parametrize(("k", "d"), [(1, 1), (1, 7), (2, 6), (3, 6), (5, 6), (4, 4)])
def test_choose_gives_every_set_equally_often(k, d):
    rows = source(6).choose(k, d, 40_000)
    assert rows.shape == (40_000, k)
    sets = list(itertools.combinations(range(d), k))
    index = {s: i for i, s in enumerate(sets)}
    observed = np.bincount([index[tuple(r)] for r in rows.tolist()], minlength=len(sets))
    if len(sets) > 1:
        assert chi_square_p(observed, np.full(len(sets), len(rows) / len(sets))) > 1e-6


@pytest.mark.parametrize(("k", "d"), [(64, 64), (64, 100), (300, 4000)])
def test_choose_gives_the_same_with_marks_as_with_comparisons(k, d, monkeypatch):
    with_marks = source(3).choose(k, d, 50)
    monkeypatch.setattr(randomness, "_MOST_MARK_BYTES", 0)
    np.testing.assert_array_equal(with_marks, source(3).choose(k, d, 50))
    assert (np.diff(with_marks, axis=1) > 0).all()


@pytest.mark.parametrize(("k", "d"), [(0, 3), (4, 3), (1, 2**31)])
def test_choose_refuses_the_impossible(k, d):
    with pytest.raises(DomainError, match="need 1 <= k <= d"):
        source(1).choose(k, d, 1)


@pytest.mark.parametrize("n", [0, -1, 2**63 + 1])
def test_below_refuses_an_empty_or_too_large_range(n):
    with pytest.raises(DomainError, match="n must be an integer from 1"):
        source(1).below(n, 1)


def test_spawned_streams_differ_and_do_not_depend_on_what_was_drawn():
    parent, other = source(8), source(8)
    other.words(100)
    first = [s.words(4).tolist() for s in parent.spawn(3)]
    assert first == [s.words(4).tolist() for s in other.spawn(3)]
    later = [s.words(4).tolist() for _ in range(2) for s in parent.spawn(np.uint8(2))]
    unique = {tuple(w) for w in [*first, *later, source(8).words(4).tolist()]}
    assert len(unique) == 8
    assert hex(source(8).spawn(2)[1].words(1)[0]) == GOLDEN_SPAWNED
    with pytest.raises(DomainError, match="must not be negative"):
        parent.spawn(-1)


def test_threads_that_spawn_get_streams_of_their_own():
    parent = source(8)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: parent.spawn(50), range(40)))
    assert len({str(s) for part in parts for s in part}) == 2000


@pytest.mark.parametrize("seed", [None, 9])
def test_a_forked_child_never_repeats_its_parent(seed):
    stream = source(seed)
    stream.words(3)
    spawned = stream.spawn(1)[0]
    seen = []
    for _ in range(2):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, stream.words(4).tobytes() + spawned.words(4).tobytes())
            os._exit(0)
        os.waitpid(child, 0)
        seen.append(os.read(read, 64))
        os.close(read)
        os.close(write)
    seen.append(stream.words(4).tobytes() + spawned.words(4).tobytes())
    words = [s[i : i + 8] for s in seen for i in range(0, 64, 8)]
    assert len(set(words)) == 24
    # The parent's own stream is not disturbed.
    if seed is not None:
        assert words[16] == source(seed).words(7)[3:4].tobytes()


def test_fork_while_another_thread_draws():
    stream, stop = source(), threading.Event()

    def draw():
        out = np.empty(1 << 16, np.uint64)
        while not stop.is_set():
            stream.fill(out)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                stream.words(1)  # would wait for ever for a lock that died with its thread
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_threads_share_one_stream_without_loss_or_repetition():
    stream = source(10)
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: stream.words(50_000).tobytes(), range(40)))
    expected = source(10).words(2_000_000).tobytes()
    # Each request is served whole, so the parts are the stream's blocks in some order.
    blocks = {expected[i : i + 400_000] for i in range(0, len(expected), 400_000)}
    assert set(parts) == blocks


def test_a_fork_that_python_does_not_notice():
    """Forked from C no hook runs: the process id reveals it."""
    stream = source(9)
    read, write = os.pipe()
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        os.write(write, stream.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 64) != stream.words(4).tobytes()
    os.close(read)
    os.close(write)


@pytest.mark.skipif(
    int(version("cryptography").partition(".")[0]) < 50,
    reason="before version 50 a handler that interrupts a draw gets an error, and no word",
)
def test_a_signal_handler_may_draw():
    stream, drawn = source(9), []
    before = signal.signal(signal.SIGALRM, lambda *_: drawn.append(stream.words(1)))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(drawn) < 5:
            stream.words(1 << 20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("attempt", [pickle.dumps, copy.copy, copy.deepcopy])
def test_cannot_be_pickled_or_copied(attempt):
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        attempt(source(1))


def test_repr_says_what_it_is_for_and_not_the_key():
    assert repr(source(11)) == "<Source from seed 11: reproducible, for study only>"
    assert repr(source()) == "<Source keyed by the operating system>"


@pytest.mark.parametrize("drawn", [0, 3, 16, 100])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 1 << 20])
def test_skip_is_drawing_without_looking(drawn, count):
    skipping, drawing = source(5), source(5)
    for each in (skipping, drawing):
        each.words(drawn, np.uint8)
    skipping.skip(count)
    drawing.words(count, np.uint8)
    assert skipping.position == drawing.position == drawn + count
    np.testing.assert_array_equal(skipping.words(50), drawing.words(50))


def test_skip_far_ahead_and_refuse_to_go_back():
    stream = source(5)
    stream.skip(1 << 70)
    assert stream.words(1).size == 1
    with pytest.raises(DomainError, match="must not be negative"):
        stream.skip(-1)


# Generators of NumPy: for study, never for release


@pytest.mark.parametrize(
    "draw",
    [
        lambda random: fedldp.mechanism("hm-tp", 1.0).perturb([0.3, -0.7], random),
        lambda random: PLAN.simulate({"speed": [30.0] * 100}, random).counts[0],
        lambda random: STUDY.simulate({"speed": [30.0] * 100}, random).counts[0],
        lambda random: PLAN.simulate_batches([Matrix(np.full((8, 1), 3.0))], random).counts[0],
    ],
)
def test_a_generator_of_numpy_is_taken_by_simulations(draw):
    first, same = draw(np.random.default_rng(1)), draw(np.random.default_rng(1))
    np.testing.assert_array_equal(first, same)
    random = np.random.default_rng(1)
    assert not np.array_equal(draw(random), draw(random))


@pytest.mark.parametrize(
    "release",
    [
        lambda random: PLAN.report({"speed": [30.0]}, random),
        lambda random: PLAN.report_batches([Matrix(np.full((8, 1), 3.0))], random),
        lambda random: fedldp.mechanism("hm-tp", 1.0).channel().encode([0.3], random),
        lambda random: fedldp.coders.RandomizedResponse.of(1.0, 4).encode([3], random),
    ],
)
def test_a_generator_of_numpy_is_refused_by_everything_that_is_sent(release):
    with pytest.raises(DomainError, match=r"must be a Source: pass fedldp.source\(\); got Gener"):
        release(np.random.default_rng(1))


@pytest.mark.parametrize(
    "call",
    [
        lambda: PLAN.report({"speed": [30.0]}),
        lambda: PLAN.simulate({"speed": [30.0]}),
        lambda: fedldp.mechanism("hm-tp", 1.0).perturb(0.3),
    ],
)
def test_a_missing_source_is_named(call):
    with pytest.raises(DomainError, match=r"a Source and is missing: pass fedldp.source\(\)"):
        call()


def test_a_few_secret_words_need_no_package():
    code = (
        "import sys; from fedldp.randomness import source; few = source()\n"
        "few.words(1 << 13); assert 'cryptography' not in sys.modules, 'few'\n"
        "assert few.words(1).size and 'cryptography' in sys.modules, 'many'\n"
        "assert few.position == (1 << 16) + 8\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
