"""Every program of a vehicle, run with every state of standard error and every kind of row.

Run as a script, `python vehicle_processes.py PROGRAM FOLDER ROW ...`, so that packages are
imported once and each case is a fork of this process, which ends as a program does. It prints what
each case did as JSON. A new program of a vehicle gets an entry in `PROGRAMS`.
"""

import contextlib
import datetime
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from patience import HANG_SECONDS

import fedldp
from fedldp import Plan, Schema, Source, vehicle

ROOT = Path(__file__).parents[2]
SCHEMA = Schema.of(speed=(0, 50), city=["Oslo", "Århus", "Rome"])
PLAN = Plan(SCHEMA, epsilon=1.0)
CAP, LEDGER = "4", "ledger.db"

# By name: what a row is, and whether the owner is warned.
ROWS = {
    "whole": ({"speed": 30, "city": "Rome"}, False),
    "clipped": ({"speed": 80, "city": "Rome"}, True),
    "missing": ({"city": "Oslo"}, True),
    "unknown": ({"sped": 30, "speed": 30, "city": "Rome"}, True),
    "unreadable": ({"speed": "fast", "city": "Århus"}, True),
    "strange": ({"speed": 30, "city": "\u6771\u4eac \udcff"}, True),
}
STATES = ("open", "closed", "full", "broken", "stuck")
FAILURE = "no random words"  # in the place of a row: with the first row, the program fails


# What a program is: it prepares a folder for a row, and runs in a process of its own.


def write_row(folder, row):
    (folder / "plan.json").write_text(PLAN.to_json())
    (folder / "row.json").write_text(json.dumps(row))


def run_file():
    sys.argv[1:] = ["plan.json", "--cap", CAP, "row.json"]
    runpy.run_path(vehicle.__file__, run_name="__main__")


def run_command(*words):
    import fedldp.cli

    sys.argv[:] = ["fedldp", *words]
    fedldp.cli.main()


def run_report():
    run_command("report", "plan.json", "row.json", "--cap", CAP, "--ledger", LEDGER)


def write_table(folder, row):
    """Write a row as a table, as the vehicles of a fleet have it."""
    names = sorted({*row, "speed"})
    cells = [str(row.get(name, "")) for name in names]
    text = ",".join(names) + "\n" + ",".join(cells) + "\n"
    (folder / "rows.csv").write_bytes(text.encode("utf-8", "surrogatepass"))
    (folder / "rows.toml").write_text(SCHEMA.to_toml())


def write_fleet_agent(folder, row):
    """Write the folder of an agent with a table of one row, and what its server offers."""
    write_table(folder, row)
    write_offer(folder)
    (folder / "agent.toml").write_text(
        f'data = "rows.csv"\nschema = "rows.toml"\ncap = "{CAP}"\n'
        'operator = "operator.pub"\ntick = 0.001\n'
    )


def write_device(folder, row):
    """Write the folder of an agent on the standard library alone."""
    write_row(folder, row)
    write_offer(folder)
    (folder / "agent.toml").write_text(
        f'data = "row.json"\ncap = "{CAP}"\noperator = "operator.pub"\ntick = 0.001\n'
    )


def write_offer(folder):
    """Write a statistic that an operator has signed, and what the server says of it."""
    from engine_cases import OPERATOR, SERVER

    from fedldp_fleet import jobs
    from fedldp_fleet.jobs import Schedule, StatisticJob
    from fedldp_fleet.messages import Offer, Offers, Place
    from fedldp_fleet.questions import Statement

    now = datetime.datetime.now(datetime.UTC)
    hour = datetime.timedelta(hours=1)
    job = StatisticJob("spring", PLAN, 1, Schedule(now - hour, now + hour))
    question = jobs.question(job, 1, job.start)
    signed = jobs.to_sign(job, SERVER.public).signed(OPERATOR)
    statement = Statement("spring", 1, question.digest).signed(SERVER)
    digest = hashlib.sha256(signed.encode()).hexdigest()
    offers = Offers(b"i" * 16, 0.01, (Offer("spring", digest, statement, Place(1, 1000.0)),))
    (folder / "operator.pub").write_text(OPERATOR.public.text)
    (folder / "question").write_bytes(question.to_bytes())
    (folder / "job").write_text(signed)
    (folder / "offers").write_bytes(offers.to_bytes())


