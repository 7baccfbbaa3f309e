"""`fleet init` writes all that a fleet needs: it can be read, fits together, and keeps secrets."""

import configparser
import datetime
import ipaddress
import os
import tomllib
from dataclasses import replace

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedldp import Plan, datasets
from fedldp.cli.app import fedldp
from fedldp.cli.fleet.parts import FAILED, STOPPED
from fedldp.errors import DomainError
from fedldp.fleet import keys
from fedldp.fleet.flower import bundle
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.gateway import process as gateway_process
from fedldp.fleet.gateway.process import GatewayConfig
from fedldp.fleet.job import Job
from fedldp.fleet.monitor.address import MonitorAddress
from fedldp.fleet.processes import FREE_PORT
from fedldp.fleet.server import process as server_process
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.vault.process import VaultConfig
from fedldp.learn.settings import Settings
from fedldp.schema.schema import Schema
from fedldp.storage import files

GATEWAYS = 2
PLACE = Place("fleet.example.org", 9001, 9002)
SETTINGS = Settings(2.0, mechanism="duchi")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    mask = os.umask(0)  # secrets must not rely on it
    try:
        folder = tmp_path_factory.mktemp("fleet")
        data, _ = datasets.load("flights", rows=301).split(0.1)
        entries = {"rows": 301, "holdout": 0.1}
        work = Work.on_data_set(data, "logistic", GATEWAYS, 4, entries)
        job = init(folder, work, SETTINGS, GATEWAYS, PLACE)
    finally:
        os.umask(mask)
    assert job.question("7", 1) == Job.load(folder / "server" / "job.toml").question("7", 1)
    return folder


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_the_server_is_certified_by_the_authority_for_its_names(fleet):
    issuer, issued = (certificate(fleet / "server" / f"{name}.crt") for name in ("ca", "server"))
    issued.verify_directly_issued_by(issuer)
    issuer.verify_directly_issued_by(issuer)
    key = load_pem_private_key((fleet / "server" / "server.key").read_bytes(), None)
    assert issued.public_key() == key.public_key()
    root = load_pem_private_key((fleet / "ca.key").read_bytes(), None)
    assert issuer.public_key() == root.public_key()
    names = issued.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fleet.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    now = datetime.datetime.now(datetime.UTC)
    for each, is_authority in ((issuer, True), (issued, False)):
        assert each.not_valid_before_utc < now < each.not_valid_after_utc
        limits = each.extensions.get_extension_for_class(x509.BasicConstraints)
        assert limits.critical
        assert limits.value.ca is is_authority
        usage = each.extensions.get_extension_for_class(x509.KeyUsage).value
        assert usage.key_cert_sign is is_authority
        assert usage.digital_signature is not is_authority


def test_addresses_are_certified_as_addresses(tmp_path):
    keys.write_server(tmp_path, tmp_path / "ca.key", ["10.0.0.7", "::1", "127.0.0.1"])
    extensions = certificate(tmp_path / "server.crt").extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    assert found == ["10.0.0.7", "::1", "127.0.0.1"]


def test_each_gateway_has_a_key_of_its_own_that_the_server_knows(fleet):
    known = set()
    for i in range(1, GATEWAYS + 1):
        key = load_ssh_private_key((fleet / f"gateway-{i}" / "key").read_bytes(), None)
        assert isinstance(key.curve, ec.SECP384R1)
        for path in (
            fleet / f"gateway-{i}" / "key.pub",
            fleet / "server" / "gateways" / f"gateway-{i}.pub",
        ):
            assert load_ssh_public_key(path.read_bytes()) == key.public_key()
            known.add(path.read_bytes())
    assert len(known) == GATEWAYS


def test_secrets_are_for_their_owner_alone_and_lie_where_they_belong(fleet):
    secret = {
        path for path in fleet.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()
    }
    assert secret == {
        fleet / "ca.key",
        fleet / "operator.key",
        fleet / "server" / "server.key",
        fleet / "gateway-1" / "key",
        fleet / "gateway-2" / "key",
    }
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    assert (fleet / "server").stat().st_mode & 0o777 == 0o700


