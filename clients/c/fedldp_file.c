/* A ledger in a file: see fedldp_file.h. The file holds a header, the size of the record, the record,
and the CRC-32 of all this. A new file takes the place of the old one only when it is on the disk. */

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "fedldp_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(FEDLDP_FILE_TEST)
#include FEDLDP_FILE_TEST
#endif

#define HEAD_BYTES 20

static void head_of(uint8_t head[HEAD_BYTES], size_t size) {
  int i;
  memcpy(head, "fedldp ledger 1\n", 16);
  for (i = 0; i < 4; i++) head[16 + i] = (uint8_t)(size >> (24 - 8 * i));
}

static void check_of(uint8_t check[4], const uint8_t *head, const uint8_t *record, size_t size) {
  uint32_t crc = fedldp_crc32(fedldp_crc32(0, head, HEAD_BYTES), record, size);
  int i;
  for (i = 0; i < 4; i++) check[i] = (uint8_t)(crc >> (24 - 8 * i));
}

static int write_all(int file, const uint8_t *bytes, size_t count) {
  while (count > 0) {
    ssize_t written = write(file, bytes, count);
    if (written <= 0) return 1;
    bytes += written;
    count -= (size_t)written;
  }
  return 0;
}

static int read_all(int file, uint8_t *bytes, size_t count) {
  while (count > 0) {
    ssize_t got = read(file, bytes, count);
    if (got <= 0) return 1;
    bytes += got;
    count -= (size_t)got;
  }
  return 0;
}

/* Write a file and wait until it is on the disk. */
static int write_file(const char *path, int flags, const uint8_t *record, size_t size) {
  uint8_t head[HEAD_BYTES], check[4];
  int file = open(path, O_WRONLY | O_CREAT | flags, 0600), failed;
  if (file < 0) return 1;
  head_of(head, size);
  check_of(check, head, record, size);
  failed = write_all(file, head, sizeof head) || write_all(file, record, size) ||
           write_all(file, check, sizeof check) || fsync(file) != 0;
  return close(file) != 0 || failed;
}

/* Wait until the names in a folder are on the disk. */
static int settle(const char *folder) {
  int file = open(folder, O_RDONLY, 0), failed;
  if (file < 0) return 1;
  failed = fsync(file) != 0;
  return close(file) != 0 || failed;
}

int fedldp_file_lock(const fedldp_file *file) {
  struct flock whole;
  int opened = open(file->lock, O_RDWR | O_CREAT, 0600);
  memset(&whole, 0, sizeof whole);
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  return opened < 0 || fcntl(opened, F_SETLK, &whole) != 0;
}

int fedldp_file_load(void *context, uint8_t *record, size_t size) {
  const fedldp_file *ledger = context;
  uint8_t head[HEAD_BYTES], wanted[HEAD_BYTES], check[4], right[4], end;
  int file = open(ledger->path, O_RDONLY, 0), failed;
  if (file < 0) return 1;
  head_of(wanted, size);
  failed = read_all(file, head, sizeof head) || memcmp(head, wanted, sizeof head) != 0 ||
           read_all(file, record, size) || read_all(file, check, sizeof check) ||
           read(file, &end, 1) != 0;
  if (close(file) != 0 || failed) return 1;
  check_of(right, head, record, size);
  return memcmp(check, right, sizeof check) != 0;
}

int fedldp_file_store(void *context, const uint8_t *record, size_t size) {
  const fedldp_file *ledger = context;
  return write_file(ledger->next, O_TRUNC, record, size) ||
         rename(ledger->next, ledger->path) != 0 || settle(ledger->folder);
}

int fedldp_file_create(void *context, const uint8_t *record, size_t size) {
  const fedldp_file *ledger = context;
  return write_file(ledger->path, O_EXCL, record, size) || settle(ledger->folder);
}
