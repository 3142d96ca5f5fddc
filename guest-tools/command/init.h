#ifndef GUEST_TOOLS_COMMAND_INIT_H
#define GUEST_TOOLS_COMMAND_INIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/command_protocol.h"

/* Inside of the init: init.c, init_device.c, init_root.c and init_network.c. */

/* What the machine reads and writes: a box and its data, in pages that stay where they are. */
struct pages {
    union {
        struct command_box box;
        uint8_t box_page[COMMAND_PAGE];
    };
    uint8_t data[COMMAND_DATA_MAX];
};
extern struct pages *pages;

/* Find the device, with sysfs mounted: then there is call(), and fail(). */
void open_device(void);
void call(enum command_call what, uint32_t value);
/* These do not return. The message is for the console. */
void end_machine(enum command_call what, uint32_t value) __attribute__((noreturn));
void fail(enum command_failure why, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));
/* Have the pages: then there is send_box(), for len bytes of their data. It returns the len that
 * the box has afterwards. */
void open_box(void);
uint32_t send_box(enum command_call what, uint32_t len);

/* A text file's whole contents, with a NUL behind them, or NULL. The kernel's own have no size, and
 * come in pieces. The caller frees them. */
char *read_file(const char *path, size_t *len);
/* In this order. */
void mount_first(void);
void load_modules(void);
void mount_root(void);
void enter_root(void);

/* The loopback; and where the first NIC is one of --net user, what DHCP would say there. */
void set_up_network(bool is_user);

#endif
