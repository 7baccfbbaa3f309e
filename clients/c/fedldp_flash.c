/* A ledger in two pages of raw flash: see fedldp_flash.h.

A page holds 4 bytes "fldp", the size of the record, a sequence number, the CRC-32 of these 12 bytes
and the record (4 bytes each, the most significant first), the record, and in its last unit a mark:
blank as long as the page is the last one. To store a record, the other page is erased, written and
compared, and then this page is marked; only then anything may be released. So a page that is not
whole beside one without a mark was being written when the power failed. Beside a page with a mark, it
was damaged later, and the ledger fails. */

#include "fedldp_flash.h"

#include <string.h>

#define HEAD_BYTES 16

static uint32_t number_at(const uint8_t *bytes) {
  return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void put_number(uint8_t *bytes, uint32_t number) {
  int i;
  for (i = 0; i < 4; i++) bytes[i] = (uint8_t)(number >> (24 - 8 * i));
}

/* The first 12 bytes of a page; what follows is the CRC-32 of these and the record. */
static void head_of(uint8_t head[HEAD_BYTES], uint32_t sequence, size_t size) {
  memcpy(head, "fldp", 4);
  put_number(head + 4, (uint32_t)size);
  put_number(head + 8, sequence);
}

/* Whether bytes of a page are all 0xFF; -1 if they cannot be read. */
static int is_blank(const fedldp_flash *flash, int page, size_t offset, size_t count) {
  for (; count > 0; offset++, count--) {
    uint8_t byte;
    if (flash->read(flash->context, page, offset, &byte, 1) != 0) return -1;
    if (byte != 0xFF) return 0;
  }
  return 1;
}

/* Check a page: 1 if it is whole, without a mark; 2 with a mark; 0 if not; -1 if reading fails. */
static int check_page(const fedldp_flash *flash, int page, size_t size, uint32_t *sequence) {
  uint8_t head[HEAD_BYTES], wanted[HEAD_BYTES], byte;
  uint32_t crc;
  size_t i;
  int blank = is_blank(flash, page, flash->page_bytes - flash->unit, flash->unit);
  if (blank < 0 || flash->read(flash->context, page, 0, head, sizeof head) != 0) return -1;
  *sequence = number_at(head + 8);
  head_of(wanted, *sequence, size);
  crc = fedldp_crc32(0, wanted, 12);
  for (i = 0; i < size; i++) {
    if (flash->read(flash->context, page, HEAD_BYTES + i, &byte, 1) != 0) return -1;
    crc = fedldp_crc32(crc, &byte, 1);
  }
  if (memcmp(head, wanted, 12) != 0 || number_at(head + 12) != crc) return 0;
  return blank ? 1 : 2;
}

/* Find the page with the last record: -1 if there is none. */
static int last_page(const fedldp_flash *flash, size_t size, uint32_t *sequence) {
  int page, last = -1;
  if (flash->unit < 1 || flash->unit > FEDLDP_FLASH_UNIT ||
      flash->page_bytes < FEDLDP_FLASH_BYTES(size, flash->unit))
    return -1;
  for (page = 0; page < 2; page++) {
    uint32_t number;
    int state = check_page(flash, page, size, &number);
    if (state < 0) return -1;
    if (state == 1 && (last < 0 || number - *sequence < UINT32_C(1) << 31)) {
      last = page;
      *sequence = number;
    }
  }
  return last;
}

/* Write a record into a page that is blank, and compare it. */
static int write_page(const fedldp_flash *flash, int page, const uint8_t *record, size_t size,
                      uint32_t sequence) {
  uint8_t head[HEAD_BYTES], unit[FEDLDP_FLASH_UNIT], byte;
  size_t at, i;
  head_of(head, sequence, size);
  put_number(head + 12, fedldp_crc32(fedldp_crc32(0, head, 12), record, size));
  for (at = 0; at < HEAD_BYTES + size; at += flash->unit) {
    for (i = 0; i < flash->unit; i++) {
      size_t place = at + i;
      unit[i] = 0xFF;
      if (place < HEAD_BYTES) unit[i] = head[place];
      if (place >= HEAD_BYTES && place < HEAD_BYTES + size) unit[i] = record[place - HEAD_BYTES];
    }
    if (flash->program(flash->context, page, at, unit) != 0) return 1;
  }
  for (at = 0; at < HEAD_BYTES + size; at++) {
    if (flash->read(flash->context, page, at, &byte, 1) != 0 ||
        byte != (at < HEAD_BYTES ? head[at] : record[at - HEAD_BYTES]))
      return 1;
  }
  return 0;
}

int fedldp_flash_load(void *context, uint8_t *record, size_t size) {
  const fedldp_flash *flash = context;
  uint32_t sequence;
  int page = last_page(flash, size, &sequence);
  return page < 0 || flash->read(flash->context, page, HEAD_BYTES, record, size) != 0;
}

int fedldp_flash_store(void *context, const uint8_t *record, size_t size) {
  static const uint8_t mark[FEDLDP_FLASH_UNIT] = {0};
  const fedldp_flash *flash = context;
  uint32_t sequence;
  int page = last_page(flash, size, &sequence);
  size_t at = flash->page_bytes - flash->unit;
  if (page < 0 || flash->erase(flash->context, 1 - page) != 0 ||
      is_blank(flash, 1 - page, 0, flash->page_bytes) != 1 ||
      write_page(flash, 1 - page, record, size, sequence + 1) != 0 ||
      flash->program(flash->context, page, at, mark) != 0)
    return 1;
  return is_blank(flash, page, at, flash->unit) != 0;
}

int fedldp_flash_create(void *context, const uint8_t *record, size_t size) {
  const fedldp_flash *flash = context;
  int page;
  if (flash->unit < 1 || flash->unit > FEDLDP_FLASH_UNIT ||
      flash->page_bytes < FEDLDP_FLASH_BYTES(size, flash->unit))
    return 1;
  for (page = 0; page < 2; page++)
    if (is_blank(flash, page, 0, flash->page_bytes) != 1) return 1;
  return write_page(flash, 0, record, size, 1);
}
