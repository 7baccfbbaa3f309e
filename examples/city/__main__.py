"""A city whose cars are asked how fast they drive, and tell nothing about themselves.

make city                       # from the repository: installs SUMO, and runs this program
python examples/city            # the same without installing
python examples/city --tiny     # in seconds, with a small fleet
"""

import argparse
import shutil
import time
from pathlib import Path

import agents
import pictures
import survey
import traffic
from rich.console import Console
from rich.table import Table

import fedldp

_HERE = Path(__file__).parents[2]


def main(folder: Path, picture: Path, *, tiny: bool) -> None:
    """Simulate the traffic, ask the fleet, and draw what is known of it."""
    console, began = Console(), time.monotonic()

    def say(text: str) -> None:
        console.print(f"{time.monotonic() - began:4.0f} s  {text}", highlight=False)

    days, cars = (1, 300) if tiny else (traffic.DAYS, traffic.CARS_IN_A_SLOT)
    say("SUMO simulates the traffic; a later run reads it from a file")
    city, rows = traffic.simulate(folder, days, cars)
    say(f"{len(rows['period']):,} trips, each of another car")
    estimates, calendars = {}, {}
    for epsilon in survey.EPSILONS:
        calendars[epsilon] = survey.calendar(epsilon, periods=days * traffic.SLOTS)
        tallies = survey.collect(calendars[epsilon], rows, fedldp.source(1))
        estimates[epsilon] = survey.total(tallies)
    say("every car has answered once")
    truth, table = survey.Speeds.true(rows), survey.lines(rows, estimates)
    electric = table[-1][1]
    private = survey.Speeds.of(estimates[2.0])
    pictures.save(pictures.maps(city, truth, private, 2.0), picture)
    film = [
        pictures.maps(
            city,
            survey.Speeds.true(rows, slot),
            survey.Speeds.of(survey.total(tallies, slot)),
            survey.EPSILONS[-1],
            f", {traffic.FIRST_HOUR + slot * traffic.SLOT_HOURS}:00",
        )
        for slot in range(traffic.SLOTS)
    ]
    pictures.animate(film, folder / "city.gif")
    say(f"the map is drawn: {picture} and {folder / 'city.gif'}")
    table.append(survey.model_line(rows))
    say("models that predict congestion are trained")
    shutil.rmtree(folder / "fleet", ignore_errors=True)
    asked = 2 if tiny else traffic.SLOTS
    tally = agents.ask(folder / "fleet", calendars[2.0], rows, asked, cars // agents.AGENTS)
    say(f"{tally.reports:,} answers of agents over HTTPS")
    by_agents = ["", survey.share(tally.estimate()), ""]  # at epsilon 2
    table.append([f"electric cars, by {agents.AGENTS} agents", electric, *by_agents])
    console.print(_rendered(table))


def _rendered(lines: list[list[str]]) -> Table:
    title = "Estimates with 95% intervals, and the truth, which only a simulation knows"
    rendered = Table("", "truth", *(f"ε = {e:g}" for e in survey.EPSILONS), title=title)
    for line in lines:
        rendered.add_row(*line)
    return rendered


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--folder", type=Path, default=_HERE / "build" / "city")
    parser.add_argument("--picture", type=Path, help="where to write the map; in the folder")
    given = parser.parse_args()
    main(given.folder, given.picture or given.folder / "city.png", tiny=given.tiny)
