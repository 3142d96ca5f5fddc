#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* vCPUs of one machine. */
#define MAX_VCPUS 8u

/* Disks of one machine. */
#define MAX_DISKS 8u

/* NICs of one machine, and the bytes of the longest frame that one sends or receives. */
#define MAX_NICS  4u
#define FRAME_MAX 65550u

#endif
