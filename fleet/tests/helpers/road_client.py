"""An agent's half of the road, as simple as it can be: for tests of the server."""

import http.client
import json
import os
import time
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from engine_cases import answer_to

from fedldp_fleet import road
from fedldp_fleet.messages import Acknowledgement, Announcement, Call, Offers
from fedldp_fleet.questions import Question


def connect(server, timeout=30, context=None):
    where = urlsplit(server.url)
    if where.scheme == "http":
        return http.client.HTTPConnection(where.hostname, where.port, timeout=timeout)
    return http.client.HTTPSConnection(
        where.hostname, where.port, timeout=timeout, context=context or server.context
    )


def authentic(agent, secret, method, path, body=b"", **changed):
    """Return the headers of a request, with what a forger has changed after it was signed."""
    given = {
        road.AGENT: agent,
        road.TIME: str(int(changed.pop("now", time.time()))),
        road.NONCE: changed.pop("nonce", os.urandom(16).hex()),
        "Content-Length": str(len(body)),
        road.BODY: road.body_hash(body),
    }
    lines = (method, path, given[road.TIME], given[road.NONCE], str(len(body)), given[road.BODY])
    given[road.MAC] = road.mac(secret, *(each.encode() for each in lines))
    for name, value in changed.items():
        given[name.replace("_", "-")] = value
    return {name: value for name, value in given.items() if value is not None}


def exchange(connection, method, path, body=b"", headers=()):
    connection.request(method, path, body=body or None, headers=dict(headers))
    reply = connection.getresponse()
    return reply.status, reply.read()


def question_in(offer):
    return json.loads(offer.statement)["signed"]["question"]


@dataclass(frozen=True)
class Client:
    """An agent that has joined."""

    server: object
    agent: str
    secret: bytes
    connection: http.client.HTTPConnection

    @classmethod
    def joined(cls, server, agent="car-7", vehicles=1):
        return cls.with_code(server, server.enroll(agent, vehicles))

    @classmethod
    def with_code(cls, server, code):
        connection = connect(server)
        status, reply = exchange(connection, "POST", "/v1/join", road.join_bytes(code))
        assert status == 200, reply
        joined = road.JoinedAgent.from_bytes(reply)
        return cls(server, joined.agent, joined.secret, connection)

    def send(self, method, path, body=b"", **changed):
        headers = authentic(self.agent, self.secret, method, path, body, **changed)
        return exchange(self.connection, method, path, body, headers)

    def reply(self, method, path, body=b""):
        status, reply = self.send(method, path, body)
        assert status == 200, (status, reply)
        return reply

    def rotated(self):
        return replace(self, secret=road.secret_in(self.reply("POST", "/v1/rotate")))

    def call(self, **able):
        return Offers.from_bytes(self.reply("POST", "/v1/call", Call(able).to_bytes()))

    def question(self, offer):
        return Question.from_bytes(self.reply("GET", f"/v1/question/{question_in(offer)}"))

    def announce(self, job, number):
        said = Announcement(job, number).to_bytes()
        return self.reply("POST", "/v1/announce", said) == b"\1"

    def deliver(self, answer):
        return Acknowledgement.from_bytes(self.reply("POST", "/v1/answer", answer.to_bytes()))

    def visit(self, job):
        """Call, and answer if there is a place; return the acknowledgement, or None."""
        for offer in self.call(**{job: 1}).offers:
            if offer.job != job or offer.place is None:
                continue
            asked = self.question(offer)
            if self.announce(job, asked.round):
                return self.deliver(answer_to(asked, self.agent, offer.place.vehicles))
        return None