def test_a_secret_is_never_written_over_another(tmp_path):
    files.write_secret(tmp_path / "key", b"first")
    with pytest.raises(FileExistsError):
        files.write_secret(tmp_path / "key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"


def test_the_job_asks_every_vehicle_once(fleet):
    job = Job.load(fleet / "server" / "job.toml")
    vaults = [VaultConfig.load(fleet / f"vault-{i}") for i in range(1, GATEWAYS + 1)]
    held = [vault.read()[0][2] for vault in vaults]
    vehicles = len(datasets.load("flights", rows=301).split(0.1)[0])
    assert sorted(int(key) for part in held for key in part) == list(range(vehicles))
    most = max(map(len, held))
    assert job.reports * job.rounds >= most > job.reports * (job.rounds - 1)
    assert (job.name, job.rounds, job.gateways) == ("flights", 4, GATEWAYS)
    assert job.expected == vehicles < job.reports * job.rounds * GATEWAYS  # they are rounded up
    assert {float(vault.cap) for vault in vaults} == {2.0}
    assert job.plan == SETTINGS.plan(36)
    assert job.recipe == SETTINGS.recipe(36, 4, distance=8.0)
    assert job.model.weights == (0.0,) * 36
    assert job.checkpoint.parent == job.result.parent == fleet / "server" / "state"


def test_a_statistic_asks_all_vehicles_in_one_round(tmp_path):
    (tmp_path / "rows.toml").write_text(Schema.of(age=(0, 100), city=["Oslo", "Rome"]).to_toml())
    of_files = ["--data", "rows.csv", "--schema", str(tmp_path / "rows.toml"), "--vehicles", "500"]
    for name, options, asked, reports in (
        ("flights", [], datasets.load("flights").asked, 294_611),
        ("rows", of_files, Schema.of(age=(0, 100), city=["Oslo", "Rome"]), 500),
    ):
        folder = tmp_path / name
        words = ["fleet", "init", str(folder), "--task", "statistics", "--gateways", "1", *options]
        done = CliRunner().invoke(fedldp, words)
        assert done.exit_code == 0, done.output
        job = Job.load(folder / "server" / "job.toml")
        assert (job.model, job.recipe, job.rounds, job.reports) == (None, None, 1, reports)
        assert job.plan == Plan(asked, epsilon=4.0)
        assert job.result.name == "tally.json"


def test_server_and_gateways_find_each_other(fleet):
    found = ServerConfig.load(fleet / "server")
    assert (found.host, found.port, found.address) == ("0.0.0.0", 9001, "127.0.0.1:9002")
    for path in (found.authority, found.certificate, found.key, found.job, found.app):
        assert path.exists()
    gateway = GatewayConfig.load(fleet / "gateway-2")
    assert gateway.server == "fleet.example.org:9001"
    assert gateway.authority == fleet / "gateway-2" / "ca.crt"
    assert gateway.bundle == bundle.SHA256
    node = gateway.node_process([99])
    arguments = dict(zip(node.argv[1::2], node.argv[2::2], strict=True))
    vault = VaultConfig.load(fleet / "vault-2").address.path
    assert arguments == {
        "--superlink": "127.0.0.1:99",
        "--root-certificates": str(fleet / "gateway-2" / "state" / "uplink" / "ca.crt"),
        "--auth-supernode-private-key": str(fleet / "gateway-2" / "key"),
        "--port": FREE_PORT,
        "--node-config": f'vaults="{vault}" names="vault-2" state="{gateway.state}" '
        f"deadline={gateway_process.DEADLINE}",
    }
    assert node.environment["FLWR_TELEMETRY_ENABLED"] == "0"
    assert node.environment["FLWR_HOME"] == str(fleet / "gateway-2" / "state" / "flwr")


def test_the_link_is_bound_to_the_machine_checks_keys_and_installs_nothing(fleet):
    argv = ServerConfig.load(fleet / "server").link_process().argv
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert argv[argv.index("--isolation") + 1] == "process"
    assert {"--enable-supernode-auth", "--disable-runtime-dependency-installation"} <= set(argv)
    assert "--insecure" not in argv


def test_the_app_holds_no_code(fleet):
    assert [path.name for path in (fleet / "server" / "app").iterdir()] == ["pyproject.toml"]
    app = tomllib.loads((fleet / "server" / "app" / "pyproject.toml").read_text())
    assert app["tool"]["flwr"]["app"]["config"] == {"job": ""}
    assert app["project"]["dependencies"] == []


def test_a_readme_and_units_for_systemd(fleet):
    text = (fleet / "README.md").read_text()
    assert "$" not in text
    assert "fleet.example.org:9001" in text
    units = {path.name: path.read_text() for path in (fleet / "systemd").iterdir()}
    services = {f"fedldp-{part}@.service" for part in ("gateway", "server", "uplink", "vault")}
    sockets = {f"fedldp-{part}@.socket" for part in ("server", "uplink")}
    parts = ("gateway", "server", "vault")
    monitors = {f"fedldp-monitor-{part}@.service" for part in parts}
    assert units.keys() == services | sockets | monitors
    assert not any("$" in text for text in units.values())
    assert "ListenStream=0.0.0.0:9001\n" in units["fedldp-server@.socket"]
    for name in services | monitors:
        unit = configparser.ConfigParser(interpolation=None, delimiters="=", strict=False)
        unit.optionxform = str
        unit.read_string(units[name])
        part = name.removeprefix("fedldp-").removesuffix("@.service").partition("-")[0]
        service = unit["Service"]
        assert f"fedldp fleet {part} ." in service["ExecStart"]
        assert service["ProtectProc"] == "invisible"
        assert (service.get("PrivateNetwork") == "yes") == (part not in ("uplink", "monitor"))
        if part == "monitor":  # %j is the last word of the unit's name before the @
            assert service["User"] == "fedldp-%j"
            assert (service["IPAddressDeny"], service["IPAddressAllow"]) == ("any", "localhost")
            assert "server.key" in service["InaccessiblePaths"]
        if part == "server":
            assert service["RestartPreventExitStatus"] == str(FAILED)
            assert service["SuccessExitStatus"] == str(STOPPED)
        asked = "--require-isolation" in service["ExecStart"]
        assert asked == (part in ("gateway", "server"))


def test_a_server_is_watched_on_its_own_machine(fleet, tmp_path):
    """And servers whose files are older, which have no such entry, still start."""
    entries = tomllib.loads((fleet / "server" / "server.toml").read_text())
    assert entries["monitor"] == "127.0.0.1:9480"
    assert {path.name for path in (fleet / "prometheus").iterdir()} == {
        "fedldp-rules.yml",
        "prometheus.yml",
    }
    work = Work.on_data_set(datasets.load("flights", rows=100), "logistic", 1, 4, {"rows": 100})
    init(tmp_path / "fleet", work, SETTINGS, 1, replace(PLACE, monitor=None))
    path = tmp_path / "fleet" / "server"
    assert "monitor" not in (path / "server.toml").read_text()
    assert MonitorAddress.load(path / "server.toml") is None
    assert ServerConfig.load(path).port == PLACE.port


def test_a_path_that_just_fits(tmp_path):
    """Sockets have short paths; that of the folder in which it is prepared does not count."""
    work = Work.on_data_set(datasets.load("flights", rows=100), "logistic", 1, 4, {"rows": 100})
    name = "f" * (107 - len(f"{tmp_path}//vault-1/vault.sock"))
    init(tmp_path / name, work, SETTINGS, 1, Place())
    assert len(VaultConfig.load(tmp_path / name / "vault-1").address.path) == 107
    with pytest.raises(DomainError, match="Choose a folder with a shorter path"):
        init(tmp_path / f"{name}f", work, SETTINGS, 1, Place())


def test_files_of_ones_own(tmp_path):
    (tmp_path / "rows.toml").write_text(
        Schema.of(age=(0, 100), city=["Oslo", "Rom; é"], sold=["no", "yes"]).to_toml()
    )
    (tmp_path / "rows.csv").write_text("age,city,sold,car\n31,Oslo,no,a\n54,,yes,a\n,Oslo,yes,b\n")
    options = ["--gateways", "1", "--epsilon", "1", "--rounds", "2", "--job", "spring"]
    options += ["--data", str(tmp_path / "rows.csv"), "--schema", str(tmp_path / "rows.toml")]
    options += ["--target", "sold", "--vehicle", "car", "--vehicles", "3"]
    folder = tmp_path / "fleet"
    done = CliRunner().invoke(fedldp, ["fleet", "init", str(folder), *options])
    assert done.exit_code == 0, done.output
    assert "asks 1 gateway for 2 reports each" in done.output
    (schema, matrix, names), _ = VaultConfig.load(folder / "vault-1").read()
    assert schema.names == ("age", "city", "sold")
    assert (matrix.shape, names) == ((3, 3), ["a", "a", "b"])
    job = Job.load(folder / "server" / "job.toml")
    assert (job.name, job.model.schema.names, job.model.target.name) == (
        "spring",
        ("age", "city"),
        "sold",
    )


@pytest.mark.parametrize(
    ("options", "kind", "asked", "rounds"),
    [
        ([], "whiten", 9821, 13),  # a tenth of 294,611 flights, behind three gateways
        (["--survey", "scale", "--survey-share", "0.05"], "scale", 4911, 12),
        (["--survey", "none"], None, 0, 10),
    ],
)
def test_a_survey_comes_first(tmp_path, options, kind, asked, rounds):
    folder = tmp_path / "fleet"
    done = CliRunner().invoke(fedldp, ["fleet", "init", str(folder), *options])
    assert done.exit_code == 0, done.output
    job = Job.load(folder / "server" / "job.toml")
    assert (job.survey, job.survey_reports, job.rounds) == (kind, asked, rounds)
    vehicles = -(-294_611 // 3)
    assert job.reports == -(-(vehicles - asked) // 10)
    assert job.expected == 294_611
    said = f"first asks 3 gateways for {asked:,} reports about numbers each, in {rounds - 10} round"
    assert (said in done.output) == bool(asked)
    assert "in 10 rounds" in done.output


FILES = ["--data", "rows.csv", "--schema", "S", "--vehicles", "3"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "rows.csv"], "give --schema and --vehicles and --target too"),
        (["--data", "rows.csv", "--schema", "S", "--target", "sold"], "give --vehicles too"),
        (["--data", "rows.csv", "--schema", "S", "--task", "statistics"], "give --vehicles too"),
        ([*FILES, "--target", "sold", "--task", "statistics"], "--target is for a training"),
        ([*FILES, "--task", "statistics", "--vehicle", "age"], "Delete its table"),
        (["--target", "sold"], "has its own columns"),
        (["--epsilon", "0"], "epsilon must be"),
    ],
)
def test_what_init_refuses(tmp_path, options, message):
    schema = tmp_path / "rows.toml"
    schema.write_text(Schema.of(age=(0, 100), sold=["no", "yes"]).to_toml())
    given = [str(schema) if word == "S" else word for word in options]
    arguments = ["fleet", "init", str(tmp_path / "fleet"), "--epsilon", "1", *given]
    done = CliRunner().invoke(fedldp, arguments)
    assert done.exit_code != 0
    assert message in done.output + str(done.exception)
    assert not (tmp_path / "fleet").exists()


