"""Prose on the site: exponents and indexes (e^ε, 2^(d + 96), x_i), and names that stay whole.

The pages keep what can be read in any editor. Code, formulas and headings stay as they are: the
table of contents shows the text of a heading without its markup. Short pieces of code get a class,
so that a line does not end after the hyphen of an option.
"""

import re
from collections.abc import Iterator
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

_EXPONENT = r"\^(?:\((?P<{0}_group>[^()]+)\)|(?P<{0}>-?\w+))"
_SCRIPT = re.compile(
    r"(?<![\w\\])(?P<base>[^\W\d_])_(?P<index>[^\W_])(?!\w)(?:" + _EXPONENT.format("both") + ")?"
    r"|(?<=[\w)\]}])" + _EXPONENT.format("power")
)
_SHORT = 32  # characters: they fit on a line of a phone
_UNTOUCHED = {"code", "pre", "math", "script", "style", *(f"h{level}" for level in range(1, 7))}


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text, each with its tag: "", "sup" or "sub"."""
    end = 0
    for found in _SCRIPT.finditer(text):
        yield "", text[end : found.start()] + (found["base"] or "")
        if found["index"]:
            yield "sub", found["index"]
        power = next(filter(None, found.group("both", "both_group", "power", "power_group")), "")
        if power:
            yield "sup", power.replace("-", "\N{MINUS SIGN}")
        end = found.end()
    yield "", text[end:]


def _elements(text: str) -> tuple[str, list[Element]]:
    """Return what stands before the first script, and the scripts with what follows each."""
    before, elements = "", list[Element]()
    for tag, part in pieces(text):
        if tag:
            elements.append(Element(tag))
            elements[-1].text = AtomicString(part)
        elif elements:
            elements[-1].tail = (elements[-1].tail or "") + part
        else:
            before += part
    return before, elements


class _Prose(Treeprocessor):
    """Changes the tree of a page after everything else was read."""

    def run(self, root: Element) -> None:
        """Change an element and all below it."""
        if root.tag == "code" and len(root.text or "") <= _SHORT:
            root.set("class", "short")
        if root.tag in _UNTOUCHED:
            return
        for number, child in reversed(list(enumerate(root))):
            self.run(child)
            if child.tail and not isinstance(child.tail, AtomicString):
                child.tail, added = _elements(child.tail)
                root[number + 1 : number + 1] = added
        if root.text and not isinstance(root.text, AtomicString):
            root.text, added = _elements(root.text)
            root[:0] = added


class _Extension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(_Prose(md), "prose", 4)  # after the table of contents


def makeExtension(**options: Any) -> Extension:
    """Return the extension."""
    return _Extension(**options)
