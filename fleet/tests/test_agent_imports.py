"""What an agent of one vehicle loads: memory is scarce where it runs."""

import dataclasses
import re
import subprocess
import sys

import agent_folder
from engine_cases import OPERATOR, statistic, training
from fleet_server import OPEN
from server_process import ServerProcess, wait_until

from fedldp_fleet.store.base import DONE

NEEDLESS = {
    "asyncio",
    "cryptography",
    "fedldp_fleet.engine",
    "fedldp_fleet.jobs",
    "fedldp_fleet.mqtt",
    "fedldp_fleet.server",
    "fedldp_fleet.store",
    "fedldp.storage.mirror",
    "html",
    "narwhals",
    "numpy.random",
    "pandas",
    "psycopg",
    "pyarrow",
    "scipy",
    "sklearn",
    "starlette",
    "statistics",
    "uvicorn",
}


def test_an_agent_loads_nothing_that_it_does_not_need(tmp_path, monkeypatch):
    server = ServerProcess(tmp_path / "server")
    schedule = dataclasses.replace(OPEN, answer_seconds=5.0)
    server.add(statistic("open", wanted=1, schedule=schedule), OPERATOR)
    server.add(training("learn", rounds=1, group=1, schedule=schedule), OPERATOR)
    server.start()
    try:
        car = agent_folder.make(tmp_path / "car", OPERATOR, 1, cap=8)
        words = ["agent", "join", car, server.url, server.enroll("car"), "--ca"]
        words = [sys.executable, "-m", "fedldp", *words, server.path / "ca.pem"]
        subprocess.run(words, check=True, capture_output=True)
        monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
        agent = agent_folder.start(car)
        wait_until(lambda: server.job("open").state == server.job("learn").state == DONE)
        agent.terminate()
        assert agent.wait() == 0
    finally:
        server.stop()
    log = car.with_suffix(".log").read_text()
    loaded = set(re.findall(r"^import time: .*\| +([\w.]+)$", log, re.MULTILINE))
    assert "fedldp_fleet.agent.many" in loaded
    assert loaded & NEEDLESS == set()
