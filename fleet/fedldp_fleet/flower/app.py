"""Flower as a road: the two apps with which agents beside SuperNodes take part in a server's jobs.

The ServerApp runs beside the server's store, and may run beside the server itself. It writes to the
nodes: what is open, and the places that they have. The ClientApp passes on what the agent beside it
asks, as far as the message tells it, and replies with what the agent says. An answer is stored when
the reply has come, and the agent learns it with the next message; until then it sends it again. So
whatever Flower loses is sent again, and counts once.

A node is known to the server as the agent `flower-ID`, by the id that Flower has given to its key.
"""

import asyncio
import contextlib
import hashlib
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import final

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedldp.errors import DomainError, WireError
from fedldp.signing import PublicKey
from fedldp_fleet.agent import relay
from fedldp_fleet.agent.roads import RoadError
from fedldp_fleet.engine import IDLE_POLL_SECONDS, vehicles_in
from fedldp_fleet.flower.messages import NAME, log, node_log
from fedldp_fleet.messages import Acknowledgement, Announcement, Answer, AnswerVerdict, Call, Offers
from fedldp_fleet.questions import Statement
from fedldp_fleet.server.desk import Desk
from fedldp_fleet.server.documents import Documents
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.guard import Guard, Refused
from fedldp_fleet.store.base import Transaction

POLL_SECONDS = 1.0
RETRY_SECONDS = 15.0  # until a node without a reply, or an answer without an acknowledgement
MESSAGE_SECONDS = 120.0  # after which Flower forgets a message, and its reply
AGENT_SECONDS = 600.0  # that an agent may take between two things that it says

client = ClientApp()
server = ServerApp()


@client.query()
def ask_agent(message: Message, context: Context) -> Message:
    """Let the agent beside this node ask and answer; reply with what it has said."""
    letter = _Letter(message.content)
    path = str(context.node_config.get("agent", ""))
    try:
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(AGENT_SECONDS)
            link.connect(path)
            relay.pass_on(link, letter, contextlib.nullcontext())
    except OSError as error:
        node_log.error(
            "No agent listens on %r: %s. Start it: fedldp agent run FOLDER --listen SOCKET, and "
            "the node with --node-config 'agent=\"SOCKET\"'.",
            path,
            error,
        )
    return Message(letter.reply(), reply_to=message)


