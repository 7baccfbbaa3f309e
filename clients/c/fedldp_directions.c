/* The sums of directions. What is here can cost accuracy, never privacy: the odds of ranks, and
which direction has one, are in fedldp.c. */

#include "fedldp_internal.h"

/* What is worth its bytes inside another function. */
#if defined(__GNUC__)
#define INSIDE __attribute__((always_inline)) static inline
#else
#define INSIDE static inline
#endif

#define LENGTH_BITS 20
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

static uint64_t mixed(uint64_t z) {
  z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
  return z ^ z >> 31;
}

uint64_t fedldp_first_word(uint64_t key, uint32_t seed) {
  return mixed(key + GOLDEN * ((uint64_t)seed + 1));
}

uint32_t fedldp_rounded(uint64_t x) {
  uint64_t quarters = fedldp_real_halves(x, LENGTH_BITS + 1);
  uint64_t whole = quarters >> 2, fraction = quarters & 3;
  whole += less(2, fraction) | (equal(fraction, 2) & whole);
  return (uint32_t)((whole ^ mask(x >> 63)) + (x >> 63));
}

uint64_t fedldp_share_of(uint64_t sum) {
  uint64_t is_full = 1 - less(sum, UINT64_C(1) << 40), rest = sum << 24, root = 0, bit;
  for (bit = UINT64_C(1) << 62; bit != 0; bit >>= 2) {
    uint64_t fits = 1 - less(rest, root + bit);
    rest -= (root + bit) & mask(fits);
    root = root >> 1 | (bit & mask(fits));
  }
  return select64(is_full, UINT64_C(1) << 32, root);
}

/* The quantile of a public number of 16 bits, and QUANTILE_ZERO. Quantiles are counted from the
highest one: the first stand whole, the others are on pieces of parabolas. */
#define QUANTILE_ZERO 8192
#define QUANTILE_BITS 18 /* behind the point */

INSIDE uint32_t quantile_at(uint32_t height, uint32_t upper) {
  return ((2 * QUANTILE_ZERO + 1) * (UINT32_C(1) << (QUANTILE_BITS - 1)) - (height ^ upper)) >>
         QUANTILE_BITS;
}

INSIDE uint32_t quantile(uint32_t number) {
  uint32_t upper = 0 - (number >> 15), place = (number ^ upper) & 0xFFFF, u;
  const fedldp_parabola *piece = fedldp_quantile_pieces;
  if (place >= 8192)
    piece += (place >> 9) - 16, u = place & 511;
  else if (place >= 1024)
    piece += (place >> 8) + 44, u = place & 255;
  else if (place >= 128)
    piece += (place >> 5) + 72, u = place & 31;
  else
    return quantile_at((uint32_t)fedldp_quantile_whole[place] << QUANTILE_BITS, upper);
  return quantile_at(piece->start - ((piece->slope - (piece->bend * u >> 8)) * u >> 6), upper);
}

/* Add the products of a secret number and two quantiles to two sums of 48 bits. All quantiles are
QUANTILE_ZERO too large, which adds the same to the sum of each direction. */
FEDLDP_APART uint32_t add_products(uint32_t q, uint32_t numbers, uint64_t *tops, uint32_t lows) {
  uint32_t low = q & 0xFFFF, top = ((q + (UINT32_C(1) << 21)) >> 16) - 32; /* q is signed */
  uint32_t first = quantile(numbers & 0xFFFF), second = quantile(numbers >> 16);
  uint32_t sum = (lows & 0xFFFF) + low * first, other = (lows >> 16) + low * second;
  first = (uint32_t)*tops + (sum >> 16) + top * first;
  second = (uint32_t)(*tops >> 32) + (other >> 16) + top * second;
  *tops = (uint64_t)second << 32 | first;
  return other << 16 | (sum & 0xFFFF);
}

void fedldp_add_coordinate(uint32_t q, const fedldp_directions *odds, uint64_t *counter,
                           uint64_t *tops) {
  uint64_t *lows = tops + (odds->directions + 1) / 2, *end = lows;
  for (; tops < end; tops += 2, lows++) {
    uint64_t word = mixed(*counter += GOLDEN);
    uint32_t low = add_products(q, (uint32_t)word, tops, (uint32_t)*lows);
    uint32_t high = add_products(q, (uint32_t)(word >> 32), tops + 1, (uint32_t)(*lows >> 32));
    *lows = (uint64_t)high << 32 | low;
  }
}
