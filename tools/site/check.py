"""Check a built site: pages can be found, links lead somewhere, nothing asks the network.

python tools/site/check.py mkdocs.yml
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml

# What a browser fetches by itself; a link that people click is no such thing.
_FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|audio|video)\b[^>]*?\bsrc=["']?((?:https?:)?//[^"' >]+)"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref=["']?((?:https?:)?//[^"' >]+)"""
    r"""|(?:@import|url\()\s*["']?((?:https?:)?//[^"' )]+)"""
)
_LINK = re.compile(r"""<[a-z]+\b[^>]*?\s(?:href|src)=["']?([^"' >#?]+)""")
_ELSEWHERE = re.compile(r"[a-z]+:|//")


class _Settings(yaml.SafeLoader):
    """YAML with the names of functions in it, which are not looked up here."""


_Settings.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


def listed(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of the navigation."""
    for entry in nav:
        for target in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(target, str):
                yield target
            else:
                yield from listed(target)


def faults(settings: Path) -> Iterator[str]:
    """Yield what is wrong with a site that was built."""
    options = yaml.load(settings.read_text("utf-8"), _Settings)  # noqa: S506 (a safe loader)
    docs, site = settings.parent / options["docs_dir"], settings.parent / options["site_dir"]
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    in_nav = {page for page in listed(options["nav"]) if page.endswith(".md")}
    for page in sorted(pages ^ in_nav):
        yield f"{page} must be both a page and in the navigation of {settings.name}"
    for path in sorted(set(site.rglob("*.html")) - {site / "404.html"}):
        for target in set(_LINK.findall(path.read_text("utf-8"))):
            there = (path.parent / unquote(target)).resolve()
            in_site = there.exists() and there.is_relative_to(site.resolve())
            if not _ELSEWHERE.match(target) and not in_site:
                yield f"{path.relative_to(site)} links to {target}, which is not in the site"
    for path in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        for groups in _FETCHED.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site)} fetches {''.join(groups)}"


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1])))
    sys.exit("\n".join(found) or None)
