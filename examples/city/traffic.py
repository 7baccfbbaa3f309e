"""A generated city and its traffic, simulated by SUMO: https://eclipse.dev/sumo."""

import hashlib
import subprocess
import sysconfig
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

Rows = dict[str, Any]  # columns: an array for each signal

DAYS, SLOTS, SLOT_HOURS, FIRST_HOUR = 4, 6, 3, 6
CARS_IN_A_SLOT = 13_000
COMMUTERS = 17_000  # in each rush hour: around the fleet, and not asked
DISTRICTS = [*"ABCDEFGHIJKLMNOPQRST"]
SPEED, DISTRICT = "Vehicle.Speed", "Vehicle.CurrentLocation.District"
WAITING, DISTANCE = "Vehicle.TripWaitingTime", "Vehicle.TripMeterReading"
POWERTRAIN, POWERTRAINS = "Vehicle.Powertrain.Type", ["COMBUSTION", "HYBRID", "ELECTRIC"]

_SEED = 38
_COLUMNS, _ROWS, _BLOCK_METERS = 24, 17, 160
_CENTER, _RADII = np.array([1840.0, 1280.0]), np.array([1900.0, 1400.0])  # in meters
_BRIDGES = np.array([900.0, 1750.0, 2500.0, 3200.0])
_LIMITS = [40, 50, 50, 60]  # km/h; 30 with one lane in the center; no lights above 50
_SLOW_DISTRICTS = 4
_POWERTRAIN_SHARES = [0.52, 0.2, 0.28]
_PARALLEL_SIMULATIONS = 2


@dataclass(frozen=True)
class City:
    """Streets as lines from one point to another, and the number of each street's district."""

    streets: np.ndarray
    districts: np.ndarray


def simulate(folder: Path, days: int = DAYS, cars: int = CARS_IN_A_SLOT) -> tuple[City, Rows]:
    """Return a city and the trips that its fleet made, as rows; those of an earlier run if any."""
    kept = trips_file(folder, days, cars)
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        network = _Network.generate(folder)
        commuters = COMMUTERS * cars // CARS_IN_A_SLOT
        with ThreadPoolExecutor(_PARALLEL_SIMULATIONS) as pool:
            every = [
                *pool.map(lambda day: _day(network, folder, day, cars, commuters), range(days))
            ]
        rows = {name: np.concatenate([day[name] for day in every]) for name in every[0]}
        city = network.city
        np.savez_compressed(kept, streets=city.streets, districts=city.districts, **rows)
    stored = dict(np.load(kept))
    return City(stored.pop("streets"), stored.pop("districts")), stored


def trips_file(folder: Path, days: int, cars: int) -> Path:
    """Return the file in which trips are kept; its name depends on all that they depend on."""
    code = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return folder / f"trips-{days}-{cars}-{code}.npz"


# The city


