#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* vCPUs of one machine. */
#define MAX_VCPUS 8u

#endif
