/* A ledger in a real file: provision it, store a record, read it, and lock it twice. */

#include "fedldp_file.h"

#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

static fedldp_file file = {"ledger", "ledger.next", "ledger.lock", "."};

int main(void) {
  uint8_t record[100] = {1};
  int status = 0;
  pid_t child;
  if (fedldp_file_load(&file, record, sizeof record) == 0) return 1;
  if (fedldp_file_store(&file, record, sizeof record) != 0) return 2;
  if (fedldp_file_create(&file, record, sizeof record) == 0) return 3;
  if (unlink("ledger") != 0 || fedldp_file_create(&file, record, sizeof record) != 0) return 4;
  if (fedldp_file_load(&file, record, sizeof record) != 0) return 5;
  printf("spent %d, ", record[4]);
  record[4] = 5;
  if (fedldp_file_store(&file, record, sizeof record) != 0) return 6;
  record[4] = 0;
  if (fedldp_file_load(&file, record, sizeof record) != 0) return 7;
  printf("stored, spent %d, ", record[4]);
  fflush(stdout);
  if (fedldp_file_lock(&file) != 0) return 8;
  /* Reading and storing, which open, close and replace the ledger, must not end the lock. */
  if (fedldp_file_load(&file, record, sizeof record) != 0) return 11;
  if (fedldp_file_store(&file, record, sizeof record) != 0) return 12;
  child = fork();
  if (child == 0) _exit(fedldp_file_lock(&file) != 0 ? 0 : 9);
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 10;
  printf("locked out\n");
  return 0;
}
