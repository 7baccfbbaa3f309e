"""The API for programs of the operator: jobs, results, status, members, and the audit log.

It is on the page's address, under /api/v1. A caller shows a token, whose role says what it may do;
openapi.json says what there is.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fedldp import __version__
from fedldp.errors import FedLDPError
from fedldp_fleet.messages import MOST_VEHICLES
from fedldp_fleet.server import administration, audit, tokens, work
from fedldp_fleet.server.folder import ServerFolder
from fedldp_fleet.server.tokens import OPERATOR, VIEWER, Caller
from fedldp_fleet.server.work import JobFile
from fedldp_fleet.store.base import JobRow, Member, Store, Transaction

BASE = "/api/v1"
MOST_BODY_BYTES = 1 << 24
MOST_AGENTS = 10_000  # in a request

_NAME = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}


class Refusal(Exception):
    """A request that is not done: a status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self.status, self.why = status, why


class OperatorRequest(NamedTuple):
    """A request of a caller who may make it."""

    actor: str
    path: Mapping[str, str]
    body: bytes


Act = Callable[[Transaction, OperatorRequest], Any]  # returns JSON, or None


@final
class Operation(NamedTuple):
    """Something that a caller can ask for."""

    method: str
    path: str
    role: str
    summary: str
    reply: Mapping[str, Any] | None  # the JSON schema of what is returned
    refusals: tuple[int, ...]
    body: Mapping[str, Any] | None = None
    writes: bool = False


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(items: Any, **limits: int) -> dict[str, Any]:
    return {"type": "array", "items": items, **limits}


_JOB = _object(
    name=_NAME,
    state={"type": "string", "enum": ["queued", "running", "done", "failed"]},
    round=_COUNT,
    reason=_TEXT,
    has_result=_FLAG,
)
_MEMBER = _object(agent=_NAME, vehicles=_COUNT, joined=_FLAG, revoked=_FLAG)
_ENTRY = _object(time=_COUNT, actor=_TEXT, action=_TEXT, subject=_TEXT, detail=_TEXT, head=_TEXT)
_NEW = {
    **_object(agent=_NAME, vehicles={"type": "integer", "minimum": 1, "maximum": MOST_VEHICLES}),
    "additionalProperties": False,
}
_FILE: dict[str, Any] = {
    **_object(format={"const": work.FORMAT}, job={"type": "object"}, server=_TEXT, signed=_TEXT),
    "additionalProperties": False,
}
_ENROLL = {
    "type": "object",
    "required": ["agents"],
    "properties": {
        "agents": _list(_NEW, minItems=1, maxItems=MOST_AGENTS),
        "again": _FLAG,
    },
    "additionalProperties": False,
}
_ERRORS = {
    400: "The request is not as this document says.",
    401: "There is no valid token.",
    403: "The token's role may not do this.",
    404: "There is no such thing.",
    405: "Another method is needed.",
    409: "It contradicts what there is, or is no job that the operator has signed.",
    413: "The body is too long.",
    503: "The store cannot be used now: repeat.",
}


