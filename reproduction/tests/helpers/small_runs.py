"""Two small figures, and what it takes to compute them."""

from dataclasses import replace

from fedldp_reproduction.figures import description
from fedldp_reproduction.runner import reproduce

KNOWN = description()
MEANS = replace(KNOWN.figure("means-gaussian"), data=("gaussian-0",), series=("pm", "hm-tp"))
MEANS = replace(MEANS, claims=())
MODELS = replace(KNOWN.figure("logistic"), data=("br",), series=("hm-tp", "non-private"), claims=())


def finished(keep, figures=(MEANS,), jobs=1, data=None, progress=lambda *_: None):
    return list(reproduce(figures, "test", data or {}, keep, jobs, progress))
