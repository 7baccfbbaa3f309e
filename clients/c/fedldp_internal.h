/* What the files of the core share. Nothing here is for other programs. */

#ifndef FEDLDP_INTERNAL_H
#define FEDLDP_INTERNAL_H

#include "fedldp.h"

#include <string.h>

/* What needs its stack for a moment only. */
#if defined(__GNUC__)
#define FEDLDP_APART __attribute__((noinline)) static
#else
#define FEDLDP_APART static
#endif

/* Masks. A condition is 0 or 1, and stays a number: the barrier keeps a compiler from turning it
into a branch. */

static inline uint32_t barrier(uint32_t x) {
#if defined(__GNUC__)
  __asm__("" : "+r"(x));
#endif
  return x;
}

static inline uint32_t mask32(uint64_t condition) { return barrier(0 - (uint32_t)condition); }

static inline uint64_t mask(uint64_t condition) {
  uint32_t low = mask32(condition), high = barrier(low);
  return (uint64_t)high << 32 | low;
}

static inline uint64_t select64(uint64_t condition, uint64_t yes, uint64_t no) {
  return no ^ ((yes ^ no) & mask(condition));
}

static inline uint32_t select32(uint64_t condition, uint32_t yes, uint32_t no) {
  return no ^ ((yes ^ no) & mask32(condition));
}

static inline uint64_t less(uint64_t a, uint64_t b) {
  return (((~a) & b) | ((~(a ^ b)) & (a - b))) >> 63;
}

static inline uint64_t nonzero(uint64_t x) { return (x | (0 - x)) >> 63; }

static inline uint64_t equal(uint64_t a, uint64_t b) { return 1 - nonzero(a ^ b); }

/* The quotient of u and n, and the rest, if the quotient is below 2^bits and n << bits fits. */
static inline uint64_t divided(uint64_t u, uint64_t n, uint32_t bits, uint64_t *rest) {
  uint64_t quotient = 0;
  while (bits-- > 0) {
    uint64_t fits = 1 - less(u, n << bits);
    u -= (n << bits) & mask(fits);
    quotient = quotient << 1 | fits;
  }
  *rest = u;
  return quotient;
}

/* The product of two numbers of 32 bits. Small processors would call a function that branches. */
static inline uint64_t wide(uint32_t a, uint32_t b) {
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__) || defined(FEDLDP_NARROW)
  uint32_t a0 = a & 0xFFFF, a1 = a >> 16, b0 = b & 0xFFFF, b1 = b >> 16;
  uint32_t first = a1 * b0 + (a0 * b0 >> 16), second = a0 * b1 + (first & 0xFFFF);
  uint32_t high = a1 * b1 + (first >> 16) + (second >> 16);
  return (uint64_t)high << 32 | (second << 16 | (a0 * b0 & 0xFFFF));
#else
  return (uint64_t)a * b;
#endif
}

/* The product of two numbers: its high half, and its low one. */
static inline uint64_t high_half(uint64_t a, uint64_t b, uint64_t *low) {
  uint32_t a0 = (uint32_t)a, a1 = (uint32_t)(a >> 32), b0 = (uint32_t)b, b1 = (uint32_t)(b >> 32);
  uint64_t first = wide(a0, b0), second = wide(a1, b0) + (first >> 32);
  uint64_t third = wide(a0, b1) + (second & 0xFFFFFFFF);
  *low = third << 32 | (first & 0xFFFFFFFF);
  return wide(a1, b1) + (second >> 32) + (third >> 32);
}

/* Large integers: limbs of 32 bits, the lowest first. */

static inline void clear(uint32_t *a, size_t n) { memset(a, 0, n * sizeof *a); }

static inline uint32_t add_limbs(uint32_t *a, const uint32_t *b, size_t n) {
  uint64_t carry = 0;
  size_t i;
  for (i = 0; i < n; i++) {
    carry += (uint64_t)a[i] + b[i];
    a[i] = (uint32_t)carry;
    carry >>= 32;
  }
  return (uint32_t)carry;
}

/* Add a limb times b to `sum`, without what is above n limbs. */
static inline void add_product(uint32_t *sum, uint32_t limb, const uint32_t *b, size_t b_limbs,
                               size_t n) {
  uint64_t carry = 0;
  size_t i;
  for (i = 0; i < n; i++) {
    carry += sum[i] + (uint64_t)limb * (i < b_limbs ? b[i] : 0);
    sum[i] = (uint32_t)carry;
    carry >>= 32;
  }
}

/* The product of a and b, without what is above n limbs. */
static inline void multiply(uint32_t *product, size_t n, const uint32_t *a, size_t a_limbs,
                            const uint32_t *b, size_t b_limbs) {
  size_t i;
  clear(product, n);
  for (i = 0; i < a_limbs && i < n; i++) add_product(product + i, a[i], b, b_limbs, n - i);
}

static inline uint32_t at_most(const uint32_t *a, const uint32_t *b, size_t n) {
  uint64_t borrow = 0;
  size_t i;
  for (i = 0; i < n; i++) borrow = ((uint64_t)b[i] - a[i] - borrow) >> 63;
  return (uint32_t)(1 - borrow);
}

/* Doubles in integers, in fedldp_read.c. */

#define REAL_SIGN (UINT64_C(1) << 63)
#define REAL_HALF (UINT64_C(1022) << 52)
#define REAL_ONE (UINT64_C(1023) << 52)
#define REAL_INFINITY (UINT64_C(2047) << 52)
#define REAL_WORD (UINT64_C(1055) << 52) /* 2^32 */

uint64_t fedldp_real_add(uint64_t a, uint64_t b);
uint64_t fedldp_real_multiply(uint64_t a, uint64_t b);
uint64_t fedldp_real_divide(uint64_t a, uint64_t b); /* by a number that is at least 1 */
uint64_t fedldp_real_root(uint64_t a); /* of a number that is at least 1 */
uint64_t fedldp_real_clip(uint64_t x, uint64_t low, uint64_t high);

/* A number times 2^power without its sign, cut to half of a unit. The last bit is 1 if it is odd,
or if anything was lost. */
uint64_t fedldp_real_halves(uint64_t a, int32_t power);

uint64_t fedldp_position_of(const fedldp_numbers *numbers, uint64_t x); /* between letters */

/* Directions, in fedldp_directions.c. */

uint32_t fedldp_rounded(uint64_t x); /* the whole number nearest to 2^20 x, halves to even */
uint64_t fedldp_share_of(uint64_t sum); /* the root of 2^24 times a sum of squares, at most 2^32 */
uint64_t fedldp_first_word(uint64_t key, uint32_t seed);
void fedldp_add_coordinate(uint32_t q, const fedldp_directions *odds, uint64_t *counter,
                           uint64_t *sums);

static inline uint64_t big_endian(const uint8_t *bytes, size_t count) {
  uint64_t number = 0;
  size_t i;
  for (i = 0; i < count; i++) number = number << 8 | bytes[i];
  return number;
}

static inline void put_big_endian(uint8_t *bytes, uint64_t number, size_t count) {
  while (count-- > 0) {
    bytes[count] = (uint8_t)number;
    number >>= 8;
  }
}

#endif
