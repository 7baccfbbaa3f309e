/* fedldp-c-vehicle: a vehicle on the command line, without a network. The plan is compiled in:

musl-gcc -static -Os -I. -Iclients/c -o fedldp-c-vehicle \
  clients/c/command/fedldp-c-vehicle.c clients/c/fedldp*.c

where `fedldp compile` has written plan.h into the current folder. The report goes to the standard
output, and what went wrong to the standard error. The values of the row come from the standard
input, where no other process sees them: a line `name=value` for each column. They decide neither
the exit status nor the size of the output: the column of a line that cannot be used counts as
missing, and such lines are mentioned when the report is out, without waiting for a reader. */

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "fedldp_file.h"
#include "fedldp_linux.h"
#include "plan.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 65536
#define PATH_BYTES 4096
#define EXIT_USAGE 64
#define EXIT_OUTPUT 74

static const char usage[] =
    "usage: fedldp-c-vehicle plan\n"
    "       fedldp-c-vehicle provision --ledger FILE\n"
    "       fedldp-c-vehicle spent --ledger FILE\n"
    "       fedldp-c-vehicle answer --ledger FILE --cap EPSILON --job NUMBER [--period NUMBER]\n"
    "answer reads a line `name=value` for each column, and writes the report.\n";

static const char *const problems[] = {
    "",
    "the plan leaks, or the period is not one of its calendar",
    "the plan costs more than it claims, or more than the cap leaves",
    "the plan is too large for this program",
    "the random generator of the system has failed",
    "there is no intact ledger, or it cannot be written, or another process uses it",
    "a later job or period was answered already, or there is a ledger already",
    "the vehicle does not answer in this period"};

static int say(fedldp_status status) {
  if (status != FEDLDP_OK) fprintf(stderr, "fedldp-c-vehicle: %s\n", problems[status]);
  return (int)status;
}

static int misused(const char *problem) {
  fprintf(stderr, "fedldp-c-vehicle: %s\n%s", problem, usage);
  return EXIT_USAGE;
}

/* Read a decimal number of at most `places` decimals, times 10^places: 0 if it is one. */
static int read_decimal(const char *text, uint32_t places, fedldp_epsilon *number) {
  uint32_t left = places, digits = 0, in_fraction = 0;
  memset(number, 0, sizeof *number);
  for (; *text != 0 || left > 0; text += *text != 0) {
    uint32_t digit = *text != 0 ? (uint32_t)(*text - '0') : 0, i;
    uint64_t carry = digit;
    if (*text == '.' && !in_fraction && places > 0) {
      in_fraction = 1;
      continue;
    }
    if (*text != 0 && digit > 9) return 1;
    if (*text == 0) in_fraction = 1;
    if (in_fraction && left-- == 0) return 1;
    digits += *text != 0;
    for (i = 0; i < 3; i++) {
      carry += (uint64_t)number->limbs[i] * 10;
      number->limbs[i] = (uint32_t)carry;
      carry >>= 32;
    }
    if (carry != 0) return 1;
  }
  return digits == 0;
}

static void print_epsilon(fedldp_epsilon number) {
  char text[32];
  size_t at = sizeof text, i;
  text[--at] = 0;
  for (i = 0; i < 30; i++) {
    uint64_t rest = 0;
    int limb;
    for (limb = 2; limb >= 0; limb--) {
      rest = rest << 32 | number.limbs[limb];
      number.limbs[limb] = (uint32_t)(rest / 10);
      rest %= 10;
    }
    if (i == 19) text[--at] = '.';
    text[--at] = (char)('0' + rest);
  }
  while (text[at] == '0' && text[at + 1] != '.') at++;
  for (i = strlen(text + at); text[at + i - 1] == '0' && text[at + i - 2] != '.'; i--)
    text[at + i - 1] = 0;
  printf("%s\n", text + at);
}

/* The row. */

static fedldp_value row[PLAN_COLUMNS];
static fedldp_text texts[PLAN_COLUMNS];
static uint32_t sizes[PLAN_COLUMNS]; /* of vectors; 1 for other numbers, 0 for labels */

static void note_column(const fedldp_attribute *attribute) {
  if (attribute->read == fedldp_read_within) {
    const fedldp_within *within = attribute->detail;
    note_column(within->of); /* the attributes in it have no others in them */
    note_column(within->groups);
  } else if (attribute->read == fedldp_read_category || attribute->read == fedldp_read_hashed) {
    sizes[attribute->column] = 0;
  } else {
    sizes[attribute->column] = attribute->size;
  }
}

