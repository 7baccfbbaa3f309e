"""Jobs that an operator has signed, and vaults that hold the operator's public key."""

import datetime
from dataclasses import replace

from vaults import GRADIENT, MODEL, ROWS, vault

from fedldp.fleet.job import Job
from fedldp.fleet.signed_jobs import SignedJob
from fedldp.learn.optimizer import Adam, Recipe
from fedldp.signing import PrivateKey, sign

KEY, OTHER = PrivateKey.generate(), PrivateKey.generate()
NOW = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
DAY = datetime.timedelta(days=1)


def job(folder, **options):
    """Return a training of three rounds that asks three vehicles in each."""
    known = {"model": MODEL, "recipe": Recipe(Adam(0.1)), "rounds": 3, "reports": 3}
    known |= {"name": "spring", "plan": GRADIENT, "checkpoint": "job.db", "result": "out.json"}
    known |= options
    for name in ("checkpoint", "result"):
        known[name] = folder / known[name]
    return Job(**known)


def statistic(folder, **options):
    return job(folder, **{"model": None, "recipe": None, "rounds": 1, "plan": ROWS} | options)


def surveyed(folder, **options):
    known = {"survey": "scale", "survey_reports": 4, "rounds": 4}
    return job(folder, **known | options)


def signed(one, key=KEY, expires=NOW + DAY):
    """Return a job with its operator's signature."""
    return replace(one, signed=sign(key, SignedJob.of(one, expires).to_document()))


def pinned_vault(path, cap=100.0, answers_per_job=100):
    """Return a vault that holds the operator's public key, and may answer often."""
    found = vault(path, cap=cap, answers_per_job=answers_per_job)
    found._operator = KEY.public
    return found
