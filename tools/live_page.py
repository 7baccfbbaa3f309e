"""Take the pictures of the live page in the documentation.

    python tools/live_page.py docs/images

writes live-page.png, a statistic on a wide screen, and live-page-phone.png, a training on a phone
in dark colours. It needs Chromium. The estimates and the noise are computed from simulated reports
of the flights; the progress, the times and the names are made up.
"""

import copy
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "helpers"))

from browser import browser as start
from live_page import FIXED_TIME, LivePage, shown
from monitored import SERVER

import fedldp
from fedldp import datasets
from fedldp.cli.runs import linear
from fedldp.fleet.folder import Place, Work, init
from fedldp.fleet.insight import estimates
from fedldp.fleet.stages import Learned
from fedldp.learn.optimizer import State
from fedldp.learn.settings import Settings
from fedldp.plan.parts import Matrix

WIDE, PHONE = 1200, 360
ROWS, SEED = 40_000, 5
ASKED = ("dep_delay", "distance", "origin", "late")


def main(folder: Path) -> None:
    """Take both pictures."""
    with start() as browser, tempfile.TemporaryDirectory() as place:
        browser.command("Page.addScriptToEvaluateOnNewDocument", source=FIXED_TIME)
        browser.command("Emulation.setTimezoneOverride", timezoneId="UTC")
        page = LivePage(browser, Path(place))
        with page.served() as address:
            for name, width, dark, document in (
                ("live-page.png", WIDE, False, statistic()),
                ("live-page-phone.png", PHONE, True, training()),
            ):
                page.document = document
                browser.size(width, 400, dark=dark)
                page.open(address)
                height = browser.evaluate("document.documentElement.scrollHeight")
                browser.size(width, height, dark=dark)
                browser.screenshot(folder / name)


def statistic() -> dict[str, Any]:
    """Return a statistic of which two gateways of three have answered."""
    data = datasets.load("flights", rows=ROWS)
    schema = fedldp.Schema(tuple(each for each in data.schema.attributes if each.name in ASKED))
    plan = fedldp.Plan(schema, 2.0)
    rows = Matrix(data.matrix(names=list(schema)))
    found = estimates(plan.simulate_batches([rows], fedldp.source(SEED)), schema)
    part = copy.deepcopy(SERVER)
    for gateway in part["gateways"][:2]:
        gateway |= {"state": "answered", "reports": ROWS // 2}
    part["next"] = "The round ends when gateway-3 has answered, or at 08:19:00 without it."
    part["errors"], part["job"]["name"] = [], "flights-november"
    return shown(
        part,
        found.document() | {"rounds": [1]},
        task="statistics",
        stage="rows",
        round=1,
        rounds=1,
        rounds_done=0,
        epsilon=2.0,
        reports=ROWS,
        expected=3 * ROWS // 2,
        asked=3 * ROWS // 2,
        silent=0,
        refused_or_absent=0,
        rate=533.0,
        seconds_left=38.0,
    )


def training() -> dict[str, Any]:
    """Return a training in its third round."""
    data = replace(datasets.load("flights", rows=ROWS), reference=Settings.reference)
    with tempfile.TemporaryDirectory() as place:
        work = Work.on_data_set(data, "logistic", 3, 12, {"rows": ROWS})
        job = init(Path(place) / "fleet", work, Settings(4.0, survey=None), 3, Place(monitor=None))
    (stage,) = job.stages
    weights = np.zeros((1, job.model.dimensions))
    task = linear(data, job.model.goal)
    gradients = task.gradients(weights, slice(0, 3 * job.reports))
    tally = job.plan.simulate_batches([gradients], fedldp.source(SEED))
    learned = stage.learn(Learned(State.start(weights[0])), [tally])
    found = stage.insight(learned, [tally])
    return shown(
        SERVER, found.document() | {"rounds": [3]}, task="training (logistic)", epsilon=4.0
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
