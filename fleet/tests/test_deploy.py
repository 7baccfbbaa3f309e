"""The files in deploy: units for systemd, images, Compose and a chart, as far as tools can tell.

`make test-deploy` installs hadolint, helm, the schemas of Kubernetes and that of Compose. No
container engine and no cluster runs here: what Compose and Kubernetes make of valid files is not
tested. What the containers run is, as processes.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mosquitto_broker import Mosquitto, documented
from server_process import free_port

from fedldp.cli.app import fedldp

pytestmark = pytest.mark.deploy

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE, CHART, UNITS = (DEPLOY / each for each in ("compose", "helm/fedldp", "systemd"))
SCHEMA = ROOT / "build" / "deploy" / "package" / "schemas" / "compose.schema.json"
LARGEST_EXPOSURE = 2.0  # of 10, by `systemd-analyze security`
KUBERNETES = ("1.29", "1.34")


def run(*words, **options):
    beside = Path(sys.executable).with_name(str(words[0]))
    found = str(beside) if beside.exists() else shutil.which(words[0])
    assert found, f"{words[0]} is not installed"
    done = subprocess.run(
        [found, *map(str, words[1:])], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def check_command(words):
    """Check that fedldp has a command, and that it takes these words."""
    command, rest = fedldp, list(words)
    while hasattr(command, "get_command"):
        command = command.get_command(None, rest.pop(0))
    command.make_parser(_context(command)).parse_args(rest)


def _context(command):
    import click

    return click.Context(command)


# Units


UNIT_FILES = sorted(UNITS.glob("*.service"))


def unit_lines(path, name):
    return re.findall(rf"^{name}=(.*)$", path.read_text(), re.M)


def test_units_are_valid_and_hardly_exposed(tmp_path):
    assert len(UNIT_FILES) == 4
    for path in UNIT_FILES:
        shutil.copy(path, tmp_path / path.name)
        shutil.copy(path, tmp_path / path.name.replace("@", "@x"))
    for path in UNIT_FILES:
        name = path.name.replace("@", "@x")
        said = run("systemd-analyze", "verify", "--man=no", f"./{name}", cwd=tmp_path)
        assert "fedldp" not in said
        words = ("security", "--offline=true", "--no-pager", f"./{name}")
        said = run("systemd-analyze", *words, cwd=tmp_path)
        [exposure] = re.findall(r"Overall exposure level for \S+: ([\d.]+)", said)
        assert float(exposure) <= LARGEST_EXPOSURE, said


def test_users_of_the_units_are_made():
    said = run("systemd-sysusers", "--dry-run", UNITS / "fedldp.conf")
    users = {user for path in UNIT_FILES for user in unit_lines(path, "User")}
    assert users == {"fedldp-server", "fedldp-agent", "fedldp-network"}
    assert [user for user in users if user not in said] == []


def test_what_holds_data_has_no_network_and_what_has_one_sees_no_data():
    data, network = (UNITS / f"fedldp-{each}@.service" for each in ("agent", "agent-network"))
    assert unit_lines(data, "PrivateNetwork") == ["yes"]
    assert unit_lines(data, "RestrictAddressFamilies") == ["AF_UNIX"]
    assert unit_lines(network, "InaccessiblePaths") == ["-/var/lib/fedldp"]
    assert unit_lines(data, "User") != unit_lines(network, "User")
    assert unit_lines(data, "Group") == unit_lines(network, "Group") == ["fedldp"]
    folder = unit_lines(data, "ReadWritePaths")[0]
    assert not unit_lines(network, "ReadWritePaths")[0].startswith(f"{folder}/")


def test_units_run_commands_that_exist():
    for path in UNIT_FILES:
        [line] = unit_lines(path, "ExecStart")
        start, words = re.match(r"(/usr/bin/env fedldp|/bin/sh -c 'fedldp) ([^>]+)", line).groups()
        assert start
        check_command(words.split())


# Images and Compose


@pytest.fixture(scope="module")
def compose():
    import yaml

    return yaml.safe_load((COMPOSE / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def stages():
    """The instructions of each stage of the Dockerfile, by its name."""
    text, found = re.sub(r"\\\n\s*", "", (COMPOSE / "Dockerfile").read_text()), {}
    for line in text.splitlines():
        if stage := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            found[stage[2]] = []
        elif found and line and not line.startswith("#"):
            kind, _, rest = line.partition(" ")
            found[list(found)[-1]].append((kind, rest))
    return found


OWN = ("server", "agent", "network")


def test_hadolint_finds_nothing():
    assert run("hadolint", "--no-color", COMPOSE / "Dockerfile") == ""


def test_extras_of_the_images_exist(stages):
    import tomllib

    [(_, installed), *_] = [each for each in stages["build"] if each[0] == "RUN"]
    projects = {"library": ROOT / "pyproject.toml", "fleet": ROOT / "fleet" / "pyproject.toml"}
    for name, path in projects.items():
        known = tomllib.loads(path.read_text())["project"]["optional-dependencies"]
        lists = re.findall(rf"\$\{{{name}\}}\[([a-z,]+)\]", installed)
        assert lists
        assert {extra for each in lists for extra in each.split(",")} <= known.keys()


def test_the_compose_file_fits_the_schema_of_the_specification(compose):
    import jsonschema

    validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text()))
    assert [error.message for error in validator.iter_errors(compose)] == []
    assert list(validator.iter_errors(compose | {"services": {"server": {"image": 7}}}))


def test_no_container_has_privileges_or_writes_elsewhere(compose, stages):
    assert compose["services"].keys() == {*OWN, "postgres", "mosquitto"}
    for name, service in compose["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.keys() & {"privileged", "pid", "ipc", "devices"}
        assert "cap_add" not in service or name == "postgres"
        assert not any("docker.sock" in volume for volume in service["volumes"])
    users = {name: dict(stages[name])["USER"] for name in ("server", "agent")}
    users["network"] = compose["services"]["network"]["user"]
    assert len(set(users.values())) == 3
    for user in users.values():
        assert f"--uid {user.partition(':')[0]} " in dict(stages["base"])["RUN"]


def test_only_roads_are_published_and_data_has_no_network(compose):
    services = compose["services"]
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    roads = {"server": ["8443:8443", "127.0.0.1:8480:8480"], "mosquitto": ["8883:8883"]}
    assert published == roads
    assert services["agent"]["network_mode"] == "none"
    assert services["postgres"]["networks"] == ["store"]
    assert compose["networks"]["store"]["internal"]
    with_store = [name for name, each in services.items() if "store" in each.get("networks", [])]
    assert with_store == ["server", "postgres"]
    mounted = [each.partition(":/")[0] for each in services["network"]["volumes"]]
    assert mounted == ["${AGENT:-./agent}/network", "road"]  # not the data


def test_containers_run_commands_that_exist(compose, stages):
    assert dict(stages["base"])["ENTRYPOINT"] == '["fedldp"]'
    commands = [json.loads(dict(stages[name])["CMD"]) for name in ("server", "agent")]
    commands.append(compose["services"]["network"]["command"])
    for name in ("server", "agent"):
        kind, program, *words = compose["services"][name]["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "fedldp")
        commands.append(words)
    for words in commands:
        check_command(words)


@pytest.mark.skipif(
    shutil.which("mosquitto", path="/usr/sbin:/usr/bin") is None, reason="mosquitto"
)
def test_mosquitto_takes_its_files(tmp_path):
    """With other paths; their rules are those of docs/how-to/mqtt.md."""
    assert rules_in((COMPOSE / "mosquitto.acl").read_text()) == rules_in(documented("acl"))
    broker, port = Mosquitto(tmp_path / "broker"), free_port()
    text = (COMPOSE / "mosquitto.conf").read_text().replace("listener 8883", f"listener {port}")
    for folder in ("certs", "config", "data"):
        text = text.replace(f"/mosquitto/{folder}/", f"{broker.folder}/")
    shutil.copy(COMPOSE / "mosquitto.acl", broker.folder)
    (broker.folder / "mosquitto.conf").write_text(f"user root\n{text}")
    broker.port = port
    broker.start()
    try:
        connection = broker.client("server").connect("server-1")
        connection.close()
    finally:
        broker.kill()


def rules_in(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


# The chart

SETTINGS = {
    "defaults": [],
    "one process": ["--set", "replicas=1", "--set", "service.type=ClusterIP"],
    "all": [
        *("--set", "agents.from[0].ipBlock.cidr=10.0.0.0/8", "--set", "nodeSelector.disk=fast"),
        *("--set", "tolerations[0].key=own", "--set", "service.annotations.note=yes-it-is"),
        *("--set", "monitoring.namespaces={one,two}", "--set", "monitoring.port=9999"),
    ],
}


def rendered(*words):
    import yaml

    text = run("helm", "template", "fleet", CHART, *words)
    return [each for each in yaml.safe_load_all(text) if each]


def test_helm_finds_nothing():
    assert "0 chart(s) failed" in run("helm", "lint", "--strict", CHART)


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("version", KUBERNETES)
def test_the_chart_fits_the_schemas_of_kubernetes(settings, version):
    import kubernetes_validate

    found = rendered(*SETTINGS[settings])
    kinds = ["Deployment", "NetworkPolicy", "Service", "Service"]
    expected = kinds if settings == "one process" else [*kinds, "PodDisruptionBudget"]
    assert sorted(each["kind"] for each in found) == sorted(expected)
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(each | {"spec": {"nobody": 1}}, version, strict=True)


@pytest.mark.parametrize("wrong", ["replicas=0", "service.type=Any", "nobody=1"])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(AssertionError, match="values don't meet the specifications"):
        run("helm", "template", "fleet", CHART, "--set", wrong)


def test_the_pods_of_the_chart_have_no_privileges():
    [deployment] = [each for each in rendered() if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["automountServiceAccountToken"] is False
    secured = container["securityContext"]
    assert secured["readOnlyRootFilesystem"]
    assert secured["allowPrivilegeEscalation"] is False
    assert secured["capabilities"] == {"drop": ["ALL"]}
    assert all(each["readOnly"] for each in container["volumeMounts"] if each["name"] != "tmp")
    check_command(container["args"])


READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'


@pytest.mark.postgresql
def test_the_command_of_the_chart_writes_nothing_into_its_folder(tmp_path, postgresql_server):
    """On PostgreSQL, in a folder that is mounted read-only, as secrets are."""
    from road_client import Client
    from server_process import HOST, ServerProcess, wait_until

    folder, url = tmp_path / "server", postgresql_server.make_database("chart")
    run("fedldp", "server", "init", folder, "--database", url)
    [deployment] = [each for each in rendered() if each["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    server, page = free_port(), free_port()
    places = {
        "/server": folder,
        "0.0.0.0:8443": f"{HOST}:{server}",
        "0.0.0.0:8480": f"{HOST}:{page}",
    }
    words = [str(places.pop(word, word)) for word in container["args"]]
    assert not places
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", READ_ONLY, str(folder)]
    process = subprocess.Popen([*command, sys.executable, "-m", "fedldp", *words])
    try:
        seen = ServerProcess(folder)
        seen.port = server
        wait_until(lambda: listens(HOST, server))
        client = Client.joined(seen)
        assert client.call().offers == ()
        client.connection.close()
        with pytest.raises(OSError, match="Read-only"):
            (Path(f"/proc/{process.pid}/root") / folder.relative_to("/") / "x").touch()
    finally:
        process.terminate()
        process.wait(60)


def listens(host, port):
    import contextlib
    import socket

    with contextlib.suppress(OSError), socket.create_connection((host, port)):
        return True
    return False


def test_the_page_is_for_monitoring_alone():
    [policy] = [each for each in rendered() if each["kind"] == "NetworkPolicy"]
    road, page = policy["spec"]["ingress"]
    assert (road["ports"], "from" in road) == ([{"port": "road"}], False)
    [allowed] = page["from"]
    names = allowed["namespaceSelector"]["matchLabels"]
    assert names == {"kubernetes.io/metadata.name": "monitoring"}
