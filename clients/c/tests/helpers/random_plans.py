"""Random plans and rows of every kind, with values and random words at their edges."""

import math
import random
from functools import cache
from math import inf, nan, nextafter

import fedldp
from fedldp import vehicle

CHANNELS = (
    ("duchi", 1.0, None),
    ("hm-tp", 1.0, 7),
    ("hm-tp", 4.0, 31),
    ("pm", 0.5, 15),
    ("three-outputs", 2.0, None),
    ("near-zero", 1.5, 9),
)
LABELS = [
    "Oslo",
    "Rome",
    "Lima",
    "T\u00fcr",
    "1",
    "true",
    "false",
    "a b",
    "M\u0101\u0142\u2603",
    "x" * 60,
]


@cache
def library_tables():
    """Return tables of numbers that the library makes."""
    made = (fedldp.mechanism(name, epsilon).channel(outputs) for name, epsilon, outputs in CHANNELS)
    return [channel.to_document() for channel in made]


def epsilon_for(largest, least):
    """Return an epsilon, as a text, that is just enough for two odds."""
    wanted = math.log(largest) - math.log(least)
    return str(max(0.001, math.ceil(wanted * 10**9 + 1) / 10**9))


class RandomPlans:
    """A source of plans and rows that depends on a seed alone."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        return self.random.choice(choices)

    # Attributes.

    def number(self, name, size=1):
        low = self.pick(0.0, -1.0, self.random.uniform(-1e6, 1e6), 1e-300, -3e8)
        high = low + self.pick(1.0, 130.0, self.random.uniform(1e-3, 1e6), 1e9)
        missing = low + (high - low) * self.random.random()
        missing = min(max(missing, low), high) or 0.0
        return {"name": name, "low": low, "high": high, "missing": missing, "size": size}

    def grid(self, name):
        number = self.number(name)
        entries = {"optional": True, "grid": self.random.randint(2, 12)}
        return {"name": name, "low": number["low"], "high": number["high"], **entries}

    def category(self, name):
        labels = self.random.sample(LABELS, self.random.randint(2, len(LABELS)))
        return {"name": name, "categories": labels, "missing": self.random.choice(labels)}

    def optional_category(self, name):
        labels = self.random.sample([*LABELS, "other", "missing"], self.random.randint(2, 8))
        return {"name": name, "categories": labels, "optional": True}

    def whole(self, name):
        first = self.random.randint(-5, 5) + self.pick(0, 0, 10**6, -(10**12))
        return {"name": name, "first": first, "last": first + self.random.randint(1, 20)}

    def hashed(self, name):
        salt = self.pick("", "spring", "s" * self.random.randint(1, 130), "\u2603" * 20)
        return {"name": name, "buckets": self.random.randint(2, 40), "salt": salt}

    def bins(self, name):
        count = self.random.randint(2, 8)
        steps = [self.random.uniform(0.1, 50) for _ in range(count)]
        start = self.pick(0.0, -100.0, 1.5)
        edges = [start + sum(steps[:i]) for i in range(count + 1)]
        return {"name": name, "edges": edges, **self._missing(edges[0], edges[-1])}

    def angle(self, name):
        period = self.pick(360.0, 24.0, 2 * math.pi, 1e-3, 3e300)
        bins = self.random.randint(2, 12)
        return {"name": name, "period": period, "bins": bins, **self._missing(0.0, period)}

    def _missing(self, low, high):
        if self.random.random() < 0.5:
            return {"optional": True}
        return {"missing": low + (high - low) * 0.5 or 0.0}

    def within(self, name):
        of = self.random.choice(
            [self.number, self.grid, self.category, self.whole, self.bins, self.angle]
        )(f"of {name}")
        groups = self.random.choice(
            [self.category, self.optional_category, self.whole, self.hashed, self.bins]
        )(f"groups {name}")
        return {"name": name, "of": of, "groups": groups}

    def attribute(self, name):
        kinds = (
            self.number,
            lambda name: self.number(name, self.random.randint(2, 5)),
            self.grid,
            self.category,
            self.optional_category,
            self.whole,
            self.hashed,
            self.bins,
            self.angle,
            self.within,
        )
        return self.random.choice(kinds)(name)

    def declared(self, entry, *, ruled):
        """Return an attribute that may be constant, and may have a rule for several rows."""
        if "groups" in entry:
            parts = {key: self.declared(entry[key], ruled=ruled) for key in ("of", "groups")}
            return {**entry, **parts}
        rules = vehicle.rules_of(entry)
        if ruled and rules:
            entry = {**entry, "rule": self.random.choice(rules)}
        return {**entry, "constant": True} if self.random.random() < 0.2 else entry

    # Tables.

    def numbers_table(self):
        if self.random.random() < 0.3:
            return dict(self.random.choice(library_tables()))
        total = 1 << self.random.randint(8, 50)
        largest = self.random.randint(total // 2 + total // 64, total - total // 8)
        between = self.random.sample(range(total - largest + 1, largest), self.random.randint(0, 3))
        value = total / (2 * largest - total)
        firsts = [total - largest, *sorted(between), largest]
        letters = [-value + 2 * value * (count / total) for count in firsts]
        letters[0], letters[-1] = -1.0, 1.0
        counts = [[total - count, count] for count in firsts]
        return {
            "kind": "numbers",
            "epsilon": epsilon_for(largest, total - largest),
            "letters": letters,
            "values": [-value, value],
            "counts": [[vehicle.json_integer(count) for count in row] for row in counts],
        }

    def response_odds(self, labels):
        total = 1 << self.random.randint((labels + 1).bit_length(), 62)
        other = self.random.randint(max(1, total >> 22), max(1, (total - 1) // (labels + 1)))
        return total - (labels - 1) * other, other

    def response(self, categories):
        same, other = self.response_odds(categories)
        odds = {"same": vehicle.json_integer(same), "other": vehicle.json_integer(other)}
        epsilon = epsilon_for(same, other)
        return {"kind": "response", "epsilon": epsilon, "categories": categories, **odds}

    def unary(self, categories):
        total = 1 << self.random.randint(3, 62)
        absent = self.random.randint(max(1, total >> 20), total // 2 - 1)
        odds = {"total": vehicle.json_integer(total), "absent": vehicle.json_integer(absent)}
        epsilon = epsilon_for(total - absent, absent)
        return {"kind": "unary", "epsilon": epsilon, "categories": categories, **odds}

    def lines(self, categories):
        base = self.pick(2, 3, 5, 7, 31)
        digits = next(n for n in range(1, 30) if base**n >= categories)
        if digits == 1:
            base = categories
        same, other = self.response_odds(base)
        odds = {"same": vehicle.json_integer(same), "other": vehicle.json_integer(other)}
        numbers = {"categories": categories, "base": base, "digits": digits, **odds}
        return {"kind": "lines", "epsilon": epsilon_for(same, other), **numbers}

    def table(self, categories):
        if not categories:
            return self.numbers_table()
        kinds = [self.response, self.lines, *[self.unary] * (categories <= 300)]
        return self.random.choice(kinds)(categories)

    # Parts and plans.

    def plan(self):
        """Return a plan in canonical JSON that `vehicle.py` accepts."""
        while True:
            text = vehicle.canonical(self._document())
            try:
                vehicle.Plan(text, "9999")
            except ValueError:
                continue
            return text

    def _document(self):
        names = [f"a{i}" for i in range(self.random.randint(1, 5))]
        schema = [
            self.declared(self.attribute(name), ruled=self.random.random() < 0.2) for name in names
        ]
        parts, tables = [], []
        joint = self.random.random()
        if joint < 0.2:
            sizes = [self.random.randint(1, 4) for _ in range(self.random.randint(1, 3))]
            first = len(schema)
            schema += [self.number(f"c{i}", size) for i, size in enumerate(sizes)]
            parts.append(self.cube(sum(sizes), list(range(first, len(schema)))))
        elif joint < 0.4:
            length = self.pick(1.0, 3.0, 0.1, 1e-200, 1e200)
            size = self.random.randint(1, self.pick(6, 6, 60))
            entries = {"low": -length, "high": length, "length": length, "size": size}
            missing = self.pick(0.0, length / 3)
            schema.append({"name": "vector", "missing": missing, **entries})
            parts.append(self.directions(len(schema) - 1))
        attributes = list(range(len(names)))
        cuts = self.random.random() < 0.3 and len(attributes) > 1
        groups = [attributes[:1], attributes[1:]] if cuts else [attributes]
        for group in groups:
            numbers = []
            for i in group:
                table = self.table(vehicle.read_attribute(schema[i], 0).categories)
                if table not in tables:
                    tables.append(table)
                numbers.append(tables.index(table))
            d = sum(schema[i].get("size", 1) for i in group)
            k = d if self.random.random() < 0.4 else self.random.randint(1, d)
            parts.append({"kind": "sample", "k": k, "attributes": group, "tables": numbers})
        newer = any(set(entry) & FORMAT_2 for entry in schema)
        newer |= any(table["kind"] == "lines" for table in tables)
        newer |= parts[0]["kind"] == "directions"
        return {
            "format": vehicle.PLAN_FORMAT_2 if newer else vehicle.PLAN_FORMAT,
            "epsilon": "16.0",
            "schema": schema,
            "tables": tables,
            "parts": parts,
        }

    def cube(self, d, attributes):
        light = 1 << self.random.randint(1, 90)
        heavy = light + self.random.randint(1, light * 3)
        weights = {"heavy": vehicle.json_integer(heavy), "light": vehicle.json_integer(light)}
        threshold = self.random.randint(-d, d - 1)
        entries = {"attributes": attributes, "threshold": threshold, **weights}
        return {"kind": "cube", "epsilon": epsilon_for(heavy, light), **entries}

    def directions(self, attribute):
        n = self.pick(3, 7, 15, 31, 63, 127, 255)
        best = self.random.randint(1, n - 1)
        low = self.random.randint(1, 1 << self.random.randint(1, 40))
        high = low + self.random.randint(1, 4 * low)
        odds = best * high + (n - best) * low
        total = 1 << odds.bit_length()
        null, null_input = total - odds, 0
        if self.random.random() < 0.7:
            null_input = total - n * low
        ratio = max(high / low, null_input / null)
        numbers = {"high": high, "low": low, "null": null, "null_input": null_input}
        seed_bits = self.random.randint(1, 32 - n.bit_length())
        return {
            "kind": "directions",
            "epsilon": epsilon_for(ratio, 1),
            "attributes": [attribute],
            "directions": n,
            "best": best,
            "seed_bits": seed_bits,
            "key": vehicle.json_integer(self.random.getrandbits(64)),
            **{name: vehicle.json_integer(count) for name, count in numbers.items()},
        }

    # Rows.

    def row(self, schema):
        row = {}
        for entry in schema:
            for part in (entry["of"], entry["groups"]) if "of" in entry else (entry,):
                if self.random.random() < 0.95:
                    row[part["name"]] = self.cell(part)
        return row

    def cell(self, entry):
        if entry.get("size", 1) > 1:
            size = entry["size"] if self.random.random() < 0.95 else entry["size"] + 1
            return [self.number_near(entry) for _ in range(size)]
        if "categories" in entry or "buckets" in entry:
            other = ["nowhere", None, "", True, 1, 2.0, "other", "missing", "x" * 64, "\u2603"]
            return self.random.choice([*entry.get("categories", LABELS), *other])
        return self.number_near(entry)

    def number_near(self, entry):
        """Return a number, often at an edge, and sometimes none."""
        special = [None, "", "x", " 3.25e+1 ", nan, inf, -inf, True, 0, -0.0, 1e308, -1e308, 5e-324]
        if self.random.random() < 0.15:
            return self.random.choice(special)
        if "first" in entry:
            number = self.random.randint(entry["first"] - 2, entry["last"] + 2)
            return self.pick(number, float(number), number + 0.5, nextafter(number, inf))
        if "edges" in entry:
            edge = self.random.choice(entry["edges"])
            return self.pick(edge, nextafter(edge, -inf), nextafter(edge, inf), edge + 1e-9)
        if "period" in entry:
            edge = entry["period"] * (self.random.randint(0, entry["bins"]) / entry["bins"])
            turn = self.pick(0, 1, -1, 1000, -7) * entry["period"]
            return self.pick(
                edge, nextafter(edge, -inf), edge + turn, self.random.uniform(-1e9, 1e9)
            )
        low, high = entry["low"], entry["high"]
        if "length" in entry:
            half = (self.random.randrange(1 << 20) + 0.5) / (1 << 20)
            scale = entry["length"] / math.sqrt(entry["size"])
            near = half * entry["length"]
            return self.pick(near, -near, nextafter(near, inf), self.random.uniform(-1, 1) * scale)
        inner = low + (high - low) * self.random.random()
        tiny = low + (high - low) * 2.0 ** -self.random.randint(20, 60)
        return self.pick(inner, inner, low, high, tiny, nextafter(high, -inf), high * 3)

    def edge_words(self, document):
        """Return words of 64 bits at which the codes of a plan change."""
        words = [0, (1 << 64) - 1]
        for table in document["tables"]:
            if table["kind"] == "numbers":
                rows = (vehicle.alias_row(list(map(int, row))) for row in table["counts"])
                for thresholds, _ in rows:
                    b = len(thresholds).bit_length() - 1
                    for column, threshold in enumerate(thresholds):
                        words += [(column << 64 - b) + (threshold >> b) - d for d in (0, 1)]
            elif table["kind"] == "unary":
                shift = 65 - int(table["total"]).bit_length()
                for odds in (int(table["total"]) // 2, int(table["absent"])):
                    words += [(odds << shift) - d for d in (0, 1)]
            else:
                same, other = int(table["same"]), int(table["other"])
                labels = table.get("base", table["categories"])
                shift = 65 - (same + (labels - 1) * other).bit_length()
                for i in (0, 1, labels - 2, labels - 1):
                    words += [((same - other + i * other) << shift) - d for d in (0, 1)]
        for part in document["parts"]:
            if part["kind"] == "directions":
                names = ("high", "low", "null", "directions", "best")
                high, low, null, n, best = (int(part[name]) for name in names)
                shift = 65 - (best * high + (n - best) * low + null).bit_length()
                odds = [low, n * low, n * low + (high - low), n * low + best * (high - low)]
                words += [(each << shift) - d for each in odds for d in (0, 1)]
        return [word & (1 << 64) - 1 for word in words]


FORMAT_2 = {"optional", "first", "buckets", "edges", "period", "of", "constant", "rule"}


class EdgeTape:
    """A random source for `vehicle.py` that writes down its bytes, many of them at edges."""

    def __init__(self, seed, words=()):
        self._random = random.Random(seed)
        self._words = list(words)
        self.data = bytearray()

    def getrandbits(self, bits):
        size = -(-bits // 8)
        number = self._random.getrandbits(bits)
        if bits == 64 and self._words and self._random.random() < 0.5:
            number = self._random.choice(self._words)
        self.data += (number << 8 * size - bits).to_bytes(size, "big")
        return number

    def rounds_at_the_edge(self, place, word):
        """Round a position with a word that is just enough to round up, or one less, instead."""
        whole = int(place * (1 << 32) + 0.5)
        if self._random.random() < 0.7:
            word = (-whole - self._random.randint(0, 1)) % (1 << 32)
            self.data[-4:] = word.to_bytes(4, "big")
        return (whole + word) >> 32
