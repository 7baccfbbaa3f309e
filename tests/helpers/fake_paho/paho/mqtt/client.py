"""paho-mqtt without a network: the broker is the folder that an environment variable names.

The files `*.campaign` are what is published. Each answer becomes a line of the file `answers`, and
is acknowledged at once if there is a file `counter`.
"""

import os
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

MQTTv5 = 5


class CallbackAPIVersion(Enum):
    VERSION2 = 2


class Client:
    on_message = None

    def __init__(self, version, client_id, protocol):
        assert (version, protocol) == (CallbackAPIVersion.VERSION2, MQTTv5)
        self._folder, self._subscribed = Path(os.environ["FAKE_BROKER"]), ""

    def connect(self, host, port):
        if not self._folder.is_dir():
            raise ConnectionRefusedError("there is no broker")

    def loop_start(self):
        pass

    loop_stop = disconnect = loop_start

    def subscribe(self, topic, quality):
        self._subscribed = topic
        if "/campaign/" in topic:
            for path in sorted(self._folder.glob("*.campaign")):
                self._deliver(topic.replace("+", path.stem), path.read_bytes())

    def publish(self, topic, payload, quality):
        with (self._folder / "answers").open("ab", buffering=0) as answers:
            answers.write(f"{topic} {payload.hex()}\n".encode())
        if (self._folder / "counter").exists():
            self._deliver(self._subscribed, b"")

    def _deliver(self, topic, payload):
        self.on_message(self, None, SimpleNamespace(topic=topic, payload=payload))
