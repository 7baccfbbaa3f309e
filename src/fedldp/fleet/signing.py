"""The operator's side of signed jobs: sign the job in a folder, offline."""

import datetime
from pathlib import Path

from fedldp import signing as signatures
from fedldp._internal import toml
from fedldp.errors import DomainError
from fedldp.fleet.job import SIGN, Job
from fedldp.fleet.signed_jobs import SignedJob
from fedldp.signing import PrivateKey, PublicKeys
from fedldp.storage import files

EXPIRES = 90  # days
SOON = datetime.timedelta(days=7)  # before a signature expires
OPERATOR = "operator.pub"  # the file with the operator's public key

ENDING = ".signed.json"  # of the name of a signed text

_ENTRY = "signed"  # of job.toml


def expiry(job: Job) -> datetime.datetime | None:
    """Return until when vaults answer a job; None if it is not signed."""
    return SignedJob.unverified(job.signed).expires if job.signed else None


def expires_soon(job: Job) -> str:
    """Return a warning if vaults will answer a job for less than a week, or not any more."""
    expires = expiry(job)
    if expires is None or _now() + SOON <= expires:
        return ""
    verb = "expires" if _now() < expires else "has expired"
    return (
        f"the operator's signature of the job {verb} on {expires:%Y-%m-%d}, and vaults answer no "
        f"longer. Sign it again, where the operator's key is: {SIGN}"
    )


def check_time(job: Job) -> None:
    """Raise `DomainError` if a job was signed for a time that is over: vaults would not answer."""
    expires = expiry(job)
    if expires is not None and _now() >= expires:
        raise DomainError(
            f"the operator's signature of the job {job.name!r} has expired at "
            f"{signatures.format_time(expires)}, so vaults would not answer it. Sign it again, "
            f"where the operator's key is: {SIGN}"
        )


def is_pending(path: Path) -> bool:
    """Return whether the file of a job names a signed text that is still missing."""
    name = toml.parse(path.read_text("utf-8"), str(path)).get(_ENTRY)
    return name is not None and not (path.parent / name).exists()


def sign(path: Path, key: PrivateKey, days: float = EXPIRES) -> SignedJob:
    """Sign the job in a TOML file, for some days from now, and write the text next to it.

    If the file names neither the signed text nor the operator's public key, it gets entries that
    do, and the public key is written too. Raise `DomainError` if it names the public key of another
    operator, whose signature vaults expect.
    """
    path = path.resolve()
    job = Job.load(path, signed=False)
    expires = _now() + datetime.timedelta(days=days)
    found = SignedJob.of(job, expires)
    text = path.read_text("utf-8")
    known = toml.parse(text, str(path))
    new = {_ENTRY: f"{path.stem}{ENDING}", "operator": OPERATOR}
    missing = {name: value for name, value in new.items() if name not in known}
    if "operator" in missing:
        key.public.save(path.parent / OPERATOR)
    elif key.public not in PublicKeys.load(public := path.parent / known["operator"]).keys:
        raise DomainError(
            f"{public} is the public key of another operator, whose signature vaults expect. Sign "
            "with that operator's key. To change it: fedldp fleet rotate-keys FLEET --operator"
        )
    files.write(path.parent / (new | known)[_ENTRY], signatures.sign(key, found.to_document()))
    if missing:
        files.write(path, f"{toml.write(missing)}{text}")
    Job.load(path)  # raises if the server would not accept it
    return found


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
