"""One attribute within the groups of another, and numbers that some vehicles do not have."""

import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

import fedldp
from fedldp import Category, Number, OptionalNumber, Plan, Schema, Tally, Within, vehicle
from fedldp.cli.app import fedldp as command
from fedldp.coders import Lines, RandomizedResponse, UnaryEncoding
from fedldp.datasets.files import from_file
from fedldp.errors import DataWarning, DomainError, UnknownName, WireError
from fedldp.learn.features import Features
from fedldp.plan.parts import Part, round_at_random
from fedldp.plan.strategies import Offered, Sample
from fedldp.schema.attributes.grouped import Differences

MODEL = Category("model", ["Alpha", "Beta", "Gamma", "other"])
SPEED = Number("speed", 0, 130)
FUEL = Category("fuel", ["petrol", "diesel", "none"])
BY_MODEL = Within("speed by model", SPEED, MODEL)
TABLE = Within("fuel by model", FUEL, MODEL)
OPTIONAL = OptionalNumber("speed", 0, 130)


def laws(coder):
    """Return the probability of each code given each category, for a coder with few codes."""
    if isinstance(coder, UnaryEncoding):
        return None
    if isinstance(coder, RandomizedResponse):
        return np.where(np.eye(coder.categories), coder.p, coder.q)
    found = np.empty((coder.categories, coder.directions, coder.base))
    for c, r in itertools.product(range(coder.categories), range(coder.directions)):
        product = vehicle.line_product(coder.base, coder.digits, r, c)
        found[c, r] = np.where(np.arange(coder.base) == product, coder.same, coder.other)
    return found.reshape(coder.categories, -1) / coder.total / coder.directions


def estimates(attribute, coder, frequencies, n, replicates, seed):
    """Yield estimates of n vehicles drawn from a population with frequencies of labels."""
    schema = Schema((attribute,))
    part, rng = Part(schema, (0,), (coder,), 1), np.random.default_rng(seed)
    if isinstance(coder, UnaryEncoding):
        p = coder.q + (coder.p - coder.q) * np.eye(coder.categories)
        for own in rng.multinomial(n, frequencies, replicates):
            bits = sum(rng.binomial(own[c], p[c]) for c in range(coder.categories))
            yield Tally("", (part,), n, (np.append(bits, n),)).estimate()[attribute.name]
        return
    odds = frequencies @ laws(coder)
    for counts in rng.multinomial(n, odds / odds.sum(), replicates):
        yield Tally("", (part,), n, (counts,)).estimate()[attribute.name]


SHARES = np.array([0.5, 0.3, 0.17, 0.03])
MEANS = np.array([100.0, 65.0, 20.0, 120.0])
SIGNS = np.stack([SHARES * (1 - MEANS / 130), SHARES * MEANS / 130], axis=1).reshape(-1)
CODERS = [RandomizedResponse.of(2.0, 8), Lines.of(0.7, 8, bits=5), UnaryEncoding.of(1.0, 8)]


def covered(intervals, truth):
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