/* Make a row of missing values. 0 if it worked. */
static int begin_row(void) {
  uint32_t i, k;
  for (i = 0; i < plan.attribute_count; i++) note_column(plan.attributes + i);
  for (i = 0; i < PLAN_COLUMNS; i++) {
    double *numbers = sizes[i] > 1 ? malloc(sizes[i] * sizeof *numbers) : NULL;
    if (sizes[i] > 1 && numbers == NULL) return 1;
    for (k = 0; numbers != NULL && k < sizes[i]; k++) numbers[k] = 0;
    row[i].kind = FEDLDP_MISSING;
    row[i].text = texts + i;
    row[i].numbers = numbers;
    row[i].count = sizes[i];
  }
  return 0;
}

/* Read a decimal number, which ends at `end`. 0 if it is one. */
static int read_number(const char *text, const char *end, double *number) {
  char *stop;
  if (strspn(text, "0123456789+-.eEinfatyINFATY") < (size_t)(end - text)) return 1;
  *number = strtod(text, &stop);
  return stop != end || end == text;
}

static int read_vector(const char *text, fedldp_value *value) {
  double *numbers = malloc(value->count * sizeof *numbers);
  uint32_t i = 0;
  int failed = numbers == NULL;
  while (!failed) {
    const char *end = text + strcspn(text, ",");
    failed = i == value->count || read_number(text, end, numbers + i++);
    if (*end == 0) break;
    text = end + 1;
  }
  if (failed || i != value->count) {
    free(numbers);
    return 1;
  }
  free((void *)(uintptr_t)value->numbers);
  value->numbers = numbers;
  value->kind = FEDLDP_VECTOR;
  return 0;
}

/* Put the value of a line into its column: 0 if it could be used. */
static int read_line(const char *line) {
  uint32_t i;
  for (i = 0; i < PLAN_COLUMNS; i++) {
    size_t length = strlen(plan_names[i]);
    const char *text = line + length + 1;
    fedldp_value *value = row + i;
    if (strncmp(line, plan_names[i], length) != 0 || line[length] != '=') continue;
    if (value->kind != FEDLDP_MISSING) return 1;
    if (*text == 0) return 0;
    if (sizes[i] > 1) return read_vector(text, value);
    if (sizes[i] == 1) {
      value->kind = FEDLDP_UNREADABLE;
      if (read_number(text, text + strlen(text), &value->number)) return 1;
      value->kind = FEDLDP_NUMBER;
      return 0;
    }
    value->kind = FEDLDP_TEXT;
    if (strlen(text) > FEDLDP_TEXT_BYTES) {
      value->kind = FEDLDP_UNREADABLE;
      return 1;
    }
    texts[i].length = (uint8_t)strlen(text);
    memcpy(texts[i].bytes, text, strlen(text));
    return 0;
  }
  return 1;
}

static char unused[200];

static void note(unsigned long line) {
  size_t length = strlen(unused);
  if (length + 32 < sizeof unused)
    sprintf(unused + length, "%s%lu", length > 0 ? ", " : "", line);
  else if (unused[length - 1] != '.')
    strcat(unused, " ...");
}

/* Tell the owner what could not be used, if this can be written at once. */
static void warn_owner(void) {
  char text[sizeof unused + 64];
  struct pollfd output = {STDERR_FILENO, POLLOUT, 0};
  int length = sprintf(text, "fedldp-c-vehicle: unused lines of the row: %s\n", unused);
  if (unused[0] != 0 && poll(&output, 1, 0) == 1 && (output.revents & POLLOUT) != 0 &&
      write(STDERR_FILENO, text, (size_t)length) < 0)
    return; /* nobody can be told */
}

static void read_row(void) {
  static char line[LINE_BYTES];
  size_t length = 0;
  unsigned long number = 1;
  int is_usable = 1, letter;
  do {
    letter = getchar();
    if (letter != '\n' && letter != EOF) {
      is_usable &= letter != 0 && length + 1 < sizeof line;
      if (is_usable) line[length++] = (char)letter;
      continue;
    }
    line[length] = 0;
    if (!is_usable || (length > 0 && read_line(line))) note(number);
    number++;
    length = 0;
    is_usable = 1;
  } while (letter != EOF);
  if (ferror(stdin)) note(number);
}

/* The ledger. */

static uint8_t record[PLAN_RECORD_BYTES];
static uint64_t scratch[PLAN_SCRATCH_WORDS + 1];
static char next_path[PATH_BYTES], lock_path[PATH_BYTES], folder[PATH_BYTES];
static fedldp_file file = {NULL, next_path, lock_path, folder};

