import os
import sys
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# What linear programs find is kept for the length of a test run, and read by all its processes.
os.environ.setdefault("FEDLDP_CACHE", tempfile.mkdtemp(prefix="fedldp-tests-"))

settings.register_profile("default", deadline=None, derandomize=True)
settings.register_profile(
    "thorough", deadline=None, max_examples=2000, suppress_health_check=list(HealthCheck)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
