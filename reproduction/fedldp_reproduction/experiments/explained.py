"""The settings of a figure in words, and what was chosen where the paper gives no value."""

from collections.abc import Iterator, Mapping, Sequence

from fedldp.learn.objectives import Objective, objective
from fedldp.learn.optimizer import Adam
from fedldp_reproduction.experiments.duchi import CitedDuchi
from fedldp_reproduction.experiments.jobs import (
    BOUND,
    GROUPS,
    REGULARIZATION,
    library_settings,
    theory_rate,
)
from fedldp_reproduction.experiments.material import LAST_SIGNALS, Material
from fedldp_reproduction.figures import Description, Figure, Profile, Way

# How the two servers step, in words.
SERVERS = {
    "paper": (
        f"Algorithm 1: plain SGD, {GROUPS} groups, the sum of a group divided by its size, each "
        "competitor at its best rate"
    ),
    "library": (
        f"{Adam.__name__} with momentum {Adam.momentum:g}, models averaged, later "
        "ones with more weight"
    ),
}


def explained(
    figure: Figure, profile: Profile, known: Description, materials: Sequence[Material]
) -> tuple[str, ...]:
    """Return lines for people about all that a figure's numbers depend on."""
    about = (
        _training(figure, profile, materials, known.ways)
        if figure.objective
        else _means(profile, materials)
    )
    return (
        *about,
        *_asked(figure, profile),
        *_cited(figure, materials),
        *figure.notes,
        f"seed: {known.seed}",
    )


def _means(profile: Profile, materials: Sequence[Material]) -> Iterator[str]:
    yield f"{profile.runs} runs: the data stay the same, the noise does not"
    yield "error: squared, about the mean of the very rows, on the scale of [-1, 1], averaged"
    yield (
        "budget: of d attributes, the numbers among them get their share of ε together; Laplace "
        "spends ε/d on each"
    )
    names = [material.about.name for material in materials]
    if "vehicle" in names:
        yield (
            f"Vehicle: its last {LAST_SIGNALS} signals, with the whole of ε (the paper does not "
            "say whether the others get a share)"
        )
    if any(name.startswith("gaussian") for name in names):
        yield (
            'Gaussian: "truncated" is read as redrawn until it lies in [-1, 1], not as moved to '
            "the bound (the paper does not say which)"
        )
    yield "intervals: 95%, by Student's t over the runs"


def _training(
    figure: Figure, profile: Profile, materials: Sequence[Material], ways: Mapping[str, Way]
) -> Iterator[str]:
    times = "" if profile.times == 1 else f", {profile.times} times"
    held = "" if profile.held == profile.folds else f", of which {profile.held} are held out"
    yield (
        f"{profile.folds}-fold cross-validation{held}{times}; every row is a vehicle, asked once; "
        f"{profile.replicates} trainings of each fold, with other noise"
    )
    yield f"regularization: λ = {REGULARIZATION:g}; gradients are clipped to ±{BOUND:g}"
    goal = objective(figure.objective)
    trained: dict[str, list[str]] = {}
    for name in figure.series:
        server = figure.server if ways[name].server == "paper" and figure.server else None
        trained.setdefault(server or ways[name].server, []).append(name)
    for server, names in trained.items():
        if server not in SERVERS:
            continue
        who = f"server of {', '.join(names)}" if len(trained) > 3 else "server"
        yield f"{who}: {SERVERS[server]}"
        for material in materials:
            n, d = len(material.dataset), material.dataset.dimensions
            train = n - n // profile.folds
            yield f"{material.about.title}: {_steps(server, profile, goal, train, d)}"
    if "paper" in trained:
        grid = ", ".join(f"{rate:g}" for rate in profile.rates)
        yield (
            "the paper gives neither learning rate nor group size. Every competitor, and training "
            f"without privacy, has the rate of one public grid, {grid} times 1/d, that is best on "
            "the training rows of the fold, by the error without privacy; with one rate from the "
            "theory of SGD instead the verdicts are reported beside"
        )
    yield (
        "baseline: the majority class of the training rows, in linear regression their mean; "
        "converged: the least regularized loss without privacy, found by L-BFGS"
    )
    if any(name == "hm" for name in figure.series):
        yield "minus hm: the difference of errors to those of HM, fold by fold"
    yield (
        "intervals: 95%, by Student's t over folds and replicates; what the folds have in common "
        "beyond noise is widened (Nadeau and Bengio 2003)"
    )


def _steps(server: str, profile: Profile, goal: Objective, train: int, d: int) -> str:
    """Return how many groups and which learning rate a server has."""
    if server == "paper":
        group = -(-train // GROUPS)
        rate = theory_rate(goal, d, GROUPS, profile.rates)
        return (
            f"{-(-train // group)} groups of {group:,} vehicles; the theory of SGD has the rate "
            f"{rate:g}/d = {rate / d:.3g}"
        )
    settings = library_settings(Way("", server=server), 1.0, train, d)
    group = settings.group_size(d, train, goal)
    rounds = -(-train // group)
    rate = settings.recipe(d, rounds, goal.distance).rate
    return f"{rounds} groups of {group:,} vehicles, learning rate {rate:.3g}"


def _cited(figure: Figure, materials: Sequence[Material]) -> Iterator[str]:
    """Yield what the cited form of Duchi et al. costs, and how much more noise it has."""
    if "duchi-2018" not in figure.series:
        return
    yield (
        "duchi-2018: the form that the literature cites, for study only. It draws ties from both "
        "halves, where d is even: it costs ln(1 + e^ε)"
    )
    for material in materials:
        training = bool(figure.objective)
        d = material.dataset.dimensions if training else material.columns
        if d % 2:
            yield f"{material.about.title}: d = {d} is odd: duchi-2018 is duchi, with other noise"
            continue
        told = []
        for epsilon in (0.5, 1.0, 4.0):
            spent = epsilon if training else epsilon * material.share
            cited = CitedDuchi(spent, d)
            told.append(f"{cited.true_epsilon / spent:.2f} and {cited.variance_factor:.2f}")
        yield (
            f"{material.about.title}, d = {d}: duchi-2018 has {'; '.join(told)} times the budget "
            "and the worst-case variance of duchi, at ε = 0.5, 1 and 4"
        )


def _asked(figure: Figure, profile: Profile) -> Iterator[str]:
    if figure.over == "epsilon":
        grid = ", ".join(f"{each:g}" for each in sorted({*profile.epsilons, *figure.shown}))
        named = ", ".join(f"{each:g}" for each in figure.shown)
        known = f"the paper names {named}" if named else "the paper does not list its values"
        yield f"ε: {grid} ({known})"
    if figure.over == "bits":
        yield "k = 1: each vehicle answers for one coordinate, so that the bits are those of it"
        yield "one bit: the two outputs of Duchi et al., which no other two can better"
        yield "exact tables; optimal is divided by those who answered, hm-tp by all vehicles"
    else:
        yield (
            "k = floor(ε / 2.5) coordinates of each vehicle, divided by all vehicles, as in the "
            "paper"
        )
    if "duchi" in figure.series:
        yield (
            "Duchi et al.: all signs at once. The paper does not print their mechanism; where d is "
            "even, drawing ties from both halves would cost more than ε, so here a tie counts once"
        )
    if figure.outputs or figure.over == "outputs":
        yield (
            "outputs: the paper's discretization made exact, a table of integers; Three-Outputs, "
            "Duchi et al. and Laplace as they are"
        )
    if "cube" in figure.series:
        yield (
            "beyond the paper: exact tables, k and the threshold of the cube with the least error, "
            "divided by those who answered; hm-tp as the paper ran it"
        )
