"""Python imports this module in each worker of an engine, if its folder is on the path."""

import os
import sys
from pathlib import Path

if os.environ.get("FEDLDP_TEST_FAULTS"):
    sys.path.append(str(Path(__file__).parent.parent))
    import engine_faults

    engine_faults.install()