@dataclass(frozen=True)
class _Network:
    file: Path
    names: list[str]  # of the streets
    streets: np.ndarray
    lengths: np.ndarray  # in meters
    reachable: np.ndarray  # the streets where a trip can begin and end
    districts: dict[str, int]  # by the names of the streets

    @property
    def city(self) -> City:
        return City(self.streets, np.array([self.districts[name] for name in self.names]))

    @classmethod
    def generate(cls, folder: Path) -> "_Network":
        """Let SUMO lay out a grid, and change its outline, bridges, lights and speed limits."""
        raw, edges, nodes, file = (folder / f"{name}.xml" for name in ("raw", "e", "n", "city"))
        grid = f"--grid.x-number {_COLUMNS} --grid.y-number {_ROWS} --grid.length {_BLOCK_METERS}"
        bend = "--perturb-x normc(0,28,-60,60) --perturb-y normc(0,28,-60,60)"
        kind = "--default.lanenumber 2 --no-internal-links -j traffic_light"
        _sumo(f"netgenerate --grid {grid} {bend} {kind} --seed {_SEED}", "-o", raw)
        before = cls._read(raw, {})
        kept = np.flatnonzero(_in_outline(before.streets) & ~_in_river(before.streets))
        middles = before.streets[kept].mean(axis=1)
        numbers = _districts(middles)
        limits = np.random.default_rng(_SEED).permutation(np.resize(_LIMITS, len(DISTRICTS)))
        limits[:_SLOW_DISTRICTS] = 30
        root = ET.Element("edges")
        for place in sorted({*range(len(before.names))} - {*kept.tolist()}):
            ET.SubElement(root, "delete", id=before.names[place])
        for place, number in zip(kept, numbers, strict=True):
            lanes = 1 if number < _SLOW_DISTRICTS else 2
            change = {"speed": f"{limits[number] / 3.6:.2f}", "numLanes": str(lanes)}
            ET.SubElement(root, "edge", id=before.names[place], **change)
        ET.ElementTree(root).write(edges)
        root = ET.Element("nodes")
        for node in ET.parse(raw).getroot().iter("junction"):
            place = [float(node.get("x", "")), float(node.get("y", ""))]
            number = numbers[np.hypot(*(middles - place).T).argmin()]
            if number >= _SLOW_DISTRICTS and limits[number] > 50:
                ET.SubElement(root, "node", id=node.get("id", ""), type="priority")
        ET.ElementTree(root).write(nodes)
        options = "netconvert --no-internal-links --keep-edges.components 1"
        _sumo(options, "-s", raw, "-e", edges, "-n", nodes, "-o", file)
        names = (before.names[place] for place in kept)
        return cls._read(file, dict(zip(names, numbers.tolist(), strict=True)))

    @classmethod
    def _read(cls, file: Path, districts: dict[str, int]) -> "_Network":
        root = ET.parse(file).getroot()
        edges = {edge.get("id", ""): next(edge.iter("lane")) for edge in root.iter("edge")}
        streets = np.array([_ends(lane.get("shape", "")) for lane in edges.values()])
        lengths = np.array([float(lane.get("length", "")) for lane in edges.values()])
        places = {name: place for place, name in enumerate(edges)}
        turns = [
            (places[t.get("from", "")], places[t.get("to", "")]) for t in root.iter("connection")
        ]
        one, other = np.array(turns).T
        graph = coo_matrix((np.ones(len(one)), (one, other)), (len(edges), len(edges)))
        _, labels = connected_components(graph, connection="strong")
        reachable = np.flatnonzero(labels == np.bincount(labels).argmax())
        return cls(file, [*edges], streets, lengths, reachable, districts)


def _ends(shape: str) -> list[list[float]]:
    points = [[float(number) for number in point.split(",")[:2]] for point in shape.split()]
    return [points[0], points[-1]]


def _in_outline(streets: np.ndarray) -> np.ndarray:
    x, y = ((streets.mean(axis=1) - _CENTER) / _RADII).T
    angle = np.arctan2(y, x)
    return np.hypot(x, y) < 1 + 0.08 * np.sin(3 * angle + 1) + 0.05 * np.sin(5 * angle)


def river(x: np.ndarray) -> np.ndarray:
    """Return how far north the river is."""
    return 820 + 330 * np.sin(x / 620)


def _in_river(streets: np.ndarray) -> np.ndarray:
    """Return which streets would cross the river where there is no bridge."""
    north = streets[..., 1] > river(streets[..., 0])
    far = np.abs(streets[:, :, 0].mean(axis=1)[:, None] - _BRIDGES).min(axis=1) > 90
    return (north[:, 0] != north[:, 1]) & far


def _districts(middles: np.ndarray) -> np.ndarray:
    """Divide streets among districts, each around its center; the first are the innermost."""
    random = np.random.default_rng(_SEED)
    centers = middles[random.choice(len(middles), len(DISTRICTS), replace=False)]
    for _ in range(20):
        nearest = np.hypot(*(middles[:, None] - centers).T).T.argmin(axis=1)
        centers = np.array([middles[nearest == k].mean(axis=0) for k in range(len(DISTRICTS))])
    inwards = np.hypot(*(centers - _CENTER).T).argsort().argsort()
    return np.asarray(inwards[nearest])


# A day


