"""Newton's method for a polynomial, used where a closed form loses digits."""

from collections.abc import Sequence


def descend(coefficients: Sequence[float], start: float) -> float:
    """Follow Newton's method from `start` down to the root below it.

    Between the two, the polynomial (highest power first) must be rising and convex, or falling
    and concave. Then the iteration falls monotonically towards the root, and the first step that
    falls no further has reached it to the last digits.

    >>> descend((1.0, 0.0, -2.0), start=2.0)
    1.414213562373095...
    """
    x = start
    while True:
        value, slope = 0.0, 0.0
        for coefficient in coefficients:  # Horner's scheme, with the derivative
            slope = slope * x + value
            value = value * x + coefficient
        lower = x - value / slope
        if not lower < x:
            return x
        x = lower
