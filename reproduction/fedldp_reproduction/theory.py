"""The paper's theory, computed: a function for each figure and table that needs no data."""

from collections.abc import Callable

from fedldp_reproduction import (
    theory_cubic,
    theory_hybrid,
    theory_lemmas,
    theory_misprints,
    theory_privacy,
    theory_sampling,
    theory_system,
    theory_text,
)
from fedldp_reproduction.tidy import Result

FIGURES: dict[str, Callable[[], Result]] = {
    "worst-case-variance": theory_text.worst_case_variance,
    "table-1": theory_text.table_1,
    "table-2": theory_text.table_2,
    "table-3": theory_system.table_3,
    "system": theory_system.system,
    "optimal-a": theory_text.optimal_a,
    "density": theory_text.density,
    "pm-opt-vs-pm-sub": theory_text.pm_opt_vs_pm_sub,
    "window-parameter": theory_text.window_parameter,
    "a-star": theory_cubic.compare_a_star,
    "cubic-roots": theory_cubic.cubic_roots,
    "positivity": theory_hybrid.positivity,
    "slopes": theory_hybrid.slopes,
    "beta-intersection": theory_hybrid.compare_betas,
    "sign-of-a": theory_hybrid.sign_of_A,
    "choice-of-k": theory_sampling.choice_of_k,
    "rounding-of-k": theory_sampling.rounding_of_k,
    "lemmas": theory_lemmas.lemmas,
    "privacy": theory_privacy.privacy,
    "misprints": theory_misprints.misprints,
}
