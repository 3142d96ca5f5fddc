#ifndef BASE_ERR_H
#define BASE_ERR_H

/*
 * One error, as a user reads it: a single line that says what went wrong and what to do, and the
 * exit status it leads to (docs: "Exit status" in README.md).
 *
 * Convention of the whole project: a function that can fail returns 0 or a valid object on success
 * and -1 or NULL on failure, after it has filled the struct err it was given. Nothing is printed by
 * library code; only main.c and the commands write to stderr.
 */
enum exit_status {
    STATUS_OK = 0,
    STATUS_ERROR = 1,          /* the machine or the system refused */
    STATUS_USAGE = 2,          /* the command line is wrong */
    STATUS_DIVERGED = 3,       /* the replay is not the recording */
    STATUS_BAD_RECORDING = 65, /* the file is no (whole) recording of this version */
};

struct err {
    enum exit_status status;
    char text[1024];
};

/* Fill *e and return -1, so that callers can write `return err_set(e, ...)`. e may not be NULL.
 * What others wrote may be among it: the text is cleaned (base/text.h). */
int err_set(struct err *e, enum exit_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
