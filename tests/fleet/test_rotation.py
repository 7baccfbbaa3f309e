"""The operator and the authority get new keys: old and new are trusted until the last step."""

import re
import shutil
import ssl
import subprocess

import pytest
from click.testing import CliRunner

from fedldp import Schema
from fedldp.budget.ledger import overview
from fedldp.cli.app import fedldp
from fedldp.errors import DomainError, WireError
from fedldp.fleet import keys, signing
from fedldp.fleet.doctor import examine
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.job import Job
from fedldp.fleet.server.checkpoint import Checkpoint
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings
from fedldp.signing import PrivateKey, PublicKeys

SCHEMA = Schema.of(speed=(0, 50))
VEHICLES = 40


@pytest.fixture
def fleet(tmp_path):
    """A fleet of two gateways that asks for a statistic, with data."""
    folder = tmp_path / "fleet"
    work = Work.on_files("rows.csv", SCHEMA, None, None, 5, 1, {"vehicle": "id"}, "spring")
    init(folder, work, Settings(1.0), 2, Place(), cap=4.0)
    for vault in folder.glob("vault-*"):
        lines = [f"{i},{i}" for i in range(VEHICLES)]
        (vault / "rows.csv").write_text("\n".join(["id,speed", *lines]))
    return folder


def run(*words, status=0, **options):
    """Run a command; return what it prints, in one line."""
    done = CliRunner().invoke(fedldp, ["fleet", *map(str, words)], **options)
    assert done.exit_code == status, done.output
    return " ".join(done.output.split()) + (str(done.exception) if status else "")


def said(folder, kind):
    [found] = examine(folder)
    return " ".join(each.said for each in found.findings if each.level == kind)


def known(path):
    return PublicKeys.load(path).keys


# The operator.


def ask(vault, job):
    """Ask a vault that was started with the files as they are now; return how many answered."""
    config = VaultConfig.load(vault)
    data, _ = config.read()
    with config.ledger() as ledger:
        return config._vault(data, ledger).answer(job.question("7", 1)).answered


def job_of(fleet, name="job"):
    return Job.load(fleet / "server" / f"{name}.toml")


def test_the_operators_key_changes_in_three_steps(fleet):
    old = PrivateKey.load(fleet / "operator.key").public
    files = [fleet / part / "operator.pub" for part in ("server", "vault-1", "vault-2")]
    before = job_of(fleet)

    output = run("rotate-keys", fleet, "--operator")
    assert f"Copy {fleet / 'operator.pub'} to the folder of each vault and of the server" in output
    assert output.endswith(f"fedldp fleet rotate-keys {fleet} --operator --use")
    new = PrivateKey.load(fleet / "operator.next.key").public
    assert (fleet / "operator.next.key").stat().st_mode & 0o777 == 0o600
    assert PrivateKey.load(fleet / "operator.key").public == old
    for path in (fleet / "operator.pub", *files):
        assert known(path) == (old, new)
    assert ask(fleet / "vault-1", before) == 5  # nothing has changed for a job that runs

    run("rotate-keys", fleet, "--operator", "--use")
    assert PrivateKey.load(fleet / "operator.key").public == new
    assert not (fleet / "operator.next.key").exists()
    assert ask(fleet / "vault-2", before) == 5  # the old key is still trusted
    output = run("rotate-keys", fleet, "--operator", "--forget", status=1)
    assert "'spring' is signed with the old key, and is not done" in output
    assert known(files[0]) == (old, new)

    run("sign", fleet / "server", "--key", fleet / "operator.key")
    after = job_of(fleet)
    assert after.signed != before.signed
    # What was asked is the same question, and gets the same answer at no cost.
    assert ask(fleet / "vault-1", after) == 5
    assert set(overview(fleet / "vault-1" / "ledger.db").totals.values()) == {1}
    assert len(overview(fleet / "vault-1" / "ledger.db").totals) == 5

    run("rotate-keys", fleet, "--operator", "--forget")
    for path in (fleet / "operator.pub", *files):
        assert known(path) == (new,)
    assert ask(fleet / "vault-1", after) == 5
    with pytest.raises(WireError, match="not signed by the expected key"):
        ask(fleet / "vault-1", before)
    assert job_of(fleet).signed == after.signed
    output = run("rotate-keys", fleet, "--operator", "--forget", status=1)
    assert "there is nothing to forget" in output


