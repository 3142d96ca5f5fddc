#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H

/* vCPUs of one machine. */
#define MAX_VCPUS 8u

/* Disks of one machine. */
#define MAX_DISKS 8u

/* NICs of one machine, and the bytes of the longest frame that one sends or receives. */
#define MAX_NICS  4u
#define FRAME_MAX 65550u

/* Marks of one recording, which a guest makes as many of as it likes, and the bytes of one's text.
 */
#define MARKS_MAX 65536u
#define MARK_MAX  120u

#endif
