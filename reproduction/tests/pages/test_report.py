"""Pictures of figures, and the page that holds all of them."""

import csv
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from made_results import COMPETITORS, PANELS, made, table
from theory_results import computed

from fedldp.errors import DomainError
from fedldp_reproduction import environment
from fedldp_reproduction.figures import description
from fedldp_reproduction.pages import report
from fedldp_reproduction.pages.drawing import NARROW, WIDE, describe, draw, heading, svg
from fedldp_reproduction.results import ClaimVerdict, Point

VOID = {"img", "link", "meta", "source"}
HOSTILE = '<script>alert("1")</script> & $x_1$ [/b]'


class Page(HTMLParser):
    """A page that is read strictly: every element is closed, in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self._open = [], "", []
        self.feed(text)
        self.close()
        assert not self._open

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data):
        self.text += data

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]


def write(results, folder, expected=None):
    sections = [report.section(result, folder) for result in results]
    written = report.write(sections, folder, "quick", expected or len(results))
    return Page(written.read_text("utf-8"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where the page of two figures and a table is."""
    folder = tmp_path_factory.mktemp("report")
    write([made(), table(), computed("density")], folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / report.NAME).read_text("utf-8"))


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("panels", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3))])
def test_panels_stand_side_by_side_and_on_a_phone_one_below_the_other(panels, shape):
    result = made(panels=[f"panel {number}" for number in range(panels)])
    wide, narrow = draw(result), draw(result, NARROW)
    assert len(wide.axes) == len(narrow.axes) == panels
    assert wide.axes[0].get_gridspec().get_geometry() == shape
    assert narrow.axes[0].get_gridspec().get_geometry() == (panels, 1)
    assert narrow.get_figwidth() <= NARROW
    assert wide.get_figwidth() <= WIDE


def test_a_picture_has_a_line_with_intervals_for_each_competitor():
    figure = draw(made())
    for axes in figure.axes:
        assert [line.get_label() for line in axes.containers] == list(COMPETITORS)
        lines = [bars.lines[0] for bars in axes.containers]
        assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(lines)
        assert lines[1].get_ydata().tolist() == [2.0, 1.0, 0.5, 0.25]
        bars = axes.containers[1].lines[2][0].get_segments()
        assert bars[1][:, 1].tolist() == pytest.approx([0.9, 1.2])
        assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "log")
        assert axes.get_xticks().tolist() == [0.5, 1, 2, 4]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(COMPETITORS)


def test_many_lines_stay_apart():
    names = [*COMPETITORS, *(f"curve {number}" for number in range(12))]
    points = tuple(Point("", name, x, x, None, None, 0) for name in names for x in (1.0, 2.0))
    (axes,) = draw(made(points=points)).axes
    lines = [bars.lines[0] for bars in axes.containers]
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(names)
    assert {line.get_marker() for line in lines} == {""}


def test_long_intervals_do_not_press_the_values_together():
    wild = [replace(point, low=-90.0, high=90.0) for point in made().points]
    for log in (False, True):
        for axes in draw(made(points=tuple(wild), y_log=log)).axes:
            low, high = axes.get_ylim()
            assert low < 0.25 < 8.0 < high < 80
            assert low > (0.02 if log else -6)


def test_a_curve_through_zero_shows_where_zero_is():
    points = tuple(Point("", "A", x, x, None, None, 0) for x in (-1.0, 1.0))
    (axes,) = draw(made(points=points, y_log=False)).axes
    assert [0, 0] in [list(line.get_ydata()) for line in axes.lines]


def test_low_lines_are_told_apart_beside_a_line_far_above_them():
    def axes_and_words(high, low=1.0):
        ys = {"laplace": high, "hm-tp": low, "hm": 1.1}
        points = tuple(
            Point("br", name, x, y, None, None, 1) for name, y in ys.items() for x in (1, 2)
        )
        result = made(points=points, y_log=False)
        return draw(result).axes[0].get_yscale(), "br (log scale):" in describe(result)

    assert axes_and_words(high=2000.0) == ("log", True)
    assert axes_and_words(high=2.0) == ("linear", False)
    assert axes_and_words(high=2000.0, low=-1.0) == ("linear", False)


def test_the_same_figure_is_the_same_text():
    assert svg(draw(made())) == svg(draw(made()))


def test_titles_say_synthetic():
    assert heading(made()) == "Mean estimation (partly SYNTHETIC data)"
    assert heading(made(panels=PANELS[:1])) == "Mean estimation (SYNTHETIC data)"
    assert heading(made(panels=PANELS[1:])) == "Mean estimation (SYNTHETIC data)"
    assert heading(made(title="SYNTHETIC means")) == "SYNTHETIC means"
    assert heading(made(synthetic=False)) == "Mean estimation"
    assert draw(made()).get_suptitle() == "Mean estimation (partly SYNTHETIC data)"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_texts_are_no_formulas(width):
    odd = "$\\none$"  # there is no such formula
    points = tuple(Point(odd, odd, x, x, None, None, 0) for x in (1.0, 2.0))
    assert svg(draw(made(points=points, title=odd, x_label=odd, y_label=odd), width))


