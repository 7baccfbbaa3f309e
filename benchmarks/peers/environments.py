"""Each library in an environment of its own, and a process in it that runs its tasks."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / ".venv-peers"
PATIENCE = 900.0  # seconds for one answer


class PeerFailed(Exception):
    """A library that does not install, or not run: its last words."""


@dataclass(frozen=True)
class Peer:
    """A library: its module here, what to install, and what it cannot do or does differently."""

    name: str
    requirements: tuple[str, ...]  # none: it is in our own environment
    remarks: tuple[str, ...]

    @property
    def module(self) -> str:
        return f"with_{self.name.replace('-', '_')}"

    def python(self) -> str:
        """Return the interpreter that has the library, after installing it if need be."""
        if not self.requirements:
            return sys.executable
        home = FOLDER / self.name
        python, done = home / "bin" / "python", home / "installed.txt"
        wanted = "\n".join(self.requirements)
        if not done.exists() or done.read_text("utf-8") != wanted:
            _run(sys.executable, "-m", "venv", "--clear", str(home))
            _run(str(python), "-m", "pip", "install", "--quiet", *self.requirements)
            done.write_text(wanted, "utf-8")
        return str(python)


def _run(*command: str) -> None:
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise PeerFailed(last_words(found.stderr.splitlines()))


def last_words(lines: Iterator[str] | list[str]) -> str:
    """Return the last line that says something, which in Python names the error."""
    said = deque((line.strip() for line in lines if line.strip()), maxlen=1)
    return said[0] if said else "it said nothing"


class Worker:
    """A library's process: what it can do, and the way to ask for it."""

    def __init__(self, process: subprocess.Popen[str], errors: Any) -> None:
        self._process, self._errors = process, errors
        hello = self._answer()
        self.clock: Callable[[], float] = getattr(time, hello["clock"])
        self.versions: dict[str, str] = hello["versions"]
        self.tasks: dict[str, int] = hello["tasks"]  # name: vehicles

    def ask(self, task: str) -> tuple[float, Any]:
        """Return how long a task took, in seconds, and what came out."""
        print(task, file=self._process.stdin, flush=True)
        answer = self._answer()
        return answer["seconds"], answer["result"]

    def _answer(self) -> dict[str, Any]:
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if line:
            return json.loads(line)
        if not ready:
            raise PeerFailed(f"no answer in {PATIENCE:g} seconds")
        self._process.wait()
        self._errors.seek(0)
        raise PeerFailed(last_words(self._errors))


@contextmanager
def working(peer: Peer, data: Path) -> Iterator[Worker]:
    """Start a library's process, and end it."""
    command = [peer.python(), str(HERE / "worker.py"), peer.module, str(data)]
    one_core = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryFile("w+", errors="replace") as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=one_core,
        ) as process,
    ):
        try:
            yield Worker(process, errors)
        finally:
            process.stdin.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
