"""What the figures were computed with."""

import re
from importlib.metadata import version
from pathlib import Path

import fedldp
from fedldp_reproduction import environment

LOCK = Path(__file__).parents[1] / "requirements.lock"


def test_the_summary_names_what_results_depend_on():
    told = environment.summary()
    assert told.startswith(f"fedldp {fedldp.__version__}")
    assert f"numpy {version('numpy')}" in told
    assert "Python 3." in told


def test_the_lock_file_has_every_package_that_is_needed():
    """Its versions are those of a good run; the ones installed here may be newer."""
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)$", LOCK.read_text("utf-8"), re.M))
    assert environment.packages().keys() == locked.keys()
    assert f"fedldp {fedldp.__version__} " in LOCK.read_text("utf-8")


def test_packages_are_those_that_are_installed():
    found = environment.packages()
    assert {"numpy", "scipy", "matplotlib", "jinja2", "joblib", "cryptography"} <= found.keys()
    assert all(version(name) == number for name, number in found.items())
    assert not set(environment.OURS) & found.keys()


def test_without_git_there_is_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert environment.commit() is None
    assert "commit" not in environment.summary()
