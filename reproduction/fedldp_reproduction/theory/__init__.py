"""The paper's theory, computed: a function for each figure and table that needs no data."""

from collections.abc import Callable

from fedldp_reproduction.results import FigureResult
from fedldp_reproduction.theory import (
    cubic,
    hybrid,
    leak,
    lemmas,
    misprints,
    one_number,
    privacy,
    sampling,
    system,
)

FIGURES: dict[str, Callable[[], FigureResult]] = {
    "worst-case-variance": one_number.worst_case_variance,
    "table-1": one_number.table_1,
    "table-2": one_number.table_2,
    "table-3": system.table_3,
    "system": system.system,
    "leak": leak.leak,
    "optimal-a": one_number.optimal_a,
    "density": one_number.density,
    "pm-opt-vs-pm-sub": one_number.pm_opt_vs_pm_sub,
    "window-parameter": one_number.window_parameter,
    "a-star": cubic.compare_a_star,
    "cubic-roots": cubic.cubic_roots,
    "positivity": hybrid.positivity,
    "slopes": hybrid.slopes,
    "beta-intersection": hybrid.compare_betas,
    "sign-of-a": hybrid.sign_of_A,
    "choice-of-k": sampling.choice_of_k,
    "rounding-of-k": sampling.rounding_of_k,
    "lemmas": lemmas.lemmas,
    "privacy": privacy.privacy,
    "misprints": misprints.misprints,
}
