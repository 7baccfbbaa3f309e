/* Fuzzing: hostile plans, rows, random bytes and ledgers. What must hold whatever they are:

- no undefined behavior, and no access to memory that is not given (the sanitizers see to that);
- a plan that passes the check is drawn with a report of the size that it says, and one random stream;
- a ledger never has less spent after an answer than before, and gives no report without a record.

Each input is read as a stream of choices, which ends in zeros. */

#include "fedldp_flash.h"
#include "fuzz_plans.h" /* fuzz_plans[], FUZZ_PLANS: those of the vectors */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (1u << 14)
#define SIZE_OF(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static const uint8_t *input, *input_end;

static uint64_t take(int bytes) {
  uint64_t number = 0;
  while (bytes-- > 0) number = number << 8 | (input < input_end ? *input++ : 0);
  return number;
}

/* A number from 0 to n - 1; 0 if there is none. */
static uint32_t pick(uint32_t n) { return n == 0 ? 0 : (uint32_t)take(n > 256 ? 4 : 1) % n; }

static int give(void *context, uint8_t *bytes, size_t count) {
  (void)context;
  if (input == input_end) return 1;
  while (count-- > 0) *bytes++ = (uint8_t)take(1);
  return 0;
}

static void require(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "fuzz: %s\n", what);
  abort();
}

/* A row of up to 8 columns, of up to 300 numbers each. */

#define COLUMNS 8
#define MOST_NUMBERS 300

static fedldp_value row[COLUMNS];
static fedldp_text texts[COLUMNS];
static double numbers[COLUMNS][MOST_NUMBERS];

