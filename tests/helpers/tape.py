"""What vehicles drew, recorded: so that an independent computation can use the same noise."""

from collections import deque

from fedldp import Channel, Source
from fedldp.coders.categories import UnaryEncoding
from fedldp.mechanisms import Mechanism


class Tape:
    """Records which coordinates vehicles choose, what goes into mechanisms, and what comes out.

    A group chooses first, if there is a choice; then each of its slots is drawn for all vehicles.
    """

    def __init__(self, monkeypatch):
        self.events = deque()
        self._wrap(monkeypatch, Source, "choose", lambda _, found, *_sizes: found)
        self._wrap(monkeypatch, Mechanism, "perturb", lambda self, y, x, _: (self.epsilon, x, y))
        self._wrap(
            monkeypatch, Channel, "encode", lambda self, y, x, _: (self.epsilon, x, self.values[y])
        )
        self._wrap(monkeypatch, UnaryEncoding, "encode", lambda self, y, x, _: (self.epsilon, x, y))

    def _wrap(self, monkeypatch, kind, name, event):
        plain = getattr(kind, name)

        def recorded(owner, *arguments):
            kept = [each.copy() if hasattr(each, "copy") else each for each in arguments]
            found = plain(owner, *arguments)
            self.events.append(event(owner, found, *kept))
            return found

        monkeypatch.setattr(kind, name, recorded)

    def answers(self, k, d):
        """Return for each vehicle of the next group its k answers: (coordinate, epsilon, x, y)."""
        chosen = self.events.popleft() if k < d else None
        slots = [self.events.popleft() for _ in range(k)]
        vehicles = len(slots[0][1])
        return deque(
            deque(
                (slot if chosen is None else int(chosen[i][slot]), epsilon, x[i], y[i])
                for slot, (epsilon, x, y) in enumerate(slots)
            )
            for i in range(vehicles)
        )


class Replay:
    """Algorithm 6's chance, from a tape: the coordinates, and the noisy value of each.

    What went into a mechanism is compared with what should have, and so is its epsilon.
    """

    def __init__(self, groups, close=1e-6):
        self._vehicles = deque(vehicle for group in groups for vehicle in group)
        self._close, self._now = close, deque()

    def sample(self, k, d):
        self._now = self._vehicles.popleft()
        assert len(self._now) == k
        places = [j for j, *_ in self._now]
        assert sorted(set(places)) == places  # different ones
        assert all(0 <= j < d for j in places)
        return places

    def one(self, j, x, epsilon):
        place, spent, seen, y = self._now.popleft()
        assert place == j
        assert abs(spent - epsilon) < 1e-12
        assert abs(seen - x) < self._close
        return y

    @property
    def used_up(self):
        return not self._vehicles and not self._now
