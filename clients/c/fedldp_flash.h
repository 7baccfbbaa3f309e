/* A ledger in two pages of raw flash. */

#ifndef FEDLDP_FLASH_H
#define FEDLDP_FLASH_H

#include "fedldp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The driver of two pages, 0 and 1, which nothing else may use. Each function returns 0 if it worked.
`erase` sets all bytes of a page to 0xFF. `program` writes `unit` bytes, once after each erasure; no
more than FEDLDP_FLASH_UNIT. `page_bytes` is a multiple of `unit`. */
#define FEDLDP_FLASH_UNIT 32

typedef struct fedldp_flash {
  int (*erase)(void *context, int page);
  int (*program)(void *context, int page, size_t offset, const uint8_t *bytes);
  int (*read)(void *context, int page, size_t offset, uint8_t *bytes, size_t count);
  void *context;
  size_t page_bytes, unit;
} fedldp_flash;

/* The bytes of a page that has room for a record. */
#define FEDLDP_FLASH_BYTES(record, unit)                                                           \
  ((16 + (size_t)(record) + (size_t)(unit)-1) / (size_t)(unit) * (size_t)(unit) + (size_t)(unit))

/* The callbacks of a ledger; `context` is a fedldp_flash. `create` takes the place of `store` in
provisioning, and fails if the pages are not blank. */
int fedldp_flash_load(void *context, uint8_t *record, size_t size);
int fedldp_flash_store(void *context, const uint8_t *record, size_t size);
int fedldp_flash_create(void *context, const uint8_t *record, size_t size);

#ifdef __cplusplus
}
#endif

#endif
