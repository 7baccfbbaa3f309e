/* Answers through a ledger: spend, store, release. */

#include "fedldp_internal.h"

/* Answers. A record: the version, whether a report is there, two zeros, what was spent (12 bytes),
the job (8), the question (32), the period (4), the answers of the calendar (4) and their periods (4
each), and the report. All numbers have the most significant byte first. */

#define RECORD_VERSION 1
#define AT_SPENT 4
#define AT_JOB 16
#define AT_QUESTION 24
#define AT_PERIOD 56
#define AT_ANSWERS 60

static fedldp_epsilon epsilon_at(const uint8_t *bytes) {
  fedldp_epsilon epsilon;
  int i;
  for (i = 0; i < 3; i++) epsilon.limbs[2 - i] = (uint32_t)big_endian(bytes + 4 * i, 4);
  return epsilon;
}

static fedldp_status load(fedldp_ledger *ledger) {
  if (ledger->size < FEDLDP_RECORD_HEADER_BYTES) return FEDLDP_LIMIT;
  if (ledger->load(ledger->context, ledger->record, ledger->size) != 0 ||
      ledger->record[0] != RECORD_VERSION)
    return FEDLDP_NO_LEDGER;
  return FEDLDP_OK;
}

static fedldp_status store(fedldp_ledger *ledger) {
  int failed = ledger->store(ledger->context, ledger->record, ledger->size);
  return failed ? FEDLDP_NO_LEDGER : FEDLDP_OK;
}

fedldp_status fedldp_provision(fedldp_ledger *ledger) {
  if (ledger->size < FEDLDP_RECORD_HEADER_BYTES) return FEDLDP_LIMIT;
  if (ledger->load(ledger->context, ledger->record, ledger->size) == 0) return FEDLDP_OLD;
  memset(ledger->record, 0, ledger->size);
  ledger->record[0] = RECORD_VERSION;
  return store(ledger);
}

fedldp_status fedldp_spent(fedldp_ledger *ledger, fedldp_epsilon *spent) {
  fedldp_status status = load(ledger);
  if (status == FEDLDP_OK) *spent = epsilon_at(ledger->record + AT_SPENT);
  return status;
}

/* Add what a plan costs to what was spent, and write it and the question into the record. */
static fedldp_status spend(fedldp_vehicle *vehicle, uint64_t job) {
  const fedldp_plan *plan = vehicle->plan;
  uint8_t *record = vehicle->ledger.record;
  fedldp_epsilon spent = epsilon_at(record + AT_SPENT), cost;
  uint32_t times = plan->answers > 0 && !plan->constant ? plan->answers : 1;
  int i;
  if (job <= big_endian(record + AT_JOB, 8)) return FEDLDP_OLD;
  multiply(cost.limbs, 3, &times, 1, plan->epsilon.limbs, 3);
  if (add_limbs(spent.limbs, cost.limbs, 3) || !at_most(spent.limbs, vehicle->cap.limbs, 3))
    return FEDLDP_EXPENSIVE;
  memset(record, 0, vehicle->ledger.size);
  record[0] = RECORD_VERSION;
  for (i = 0; i < 3; i++) put_big_endian(record + AT_SPENT + 4 * i, spent.limbs[2 - i], 4);
  put_big_endian(record + AT_JOB, job, 8);
  memcpy(record + AT_QUESTION, plan->question, sizeof plan->question);
  put_big_endian(record + AT_ANSWERS, plan->answers, 4);
  return FEDLDP_OK;
}

/* Choose the periods of a calendar, and store them before any data are read. */
static fedldp_status begin_calendar(fedldp_vehicle *vehicle) {
  const fedldp_plan *plan = vehicle->plan;
  uint8_t *periods = vehicle->ledger.record + FEDLDP_RECORD_HEADER_BYTES;
  fedldp_status status = fedldp_choose(plan->answers, plan->periods, vehicle->random,
                                       vehicle->random_context, vehicle->scratch);
  uint32_t i;
  if (status != FEDLDP_OK) return status;
  for (i = 0; i < plan->answers; i++)
    put_big_endian(periods + 4 * i, vehicle->scratch[i] + 1, 4);
  return store(&vehicle->ledger);
}

fedldp_status fedldp_answer(fedldp_vehicle *vehicle, uint64_t job, uint32_t period,
                            const fedldp_value *row, const uint8_t **report) {
  const fedldp_plan *plan = vehicle->plan;
  uint8_t *record = vehicle->ledger.record, *drawn;
  fedldp_status status = FEDLDP_OK;
  uint32_t i, chosen = plan->periods == 0;
  *report = NULL;
  if (vehicle->checked != plan) status = fedldp_check(plan, &vehicle->cap);
  if (status != FEDLDP_OK) return status;
  vehicle->checked = plan;
  status = load(&vehicle->ledger);
  if (status != FEDLDP_OK) return status;
  if (vehicle->ledger.size < FEDLDP_RECORD_BYTES(plan->bits, plan->answers)) return FEDLDP_LIMIT;
  if (plan->periods == 0 ? period != 0 : period < 1 || period > plan->periods)
    return FEDLDP_REFUSED;
  drawn = record + FEDLDP_RECORD_HEADER_BYTES + 4 * (size_t)plan->answers;
  if (memcmp(record + AT_QUESTION, plan->question, sizeof plan->question) != 0 ||
      (job != big_endian(record + AT_JOB, 8) && (plan->periods > 0 || !plan->constant))) {
    status = spend(vehicle, job);
    if (status == FEDLDP_OK && plan->periods > 0) status = begin_calendar(vehicle);
    if (status != FEDLDP_OK) return status;
  }
  if (period < big_endian(record + AT_PERIOD, 4)) return FEDLDP_OLD;
  for (i = 0; i < plan->answers; i++)
    chosen |= big_endian(record + FEDLDP_RECORD_HEADER_BYTES + 4 * i, 4) == period;
  if (!chosen) return FEDLDP_SILENT;
  if (!record[1] || (period != big_endian(record + AT_PERIOD, 4) && !plan->constant)) {
    status = fedldp_draw(plan, row, vehicle->random, vehicle->random_context, vehicle->scratch,
                         drawn);
    record[1] = 1;
    put_big_endian(record + AT_PERIOD, period, 4);
    if (status == FEDLDP_OK) status = store(&vehicle->ledger);
    if (status != FEDLDP_OK) {
      memset(drawn, 0, FEDLDP_REPORT_BYTES(plan->bits));
      return status;
    }
  }
  *report = drawn;
  return FEDLDP_OK;
}
