"""The operator's side of signed jobs: sign the job in a folder, offline."""

import datetime
from pathlib import Path

from fedldp._internal import files, signatures, toml
from fedldp._internal.signatures import PrivateKey
from fedldp.fleet.job import Job
from fedldp.fleet.signed_jobs import SignedJob

EXPIRES = 90  # days

_ENTRY = "signed"  # of job.toml


def sign(path: Path, key: PrivateKey, days: float = EXPIRES) -> SignedJob:
    """Sign the job in a TOML file, for some days from now, and write the text next to it.

    If the file does not name the signed text yet, it gets an entry that does.
    """
    path = path.resolve()
    job = Job.load(path, signed=False)
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    found = SignedJob.of(job, expires)
    text = path.read_text("utf-8")
    name = toml.parse(text, str(path)).get(_ENTRY)
    if name is None:
        name = f"{path.stem}.signed.json"
        files.write(path, f"{toml.write({_ENTRY: name})}{text}")
    files.write(path.parent / name, signatures.sign(key, found.to_document()))
    Job.load(path)  # raises if the server would not accept it
    return found