static double real(void) {
  uint64_t bits = take(8);
  double number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

static void take_row(void) {
  uint32_t i, k;
  for (i = 0; i < COLUMNS; i++) {
    row[i].kind = pick(8);
    row[i].code = (uint32_t)take(4);
    row[i].count = pick(4) ? pick(6) : pick(MOST_NUMBERS + 1);
    row[i].number = real();
    row[i].text = pick(4) ? texts + i : NULL;
    row[i].numbers = pick(8) ? numbers[i] : NULL;
    texts[i].length = (uint8_t)take(1);
    for (k = 0; k < FEDLDP_TEXT_BYTES; k++) texts[i].bytes[k] = (uint8_t)(k < 8 ? take(1) : 'x');
    for (k = 0; k < MOST_NUMBERS; k++) numbers[i][k] = k < 6 ? real() : numbers[i][k % 6];
  }
}

static void draw(const fedldp_plan *plan) {
  size_t size = FEDLDP_REPORT_BYTES(plan->bits);
  uint64_t *scratch = malloc(plan->scratch * sizeof *scratch);
  uint8_t *report = malloc(size);
  fedldp_status status;
  require(scratch != NULL && report != NULL, "no memory");
  status = fedldp_draw(plan, row, give, NULL, scratch, report);
  require(status == FEDLDP_OK || status == FEDLDP_NO_RANDOM, "a draw that fails");
  require(report[0] == (status == FEDLDP_OK), "a report without its header, or of a failed draw");
  require(plan->bits % 8 == 0 || (report[size - 1] & (0xFF >> plan->bits % 8)) == 0,
          "bits after the last one");
  free(scratch);
  free(report);
}

/* A plan whose numbers are arbitrary; only arrays are as long as they claim to be. */

#define MOST_PARTS 4

static fedldp_attribute attributes[6], inner[12];
static union detail {
  fedldp_number number;
  fedldp_grid grid;
  fedldp_category category;
  fedldp_whole whole;
  fedldp_hashed hashed;
  fedldp_bins bins;
  fedldp_within within;
} details[18];
static fedldp_label labels[4];
static uint64_t edges[6];
static fedldp_table tables[3];
static union odds {
  fedldp_numbers numbers;
  fedldp_response response;
  fedldp_unary unary;
  fedldp_lines lines;
} odds[3];
static uint64_t words[3][256], letters[16], slopes[16];
static uint16_t others[3][256], part_attributes[MOST_PARTS][3], part_tables[MOST_PARTS][3];
static fedldp_part parts[MOST_PARTS];
static union shares {
  fedldp_sample sample;
  fedldp_cube cube;
  fedldp_directions directions;
} shares[MOST_PARTS];

/* One of some epsilons, from 16 downwards, or any number. */
static fedldp_epsilon take_epsilon(uint32_t most) {
  static const fedldp_epsilon whole[] = {FEDLDP_WHOLE(16), FEDLDP_WHOLE(8), FEDLDP_WHOLE(1)};
  fedldp_epsilon epsilon;
  int i;
  if (pick(16)) return whole[pick(most)];
  for (i = 0; i < 3; i++) epsilon.limbs[i] = (uint32_t)take(4);
  return epsilon;
}

/* A power of two, a small number, or any number. */
static uint64_t take_odds(void) {
  switch (pick(3)) {
  case 0: return UINT64_C(1) << pick(64);
  case 1: return take(1);
  default: return take(8);
  }
}

static uint32_t bits_for(uint64_t n) {
  uint32_t bits = 0;
  while (n > UINT64_C(1) << bits && bits < 32) bits++;
  return bits;
}

/* A reader that returns anything: what it returns may decide nothing but accuracy. */
static fedldp_input read_anything(const fedldp_attribute *attribute, const fedldp_value *values,
                                        uint32_t offset) {
  fedldp_input found;
  (void)attribute, (void)values, (void)offset;
  found.real = take(8);
  found.code = (uint32_t)take(4);
  return found;
}

static void take_attribute(fedldp_attribute *attribute, union detail *detail, int is_inner) {
  uint32_t count = 1 + pick(6), i;
  attribute->detail = detail;
  attribute->size = pick(4) ? 1 : 1 + pick(pick(8) ? 6 : MOST_NUMBERS + 100);
  attribute->column = pick(COLUMNS);
  attribute->rounds = pick(2);
  attribute->categories = count;
  switch (pick(is_inner ? 8 : 9)) {
  case 0:
  case 1:
    attribute->read = pick(2) ? fedldp_read_number : fedldp_read_vector;
    attribute->categories = 0;
    detail->number.minus_middle = take(8);
    detail->number.scale = take(8);
    detail->number.missing = take(8);
    break;
  case 2:
    attribute->read = fedldp_read_grid;
    detail->grid.minus_middle = take(8);
    detail->grid.scale = take(8);
    detail->grid.last = take(8);
    detail->grid.missing = take(8);
    break;
  case 3:
    attribute->read = fedldp_read_category;
    for (i = 0; i < SIZE_OF(labels); i++) {
      labels[i].bytes = "a label of 60 bytes and more, which is longer than those of ro";
      labels[i].length = pick(63);
    }
    detail->category.labels = pick(4) ? labels : NULL;
    detail->category.count = detail->category.labels ? pick(5) : (uint32_t)take(4);
    detail->category.unknown = (uint32_t)take(4);
    detail->category.missing = (uint32_t)take(4);
    break;
  case 4:
    attribute->read = fedldp_read_whole;
    detail->whole.first = (int64_t)take(8);
    detail->whole.count = (uint32_t)take(4);
    break;
  case 5:
    attribute->read = fedldp_read_hashed;
    detail->hashed.salt = "salt and more salt";
    detail->hashed.salt_bytes = pick(18);
    detail->hashed.buckets = (uint32_t)take(4);
    break;
  case 6:
  case 7:
    attribute->read = pick(2) ? fedldp_read_bins : fedldp_read_angle;
    for (i = 0; i < SIZE_OF(edges); i++) edges[i] = take(8);
    detail->bins.edges = edges;
    detail->bins.period = take(8);
    detail->bins.count = pick(SIZE_OF(edges) + 2);
    detail->bins.missing = (uint32_t)take(4);
    break;
  default: {
    uint32_t first = (uint32_t)(attribute - attributes) * 2;
    attribute->read = fedldp_read_within;
    take_attribute(inner + first, details + 6 + first, 1);
    take_attribute(inner + first + 1, details + 6 + first + 1, 1);
    inner[first].size = inner[first + 1].size = 1;
    detail->within.of = inner + first;
    detail->within.groups = inner + first + 1;
  }
  }
}

static void take_table(uint32_t number) {
  fedldp_table *table = tables + number;
  union odds *detail = odds + number;
  uint64_t total;
  uint32_t i;
  table->detail = detail;
  table->epsilon = take_epsilon(3);
  table->categories = 2 + pick(30);
  table->bits = bits_for(table->categories);
  switch (pick(4)) {
  case 0: {
    uint32_t bits;
    detail->numbers.rows = pick(9);
    detail->numbers.outputs = pick(17);
    bits = bits_for(detail->numbers.outputs);
    for (i = 0; i < SIZE_OF(words[0]); i++) {
      int is_output = (i & ((1u << bits) - 1)) < detail->numbers.outputs;
      words[number][i] = is_output || pick(64) == 0 ? take(8) : 0;
      others[number][i] = (uint16_t)pick(detail->numbers.outputs + (pick(128) == 0 ? 1 : 0));
    }
    for (i = 0; i < 16; i++) letters[i] = take(8), slopes[i] = take(8);
    detail->numbers.letters = pick(2) ? letters : NULL;
    detail->numbers.slopes = slopes;
    detail->numbers.thresholds = words[number];
    detail->numbers.others = others[number];
    detail->numbers.half = take(8);
    table->coder = &fedldp_numbers_coder;
    table->categories = 0;
    table->bits = bits;
    break;
  }
  case 1:
    table->coder = &fedldp_response_coder;
    total = pick(8) ? UINT64_C(1) << pick(64) : take_odds();
    detail->response.other = pick(8) ? total / (table->categories + pick(256)) : take_odds();
    detail->response.same = total - (table->categories - 1) * detail->response.other;
    break;
  case 2:
    table->coder = &fedldp_unary_coder;
    table->bits = table->categories;
    detail->unary.total = total = pick(8) ? UINT64_C(1) << pick(64) : take_odds();
    detail->unary.absent = pick(8) ? total / (2 + pick(256)) : take_odds();
    break;
  default: {
    uint64_t directions = 0, power = 1;
    table->coder = &fedldp_lines_coder;
    detail->lines.base = 2 + pick(8);
    for (i = 1; power * detail->lines.base < table->categories; i++) power *= detail->lines.base;
    detail->lines.digits = pick(8) ? i : 1 + pick(6);
    if (i == 1 && pick(8)) detail->lines.base = table->categories;
    total = pick(8) ? UINT64_C(1) << pick(64) : take_odds();
    detail->lines.other = pick(8) ? total / (detail->lines.base + pick(256)) : take_odds();
    detail->lines.same = total - (detail->lines.base - 1) * detail->lines.other;
    power = 1;
    for (i = 0; i < detail->lines.digits; i++, power *= detail->lines.base) directions += power;
    table->bits = bits_for(directions * detail->lines.base);
  }
  }
  if (pick(16) == 0) table->bits = (uint32_t)take(4);
  if (pick(16) == 0) table->categories = (uint32_t)take(4);
}

/* A part of the next attributes, which mostly fit it. */
static void take_part(uint32_t number, uint32_t *next, uint32_t table_count) {
  fedldp_part *part = parts + number;
  union shares *detail = shares + number;
  uint32_t kind = pick(4), left = SIZE_OF(attributes) - *next, i;
  part->detail = detail;
  part->attributes = part_attributes[number];
  part->count = kind == 1 ? 1 : 1 + pick(3);
  if (part->count > left) part->count = left;
  for (i = 0; i < part->count; i++) {
    fedldp_attribute *attribute = attributes + *next;
    uint32_t table = pick(table_count + (pick(16) == 0 ? 1 : 0));
    take_attribute(attribute, details + *next, 0);
    if (pick(16)) {
      if (kind == 0 && attribute->categories > 0) attribute->read = read_anything;
      attribute->categories = kind > 1 && table < table_count ? tables[table].categories : 0;
    }
    part_attributes[number][i] = (uint16_t)(pick(32) ? *next : pick(SIZE_OF(attributes) + 1));
    part_tables[number][i] = (uint16_t)table;
    ++*next;
  }
  switch (kind) {
  case 0:
    part->strategy = &fedldp_cube_strategy;
    detail->cube.epsilon = take_epsilon(3);
    for (i = 0; i < 4; i++) {
      detail->cube.heavy[i] = i < 1 || pick(16) == 0 ? (uint32_t)take(4) : 0;
      detail->cube.light[i] = i < 1 || pick(16) == 0 ? (uint32_t)take(4) : 0;
      detail->cube.share[i % 3] = (uint32_t)take(4);
    }
    detail->cube.heavy[0] |= (uint32_t)(pick(8) ? UINT32_C(1) << 31 : 0);
    detail->cube.light[0] >>= pick(8) ? 8 : 0;
    detail->cube.bits = (uint32_t)take(pick(2) ? 1 : 4);
    detail->cube.threshold = pick(8) ? (int32_t)pick(4) - 1 : (int32_t)take(4);
    break;
  case 1: {
    fedldp_directions *directions = &detail->directions;
    fedldp_attribute *attribute = attributes + *next - 1;
    uint64_t all, low, total = UINT64_C(1) << pick(64);
    part->strategy = &fedldp_directions_strategy;
    if (pick(16)) {
      attribute->read = fedldp_read_vector;
      attribute->detail = details + *next - 1;
      attribute->categories = 0;
    }
    directions->epsilon = take_epsilon(3);
    directions->directions = pick(16) ? (4u << pick(7)) - 1 : (uint32_t)take(4);
    directions->best = pick(16) ? 1 + pick(8) : (uint32_t)take(4);
    directions->seed_bits = pick(16) ? 1 + pick(24) : (uint32_t)take(4);
    low = pick(16) ? total / (4 * (uint64_t)directions->directions + 1) : take_odds();
    directions->low = low;
    directions->high = pick(16) ? low + pick(256) * (low / 128 + 1) : take_odds();
    directions->key = take(8);
    all = directions->best * directions->high +
          (uint64_t)(directions->directions - directions->best) * directions->low;
    directions->null = total - all;
    directions->null_input = pick(2) ? 0 : total - directions->directions * directions->low;
    break;
  }
  default:
    part->strategy = &fedldp_sample_strategy;
    detail->sample.tables = part_tables[number];
    detail->sample.k = pick(16) ? 1 + pick(6) : (uint32_t)take(4);
  }
}

/* Make the numbers right that no leak needs to be wrong: the sum of a cube's odds, and sizes. */
static void settle(fedldp_plan *plan) {
  uint32_t i;
  for (i = 0; i < plan->part_count; i++) {
    fedldp_cube *cube = &shares[i].cube;
    fedldp_need need = {{{0, 0, 0}}, 0, 0};
    uint32_t k, d = 0, h;
    for (k = 0; k < parts[i].count; k++) {
      if (parts[i].attributes[k] >= plan->attribute_count) return;
      d += attributes[parts[i].attributes[k]].size;
    }
    if (parts[i].strategy == &fedldp_cube_strategy && d <= 16) {
      uint64_t ways = 1, sum = 0, rest;
      for (h = 0; h <= d; h++) {
        int is_heavy = 2 * (int32_t)h - (int32_t)d > cube->threshold;
        sum += ways * (is_heavy ? cube->heavy[0] : cube->light[0]);
        ways = ways * (d - h) / (h + 1);
      }
      if (sum > 0) { /* share = 2^bits / sum, a bit at a time */
        for (cube->bits = 0; sum >> cube->bits != 0; cube->bits++) continue;
        rest = UINT64_C(1) << cube->bits;
        cube->share[2] = (uint32_t)(rest / sum);
        for (rest %= sum, k = 64; k-- > 0; rest -= rest >= sum ? sum : 0) {
          rest <<= 1;
          cube->share[k / 32] = cube->share[k / 32] << 1 | (rest >= sum);
        }
        cube->bits += 64;
      }
    }
    if (parts[i].strategy->check(plan, parts + i, &need) != FEDLDP_OK) return;
    plan->bits += need.bits;
    if (need.scratch > plan->scratch) plan->scratch = need.scratch;
  }
}

static void fuzz_plan(void) {
  fedldp_plan plan;
  fedldp_epsilon cap = take_epsilon(1);
  uint32_t next = 0, i;
  memset(&plan, 0, sizeof plan);
  plan.attributes = attributes;
  plan.tables = tables;
  plan.parts = parts;
  plan.attribute_count = 1 + pick(SIZE_OF(attributes));
  plan.table_count = pick(SIZE_OF(tables) + 1);
  plan.part_count = 1 + pick(pick(4) ? 2 : MOST_PARTS);
  plan.epsilon = take_epsilon(1);
  plan.periods = pick(4) ? 0 : (uint32_t)take(4);
  plan.answers = pick(4) ? 0 : pick(100);
  for (i = 0; i < plan.table_count; i++) take_table(i);
  for (i = 0; i < plan.part_count; i++) take_part(i, &next, plan.table_count);
  if (pick(32)) plan.attribute_count = next;
  plan.scratch = plan.answers;
  if (pick(16)) settle(&plan);
  if (fedldp_check(&plan, &cap) != FEDLDP_OK || plan.bits > 8 * MOST_BYTES) return;
  take_row();
  draw(&plan);
}

/* Two pages of flash with any bytes, also behind a checksum that is right. */

#define FLASH_BYTES (MOST_BYTES + 1024)
static uint8_t pages[2][FLASH_BYTES];

static int erase(void *context, int page) {
  (void)context;
  memset(pages[page], 0xFF, FLASH_BYTES);
  return 0;
}

static int program(void *context, int page, size_t offset, const uint8_t *bytes) {
  size_t i, unit = *(const size_t *)context;
  require(offset % unit == 0 && offset + unit <= FLASH_BYTES, "a unit that is not in the page");
  for (i = 0; i < unit; i++) pages[page][offset + i] &= bytes[i];
  return 0;
}

static int read_page(void *context, int page, size_t offset, uint8_t *bytes, size_t count) {
  (void)context;
  require(offset + count <= FLASH_BYTES, "bytes that are not in the page");
  memcpy(bytes, pages[page] + offset, count);
  return 0;
}

static void fuzz_ledger(const fedldp_plan *plan) {
  size_t size = FEDLDP_RECORD_BYTES(plan->bits, plan->answers) + pick(9), unit = 1u << pick(6), i;
  uint8_t *record = malloc(size);
  uint64_t *scratch = malloc((plan->scratch + 1) * sizeof *scratch);
  fedldp_flash flash = {erase, program, read_page, NULL, FLASH_BYTES, 0};
  fedldp_ledger ledger = {fedldp_flash_load, fedldp_flash_store, NULL, NULL, 0};
  fedldp_vehicle vehicle;
  fedldp_epsilon before, after;
  fedldp_status known, status;
  const uint8_t *report;
  int page;
  require(record != NULL && scratch != NULL, "no memory");
  flash.context = &unit;
  flash.unit = unit;
  ledger.context = &flash;
  ledger.record = record;
  ledger.size = size;
  for (page = 0; page < 2; page++) {
    uint32_t crc;
    erase(NULL, page);
    if (pick(4) == 0) continue;
    memcpy(pages[page], "fldp", 4);
    for (i = 4; i < 12; i++) pages[page][i] = (uint8_t)(i < 8 ? size >> (56 - 8 * i) : take(1));
    for (i = 16; i < 16 + size; i++) pages[page][i] = (uint8_t)take(1);
    pages[page][16] = pick(4) ? 1 : pages[page][16];
    if (pick(2)) memcpy(pages[page] + 40, plan->question, 32);
    crc = fedldp_crc32(fedldp_crc32(0, pages[page], 12), pages[page] + 16, size);
    for (i = 0; i < 4; i++) pages[page][12 + i] = (uint8_t)(crc >> (24 - 8 * i));
    if (pick(4) == 0) pages[page][pick(FLASH_BYTES)] ^= (uint8_t)take(1);
    if (pick(4) == 0) memset(pages[page] + FLASH_BYTES - unit, 0, unit);
  }
  memset(&vehicle, 0, sizeof vehicle);
  vehicle.plan = plan;
  vehicle.cap = take_epsilon(3);
  vehicle.random = give;
  vehicle.ledger = ledger;
  vehicle.scratch = scratch;
  known = fedldp_spent(&ledger, &before);
  take_row();
  status = fedldp_answer(&vehicle, take(pick(2) ? 1 : 8), pick(9), row, &report);
  require((status == FEDLDP_OK) == (report != NULL), "a report without the status OK");
  require(known == FEDLDP_OK || report == NULL, "a report without a ledger");
  if (known == FEDLDP_OK) {
    require(fedldp_spent(&ledger, &after) == FEDLDP_OK, "a ledger that is lost");
    for (i = 3; i-- > 0;) {
      require(after.limbs[i] >= before.limbs[i], "less spent than before");
      if (after.limbs[i] > before.limbs[i]) break;
    }
  }
  free(record);
  free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  input = data;
  input_end = data + size;
  switch (pick(4)) {
  case 0:
    take_row();
    draw(fuzz_plans[pick(FUZZ_PLANS)]);
    break;
  case 1: fuzz_ledger(fuzz_plans[pick(FUZZ_PLANS)]); break;
  default: fuzz_plan();
  }
  return 0;
}
