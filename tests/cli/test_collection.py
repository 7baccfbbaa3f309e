"""Collection on the command line: a fleet in separate steps, or simulated on a file."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from ledgers import made, untouched
from pyarrow import parquet

import fedldp
from fedldp import Ledger, Plan, Schema
from fedldp.cli import estimates
from fedldp.cli.app import fedldp as command
from fedldp.errors import BudgetError, DomainError, FedLDPError, PrivacyError, WireError
from fedldp.plan.strategies import Sample

# Names are shown as they are, though brackets mean something to rich and dollars to matplotlib.
SCHEMA = """
["speed [km/h]"]
low = 0
high = 130

[age]
low = 18
high = 98

[price]
categories = ["$0-$10", "$10+", "[/b]"]
missing = "[/b]"
"""
SPEED, AGE = "speed [km/h]", "age"
PRICES = "$0-$10", "$10+", "[/b]"
NAMES = [SPEED, AGE, *(f"price = {price}" for price in PRICES)]
PLAN = "--schema", "fleet.toml", "--epsilon", 2, "--mechanism", "hm-tp"
COLLECT = *PLAN, "--seed", 5


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(SCHEMA)
    made("ledger.db")


def invoke(*arguments, **options):
    texts = [str(argument) for argument in arguments]
    return CliRunner().invoke(command, texts, env={"COLUMNS": "80"}, **options)


def run(*arguments, **options):
    result = invoke(*arguments, **options)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def shown(*arguments):
    """Run a command that prints for people, and see that it fits the screen."""
    output = run(*arguments)
    assert max(map(len, output.splitlines())) <= 80
    return output


def refused(kind, *arguments, **options):
    """Return why a command was refused: `fedldp` prints that on a line, without a traceback."""
    result = invoke(*arguments, **options)
    assert result.exit_code == 1
    assert issubclass(kind, FedLDPError)
    assert isinstance(result.exception, kind)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def plan():
    run("plan", *PLAN, "-o", "plan.json")
    return Plan.from_json(Path("plan.json").read_text())


def rows(n):
    source = fedldp.source(1)
    speeds, ages, prices = 130 * source.uniform(n) ** 2, source.below(80, n), source.below(6, n)
    return [
        {SPEED: round(speed, 1), AGE: 18 + age, "price": PRICES[int(price**0.5)]}
        for speed, age, price in zip(speeds.tolist(), ages.tolist(), prices.tolist(), strict=True)
    ]


def write_csv(table, path="fleet.csv"):
    lines = [table[0], *(row.values() for row in table)]
    Path(path).write_text("".join(",".join(map(str, line)) + "\n" for line in lines))


# Schema and plan


def test_a_plan_for_a_vector(tmp_path):
    (tmp_path / "vector.toml").write_text("[gradient]\nlength = 1.0\nsize = 36\n")
    options = ["--schema", str(tmp_path / "vector.toml"), "--epsilon", "4"]
    options += ["--strategy", "directions", "--mean-length", "0.3", "--json"]
    bits = []
    for fleet in ([], ["--fleet", "20000"]):
        done = CliRunner().invoke(command, ["plan", *options, *fleet])
        assert done.exit_code == 0, done.output
        bits.append(json.loads(done.output)["bits_per_vehicle"])
    assert bits == [30, 21]


def test_a_draft_must_be_filled_in():
    write_csv(rows(10))
    draft, options = run("schema", "fleet.csv"), ["--schema", "draft.toml", "--epsilon", 1]
    Path("draft.toml").write_text(draft)
    error = refused(DomainError, "collect", "fleet.csv", *options)
    assert error.startswith("draft.toml: fill in low of 'speed [km/h]', high of")
    filled = draft.replace('low = "?"', "low = 0").replace('high = "?"', "high = 200")
    Path("draft.toml").write_text(filled.replace('["?", "other"]', json.dumps([*PRICES, "other"])))
    assert "fleet.csv: 10 vehicles" in shown("collect", "fleet.csv", *options)
    assert Schema.from_toml(Path("draft.toml").read_text())["price"].missing == "other"


def test_a_plan_is_shown_and_written():
    assert "Write it to a file with -o" in shown("plan", *PLAN)
    output = shown("plan", *PLAN, "-o", "plan.json")
    made = Plan(Schema.from_toml(SCHEMA), 2.0, Sample(mechanism="hm-tp"))
    assert Path("plan.json").read_text() == made.to_json()
    for text in ("Wrote plan.json", f" {made.bits} ", made.fingerprint[:14]):
        assert text in output
    document = json.loads(run("plan", *PLAN, "--json", "--vehicles", 1000))
    assert document["fingerprint"] == made.fingerprint
    assert (document["bits_per_vehicle"], document["coordinates"]) == (made.bits, 3)
    assert document["error_if_uniform"] == math.sqrt(made.expected_error(1000) / 5)
    assert document["error_at_worst"] == math.sqrt(made.expected_error(1000, "worst") / 5)


def test_the_error_of_a_plan_is_the_mean_over_all_that_is_estimated():
    age = fedldp.BinnedNumber.of("age", 18, 98, bins=8, optional=True)  # eight bins, and "missing"
    price = fedldp.Category("price", PRICES, optional=True)  # three labels, "other" and "missing"
    schema = Schema((age, price, fedldp.Number("place", 0, 1, size=2)))
    Path("fleet.toml").write_text(schema.to_toml())
    made = Plan(schema, 2.0, Sample(mechanism="hm-tp"))
    document = json.loads(run("plan", *PLAN, "--json", "--vehicles", 1000))
    assert document["error_if_uniform"] == math.sqrt(made.expected_error(1000) / (9 + 5 + 2))
    assert document["error_at_worst"] == math.sqrt(made.expected_error(1000, "worst") / 16)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--k", "4"], 'k must be "best", "paper" or from 1 to 3'),
        (["--mechanism", "laplace"], "laplace has no channel"),
        (["--epsilon", "0"], "epsilon must be"),
        (["--vehicles", "0"], "n must be at least 1"),
    ],
)
def test_a_plan_that_cannot_be(options, said):
    assert said in refused(DomainError, "plan", *PLAN, *options)


@pytest.mark.parametrize("k", ["0", "many", "²", "1.5"])
def test_a_k_that_is_not_valid_for_any_schema(k):
    result = invoke("plan", *PLAN, "--k", k)
    assert result.exit_code == 2
    said = " ".join(result.stderr.replace("│", "").split())
    assert f': must be "best", "paper" or a whole number of at least 1; got {k}.' in said


# A fleet in separate steps


def report(row, name="report.bin", *more, cap=2, ledger="ledger.db"):
    text = row if isinstance(row, bytes) else json.dumps(row).encode()
    options = "--cap", cap, "--ledger", ledger, "-o", name, *more
    assert run("report", "plan.json", *options, input=text) == ""
    return Path(name).read_bytes()


def test_a_whole_fleet():
    asked, fleet = plan(), rows(80)
    packets = [report(row, f"{i}.bin", ledger=made(f"{i}.db")) for i, row in enumerate(fleet[:50])]
    assert {len(packet) for packet in packets} == {16 + (asked.bits + 7) // 8}
    Path("damaged.bin").write_bytes(packets[0] + packets[1][:-1] + b"?")
    files = ["damaged.bin", *(f"{i}.bin" for i in range(30)), "gone.bin"]
    result = invoke("tally", "plan.json", *files, "-o", "tally.json")
    assert result.exit_code == 1
    gone, damaged, place, counted = result.stdout.splitlines()
    assert damaged.startswith("Refused 1 report: the checksum differs")
    assert place == f"  {Path('damaged.bin').resolve()}, number 1: checksum"
    assert gone.startswith("Refused gone.bin: ")
    assert counted == "Counted 31 vehicles, 31 in all. Wrote tally.json"
    # Later, 20 more from one file, and 30 in one batch through a pipe.
    Path("some.bin").write_bytes(b"".join(packets[30:]))
    batch = asked.report(fleet[50:], fedldp.source(3)).to_bytes()
    arguments = "tally", "plan.json", "some.bin", "-", "-o", "tally.json", "--json"
    document = json.loads(run(*arguments, input=batch))
    assert (document["added"], document["reports"], document["refused"]) == (50, 81, [])
    tally = sum(map(asked.parse, [*packets, packets[0]]), asked.parse(batch))
    assert asked.load_tally("tally.json") == tally
    for options in ({}, {"of": "fleet", "confidence": 0.8}, {"estimator": "horvitz-thompson"}):
        flags = [part for key, value in options.items() for part in (f"--{key}", value)]
        check_estimates(tally.estimate(**options), "estimate", "plan.json", "tally.json", *flags)


def check_estimates(estimate, *arguments):
    found = json.loads(run(*arguments, "--json"))
    assert (found["vehicles"], found["confidence"]) == (estimate.reports, estimate.confidence)
    cells = {key: [row[key] for row in found["estimates"]] for key in found["estimates"][0]}
    speed, age, price = estimate.values()
    assert cells["name"] == NAMES
    assert cells["estimate"] == [speed.mean, age.mean, *price.frequencies]
    assert cells["answers"] == [speed.answers, age.answers] + [price.answers] * 3
    assert cells["stderr"] == [speed.stderr, age.stderr, *price.stderr]
    for key in ("interval", "simultaneous"):
        expected = [getattr(speed, key), getattr(age, key), *getattr(price, key)]
        assert cells[key] == [ends.tolist() for ends in expected]
    output = shown(*arguments, "--plot", "picture.png")
    assert all(text in output for text in [*NAMES, f"± ({100 * estimate.confidence:g}%)"])
    assert Path("picture.png").read_bytes().startswith(b"\x89PNG")


def test_nobody_has_reported_yet():
    plan()
    assert "Counted 0 vehicles" in run("tally", "plan.json", "-o", "tally.json", input=b"")
    assert " - " in shown("estimate", "plan.json", "tally.json", "--plot", "nothing.svg")
    [row, *_] = json.loads(run("estimate", "plan.json", "tally.json", "--json"))["estimates"]
    assert row["estimate"] is row["stderr"] is row["interval"][0] is None


def test_a_header_cannot_ask_for_all_memory():
    Path("wide.toml").write_text("x = {low = -1, high = 1, size = 10000}")
    run("plan", "--schema", "wide.toml", "--epsilon", 1, "--strategy", "cube", "-o", "plan.json")
    fingerprint = Plan.from_json(Path("plan.json").read_text()).fingerprint
    Path("short.bin").write_bytes(b"\1" + bytes.fromhex(fingerprint[:14]) + b"\xff" * 8)
    result = invoke("tally", "plan.json", "short.bin", "-o", "tally.json")
    assert result.exit_code == 1
    assert result.stdout.startswith("Refused 1 report: the number of bytes is not what the header")


# A vehicle


def test_a_job_gets_one_report():
    """Whatever the cap allows; the same question again gets the same bytes."""
    plan()
    first = report({AGE: 40}, "first.bin", "--job", "spring", cap=20)
    assert report({AGE: 90}, "again.bin", "--job", "spring", cap=20) == first
    arguments = "report", "plan.json", "--cap", 20, "--ledger", "ledger.db", "-o", "third.bin"
    error = refused(BudgetError, *arguments, "--job", "spring", "--round", 2, input=b"{}")
    assert "spring" in error
    assert not Path("third.bin").exists()
    report({}, "autumn.bin", "--job", "autumn", "--round", "2", cap=20)
    with Ledger("ledger.db", 20) as ledger:
        assert [line.job for line in ledger.history()] == ["spring", "autumn"]


def test_a_report_is_paid_once_in_each_round():
    plan()
    first = report({AGE: 40}, cap=5)
    assert report({AGE: 90}, cap=5) == first  # the stored bytes: nothing is answered anew
    second = report({AGE: 40}, "second.bin", "--round", "2", cap=5)
    arguments = "report", "plan.json", "--cap", 5, "--ledger", "ledger.db", "-o", "third.bin"
    error = refused(BudgetError, *arguments, "--round", 3, input=b"{}")
    assert "has spent 4 of its cap of 5: 2 more is too much" in error
    assert not Path("third.bin").exists()
    assert report({AGE: 40}, "again.bin", "--round", "2", cap=5) == second
    report({}, "other.bin", "--key", "another", cap=5)
    with Ledger("ledger.db", 5) as ledger:
        assert [each.run for each in ledger.history("vehicle")] == ["", "2"]
        assert ledger.spent("another") == 2


def test_a_vehicle_refuses_in_one_line():
    plan()
    arguments = "report", "plan.json", "--ledger", "ledger.db", "--cap"
    texts = [sys.executable, "-m", "fedldp", *arguments, "1.9"]
    done = subprocess.run(texts, input=b"{}", capture_output=True)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"fedldp: plan.json: refused: it costs 2.0, and the cap is 1.9.\n"
    for cap in ("much", "0", "-1", "nan", "inf", "1e400"):
        assert f"got '{cap}'" in refused(DomainError, *arguments, cap, input=b"{}")
    assert untouched("ledger.db")


def test_whatever_a_row_holds_it_is_answered():
    asked = plan()
    texts = [b'{"price": "\xff\xfe"}', b'{"age": ' + b"1" * 10_000 + b"}"]
    ages = None, "old", [1], {}, True, math.nan, 1e999, -(10**400)
    values = [{AGE: v} for v in ages] + [{"price": v} for v in (None, "$9", 7, [1])] + [{"x": 1}]
    texts += [json.dumps(value).encode() for value in values]
    packets = [report(text, ledger=made(f"{i}.db")) for i, text in enumerate(texts)]
    assert {len(packet) for packet in packets} == {len(report({AGE: 40}))}
    assert sum(map(asked.parse, packets), asked.tally()).reports == len(texts)


BAD_ROW = {AGE: 130, "price": "$9", "speeed [km/h]": 50}


def test_what_is_replaced_is_said_to_the_owner_alone():
    asked = plan()
    text, vehicle = json.dumps(BAD_ROW), ("--cap", 2, "--ledger", "ledger.db", "-o", "report.bin")
    result = invoke("report", "plan.json", *vehicle, input=text)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == (
        "fedldp: warning: speed [km/h] is missing; age is clipped (130); price is unknown ('$9'); "
        "the key 'speeed [km/h]' is unknown (did you mean 'speed [km/h]'?).\n"
    )
    assert asked.parse(Path("report.bin").read_bytes()).reports == 1
    good = json.dumps(rows(1)[0])
    assert (
        invoke("report", "plan.json", *vehicle, "--round", 2, "--cap", 4, input=good).stderr == ""
    )


def test_strict_and_check_spend_nothing():
    plan()
    bad, good = json.dumps(BAD_ROW), json.dumps(rows(1)[0])
    vehicle = "report", "plan.json", "--cap", 2, "--ledger", "ledger.db"
    error = refused(DomainError, *vehicle, "--strict", input=bad)
    assert error.startswith("the row must be usable as it is; speed [km/h] is missing; age is")
    result = invoke("report", "plan.json", "--check", input=bad)
    assert (result.exit_code, len(result.stdout.splitlines())) == (1, 4)
    assert "age is clipped (130)" in result.stdout
    assert "All values are used as they are." in run("report", "plan.json", "--check", input=good)
    assert invoke(*vehicle, "--check", input=bad).exit_code == 1
    assert untouched("ledger.db")
    assert len(run(*vehicle, "--strict", "-o", "report.bin", input=good)) == 0
    assert invoke("report", "plan.json", input=good).exit_code == 2  # whose cap, which ledger?


@pytest.mark.parametrize(
    "text", [b"not json", b"", b"{", b"null", b"7", b"\xff\xfe", b"[" * 100_000, b"1" * 10_000]
)
def test_an_invalid_row_spends_nothing(text):
    """It is a mistake of the program that calls, not data: no value in an object can cause it."""
    plan()
    vehicle = "report", "plan.json", "--cap", 2, "--ledger", "ledger.db", "-o", "report.bin"
    assert "the row must be a JSON object" in refused(DomainError, *vehicle, input=text)
    assert untouched("ledger.db")
    assert not Path("report.bin").exists()


def test_files_that_are_not_what_they_should_be():
    plan()
    Path("bad.json").write_text("{}")
    leaky = json.loads(Path("plan.json").read_text()) | {"epsilon": "1.0"}
    Path("leaky.json").write_text(json.dumps(leaky))
    vehicle = "--cap", 2, "--ledger", "ledger.db"
    refused(WireError, "report", "bad.json", *vehicle, input=b"{}")
    refused(PrivacyError, "report", "leaky.json", *vehicle, input=b"{}")
    refused(WireError, "tally", "bad.json", "-o", "tally.json", input=b"")
    refused(WireError, "tally", "plan.json", "-o", "bad.json", input=b"")
    refused(WireError, "estimate", "plan.json", "bad.json")
    assert Path("bad.json").read_text() == "{}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", *PLAN, "-o", "gone/plan.json"],
        ["report", "fleet.toml", "--cap", "2", "--ledger", "gone/ledger.db"],
        ["tally", "fleet.toml", "-o", "gone/tally.json"],
        ["collect", "fleet.toml", *PLAN, "--plot", "gone/x.png"],
    ],
)
def test_a_folder_that_is_not_there_is_refused_before_any_work(arguments):
    result = invoke(*arguments, input=b"{}")
    assert result.exit_code == 2
    assert "the folder gone does not exist" in result.output


# Collect


@pytest.mark.parametrize("more", [[], ["--strategy", "cube"], ["--of", "population"]])
def test_collect(more):
    fleet = rows(4000)
    write_csv(fleet)
    parquet.write_table(pa.Table.from_pylist(fleet), "fleet.parquet", row_group_size=700)
    output = run("collect", "fleet.csv", *COLLECT, "--json", *more)
    for name in ("fleet.csv", "fleet.parquet"):
        assert run("collect", name, *COLLECT, "--json", *more) == output
    assert run("collect", "fleet.csv", *PLAN, "--json", *more) != output
    found = json.loads(output)
    assert found["vehicles"] == 4000
    assert found["bits_per_vehicle"] == (5 if "cube" in more else 8)
    truth = [np.mean([row[key] for row in fleet]) for key in (SPEED, AGE)]
    truth += [np.mean([row["price"] == price for row in fleet]) for price in PRICES]
    assert [row["name"] for row in found["estimates"]] == NAMES
    np.testing.assert_allclose([row["truth"] for row in found["estimates"]], truth)
    for row in found["estimates"]:
        assert abs(row["estimate"] - row["truth"]) < 5 * row["stderr"]
    shown("collect", "fleet.csv", *COLLECT, "--plot", "picture.pdf", *more)


def test_collect_says_what_is_replaced_or_refuses_it():
    fleet = rows(100)
    fleet[40] |= {"price": "$10"}
    fleet[70] |= {AGE: ""}
    write_csv(fleet)
    error = refused(DomainError, "collect", "fleet.csv", *COLLECT, "--strict")
    assert "row 40: '$10' is not one of the 3 categories" in error
    assert "row 70: the value is missing" in error
    result = invoke("collect", "fleet.csv", *COLLECT, "--json")
    assert result.stderr.startswith("fleet.csv: 100 rows: 2 values are clipped or replaced.\n")
    found = json.loads(result.stdout)
    fleet[40] |= {"price": "[/b]"}
    fleet[70] |= {AGE: 58}  # the centre
    write_csv(fleet)
    wanted = json.loads(run("collect", "fleet.csv", *COLLECT, "--strict", "--json"))
    for one, other in zip(found["estimates"], wanted["estimates"], strict=True):
        assert one["used"] == pytest.approx(other["truth"])
        assert (one["estimate"], one["interval"]) == (other["estimate"], other["interval"])
        assert one["replaced"] == (0 if one["name"] == SPEED else 0.01)
    Path("empty.csv").write_text(Path("fleet.csv").read_text().splitlines()[0] + "\n")
    assert "expected at least one row; empty.csv has none" in refused(
        DomainError, "collect", "empty.csv", *COLLECT
    )
    assert "expected at least one row" in refused(
        DomainError, "collect", "empty.csv", *COLLECT, "--strict"
    )


def test_collect_shows_the_raw_mean_beside_the_clipped_one():
    fleet = rows(2000)
    for row in fleet[:500]:
        row[AGE] = 1000
    fleet[600][AGE] = ""
    fleet[700]["price"] = "$9"
    write_csv(fleet)
    found = json.loads(invoke("collect", "fleet.csv", *COLLECT, "--json").stdout)["estimates"]
    ages = [row[AGE] for row in fleet if row[AGE] != ""]
    assert found[1]["truth"] == pytest.approx(np.mean(ages))  # of those that are there
    used = [58 if row[AGE] == "" else min(row[AGE], 98) for row in fleet]
    assert found[1]["used"] == pytest.approx(np.mean(used))
    assert (found[1]["clipped"], found[1]["replaced"]) == (0.25, 0.0005)
    assert abs(found[1]["estimate"] - found[1]["used"]) < 5 * found[1]["stderr"]
    prices = [row["price"] for row in fleet]
    for line, price in zip(found[2:], PRICES, strict=True):
        assert line["truth"] == pytest.approx(prices.count(price) / 2000)
        one_more = price == "[/b]"  # what stands for all others
        assert line["used"] == pytest.approx((prices.count(price) + one_more) / 2000)
    result = invoke("collect", "fleet.csv", *COLLECT, "--plot", "picture.png")
    assert max(map(len, result.stdout.splitlines())) <= 80
    for text in ("truth", "used", "clipped", "replaced", "25.0%"):
        assert text in result.stdout
    assert "age: 500 of 2,000 (25%) clipped to [18, 98]" in result.stderr


def test_collect_survives_values_without_a_mean():
    Path("fleet.csv").write_text(
        "speed [km/h],age,price\ninf,inf,$10+\n-inf,-inf,$10+\n50,x,$10+\n"
    )
    result = invoke("collect", "fleet.csv", *COLLECT, "--json")
    assert [line["truth"] for line in json.loads(result.stdout)["estimates"]] == [
        None,
        None,
        0,
        1,
        0,
    ]
    assert invoke("collect", "fleet.csv", *COLLECT, "--plot", "picture.png").exit_code == 0


# Linux counts in ru_maxrss what the parent had when it started the process, and not in VmHWM.
PEAK = """
import pathlib, resource, runpy, sys
try:
    runpy.run_module("fedldp", run_name="__main__")
