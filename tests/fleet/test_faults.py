"""A fleet of real processes is killed, starved and cut off; it resumes, and nobody pays twice.

All faults meet one fleet of two gateways, in one job, in any order. Each waits for a round of its
own. When all are over, the job is brought to its end, and the same gateways answer a statistic.
"""

import base64
import datetime
import resource
import signal
import ssl
import subprocess
import sys
from functools import partial
from time import sleep

import httpx
import pytest
from accounts import forked
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from fleet_parts import DEATHS, Fleet, Proxy, alive, edit, kill, pin, reroute, running, sign, until
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from fedldp import Plan, Schema, datasets
from fedldp.fleet import keys, processes
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.server import checkpoint
from fedldp.fleet.server.process import ServerConfig
from fedldp.fleet.server.registrations import registered
from fedldp.fleet.server.rounds import ROUNDS
from fedldp.fleet.stages import Learned
from fedldp.fleet.state import holder
from fedldp.learn.model import Model
from fedldp.learn.settings import Settings

pytestmark = pytest.mark.faults

ROWS, TURNS, EPSILON = 6000, 200, 4.0
TICK = 1.0  # seconds from a vault's burning to its answer: the time to do harm
CUT = 30.0  # seconds without a network
SMALL = 1 << 14  # bytes of the largest file on a full disk: a vault's log, but no transaction


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faults") / "fleet"
    flights = datasets.load("flights", rows=ROWS)
    work = Work.on_data_set(flights, "logistic", 2, TURNS, {"rows": ROWS})
    place = Place("127.0.0.1", processes.free_port(), processes.free_port(), None)
    init(folder, work, Settings(EPSILON), 2, place)
    # Nobody is given up here, however busy the machine is.
    edit(folder / "server" / "job.toml", resend=15.0, deadline=3600.0)
    edit(folder / "server" / "app" / "pyproject.toml", serverapp='"fleet_parts:server"')
    pin(folder)
    for path in folder.glob("vault-*/vault.toml"):
        edit(path, tick=TICK)
    for path in folder.glob("gateway-*/gateway.toml"):
        edit(path, deadline=600.0)
    return folder


@pytest.fixture(scope="module")
def fleet(folder):
    """A fleet at work; the second gateway's way to the server can be cut."""
    way = processes.free_port()
    reroute(folder, "gateway-2", way)
    with Proxy(way, ServerConfig.load(folder / "server").port) as network:
        fleet = Fleet(folder, network=network)
        try:
            for part in (*fleet.vaults, "server"):
                fleet.start(part)
            until(lambda: len(registered(folder / "server" / "state")) == 2, "registration")
            for part in fleet.gateways:
                fleet.start(part)
            until(fleet.rounds, "the first round")
            yield fleet
            finish(fleet)
            count(fleet)
        finally:
            fleet.close()
            assert running(folder) == {}


def finish(fleet):
    """Let the job end two rounds from now, and see what has come of it."""
    path, last = fleet.folder / "server" / "job.toml", fleet.rounds() + 2
    edit(path, rounds=last)
    sign(fleet.folder)
    kill([fleet.process("server", "flwr-serverapp")])
    assert fleet.popens["server"].wait(600) == 0
    found = fleet.progress()
    assert (found.rounds, found.ended, found.failed) == (last, ROUNDS, False)
    asked = 2 * sum(fleet.job.question("0", number).n for number in range(1, last + 1))
    assert (found.reports, found.refusals, found.silent) == (asked, 0, 0)
    fleet.prove()
    learned = checkpoint.replay(fleet.job.checkpoint, fleet.job.stages)
    assert fleet.checkpoint("SELECT state FROM job") == [(learned.to_json(),)]
    model = Model.from_json(fleet.job.result.read_text())
    assert list(model.weights) == learned.state.average[0].tolist()
    assert model.scaling == learned.scaling


