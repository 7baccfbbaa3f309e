"""The server's store in PostgreSQL, which any number of server processes share.

Transactions take one lock, so that they run one after another, as in SQLite: whoever holds it may
close a round. If a process dies, PostgreSQL rolls its transaction back and gives the lock to
another one. If PostgreSQL dies, whatever was not acknowledged is repeated by agents.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, final

from fedldp.errors import DomainError, MissingExtra
from fedldp_fleet.store.base import Transaction
from fedldp_fleet.store.statements import Key, Statements, TableText

try:
    import psycopg
except ImportError:
    raise MissingExtra("psycopg", "postgresql", "fedldp-fleet") from None

FORMAT = "1"
SCHEMA = "fedldp"
SERVER, COMMAND = "fedldp server", "fedldp"  # as PostgreSQL lists their connections

LOCK_TIMEOUT_SECONDS = 60
CONNECT_TIMEOUT_SECONDS = 10

_LOCK_NUMBER = int.from_bytes(b"fedldp")
_LOCK = f"SELECT pg_advisory_xact_lock({_LOCK_NUMBER})"
_WRITE, _READ = ("BEGIN READ WRITE", _LOCK), ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)

# A process that stops in a transaction, or a machine that is cut off, gives the lock back.
_OPTIONS = {
    "search_path": SCHEMA,
    "client_encoding": "UTF8",
    "default_transaction_isolation": "read committed",
    "lock_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
    "idle_in_transaction_session_timeout": f"{LOCK_TIMEOUT_SECONDS}s",
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}

_TYPES = {
    "str": "text",
    "bytes": "bytea",
    "int": "bigint",
    "bool": "boolean",
    "float": "double precision",
    "float | None": "double precision",
}

# Names are compared byte by byte, as SQLite does.
_TABLES = """
    CREATE SCHEMA fedldp;
    CREATE TABLE store_format (format TEXT NOT NULL);
    INSERT INTO store_format VALUES ('1');
    CREATE TABLE settings (name TEXT COLLATE "C" PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE jobs (
        position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name TEXT COLLATE "C" NOT NULL UNIQUE,
        document TEXT NOT NULL,
        signed TEXT NOT NULL,
        state TEXT NOT NULL,
        round BIGINT NOT NULL,
        learned TEXT NOT NULL,
        reason TEXT NOT NULL,
        result TEXT NOT NULL,
        restored BOOLEAN NOT NULL
    );
    CREATE TABLE rounds (
        job TEXT COLLATE "C" NOT NULL,
        number BIGINT NOT NULL,
        digest BYTEA NOT NULL,
        statement TEXT NOT NULL,
        wanted BIGINT NOT NULL,
        opened DOUBLE PRECISION NOT NULL,
        deadline DOUBLE PRECISION NOT NULL,
        answers BIGINT NOT NULL,
        placed BIGINT NOT NULL,
        closed DOUBLE PRECISION,
        PRIMARY KEY (job, number)
    ) WITH (fillfactor = 50);
    CREATE TABLE questions (digest BYTEA PRIMARY KEY, question BYTEA NOT NULL);
    CREATE TABLE places (
        job TEXT COLLATE "C" NOT NULL,
        agent TEXT COLLATE "C" NOT NULL,
        round BIGINT NOT NULL,
        vehicles BIGINT NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        announced BOOLEAN NOT NULL,
        PRIMARY KEY (job, agent)
    );
    CREATE INDEX places_by_time ON places (job, expires);
    CREATE TABLE answers (
        job TEXT COLLATE "C" NOT NULL,
        round BIGINT NOT NULL,
        identifier BYTEA NOT NULL,
        vehicles BIGINT NOT NULL,
        report BYTEA NOT NULL,
        PRIMARY KEY (job, round, identifier)
    );
    CREATE TABLE used (
        job TEXT COLLATE "C" NOT NULL,
        agent TEXT COLLATE "C" NOT NULL,
        vehicles BIGINT NOT NULL,
        excess BIGINT NOT NULL,
        PRIMARY KEY (job, agent)
    );
    CREATE TABLE uncounted (
        job TEXT COLLATE "C" NOT NULL,
        round BIGINT NOT NULL,
        reason TEXT COLLATE "C" NOT NULL,
        vehicles BIGINT NOT NULL,
        PRIMARY KEY (job, round, reason)
    );
    CREATE TABLE members (
        agent TEXT COLLATE "C" PRIMARY KEY,
        vehicles BIGINT NOT NULL,
        secret BYTEA NOT NULL,
        next_secret BYTEA NOT NULL,
        code BYTEA NOT NULL,
        revoked BOOLEAN NOT NULL,
        change BIGINT NOT NULL
    );
    CREATE INDEX members_by_change ON members (change);
    CREATE TABLE tokens (
        name TEXT COLLATE "C" PRIMARY KEY,
        role TEXT NOT NULL,
        secret_hash BYTEA NOT NULL,
        revoked BOOLEAN NOT NULL
    );
    CREATE TABLE audit (number BIGINT PRIMARY KEY, entry TEXT NOT NULL, head BYTEA NOT NULL);
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN RAISE EXCEPTION ''the audit log can only grow''; END';
    CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE ON audit
        FOR EACH ROW EXECUTE FUNCTION refuse();
    CREATE TRIGGER audit_is_not_cut BEFORE TRUNCATE ON audit EXECUTE FUNCTION refuse();
    CREATE TABLE heard (agent TEXT COLLATE "C" PRIMARY KEY, time DOUBLE PRECISION NOT NULL);
"""

# It differs after a restored dump, and after another machine has taken over.
_ORIGIN = """
    SELECT system_identifier || ' ' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)
        || ' ' || (SELECT oid FROM pg_database WHERE datname = current_database())
        || ' ' || 'settings'::regclass::oid
    FROM pg_control_system()
