"""What came of a job: a result and its summary, or a failure that says what happened."""

import hashlib
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from gateways import Network, batch, honest, mute, result, statistic, training

from fedldp.cli.app import fedldp
from fedldp.cli.fleet.parts import FAILED
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet.flower.messages import packed
from fedldp.fleet.job import Job
from fedldp.fleet.server import checkpoint, rounds
from fedldp.fleet.server.checkpoint import Counts
from fedldp.fleet.server.summary import Summary, shortfalls
from fedldp.fleet.server.watch import EVERY, Watch, ending
from fedldp.learn.optimizer import SGD, Adam, Recipe


def broke(question, _):
    """A gateway behind which nobody can answer."""
    yield packed(batch(question, 0))


def some(question, _):
    yield packed(batch(question, 5, silent=2))


def summary(job):
    return Summary.load(job.summary)


# A job that collected nothing


@pytest.mark.parametrize("kind", [training, statistic])
def test_a_job_that_collected_nothing_has_failed(kind, tmp_path):
    job, network = kind(tmp_path), Network(broke, broke, broke)
    with pytest.raises(DomainError, match="24 vehicles asked, 0 answered, 0 silent, 24 refused"):
        network.start(job)
    assert not job.result.exists()
    progress = checkpoint.status(job.checkpoint)
    assert (progress.failed, progress.ended) == (True, rounds.NOTHING)
    found = summary(job)
    assert (found.failed, found.complete, found.result) == (True, False, "")
    assert (found.planned, found.total, found.done) == (job.expected, Counts(24, 0, 24, 0), 0)
    sent = len(network.sent)
    with pytest.raises(DomainError, match="has failed: no vehicle answered"):
        network.start(job)
    assert len(network.sent) == sent  # nobody is asked again
    assert not job.result.exists()


def test_the_result_of_an_earlier_job_stays(tmp_path):
    first = training(tmp_path)
    Network(honest, honest, honest).start(first)
    second = replace(first, name="second", checkpoint=tmp_path / "second.db")
    before = first.result.read_bytes(), first.summary.read_bytes()
    with pytest.raises(DomainError, match="has failed"):
        Network(broke, broke, broke).start(second)
    assert (first.result.read_bytes(), first.summary.read_bytes()) == before
    said = ending(checkpoint.status(second.checkpoint), second, tmp_path)
    assert f"{second.result} belongs to another job" in said
    assert list(shortfalls(second.result)) == []  # the failed job's summary is not that file's


def test_a_gateway_that_is_silent_keeps_a_round_open(tmp_path):
    """Others may have refused: the silent one may still answer."""
    job, network = training(tmp_path, rounds=1), Network(broke, mute, broke)

    def come():
        if network.now == 500:
            network.gateways[11] = honest

    network.after_sleep = come
    network.start(job)
    assert network.now >= 500
    assert summary(job).total == Counts(24, 8, 16, 0)


# A job that collected fewer reports than planned


def test_a_complete_job_says_so(tmp_path):
    job = training(tmp_path)
    Network(honest, honest, honest).start(job)
    found = summary(job)
    assert (found.complete, found.failed, found.reason) == (True, False, rounds.ROUNDS)
    assert found.rounds == (Counts(24, 24),) * 3
    assert found.result == hashlib.sha256(job.result.read_bytes()).hexdigest()
    assert job.result.read_text() == result(job).to_json()  # nothing was added to it
    assert list(shortfalls(job.result)) == []


def test_when_nobody_is_left_the_reports_so_far_count(tmp_path):
    def once(question, _):
        yield packed(batch(question, 8 if question.round == 1 else 0))

    job = training(tmp_path)
    Network(once, once, once).start(job)
    found = summary(job)
    assert (found.complete, found.failed, found.reason) == (False, False, rounds.NOBODY)
    assert (found.rounds, found.done) == ((Counts(24, 24), Counts(24, 0, 24)), 1)
    assert found.planned == 72
    assert result(job).weights != job.model.weights
    said = ending(checkpoint.status(job.checkpoint), job, tmp_path / "logs")
    assert "24 of 72 planned reports: 48 vehicles asked, 24 answered" in said
    assert "fewer reports than planned" in said
    for path in (job.log, tmp_path / "logs", job.summary):
        assert str(path) in said


def test_a_model_that_settles_early_misses_nobody(tmp_path):
    recipe = Recipe(SGD(0.5, schedule="inverse", momentum=0.0, tol=0.05))
    job = training(tmp_path, recipe=recipe, rounds=500)
    Network(honest, honest, honest).start(job)
    found = summary(job)
    assert (found.complete, found.reason) == (False, rounds.SETTLED)
    said = ending(checkpoint.status(job.checkpoint), job, tmp_path / "logs")
    assert "the model has settled" in said
    assert "fewer reports than planned" in said
    assert "refuse when" not in said


