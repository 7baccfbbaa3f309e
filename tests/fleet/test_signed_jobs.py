"""A vault that holds the operator's key answers what the operator has signed, and nothing else."""

import datetime
import hashlib
import json
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from signed import DAY, KEY, NOW, OTHER, job, pinned_vault, signed, statistic, surveyed
from vaults import FEATURES, GRADIENT, MODEL, ROWS, SCHEMA, lines
from vaults import vault as make_vault

from fedldp import Plan, Schema
from fedldp import signing as signatures
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, FedLDPError, WireError
from fedldp.fleet import signing, transparency
from fedldp.fleet.job import Job
from fedldp.fleet.protocol import FORMAT_2, MOST_BYTES, Question
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.signed_jobs import FORMAT, SignedJob
from fedldp.fleet.vault import vault as vault_module
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.layers import Activation, Dense
from fedldp.learn.model import Model
from fedldp.learn.networks import Network
from fedldp.signing import PrivateKey, PublicKey, sign


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    now = [NOW]
    for module in (vault_module, signing):
        monkeypatch.setattr(module, "_now", lambda: now[0])
    return now


@pytest.fixture
def pinned(tmp_path):
    """Return a vault that holds the operator's public key."""
    return pinned_vault(tmp_path / "ledger")


def check_refused(vault, question, why, monkeypatch):
    """Check that a question is refused before anything is drawn, computed or spent."""
    with monkeypatch.context() as patch:
        patch.setattr(type(vault), "_answer", lambda *_: pytest.fail("it was computed"))
        patch.setattr(vault, "_source", None)  # nothing can be drawn
        with pytest.raises(FedLDPError, match=why):
            vault.answer(question)
    assert lines(vault) == []


# What is covered is answered.


@pytest.mark.parametrize("make", [job, statistic, surveyed])
def test_every_round_of_a_signed_job_is_answered(pinned, tmp_path, make):
    one = signed(make(tmp_path))
    for number in range(1, one.rounds + 1):
        question = one.question("7", number)
        again = Question.from_bytes(question.to_bytes())
        assert again == question
        assert pinned.answer(again).answered == question.n


def test_the_plans_of_levels_are_asked_in_turn(pinned, tmp_path, monkeypatch):
    bold = Plan(GRADIENT.schema, 2.0, mechanism="three-outputs", k=3)
    one = signed(job(tmp_path, levels=[bold], rounds=4))
    swapped = replace(one.question("7", 1), plan=bold.to_json())
    check_refused(pinned, swapped, "plan of the question is not the one", monkeypatch)
    for number in range(1, 5):
        assert pinned.answer(one.question("7", number)).answered == 3


def test_what_changes_from_round_to_round_is_not_covered(pinned, tmp_path):
    """Weights, the scaling of a model, n and the gateway."""
    one = signed(surveyed(tmp_path))
    learned = replace(MODEL, weights=[0.25] * len(MODEL.weights))
    for number, question in enumerate(
        (
            replace(one.question("7", 3, learned), n=8),
            one.question("8", 4, replace(learned, scaling=one.actual_survey.start)),
        )
    ):
        assert pinned.answer(question).answered == (8, 3)[number]


def test_a_vault_without_a_key_answers_as_before(tmp_path):
    vault = make_vault(tmp_path / "ledger", cap=100.0)
    assert vault.answer(job(tmp_path).question("7", 1)).answered == 3
    # Not even a wrong signature matters to it, because it knows no operator.
    other = replace(job(tmp_path), name="summer")
    assert vault.answer(signed(other, OTHER).question("7", 1)).answered == 3


# A server that was taken over.

HUGE = Plan(GRADIENT.schema, 16.0, mechanism="three-outputs", k=3)
HINGE = replace(MODEL, objective="hinge")

