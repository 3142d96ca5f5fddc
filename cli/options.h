#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"

/*
 * The options of a command: one table, from which its command line is parsed and its help printed.
 * What a command makes of them is a struct of its own, `into`.
 */
enum option_kind {
    OPTION_END,
    OPTION_FLAG,   /* no value; a bool becomes true */
    OPTION_TEXT,   /* a const char *, into argv */
    OPTION_NUMBER, /* a uint64_t, least to most */
    OPTION_SIZE,   /* the same in bytes, with K, M or G */
    OPTION_CLOCK,  /* a const struct clock_ops * (vmm/points/clock.h) */
    OPTION_CALL,   /* call() */
};

struct option_entry {
    enum option_kind kind;
    char letter; /* 0: none */
    const char *name;
    const char *value; /* what help calls it; in brackets: it may be left out, and is NULL then */
    const char *help;  /* a sentence or two, without line ends */
    size_t member;     /* of `into` */
    uint64_t least, most;
    const char *takes; /* "--name takes ..., not '...'" */
    int (*call)(void *into, const char *value, struct err *e);
};

/* Entries of a table; `type` is the struct that `into` is. */
#define FLAG_OPTION(letter_, name_, type_, member_, help_)                                         \
    {                                                                                              \
        .kind = OPTION_FLAG, .letter = letter_, .name = name_, .help = help_,                      \
        .member = offsetof(type_, member_)                                                         \
    }
#define TEXT_OPTION(name_, value_, type_, member_, help_)                                          \
    {                                                                                              \
        .kind = OPTION_TEXT, .name = name_, .value = value_, .help = help_,                        \
        .member = offsetof(type_, member_)                                                         \
    }
#define NUMBER_OPTION(kind_, name_, value_, type_, member_, least_, most_, takes_, help_)          \
    {                                                                                              \
        .kind = kind_, .name = name_, .value = value_, .help = help_,                              \
        .member = offsetof(type_, member_), .least = least_, .most = most_, .takes = takes_        \
    }
#define CLOCK_OPTION(type_, help_)                                                                 \
    {                                                                                              \
        .kind = OPTION_CLOCK, .name = "clock", .value = "NAME", .help = help_,                     \
        .member = offsetof(type_, clock)                                                           \
    }
#define CALL_OPTION(letter_, name_, value_, call_, help_)                                          \
    {                                                                                              \
        .kind = OPTION_CALL, .letter = letter_, .name = name_, .value = value_, .help = help_,     \
        .call = call_                                                                              \
    }
#define END_OF_OPTIONS                                                                             \
    {                                                                                              \
        .kind = OPTION_END                                                                         \
    }

/*
 * Parse argv, of which the first is the command's name. Returns the index of its first argument
 * that is no option (they may stand anywhere; argv is sorted); -1, with a usage error.
 */
int options_parse(const struct option_entry *table, void *into, int argc, char **argv,
                  struct err *e);

/* Print a table as help has it. */
void options_print(const struct option_entry *table, FILE *out);

#endif
