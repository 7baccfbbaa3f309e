"""A real PostgreSQL in a folder of its own, which tests may kill. It never runs as root."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from processes import started

HOST, SUPERUSER, ACCOUNT = "127.0.0.1", "fedldp", "postgres"
PATIENCE, MEMORY = 60.0, Path("/dev/shm")
INSTALL = "apt-get install postgresql"

_SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 50
shared_buffers = 64MB
logging_collector = off
"""


def programs() -> Path | None:
    """Return the folder with the programs of the newest PostgreSQL."""
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    return found[-1].parent if found else None


class PostgreSQLServer:
    """A cluster of databases in a folder, and the processes that serve it."""

    def __init__(self, port: int, folder: Path | None = None) -> None:
        found = programs()
        if found is None:
            raise RuntimeError(f"these tests need PostgreSQL: {INSTALL}")
        self._programs, self.port, self.process = found, port, None
        parent = MEMORY if MEMORY.is_dir() else None  # where it is on disk at once
        self.folder = folder or Path(tempfile.mkdtemp(prefix="fedldp-postgresql-", dir=parent))
        self._account = []
        if os.geteuid() == 0:
            account = pwd.getpwnam(ACCOUNT)
            self._account = ["setpriv", f"--reuid={ACCOUNT}", "--clear-groups"]
            self._account += [f"--regid={account.pw_gid}"]
            shutil.chown(self.folder, ACCOUNT)
        self.data = self.folder / "data"
        self._run("initdb", "-D", self.data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{_SETTINGS}port = {port}\nunix_socket_directories = '{self.folder}'\n")

    def _command(self, program, *words):
        return [*self._account, str(self._programs / program), *map(str, words)]

    def _run(self, program, *words, **options):
        done = subprocess.run(
            self._command(program, *words), capture_output=True, cwd="/", **options
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    def url(self, database: str) -> str:
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/{database}"

    def start(self):
        self.process = started(
            self._command("postgres", "-D", self.data),
            self.folder / "log",
            b"database system is ready to accept connections",
            cwd="/",
        )
        return self

    def kill(self):
        """Kill all its processes, as a power cut does it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        for each in [self.process.pid, *map(int, children.read_text().split())]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast: it waits for no connection
            self.process.wait(PATIENCE)
        shutil.rmtree(self.folder, ignore_errors=True)

    def make_database(self, name: str) -> str:
        """Make an empty database, and return its address."""
        self.execute("postgres", f'CREATE DATABASE "{name}"')
        return self.url(name)

    def execute(self, database: str, statement: str) -> str:
        """Return what psql prints for a statement."""
        words = ("-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement)
        return self._run("psql", *words, self.url(database)).decode().strip()

    def dump(self, database: str) -> bytes:
        """Return all that a database holds, as pg_dump writes it."""
        return self._run("pg_dump", self.url(database))

    def load(self, database: str, dump: bytes) -> None:
        """Write what pg_dump returned into a database."""
        words = ("-X", "-q", "-v", "ON_ERROR_STOP=1")
        self._run("psql", *words, self.url(database), input=dump)
