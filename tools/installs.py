"""Install each distribution and extra alone, run what it promises, and measure what it takes.

    python tools/installs.py --write docs/releases.md

The wheels are built from this clone; everything else comes from the package index. Sizes are of the
files of all packages, without bytecode. The engines and torch are large and have environments of
their own: `make test-engines` and `make test-torch` run what they promise.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = {"fedldp": ".", "fedldp-fleet": "fleet", "fedldp-vehicle": "vehicle"}
FOLDERS["fedldp-reproduction"] = "reproduction"

REPORT = """
import fedldp
schema = fedldp.Schema.of(speed=(0, 50), city=["Oslo", "Rome"])
plan = fedldp.Plan(schema, 2.0)
row = {"speed": 30, "city": "Rome"}
"""
ESTIMATE = "report = plan.report([row] * 100, fedldp.source())\n"
ESTIMATE += "assert -100 < (plan.tally() + report).estimate()['speed'].mean < 150\n"


class Case(NamedTuple):
    """What is installed, the program that shows what it promises, and one that must ask for more.

    A program is Python code or, if it begins with a name of a command, the words of a command.
    """

    name: str  # with an extra in brackets
    promise: str
    missing: str = ""  # what a program must say that needs another extra
    lacking: str = ""  # that program


CASES = (
    Case(
        "fedldp",
        REPORT + ESTIMATE + "ledger = fedldp.Ledger.create('ledger.db', cap=4)\n"
        "assert fedldp.Vehicle(ledger, 'car').answer(plan, row, job='spring').report\n",
        "Install the extra 'learn' with",
        "import fedldp; fedldp.LDPLogisticRegression",
    ),
    Case(
        "fedldp[cli]",
        "fedldp mechanisms --epsilon 1",
        "Install the extra 'plots' with",
        "fedldp mechanisms --plot plot.png",
    ),
    Case(
        "fedldp[plots]",
        "from fedldp import _plots\nimport matplotlib.figure\n"
        "matplotlib.figure.Figure().savefig('one.png')\n",
    ),
    Case(
        "fedldp[learn]",
        "import fedldp, numpy\nx = numpy.linspace(-1, 1, 2000)[:, None]\n"
        "model = fedldp.LDPLogisticRegression(epsilon=4.0, bounds=(-1, 1), random_state=0)\n"
        "assert model.fit(x, x[:, 0] > 0).score(x, x[:, 0] > 0) > 0.8\n",
    ),
    Case("fedldp[frames]", "import fedldp, narwhals\n" + REPORT + ESTIMATE),
    Case(
        "fedldp[pandas]",
        REPORT + "import pandas\n"
        "assert plan.report(pandas.DataFrame([row] * 9), fedldp.source()).vehicles == 9\n",
    ),
    Case(
        "fedldp[parquet]",
        REPORT + "import pyarrow.parquet\n"
        "packet = plan.report([row], fedldp.source()).to_bytes()\n"
        "pyarrow.parquet.write_table(pyarrow.table({'packet': [packet]}), 'reports.parquet')\n"
        "assert plan.count('reports.parquet').tally.reports == 1\n",
    ),
    Case(
        "fedldp[vss]",
        "from fedldp.schema import vss\n"
        "text = 'Vehicle.Speed: {type: sensor, datatype: float, unit: km/h}'\n"
        "assert vss.read(text, is_yaml=True)['Vehicle.Speed'].unit == 'km/h'\n",
    ),
    Case("fedldp[all]", "fedldp data info flights"),
    Case(
        "fedldp-vehicle",
        "import fedldp_vehicle, sys\nassert not {'numpy', 'scipy', 'fedldp'} & set(sys.modules)\n",
    ),
    Case(
        "fedldp-fleet",
        "fedldp agent --help",
        "Install the extra 'server' with",
        "fedldp server run .",
    ),
    Case("fedldp-fleet[server]", "fedldp server --help"),
    Case("fedldp-fleet[postgresql]", "import psycopg, fedldp_fleet.store.postgresql\n"),
    Case("fedldp-fleet[flower]", "from fedldp_fleet.flower import LDPMod\n"),
    Case("fedldp-reproduction", "fedldp-reproduce --help"),
    Case("fedldp-reproduction[ipums]", "import ipumspy, fedldp_reproduction.datasets.census\n"),
)


def extras(folder: Path) -> set[str]:
    """Return the names of the extras of the distribution in a folder."""
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project.get("optional-dependencies", {}))


def build(target: Path) -> Path:
    """Build the wheels of all distributions into a folder."""
    code = "import hatchling.build, sys; hatchling.build.build_wheel(sys.argv[1])"
    for folder in FOLDERS.values():
        words = [sys.executable, "-c", code, str(target)]
        subprocess.run(words, cwd=ROOT / folder, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return target


def install(case: Case, wheels: Path, environment: Path) -> None:
    """Install a distribution with its extra, and nothing else, into an environment of its own."""
    name, _, extra = case.name.partition("[")
    [wheel] = wheels.glob(f"{name.replace('-', '_')}-*.whl")
    venv = [sys.executable, "-m", "venv", "--without-pip", environment]
    subprocess.run(venv, check=True)  # noqa: S603
    words = [sys.executable, "-m", "pip", "--python", environment / "bin/python", "install"]
    words += ["--quiet", "--no-compile", "--only-binary", ":all:", "--find-links", wheels]
    subprocess.run([*words, f"{wheel}{'[' * bool(extra)}{extra}"], check=True)  # noqa: S603


def run(program: str, environment: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program of an environment in a folder, where no other program is found."""
    first, *words = program.split(maxsplit=1)
    if (environment / "bin" / first).exists():
        command = [str(environment / "bin" / first), *" ".join(words).split()]
    else:
        command = [str(environment / "bin/python"), "-c", program]
    settings = {
        "PATH": str(environment / "bin"),
        "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(  # noqa: S603
        command, cwd=folder, env=settings, capture_output=True, text=True, check=False
    )


def size(environment: Path) -> tuple[int, int]:
    """Return how many packages an environment has, and the bytes of their files."""
    [packages] = environment.glob("lib/python3*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and not path.is_symlink()]
    own = [path for path in files if path.suffix != ".pyc"]
    return len([*packages.glob("*.dist-info")]), sum(path.stat().st_size for path in own)


def main() -> None:
    """Measure all cases, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table into this page")
    page = parser.parse_args().write
    rows = ["| `pip install` | packages | MB |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as temporary:
        wheels = build(Path(temporary) / "wheels")
        for case in CASES:
            environment = Path(temporary) / "environment"
            install(case, wheels, environment)
            packages, octets = size(environment)
            rows.append(f"| `{case.name}` | {packages} | {octets / 1e6:.1f} |")
            shutil.rmtree(environment)
    table = "\n".join(rows) + "\n"
    sys.stdout.write(table)
    if page is not None:
        marks = r"(<!-- begin: installs -->\n).*(<!-- end: installs -->)"
        text = page.read_text("utf-8")
        page.write_text(re.sub(marks, rf"\1\n{table}\n\2", text, flags=re.DOTALL), "utf-8")


if __name__ == "__main__":
    main()