@pytest.mark.parametrize("n", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("coder", CODERS, ids=lambda coder: coder.kind)
def test_intervals_of_groups_cover(coder, n):
    """Of 400 replicates; 4.5 standard deviations below 94%: by chance in 1 of 10^5 runs.

    Intervals may cover more: those that are cut at a bound of the number, or are the whole range.
    """
    found = list(estimates(BY_MODEL, coder, SIGNS, n, 400, 1))
    truth = np.append(MEANS, SHARES)
    for kind, least in (("interval", 0.886), ("simultaneous", 0.975)):
        hits = [covered(getattr(each, kind), truth) for each in found]
        assert np.all(np.mean(hits, axis=0) > least)
    known = np.array([each.shares.interval[:, 0] > 0 for each in found])
    assert known[:, 0].mean() > 0.9
    hits = np.array([covered(each.means.interval, MEANS) for each in found])
    if n > 10_000:
        assert np.all(hits[:, :3].mean(axis=0) < 0.99)
    pairs = [covered(each.difference("Alpha", "Gamma").interval, 80.0) for each in found]
    assert np.mean(pairs) > 0.886
    # Where the share is known well, the mean is nearly unbiased and has the stated error.
    values = np.array([each.values for each in found])
    errors = np.array([each.stderr for each in found])
    if n > 10_000:
        values, typical = values[:, :3], np.median(errors[:, :3], axis=0)
        assert values.std(axis=0) == pytest.approx(typical, rel=0.2)
        assert np.all(np.abs(values.mean(axis=0) - MEANS[:3]) < 0.3 * typical)


@pytest.mark.parametrize(
    "coder", [RandomizedResponse.of(2.0, 12), Lines.of(1.0, 12)], ids=lambda coder: coder.kind
)
def test_intervals_of_a_table_cover(coder):
    """As above; shares within groups, their differences, and the sums of rows and columns."""
    table = SHARES[:, None] * np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0, 0, 1.0], [1, 0, 0]])
    found = list(estimates(TABLE, coder, table.reshape(-1), 20_000, 300, 2))
    within = table / table.sum(axis=1, keepdims=True)
    assert np.all(np.mean([covered(e.within.interval, within) for e in found], axis=0) > 0.875)
    for name, axis in (("row_shares", 1), ("column_shares", 0)):
        hits = [covered(getattr(each, name).interval, table.sum(axis=axis)) for each in found]
        coverage = np.mean(hits, axis=0)
        assert np.all((coverage > 0.885) & (coverage < 0.997))
    hits = [covered(e.difference("Alpha", "Beta").interval, within[0] - within[1]) for e in found]
    assert np.all(np.mean(hits, axis=0) > 0.875)
    hits = [covered(each.interval, table.reshape(-1)) for each in found]
    assert np.all(np.mean(hits, axis=0) > 0.875)


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.7, 3.0])
def test_intervals_of_an_optional_number_cover(share, epsilon):
    plus = share * 100 / 130
    frequencies = np.array([share - plus, plus, 1 - share])
    coder = RandomizedResponse.of(epsilon, 3)
    found = list(estimates(OPTIONAL, coder, frequencies, 5_000, 300, 3))
    hits = [covered(each.interval, np.array([100.0, share])) for each in found]
    assert np.all(np.mean(hits, axis=0) > 0.875)


def test_the_spread_of_group_sums_grows_like_the_number_of_groups():
    """Var(T_g), summed over the groups and divided by their number, hardly grows."""
    each = []
    for groups in (10, 100, 1000):
        coder = fedldp.coders.lines.compact(1.0, 2 * groups)
        frequencies, first = np.full(2 * groups, 0.5 / groups), 2 * np.arange(groups)
        variance = sum(
            sign * coder.covariance(frequencies, first + a, first + b)
            for a, b, sign in ((0, 0, 1), (1, 1, 1), (0, 1, -2))
        )
        each.append(variance.sum() / groups)
    assert each[2] < 1.3 * each[0]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0])
def test_the_plan_chooses_the_grid_with_the_least_error(epsilon):
    """Less than that of two questions, whether there is a value and which, half of all answer each.

    From the variances of the coders, for uniform numbers that three in four vehicles have.
    """
    coders, share = Offered("dominant"), 0.75
    chosen = OPTIONAL.resolve(epsilon, coders)
    coder = coders.compact(epsilon, chosen.grid + 1)
    values, places = np.linspace(-1, 1, chosen.grid), np.arange(chosen.grid)
    inner = np.append(0.5, np.ones(chosen.grid - 2)) if chosen.grid > 2 else np.array([0.5])
    frequencies = np.append(share * np.append(inner, 0.5) / (chosen.grid - 1), 1 - share)
    cov = coder.covariance(frequencies, places[:, None], places)
    error = values @ cov @ values + cov.sum() / 3
    for grid in (2, 3, 5, 9, 17):
        assert error < 1.001 * fedldp.schema.attributes.optional._error(grid, 1, epsilon, coders)
    noise, _, square = coders.for_numbers(epsilon).assumed("uniform", 1.0)
    presence = RandomizedResponse.of(epsilon, 2).variance / 2 + share * (1 - share)
    assert error < 2 * (noise + share * square) + 2 * presence / 3