static fedldp_ledger ledger_at(const char *path) {
  fedldp_ledger ledger = {fedldp_file_load, fedldp_file_store, &file, record, sizeof record};
  const char *slash = strrchr(path, '/');
  file.path = path;
  sprintf(next_path, "%s.next", path);
  sprintf(lock_path, "%s.lock", path);
  strcpy(folder, slash != NULL ? path : ".");
  if (slash != NULL) folder[slash - path + 1] = 0;
  return ledger;
}

static int answer(fedldp_ledger ledger, const char *cap, const char *job, const char *period) {
  fedldp_vehicle vehicle = {&plan, {{0, 0, 0}}, fedldp_linux_random, NULL, ledger, scratch, NULL};
  fedldp_epsilon number, time = {{0, 0, 0}};
  const uint8_t *report;
  fedldp_status status;
  if (cap == NULL || read_decimal(cap, 19, &vehicle.cap)) return misused("--cap needs a number");
  if (job == NULL || read_decimal(job, 0, &number) || number.limbs[2] != 0)
    return misused("--job needs a whole number from 1");
  if (period != NULL && (read_decimal(period, 0, &time) || time.limbs[1] || time.limbs[2]))
    return misused("--period needs a whole number from 1");
  if (begin_row()) return say(FEDLDP_LIMIT);
  read_row();
  status = fedldp_answer(&vehicle, (uint64_t)number.limbs[1] << 32 | number.limbs[0],
                         time.limbs[0], row, &report);
  if (status == FEDLDP_OK &&
      (fwrite(report, 1, PLAN_REPORT_BYTES, stdout) != PLAN_REPORT_BYTES || fflush(stdout) != 0)) {
    fprintf(stderr, "fedldp-c-vehicle: the report could not be written; ask again\n");
    return EXIT_OUTPUT;
  }
  say(status);
  warn_owner();
  return (int)status;
}

static int describe(void) {
  static const fedldp_epsilon cap = PLAN_CAP;
  fedldp_status status = fedldp_check(&plan, &cap);
  size_t i;
  if (status != FEDLDP_OK) return say(status);
  for (i = 0; i < sizeof plan.question; i++) printf("%02x", plan.question[i]);
  printf("\nepsilon ");
  print_epsilon(plan.epsilon);
  for (i = 0; i < PLAN_COLUMNS; i++) printf("%s\n", plan_names[i]);
  return fflush(stdout) != 0 ? EXIT_OUTPUT : 0;
}

int main(int count, char **arguments) {
  const char *path = NULL, *cap = NULL, *job = NULL, *period = NULL;
  fedldp_epsilon spent;
  fedldp_ledger ledger;
  int i, status;
  /* If one of these were closed, a file of the ledger would take its place. */
  for (i = 0; i < 3; i++)
    if (fcntl(i, F_GETFD) < 0) return EXIT_OUTPUT;
  signal(SIGPIPE, SIG_IGN); /* so that an output without a reader is an error like others */
  if (count == 2 && strcmp(arguments[1], "plan") == 0) return describe();
  if (count < 2) return misused("say what to do");
  for (i = 2; i + 1 < count; i += 2) {
    const char **option = strcmp(arguments[i], "--ledger") == 0   ? &path
                          : strcmp(arguments[i], "--cap") == 0    ? &cap
                          : strcmp(arguments[i], "--job") == 0    ? &job
                          : strcmp(arguments[i], "--period") == 0 ? &period
                                                                  : NULL;
    if (option == NULL || *option != NULL) return misused("an option is unknown, or given twice");
    *option = arguments[i + 1];
  }
  if (i != count) return misused("an option has no value");
  if (path == NULL || strlen(path) + 6 > PATH_BYTES) return misused("--ledger needs a path");
  ledger = ledger_at(path);
  if (fedldp_file_lock(&file) != 0) return say(FEDLDP_NO_LEDGER);
  if (strcmp(arguments[1], "provision") == 0) {
    ledger.store = fedldp_file_create;
    return say(fedldp_provision(&ledger));
  }
  if (strcmp(arguments[1], "spent") == 0) {
    status = say(fedldp_spent(&ledger, &spent));
    if (status == FEDLDP_OK) print_epsilon(spent);
    return status != FEDLDP_OK ? status : fflush(stdout) != 0 ? EXIT_OUTPUT : 0;
  }
  if (strcmp(arguments[1], "answer") == 0) return answer(ledger, cap, job, period);
  return misused("the first word is plan, provision, spent or answer");
}
