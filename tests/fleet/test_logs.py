"""The logs: one event is one line, for people or for programs, whatever is in it."""

import json
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from fedldp.errors import DomainError
from fedldp.fleet import logs, state

LOG = logging.getLogger("fedldp.fleet.test")
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def events():
    LOG.debug("too small")
    LOG.info("Round %d of %d is done.", 3, 10, extra={"job": "spring", "round": 3})
    LOG.warning("gateway-1:\r\nall is well\x1b[2J\u2028really", extra={"gateway": "gateway-1"})
    try:
        raise ValueError("48")
    except ValueError:
        LOG.exception("It failed")


def test_text_is_one_line_for_each_event(capsys):
    with logs.to_stderr("text"):
        events()
    lines = capsys.readouterr().err.splitlines()
    assert [line[20:] for line in lines] == [
        "INFO    Round 3 of 10 is done.",
        "WARNING gateway-1: all is well?[2J really",
        "ERROR   It failed: ValueError: 48",
    ]
    for line in lines:
        datetime.fromisoformat(line[:19])


def test_json_is_one_object_for_each_event(capsys):
    with logs.to_stderr("json", "debug"):
        events()
    found = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["level"] for each in found] == ["DEBUG", "INFO", "WARNING", "ERROR"]
    assert found[1] | {"time": ""} == {
        "time": "",
        "level": "INFO",
        "event": "Round 3 of 10 is done.",
        "job": "spring",
        "round": 3,
    }
    assert found[2]["gateway"] == "gateway-1"
    assert all(datetime.fromisoformat(each["time"]).utcoffset().seconds == 0 for each in found)


def test_everything_is_as_before_afterwards(tmp_path, capsys):
    logger = logging.getLogger("fedldp.fleet")
    before = logger.handlers[:], logger.level, dict(os.environ)
    with logs.to_stderr("json", "error"), logs.to_file(tmp_path / "new" / "a.log"):
        LOG.error("both")
    LOG.error("neither")
    assert (logger.handlers, logger.level, dict(os.environ)) == before
    assert "neither" not in (tmp_path / "new" / "a.log").read_text()
    assert capsys.readouterr().err.count("\n") == 1


def test_processes_that_are_started_log_in_the_same_way():
    program = (
        "import logging; from fedldp.fleet import logs\n"
        "with logs.to_stderr(): logging.getLogger('fedldp.fleet.x').debug('a child')"
    )
    with logs.to_stderr("json", "debug"):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert json.loads(done.stderr)["event"] == "a child"


@pytest.mark.parametrize("variable", [logs.FORMAT, logs.LEVEL])
def test_an_unknown_setting_is_refused(variable, monkeypatch):
    monkeypatch.setenv(variable, "xml")
    with pytest.raises(DomainError, match=f"{variable} must be one of .*; got 'xml'"):  # noqa: SIM117
        with logs.to_stderr():
            pass


@pytest.mark.parametrize("form", logs.FORMATS)
def test_the_last_lines_of_a_log_are_read_again(form, tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    monkeypatch.setenv(logs.FORMAT, form)
    with logs.to_file(path):
        for number in range(3):
            LOG.handle(logging.makeLogRecord(record("WARNING", f"the {number}th warning")))
            LOG.handle(logging.makeLogRecord(record("INFO", "nothing happens")))
        LOG.handle(logging.makeLogRecord(record("ERROR", "it is over")))
    with path.open("a") as file:
        file.write('what another program prints\n{"a": 1}\n{"half a line')
    time = datetime.fromtimestamp(NOON, UTC).isoformat(timespec="seconds")
    found = [
        line._replace(time=datetime.fromisoformat(line.time).isoformat(timespec="seconds"))
        for line in logs.last(path, 2)
    ]
    assert found == [(time, "WARNING", "the 2th warning"), (time, "ERROR", "it is over")]
    assert len(logs.last(path, 100)) == 4
    assert len(logs.last(path, 100, logging.INFO)) == 7


def record(level, text):
    number = logging.getLevelNamesMapping()[level]
    return {"name": "x", "levelname": level, "levelno": number, "msg": text, "created": NOON}


def test_the_log_of_version_01_is_read_too(tmp_path):
    path = tmp_path / "a.log"
    path.write_text("2026-11-16 12:00:00,123 WARNING spring, gateway 7: late\n")
    [line] = logs.last(path)
    assert (line.level, line.text) == ("WARNING", "spring, gateway 7: late")


def test_a_log_that_does_not_exist_has_no_lines(tmp_path):
    assert logs.last(tmp_path / "a.log") == []


def test_only_the_end_of_a_long_log_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "_END", 200)
    path = tmp_path / "a.log"
    with logs.to_file(path):
        for number in range(100):
            LOG.error("error %d", number)
    found = logs.last(path, 1000)
    assert 0 < len(found) < 10
    assert found[-1].text == "error 99"


def test_a_large_log_is_set_aside(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "LARGEST", 10)
    path = tmp_path / "a.log"
    with logs.to_file(path):
        LOG.error("first")
        assert not path.exists()
        LOG.error("second")
        LOG.error("third")
    assert path.with_suffix(".old").read_text().endswith("third\n")  # each is too large by itself
    path.write_text("too large, of an earlier start\n")
    with logs.to_file(path):
        assert path.with_suffix(".old").read_text().startswith("too large")


@pytest.mark.parametrize(
    "line",
    [
        '{"time": "soon", "level": "ERROR", "event": "no time"}',
        '{"time": "0001-01-01T00:00:00+23:00", "level": "ERROR", "event": "before all times"}',
        '{"time": ' + '{"a": ' * 10_000,
        "0000-00-00 00:00:00 ERROR no time",
    ],
)
def test_a_line_that_somebody_has_invented_is_skipped(line, tmp_path):
    (tmp_path / "a.log").write_text(line)
    assert logs.last(tmp_path / "a.log") == []


@pytest.mark.parametrize(
    "line",
    [
        '{"time": "2026-11-16T12:00:00+00:00", "level": "ERROR", "event": "all\\u001b[2J is well"}',
        "2026-11-16 12:00:00 ERROR   all\x1b[2J is well",
    ],
)
def test_a_line_of_a_log_does_nothing_to_a_terminal(line, tmp_path):
    (tmp_path / "a.log").write_text(line)
    assert [found.text for found in logs.last(tmp_path / "a.log")] == ["all?[2J is well"]


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path):
    """A part may run code of others, and whoever looks at its status may be another user."""
    os.mkfifo(tmp_path / "a.log")
    for read in (logs.last, lambda path: state.noted(path, "a format", dict, {})):
        with pytest.raises(OSError, match="not a plain file"):
            read(tmp_path / "a.log")
