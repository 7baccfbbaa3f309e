"""Sources of random words that try every sequence in turn."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np

from fedldp import Source


class Chance:
    """Goes through all choices, one after another: each run takes the first that is left."""

    def __init__(self):
        self.path, self.place = [], 0  # what was picked, of how many

    def pick(self, options):
        if self.place == len(self.path):
            self.path.append((0, len(options)))
        number, count = self.path[self.place]
        assert count == len(options)
        self.place += 1
        return options[number]

    def runs(self):
        """Yield the probability of each run, when it is over."""
        while True:
            self.place = 0
            yield lambda: Fraction(1, math.prod(count for _, count in self.path))
            while self.path and self.path[-1][0] + 1 == self.path[-1][1]:
                self.path.pop()
            if not self.path:
                return
            self.path[-1] = self.path[-1][0] + 1, self.path[-1][1]


def leading(bits, size, parity=1):
    """Return words with all leading bits: the least of those with even ones, the last with odd."""
    rest = (1 << size - bits) - 1
    return [word << size - bits | rest * (word % 2 == parity) for word in range(1 << bits)]


class Every(Source):
    """Deals out the same words to all rows, and takes every course."""

    __slots__ = ("bits", "chance", "parity", "signs")

    def __init__(self, chance, bits, parity):
        super().__init__(bytes(32), "every")
        self.chance, self.bits, self.parity, self.signs = chance, bits, parity, False

    def below(self, n, size):
        return np.full(size, self.chance.pick(range(n)), np.int64)

    def fill(self, out):
        row = out[0].size
        if out.dtype == np.uint64:
            # A unary code, which takes a word for each bit, has odds of 4 in all.
            each = [leading(2 if out.ndim == 2 else self.bits, 64, self.parity)] * row
        elif out.ndim == 2 and not self.signs:
            out[:] = self.chance.pick(list(itertools.permutations(range(row))))  # of a cube's keys
            self.signs = True
            return
        else:  # which round: a value half-way is rounded up by one half of the words
            each = [leading(1, 32, self.parity)] * row
        out.reshape(len(out), -1)[:] = [self.chance.pick(words) for words in each]


class EveryRandom(random.Random):
    """The same for the vehicle's generator."""

    def __init__(self, chance, bits):
        super().__init__(1)
        self.chance, self.bits = chance, bits

    def getrandbits(self, size):
        return self.chance.pick(leading(self.bits if size == 64 else 1, size))

    def below(self, n):
        return self.chance.pick(range(n))

    def distinct(self, count):
        return self.chance.pick(list(itertools.permutations(range(count))))