ATTACKS = {
    "a plan with another epsilon": (
        lambda q: replace(q, plan=HUGE.to_json()),
        "plan of the question is not the one that the operator has signed",
    ),
    "a plan for the rows": (
        lambda q: replace(q, plan=ROWS.to_json(), model=""),
        "plan of the question is not the one",
    ),
    "the rows through the signed plan": (
        lambda q: replace(q, model=""),
        "compute something else than the operator has signed",
    ),
    "another objective": (
        lambda q: replace(q, model=HINGE.to_json()),
        "compute something else",
    ),
    "another target": (
        lambda q: replace(q, model=_with(MODEL, target=["yes", "no"]).to_json()),
        "compute something else",
    ),
    "other attributes": (
        lambda q: replace(q, model=_other_features().to_json()),
        "compute something else",
    ),
    "another bound of an attribute": (
        lambda q: replace(q, model=_with(MODEL, speed=(0, 99)).to_json()),
        "compute something else",
    ),
    "a round beyond the last": (
        lambda q: replace(q, round=4),
        "has signed 3 rounds; the question is of round 4",
    ),
    "a round far beyond": (lambda q: replace(q, round=1 << 31), "has signed 3 rounds"),
    "another name": (lambda q: replace(q, job="summer"), "the job 'spring', and not 'summer'"),
    "a name that comes before": (lambda q: replace(q, job="Spring"), "and not 'Spring'"),
    "no signature": (lambda q: replace(q, signed=""), "the question has no signature"),
    "rubbish": (lambda q: replace(q, signed="{}"), "use the text as fedldp wrote it"),
    "an altered text": (
        lambda q: replace(q, signed=q.signed.replace('"rounds":3', '"rounds":9'), round=4),
        "the signature is wrong",
    ),
    "a later expiry": (
        lambda q: replace(q, signed=q.signed.replace("2027-01-02", "2037-01-02")),
        "the signature is wrong",
    ),
}


def _with(model, target=None, **attributes):
    """Return a model with other categories of its target, or other bounds of its attributes."""
    if target is not None:
        return replace(model, target=Schema.of(late=target)["late"])
    changed = Schema.of(**attributes)
    return replace(
        model,
        schema=Schema(
            tuple(
                changed[each.name] if each.name in attributes else each
                for each in model.schema.attributes
            )
        ),
    )


def _other_features():
    """Return a model of another schema with as many weights, so that the plan still fits."""
    size = {"low": -1, "high": 1, "size": len(MODEL.weights) - 1}
    return Model("logistic", Schema.of(x=size), SCHEMA["late"], MODEL.weights)


@pytest.mark.parametrize("name", ATTACKS)
def test_a_server_that_was_taken_over_gets_nothing(pinned, tmp_path, name, monkeypatch):
    change, why = ATTACKS[name]
    check_refused(pinned, change(signed(job(tmp_path)).question("7", 1)), why, monkeypatch)


def test_layers_are_covered(pinned, tmp_path, monkeypatch):
    network = Network((len(MODEL.weights) - 1,), (Dense(2), Activation("tanh")), MODEL.goal)
    model = replace(MODEL, layers=network, weights=network.start(1).tolist())
    plan = Plan(Schema.vector(model.dimensions, 1.0), 1.0, mechanism="three-outputs", k=3)
    one = signed(job(tmp_path, model=model, plan=plan))
    other = replace(network, layers=(Dense(2), Activation("relu")))
    question = replace(one.question("7", 1), model=replace(model, layers=other).to_json())
    check_refused(pinned, question, "other layers", monkeypatch)
    assert pinned.answer(one.question("7", 1)).answered == 3


@pytest.mark.parametrize(("place", "taken"), [(1, 2), (2, 1), (1, 3), (3, 1)])
def test_stages_cannot_be_exchanged(pinned, tmp_path, place, taken, monkeypatch):
    """The survey's questions belong to their rounds, and gradients to theirs."""
    one = signed(surveyed(tmp_path))
    question = replace(one.question("7", taken), round=place)
    check_refused(pinned, question, "not the one|something else", monkeypatch)


