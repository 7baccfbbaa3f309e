"""`fedldp tally`: Parquet, folders and patterns; resumed after a kill; merged once."""

import json
import os
import signal
import subprocess
import sys
import threading
from math import prod
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import fedldp
from fedldp import Counted, Plan, Schema
from fedldp.cli.app import fedldp as command
from fedldp.counting import counts
from fedldp.plan.parts import Matrix
from fedldp.plan.strategies import Sample

PLAN = Plan(Schema.vector(94, bound=1.0), 1.0, Sample(k=1, mechanism="three-outputs"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plan.json").write_text(PLAN.to_json())


def tally(*arguments, code=0, **options):
    texts = ["tally", "plan.json", *map(str, arguments), "-o", "tally.json"]
    result = CliRunner().invoke(command, texts, **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def tally_json(*arguments, **options):
    return json.loads(tally(*arguments, "--json", **options))


def packets(n, seed=1):
    """Return n reports of one vehicle each."""
    values = Matrix(np.zeros((n, 94)))
    whole = PLAN.records(values, fedldp.source(seed))
    reports = (fedldp.Report(PLAN.fingerprint, PLAN.bits, 1, each) for each in whole.split())
    return [each.to_bytes() for each in reports]


def write(path, given):
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"packet": pa.array(given, pa.binary())}), path)


def test_parquet_folders_and_patterns():
    given = packets(1000)
    write("reports/day=1/a.parquet", given[:300])
    write("reports/day=2/b.parquet", given[300:600])
    Path("reports/c.bin").write_bytes(b"".join(given[600:]))
    assert tally_json("reports/**/*.parquet")["added"] == 600
    document = tally_json("reports")
    assert (document["added"], document["reports"], document["skipped"]) == (400, 1000, 2)
    assert PLAN.load_tally("tally.json") == PLAN.count(given).tally
    assert "Skipped 3 files" in tally("reports")
    assert "Skipped 3 files" in tally(Path("reports").resolve())  # the names are the same
    [refused] = tally_json("*.csv", code=1)["refused"]
    assert refused == {"file": "*.csv", "reason": "no file matches '*.csv'."}


def test_refused_packets_are_counted_and_listed():
    given = packets(100)
    given[7] = given[7][:-1] + b"?"
    given[9] = None
    write("a.parquet", given)
    Path("b.bin").write_bytes(given[0] + given[1][:-1])
    output = tally("a.parquet", "b.bin", code=1)
    lines = output.splitlines()
    assert lines[:3] == [
        "Refused 1 report: there are no bytes",
        "Refused 1 report: the number of bytes is not what the header says",
        "Refused 1 report: the checksum differs: the report was damaged in transit",
    ]
    assert f"  {Path('a.parquet').resolve()}, number 7: checksum" in lines
    assert f"  {Path('b.bin').resolve()}, number 1: length" in lines
    assert lines[-1] == "Counted 99 vehicles, 99 in all. Wrote tally.json"
    # They are not news when the command runs again, and the manifest remembers them.
    document = tally_json("a.parquet", "b.bin")
    assert document["refused_packets"] == {}
    found = Counted.load("tally.json", PLAN)
    assert (found.packets, found.refused) == (99, {"missing": 1, "length": 1, "checksum": 1})
    Path("c.bin").write_bytes(b"\1" * 30)
    document = tally_json("c.bin", code=1)
    assert document["refused_packets"] == {"plan": 1}
    assert document["listed"] == [
        {"shard": str(Path("c.bin").resolve()), "number": 0, "reason": "plan"}
    ]


def test_a_file_is_counted_once():
    Path("a.bin").write_bytes(b"".join(packets(10)))
    assert tally_json("a.bin", "a.bin", "./a.bin")["added"] == 10
    assert tally_json("a.bin")["added"] == 0
    Path("a.bin").write_bytes(b"".join(packets(11)))
    [refused] = tally_json("a.bin", code=1)["refused"]
    assert "a file of this name with other contents is counted already" in refused["reason"]
    assert tally_json("-", input=Path("a.bin").read_bytes())["reports"] == 21
    assert tally_json("-", input=Path("a.bin").read_bytes())["reports"] == 32


