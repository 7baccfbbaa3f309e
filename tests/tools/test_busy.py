"""A command beside busy processes: it ends as it would alone, and nothing stays."""

import os
import subprocess
import sys

import busy
import pytest


@pytest.mark.parametrize("status", [0, 3])
def test_the_status_is_that_of_the_command(tmp_path, status):
    program = [sys.executable, "-c", f"raise SystemExit({status})"]
    script = [sys.executable, busy.__file__, "--computing", "1", "--writing", "1", *program]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    assert subprocess.run(script, env=environment, check=False).returncode == status
    assert list(tmp_path.iterdir()) == []
