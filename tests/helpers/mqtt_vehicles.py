"""Some vehicles in one process, for test_mqtt.py to kill: each has a ledger entry of its own.

python mqtt_vehicles.py FOLDER CERTIFICATES URL FIRST LAST HOW

If HOW is "alone", each vehicle sends through a connection of its own, named by its identifier, as
`fedldp vehicle` does. If it is "pool", they share a connection, which the access rules must allow.
They share a file, a certificate and a campaign that the process has read once. The process ends
when all of them have seen their acknowledgement.
"""

import contextlib
import sys
import time
from pathlib import Path

from ledgers import open_ledger

from fedldp import Schema
from fedldp.campaigns.agent import Agent
from fedldp.campaigns.answers import Accepted, Answers
from fedldp.campaigns.campaign import all_campaigns
from fedldp.campaigns.mqtt import Broker
from fedldp.signing import PublicKey


def campaign(broker):
    """Return the campaign on the broker, as soon as there is one."""
    while True:
        try:
            with broker.connect(f"{time.monotonic_ns():x}") as connection:
                connection.subscribe(all_campaigns("north"))
                message = connection.receive(1)
                if message is not None and message.payload:
                    return message.payload
        except OSError:
            time.sleep(0.2)


def send_alone(broker, vehicles, text):
    """Send the answers of some vehicles one after the other."""
    for answers in vehicles:
        if answers.accept(text) is not None:
            try:
                Agent(answers, broker.connect, patience=2).send()
            except OSError:
                time.sleep(0.1)


def send_in_pool(broker, vehicles, text):
    """Send the answers of some vehicles together."""
    pending = [(each, answer) for each in vehicles if (answer := each.accept(text)) is not None]
    waiting = {answer.acknowledgement: (each, answer) for each, answer in pending}
    with contextlib.suppress(OSError), broker.connect(f"{time.monotonic_ns():x}") as connection:
        connection.subscribe("fedldp/north/ack/+/+/+")
        for _, answer in pending:
            connection.publish(answer.topic, answer.payload, certain=True)
        until = time.monotonic() + 2
        while waiting and time.monotonic() < until:
            message = connection.receive(0.2)
            if message is not None and message.topic in waiting:
                each, answer = waiting.pop(message.topic)
                each.acknowledge(answer)


def main(folder, certificates, url, first, last, how):
    folder, certificates = Path(folder), Path(certificates)
    files = (certificates / each for each in ("ca.crt", f"{how}.crt", f"{how}.key"))
    broker = Broker.of(url, *files)
    schema = Schema.from_toml((certificates / "schema.toml").read_text())
    operator = PublicKey.load(certificates / "operator.pub")
    text = campaign(broker)
    send, step = (send_alone, 1) if how == "alone" else (send_in_pool, 100)
    with (
        open_ledger(folder / "ledger.db", "1.0") as ledger,
        Accepted(folder / "cars.db") as accepted,
    ):
        left = []
        for number in range(int(first), int(last)):
            row = {"speed": number % 130, "city": "Oslo"}
            answers = Answers(
                *("north", operator, schema, lambda row=row: row, ledger, accepted),
                key=f"car {number}",
            )
            left.append(answers)
        while left:
            for start in range(0, len(left), step):
                send(broker, left[start : start + step], text)
            left = [answers for answers in left if answers.pending()]


if __name__ == "__main__":
    main(*sys.argv[1:])
