/* A vehicle for local differential privacy in portable C99: check a compiled plan, draw a report.

`fedldp compile plan.json --cap 2 -o plan.h` writes a plan as constants. The functions here check
it again, and draw a report for a row. They use no heap, no recursion, no floating-point arithmetic
and no library but <string.h>. See docs/how-to/embedded.md.

What must stay secret (the row and the random bytes) decides neither branches nor addresses nor the
number of random bytes. A row must keep its side of this: read the comment at `fedldp_value`. */

#ifndef FEDLDP_H
#define FEDLDP_H

#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__)
#error "fedldp: compile without -ffast-math, which changes how numbers are read"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The most signs of a cube and outputs of a table of numbers. Beyond them the status is
FEDLDP_LIMIT. Each 32 signs take 4 bytes in each of some large integers on the stack. */
#ifndef FEDLDP_MOST_SIGNS
#define FEDLDP_MOST_SIGNS 256
#endif
#ifndef FEDLDP_MOST_OUTPUTS
#define FEDLDP_MOST_OUTPUTS 1024
#endif

/* The bytes of a label in a row. A longer label cannot be given. */
#ifndef FEDLDP_TEXT_BYTES
#define FEDLDP_TEXT_BYTES 64
#endif

typedef enum fedldp_status {
  FEDLDP_OK = 0,
  FEDLDP_REFUSED = 1,   /* the plan leaks, or is no plan */
  FEDLDP_EXPENSIVE = 2, /* the plan costs more than it claims, or more than the cap leaves */
  FEDLDP_LIMIT = 3,     /* the plan may be right, but is too large for this build or its buffers */
  FEDLDP_NO_RANDOM = 4, /* the random source has failed */
  FEDLDP_NO_LEDGER = 5, /* the ledger is blank, damaged or cannot be written: never means zero */
  FEDLDP_OLD = 6,       /* a later job or period was answered already */
  FEDLDP_SILENT = 7     /* the vehicle does not answer in this period of the calendar */
} fedldp_status;

/* An epsilon in units of 10^-19, so that each epsilon of a plan is a whole number of them. The
lowest limb comes first. FEDLDP_WHOLE(2) is the epsilon 2. */
typedef struct fedldp_epsilon {
  uint32_t limbs[3];
} fedldp_epsilon;

#define FEDLDP_UNIT UINT64_C(10000000000000000000)
#define FEDLDP_LOW(n) ((uint64_t)(n) * (FEDLDP_UNIT & 0xFFFFFFFFu))
#define FEDLDP_HIGH(n) ((uint64_t)(n) * (FEDLDP_UNIT >> 32) + (FEDLDP_LOW(n) >> 32))
#define FEDLDP_WHOLE(n)                                                                            \
  {                                                                                                \
    { (uint32_t)FEDLDP_LOW(n), (uint32_t)FEDLDP_HIGH(n), (uint32_t)(FEDLDP_HIGH(n) >> 32) }         \
  }

/* A random source: fill `bytes`, and return 0 only if all of them are random. It must be secure. */
typedef int fedldp_random(void *context, uint8_t *bytes, size_t count);

/* A row: an array of values, one for each column of the plan, in the order of the enumeration in
plan.h. Each column is read as a plan wants it; a value of another kind counts as unreadable.

So that a row does not decide what is read from where, `text` must point to a text for each column
of labels, and `numbers` to `count` numbers for each vector, even if the value is missing. */
typedef enum fedldp_kind {
  FEDLDP_MISSING = 0,
  FEDLDP_UNREADABLE = 1,
  FEDLDP_NUMBER = 2, /* `number`; NaN is missing */
  FEDLDP_CODE = 3,   /* `code`: the position of a listed label */
  FEDLDP_TEXT = 4,   /* `text`: a label in UTF-8 */
  FEDLDP_VECTOR = 5  /* `numbers`; a NaN among them is missing */
} fedldp_kind;

typedef struct fedldp_text {
  uint8_t length; /* an empty text is missing */
  uint8_t bytes[FEDLDP_TEXT_BYTES];
} fedldp_text;

typedef struct fedldp_value {
  uint32_t kind;
  uint32_t code;
  uint32_t count;
  double number;
  const fedldp_text *text;
  const double *numbers;
} fedldp_value;

/* A plan, as `fedldp compile` writes it. Nothing below needs to be known for using one. Doubles
stand here as the 64 bits of their IEEE 754 form. */
struct fedldp_attribute;
struct fedldp_table;
struct fedldp_part;
struct fedldp_plan;
struct fedldp_state;

