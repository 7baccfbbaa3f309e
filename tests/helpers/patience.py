"""How long tests wait for what must happen: they wait for events, and seconds decide nothing."""

HANG_SECONDS = 900  # whatever takes longer hangs, on the slowest machine too
