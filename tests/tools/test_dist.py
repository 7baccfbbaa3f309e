"""What `make dist` has built works where nothing of the repository is."""

import hashlib
import json
import subprocess
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import release
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import fedldp

pytestmark = pytest.mark.dist

ROOT = Path(__file__).parents[2]


def built(pattern):
    (found,) = (ROOT / "dist").glob(pattern)  # `make dist` builds one of each
    return found


def test_the_wheel_holds_the_package_its_data_and_the_manual_page():
    with zipfile.ZipFile(built("*.whl")) as wheel:
        names = set(wheel.namelist())
    package = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src" / "fedldp").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    others = names - package
    assert package <= names
    [manual] = [name for name in others if ".dist-info/" not in name]
    assert manual.endswith(".data/data/share/man/man1/fedldp.1")
    assert built("*.whl").name.endswith("-py3-none-any.whl")  # pure Python: no compiler anywhere


def test_the_sdist_holds_what_the_tests_need():
    with tarfile.open(built("*.tar.gz")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    left_out = {name for name in tracked if name not in names}
    own = {".ci", ".github", ".pre-commit-config.yaml", "vehicle"}  # of the repository alone
    assert {name.split("/")[0] for name in left_out} <= own


def test_the_digests_are_those_of_all_files():
    lines = (ROOT / "dist" / release.SUMS).read_text().splitlines()
    named = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {path.name: path for path in (ROOT / "dist").iterdir() if path.name != release.SUMS}
    assert named.keys() == files.keys()
    for name, path in files.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == named[name]


def test_the_dates_are_that_of_the_last_commit():
    words = ["git", "log", "-1", "--format=%ct"]
    epoch = int(subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT).stdout)
    with tarfile.open(built("*.tar.gz")) as archive:
        assert {each.mtime for each in archive.getmembers()} == {epoch}
        assert {(each.uid, each.gid) for each in archive.getmembers()} == {(0, 0)}


@pytest.fixture(scope="module")
def sbom():
    return json.loads(built("*.cdx.json").read_text())


def test_the_sbom_is_valid_and_that_of_the_wheel(sbom):
    assert release.invalid(built("*.cdx.json").read_text()) == ""
    assert release.invalid(json.dumps(sbom | {"components": [{"name": "numpy"}]})) != ""
    own = sbom["metadata"]["component"]
    assert (own["name"], own["version"]) == ("fedldp", fedldp.__version__)
    digest = hashlib.sha256(built("*.whl").read_bytes()).hexdigest()
    assert own["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert "timestamp" not in sbom["metadata"]
    assert "file:" not in json.dumps(sbom)


def test_the_sbom_lists_what_was_installed_and_what_needs_it(fresh, sbom, tmp_path):
    code = "import importlib.metadata as m; print(*{d.name for d in m.distributions()}, sep='\\n')"
    installed = {
        canonicalize_name(name) for name in run(fresh, tmp_path, "python", "-c", code).split()
    }
    listed = {canonicalize_name(each["name"]) for each in sbom["components"]}
    assert listed == installed - {"fedldp"}
    needs = {each["ref"]: set(each.get("dependsOn", ())) for each in sbom["dependencies"]}
    reached, due = set(), {sbom["metadata"]["component"]["bom-ref"]}
    while due:
        reached |= due
        due = {ref for each in due for ref in needs[each]} - reached
    assert reached == {"root-component", *(each["bom-ref"] for each in sbom["components"])}
    with zipfile.ZipFile(built("*.whl")) as wheel:
        [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        needed = message_from_bytes(wheel.read(metadata)).get_all("Requires-Dist")
    all_ = {Requirement(text) for text in needed}
    plain = {canonicalize_name(each.name) for each in all_ if each.marker is None}
    assert plain <= listed


@pytest.fixture(scope="module")
def fresh():
    """Return the programs of an environment with the wheel and all its extras, and nothing else."""
    return release.PYTHON.parent


def run(fresh, folder, *arguments):
    """Run a program of the fresh environment, in a folder of its own and with no other program."""
    done = subprocess.run(
        [fresh / arguments[0], *arguments[1:]],
        cwd=folder,
        env={"PATH": str(fresh), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_is_the_installed_package(fresh, tmp_path):
    where = run(fresh, tmp_path, "python", "-c", "import fedldp; print(fedldp.__file__)")
    assert Path(where.strip()).is_relative_to(fresh.parent)


def test_a_fleet_trains(fresh, tmp_path):
    words = "train --data flights --rows 20000 --task logistic --epsilon 4 --seed 1 --json"
    document = json.loads(run(fresh, tmp_path, "fedldp", *words.split(), "--plot", "rounds.png"))
    assert document["vehicles"] == 18_000
    assert document["error"] < document["base_rate"]
    assert (tmp_path / "rounds.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "words",
    [
        "audit hm-tp --epsilon 1",
        "mechanisms --epsilon 1",
        "data list",
        "data info flights",
    ],
)
def test_other_commands_find_what_they_need(fresh, tmp_path, words):
    assert run(fresh, tmp_path, "fedldp", *words.split())


def test_the_reproduction_is_not_in_it(fresh, tmp_path):
    assert json.loads(run(fresh, tmp_path, "fedldp", "data", "list", "--json"))[1:] == []
    assert not (fresh / "fedldp-reproduce").exists()
    done = subprocess.run([fresh / "fedldp", "data", "info", "br"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install ./reproduction" in done.stderr


def test_the_examples_run(fresh, tmp_path):
    run(fresh, tmp_path, "python", ROOT / "examples" / "statistics_from_csv.py")
    run(fresh, tmp_path, "python", ROOT / "examples" / "scikit_learn_pipeline.py", "20000")