typedef struct fedldp_input {
  uint64_t real; /* a number in [-1, 1], or a position between categories */
  uint32_t code; /* a category */
} fedldp_input;

typedef struct fedldp_attribute {
  fedldp_input (*read)(const struct fedldp_attribute *attribute, const fedldp_value *row,
                       uint32_t offset);
  const void *detail;
  uint32_t size;       /* coordinates */
  uint32_t categories; /* 0 for numbers */
  uint32_t column;     /* in a row */
  uint32_t rounds;     /* 1 if a position is rounded to a category at random */
} fedldp_attribute;

typedef struct fedldp_number {
  uint64_t minus_middle, scale, missing;
} fedldp_number;

typedef struct fedldp_grid { /* an optional number */
  uint64_t minus_middle, scale, last, missing;
} fedldp_grid;

typedef struct fedldp_label {
  const char *bytes;
  uint32_t length;
} fedldp_label;

typedef struct fedldp_category { /* `labels` may be NULL: only codes are read then */
  const fedldp_label *labels;
  uint32_t count, unknown, missing;
} fedldp_category;

typedef struct fedldp_whole {
  int64_t first;
  uint32_t count;
} fedldp_whole;

typedef struct fedldp_hashed {
  const char *salt;
  uint32_t salt_bytes, buckets;
} fedldp_hashed;

typedef struct fedldp_bins {
  const uint64_t *edges; /* the inner ones */
  uint64_t period;
  uint32_t count, missing;
} fedldp_bins;

typedef struct fedldp_within {
  const fedldp_attribute *of, *groups;
} fedldp_within;

typedef struct fedldp_coder {
  fedldp_status (*check)(const struct fedldp_table *table);
  void (*draw)(const struct fedldp_table *table, fedldp_input input, struct fedldp_state *state);
} fedldp_coder;

typedef struct fedldp_table {
  const fedldp_coder *coder;
  const void *detail;
  fedldp_epsilon epsilon;
  uint32_t categories; /* 0 for numbers */
  uint32_t bits;
} fedldp_table;

typedef struct fedldp_numbers {
  const uint64_t *letters; /* NULL if they are evenly spaced */
  const uint64_t *slopes;  /* 1 / (the next letter - the letter) */
  const uint64_t *thresholds;
  const uint16_t *others;
  uint64_t half; /* half of the last letter's position */
  uint32_t rows, outputs;
} fedldp_numbers;

typedef struct fedldp_response {
  uint64_t same, other;
} fedldp_response;

typedef struct fedldp_unary {
  uint64_t total, absent;
} fedldp_unary;

typedef struct fedldp_lines {
  uint64_t same, other;
  uint32_t base, digits;
} fedldp_lines;

typedef struct fedldp_need {
  fedldp_epsilon cost;
  uint32_t bits, scratch;
} fedldp_need;

typedef struct fedldp_strategy {
  fedldp_status (*check)(const struct fedldp_plan *plan, const struct fedldp_part *part,
                         fedldp_need *need);
  void (*draw)(const struct fedldp_plan *plan, const struct fedldp_part *part,
               const fedldp_value *row, struct fedldp_state *state);
} fedldp_strategy;

typedef struct fedldp_part {
  const fedldp_strategy *strategy;
  const void *detail;
  const uint16_t *attributes;
  uint32_t count;
} fedldp_part;

typedef struct fedldp_sample {
  const uint16_t *tables;
  uint32_t k;
} fedldp_sample;

typedef struct fedldp_cube {
  fedldp_epsilon epsilon;
  uint32_t heavy[4], light[4]; /* the lowest limb first */
  uint32_t share[3];           /* floor(2^bits / n), where n is the sum of all odds */
  uint32_t bits;               /* those of n, and 64 */
  int32_t threshold;
} fedldp_cube;

typedef struct fedldp_directions {
  fedldp_epsilon epsilon;
  uint64_t high, low, null, null_input, key;
  uint32_t directions, best, seed_bits;
} fedldp_directions;

typedef struct fedldp_plan {
  uint8_t fingerprint[32];
  uint8_t question[32]; /* the fingerprint of the calendar, or of the plan if there is none */
  fedldp_epsilon epsilon;
  const fedldp_attribute *attributes;
  const fedldp_table *tables;
  const fedldp_part *parts;
  uint32_t attribute_count, table_count, part_count;
  uint32_t bits;    /* of a record */
  uint32_t scratch; /* words of 64 bits that drawing needs */
  uint32_t constant;
  uint32_t periods, answers; /* of a calendar; else 0 */
} fedldp_plan;

