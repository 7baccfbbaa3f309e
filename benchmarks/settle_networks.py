"""How to train networks, settled on SYNTHETIC problems: rates, rounds, clipping and first weights.

Random kinds of signals are told apart by a small convolutional network, and random tables by a
multilayer perceptron. Each vehicle is asked once. Noise is normal, with the known variance of a
round's mean gradient under directions, so that hundreds of trainings run at once on a GPU. A grid
of options is given as JSON; every combination is tried on every problem:

    python benchmarks/settle_networks.py '{"epsilon": [1, 4], "rate": [0.03, 0.06]}' \
      --units 4 16 --rounds 300

Options and their defaults are those of `Trial`. The signals of `networks.py` are not among these
problems.
"""

import argparse
import itertools
import json
import math
import time
from dataclasses import asdict, dataclass, fields

import torch
from torch.func import grad, vmap

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LENGTH, RATE_HZ, WIDTH, STRIDE = 64, 20.0, 5, 2
NOISE = {1.0: (6.499, 0.0), 2.0: (0.74, 1.11), 4.0: (0.09, 0.38)}  # of a report: a + b |g|
NUMBERS = 3e8  # of gradients at a time
TESTED = 2000


@dataclass(frozen=True)
class Trial:
    """The options of a training."""

    epsilon: float = 4.0
    rate: float = 0.06
    bound: float = 1.0
    momentum: float = 0.8
    memory: float = 0.999  # of squared gradients
    shared: float = 0.0  # 1: one scale for all weights, 2: one for each layer, 3: the known noise
    first: float = 1.0  # factor of the first weights
    last: float = 0.0  # standard deviation of the first weights of the last layer
    decay: float = 0.0  # power with which the rate falls to 0
    layer: float = 1.0  # factor of the rate of hidden layers
    wiener: float = 0.0  # 1: steps shrink where momentum is below the noise
    noise: float = 1.0  # 0: none