def test_a_folder_that_is_in_use(fleet):
    work = Work.on_data_set(datasets.load("flights", rows=200), "logistic", 1, 1, {})
    before = (fleet / "ca.key").read_bytes()
    for folder in (fleet, fleet / "README.md"):
        with pytest.raises(DomainError, match="expected a new or empty folder"):
            init(folder, work, SETTINGS, 1, PLACE)
    assert (fleet / "ca.key").read_bytes() == before


def test_a_folder_too_deep_for_a_socket(tmp_path):
    deep = tmp_path / ("x" * 100)
    work = Work.on_data_set(datasets.load("flights", rows=200), "logistic", 1, 1, {})
    with pytest.raises(DomainError, match="Choose a folder with a shorter path"):
        init(deep, work, SETTINGS, 1, PLACE)
    assert not deep.exists()


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ('server = "h:1"\nauthority = "c"\nkey = "k"', "'vaults' is missing"),
        (
            'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["a\\"b"]',
            "backslashes or commas",
        ),
        (
            'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["a,b"]',
            "backslashes or commas",
        ),
        (
            'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = []',
            "vaults must contain at least one vault",
        ),
        ('server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["tcp://h:1"]', "needs a token"),
        (
            'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["a"]\nbundle = "AB"',
            "bundle must be a SHA-256",
        ),
        (
            'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["a"]\ndeadline = 0',
            "deadline must be a positive number",
        ),
        (
            'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["a"]\ndeadline = nan',
            "deadline must be a positive number",
        ),
        ('server = 7\nauthority = "c"\nkey = "k"\nvaults = ["a"]', "server has a value of a wrong"),
    ],
)
def test_what_a_gateway_refuses(tmp_path, entries, message):
    (tmp_path / gateway_process.FILE).write_text(entries)
    with pytest.raises(DomainError, match=message):
        GatewayConfig.load(tmp_path)


