"""Metadata of a build that depend on the project's public address, which is set in one place.

`address` in `pyproject.toml` is empty until the project has one. With it, the package names its
pages, and links of the README lead there; without it, what would lead nowhere is plain text.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)]*)\)")


class AddressHook(MetadataHookInterface):
    """Fill in addresses and the long description."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict) -> None:
        """Add `urls` and `readme` to the metadata."""
        address = self.config["address"].rstrip("/")
        metadata["urls"] = urls(address)
        text = (Path(self.root) / "README.md").read_text("utf-8")
        readme = with_links(text, address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def urls(address: str) -> dict[str, str]:
    """Return the pages of a project.

    >>> urls("https://example.org/fedldp")["Issues"]
    'https://example.org/fedldp/issues'
    """
    if not address:
        return {}
    return {
        "Source": address,
        "Issues": f"{address}/issues",
        "Changelog": f"{address}/blob/main/CHANGELOG.md",
        "Documentation": f"{address}/tree/main/docs",
    }


def with_links(text: str, address: str, version: str) -> str:
    """Return Markdown whose links work anywhere: into the repository, or none.

    >>> with_links("![A](a.png) [b](docs/b.md), [c](https://c.org)", "https://e.org/f", "1.0")
    '![A](https://e.org/f/raw/v1.0/a.png) [b](https://e.org/f/blob/v1.0/docs/b.md), [c](https://c.org)'
    >>> with_links("![A](a.png) [b](docs/b.md), [c](https://c.org)", "", "1.0")
    ' b, [c](https://c.org)'
    """

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        if "://" in target:
            return match[0]
        if not address:
            return "" if mark else label
        kind = "raw" if mark else "blob"
        return f"{mark}[{label}]({address}/{kind}/v{version}/{target})"

    return LINK.sub(link, text)