def test_a_table_has_no_picture():
    with pytest.raises(DomainError, match="table-1 has no points"):
        draw(table())


def test_descriptions_say_who_is_where():
    told = describe(made())
    assert told.startswith("Lines of mean squared error (log scale) over privacy budget ε from 0.5")
    for panel in PANELS:
        assert f"{panel}: at 4 the lowest is hm-tp with 0.25, the highest laplace with 1." in told
    two = tuple(
        Point("", name, x, 2 * x, None, None, 0)
        for name, xs in (("left", (0.0, 1.0)), ("right", (2.0, 3.0)))
        for x in xs
    )
    told = describe(made(points=two, y_log=False))
    assert told.endswith("Left goes from 0 at 0 to 2 at 1; right goes from 4 at 2 to 6 at 3.")


def test_the_page_can_be_walked(page, folder):
    assert dict(page.elements)["html"] == {"lang": "en"}
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    names = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(names) == len(set(names))
    for link in page.all("a"):
        target = link["href"]
        if target.startswith("#"):
            assert target[1:] in names
        elif not target.startswith("https://"):
            assert (folder / target).is_file()
    for _, attributes in page.elements:
        assert attributes.get("aria-labelledby", names[0]) in names
    assert all(header["scope"] in ("col", "row") for header in page.all("th"))


def test_the_page_needs_nothing_else(page, folder):
    assert not page.all("script", "iframe", "object", "embed")
    loaded = [
        attributes[name]
        for tag, attributes in page.elements
        for name in ("src", "srcset", "href")
        if name in attributes and tag != "a"
    ]
    assert len(loaded) == 5  # an icon, and of each picture one for pages and one for phones
    assert all(address.startswith("data:") for address in loaded)
    style = (folder / report.NAME).read_text("utf-8").partition("<style>")[2]
    assert not re.search(r"url\(|@import", style.partition("</style>")[0])


def test_pictures_have_words_and_tables_no_picture(page):
    told = [describe(made()), describe(computed("density"))]
    assert [image["alt"] for image in page.all("img")] == told


def test_every_claim_and_every_circumstance_is_reported(page):
    result = made()
    for text in (*result.settings, "License: CC0-1.0", "Fig. 6", heading(result)):
        assert text in page.text
    for each in result.verdicts:
        # Once among all claims and once at its figure, for the figure and for the table.
        assert page.text.count(each.claim) == page.text.count(each.evidence) == 4
    counts = report.count([result, table(), computed("density")])
    words = " ".join(page.text.split())
    for mark, (verdict, number) in zip("✗?✓✎", counts.items(), strict=True):
        assert number >= 2
        assert f"{mark} {verdict}: {number}" in words


def test_texts_cannot_become_elements(tmp_path):
    result = made(
        panels=[HOSTILE],
        title=HOSTILE,
        paper=HOSTILE,
        verdicts=(ClaimVerdict(HOSTILE, True, HOSTILE),),
        settings=(HOSTILE,),
        data=(HOSTILE,),
    )
    found = write([result], tmp_path)
    assert not found.all("script")
    # Titles and papers in two places, the claim and its evidence in two, settings and data.
    assert found.text.count(HOSTILE) == 10
    assert HOSTILE in found.all("img")[0]["alt"]


def test_data_and_pictures_are_beside_the_page(folder):
    names = {f"{key}.{kind}" for key in ("means", "density") for kind in ("csv", "svg", "png")}
    beside = {report.NAME, report.CLAIMS, environment.NAME}
    assert {path.name for path in folder.iterdir()} == names | beside
    found = rows(folder / "means.csv")
    assert len(found) == 32
    assert found[0]["panel"] == PANELS[0]
    assert (folder / "means.png").read_bytes().startswith(b"\x89PNG")
    claims = rows(folder / report.CLAIMS)
    told = ["fails", "holds", "not decidable here", "misprint"]
    assert [row["verdict"] for row in claims[:8]] == told * 2
    assert [row["figure"] for row in claims[3:5]] == ["means", "table-1"]


def test_a_table_of_the_paper_is_shown(tmp_path):
    result = replace(table(), table=(("notion", "in fedldp"), (HOSTILE, "`yes`")))
    found = write([result], tmp_path)
    assert "notion" in found.text
    assert HOSTILE in found.text
    assert "yes" in found.text
    assert "`" not in found.text.partition("notion")[2].partition("yes")[0].replace(HOSTILE, "")


def test_a_page_that_grows_says_so(tmp_path):
    assert "1 of 5 figures are finished" in write([table()], tmp_path, 5).text
    assert "are finished" not in write([table()], tmp_path).text


def test_a_page_of_some_figures_says_so(tmp_path):
    known = len(description().figures)
    said = "This page holds only what was asked for"
    assert f"{said}: 2 of {known} figures" in write([table()], tmp_path, 2).text
    assert said not in write([table()], tmp_path, known).text
