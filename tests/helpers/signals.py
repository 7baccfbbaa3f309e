"""A fleet whose vehicles hold signals, and a small convolutional network for them."""

import csv
import json

import numpy as np
from click.testing import CliRunner

from fedldp import Category, Number, Schema
from fedldp.cli.app import fedldp
from fedldp.learn import Activation, ChannelMean, Conv, Network, objective

SIGNAL = Schema((Number("x", -2, 2, size=12), Number("y", -2, 2, size=12)))
GAIT = Category("gait", ["stand", "walk", "run"])
SCHEMA = Schema((*SIGNAL.attributes, GAIT))
SOFTMAX = objective("softmax").for_target(GAIT)
CONVOLUTION = Network((2, 12), (Conv(3, 4, 2), Activation("silu"), ChannelMean()), SOFTMAX)


def signals(number, seed):
    """Return a matrix of rows: slow, faster and fast waves, and noise."""
    draw = np.random.default_rng(seed)
    gaits = draw.integers(0, 3, number)
    phases = draw.uniform(0, 2 * np.pi, (number, 1)) + np.pi / 2 * np.arange(2)[:, None, None]
    waves = np.sin(phases + gaits[:, None] * np.arange(12.0)) * (0.2 + 0.6 * gaits[:, None])
    found = np.concatenate([*waves], axis=1) + draw.normal(0, 0.1, (number, 24))
    return np.c_[found, gaits]


def write_rows(path, matrix):
    """Write rows to a CSV file, with a column for each number of a signal."""
    names = [
        each.estimand.name_of(place) for each in SIGNAL.attributes for place in range(each.size)
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "gait"])
        for *values, gait in matrix:
            writer.writerow([*(f"{value:.4f}" for value in values), GAIT.categories[int(gait)]])


def init(folder, *options, vehicles=40, rounds=2, gateways=2):
    """Write the folder of a fleet with the command, and the rows of its vaults."""
    folder.parent.mkdir(exist_ok=True)
    network, schema = folder.parent / "network.json", folder.parent / "rows.toml"
    network.write_text(json.dumps(json.loads(CONVOLUTION.to_json()), indent=2))  # as people write
    schema.write_text(SCHEMA.to_toml())
    words = [
        "fleet",
        "init",
        folder,
        "--network",
        network,
        "--data",
        "rows.csv",
        "--schema",
        schema,
    ]
    words += ["--target", "gait", "--vehicles", vehicles, "--rounds", rounds, *options]
    words += ["--gateways", gateways]
    found = CliRunner().invoke(fedldp, list(map(str, words)))
    assert found.exit_code == 0, found.output
    for number in range(1, gateways + 1):
        write_rows(folder / f"vault-{number}" / "rows.csv", signals(vehicles, number))
