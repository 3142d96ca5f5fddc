#ifndef BASE_NOW_H
#define BASE_NOW_H

#include <stdint.h>

/* ns of host monotonic time. Nothing of it may reach the guest but through recorder/. */
uint64_t host_now_ns(void);

#endif