def operations(folder: ServerFolder, look: Callable[[], Any]) -> list[tuple[Operation, Act]]:
    """Return what callers can ask for, and what does it."""

    def add(store: Transaction, call: OperatorRequest) -> Any:
        given = _parsed(call.body)
        texts = [given.get(each) for each in ("format", "server", "signed")]
        if given.keys() != _FILE["properties"].keys() or not isinstance(given["job"], dict):
            raise Refusal(400, "the body must be the file of a job.")
        if texts[0] != work.FORMAT or not all(isinstance(each, str) for each in texts):
            raise Refusal(400, f"expected a file of the format {work.FORMAT!r}.")
        try:
            file = JobFile.from_json(json.dumps(given))
            done = administration.add_job(folder, store, file, call.actor)
        except FedLDPError as error:
            raise Refusal(409, str(error)) from None
        return {"name": file.job.name, "done": done}

    done = _object(name=_NAME, done={"type": "string", "enum": ["queued", "extended", "unchanged"]})
    job, agent = "/jobs/{name}", "/members/{name}"
    status = {"type": "object"}
    return [
        (
            Operation("GET", "/status", VIEWER, "What the page shows.", status, ()),
            lambda _, __: look(),
        ),
        (
            Operation("GET", "/jobs", VIEWER, "All jobs.", _list(_JOB), ()),
            lambda store, _: [_told(row) for row in store.jobs()],
        ),
        (
            Operation("GET", job, VIEWER, "A job.", _JOB, (404,)),
            lambda store, call: _told(_job(store, call)),
        ),
        (
            Operation(
                "GET", f"{job}/result", VIEWER, "A tally or a model.", {"type": "object"}, (404,)
            ),
            _result,
        ),
        (
            Operation(
                "POST",
                "/jobs",
                OPERATOR,
                "Queue or extend a job, from a file that fedldp server job sign has signed.",
                done,
                (400, 409, 413),
                body=_FILE,
                writes=True,
            ),
            add,
        ),
        (
            Operation("GET", "/members", VIEWER, "All agents.", _list(_MEMBER), ()),
            lambda store, _: [_member(each) for each in store.members()],
        ),
        (
            Operation(
                "POST",
                "/members",
                OPERATOR,
                "Enroll agents; return a one-time code for each.",
                _object(codes=_list(_TEXT)),
                (400, 409, 413),
                body=_ENROLL,
                writes=True,
            ),
            _enroll,
        ),
        (
            Operation(
                "DELETE", agent, OPERATOR, "Refuse an agent from now on.", None, (404,), writes=True
            ),
            _revoke,
        ),
        (
            Operation("GET", "/audit", VIEWER, "Who did what, and when.", _list(_ENTRY), ()),
            lambda store, _: [
                {**entry._asdict(), "head": link.head.hex()} for entry, link in audit.entries(store)
            ],
        ),
    ]


def _result(store: Transaction, call: OperatorRequest) -> Any:
    row = _job(store, call)
    if not row.result:
        raise Refusal(404, f"the job {row.name!r} has no result: it is {row.state}.")
    return json.loads(row.result)


def _enroll(store: Transaction, call: OperatorRequest) -> Any:
    given = _parsed(call.body)
    agents = given.get("agents")
    if given.keys() - {"agents", "again"} or type(given.get("again", False)) is not bool:
        raise Refusal(400, "expected `agents` and, if they have joined before, `again`.")
    if not isinstance(agents, list) or not 1 <= len(agents) <= MOST_AGENTS:
        raise Refusal(400, f"`agents` must be a list of 1 to {MOST_AGENTS:,} agents.")
    named: dict[str, int] = {}
    for each in agents:
        if not isinstance(each, dict) or each.keys() != {"agent", "vehicles"}:
            raise Refusal(400, "each agent must have `agent`, its name, and `vehicles`.")
        name, vehicles = each["agent"], each["vehicles"]
        if not isinstance(name, str) or isinstance(vehicles, bool):
            raise Refusal(400, "`agent` must be a text, and `vehicles` a whole number.")
        is_whole = isinstance(vehicles, float) and vehicles.is_integer()  # in JSON, 2.0 is 2
        named[name] = int(vehicles) if is_whole else vehicles
    again = given.get("again", False)
    known = [store.member(name) for name in named]
    if not again and any(each and each.secret and not each.revoked for each in known):
        raise Refusal(409, "some of these agents have joined already: say `again`.")
    try:
        return {"codes": administration.enroll(store, named, call.actor, again=again)}
    except FedLDPError as error:
        raise Refusal(400, str(error)) from None


def _revoke(store: Transaction, call: OperatorRequest) -> None:
    if store.member(call.path["name"]) is None:
        raise Refusal(404, f"there is no agent {call.path['name']!r:.80}.")
    administration.revoke(store, [call.path["name"]], call.actor)


