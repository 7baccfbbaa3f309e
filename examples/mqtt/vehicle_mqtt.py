"""A complete vehicle for campaigns over MQTT: `vehicle.py`, paho-mqtt and two files of its own.

Copy src/fedldp/vehicle.py next to this file. It needs Python and paho-mqtt, and nothing else:

    python vehicle_mqtt.py init settings.json        once in the life of the vehicle
    python vehicle_mqtt.py settings.json row.json    whenever it wakes up

It looks for campaigns once, answers those that it may answer, and sends each answer until a counter
has acknowledged it or its deadline has passed. One run works at a time; another one ends at once.

`state.json`, next to the settings, records what was spent and what was sent. If it is missing or
damaged, the vehicle answers nothing any more, as nobody knows what it has spent. Never restore a
backup: an old copy cannot be told from the last one.

Exit status: 0 if nothing is left to send, 4 if the broker could not be reached, 1 after any other
error, which is printed. The data decide none of them.
"""

import base64
import calendar
import contextlib
import fcntl
import hashlib
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
CLOCKS_DIFFER_SECONDS = 300
LONGEST_PAUSE_SECONDS = 900
LARGEST_CAMPAIGN_BYTES = 1 << 20
MOST_CAMPAIGNS = 100  # that are read at once
STARTED = b"this vehicle has a state\n"
NOT_REACHED = 4


