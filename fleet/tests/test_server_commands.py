"""`fedldp server`, as an operator types it, and the process that it runs."""

import contextlib
import json
import os
import stat

import pytest
from click.testing import CliRunner
from engine_cases import FIXED, PLAN
from road_client import Client
from server_process import ServerProcess, wait_until

from fedldp.cli.app import fedldp
from fedldp.errors import DomainError
from fedldp.learn.model import Model
from fedldp.results.tally import from_json
from fedldp.signing import PrivateKey
from fedldp_fleet.jobs import TrainingJob, read_job
from fedldp_fleet.messages import AnswerVerdict
from fedldp_fleet.server.work import JobFile

ROWS = """
format = 2
[speed]
low = 0
high = 50
[load]
low = 0
high = 1
[late]
categories = ["no", "yes"]
"""


def run(*words, status=0):
    """Return what a command prints."""
    found = CliRunner().invoke(fedldp, ["server", *map(str, words)], catch_exceptions=True)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == status, found.output
    return found.output


@pytest.fixture
def server(tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "rows.toml").write_text(ROWS)
    made = ServerProcess(tmp_path / "server")
    yield made
    made.stop()


def job(server, kind, name, *words, **options):
    key = ("--key", server.path / "operator.key")
    return run("job", kind, name, "--server", server.path, *key, *words, **options)


def spring(server, vehicles):
    plan = server.path.parent / "plan.json"
    return job(server, "statistic", "spring", "--plan", plan, "--vehicles", vehicles)


def test_how_often_idle_agents_call_is_configured(server):
    assert server.folder.idle_poll == 300
    config = server.path / "server.toml"
    config.write_text(config.read_text() + "idle_poll = 20\n")
    assert server.folder.load(server.path).idle_poll == 20
    config.write_text(config.read_text().replace("= 20", "= 0"))
    with pytest.raises(DomainError, match="idle_poll must be from 1 to 3600 seconds"):
        server.folder.load(server.path)


def test_an_operator_asks_for_a_statistic_and_tops_it_up(server):
    assert "queued: 2 answers" in spring(server, 2)
    assert "Start it: fedldp server run" in run("status", server.path, status=1)
    server.start()
    codes = run("enroll", server.path, "car-1", "car-2", "car-3").split()
    assert [each.partition(":")[0] for each in codes] == ["car-1", "car-2", "car-3"]
    wait_until(lambda: server.read(lambda store: store.job("spring")).state == "running")
    with contextlib.ExitStack() as opened:
        cars = [Client.with_code(server, code) for code in codes]
        for each in cars:
            opened.callback(each.connection.close)
        said = [each.visit("spring") for each in cars]
        assert [each and each.verdict for each in said] == [AnswerVerdict.COUNTED] * 2 + [None]
        wait_until(lambda: server.read(lambda store: store.job("spring")).state == "done")
        assert "3 of 3 agents have joined" in run("status", server.path)
        assert "extended: 3 answers" in job(server, "more", "spring", "--vehicles", 3)
        found = wait_until(lambda: cars[2].visit("spring"))
        assert found.verdict is AnswerVerdict.COUNTED
        run("revoke", server.path, "car-1")
        with pytest.raises(AssertionError, match="401"):
            cars[0].call()
    wait_until(lambda: server.read(lambda store: store.job("spring")).state == "done")
    run("job", "result", server.path, "spring", "-o", server.path / "tally.json")
    assert from_json((server.path / "tally.json").read_text(), PLAN).reports == 3
    document = json.loads(run("status", server.path, "--json"))
    assert document["problems"] == []
    agents = {name: document["agents"][name] for name in ("enrolled", "joined", "revoked")}
    assert agents == {"enrolled": 3, "joined": 2, "revoked": 1}
    assert document["agents"]["vehicles"] == 2
    assert server.stop() == 0


def test_a_training_is_made_signed_and_added_in_three_places(server):
    rows, path = server.path.parent / "rows.toml", server.path.parent / "learn.job.json"
    run(
        *("job", "training", "learn", "--schema", rows, "--target", "late", "--task", "logistic"),
        *("--epsilon", 4, "--vehicles", 2000, "--paper", "--mechanism", "pm", "--group", 100),
        *("--rate", 0.25, "--tolerance", 1e-5, "--server", server.path / "server.pub"),
        *("-o", path),
    )
    made = JobFile.load(path).job
    assert isinstance(made, TrainingJob)
    optimizer = made.recipe.optimizer
    assert (made.group, made.rounds, made.recipe.rate, optimizer.tol) == (100, 20, 0.25, 1e-5)
    assert (optimizer.name, optimizer.estimator) == ("sgd", "horvitz-thompson")
    assert made.model_at_start.reference == "last"
    with pytest.raises(DomainError, match="is not signed"):
        run("job", "add", server.path, path)
    PrivateKey.generate().save(server.path / "other.key")
    run("job", "sign", path, "--key", server.path / "other.key")
    with pytest.raises(Exception, match="not signed by the expected key"):
        run("job", "add", server.path, path)
    assert "2,000 answers in 20 rounds" in run(
        "job", "sign", path, "--key", server.path / "operator.key"
    )
    assert "queued" in run("job", "add", server.path, path)
    assert read_job(server.read(lambda store: store.job("learn")).document) == made