def test_who_misses_the_deadline_was_silent(tmp_path):
    """Whole gateways, and vehicles behind a vault that said nothing: both are counted."""
    job = training(tmp_path, rounds=1)
    Network(some, mute, honest).start(job)
    found = summary(job)
    assert (found.total, found.complete) == (Counts(24, 13, 1, 10), False)
    assert checkpoint.status(job.checkpoint).total == found.total


def test_a_training_that_leaves_all_bounds_says_so(tmp_path):
    job = training(tmp_path, recipe=Recipe(Adam(0.1), alpha=1e200))
    with pytest.raises(FedLDPError):
        Network(honest, honest, honest).start(job)
    found = summary(job)
    assert (found.failed, found.result) == (True, "")
    assert found.reason.startswith("in round ")
    assert found.answered == 24 * (found.done + 1)


@pytest.mark.parametrize(("planned", "complete"), [(0, False), (23, False), (22, True)])
def test_a_fleet_may_have_fewer_vehicles_than_are_asked_for(planned, complete, tmp_path):
    """The reports of a round are rounded up, so the last vehicles are missing in a whole job."""

    def few(question, _):
        yield packed(batch(question, 6 if question.gateway == "10" else 8))

    job = training(tmp_path, rounds=1, planned=planned)
    Network(few, few, few).start(job)
    found = summary(job)
    assert (found.planned, found.answered) == (planned or 24, 22)
    assert found.complete is complete


def test_what_is_planned(tmp_path):
    assert training(tmp_path).expected == 72
    assert training(tmp_path, planned=70).expected == 70
    assert training(tmp_path, planned=70, rounds=2).expected == 48  # no more than is asked for
    for wrong in (-1, True, 1.5, "70"):
        with pytest.raises(DomainError, match="planned"):
            training(tmp_path, planned=wrong)
    assert training(tmp_path, planned=70).settings == training(tmp_path).settings


def test_a_summary_needs_a_file_of_its_own(tmp_path):
    for name in ("checkpoint", "result"):
        with pytest.raises(
            DomainError, match=r"test\.summary\.json is the file of the job's summary"
        ):
            training(
                tmp_path,
                **{"checkpoint": tmp_path / "a", "result": tmp_path / "b"}
                | {name: tmp_path / "test.summary.json"},
            )


# The file


FOUND = Summary("job", "ab", 9, (Counts(9, 5, 1, 3),), 1, "all rounds are done", result="cd")


