"""Write the parts of the reference that are made from the code: the public names, the commands.

python tools/site/reference.py build/docs

The pages docs/reference/api.md and commands.md include them.
"""

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

from fedldp.cli.app import fedldp as command_line
from fedldp_reproduction.command import reproduce_command

PUBLIC = (
    "fedldp",
    "fedldp.mechanisms",
    "fedldp.coders",
    "fedldp.coders.base",
    "fedldp.attributes",
    "fedldp.attributes.results",
    "fedldp.parts",
    "fedldp.data.quality",
    "fedldp.plausibility",
    "fedldp.audit",
    "fedldp.learn",
    "fedldp.learn.estimators",
    "fedldp.datasets",
    "fedldp.fleet",
    "fedldp.errors",
)

# Public modules that are described on a page of their own.
PAGES = {"fedldp.vehicle": "vehicle.md", "fedldp.engines": "../scale.md#count-on-an-engine"}


class Name(NamedTuple):
    """A public name: where it is imported from, what it is, and where that is defined."""

    module: str
    name: str
    what: Any

    @property
    def path(self) -> str:
        """Where it is defined: unlike the name, the path of no module too."""
        if isinstance(self.what, ModuleType):
            return self.what.__name__
        return f"{self.what.__module__}.{self.what.__qualname__}"

    @property
    def link(self) -> str:
        """Where the reference describes it."""
        return PAGES.get(self.path, f"#{self.path}")

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return (inspect.getdoc(self.what) or "").partition("\n")[0]


def public_names() -> Iterator[Name]:
    """Yield every public name once, in the first module that has it in its `__all__`."""
    seen = set()
    for module in PUBLIC:
        for name in import_module(module).__all__:
            found = Name(module, name, getattr(import_module(module), name))
            if found.path not in seen:
                seen.add(found.path)
                yield found


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """Yield each command, those of a group after it, and its help."""
    settings = command.context_settings
    context = click.Context(command, parent, info_name=name, terminal_width=80, **settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            if inner is not None:
                yield from commands(inner, each, context)


def api_page() -> str:
    """Return the list of all public names, and what is documented of each."""
    names = list(public_names())
    lines: list[str] = []
    for module in PUBLIC:
        of_module = [each for each in names if each.module == module]
        lines += ["", f"## {module} {{ #{module} }}", "", "| name | what it is |", "|---|---|"]
        for each in of_module:
            link = f"[`{each.name}`]({each.link})"
            lines.append(f"| {link} | {each.summary.replace('|', chr(92) + '|')} |")
        for each in of_module:
            if not isinstance(each.what, ModuleType):
                lines += ["", f"::: {each.path}"]
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """Return the help of every command."""
    lines: list[str] = []
    programs = (command_line, "fedldp"), (reproduce_command, "fedldp-reproduce")
    for title, text in chain.from_iterable(commands(*each) for each in programs):
        lines += ["", f"## {title}", "", "```text", text, "```"]
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "api.md").write_text(api_page(), "utf-8")
    (folder / "commands.md").write_text(commands_page(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
