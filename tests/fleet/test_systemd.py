"""The units for systemd: how exposed they are, and whether a fleet works in them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from accounts import needs_root
from fleet_parts import VEHICLES, Fleet, edit

from fedldp import Schema
from fedldp.fleet import processes
from fedldp.fleet.folder import Place, Work, init
from fedldp.learn.settings import Settings

SCHEMA = Schema.of(speed=(0, 50), late=["no", "yes"])
LARGEST = 4.0  # of 10: what `systemd-analyze security` calls OK
BOOT = Path(__file__).parents[1] / "helpers" / "boot_systemd.sh"
SOCKET = '"/run/fedldp-vault-1/vault.sock"'
# Waits for the result; then another account tries what it can, and everything is stopped.
PROBE = r"""
for i in $(seq 300); do
  test -e /var/lib/fedldp/server/state/model.json && break
  sleep 1
done
cp /var/lib/fedldp/server/state/*.summary.json /out/ || journalctl --no-pager | tail -n 100
for port in 9410 9444 $FRONT; do
  setpriv --reuid=65534 --regid=65534 --clear-groups \
    timeout 5 bash -c "echo > /dev/tcp/127.0.0.1/$port" 2> /dev/null \
    && echo "$port open" || echo "$port refused"
done
inside=$(systemctl show --property MainPID --value fedldp-gateway@gateway-1.service)
nsenter --target "$inside" --mount setpriv --reuid=fedldp-gateway --regid=fedldp-gateway \
  --clear-groups stat --format "shown to the gateway: %U" /proc/[0-9]* 2> /dev/null | sort -u
for port in 9480 9481 9482; do
  echo "monitor $port: $(curl --silent http://127.0.0.1:$port/healthz)"
done
curl --silent http://127.0.0.1:9481/metrics | grep "^fedldp_vault_answers"
curl --silent http://127.0.0.1:9480/status.json | grep --only-matching '"state": "done"' | head -n 1
vault=/var/lib/fedldp/vault-1
echo new,7,no >> $vault/rows.csv
systemctl reload fedldp-vault@vault-1 \
  && grep --only-matching "41 vehicles, 1 new" $vault/state/reload.json
rm $vault/rows.csv
systemctl reload fedldp-vault@vault-1 2> /dev/null || systemctl is-active fedldp-vault@vault-1
systemctl stop fedldp-server@server.socket fedldp-uplink@gateway-1.socket fedldp-vault@vault-1 \
  fedldp-monitor-server@server fedldp-monitor-vault@vault-1 fedldp-monitor-gateway@gateway-1
echo "left: $(systemctl list-units --plain --no-legend --state=active 'fedldp-*' | wc -l)"
echo "failed: $(systemctl list-units --plain --no-legend --state=failed 'fedldp-*' | wc -l)"
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    fleet = Fleet(tmp_path_factory.mktemp("units") / "fleet")
    work = Work.on_files("rows.csv", SCHEMA, "late", "logistic", VEHICLES, 2, {"vehicle": "id"})
    place = Place("127.0.0.1", processes.free_port(), processes.free_port())
    init(fleet.folder, work, Settings(4.0, survey=None), 1, place)
    rows = [f"{i},{i},{('no', 'yes')[i % 2]}\n" for i in range(VEHICLES)]
    (fleet.folder / "vault-1" / "rows.csv").write_text("id,speed,late\n" + "".join(rows))
    # A local fleet has the vault's socket in its own folder; the units have another place for it.
    edit(fleet.folder / "vault-1" / "vault.toml", listen=SOCKET)
    edit(fleet.folder / "gateway-1" / "gateway.toml", vaults=f"[{SOCKET}]")
    return fleet


def test_units_are_not_exposed(fleet, tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("needs systemd-analyze")
    found = {}
    for unit in sorted((fleet.folder / "systemd").glob("*.service")):
        path = tmp_path / unit.name.replace("@", "@x")
        path.write_text(unit.read_text())
        words = [program, "security", "--offline=true", "--no-pager", str(path)]
        done = subprocess.run(words, capture_output=True, text=True)
        level = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        assert level, done.stderr
        found[unit.name] = float(level[1])
    assert len(found) == 7
    assert max(found.values()) <= LARGEST, found


@needs_root
@pytest.mark.hostile
def test_a_fleet_works_in_its_units(fleet, tmp_path):
    """It reaches its result; other accounts see no process and reach no port but the front's."""
    if shutil.which("systemd-nspawn") is None:
        pytest.skip("needs systemd-nspawn")
    front = re.search(r"front = .*:(\d+)", (fleet.folder / "server" / "server.toml").read_text())[1]
    edit(fleet.folder / "server" / "server.toml", link=9410, monitor='"127.0.0.1:9480"')
    edit(fleet.folder / "vault-1" / "vault.toml", monitor='"127.0.0.1:9481"')
    edit(fleet.folder / "gateway-1" / "gateway.toml", monitor='"127.0.0.1:9482"')
    (tmp_path / "probe.sh").write_text(f"FRONT={front}\n{PROBE}")
    for name in ("root", "out"):
        (tmp_path / name).mkdir()
    places = {
        "FOLDER": tmp_path / "root",
        "FLEET": fleet.folder,
        "BASE": sys.base_prefix,
        "VENV": sys.prefix,
        "SOURCE": Path(__file__).parents[2],
        "PROBE": tmp_path / "probe.sh",
        "OUT": tmp_path / "out",
    }
    environment = os.environ | {name: str(path) for name, path in places.items()}
    words = ["unshare", "--mount", "bash", str(BOOT)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    path = tmp_path / "out" / "probe.log"
    assert path.exists(), f"systemd has not booted: {done.stderr[-2000:]}"
    said = path.read_text()
    (summary,) = (tmp_path / "out").glob("*.summary.json")
    assert json.loads(summary.read_text())["answered"] == VEHICLES, said
    lines = said.splitlines()
    assert lines[:3] == ["9410 refused", "9444 refused", f"{front} open"]
    assert lines[3:-2] == [
        "shown to the gateway: fedldp-gateway",
        *(f'monitor {port}: {{"status": "ok"}}' for port in (9480, 9481, 9482)),
        f'fedldp_vault_answers{{fedldp_job="rows",name="vault-1",part="vault"}} {VEHICLES}.0',
        '"state": "done"',
        "41 vehicles, 1 new",  # reloaded
        "active",  # refused, and still there
    ]
    assert lines[-2:] == ["left: 0", "failed: 0"]
