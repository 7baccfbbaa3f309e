"""Gateways come and go, keys change, jobs follow each other: what is written and what refused."""

import contextlib
import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedldp import Plan, Schema
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError
from fedldp.fleet import keys, members
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.job import Job
from fedldp.fleet.members import Rows
from fedldp.fleet.server import admission
from fedldp.fleet.server.checkpoint import Checkpoint
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.rounds import Rounds
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings

SCHEMA = Schema.of(speed=(0, 50), city=["Oslo", "Rome"], late=["no", "yes"])
REMOTE = Place("fleet.example.org", 9001, 9002)


def written(folder, target="late", objective="logistic", place=None, vehicle="id", gateways=2):
    """Write a fleet whose vaults have files: a training, or a statistic without a target."""
    entries = {} if vehicle is None else {"vehicle": vehicle}
    work = Work.on_files("rows.csv", SCHEMA, target, objective, 30, 3, entries, "spring")
    init(folder, work, Settings(1.0), gateways, place or Place(), cap=4.0)
    return folder


@pytest.fixture
def fleet(tmp_path):
    return written(tmp_path / "fleet")


@pytest.fixture
def statistics(tmp_path):
    return written(tmp_path / "fleet", None, None)


def run(*words, status=0):
    """Run a command; return what it prints, in one line."""
    done = CliRunner().invoke(fedldp, ["fleet", *map(str, words)])
    assert done.exit_code == status, done.output
    return " ".join(done.output.split()) + (str(done.exception) if status else "")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# Gateways.


@pytest.mark.parametrize("place", [Place(), REMOTE])
def test_a_gateway_is_added_with_its_vault(tmp_path, place):
    fleet = written(tmp_path / "fleet", place=place)
    run("add-gateway", fleet, "oslo")
    gateway, vault = (
        GatewayConfig.load(fleet / "gateway-oslo"),
        VaultConfig.load(fleet / "vault-oslo"),
    )
    like = GatewayConfig.load(fleet / "gateway-1")
    assert (gateway.server, gateway.bundle) == (like.server, like.bundle)
    assert gateway.authority.read_bytes() == (fleet / "server" / "ca.crt").read_bytes()
    assert [each.path for each in gateway.vaults] == [vault.address.path]
    other = VaultConfig.load(fleet / "vault-1")
    assert vault.address != other.address
    assert (vault.cap, vault.schema(), vault.entries["vehicle"]) == (4, SCHEMA, "id")
    assert vault.entries.keys() == other.entries.keys()
    public = fleet / "server" / "gateways" / "gateway-oslo.pub"
    key = load_ssh_private_key(gateway.key.read_bytes(), None)
    assert load_ssh_public_key(public.read_bytes()) == key.public_key()
    assert gateway.key.stat().st_mode & 0o777 == 0o600
    assert {(fleet / each).stat().st_mode & 0o777 for each in ("gateway-oslo", "vault-oslo")} == {
        0o700
    }
    assert names(fleet / "vault-oslo") == names(fleet / "vault-1")
    assert names(fleet / "gateway-oslo") == names(fleet / "gateway-1")
    assert "`vault-oslo/`" in (fleet / "vault-oslo" / "README.md").read_text()


def test_a_new_vault_may_have_another_file(fleet, tmp_path):
    (tmp_path / "new.toml").write_text(Schema.of(speed=(0, 50)).to_toml())
    options = ["--data", "new.parquet", "--schema", tmp_path / "new.toml"]
    run("add-gateway", fleet, "3", *options)
    vault = VaultConfig.load(fleet / "vault-3")
    assert vault.entries["data"] == "new.parquet"
    assert "vehicle" not in vault.entries
    assert vault.schema().names == ("speed",)


