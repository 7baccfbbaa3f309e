"""What a round's noise does to a training: from where on `private` asks for force=True.

python benchmarks/flower_noise.py

Synthetic classes, softmax, 200 nodes with ten rows each, updates clipped to a length of 1. Noise of
a known length is added to the mean update, which is then shortened to 1, as `private` does. The
table shows which share of the accuracy above chance remains, compared with no noise.
"""

import numpy as np
from pages import Table, options

NODES, ROWS, SEEDS = 200, 10, 6
PROBLEMS = {15: (3, 4), 84: (4, 20)}  # weights: classes and features
MULTIPLES = (1, 3, 5, 10, 20)


def steps(rounds, adam):
    """Yield a function for each round, from an update to the step that the server makes."""
    mean, square = 0.0, 0.0

    def step(number, update):
        nonlocal mean, square
        if not adam:
            return update
        mean, square = 0.9 * mean + 0.1 * update, 0.99 * square + 0.01 * update**2
        rate = 0.1 * np.sqrt(1 - 0.99 ** (number + 1)) / (1 - 0.9 ** (number + 1))
        return rate * mean / (np.sqrt(square) + 1e-3)

    for number in range(1, rounds + 1):
        yield lambda update, number=number: step(number, update)


def accuracy(weights, multiple, rounds, adam, seed):
    classes, features = PROBLEMS[weights]
    rng = np.random.default_rng(seed)
    centres = 1.5 * rng.normal(size=(classes, features))

    def draw(count):
        y = rng.integers(classes, size=count)
        x = centres[y] + rng.normal(size=(count, features))
        return np.c_[x, np.ones(count)] / 2, y

    test, truth = draw(4000)
    x, y = (each.reshape(NODES, ROWS, *each.shape[1:]) for each in draw(NODES * ROWS))
    model = np.zeros((features + 1, classes))
    for step in steps(rounds, adam):
        own = np.repeat(model[None], NODES, axis=0)
        for _ in range(5):
            odds = np.exp(x @ own)
            error = odds / odds.sum(axis=-1, keepdims=True) - np.eye(classes)[y]
            own -= 0.5 * np.swapaxes(x, 1, 2) @ error / ROWS
        moves = (own - model).reshape(NODES, -1)
        moves /= np.maximum(1.0, np.linalg.norm(moves, axis=1))[:, None]
        update = moves.mean(axis=0) + rng.normal(size=weights) * multiple / np.sqrt(weights)
        update /= max(1.0, np.linalg.norm(update))
        model = model + step(update).reshape(model.shape)
    return float(np.mean((test @ model).argmax(axis=1) == truth))


def kept(weights, multiple, rounds, adam):
    """Return the share of the accuracy above chance that remains."""
    chance = 1 / PROBLEMS[weights][0]
    with_noise, without = (
        np.mean([accuracy(weights, each, rounds, adam, seed) for seed in range(SEEDS)]) - chance
        for each in (multiple, 0)
    )
    return with_noise / without


def main() -> Table:
    rows = [
        [
            f"{weights} weights, {rounds} rounds, {'FedAdam' if adam else 'FedAvg'}",
            *(f"{kept(weights, multiple, rounds, adam):.0%}" for multiple in MULTIPLES),
        ]
        for weights in PROBLEMS
        for rounds in (3, 10, 30)
        for adam in (False, True)
    ]
    headings = ["noise of a round / clipped update", *map(str, MULTIPLES)]
    table = Table("The share of the accuracy above chance that remains", headings, rows)
    table.print()
    return table


if __name__ == "__main__":
    options(__doc__).parse_args()
    main()