def test_a_training_by_rule_surveys_and_divides_the_vehicles(server):
    rows = server.path.parent / "rows.toml"
    options = ("--schema", rows, "--target", "speed", "--task", "linear", "--epsilon", 4)
    job(server, "training", "by-rule", *options, "--vehicles", 20_000)
    made = read_job(server.read(lambda store: store.job("by-rule")).document)
    assert made.survey is not None
    assert made.target_surveyed > 0
    total = made.surveyed + made.target_surveyed + made.rounds * made.group
    assert 20_000 <= total < 20_000 + made.group
    assert isinstance(made.model_at_start, Model)


def test_a_network_that_trains_its_last_layer_is_surveyed_as_a_linear_model_is(server):
    folder = server.path.parent
    (folder / "fixed.json").write_text(FIXED.to_json())
    options = ("--schema", folder / "rows.toml", "--target", "late", "--epsilon", 4)
    job(
        *(server, "training", "head", "--network", folder / "fixed.json", *options),
        *("--vehicles", 20_000),
    )
    made = read_job(server.read(lambda store: store.job("head")).document)
    model = made.model_at_start
    assert (made.survey, made.surveyed, model.numbers) == ("scale", 2000, 3)
    assert (model.layers, made.recipe.optimizer.name) == (FIXED, "noise-aware")


def test_a_quantile_is_asked_for_in_twenty_rounds(server):
    rows = server.path.parent / "rows.toml"
    given = ("--schema", rows, "--quantile", 0.9, "--epsilon", 1, "--vehicles", 1010)
    assert "1,000 answers in 20 rounds" in job(
        server, "quantile", "fast", "--column", "load", *given
    )
    made = read_job(server.read(lambda store: store.job("fast")).document)
    assert (made.search.number.name, made.search.level) == ("load", 0.9)
    with pytest.raises(DomainError, match="--column must be a number"):
        job(server, "quantile", "late", "--column", "late", *given)
    rows.write_text(rows.read_text("utf-8").replace("[load]", '[load]\nrule = "maximum"'), "utf-8")
    with pytest.raises(DomainError, match="'load' must have no rule"):
        job(server, "quantile", "largest", "--column", "load", *given)


def test_a_running_job_is_not_replaced_by_accident(server):
    spring(server, 5)
    with pytest.raises(DomainError, match="there is a job 'spring' already"):
        spring(server, 3)
    with pytest.raises(DomainError, match="can only get more"):
        job(server, "more", "spring", "--vehicles", 3)


def test_a_folder_is_made_once_and_its_keys_are_private(server, tmp_path):
    with pytest.raises(DomainError, match="expected a new or empty folder"):
        run("init", server.path)
    for name in ("server.key", "operator.key", "tls.key", "server.db"):
        assert stat.S_IMODE((server.path / name).stat().st_mode) == 0o600
    mine = tmp_path / "operator.pub"
    PrivateKey.generate().public.save(mine)
    run("init", tmp_path / "offline", "--operator", mine, "--behind-proxy")
    assert not (tmp_path / "offline" / "operator.key").exists()
    assert not (tmp_path / "offline" / "tls.key").exists()


def test_a_second_server_for_one_folder_is_refused(server):
    server.start()
    with pytest.raises(DomainError, match="another process runs the server"):
        run("run", server.path)


def test_a_lost_store_is_not_made_anew(server):
    os.remove(server.path / "server.db")  # noqa: PTH107
    with pytest.raises(DomainError, match="Restore the last backup"):
        run("run", server.path)


def test_a_code_for_an_agent_that_has_joined_needs_again(server):
    [code] = run("enroll", server.path, "car-1", "--vehicles", 2).split()
    server.start()
    client = Client.with_code(server, code)
    client.connection.close()
    with pytest.raises(DomainError, match="has joined already, with 2 vehicles"):
        run("enroll", server.path, "car-1")
    assert run("enroll", server.path, "car-1", "--again").startswith("car-1:")
