"""The two apps that Flower runs: one on the server, one on each gateway.

The bundle that Flower ships contains no code. It names these two apps, which are installed with
fedldp on both sides.

The run's configuration names the job's file (`job`). A node's configuration names the vaults behind
it: `vaults` (addresses, separated by commas), `names` (what to call them), `deadline` (seconds),
`state` (the gateway's state folder) and, for TCP, `token` (a file).

In Flower's simulation, the only configuration of a node is its number. The environment variable
`FEDLDP_VAULTS` then says where its vaults are; {partition-id} stands for the number, as in
/run/vaults/{partition-id}.
"""

import logging
import os
from functools import partial
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedldp.fleet import logs
from fedldp.fleet.flower.messages import packed, unpacked
from fedldp.fleet.flower.strategy import LDPFedSGD
from fedldp.fleet.gateway.record import Questions
from fedldp.fleet.gateway.relay import DEADLINE, relay
from fedldp.fleet.job import Job
from fedldp.fleet.processes import MARK
from fedldp.fleet.protocol import inflated
from fedldp.fleet.server import names, registrations, successors
from fedldp.fleet.sockets import REFUSED, Address

VAULTS = "FEDLDP_VAULTS"

server = ServerApp()
client = ClientApp()

_log = logging.getLogger(__name__)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run the job until it ends. Do nothing if another process is running it already."""
    job = Job.load(str(context.run_config["job"]))
    # The supervisor of the server names its state folder, where the names of gateways are.
    state = Path(os.environ.get(MARK, job.checkpoint.parent))
    name, before = names.lookup(state), partial(successors.known, state)
    revoked = partial(registrations.revoked, state)
    with logs.to_file(job.log):  # the output of a ServerApp is not kept
        try:
            LDPFedSGD(job, name=name, before=before, revoked=revoked).start(grid)
        except BlockingIOError as error:
            _log.warning("%s", error)
        except Exception as error:
            _log.error("%s: %s", type(error).__name__, error)
            raise


@client.train()
def train(message: Message, context: Context) -> Message:
    """Pass a question on to the vaults and return one answer, even if something fails."""
    node = context.node_config
    questions = Questions(Path(str(node["state"]))) if "state" in node else None
    try:
        token = str(node["token"]) if "token" in node else None
        listed = node["vaults"] if "vaults" in node else os.environ[VAULTS].format_map(node)
        vaults = [Address.of(text.strip(), token) for text in str(listed).split(",")]
        called = str(node["names"]).split(",") if "names" in node else ()
        question = inflated(unpacked(message.content))
        data = relay(question, vaults, float(node.get("deadline", DEADLINE)), called, questions)
    except Exception as error:  # logged on this machine only: the server just gets no answer
        _log.error("%s: %s", type(error).__name__, error)
        if questions is not None:
            questions.ended(questions.came(None), None, f"{type(error).__name__}: {error}")
        data = REFUSED
    return Message(packed(data), reply_to=message)
