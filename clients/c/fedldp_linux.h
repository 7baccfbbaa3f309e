/* The random generator of Linux, as a random source. */

#ifndef FEDLDP_LINUX_H
#define FEDLDP_LINUX_H

#include "fedldp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill `bytes` from the kernel, and wait at boot until it has enough entropy. `context` is not
used. There is no other source behind it: if the kernel fails, so does this. */
int fedldp_linux_random(void *context, uint8_t *bytes, size_t count);

#ifdef __cplusplus
}
#endif

#endif
