/* A Cortex-M3 in QEMU, with files of the host by semihosting: see board.h. */

#include "board.h"

#include <string.h>

/* Semihosting. */

enum { OPEN = 1, CLOSE = 2, WRITE_TEXT = 4, WRITE = 5, READ = 6, SEEK = 10, EXIT = 32 };
enum { READ_BYTES = 1, CHANGE_BYTES = 3, WRITE_BYTES = 5 };

static int32_t call_host(int operation, const void *argument) {
  register int32_t r0 __asm__("r0") = operation;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static int32_t call(int operation, uint32_t first, uint32_t second, uint32_t third) {
  uint32_t block[3] = {0, 0, 0};
  block[0] = first;
  block[1] = second;
  block[2] = third;
  return call_host(operation, block);
}

static int32_t open_file(const char *name, uint32_t mode) {
  return call(OPEN, (uint32_t)(uintptr_t)name, mode, (uint32_t)strlen(name));
}

/* Read or write at an offset, and close the file; 0 if all bytes were there. */
static int transfer(int operation, int32_t file, size_t offset, const void *bytes, size_t count) {
  int32_t left;
  if (file < 0) return 1;
  if (offset > 0) call(SEEK, (uint32_t)file, offset, 0);
  left = call(operation, (uint32_t)file, (uint32_t)(uintptr_t)bytes, count);
  call(CLOSE, (uint32_t)file, 0, 0);
  return left != 0;
}

void board_print(const char *text) { call_host(WRITE_TEXT, text); }

/* Start and end. */

int main(void);
extern uint32_t stack_top[], data_start[], data_end[], data_image[], bss_start[], bss_end[];

static void end(int status) {
  uint32_t block[2] = {0x20026, 0};
  block[1] = (uint32_t)status;
  call_host(EXIT, block);
  for (;;) continue;
}

void reset(void);
void reset(void) {
  memcpy(data_start, data_image, (size_t)((char *)data_end - (char *)data_start));
  memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
  end(main());
}

static void fault(void) { end(99); }

struct vectors {
  uint32_t *stack;
  void (*handlers[3])(void);
};
extern const struct vectors vectors;
__attribute__((section(".vectors"))) const struct vectors vectors = {stack_top,
                                                                     {reset, fault, fault}};

/* Parts. */

int board_random(uint8_t *bytes, size_t count) {
  return transfer(READ, open_file("/dev/urandom", READ_BYTES), 0, bytes, count);
}

/* A chip that is new has only ones. */
static int32_t open_flash(uint32_t mode) {
  int32_t file = open_file("flash.bin", mode);
  uint8_t blank[64];
  size_t i;
  if (file >= 0) return file;
  file = open_file("flash.bin", WRITE_BYTES);
  if (file < 0) return file;
  memset(blank, 0xFF, sizeof blank);
  for (i = 0; i < 2 * BOARD_PAGE_BYTES; i += sizeof blank)
    call(WRITE, (uint32_t)file, (uint32_t)(uintptr_t)blank, sizeof blank);
  call(CLOSE, (uint32_t)file, 0, 0);
  return open_file("flash.bin", mode);
}

int board_flash_read(int page, size_t offset, uint8_t *bytes, size_t count) {
  size_t at = (size_t)page * BOARD_PAGE_BYTES + offset;
  return transfer(READ, open_flash(READ_BYTES), at, bytes, count);
}

/* Programming can only turn ones into zeros. */
int board_flash_program(int page, size_t offset, const uint8_t *bytes) {
  size_t at = (size_t)page * BOARD_PAGE_BYTES + offset, i;
  uint8_t now[BOARD_FLASH_UNIT];
  if (board_flash_read(page, offset, now, sizeof now) != 0) return 1;
  for (i = 0; i < sizeof now; i++) now[i] &= bytes[i];
  return transfer(WRITE, open_flash(CHANGE_BYTES), at, now, sizeof now);
}

int board_flash_erase(int page) {
  uint8_t blank[BOARD_PAGE_BYTES];
  memset(blank, 0xFF, sizeof blank);
  return transfer(WRITE, open_flash(CHANGE_BYTES), (size_t)page * BOARD_PAGE_BYTES, blank,
                  sizeof blank);
}

int board_receive(uint64_t *job) {
  int32_t file = open_file("job.txt", READ_BYTES);
  uint8_t digit;
  *job = 0;
  if (file < 0) return 1;
  while (call(READ, (uint32_t)file, (uint32_t)(uintptr_t)&digit, 1) == 0 && digit >= '0' &&
         digit <= '9')
    *job = *job * 10 + (uint64_t)(digit - '0');
  call(CLOSE, (uint32_t)file, 0, 0);
  return 0;
}

int board_send(const uint8_t *report, size_t count) {
  return transfer(WRITE, open_file("report.bin", WRITE_BYTES), 0, report, count);
}

double board_speed(void) { return 87.5; }

int board_is_raining(void) { return 1; }
