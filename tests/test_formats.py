"""Every file has a format: docs/formats.md lists those in the code, and newer ones are refused.

A new format fails here until it is in the table and has a reader below.
"""

import ast
import contextlib
import hashlib
import json
import re
import sqlite3
from pathlib import Path

import pytest
from fleets import fleet, plan_for
from ledgers import open_ledger

import fedldp
import fedldp_fleet
from fedldp import Plan, Schema, signing, vehicle
from fedldp._internal import toml
from fedldp.budget.calendars import CalendarPeriod
from fedldp.counting.counts import Counted
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.learn import computations
from fedldp.learn.model import Model
from fedldp.learn.networks import Network
from fedldp.learn.optimizer import Adam, Recipe, State
from fedldp.learn.training import Procedure, Training
from fedldp.plan import report
from fedldp.plan.strategies import Sample
from fedldp.results import tally as tally_module
from fedldp.results.summary import Summary
from fedldp.vehicle import canonical
from fedldp_fleet import engine, messages, road
from fedldp_fleet.agent.https import Membership
from fedldp_fleet.agent.mqtt import BrokerMembership
from fedldp_fleet.agent.outbox import Outbox
from fedldp_fleet.agent.service import AgentSettings as AgentSettings
from fedldp_fleet.jobs import read_job
from fedldp_fleet.messages import Call, Offers
from fedldp_fleet.questions import STATEMENT, Question
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.work import JobFile
from fedldp_fleet.signed_jobs import SignedJob
from fedldp_fleet.stages import Learned
from fedldp_fleet.store.sqlite import SQLiteStore
from fedldp_fleet.transparency import AskedQuestion, Transparency

SOURCES = [Path(package.__file__).parent for package in (fedldp, fedldp_fleet)]
PAGE = SOURCES[0].parents[1] / "docs" / "formats.md"
DOCUMENT = re.compile(r"fedldp [a-z ]+ \d+")
PLAN = Plan(Schema.of(speed=(0, 50)), 1.0, Sample(mechanism="duchi"))