def test_a_statistic_asks_for_the_signed_attributes_only(pinned, tmp_path, monkeypatch):
    one = signed(statistic(tmp_path, plan=Plan(Schema((SCHEMA["speed"],)), 1.0)))
    for plan in (ROWS, Plan(Schema((SCHEMA["city"],)), 1.0)):
        question = replace(one.question("7", 1), plan=plan.to_json())
        check_refused(pinned, question, "plan of the question is not the one", monkeypatch)


def test_the_clock_of_the_vault_decides(pinned, tmp_path, clock, monkeypatch):
    question = signed(job(tmp_path)).question("7", 1)
    for clock[0] in (NOW + DAY, NOW + 400 * DAY):
        check_refused(pinned, question, "expired: it was valid until '2027-01-02", monkeypatch)
    clock[0] = NOW + DAY - datetime.timedelta(seconds=1)
    assert pinned.answer(question).answered == 3
    clock[0] = NOW + DAY
    with pytest.raises(WireError, match="expired"):  # not even what was answered before
        pinned.answer(question)


def test_the_job_of_another_fleet_is_refused(pinned, tmp_path, monkeypatch):
    question = signed(job(tmp_path), OTHER).question("7", 1)
    check_refused(pinned, question, "not signed by the expected key", monkeypatch)


def test_a_signature_of_something_else_is_not_one_of_a_job(pinned, tmp_path, monkeypatch):
    one = signed(job(tmp_path))
    document = json.loads(one.signed)["signed"]
    for other in ("fedldp question 3", "fedldp signed job 2"):
        question = replace(one.question("7", 1), signed=sign(KEY, document | {"format": other}))
        check_refused(pinned, question, "another format", monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        {"stages": []},
        {"stages": [{"asks": {}, "plans": [], "rounds": 1}]},
        {"stages": [{"asks": {}, "plans": ["a"], "rounds": 0}]},
        {"stages": [{"asks": {}, "plans": ["a"], "rounds": True}]},
        {"stages": [{"asks": {}, "plans": ["a"]}]},
        {"stages": 7},
        {"job": 7},
        {"expires": None},
        {"extra": 1},
    ],
)
def test_a_signed_job_that_is_malformed_is_refused(pinned, tmp_path, change, monkeypatch):
    document = SignedJob.of(job(tmp_path), NOW + DAY).to_document() | change
    question = replace(job(tmp_path).question("7", 1), signed=sign(KEY, document))
    check_refused(pinned, question, "not a|expired", monkeypatch)


# The question.


def test_golden_bytes(tmp_path):
    """What vaults hold and ledgers record must stay readable: these texts never change."""
    seed = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = PrivateKey(Ed25519PrivateKey.from_private_bytes(seed))  # of RFC 8032, section 7.1
    speeds = Plan(Schema.of(speed=(0, 50)), 1.0, mechanism="duchi")
    one = signed(statistic(tmp_path, plan=speeds), key)
    assert one.signed == (
        '{"format":"fedldp signed 1","key":"21fe31dfa154a261626bf854046fd2271b7bed4b6abe45aa58877'
        'ef47f9721b9","signature":"qsv2RPrLm7/p0/4OCFnXQQbwlzwuDVE6J5zuS9U/m4jNTcUykYKCzaF6bhJb6h'
        'dVi9m8Uyw3QjOWMnEtZrzeAg==","signed":{"expires":"2027-01-02T00:00:00Z","format":"fedldp '
        'signed job 1","job":"spring","stages":[{"asks":{"computes":"rows","schema":[{"high":50.0'
        ',"low":0.0,"missing":25.0,"name":"speed","size":1}]},"plans":["6e5cc23400e34c3ee7c4feb84'
        'd7fd3def565bb082752acaaf4c410adf55348b1"],"rounds":1}]}}'
    )
    assert hashlib.sha256(one.question("7", 1).to_bytes()).hexdigest() == (
        "3524bc74889f80b0916c7e6b84013b09d3691e959439980cbb46039a0a302f04"
    )
    assert transparency.entry(one.question("7", 1)) == (
        '{"format":"fedldp asked 1","job":"spring","model":"","plan":"6e5cc23400e34c3ee7c4feb84d7'
        'fd3def565bb082752acaaf4c410adf55348b1","round":1}'
    )