"""


@final
class Session:
    """A connection to PostgreSQL."""

    def __init__(self, url: str, role: str) -> None:
        self._connection = psycopg.connect(
            url,
            autocommit=True,
            application_name=role,
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
        )
        self._cursor = self._connection.cursor(binary=True)
        try:
            for name, value in _OPTIONS.items():
                self.execute("SELECT set_config(?, ?, FALSE)", (name, value))
            self._insist_on_durability()
        except BaseException:
            self.close()
            raise

    def _insist_on_durability(self) -> None:
        for name in ("fsync", "full_page_writes"):
            if self.execute("SELECT current_setting(?)", (name,)) != [("on",)]:
                raise DomainError(
                    f"PostgreSQL runs with {name} = off, and would forget acknowledged answers in "
                    "a crash. Turn it on in postgresql.conf."
                )
        if self.execute("SELECT current_setting('synchronous_commit')") == [("off",)]:
            self.execute("SELECT set_config('synchronous_commit', 'on', FALSE)")

    def execute(self, statement: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Return the rows of a statement."""
        cursor = self._cursor.execute(_marked(statement), values or None)
        return cursor.fetchall() if cursor.description else []

    def execute_script(self, statements: str) -> None:
        """Execute several statements without values."""
        self._connection.execute(statements)

    def put(self, text: TableText, rows: Sequence[Key]) -> None:
        """Add or replace rows of a table, in one statement."""
        listed, unnest = ", ".join(text.columns), f"unnest({_arrays(text.types)})"
        self.execute(
            f"INSERT INTO {text.name} ({listed}) SELECT * FROM {unnest} "  # noqa: S608 (our names)
            f"{text.on_conflict}",
            tuple(map(list, zip(*rows, strict=True))),
        )

    def remove(self, text: TableText, keys: Sequence[Key]) -> None:
        """Remove the rows with these keys from a table, in one statement."""
        unnest = f"unnest({_arrays(text.types[: text.keys])})"
        self.execute(
            f"DELETE FROM {text.name} WHERE ({', '.join(text.columns[: text.keys])}) "  # noqa: S608
            f"IN (SELECT * FROM {unnest})",
            tuple(map(list, zip(*keys, strict=True))),
        )

    def begin(self, statements: Iterable[str]) -> None:
        """Begin a transaction."""
        for statement in statements:
            self.execute(statement)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


@final
class PostgreSQLStore:
    """A store in a database, in a schema of its own.

    Parameters
    ----------
    url
        Where the database is: postgresql://user@host/database.
    create
        Whether a missing store is created.

    Raises
    ------
    DomainError
        If there is no store and none is to be created, or PostgreSQL does not keep what it commits.
    OSError
        If PostgreSQL cannot be reached.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        self.url, self._role = url, COMMAND
        self._idle: list[Session] = []
        with self._session(_WRITE) as session:
            exists = session.execute("SELECT to_regclass('settings') IS NOT NULL") == [(True,)]
            if not exists and not create:
                raise DomainError(
                    f"the database has no schema {SCHEMA!r}. Restore the last backup: "
                    "fedldp server restore"
                )
            if not exists:
                session.execute_script(_TABLES)
            [(version,)] = session.execute("SELECT format FROM store_format")
            if version != FORMAT:
                raise DomainError(
                    f"the database has a store of format {version!r:.20}, and this version of "
                    f"fedldp reads format {FORMAT}. A newer version has written it: use that one."
                )

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run a transaction, after those of all other processes."""
        with self._session(_WRITE) as session:
            statements = Statements(session, _ORIGIN)
            yield statements
            statements.flush()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """Read one state of everything, without waiting for transactions."""
        with self._session(_READ) as session:
            yield Statements(session, _ORIGIN)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve this store, beside other processes."""
        self._role = SERVER
        self._close_idle()
        yield

    def is_served(self) -> bool:
        """Return whether a process serves this store."""
        with self._session(_READ) as session:
            query = (
                "SELECT EXISTS (SELECT FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = ?)"
            )
            [(found,)] = session.execute(query, (SERVER,))
            return bool(found)

    def close(self) -> None:
        """Close all connections. Closing them again does nothing."""
        self._close_idle()

    @contextmanager
    def _session(self, begin: tuple[str, ...]) -> Iterator[Session]:
        """Run a block in a transaction of its own connection."""
        try:
            session = self._begun(begin)
            with _closed_if_it_fails(session):  # PostgreSQL rolls back then
                yield session
                session.execute("COMMIT")
            self._idle.append(session)
        except psycopg.Error as error:
            raise _failed(error) from error

    def _begun(self, begin: tuple[str, ...]) -> Session:
        """Begin a transaction; connections that were cut are replaced."""
        while self._idle:
            with suppress(IndexError, psycopg.Error):
                session = self._idle.pop()
                with _closed_if_it_fails(session):
                    session.begin(begin)
                return session
        session = Session(self.url, self._role)
        with _closed_if_it_fails(session):
            session.begin(begin)
        return session

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


@contextmanager
def _closed_if_it_fails(session: Session) -> Iterator[None]:
    try:
        yield
    except BaseException:
        session.close()
        raise


def _failed(error: psycopg.Error) -> OSError:
    busy = isinstance(error, psycopg.errors.LockNotAvailable)
    which = TimeoutError if busy else OSError
    return which(f"PostgreSQL failed: {error}. Whatever was not acknowledged is repeated.")


def _arrays(types: Iterable[str]) -> str:
    return ", ".join(f"%b::{_TYPES[each]}[]" for each in types)  # in their binary form


@lru_cache(maxsize=256)
def _marked(statement: str) -> str:
    return statement.replace("?", "%s")
