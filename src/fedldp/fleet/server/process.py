"""The processes of the server: Flower's SuperLink, what belongs to it, and the job.

The SuperLink keeps its state in a file. It needs no password, so it runs in a private network with
the processes that use it; the endpoint, which gateways call, gets a socket from outside. Flower
never restarts a ServerApp that has died. So whenever the job is not finished and no process has
locked its checkpoint, this module starts a new Flower run, which resumes the job. If there should
be two runs at a time, one of them finds the checkpoint locked, and ends.
"""

import json
import logging
import os
import secrets
import socket
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedldp._internal import toml
from fedldp.errors import DomainError
from fedldp.fleet import isolation, logs, namespaces, signing
from fedldp.fleet.flower import programs
from fedldp.fleet.isolation import Network
from fedldp.fleet.job import Job
from fedldp.fleet.keys import fit
from fedldp.fleet.monitor import launch
from fedldp.fleet.monitor.address import ENTRIES as MONITOR
from fedldp.fleet.processes import Process, Restart, Supervisor
from fedldp.fleet.server import (
    admission,
    checkpoint,
    names,
    numbers,
    registrations,
    successors,
)
from fedldp.fleet.server.checkpoint import JobStatus
from fedldp.fleet.server.registrations import REVOKED
from fedldp.fleet.server.watch import JobFailed, Watch, ending
from fedldp.fleet.state import STATE
from fedldp.storage import files

FILE = "server.toml"
LOG = "server.log"  # in the state folder

_ENTRIES: dict[str, toml.Types] = {
    "front": str,  # host:port for gateways
    "link": int,  # port for processes of this machine
    "authority": str,
    "certificate": str,
    "key": str,
    "gateways": str,  # a folder with their public keys, *.pub
    "app": str,  # the bundle for Flower
    "job": str,
}
_NAME = "fleet"  # the name of the SuperLink in Flower's configuration
_GONE = 10.0  # seconds that a key must be missing: Flower never accepts it again
_LISTENS = """\
import socket, sys, time
while True:
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1).close()
        break
    except OSError:
        time.sleep(0.1)
"""  # a program that ends as soon as something listens on a port
_LOOK = 0.5  # seconds between two looks at the job
_ATTEMPTS = 5  # to register a key, if Flower's answer cannot be read: a machine may be too busy
_BEGINS = 30.0  # seconds for a new run to lock the checkpoint
_SHORTEST, _LONGEST = 2.0, 60.0  # before the next run: longer while runs make no progress

_log = logging.getLogger("fedldp.fleet.server")


