"""`fedldp demo --fleet`: real processes, whose ledgers prove what the server counts."""

import json
import re
import signal
import subprocess
import sys
import urllib.request

COMMAND = (sys.executable, "-m", "fedldp", "demo", "--fleet", "--rows", "2000")


def test_a_whole_fleet_on_this_machine(tmp_path):
    output = "--output", tmp_path / "fleet"
    done = subprocess.run([*COMMAND, "--json", *output], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    vehicles = found["vehicles"]
    assert 0.9 * vehicles < found["answers"] <= vehicles == 1800
    ledgers = {"answers": found["answers"], "answered_twice": 0, "most_spent": 4.0}
    assert found["ledgers"] == ledgers
    assert 0 < found["error"] < 1
    told = done.stderr.replace("\n", " ")
    for words in ("server init", "agent join agent-3", "job add", "Round 10 of 10 is done"):
        assert words in told
    assert "majority" not in done.stdout
    again = subprocess.run([*COMMAND, *output], capture_output=True, text=True)
    assert again.returncode == 1
    assert "expected a new folder" in again.stderr


def heed_ctrl_c():
    """A shell that runs the tests in the background lets their processes ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_its_page_stays_until_it_is_told_to_end():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*COMMAND, "--page"], text=True, preexec_fn=heed_ctrl_c, **pipes)
    page = ""
    for line in process.stderr:
        page = page or next(iter(re.findall(r"live page is (http\S+)", line)), "")
        if "stays until Ctrl-C" in line:
            break
    with urllib.request.urlopen(f"{page}status.json") as reply:
        [job] = json.load(reply)["jobs"]
    assert (job["name"], job["state"]) == ("flights", "done")
    shown = ""
    while "seconds" not in shown:  # before it is told to end
        shown += process.stdout.readline()
    assert "vehicles that answered twice │ 0" in shown
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 0
