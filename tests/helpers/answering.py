"""The places where a vehicle answers a plan through its ledger, with one interface."""

import json

import numpy as np
from click.testing import CliRunner
from flwr.app import ConfigRecord, MetricRecord, RecordDict
from holders import checked, in_round, period_of, statistic_of
from nodes import Node
from nodes import asked as flower_question

from fedldp import Calendar, Category, Number, Plan, Schema
from fedldp.budget.ledger import Ledger
from fedldp.budget.vehicle import Vehicle
from fedldp.cli.app import fedldp as command
from fedldp.errors import FedLDPError
from fedldp.plan.report import HEADER
from fedldp.plan.strategies import Sample
from fedldp_fleet.agent.many import Held, ManyVehicles
from fedldp_fleet.flower.messages import unpacked

SPEED, COLOR = Number("speed", 0, 50), Category("color", ["red", "green"], constant=True)
SCHEMA = Schema((SPEED, COLOR))
ROW = {"speed": 30, "color": "green"}
VEHICLE = "vehicle"


class Place:
    """One vehicle, and a way of asking it.

    `ask` returns the record that leaves the vehicle, without what surrounds it, or None if none
    does. It must not raise: a refusal is a fact about the ledger, which `spent` shows.
    """

    has_jobs = has_calendars = True

    def __init__(self, folder, cap=1):
        self.folder, self.cap = folder, cap
        self.path = folder / "ledger.db"
        self.rows_read = 0
        self.row = ROW
        Ledger.create(self.path, cap).close()

    def ask(self, plan, *, job="spring", number=1, period=None):
        try:
            return self.record(plan, job, number, period)
        except (FedLDPError, OSError):
            return None

    def read_row(self):
        self.rows_read += 1
        return self.row

    def spent(self):
        with Ledger(self.path, self.cap) as ledger:
            return ledger.spent(VEHICLE)


def of_report(packet):
    return packet[HEADER:] or None


class InAgent(Place):
    """An agent, which is started for each question. It continues the ledgers of vaults."""

    def record(self, plan, job, number, period):
        with Ledger(self.path, self.cap) as ledger:
            holder = ManyVehicles(Rows(self), ledger)
            if period is None:
                asked = in_round(checked(holder, statistic_of(plan, job)), number)
            else:
                asked = checked(holder, period_of(plan, period))
            [record] = holder.draw(asked, 1) or [None]
        return record


class Rows:
    """The row of a place, as an agent reads it when it answers."""

    schema, vehicle_ids, epsilons = SCHEMA, [VEHICLE], ()

    def __init__(self, place):
        self.place = place

    def held(self):
        row = self.place.read_row()
        speed, color = row.get("speed"), row.get("color")
        matrix = [[np.nan if speed is None else speed, 1.0 if color == "green" else 0.0]]
        return Held(np.array(matrix), np.array([0]))


class InMod(Place):
    """A Flower app with LDPMod."""

    has_calendars = False

    def record(self, plan, job, number, _):
        def reply(*_):
            row = self.read_row()
            numbers = MetricRecord({"speed": row["speed"]} if "speed" in row else {})
            texts = ConfigRecord({"color": row["color"]} if "color" in row else {})
            return RecordDict({"numbers": numbers, "texts": texts})

        node = Node(self.folder, reply, plan, self.cap, job=job, vehicle_id=VEHICLE)
        packet = unpacked(node.ask(flower_question({"round": number})).content)
        return of_report(packet) if any(packet) else None


class InCommand(Place):
    """`fedldp report`."""

    def record(self, plan, job, number, period):
        (self.folder / "plan.json").write_text(plan.to_json())
        (self.folder / "row.json").write_text(json.dumps(self.row))
        output = self.folder / "report.bin"
        output.unlink(missing_ok=True)
        options = {"job": job, "round": number} if period is None else {"period": period}
        options |= {"cap": self.cap, "ledger": self.path, "key": VEHICLE, "output": output}
        files = [str(self.folder / name) for name in ("plan.json", "row.json")]
        given = [f"--{name}={value}" for name, value in options.items()]
        done = CliRunner().invoke(command, ["report", *files, *given])
        if done.exit_code:
            raise done.exception if isinstance(done.exception, FedLDPError) else OSError(done)
        return of_report(output.read_bytes()) if output.exists() else None


class InCalendar(Place):
    """`Vehicle.answer_period`, for a program of one's own."""

    has_jobs = False

    def record(self, plan, job, number, period):
        if period is None:  # another calendar for each number, with all its periods
            plan, period = Calendar(plan, periods=number, answers=number), number
        with Ledger(self.path, self.cap) as ledger:
            answer = Vehicle(ledger, VEHICLE).answer_period(plan, period, self.read_row)
        return None if answer is None else of_report(answer.report)


class InProgram(Place):
    """`Vehicle.answer`, for a program of one's own."""

    has_calendars = False

    def record(self, plan, job, number, period):
        with Ledger(self.path, self.cap) as ledger:
            answer = Vehicle(ledger, VEHICLE).answer(
                plan, self.read_row, job=job, round=str(number)
            )
        return of_report(answer.report)


PLACES = {place.__name__: place for place in Place.__subclasses__()}
NUMBER_PLAN = Plan(Schema((SPEED,)), 1.0, Sample(mechanism="duchi"))
CONSTANT_PLAN = Plan(Schema((COLOR,)), epsilon=1.0)
