"""Campaigns over MQTT: statistics of vehicles that are awake now and then, without Flower.

A campaign asks every vehicle of a fleet one plan. The server publishes it, signed, on a broker,
which keeps it. A vehicle that wakes up reads it, answers once, and sends the same bytes again until
a counter has acknowledged them. Counters store what they receive; when the round is closed, their
files are merged.

    campaign.py     what is asked, its signature and its topics; what a vehicle sends
    answers.py      the vehicle's rules, its ledger, and what is still to be acknowledged
    agent.py        `fedldp vehicle`: visits to the broker
    store.py        the file of a counter; merging the files of a round
    counter.py      `fedldp campaign count`
    config.py       vehicle.toml and campaign.toml
    transport.py    what is needed from a broker; mqtt.py provides it with paho-mqtt

The guarantee: a vehicle that saw its acknowledgement is counted exactly once, every other vehicle
at most once, and nobody spends twice. It holds whatever the broker loses, repeats or delays. See
docs/how-to/mqtt.md.

The public names are for programs with a connection of their own to a broker: `Answers` decides what
a vehicle sends, and a `Store` what a counter acknowledges.
"""

from typing import TYPE_CHECKING

from fedldp._internal.lazy import attribute_loader

__all__ = [
    "Accepted",
    "Answer",
    "Answers",
    "Campaign",
    "Finished",
    "Merged",
    "PrivateKey",
    "PublicKey",
    "PublicKeys",
    "Store",
    "Verdict",
    "all_campaigns",
    "merge",
    "packed",
]

if TYPE_CHECKING:
    from fedldp.campaigns.answers import Accepted, Answer, Answers
    from fedldp.campaigns.campaign import Campaign, all_campaigns, packed
    from fedldp.campaigns.store import Finished, Merged, Store, Verdict, merge
    from fedldp.signing import PrivateKey, PublicKey, PublicKeys
else:
    __getattr__ = attribute_loader(
        __name__,
        {
            "answers": "Accepted Answer Answers",
            "campaign": "Campaign PrivateKey PublicKey PublicKeys all_campaigns packed",
            "store": "Finished Merged Store Verdict merge",
        },
    )

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
