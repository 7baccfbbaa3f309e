"""`fedldp fleet doctor`: what is wrong on a machine, and what to do about it.

A check is a small function with a name. It gets the configuration of a part and yields findings:
`ok`, `warning` or `problem`, each in one sentence, and another sentence that says what to do.
`machine` has the checks for every part; `server`, `gateway` and `vault` list those of each part.
Nothing is changed, answered or spent.
"""

from fedldp.fleet.doctor.examination import Examined, Finding, examine

__all__ = ["Examined", "Finding", "examine"]
