#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdio.h>

/*
 * Text that others wrote (an image's files, a guest's kernel, a recording, a peer) on its way to a
 * terminal, which obeys control characters. What is shown goes through here; errors all do, in
 * err_set().
 */

/* Make it one harmless line: each byte of a control character (C0, DEL, C1), of a character that
 * changes the direction or the line, and of what is not UTF-8 becomes '?'. */
void text_clean(char *text);

/* How many bytes of it are at most so many, and whole UTF-8 characters: for "%.*s". */
int text_fitting(const char *text, unsigned most);

/* Like fprintf(), for one line: what it makes is cleaned, but for line ends at its end. */
void text_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
