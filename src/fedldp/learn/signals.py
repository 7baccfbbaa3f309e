"""Fixed public features of signals: what a vehicle computes from a window before it answers.

A network on raw signals has many weights, and noise in each of them. Features that are fixed and
public need none: a linear model on them is convex, has few weights, and gets the survey and the
noise-aware server. `Convolutions` are random filters from a public seed, with the logarithm of the
variance of each output, as in ROCKET (Dempster, Petitjean and Webb 2020) with another pooling.
`WindowStatistics` are the usual ones. Both take windows, and return one row of numbers for each.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast, final

import numpy as np
import numpy.typing as npt

from fedldp._internal.validation import Floats, is_real, reals, whole
from fedldp.errors import DomainError
from fedldp.learn.layers import LEAST_LOG, MOST_LOG, Conv, LogVariance
from fedldp.learn.networks import Network
from fedldp.learn.objectives import Objective
from fedldp.randomness import source
from fedldp.schema.attributes import Number
from fedldp.schema.schema import Schema

FEWEST_SAMPLES = 32  # of a window
WIDTHS, DILATIONS = (5, 9), (1, 2, 3)  # of filters, drawn for each
_AT_ONCE = 8192  # windows

Bounds = tuple[list[float], list[float]]


class SignalFeatures(Protocol):
    """A public map from windows of signals to numbers with public bounds."""

    @property
    def schema(self) -> Schema:
        """The numbers, with their bounds."""

    @property
    def bounds(self) -> Bounds:
        """The lower and the upper bounds, as the estimators take them."""

    def transform(self, windows: npt.ArrayLike) -> Floats:
        """Return the numbers of each window."""


@final
@dataclass(frozen=True)
class Window:
    """The shape and the range of a window of signals.

    Parameters
    ----------
    channels : int
        The number of signals.
    length : int
        How many samples each has, at least 32.
    low, high : float
        Public bounds of a sample. Those outside count as the bound.

    Examples
    --------
    >>> Window(channels=3, length=64, low=-2, high=2).units([[[4.0] * 64] * 3])[0, 0, :2]
    array([1., 1.])
    """

    channels: int
    length: int
    low: float
    high: float

    def __post_init__(self) -> None:
        if whole(self.channels, "channels") < 1 or whole(self.length, "length") < FEWEST_SAMPLES:
            raise DomainError(
                f"a window has at least 1 channel and {FEWEST_SAMPLES} samples; got "
                f"{self.channels} and {self.length}."
            )
        if not (is_real(self.low) and is_real(self.high) and self.low < self.high):
            raise DomainError(
                f"low and high must be numbers, low below high; got {self.low!r}, {self.high!r}."
            )

    def units(self, windows: npt.ArrayLike) -> Floats:
        """Return windows on the scale of [-1, 1].

        Parameters
        ----------
        windows : array-like of shape (windows, channels, length)
            The samples. Missing ones (NaN) count as the centre of the bounds.

        Returns
        -------
        ndarray of shape (windows, channels, length)
            The scaled samples.

        Examples
        --------
        >>> float(Window(1, 32, low=0, high=10).units(np.full((1, 1, 32), 7.5))[0, 0, 0])
        0.5
        """
        found = reals(windows, "windows")
        if found.ndim != 3 or found.shape[1:] != (self.channels, self.length):
            raise DomainError(
                f"windows must have the shape (windows, {self.channels}, {self.length}); got "
                f"{found.shape}."
            )
        centre, half_width = (self.low + self.high) / 2, (self.high - self.low) / 2
        return np.asarray(np.nan_to_num(np.clip((found - centre) / half_width, -1, 1), nan=0.0))


@final
@dataclass(frozen=True)
class Convolutions:
    """Random filters from a public seed: the log-variance of each output, and the channels' means.

    Parameters
    ----------
    window : Window
        The shape and the range of a window.
    filters : int, default=10
        The number of filters.
    seed : int, default=0
        The public seed of the filters.

    Examples
    --------
    >>> import fedldp
    >>> maps = Convolutions(Window(channels=3, length=64, low=-2, high=2))
    >>> len(maps.schema.attributes), maps.transform(np.zeros((5, 3, 64))).shape
    (13, (5, 13))
    >>> model = fedldp.LDPLogisticRegression(epsilon=1.0, bounds=maps.bounds)
    """

    window: Window
    filters: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if whole(self.filters, "filters") < 1:
            raise DomainError(f"filters must be at least 1; got {self.filters!r}.")

    @cached_property
    def kernels(self) -> tuple[Floats, ...]:
        """The filters, of shape (channels, samples): each has the mean 0 and the length 1."""
        random, drawn = source(self.seed), []
        for _ in range(self.filters):
            width = WIDTHS[int(random.below(len(WIDTHS), 1)[0])]
            dilation = DILATIONS[int(random.below(len(DILATIONS), 1)[0])]
            taps = random.uniform((self.window.channels, width)) * 2 - 1
            taps -= taps.mean(axis=1, keepdims=True)
            taps /= np.sqrt((taps**2).sum())
            kernel = np.zeros((self.window.channels, (width - 1) * dilation + 1))
            kernel[:, ::dilation] = taps
            drawn.append(kernel)
        return tuple(drawn)

    @property
    def schema(self) -> Schema:
        """The numbers, with their bounds."""
        logs = [Number(f"filter {place}", LEAST_LOG, MOST_LOG) for place in range(self.filters)]
        return Schema((*logs, *_means(self.window)))

    @property
    def bounds(self) -> Bounds:
        """The lower and the upper bounds, as the estimators take them."""
        return _bounds_of(self.schema)

    def network(self, goal: Objective) -> Network:
        """Return a network with these filters, fixed, of which only the last layer is trained.

        It is data, which agents and `fedldp train --network` take. Its samples are on the scale of
        [-1, 1]. All filters slide over the same places, so that numbers differ a little from those
        of `transform`.

        Parameters
        ----------
        goal : Objective
            The loss, with as many outputs as the target needs.

        Returns
        -------
        Network
            The network.

        Examples
        --------
        >>> from fedldp.learn import objective
        >>> maps = Convolutions(Window(channels=3, length=64, low=-2, high=2))
        >>> maps.network(objective("softmax").with_outputs(4)).dimensions
        56
        """
        channels, width = self.window.channels, max(each.shape[1] for each in self.kernels)
        filters = np.zeros((self.filters + channels, channels, width))
        for place, kernel in enumerate(self.kernels):
            first = (width - kernel.shape[1]) // 2
            filters[place, :, first : first + kernel.shape[1]] = kernel
        for channel in range(channels):
            filters[self.filters + channel, channel] = 1 / width
        layers = Conv(len(filters), width, bias=False), LogVariance(means=channels)
        fixed = tuple(filters.reshape(-1).tolist())
        return Network((channels, self.window.length), layers, goal, fixed)

    def transform(self, windows: npt.ArrayLike) -> Floats:
        """Return the numbers of each window.

        Parameters
        ----------
        windows : array-like of shape (windows, channels, length)
            The samples.

        Returns
        -------
        ndarray of shape (windows, filters + channels)
            The logarithms of variances, and the means in the unit of the samples.

        Examples
        --------
        >>> maps = Convolutions(Window(1, 64, low=-1, high=1), filters=2)
        >>> slow, fast = (np.sin(np.arange(64) * step)[None, None] for step in (0.01, 1.0))
        >>> bool((maps.transform(slow)[0, :2] < maps.transform(fast)[0, :2]).all())
        True
        """
        units = self.window.units(windows)
        found = np.empty((len(units), self.filters + self.window.channels))
        for first in range(0, len(units), _AT_ONCE):
            part = units[first : first + _AT_ONCE]
            for place, kernel in enumerate(self.kernels):
                found[first : first + _AT_ONCE, place] = _log_variances(part, kernel)
        found[:, self.filters :] = _in_units(self.window, units.mean(axis=2))
        return found


@final
@dataclass(frozen=True)
class WindowStatistics:
    """The usual statistics of a window: means, spreads, and four numbers of the vector's length.

    Parameters
    ----------
    window : Window
        The shape and the range of a window.

    Examples
    --------
    >>> statistics = WindowStatistics(Window(channels=3, length=64, low=-2, high=2))
    >>> statistics.transform(np.ones((1, 3, 64))).round(2)
    array([[1.  , 1.  , 1.  , 0.  , 0.  , 0.  , 1.73, 0.  , 0.  , 0.  ]])
    """

    window: Window

    @property
    def schema(self) -> Schema:
        """The numbers, with their bounds."""
        window = self.window
        half_width = (window.high - window.low) / 2
        most = max(abs(window.low), abs(window.high)) * window.channels**0.5
        spreads = [Number(f"spread {each}", 0, half_width) for each in range(window.channels)]
        names = "length", "spread of length", "change of length", "range of length"
        ends = most, most / 2, most, most
        of_length = [Number(name, 0, end) for name, end in zip(names, ends, strict=True)]
        return Schema((*_means(window), *spreads, *of_length))

    @property
    def bounds(self) -> Bounds:
        """The lower and the upper bounds, as the estimators take them."""
        return _bounds_of(self.schema)

    def transform(self, windows: npt.ArrayLike) -> Floats:
        """Return the numbers of each window.

        Parameters
        ----------
        windows : array-like of shape (windows, channels, length)
            The samples.

        Returns
        -------
        ndarray of shape (windows, 2 * channels + 4)
            The mean and the standard deviation of each channel; the mean, the standard deviation,
            the mean change and the range of the length of the samples as vectors.

        Examples
        --------
        >>> waves = np.sin(np.arange(64))[None, None]
        >>> round(float(WindowStatistics(Window(1, 64, -1, 1)).transform(waves)[0, 1]), 2)
        0.7
        """
        samples = _in_units(self.window, self.window.units(windows))
        length = np.sqrt((samples**2).sum(axis=1))
        columns = (
            samples.mean(axis=2),
            samples.std(axis=2),
            length.mean(axis=1),
            length.std(axis=1),
            np.abs(np.diff(length, axis=1)).mean(axis=1),
            np.ptp(length, axis=1),
        )
        return np.column_stack(columns)


def _bounds_of(schema: Schema) -> Bounds:
    numbers = [cast(Number, attribute) for attribute in schema.attributes]
    return [number.low for number in numbers], [number.high for number in numbers]


def _means(window: Window) -> list[Number]:
    return [Number(f"mean {each}", window.low, window.high) for each in range(window.channels)]


def _in_units(window: Window, units: Floats) -> Floats:
    """Return numbers on the scale of [-1, 1] in the unit of the samples."""
    found: Floats = (window.low + window.high) / 2 + units * (window.high - window.low) / 2
    return found


def _log_variances(units: Floats, kernel: Floats) -> Floats:
    """Return the logarithm of the variance of what a filter makes of each window."""
    views: npt.NDArray[Any] = np.lib.stride_tricks.sliding_window_view(
        units, kernel.shape[1], axis=2
    )[..., np.flatnonzero((kernel != 0).any(axis=0))]
    outputs = np.einsum("ncts,cs->nt", views, kernel[:, (kernel != 0).any(axis=0)], optimize=True)
    variances = outputs.var(axis=1)
    return np.asarray(np.clip(np.log10(np.maximum(variances, 1e-12)), LEAST_LOG, MOST_LOG))