def test_a_pipe_counts_every_time():
    os.mkfifo("pipe")
    for total in (10, 20):
        sender = threading.Thread(target=Path("pipe").write_bytes, args=[b"".join(packets(10))])
        sender.start()
        assert tally_json("pipe")["reports"] == total
        sender.join()
    assert len(Counted.load("tally.json", PLAN).manifest) == 0


def chance(vehicles):
    """Return the largest chance that as many vehicles send the same as as many others."""
    return prod(part.likeliest for part in PLAN.parts) ** vehicles


def needed(least):
    """Return how many vehicles make an equal file less likely than this."""
    return next(vehicles for vehicles in range(1, 1000) if chance(vehicles) < least)


def test_a_copy_is_refused_where_chance_cannot_make_one():
    """How many vehicles that takes follows from the plan, and not from a fixed number."""
    vehicles = needed(counts.CHANCE_OF_A_COPY / 2)
    assert vehicles < 100
    for name in ("a", "b"):
        Path(f"{name}.bin").write_bytes(b"".join(packets(vehicles)))
    [refused] = tally_json("a.bin", "b.bin", code=1)["refused"]
    assert "it has the same contents as a.bin" in refused["reason"].replace(f"{Path.cwd()}/", "")
    assert PLAN.load_tally("tally.json").reports == vehicles


def test_a_small_file_that_equals_another_one_counts():
    vehicles = needed(counts.CHANCE_OF_A_COPY) - 1
    for name in ("a", "b"):
        Path(f"{name}.bin").write_bytes(b"".join(packets(vehicles)))
        Path(f"one {name}.bin").write_bytes(packets(1)[0])
    assert "Note: 1 file with the contents of another one counted." in tally("a.bin", "b.bin")
    found = tally_json("one a.bin", "one b.bin")
    assert (found["added"], found["same_contents"]) == (2, 0)


def test_among_many_files_more_vehicles_are_needed(monkeypatch):
    vehicles = needed(counts.CHANCE_OF_A_COPY)
    monkeypatch.setattr(counts, "CHANCE_OF_A_COPY", 1.5 * chance(vehicles))
    others = packets(vehicles + 2)
    for number, name in enumerate(("a", "b", "c")):
        Path(f"{name}.bin").write_bytes(b"".join(others[number : number + vehicles]))
    for name in ("copy", "another"):
        Path(f"{name}.bin").write_bytes(Path("a.bin").read_bytes())
    assert tally_json("a.bin", "copy.bin", code=1)["added"] == vehicles
    assert tally_json("a.bin", "b.bin", "c.bin", "another.bin")["refused"] == []


def test_copies_of_tallies_are_noticed(monkeypatch):
    monkeypatch.setattr(counts, "_SELDOM_EQUAL", 10)
    for name in ("a", "b"):
        PLAN.count(packets(10)).tally.save(f"{name}.json")
    assert "Note: 1 file with the contents of another one" in tally("a.json", "b.json")
    monkeypatch.setattr(counts, "_NEVER_EQUAL", 10)
    Path("c.json").write_bytes(Path("a.json").read_bytes())
    [refused] = tally_json("c.json", code=1)["refused"]
    assert "it has the same contents as" in refused["reason"]


def test_tallies_of_other_servers_are_merged_once():
    given = packets(60)
    for number in range(3):
        Path(f"{number}.bin").write_bytes(b"".join(given[20 * number : 20 * number + 20]))
    for name, files in {
        "north": ["0.bin"],
        "south": ["1.bin", "2.bin"],
        "all": ["0.bin", "1.bin"],
    }.items():
        texts = ["tally", "plan.json", *files, "-o", f"{name}.json"]
        assert CliRunner().invoke(command, texts).exit_code == 0
    assert tally_json("north.json", "south.json")["added"] == 60
    assert PLAN.load_tally("tally.json") == PLAN.count(given).tally
    document = tally_json("north.json", "0.bin")
    assert (document["added"], document["skipped"]) == (0, 2)
    [refused] = tally_json("all.json", code=1)["refused"]
    assert "2 shards would count twice" in refused["reason"]
    assert PLAN.load_tally("tally.json").reports == 60


