"""Trainings that are killed and continued."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trips import HMTP, LATE, document, invoke, prepare, refused, run, saved

from fedldp import _plots as plots
from fedldp.cli import runs


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare()


KILLED = """
import os, signal, sys
from fedldp.cli import runs
from fedldp.cli.train import train_command
from fedldp.learn.training import Training

class Killed:
    saves = 0

def save(training, path, original=Training.save):
    original(training, path)
    Killed.saves += 1
    if Killed.saves == 5:
        os.kill(os.getpid(), signal.SIGKILL)

runs.SAVE_EVERY = 0.0
Training.save = save
train_command(sys.argv[1:])
"""


@pytest.mark.parametrize("mechanism", ["hm-tp", "none"])
def test_killed_and_continued(mechanism):
    """What was killed amid its rounds comes to the very model that it would have come to."""
    options = *LATE[1:], "--mechanism", mechanism, "--epsilon", 4, "--group", 60
    options = [str(option) for option in (*options, "--participations", 2)]
    run("train", *options, "--save", "whole.json")
    going = [*options, "--checkpoint", "stand.json", "--save", "model.json"]
    killed = subprocess.run([sys.executable, "-c", KILLED, *going], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert not Path("model.json").exists()
    assert json.loads(Path("stand.json").read_text())["state"]["round"] == 5
    assert document("train", *going)["rounds"] == 46
    assert saved() == saved("whole.json")
    assert json.loads(Path("stand.json").read_text())["state"]["round"] == 46


def test_nothing_is_left_to_do(monkeypatch):
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, _: drawn.append(figure))
    going = *LATE, *HMTP, "--epsilon", 4, "--checkpoint", "stand.json"
    first = document(*going, "--save", "first.json")
    again = document(*going, "--save", "again.json", "--plot", "rounds.png")
    assert saved("again.json") == saved("first.json")
    assert again | {"seconds": 0} == first | {"seconds": 0}
    [figure] = drawn
    line = figure.axes[0].lines[1]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([again["rounds"]], [again["error"]])


def test_interrupted(monkeypatch):
    """Whatever ends it, the last round that was done is kept."""
    original, rounds = runs._state, []

    def state(progress, points):
        rounds.append(progress.number)
        if len(rounds) == 3:
            raise KeyboardInterrupt
        return original(progress, points)

    going = *LATE, *HMTP, "--epsilon", 4, "--checkpoint", "stand.json", "--save", "model.json"
    with monkeypatch.context() as patch:
        patch.setattr(runs, "_state", state)
        assert invoke(*going).exit_code == 1
    assert json.loads(Path("stand.json").read_text())["state"]["round"] == 3
    run(*going)
    run(*LATE, *HMTP, "--epsilon", 4, "--save", "whole.json")
    assert saved() == saved("whole.json")


@pytest.mark.parametrize("text", ["", "{}", "[" * 10**5, '{"format":"fedldp training 1"}'])
def test_no_checkpoint(text):
    Path("stand.json").write_text(text)
    error = refused(*LATE, *HMTP, "--epsilon", 4, "--checkpoint", "stand.json")
    assert error.startswith("stand.json: not a 'fedldp training 1' of this training")
    assert Path("stand.json").read_text() == text


def test_the_checkpoint_of_another_training():
    run(*LATE, *HMTP, "--epsilon", 4, "--checkpoint", "stand.json")
    error = refused(*LATE, *HMTP, "--epsilon", 2, "--checkpoint", "stand.json")
    assert "it was made with other settings" in error


def test_the_checkpoint_of_other_data_or_another_seed():
    """Of the same size, with the same settings: the model would be that of the others."""
    going = *LATE, *HMTP, "--epsilon", 4, "--checkpoint", "stand.json"
    assert "Resuming from stand.json, after round" not in run(*going).stderr
    assert "Resuming from stand.json, after round" in run(*going).stderr
    assert "it was made with other settings" in refused(*going, "--seed", 2)
    for path in Path().glob("*.csv"):
        text = path.read_text()
        path.write_text(text.replace("yes", "maybe").replace("no", "yes").replace("maybe", "no"))
        assert path.read_text() != text
    assert "it was made with other settings" in refused(*going)
