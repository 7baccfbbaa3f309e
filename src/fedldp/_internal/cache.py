"""A cache for texts that take long to compute, in the user's cache directory.

Nothing depends on the cache: what is read from it is validated like anything from outside, and a
directory that cannot be read or written is ignored.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from fedldp.storage import files


def directory() -> Path:
    """Return where texts are kept: $FEDLDP_CACHE, or the usual place for caches."""
    if own := os.environ.get("FEDLDP_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedldp"


def load(key: str) -> str | None:
    """Return the text kept under a key, or None."""
    try:
        return _path(key).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, RuntimeError):
        return None


def save(key: str, text: str) -> None:
    """Store a text under a key, atomically."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, text)


def _path(key: str) -> Path:
    return directory() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
