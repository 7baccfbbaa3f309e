/* The random generator of Linux: see fedldp_linux.h. */

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "fedldp_linux.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

int fedldp_linux_random(void *context, uint8_t *bytes, size_t count) {
  (void)context;
  while (count > 0) {
    ssize_t got = getrandom(bytes, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 1;
    bytes += got;
    count -= (size_t)got;
  }
  return 0;
}
