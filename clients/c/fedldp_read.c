/* Reading: what a value of a row is for a plan, before any coder. What is here can cost accuracy,
never privacy; it does the same work for every value, so that time says nothing about a row. */

#include "fedldp_internal.h"

/* Doubles in integers: the same on every machine, and the same work for every value. They round as
IEEE 754 does, to the nearest and then to even. Infinity counts as 2^1024; NaN never gets here. */

#define REAL_LARGEST_NUMBER UINT64_C(0x54B249AD2594C37D) /* 1e100 */

/* A number is mantissa / 2^63 * 2^(exponent - 1023). The highest bit of the mantissa is set, unless
the number is subnormal or 0. */
static uint64_t mantissa_of(uint64_t a) {
  return ((a & ((UINT64_C(1) << 52) - 1)) | nonzero((a >> 52) & 2047) << 52) << 11;
}

static int32_t exponent_of(uint64_t a) {
  uint32_t field = (uint32_t)(a >> 52) & 2047;
  return (int32_t)(field + ((field - 1) >> 31));
}

/* All bits if x is not 0. */
static uint32_t some32(uint32_t x) { return mask32((x | (0 - x)) >> 31); }

/* Shift left until the highest bit is set, and return by how much. Here and below in words of 32
bits, as some processors shift longer numbers by calling a function that branches. */
static int32_t normalize(uint64_t *x) {
  uint32_t high = (uint32_t)(*x >> 32), low = (uint32_t)*x, some = some32(high), zeros;
  high |= low & ~some;
  low &= some;
  zeros = high | high >> 1;
  zeros |= zeros >> 2;
  zeros |= zeros >> 4;
  zeros |= zeros >> 8;
  zeros = ~(zeros | zeros >> 16); /* a bit for each leading zero, which are counted */
  zeros -= zeros >> 1 & 0x55555555;
  zeros = (zeros & 0x33333333) + (zeros >> 2 & 0x33333333);
  zeros = (((zeros + (zeros >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24) & 31;
  *x = (uint64_t)(high << zeros | low >> 1 >> (31 - zeros)) << 32 | low << zeros;
  return (int32_t)(zeros + (32 & ~some));
}

/* Shift right, by 63 at most; the last bit says whether bits were lost. */
static uint64_t shifted(uint64_t x, uint32_t shift) {
  uint32_t count = (shift | some32(shift >> 6)) & 63, far = mask32(count >> 5);
  uint32_t high = (uint32_t)(x >> 32), low = (uint32_t)x, lost = low & far;
  low ^= (low ^ high) & far;
  high &= ~far;
  count &= 31;
  lost |= low << 1 << (31 - count);
  low = low >> count | high << 1 << (31 - count);
  return (uint64_t)(high >> count) << 32 | low | (some32(lost) & 1);
}

/* A number whose sign is the highest bit of `sign`. Only subnormal numbers may have a mantissa
without its highest bit. */
static uint64_t pack(uint64_t mantissa, int32_t exponent, uint32_t sign) {
  uint64_t bits, tail, some = nonzero(mantissa);
  uint32_t low = mask32(((uint32_t)exponent - 1) >> 31); /* a subnormal number */
  mantissa = shifted(mantissa, (uint32_t)(1 - exponent) & low);
  exponent = (int32_t)(((uint32_t)exponent & ~low) | (1 & low));
  tail = mantissa & 2047;
  bits = mantissa >> 11;
  bits += less(1024, tail) | (equal(tail, 1024) & bits);
  bits += (uint64_t)(uint32_t)(exponent - 1) << 52;
  bits = select64(less(2046, (uint32_t)exponent), REAL_INFINITY, bits);
  return (bits | (uint64_t)(sign & 0x80000000) << 32) & mask(some);
}

uint64_t fedldp_real_add(uint64_t a, uint64_t b) {
  uint64_t swap = (a ^ b) & mask(less(a & ~REAL_SIGN, b & ~REAL_SIGN)), differ = (a ^ b) >> 63;
  uint64_t sum;
  int32_t shift;
  a ^= swap;
  b ^= swap;
  sum = shifted(mantissa_of(b) >> 1, (uint32_t)(exponent_of(a) - exponent_of(b)));
  sum = (mantissa_of(a) >> 1) + ((sum ^ mask(differ)) + differ);
  shift = normalize(&sum);
  return pack(sum, exponent_of(a) + 1 - shift, (uint32_t)(a >> 32));
}

/* Pack a result of which the first or second bit is set, if it is not subnormal. */
static uint64_t pack_near(uint64_t mantissa, int32_t exponent, uint64_t signs) {
  uint64_t shift = 1 - (mantissa >> 63);
  mantissa += mantissa & mask(shift);
  return pack(mantissa, exponent - (int32_t)shift, (uint32_t)(signs >> 32));
}

uint64_t fedldp_real_multiply(uint64_t a, uint64_t b) {
  uint64_t x = mantissa_of(a), y = mantissa_of(b), low;
  int32_t exponent = exponent_of(a) + exponent_of(b) - 1022;
  exponent -= normalize(&x);
  exponent -= normalize(&y);
  x = high_half(x, y, &low);
  return pack_near(x | nonzero(low), exponent, a ^ b);
}

uint64_t fedldp_real_divide(uint64_t a, uint64_t b) {
  uint64_t rest = mantissa_of(a) >> 1, divisor = mantissa_of(b) >> 1;
  uint32_t without[2] = {0, 0}; /* the bits of the quotient, inverted: 28 in each word */
  int i, k;
  for (i = 0; i < 2; i++)
    for (k = 0; k < 28; k++) {
      uint64_t next = rest - divisor; /* both are less than 2^63 apart */
      uint32_t below = (uint32_t)(next >> 63);
      rest = (next + (divisor & mask(below))) << 1;
      without[i] = without[i] << 1 | below;
    }
  rest = nonzero(rest) | (uint64_t)(~without[0] << 4) << 32 | (uint64_t)(~without[1] << 4) << 4;
  return pack_near(rest, 1023 + exponent_of(a) - exponent_of(b), a ^ b);
}

uint64_t fedldp_real_root(uint64_t a) {
  uint32_t power = (uint32_t)exponent_of(a) - 1023;
  uint64_t rest = mantissa_of(a) >> 10, root = 0, sum = 0, bit;
  rest += rest & mask(power & 1);
  for (bit = UINT64_C(1) << 53; bit != 0; bit >>= 1) {
    uint64_t fits = 1 - less(rest, sum + bit);
    rest = (rest - ((sum + bit) & mask(fits))) << 1;
    sum += (bit << 1) & mask(fits);
    root |= bit & mask(fits);
  }
  return pack(root << 10 | nonzero(rest), (int32_t)(power >> 1) + 1023, 0);
}

/* A whole number that orders doubles; both zeros are equal. */
static uint64_t order(uint64_t a) {
  a &= mask(nonzero(a << 1));
  return a ^ (mask(a >> 63) | REAL_SIGN);
}

static uint64_t real_less(uint64_t a, uint64_t b) { return less(order(a), order(b)); }

uint64_t fedldp_real_clip(uint64_t x, uint64_t low, uint64_t high) {
  x = select64(real_less(x, low), low, x);
  return select64(real_less(high, x), high, x);
}

/* A number times 2^power without its sign: cut to half of a unit, with the lost bits as above. */
uint64_t fedldp_real_halves(uint64_t a, int32_t power) {
  uint32_t shift = (uint32_t)(1085 - power - exponent_of(a));
  return shifted(mantissa_of(a), shift & 0x7FFFFFFF);
}

static uint64_t real_of(uint32_t n) {
  uint64_t mantissa = (uint64_t)n << 32;
  int32_t shift = normalize(&mantissa);
  return pack(mantissa, 1023 + 31 - shift, 0);
}

static uint64_t is_nan(uint64_t bits) { return less(REAL_INFINITY, bits & ~REAL_SIGN); }

static uint64_t is_infinite(uint64_t bits) { return equal(REAL_INFINITY, bits & ~REAL_SIGN); }

uint64_t fedldp_position_of(const fedldp_numbers *numbers, uint64_t x) {
  uint64_t total = 0;
  uint32_t i;
  if (numbers->letters == NULL)
    return fedldp_real_add(fedldp_real_multiply(x, numbers->half), numbers->half);
  for (i = 0; i + 1 < numbers->rows; i++) {
    uint64_t step = fedldp_real_add(x, numbers->letters[i] ^ REAL_SIGN);
    step = fedldp_real_multiply(step, numbers->slopes[i]);
    total = fedldp_real_add(total, fedldp_real_clip(step, 0, REAL_ONE));
  }
  return total;
}

/* Readers: what a value of a row is for the plan. */

/* The bits of a number, and whether there is one. */
static uint64_t number_at(const fedldp_attribute *attribute, const fedldp_value *row,
                          uint32_t offset, uint64_t *is_number) {
  const fedldp_value *value = row + attribute->column;
  const double *number = &value->number;
  uint32_t kind = FEDLDP_NUMBER;
  uint64_t bits;
  if (attribute->size > 1) {
    static const double none = 0;
    int is_vector = value->numbers != NULL && value->count == attribute->size;
    number = is_vector ? value->numbers + offset : &none;
    kind = is_vector ? FEDLDP_VECTOR : UINT32_MAX;
  }
  memcpy(&bits, number, sizeof bits);
  *is_number = equal(value->kind, kind) & (1 - is_nan(bits));
  return bits;
}

static uint64_t scaled(uint64_t bits, uint64_t minus_middle, uint64_t scale) {
  uint64_t x = fedldp_real_multiply(fedldp_real_add(bits, minus_middle), scale);
  x = select64(is_infinite(bits), bits, x);
  return fedldp_real_clip(x, REAL_ONE | REAL_SIGN, REAL_ONE);
}

fedldp_input fedldp_read_number(const fedldp_attribute *attribute, const fedldp_value *row,
                                uint32_t offset) {
  const fedldp_number *number = attribute->detail;
  uint64_t is_number, bits = number_at(attribute, row, offset, &is_number);
  fedldp_input input = {0, 0};
  input.real = scaled(bits, number->minus_middle, number->scale);
  input.real = select64(is_number, input.real, number->missing);
  return input;
}

fedldp_input fedldp_read_vector(const fedldp_attribute *attribute, const fedldp_value *row,
                                uint32_t offset) {
  const fedldp_number *number = attribute->detail;
  uint64_t is_number, bits = number_at(attribute, row, offset, &is_number);
  fedldp_input input = {0, 0};
  input.real = select64(is_infinite(bits), bits, fedldp_real_multiply(bits, number->scale));
  input.real = fedldp_real_clip(input.real, REAL_LARGEST_NUMBER | REAL_SIGN, REAL_LARGEST_NUMBER);
  input.real = select64(is_number, input.real, number->missing);
  return input;
}

fedldp_input fedldp_read_grid(const fedldp_attribute *attribute, const fedldp_value *row,
                              uint32_t offset) {
  const fedldp_grid *grid = attribute->detail;
  uint64_t is_number, bits = number_at(attribute, row, offset, &is_number), share;
  fedldp_input input = {0, 0};
  share = fedldp_real_add(REAL_ONE, scaled(bits, grid->minus_middle, grid->scale));
  share = fedldp_real_multiply(grid->last, fedldp_real_multiply(share, REAL_HALF));
  input.real = select64(is_number, share, grid->missing);
  return input;
}

static const fedldp_text *text_of(const fedldp_value *value) {
  static const fedldp_text blank = {0, {0}};
  return value->text != NULL ? value->text : &blank;
}

fedldp_input fedldp_read_category(const fedldp_attribute *attribute, const fedldp_value *row,
                                  uint32_t offset) {
  const fedldp_category *category = attribute->detail;
  const fedldp_value *value = row + attribute->column;
  const fedldp_text *text = text_of(value);
  uint64_t is_code = equal(value->kind, FEDLDP_CODE) & less(value->code, category->count);
  uint64_t is_text = equal(value->kind, FEDLDP_TEXT), is_missing;
  uint32_t i, k;
  fedldp_input input = {0, 0};
  (void)offset;
  input.code = select32(is_code, value->code, category->unknown);
  for (i = 0; category->labels != NULL && i < category->count; i++) {
    const fedldp_label *label = category->labels + i;
    uint64_t differs = text->length ^ label->length;
    for (k = 0; k < label->length && k < FEDLDP_TEXT_BYTES; k++)
      differs |= (uint8_t)label->bytes[k] ^ text->bytes[k];
    input.code = select32(is_text & (1 - nonzero(differs)), i, input.code);
  }
  is_missing = equal(value->kind, FEDLDP_MISSING) | (is_text & (1 - nonzero(text->length)));
  input.code = select32(is_missing, category->missing, input.code);
  return input;
}

fedldp_input fedldp_read_whole(const fedldp_attribute *attribute, const fedldp_value *row,
                               uint32_t offset) {
  const fedldp_whole *whole = attribute->detail;
  uint32_t kind = row[attribute->column].kind;
  uint64_t is_number, bits = number_at(attribute, row, offset, &is_number), twice, sign, known;
  fedldp_input input = {0, 0};
  twice = fedldp_real_halves(bits, 0); /* the last bit is the fraction */
  sign = bits >> 63;
  known = is_number & (1 - (twice & 1)) & less(bits & ~REAL_SIGN, UINT64_C(1080) << 52);
  twice = (((twice >> 1) ^ mask(sign)) + sign) - (uint64_t)whole->first;
  known &= less(twice, whole->count);
  input.code = select32(known, (uint32_t)twice, whole->count);
  known = equal(kind, FEDLDP_MISSING) | (equal(kind, FEDLDP_NUMBER) & (1 - is_number));
  input.code += (uint32_t)known;
  return input;
}

static uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void sha256_block(uint32_t hash[8], const uint8_t block[64]) {
  static const uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t w[16], h[8], i;
  for (i = 0; i < 16; i++) w[i] = (uint32_t)big_endian(block + 4 * i, 4);
  memcpy(h, hash, sizeof h);
  for (i = 0; i < 64; i++) {
    uint32_t a = w[(i + 1) & 15], b = w[(i + 14) & 15], first, second;
    first = h[7] + (rotated(h[4], 6) ^ rotated(h[4], 11) ^ rotated(h[4], 25)) +
            ((h[4] & h[5]) ^ (~h[4] & h[6])) + k[i] + w[i & 15];
    second = (rotated(h[0], 2) ^ rotated(h[0], 13) ^ rotated(h[0], 22)) +
             ((h[0] & h[1]) ^ (h[0] & h[2]) ^ (h[1] & h[2]));
    memmove(h + 1, h, 7 * sizeof *h);
    h[4] += first;
    h[0] = first + second;
    w[i & 15] += (rotated(a, 7) ^ rotated(a, 18) ^ a >> 3) + w[(i + 9) & 15] +
                 (rotated(b, 17) ^ rotated(b, 19) ^ b >> 10);
  }
  for (i = 0; i < 8; i++) hash[i] += h[i];
}

/* The bucket of a label: all blocks of the longest label are hashed, whatever its length. */
fedldp_input fedldp_read_hashed(const fedldp_attribute *attribute, const fedldp_value *row,
                                uint32_t offset) {
  const fedldp_hashed *hashed = attribute->detail;
  const fedldp_value *value = row + attribute->column;
  const fedldp_text *text = text_of(value);
  uint32_t start = hashed->salt_bytes + 1, blocks = (start + FEDLDP_TEXT_BYTES + 8) / 64 + 1;
  uint32_t length = start + text->length, b, i;
  uint32_t hash[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t high = 0, low = 0, readable;
  fedldp_input input = {0, 0};
  (void)offset;
  for (b = 0; b < blocks; b++) {
    uint8_t block[64];
    uint64_t is_last = equal(b, (length + 8) >> 6);
    for (i = 0; i < 64; i++) {
      uint32_t at = 64 * b + i, byte = 0;
      if (at + 1 < start) byte = (uint8_t)hashed->salt[at];
      if (at >= start && at - start < FEDLDP_TEXT_BYTES)
        byte = text->bytes[at - start] & mask32(less(at, length));
      byte |= 0x80 & mask32(equal(at, length));
      if (i >= 60) byte |= (length << 3 >> 8 * (63 - i)) & 0xFF & mask32(is_last);
      block[i] = (uint8_t)byte;
    }
    sha256_block(hash, block);
    high = select64(is_last, hash[0], high);
    low = select64(is_last, hash[1], low);
  }
  divided(high, hashed->buckets, 32, &high);
  divided(high << 32 | low, hashed->buckets, 33, &low);
  readable = equal(value->kind, FEDLDP_TEXT) & nonzero(text->length);
  readable &= 1 - less(FEDLDP_TEXT_BYTES, text->length);
  input.code = select32(readable, (uint32_t)low, hashed->buckets);
  return input;
}

static uint32_t bin_of(const fedldp_bins *bins, uint64_t bits) {
  uint32_t i, bin = 0;
  for (i = 0; i + 1 < bins->count; i++) bin += (uint32_t)(1 - real_less(bits, bins->edges[i]));
  return bin;
}

fedldp_input fedldp_read_bins(const fedldp_attribute *attribute, const fedldp_value *row,
                              uint32_t offset) {
  const fedldp_bins *bins = attribute->detail;
  uint64_t is_number, bits = number_at(attribute, row, offset, &is_number);
  fedldp_input input = {0, 0};
  input.code = select32(is_number, bin_of(bins, bits), bins->missing);
  return input;
}

/* A number modulo the period, exactly as `fmod` does it. The period decides the number of steps. */
fedldp_input fedldp_read_angle(const fedldp_attribute *attribute, const fedldp_value *row,
                               uint32_t offset) {
  const fedldp_bins *bins = attribute->detail;
  uint64_t is_number, bits = number_at(attribute, row, offset, &is_number), larger;
  uint64_t rest = mantissa_of(bits), divisor = mantissa_of(bins->period);
  int32_t exponent = exponent_of(bins->period) - normalize(&divisor);
  uint32_t i, steps = (uint32_t)(exponent_of(bits) - normalize(&rest) - exponent);
  fedldp_input input = {0, 0};
  larger = 1 - (steps >> 31);
  rest >>= 11;
  divisor >>= 11;
  rest -= divisor & mask(1 - less(rest, divisor));
  for (i = (uint32_t)(2047 - exponent); i > 0; i--) {
    rest += rest & mask(larger & (1 - less(steps, i)));
    rest -= divisor & mask(1 - less(rest, divisor));
  }
  rest <<= 11;
  exponent -= normalize(&rest);
  rest = select64(larger, pack(rest, exponent, 0), bits & ~REAL_SIGN);
  larger = (bits >> 63) & nonzero(rest);
  rest = select64(larger, fedldp_real_add(bins->period, rest | REAL_SIGN), rest);
  is_number &= 1 - is_infinite(bits);
  input.code = select32(is_number, bin_of(bins, rest), bins->missing);
  return input;
}

fedldp_input fedldp_read_within(const fedldp_attribute *attribute, const fedldp_value *row,
                                uint32_t offset) {
  const fedldp_within *within = attribute->detail;
  fedldp_input of = within->of->read(within->of, row, offset);
  fedldp_input input = within->groups->read(within->groups, row, offset);
  if (within->of->categories == 0) /* a number: its position between two letters */
    of.real = fedldp_real_multiply(fedldp_real_add(REAL_ONE, of.real), REAL_HALF);
  input.code *= within->of->categories == 0 ? 2 : within->of->categories;
  if (attribute->rounds) input.real = fedldp_real_add(real_of(input.code), of.real);
  input.code += of.code;
  return input;
}

uint32_t fedldp_crc32(uint32_t crc, const uint8_t *bytes, size_t count) {
  size_t i;
  int bit;
  for (crc = ~crc, i = 0; i < count; i++)
    for (crc ^= bytes[i], bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xEDB88320 & (0 - (crc & 1)));
  return ~crc;
}