def test_a_data_set_has_nothing_left_for_another_vault(tmp_path):
    run("init", tmp_path / "fleet", "--gateways", 1)
    said = run("add-gateway", tmp_path / "fleet", "2", status=1)
    assert "divide the data set flights among them" in said
    assert not (tmp_path / "fleet" / "gateway-2").exists()
    members.add_gateway(tmp_path / "fleet", "2", Rows("rows.csv", SCHEMA, "id"))
    entries = VaultConfig.load(tmp_path / "fleet" / "vault-2").entries
    assert not {"rows", "holdout", "part"} & entries.keys()


@pytest.mark.parametrize("name", ["", "a/b", "..", "a b", "x" * 41, "a.next"])
def test_a_name_that_a_folder_or_a_key_cannot_have(fleet, name):
    with pytest.raises(DomainError, match="the name of a gateway must be 1 to 40"):
        members.add_gateway(fleet, name)


def test_what_exists_is_not_overwritten(fleet):
    before = (fleet / "gateway-2" / "key").read_bytes()
    with pytest.raises(DomainError, match="gateway-2 exists already"):
        members.add_gateway(fleet, "2")
    assert (fleet / "gateway-2" / "key").read_bytes() == before
    (fleet / "server" / "gateways" / "gateway-3.pub").write_text("")
    with pytest.raises(DomainError, match=r"gateway-3\.pub exists already"):
        members.add_gateway(fleet, "3")
    assert not (fleet / "gateway-3").exists()


def test_a_vault_on_tcp_is_not_copied(fleet):
    (fleet / "vault-1" / "token").write_text("secret")
    text = (fleet / "vault-1" / "vault.toml").read_text()
    text = re.sub("(?m)^listen = .*$", 'listen = "tcp://10.0.0.7:99"\ntoken = "token"', text)
    (fleet / "vault-1" / "vault.toml").write_text(text)
    with pytest.raises(DomainError, match="only you know the address"):
        members.add_gateway(fleet, "3")
    assert not (fleet / "gateway-3").exists()


def test_a_folder_that_is_not_a_fleet(tmp_path, fleet):
    with pytest.raises(DomainError, match="expected the folder of a fleet"):
        members.add_gateway(tmp_path, "3")
    with pytest.raises(DomainError, match="expected a folder with a gateway and its vault"):
        members.add_gateway(fleet / "server", "3")


def test_a_gateway_that_is_removed_leaves_its_folders(fleet):
    before = names(fleet)
    said = run("remove-gateway", fleet, "gateway-2")
    assert "keep the ledger of vault-2" in said
    assert "waits for 2 gateways, and the server now knows 1" in said
    assert names(fleet) == before
    assert admission.gateways(fleet / "server" / "gateways") == ["gateway-1"]
    said = run("remove-gateway", fleet / "server", "gateway-2", status=1)
    assert "has no key of 'gateway-2'; it has those of gateway-1." in said


def test_a_path_is_not_the_name_of_a_gateway(fleet):
    other = fleet / "server" / "other.pub"
    other.touch()
    assert "has no key of '../other'" in run("remove-gateway", fleet, "../other", status=1)
    assert other.exists()


def test_a_job_that_has_begun_waits_for_nobody_new(fleet):
    with contextlib.closing(Rounds(Job.load(fleet / "server" / "job.toml"))) as rounds:
        rounds.ask(["1", "2"])
    assert "the server now knows" not in run("remove-gateway", fleet, "gateway-2")


def test_a_key_that_is_not_used_yet_is_removed_too(fleet):
    folder = fleet / "server" / "gateways"
    admission.upcoming(folder, "gateway-1").write_text("key")
    run("remove-gateway", fleet, "gateway-1")
    assert names(folder) == ["gateway-2.pub"]


# Keys.