def test_a_question_of_an_unsigned_job_keeps_its_bytes(tmp_path):
    one = job(tmp_path)
    plain, question = one.question("7", 1), signed(one).question("7", 1)
    assert b'"format":"fedldp question 1"' in plain.to_bytes()
    assert b"signed" not in plain.to_bytes()
    document = json.loads(plain.to_bytes())
    expected = document | {"format": FORMAT_2, "signed": question.signed}
    assert json.loads(question.to_bytes()) == expected
    # The answer to both is the same: what is signed is not part of what is asked.
    assert (plain.digest, plain.request, plain.size) == (
        question.digest,
        question.request,
        question.size,
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b"question 2", b"question 1"),
        lambda data: data.replace(b"question 2", b"question 3"),
        lambda data: json.dumps(json.loads(data) | {"signed": ""}).encode(),
        lambda data: json.dumps(
            json.loads(data) | {"signed": 7}, sort_keys=True, separators=(",", ":")
        ).encode(),
        lambda data: json.dumps(
            json.loads(data) | {"signed": ""}, sort_keys=True, separators=(",", ":")
        ).encode(),
        lambda data: data.replace(b',"round":1', b""),
    ],
)
def test_a_question_has_one_form(tmp_path, change):
    data = signed(job(tmp_path)).question("7", 1).to_bytes()
    assert change(data) != data
    with pytest.raises(WireError):
        Question.from_bytes(change(data))


def test_a_job_that_is_signed_again_repeats_its_open_questions(pinned, tmp_path):
    """With more rounds and a later expiry: the checkpoint and the ledgers know the questions."""
    one = signed(job(tmp_path))
    rounds = Rounds(one)
    rounds.ask(["7"])
    [question] = rounds.questions().values()
    first = pinned.answer(question)
    rounds.close()
    later = signed(replace(one, rounds=9, signed=""), expires=NOW + 30 * DAY)
    rounds = Rounds(later)
    [again] = rounds.questions().values()
    assert again.signed != question.signed
    assert pinned.answer(again) == first
    rounds.receive(again, first.to_bytes())
    rounds.close()


def test_a_job_that_expires_while_it_runs_waits_to_be_signed_again(pinned, tmp_path, clock):
    """Vaults would refuse, and the job would end as if no vehicle were left."""
    one = signed(job(tmp_path))
    rounds = Rounds(one)
    rounds.ask(["7"])
    clock[0] = NOW + DAY
    with pytest.raises(DomainError, match=r"has expired.*fedldp fleet sign"):
        rounds.questions()
    rounds.close()
    rounds = Rounds(signed(replace(one, signed=""), expires=NOW + 2 * DAY))
    [question] = rounds.questions().values()
    rounds.receive(question, pinned.answer(question).to_bytes())
    assert rounds.complete(late=False)
    rounds.close()


def test_the_length_of_a_question_includes_what_is_signed(tmp_path):
    one = statistic(tmp_path)
    assert len(signed(one).question("7", 1).to_bytes()) < MOST_BYTES
    with pytest.raises(DomainError, match="a question must have at most"):
        replace(one, signed="x" * MOST_BYTES)


# The server.


def written(folder, **options):
    """Write a job to files, sign it, and return the path of its TOML file."""
    (folder / "plan.json").write_text(options.get("plan", GRADIENT).to_json())
    (folder / "model.json").write_text(MODEL.to_json())
    KEY.public.save(folder / "operator.pub")
    (folder / "job.toml").write_text(
        'job = "spring"\nplan = "plan.json"\nmodel = "model.json"\nreports = 3\nrounds = 3\n'
        'checkpoint = "job.db"\nresult = "out.json"\noperator = "operator.pub"\n'
        "recipe = {rate = 0.1}\n"
    )
    signing.sign(folder / "job.toml", KEY)
    return folder / "job.toml"


