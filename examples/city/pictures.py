"""The map of the city, true and private, as a picture and over the day."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from survey import MOST_UNCERTAINTY, Speeds
from traffic import City, river

# Okabe and Ito's palette, safe for color-blind readers, from slow to fast.
_PALETTE = ["#D55E00", "#E69F00", "#F0E442", "#56B4E9", "#0072B2"]
_COLORS = LinearSegmentedColormap.from_list("speed", _PALETTE, N=12)
_GREY, _WATER = "#BBBBBB", "#D6EBF7"
_SCALE = Normalize(15, 45)  # km/h
_FRAME_MILLISECONDS = 1500
_COLORS_IN_A_FILE = 160


def maps(city: City, truth: Speeds, private: Speeds, epsilon: float, when: str = "") -> Figure:
    """Draw the true and the private map side by side; districts that are too uncertain are grey."""
    figure = Figure(figsize=(8, 4.1))
    grey = f"{private.grey.sum()} of {len(private.means)} districts grey"
    titles = (f"True{when}", f"Private, ε = {epsilon:g}: {grey}")
    for left, speeds, title in zip((0.005, 0.505), (truth, private), titles, strict=True):
        axes = figure.add_axes((left, 0.19, 0.49, 0.74))
        _draw(axes, city, speeds)
        axes.set_title(title, fontsize=13.5)
    bar = figure.add_axes((0.03, 0.125, 0.42, 0.045))
    scale = ScalarMappable(_SCALE, _COLORS)
    figure.colorbar(scale, cax=bar, orientation="horizontal", extend="both")
    ticks = [15, 25, 35, 45]
    bar.set_xticks(ticks, [*map(str, ticks[:-1]), "45 km/h"], fontsize=12)
    box = Rectangle((0.54, 0.11), 0.06, 0.06, color=_GREY, transform=figure.transFigure)
    figure.add_artist(box)
    text = f"too uncertain: more\nthan ± {MOST_UNCERTAINTY:g} km/h"
    figure.text(0.62, 0.1, text, fontsize=13, va="center")
    return figure


def save(figure: Figure, file: Path) -> None:
    """Write a picture with few colors, so that the file is small."""
    _image(figure, dpi=150).save(file, optimize=True)


def animate(figures: Sequence[Figure], file: Path) -> None:
    """Write a film of pictures."""
    first, *others = (_image(figure, dpi=80) for figure in figures)
    times = {"duration": _FRAME_MILLISECONDS, "loop": 0}
    first.save(file, save_all=True, append_images=others, optimize=True, **times)


def _draw(axes: Axes, city: City, speeds: Speeds) -> None:
    axes.set_aspect("equal")
    axes.axis("off")
    for place, (mean, grey) in enumerate(zip(speeds.means, speeds.grey, strict=True)):
        streets = city.streets[city.districts == place]
        color = _GREY if grey else _COLORS(_SCALE(mean))
        axes.add_collection(
            LineCollection(list(streets), color=color, linewidth=1.2 if grey else 3)
        )
        outline = [patheffects.withStroke(linewidth=3, foreground="white")]
        axes.text(
            *streets.mean(axis=(0, 1)),
            f"±{np.ceil(speeds.reach[place]):.0f}" if grey else f"{mean:.0f}",
            color="#666666" if grey else "black",
            fontsize=11 if grey else 14,
            fontweight="normal" if grey else "bold",
            ha="center",
            va="center",
            path_effects=outline,
        )
    axes.autoscale_view()
    west_to_east = np.linspace(*axes.get_xlim(), 100)
    axes.plot(west_to_east, river(west_to_east), color=_WATER, linewidth=7, zorder=0)


def _image(figure: Figure, dpi: int) -> Image.Image:
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    return picture.quantize(_COLORS_IN_A_FILE, dither=Image.Dither.NONE)
