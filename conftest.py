import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent / "tests" / "helpers"))

# torch is optional: without it this file cannot be imported, and `make test` needs none of it.
collect_ignore = [] if find_spec("torch") else ["tests/learn/test_torch.py"]

# What linear programs find is kept for the length of a test run, and read by all its processes.
os.environ.setdefault("FEDLDP_CACHE", tempfile.mkdtemp(prefix="fedldp-tests-"))

settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
