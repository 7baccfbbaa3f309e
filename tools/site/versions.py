"""List the versions of the documentation that a folder holds, and lead readers to the newest.

python tools/site/versions.py versions

The folder has a site for each version, such as 0.3, as `make docs VERSION=0.3` builds it. The
layout is that of mike, which the menu of the theme reads: `versions.json`, and the name `latest`.
"""

import json
import re
import sys
from pathlib import Path

LATEST = "latest"
# Each site can be read from a folder, and so can this page.
_START = """<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url=latest/index.html">
<title>Versions of the documentation</title>
<ul>
{links}
</ul>
"""


def versions(folder: Path) -> list[str]:
    """Return the versions in a folder, the newest first."""
    names = [path.name for path in folder.iterdir() if re.fullmatch(r"\d+(\.\d+)*", path.name)]
    return sorted(names, key=lambda name: [int(number) for number in name.split(".")], reverse=True)


def write(folder: Path) -> None:
    """Write the list of versions, the name of the newest and the first page.

    Raises
    ------
    FileNotFoundError
        If the folder holds no version.
    """
    names = versions(folder)
    if not names:
        raise FileNotFoundError(f"{folder} holds no version: run `make docs VERSION=0.3`")
    entries = [{"version": name, "title": name, "aliases": list[str]()} for name in names]
    entries[0]["aliases"] = [LATEST]
    (folder / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", "utf-8")
    links = (f'<li><a href="{name}/index.html">{name}</a>' for name in names)
    (folder / "index.html").write_text(_START.format(links="\n".join(links)), "utf-8")
    (folder / ".nojekyll").touch()
    (folder / LATEST).unlink(missing_ok=True)
    (folder / LATEST).symlink_to(names[0])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