def count(fleet):
    """Put a statistic to the same vaults, by a server that is started anew."""
    plan = Plan(Schema([fleet.job.model.schema["distance"]]), EPSILON)
    server = fleet.folder / "server"
    (server / "sums.json").write_text(plan.to_json())
    (server / "job.toml").write_text(
        'job = "sums"\nplan = "sums.json"\ngateways = 2\nreports = 50\ndeadline = 3600\n'
        'checkpoint = "state/sums.db"\nresult = "state/tally.json"\n'
    )
    sign(fleet.folder)
    second = Fleet(fleet.folder, fleet.popens)
    assert second.start("server").wait(600) == 0
    tally = plan.load_tally(second.job.result)
    reports = second.checkpoint("SELECT report FROM batches")
    assert tally == sum((plan.parse(report) for (report,) in reports), plan.tally())
    assert tally.reports == 100
    second.prove()


def harm(fleet, vault, fault):
    """Do something after a vault has recorded its answer, and before the server has got it.

    Return the round in which that was, who passes the answer on, and what the server had.
    """
    while True:
        number = fleet.fresh_round(vault)
        until(partial(fleet.recorded, vault, number), "an answer")
        before = fleet.batches()
        fault()
        node = fleet.node(vault, number)
        if (number, node) not in fleet.batches():
            return number, node, before


def goes_on(fleet, number, before):
    """See that a round comes to its end, and that nothing is lost at any time until then."""

    def done():
        assert before.items() <= fleet.batches().items()
        return fleet.rounds() >= number

    until(done, "the end of the round")
    found = [len(records) for (each, _), records in fleet.batches().items() if each == number]
    assert found == [fleet.job.question("0", number).n] * 2
    fleet.prove()


def test_gateways_are_killed_in_the_midst_of_a_round(fleet):
    """Their keys are refused for up to a minute. Then the same question gets what was recorded.

    One dies with its supervisor, as by a power cut, and is started by hand; the other without.
    """
    node = fleet.process("gateway-2", "flower-supernode")

    def fault():
        fleet.kill("gateway-1")
        kill([node])

    number, gateway, before = harm(fleet, "vault-1", fault)
    recorded = fleet.recorded("vault-1", number)
    fleet.start("gateway-1")
    goes_on(fleet, number, before)
    assert fleet.recorded("vault-1", number) == recorded
    assert fleet.batches()[number, gateway] == recorded[1]
    assert fleet.process("gateway-2", "flower-supernode") != node


def test_the_uplink_of_a_gateway_is_killed_in_the_midst_of_a_round(fleet):
    """The SuperNode waits for the next one, and nothing is lost."""

    def uplink():
        found = running(fleet.folder / "gateway-1").items()
        return [pid for pid, words in found if "fedldp.fleet.gateway.uplink" in words]

    before_, node = uplink(), fleet.process("gateway-1", "flower-supernode")
    number, _, before = harm(fleet, "vault-1", lambda: kill(uplink()))
    goes_on(fleet, number, before)
    assert uplink() != before_
    assert fleet.process("gateway-1", "flower-supernode") == node


def test_the_superlink_is_killed_in_the_midst_of_a_round(fleet):
    link = fleet.process("server", "flower-superlink")
    number, _, before = harm(fleet, "vault-1", lambda: kill([link]))
    goes_on(fleet, number, before)
    assert fleet.process("server", "flower-superlink") != link


@pytest.mark.parametrize("moment", DEATHS)
def test_the_serverapp_is_killed(fleet, moment):
    """Right after it has sent a question, has got a reply, has written one down."""
    app = fleet.process("server", "flwr-serverapp")
    told = fleet.folder / "server" / "state" / f"die-after-{moment}"
    told.touch()
    until(lambda: not told.exists() and not alive(app), "death")
    before, number = fleet.batches(), fleet.rounds() + 1
    [(asked,)] = fleet.checkpoint("SELECT COUNT(*) FROM asks WHERE round = ?", number)
    assert asked == 2  # what is sent is written down before
    if moment == "store":
        assert [each for each, _ in before].count(number) >= 1
    goes_on(fleet, number, before)


def test_the_whole_server_is_killed(fleet):
    number, _, before = harm(fleet, "vault-2", lambda: fleet.kill("server"))
    fleet.start("server")
    goes_on(fleet, number, before)


