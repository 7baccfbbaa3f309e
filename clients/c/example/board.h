/* What a device has: here a Cortex-M3 that QEMU emulates, with files of the host in the place of its
parts. Write the same functions for your board; docs/how-to/embedded.md says what they must keep. */

#ifndef BOARD_H
#define BOARD_H

#include <stddef.h>
#include <stdint.h>

#define BOARD_PAGE_BYTES 1024 /* of each of two pages of flash that nothing else uses */
#define BOARD_FLASH_UNIT 8    /* bytes that are programmed at once */

/* Each returns 0 if it worked. */
int board_random(uint8_t *bytes, size_t count);                            /* /dev/urandom */
int board_flash_erase(int page);                                           /* flash.bin */
int board_flash_program(int page, size_t offset, const uint8_t *bytes);    /* flash.bin */
int board_flash_read(int page, size_t offset, uint8_t *bytes, size_t count);
int board_receive(uint64_t *job);                                          /* job.txt */
int board_send(const uint8_t *report, size_t count);                       /* report.bin */

double board_speed(void); /* of a sensor, in km/h */
int board_is_raining(void);

void board_print(const char *text);

#endif