def test_a_plan_writes_the_grid_that_it_chose():
    schema = Schema((OPTIONAL, Within("x", OPTIONAL, MODEL)))
    plan = Plan(schema, 8.0, Sample(k=1))
    assert plan.schema["speed"].grid == 17
    assert plan.schema["x"].of.grid > 2
    assert Plan.from_json(plan.to_json()).schema == plan.schema
    fixed = Plan(Schema((OptionalNumber("speed", 0, 130, grid=4),)), 8.0)
    assert fixed.schema["speed"].labels == ("0", "43.3333", "86.6667", "130", "missing")
    open_part = Part(Schema((OPTIONAL,)), (0,), (RandomizedResponse.of(1.0, 3),), 1)
    with pytest.raises(DomainError, match="'speed' needs a grid: pass grid=, or let Plan choose"):
        Plan.from_parts(open_part.schema, 1.0, [open_part])
    text = Plan(Schema((OPTIONAL,)), 1.0).to_json()
    with pytest.raises(WireError, match="needs a grid"):
        Plan.from_json(text.replace('"grid":2,', ""))
    for grid in (1, 256, 2.5):
        with pytest.raises(DomainError, match="grid of 'speed' must be"):
            OptionalNumber("speed", 0, 130, grid=grid)


# From rows to estimates

ROWS = {
    "speed": [26.0, 104.0, None, 200.0] * 5_000,
    "model": ["Alpha", "Beta", "Alpha", "Delta"] * 5_000,
    "fuel": ["none", "petrol", "none", None] * 5_000,
}


def test_means_within_groups_from_rows_to_estimates():
    """Within five standard errors: by chance in fewer than 1 of 10^5 runs."""
    plan = Plan(Schema((BY_MODEL, TABLE)), 6.0)
    assert json.loads(plan.to_json())["format"] == "fedldp plan 2"
    assert Plan.from_json(plan.to_json()) == plan
    with pytest.warns(DataWarning) as caught:
        packet = plan.report(ROWS, fedldp.source(1)).to_bytes()
    message = str(caught[0].message)
    assert "speed by model: speed: 5,000 of 20,000 (25%) clipped to [0, 130]; 5,000" in message
    assert "speed by model: model: 5,000 of 20,000 (25%) unknown, replaced by 'other'" in message
    estimate = plan.parse(packet).estimate()
    found = estimate["speed by model"]
    means, shares = [45.5, 104.0, 130.0], [0.5, 0.25, 0, 0.25]
    assert found.groups == MODEL.labels
    assert np.all(np.abs(found.means.mean[[0, 1, 3]] - means) <= 5 * found.means.stderr[[0, 1, 3]])
    assert np.all(np.abs(found.shares.frequencies - shares) < 5 * found.shares.stderr)
    assert found.few == ("Gamma",)
    assert found["Gamma"].interval.tolist() == [0.0, 130.0]
    assert repr(found).endswith("too few answers: Gamma>")
    nothing = plan.tally().estimate()["speed by model"]
    assert nothing.few == MODEL.labels
    assert np.isnan(nothing["Alpha"].mean)
    assert nothing["Alpha"].interval.tolist() == [0.0, 130.0]
    assert nothing.difference("Alpha", "Beta").interval.tolist() == [-130.0, 130.0]
    assert found["Alpha"].answers == found.answers
    with pytest.raises(UnknownName, match="there is no group 'Delta'; choose from Alpha"):
        found["Delta"]
    table = estimate["fuel by model"]
    wanted = np.zeros((4, 3))
    wanted[0, 2], wanted[1, 0], wanted[3, 0] = 0.5, 0.25, 0.25  # the first label if missing
    assert np.all(np.abs(table.values - wanted.reshape(-1)) < 5 * table.stderr)
    assert table.labels[:2] == ("Alpha, petrol", "Alpha, diesel")
    assert table.within.mean[0].round(1).tolist() == [0, 0, 1]
    lines = estimate.to_frame()
    assert len(lines) == 8 + 12
    assert lines.label[:5].tolist() == [*MODEL.labels, "share of Alpha"]


