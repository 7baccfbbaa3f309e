"""A broker in memory, for campaigns: it loses, repeats and forgets what a test tells it to."""

from collections import deque
from itertools import count

from fedldp.campaigns.transport import Message

SHARED = "$share/counters/"


def matches(pattern, topic):
    pattern, topic = pattern.split("/"), topic.split("/")
    return len(pattern) == len(topic) and all(
        each in ("+", level) for each, level in zip(pattern, topic, strict=True)
    )


class Broker:
    """Delivers at once. `lose(topic)` says whether a message that is published gets lost."""

    def __init__(self):
        self.retained = {}
        self.connections = []
        self.clients = []  # every name that has ever connected
        self.published = []  # (client, topic, payload)
        self.lose = lambda _topic: False
        self.up = True
        self.sessions = {}  # what is kept for clients that asked for it
        self.on_idle = lambda _connection: None
        self.turn, self.numbers = count(), count(1)

    def connect(self, client, *, seconds_kept=0):
        if not self.up:
            raise ConnectionRefusedError("the broker is down")
        self.clients.append(client)
        for other in [each for each in self.connections if each.client == client]:
            other.close()
        found = Connection(self, client, seconds_kept)
        if seconds_kept and client in self.sessions:
            found.patterns, found.waiting = self.sessions.pop(client)
        self.connections.append(found)
        return found

    def crash(self):
        """Forget everything and cut all connections."""
        self.retained.clear()
        for each in list(self.connections):
            each.close()
        self.sessions.clear()

    def deliver(self, client, topic, payload):
        self.published.append((client, topic, payload))
        if self.lose(topic):
            return
        alive = [(each.patterns, each.waiting) for each in self.connections]
        sharing = []
        for patterns, waiting in [*alive, *self.sessions.values()]:
            if any(matches(pattern, topic) for pattern in patterns):
                waiting.append(Message(topic, payload, next(self.numbers)))
            if any(matches(pattern, SHARED + topic) for pattern in patterns):
                sharing.append(waiting)
        if sharing:
            sharing[next(self.turn) % len(sharing)].append(
                Message(topic, payload, next(self.numbers))
            )


class Connection:
    def __init__(self, broker, client, seconds_kept):
        self.broker, self.client, self.seconds_kept = broker, client, seconds_kept
        self.patterns, self.waiting = [], deque()
        self.open = {}  # messages that were delivered and not acknowledged

    def _check(self):
        if self not in self.broker.connections:
            raise ConnectionResetError("the connection is lost")

    def subscribe(self, topic):
        self._check()
        if topic not in self.patterns:
            self.patterns.append(topic)
        for known, payload in self.broker.retained.items():
            if matches(topic, known):
                self.waiting.append(Message(known, payload, next(self.broker.numbers)))

    def publish(self, topic, payload, *, certain=False):
        self._check()
        self.broker.deliver(self.client, topic, payload)

    def retain(self, topic, payload, seconds):
        self._check()
        self.broker.retained[topic] = payload
        if not payload:
            del self.broker.retained[topic]
        self.broker.deliver(self.client, topic, payload)

    def receive(self, seconds):
        self._check()
        if not self.waiting:
            self.broker.on_idle(self)
            self._check()
        if not self.waiting:
            return None
        message = self.waiting.popleft()
        self.open[message.number] = message
        return message

    def acknowledge(self, message):
        self._check()
        self.open.pop(message.number, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        if self in self.broker.connections:
            self.broker.connections.remove(self)
            if self.seconds_kept:
                waiting = deque([*self.open.values(), *self.waiting])
                self.broker.sessions[self.client] = self.patterns, waiting
