"""Options of commands, made from the declarations in the library."""

from collections.abc import Callable
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

import click

from fedldp._internal.options import OneKind, OneOf, Rule, options
from fedldp.learn.optimizer import Adam
from fedldp.learn.settings import Settings
from fedldp.plan.strategies import AUTO, Strategy, strategy_of

Command = TypeVar("Command", bound=Callable[..., Any])

_UNSET = object()


class _Value(click.ParamType):  # type: ignore[type-arg]
    """A value that a rule parses and validates."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._rule(self._rule.parse(value))
        except ValueError:
            self.fail(f"must be {self._rule}; got {value}.", param, ctx)


def _none(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Return the value that a word of the command line means."""
    return None if value == "none" else value


def step_options(command: Command) -> Command:
    """Add the options of how a server steps."""
    for option in (
        declared_option(Settings, "optimizer"),
        declared_option(Adam, "tol", "tolerance"),
        declared_option(Adam, "learning_rate", "rate"),
    ):
        command = option(command)
    return command


def with_steps(settings: Settings, linear: bool, **given: Any) -> Settings:
    """Return settings whose optimizer has the options that were given."""
    if not given:
        return settings
    optimizer: Any = settings.optimizer_for(linear)
    if "learning_rate" in given and optimizer.needs_prior:
        raise click.UsageError(
            "--learning-rate is for adam and sgd, and the server of this model is noise-aware: "
            "leave it out, or add --optimizer adam."
        )
    return replace(settings, optimizer=replace(optimizer, **given))


def pop_strategy(options: dict[str, Any], *, gradients: bool = False) -> str | Strategy:
    """Take the options of strategies out of those of a command; return what they describe."""
    flat = {name: options.pop(name) for name in STRATEGY_OPTIONS if name in options}
    return strategy_of(flat.pop("strategy", AUTO), gradients=gradients, **flat)


STRATEGY_OPTIONS = ("strategy", "mechanism", "k", "outputs", "study", "mean_length", "fleet")
STEP_OPTIONS = ("learning_rate", "tol")


def declared_option(
    kind: type, name: str, *aliases: str, default: Any = _UNSET, **attributes: Any
) -> Callable[[Command], Command]:
    """Return a command's option from its declaration in a dataclass; `aliases` are older names.

    `attributes` of `click.option` override the declaration.
    """
    option = options(kind)[name]
    if default is _UNSET:
        (default,) = (field_of.default for field_of in fields(kind) if field_of.name == name)
    arguments: dict[str, Any] = {"help": option.help}
    if default is MISSING:
        arguments["required"] = True
    elif default is not None and default is not False:
        arguments |= {"default": default, "show_default": True}
    if isinstance(default, bool):
        arguments["is_flag"] = True
    elif isinstance(option.rule, OneKind | OneOf):
        arguments["type"] = click.Choice(
            ["none" if v is None else str(v) for v in option.rule.values]
        )
        if None in option.rule.values:
            arguments["callback"] = _none
    elif option.rule is not None:
        arguments["type"] = _Value(option.rule)
    flags = [f"--{alias.replace('_', '-')}" for alias in (name, *aliases)]
    if default is True:
        flags[0] += f"/--no-{name.replace('_', '-')}"
    return click.option(*flags, name, **(arguments | attributes))