def test_a_vault_on_tcp(tmp_path):
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / gateway_process.FILE).write_text(
        'server = "h:1"\nauthority = "c"\nkey = "k"\nvaults = ["tcp://10.0.0.7:99", "v.sock"]\n'
        'token = "token"\ndeadline = 5\n'
    )
    gateway = GatewayConfig.load(tmp_path)
    assert [(vault.host, vault.port) for vault in gateway.distant] == [("10.0.0.7", 99)]
    assert gateway.bundle == bundle.SHA256
    node = gateway.node_process([1, 2])
    assert node.argv[-1] == (
        f'vaults="tcp://127.0.0.1:2,{tmp_path}/v.sock" names="10.0.0.7:99,{tmp_path.name}" '
        f'state="{tmp_path}/state" token="{tmp_path}/token" deadline=5.0'
    )
    assert node.silence == 5 + gateway_process.SILENCE


@pytest.mark.parametrize("front", ["9443", ":9443", "host:", "host:x", "host:0", "host:65536"])
def test_what_a_server_refuses(tmp_path, front):
    names = ("authority", "certificate", "key", "gateways", "app", "job")
    lines = [f'front = "{front}"', "link = 1", *(f'{name} = "x"' for name in names)]
    (tmp_path / server_process.FILE).write_text("\n".join(lines))
    with pytest.raises(DomainError, match="front must be an address and a port"):
        ServerConfig.load(tmp_path)


def test_the_folder_of_a_socket_is_explained_where_it_is_missing(tmp_path):
    """Units for systemd make it; on one machine, the socket is in the folder of the vault."""
    (tmp_path / "rows.toml").write_text(Schema.of(age=(0, 100)).to_toml())
    options = ["--task", "statistics", "--gateways", "1", "--vehicles", "3", "--data", "rows.csv"]
    options += ["--schema", str(tmp_path / "rows.toml")]
    for host, explained in (("127.0.0.1", False), ("fleet.example.org", True)):
        folder = tmp_path / str(int(explained))  # short, since a vault's socket is in it
        words = ["fleet", "init", str(folder), "--server", host, *options]
        done = CliRunner().invoke(fedldp, words)
        assert done.exit_code == 0, done.output
        for readme in ("README.md", "vault-1/README.md"):
            text = (folder / readme).read_text()
            assert ("install -d -m 2750 -o USER -g GROUP /run/fedldp-vault-1" in text) == explained