def test_a_machine_that_has_the_key_alone(fleet, tmp_path):
    """As it should be kept. The other machines get operator.pub, twice."""
    offline = tmp_path / "offline"
    offline.mkdir()
    assert "expected the folder that has operator.key" in run(
        "rotate-keys", offline, "--operator", status=1
    )
    (fleet / "operator.key").rename(offline / "operator.key")
    output = run("rotate-keys", offline, "--operator", status=1)
    assert "no file here has the public half of" in output
    assert not (offline / "operator.next.key").exists()
    shutil.copy(fleet / "server" / "operator.pub", offline)
    run("rotate-keys", offline, "--operator")
    for part in ("server", "vault-1"):  # vault-2 is forgotten
        shutil.copy(offline / "operator.pub", fleet / part)
    run("rotate-keys", offline, "--operator", "--use")
    run("sign", fleet / "server", "--key", offline / "operator.key")
    assert ask(fleet / "vault-1", job_of(fleet)) == 5
    with pytest.raises(WireError, match="not signed by the expected key"):
        ask(fleet / "vault-2", job_of(fleet))
    shutil.copy(offline / "operator.pub", fleet / "vault-2")
    assert ask(fleet / "vault-2", job_of(fleet)) == 5
    run("rotate-keys", offline, "--operator", "--forget")
    shutil.copy(offline / "operator.pub", fleet / "server")
    assert len(known(fleet / "server" / "operator.pub")) == 1
    assert job_of(fleet).signed


def test_steps_in_a_wrong_order(fleet):
    output = run("rotate-keys", fleet, "--operator", "--use", status=1)
    assert "operator.next.key does not exist: make it first" in output
    run("rotate-keys", fleet, "--operator")
    fresh = (fleet / "operator.next.key").read_bytes()
    for words, why in (([], "exists already: use it"), (["--forget"], "is not used yet")):
        assert why in run("rotate-keys", fleet, "--operator", *words, status=1)
    assert (fleet / "operator.next.key").read_bytes() == fresh
    assert len(known(fleet / "operator.pub")) == 2


def test_a_next_key_that_was_removed_is_forgotten_before_another_is_made(fleet):
    """It may have been stolen: vaults that trust it would trust the thief."""
    now = PrivateKey.load(fleet / "operator.key").public
    run("rotate-keys", fleet, "--operator")
    (fleet / "operator.next.key").unlink()
    output = run("rotate-keys", fleet, "--operator", status=1)
    assert "names a key that is not used, and is still trusted: first run this command" in output
    assert not (fleet / "operator.next.key").exists()
    run("rotate-keys", fleet, "--operator", "--forget")
    assert known(fleet / "vault-1" / "operator.pub") == (now,)
    run("rotate-keys", fleet, "--operator")
    new = PrivateKey.load(fleet / "operator.next.key").public
    assert known(fleet / "vault-1" / "operator.pub") == (now, new)


def test_a_vault_that_missed_the_first_step_does_not_trust_the_old_key_for_ever(fleet):
    old, missed = PrivateKey.load(fleet / "operator.key").public, fleet / "vault-2" / "operator.pub"
    run("rotate-keys", fleet, "--operator")
    run("rotate-keys", fleet, "--operator", "--use")
    old.save(missed)  # from a copy of its folder, for example
    run("sign", fleet / "server", "--key", fleet / "operator.key")
    assert str(missed) in run("rotate-keys", fleet, "--operator", "--forget").replace(" ", "")
    assert known(missed) == (PrivateKey.load(fleet / "operator.key").public,)


def test_keys_of_others_stay(fleet):
    """A vault may trust two operators; a file that does not name this one is not changed."""
    now, other = PrivateKey.load(fleet / "operator.key").public, PrivateKey.generate().public
    both, foreign = (fleet / f"vault-{i}" / "operator.pub" for i in (1, 2))
    both.write_text(PublicKeys((other, now)).text)
    other.save(foreign)
    run("rotate-keys", fleet, "--operator")
    new = PrivateKey.load(fleet / "operator.next.key").public
    assert (known(both), known(foreign)) == ((other, now, new), (other,))
    run("rotate-keys", fleet, "--operator", "--use")
    run("sign", fleet / "server", "--key", fleet / "operator.key")
    run("rotate-keys", fleet, "--operator", "--forget")
    assert (known(both), known(foreign)) == ((other, new), (other,))


