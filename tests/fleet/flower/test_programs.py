"""How Flower's programs are run."""

import json
import os
import subprocess
import sys

from fedldp.fleet.flower import programs

PRINTS = "from rich.console import Console; Console().print_json('{\"success\": true}')"


def test_what_they_print_has_no_colours_even_in_a_notebook(tmp_path):
    """Whose kernel forces colours: the JSON of a registration could not be read then."""
    forced = os.environ | {"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-color"}

    def printed(environment):
        argv = [sys.executable, "-c", PRINTS]
        return subprocess.run(argv, env=environment, capture_output=True, check=True).stdout

    assert b"\x1b[" in printed(forced)
    assert json.loads(printed(forced | programs.environment(tmp_path))) == {"success": True}
