"""The test vectors find a vehicle in which anything that matters is wrong.

Each check of `vehicle.py` is taken out or weakened in a copy of its text. The copy then accepts a
plan of the vectors that is to be refused: so each of these plans is refused for one reason alone.
Drawing is broken likewise, and then some answer differs.
"""

import ast
import json
import random
import types
from pathlib import Path

import pytest

from fedldp import vehicle

SOURCE = Path(vehicle.__file__).read_text("utf-8")
VECTORS = json.loads((Path(__file__).parent.parent / "docs/vectors.json").read_text("utf-8"))
REFUSED = {case["why"]: case for case in VECTORS["refused"]}


def broken(changes, text=SOURCE):
    """Return a vehicle whose text was changed, anywhere or within a function: (its name, text)."""
    for place, new in changes.items():
        function, old = place if isinstance(place, tuple) else (None, place)
        whole = text if function is None else dict(functions(text))[function]
        times, holding = whole.count(old), [name for name, lines in functions(text) if old in lines]
        assert times == 1, (
            f"{times} times in {function or 'vehicle.py'}, functions {holding}: {old!r}. "
            "Write (name of the function, text) in the entry, or more of the text."
        )
        text = text.replace(whole, whole.replace(old, new))
    module = types.ModuleType("broken")
    exec(compile(text, "broken", "exec"), module.__dict__)
    return module


