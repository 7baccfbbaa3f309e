/* The core of a vehicle: check a compiled plan, and draw a report. See fedldp.h.

In this order: large integers, random numbers, coders of tables, strategies of parts, plans. The
reference is docs/wire-format.md, and vehicle.py beside it. */

#include "fedldp_internal.h"

typedef struct fedldp_state {
  fedldp_random *random;
  void *context;
  uint64_t *scratch;
  uint8_t *record;
  uint32_t position; /* of the next bit in the record */
  fedldp_status status;
} fedldp_state;

static uint32_t bit_length(uint64_t x) {
  uint32_t bits = 0;
  for (; x != 0; x >>= 1) bits++;
  return bits;
}

static int is_power(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

/* Large integers: see fedldp_internal.h. */

/* Divide by a number below 2^16, rounded down. */
static void divide_by(uint32_t *a, size_t n, uint32_t divisor) {
  uint32_t rest = 0;
  while (n-- > 0) {
    uint32_t high = rest << 16 | a[n] >> 16, low;
    low = high % divisor << 16 | (a[n] & 0xFFFF);
    a[n] = high / divisor << 16 | low / divisor;
    rest = low % divisor;
  }
}

static uint32_t bits_of(const uint32_t *a, size_t n) {
  while (n > 0 && a[n - 1] == 0) n--;
  return n > 0 ? (uint32_t)n * 32 - 32 + bit_length(a[n - 1]) : 0;
}

/* e^epsilon, rounded down: its power series, every term rounded down. For numbers up to 2^97. */
#define FRACTION_LIMBS 5
#define POWER_LIMBS (FRACTION_LIMBS + 1)

static void exponential(const fedldp_epsilon *epsilon, uint32_t power[POWER_LIMBS]) {
  uint32_t term[POWER_LIMBS + 3], k = 0, i;
  clear(term, POWER_LIMBS + 3);
  term[FRACTION_LIMBS] = 1;
  memcpy(power, term, POWER_LIMBS * sizeof *power);
  do {
    for (i = POWER_LIMBS; i-- > 0;) { /* times epsilon, from the highest limb on */
      uint32_t limb = term[i];
      term[i] = 0;
      add_product(term + i, limb, epsilon->limbs, 3, POWER_LIMBS + 3 - i);
    }
    k++;
    divide_by(term, POWER_LIMBS + 3, k);
    for (i = 0; i < 5; i++) divide_by(term, POWER_LIMBS + 3, i < 4 ? 10000 : 1000);
    add_limbs(power, term, POWER_LIMBS);
  } while (bits_of(term, POWER_LIMBS) != 0);
}

static int is_budget(const fedldp_epsilon *epsilon) {
  static const fedldp_epsilon least = {{0x6FC10000, 0x002386F2, 0}}, most = FEDLDP_WHOLE(16);
  return at_most(least.limbs, epsilon->limbs, 3) && at_most(epsilon->limbs, most.limbs, 3);
}

/* Whether two odds of up to 97 bits differ by no more than a factor of e^epsilon. */
static int is_within(const uint32_t *largest, const uint32_t *least, size_t n,
                     const uint32_t power[POWER_LIMBS]) {
  uint64_t carry = 0, borrow = 0;
  size_t i, j;
  for (i = 0; i < POWER_LIMBS + n; i++) { /* limb i of the product, less that of the largest odds */
    uint64_t low = (uint32_t)carry, high = carry >> 32;
    for (j = i < POWER_LIMBS ? 0 : i - POWER_LIMBS + 1; j < n && j <= i; j++) {
      uint64_t product = (uint64_t)power[i - j] * least[j];
      low += (uint32_t)product;
      high += product >> 32;
    }
    carry = high + (low >> 32);
    if (i < FRACTION_LIMBS) continue;
    high = i < FRACTION_LIMBS + n ? largest[i - FRACTION_LIMBS] : 0;
    borrow = ((uint32_t)low - high - borrow) >> 63;
  }
  return borrow == 0;
}

static int is_within64(uint64_t largest, uint64_t least, const uint32_t power[POWER_LIMBS]) {
  uint32_t a[2], b[2];
  a[0] = (uint32_t)largest, a[1] = (uint32_t)(largest >> 32);
  b[0] = (uint32_t)least, b[1] = (uint32_t)(least >> 32);
  return is_within(a, b, 2, power);
}

static int is_private(uint64_t largest, uint64_t least, const fedldp_epsilon *epsilon) {
  uint32_t power[POWER_LIMBS];
  if (!is_budget(epsilon)) return 0;
  exponential(epsilon, power);
  return is_within64(largest, least, power);
}

/* Random numbers. If the source fails, zeros are used, and nothing is released. */

static void random_bytes(fedldp_state *state, uint8_t *bytes, size_t count) {
  if (state->status == FEDLDP_OK && state->random(state->context, bytes, count) != 0)
    state->status = FEDLDP_NO_RANDOM;
  if (state->status != FEDLDP_OK) memset(bytes, 0, count);
}

static uint64_t word64(fedldp_state *state) {
  uint8_t bytes[8];
  random_bytes(state, bytes, sizeof bytes);
  return big_endian(bytes, sizeof bytes);
}

static uint32_t word32(fedldp_state *state) {
  uint8_t bytes[4];
  random_bytes(state, bytes, sizeof bytes);
  return (uint32_t)big_endian(bytes, sizeof bytes);
}

/* A number below n, from 1 to 2^25. The 64 bits beyond those of n make it rare to draw again. */
static uint32_t below(uint32_t n, fedldp_state *state) {
  uint32_t bits = bit_length(n) + 64, size = (bits + 7) / 8, drop = 8 * size - bits, rest = 1, i;
  uint32_t share_high = 0, quotient;
  uint64_t share = 0;
  for (i = 0; i < bits; i++) { /* share = floor(2^bits / n), in 96 bits */
    rest <<= 1;
    share_high = share_high << 1 | (uint32_t)(share >> 63);
    share = share << 1 | (rest >= n);
    rest -= rest >= n ? n : 0;
  }
  do {
    uint8_t bytes[12];
    uint64_t low;
    uint32_t high, top = bit_length(n), part_high;
    random_bytes(state, bytes, size);
    high = (uint32_t)big_endian(bytes, size - 8);
    low = big_endian(bytes + size - 8, 8);
    low = drop ? low >> drop | (uint64_t)high << (64 - drop) : low;
    high >>= drop;
    for (quotient = 0, i = top + 1; i-- > 0;) { /* the number divided by share */
      uint64_t part = share << i, fits;
      part_high = i ? share_high << i | (uint32_t)(share >> (64 - i)) : share_high;
      fits = less(part_high, high) | (equal(part_high, high) & (1 - less(low, part)));
      high -= (part_high + (uint32_t)less(low, part)) & mask32(fits);
      low -= part & mask(fits);
      quotient = quotient << 1 | (uint32_t)fits;
    }
  } while (quotient >= n && state->status == FEDLDP_OK);
  return quotient;
}

/* Choose k of d numbers (Floyd's algorithm), which are published. */
static void choose(uint32_t k, uint32_t d, fedldp_state *state, uint64_t *chosen) {
  uint32_t count, i;
  for (count = 0; count < k; count++) {
    uint32_t last = d - k + count;
    uint64_t number = below(last + 1, state);
    for (i = 0; i < count && chosen[i] != number; i++) continue;
    if (i < count) number = last;
    for (i = count; i > 0 && chosen[i - 1] > number; i--) chosen[i] = chosen[i - 1];
    chosen[i] = number;
  }
}

fedldp_status fedldp_choose(uint32_t k, uint32_t d, fedldp_random *random, void *context,
                            uint64_t *chosen) {
  fedldp_state state = {NULL, NULL, NULL, NULL, 0, FEDLDP_OK};
  if (k < 1 || k > d || d > UINT32_C(1) << 24) return FEDLDP_REFUSED;
  state.random = random;
  state.context = context;
  choose(k, d, &state, chosen);
  return state.status;
}

/* Round a position up or down at random, with 32 random bits. */
static uint64_t letter_of(uint64_t place, fedldp_state *state) {
  uint64_t scaled = fedldp_real_add(fedldp_real_multiply(place, REAL_WORD), REAL_HALF);
  return ((fedldp_real_halves(scaled, 0) >> 1) + word32(state)) >> 32;
}

static void put_bits(fedldp_state *state, uint64_t code, uint32_t bits) {
  while (bits-- > 0) {
    uint32_t bit = bits < 64 ? (uint32_t)(code >> bits) & 1 : 0;
    uint8_t *byte = state->record + (state->position >> 3);
    *byte = (uint8_t)(*byte | bit << (7 - (state->position & 7)));
    state->position++;
  }
}

/* Coders: the codes that tables draw. What a reader returns beyond the last row or category counts
as the last one, so that no constant of a reader can change the odds. */

#define LARGEST_TOTAL (UINT64_C(1) << 62)

static uint32_t column_bits(uint64_t outputs) { return bit_length(outputs - 1); }

/* Whether odds have a total that is a power of two, at most 2^62: largest + others * least. */
static int has_total(uint64_t largest, uint64_t others, uint64_t least, uint64_t *total) {
  uint64_t high, low;
  high = high_half(others, least, &low);
  *total = largest + low;
  return high == 0 && low <= LARGEST_TOTAL && largest <= LARGEST_TOTAL && is_power(*total) &&
         *total <= LARGEST_TOTAL;
}

/* How many of 2^64 words give an output in a row of a table of numbers. */
static int odds_of(const fedldp_numbers *numbers, uint32_t row, uint32_t output, uint64_t *odds) {
  uint32_t bits = column_bits(numbers->outputs), columns = UINT32_C(1) << bits, i;
  const uint64_t *thresholds = numbers->thresholds + (size_t)row * columns;
  const uint16_t *others = numbers->others + (size_t)row * columns;
  uint64_t size = UINT64_C(1) << (64 - bits);
  *odds = 0;
  for (i = 0; i < columns; i++) {
    uint64_t own = (thresholds[i] >> bits) + nonzero(thresholds[i] << (64 - bits)), add;
    add = i == output ? own : 0;
    add += others[i] == output ? size - own : 0;
    if (others[i] >= numbers->outputs || (i >= numbers->outputs && own != 0)) return 0;
    *odds += add;
    if (*odds < add) return 0; /* 2^64 of them */
  }
  return 1;
}

static fedldp_status numbers_check(const fedldp_table *table) {
  const fedldp_numbers *numbers = table->detail;
  uint32_t power[POWER_LIMBS], output, row;
  if (!is_budget(&table->epsilon) || numbers->outputs < 2 || numbers->outputs > 1u << 16 ||
      numbers->rows < 2 || numbers->rows > 1u << 21 || table->categories != 0 ||
      table->bits != column_bits(numbers->outputs))
    return FEDLDP_REFUSED;
  if (numbers->outputs > FEDLDP_MOST_OUTPUTS) return FEDLDP_LIMIT;
  exponential(&table->epsilon, power);
  for (output = 0; output < numbers->outputs; output++) {
    uint64_t least = UINT64_MAX, largest = 0, odds;
    for (row = 0; row < numbers->rows; row++) {
      if (!odds_of(numbers, row, output, &odds)) return FEDLDP_REFUSED;
      least = odds < least ? odds : least;
      largest = odds > largest ? odds : largest;
    }
    if (!is_within64(largest, least, power)) return FEDLDP_REFUSED;
  }
  return FEDLDP_OK;
}

/* All rows and columns are read, whichever is needed. */
static void numbers_draw(const fedldp_table *table, fedldp_input input, fedldp_state *state) {
  const fedldp_numbers *numbers = table->detail;
  const uint64_t *threshold = numbers->thresholds;
  const uint16_t *other = numbers->others;
  uint64_t word = word64(state), letter = letter_of(fedldp_position_of(numbers, input.real), state);
  uint64_t column = word >> (64 - table->bits), found = 0;
  uint32_t row, i, alternative = 0;
  letter = select64(less(letter, numbers->rows), letter, numbers->rows - 1);
  for (row = 0; row < numbers->rows; row++) {
    uint64_t is_row = equal(row, letter);
    for (i = 0; i < UINT32_C(1) << table->bits; i++, threshold++, other++) {
      uint64_t is_cell = mask(is_row & equal(i, column));
      found |= *threshold & is_cell;
      alternative |= *other & (uint32_t)is_cell;
    }
  }
  put_bits(state, select64(less(word << table->bits, found), column, alternative), table->bits);
}

const fedldp_coder fedldp_numbers_coder = {numbers_check, numbers_draw};

static uint64_t response_code(uint64_t same, uint64_t other, uint32_t labels, uint64_t own,
                              fedldp_state *state) {
  uint64_t total = same + (labels - 1) * other, most = same - other, is_own, code, rest;
  uint64_t u = word64(state) >> (65 - bit_length(total));
  is_own = less(u, most);
  code = divided((u - most) & mask(1 - is_own), other, column_bits(labels), &rest);
  return select64(is_own, own, code);
}

static fedldp_status response_check(const fedldp_table *table) {
  const fedldp_response *odds = table->detail;
  uint64_t total;
  if (table->categories < 2 || table->categories > 1u << 16 ||
      table->bits != column_bits(table->categories) || odds->other < 1 ||
      odds->same <= odds->other ||
      !has_total(odds->same, table->categories - 1, odds->other, &total) ||
      !is_private(odds->same, odds->other, &table->epsilon))
    return FEDLDP_REFUSED;
  return FEDLDP_OK;
}

static void response_draw(const fedldp_table *table, fedldp_input input, fedldp_state *state) {
  const fedldp_response *odds = table->detail;
  uint32_t last = table->categories - 1, own = select32(less(input.code, last), input.code, last);
  put_bits(state, response_code(odds->same, odds->other, table->categories, own, state),
           table->bits);
}

const fedldp_coder fedldp_response_coder = {response_check, response_draw};

static fedldp_status unary_check(const fedldp_table *table) {
  const fedldp_unary *odds = table->detail;
  if (table->categories < 2 || table->categories > 1u << 16 || table->bits != table->categories ||
      !is_power(odds->total) || odds->total > LARGEST_TOTAL || odds->absent < 1 ||
      odds->absent >= odds->total / 2 ||
      !is_private(odds->total - odds->absent, odds->absent, &table->epsilon))
    return FEDLDP_REFUSED;
  return FEDLDP_OK;
}

static void unary_draw(const fedldp_table *table, fedldp_input input, fedldp_state *state) {
  const fedldp_unary *odds = table->detail;
  uint32_t shift = 65 - bit_length(odds->total), i;
  for (i = 0; i < table->categories; i++) {
    uint64_t most = select64(equal(i, input.code), odds->total / 2, odds->absent);
    put_bits(state, less(word64(state) >> shift, most), 1);
  }
}

const fedldp_coder fedldp_unary_coder = {unary_check, unary_draw};

#define MOST_LABELS (UINT32_C(1) << 20)
#define MOST_LINE_CODES (UINT32_C(1) << 26)

/* The number of directions: those of one digit, and so on. 0 if there are too many. */
static uint32_t lines_directions(const fedldp_lines *lines) {
  uint64_t power = 1, sum = 0;
  uint32_t i;
  for (i = 0; i < lines->digits; i++, power *= lines->base) {
    sum += power;
    if (sum * lines->base > MOST_LINE_CODES) return 0;
  }
  return (uint32_t)sum;
}

static int is_prime(uint32_t n) {
  uint32_t i;
  for (i = 2; i <= n / i; i++)
    if (n % i == 0) return 0;
  return 1;
}

static fedldp_status lines_check(const fedldp_table *table) {
  const fedldp_lines *lines = table->detail;
  uint64_t total, power = 1;
  uint32_t i;
  if (table->categories < 2 || table->categories > MOST_LABELS || lines->digits < 1 ||
      lines->digits > 21 || lines->base < 2 || lines->base > MOST_LINE_CODES ||
      lines_directions(lines) == 0 || (lines->digits > 1 && !is_prime(lines->base)) ||
      table->bits != column_bits((uint64_t)lines_directions(lines) * lines->base))
    return FEDLDP_REFUSED;
  for (i = 1; i < lines->digits; i++) power *= lines->base;
  if (power >= table->categories || power * lines->base < table->categories || lines->other < 1 ||
      lines->same <= lines->other || !has_total(lines->same, lines->base - 1, lines->other, &total) ||
      !is_private(lines->same, lines->other, &table->epsilon))
    return FEDLDP_REFUSED;
  return FEDLDP_OK;
}

/* The direction is published, and may decide what is computed; the category may not. */
static void lines_draw(const fedldp_table *table, fedldp_input input, fedldp_state *state) {
  const fedldp_lines *lines = table->detail;
  uint64_t low, own = input.code, digit, product = 0, rest;
  uint32_t direction = (uint32_t)high_half(word64(state), lines_directions(lines), &low);
  uint32_t number = direction, first = 1, i;
  for (; number >= first; first *= lines->base) number -= first;
  number += first;
  for (i = 0; i < lines->digits; i++, number /= lines->base) {
    own = divided(own, lines->base, 20, &digit);
    product += wide((uint32_t)digit, number % lines->base);
  }
  divided(product, lines->base, bit_length(lines->base) + 5, &rest);
  rest = response_code(lines->same, lines->other, lines->base, rest, state);
  put_bits(state, (uint64_t)direction * lines->base + rest, table->bits);
}

const fedldp_coder fedldp_lines_coder = {lines_check, lines_draw};

/* Strategies: how parts answer their attributes. */

/* A sample: k of the coordinates, each through its table. */

static uint32_t coordinates(const fedldp_plan *plan, const fedldp_part *part) {
  uint32_t d = 0, i;
  for (i = 0; i < part->count; i++) d += plan->attributes[part->attributes[i]].size;
  return d;
}

/* The cost of the k most expensive coordinates, from the highest cost to the lowest. */
static int sample_cost(const fedldp_plan *plan, const fedldp_part *part, fedldp_epsilon *cost) {
  const fedldp_sample *sample = part->detail;
  fedldp_epsilon above = {{UINT32_MAX, UINT32_MAX, UINT32_MAX}};
  uint32_t left = sample->k, i;
  memset(cost, 0, sizeof *cost);
  while (left > 0) {
    fedldp_epsilon highest = {{0, 0, 0}}, sum;
    uint32_t count = 0;
    for (i = 0; i < part->count; i++) {
      const fedldp_epsilon *epsilon = &plan->tables[sample->tables[i]].epsilon;
      uint32_t size = plan->attributes[part->attributes[i]].size;
      if (at_most(above.limbs, epsilon->limbs, 3) || at_most(epsilon->limbs, highest.limbs, 3)) {
        count += memcmp(epsilon, &highest, sizeof highest) == 0 ? size : 0;
        continue;
      }
      highest = *epsilon;
      count = size;
    }
    if (count == 0) return 0;
    count = count < left ? count : left;
    multiply(sum.limbs, 3, &count, 1, highest.limbs, 3);
    if (add_limbs(cost->limbs, sum.limbs, 3)) return 0;
    above = highest;
    left -= count;
  }
  return 1;
}

static uint32_t sample_widest(const fedldp_plan *plan, const fedldp_part *part) {
  const fedldp_sample *sample = part->detail;
  uint32_t widest = 0, i;
  for (i = 0; i < part->count; i++) {
    uint32_t bits = plan->tables[sample->tables[i]].bits;
    widest = bits > widest ? bits : widest;
  }
  return widest;
}

static fedldp_status sample_check(const fedldp_plan *plan, const fedldp_part *part,
                                  fedldp_need *need) {
  const fedldp_sample *sample = part->detail;
  uint32_t d = coordinates(plan, part), i;
  uint64_t sum = 0;
  for (i = 0; i < part->count; i++) {
    const fedldp_attribute *attribute = plan->attributes + part->attributes[i];
    if (sample->tables[i] >= plan->table_count ||
        plan->tables[sample->tables[i]].categories != attribute->categories ||
        attribute->read == fedldp_read_vector)
      return FEDLDP_REFUSED;
    sum += (uint64_t)attribute->size * plan->tables[sample->tables[i]].bits;
  }
  if (sample->k < 1 || sample->k > d || !sample_cost(plan, part, &need->cost)) return FEDLDP_REFUSED;
  if (sample->k < d) sum = (uint64_t)sample->k * (column_bits(d) + sample_widest(plan, part));
  if (sum > UINT32_C(1) << 27) return FEDLDP_REFUSED;
  need->bits = (uint32_t)sum;
  need->scratch = sample->k < d ? sample->k : 0;
  return FEDLDP_OK;
}

static void sample_draw(const fedldp_plan *plan, const fedldp_part *part, const fedldp_value *row,
                        fedldp_state *state) {
  const fedldp_sample *sample = part->detail;
  uint32_t d = coordinates(plan, part), k = sample->k, sent, i = 0, start = 0;
  uint32_t widest = sample_widest(plan, part);
  if (k < d) choose(k, d, state, state->scratch);
  for (sent = 0; sent < k; sent++) {
    uint32_t coordinate = k < d ? (uint32_t)state->scratch[sent] : sent;
    const fedldp_attribute *attribute;
    const fedldp_table *table;
    fedldp_input input;
    while (coordinate - start >= plan->attributes[part->attributes[i]].size)
      start += plan->attributes[part->attributes[i++]].size;
    attribute = plan->attributes + part->attributes[i];
    table = plan->tables + sample->tables[i];
    input = attribute->read(attribute, row, coordinate - start);
    if (attribute->rounds) input.code = (uint32_t)letter_of(input.real, state);
    if (k < d) {
      put_bits(state, coordinate, column_bits(d));
      put_bits(state, 0, widest - table->bits);
    }
    table->coder->draw(table, input, state);
  }
}

const fedldp_strategy fedldp_sample_strategy = {sample_check, sample_draw};

/* A cube: a sign for each number, of which h agree with the true ones. */

#define CUBE_LIMBS ((FEDLDP_MOST_SIGNS + 97 + 64) / 32 + 2)

typedef struct cube_odds { /* those of 0, 1, ... agreements, added up */
  uint32_t ways[CUBE_LIMBS], sum[CUBE_LIMBS];
} cube_odds;

static void cube_next(const fedldp_cube *cube, uint32_t d, uint32_t h, cube_odds *odds) {
  uint32_t term[CUBE_LIMBS];
  int is_heavy = 2 * (int32_t)h - (int32_t)d > cube->threshold;
  if (h == 0) {
    clear(odds->sum, CUBE_LIMBS);
    clear(odds->ways, CUBE_LIMBS);
    odds->ways[0] = 1;
  } else { /* C(d, h) = C(d, h - 1) * (d - h + 1) / h */
    uint32_t factor = d - h + 1;
    multiply(term, CUBE_LIMBS, &factor, 1, odds->ways, CUBE_LIMBS);
    divide_by(term, CUBE_LIMBS, h);
    memcpy(odds->ways, term, sizeof term);
  }
  multiply(term, CUBE_LIMBS, is_heavy ? cube->heavy : cube->light, 4, odds->ways, CUBE_LIMBS);
  add_limbs(odds->sum, term, CUBE_LIMBS);
}

static fedldp_status cube_check(const fedldp_plan *plan, const fedldp_part *part,
                                fedldp_need *need) {
  static const uint32_t most[4] = {0, 0, 0, 1}, none[4] = {0, 0, 0, 0};
  const fedldp_cube *cube = part->detail;
  uint32_t d = coordinates(plan, part), power[POWER_LIMBS], product[CUBE_LIMBS], i;
  uint32_t all[CUBE_LIMBS];
  cube_odds odds;
  for (i = 0; i < part->count; i++)
    if (plan->attributes[part->attributes[i]].categories != 0 ||
        plan->attributes[part->attributes[i]].read == fedldp_read_vector)
      return FEDLDP_REFUSED;
  if (d < 1 || d > 10000 || cube->threshold < -(int32_t)d || cube->threshold >= (int32_t)d ||
      at_most(cube->light, none, 4) || at_most(cube->heavy, cube->light, 4) ||
      !at_most(cube->heavy, most, 4) || !is_budget(&cube->epsilon))
    return FEDLDP_REFUSED;
  exponential(&cube->epsilon, power);
  if (!is_within(cube->heavy, cube->light, 4, power)) return FEDLDP_REFUSED;
  if (d > FEDLDP_MOST_SIGNS) return FEDLDP_LIMIT;
  for (i = 0; i <= d; i++) cube_next(cube, d, i, &odds);
  /* n * share <= 2^bits < n * share + n */
  clear(all, CUBE_LIMBS);
  if (cube->bits != bits_of(odds.sum, CUBE_LIMBS) + 64) return FEDLDP_REFUSED;
  all[cube->bits / 32] = UINT32_C(1) << cube->bits % 32;
  multiply(product, CUBE_LIMBS, cube->share, 3, odds.sum, CUBE_LIMBS);
  if (!at_most(product, all, CUBE_LIMBS)) return FEDLDP_REFUSED;
  add_limbs(product, odds.sum, CUBE_LIMBS);
  if (at_most(product, all, CUBE_LIMBS)) return FEDLDP_REFUSED;
  need->cost = cube->epsilon;
  need->bits = need->scratch = d;
  return FEDLDP_OK;
}

/* Draw how many signs agree: the number of sums that are not above a random number below n. */
static uint64_t cube_agreements(const fedldp_cube *cube, uint32_t d, fedldp_state *state) {
  uint32_t number[CUBE_LIMBS], product[CUBE_LIMBS], size = (cube->bits + 7) / 8, h, again;
  uint64_t agreements;
  cube_odds odds;
  do {
    uint8_t bytes[4 * CUBE_LIMBS] = {0};
    random_bytes(state, bytes + sizeof bytes - size, size);
    for (h = 0; h < CUBE_LIMBS; h++)
      number[h] = (uint32_t)big_endian(bytes + sizeof bytes - 4 * h - 4, 4);
    for (h = 0; h < CUBE_LIMBS; h++) {
      uint64_t pair = (uint64_t)(h + 1 < CUBE_LIMBS ? number[h + 1] : 0) << 32 | number[h];
      number[h] = (uint32_t)(pair >> (8 * size - cube->bits));
    }
    for (agreements = 0, again = 0, h = 0; h <= d; h++) {
      cube_next(cube, d, h, &odds);
      multiply(product, CUBE_LIMBS, cube->share, 3, odds.sum, CUBE_LIMBS);
      again = at_most(product, number, CUBE_LIMBS);
      agreements += again;
    }
  } while (again && state->status == FEDLDP_OK);
  return agreements;
}

static void cube_draw(const fedldp_plan *plan, const fedldp_part *part, const fedldp_value *row,
                      fedldp_state *state) {
  uint32_t d = coordinates(plan, part), i, j, at = 0;
  uint64_t h = cube_agreements(part->detail, d, state), *keys = state->scratch, again;
  do {
    for (again = 0, i = 0; i < d; i++) {
      keys[i] = word64(state);
      for (j = 0; j < i; j++) again |= equal(keys[i], keys[j]);
    }
  } while (again && state->status == FEDLDP_OK);
  for (i = 0; i < part->count; i++) {
    const fedldp_attribute *attribute = plan->attributes + part->attributes[i];
    uint32_t offset;
    for (offset = 0; offset < attribute->size; offset++, at++) {
      uint64_t rank = 0, x = attribute->read(attribute, row, offset).real, sign;
      for (j = 0; j < d; j++) rank += less(keys[j], keys[at]);
      sign = letter_of(fedldp_real_add(fedldp_real_multiply(x, REAL_HALF), REAL_HALF), state);
      put_bits(state, equal(less(rank, h), sign & 1), 1);
    }
  }
}

const fedldp_strategy fedldp_cube_strategy = {cube_check, cube_draw};

/* Directions: a seed, and one of its directions. */


/* The sum of all odds, or 0 if it is not a power of two, or beyond the largest one. */
FEDLDP_APART uint64_t directions_total(const fedldp_directions *odds) {
  uint64_t best, low, n = odds->directions;
  if (high_half(odds->high, odds->best, &best) != 0 || best > LARGEST_TOTAL ||
      high_half(odds->low, n, &low) != 0 || low > LARGEST_TOTAL || odds->null > LARGEST_TOTAL ||
      odds->null_input > LARGEST_TOTAL)
    return 0;
  best += low - odds->best * odds->low + odds->null;
  if (best > LARGEST_TOTAL || !is_power(best)) return 0;
  return odds->null_input == 0 || low + odds->null_input == best ? best : 0;
}

static fedldp_status directions_check(const fedldp_plan *plan, const fedldp_part *part,
                                      fedldp_need *need) {
  const fedldp_directions *odds = part->detail;
  uint32_t d = coordinates(plan, part), n = odds->directions, index = bit_length(n);
  if (part->count != 1 || plan->attributes[part->attributes[0]].read != fedldp_read_vector ||
      d < 1 || d > 1u << 17 || n < 3 || n > 255 || !is_power((uint64_t)n + 1) || odds->best < 1 ||
      odds->best >= n || odds->low < 1 || odds->high <= odds->low || odds->seed_bits < 1 ||
      odds->seed_bits > 32 - index || directions_total(odds) == 0 ||
      !is_private(odds->high, odds->low, &odds->epsilon) ||
      (odds->null_input != 0 && !is_private(odds->null_input, odds->null, &odds->epsilon)))
    return FEDLDP_REFUSED;
  need->cost = odds->epsilon;
  need->bits = odds->seed_bits + index;
  need->scratch = (n + 1) / 4 * 3; /* for sums of 48 bits */
  return FEDLDP_OK;
}

#define NO_RANK 512
#define OPPOSITE 1024
#define TOPS (UINT32_C(1) << 27) /* more than there are */
/* How many of n numbers in pairs are at least a limit; all are below 2^31. */
static uint32_t reaching(const uint64_t *pairs, uint32_t n, uint32_t limit) {
  uint32_t count = n, i;
  for (i = 0; i < n / 2; i++) {
    count -= ((uint32_t)pairs[i] - limit) >> 31;
    count -= ((uint32_t)(pairs[i] >> 32) - limit) >> 31;
  }
  return count;
}

/* The number of a rank among n, or 0 if there are not so many. What is left of the rank counts from
the first that is equal. */
static uint32_t ranked(const uint64_t *pairs, uint32_t n, uint32_t bits, uint32_t *rank) {
  uint32_t number = 0;
  while (bits-- > 0) {
    uint32_t limit = number + (UINT32_C(1) << bits);
    number = select32(less(*rank, reaching(pairs, n, limit)), limit, number);
  }
  *rank -= reaching(pairs, n, number + 1);
  return number;
}

/* The direction of a rank, or the null code if there is none. Sums have 48 bits: all upper parts in
pairs, then all lower parts in fours. Whatever they are, ranks have one direction each. */
FEDLDP_APART uint32_t direction_of(uint64_t *tops, uint32_t null, uint32_t rank) {
  uint32_t pairs = (null + 1) / 2, flip = mask32(nonzero(rank & OPPOSITE));
  uint32_t code = null, i, wanted;
  const uint64_t *lows = tops + pairs;
  rank %= OPPOSITE;
  for (i = 0; i < pairs; i++) {
    uint32_t first = ((uint32_t)tops[i] ^ flip) + (TOPS >> 1);
    uint32_t second = ((uint32_t)(tops[i] >> 32) ^ flip) + (TOPS >> 1);
    tops[i] = (uint64_t)(second & (TOPS - 1)) << 32 | (first & (TOPS - 1));
  }
  tops[pairs - 1] &= UINT32_MAX; /* the null code has no direction */
  wanted = ranked(tops, null + 1, 27, &rank);
  for (i = 0; i < pairs; i++) {
    uint32_t two = (uint32_t)(lows[i / 2] >> 32 * (i & 1)) ^ flip;
    uint32_t first = ((two & 0xFFFF) + 1) & mask32(equal((uint32_t)tops[i], wanted));
    uint64_t second = ((two >> 16) + 1) & mask32(equal(tops[i] >> 32, wanted));
    tops[i] = second << 32 | first;
  }
  tops[pairs - 1] &= UINT32_MAX;
  wanted = ranked(tops, null + 1, 17, &rank);
  for (i = 0; i < null; i++) {
    uint64_t is_equal = equal((uint32_t)(tops[i / 2] >> 32 * (i & 1)), wanted);
    code = select32(is_equal & equal(rank, 0), i, code);
    rank -= (uint32_t)is_equal;
  }
  return code;
}

typedef struct drawing {
  uint64_t counter, sum, u; /* of words, of squares, and a random number */
  uint32_t seed, rounding;
} drawing;

static void draw_numbers(const fedldp_directions *odds, fedldp_state *state, drawing *numbers) {
  uint64_t total = odds->best * odds->high + odds->null;
  total += (odds->directions - odds->best) * odds->low;
  numbers->seed = word32(state) >> (32 - odds->seed_bits);
  numbers->rounding = word32(state);
  numbers->u = word64(state) >> (65 - bit_length(total));
  numbers->counter = fedldp_first_word(odds->key, numbers->seed);
  numbers->sum = 0;
}

/* The rank to send, with NO_RANK for the null code, and OPPOSITE. */
FEDLDP_APART uint32_t rank_of(const fedldp_directions *odds, const drawing *numbers) {
  uint64_t u = numbers->u - odds->directions * odds->low, rest;
  uint64_t share = fedldp_share_of(numbers->sum);
  uint32_t has_null = odds->null_input != 0, replaced, rank;
  if (!has_null) share = ((UINT64_C(1) << 32) + share) >> 1;
  replaced = (uint32_t)(1 - less(numbers->rounding, share));
  rank = (uint32_t)divided(u & mask(1 - (u >> 63)), odds->high - odds->low,
                           bit_length(odds->best), &rest);
  rank |= (uint32_t)(1 - less(rank, odds->best)) * NO_RANK;
  return rank | replaced * (has_null ? NO_RANK : OPPOSITE);
}

/* Send a direction by the odds that all of them have, or else the code of the rank. */
FEDLDP_APART void put_direction(const fedldp_directions *odds, const drawing *numbers,
                                uint32_t code, fedldp_state *state) {
  uint64_t is_low = less(numbers->u, odds->directions * odds->low), rest, low;
  uint32_t bits = bit_length(odds->directions);
  low = divided(numbers->u & mask(is_low), odds->low, bits, &rest);
  put_bits(state, numbers->seed, odds->seed_bits);
  put_bits(state, select64(is_low, low, code), bits);
}

static void directions_draw(const fedldp_plan *plan, const fedldp_part *part,
                            const fedldp_value *row, fedldp_state *state) {
  const fedldp_directions *odds = part->detail;
  const fedldp_attribute *attribute = plan->attributes + part->attributes[0];
  uint32_t size = attribute->size, i;
  uint64_t longer = 0; /* the length, at least 1 */
  drawing numbers;
  draw_numbers(odds, state, &numbers);
  memset(state->scratch, 0, (odds->directions + 1) / 4 * 3 * sizeof *state->scratch);
  for (i = 0; i < 2 * size; i++) { /* first the length, and then the sums */
    uint64_t x = attribute->read(attribute, row, i < size ? i : i - size).real;
    if (i < size) {
      longer = fedldp_real_add(longer, fedldp_real_multiply(x, x));
    } else {
      uint32_t q = fedldp_rounded(fedldp_real_divide(x, longer));
      uint32_t absolute = (q ^ (0 - (q >> 31))) + (q >> 31);
      numbers.sum += wide(absolute, absolute);
      fedldp_add_coordinate(q, odds, &numbers.counter, state->scratch);
    }
    if (i + 1 == size)
      longer = fedldp_real_root(select64(less(longer, REAL_ONE), REAL_ONE, longer));
  }
  i = direction_of(state->scratch, odds->directions, rank_of(odds, &numbers));
  put_direction(odds, &numbers, i, state);
}

const fedldp_strategy fedldp_directions_strategy = {directions_check, directions_draw};

/* Plans. */

/* Whether each attribute is in exactly one part, and all numbers are in range. */
static int is_shaped(const fedldp_plan *plan) {
  uint32_t i, j, k, d = 0;
  for (i = 0; i < plan->part_count; i++)
    for (j = 0; j < plan->parts[i].count; j++)
      if (plan->parts[i].attributes[j] >= plan->attribute_count) return 0;
  for (k = 0; k < plan->attribute_count; k++) {
    uint32_t count = 0, size = plan->attributes[k].size;
    for (i = 0; i < plan->part_count; i++)
      for (j = 0; j < plan->parts[i].count; j++) count += plan->parts[i].attributes[j] == k;
    if (count != 1 || size < 1 || size > UINT32_C(1) << 24) return 0;
    d += size;
    if (d > UINT32_C(1) << 24) return 0;
  }
  return plan->attribute_count > 0 && plan->attribute_count <= 1u << 16 && is_budget(&plan->epsilon);
}

fedldp_status fedldp_check(const fedldp_plan *plan, const fedldp_epsilon *cap) {
  fedldp_epsilon total = {{0, 0, 0}};
  uint32_t bits = 0, i;
  if (!is_shaped(plan)) return FEDLDP_REFUSED;
  for (i = 0; i < plan->table_count; i++) {
    fedldp_status status = plan->tables[i].coder->check(plan->tables + i);
    if (status != FEDLDP_OK) return status;
  }
  for (i = 0; i < plan->part_count; i++) {
    fedldp_need need = {{{0, 0, 0}}, 0, 0};
    const fedldp_part *part = plan->parts + i;
    fedldp_status status = part->strategy->check(plan, part, &need);
    if (status != FEDLDP_OK) return status;
    if (add_limbs(total.limbs, need.cost.limbs, 3) || !at_most(total.limbs, plan->epsilon.limbs, 3))
      return FEDLDP_EXPENSIVE;
    if (need.scratch > plan->scratch) return FEDLDP_LIMIT;
    bits += need.bits;
    if (bits > UINT32_C(1) << 27) return FEDLDP_REFUSED;
  }
  if (bits != plan->bits || plan->answers > plan->periods || plan->periods > UINT32_C(1) << 16 ||
      (plan->periods > 0 && plan->answers < 1))
    return FEDLDP_REFUSED;
  if (plan->answers > plan->scratch) return FEDLDP_LIMIT;
  return at_most(total.limbs, cap->limbs, 3) ? FEDLDP_OK : FEDLDP_EXPENSIVE;
}

fedldp_status fedldp_draw(const fedldp_plan *plan, const fedldp_value *row, fedldp_random *random,
                          void *context, uint64_t *scratch, uint8_t *report) {
  size_t size = FEDLDP_REPORT_BYTES(plan->bits);
  fedldp_state state = {NULL, NULL, NULL, NULL, 0, FEDLDP_OK};
  uint32_t i;
  memset(report, 0, size);
  state.random = random;
  state.context = context;
  state.scratch = scratch;
  state.record = report + FEDLDP_HEADER_BYTES;
  for (i = 0; i < plan->part_count; i++)
    plan->parts[i].strategy->draw(plan, plan->parts + i, row, &state);
  report[0] = 1;
  memcpy(report + 1, plan->fingerprint, 7);
  report[11] = 1;
  put_big_endian(report + 12,
                 fedldp_crc32(fedldp_crc32(0, report, 12), report + FEDLDP_HEADER_BYTES,
                              size - FEDLDP_HEADER_BYTES),
                 4);
  if (state.status != FEDLDP_OK) memset(report, 0, size);
  memset(scratch, 0, plan->scratch * sizeof *scratch);
  return state.status;
}