def test_a_job_reads_its_signature(tmp_path):
    one = Job.load(written(tmp_path))
    found = SignedJob.verified(one.signed, KEY.public, NOW + 89 * DAY)
    assert (found.job, found.rounds) == ("spring", 3)
    assert found.stages[0].plans == (GRADIENT.fingerprint,)
    assert (tmp_path / "job.toml").read_text().startswith('signed = "job.signed.json"\n')
    signing.check_time(one)
    assert Job.load(tmp_path / "job.toml", signed=False).signed == ""


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "plan.json").write_text(HUGE.to_json()),
        lambda folder: (folder / "model.json").write_text(HINGE.to_json()),
        lambda folder: edited(folder, '"spring"', '"summer"'),
        lambda folder: edited(folder, "rounds = 3", "rounds = 4"),
    ],
)
def test_a_job_that_was_changed_after_it_was_signed_does_not_start(tmp_path, change):
    path = written(tmp_path)
    change(tmp_path)
    with pytest.raises(DomainError, match=r"was changed after it was signed.*fedldp fleet sign"):
        Job.load(path)
    signing.sign(path, KEY)
    assert Job.load(path).signed


def edited(folder, old, new):
    text = (folder / "job.toml").read_text()
    assert old in text
    (folder / "job.toml").write_text(text.replace(old, new))


def test_what_is_not_covered_may_change(tmp_path):
    path = written(tmp_path)
    edited(tmp_path, "reports = 3", "reports = 2\ngateways = 5\nresend = 3.0")
    (tmp_path / "model.json").write_text(replace(MODEL, weights=[1.0] * 6).to_json())
    assert Job.load(path).signed


def test_a_signature_that_is_missing_or_wrong_is_noticed_at_the_server(tmp_path):
    path = written(tmp_path)
    (tmp_path / "operator.pub").write_text(OTHER.public.text)
    with pytest.raises(DomainError, match=r"not signed by the expected key.*fedldp fleet sign"):
        Job.load(path)
    (tmp_path / "job.signed.json").unlink()
    with pytest.raises(DomainError, match=r"the job is not signed. Sign it: fedldp fleet sign"):
        Job.load(path)


def test_an_expired_job_does_not_start(tmp_path, monkeypatch):
    path = written(tmp_path)
    one = Job.load(path)
    old = replace(one, signed="")
    expired = signed(old, expires=NOW)
    with pytest.raises(DomainError, match=r"has expired at 2027-01-01T00.*fedldp fleet sign"):
        signing.check_time(expired)
    # The server checks it first, unless the job is done.
    config = type("Config", (), {"job": path, "folder": tmp_path, "state": tmp_path})
    monkeypatch.setattr(server_process.ServerConfig, "load", lambda _: config)
    (tmp_path / "job.signed.json").write_text(expired.signed)
    with pytest.raises(DomainError, match="has expired"):
        server_process.run(tmp_path)


def test_the_operator_is_warned_a_week_before(tmp_path, clock):
    folder = tmp_path / "fleet"
    assert run("init", folder, "--gateways", 1, "--task", "statistics").exit_code == 0
    job_of = Job.load(folder / "server" / "job.toml")
    for days, text in ((82, ""), (84, "expires on 2027-04-01"), (90, "has expired on 2027-04-01")):
        clock[0] = NOW + days * DAY
        assert text in signing.expires_soon(job_of)
        said = run("status", folder / "server").output
        assert ("the operator's signature" in " ".join(said.split())) == bool(text)
    assert signing.expires_soon(replace(job_of, signed="")) == ""


def test_an_unsigned_job_has_nothing_to_check(tmp_path):
    signing.check_time(job(tmp_path))
    assert job(tmp_path).signed == ""


# The command, and a vault's folder.


def run(*words, **options):
    return CliRunner().invoke(fedldp, ["fleet", *map(str, words)], **options)