class OfferedRoad:
    """A server that offers what lies in the folder, and ends the agent when it has the answer."""

    def __init__(self, messages):
        self.messages = messages

    def call(self, _call):
        return self.messages.Offers.from_bytes(Path("offers").read_bytes())

    def question(self, _digest):
        return Path("question").read_bytes()

    def signed_job(self, _digest):
        return Path("job").read_text()

    def announce(self, _said):
        return True

    def deliver(self, data):
        Path("sent").write_text(str(len(data)))
        os.kill(os.getpid(), signal.SIGTERM)
        answer = self.messages.Answer.from_bytes(data)
        verdict = self.messages.AnswerVerdict.COUNTED
        return self.messages.Acknowledgement(b"i" * 16, answer.identifier, verdict)

    def wait(self, _seconds, _stop):
        """Go on at once: the agent looks whether it is to end."""

    def close(self):
        pass


def run_fleet_agent():
    from fedldp_fleet import messages
    from fedldp_fleet.agent import service

    service._road = lambda *_: (OfferedRoad(messages), None)
    run_command("agent", "run", ".")


def run_device():
    from fedldp_vehicle import command
    from fedldp_vehicle.fleet import messages
    from fedldp_vehicle.fleet.agent import service

    service._road = lambda *_: (OfferedRoad(messages), None)
    sys.argv[:] = ["fedldp-vehicle", "run", "."]
    command.main()


def run_mod():
    """Ask a node of Flower whose app measures the row."""
    from flwr.app import ConfigRecord, MetricRecord
    from nodes import Node, asked, content

    row = json.loads(Path("row.json").read_text())
    numbers = {name: value for name, value in row.items() if isinstance(value, int)}
    texts = {name: value for name, value in row.items() if isinstance(value, str)}
    reply = content(metrics=MetricRecord(numbers), texts=ConfigRecord(texts))
    node = Node(Path(), reply, PLAN, CAP)
    Path("sent").write_text(str(len(node.ask(asked()).content["fedldp"]["fedldp"])))


def run_iris():
    """Ask a node of the example app, whose training gives what a row says."""
    os.environ["IRIS_LEDGER"] = LEDGER
    sys.path.insert(0, str(ROOT / "examples" / "flower"))
    from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
    from iris import client_app
    from nodes import asked, content

    row = json.loads(Path("row.json").read_text())
    model = [np.zeros((4, 3)), np.zeros(3)]
    client_app.own_flowers = lambda _number: (np.zeros((1, 4)), np.zeros(1))
    client_app.accuracy = lambda *_: 0.5
    if "sped" in row or "speed" not in row:
        client_app.trained = lambda *_: [np.zeros(2)]  # another model
    elif isinstance(row["speed"], str):
        client_app.trained = lambda *_: 1 / 0
    else:
        moved = row["speed"] / 50 if row["city"] == "Rome" else np.nan
        client_app.trained = lambda *_: [np.full((4, 3), moved / 4), np.zeros(3)]
    parts = content(arrays=ArrayRecord(model), config=ConfigRecord({"server-round": 1}))
    context = Context(1, 7, {"partition-id": 0}, RecordDict(), {})
    reply = client_app.app(asked(parts=parts), context)
    Path("sent").write_text(str(len(reply.content["fedldp"]["fedldp"])))


class Program(NamedTuple):
    """How a folder is made for a row, what runs there, and where its ledger is, if it has one."""

    write: Callable
    run: Callable
    ledger: str | None
    modules: tuple[str, ...] = ()  # imported before the first case
    is_process: bool = True  # or a part of another program's


PROGRAMS = {
    "vehicle.py": Program(write_row, run_file, None),
    "fedldp report": Program(write_row, run_report, LEDGER, ("fedldp.cli.reports",)),
    "fedldp agent": Program(
        write_fleet_agent,
        run_fleet_agent,
        LEDGER,
        ("engine_cases", "fedldp_fleet.commands.agent", "fedldp_fleet.agent.holders"),
    ),
    "fedldp-vehicle": Program(
        write_device, run_device, LEDGER, ("engine_cases", "fedldp_vehicle.agent")
    ),
    "LDPMod": Program(write_row, run_mod, LEDGER, ("nodes",), False),
    "examples/flower": Program(write_row, run_iris, LEDGER, ("nodes", "sklearn.datasets"), False),
}


# A case.


def standard_error(state, folder):
    """Return a file for standard error in some state; None if it is closed."""
    if state == "closed":
        return None
    if state in ("open", "full"):
        path = folder / "err" if state == "open" else Path("/dev/full")
        return os.open(path, os.O_WRONLY | os.O_CREAT)
    reader, writer = os.pipe()
    if state == "broken":
        os.close(reader)
        return writer
    os.set_blocking(writer, False)  # stuck: full, and nobody reads
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    return writer


