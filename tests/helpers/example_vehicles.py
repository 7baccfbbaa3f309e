"""Vehicles of examples/mqtt in folders, on a broker in memory.

Run as a script, `python example_vehicles.py FOLDER`, one run of the example uses the broker in the
folder `broker` until it is killed: see tests/helpers/fake_paho.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from campaigns import KEY, NOW, ROW

from fedldp import vehicle

ROOT = Path(__file__).parents[2]


def load():
    """Import the example, as it is beside vehicle.py and paho-mqtt."""
    with (
        mock.patch.dict(sys.modules, {"vehicle": vehicle}),
        mock.patch.object(sys, "path", [str(ROOT / "tests/helpers/fake_paho"), *sys.path]),
    ):
        path = ROOT / "examples" / "mqtt" / "vehicle_mqtt.py"
        spec = importlib.util.spec_from_file_location("vehicle_mqtt", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for name in [name for name in sys.modules if name.partition(".")[0] == "paho"]:
        del sys.modules[name]  # the real one may be needed by others
    return module


class Clock:
    """The module `time`, in which nobody waits."""

    strptime = staticmethod(time.strptime)

    def __init__(self):
        self.now = NOW.timestamp()

    def time(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Connection:
    """A connection of the example, with the broker of tests/helpers/brokers.py."""

    def __init__(self, broker, identifier):
        self._connection = broker.connect(identifier.hex())

    def subscribe(self, topic, _quality):
        self._connection.subscribe(topic)

    def publish(self, topic, payload, _quality):
        self._connection.publish(topic, payload)

    def receive(self, seconds):
        message = self._connection.receive(seconds)
        if message is not None:
            self._connection.acknowledge(message)
        return message

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._connection.close()


class Car:
    """A vehicle with a folder."""

    def __init__(self, folder, broker, cap="1.0"):
        folder.mkdir()
        self.folder, self.module = folder, load()
        self.module.Connection = lambda _settings, identifier: Connection(broker, identifier)
        write(folder, cap)

    def init(self):
        return self.module.main("init", str(self.folder / "settings.json"))

    def run(self):
        self.module.time = Clock()
        words = [str(self.folder / name) for name in ("settings.json", "row.json")]
        return self.module.main(*words)

    def state(self):
        with self.module.held_state(self.folder) as state:
            return state.data


def write(folder, cap="1.0"):
    """Write the settings and the row of a vehicle."""
    settings = {"host": "h", "port": 1, "fleet": "north", "operator": KEY.public.text, "cap": cap}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "row.json").write_text(json.dumps(ROW))


def main(folder):
    os.environ["FAKE_BROKER"] = f"{folder}/broker"
    module = load()
    module.Connection.receive = lambda connection, _seconds: (
        None if connection.messages.empty() else connection.messages.get()
    )
    module.time = SimpleNamespace(
        time=time.time, strptime=time.strptime, sleep=lambda _seconds: time.sleep(0.001)
    )
    module.program([f"{folder}/settings.json", f"{folder}/row.json"])


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(sys.argv[1])
