"""Why a vault refuses: its log says it once for each job and reason, whatever the data are."""

import logging

import numpy as np
import pytest
from vaults import DEAR, MATRIX, answer, asked, listening, vault

from fedldp.fleet.protocol import Answer
from fedldp.fleet.vault import listener
from fedldp.fleet.vault.listener import Once


@pytest.fixture(autouse=True)
def everything(caplog):
    caplog.set_level(logging.DEBUG, logger="fedldp.fleet")


def said(caplog, *levels):
    return [each.getMessage() for each in caplog.records if each.levelname in levels]


def ask(tmp_path, questions, matrix=MATRIX, name="v"):
    """Put some questions to a vault; return its answers."""
    with listening(vault(tmp_path / name, matrix), tmp_path / f"{name}.sock") as address:
        return [answer(address, question) for question in questions]


def test_a_vault_that_is_used_up_says_so_once(tmp_path, caplog):
    """Eight vehicles, asked for in twenty rounds: from the second round on nobody is left."""
    questions = [asked(8, number=number) for number in range(1, 21)]
    found = ask(tmp_path, questions)
    [line] = said(caplog, "WARNING")
    assert line == (
        "spring/2: of 8 vehicles that were asked for, 0 answered. This vault has no others that "
        "may answer: of its 8 vehicles, 8 have answered this job before."
    )
    later = said(caplog, "DEBUG")
    assert later[0].startswith("spring/3: of 8 vehicles")
    assert later[0].endswith("before. (2 times so far)")
    assert len(later) == 18
    assert later[-1].endswith("(19 times so far)")
    # On the wire, nothing tells the first refusal from the others.
    refused = zip(questions[1:], found[1:], strict=True)
    assert all(batch == Answer.of(question) for question, batch in refused)


def test_other_numbers_are_said_again(tmp_path, caplog):
    ask(tmp_path, [asked(n, number=i) for i, n in enumerate((5, 5, 5, 5, 6, 6), 1)])
    assert [line[: line.index(" This vault")] for line in said(caplog, "WARNING")] == [
        "spring/2: of 5 vehicles that were asked for, 3 answered.",
        "spring/3: of 5 vehicles that were asked for, 0 answered.",
        "spring/5: of 6 vehicles that were asked for, 0 answered.",
    ]


def test_each_job_and_each_reason_is_said(tmp_path, caplog):
    dear = [asked(plan=DEAR[asked], job=job, number=i) for job in "ab" for i in range(1, 4)]
    other = [asked(n, job="c") for n in (1, 2, 2)]  # another question in the same round
    ask(tmp_path, [*dear, *other])
    lines = said(caplog, "WARNING")
    assert [line.split(": ")[1] for line in lines] == ["a/1", "b/1", "c/1"]
    assert "another question was asked under this request" in lines[2]
    assert len(said(caplog, "DEBUG")) == 5


def test_the_lines_are_the_same_for_all_data(tmp_path, caplog):
    questions = [asked(5, number=number) for number in range(1, 9)]
    questions += [asked(plan=DEAR[asked], job="dear", number=number) for number in range(1, 4)]
    found = []
    for name, matrix in (("a", MATRIX), ("b", np.full_like(MATRIX, np.nan)), ("c", MATRIX[::-1])):
        caplog.clear()
        ask(tmp_path, questions, matrix, name)
        found.append([(each.levelname, each.getMessage()) for each in caplog.records])
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == len(questions)


def test_strangers_cannot_fill_the_disk(caplog):
    once = Once(3)
    for number in range(10):
        for _ in range(2):
            once(f"reason {number}")
    assert said(caplog, "WARNING") == [
        *(f"reason {number}" for number in range(3)),
        "there are too many reasons to log: no more are logged today.",
    ]
    assert said(caplog, "DEBUG") == [f"reason {number} (2 times so far)" for number in range(3)]


def test_it_is_said_again_on_another_day(caplog, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(listener.time, "monotonic", lambda: now[0])
    once = Once(3)
    for now[0] in (0.0, 1.0, 100_000.0):
        once(f"seen at {now[0]:g}", same="seen")
    assert said(caplog, "WARNING") == ["seen at 0", "seen at 100000"]
