"""Vehicles that share a certificate, in one process that is killed again and again.

mqtt_vehicles.py FOLDER BROKER_FOLDER URL OPERATOR FIRST LAST JOB...
Each vehicle has its folder, its ledger and its connection. It runs until it is killed.
"""

import secrets
import shutil
import sys
import time
from pathlib import Path

from agent_cases import ALL_ATTRIBUTES, ROW

from fedldp import Ledger
from fedldp.signing import PublicKey
from fedldp_fleet.agent.loop import Agent
from fedldp_fleet.agent.mqtt import MQTTRoad
from fedldp_fleet.agent.one import OneVehicle
from fedldp_fleet.agent.outbox import Outbox
from fedldp_fleet.mqtt import Broker
from fedldp_fleet.topics import Topics

CAP = 4


class Vehicle:
    def __init__(self, folder, broker, url, operator):
        if not (folder / "begun").exists():
            shutil.rmtree(folder, ignore_errors=True)  # a beginning that was killed
            folder.mkdir(parents=True)
            Ledger.create(folder / "ledger.db", cap=CAP).close()
            (folder / "begun").touch()
        self.ledger = Ledger(folder / "ledger.db", CAP)
        self.outbox = Outbox(folder / "outbox.db")
        self.road = MQTTRoad(Topics.of(url), "pool", secrets.token_hex(8), broker.connect, 5.0)
        holder = OneVehicle(self.ledger, lambda: ROW, schema=ALL_ATTRIBUTES.to_document())
        self.agent = Agent(
            self.road,
            holder,
            self.ledger,
            self.outbox,
            operator,
            tick_seconds=0.001,
            tell=lambda text: print(text, file=sys.stderr, flush=True),
        )

    def visit(self):
        self.agent.attempt()
        self.road.close()  # it is online now and then

    def has_answered(self, jobs):
        counts = self.outbox.counts()
        return all(counts.get(job, {"pending": 1}).keys() <= {"counted", "late"} for job in jobs)


def main():
    folder, keys, url, operator, first, last, *jobs = sys.argv[1:]
    keys = Path(keys)
    broker = Broker.of(url, keys / "ca.crt", keys / "pool.crt", keys / "pool.key")
    signs = PublicKey.load(Path(operator))
    numbers = range(int(first), int(last))
    vehicles = [Vehicle(Path(folder, str(each)), broker, url, signs) for each in numbers]
    while True:
        left = [each for each in vehicles if not each.has_answered(jobs)]
        for vehicle in left:
            vehicle.visit()
        time.sleep(0 if left else 1)


if __name__ == "__main__":
    main()