def test_the_key_of_a_gateway_changes_in_three_steps(fleet):
    gateway, folder = fleet / "gateway-1", fleet / "server" / "gateways"
    old = (gateway / "key").read_bytes()
    assert "no next key" in run("rotate-keys", gateway, "--use", status=1)
    said = run("rotate-keys", gateway)
    assert "as gateways/gateway-1.next.pub" in said
    assert (gateway / "key").read_bytes() == old
    fresh = (gateway / "key.next").read_bytes()
    assert (gateway / "key.next").stat().st_mode & 0o777 == 0o600
    assert "exists already: use it" in run("rotate-keys", gateway, status=1)
    run("rotate-keys", gateway, "--use")
    assert (gateway / "key").read_bytes() == fresh != old
    key = load_ssh_private_key(fresh, None)
    assert load_ssh_public_key((gateway / "key.pub").read_bytes()) == key.public_key()
    assert names(gateway) == names(fleet / "gateway-2")
    assert names(folder) == ["gateway-1.pub", "gateway-2.pub"]  # the operator copies it


def test_all_keys_of_a_fleet_on_one_machine(fleet):
    secrets = [fleet / "gateway-1" / "key", fleet / "gateway-2" / "key"]
    secrets += [fleet / "server" / name for name in ("server.key", "server.crt")]
    before = [path.read_bytes() for path in secrets]
    run("rotate-keys", fleet, "--ca", fleet / "ca.key")
    assert not set(before) & {path.read_bytes() for path in secrets}
    folder = fleet / "server" / "gateways"
    for i in (1, 2):
        public = (fleet / f"gateway-{i}" / "key.pub").read_bytes()
        assert admission.upcoming(folder, f"gateway-{i}").read_bytes() == public
        assert admission.current(folder, f"gateway-{i}").read_bytes() != public
    assert admission.gateways(folder) == ["gateway-1", "gateway-2"]


def test_a_gateway_that_was_revoked_gets_no_key(fleet):
    run("remove-gateway", fleet, "gateway-1")
    with pytest.raises(DomainError, match="it was revoked"):
        members.rotate_gateway(members.server_of(fleet), GatewayConfig.load(fleet / "gateway-1"))
    assert not (fleet / "gateway-1" / "key.next").exists()


def test_a_new_certificate_is_for_the_same_names_and_from_the_same_authority(tmp_path):
    fleet = written(tmp_path / "fleet", place=REMOTE)
    server = ServerConfig.load(fleet / "server")
    old = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    assert keys.fit(server.certificate, server.key)
    run("rotate-keys", fleet / "server", "--ca", fleet / "ca.key")
    new = x509.load_pem_x509_certificate(server.certificate.read_bytes())
    new.verify_directly_issued_by(x509.load_pem_x509_certificate(server.authority.read_bytes()))
    alternative = x509.SubjectAlternativeName
    for each in (x509.KeyUsage, x509.ExtendedKeyUsage, x509.BasicConstraints, alternative):
        found = [one.extensions.get_extension_for_class(each) for one in (old, new)]
        assert found[0] == found[1]
    assert new.public_key() != old.public_key()
    assert new.serial_number != old.serial_number
    assert keys.fit(server.certificate, server.key)
    assert server.key.stat().st_mode & 0o777 == 0o600
    assert not list(server.folder.glob(".*"))


def test_another_authority_is_refused(tmp_path, fleet):
    other = written(tmp_path / "other")
    server = ServerConfig.load(fleet / "server")
    before = server.certificate.read_bytes(), server.key.read_bytes()
    for path, said in (
        (other / "ca.key", "is not the key of the authority in"),
        (fleet / "server" / "ca.crt", "is not the key of an authority"),
    ):
        assert said in run("rotate-keys", fleet / "server", "--ca", path, status=1)
    assert (server.certificate.read_bytes(), server.key.read_bytes()) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gateway-1", "--ca", "ca.key"], "--ca is for the certificate of the server"),
        (["server"], "needs the authority's key: --ca"),
        (["server", "--use"], "--use is for the folder of a gateway"),
    ],
)
def test_options_that_do_not_fit_the_folder(fleet, words, said):
    folder, *options = words
    options = [fleet / word if word.endswith(".key") else word for word in options]
    assert said in run("rotate-keys", fleet / folder, *options, status=2)


