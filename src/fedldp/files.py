"""Files that are written whole or not at all."""

import os
import secrets
from pathlib import Path


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a text to a file: it is the old one or the new one, even after a power cut."""
    path = Path(path)
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        with fresh.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
