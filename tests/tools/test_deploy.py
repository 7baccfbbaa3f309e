"""The containers: the Dockerfile passes hadolint; the compose file fits its schema and promises.

`make test-deploy` installs what these tests need: hadolint, and the schema of the Compose
specification.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedldp.cli.app import fedldp

pytestmark = pytest.mark.deploy

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
SCHEMA = ROOT / "build" / "deploy" / "package" / "schemas" / "compose.schema.json"
USERS = {"server": "10001:10000", "gateway": "10002:10000", "vault": "10003:10000"}


@pytest.fixture(scope="module")
def compose():
    import yaml

    return yaml.safe_load((DOCKER / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def stages():
    """The instructions of each stage of the Dockerfile, by its name."""
    text = re.sub(r"\\\n\s*", "", (DOCKER / "Dockerfile").read_text())
    found = {}
    for line in text.splitlines():
        if stage := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            found[stage[2]] = [line]
        elif found and line and not line.startswith("#"):
            found[list(found)[-1]].append(line)
    return found


def of_kind(lines, kind):
    return [line.removeprefix(f"{kind} ") for line in lines if line.startswith(f"{kind} ")]


def test_hadolint_finds_nothing():
    program = Path(sys.executable).with_name("hadolint")
    words = [str(program), "--no-color", str(DOCKER / "Dockerfile")]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == ""


def test_the_compose_file_fits_the_schema_of_the_specification(compose):
    import jsonschema

    schema = json.loads(SCHEMA.read_text())
    validator = jsonschema.Draft7Validator(schema)
    assert [error.message for error in validator.iter_errors(compose)] == []
    broken = compose | {"services": {"server": {"image": 7}}}
    assert list(validator.iter_errors(broken))  # it would notice


def test_no_part_has_privileges_or_writes_outside_its_folder(compose, stages):
    assert compose["services"].keys() == {"server", "vault-1", "gateway-1", "uplink-1"}
    for name, service in compose["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not service.keys() & {"privileged", "cap_add", "pid", "ipc", "user", "devices"}
        assert not any("docker.sock" in volume for volume in service["volumes"])
        mounted = [volume.rpartition(":")[2] for volume in service["volumes"]]
        assert [each for each in mounted if not each.startswith("/run/")] == ["/part"]
    for part, user in USERS.items():
        assert of_kind(stages[part], "USER") == [user]
        uid = user.partition(":")[0]
        assert f"--uid {uid} " in " ".join(of_kind(stages["base"], "RUN"))


def test_only_the_front_is_published_and_only_two_parts_have_a_network(compose):
    services = compose["services"]
    published = {name: each["ports"] for name, each in services.items() if "ports" in each}
    assert published == {"server": ["9443:9443"]}
    without = {name for name, each in services.items() if each.get("network_mode") == "none"}
    assert without == {"vault-1", "gateway-1"}
    shared = [set(each.get("networks", ())) for each in services.values()]
    assert sum(map(len, shared)) == len(set().union(*shared))  # no two parts share one


def test_sockets_are_shared_by_those_who_need_them(compose):
    holders = {}
    for name, service in compose["services"].items():
        for volume in service["volumes"]:
            if volume.partition(":")[0] in compose["volumes"]:
                holders.setdefault(volume, set()).add(name)
    assert holders == {
        "vault-1-socket:/run/fedldp-vault-1": {"vault-1", "gateway-1"},
        "uplink-1-socket:/run/fedldp-uplink": {"uplink-1", "gateway-1"},
    }
    for name, user in (("vault-1-socket", "vault"), ("uplink-1-socket", "gateway")):
        uid, gid = USERS[user].split(":")
        assert f"uid={uid},gid={gid},mode=0750" in compose["volumes"][name]["driver_opts"]["o"]


def test_the_images_are_slim_and_say_how_they_are(stages):
    bases = [lines[0].split()[1] for lines in stages.values()]
    assert set(bases) == {"python:${PYTHON}", "base"}
    assert re.search(r"ARG PYTHON=\d+\.\d+\.\d+-slim-\w+\n", (DOCKER / "Dockerfile").read_text())
    for part in USERS:
        assert not of_kind(stages[part], "RUN")
        assert [line.split()[0] for line in of_kind(stages[part], "COPY")] == ["--from=build"]
    assert "/opt/vault" in of_kind(stages["vault"], "COPY")[0]  # without Flower
    assert len(of_kind(stages["base"], "HEALTHCHECK")) == 1


def test_the_commands_of_the_containers_exist(compose, stages):
    commands = [json.loads(of_kind(stages[part], "CMD")[0]) for part in USERS]
    commands.append(compose["services"]["uplink-1"]["command"])
    group = fedldp.get_command(None, "fleet")
    for name, *words in commands:
        options = {each for one in group.get_command(None, name).params for each in one.opts}
        assert {word for word in words if word.startswith("--")} <= options
