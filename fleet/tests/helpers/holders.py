"""Holders of many vehicles that are asked without a server: jobs are signed, checked and drawn."""

import dataclasses
from fractions import Fraction

import numpy as np
from engine_cases import SCHEDULE, SERVER

from fedldp import Ledger
from fedldp.budget.calendars import CalendarPeriod
from fedldp_fleet import jobs
from fedldp_fleet.agent.many import ManyVehicles
from fedldp_fleet.agent.policy import OwnerRules
from fedldp_fleet.agent.rows import TableRows
from fedldp_fleet.jobs import StatisticJob


def held(path, schema, matrix, ids, cap=4, policy=None, epsilons=(), **options):
    """Return the holder of some vehicles, on a ledger that is created if it is missing."""
    if not path.exists():
        Ledger.create(path, cap).close()
    rules = OwnerRules.of(policy or {})
    ledger = Ledger(path, cap, period=rules.period, **options)
    chosen = [None if each is None else Fraction(each) for each in epsilons]
    table = TableRows(schema, np.array(matrix, np.float64), list(ids), chosen)
    holder = ManyVehicles(table, ledger, rules)
    holder.ledger = ledger
    return holder


def statistic_of(plan, name="spring", wanted=10_000):
    return StatisticJob(name, plan, wanted, SCHEDULE)


def period_of(calendar, number, name=None):
    period = CalendarPeriod(calendar, number)
    return StatisticJob(name or f"day-{number}", calendar.plan, 10_000, SCHEDULE, period)


def checked(holder, job, number=1, learned=None):
    """Return the question of a round of a signed job, as the holder has checked it."""
    signed = jobs.to_sign(job, SERVER.public)
    question = jobs.question(job, number, job.start if learned is None else learned)
    return holder.check(question, signed, signed.stage_of(question))


def answered(holder, job, most=10_000, number=1, learned=None):
    """Return the records that a holder draws for a round of a job."""
    return holder.draw(checked(holder, job, number, learned), most)


def in_round(question, number):
    """Return a question as that of another round."""
    asked = dataclasses.replace(question.asked, round=str(number), digest=bytes([number]) * 32)
    return dataclasses.replace(
        question, asked=asked, question=dataclasses.replace(question.question, round=number)
    )
