"""Servers in one process that are killed when they write to their checkpoint."""

from fedldp.storage.database import Database


class Killed(BaseException):
    pass


def die(*_):
    raise Killed


def fast(monkeypatch):
    """Let SQLite not wait for the disk: here a process is killed, and no power is cut."""
    execute = Database.execute

    def quick(self, statement, values=()):
        return execute(self, statement.replace("synchronous = FULL", "synchronous = OFF"), values)

    monkeypatch.setattr(Database, "execute", quick)


def kill_at(monkeypatch, place, after):
    """Kill the server before or after the COMMIT of that number; return whether it came to it."""
    execute, seen = Database.execute, []

    def watched(self, statement, values=()):
        if statement != "COMMIT":
            return execute(self, statement, values)
        seen.append(statement)
        if len(seen) == place and not after:
            raise Killed
        found = execute(self, statement, values)
        if len(seen) == place:
            raise Killed
        return found

    monkeypatch.setattr(Database, "execute", watched)
    return lambda: len(seen) >= place
