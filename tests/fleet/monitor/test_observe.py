"""What a monitor finds in the folder of a real server: its results so far, and its problems."""

import datetime
import os
import warnings
from collections import namedtuple
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from monitored import SERVER, VAULT, Given

import fedldp
from fedldp import datasets
from fedldp._internal import packing
from fedldp.errors import DataWarning
from fedldp.fleet import status
from fedldp.fleet.add_job import add_job
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.insight import ROWS, estimates
from fedldp.fleet.job import Job
from fedldp.fleet.monitor import observe
from fedldp.fleet.monitor.observe import Disk, Observer, certificates
from fedldp.fleet.protocol import Answer
from fedldp.fleet.server.checkpoint import Reader
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.stages import Learned
from fedldp.learn.optimizer import observed
from fedldp.learn.settings import Settings

GATEWAYS, VEHICLES = 2, 100


def fleet(folder, objective=None, survey=None):
    """Write a fleet; return the folder of its server, and its job."""
    data = datasets.load("flights", rows=GATEWAYS * VEHICLES)
    data = replace(data, reference=Settings.reference)
    work = Work.on_data_set(data, objective, GATEWAYS, 2, {"rows": len(data)})
    job = init(folder / "fleet", work, Settings(4.0, survey=survey), GATEWAYS, Place())
    return folder / "fleet" / "server", job


