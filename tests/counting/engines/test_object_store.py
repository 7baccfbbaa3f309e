"""Files in a real object store, and the programs of the page of engines, as they are printed."""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from engine_shards import PLAN
from moto.server import ThreadedMotoServer
from pyarrow import fs

from fedldp import Counted
from fedldp.counting.engines import dask

pytestmark = pytest.mark.engines

PAGE = Path(__file__).parents[3] / "docs" / "scale.md"
STORE = "AWS_ENDPOINT_URL"


@pytest.fixture(scope="module")
def store(shards):
    """Run a server with Amazon's protocol, with the shards in the bucket "fleet"."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    settings = {
        STORE: f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "fleet",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        system = fs.S3FileSystem(
            allow_bucket_creation=True, endpoint_override=settings[STORE], region="us-east-1"
        )
        system.create_dir("fleet")
        fs.copy_files(str(shards.folder), "fleet/reports", destination_filesystem=system)
        yield settings
    server.stop()


def stored(found, folder):
    """Return the names of a manifest as they are in the object store."""
    return {
        name.replace(str(folder), "s3://fleet/reports"): digest
        for name, digest in found.manifest.shards.items()
    }


@pytest.mark.usefixtures("store")
def test_the_library_counts_files_in_a_store(shards):
    found = PLAN.count("s3://fleet/reports")
    assert (found.tally, found.refused) == (shards.found.tally, shards.found.refused)
    assert found.manifest.shards == stored(shards.found, shards.folder)
    assert found == dask.count_files(PLAN, "s3://fleet/reports")


def test_the_options_of_an_address(store, shards, monkeypatch):
    monkeypatch.delenv(STORE)
    place = urlsplit(store[STORE]).netloc
    options = f"endpoint_override={place}&scheme=http&region=us-east-1"
    found = PLAN.count(f"s3://fleet/reports/day=0/*.parquet?{options}")
    assert found.tally == PLAN.count(shards.folder / "day=0").tally
    assert all(place not in name for name in found.manifest.shards)


def program(engine):
    """Return the Python code in the section of an engine, all of it."""
    section = PAGE.read_text("utf-8").partition(f"\n### {engine}\n")[2].partition("\n##")[0]
    blocks = re.findall(r"^```python\n(.*?)^```$", section, re.M | re.S)
    assert len(blocks) > 1
    return "\n".join(blocks)


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("engine", ["Dask", "Spark", "Beam", "DuckDB"])
def test_the_programs_of_an_engine_run_as_they_are_printed(engine, shards, tmp_path):
    (tmp_path / "plan.json").write_text(PLAN.to_json())
    (tmp_path / "reports").symlink_to(shards.folder)
    (tmp_path / "program.py").write_text(program(engine))
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "<Counted: " in done.stdout
    if engine == "DuckDB":
        packets = [packet for n in range(40) for packet in shards.packets[200 * n :][:100]]
        assert PLAN.load_tally(tmp_path / "tally.json") == PLAN.count(packets).tally
        return
    found = Counted.load(tmp_path / "tally.json", PLAN)
    every = PLAN.count(f"{shards.folder}/*/*.parquet")
    assert (found.tally, found.refused) == (every.tally, every.refused)
    assert found.manifest.shards == stored(every, shards.folder)