def in_the_code():
    """Return the formats of documents and of databases that the source contains."""
    documents, databases = set(), set()
    for path in (each for source in SOURCES for each in source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if DOCUMENT.fullmatch(node.value):
                    documents.add(node.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Kind":
                entries = {each.arg: each.value for each in node.keywords}
                databases.add(f"{entries['name'].value} {entries['format'].value}")
    return documents, databases


def in_the_page(title, column="format"):
    """Return what the tables of a section have in the columns of this name, one list a row."""
    text = PAGE.read_text("utf-8")
    section = re.search(rf"(?ms)^## {title}\n(.*?)(?=^## |\Z)", text)[1]
    found, places = [], []
    for line in section.splitlines():
        cells = [each.strip() for each in line.strip("|").split("|")]
        if not line.startswith("|"):
            places = []
        elif not places:
            places = [i for i, cell in enumerate(cells) if cell.startswith(column)]
        elif not line.startswith("|--"):
            found.append([cells[0], *re.findall("`([^`]+)`", cells[places[0]])])
    return found


def test_the_page_lists_the_formats_of_all_documents():
    listed = [name for _, *names in in_the_page("Documents") for name in names]
    assert len(set(listed)) == len(listed)
    assert set(listed) == in_the_code()[0]


def test_the_page_lists_the_formats_of_all_databases():
    assert {name for _, name in in_the_page("Databases")} == in_the_code()[1]


def test_the_page_lists_the_formats_of_configuration_files():
    rows = in_the_page("Configuration")
    assert {name for _, name in rows} == {f"format = {toml.FORMAT}"}
    assert {re.search(r"`(\w+\.toml)`", file)[1] for file, _ in rows} == CONFIGURATIONS.keys()


def test_the_page_lists_the_versions_of_bytes():
    versions = [report.VERSION, tally_module.VERSION, messages._VERSION]
    found = [row[-1] for row in in_the_page("Bytes", "version")]
    assert found == [str(each) for each in versions]


# Newer ones: the error names the format, and says that a newer version has written it.


def manifest(text, folder):
    PLAN.tally().save(folder / "tally.json")
    (folder / "tally.json.manifest").write_text(text)
    return Counted.load(folder / "tally.json", PLAN)


def counted(text, _):
    body = len(text).to_bytes(8, "big") + text.encode() + PLAN.tally().to_bytes()
    return Counted.from_bytes(body + hashlib.sha256(body).digest(), PLAN)


def tally(text, folder):
    (folder / "tally.json").write_text(text)
    return PLAN.load_tally(folder / "tally.json")


def signed(text):
    return signing.sign(signing.PrivateKey.generate(), json.loads(text))


def resumed(text, folder):
    store = SQLiteStore(folder / "server.db")
    with contextlib.closing(store), store.transaction() as inside:
        return engine.resume(inside, text, 0.0)


def training(text, _):
    recipe = Recipe(Adam(0.1))
    return Training(fleet(9, 2), Procedure(plan_for(2), recipe, group=3), fedldp.source(1)).resume(
        text
    )


READERS = {
    "fedldp asked": lambda text, _: AskedQuestion.of(text),
    "fedldp broker membership": lambda text, _: BrokerMembership.from_json(text),
    "fedldp calendar": lambda text, _: fedldp.Calendar.from_json(text),
    "fedldp call": lambda text, _: Call.from_bytes(text.encode()),
    "fedldp channel": lambda text, _: fedldp.Channel.from_json(text),
    "fedldp counted": counted,
    "fedldp job file": lambda text, _: JobFile.from_json(text),
    "fedldp job state": lambda text, _: Learned.from_json(text),
    "fedldp job state at a step": resumed,
    "fedldp job summary": lambda text, _: Summary.from_json(text),
    "fedldp join": lambda text, _: road.code_in(text.encode()),
    "fedldp joined": lambda text, _: road.JoinedAgent.from_bytes(text.encode()),
    "fedldp manifest": manifest,
    "fedldp membership": lambda text, _: Membership.from_json(text),
    "fedldp model": lambda text, _: Model.from_json(text),
    "fedldp network": lambda text, _: Network.from_json(text),
    "fedldp offers": lambda text, _: Offers.from_bytes(text.encode()),
    "fedldp period": lambda text, _: CalendarPeriod.from_json(text),
    "fedldp plan": lambda text, _: Plan.from_json(text),
    "fedldp question": lambda text, _: Question.from_bytes(text.encode()),
    "fedldp rotated": lambda text, _: road.secret_in(text.encode()),
    "fedldp signed": lambda text, _: signing.read_unverified(text, "fedldp job"),
    "fedldp signed job": lambda text, _: SignedJob.unverified(signed(text)),
    "fedldp state": lambda text, _: State.from_json(text),
    "fedldp statement": lambda text, _: signing.read_unverified(signed(text), STATEMENT),
    "fedldp survey": lambda text, _: computations.check_format(text),
    "fedldp tally": tally,
    "fedldp training": training,
    "fedldp transparency": lambda text, _: Transparency.from_json(text),
}
JOBS = {"fedldp quantile job", "fedldp statistic job", "fedldp training job"}
IGNORED = {"fedldp agent state", "fedldp clock"}  # as if it were not there
PRINTED = {
    "fedldp error",
    "fedldp ledger overview",
    "fedldp quantile",
    "fedldp server doctor",
    "fedldp server status",
}


def test_there_is_a_reader_for_every_kind_of_document():
    kinds = {name.rpartition(" ")[0] for name in in_the_code()[0]}
    assert kinds == READERS.keys() | JOBS | IGNORED | PRINTED


@pytest.mark.parametrize("kind", READERS)
def test_a_newer_document_is_refused_by_its_name(kind, tmp_path):
    newer = f"{kind} 99"
    with pytest.raises(FedLDPError) as refused:
        READERS[kind](canonical({"format": newer, "what": "is new"}), tmp_path)
    assert f"it is a '{newer}', which a newer version of fedldp has written" in str(refused.value)


@pytest.mark.parametrize("kind", sorted(JOBS))
def test_a_newer_job_is_refused(kind):
    with pytest.raises(WireError, match=f"its format must be one of .*; got '{kind} 99'"):
        read_job(canonical({"format": f"{kind} 99", "what": "is new"}))


def test_a_vehicle_without_numpy_says_so_too():
    with pytest.raises(ValueError, match="it is a 'fedldp plan 99', which a newer version"):
        vehicle.Plan(PLAN.to_json().replace("fedldp plan 1", "fedldp plan 99"), 1)


DATABASES = {
    "ledger": lambda path: open_ledger(path, 1),
    "outbox of an agent": Outbox,
    "store of a server": SQLiteStore,
}


def test_there_is_an_opener_for_every_kind_of_database():
    assert {name.rpartition(" ")[0] for name in in_the_code()[1]} == DATABASES.keys()


@pytest.mark.parametrize("kind", DATABASES)
def test_a_newer_database_is_refused_and_left_alone(kind, tmp_path):
    path = tmp_path / "file"
    DATABASES[kind](path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(WireError, match=f"is a {kind} of format 99, .* newer version has written"):
        DATABASES[kind](path)
    assert path.read_bytes() == before


CONFIGURATIONS = {
    "agent.toml": lambda path: AgentSettings.load(path.parent),
    "schema.toml": lambda path: Schema.from_toml(path.read_text()),
    "server.toml": lambda path: ServerFolder.load(path.parent),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_newer_configuration_is_refused_before_its_entries_are_read(name, tmp_path):
    path = tmp_path / name
    path.write_text("format = 99\nnew = 1\n")
    with pytest.raises(DomainError, match=r"has format 99, .* A newer version has written it"):
        CONFIGURATIONS[name](path)


@pytest.mark.parametrize("given", ["0", "-1", "2.0", '"2"', "true", "[2]"])
def test_a_format_is_a_whole_number(given, tmp_path):
    (tmp_path / "agent.toml").write_text(f"format = {given}\n")
    with pytest.raises(DomainError, match="format must be a whole number from 1; got"):
        AgentSettings.load(tmp_path)


def test_an_attribute_may_be_called_format():
    schema = Schema.of(format=["a4", "a5"])
    assert Schema.from_toml(schema.to_toml()) == schema
    assert Schema.from_toml(f"speed = {{low = 0, high = 1}}\n{schema.to_toml()}")["format"].size


def test_newer_bytes_are_refused():
    data = bytearray(PLAN.tally().to_bytes())
    data[12] = 9
    with pytest.raises(WireError, match="it is a 'fedldp tally 9', which a newer version"):
        fedldp.Tally.from_bytes(bytes(data), PLAN)
    data = bytearray(PLAN.report([{"speed": 3}], fedldp.source(1)).to_bytes())
    data[0] = 9
    with pytest.raises(WireError, match="the format of a report must be 1"):
        PLAN.parse(bytes(data))