def test_a_job_that_is_done_needs_no_signature(fleet):
    job = job_of(fleet)
    with Checkpoint(job.checkpoint, job.name, job.settings, "") as file:
        file.end("all rounds are done")
    for words in ([], ["--use"], ["--forget"]):
        run("rotate-keys", fleet, "--operator", *words)
    with pytest.raises(DomainError, match="not signed by the expected key"):
        job_of(fleet)
    run("job", fleet, "autumn")
    run("sign", fleet / "server", "--key", fleet / "operator.key")
    assert ask(fleet / "vault-1", job_of(fleet, "autumn")) == 5


def test_the_next_key_has_the_same_passphrase(fleet):
    key = PrivateKey.load(fleet / "operator.key")
    (fleet / "operator.key").unlink()
    key.save(fleet / "operator.key", "open sesame")
    assert "passphrase is wrong" in run("rotate-keys", fleet, "--operator", input="no\n", status=1)
    run("rotate-keys", fleet, "--operator", input="open sesame\n")
    new = PrivateKey.load(fleet / "operator.next.key", "open sesame").public
    assert known(fleet / "vault-1" / "operator.pub") == (key.public, new)


def test_a_damaged_file_is_named(fleet):
    """And nothing is changed before all files are known to be good."""
    (fleet / "vault-2" / "operator.pub").write_text("ed25519 x\n")
    output = run("rotate-keys", fleet, "--operator", status=1)
    assert re.search(r"vault-2/operator\.pub: not a public key", output)
    assert not (fleet / "operator.next.key").exists()
    assert len(known(fleet / "vault-1" / "operator.pub")) == 1


def test_a_new_vault_trusts_what_the_others_trust(fleet):
    run("rotate-keys", fleet, "--operator")
    run("rotate-keys", fleet, "--authority")
    run("add-gateway", fleet, "3")
    for name, part in (("operator.pub", "vault"), ("ca.crt", "gateway")):
        found = [(fleet / f"{part}-{i}" / name).read_bytes() for i in (1, 3)]
        assert found[0] == found[1]


def test_the_doctor_knows_that_two_are_trusted(fleet):
    assert "names 2" not in said(fleet / "vault-1", "warning")
    run("rotate-keys", fleet, "--operator")
    run("rotate-keys", fleet, "--authority")
    assert "operator.pub names 2 keys" in said(fleet / "vault-1", "warning")
    assert "ca.crt names 2 authorities" in said(fleet / "server", "warning")
    run("rotate-keys", fleet, "--authority", "--use")
    assert "has not signed" not in said(fleet / "server", "problem")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--forget"], "--forget belongs to --operator or --authority"),
        (["--operator", "--use", "--forget"], "exclude each other"),
        (["--authority", "--ca", "ca.key"], "exclude each other"),
    ],
)
def test_options_that_do_not_fit_together(fleet, words, why):
    words = [fleet / each if each == "ca.key" else each for each in words]
    assert why in run("rotate-keys", fleet, *words, status=2)


def test_a_key_that_was_lost(fleet):
    """The steps of docs/operations.md, by hand: there is nothing that both keys can have signed."""
    (fleet / "operator.key").unlink()
    words = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", fleet / "operator.key"]
    subprocess.run(words, check=True)
    path = fleet / "server" / "job.toml"
    path.write_text(re.sub(r"(?m)^(operator|signed) = .*\n", "", path.read_text()))
    run("sign", fleet / "server", "--key", fleet / "operator.key")
    with pytest.raises(WireError, match="not signed by the expected key"):
        ask(fleet / "vault-1", job_of(fleet))
    shutil.copy(fleet / "server" / "operator.pub", fleet / "vault-1")
    assert ask(fleet / "vault-1", job_of(fleet)) == 5
    run("rotate-keys", fleet, "--operator")  # as before


# The authority.


def trusts(authority, server):
    """Return whether who has a file of authorities accepts the certificate of a server."""
    inner = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inner.load_cert_chain(server.certificate, server.key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=authority).wrap_bio(
        down, up, server_hostname="localhost"
    )
    there = inner.wrap_bio(up, down, server_side=True)
    for _ in range(4):
        for each in (client, there):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return client.version() is not None


