#ifndef HOST_EMULATED_PORT_H
#define HOST_EMULATED_PORT_H

#include <stdbool.h>

/* For a command inside the emulated host: the virtio-serial port of this name, as
 * guest-tools/khost/ protocol.h has them. Its device's path; false: there is none, though it was
 * waited for. */
#define EMULATED_PORT_MAX 64
bool emulated_port_find(const char *name, char device[EMULATED_PORT_MAX]);

#endif
