"""The paper's algorithms as a reader would write them down: plain Python, nothing of the library.

Misprints are corrected: |x| in P(0 | x), and the sign in P(-C | x). What is random comes from
`rng`, a `random.Random`; where a comparison must be exact, noise that was recorded takes its place.
"""

from math import acos, cos, exp, floor, log, pi, sqrt

# Algorithm 2: Three-Outputs


def p_0_of_0(epsilon):
    """Equation (a_opt_1)."""
    e = exp(epsilon)
    if epsilon < log(2):
        return 0.0
    if epsilon > log((3 + sqrt(65)) / 2):
        return e / (e + 2)
    delta_0 = e**4 + 14 * e**3 + 50 * e**2 - 2 * e + 25
    delta_1 = -2 * e**6 - 42 * e**5 - 270 * e**4 - 404 * e**3 - 918 * e**2 + 30 * e - 250
    angle = pi / 3 + acos(-delta_1 / (2 * delta_0**1.5)) / 3
    return -(-(e**2) - 4 * e - 5 + 2 * sqrt(delta_0) * cos(angle)) / 6


def three_outputs(x, epsilon, rng):
    e, a = exp(epsilon), p_0_of_0(epsilon)
    c = e * (e + 1) / ((e - 1) * (e - a))
    if x < 0:
        return -three_outputs(-x, epsilon, rng)
    p_minus = (1 - a) / 2 - ((1 - a) / 2 - (e - a) / (e * (e + 1))) * x
    p_zero = a + (a / e - a) * x
    u = rng.random()
    if u < p_minus:
        return -c
    if u < p_minus + p_zero:
        return 0.0
    return c


# Algorithm 4: PM-SUB


def pm_sub(x, epsilon, rng):
    e, t = exp(epsilon), exp(epsilon / 3)
    a = (e + t) * (t + 1) / (t * (e - 1))
    left = (e + t) * (x * t - 1) / (t * (e - 1))
    right = (e + t) * (x * t + 1) / (t * (e - 1))
    u = rng.random()
    if u < e / (t + e):
        return rng.uniform(left, right)
    place = rng.uniform(0, (left + a) + (a - right))
    return -a + place if place < left + a else right + (place - (left + a))


# HM-TP, with Equation (beta-value)


def beta(epsilon):
    c, t, a = exp(epsilon), exp(epsilon / 3), p_0_of_0(epsilon)
    if epsilon < 0.610986:
        return 0.0
    if epsilon < log(2):
        return (c - 1) / (c + t)
    big_a = (
        a**2 * c**2 * (c + 1) ** 4 / (4 * (c + t) ** 2 * (c - a) ** 4 * (c - 1))
        - a**2 * c**2 * (c + 1) ** 4 / (2 * (c + t) ** 2 * (c - 1) * (c - a) ** 4)
        + ((t + 1) ** 3 + c - 1) / (3 * t**2 * (c - 1) ** 2)
        - (1 - a) * c**2 * (c + 1) ** 2 / ((c + t) * (c - 1) ** 2 * (c - a) ** 2)
    )
    big_b = -((1 + t) ** 2) * a**2 * c**2 * (c + 1) ** 4
    big_b /= 4 * (c + t) ** 2 * (c - a) ** 4 * (c - 1)
    return (-sqrt(big_b / big_a) + c - 1) / (c + t)


def hm_tp(x, epsilon, rng):
    return (pm_sub if rng.random() < beta(epsilon) else three_outputs)(x, epsilon, rng)


MECHANISMS = {"three-outputs": three_outputs, "pm-sub": pm_sub, "hm-tp": hm_tp}


# Algorithm 5: discretization


def discretize(y, c, m, bernoulli):
    """`bernoulli(p)` is 1 with probability p."""
    if bernoulli((c * (floor(m * y / c) + 1) / m - y) * m / c) == 1:
        return c * floor(m * y / c) / m
    return c * (floor(m * y / c) + 1) / m


# Algorithm 6: k of d attributes


def k_of(epsilon, d):
    return max(1, min(d, floor(epsilon / 2.5)))


def perturb_tuple(x, epsilon, sample, one):
    """`sample(k, d)` draws k of range(d); `one(j, x, epsilon)` is the noisy value of x[j]."""
    d = len(x)
    y = [0.0] * d
    k = k_of(epsilon, d)
    for j in sample(k, d):
        y[j] = d / k * one(j, x[j], epsilon / k)
    return y


# Algorithm 1: LDP-FedSGD


def ldp_fedsgd(d, groups, gradient, noisy, rate, max_iter, tol, weight=0.0):
    """Return the parameters, and after how many rounds it stopped.

    `gradient(theta, i)` is the true gradient of vehicle i, `noisy` the algorithm M, and `weight`
    the lambda of the regularization lambda/2 |theta|^2.
    """
    theta, t = [0.0] * d, 0
    while t < max_iter:
        t += 1
        total = [0.0] * d
        for i in groups[t - 1]:
            noise = noisy(gradient(theta, i))
            total = [each + more for each, more in zip(total, noise, strict=True)]
        before = theta
        theta = [
            old - rate * (each / len(groups[t - 1]) + weight * old)
            for old, each in zip(before, total, strict=True)
        ]
        moved = sqrt(sum((new - old) ** 2 for new, old in zip(theta, before, strict=True)))
        if moved < tol or t == len(groups):  # close enough, or no vehicle is left
            break
    return theta, t


def true_gradient(objective, theta, x, y):
    z = sum(weight * each for weight, each in zip(theta, x, strict=True))
    slope = {
        "squared": lambda: z - y,
        "logistic": lambda: -y / (1 + exp(y * z)),
        "hinge": lambda: -y if y * z < 1 else 0.0,
    }[objective]()
    return [max(-1.0, min(1.0, slope * each)) for each in x]  # Algorithm 6 takes [-1, 1]^d


# Experiments B: k values become k - 1 binary attributes


def one_hot(value, values):
    if value == values[-1]:  # -1 on all of them represents the k-th value
        return [-1.0] * (len(values) - 1)
    return [1.0 if value == each else -1.0 for each in values[:-1]]


# Experiments A: numbers and categories


def collect(rows, numbers, categories, epsilon, sample, one, unary):
    """Return the mean of each number, which is on [-1, 1], and the frequencies of each category.

    Each row is a pair: its numbers, and the places of its categories in their lists. The bits that
    OUE makes of the value v of the j-th category are `unary(j, v, epsilon)`.
    """
    n, d_n, d_c = len(rows), len(numbers), len(categories)
    d = d_n + d_c
    means = [0.0] * d_n
    frequencies = [[0.0] * a for a in categories]
    for x, labels in rows:
        noisy = perturb_tuple(x, d_n * epsilon / d, sample, one)
        means = [mean + each / n for mean, each in zip(means, noisy, strict=True)]
        k = k_of(d_c * epsilon / d, d_c)
        each = d_c * epsilon / d / k
        p, q = 1 / 2, 1 / (exp(each) + 1)
        for j in sample(k, d_c):
            for v, bit in enumerate(unary(j, labels[j], each)):
                frequencies[j][v] += d_c / k * (bit - q) / (p - q) / n
    return means, frequencies
