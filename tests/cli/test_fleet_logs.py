"""`--log-format` and `--log-level` of the parts of a fleet, which hold for their processes too."""

import json
import logging
import os

import pytest
from click.testing import CliRunner

from fedldp.cli.app import fedldp
from fedldp.cli.fleet import parts
from fedldp.fleet import logs

OPTIONS = ["--log-format", "json", "--log-level", "debug"]


def run(part, folder, *options):
    return CliRunner().invoke(fedldp, ["fleet", part, str(folder), *options])


def event(*_, **__):
    """Stand for a part: log something, and remember what its processes inherit."""
    event.inherited = {name: os.environ.get(name) for name in (logs.FORMAT, logs.LEVEL)}
    logging.getLogger("fedldp.fleet.part").debug("it runs", extra={"job": "spring"})
    return True


@pytest.mark.parametrize("part", ["server", "gateway", "vault", "uplink"])
def test_all_parts_have_them(part, tmp_path, monkeypatch):
    monkeypatch.setattr(parts.server_process, "run", event)
    monkeypatch.setattr(parts.os, "execv", event)
    monkeypatch.setattr(parts.asyncio, "run", lambda started: (started.close(), event()))
    found = run(part, tmp_path, *OPTIONS)
    [line] = [line for line in found.stderr.splitlines() if "it runs" in line]
    assert json.loads(line)["job"] == "spring"
    assert event.inherited == {logs.FORMAT: "json", logs.LEVEL: "debug"}
    assert logs.FORMAT not in os.environ  # the command was over


def test_an_unknown_format_is_refused(tmp_path):
    found = run("server", tmp_path, "--log-format", "xml")
    assert found.exit_code == 2
    assert "'xml' is not one of 'text', 'json'" in found.stderr