class Signals:
    """Problems with some kinds of signals, which differ in pace, strength and orientation."""

    def __init__(self, problems: int, classes: int, seed: int) -> None:
        self.problems, self.classes = problems, classes
        self.random = torch.Generator(DEVICE).manual_seed(seed)
        self.pace = 0.7 + 2.5 * self._uniform(classes)
        self.strength = 0.02 * 40.0 ** self._uniform(classes)
        self.overtone = self.strength * (0.2 + 0.8 * self._uniform(classes))
        self.noise, self.tilt = 0.03 + 0.07 * self._uniform(1), 0.2 + 0.2 * self._uniform(1)
        up = self._normal(3)
        self.up = up / up.norm(dim=1, keepdim=True)
        self.own = 0.3 * self._normal(classes, 3) * (self._uniform(1, 1) < 0.5)

    def _uniform(self, *shape: int) -> torch.Tensor:
        return torch.rand(self.problems, *shape, generator=self.random, device=DEVICE)

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(self.problems, *shape, generator=self.random, device=DEVICE)

    def draw(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows and classes of n vehicles of each problem."""
        y = torch.randint(self.classes, (self.problems, n), generator=self.random, device=DEVICE)
        pace = self.pace.gather(1, y) * (1 + 0.1 * self._normal(n))
        seconds = torch.arange(LENGTH, device=DEVICE) / RATE_HZ
        angle = 2 * math.pi * (pace[..., None] * seconds + self._uniform(n, 1))
        over = torch.sin(2 * angle + 2 * math.pi * self._uniform(n, 1))
        steps = self.strength.gather(1, y)[..., None] * torch.sin(angle)
        steps = steps + self.overtone.gather(1, y)[..., None] * over
        up = self.up[:, None] + self.tilt[..., None] * self._normal(n, 3)
        up = up + self.own.gather(1, y[..., None].expand(-1, -1, 3))
        along = self.up[:, None] + 0.6 * self._normal(n, 3)
        up, along = (each / each.norm(dim=2, keepdim=True) for each in (up, along))
        noise = self.noise[..., None, None] * self._normal(n, 3, LENGTH)
        return up[..., None] + along[..., None] * steps[:, :, None] + noise, y

    inputs = 3 * WIDTH

    @staticmethod
    def hidden(filters: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        seen = x.unfold(1, WIDTH, STRIDE).permute(1, 0, 2).reshape(-1, 3 * WIDTH)
        return torch.nn.functional.silu(seen @ filters[:, :-1].T + filters[:, -1]).mean(0)


class Tables:
    """Problems with some numbers, whose class a random network decides."""

    def __init__(self, problems: int, classes: int, seed: int, inputs: int = 8) -> None:
        self.problems, self.classes, self.inputs = problems, classes, inputs
        self.random = torch.Generator(DEVICE).manual_seed(seed)
        self.mixing = torch.eye(inputs, device=DEVICE) + 0.1 * self._normal(inputs, inputs)
        self.first = self._normal(inputs, 6) * 2 / math.sqrt(inputs)
        self.bias, self.second = self._normal(1, 6), self._normal(6, classes)

    _normal = Signals._normal

    def draw(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows and classes of n vehicles of each problem."""
        x = self._normal(n, self.inputs) @ self.mixing
        z = torch.tanh(x @ self.first + self.bias) @ self.second
        return x.clamp(-3, 3), (z + 0.4 * self._normal(n, self.classes)).argmax(dim=2)

    @staticmethod
    def hidden(weights: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(weights[:, :-1] @ x + weights[:, -1])


def errors(
    data: Signals | Tables, trials: list[Trial], units: int, rounds: int, vehicles: int, seed: int
) -> tuple[torch.Tensor, float]:
    """Return the error of each trial on each problem, and the mean length of gradients."""
    problems, classes, several = data.problems, data.classes, len(trials)
    n, replicas = vehicles // rounds, problems * several
    split = units * (data.inputs + 1)
    d = split + classes * (units + 1)
    random = torch.Generator(DEVICE).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, device=DEVICE)

    def option(name: str) -> torch.Tensor:
        found = torch.tensor([getattr(each, name) for each in trials], device=DEVICE)
        return found.repeat_interleave(problems)[:, None]

    def scores(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        last = w[split:].view(classes, units + 1)
        return last[:, :-1] @ data.hidden(w[:split].view(units, -1), x) + last[:, -1]

    def loss(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = scores(w, x)
        return torch.logsumexp(z, 0) - (z * (torch.arange(classes, device=DEVICE) == y)).sum()

    weights = torch.zeros(replicas, d, device=DEVICE)
    gain = math.sqrt((2 if isinstance(data, Signals) else 1) / data.inputs)
    first = normal(problems, units, data.inputs).repeat(several, 1, 1) * gain
    last = normal(problems, classes, units).repeat(several, 1, 1) / math.sqrt(units)
    weights[:, :split].view(replicas, units, -1)[..., :-1] = first * option("first")[..., None]
    weights[:, split:].view(replicas, classes, -1)[..., :-1] = last * option("last")[..., None]
    base, slope = (
        torch.tensor([NOISE[each.epsilon][i] * each.noise for each in trials], device=DEVICE)
        .repeat_interleave(problems)[:, None]
        .float()
        for i in range(2)
    )
    bound, kept, memory = option("bound"), option("momentum"), option("memory")
    shared = option("shared")
    rates = option("rate") * torch.ones_like(weights)
    rates[:, :split] *= option("layer")
    momentum, squares, average = (torch.zeros_like(weights) for _ in range(3))
    average += weights
    gradients = vmap(vmap(grad(loss), in_dims=(None, 0, 0)))
    at_once, lengths = max(1, int(NUMBERS / (replicas * d))), 0.0
    for t in range(1, rounds + 1):
        x, y = data.draw(n)
        total = torch.zeros_like(weights)
        length = torch.zeros(replicas, 1, device=DEVICE)
        for start in range(0, n, at_once):
            block = slice(start, start + at_once)
            mine = x[:, block].repeat(several, *[1] * (x.dim() - 1)), y[:, block].repeat(several, 1)
            found = gradients(weights, *mine)
            norms = found.norm(dim=2).clamp_min(1e-9)
            factors = (bound / norms).clamp_max(1.0)
            total += (found * factors[..., None]).sum(1)
            length += (norms * factors).sum(1, keepdim=True) / bound
        lengths += float(length.mean()) / n / rounds
        variance = (base + slope * length / n) * bound**2 / n
        mean = total / n + variance.sqrt() * normal(replicas, d)
        over = mean[:, split:].view(replicas, classes, -1)
        over -= over.mean(dim=1, keepdim=True)  # the sum over the classes is noise alone
        momentum = kept * momentum + (1 - kept) * mean
        squares = memory * squares + (1 - memory) * mean**2
        scale = squares / (1 - memory**t)
        layers = torch.cat(
            [
                part.mean(dim=1, keepdim=True).expand_as(part)
                for part in (scale[:, :split], scale[:, split:])
            ],
            dim=1,
        )
        scale = torch.where(shared == 1, scale.mean(dim=1, keepdim=True), scale)
        scale = torch.where(shared == 2, layers, scale)
        scale = torch.where(shared == 3, variance, scale)
        move = momentum / (1 - kept**t)
        below = variance * (1 - kept) / (1 + kept)
        shrunk = move * (1 - below / move**2).clamp_min(0.0)
        move = torch.where(option("wiener") > 0, shrunk, move)
        fallen = (1 - (t - 1) / rounds) ** option("decay")
        weights = weights - rates * fallen * move / (scale.sqrt() + 1e-8)
        average = average + 3 / (t + 2) * (weights - average)
    x, y = data.draw(TESTED)
    told = vmap(vmap(scores, in_dims=(None, 0)))
    wrong = [
        (told(part, x).argmax(dim=2) != y).float().mean(dim=1) for part in average.split(problems)
    ]
    return torch.stack(wrong).cpu(), lengths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("grid", nargs="+", help="options of trials as JSON, each a list")
    parser.add_argument("--kind", choices=["signals", "tables"], default="signals")
    parser.add_argument("--problems", type=int, default=24)
    parser.add_argument("--classes", type=int, default=5)
    parser.add_argument("--units", type=int, nargs="+", default=[4, 16])
    parser.add_argument("--rounds", type=int, nargs="+", default=[500])
    parser.add_argument("--vehicles", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=11)
    chosen = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    kinds = {"signals": Signals, "tables": Tables}
    usual = asdict(Trial())
    for grid, units, rounds in itertools.product(chosen.grid, chosen.units, chosen.rounds):
        lists = json.loads(grid)
        assert lists.keys() <= {each.name for each in fields(Trial)}, lists
        trials = [
            Trial(**dict(zip(lists, map(float, each), strict=True)))
            for each in itertools.product(*lists.values())
        ]
        began = time.monotonic()
        for start in range(0, len(trials), 24):
            some = trials[start : start + 24]
            data = kinds[chosen.kind](chosen.problems, chosen.classes, chosen.seed)
            found, length = errors(data, some, units, rounds, chosen.vehicles, chosen.seed)
            for trial, wrong in zip(some, found, strict=True):
                changed = {k: v for k, v in asdict(trial).items() if v != usual[k] or k in lists}
                print(
                    f"{chosen.kind} {units} units, {rounds} rounds, {changed}: "
                    f"{wrong.mean():.4f} (sd {wrong.std():.3f}, worst {wrong.max():.3f})",
                    flush=True,
                )
        print(f"mean length {length:.2f}; {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