def become(folder, state):
    """Make this process what Python makes of a new one with such standard files."""
    err = standard_error(state, folder)
    os.dup2(os.open(folder / "out", os.O_WRONLY | os.O_CREAT), 1)
    os.close(2) if err is None else os.dup2(err, 2)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = None
    if err is not None:
        sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
        sys.__stderr__ = sys.stderr
    os.chdir(folder)


def counted(words, fails):
    """Let everything that draws random words note how many, or fail.

    All cases draw the same words: by chance alone they would choose other attributes to answer.
    """
    system, fill = random.Random(1).randbytes, Source.fill

    def urandom(size):
        words.append(size)
        if fails:
            raise RuntimeError(FAILURE)
        return system(size)

    def filled(self, out):
        words.append(out.nbytes)
        fill(self, out)

    random._urandom = os.urandom = urandom
    Source.fill = filled


def start(name, folder, state, fails):
    """Fork a process that runs a program."""
    child = os.fork()
    if child:
        return child
    words = []
    become(folder, state)
    counted(words, fails)
    try:
        PROGRAMS[name].run()
    finally:
        Path(folder / "words").write_text(json.dumps(words))
    sys.exit()


def ended(child):
    """Return the status with which a child ends, or "blocked" if it does not."""
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "blocked"


def spent(path):
    """Return what a ledger says, after all its checks."""
    with fedldp.Ledger(path, CAP) as ledger:
        return {key: str(total) for key, total in ledger.totals().items()}


def result(folder, status, ledger):
    """Return what a case did, as far as anybody but the owner can see it."""
    found = {"status": status, "words": json.loads((folder / "words").read_text())}
    found["stdout"] = len((folder / "out").read_bytes())
    if (folder / "sent").exists():
        found["sent"] = (folder / "sent").read_text()
    if (answers := folder / "broker" / "answers").exists():
        found["sent"] = [len(line) for line in answers.read_text().splitlines()]
    if ledger is not None:
        found["spent"] = spent(folder / ledger)
    return found


def main(name, place, *rows):
    sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "fleet" / "tests" / "helpers")]
    program, found = PROGRAMS[name], {}
    for module in program.modules:
        importlib.import_module(module)
    gc.freeze()  # a fork neither copies nor collects what is imported
    for state in STATES:
        for row in rows:
            folder = Path(place) / f"{state} {row}"
            folder.mkdir()
            program.write(folder, ROWS["whole" if row == FAILURE else row][0])
            if program.ledger == LEDGER:
                fedldp.Ledger.create(folder / LEDGER, CAP).close()
            child = start(name, folder, state, row == FAILURE)
            outcome = result(folder, ended(child), program.ledger)
            if state == "open":
                outcome["told"] = (folder / "err").read_text(errors="replace")
            found[f"{state} {row}"] = outcome
    print(json.dumps(found))


# In a test.

REPORT_BYTES = 16 + -(-PLAN.bits // 8)


def check_standard_error(name, folder, rows):
    """Run a program with every state of standard error; only the owner may see a difference.

    Return for each row what the owner is told.
    """
    found = outcomes(name, folder, rows)
    assert len(found) == len(STATES) * len(rows)
    told = {row: found[f"open {row}"].pop("told") for row in rows}
    quiet = found["open whole"]
    assert quiet["status"] == 0
    assert quiet["words"]
    length = {"vehicle.py": 2 * REPORT_BYTES + 1, "fedldp report": REPORT_BYTES}
    assert quiet["stdout"] == length.get(name, 0)
    assert name in length or quiet["sent"]
    assert PROGRAMS[name].ledger is None or quiet["spent"]
    for case, outcome in found.items():
        assert outcome == quiet, case
    return told


def check_failure(name, folder):
    """Let a program fail with every state of standard error; return what its owner is told."""
    found = outcomes(name, folder, [FAILURE])
    told = found[f"open {FAILURE}"].pop("told")
    expected = found[f"open {FAILURE}"]
    assert (expected["status"], expected["stdout"], expected.get("sent")) == (1, 0, None)
    assert expected["words"]
    for case, outcome in found.items():
        assert outcome == expected, case
    return told


def outcomes(name, folder, rows):
    """Run all cases of a program, and return what each did."""
    words = [sys.executable, "-W", "ignore", __file__, name, folder, *rows]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
