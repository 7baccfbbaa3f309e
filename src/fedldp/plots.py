"""Pictures for people. Needs matplotlib: pip install 'fedldp[plots]'."""

from pathlib import Path

import numpy as np

from fedldp.errors import MissingExtra
from fedldp.mechanisms import ThreeOutputs, ThreeOutputsFlat, mechanism, mechanisms

try:
    from matplotlib.figure import Figure
except ImportError as error:
    raise MissingExtra("matplotlib", "plots") from error

# Okabe and Ito's palette, safe for colour-blind readers; line styles tell lines apart in grey.
STYLES = {
    "laplace": ("#999999", ":"),
    "duchi": ("#000000", "--"),
    "pm": ("#E69F00", "--"),
    "hm": ("#56B4E9", "--"),
    "three-outputs": ("#009E73", "-"),
    "pm-sub": ("#D55E00", "-"),
    "pm-opt": ("#CC79A7", "-."),
    "hm-tp": ("#0072B2", "-"),
    "three-outputs-flat": ("#009E73", ":"),
}


def compare_mechanisms(path: Path) -> None:
    """Draw worst-case variance over epsilon, the same relative to the best, and P(0 | 0)."""
    epsilons = np.linspace(0.25, 8.0, 311)
    variances = {
        name: np.array([mechanism(name, e).worst_case_variance for e in epsilons])
        for name in mechanisms()
    }
    best = np.min(list(variances.values()), axis=0)

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    absolute, relative, zero = figure.subplots(1, 3)
    for name, variance in variances.items():
        colour, style = STYLES[name]
        absolute.semilogy(epsilons, variance, style, color=colour, label=name)
        relative.plot(epsilons, variance / best, style, color=colour)
    absolute.set(title="Worst-case variance", ylabel="variance, log scale", ylim=(5e-3, 100))
    relative.set(title="Relative to the best of them", ylabel="times the best", ylim=(0.97, 2.0))
    for kind in (ThreeOutputs, ThreeOutputsFlat):
        colour, style = STYLES[kind.name]
        zero.plot(epsilons, [kind(e).a for e in epsilons], style, color=colour)
    zero.set(title="P(0 | 0) of the three-output ones", ylabel="probability", ylim=(0, 1))
    for axes in (absolute, relative, zero):
        axes.set(xlabel="privacy budget ε", xlim=(0, 8))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    figure.savefig(path, dpi=150)
