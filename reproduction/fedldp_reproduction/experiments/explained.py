"""The settings of a figure in words, and what was chosen where the paper gives no value."""

from collections.abc import Iterator, Mapping, Sequence

from fedldp.learn.objectives import objective
from fedldp.learn.optimizer import Recipe
from fedldp_reproduction.experiments.jobs import BOUND, REGULARIZATION, ROUNDS, settings_of
from fedldp_reproduction.experiments.material import LAST_SIGNALS, Material
from fedldp_reproduction.figures import Description, Figure, Profile, Way

# How the two servers step, in words.
SERVERS = {
    "paper": (
        f"Algorithm 1: plain SGD, {ROUNDS} groups, rate 1/d, the sum of a group divided by its size"
    ),
    "library": (
        f"{Recipe.optimizer.title()} with momentum {Recipe.momentum:g}, models averaged, later "
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
    yield f"{profile.folds}-fold cross-validation{held}{times}; every row is a vehicle, asked once"
    yield f"regularization: λ = {REGULARIZATION:g}; gradients are clipped to ±{BOUND:g}"
    goal = objective(figure.objective)
    trained: dict[str, list[str]] = {}
    for name in figure.series:
        trained.setdefault(figure.server or ways[name].server, []).append(name)
    for server, names in trained.items():
        who = f"server of {', '.join(names)}" if len(trained) > 1 else "server"
        yield f"{who}: {SERVERS[server]}"
        for material in materials:
            n, d = len(material.dataset), material.dataset.dimensions
            train = n - n // profile.folds
            settings = settings_of(Way("", server=server), 1.0, train, d)
            group = settings.group_size(d, train)
            rounds = -(-train // group)
            rate = settings.recipe(d, rounds, goal.distance).rate
            yield (
                f"{material.about.title}: {rounds} groups of {group:,} vehicles, learning rate "
                f"{rate:.3g}"
            )
    yield (
        "the paper gives neither learning rate nor group size: one rule for all competitors, at "
        "every ε and without privacy, from public numbers alone; the order of competitors can "
        "depend on it"
    )
    yield (
        "intervals: 95%, by Student's t over the folds, widened for what the folds have in common "
        "(Nadeau and Bengio 2003)"
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
