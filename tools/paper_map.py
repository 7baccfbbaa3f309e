"""Write the map from the paper's items to the project.

python tools/paper_map.py docs/paper-map.md
"""

import sys
from pathlib import Path

from fedldp_reproduction.items import page

if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
