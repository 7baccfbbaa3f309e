import gc
import hashlib
import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).parent
SOLVER = ("mechanisms", "coders", "vehicle.py", "_internal/validation.py")

# Every worker has a core of its own, and so has every process that a test starts. Without this,
# linear algebra starts a thread for each core in each of them, and these wait for each other in
# busy loops: of the CPU time of some tests, nine tenths.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without these packages some files cannot be imported, and `make test` needs none of them.
NEEDED = {"torch": "learn/test_torch*.py"}
ENGINES = {"apache_beam": "beam", "distributed": "dask", "duckdb": "duckdb"}
ENGINES |= {"moto": "object_store", "pyspark": "spark"}
NEEDED |= {package: f"counting/engines/test_{name}.py" for package, name in ENGINES.items()}
collect_ignore_glob = [f"tests/{files}" for name, files in NEEDED.items() if not find_spec(name)]


def solver() -> str:
    """Return a name for all that decides what a linear program finds."""
    digest = hashlib.sha256(f"numpy {version('numpy')}, scipy {version('scipy')}".encode())
    for name in SOLVER:
        path = HERE / "src" / "fedldp" / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(f"\n{file.relative_to(HERE)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


# What linear programs find is read by all processes of a test run, and by later runs of the same
# code. Whatever changes in the solver or below it begins with nothing.
os.environ.setdefault("FEDLDP_CACHE", str(HERE / ".cache" / "solved" / solver()))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path):
    """Look for examples in the library and the documentation alone: tests hold none."""
    found = yield
    if file_path.is_relative_to(HERE / "tests"):
        return [each for each in found if type(each).__name__ != "DoctestModule"]
    return found


def pytest_collection_finish():
    """Leave what collection has made out of later garbage collections: it stays to the end."""
    gc.freeze()


settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
