"""The description of all figures, `figures.toml`, as values."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, final

from fedldp._internal.text import unknown
from fedldp.errors import DomainError

KINDS = ("theory", "means", "training", "ablation")
AXES = ("epsilon", "outputs", "bits", "rate", "groups")
SERVERS = ("paper", "library", "baseline", "converged", "noise-aware", "default")
CITED = "duchi-2018"  # the strategy that no plan can have, because it costs more than it says
BEST = "best"

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Way:
    """How a competitor asks its vehicles; the defaults are the paper's."""

    mechanism: str  # none without privacy
    k: int | str = "paper"
    strategy: str = "sample"
    threshold: int | str = "best"  # of the cube
    estimator: str = "horvitz-thompson"
    study: bool = True  # through the mechanism's floating-point form
    discretized: bool = False  # whether its outputs are continuous, and can be made finite
    outputs: int | None = None
    server: str = "paper"  # Algorithm 1, the library's own optimizer, or one of two references
    rate: float | str = BEST  # of Algorithm 1, as a multiple of 1/d, or the best of the grid
    hidden: int = 0  # units of a network with one hidden layer; 0 for a linear model
    rate_unit: float = 1.0  # by which the rates of the grid are multiplied
    coding: str = "last"  # of categories: the label without a feature, as for `Features`

    def __post_init__(self) -> None:
        if self.server not in SERVERS:
            raise DomainError(f"a way's server must be one of {SERVERS}; got {self.server!r}.")
        if isinstance(self.rate, str) and self.rate != BEST:
            raise DomainError(f"a way's rate must be a number or {BEST!r}; got {self.rate!r}.")

    @property
    def surveyed(self) -> bool:
        """Whether the rows of the data set are needed, and not only their features."""
        return self.server in ("noise-aware", "default")

    def with_outputs(self, outputs: int) -> "Way":
        """Return the exact form with this many outputs; a finite mechanism stays as it is.

        >>> Way("pm", discretized=True).with_outputs(2001).study
        False
        """
        return replace(self, outputs=outputs, study=False) if self.discretized else self


@final
@dataclass(frozen=True)
class Profile:
    """How much is done for each figure."""

    rows: int  # for training, at most
    rows_for_means: int
    epsilons: tuple[float, ...]
    outputs: tuple[int, ...]
    bits: tuple[int, ...]
    rates: tuple[float, ...]  # the grid of learning rates, as multiples of 1/d
    groups: tuple[int, ...]
    runs: int
    folds: int
    held: int  # folds that are held out in turn
    times: int
    replicates: int  # trainings of each fold, with other noise


@final
@dataclass(frozen=True)
class Figure:
    """One figure: what is measured on which data, and what the paper claims of it."""

    key: str
    title: str
    paper: str  # the figure or table of the paper
    kind: str
    data: tuple[str, ...] = ()
    series: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    objective: str = ""
    objectives: tuple[str, ...] = ()  # of an ablation; the empty one stands for means
    over: str = "epsilon"
    epsilon: float = 0.0  # where the figure is not over epsilon
    shown: tuple[float, ...] = ()  # the epsilons that the paper names: its claims are judged there
    server: str = ""  # who trains all competitors, if it is not who trains each of them otherwise
    outputs: int = 0  # 0: continuous
    beside: str = ""  # the figure that its claims compare it with
    notes: tuple[str, ...] = ()  # for people: how the paper's words were read

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.over not in AXES:
            raise DomainError(
                f"figure {self.key!r}: kind must be one of {KINDS} and over one of {AXES}; "
                f"got {self.kind!r} and {self.over!r}."
            )
        if self.kind == "training" and not self.objective:
            raise DomainError(f"figure {self.key!r} needs an objective to train for.")


@final
@dataclass(frozen=True)
class Description:
    """All of the file."""

    seed: int
    profiles: Mapping[str, Profile]
    ways: Mapping[str, Way]
    figures: Mapping[str, Figure]

    def profile(self, name: str) -> Profile:
        """Return a profile by its name."""
        return _named(self.profiles, name, "profile")

    def figure(self, key: str) -> Figure:
        """Return a figure by its key."""
        return _named(self.figures, key, "figure")


@cache
def description() -> Description:
    """Return the description of all figures.

    >>> description().figure("svm").paper
    'Fig. 10'
    >>> description().profile("full").rows
    4000000
    """
    return parse(files(__package__).joinpath("figures.toml").read_text("utf-8"))


def parse(text: str) -> Description:
    """Read a description, and refuse what it does not know."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DomainError(f"the description must be valid TOML: {error}.") from error
    if document.keys() != {field.name for field in fields(Description)}:
        raise DomainError(
            f"a description has seed, profiles, ways and figures; got {list(document)}."
        )
    ways = {name: made(Way, entry) for name, entry in document["ways"].items()}
    profiles = {name: made(Profile, entry) for name, entry in document["profiles"].items()}
    figures = {entry.get("key"): made(Figure, entry) for entry in document["figures"]}
    if len(figures) < len(document["figures"]):
        raise DomainError(f"each figure needs a key of its own; got {list(figures)}.")
    for figure in figures.values():
        for name in figure.series:
            _named(ways, name, f"way, named in figure {figure.key!r},")
        if figure.beside:
            _named(figures, figure.beside, f"figure, beside {figure.key!r},")
    return Description(document["seed"], profiles, ways, figures)


def made(kind: type[T], entry: Mapping[str, Any]) -> T:
    """Return a dataclass from an entry of a file, or refuse names that it does not have."""
    all_fields = fields(kind)  # type: ignore[arg-type]  # it is a dataclass
    known = {field.name for field in all_fields}
    needed = {field.name for field in all_fields if field.default is MISSING}
    if not needed <= entry.keys() <= known:
        raise DomainError(
            f"a {kind.__name__.lower()} needs {sorted(needed)} and may have "
            f"{sorted(known - needed)}; got {sorted(entry)}."
        )
    return kind(**{name: _frozen(value) for name, value in entry.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _named(entries: Mapping[str, T], name: str, what: str) -> T:
    if name not in entries:
        raise unknown(what, name, entries)
    return entries[name]