def test_what_another_server_refused_is_not_news():
    Path("a.bin").write_bytes(b"".join(packets(3)) + b"?")
    texts = ["tally", "plan.json", "a.bin", "-o", "north.json"]
    assert CliRunner().invoke(command, texts).exit_code == 1
    document = tally_json("north.json")
    assert (document["added"], document["refused_packets"]) == (3, {})
    assert Counted.load("tally.json", PLAN).refused == {"length": 1}
    assert tally_json("-", input=b"?", code=1)["refused_packets"] == {"length": 1}
    assert Counted.load("tally.json", PLAN).refused == {"length": 2}


def test_a_folder_may_contain_the_output():
    Path("plan.json").rename("../plan.json")
    Path("a.bin").write_bytes(b"".join(packets(10)))
    for added in (10, 0):
        texts = ["tally", "../plan.json", ".", "-o", "tally.json", "--json"]
        result = CliRunner().invoke(command, texts)
        assert (result.exit_code, json.loads(result.stdout)["added"]) == (0, added)


def test_a_tally_without_a_manifest_is_continued_with_a_warning():
    PLAN.count(packets(5)).tally.save("tally.json")
    Path("a.bin").write_bytes(b"".join(packets(10)))
    texts = ["tally", "plan.json", "a.bin", "-o", "tally.json"]
    result = CliRunner().invoke(command, texts)
    assert result.exit_code == 0
    assert result.stderr.startswith("fedldp: warning: tally.json has no manifest: a file that was")
    assert Counted.load("tally.json", PLAN).tally.reports == 15
    assert CliRunner().invoke(command, texts).stderr == ""


def test_a_column_is_named():
    table = pa.table({"a": [b""] * 5, "b": packets(5)})
    parquet.write_table(table, "two.parquet")
    [refused] = tally_json("two.parquet", code=1)["refused"]
    assert "must have one binary column; this one has 2 (a, b)" in refused["reason"]
    assert tally_json("two.parquet", "--column", "b")["added"] == 5


@pytest.mark.parametrize("every", [0, 3600])
def test_how_often_it_is_saved_changes_nothing(every):
    given = packets(200)
    for number in range(20):
        Path(f"{number}.bin").write_bytes(b"".join(given[10 * number : 10 * number + 10]))
    assert tally_json("*.bin", "--save-every", every)["added"] == 200
    assert PLAN.load_tally("tally.json") == PLAN.count(given).tally


# Runs the command in a process that kills itself before a given step of writing.
KILLED = """
import os, pathlib, signal, sys
from fedldp.cli import app, reports

def counted(function):
    def step(*arguments, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)
    return step

for line in sys.stdin:
    left = int(line)
    child = os.fork()
    if not child:
        os.fsync, pathlib.Path.replace = counted(os.fsync), counted(pathlib.Path.replace)
        app.fedldp(prog_name="fedldp")
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_killed_at_any_step_it_resumes_and_counts_each_file_once():
    given = packets(120)
    arguments = ["tally", "plan.json", "*.bin", "-o", "tally.json", "--save-every", "0"]
    states = []
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, "-c", KILLED, *arguments], **pipes) as killed:
        # A save is at most eight steps: two files, each synced, named and synced again, and two.
        for step in range(1, 10):
            for number in range(4):
                place = 10 * step + 2 * number
                Path(f"{step}-{number}.bin").write_bytes(b"".join(given[place : place + 2]))
            killed.stdin.write(f"{step}\n")
            assert int(killed.stdout.readline()) == -signal.SIGKILL
            found = counts.load_or_begin(Path("tally.json"), PLAN)
            assert found.tally.reports == found.packets == 2 * len(found.manifest)
            states.append(found.packets)
    assert states == sorted(states)
    assert len(set(states)) > 3
    assert tally_json("*.bin")["reports"] == 72
    expected = PLAN.count("*.bin")
    assert PLAN.load_tally("tally.json") == expected.tally
    assert Counted.load("tally.json", PLAN).manifest == expected.manifest