finally:
    peak, status = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "/proc/self/status"
    if pathlib.Path(status).exists():
        peak = int(pathlib.Path(status).read_text().partition("VmHWM:")[2].split()[0])
    print(peak / (2**20 if sys.platform == "darwin" else 2**10), file=sys.stderr)
"""


def test_collect_takes_the_same_memory_for_any_number_of_rows():
    """Without a terminal, nothing but the result is printed; and rows are not kept."""
    table, peaks = rows(30_000), []
    for times in (1, 10):
        write_csv(table * times)
        texts = [sys.executable, "-c", PEAK, "collect", "fleet.csv", *map(str, COLLECT)]
        done = subprocess.run(texts, capture_output=True, text=True, check=True)
        assert f"{30_000 * times} vehicles" in done.stdout
        peaks.append(float(done.stderr))  # in MiB, and there is nothing else in it
    assert peaks[1] < peaks[0] + 40


@pytest.mark.parametrize("name", ["schema", "plan", "report", "tally", "estimate", "collect"])
def test_help_has_an_example(name):
    assert f"fedldp {name} " in shown(name, "--help").split("Options:")[0].partition("\n")[2]
    assert name in run("--help")


@pytest.mark.parametrize(
    ("columns", "name", "because"),
    [
        (["x"], "sample", "there is one number"),
        (["x", "city"], "sample", "not all attributes are plain numbers"),
        (["x", "y"], "sample", "a cube would have [0-9]+% of its squared error, if .*"),
    ],
)
def test_collect_says_which_strategy_was_chosen_and_why(columns, name, because):
    labels = ["Oslo", "Rome"]
    schema = Schema.of(**{each: labels if each == "city" else (0, 1) for each in columns})
    Path("few.toml").write_text(schema.to_toml())
    row = {"x": "0.25", "y": "1", "city": "Rome"}
    Path("few.csv").write_text(",".join(columns) + "\n" + ",".join(map(row.get, columns)) + "\n")
    collect = "collect", "few.csv", "--schema", "few.toml", "--epsilon", 2
    chosen = json.loads(run(*collect, "--json"))
    assert chosen["strategy"] == name
    assert re.fullmatch(because, chosen["because"])
    printed = " ".join(shown(*collect).split())
    assert f"Strategy {name}, chosen automatically: {chosen['because']}." in printed
    for by_hand in (["--strategy", "sample"], ["--k", 1], ["--paper"]):
        assert "strategy" not in json.loads(run(*collect, *by_hand, "--json"))
        assert "automatically" not in shown(*collect, *by_hand)


def test_plan_says_which_strategy_was_chosen_and_why():
    schema = Schema.of(**{f"x{place}": (0, 1) for place in range(16)})
    Path("many.toml").write_text(schema.to_toml())
    many = "plan", "--schema", "many.toml", "--epsilon"
    chosen = json.loads(run(*many, 8, "--json"))
    assert (chosen["strategy"], chosen["answers"]) == ("cube", 16)
    assert chosen["because"] == "65% of the sample's squared error, if numbers are spread evenly"
    assert "sample: a cube would have 140%" in shown(*many, 2)
    assert "strategy" not in json.loads(run(*many, 8, "--strategy", "sample", "--json"))


def test_a_result_without_bars_shows_its_summary_too(monkeypatch, capsys):
    """Of any kind: a new result needs no bars for that."""
    plan = fedldp.Plan(fedldp.Schema.of(city=["Oslo", "Rome"]), 4.0)
    report = plan.report([{"city": "Oslo"}] * 9, fedldp.source(1))
    estimate = (plan.tally() + report).estimate()
    rows = [*estimates.lines(estimate, plan.schema)]
    monkeypatch.setattr(type(estimate["city"]), "summary", "mostly Oslo")
    estimates.show("9 vehicles", estimate, plan.schema, rows)
    assert "\ncity: mostly Oslo\n" in capsys.readouterr().out
