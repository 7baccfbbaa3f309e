"""A broker that loses and forgets, and kills those who use it."""

import random


class Killed(BaseException):
    pass


class Chaos:
    """Kills whoever uses the broker, loses messages, and restarts the broker, now and then."""

    def __init__(self, broker, seed):
        self.rng, self.broker, self.kills = random.Random(seed), broker, 0
        self.active = True
        broker.lose = lambda _topic: self.happens(0.15)
        connect = broker.connect

        def breaking(client, **options):
            self.strike()
            found = connect(client, **options)
            for name in ("subscribe", "publish", "acknowledge", "receive", "retain"):
                setattr(found, name, self.risky(getattr(found, name)))
            return found

        broker.connect = breaking

    def happens(self, chance):
        return self.active and self.rng.random() < chance

    def strike(self):
        if self.happens(0.02):
            self.broker.crash()
        if self.happens(0.03):
            self.kills += 1
            raise Killed

    def risky(self, method):
        def called(*arguments, **options):
            self.strike()
            found = method(*arguments, **options)
            self.strike()
            return found

        return called