@final
@dataclass(frozen=True)
class ServerConfig:
    """The configuration of a server, read from its folder. Paths are relative to the folder."""

    folder: Path
    host: str  # of the endpoint
    port: int
    link: int
    authority: Path
    certificate: Path
    key: Path
    gateways: Path
    app: Path
    job: Path
    refused: set[str] = field(default_factory=set)  # keys that Flower did not accept
    attempts: Counter[str] = field(default_factory=Counter)  # how often a key was registered
    missed: dict[str, float] = field(default_factory=dict)  # since when keys have been missing

    @classmethod
    def load(cls, folder: Path) -> "ServerConfig":
        """Read the file server.toml in a folder."""
        folder = folder.resolve()
        entries = toml.read(folder / FILE, _ENTRIES | MONITOR, _ENTRIES)
        host, _, port = entries.pop("front").rpartition(":")
        link = entries.pop("link")
        if not host or not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise DomainError(
                f'{folder / FILE}: front must be an address and a port, such as "0.0.0.0:9443"; '
                f'got "{host}:{port}".'
            )
        paths = {name: folder / entries[name] for name in _ENTRIES.keys() & entries.keys()}
        return cls(folder, host.strip("[]"), int(port), link, **paths)

    @property
    def state(self) -> Path:
        """The folder for files that are written at run time."""
        return self.folder / STATE

    @property
    def address(self) -> str:
        """Where processes of this machine reach the SuperLink."""
        return f"127.0.0.1:{self.link}"

    def link_process(self) -> Process:
        """Return how to run the SuperLink. Flower checks keys only if TLS is on, even here."""
        arguments = {
            "--host": "127.0.0.1",
            "--port": self.link,
            "--ssl-ca-certfile": self.authority,
            "--ssl-certfile": self.certificate,
            "--ssl-keyfile": self.key,
            "--isolation": "process",
            "--database": self.state / numbers.FILE,
            "--superexec-auth-secret-file": self._secret,
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        switches = "--enable-supernode-auth", "--disable-runtime-dependency-installation"
        return self._flower("superlink", "flower-superlink", *words, *switches)

    def exec_process(self) -> Process:
        """Return how to run the process that starts the ServerApp."""
        arguments = {
            "--runtime-api-address": self.address,
            "--root-certificates": self.authority,
            "--superexec-auth-secret-file": self._secret,
            # It hides its environment, so `stop` cannot find it: it must end with its supervisor.
            "--parent-pid": os.getpid(),
        }
        words = [str(word) for pair in arguments.items() for word in pair]
        return self._flower("superexec", "flower-superexec", *words)

    def ready_process(self) -> Process:
        """Return how to wait for the SuperLink, inside the network where it listens."""
        argv = sys.executable, "-I", "-S", "-c", _LISTENS, str(self.link)
        return Process("ready", argv, restart="no")

    def listen(self) -> socket.socket:
        """Return the socket on which the endpoint listens."""
        try:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            address = self.host, self.port
            return socket.create_server(address, family=family, backlog=namespaces.BACKLOG)
        except OSError as error:
            raise DomainError(
                f"{self.folder / FILE}: cannot listen on {self.host}, port {self.port}: "
                f"{error.strerror}. Choose another address or port in `front`."
            ) from None

    def endpoint_process(self, listening: socket.socket) -> Process:
        """Return how to run the endpoint, which serves a socket."""
        argv = programs.python("fedldp.fleet.server.endpoint", self.folder)
        return Process("front", argv, sockets=(listening,))

    def register_process(self, key: Path) -> Process:
        """Return how to register the public key of a gateway with the SuperLink."""
        words = "supernode", "register", str(key), _NAME, "--format", "json"
        return self._flower(f"register-{key.stem}", "flwr", *words, restart="no")

    def list_process(self) -> Process:
        """Return how to list the gateways that the SuperLink knows."""
        words = "supernode", "list", _NAME, "--format", "json"
        return self._flower("list", "flwr", *words, restart="no")

    def unregister_process(self, node: str) -> Process:
        """Return how to unregister a gateway, given its number in the SuperLink."""
        words = "supernode", "unregister", node, _NAME, "--format", "json"
        return self._flower(f"unregister-{node}", "flwr", *words, restart="no")

    def run_process(self) -> Process:
        """Return how to start a Flower run of the job."""
        words = "run", str(self.app), _NAME, "--run-config", str(self._run_config)
        return self._flower("run", "flwr", *words, restart="no")

    def _flower(self, name: str, program: str, *words: str, restart: Restart = "always") -> Process:
        argv, environment = programs.program(program, *words), programs.environment(self.state)
        return Process(name, argv, environment, restart)

    @property
    def _run_config(self) -> Path:
        return self.state / "run.toml"

    @property
    def _secret(self) -> Path:
        """The secret with which a process proves that it may take tasks from the SuperLink."""
        return self.state / "superexec.secret"

    def configure(self) -> None:
        """Write the configuration of Flower's own commands."""
        home = programs.home(self.state)
        home.mkdir(exist_ok=True)
        superlink = {"address": self.address, "root-certificates": str(self.authority)}
        files.write(home / "config.toml", toml.table("superlink", _NAME, entries=superlink))
        files.write(self._run_config, toml.write({"job": str(self.job)}))
        self._secret.unlink(missing_ok=True)
        files.write_secret(self._secret, secrets.token_bytes(32))


def run(
    folder: Path,
    *,
    stay: bool = False,
    require_isolation: bool = False,
    network: Network | None = None,
) -> bool:
    """Serve until the job is done or, with `stay`, until SIGTERM or Ctrl-C.

    Return whether the job is done; raise `JobFailed` if it has failed. Flower's processes run in
    `network`, by default a private one if the system allows it; with `require_isolation`, the
    server refuses to start without one. What happens is logged, to the state folder too.
    """
    server = ServerConfig.load(folder)
    job = Job.load(server.job)
    checkpoint.check(job.checkpoint, job.name, job.settings)
    if not checkpoint.finished(job.checkpoint):
        signing.check_time(job)
        if (expires := signing.expiry(job)) is not None:
            _log.info("Vaults answer the job %s until %s.", job.name, f"{expires:%Y-%m-%d}")
            if text := signing.expires_soon(job):
                _log.warning("%s", text)
    elif not stay:
        _log.info("The job %s had ended before this start: see %s", job.name, server.job)
        return _conclude(server, job)
    with logs.to_file(server.state / LOG):
        return _run(server, job, stay, require_isolation, network)


def _run(
    server: ServerConfig, job: Job, stay: bool, require_isolation: bool, network: Network | None
) -> bool:
    sockets = isolation.inherited()  # from systemd, which has also made the network private
    network = network or isolation.choose(bool(sockets), require_isolation)
    with Supervisor(server.state, network=network) as supervisor:
        server.configure()
        supervisor.start(server.link_process())
        supervisor.start(server.endpoint_process(sockets[0] if sockets else server.listen()))
        watched = launch.start(supervisor, server.folder / FILE, given=bool(sockets))
        _log.info("Starting Flower's SuperLink: see %s/superlink.log", server.state)
        if supervisor.call(server.ready_process()) is None:
            return _conclude(server, job)
        supervisor.start(server.exec_process())
        certificate = Certificate(server)
        found = _finish(supervisor, server, job, certificate)
        if stay and found is not None:
            _log_end(found, server, job)
        elif watched and found is not None:
            supervisor.wait(launch.LAST)
        while stay and supervisor.wait(_LOOK):
            _register(supervisor, server)
            certificate.renew(supervisor)
    return _conclude(server, job)


def _conclude(server: ServerConfig, job: Job) -> bool:
    """Log the outcome of the job; return whether it is done, or raise `JobFailed`."""
    found = checkpoint.status(job.checkpoint)
    if found is None or not found.ended:
        _log.warning(
            "Stopped before the job %s was done. Start the server again to resume it.", job.name
        )
        return False
    _log_end(found, server, job)
    if found.failed:
        raise JobFailed(f"the job {job.name} has failed and has no result: {found.ended}.")
    return True


def _log_end(found: JobStatus, server: ServerConfig, job: Job) -> None:
    """Log how a job ended, and what is implausible about its reports."""
    level = logging.ERROR if found.failed else logging.INFO
    for line in ending(found, job, server.state).splitlines():
        _log.log(level, "%s", line, extra={"job": job.name})
    name = names.lookup(server.state)
    for text in checkpoint.warnings(job.checkpoint, job.stages, name):
        _log.warning("%s", text, extra={"job": job.name})


@final
class Certificate:
    """The certificate that the SuperLink was started with: it reads a new one only at its start."""

    def __init__(self, server: ServerConfig) -> None:
        self._server, self._due = server, False
        self._files = files.WatchedFiles(server.certificate, server.key)

    def renew(self, supervisor: Supervisor) -> None:
        """Restart the SuperLink if its certificate was replaced; calls wait until it is back."""
        self._due |= self._files.changed()
        if self._due and fit(self._server.certificate, self._server.key):
            self._due = False
            _log.info("Restarting Flower's SuperLink with the new certificate.")
            supervisor.restart(self._server.link_process().name)


def _finish(
    supervisor: Supervisor, server: ServerConfig, job: Job, certificate: Certificate
) -> JobStatus | None:
    """Run the job until it has ended; return None if a signal asks to stop."""
    watch = Watch(
        job,
        lambda line: _log.info("%s", line, extra={"job": job.name}),
        name=names.lookup(server.state),
    )
    due, pause, before = 0.0, _SHORTEST, -1
    while True:
        found = checkpoint.status(job.checkpoint)
        watch.look(found)
        if found is not None and found.ended:
            return found
        _register(supervisor, server)
        certificate.renew(supervisor)
        if checkpoint.locked(job.checkpoint):
            due = monotonic() + pause
        elif monotonic() >= due:
            rounds = 0 if found is None else found.rounds
            pause = _SHORTEST if rounds > before else min(2 * pause, _LONGEST)
            if rounds == before:
                _log.warning("The job's process ended in round %d: see %s", rounds + 1, job.log)
            _log.info("%s", _begins(job, rounds), extra={"job": job.name})
            ordered = supervisor.call(server.run_process()) == [0]
            if not ordered and not supervisor.stopped.is_set():
                _log.warning("Flower did not start the job: see %s/run.log", server.state)
            before, due = rounds, monotonic() + (_BEGINS if ordered else pause)
        if not supervisor.wait(_LOOK):
            return None


def _begins(job: Job, rounds: int) -> str:
    if rounds:
        return f"Resuming the job {job.name} after round {rounds} of {job.rounds}."
    return (
        f"Starting the job {job.name}: {job.rounds} round{'s' * (job.rounds != 1)}, "
        f"{job.expected:,} reports planned."
    )


def nodes_of(server: ServerConfig) -> dict[str, str]:
    """Return the number in Flower of each gateway whose key is in the folder; empty if unknown."""
    known, found = registrations.nodes(server.state), {}
    for name in admission.gateways(server.gateways):
        path = admission.current(server.gateways, name)
        node = known.get(_key(path), "") if path.exists() else ""
        found[name] = node if _has_number(node) else ""
    return found


def _key(path: Path) -> str:
    return registrations.without_comment(path.read_text("utf-8", errors="replace"))


def _register(supervisor: Supervisor, server: ServerConfig) -> None:
    """Register the keys in the folder that the SuperLink does not know, and revoke missing ones.

    A key that Flower refuses is tried again when its file changes or the server restarts. If its
    answer cannot be read, it is tried again a few times.
    """
    paths = sorted(server.gateways.glob(admission.KEYS), key=admission.order)
    keys = {_key(path): path for path in paths}
    nodes = registrations.nodes(server.state)
    fresh = {
        text: path
        for text, path in keys.items()
        if nodes.get(text, REVOKED) == REVOKED and text not in server.refused
    }
    answers = _call(
        supervisor, {text: server.register_process(path) for text, path in fresh.items()}
    )
    nodes |= {text: str(each["node-id"]) for text, (each, _) in answers.items() if _done(each)}
    refused = [text for text in answers if text not in nodes]
    if refused:
        nodes |= _forgotten(supervisor, server, nodes, refused)
    for text, (answer, log) in answers.items():
        name, extra = keys[text].stem, {"gateway": admission.gateway_of(keys[text])}
        server.attempts[text] += 1
        last = server.attempts[text] == _ATTEMPTS
        if nodes.get(text, REVOKED) != REVOKED:
            _log.info("Registered %s.", name, extra=extra)
        elif answer:
            server.refused.add(text)
            why = " It was revoked before: make a new key." if nodes.get(text) == REVOKED else ""
            _log.warning("Flower refused the key of %s: see %s.%s", name, log, why, extra=extra)
        elif last or server.attempts[text] == 1:
            if last:
                server.refused.add(text)
            then = "Restart the server to try again." if last else "It is tried again."
            said = "Flower's answer about the key of %s cannot be read: see %s. %s"
            _log.warning(said, name, log, then, extra=extra)
    known = {
        nodes[text]: admission.gateway_of(path)
        for text, path in keys.items()
        if _has_number(nodes.get(text))
    }
    if answers or registrations.is_old(server.state):
        registrations.save(server.state, nodes)
    _keep_names(server.state, known)  # after that: a name without a registration is revoked
    if _revoke(supervisor, server, nodes, keys):
        registrations.save(server.state, nodes)


def _keep_names(state: Path, known: Mapping[str, str]) -> None:
    """Record the names of nodes, and which of them follow others of the same gateway."""
    before, named = successors.known(state), names.known(state)
    new = {node: name for node, name in known.items() if node not in named}
    for node, name in new.items():
        earlier = [each for each, called in named.items() if called == name]
        if last := [each for each in earlier if each not in before.values()]:
            before[node] = last[0]
        named[node] = name
    if new:  # in this order: the names say what has been done
        successors.keep(state, before)
    names.keep(state, known)


def _has_number(node: str | None) -> bool:
    return node not in (None, "", REVOKED)


def _forgotten(
    supervisor: Supervisor, server: ServerConfig, nodes: dict[str, str], refused: list[str]
) -> dict[str, str]:
    """Return the refused keys that the SuperLink knows already, with their numbers.

    This happens if the server was killed before it could record a registration: the SuperLink then
    lists more nodes than are recorded. Flower's list shows no keys. So the number is known if there
    is exactly one more, and is left empty otherwise.
    """
    [(answer, _)] = _call(supervisor, {"": server.list_process()}).values() or [({}, None)]
    listed = [each for each in answer.get("nodes", []) if each["status"] != "unregistered"]
    more = {each["node-id"] for each in listed} - set(nodes.values())
    spare = len(more) - list(nodes.values()).count("")
    known = [text for text in refused if _is_key(text)][: max(spare, 0)]
    return dict.fromkeys(known, more.pop() if len(more) == 1 else "")


def _is_key(text: str) -> bool:
    """Return whether a text is a public key of a kind that Flower accepts."""
    try:
        return isinstance(load_ssh_public_key(text.encode()), EllipticCurvePublicKey)
    except (ValueError, UnsupportedAlgorithm):
        return False


def _revoke(
    supervisor: Supervisor,
    server: ServerConfig,
    nodes: dict[str, str],
    keys: Iterable[str],
) -> bool:
    """Unregister the keys that are missing from the folder; return whether there were any.

    The endpoint refuses such keys at once. They are unregistered some seconds later, because Flower
    never accepts a key again after that, and a file may be missing only while it is being copied.
    """
    for text in set(nodes) - set(keys):
        server.missed.setdefault(text, monotonic())
    for text in set(server.missed) & set(keys):
        del server.missed[text]
    gone = {
        text: nodes[text]
        for text, since in server.missed.items()
        if _has_number(nodes[text]) and monotonic() - since >= _GONE
    }
    answers = _call(supervisor, {t: server.unregister_process(node) for t, node in gone.items()})
    followed = set(successors.known(server.state).values())
    for text, (answer, log) in answers.items():
        done, name = _done(answer), names.lookup(server.state)(nodes[text])
        what = "Revoked" if done else f"Flower did not unregister (see {log})"
        why = "it has a new one" if nodes[text] in followed else "it is not admitted any more"
        level = logging.INFO if done and nodes[text] in followed else logging.WARNING
        nodes[text] = REVOKED if done else ""  # not tried again in either case
        _log.log(level, "%s a key of %s: %s.", what, name, why, extra={"gateway": name})
    return bool(answers)


def _call(
    supervisor: Supervisor, processes: dict[str, Process]
) -> dict[str, tuple[dict[str, Any], Path]]:
    """Run Flower commands; return the answer and the log of each, or nothing after a signal."""
    logs = {name: supervisor.log(process) for name, process in processes.items()}
    for log in logs.values():
        log.unlink(missing_ok=True)  # it must contain only the output of this attempt
    if not processes or supervisor.call(*processes.values()) is None:
        return {}
    return {name: (_answer(log), log) for name, log in logs.items()}


def _done(answer: dict[str, Any]) -> bool:
    return bool(answer.get("success"))


def _answer(log: Path) -> dict[str, Any]:
    """Return the JSON object in the output of a Flower command, or an empty one."""
    text = log.read_text("utf-8", errors="replace")
    try:
        found = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
