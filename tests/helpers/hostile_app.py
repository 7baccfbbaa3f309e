"""The app of a gateway that lies: Flower runs it, in the place of the fleet's own."""

from dataclasses import replace
from pathlib import Path

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from gateways import batch

from fedldp.fleet import app
from fedldp.fleet.flower.messages import NAME, packed, unpacked
from fedldp.fleet.protocol import Question, inflated

HOSTILE = "hostile"  # what the liar names in the place of its vault

client = ClientApp()


def throw(*_):
    raise RuntimeError("48 km/h")


def over(_, place):
    """Return the batch that has counted in the first round, once more."""
    return packed(batch(Question.from_bytes((place / "question").read_bytes())))


TRICKS = {  # of each round
    1: {
        "garbage": lambda *_: packed(b"garbage" * 9),
        "10 million bytes": lambda *_: packed(bytes(10_000_000)),
        "someone else's": lambda question, _: packed(batch(replace(question, gateway="17"))),
        "metrics": lambda question, _: RecordDict(
            {NAME: ConfigRecord({NAME: batch(question)}), "more": MetricRecord({"loss": 0.5})}
        ),
        "an error": throw,
    },
    2: {"a round that is over": over},
}


@client.train()
def answer_or_lie(message, context):
    """Answer as ever or, in the place of the liar, play a trick: each once, then no more."""
    vault = Path(str(context.node_config["vaults"]))
    if vault.name != HOSTILE:
        return app.train(message, context)
    place, question = vault.parent, Question.from_bytes(inflated(unpacked(message.content)))
    log = place / "played"
    played = log.read_text().splitlines() if log.exists() else []
    left = [name for name in TRICKS[question.round] if name not in played]
    log.write_text("\n".join([*played, left[0] if left else f"round {question.round}"]))
    if left:
        return Message(TRICKS[question.round][left[0]](question, place), reply_to=message)
    (place / "question").write_bytes(question.to_bytes())
    return Message(packed(batch(question)), reply_to=message)
