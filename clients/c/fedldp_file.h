/* A ledger in a file, for systems with POSIX. */

#ifndef FEDLDP_FILE_H
#define FEDLDP_FILE_H

#include "fedldp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The paths of the ledger, of a new one beside it, of a file that is locked, and of their folder. */
typedef struct fedldp_file {
  const char *path, *next, *lock, *folder;
} fedldp_file;

/* Keep other processes out until the program ends, by a lock on a file of its own: the ledger's file
is another one after each answer. Call this once, first, and never open or remove that file; 0 if it
worked. */
int fedldp_file_lock(const fedldp_file *file);

/* The callbacks of a ledger; `context` is a fedldp_file. `create` takes the place of `store` in
provisioning, and fails if there is a file. */
int fedldp_file_load(void *context, uint8_t *record, size_t size);
int fedldp_file_store(void *context, const uint8_t *record, size_t size);
int fedldp_file_create(void *context, const uint8_t *record, size_t size);

#ifdef __cplusplus
}
#endif

#endif
