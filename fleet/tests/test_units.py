"""A fleet in the units of deploy/systemd, in a systemd that is booted for it. Needs root."""

import contextlib
import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import agent_folder
import pytest
from engine_cases import OPERATOR, PLAN, statistic
from server_process import ServerProcess

from fedldp import Ledger
from fedldp.results.tally import from_json
from fedldp_fleet.agent import service
from fedldp_fleet.jobs import Schedule
from fedldp_fleet.server.folder import ServerFolder

pytestmark = [
    pytest.mark.hostile,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can boot a systemd"),
    pytest.mark.skipif(not shutil.which("systemd-nspawn"), reason="needs systemd-container"),
]

SOURCE = Path(__file__).parents[2]
BOOT = Path(__file__).parent / "helpers" / "boot_units.sh"
VEHICLES = 7
NOW = datetime.datetime.now(datetime.UTC)
OPEN = Schedule(NOW - datetime.timedelta(hours=1), NOW + datetime.timedelta(hours=1))

# Waits for the result; then the two processes of the agent try what they must not be able to do.
PROBE = r"""
for i in $(seq 120); do
  fedldp server status /var/lib/fedldp-server | grep -q "spring: done" && break
  sleep 1
done
fedldp server status /var/lib/fedldp-server
fedldp agent status /var/lib/fedldp/depot | grep running
as() {  # UNIT USER COMMAND: as the process of a unit, in its namespaces
  nsenter --target "$(systemctl show --property MainPID --value "fedldp-$1@depot")" --mount --net \
    setpriv --reuid="$2" --regid=fedldp --clear-groups "${@:3}" 2> /dev/null
}
try() { as "$@" > /dev/null && echo yes || echo no; }
data() { try agent fedldp-agent "$@"; }
network() { try agent-network fedldp-network "$@"; }
echo "data part reads data: $(data cat /var/lib/fedldp/depot/rows.csv)"
knock="echo > /dev/tcp/127.0.0.1/PORT"
echo "data part reaches the server: $(data timeout 5 bash -c "$knock")"
echo "data part reads the secret: $(data cat /var/lib/fedldp-network/depot/membership.json)"
echo "network part reads data: $(network cat /var/lib/fedldp/depot/rows.csv)"
echo "network part reads the ledger: $(network cat /var/lib/fedldp/depot/ledger.db)"
echo "network part reaches the server: $(network timeout 5 bash -c "$knock")"
echo "network part reads its secret: $(network cat /var/lib/fedldp-network/depot/membership.json)"
systemctl start fedldp-agent-metrics@depot
grep "fedldp_agent_running\|fedldp_agent_answers_total{" /run/fedldp-metrics/depot.prom
stat --format "metrics: %a" /run/fedldp-metrics/depot.prom
systemctl stop fedldp-agent@depot fedldp-agent-network@depot fedldp-server
echo "failed: $(systemctl list-units --plain --no-legend --state=failed 'fedldp-*' | wc -l)"
cp -a /var/lib/fedldp-server /var/lib/fedldp/depot /out/
chown -R root: /out
"""


@pytest.fixture
def parts(tmp_path):
    """Return the folders of a server and an agent that has joined it; none of them runs."""
    folder = tmp_path / "parts"
    folder.mkdir()
    server = ServerProcess(folder / "server")
    server.add(statistic(wanted=VEHICLES, schedule=OPEN), OPERATOR)
    depot = agent_folder.make(folder / "depot", OPERATOR, VEHICLES)
    server.start()
    code = server.enroll("depot", VEHICLES)
    service.join(depot / service.NETWORK, server.url, code, server.path / "ca.pem")
    server.stop()
    return folder, server.port


def test_a_fleet_works_in_its_units(parts, tmp_path):
    folder, port = parts
    (tmp_path / "probe.sh").write_text(PROBE.replace("PORT", str(port)))
    for name in ("root", "out"):
        (tmp_path / name).mkdir()
    places = {"FOLDER": tmp_path / "root", "PARTS": folder, "SOURCE": SOURCE}
    places |= {"BASE": sys.base_prefix, "VENV": sys.prefix}
    places |= {"PROBE": tmp_path / "probe.sh", "OUT": tmp_path / "out"}
    environment = os.environ | {name: str(path) for name, path in places.items()}
    done = subprocess.run(
        ["unshare", "--mount", "bash", str(BOOT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    log = tmp_path / "out" / "probe.log"
    assert log.exists(), f"systemd has not booted: {done.stderr[-2000:]}{done.stdout[-2000:]}"
    said = log.read_text()
    assert f"spring: done: all rounds are done. Round 1 of 1, {VEHICLES} of {VEHICLES}" in said, (
        said
    )
    assert "running: yes" in said
    assert f'fedldp_agent_answers_total{{fedldp_job="spring"}} {VEHICLES}\n' in said, said
    assert "fedldp_agent_running 1.0\n" in said
    assert "metrics: 644\n" in said
    found = dict(re.findall(r"^(.* part.*|failed): (.*)$", said, re.M))
    assert found == {
        "data part reads data": "yes",
        "data part reaches the server": "no",
        "data part reads the secret": "no",
        "network part reads data": "no",
        "network part reads the ledger": "no",
        "network part reaches the server": "yes",
        "network part reads its secret": "yes",
        "failed": "0",
    }, said
    store = ServerFolder.load(tmp_path / "out" / "fedldp-server").store()
    with contextlib.closing(store), store.reading() as inside:
        assert from_json(inside.job("spring").result, PLAN).reports == VEHICLES
    with Ledger(tmp_path / "out" / "depot" / service.LEDGER, 4) as ledger:
        assert set(ledger.totals().values()) == {2}
