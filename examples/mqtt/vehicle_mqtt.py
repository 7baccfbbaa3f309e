"""A complete vehicle for campaigns over MQTT: `vehicle.py`, paho-mqtt and one file of its own.

Copy src/fedldp/vehicle.py next to this file. It needs Python and paho-mqtt, and nothing else:

    python vehicle_mqtt.py settings.json row.json

It looks for campaigns once, answers those that it may answer, and sends each answer until a counter
has acknowledged it or its deadline has passed. Run it whenever the vehicle wakes up.

`state.json` records what was spent and what was sent. Never delete it, never restore a backup.
"""

import base64
import calendar
import json
import os
import secrets
import sys
import time
import zlib
from fractions import Fraction
from pathlib import Path
from queue import Empty, Queue

import paho.mqtt.client as mqtt
import vehicle

FORMAT = "fedldp campaign 1"
CLOCKS_DIFFER = 300  # seconds
LONGEST_PAUSE = 900
MOST_BYTES = 1 << 20  # of a campaign
MOST = 100  # campaigns that are read at once


def stamp(text):
    """Return a time of a campaign in seconds since 1970."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


class State:
    """What was spent, and what was sent: on disk before anything leaves the vehicle."""

    def __init__(self, path):
        self._path = path
        self.data = {"spent": "0", "answers": {}}  # by job: a job is answered once
        if path.exists():
            self.data = json.loads(path.read_text())

    def save(self):
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            json.dump(self.data, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


class Connection:
    """A connection with the broker; the name is the identifier of an answer."""

    def __init__(self, settings, identifier):
        self.messages = Queue()
        self._client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2, client_id=identifier.hex(), protocol=mqtt.MQTTv5
        )
        self._client.on_message = lambda _client, _data, message: self.messages.put(message)
        if "authority" in settings:
            keys = settings["authority"], settings["certificate"], settings["key"]
            self._client.tls_set(*keys)
        self._client.connect(settings["host"], settings["port"])
        self._client.loop_start()
        self.subscribe, self.publish = self._client.subscribe, self._client.publish

    def receive(self, seconds):
        try:
            return self.messages.get(timeout=max(seconds, 0.01))
        except Empty:
            return None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._client.disconnect()
        self._client.loop_stop()


def answer(payload, row, settings, state, identifier):
    """Check a campaign, draw the answer, and store it; raise ValueError if it is refused."""
    try:
        text = zlib.decompressobj().decompress(payload, MOST_BYTES).decode("ascii", "replace")
    except zlib.error as error:
        raise ValueError(error) from None
    public = base64.b64decode(settings["operator"].removeprefix("ed25519 "))
    campaign = vehicle.signed_document(text, public, FORMAT)
    now = time.time()
    if campaign["fleet"] != settings["fleet"]:
        raise ValueError("it is for another fleet")
    if not stamp(campaign["issued"]) - CLOCKS_DIFFER <= now < stamp(campaign["deadline"]):
        raise ValueError("its time has not come, or is over")
    if campaign["job"] in state.data["answers"]:
        return  # answered: the same bytes are sent again if they are not acknowledged
    left = Fraction(settings["cap"]) - Fraction(state.data["spent"])
    if left <= 0:
        raise ValueError("nothing is left to spend")
    plan = vehicle.Plan(vehicle.canonical(campaign["plan"]), left)
    state.data["answers"][campaign["job"]] = {
        "round": campaign["round"],
        "deadline": campaign["deadline"],
        "payload": (identifier + plan.report(row)).hex(),
        "acknowledged": False,
    }
    state.data["spent"] = str(Fraction(state.data["spent"]) + plan.epsilon)
    state.save()


def deliver(settings, job, sent):
    """Send an answer once; return whether a counter has acknowledged it."""
    payload = bytes.fromhex(sent["payload"])
    fleet, identifier = settings["fleet"], payload[:16]
    topic = f"fedldp/{fleet}/ack/{job}/{sent['round']}/{identifier.hex()}"
    with Connection(settings, identifier) as connection:
        connection.subscribe(topic, 1)
        connection.publish(f"fedldp/{fleet}/answers/{job}/{sent['round']}", payload, 1)
        message = connection.receive(10)
    return message is not None and message.topic == topic


def look(settings, row, state):
    """Answer the campaigns that the broker has."""
    identifier = secrets.token_bytes(16)
    with Connection(settings, identifier) as connection:
        connection.subscribe(f"fedldp/{settings['fleet']}/campaign/+", 1)
        for _ in range(MOST):  # a broker that never stops sending is not waited for
            if (message := connection.receive(2)) is None:
                break
            try:
                answer(message.payload, row, settings, state, identifier)
            except ValueError as error:  # for the owner alone
                print(f"did not answer {message.topic}: {error}", file=sys.stderr)
            identifier = secrets.token_bytes(16)


def main(settings, row):
    """Look for campaigns, and send answers until all are acknowledged."""
    settings = json.loads(Path(settings).read_text())
    try:
        row = vehicle.read_row(Path(row).read_bytes())
    except (OSError, ValueError) as error:  # data never decide whether a vehicle answers
        print(f"all values count as missing: {error}", file=sys.stderr)
        row = {}
    state, pause = State(Path("state.json")), 5
    look(settings, row, state)
    while True:
        left = {
            job: sent
            for job, sent in state.data["answers"].items()
            if not sent["acknowledged"] and time.time() < stamp(sent["deadline"])
        }
        for job, sent in left.items():
            time.sleep(-time.time() % 1)  # however long it took to draw
            try:
                sent["acknowledged"] = deliver(settings, job, sent)
            except OSError as error:
                print(f"cannot use the broker: {error}", file=sys.stderr)
            state.save()
        if all(sent["acknowledged"] for sent in left.values()):
            return
        time.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
        pause = min(2 * pause, LONGEST_PAUSE)


if __name__ == "__main__":
    main(*sys.argv[1:])