def functions(text):
    """Yield the name and the text of each function and method; a method's begins with its class."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for each in inner:
            if isinstance(each, ast.FunctionDef):
                name = each.name if each is node else f"{node.name}.{each.name}"
                yield name, "".join(lines[each.lineno - 1 : each.end_lineno])


def test_a_text_that_is_not_alone_is_changed_within_its_function():
    text = "def one():\n    return 1\n\nclass Two:\n    def one(self):\n        return 1\n"
    with pytest.raises(AssertionError, match=r"2 times .* \['one', 'Two.one'\]"):
        broken({"return 1": "return 2"}, text)
    module = broken({("Two.one", "return 1"): "return 2"}, text)
    assert (module.one(), module.Two().one()) == (1, 2)
    with pytest.raises(AssertionError, match=r"0 times in Two\.one"):
        broken({("Two.one", "return 3"): ""}, text)


# What was changed, and which plans are then accepted

BOUNDS = "if not (0 < high - low < inf"
BUDGET = "    if type(text) is not str or not set(text)"
CATEGORIES = "2 <= len(codes) == len(categories) <="
WRITTEN = {"if json_integer(number) != count:": "if False:"}
NAMED = {"if list(named) != list(range(len(tables))):": "if False:"}
OPTIONAL = "an optional category that is not optional"
COUNT = "if not is_text and (not isinstance(count, int) or isinstance(count, bool)):"
IN_PARTS = 'if sorted(n for part in parts for n in part["attributes"]) != list(range(len(schema))):'
ASCEND = "if not all(low < high for low, high in pairwise(edges))"
NO_BIAS = {"refuse(bias_fault(channel.counts, channel.letters, values))": ""}
NO_SCALE = {"if cube_scale(": "if False and cube_scale("}
NO_CELLS = {"> MOST_COUNTERS:": "< 0:"}
NO_TEXT = {"if type(text) is not str:": "text = str(text)\n    if False:"}
ANY_TEXT = {"    text.encode()\n": ""}
RATIO = "if largest * limit.denominator > limit.numerator * least:"
CHECKS = [
    # tables of numbers
    ({RATIO: "if bool(largest) != bool(least):"}, "a count that is too large by one"),
    (
        {RATIO: "if largest > float(limit) * float(least):"},
        "a ratio above e^2 that doubles cannot tell from it",
    ),
    ({RATIO: f"{RATIO[:-1]} > 0:"}, "a zero in a column"),
    ({" or sum(row) != total:": ":"}, "a row with another total"),
    (
        {
            "len(row) != outputs or ": "",
            "zip(*counts, strict=True)": "zip(*counts, strict=False)",
            "zip(row, values, strict=True)": "zip(row, values, strict=False)",
        },
        "a row that is longer",
    ),
    # Some plans that are wrong in one way are biased or have no scale by necessity.
    ({"if outputs < 2:": "if outputs < 1:", **NO_BIAS}, "a single output"),
    (
        {"total & (total - 1) or not 1 <<": "not 1 <<"},
        "a total that is no power of two",
    ),
    (
        {"not 1 << column_bits(outputs) <= total <=": "not total <=", **NO_BIAS},
        "a total below the columns",
    ),
    (
        {"column_bits(outputs) <= total <= LARGEST_ROW_TOTAL": "column_bits(outputs) <= total"},
        "a total above 2^62",
    ),
    ({COUNT: COUNT.replace("int)", "int | float)"), **WRITTEN}, "a count that is not whole"),
    (
        {
            " and count.isascii() and count.isdigit()": "",
            "number: int = int(count)": "number: int = int(str(count), 0)",
            **WRITTEN,
        },
        "a count in hexadecimal",
    ),
    ({COUNT: "if not is_text and not isinstance(count, int):"}, "a count that is a truth value"),
    (
        WRITTEN,
        "a count up to 2^53 that is a text",
        "a count above 2^53 that is no text",
        "a count with a leading zero",
    ),
    (
        {
            "return all(high - low >= LEAST_LETTER_GAP for low, high in pairwise(letters))": (
                "return True"
            )
        },
        "letters that do not ascend",
    ),
    (
        {"(letters[0], letters[-1]) != (-1.0, 1.0)": "letters[-1] != 1"},
        "letters that begin above -1",
    ),
    ({"(letters[0], letters[-1]) != (-1.0, 1.0)": "letters[0] != -1"}, "letters that end below 1"),
    ({"high - low >= LEAST_LETTER_GAP": "high > low"}, "letters too close together"),
    (
        {
            "if len(self.letters) != len(self.counts) or not": "if not",
            "zip(counts, letters, strict=True)": "zip(counts, letters, strict=False)",
        },
        "a letter without a row",
    ),
    ({"MOST_OUTPUTS or not ascend": "MOST_OUTPUTS"}, "values that do not ascend"),
    (
        {
            "not len(values) == len(channel.counts[0]) <= MOST_OUTPUTS or": "",
            "zip(row, values, strict=True)": "zip(row, values, strict=False)",
        },
        "a value without a column",
    ),
    (NO_BIAS, "a table whose mean is not the letter"),
    (NO_CELLS, "more than 2^26 counters"),
    # tables of categories
    ({"refuse(response_fault(same, other, a, epsilon))": ""}, "a response that leaks"),
    (
        {"1 <= other <= same or": "1 <= other or"},
        "a response that avoids its own category",
        "lines that avoid the product",
    ),
    (
        {"<= same or total & (total - 1) or": "<= same or"},
        "a response whose total is no power of two",
        "lines whose total is no power of two",
    ),
    (
        {" or total > LARGEST_ROW_TOTAL": ""},
        "a response whose total is above 2^62",
        "lines whose total is above 2^62",
    ),
    ({'categories equally often" if same == other': '" if False'}, "a response that says nothing"),
    ({'equally often" if 2 * absent == total': '" if False'}, "an encoding that says nothing"),
    ({"refuse(unary_fault(absent, total, epsilon))": ""}, "an encoding that leaks"),
    (
        {"2 <= 2 * absent <= total": "2 <= 2 * absent <= 2 * total"},
        "an encoding that avoids its own category",
    ),
    ({"total & (total - 1) or not 2 <=": "not 2 <="}, "an encoding whose total is no power of two"),
    (
        {"2 * absent <= total <= LARGEST_ROW_TOTAL": "2 * absent <= total"},
        "an encoding whose total is above 2^62",
    ),
    (
        {'if kind == "unary":': 'if kind == "binary" and (kind := "unary"):'},
        "a table of an unknown kind",
    ),
    # lines
    ({"refuse(lines_fault(lines, epsilon))": ""}, "lines that leak"),
    ({'equally often" if lines.same == lines.other': '" if False'}, "lines that say nothing"),
    ({"if digits > 1 and any(": "if False and any("}, "lines in a base that is not prime"),
    ({" < categories <= base**digits": " < categories"}, "lines of too few digits"),
    (
        {"if not base ** (digits - 1) < categories <=": "if not categories <="},
        "lines of too many digits",
    ),
    # cubes
    ({"refuse(cube_fault(d, threshold, heavy, light, epsilon))": ""}, "a cube that leaks"),
    ({"1 <= light <= heavy <=": "1 <= light <="}, "a cube that avoids its own signs"),
    ({"light <= heavy <= LARGEST_WEIGHT": "light <= heavy"}, "a cube of too large weights"),
    (
        {
            'equally often" if heavy == light': '" if False',
            **NO_SCALE,
        },
        "a cube that says nothing",
    ),
    (NO_SCALE, "a cube whose threshold is too far from 0"),
    ({"not -d <= threshold < d": "not -d <= threshold", **NO_SCALE}, "a threshold of d"),
    ({"not -d <= threshold < d": "not threshold < d", **NO_SCALE}, "a threshold below -d"),
    ({"1 <= d <= MOST_CUBE_SIGNS": "1 <= d"}, "a cube of 10,001 signs"),
    ({"if any(attribute.categories for": "if not all(True for"}, "a cube with a category"),
    ({"in parts) > 1:": "in parts) > 2:"}, "two cubes", "directions beside a cube"),
    # directions
    ({"1 <= best < directions:": "0 <= best < directions:"}, "directions without a best one"),
    ({"1 <= best < directions:": "1 <= best:"}, "directions that are all the best"),
    (
        {"if directions * low + null_input != total:": "if False:"},
        "directions of unequal totals",
    ),
    (
        {"total > LARGEST_ROW_TOTAL or total & (total - 1)": "total > LARGEST_ROW_TOTAL"},
        "directions whose total is no power of two",
    ),
    (
        {"total > LARGEST_ROW_TOTAL or total & (total - 1)": "total & (total - 1)"},
        "directions whose total is above 2^62",
    ),
    ({"return _ratio_fault(high, low, epsilon)": "return None"}, "directions that leak"),
    (
        {"reason = _ratio_fault(null_input, null, epsilon)": "reason = None"},
        "a null code that leaks",
    ),
    ({"not 1 <= low < high or": "not 1 <= low or"}, "directions that avoid the vector"),
    ({" or min(null, null_input) < 0": ""}, "a null code of negative odds"),
    (
        {"directions & (directions + 1) or not 3": "not 3"},
        "directions that do not fill their bits",
    ),
    ({"3 <= directions <= MOST_DIRECTIONS": "3 <= directions"}, "511 directions"),
    ({"not 1 <= seed_bits <=": "not 0 <= seed_bits <="}, "a seed of no bits"),
    (
        {"<= seed_bits <= DIRECTION_BITS - directions.bit_length()": "<= seed_bits"},
        "a seed and a direction of 33 bits",
    ),
    ({"0 <= key < 1 << WORD": "0 <= key"}, "a key of 65 bits"),
    ({"1 <= d <= MOST_VECTOR_NUMBERS": "1 <= d"}, "directions of 131,073 numbers"),
    (
        {"len(attributes) != 1 or not attributes[0].length": "len(attributes) != 1"},
        "directions for numbers without a length",
    ),
    (
        {"len(attributes) != 1 or not attributes[0].length": "not attributes[0].length"},
        "directions for two vectors",
    ),
    (
        {"if any(attribute.length for attribute in found):": "if False:"},
        "a table for a vector with a length",
    ),
    ({"if (low, high) != (-length, length):": "if False:"}, "bounds that are not the length"),
    # what it costs
    ({"if self.epsilon > claim:": "if self.epsilon > claim + 0.01:"}, "a claim below the cost"),
    (
        {"if self.epsilon > claim:": "if float(self.epsilon) > claim:"},
        "a claim below the cost by less than doubles tell",
    ),
    ({"cost * min(size, k)": "cost"}, "a claim for one number of a vector, not for two"),
    ({"if self.epsilon > most:": "if self.epsilon > most + 0.01:"}, "a cost above the cap"),
    (
        {"if self.epsilon > most:": "if self.epsilon > float(most):"},
        "a cost above the cap by less than doubles tell",
    ),
    (
        {' or not set(text) <= set("0123456789.") or str(float(text)) != text': ""},
        "an epsilon with an exponent",
        "an epsilon in Arabic digits",
    ),
    (
        {BUDGET: f'    text = ".".join(text.split(".")[:2])\n{BUDGET}'},
        "an epsilon with two points",
    ),
    (
        {" or str(float(text)) != text": ""},
        "an epsilon without a point",
        "an epsilon with further zeros",
        "an epsilon with a zero in front",
        "an epsilon of more digits than a double",
    ),
    ({BUDGET: f"    text = str(text)\n{BUDGET}"}, "an epsilon that is no text"),
    (
        {"if exact(text) < LEAST_EPSILON:": "if exact(text) <= 0:"},
        "an epsilon below 0.001",
        "an epsilon below 0.001 of a response",
        "an epsilon below 0.001 of an encoding",
        "an epsilon below 0.001 of a cube",
    ),
    ({"if exact(text) > LARGEST_EPSILON:": "if False:"}, "an epsilon above 16"),
    # parts
    (
        {IN_PARTS: "if len(self._parts) < 1:"},
        "an attribute in no part",
        "an attribute twice in a part",
        "an attribute in two parts",
    ),
    (
        {"zip(attributes, tables, strict=True)": "zip(attributes, tables)"},
        "more tables than attributes",
    ),
    (NAMED, "a table that no part names", "tables in another order"),
    ({"< len(tables):\n        raise": "< 0:\n        raise"}, "a table that stands twice"),
    ({"0 <= number < len(things)": "number < len(things)", **NAMED}, "a table that there is not"),
    (
        {
            "type(number) is int and 0 <= number": "0 <= int(number)",
            "things[number]": "things[int(number)]",
            **NAMED,
        },
        "the number of a table as a text",
    ),
    (
        {"if any(attribute.categories != table.categories for": "if not all(True for"},
        "a number with a table for categories",
        "a category with a table for numbers",
        "a table for fewer categories",
        "lines for more categories",
    ),
    ({"if not 1 <= k <= d:": "if not 0 <= k <= d:"}, "k = 0"),
    ({"if not 1 <= k <= d:": "if not 1 <= k:"}, "k above d"),
    (
        {'if kind == "sample":': 'if kind == "everything" and (kind := "sample"):'},
        "a part of an unknown kind",
    ),
    # the schema
    (
        {BOUNDS: f"high += high == low\n    {BOUNDS}"},
        "bounds that are equal",
        "an optional number with equal bounds",
    ),
    ({BOUNDS: f"low, high = sorted((low, high))\n    {BOUNDS}"}, "bounds in the wrong order"),
    ({BOUNDS: "if not (0 < high - low"}, "bounds too far apart"),
    ({" and 2 / (high - low) < inf": ""}, "bounds too close together"),
    (
        {"if type(number) is not float or not": "number = float(number)\n    if not"},
        "a bound that is a text",
        "a bound without a point",
        "an edge without a point",
        "a letter that is a text",
        "a letter without a point",
    ),
    ({" and low <= missing <= high": ""}, "a missing number beyond the bounds"),
    (
        {"    name, size, low": '    document.setdefault("missing", 65.0)\n    name, size, low'},
        "no missing number",
    ),
    ({"if size < 1:": "if size < 0:"}, "a vector of no numbers"),
    ({"1 <= d <= MOST_COORDINATES": "1 <= d"}, "more than 2^24 coordinates"),
    ({"if self.bits > MOST_BITS:": "if self.bits < 0:"}, "a record of more than 2^27 bits"),
    (
        {"if missing not in codes:": "if False:", "codes[missing]": "codes.get(missing, 0)"},
        "a missing category that there is not",
    ),
    (
        {
            CATEGORIES: "2 <= len(categories) <=",
            "1, len(codes), codes[missing]": "1, len(categories), codes[missing]",
        },
        "a category that stands twice",
    ),
    (
        {CATEGORIES: "2 <= len(categories) <="},
        "an optional category with a label twice",
    ),
    ({CATEGORIES: CATEGORIES.replace("2", "1")}, "a single category"),
    (
        {"for attribute in self._schema}) < len(schema)": "for attribute in self._schema}) < 1"},
        "a name that stands twice",
    ),
    # how it is written
    (
        {"if written != text:": "if False:"},
        "a space",
        "a line break at the end",
        "entries in another order",
        "an entry twice",
        "an entry twice, alike",
        "a bound with further zeros",
        "a bound with an exponent",
        "a label that is not escaped",
        "a label that is escaped in capitals",
        "a label that is escaped without need",
    ),
    # attributes of format 2
    (
        {"if lines.directions * base > MOST_LINE_CODES:": "if False:", **NO_CELLS},
        "lines of more than 2^26 codes",
    ),
    ({"least < most <= bounds[1]": "least <= bounds[1]"}, "a range in the wrong order"),
    ({"if not bounds[0] <= least < most <= bounds[1] or": "if"}, "a range beyond doubles"),
    ({"if not 2 <= buckets < MOST_LABELS:": "if False:"}, "a single bucket"),
    ({"None if missing is True else": "None if True else"}, OPTIONAL),
    ({"None if optional else": "None if True else"}, "an optional number that is not optional"),
    (
        {"None if is_grid else": "None if True else"},
        "an optional number with a grid of one value",
    ),
    ({ASCEND: ASCEND.replace("<", "<=")}, "edges that do not ascend"),
    ({ASCEND: ASCEND.replace("low < high", "True")}, "a period below 0"),
    (
        {"period = numbers[0] if is_angle": "period = (numbers[0] or 1.0) if is_angle"},
        "a period of 0",
    ),
    ({" or edges[-1] - edges[0] == inf": ""}, "edges too far apart"),
    ({"if not 2 <= bins <= MOST_BINS:": "if not 1 <= bins <= MOST_BINS:"}, "a single bin"),
    ({"if not 2 <= bins <= MOST_BINS:": "if not 2 <= bins:"}, "1,025 bins"),
    (
        {"if not edges[0] <= default <= edges[-1]:": "if False:"},
        "a missing number beyond the edges",
        "a missing angle beyond the period",
    ),
    (
        {"None if default is True else": "None if True else"},
        "bins that are not optional",
        "an angle that is not optional",
    ),
    ({"if of.parts or": "if"}, "groups within groups"),
    ({" or of.size != 1": ""}, "a vector within groups"),
    ({" or of.length": ""}, "a length within groups"),
    ({" or groups.rounds:": ":"}, "groups that are optional numbers"),
    ({" or groups.name == of.name": ""}, "groups of their own column"),
    (
        {'document["constant"] is True': 'document["constant"] == 1'},
        "an attribute that is constant by a number",
    ),
    ({'document["constant"] is True and': ""}, "an attribute that is not constant"),
    ({' and "groups" not in document': ""}, "groups that are constant as a whole"),
    (
        {'document["rule"] in rules_of(others)': "True"},
        "an unknown rule",
        "a rule that does not fit",
        "the rule that all have without one",
        "groups with a rule as a whole",
    ),
    (
        {"if (of.rule == RANDOM) is not (groups.rule == RANDOM):": "if False:"},
        "a rule for one of two columns",
    ),
    (
        {"> len({part.name for part in columns}):": "< 0:"},
        "a column with two rules",
    ),
    # entries
    (
        {"if name != expected_format:": "if not name:"},
        "another format",
        "directions in a plan of format 1",
        "lines in a plan of format 1",
        "a range in a plan of format 1",
        "an optional number in a plan of format 1",
        "bins in a plan of format 1",
        "groups in a plan of format 1",
        "a constant attribute in a plan of format 1",
        "a rule in a plan of format 1",
    ),
    (
        {"type(document[name]) is not of:": "False:"},
        "a threshold that is not whole",
        "best directions that are not whole",
        "lines of categories that are not whole",
        "a range whose ends are not whole",
        "bins that are not whole",
        "buckets that are not whole",
        "a grid that is not whole",
        "k that is not whole",
        "a size that is not whole",
    ),
    (NO_TEXT, "a name that is no text", "a salt that is no text", "a category that is no text"),
    ({'if text == "":': "if False:"}, "a name of no characters", "a category of no characters"),
    (
        ANY_TEXT,
        "a name with half of a character",
        "a salt with half of a character",
        "a category with half of a character",
    ),
    (
        {'if str(finite(number)) == "-0.0":': "if finite(number) != number:"},
        "a bound of -0.0",
        "a missing number of -0.0",
        "an edge of -0.0",
    ),
    (
        {" or document.keys() != wanted.keys()": ""},
        *(why for why in REFUSED if why.startswith("an unknown entry")),
    ),
]


@pytest.mark.parametrize("case", REFUSED.values(), ids=lambda case: case["why"])
def test_a_vehicle_refuses_them(case):
    with pytest.raises(ValueError, match=r"^refused: "):
        vehicle.Plan(case["plan"], case["cap"])


@pytest.mark.parametrize(
    ("changes", "whys"), [(c, whys) for c, *whys in CHECKS], ids=range(len(CHECKS))
)
def test_without_a_check_a_plan_is_accepted(changes, whys):
    found = broken(changes)
    for why in whys:
        found.Plan(REFUSED[why]["plan"], REFUSED[why]["cap"])


def test_each_plan_is_refused_by_a_check_above():
    assert sorted(why for _, *whys in CHECKS for why in whys) == sorted(REFUSED)


# Drawing


class Replay(random.Random):
    """Dice that show what a vector says: bytes, from which numbers are taken one after another."""

    def __init__(self, thrown):
        super().__init__(0)
        kinds = ("word", "rounding", "drawn")
        self._rest = bytes.fromhex("".join(each[k] for each in thrown for k in kinds if k in each))

    def getrandbits(self, bits):
        size = -(-bits // 8)
        number, self._rest = self._rest[:size], self._rest[size:]
        if len(number) < size:
            raise LookupError("more dice than the vector has")
        return int.from_bytes(number, "big") >> (8 * size - bits)

    @property
    def used_up(self):
        return not self._rest


def agrees(found):
    """Return whether a vehicle answers as the vectors say, from the same dice."""
    for case in VECTORS["calendars"]:
        for drawn in case["drawn"]:
            if (
                found.Calendar(case["calendar"], "9999").draw(Replay(drawn["thrown"]))
                != (drawn["periods"])
            ):
                return False
    for case in VECTORS["cases"]:
        try:
            plan = found.Plan(case["plan"], "9")
            if (str(float(plan.epsilon)), plan.bits) != (case["cost"], case["bits"]):
                return False
            for answer in case["answers"]:
                dice = Replay(answer["thrown"])
                report = plan.report(answer["row"], dice)
                if (plan.inputs(answer["row"]), report.hex(), dice.used_up) != (
                    answer["inputs"],
                    answer["report"],
                    True,
                ):
                    return False
        except (ValueError, LookupError, StopIteration):
            return False
    return True


def test_a_vehicle_agrees():
    assert agrees(broken({}))


UNARY = "code = code << 1 | (rng.getrandbits(WORD) >> shift < odds)"
SLOT = "{i:0{index}b}{code:0{widest}b}"
DRAWING = [
    # what it accepts and costs
    {RATIO: f"{RATIO[:-1]} or not least:"},
    {"sorted(costs, reverse=True)": "sorted(costs)"},
    {"cost * min(size, k)": "cost"},
    {"    total = Fraction(0)\n": "    total = 0.0\n"},
    {"return Part(epsilon, d, 2 * d": "return Part(Fraction(0), d, 2 * d"},
    # how it reads a row
    {", -1.0), 1.0)": ", -1.0), 2.0)"},
    {", -1.0), 1.0)": ", -2.0), 1.0)"},
    {"or len(value) != self.size:": ":"},
    {"default = scaled(missing, low, high)": "default = 0.0"},
    {'return "true" if value else "false"': "return str(value)"},
    {"int(value) if isinstance(value, float) and value.is_integer() else value": "value"},
    # how it draws
    {"place * (1 << ROUNDING) + 0.5": "place * (1 << ROUNDING)"},
    {"total += min(max((x - low)": "total += 1.5 * min(max((x - low)"},
    {"rest < thresholds[column]": "rest <= thresholds[column]"},
    {"own if u < same - other": "own if u <= same - other"},
    {"(u - (same - other)) // other": "(u - (same - other)) // (other + 1)"},
    {UNARY: UNARY.replace("< odds", "<= odds")},
    {UNARY: "code |= (rng.getrandbits(WORD) >> shift < odds) << category"},
    {"total // 2 if category == own": "total // 2 if category != own"},
    {"x * 0.5 + 0.5": "x * 0.5 + 0.25"},
    {"agrees == sign": "agrees != sign"},
    # how it chooses
    {"rng.getrandbits(bits) // share": "rng.getrandbits(bits) * n >> bits"},
    {"bits = n.bit_length() + WORD": "bits = WORD"},
    {"for last in range(d - k, d)": "for last in reversed(range(d - k, d))"},
    {"last if number in chosen else number": "number if last in chosen else number"},
    {"below(odds[-1], rng)": "0"},
    {"[-1, *sorted(keys)][h]": "[-1, *sorted(keys)[::-1]][h]"},
    # how it draws lines
    {"getrandbits(WORD) * lines.directions >> WORD": "getrandbits(WORD) % lines.directions"},
    {"while direction >= first:": "while direction > first:"},
    {"number, product = first + direction, 0": "number, product = direction + 1, 0"},
    {"product += factor * digit": "product += digit"},
    {"return product % base": "return -product % base"},
    {"return direction * lines.base + answer": "return answer * lines.directions + direction"},
    # how it reads what is optional or within groups, and rounds it
    {"Attribute(name, 1, grid + 1, grid, read": "Attribute(name, 1, grid + 1, 0, read"},
    {"return last * ((1 + scaled(value, low, high)) / 2)": "return scaled(value, low, high)"},
    {"codes.get(label(present(x)), other)": "codes[label(present(x))]"},
    {'value != value or value == "":\n        raise': "value != value:\n        raise"},
    {"number.is_integer()": "True"},
    {"is_known else other": "is_known else other + 1"},
    {'salt.encode() + b"\\0" + label': "label"},
    {"digest[:8]": "digest[-8:]"},
    {"bisect_right(edges, number, 1, bins)": "bisect_right([*edges[1:], inf], number - 1e-9)"},
    {"number = number % period if is_angle": "number = min(number, period) if is_angle"},
    {"Attribute(name, 1, bins + 1, bins, read": "Attribute(name, 1, bins + 1, 0, read"},
    {"Attribute(name, 1, bins, read(default)": "Attribute(name, 1, bins, 0"},
    {"groups * letters +": "groups +"},
    {"(1 + of) / 2 if is_number else of": "of"},
    {"own = letter_of(own, rng.getrandbits(ROUNDING))": "own = int(own)"},
    {"rounds=of.rounds or not of.categories": "rounds=not of.categories"},
    # how it draws directions
    {"longer = max(length_of(found), 1.0)": "longer = 1.0"},
    {"-LARGEST_COORDINATE), LARGEST_COORDINATE)": "-1.0), 1.0)"},
    {"read(missing), read, first": "1.0, read, first"},
    {"vector = [round(x * LENGTH)": "vector = [int(x)"},
    {"GOLDEN * (seed + 1)": "GOLDEN * seed"},
    {"counter += GOLDEN": "counter += GOLDEN + 2"},
    {"(x ^ x >> 27) * MIX[1]": "(x ^ x >> 28) * MIX[1]"},
    {"for number in reversed(upper)]": "for number in upper]"},
    {"sums[first + 1] += x * table[word >> 16": "sums[first + 1] += x * table[word >> 32"},
    {"seed >>= ROUNDING - seed_bits": "seed &= (1 << seed_bits) - 1"},
    {"isqrt(sum(x * x for x in vector) << 24)": "int(sqrt(sum(x * x for x in vector)) * 4096)"},
    {"return sqrt(total)": "return sqrt(fsum(x * x for x in vector))"},
    {"for x in vector:  #": "for x in reversed(vector):  #"},
    {"rounding < (share if": "rounding <= (share if"},
    {"(1 << ROUNDING) + share >> 1": "share"},
    {"sign = 1 if itself or odds.null_input else -1": "sign = 1"},
    {"key=lambda j: -sign * sums[j]": "key=lambda j: (-sign * sums[j], -j)"},
    {"if u < common:": "if u <= common:"},
    {"elif rank < odds.best and": "elif rank <= odds.best and"},
    {" and (itself or not odds.null_input)": ""},
    {"return seed << odds.directions.bit_length() | code": "return code << seed_bits | seed"},
    # how it packs
    {"in subset(k, d, rng) if k < d": "in subset(k, d, rng)[::-1] if k < d"},
    {SLOT: "{code:0{widest}b}{i:0{index}b}"},
    {SLOT: "{i:0{index}b}{code:0{table.bits}b}"},
    {"sent.ljust(": "sent.rjust("},
    {"fingerprint)[:7]": "fingerprint)[-7:]"},
    {"bytes([0, 0, 0, 1])": "bytes([1, 0, 0, 0])"},
    {"zlib.crc32(head + record)": "zlib.crc32(record)"},
]


@pytest.mark.parametrize("changes", DRAWING, ids=range(len(DRAWING)))
def test_a_vehicle_that_draws_differently_is_found(changes):
    assert not agrees(broken(changes))
