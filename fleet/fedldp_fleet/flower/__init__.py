"""Private training of Flower apps, and Flower as a road for the jobs of a server.

Public: `LDPMod` turns the replies of any ClientApp into reports, `private` makes a strategy that
adds them up, and `tally` counts them. The module `app` has the ServerApp and the ClientApp that run
a server's jobs. See docs/flower-mod.md.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedldp.errors import MissingExtra
from fedldp_fleet.library import attribute_loader

if find_spec("flwr") is None:
    raise MissingExtra("flwr", "flower", "fedldp-fleet")

__all__ = ["LDPMod", "forecast", "private", "tally"]

if TYPE_CHECKING:
    from fedldp_fleet.flower.mod import LDPMod, tally
    from fedldp_fleet.flower.strategy import forecast, private
else:
    __getattr__ = attribute_loader(
        __name__, {"mod": "LDPMod tally", "strategy": "forecast private"}
    )

    def __dir__() -> list[str]:
        """Return exactly the public names."""
        return sorted(__all__)
