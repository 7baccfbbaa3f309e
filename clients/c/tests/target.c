/* Draw the reports of cases.h on any target, and compare them. Bare metal prints by semihosting.

The markers tell a plugin of QEMU where a draw begins and ends. With STACK, the program
prints how many bytes of the stack a check and a draw need. */

#include "cases.h"

#include <string.h>

#if defined(__arm__) && !defined(__linux__)

static void semihost(int operation, const void *argument) {
  register int r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

static void print(const char *text) { semihost(0x04, text); }

static void finish(int failed) {
  uint32_t block[2] = {0x20026, 0};
  block[1] = (uint32_t)failed;
  semihost(0x20, block);
  for (;;) continue;
}

int main(void);
extern uint32_t stack_top[], data_start[], data_end[], data_image[], bss_start[], bss_end[];

void reset(void);
void reset(void) {
  memcpy(data_start, data_image, (size_t)((char *)data_end - (char *)data_start));
  memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
  finish(main());
}

static void fault(void) {
  print("fault\n");
  finish(2);
}

struct vectors {
  uint32_t *stack;
  void (*handlers[3])(void);
};
extern const struct vectors vectors;
__attribute__((section(".vectors"))) const struct vectors vectors = {stack_top,
                                                                     {reset, fault, fault}};

#else

#include <stdio.h>

static void print(const char *text) { fputs(text, stdout); }

#endif

static fedldp_value values[MOST_COLUMNS];
static fedldp_text texts[MOST_COLUMNS];
static double numbers[MOST_NUMBERS];
static uint64_t scratch[MOST_SCRATCH];
static uint8_t report[MOST_REPORT];
static uint8_t stream[MOST_STREAM];
static size_t position, length;

static int give(void *context, uint8_t *bytes, size_t count) {
  (void)context;
  if (count > length - position) return 1;
  memcpy(bytes, stream + position, count);
  position += count;
  return 0;
}

static void print_number(uint32_t number) {
  char text[11];
  char *start = text + sizeof text - 1;
  *start = 0;
  do {
    *--start = (char)('0' + number % 10);
    number /= 10;
  } while (number != 0);
  print(start);
}

/* Put a row where all rows stand, so that their addresses are equal. */
static void fill(const test_row *row) {
  uint32_t i, at = 0, k;
  for (i = 0; i < row->columns; i++) {
    const test_cell *cell = row->cells + i;
    memset(values + i, 0, sizeof *values);
    memset(texts + i, 0, sizeof *texts);
    values[i].kind = cell->kind;
    values[i].number = cell->number;
    values[i].count = cell->count;
    values[i].text = texts + i;
    values[i].numbers = numbers + at;
    texts[i].length = (uint8_t)cell->text_length;
    for (k = 0; k < cell->text_length; k++) texts[i].bytes[k] = cell->text[k];
    for (k = 0; k < cell->count; k++) numbers[at++] = cell->numbers[k];
  }
}

void trace_begin(void);
void trace_end(void);
__attribute__((noinline)) void trace_begin(void) { __asm__ volatile("" ::: "memory"); }
__attribute__((noinline)) void trace_end(void) { __asm__ volatile("nop" ::: "memory"); }

#if defined(STACK)
#define PATTERN 0x5AA5C33Cu
#define STACK_WORDS 2048
#define STACK_BEGINS stack_begin = __builtin_frame_address(0)

static char *stack_begin; /* in the function that calls the core */

static uint32_t stack_used(int (*work)(const test_case *), const test_case *one) {
  volatile uint32_t *low = (volatile uint32_t *)__builtin_frame_address(0) - STACK_WORDS;
  uint32_t i;
  for (i = 0; i < STACK_WORDS - 32; i++) low[i] = PATTERN;
  if (work(one) != 0) print("failed ");
  for (i = 0; i < STACK_WORDS - 32 && low[i] == PATTERN; i++) continue;
  return (uint32_t)(stack_begin - (char *)(uintptr_t)(low + i));
}
#else
#define STACK_BEGINS (void)0
#endif

static const fedldp_epsilon cap = FEDLDP_WHOLE(9999);

static int check_one(const test_case *one) {
  STACK_BEGINS;
  return fedldp_check(one->plan, &cap) != FEDLDP_OK;
}

static const fedldp_plan *asked;

static int draw_one(const test_case *one) {
  (void)one;
  STACK_BEGINS;
  return fedldp_draw(asked, values, give, NULL, scratch, report) != FEDLDP_OK;
}

static int is_wrong(const test_case *one) {
  return position != length || memcmp(report, one->report, FEDLDP_REPORT_BYTES(one->plan->bits));
}

static void rewind_stream(const test_case *one) {
  asked = one->plan;
  position = 0;
  length = one->stream_length;
  memcpy(stream, one->stream, length);
}

int main(void) {
  uint32_t i, right = 0;
  for (i = 0; i < CASES; i++) {
    const test_case *one = test_cases + i;
    int failed;
    fill(&one->row);
    rewind_stream(one);
    if (i == 0 || one->plan != one[-1].plan) {
#if defined(STACK)
      print("stack ");
      print_number(stack_used(check_one, one));
      print(" ");
      print_number(stack_used(draw_one, one));
      print("\n");
      rewind_stream(one);
#endif
      if (check_one(one)) {
        print("refused: ");
        print(one->name);
        print("\n");
        continue;
      }
    }
    trace_begin(); /* of what a plugin compares */
    failed = draw_one(one);
    trace_end();
    failed |= is_wrong(one);
    if (failed) {
      print("wrong: ");
      print(one->name);
      print("\n");
    }
    right += !failed;
  }
  print_number(right);
  print(" of ");
  print_number(CASES);
  print("\n");
  return right != CASES;
}