def _job(store: Transaction, call: OperatorRequest) -> JobRow:
    row = store.job(call.path["name"])
    if row is None:
        raise Refusal(404, f"there is no job {call.path['name']!r:.80}.")
    return row


def _told(row: JobRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "state": row.state,
        "round": row.round,
        "reason": row.reason,
        "has_result": bool(row.result),
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "agent": member.agent,
        "vehicles": member.vehicles,
        "joined": bool(member.secret),
        "revoked": member.revoked,
    }


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise Refusal(400, "the body must be a JSON object.")
    return given


def document(listed: Sequence[Operation]) -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for each in listed:
        replies: dict[str, Any] = {
            str(status): {
                "description": _ERRORS[status],
                "content": {"application/json": {"schema": _object(error=_TEXT)}},
            }
            for status in sorted({401, 403, 503, *each.refusals})
        }
        replies["204" if each.reply is None else "200"] = {
            "description": "Done.",
            **(
                {}
                if each.reply is None
                else {"content": {"application/json": {"schema": each.reply}}}
            ),
        }
        described: dict[str, Any] = {
            "summary": each.summary,
            "description": f"Needs the role {each.role}.",
            "responses": replies,
        }
        if "{name}" in each.path:
            described["parameters"] = [
                {"name": "name", "in": "path", "required": True, "schema": _NAME}
            ]
        if each.body is not None:
            content = {"application/json": {"schema": each.body}}
            described["requestBody"] = {"required": True, "content": content}
        paths.setdefault(BASE + each.path, {})[each.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "fedldp server", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def api_routes(folder: ServerFolder, store: Store, look: Callable[[], Any]) -> list[Route]:
    """Return the routes of the API."""
    listed = operations(folder, look)
    text = document([operation for operation, _ in listed])

    async def describe(_: Request) -> Response:
        return JSONResponse(text)

    by_path: dict[str, dict[str, tuple[Operation, Act]]] = {}
    for operation, act in listed:
        by_path.setdefault(operation.path, {})[operation.method] = operation, act
    return [
        Route(f"{BASE}/openapi.json", describe, methods=["GET"]),
        *(
            Route(BASE + path, _endpoint(store, acts), methods=[*acts])
            for path, acts in by_path.items()
        ),
    ]


def _endpoint(
    store: Store, acts: Mapping[str, tuple[Operation, Act]]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        operation, act = acts["GET" if request.method == "HEAD" else request.method]
        loop = asyncio.get_running_loop()
        try:
            given = request.headers.get("authorization", "")
            caller = await loop.run_in_executor(None, _caller, store, given, operation.role)
            body = await _read(request) if operation.body is not None else b""
            call = OperatorRequest(f"token {caller.name}", request.path_params, body)
            found = await loop.run_in_executor(None, _done, store, operation, act, call)
        except Refusal as refusal:
            headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
            return JSONResponse({"error": refusal.why}, refusal.status, headers)
        except FedLDPError as error:
            return JSONResponse({"error": str(error)}, 400)
        except OSError:
            return JSONResponse({"error": _ERRORS[503]}, 503)
        return Response(status_code=204) if operation.reply is None else JSONResponse(found)

    return endpoint


def _caller(store: Store, given: str, role: str) -> Caller:
    kind, _, token = given.partition(" ")
    with store.reading() as inside:
        found = tokens.caller(inside, token.strip()) if kind.lower() == "bearer" else None
    if found is None:
        raise Refusal(401, "send a token: Authorization: Bearer TOKEN. See fedldp server token.")
    if not found.may(role):
        raise Refusal(403, f"the token {found.name!r} is for the role {found.role}, not {role}.")
    return found


def _done(store: Store, operation: Operation, act: Act, call: OperatorRequest) -> Any:
    with store.transaction() if operation.writes else store.reading() as inside:
        return act(inside, call)


async def _read(request: Request) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MOST_BODY_BYTES:
            raise Refusal(413, f"a body may have at most {MOST_BODY_BYTES:,} bytes.")
        parts.append(part)
    return b"".join(parts)
