"""What is public: listed in one place, importable, documented and typed."""

import ast
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import pkgutil
import typing
from pathlib import Path
from types import ModuleType

import click
import pytest

import fedldp

ROOT = Path(__file__).parent.parent
LAZY = pytest.mark.parametrize("package", [fedldp], ids=lambda each: each.__name__)

# Types of packages that are imported only where they are used: they are known to mypy alone.
ELSEWHERE = dict.fromkeys(
    ("DataFrame", "DuckDBPyRelation", "Ed25519PrivateKey", "SparkSession"), typing.Any
)


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/site/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = tool("reference")
NAMES = list(reference.public_names())


def members(what):
    """Return what people call on a public name: itself or, of a class, its public methods."""
    if not inspect.isclass(what):
        return {what.__name__: what}
    built = "__init__" in vars(what) and not getattr(what, "_is_protocol", False)
    found = {"__init__": what.__init__} if built else {}
    for name, member in inspect.getmembers(what):
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            member = member.fget
        member = getattr(member, "func", member)  # a cached property
        is_called = inspect.isfunction(member) or inspect.ismethod(member)
        if is_called and member.__module__.startswith("fedldp"):
            found[name] = member
    return found


def documented(what, name):
    """Return whether a member has a docstring of its own or inherits one."""
    if not inspect.isclass(what):
        return bool(what.__doc__)
    return any(vars(each)[name].__doc__ for each in what.__mro__ if name in vars(each))


@pytest.mark.parametrize("public", NAMES, ids=lambda each: f"{each.module}.{each.name}")
def test_every_public_name_is_documented_and_typed(public):
    what = public.what
    assert public.text, public
    if what is None or isinstance(what, ModuleType):  # None: its extra is not installed here
        return
    assert what.__module__.startswith("fedldp")
    for name, member in members(what).items():
        if name != "__init__":  # described by its class
            assert documented(what, name), name
        hints = typing.get_type_hints(member, localns=ELSEWHERE)
        signature = inspect.signature(member)
        untyped = {key for key in signature.parameters if key not in ("self", "cls")} - set(hints)
        assert not untyped, (name, untyped)
        assert "return" in hints, name


@pytest.mark.parametrize(
    "module", ["fedldp.counting.engines.duckdb", "fedldp.counting.engines.spark"]
)
def test_a_module_that_is_read_has_the_names_that_it_has_when_it_is_imported(module):
    names = [each._replace(what=None) for each in reference.imported(module)]
    assert [*reference.read(module)] == names


def test_a_dataclass_has_typed_fields():
    for public in NAMES:
        if dataclasses.is_dataclass(public.what):
            hints = typing.get_type_hints(public.what)
            assert {field.name for field in dataclasses.fields(public.what)} <= set(hints)


def test_the_pages_list_every_name_once_and_document_it():
    page = reference.api_page()
    described = "".join(reference.subject_page(subject) for subject in reference.SUBJECTS)
    for public in NAMES:
        if not isinstance(public.what, ModuleType):
            assert described.count(f"\n    ::: {public.path}\n") == 1, public
        assert page.count(f"| [`{public.name}`]({public.link}) | {public.summary[:20]}") == 1
    expected = {"Plan", "LDPLinearSVC", "Settings", "load", "WireError"}
    assert {each.name for each in NAMES} >= expected


def test_the_page_of_commands_has_every_command():
    page = reference.commands_page()

    def paths(command, path):
        yield path
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from paths(command.get_command(context, name), f"{path} {name}")

    assert isinstance(reference.command_line, click.Group)
    for path in paths(reference.command_line, "fedldp"):
        assert page.count(f"\n## {path}\n") == 1
        assert f"Usage: {path} " in page


@LAZY
def test_what_is_loaded_lazily_is_what_type_checkers_see(package):
    """Under `TYPE_CHECKING` each public name is imported once, from where it is loaded."""
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    (checked,) = (
        node.body
        for node in tree.body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    )
    imports = [node for node in checked if isinstance(node, ast.ImportFrom)]
    homes = [(each.name, node.module) for node in imports for each in node.names]
    assert sorted(name for name, _ in homes) == sorted(package.__all__)
    for name, module in homes:
        home = importlib.import_module(module)
        assert getattr(package, name) is getattr(home, name), name


MOST_NAMES = 38


def test_the_top_has_few_names():
    names = [each for each in fedldp.__all__ if not isinstance(getattr(fedldp, each), ModuleType)]
    assert len(names) <= MOST_NAMES, (
        f"{len(names)} public names at the top, more than {MOST_NAMES}: leave the new one in its "
        "module, as fedldp.schema.attributes.HashedCategory is, or take another one out"
    )


@LAZY
def test_dir_lists_exactly_the_public_names(package):
    assert dir(package) == sorted(package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Schem'"):
        package.Schem  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Schem'"):
        exec(f"from {package.__name__} import Schem")


def test_the_version_is_that_of_the_package():
    assert fedldp.__version__ == importlib.metadata.version("fedldp")


def packages():
    yield fedldp
    for found in pkgutil.walk_packages(fedldp.__path__, "fedldp."):
        if found.ispkg:
            yield importlib.import_module(found.name)


@pytest.mark.parametrize("package", [*packages()], ids=lambda each: each.__name__)
def test_no_name_shadows_a_module(package):
    """What `package.name` is depends neither on what was imported before nor on by whom."""
    modules = {each.name for each in pkgutil.iter_modules(package.__path__)}
    for name in modules & {*vars(package), *getattr(package, "__all__", ())}:
        assert isinstance(getattr(package, name), ModuleType), name