@final
class _Letter:
    """A message of the server, as the road of an agent."""

    def __init__(self, content: RecordDict) -> None:
        self._offers = Offers.from_bytes(b"".join(_listed(content, "offers")))
        self._documents = {hashlib.sha256(data).digest(): data for data in _listed(content, "open")}
        said = map(Acknowledgement.from_bytes, _listed(content, "said"))
        self._said = {each.identifier: each for each in said}
        self._called: list[bytes] = []
        self._answers: dict[bytes, bytes] = {}

    def reply(self) -> RecordDict:
        """Return what the agent has said."""
        return _content(call=self._called, answers=list(self._answers.values()))

    def call(self, call: Call) -> Offers:
        self._called = [call.to_bytes()]
        return self._offers

    def question(self, digest: bytes) -> bytes:
        if digest not in self._documents:
            raise RoadError("has not sent this question or job.")
        return self._documents[digest]

    def signed_job(self, digest: str) -> str:
        return self.question(bytes.fromhex(digest)).decode("utf-8", "replace")

    def announce(self, said: Announcement) -> bool:
        return any(each.job == said.job and each.place for each in self._offers.offers)

    def deliver(self, answer: bytes) -> Acknowledgement:
        identifier = Answer.from_bytes(answer).identifier
        if identifier in self._said:
            return self._said[identifier]
        self._answers[identifier] = answer
        return Acknowledgement(self._offers.incarnation, identifier, AnswerVerdict.EARLY)

    def wait(self, seconds: float, stop: threading.Event) -> bool:
        return stop.wait(seconds)

    def close(self) -> None:
        pass


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Ask the nodes until no job is open."""
    folder = str(context.run_config["server"])
    if not folder:
        raise DomainError("say which server this is: flwr run APP -c 'server=\"FOLDER\"'.")
    asyncio.run(_serve(grid, ServerFolder.load(folder)))


async def _serve(grid: Grid, folder: ServerFolder) -> None:
    with contextlib.closing(folder.store()) as store:
        desk = Desk(store, folder.engine(), Guard(), second=folder.second)
        await desk.open()
        try:
            await _Post(grid, desk, Documents(store), folder.public).run()
        finally:
            await desk.close()


@dataclass(eq=False)
class _Node:
    """What the server knows about a node, during a run of the app."""

    number: int
    able: dict[str, int] = field(default_factory=dict)  # by job: vehicles that may answer
    said: list[bytes] = field(default_factory=list)  # acknowledgements that it has not got
    told: list[str] = field(default_factory=list)  # the jobs in the message on its way
    placed: list[Announcement] = field(default_factory=list)  # and its places
    look: float = 0.0  # when the next place is looked for
    due: float = 0.0  # when it gets a message, even if there is no place
    stranger: bool = False

    @property
    def agent(self) -> str:
        return f"flower-{self.number}"


@final
class _Post:
    """Writes to the nodes of a run, and reads their replies."""

    def __init__(self, grid: Grid, desk: Desk, documents: Documents, key: PublicKey) -> None:
        self._grid, self._desk, self._documents, self._key = grid, desk, documents, key
        self._nodes: dict[int, _Node] = {}
        self._sent: dict[str, _Node] = {}  # by message
        self._open: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Write and read until no job is queued or running, and all has been said."""
        while True:
            active = await self._desk.run(lambda store: bool(store.active_jobs()))
            for reply in await asyncio.to_thread(self._replies):
                await self._read(reply)
            opened = frozenset(each.statement for each in (await self._desk.open_rounds()).offers)
            numbers = await asyncio.to_thread(lambda: list(self._grid.get_node_ids()))
            nodes = [self._nodes.setdefault(each, _Node(each)) for each in numbers]
            if opened != self._open or not active:
                self._open = opened
                for node in nodes:
                    node.look = 0.0
            waiting = set(self._sent.values())
            idle = [node for node in nodes if node not in waiting]
            letters = await asyncio.gather(*(self._letter(node, not active) for node in idle))
            written = [(n, each) for n, each in zip(idle, letters, strict=True) if each is not None]
            await asyncio.to_thread(self._send, written)
            if not active and not self._sent:
                return
            await asyncio.sleep(POLL_SECONDS)

    def _send(self, written: Sequence[tuple[_Node, RecordDict]]) -> None:
        for node, content in written:
            message = Message(content, node.number, "query", ttl=MESSAGE_SECONDS)
            for number in self._grid.push_messages([message]):
                self._sent[number] = node

    def _replies(self) -> list[Message]:
        return list(self._grid.pull_messages(list(self._sent))) if self._sent else []

    async def _letter(self, node: _Node, last: bool) -> RecordDict | None:
        """Return what a node is to be told now, if there is anything."""
        now = time.monotonic()
        if now < min(node.look, node.due) or (last and not node.said):
            return None
        try:
            offers = await self._desk.call(node.agent, Call(node.able))
        except Refused:
            self._introduce(node)
            return None
        node.look = now + offers.retry
        news = last or any(each.job not in node.able or each.place for each in offers.offers)
        node.due = node.due if offers.offers or node.said else node.look
        if not news and now < node.due:
            return None
        documents = []
        for each in offers.offers:
            statement = Statement.verified(each.statement, self._key)
            if each.place is not None:
                node.placed.append(Announcement(each.job, statement.round))
                await self._desk.announce(node.agent, node.placed[-1])
            documents += [
                await self._documents.job(each.signed),
                await self._documents.question(statement.question.hex()),
            ]
        node.told = [each.job for each in offers.offers]
        said, node.said = node.said, []
        return _content(offers=[offers.to_bytes()], open=filter(None, documents), said=said)

    def _introduce(self, node: _Node) -> None:
        node.look = node.due = time.monotonic() + RETRY_SECONDS
        if not node.stranger:
            node.stranger = True
            log.warning(
                "The server asks nothing of the node %s, which is not enrolled, or is revoked. "
                "Enroll it: fedldp server enroll FOLDER %s --vehicles NUMBER",
                node.number,
                node.agent,
            )

    async def _read(self, reply: Message) -> None:
        """Store what an agent has answered, and take back the places that it has left."""
        node = self._sent.pop(reply.metadata.reply_to_message_id)
        node.look = node.due = time.monotonic() + RETRY_SECONDS
        placed, node.placed = node.placed, []
        if reply.has_error():  # the agent may have drawn, and sends it with its next reply
            log.warning("The node %s: %s", node.number, reply.error.reason)
            return
        try:
            called = [Call.from_bytes(each) for each in _listed(reply.content, "call")]
            answers = [Answer.from_bytes(each) for each in _listed(reply.content, "answers")]
        except WireError as error:
            log.warning("The node %s: %s", node.number, error)
            return
        node.able = {}
        for call in called[:1]:
            node.able = dict.fromkeys(node.told, 0) | dict(call.able)
            self._desk.hear(node.agent)
            node.look, node.due = 0.0, time.monotonic() + IDLE_POLL_SECONDS
        for answer in answers:
            with contextlib.suppress(Refused):
                said = await self._desk.deliver(node.agent, answer)
                node.said.append(said.to_bytes())
            left = node.able.get(answer.job, 0) - vehicles_in(answer.report)
            node.able[answer.job] = max(0, left)
        if answers:
            node.due = min(node.due, time.monotonic() + RETRY_SECONDS)
        await self._desk.run(lambda store: _leave(store, node.agent, placed))


def _leave(store: Transaction, agent: str, places: Iterable[Announcement]) -> None:
    """Give back the places that an agent has not used: delivering an answer removes its own."""
    for each in places:
        held = store.place(each.job, agent)
        if held is not None and held.round == each.round:
            store.remove_place(held)


def _content(**lists: Iterable[bytes]) -> RecordDict:
    """Return lists of bytes in one record: each record costs a kilobyte."""
    return RecordDict({NAME: ConfigRecord({name: list(each) for name, each in lists.items()})})


def _listed(content: RecordDict, name: str) -> list[bytes]:
    """Return a list of bytes of a message, or raise `WireError`."""
    record = content.get(NAME)
    found = record.get(name) if isinstance(record, ConfigRecord) else None
    data = [each for each in found if isinstance(each, bytes)] if isinstance(found, list) else None
    if data is None or data != found:
        raise WireError(f"expected a message with a list of bytes {name!r}.")
    return data
