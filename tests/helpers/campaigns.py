"""A small campaign, vehicles that answer it, and counters, without a broker."""

import datetime

from brokers import Broker
from ledgers import open_ledger

import fedldp
from fedldp import Plan, Schema
from fedldp.campaigns.agent import Agent
from fedldp.campaigns.answers import Accepted, Answers
from fedldp.campaigns.campaign import Campaign, packed
from fedldp.campaigns.counter import Counter
from fedldp.campaigns.store import Store
from fedldp.signing import PrivateKey

SCHEMA = Schema.of(speed=(0, 50), city=["Oslo", "Rome", "Lima"])
ROW = {"speed": 30, "city": "Rome"}
PLAN = Plan(SCHEMA, epsilon=1.0)
KEY = PrivateKey.generate()
NOW = datetime.datetime(2027, 3, 1, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now=NOW):
        self.now = now

    def __call__(self):
        return self.now


def asked(plan=PLAN, *, fleet="north", job="spring", number=1, issued=NOW, hours=24):
    """Return a campaign."""
    return Campaign(fleet, job, number, plan.to_json(), issued, issued + hours * HOUR)


def sent(campaign, key=KEY):
    """Return a campaign as it is published."""
    return packed(campaign.signed(key))


class Vehicles:
    """Vehicles that share a ledger and a file of what they have accepted."""

    def __init__(self, folder, *, cap="1.0", clock=None, schema=SCHEMA, **ledger):
        folder.mkdir(exist_ok=True)
        self.folder, self.clock, self.schema = folder, clock or Clock(), schema
        self.ledger = open_ledger(folder / "ledger.db", cap, **ledger)
        self.accepted = Accepted(folder / "campaigns.db")

    def answers(self, key="vehicle", *, row=None, operator=KEY.public, fleet="north", **options):
        row = ROW if row is None else row
        return Answers(
            *(fleet, operator, self.schema, lambda: row, self.ledger, self.accepted),
            key=key,
            clock=self.clock,
            **options,
        )

    def agent(self, broker, key="vehicle", **options):
        return Agent(
            self.answers(key, **options), broker.connect, patience=0.02, silence=0, tick=0.001
        )

    def close(self):
        self.ledger.close()
        self.accepted.close()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


def store(folder, campaign=None, name="counter"):
    return Store(folder / f"{name}.db", (campaign or asked()).signed(KEY))


def count(stores, broker, clock=None, silence=9, **options):
    """Let counters work whenever somebody waits for a message; return them."""
    counters = [
        Counter(each, broker.connect, silence=silence, clock=clock or Clock(), **options)
        for each in stores
    ]

    def work(connection):
        if not connection.client.startswith("counter-"):
            for each in counters:
                pump(each, broker)

    broker.on_idle = work
    for each in counters:
        pump(each, broker)
    return counters


def pump(counter, broker):
    """Let a counter handle what waits for it: it stops when nothing is left."""
    before, idle = broker.on_idle, []
    broker.on_idle = lambda _connection: idle.append(1)
    try:
        return counter.run(lambda _: idle.append(1), lambda: len(idle) > 1)
    finally:
        broker.on_idle = before


def published(campaign=None):
    """Return a broker on which a campaign is published."""
    broker, campaign = Broker(), campaign or asked()
    broker.retained[campaign.topic] = sent(campaign)
    return broker


def packet(row=None, plan=PLAN, source=None):
    """Return the packet of one vehicle."""
    return plan.report([row or ROW], source or fedldp.source(1)).to_bytes()
