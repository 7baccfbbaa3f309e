"""A broker in memory: it loses, repeats and forgets what a test tells it to."""

import itertools
import threading
import time

SHARED = "$share/servers/"


def matches(pattern, topic):
    pattern, topic = pattern.split("/"), topic.split("/")
    return len(pattern) == len(topic) and all(
        each in ("+", level) for each, level in zip(pattern, topic, strict=True)
    )


class Broker:
    """Delivers at once. `copies(client, message)` says how often a message arrives: 1, 0 or 2."""

    def __init__(self, most_bytes=1 << 22):
        self.retained, self.connections = {}, []
        self.clients = []  # every name that has ever connected
        self.published = []  # (client, message)
        self.subscribed = []  # (client, topic)
        self.copies = lambda _client, _message: 1
        self.is_up, self.most_bytes = True, most_bytes
        self.changed = threading.Condition()
        self._turns, self._numbers = itertools.count(), itertools.count(1)

    def connect(self, client):
        with self.changed:
            if not self.is_up:
                raise ConnectionRefusedError("the broker is down")
            self.clients.append(client)
            for other in [each for each in self.connections if each.client == client]:
                other.close()
            self.connections.append(Connection(self, client))
            return self.connections[-1]

    def crash(self, *, is_up=True):
        """Forget everything and cut all connections."""
        with self.changed:
            self.is_up = is_up
            self.retained.clear()
            self.connections.clear()
            self.changed.notify_all()

    def deliver(self, client, message):
        with self.changed:
            self.published.append((client, message))
            for _ in range(self.copies(client, message)):
                self._deliver(message)
            self.changed.notify_all()

    def _deliver(self, message):
        sharing = []
        for each in self.connections:
            if any(matches(pattern, message.topic) for pattern in each.patterns):
                each.waiting.append(message._replace(number=next(self._numbers)))
            if any(matches(pattern, SHARED + message.topic) for pattern in each.patterns):
                sharing.append(each)
        if sharing:
            chosen = sharing[next(self._turns) % len(sharing)]
            chosen.waiting.append(message._replace(number=next(self._numbers)))

    def sent(self, client, act=""):
        """Return the topics to which a client has published."""
        with self.changed:
            topics = [message.topic for each, message in self.published if each == client]
        return [topic for topic in topics if f"/{act}" in topic]


class Connection:
    """See `fedldp_fleet.mqtt.MQTTConnection`."""

    def __init__(self, broker, client):
        self.broker, self.client, self.most_bytes = broker, client, broker.most_bytes
        self.patterns, self.waiting = [], []

    def _check(self):
        if self not in self.broker.connections:
            raise ConnectionResetError("the connection is lost")

    def subscribe(self, *topics, certain=False):
        with self.broker.changed:
            self._check()
            self.broker.subscribed += [(self.client, topic) for topic in topics]
            self.patterns += [each for each in topics if each not in self.patterns]
            for known, (message, since) in self.broker.retained.items():
                if any(matches(topic, known) for topic in topics):
                    left = message.seconds
                    left = left and max(0, left - int(time.monotonic() - since))
                    self.waiting.append(message._replace(seconds=left))

    def unsubscribe(self, topic):
        self.patterns.remove(topic)

    def publish(self, message, *, certain=False):
        self._check()
        self.broker.deliver(self.client, message)

    def retain(self, message):
        with self.broker.changed:
            self._check()
            self.broker.retained[message.topic] = message, time.monotonic()
            if not message.payload:
                del self.broker.retained[message.topic]
            self.broker.deliver(self.client, message)

    def receive(self, seconds):
        with self.broker.changed:
            self._check()
            if not self.waiting and seconds:
                self.broker.changed.wait(seconds)
                self._check()
            found, self.waiting = self.waiting, []
            return found

    def acknowledge(self, message):
        self._check()

    def ping(self):
        self._check()

    def close(self):
        with self.broker.changed:
            if self in self.broker.connections:
                self.broker.connections.remove(self)
