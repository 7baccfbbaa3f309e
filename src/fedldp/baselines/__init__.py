"""Mechanisms of other papers, as runnable code, to compare the library's own with.

They are for study: in floating point, with a generator of NumPy if you like, and without integers
that anybody could check. They fit into no plan and cannot be released, and nothing in the library
but `fedldp compare` imports them.

- `frequencies`: what share of the vehicles has each of some categories;
- `means`: of one number, and of vectors of length 1;
- `distributions`: of numbers in [0, 1];
- `comparison`: all of them beside the library's coders.

>>> from fedldp.baselines.frequencies import FREQUENCY_ORACLES
>>> oracles = [kind(epsilon=1.0, categories=64) for kind in FREQUENCY_ORACLES]
>>> min(oracles, key=lambda oracle: oracle.worst_error).name
'subset-selection'
"""
