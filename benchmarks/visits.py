"""Agents without ledgers that visit a server: what a benchmark sends, and counts."""

import asyncio
import ssl
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet/tests/helpers"))

from engine_cases import answer_to
from road_client import authentic, question_in
from server_process import HOST

from fedldp_fleet.messages import Acknowledgement, Announcement, AnswerVerdict, Call, Offers
from fedldp_fleet.questions import Question

SECRET = bytes(32)


class CountedConnection:
    """A connection that counts its bytes without those of TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.up = self.down = 0

    @classmethod
    async def to(cls, port: int, context: ssl.SSLContext) -> "CountedConnection":
        return cls(*await asyncio.open_connection(HOST, port, ssl=context))

    async def ask(self, agent: str, method: str, path: str, body: bytes = b"") -> bytes:
        headers = {"Host": HOST} | authentic(agent, SECRET, method, path, body)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        sent = f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        self._writer.write(sent)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status, _, rest = head.partition(b"\r\n")
        if b" 200 " not in status:
            raise RuntimeError(status.decode())
        [length] = [
            int(line.split(b":")[1])
            for line in rest.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        found = await self._reader.readexactly(length)
        self.up += len(sent)
        self.down += len(head) + length
        return found

    def close(self) -> None:
        self._writer.close()


async def visit(
    connection: CountedConnection, agent: str, job: str, asked: Question | None, answer: bytes
) -> Question:
    """Call, fetch the question unless it is given, announce, and answer; return the question.

    The job is known from a call before. An answer that was drawn before may be given.
    """
    call = Call({job: 1}).to_bytes()
    [offer] = Offers.from_bytes(await connection.ask(agent, "POST", "/v1/call", call)).offers
    if asked is None:
        path = f"/v1/question/{question_in(offer)}"
        asked = Question.from_bytes(await connection.ask(agent, "GET", path))
    said = Announcement(job, asked.round).to_bytes()
    if await connection.ask(agent, "POST", "/v1/announce", said) != b"\1":
        raise RuntimeError("a place is lost")
    body = answer or answer_to(asked, agent).to_bytes()
    reply = Acknowledgement.from_bytes(await connection.ask(agent, "POST", "/v1/answer", body))
    if reply.verdict is not AnswerVerdict.COUNTED:
        raise RuntimeError(f"an answer is {reply.verdict}")
    return asked
