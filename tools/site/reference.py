"""Write the parts of the reference that are made from the code: the public names, the commands.

python tools/site/reference.py build/docs

The pages of docs/reference include them: api.md lists all public names, commands.md the commands,
and a page for each subject describes the names.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from copy import copy
from importlib import import_module
from itertools import chain
from pathlib import Path
from textwrap import indent
from types import ModuleType
from typing import Any, NamedTuple

import click

import fedldp
from fedldp.cli.app import fedldp as command_line
from fedldp.errors import MissingExtra
from fedldp_reproduction.command import reproduce_command

PUBLIC = (
    "fedldp",
    "fedldp.mechanisms",
    "fedldp.coders",
    "fedldp.coders.base",
    "fedldp.schema.attributes",
    "fedldp.schema.attributes.results",
    "fedldp.plan.parts",
    "fedldp.schema.quality",
    "fedldp.results.plausibility",
    "fedldp.audit",
    "fedldp.budget.composition",
    "fedldp.budget.vehicle",
    "fedldp.budget.vehicles",
    "fedldp.learn",
    "fedldp.learn.estimators",
    "fedldp.learn.torch",
    "fedldp.learn.torch_layers",
    "fedldp.datasets",
    "fedldp.counting.engines.dask",
    "fedldp.counting.engines.spark",
    "fedldp.counting.engines.beam",
    "fedldp.counting.engines.duckdb",
    "fedldp_fleet.flower",
    "fedldp.storage.database",
    "fedldp.storage.files",
    "fedldp.storage.locks",
    "fedldp.storage.chain",
    "fedldp.signing",
    "fedldp.errors",
)

# The pages that describe names, by where these are defined; core has all others.
SUBJECTS = {
    "mechanisms": ("fedldp.mechanisms",),
    "coders": ("fedldp.coders", "fedldp.plan.parts"),
    "attributes": ("fedldp.schema.attributes",),
    "learn": ("fedldp.learn",),
    "data": ("fedldp.schema.quality", "fedldp.datasets", "fedldp.counting.engines"),
    "fleet": ("fedldp_fleet",),
    "storage": ("fedldp.storage", "fedldp.signing"),
    "core": ("fedldp",),
}

SOURCE = Path(fedldp.__file__).parent.parent

# Public modules that are described on a page of their own.
PAGES = {"fedldp.vehicle": "vehicle.md"}


class Name(NamedTuple):
    """A public name: where it is imported from, where it is defined, and what it is."""

    module: str
    name: str
    path: str  # unlike the name, the path of no module too
    text: str  # its docstring
    what: Any = None  # the object, unless its module cannot be imported here

    @property
    def subject(self) -> str:
        """The page that describes it."""
        inside = ((page, f"{each}.") for page, modules in SUBJECTS.items() for each in modules)
        return next(page for page, module in inside if self.path.startswith(module))

    @property
    def link(self) -> str:
        """Where the reference describes it."""
        page = "" if isinstance(self.what, ModuleType) else f"{self.subject}.md"
        return PAGES.get(self.path, f"{page}#{self.path}")

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return self.text.partition("\n")[0]


def imported(module: str) -> Iterator[Name]:
    """Yield the names in the `__all__` of a module."""
    for name in import_module(module).__all__:
        what = getattr(import_module(module), name)
        is_module = isinstance(what, ModuleType)
        path = what.__name__ if is_module else f"{what.__module__}.{what.__qualname__}"
        yield Name(module, name, path, inspect.getdoc(what) or "", what)


def read(module: str) -> Iterator[Name]:
    """Yield the same names without importing the module, which defines all of them itself."""
    path = SOURCE.joinpath(*module.split(".")).with_suffix(".py")
    nodes = ast.parse(path.read_text("utf-8")).body
    defined = {
        node.name: ast.get_docstring(node) or ""
        for node in nodes
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    (names,) = (
        node.value for node in nodes if isinstance(node, ast.Assign) and "__all__" in targets(node)
    )
    for name in ast.literal_eval(names):
        yield Name(module, name, f"{module}.{name}", defined[name])


def targets(node: ast.Assign) -> list[str]:
    """Return the names to which a statement assigns."""
    return [each.id for each in node.targets if isinstance(each, ast.Name)]


def public_names() -> Iterator[Name]:
    """Yield every public name once, in the first module that has it in its `__all__`."""
    seen = set()
    for module in PUBLIC:
        try:
            import_module(module)
        except MissingExtra:
            found = read(module)
        else:
            found = imported(module)
        for each in found:
            if each.path not in seen:
                seen.add(each.path)
                yield each


def commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str, str]]:
    """Yield each command, those of a group after it, with its summary and its help."""
    settings = command.context_settings
    context = click.Context(command, parent, info_name=name, terminal_width=80, **settings)
    fresh = copy(command)
    fresh._help_option = None  # click keeps the option as it was where help was first needed
    yield context.command_path, command.get_short_help_str(80), fresh.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            if inner is not None:
                yield from commands(inner, each, context)


def api_page() -> str:
    """Return the list of all public names."""
    names = list(public_names())
    lines: list[str] = []
    for module in PUBLIC:
        of_module = [each for each in names if each.module == module]
        lines += ["", f"## {module} {{ #{module} }}", "", "| name | what it is |", "|---|---|"]
        for each in of_module:
            link = f"[`{each.name}`]({each.link})"
            lines.append(f"| {link} | {each.summary.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def folded(title: str, text: str) -> str:
    """Return a block of Markdown that readers unfold: pages of the reference stay short."""
    return f'??? name "{title.replace(chr(34), chr(39))}"\n\n{indent(text, "    ")}\n'


def subject_page(subject: str) -> str:
    """Return what is documented of the names of a subject, each folded to its summary."""
    names = (each for each in public_names() if not isinstance(each.what, ModuleType))
    return "\n".join(
        folded(f"`{each.name}`: {each.summary}", f"::: {each.path}\n")
        for each in names
        if each.subject == subject
    )


def commands_page() -> str:
    """Return the help of every command."""
    lines: list[str] = []
    programs = (command_line, "fedldp"), (reproduce_command, "fedldp-reproduce")
    for title, summary, text in chain.from_iterable(commands(*each) for each in programs):
        lines += ["", f"## {title}", "", folded(summary, f"```text\n{text}\n```")]
    return "\n".join(lines) + "\n"


def main(folder: Path) -> None:
    """Write the pages."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "api.md").write_text(api_page(), "utf-8")
    for subject in SUBJECTS:
        (folder / f"api-{subject}.md").write_text(subject_page(subject), "utf-8")
    (folder / "commands.md").write_text(commands_page(), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