def test_the_commands_take_groups_and_optional_numbers(tmp_path, capfd):
    """From a file to estimates beside the truth, and the difference of two collections."""

    def run(*arguments):
        done = CliRunner().invoke(command, [str(each) for each in arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    columns, data, plan = (tmp_path / name for name in ("fleet.toml", "fleet.csv", "plan.json"))
    columns.write_text(
        'speed = {low = 0, high = 130, optional = true}\n["by model"]\n'
        'of = {name = "speed", low = 0, high = 130}\n'
        'groups = {name = "model", categories = ["A", "B"]}\n'
    )
    data.write_text("speed,model\n" + "26,A\n104,B\n,A\n" * 4000)
    options = ["--schema", columns, "--epsilon", 6, "--compact"]
    lines = json.loads(run("collect", data, *options, "--seed", 1, "--json"))["estimates"]
    assert {line["name"]: line["truth"] for line in lines} == pytest.approx(
        {
            "speed": 65,
            "share with speed": 2 / 3,
            "speed where model = A": 45.5,
            "speed where model = B": 104,
            "share of model = A": 2 / 3,
            "share of model = B": 1 / 3,
        }
    )
    for line in lines:
        assert abs(line["estimate"] - line["used"]) < 5 * line["stderr"]
    assert "where" in run("collect", data, *options, "--seed", 1)
    run("plan", "--schema", columns, "--epsilon", 6, "--output", plan)
    (row := tmp_path / "row.json").write_text('{"speed": 26, "model": "A"}')
    vehicle.main([str(plan), "--cap", "6", str(row)])
    assert bytes.fromhex(capfd.readouterr().out)
    made = Plan.from_json(plan.read_text())
    for seed, speed in ((1, 26.0), (2, 78.0)):
        rows = {"speed": [speed, 104.0] * 5000, "model": ["A", "B"] * 5000}
        made.simulate(rows, fedldp.source(seed)).save(tmp_path / f"tally{seed}.json")
    tallies = tmp_path / "tally2.json", "--minus", tmp_path / "tally1.json"
    found = json.loads(run("estimate", plan, *tallies, "--json"))
    assert found["vehicles"] == 20_000
    changed = {line["name"]: line for line in found["estimates"]}
    wanted = {"speed": 26, "speed where model = A": 52, "speed where model = B": 0}
    for name, change in wanted.items():
        assert abs(changed[name]["estimate"] - change) < 5 * changed[name]["stderr"]
    assert "Differences from 20000 vehicles" in run("estimate", plan, *tallies)


def test_the_difference_of_two_collections_covers():
    """Of 300 pairs; 4.5 standard deviations below 94%: by chance in 1 of 10^5 runs."""
    coder, later = RandomizedResponse.of(2.0, 8), SIGNS.reshape(4, 2)[::-1].reshape(-1)
    spring = estimates(BY_MODEL, coder, SIGNS, 5_000, 300, 4)
    autumn = estimates(BY_MODEL, coder, later, 5_000, 300, 5)
    truth = np.append(MEANS[::-1] - MEANS, SHARES[::-1] - SHARES)
    found = [Differences.of(b, a) for a, b in zip(spring, autumn, strict=True)]
    assert np.all(np.mean([covered(each.interval, truth) for each in found], axis=0) > 0.877)
    hits = np.array([covered(each.simultaneous, truth) for each in found])
    assert hits.all(axis=1).mean() > 0.877
    with pytest.raises(DomainError, match="a difference needs the same labels in both"):
        Differences.of(
            next(estimates(TABLE, RandomizedResponse.of(2.0, 12), np.ones(12) / 12, 9, 1, 1)),
            found[0],
        )
    plan = Plan(Schema((OPTIONAL,)), 2.0)
    one, other = (plan.simulate([{}] * 99, fedldp.source(i)).estimate() for i in (1, 2))
    with pytest.raises(DomainError, match="of the same attributes and confidence"):
        fedldp.compare_estimates(one, plan.tally().estimate(confidence=0.9))
    assert fedldp.compare_estimates(one, other).reports == 198


def test_data_sets_hold_positions(tmp_path):
    schema = Schema((OptionalNumber("speed", 0, 130, grid=3), BY_MODEL, TABLE))
    path = tmp_path / "fleet.csv"
    path.write_text("speed,model,fuel\n26,Alpha,none\n,Beta,petrol\n130,other,diesel\n")
    with pytest.warns(DataWarning):
        dataset = from_file(path, schema)
    assert [column.tolist() for column in dataset.columns] == [
        pytest.approx([0.4, 3, 2]),
        pytest.approx([0.2, 2.5, 7]),
        [2, 3, 10],
    ]
    speed, by_model, _ = schema.attributes
    assert speed.estimand.typical(speed.estimand.summary(dataset.columns[0][:, None])) == "78"
    means = by_model.estimand.summary(dataset.columns[1][:, None])["estimates"][:2]
    assert means == pytest.approx([26, 65])
    with pytest.raises(DomainError, match="'speed by model' is for statistics"):
        Features(schema).encode(schema.rows({"speed": [1], "model": ["A"], "fuel": [1]}).matrix())


def test_two_collections_combine():
    plan = Plan(Schema((BY_MODEL,)), 6.0)
    with pytest.warns(DataWarning):
        both = [plan.simulate(ROWS, fedldp.source(i)).estimate() for i in (1, 2)]
    found = fedldp.combine_estimates(*both)["speed by model"]
    assert found.answers == 40_000
    assert found.stderr[0] == pytest.approx(both[0]["speed by model"].stderr[0] / 2**0.5, rel=0.05)
    assert found.difference("Beta", "Alpha").mean == pytest.approx(58.5, abs=10)


def test_an_optional_number_from_rows_to_estimates(recwarn):
    plan = Plan(Schema((OPTIONAL,)), 2.0)
    rows = [{"speed": 100}] * 70_000 + [{}] * 30_000
    report = plan.report(rows, fedldp.source(1))
    assert not recwarn.list
    found = plan.parse(report.to_bytes()).estimate()["speed"]
    assert covered(found.mean_interval, 100)
    assert covered(found.share_interval, 0.7)
    assert found.mean_interval[1] - found.mean_interval[0] < 3
    assert "100,000 reports: speed, mean 99.71" in repr(plan.parse(report).estimate())
    with pytest.warns(DataWarning, match="speed: 1 of 2 .50%. unreadable, replaced by 'missing'"):
        plan.report([{"speed": "fast"}, {"speed": None}], fedldp.source(1))


def test_optional_numbers_within_groups():
    plan = Plan(Schema((Within("x", OPTIONAL, MODEL),)), 6.0)
    rows = {"speed": [100, None, 30] * 10_000, "model": ["Alpha", "Alpha", "Beta"] * 10_000}
    found = plan.simulate(rows, fedldp.source(1)).estimate()["x"]
    assert np.all(np.abs(found.means.mean[:2] - [100, 30]) < 5 * found.means.stderr[:2])
    assert np.all(np.abs(found.shares.frequencies - [1 / 3, 1 / 3, 0, 0]) < 5 * found.shares.stderr)


# Reading, drawing, and what is refused


@pytest.mark.parametrize("attribute", [BY_MODEL, TABLE, OPTIONAL, Within("x", OPTIONAL, MODEL)])
def test_a_vehicle_reads_rows_as_the_library_does(attribute):
    plan = Plan(Schema((attribute,)), 2.0)
    small = vehicle.Plan(plan.to_json(), 2.0)
    speeds = [0, 26, "65", 999, -1, None, "", "nan", "x", True]
    for speed, model, fuel in itertools.product(speeds, ["Alpha", None, "?"], ["none", 1]):
        row = {"speed": speed, "model": model, "fuel": fuel}
        assert small.inputs(row) == plan.schema.rows([row]).matrix().tolist()[0]
        quality = plan.schema.check([row])
        assert bool(small.check(row)) == (not quality.clean or len(quality.unknown_keys) > 0)


def test_whole_reports_within_groups_are_private_by_enumeration():
    """The probability of each code for every group and bound, in rational numbers."""
    coder = RandomizedResponse.of(1.0, 8)
    for position in np.linspace(0, 7, 29):
        lower, up = int(position), Fraction(position % 1)
        law = [
            (1 - up) * Fraction(coder.same if code == lower else coder.other, coder.total)
            + up * Fraction(coder.same if code == lower + 1 else coder.other, coder.total)
            for code in range(8)
        ]
        assert sum(law) == 1
        assert max(law) / min(law) <= coder.ratio <= vehicle.exp_below(Fraction(1))


def test_rounding_is_unbiased_and_keeps_whole_numbers():
    """Within five standard errors: by chance in fewer than 1 of 10^6 runs."""
    inputs = np.repeat([0.0, 3.0, 6.25, 1048574.5], 40_000)
    found = round_at_random(inputs, fedldp.source(1)).reshape(4, -1)
    assert set(found[0]) == {0}
    assert set(found[1]) == {3}
    assert set(found[2]) == {6, 7}
    assert set(found[3]) == {1048574, 1048575}
    assert abs(found[2].mean() - 6.25) < 5 * (0.1875 / 40_000) ** 0.5
    assert abs(found[3].mean() - 1048574.5) < 5 * (0.25 / 40_000) ** 0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Within("x", Number("way", 0, 1, size=2), MODEL), "of of 'x' must be a number"),
        (lambda: Within("x", SPEED, Number("way", 0, 1)), "groups of 'x' must be a category"),
        (lambda: Within("x", SPEED, OPTIONAL), "groups of 'x' must be a category"),
        (lambda: Within("x", BY_MODEL, FUEL), "of of 'x' must be a number or a category"),
        (lambda: Within("x", "speed", FUEL), "of of 'x' must be a number or a category"),
        (lambda: Within("x", FUEL, FUEL), "'x' has the column 'fuel' twice"),
        (lambda: Within("", FUEL, MODEL), "an attribute's name must be a text"),
        (
            lambda: Within("x", Category.hashed("a", 2000), Category.hashed("b", 2000)),
            "'x' would have 4004001 labels; at most 1048576",
        ),
        (lambda: OptionalNumber("x", 1, 0), "Did you swap them"),
    ],
)
def test_what_cannot_be_asked_is_refused(make, message):
    with pytest.raises(DomainError, match=message):
        make()