def stamp(text):
    """Return a time of a campaign in seconds since 1970."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def sealed(data):
    """Return the text of the state file: the data, and a hash that shows damage."""
    digest = hashlib.sha256(vehicle.canonical(data).encode()).hexdigest()
    return vehicle.canonical({"sha256": digest, "state": data})


@contextlib.contextmanager
def held_state(folder, *, create=False):
    """Give the state of the vehicle, which nobody else uses until the end of the run.

    Another run would not know what this one spends. The lock file also says whether there has ever
    been a state, so that a lost one is not taken for a new one.
    """
    path = folder / "state.lock"
    if not create and not path.exists():
        raise ValueError(f"{path} is missing: begin with init")
    opened = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(opened, "r+b", buffering=0) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another run is at work: it holds {path}") from None
        started = lock.read() == STARTED
        if started == create:
            why = "has a state already" if started else "has no state yet: begin with init"
            raise ValueError(f"the vehicle in {folder} {why}")
        state = State(folder / "state.json", lock)
        if create:
            state.create()
            lock.seek(0)
            lock.truncate()
            lock.write(STARTED)
            os.fsync(lock.fileno())
        state.read()
        yield state


class State:
    """What was spent, and what was sent: on disk before anything leaves the vehicle."""

    def __init__(self, path, lock):
        self._path, self._lock, self.data = path, lock, None

    def create(self):
        """Write the file of a vehicle that has never answered, or of one of version 0.2."""
        fresh = {"spent": "0", "answers": {}}
        if self._path.exists():
            found = json.loads(self._path.read_bytes())
            fresh = found if set(found) == set(fresh) else self.read()
        self.save(fresh)

    def read(self):
        """Return what the file says; raise ValueError if it is not what was written."""
        try:
            text = self._path.read_bytes().decode("ascii")
            self.data = json.loads(text)["state"]
            if text != sealed(self.data):
                raise ValueError("its hash is wrong")
        except (*vehicle.UNREADABLE, FileNotFoundError) as error:
            raise ValueError(
                f"{self._path} is lost or damaged ({error}). What the vehicle has spent is not "
                "known, so it must not answer again"
            ) from None
        return self.data

    def save(self, data):
        """Write the file, whole or not at all, before anything may rely on it."""
        path = self._path.with_suffix(".lock")
        if not path.exists() or not os.path.samestat(path.stat(), os.fstat(self._lock.fileno())):
            raise ValueError(f"{path} was removed during this run: another one may be at work")
        fresh = self._path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(sealed(data))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        self.data = data

    def save_answer(self, job, answer, cost=0):
        """Write one answer, and what it costs."""
        spent = str(Fraction(self.data["spent"]) + cost)
        self.save({"spent": spent, "answers": self.data["answers"] | {job: answer}})


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


def answer(payload, row, settings, state):
    """Check a campaign, draw the answer, and store it; raise ValueError if it is refused."""
    try:
        inflated = zlib.decompressobj().decompress(payload, LARGEST_CAMPAIGN_BYTES)
    except zlib.error as error:
        raise ValueError(error) from None
    text = inflated.decode("ascii", "replace")
    public = base64.b64decode(settings["operator"].removeprefix("ed25519 "))
    campaign = vehicle.signed_document(text, public, FORMAT)
    now = time.time()
    if campaign["fleet"] != settings["fleet"]:
        raise ValueError("it is for another fleet")
    if not stamp(campaign["issued"]) - CLOCKS_DIFFER_SECONDS <= now < stamp(campaign["deadline"]):
        raise ValueError("its time has not come, or is over")
    if campaign["job"] in state.data["answers"]:
        return  # answered: the same bytes are sent again if they are not acknowledged
    left = Fraction(settings["cap"]) - Fraction(state.data["spent"])
    if left <= 0:
        raise ValueError("nothing is left to spend")
    plan = vehicle.Plan(vehicle.canonical(campaign["plan"]), left)
    drawn = {
        "round": campaign["round"],
        "deadline": campaign["deadline"],
        "payload": (secrets.token_bytes(16) + plan.report(row)).hex(),
        "acknowledged": False,
    }
    state.save_answer(campaign["job"], drawn, plan.epsilon)
    with contextlib.suppress(Exception):  # nothing follows from what the owner is told
        for note in plan.check(row):
            vehicle.warn_owner(note)


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


def campaigns(settings):
    """Return the messages with the campaigns that the broker has."""
    found = []
    with Connection(settings, secrets.token_bytes(16)) as connection:
        connection.subscribe(f"fedldp/{settings['fleet']}/campaign/+", 1)
        while len(found) < MOST_CAMPAIGNS and (message := connection.receive(2)) is not None:
            found.append(message)
    return found


def reach(settings, action):
    """Do something with the broker; return what it gives, or None if the broker is not reached."""
    try:
        return action()
    except OSError as error:
        vehicle.warn_owner(f"cannot use {settings['host']}: {error}")
        return None


def run(settings, row, state):
    """Look for campaigns, and send answers until all are acknowledged; return the exit status."""
    pause, messages = 5, reach(settings, lambda: campaigns(settings))
    for message in messages or []:
        try:
            answer(message.payload, row, settings, state)
        except ValueError as error:
            vehicle.warn_owner(f"did not answer {message.topic}: {error}")
    while True:
        left = {
            job: sent
            for job, sent in state.data["answers"].items()
            if not sent["acknowledged"] and time.time() < stamp(sent["deadline"])
        }
        for job, sent in left.items():
            time.sleep(-time.time() % 1)  # however long it took to draw
            if reach(settings, lambda job=job, sent=sent: deliver(settings, job, sent)):
                state.save_answer(job, sent | {"acknowledged": True})
        if all(state.data["answers"][job]["acknowledged"] for job in left):
            return NOT_REACHED if messages is None else 0
        time.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def main(first, second):
    """Do what the command line asks for; return the exit status."""
    if first == "init":
        with held_state(Path(second).resolve().parent, create=True):
            return 0
    settings = json.loads(Path(first).read_text())
    with held_state(Path(first).resolve().parent) as state:
        try:
            row = vehicle.read_row(Path(second).read_bytes())
        except (OSError, ValueError) as error:  # data never decide whether a vehicle answers
            vehicle.warn_owner(f"all values count as missing: {error}")
            row = {}
        return run(settings, row, state)


def program(words):
    """Run the command line, and end the process with its exit status."""
    vehicle.protect_standard_files()
    try:
        if len(words) != 2:
            raise ValueError("usage: vehicle_mqtt.py init SETTINGS | SETTINGS ROW")
        sys.exit(main(*words))
    except (OSError, ValueError) as error:
        vehicle.warn_owner(f"vehicle_mqtt.py: {error}")
        sys.exit(1)


if __name__ == "__main__":
    program(sys.argv[1:])