def test_the_command_signs_a_job(tmp_path):
    path = written(tmp_path)
    KEY.save(tmp_path / "operator.key", "open sesame")
    edited(tmp_path, "rounds = 3", "rounds = 5")
    words = "sign", tmp_path, "--key", tmp_path / "operator.key", "--expires", 7
    done = run(*words, input="open sesame\n")
    assert done.exit_code == 0, done.output
    assert "Signed the job spring: 5 rounds, until 20" in done.output
    assert SignedJob.unverified(Job.load(path).signed).expires == NOW + 7 * DAY
    wrong = run(*words, input="sesame\n")
    assert wrong.exit_code == 1
    assert "passphrase is wrong" in str(wrong.exception or wrong.output)


def test_a_job_of_version_0_1_gets_the_key_and_the_entries(tmp_path):
    path = written(tmp_path)
    for name in ("operator.pub", "job.signed.json"):
        (tmp_path / name).unlink()
    old = re.sub(r"(?m)^(signed|operator) = .*\n", "", path.read_text())
    path.write_text(old)
    assert Job.load(path).signed == ""
    OTHER.save(tmp_path / "operator.key")
    assert run("sign", path, "--key", tmp_path / "operator.key").exit_code == 0
    assert path.read_text() == f'signed = "job.signed.json"\noperator = "operator.pub"\n{old}'
    assert PublicKey.load(tmp_path / "operator.pub") == OTHER.public
    signatures.verify(OTHER.public, Job.load(path).signed, FORMAT)


def test_a_further_job_waits_for_the_operator(tmp_path):
    folder = tmp_path / "fleet"
    assert run("init", folder, "--gateways", 1, "--task", "statistics").exit_code == 0
    done = run("job", folder, "autumn")
    assert done.exit_code == 0, done.output
    path = folder / "server" / "autumn.toml"
    assert f"fedldp fleet sign {path} --key operator.key" in done.output
    with pytest.raises(DomainError, match="the job is not signed"):
        Job.load(path)
    assert run("sign", folder / "server", "--key", folder / "operator.key").exit_code == 0
    found = SignedJob.unverified(Job.load(path).signed)
    assert (found.job, found.rounds) == ("autumn", 1)


def test_the_command_refuses_a_key_that_vaults_do_not_know(tmp_path):
    written(tmp_path)
    OTHER.save(tmp_path / "other.key")
    before = (tmp_path / "job.signed.json").read_bytes()
    done = run("sign", tmp_path / "job.toml", "--key", tmp_path / "other.key")
    assert done.exit_code == 1
    assert "is the public key of another operator" in str(done.exception or done.output)
    assert (tmp_path / "job.signed.json").read_bytes() == before


def test_a_vault_reads_the_key_from_its_folder(tmp_path):
    (tmp_path / "vault.toml").write_text(
        'data = "rows.csv"\nschema = "rows.toml"\ncap = "1"\nlisten = "s"\n'
        'operator = "operator.pub"\n'
    )
    config = VaultConfig.load(tmp_path)
    with pytest.raises(DomainError, match=r"vault.toml: operator: .*operator.pub cannot be read"):
        config.operator()
    (tmp_path / "operator.pub").write_text("ssh-ed25519 AAAA")
    with pytest.raises(DomainError, match="operator: not a public key"):
        config.operator()
    KEY.public.save(tmp_path / "operator.pub")
    assert config.operator().keys == (KEY.public,)


def test_the_signed_text_is_readable(tmp_path):
    """An owner can look at what the operator has signed, without any tool."""
    one = signed(job(tmp_path))
    assert json.loads(one.signed)["signed"] == {
        "format": FORMAT,
        "job": "spring",
        "expires": "2027-01-02T00:00:00Z",
        "stages": [
            {
                "asks": {
                    "computes": "gradient",
                    "objective": "logistic",
                    "reference": MODEL.reference,
                    "schema": FEATURES.to_document(),
                    "target": Schema((SCHEMA["late"],)).to_document()[0],
                },
                "plans": [GRADIENT.fingerprint],
                "rounds": 3,
            }
        ],
    }
    assert signatures.verify(KEY.public, one.signed, FORMAT)["job"] == "spring"