def test_they_are_declared_in_toml_and_in_json():
    schema = Schema((OPTIONAL, BY_MODEL, TABLE))
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_document(json.loads(json.dumps(schema.to_document()))) == schema
    assert Schema.from_toml("speed = {low = 0, high = 130, optional = true}")["speed"] == OPTIONAL
    for document in (
        [{"name": "x", "of": {"name": "speed"}, "groups": {"name": "model"}}],
        [{"name": "x", "of": 1, "groups": 2}],
        [{"name": "x", "low": 0.0, "high": 1.0, "optional": 1}],
    ):
        with pytest.raises(WireError, match=r"needs low and high|tables with a name"):
            Schema.from_document(document)
    with pytest.raises(DomainError, match="must be tables with a name"):
        Schema.from_toml("x = {of = 1, groups = 2}")


def test_an_array_has_no_columns_with_names():
    with pytest.raises(DomainError, match="is read from the columns 'speed' and 'model'"):
        Schema((BY_MODEL,)).rows(np.zeros((3, 1))).matrix()


# The paper's estimator divides by the expected number of answers


def test_shares_of_groups_know_that_the_number_of_answers_is_random():
    """95% intervals of 200 fleets; each share is missed 24 times once in 10,000 seeds."""
    shares, rng = np.array([0.9, 0.07, 0.03]), np.random.default_rng(5)
    model, fuel = Category("model", ["A", "B", "C"]), Category("fuel", ["gas", "none"])
    by_model = Within("speed by model", Number("speed", 0, 100), model)
    schema = Schema((by_model, Within("fuel by model", fuel, model), Number("age", 0, 9)))
    plan = Plan(schema, 6.0, Sample(k=1))  # a third of the vehicles answers each
    missed = np.zeros((2, 3), int)
    for seed in range(200):
        models = rng.choice(3, 1000, p=shares)
        rows = {
            "speed": rng.normal([30, 50, 70], 5)[models],
            "model": np.array([*"ABC"])[models],
            "fuel": np.where(rng.random(1000) < 0.1 + 0.4 * models, "gas", "none"),
            "age": np.ones(1000),
        }
        found = plan.simulate(rows, fedldp.source(seed)).estimate("horvitz-thompson")
        by_speed, by_fuel = found["speed by model"].shares, found["fuel by model"].row_shares
        for place, each in enumerate((by_speed, by_fuel)):
            missed[place] += (each.interval[:, 0] > shares) | (each.interval[:, 1] < shares)
    assert np.all(missed < 24)  # more than 80 in the first group without that


def test_errors_of_one_frequency_agree_with_the_joint_ones():
    table = Within("fuel by model", FUEL, Category("model", ["A", "B"]))
    plan = Plan(Schema((table, Number("age", 0, 9))), 2.0, Sample(k=1))
    rows = {"fuel": ["petrol", "diesel", "diesel", "none"] * 1000, "model": [*"AABAB"] * 800}
    tally = plan.simulate(rows | {"age": [1] * 4000}, fedldp.source(1))
    for estimator in ("ratio", "horvitz-thompson"):
        found, every = tally.estimate(estimator)["fuel by model"], np.arange(6)
        joint = np.sqrt(found.joint.covariance(every, every))
        assert np.allclose(joint, found.stderr, rtol=0.02)
