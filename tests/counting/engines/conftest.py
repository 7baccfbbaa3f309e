import os
from pathlib import Path
from typing import NamedTuple

import engine_faults
import engine_shards
import pytest

from fedldp import Counted, Plan

SITE = Path(engine_shards.__file__).parent / "engine_site"


class Shards(NamedTuple):
    folder: Path
    plan: Plan
    packets: list
    found: Counted  # by the library itself


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    packets = engine_shards.write(folder)
    plan = engine_shards.PLAN
    found = plan.count(folder)
    assert set(found.refused) == {"missing", "length", "format", "plan", "checksum", "code"}
    assert len(found.manifest) == engine_shards.SHARDS + 2
    return Shards(folder, plan, packets, found)


class Faults(NamedTuple):
    folder: Path

    def happened(self):
        return sorted(each.name for each in self.folder.iterdir()) == list(engine_faults.FAULTY)


@pytest.fixture
def faults(request, tmp_path, monkeypatch):
    """Let workers that are started from now on fail, as the parameter says."""
    folder = tmp_path / "faults"
    folder.mkdir()
    monkeypatch.setenv(engine_faults.FOLDER, str(folder))
    monkeypatch.setenv(engine_faults.KIND, request.param)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")]))
    return Faults(folder)