def _day(network: _Network, folder: Path, day: int, cars: int, commuters: int) -> Rows:
    """Simulate a day, and return what the fleet's cars have measured."""
    random = np.random.default_rng((_SEED, day))
    trips, tours, routes = (folder / f"{name}-{day}.xml" for name in ("trips", "tours", "routes"))
    middles = network.streets[network.reachable].mean(axis=1)
    from_center = np.hypot(*(middles - _CENTER).T)

    def streets(weights: np.ndarray, number: int) -> np.ndarray:
        return random.choice(network.reachable, number, p=weights / weights.sum())

    homes = np.exp(-(((from_center - 1300) / 700) ** 2)) + 0.1
    work = np.exp(-((from_center / 600) ** 2)) + 0.03
    errands = np.exp(-((from_center / 1100) ** 2)) + 0.12
    hours = [
        FIRST_HOUR + slot * SLOT_HOURS + SLOT_HOURS * random.random(cars) for slot in range(SLOTS)
    ]
    starts, ends = [streets(errands, cars * SLOTS)], [streets(errands, cars * SLOTS)]
    for hour, start, end in ((8.0, homes, work), (17.3, work, homes)):
        hours.append(random.normal(hour, 0.6, commuters))
        starts.append(streets(start, commuters))
        ends.append(streets(end, commuters))
    departures = (3600 * np.concatenate(hours)).round(1)
    begin, end = np.concatenate(starts), np.concatenate(ends)
    root = ET.Element("routes")
    for place in departures.argsort():  # trips that are not of the fleet come last
        ways = {"from": network.names[begin[place]], "to": network.names[end[place]]}
        ET.SubElement(root, "trip", id=str(place), depart=str(departures[place]), **ways)
    ET.ElementTree(root).write(trips)
    model = "--mesosim --meso-junction-control --time-to-teleport 120 --default.speeddev 0"
    route = "--device.rerouting.probability 1 --device.rerouting.adaptation-interval 60"
    write = "--vehroute-output.exit-times --no-step-log --no-warnings --ignore-route-errors"
    outputs = ("--tripinfo-output", tours, "--vehroute-output", routes)
    _sumo(
        f"sumo {model} {route} {write} --seed {day + 1}", "-n", network.file, "-r", trips, *outputs
    )
    fleet = cars * SLOTS
    rows = _rows(network, tours, routes, fleet, random)
    slots = np.minimum((departures[rows.pop("trip")] / 3600 - FIRST_HOUR) // SLOT_HOURS, SLOTS - 1)
    for file in (trips, tours, routes):
        file.unlink()
    kinds = random.choice(len(POWERTRAINS), len(slots), p=_POWERTRAIN_SHARES)
    return rows | {
        "period": (day * SLOTS + slots + 1).astype(int),
        POWERTRAIN: np.array(POWERTRAINS)[kinds],
    }


def _rows(
    network: _Network, tours: Path, routes: Path, fleet: int, random: np.random.Generator
) -> Rows:
    """Return what each car of the fleet knows: its trip, and one district on its way.

    It is the district at a random moment of the trip, with the mean speed while the car was there.
    """
    places = {name: place for place, name in enumerate(network.names)}
    districts = network.city.districts
    waited = {tour["id"]: tour for tour in _elements(tours, "tripinfo")}
    rows = []
    for vehicle in _elements(routes, "vehicle"):
        if int(vehicle["id"]) >= fleet:
            continue
        tour = waited[vehicle["id"]]
        on_way = [places[name] for name in vehicle["edges"].split()]
        exits = [float(vehicle["depart"]), *map(float, vehicle["exitTimes"].split())]
        seconds = np.diff(exits)
        moment = exits[0] + random.random() * (exits[-1] - exits[0])
        district = districts[on_way[int(np.searchsorted(exits[1:-1], moment))]]
        there = districts[on_way] == district
        speed = network.lengths[on_way][there].sum() / max(seconds[there].sum(), 1.0)
        waiting, meters = float(tour["waitingTime"]), float(tour["routeLength"])
        speed = min(3.6 * speed, _LIMITS[-1])  # times are whole seconds
        rows.append((int(vehicle["id"]), district, speed, waiting / 60, meters / 1000))
    trip, district, speed, waiting, distance = np.array(rows).T
    return {
        "trip": trip.astype(int),
        DISTRICT: np.array(DISTRICTS)[district.astype(int)],
        SPEED: speed.round(2),
        WAITING: waiting.round(3),
        DISTANCE: distance.round(3),
    }


def _elements(file: Path, tag: str) -> Iterator[dict[str, str]]:
    """Yield the attributes of elements, each with those of the last element in it."""
    for _, element in ET.iterparse(file):
        if element.tag == tag:
            inner = [dict(route.attrib) for route in element.iter("route")]
            yield dict(element.attrib) | (inner[-1] if inner else {})
            element.clear()


def _sumo(command: str, *options: object) -> None:
    """Run a program of SUMO, which is beside this Python, or raise an error with its output."""
    program, *words = command.split()
    path = Path(sysconfig.get_path("scripts"), program)
    done = subprocess.run([path, *words, *map(str, options)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{program} failed: {done.stderr.strip()}")