# Jobs.


def entries(path):
    return tomllib.loads(path.read_text())


def test_a_second_job_asks_the_same_under_another_name(fleet):
    server = fleet / "server"
    text = (server / "job.toml").read_text().replace("deadline = 120.0", "deadline = 60.0")
    (server / "job.toml").write_text(text)
    before = {path.name: path.read_bytes() for path in server.iterdir() if path.is_file()}
    said = run("job", fleet, "autumn")
    assert "the job autumn asks for 60 reports" in said
    job = Job.load(server / "autumn.toml", signed=False)
    assert job.deadline == 60  # what the operator has changed stays changed
    old = Job.load(server / "job.toml")
    assert (job.plan, job.model, job.recipe) == (old.plan, old.model, old.recipe)
    written = {path.name for path in (job.checkpoint, job.result, job.summary, job.log)}
    assert written == {
        "autumn.db",
        "autumn.model.json",
        "autumn.summary.json",
        "autumn.log",
    }
    assert not written & {path.name for path in (old.checkpoint, old.result, old.summary, old.log)}
    assert ServerConfig.load(server).job == server / "autumn.toml"
    after = {path.name: path.read_bytes() for path in server.iterdir() if path.is_file()}
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"server.toml", "README.md"}
    assert after.keys() - before.keys() == {"autumn.toml"}
    assert "# the address at which gateways reach" in after["server.toml"].decode()
    assert "state/autumn.model.json" in after["README.md"].decode()


def test_the_same_job_for_more_gateways(fleet):
    for name in ("3", "4"):
        run("add-gateway", fleet, name)
    run("job", fleet, "autumn")
    job = Job.load(fleet / "server" / "autumn.toml", signed=False)
    assert (job.gateways, job.reports, job.expected) == (4, 10, 120)
    text = (fleet / "server" / "autumn.toml").read_text()
    assert "gateways = 4  # how many must be connected before the first round" in text


def test_a_job_with_other_numbers(fleet):
    run("add-gateway", fleet, "3")
    run("job", fleet / "server", "autumn", "--epsilon", 2, "--rounds", 5, "--vehicles", 50)
    job, old = (
        Job.load(fleet / "server" / f"{name}.toml", signed=False) for name in ("autumn", "job")
    )
    assert job.plan.epsilon == 2
    assert (job.gateways, job.expected) == (3, 150)
    assert (job.stages[-1].rounds, job.survey) == (5, old.survey)
    assert job.model == old.model
    assert (fleet / "server" / "autumn.plan.json").exists()
    assert Job.load(fleet / "server" / "job.toml").plan.epsilon == 1


def test_another_task_about_the_same_columns(fleet):
    run("job", fleet, "ages", "--task", "statistics")
    job = Job.load(fleet / "server" / "ages.toml", signed=False)
    assert (job.model, job.plan) == (None, Plan(SCHEMA, epsilon=1.0))
    assert (job.expected, job.result.name) == (60, "ages.tally.json")
    assert "fedldp estimate ages.plan.json" in (fleet / "server" / "README.md").read_text()
    said = run("job", fleet, "again", "--task", "mlp", status=2)
    assert "give the column to predict: --target" in said
    run("job", fleet, "again", "--task", "mlp", "--target", "late", "--hidden", 4, "--rounds", 2)
    job = Job.load(fleet / "server" / "again.toml", signed=False)
    assert job.model.layers is not None
    assert job.model.target == SCHEMA["late"]


