/* What a plan needs in a device, for figures.py: with PLAN the check and a draw, with ANSWER answers
through a ledger in flash, and with neither what this program itself needs. */

#include "fedldp_flash.h"

#if defined(PLAN)
#include "plan.h"
#endif

volatile uintptr_t sink;

int main(void);
void reset(void);
void reset(void) {
  main();
  for (;;) continue;
}
void *memcpy(void *to, const void *from, size_t count);
__attribute__((section(".vectors"), used)) static void (*const vectors[])(void) = {NULL, reset};

#if defined(PLAN)
static fedldp_value row[PLAN_COLUMNS];
static uint64_t scratch[PLAN_SCRATCH_WORDS];
static uint8_t report[PLAN_RECORD_BYTES];

static int give(void *context, uint8_t *bytes, size_t count) {
  (void)context;
  while (count-- > 0) *bytes++ = (uint8_t)sink;
  return 0;
}
#endif

#if defined(ANSWER)
static int erase(void *context, int page) { return context != NULL && page; }

static int program(void *context, int page, size_t offset, const uint8_t *bytes) {
  sink = (uintptr_t)context + (uintptr_t)page + offset + *bytes;
  return 0;
}

static int read(void *context, int page, size_t offset, uint8_t *bytes, size_t count) {
  sink = (uintptr_t)context + (uintptr_t)page + offset + count;
  *bytes = (uint8_t)sink;
  return 0;
}
#endif

int main(void) {
#if defined(ANSWER)
  fedldp_flash flash = {erase, program, read, NULL, 1024, 8};
  fedldp_ledger ledger = {fedldp_flash_load, fedldp_flash_store, NULL, report, sizeof report};
  fedldp_vehicle vehicle = {&plan, PLAN_CAP, give, NULL, {0}, scratch, NULL};
  const uint8_t *released;
  ledger.context = &flash;
  vehicle.ledger = ledger;
  sink = (uintptr_t)fedldp_answer(&vehicle, 1, 0, row, &released);
#elif defined(PLAN)
  static const fedldp_epsilon cap = PLAN_CAP;
  sink = (uintptr_t)fedldp_check(&plan, &cap);
  sink = (uintptr_t)fedldp_draw(&plan, row, give, NULL, scratch, report);
#endif
  return 0;
}
