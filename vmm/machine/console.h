#ifndef VMM_MACHINE_CONSOLE_H
#define VMM_MACHINE_CONSOLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The user's terminal as the other end of the guest's serial line. On a terminal Ctrl-A is the
 * escape key: x leaves, a sends Ctrl-A itself, h helps. A thread waits for input, so that the vCPU
 * can be kicked out of the guest when a key is pressed.
 */
struct console;

/* Input from in_fd (-1: none), output to out_fd. With `raw`, an in_fd that is a terminal is made
 * raw until console_close(), and has the escape key. */
struct console *console_open(int in_fd, int out_fd, bool raw, struct err *e);
/* From here on input is read, and notify(opaque) is called on the console's thread when there is
 * some or the user wants to leave; until console_ignore_input(), behind which it is called no more
 * and what is typed stays for who reads it next. */
void console_on_input(struct console *c, void (*notify)(void *opaque), void *opaque);
void console_ignore_input(struct console *c);
void console_close(struct console *c);

/* Guest output goes to another descriptor than out_fd; before there is any. */
void console_show_on(struct console *c, int fd);
/* Guest output. Shown at line ends, when the buffer is full, and on console_flush(). */
void console_put(void *console, uint8_t byte);
void console_flush(struct console *c);
/* Output that was put but not yet shown. */
bool console_has_output(const struct console *c);

/* Take up to len bytes of input that have arrived. */
size_t console_peek(struct console *c, uint8_t *data, size_t len);
void console_consume(struct console *c, size_t len);
bool console_has_input(struct console *c);
/* All input was taken, and there will be no more. */
bool console_input_ended(struct console *c);
/* Write to a descriptor as to out_fd: a reader who does not read is waited for, until the user
 * wants a stop. False: it takes no more, as a pipe whose reader has gone. */
bool console_write(int fd, const uint8_t *data, size_t len);
/* The user asked to leave. */
bool console_wants_to_leave(struct console *c);

#endif