def answer(running, gateway, seed=1):
    """Have a gateway answer the open round; return the records as a report."""
    question = running.questions()[gateway]
    plan = running.job.plan_of(running.number)
    rows = np.zeros((question.n, sum(each.size for each in plan.schema.attributes)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # these are not the values of flights
        found = plan.report(rows, fedldp.source(seed))
    records = packing.parse(found.records, question.n, plan.bits).split()
    running.receive(question, Answer.of(question, records).to_bytes())
    return found


class Later:
    """An observer whose clock moves by a minute before each look."""

    def __init__(self, folder):
        self._now = 0.0
        self._observer = Observer(folder, clock=lambda: self._now)

    def part(self):
        self._now += 60.0
        (part,) = self._observer.look()["parts"]
        return part

    def result(self):
        return self.part()["result"]


def test_the_estimates_of_a_statistic_so_far(tmp_path):
    folder, job = fleet(tmp_path)
    observer = Later(folder)
    assert observer.result() is None
    with closing(Rounds(job)) as running:
        running.ask(["11", "12"])
        assert observer.result() is None
        first = answer(running, "11")
        tally = job.plan.tally() + first
        assert observer.result() == estimates(tally, job.plan.schema).document() | {"rounds": [1]}
        tally += answer(running, "12", seed=2)
        found = observer.result()
        assert found["title"] == "Estimates from 200 reports"
        assert found == estimates(tally, job.plan.schema).document() | {"rounds": [1]}
    part = observer.part()
    assert (part["job"]["task"], part["job"]["reports"]) == ("statistics", 200)


def spent(folder):
    """Return what the status, and with it the page, says about the jobs of a server."""
    [found] = status.read(folder)
    assert Later(folder).part()["spent"] == found.document()["spent"]
    return found.document()["spent"]


def test_what_each_job_has_cost(tmp_path):
    """Also the jobs before, and those that have not begun; nothing that is not a job."""
    folder, job = fleet(tmp_path)
    (folder / "other.toml").write_text("data = 1")
    (folder / "damaged.toml").write_text("= 1")
    first = {"job": "flights", "state": "not begun", "epsilon": "4", "answers": 0}
    assert spent(folder) == [first]
    with closing(Rounds(job)) as running:
        running.ask(["11", "12"])
        answer(running, "11")
        assert spent(folder) == [first | {"state": "asking", "answers": VEHICLES}]
        answer(running, "12")
        running.step()
        running.finish()
    first |= {"state": "done", "answers": 2 * VEHICLES}
    add_job(ServerConfig.load(folder), "autumn", None, Settings(4.0))
    second = first | {"job": "autumn", "state": "not begun", "answers": 0}
    assert spent(folder) == [second, first]
    with closing(Rounds(Job.load(folder / "autumn.toml", signed=False))) as running:
        running.ask(["11"])
        answer(running, "11")
    second |= {"state": "asking", "answers": VEHICLES}
    os.utime(folder / "job.toml", None)  # the current job comes first, whatever was changed last
    assert spent(folder) == [second, first]
    rows = dict(status.read(folder)[0].rows)
    assert rows["other job"] == "flights: done, epsilon 4, 200 answers"

    job.checkpoint.unlink()  # it may be removed when its job is done: the summary stays
    assert spent(folder) == [second, first]
    job.summary.write_text("damaged")
    (folder / "plan.json").write_text("damaged")
    unknown = {"state": "cannot be read", "epsilon": None, "answers": None}
    assert spent(folder)[1] == first | unknown


def test_a_job_that_was_left_is_stopped_or_failed(tmp_path):
    folder, job = fleet(tmp_path)
    with closing(Rounds(job)) as running:
        running.ask(["11"])
        answer(running, "11")
    for name, ended in (("b", False), ("c", True)):
        text = (folder / "job.toml").read_text().replace("flights", name)
        (folder / f"{name}.toml").write_text(text.replace("job.db", f"{name}.db"))
        with closing(Rounds(Job.load(folder / f"{name}.toml", signed=False))) as running:
            running.ask(["11"])
            if ended:
                running._end("nothing to learn from", failed=True)
    found = {each["job"]: (each["state"], each["answers"]) for each in spent(folder)}
    assert found == {"flights": ("asking", VEHICLES), "b": ("stopped", 0), "c": ("failed", 0)}


def test_many_other_jobs_are_summed_up_for_people(tmp_path):
    folder, _ = fleet(tmp_path)
    text = (folder / "job.toml").read_text()
    for number in range(8):
        other = text.replace("flights", f"job-{number}").replace("job.db", f"{number}.db")
        (folder / f"{number}.toml").write_text(other)
    assert len(spent(folder)) == 9
    others = [value for name, value in status.read(folder)[0].rows if name.startswith("other")]
    assert len(others) == 6
    assert others[-1] == "3 more: see --json"


def test_a_long_table_is_cut(tmp_path):
    folder, job = fleet(tmp_path)
    with closing(Rounds(job)) as running:
        running.ask(["11"])
        answer(running, "11")
    found = Later(folder).result()
    lines = sum(len([*each.shown.lines()]) for each in job.plan.tally().estimate().values())
    assert len(found["rows"]) == min(lines, ROWS)
    assert found["more"] == max(0, lines - ROWS)


def test_the_noise_of_a_training(tmp_path):
    folder, job = fleet(tmp_path, "logistic")
    observer = Later(folder)
    with closing(Rounds(job)) as running:
        running.ask(["11", "12"])
        report = answer(running, "11")
        tally = job.plan.tally() + report
        rows = {row["name"]: row["value"] for row in observer.result()["rows"]}
        found = observed([tally])
        assert rows["Length of the mean gradient"] == pytest.approx(
            np.sqrt((found.gradient**2).sum())
        )
        noise = rows["Length of the noise in it"]
        assert noise == pytest.approx(np.sqrt(np.broadcast_to(found.variance, (1, 36)).sum()))
        assert "Length of the last step" not in rows, "there was none"
        answer(running, "12", seed=2)
        running.step()
        found = observer.result()
        assert found["rounds"] == [1]
        rows = {row["name"]: row["value"] for row in found["rows"]}
        state = Learned.from_json(running._file.standing.state).state
        assert rows["Length of the last step"] == state.change[0]


def test_the_noise_is_what_the_mean_gradient_of_nothing_is(tmp_path):
    """Vehicles whose gradients are 0: the mean gradient is noise, as long as the page says.

    The mean square of 200 such lengths, of 36 coordinates, is within 10% of the expectation: its
    standard deviation is about sqrt(2 / (200 * 36)) = 1.7%, as for a normal law: six of these.
    """
    _, job = fleet(tmp_path, "logistic")
    (stage,) = job.stages
    squares, said = [], []
    for seed in range(200):
        tally = job.plan.tally() + job.plan.report(np.zeros((200, 36)), fedldp.source(seed))
        rows = {row.name: row.value for row in stage.insight(Learned(), [tally]).rows}
        squares.append(rows["Length of the mean gradient"] ** 2)
        said.append(rows["Length of the noise in it"] ** 2)
    assert np.mean(squares) == pytest.approx(np.mean(said), rel=0.1)


def test_a_survey_says_what_it_is_for(tmp_path):
    folder, job = fleet(tmp_path, "logistic", survey="scale")
    with closing(Rounds(job)) as running:
        running.ask(["11"])
        answer(running, "11")
    found = Later(folder).result()
    assert found["title"] == "A survey of centres"
    assert found["rows"] == ()


def test_answers_are_counted_once(tmp_path, monkeypatch):
    folder, job = fleet(tmp_path)
    with closing(Rounds(job)) as running:
        running.ask(["11", "12"])
        answer(running, "11")
        reader = Reader(job.checkpoint)
        counted = []
        plan = type(job.plan)
        monkeypatch.setattr(
            plan, "parse", lambda *given, real=plan.parse: counted.append(1) or real(*given)
        )
        assert reader.latest(job.stages).tallies[0].reports == VEHICLES
        answer(running, "12")
        before = len(counted)
        assert reader.latest(job.stages).tallies[0].reports == 2 * VEHICLES
        assert reader.latest(job.stages).rounds == range(1, 2)
        assert len(counted) == before + 1
    assert Reader(folder / "missing.db").latest(job.stages) is None


def test_callers_cannot_make_it_look_often(tmp_path):
    looks, now = [], [0.0]
    observer = Observer(
        tmp_path, read=lambda _: looks.append(1) or [Given(VAULT)], clock=lambda: now[0]
    )
    for _ in range(100):
        observer.look()
    assert len(looks) == 1
    now[0] += observe.EVERY
    observer.look()
    assert len(looks) == 2


def test_a_look_that_takes_long_is_rare(tmp_path):
    """A look at a large ledger that takes two seconds is repeated after eight."""
    now, looks = [0.0], []

    def read(_):
        now[0] += 2.0
        looks.append(now[0])
        return [Given(VAULT)]

    observer = Observer(tmp_path, read=read, clock=lambda: now[0])
    while now[0] < 100:
        observer.look()
        now[0] += 1.0
    assert len(looks) in (10, 11)


def test_results_take_a_fifth_of_the_time(tmp_path, monkeypatch):
    """A result that takes a second is computed again after four, however many reports come."""
    (tmp_path / "server.toml").touch()
    now, computed, reports = [0.0], [], [0]

    def compute(_):
        now[0] += 1.0
        computed.append(now[0])

    def read(_):
        reports[0] += 1
        job = SERVER["job"] | {"reports": reports[0]}
        return [Given(SERVER | {"job": job})]

    monkeypatch.setattr(observe._Result, "_compute", compute)
    observer = Observer(tmp_path, read=read, clock=lambda: now[0])
    while now[0] < 100:
        observer.look()
        now[0] += observe.EVERY
    assert len(computed) in range(15, 21)


class TestProblems:
    def problems(self, tmp_path, *documents):
        return Observer(tmp_path, read=lambda _: map(Given, documents)).look()["problems"]

    def test_a_part_that_does_not_run(self, tmp_path):
        assert self.problems(tmp_path, SERVER, VAULT) == []
        stopped = SERVER | {"running": False}
        assert self.problems(tmp_path, stopped) == ["server is not running"]
        assert self.problems(tmp_path, VAULT | {"running": False}) == ["vault-1 is not running"]

    @pytest.mark.parametrize("state", ["done", "failed"])
    def test_a_server_whose_job_is_over_may_end(self, tmp_path, state):
        over = SERVER | {"running": False, "job": SERVER["job"] | {"state": state}}
        assert self.problems(tmp_path, over) == []

    def test_a_file_that_cannot_be_read(self, tmp_path):
        found = self.problems(tmp_path, VAULT | {"unreadable": ["ledger.db is damaged"]})
        assert found == ["ledger.db is damaged"]

    def test_a_real_damaged_ledger(self, tmp_path):
        server, _ = fleet(tmp_path)
        vault = server.parent / "vault-1"
        (vault / "ledger.db").write_bytes(b"not a ledger")
        found = Observer(vault).look()["problems"]
        assert any("not a valid ledger" in each for each in found), found

    def test_a_folder_that_is_not_of_a_fleet(self, tmp_path):
        (found,) = Observer(tmp_path).look()["problems"]
        assert "cannot be read: expected the folder of a part" in found

    def test_a_disk_that_is_nearly_full(self, tmp_path, monkeypatch):
        space = namedtuple("space", "f_bavail f_frsize f_blocks")
        monkeypatch.setattr(os, "statvfs", lambda _: space(4, 4096, 100))
        found = self.problems(tmp_path, SERVER)
        assert found == ["the disk of server is nearly full: 4% is free"]
        monkeypatch.setattr(os, "statvfs", lambda _: space(5, 4096, 100))
        assert self.problems(tmp_path, SERVER) == []


@pytest.mark.parametrize("free", [0, 1, 4095, 4096, 10**12])
def test_a_vault_shows_its_disk_coarsely(tmp_path, monkeypatch, free):
    space = namedtuple("space", "f_bavail f_frsize f_blocks")
    monkeypatch.setattr(os, "statvfs", lambda _: space(free, 1, 10**13))
    assert Disk.of(tmp_path, coarse=False).free == free
    coarse = Disk.of(tmp_path, coarse=True).free
    assert coarse <= free < 2 * coarse or free == coarse == 0
    assert coarse & (coarse - 1) == 0


def test_when_certificates_expire(tmp_path):
    server, _ = fleet(tmp_path)
    for folder, names in (
        (server, {"ca.crt", "server.crt"}),
        (server.parent / "gateway-1", {"ca.crt"}),
    ):
        found = dict(certificates(folder))
        assert found.keys() == names
        for expires in found.values():
            left = datetime.datetime.fromisoformat(expires) - datetime.datetime.now(datetime.UTC)
            assert datetime.timedelta(days=3640) < left < datetime.timedelta(days=3660)
    assert dict(certificates(server.parent / "vault-1")) == {}
    (server / "server.crt").write_text("damaged")
    assert dict(certificates(server)).keys() == {"ca.crt"}


def test_parts_of_a_fleet_have_their_own_folders(tmp_path):
    server, _ = fleet(tmp_path)
    parts = {each["name"]: each for each in Observer(server.parent).look()["parts"]}
    assert parts.keys() == {"server", "gateway-1", "gateway-2", "vault-1", "vault-2"}
    assert parts["server"]["certificates"].keys() == {"ca.crt", "server.crt"}
    assert parts["vault-1"]["certificates"] == {}
