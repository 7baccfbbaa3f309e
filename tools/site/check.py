"""Check a built site: pages can be found, links and anchors lead somewhere, no one is asked.

python tools/site/check.py mkdocs.yml [FOLDER]

"No one is asked" is checked of what the pages and style sheets make a browser fetch, and of the
project's own scripts: outside comments these name no address and call nothing that fetches. The
scripts of the theme are not searched.
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

_IN_STYLE = re.compile(r"""(?:@import|url\()\s*["']?((?:https?:)?//[^"' )]+)""")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAMESPACE = '"http://www.w3.org/2000/svg"'  # the name of SVG, which nothing is fetched from
_IN_SCRIPT = re.compile(
    r"""["'`](?:(?:https?|wss?):)?//[^"'`]*"""
    r"""|\b(?:fetch|import|importScripts|sendBeacon)\s*\("""
    r"""|\b(?:XMLHttpRequest|WebSocket|EventSource)\b"""
)


class _Settings(yaml.SafeLoader):
    """YAML with the names of functions in it, which are not looked up here."""


_Settings.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)


class _Page(HTMLParser):
    """What a page links to, what a browser fetches for it, and the places one can link to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.fetched: set[str] = set(_IN_STYLE.findall(text))
        self.anchors: set[str | None] = {"", "top"}  # HTML has these in every page
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one element."""
        given = dict(attrs)
        self.anchors.add(given.get("id"))
        targets = {given[name] or "" for name in ("href", "src", "srcset") if name in given}
        self.links |= targets
        # A browser fetches these by itself, unlike a link that people click.
        fetched = "src" in given or "srcset" in given
        if fetched or (tag == "link" and given.get("rel") != "canonical"):
            self.fetched |= {target for target in targets if urlsplit(target).netloc}


def listed(nav: list[Any]) -> Iterator[str]:
    """Yield the pages of the navigation."""
    for entry in nav:
        for target in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(target, str):
                yield target
            else:
                yield from listed(target)


def unlisted(docs: Path, nav: list[Any]) -> Iterator[str]:
    """Yield the pages that nobody finds, and those that are not there."""
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    for page in sorted(pages ^ {page for page in listed(nav) if page.endswith(".md")}):
        yield f"{page} must be both a page and in the navigation"


def dead_links(site: Path, pages: dict[Path, _Page]) -> Iterator[str]:
    """Yield the links that lead nowhere."""
    for path, page in pages.items():
        if path == site / "404.html":
            continue  # its links are made for the root of a server
        for target in sorted(page.links):
            scheme, host, file, _, anchor = urlsplit(target)
            there = (path.parent / unquote(file)).resolve() if file else path
            if scheme or host:
                continue
            if not there.exists() or not there.is_relative_to(site):
                yield f"{path.relative_to(site)} links to {target}, which is not in the site"
            elif there in pages and unquote(anchor) not in pages[there].anchors:
                yield f"{path.relative_to(site)} links to {target}, a page without that anchor"


def requests(docs: Path, site: Path, pages: dict[Path, _Page]) -> Iterator[str]:
    """Yield what is asked of the network."""
    for path, page in pages.items():
        for address in sorted(page.fetched):
            yield f"{path.relative_to(site)} fetches {address}"
    for path in sorted(site.rglob("*.css")):
        for address in _IN_STYLE.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site)} fetches {address}"
    for path in sorted(docs.rglob("*.js")):
        script = _COMMENT.sub("", path.read_text("utf-8")).replace(_NAMESPACE, "")
        for found in _IN_SCRIPT.findall(script):
            yield f"{path.relative_to(docs)} may ask the network: {found}"


def faults(settings: Path, folder: str | None = None) -> Iterator[str]:
    """Yield what is wrong with a site that was built, in another folder than the usual if named."""
    options = yaml.load(settings.read_text("utf-8"), _Settings)  # noqa: S506 (a safe loader)
    names = options["docs_dir"], folder or options["site_dir"]
    docs, site = ((settings.parent / name).resolve() for name in names)
    pages = {path: _Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    yield from unlisted(docs, options["nav"])
    yield from dead_links(site, pages)
    yield from requests(docs, site, pages)


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]), *sys.argv[2:]))
    sys.exit("\n".join(found) or None)