/* The readers of attributes, the coders of tables and the strategies of parts: plan.h names those
that the plan needs, and a linker leaves the others out. */
fedldp_input fedldp_read_number(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_vector(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_grid(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_category(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_whole(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_hashed(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_bins(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_angle(const fedldp_attribute *, const fedldp_value *, uint32_t);
fedldp_input fedldp_read_within(const fedldp_attribute *, const fedldp_value *, uint32_t);
extern const fedldp_coder fedldp_numbers_coder, fedldp_response_coder, fedldp_unary_coder,
    fedldp_lines_coder;
extern const fedldp_strategy fedldp_sample_strategy, fedldp_cube_strategy,
    fedldp_directions_strategy;

/* The quantiles of directions, in fedldp_quantiles.c. */
typedef struct fedldp_parabola {
  uint32_t start, slope, bend;
} fedldp_parabola;
extern const fedldp_parabola fedldp_quantile_pieces[104];
extern const uint16_t fedldp_quantile_whole[128];

/* The bytes of a report. */
#define FEDLDP_HEADER_BYTES 16
#define FEDLDP_REPORT_BYTES(bits) (FEDLDP_HEADER_BYTES + ((size_t)(bits) + 7) / 8)

/* Check a plan in exact arithmetic: that no table leaks more than it claims, and that a report
costs no more than the plan's epsilon and `cap`. */
fedldp_status fedldp_check(const fedldp_plan *plan, const fedldp_epsilon *cap);

/* Draw a report of a checked plan, of FEDLDP_REPORT_BYTES(plan->bits), without a ledger. `scratch`
has room for `plan->scratch` words. What is returned depends on the random source alone. Whoever
calls this must account for what it costs: use `fedldp_answer`. */
fedldp_status fedldp_draw(const fedldp_plan *plan, const fedldp_value *row, fedldp_random *random,
                          void *context, uint64_t *scratch, uint8_t *report);

/* Choose k of d numbers from 0, each set equally likely, in ascending order. */
fedldp_status fedldp_choose(uint32_t k, uint32_t d, fedldp_random *random, void *context,
                            uint64_t *chosen);

/* CRC-32 as in zlib, for reports and ledgers: begin with 0, and go on with what was returned. */
uint32_t fedldp_crc32(uint32_t crc, const uint8_t *bytes, size_t count);

/* A ledger keeps one record of `size` bytes, always of the same size. `load` reads the last one that
was stored, and returns 0 only if it is intact. `store` returns 0 only after the record is durable:
whatever happens to the power then, `load` returns it or a later one, or fails. */
typedef struct fedldp_ledger {
  int (*load)(void *context, uint8_t *record, size_t size);
  int (*store)(void *context, const uint8_t *record, size_t size);
  void *context;
  uint8_t *record; /* room for a record */
  size_t size;
} fedldp_ledger;

/* The bytes of a record that has room for the report of a plan with this many bits, and for the
periods that a calendar with this many answers has chosen. */
#define FEDLDP_RECORD_HEADER_BYTES 64
#define FEDLDP_RECORD_BYTES(bits, answers)                                                         \
  (FEDLDP_RECORD_HEADER_BYTES + 4 * (size_t)(answers) + FEDLDP_REPORT_BYTES(bits))

typedef struct fedldp_vehicle {
  const fedldp_plan *plan;
  fedldp_epsilon cap; /* the most that this vehicle may spend in its life */
  fedldp_random *random;
  void *random_context;
  fedldp_ledger ledger;
  uint64_t *scratch; /* room for `plan->scratch` words */
  const fedldp_plan *checked; /* NULL until the first answer, which checks the plan */
} fedldp_vehicle;

/* Write the first record, in which nothing is spent: once in the life of a vehicle, where it is
made. If a record can be read, the status is FEDLDP_OLD; `store` must refuse what is not blank. */
fedldp_status fedldp_provision(fedldp_ledger *ledger);

/* Check the plan the first time, and answer it once for a job, and in one period of a calendar (from
1; 0 without a calendar).
Jobs have ascending numbers. What it costs and the report are stored before `*report` is set: to
the report, inside the ledger's record. The same question again gets the same bytes and costs
nothing. */
fedldp_status fedldp_answer(fedldp_vehicle *vehicle, uint64_t job, uint32_t period,
                            const fedldp_value *row, const uint8_t **report);

/* Read from a ledger what was spent. */
fedldp_status fedldp_spent(fedldp_ledger *ledger, fedldp_epsilon *spent);

#ifdef __cplusplus
}
#endif

#endif
