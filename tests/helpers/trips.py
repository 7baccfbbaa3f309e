"""Trips of cars in a file, and the commands that train on it and predict."""

import csv
import json
from pathlib import Path

from click.testing import CliRunner

import fedldp
from fedldp.cli.predict import predict_command
from fedldp.cli.train import train_command
from fedldp.errors import FedLDPError
from fedldp.learn.model import Model

SCHEMA = """
speed = {low = 0, high = 130}
["city [x]"]
categories = ["Oslo", "Rome", "[/b]"]
[minutes]
low = 0
high = 100
[late]
categories = ["no", "yes"]
[tyres]
categories = ["old", "new", "none"]
"""
CITIES = "Oslo", "Rome", "[/b]"
ROWS = 1500
COMMANDS = {"train": train_command, "predict": predict_command}
FILE = "train", "--data", "fleet.csv", "--schema", "fleet.toml"
LATE = *FILE, "--target", "late", "--task", "logistic", "--seed", 1
HMTP = "--mechanism", "hm-tp"


def table(rows=ROWS):
    """Return trips: late if slow, and longer in Rome; each car makes three."""
    source = fedldp.source(1)
    speeds, cities, noise = 130 * source.uniform(rows), source.below(3, rows), source.uniform(rows)
    minutes = 70 - speeds / 2 + 20 * (cities == 1) + 10 * noise
    return [
        {
            "car": f"car {row // 3}",
            "speed": round(float(speeds[row]), 1),
            "city [x]": CITIES[cities[row]],
            "minutes": round(float(minutes[row]), 1),
            "late": "yes" if minutes[row] > 45 else "no",
            "tyres": "old",
        }
        for row in range(rows)
    ]


def write(rows, path="fleet.csv"):
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def prepare():
    """Write the schema and the trips to the current folder."""
    Path("fleet.toml").write_text(SCHEMA)
    write(table())


def invoke(name, *arguments, **env):
    texts = [str(argument) for argument in arguments]
    return CliRunner().invoke(COMMANDS[name], texts, env={"COLUMNS": "80", **env})


def run(*arguments, **env):
    result = invoke(*arguments, **env)
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def shown(*arguments):
    output = run(*arguments).stdout
    assert max(map(len, output.splitlines())) <= 80
    return output


def document(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def refused(*arguments):
    """Return why a command was refused, on one line."""
    result = invoke(*arguments)
    if isinstance(result.exception, SystemExit):  # click has shown how to use it
        assert result.exit_code == 2
        return result.stderr
    assert isinstance(result.exception, FedLDPError)
    assert "\n" not in str(result.exception)
    return str(result.exception)


def saved(path="model.json"):
    return Model.from_json(Path(path).read_text())