def test_the_authority_changes_in_three_steps(fleet, tmp_path):
    server = ServerConfig.load(fleet / "server")
    gateways = [fleet / f"gateway-{i}" / "ca.crt" for i in (1, 2)]
    late = shutil.copy(gateways[0], tmp_path / "late.crt")  # a gateway that got no new file
    before = server.certificate.read_bytes(), server.key.read_bytes()
    assert trusts(late, server)

    output = run("rotate-keys", fleet, "--authority")
    assert f"Copy {fleet / 'ca.crt'} to the folder of each gateway and of the server" in output
    [old, new] = keys.authorities((fleet / "ca.crt").read_text())
    for path in (server.authority, *gateways):
        assert keys.authorities(path.read_text()) == [old, new]
        assert trusts(path, server)
    assert server.certificate.read_bytes() == before[0]
    # A new certificate of the old authority is still possible.
    run("rotate-keys", fleet / "server", "--ca", fleet / "ca.key")
    assert keys.issued_by(server.certificate, old)

    run("rotate-keys", fleet, "--authority", "--use")
    assert keys.is_of(new, fleet / "ca.key")
    assert keys.issued_by(server.certificate, new)
    assert keys.fit(server.certificate, server.key)
    assert all(trusts(path, server) for path in (server.authority, *gateways))
    assert not trusts(late, server)  # which is why the file must be everywhere first
    run("rotate-keys", fleet / "server", "--ca", fleet / "ca.key")
    assert keys.issued_by(server.certificate, new)

    run("rotate-keys", fleet, "--authority", "--forget")
    for path in (fleet / "ca.crt", server.authority, *gateways):
        assert keys.authorities(path.read_text()) == [new]
        assert trusts(path, server)
    # Who has the old key can no longer pretend to be the server.
    server.certificate.write_bytes(before[0])
    server.key.write_bytes(before[1])
    assert trusts(late, server)
    assert not trusts(gateways[0], server)


def test_an_authority_whose_certificate_is_used_is_not_forgotten(fleet):
    server = ServerConfig.load(fleet / "server")
    before = server.certificate.read_bytes(), server.key.read_bytes()
    run("rotate-keys", fleet, "--authority")
    run("rotate-keys", fleet, "--authority", "--use")
    # As if the server were on another machine, and still had its old certificate.
    server.certificate.write_bytes(before[0])
    server.key.write_bytes(before[1])
    output = run("rotate-keys", fleet, "--authority", "--forget", status=1)
    assert "the old authority has issued" in output
    assert len(keys.authorities(server.authority.read_text())) == 2
    run("rotate-keys", fleet / "server", "--ca", fleet / "ca.key")
    run("rotate-keys", fleet, "--authority", "--forget")
    assert len(keys.authorities(server.authority.read_text())) == 1


def test_the_old_key_of_the_authority_is_refused_afterwards(fleet, tmp_path):
    shutil.copy(fleet / "ca.key", tmp_path / "stolen.key")
    for words in ([], ["--use"], ["--forget"]):
        run("rotate-keys", fleet, "--authority", *words)
    output = run("rotate-keys", fleet / "server", "--ca", tmp_path / "stolen.key", status=1)
    assert "is not the key of the authority in" in output


def test_an_authority_that_was_lost(fleet, tmp_path):
    """The steps of docs/operations.md: the authority of a new fleet with the same address."""
    (fleet / "ca.key").unlink()
    run("init", tmp_path / "new", "--gateways", 1, "--task", "statistics")
    shutil.copy(tmp_path / "new" / "ca.key", fleet)
    for name in ("ca.crt", "server.crt", "server.key"):
        shutil.copy(tmp_path / "new" / "server" / name, fleet / "server")
    server = ServerConfig.load(fleet / "server")
    assert not trusts(fleet / "gateway-1" / "ca.crt", server)
    shutil.copy(fleet / "server" / "ca.crt", fleet / "gateway-1")
    assert trusts(fleet / "gateway-1" / "ca.crt", server)
    run("rotate-keys", fleet / "server", "--ca", fleet / "ca.key")
    assert trusts(fleet / "gateway-1" / "ca.crt", server)


def test_a_signature_is_checked_against_each_key(fleet):
    """Two keys are two chances for an honest operator, and none for others."""
    run("rotate-keys", fleet, "--operator")
    job = job_of(fleet)
    stranger = PrivateKey.generate()
    found = signing.SignedJob.unverified(job.signed)
    text = signing.signatures.sign(stranger, found.to_document())
    (fleet / "server" / "job.signed.json").write_text(text)
    with pytest.raises(DomainError, match=r"expected one is \w{16}\.\.\. or \w{16}\.\.\."):
        job_of(fleet)