def test_the_server_is_killed_in_the_survey_and_between_survey_and_training(tmp_path):
    """In a fleet of its own: nothing is lost, nobody answers twice, and the map is the same."""
    folder = tmp_path / "fleet"
    work = Work.on_data_set(datasets.load("flights", rows=400), "logistic", 2, 2, {"rows": 400})
    place = Place("127.0.0.1", processes.free_port(), processes.free_port(), None)
    init(folder, work, Settings(EPSILON, survey="scale", survey_share=0.2), 2, place)
    edit(folder / "server" / "job.toml", resend=15.0, deadline=3600.0)
    for path in folder.glob("vault-*/vault.toml"):
        edit(path, tick=TICK)
    surveyed = Fleet(folder)
    try:
        for part in (*surveyed.vaults, "server"):
            surveyed.start(part)
        until(lambda: len(registered(folder / "server" / "state")) == 2, "registration")
        for part in surveyed.gateways:
            surveyed.start(part)
        for done in (0, 2):  # in the first round of the survey, and after its second
            until(lambda done=done: surveyed.rounds() == done, "the round")
            if not done:
                until(partial(surveyed.recorded, "vault-1", 1), "an answer")
            surveyed.kill("server")
            assert surveyed.rounds() == done
            before, learned = surveyed.batches(), surveyed.checkpoint("SELECT state FROM job")
            surveyed.start("server")
            goes_on(surveyed, done + 1, before)
        assert surveyed.popens["server"].wait(600) == 0
        found, job = surveyed.progress(), surveyed.job
        assert (found.ended, found.rounds, found.reports) == (ROUNDS, 4, job.expected)
        surveyed.prove()
        again = checkpoint.replay(job.checkpoint, job.stages)
        assert surveyed.checkpoint("SELECT state FROM job") == [(again.to_json(),)]
        model = Model.from_json(job.result.read_text())
        assert model.scaling == again.scaling == Learned.from_json(learned[0][0]).scaling
    finally:
        surveyed.close()
        assert running(folder) == {}


def test_a_vault_is_killed_when_it_has_recorded_and_not_answered(fleet):
    number, node, before = harm(fleet, "vault-1", lambda: fleet.kill("vault-1"))
    recorded = fleet.recorded("vault-1", number)
    fleet.start("vault-1")
    goes_on(fleet, number, before)
    assert fleet.batches()[number, node] == fleet.recorded("vault-1", number)[1] == recorded[1]


def test_the_disk_is_full_under_a_ledger(fleet):
    """Nothing is released that cannot be recorded. With room again, the round continues."""
    vault = fleet.popens["vault-2"].pid
    limits = resource.prlimit(vault, resource.RLIMIT_FSIZE)
    known = len(fleet.log("vault-2"))
    resource.prlimit(vault, resource.RLIMIT_FSIZE, (SMALL, limits[1]))

    def failed():
        fleet.prove()  # what the server has is recorded, also now
        return "failed: OSError" in fleet.log("vault-2")[known:]

    until(failed, "a full disk")
    number, before = fleet.rounds() + 1, fleet.batches()
    assert fleet.recorded("vault-2", number) is None
    sleep(2 * TICK)  # in which it is asked again, and again says nothing
    assert fleet.recorded("vault-2", number) is None
    assert len([each for each, _ in fleet.batches() if each == number]) <= 1
    resource.prlimit(vault, resource.RLIMIT_FSIZE, limits)
    goes_on(fleet, number, before)


def test_the_network_is_cut_for_half_a_minute(fleet):
    number, node, before = harm(fleet, "vault-2", fleet.network.cut)
    sleep(CUT)
    assert (number, node) not in fleet.batches()
    fleet.network.heal()
    goes_on(fleet, number, before)


