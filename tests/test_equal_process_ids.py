"""A parent and a child with the same process id share neither random words nor a connection."""

import json
import shutil
import subprocess
import sys

import equal_process_ids
import pytest
from patience import HANG_SECONDS

NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def allows_namespaces():
    """Return whether this system lets its users make PID namespaces."""
    probe = [*NAMESPACE, "true"]
    return (
        bool(shutil.which("unshare")) and not subprocess.run(probe, capture_output=True).returncode
    )


@pytest.mark.parametrize("how", ["pretended", "namespace"])
def test_a_child_with_the_process_id_of_its_parent(tmp_path, how):
    if how == "namespace" and not allows_namespaces():
        pytest.skip("this system allows no PID namespaces; the pretended id covers the code")
    found = {}
    for case in equal_process_ids.CASES:
        (tmp_path / case).mkdir()
        script = [sys.executable, equal_process_ids.__file__, how, case, str(tmp_path / case)]
        argv = [*NAMESPACE, *script] if how == "namespace" else script
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr
        (child, seen), (parent, own) = json.loads(done.stdout)
        assert (child, parent) == (1, 1)
        found[case] = seen, own
    assert not set(found["words"][0]) & set(found["words"][1])
    assert "Fork first, then open the file" in found["in a transaction"][0]
    assert found["in a transaction"][1] == "1"
    assert found["after it"] == ("1", "1")
