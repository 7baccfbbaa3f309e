/* The vehicle in a web page: docs/playground/vehicle.js calls what is exported here. build.py makes
it. A page has no ledger, so nothing accounts for what its reports cost. */

#include "plan.h"

#define EXPORT(name) __attribute__((export_name(name)))

__attribute__((import_module("browser"), import_name("random"))) int browser_random(uint8_t *bytes,
                                                                                   size_t count);

static uint8_t report[PLAN_REPORT_BYTES];
static uint64_t scratch[PLAN_SCRATCH_WORDS];

static int random_bytes(void *context, uint8_t *bytes, size_t count) {
  (void)context;
  return browser_random(bytes, count);
}

EXPORT("fingerprint") const uint8_t *fingerprint(void);
const uint8_t *fingerprint(void) { return plan.fingerprint; }

/* The three limbs of the plan's epsilon. */
EXPORT("epsilon") const uint32_t *epsilon(void);
const uint32_t *epsilon(void) { return plan.epsilon.limbs; }

/* The status of the plan for a cap, which is given in limbs. */
EXPORT("check") int check(uint32_t low, uint32_t middle, uint32_t high);
int check(uint32_t low, uint32_t middle, uint32_t high) {
  fedldp_epsilon cap;
  cap.limbs[0] = low;
  cap.limbs[1] = middle;
  cap.limbs[2] = high;
  return (int)fedldp_check(&plan, &cap);
}

/* Draw a report, and return its status. */
EXPORT("draw") int draw(double speed, uint32_t city);
int draw(double speed, uint32_t city) {
  static const fedldp_text none = {0, {0}};
  fedldp_value row[PLAN_COLUMNS] = {{FEDLDP_MISSING, 0, 0, 0, NULL, NULL}};
  row[PLAN_SPEED].kind = FEDLDP_NUMBER;
  row[PLAN_SPEED].number = speed;
  row[PLAN_CITY].kind = FEDLDP_CODE;
  row[PLAN_CITY].code = city;
  row[PLAN_CITY].text = &none;
  return (int)fedldp_draw(&plan, row, random_bytes, NULL, scratch, report);
}

EXPORT("report") const uint8_t *drawn(void);
const uint8_t *drawn(void) { return report; }

EXPORT("report_bytes") uint32_t report_bytes(void);
uint32_t report_bytes(void) { return PLAN_REPORT_BYTES; }