def heartbeat(fleet, port, gateway, node):
    """Call the server as a node, signed with the key of a gateway's folder; return the status."""
    server, now = ServerConfig.load(fleet.folder / "server"), datetime.datetime.now(datetime.UTC)
    private = load_ssh_private_key((gateway / "key").read_bytes(), None)
    signed = {
        "flwr-public-key": public_key_to_bytes(private.public_key()),
        "flwr-signature": sign_message(private, now.isoformat().encode()),
    }
    headers = {name: base64.b64encode(value).decode() for name, value in signed.items()}
    return httpx.post(
        f"https://127.0.0.1:{port}/v1/fleet/send-node-heartbeat",
        headers=headers
        | {"flwr-timestamp": now.isoformat(), "content-type": "application/protobuf"},
        content=SendNodeHeartbeatRequest(
            node=Node(node_id=int(node)), heartbeat_interval=30.0
        ).SerializeToString(),
        verify=ssl.create_default_context(cafile=server.authority),
    ).status_code


def nodes(fleet):
    """Return the number that each gateway has in Flower."""
    done = until(fleet.rounds)
    return [fleet.node(vault, done) for vault in fleet.vaults]


def test_a_key_that_is_not_registered_is_refused(fleet, tmp_path):
    """A gateway with it ends at once, whenever it is started; the front and Flower refuse calls."""
    part, like = tmp_path / "gateway-9", fleet.folder / "gateway-1"
    part.mkdir()
    for name in ("gateway.toml", "ca.crt"):
        (part / name).write_bytes((like / name).read_bytes())
    keys.write_node(part / "key")
    server, stranger = ServerConfig.load(fleet.folder / "server"), Fleet(tmp_path)
    try:
        stranger.start(part.name)
        for _ in range(2):
            tried = stranger.process(part.name, "flower-supernode")
            until(lambda tried=tried: not alive(tried), "refusal")
    finally:
        stranger.close()
    node = nodes(fleet)[0]
    assert heartbeat(fleet, server.port, part, node) == 401
    link = fleet.process("server", "flower-superlink")
    call = partial(heartbeat, fleet, server.link, part, node)
    assert forked(call, network_of=link) == 401
    [(gateways,)] = fleet.checkpoint("SELECT COUNT(DISTINCT gateway) FROM asks")
    assert gateways == 2


def test_operators_calls_are_not_for_gateways(fleet):
    """Flower serves them at its port, in a private network; the front knows nothing of them."""
    server = ServerConfig.load(fleet.folder / "server")
    trusted = ssl.create_default_context(cafile=server.authority)
    hidden = ("control/list-runs", "control/start-run", "runtime/get-nodes", "fleet/register-node")

    def called(port):
        with httpx.Client(base_url=f"https://127.0.0.1:{port}/v1/", verify=trusted) as client:
            return [client.post(path).status_code for path in hidden]

    assert called(server.port) == [404] * len(hidden)
    link = fleet.process("server", "flower-superlink")
    assert 404 not in forked(partial(called, server.link), network_of=link)
    with pytest.raises(httpx.ConnectError):
        called(server.link)


def test_a_gateway_cannot_speak_for_another(fleet):
    port = ServerConfig.load(fleet.folder / "server").port
    folders = [fleet.folder / gateway for gateway in fleet.gateways]
    found = [heartbeat(fleet, port, key, node) for key in folders for node in nodes(fleet)]
    assert found == [200, 401, 401, 200]


def test_stop_ends_what_a_killed_demo_has_left(tmp_path):
    folder = tmp_path / "fleet"
    command = [sys.executable, "-m", "fedldp", "fleet"]
    words = [*command, "demo", "--rows", "1000", "--output", str(folder)]
    popen = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        fleet = Fleet(folder)
        until((folder / "README.md").exists, "the folder")
        for part in ("gateway-1", "gateway-2", "gateway-3"):
            fleet.process(part, "flower-supernode")
        popen.send_signal(signal.SIGKILL)
        popen.wait()
        kill([holder(folder / part / "state") for part in ("server", "gateway-1")])
        assert len(running(folder)) >= 3 + 2 + 3 + 2  # vaults, gateways, SuperNodes, link and front
        done = subprocess.run([*command, "stop", str(folder)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Stopped ")
        until(lambda: not running(folder), "the last one's end", patience=30)
    finally:
        popen.kill()
        popen.wait()
        processes.stop(folder)
