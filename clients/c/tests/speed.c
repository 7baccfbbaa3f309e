/* Draw many reports with the generator of the kernel, for figures.py. */

#include "fedldp_linux.h"
#include "plan.h"

#include <stdlib.h>

static fedldp_text texts[PLAN_COLUMNS];
static double numbers[1024];
static uint64_t scratch[PLAN_SCRATCH_WORDS];
static uint8_t report[PLAN_REPORT_BYTES];

int main(int count, char **arguments) {
  fedldp_value row[PLAN_COLUMNS];
  long left = count > 1 ? atol(arguments[1]) : 0;
  int failed = 0, i;
  for (i = 0; i < PLAN_COLUMNS; i++) {
    fedldp_value value = {FEDLDP_MISSING, 0, 0, 0, NULL, NULL};
    row[i] = value;
    row[i].text = texts + i;
    row[i].numbers = numbers;
  }
  while (left-- > 0)
    failed |= fedldp_draw(&plan, row, fedldp_linux_random, NULL, scratch, report) != FEDLDP_OK;
  return failed;
}
