"""The first lines of docs/flower-mod.md, in apps of the shape of Flower's quickstarts.

The apps are in fleet/tests/fixtures/quickstarts. They run with `flwr run`, in Flower's simulation,
from a folder that is not theirs, on a machine that has nothing but what the page tells to make.
The lines are as they are on the page, except for what the page says of trials with few nodes.
"""

import re
import shutil
import textwrap
from pathlib import Path

import pytest
from ledgers import made
from superlink import Deployment

import fedldp
from fedldp.budget.ledger import Ledger

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "flower-mod.md").read_text("utf-8")
BLOCKS = re.findall(r"```(?:py)?\n(.*?)```", PAGE, re.DOTALL)
WEIGHTS = {"numpy": 1, "sklearn": 7_850, "pytorch": 62_006}
NODES, ROUNDS = 3, 2


def halves():
    """Return what the first snippet says to write in place of a statement, for each module."""
    _, server, client = re.split(r"^# (?:server|client)_app.py: instead of ", BLOCKS[1], flags=re.M)
    return {
        "server_app.py": server.partition("\n")[::2],
        "client_app.py": client.partition("\n")[::2],
    }


def pasted(folder, name):
    """Copy an app, and write the lines of the page into it."""
    app = folder / "app of somebody"
    shutil.copytree(ROOT / "fleet" / "tests" / "fixtures" / "quickstarts" / name, app)
    for module, (old, new) in halves().items():
        path = app / "app" / module
        text = path.read_text("utf-8")
        statement = re.search(rf"^( *){re.escape(old.removesuffix('()'))}\((.*)\)$", text, re.M)
        indent, given = statement.groups()
        lines = textwrap.indent(new.strip(), indent)
        lines = lines.replace('"plan.json"))(', '"plan.json"), force=True)(')  # for few nodes
        if given:  # "Put the arguments of the strategy into the last brackets"
            lines = f"{lines.removesuffix('()')}({given})"
        path.write_text(text.replace(statement.group(), lines), "utf-8")
    return app


def write_plan(app, name, monkeypatch):
    """Do what the second snippet says, with the number of weights."""
    monkeypatch.chdir(app)
    text = BLOCKS[2].replace("Schema.vector(15,", f"Schema.vector({WEIGHTS[name]},")
    exec(compile(text, "flower-mod.md", "exec"), {})


def home_ledger(home):
    """Do what the first lines say: `fedldp ledger init ~/ledger.db`."""
    (path,) = re.findall(r"fedldp ledger init ~/(\S+)", BLOCKS[0])
    return made(home / path)


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_page_fits_the_apps(tmp_path, monkeypatch, name):
    app = pasted(tmp_path, name)
    write_plan(app, name, monkeypatch)
    plan = fedldp.Plan.from_json((app / "app" / "plan.json").read_text("utf-8"))
    assert plan.schema.dimensions == WEIGHTS[name]
    server = (app / "app" / "server_app.py").read_text("utf-8")
    assert "private(FedAvg, " in server
    assert "force=True" in server
    assert "ClientApp(mods=[mod])" in (app / "app" / "client_app.py").read_text("utf-8")


@pytest.mark.simulation
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_first_lines_of_the_page_work(tmp_path, monkeypatch, name):
    app = pasted(tmp_path, name)
    write_plan(app, name, monkeypatch)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    ledger = home_ledger(tmp_path / "home")
    with Deployment(tmp_path, nodes=NODES, simulation=True) as deployment:
        said = deployment.run(app)
    log = (tmp_path / "flower-superlink.log").read_text()
    assert re.findall(r"'reports': (\d+)", said)[:ROUNDS] == [str(NODES)] * ROUNDS, said + log
    assert "public default" not in said + log
    with Ledger(ledger, cap=4.0) as book:
        assert book.totals() == {str(node): ROUNDS for node in range(NODES)}