@pytest.mark.parametrize(
    "change",
    [
        {"answered": 6},
        {"complete": True},
        {"format": "fedldp job summary 2"},
        {"more": 1},
        {"rounds": 3},
        {"rounds": [{"asked": 9}]},
        {"planned": "9"},
    ],
)
def test_a_summary_that_contradicts_itself(change):
    assert Summary.from_json(FOUND.to_json()) == FOUND
    with pytest.raises(WireError, match="not a 'fedldp job summary 1'"):
        Summary.from_json(json.dumps(json.loads(FOUND.to_json()) | change))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[" * 10**5])
def test_an_invalid_summary(text, tmp_path):
    with pytest.raises(WireError, match="not a 'fedldp job summary 1'"):
        Summary.from_json(text)
    (tmp_path / "x.summary.json").write_text(text)
    (tmp_path / "model.json").write_text("model")
    assert list(shortfalls(tmp_path / "model.json")) == []


def test_who_uses_a_result_learns_what_is_missing(tmp_path):
    """Also after both files were moved; and only of the file that the summary is about."""
    job = statistic(tmp_path)
    Network(some, mute, honest).start(job)
    (tmp_path / "plan.json").write_text(job.plan.to_json())
    moved = job.result.rename(tmp_path / "other.json")
    done = CliRunner().invoke(fedldp, ["estimate", str(tmp_path / "plan.json"), str(moved)])
    assert done.exit_code == 0, done.output
    assert "sums collected fewer reports than planned: 13 of 24" in done.stderr
    job.plan.tally().save(moved)
    assert list(shortfalls(moved)) == []


def test_who_uses_a_model_learns_what_is_missing(tmp_path):
    job = training(tmp_path, rounds=1)
    Network(some, mute, honest).start(job)
    (tmp_path / "rows.csv").write_text("speed,load\n31,0.5\n")
    words = ["predict", str(job.result), str(tmp_path / "rows.csv")]
    done = CliRunner().invoke(fedldp, words)
    assert done.exit_code == 0, done.output
    assert "fewer reports than planned: 13 of 24" in done.stderr
    assert "fewer" not in done.stdout


# What the terminal says


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def watched(job, network):
    """Run a job while somebody watches; return what was said, and when."""
    clock, said = Clock(), []
    watch = Watch(job, lambda line: said.append((clock.now, line)), clock=clock)
    before = network.after_sleep

    def look():
        before()
        clock.now = network.now
        watch.look(checkpoint.status(job.checkpoint))

    watch.look(None)
    network.after_sleep = look
    return said


def test_the_terminal_says_what_a_job_waits_for(tmp_path):
    """For gateways; for answers; and after the deadline, as long as no answer has come."""
    job, network = training(tmp_path, rounds=2), Network(mute, mute, mute)
    network.absent = {10, 11, 12}

    def come():
        network.absent = {10, 11, 12} if network.now < 100 else set()
        if network.now >= 400:
            network.gateways = dict.fromkeys(network.gateways, honest)

    network.after_sleep = come
    said = watched(job, network)
    network.start(job)
    times = [time for time, _ in said]
    gaps = [b - a for a, b in zip([0, *times], [*times, network.now], strict=True)]
    assert max(gaps) <= EVERY + 2.5  # of the network's own clock, which looks every 2.5 seconds
    lines = [line for _, line in said]
    assert lines[0] == (f"Round 1 of 2: waiting for 3 gateways to connect (30 s). See {job.log}")
    asked = [line for line in lines if line.startswith("Round 1 of 2: 0 of 3 gateways have")]
    assert asked[0].endswith("answered (18 s).")
    late = [line for line in asked if "no vehicle has answered" in line]
    assert "(78 s)." in late[0]
    assert "The deadline of 60 s has passed" in late[0]
    assert "the same question is sent again" in late[0]
    assert len(late) > 3


def test_the_terminal_says_what_came_of_each_round(tmp_path):
    job, network = training(tmp_path, rounds=3), Network(some, mute, honest)
    said = watched(job, network)
    network.start(job)
    rounds_ = [line for _, line in said if "is done" in line]
    counts = "24 vehicles asked, 13 answered, 10 silent, 1 refused or absent."
    assert rounds_ == [f"Round {i} of 3 is done: {counts}" for i in (1, 2)]  # then it ends


def folder_of(job, folder):
    """Write the folder of a server with this job."""
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(job.plan.to_json())
    (folder / "model.json").write_text(job.model.to_json())
    entries = {
        "job": job.name,
        "plan": "plan.json",
        "model": "model.json",
        "gateways": job.gateways,
        "reports": job.reports,
        "rounds": job.rounds,
        "checkpoint": str(job.checkpoint),
        "result": str(job.result),
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in entries.items()]
    (folder / "job.toml").write_text("\n".join([*lines, "recipe = {rate = 0.2}"]))
    names = ("authority", "certificate", "key", "gateways", "app")
    files = [f'{name} = "x"' for name in names]
    lines = ['front = "127.0.0.1:1"', "link = 1", 'job = "job.toml"', *files]
    (folder / "server.toml").write_text("\n".join(lines))
    return str(folder)


def serve(job, folder):
    return CliRunner().invoke(fedldp, ["fleet", "server", folder_of(job, folder)])


def test_a_server_ends_with_status_3_if_its_job_has_failed(tmp_path):
    """Whenever it is started: nothing else is, as nothing can come of it."""
    job = training(tmp_path)
    with pytest.raises(DomainError):
        Network(broke, broke, broke).start(job)
    done = serve(job, tmp_path / "server")
    assert done.exit_code == FAILED == 3
    assert "0 of 72 planned reports: 24 vehicles asked, 0 answered" in done.stderr
    assert "24 refused or absent" in done.stderr
    assert str(job.log) in done.stderr
    assert "see its own log" in done.stderr
    assert not (tmp_path / "server" / "state").exists()


def test_a_server_says_what_came_of_a_job_that_is_over(tmp_path):
    job = training(tmp_path)
    Network(some, mute, honest).start(job)
    done = serve(job, tmp_path / "server")
    assert done.exit_code == 0, done.output
    assert "39 of 72 planned reports: 72 vehicles asked, 39 answered, 30 silent" in done.stderr
    assert "fewer reports than planned" in done.stderr
    assert str(job.result) in done.stderr


def test_a_job_that_another_version_ended_with_nothing_has_failed_too(tmp_path):
    job = training(tmp_path)
    with checkpoint.Checkpoint(job.checkpoint, job.name, job.settings, "start") as file:
        file.end(rounds.NOBODY)
    assert serve(job, tmp_path / "server").exit_code == FAILED


def test_a_checkpoint_of_another_job_is_refused_before_anything_starts(tmp_path):
    """Its end is not taken for that of the new job."""
    first = training(tmp_path)
    Network(honest, honest, honest).start(first)
    second = training(tmp_path, reports=9)
    done = serve(second, tmp_path / "server")
    assert isinstance(done.exception, DomainError)
    assert "Give a new job another checkpoint" in str(done.exception)


def test_a_plan_or_model_is_not_overwritten_by_the_summary(tmp_path):
    job = training(tmp_path)
    folder = tmp_path / "server"
    folder_of(job, folder)
    path = job.result.with_name("test.summary.json")
    path.parent.mkdir()
    path.write_text(job.plan.to_json())
    text = (folder / "job.toml").read_text().replace('"plan.json"', json.dumps(str(path)))
    (folder / "job.toml").write_text(text)
    with pytest.raises(DomainError, match="the job would overwrite the file of its plan"):
        Job.load(folder / "job.toml")
