"""Build the vehicle of the interactive page: WebAssembly in a script, with its plan.

python clients/c/browser/build.py docs/playground/c-vehicle.js
"""

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import fedldp
from fedldp.plan.compiled import compile_plan
from fedldp.plan.strategies import Sample

CORE = Path(__file__).parents[1]
SOURCES = [
    Path(__file__).with_name("fedldp-browser.c"),
    *(CORE / f"fedldp{name}.c" for name in ("", "_read")),
]
CITIES = ["Lima", "Oslo", "Rome"]
OPTIONS = ["-std=c99", "-Os", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off"]
OPTIONS += ["-mexec-model=reactor", "-Wl,--strip-all"]


def plan() -> fedldp.Plan:
    """Return the plan of the page."""
    schema = fedldp.Schema.of(speed=(0, 130), city=CITIES)
    return fedldp.Plan(schema, 2, Sample(mechanism="duchi"))


def wasm(text: str) -> bytes:
    """Return a plan and the vehicle that answers it as WebAssembly."""
    with tempfile.TemporaryDirectory() as folder:
        header = compile_plan(text, cap=16).to_header()
        (Path(folder) / "plan.h").write_text(header, "ascii")
        output = Path(folder) / "vehicle.wasm"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", *OPTIONS]
        command += [f"-I{CORE}", f"-I{folder}", "-o", str(output), *map(str, SOURCES)]
        subprocess.run(command, check=True)
        return output.read_bytes()


def script() -> str:
    """Return the script that the page loads."""
    text = plan().to_json()
    code = base64.b64encode(wasm(text)).decode()
    # A script, not a file of its own: a page that is opened from the disk may not fetch one.
    document = {"plan": text, "cities": CITIES, "wasm": code}
    return f"window.FEDLDP_VEHICLE = {json.dumps(document, separators=(',', ':'))};\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(script(), "ascii")