def test_what_a_second_job_may_not_be(fleet):
    for name, said in (
        ("spring", "exists already"),
        ("server", "exists already"),
        (".hidden", "must be 1 to 64 letters"),
        ("a/b", "must be 1 to 64 letters"),
    ):
        assert said in run("job", fleet, name, status=1)
    assert "belong to a --task" in run("job", fleet, "autumn", "--target", "city", status=2)
    assert "epsilon must be" in run("job", fleet, "autumn", "--epsilon", 0, status=1)
    assert ServerConfig.load(fleet / "server").job.name == "job.toml"
    job = Job.load(fleet / "server" / "job.toml")
    with Checkpoint(job.checkpoint, job.name, job.settings, "{}") as begun:
        assert "has begun and is not done" in run("job", fleet, "autumn", status=1)
        begun.end("all rounds are done")
    run("job", fleet, "autumn")


def test_a_job_that_cannot_be_is_not_left_behind(fleet):
    before = names(fleet / "server")
    run("job", fleet, "autumn", "--epsilon", 1000, "--vehicles", 1 << 21, status=1)
    assert [name for name in names(fleet / "server") if name.endswith(".toml")] == [
        name for name in before if name.endswith(".toml")
    ]
    assert ServerConfig.load(fleet / "server").job.name == "job.toml"


# What the operator reads.


def texts(fleet):
    return {path.relative_to(fleet): path.read_text() for path in fleet.rglob("README.md")}


def test_every_part_has_a_readme_that_says_what_it_has(fleet):
    found = texts(fleet)
    parts = ("server", "gateway-1", "gateway-2", "vault-1", "vault-2")
    assert found.keys() == {Path("README.md"), *(Path(part) / "README.md" for part in parts)}
    for text in found.values():
        assert "$" not in text
    whole = found[Path("README.md")]
    for said in ("a linear model (logistic) that predicts `late`", "`server/state/model.json`"):
        assert said in whole
    assert "tally" not in whole
    assert "fedldp predict server/state/model.json" in whole
    assert "`vault-1/rows.csv`" in whole
    assert "The column `id` names the vehicle" in whole
    assert "fedldp predict state/model.json" in found[Path("server/README.md")]


def test_a_statistic_does_not_speak_of_models(statistics):
    found = texts(statistics)
    for text in found.values():
        assert not re.search("model|training|predict|gradient", text), text
    assert "fedldp estimate server/plan.json server/state/tally.json" in found[Path("README.md")]


def test_a_network_is_called_one(tmp_path):
    (tmp_path / "rows.toml").write_text(SCHEMA.to_toml())
    options = ["--task", "mlp", "--data", "/data/rows.csv", "--schema", tmp_path / "rows.toml"]
    run("init", tmp_path / "fleet", *options, "--target", "late", "--vehicles", 100)
    whole = texts(tmp_path / "fleet")[Path("README.md")]
    assert "It trains a network (logistic) that predicts `late`" in whole
    assert "`/data/rows.csv`" in whole
    assert "known by the number of its row" in whole.replace("\n", " ")
    assert "`gateway-1/` to `gateway-3/`" in whole


def test_a_data_set_needs_no_file(tmp_path):
    run("init", tmp_path / "fleet", "--gateways", 1)
    whole = texts(tmp_path / "fleet")[Path("README.md")]
    assert "There is nothing to do: fedldp can load the data set `flights`" in whole
    assert "`gateway-1/` |" in whole


def test_two_gateways_are_not_a_range(fleet):
    whole = texts(fleet)[Path("README.md")]
    assert "| `gateway-1/` and `gateway-2/` |" in whole
    assert "| `vault-1/` and `vault-2/` |" in whole


@pytest.mark.parametrize("kind", [("late", "logistic", "id"), (None, None, None)])
def test_every_command_in_a_readme_exists(tmp_path, kind):
    target, objective, vehicle = kind
    fleet = written(tmp_path / "fleet", target, objective, vehicle=vehicle)
    commands = set()
    for text in texts(fleet).values():
        commands |= set(re.findall(r"(?m)(?:`|^    )fedldp ((?:fleet |ledger )?[a-z-]+)", text))
    assert len(commands) > 12
    for command in sorted(commands):
        done = CliRunner().invoke(fedldp, [*command.split(), "--help"])
        assert done.exit_code == 0, command
