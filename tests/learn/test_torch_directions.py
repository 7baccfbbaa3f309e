"""Directions that torch ranks: the codes and the counters of NumPy, on every device there is."""

import os
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from plans import directions_of
from torch import nn
from torch.nn.functional import cross_entropy

import fedldp
from fedldp import vehicle
from fedldp._internal.vectors import DenseRows
from fedldp.coders import DirectionsCoder
from fedldp.coders.codebook import drawn_together
from fedldp.errors import DomainError
from fedldp.learn import torch as networks
from fedldp.learn import torch_directions
from fedldp.learn.examples import VehicleRows
from fedldp.learn.optimizer import Adam
from fedldp.learn.settings import Settings
from fedldp.learn.torch import ModuleTask
from fedldp.learn.torch_directions import TorchRows

pytestmark = pytest.mark.torch

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CODERS = {
    "one number": DirectionsCoder.of(2.0, 1, mean_length=0.3),
    "63, null input": DirectionsCoder.of(1.0, 20, mean_length=0.1),
    "63": DirectionsCoder.of(4.0, 33, null=False),
    "255": DirectionsCoder.of(8.0, 9, directions=255),
    "3, a key of 64 bits": directions_of(3.0, 5, directions=3, best=1, null=True),
    "7": directions_of(0.7, 40, directions=7, best=2, null=False),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


def vectors(n, d, seed):
    """Return vectors of all lengths up to 1; some are zero, some have a single number."""
    source = fedldp.source(seed)
    x = source.uniform((n, d)) - 0.5
    x[: n // 3] *= source.uniform((n // 3, d)) < 0.2
    lengths = np.sqrt((x**2).sum(axis=1))
    return x * (source.uniform(n) / np.where(lengths > 0, lengths, 1.0))[:, None]


def there(matrix, device):
    return TorchRows(torch.from_numpy(matrix).to(device))


@pytest.mark.parametrize("few", [False, True], ids=["one block", "several blocks"])
@pytest.mark.parametrize("name", CODERS)
def test_codes_and_counters_are_those_of_numpy(name, few, device, monkeypatch):
    coder = CODERS[name]
    together = drawn_together(coder.directions)
    x = vectors(2 * together + 37, coder.d, 1)
    if few:
        monkeypatch.setattr(torch_directions, "_WORDS", 1)
    rows, here, elsewhere = there(x, device), fedldp.source(2), fedldp.source(2)
    codes = coder.encode(x, here)
    np.testing.assert_array_equal(coder.encode(rows, elsewhere), codes)
    assert here.position == elsewhere.position
    cells = np.zeros((2, coder.cells + 3), np.int64)
    coder.count(codes, 3, cells[0])
    nearby = coder.nearby(rows)
    assert nearby == coder
    nearby.count(codes, 3, cells[1])
    np.testing.assert_array_equal(*cells)
    several = np.zeros((2, 3 * coder.cells), np.int64)
    places = fedldp.source(9).below(3, len(codes)) * coder.cells
    for each, counted in zip((coder, nearby), several, strict=True):
        each.count_at(codes, places, counted)
    np.testing.assert_array_equal(*several)
    np.testing.assert_array_equal(several[0].reshape(3, -1).sum(axis=0), cells[0, 3:])


def test_a_key_may_have_its_highest_bit_set():
    assert any(coder.key >> 63 for coder in CODERS.values())
    assert any(not coder.key >> 63 for coder in CODERS.values())


@pytest.mark.parametrize("sign", [1, -1])
def test_every_rank_is_that_of_a_vehicle(sign, device):
    coder = CODERS["63"]
    x = there(vectors(4, coder.d, 3), device).rounded(vehicle.LENGTH)
    book = x.nearby(coder.codebook)
    for seed in (0, 1, (1 << coder.seed_bits) - 1):
        for place in range(len(x)):
            whole = [int(each) for each in x.matrix[place]]
            products = vehicle.products(whole, coder.directions, coder.key, seed)
            order = sorted(range(coder.directions), key=lambda j: -sign * products[j])
            everyone = np.arange(coder.directions)
            same = np.full(coder.directions, place)
            found = book.ranked(
                TorchRows(x.matrix[same]),
                np.full_like(same, seed),
                np.full_like(same, sign),
                everyone,
            )
            assert found.tolist() == order


def test_of_equal_products_the_lower_number_comes_first(device):
    book = there(np.zeros((1, 33)), device).nearby(CODERS["63"].codebook)
    ranks = np.arange(63)
    nothing = there(np.zeros((63, 33)), device)
    for sign in (1, -1):
        found = book.ranked(nothing, ranks, np.full(63, sign), ranks)
        np.testing.assert_array_equal(found, ranks)


def test_sums_are_exact_where_floats_of_32_bits_are_not(device):
    """Two vectors that differ in the last bit of one number are ranked as NumPy ranks them."""
    coder = DirectionsCoder.of(4.0, 600, null=False)
    matrix = np.full((2, 600), float(vehicle.LENGTH // 25))
    matrix[1, -1] += 1
    rows = there(matrix, device)
    book, seeds, ones = rows.nearby(coder.codebook), np.array([5, 5]), np.ones(2, np.int64)
    for rank in range(coder.directions):
        expected = coder.codebook.ranked(DenseRows(matrix).rounded(1), seeds, ones, ones * rank)
        np.testing.assert_array_equal(book.ranked(rows, seeds, ones, ones * rank), expected)


KERNEL = """
import torch
from fedldp.learn import torch_directions, torch_kernel
table = torch_directions._table(torch.device("cpu"))
for n, d, words in ((5, 1, 1), (130, 7, 2), (37, 20, 16), (3, 9, 64)):
    numbers = torch.randint(-(2**20), 2**20 + 1, (n, d), dtype=torch.int32)
    given = table, numbers, torch.randint(-(2**63), 2**63 - 1, (n,)), words
    expected = torch_directions._products(*given)
    assert torch.equal(torch_kernel.products(*given), expected), (n, d, words)

import numpy as np
from fedldp.coders.codebook import NumpyCodebook
rng = np.random.default_rng(1)
for n, d, directions in ((0, 2, 3), (1, 1, 3), (65, 130, 63)):
    book = NumpyCodebook(d, directions, key=5)
    seeds, numbers = rng.integers(0, 1 << 22, n), rng.integers(0, directions, n)
    there = torch_directions.TorchCodebook(d, directions, 5, torch.device("cpu"))
    states, words = there._states(seeds), (directions + 1) // 4
    found = torch_kernel.totals(table, states, torch.from_numpy(numbers), d, words)
    assert np.array_equal(found.numpy(), book.totals([(seeds, numbers)])[0]), (n, d, directions)
"""


@pytest.mark.skipif("cuda" in DEVICES, reason="the tests above use the kernel on the GPU")
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed: no kernels")
def test_the_kernel_computes_what_torch_computes():
    """By Triton's interpreter, which needs no GPU."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-c", KERNEL], env=environment, check=True)


def test_rows_are_clipped_as_in_memory(device):
    matrix = vectors(50, 6, 4) * 3
    matrix[3, 2], matrix[4, 1], matrix[5, 0], matrix[6] = np.nan, np.inf, -np.inf, 1e200
    here = DenseRows(matrix).shortened(0.7, 0.25)
    found = there(matrix, device).shortened(0.7, 0.25)
    exact = device == "cpu"
    np.testing.assert_allclose(found.matrix.cpu(), here.matrix, rtol=0.0 if exact else 1e-14)
    np.testing.assert_allclose(found.lengths, here.lengths, rtol=1e-14)
    np.testing.assert_allclose(found.sums(2, 6), here.sums(2, 6), atol=1e-13)
    assert found.fits(6)
    assert not found.fits(5)
    assert len(found[10:17]) == 7


def test_rows_that_do_not_fit_are_refused(device):
    coder = CODERS["63"]
    with pytest.raises(DomainError, match="rows of 33 numbers"):
        coder.encode(there(np.zeros((3, 32)), device), fedldp.source(1))
    with pytest.raises(DomainError, match="row 1 has"):
        coder.encode(there(np.array([[0.0] * 33, [1.0] * 33]), device), fedldp.source(1))


# Networks


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv1d(2, 4, 5, stride=2), nn.SiLU(), nn.Flatten(), nn.Linear(24, 3)
        )


def task_of(n, dtype=torch.float32, device="cpu", vehicle_rows=None):
    source = fedldp.source(5)
    inputs, targets = source.uniform((n, 2, 16)) * 2 - 1, source.below(3, n)
    return ModuleTask(network().to(device, dtype), cross_entropy, inputs, targets, vehicle_rows)


@pytest.fixture
def ranked_by_torch(monkeypatch):
    """Rank by torch even if gradients are in memory, as it is done on other devices."""

    def use():
        monkeypatch.setattr(networks, "DenseRows", lambda array: there(array, "cpu"))

    return use


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("several", [False, True], ids=["one row", "several rows"])
def test_a_training_is_the_same_wherever_directions_are_ranked(replicas, several, ranked_by_torch):
    owners = VehicleRows(fedldp.source(6).below(300, 700)) if several else None
    task = task_of(700, vehicle_rows=owners)
    settings = Settings(epsilon=4.0, optimizer=Adam(0.1), group=130)
    models = []
    for prepare in (lambda: None, ranked_by_torch):
        prepare()
        training = settings.training(
            task, 1.0, fedldp.source(7), start=task.start, replicas=replicas
        )
        for _ in training:
            pass
        models.append(training.models)
    assert len(models[0]) == replicas
    np.testing.assert_array_equal(*models)


def test_without_privacy_gradients_are_averaged_on_the_device(ranked_by_torch):
    task = task_of(700)
    settings = Settings(epsilon=None, optimizer=Adam(0.1), group=130)
    (part,) = settings.plan(task.dimensions).parts
    batch = task.gradients(np.stack([task.start, task.start + 0.1]), slice(None))

    def added():
        cells = np.zeros((2, part.starts[-1]))
        part.simulate(batch, fedldp.source(1), cells)
        return cells

    here = added()
    ranked_by_torch()
    np.testing.assert_allclose(added(), here, atol=1e-11)
    assert part.mean_length(here).min() > 0


def test_nearly_all_codes_are_the_same_from_gradients_that_were_rounded_otherwise(device):
    """Gradients of 32 and of 64 bits differ by 1e-7, as those of a CPU and a GPU do."""
    n = 6000
    plan = Settings(epsilon=4.0).plan(task_of(1).dimensions)
    (coder,) = plan.parts[0].coders
    columns, codes = np.arange(coder.d), []
    for dtype, where in ((torch.float32, device), (torch.float64, "cpu")):
        task = task_of(n, dtype, where)
        rows = task.gradients(task.start[None], slice(None)).vectors(columns)
        codes.append(coder.encode(rows.shortened(1.0, 0.0), fedldp.source(8)))
    assert (codes[0] == codes[1]).mean() >= 0.999


def test_blocks_of_another_device_are_large(monkeypatch):
    task = task_of(1200)
    blocks = [len(block) for block in task.gradient_blocks(task.start[None], np.arange(1200))]
    assert blocks == [512, 512, 176]
    assert task.at_once == 1 << 14
    monkeypatch.setattr(ModuleTask, "device", torch.device("meta"))
    (block,) = task.gradient_blocks(task.start[None], np.arange(1200))
    assert len(block) == 1200
    assert task.at_once == 1 << 17


class Watched(nn.Module):
    """A layer that notes whether TF32 is allowed when it is called."""

    def __init__(self, fails=False):
        super().__init__()
        self.layer, self.seen, self.fails = nn.Linear(2, 2), [], fails

    def __deepcopy__(self, memo):
        return self

    def forward(self, x):
        self.seen.append([each.allow_tf32 for each in places()])
        if self.fails:
            raise ZeroDivisionError
        return self.layer(x)


def places():
    return torch.backends.cuda.matmul, torch.backends.cudnn


@pytest.fixture
def settings_of_torch():
    before = [each.allow_tf32 for each in places()]
    yield places()
    for each, allowed in zip(places(), before, strict=True):
        each.allow_tf32 = allowed


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
def test_gradients_have_all_bits_and_settings_stay(fails, allowed, settings_of_torch):
    for each in settings_of_torch:
        each.allow_tf32 = allowed
    module = Watched(fails)
    task = ModuleTask(module, cross_entropy, np.ones((3, 2), np.float32), np.array([0, 1, 1]))
    batch = task.gradients(task.start[None], slice(None))
    if fails:
        with pytest.raises(ZeroDivisionError):
            batch.all(np.arange(6))
    else:
        batch.all(np.arange(6))
    assert module.seen
    assert all(seen == [False, False] for seen in module.seen)
    assert [each.allow_tf32 for each in places()] == [allowed, allowed]
