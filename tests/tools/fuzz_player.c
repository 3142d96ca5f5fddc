/*
 * Verifies recordings whose contents were changed behind sound checksums: bits and bytes of what
 * the streams and the description hold, once they are unpacked. Whatever they say, they are
 * refused, or they diverge, or they are replayed: no signal ends dittovm. Writes TAP; what it fails
 * on is kept in the current directory, as crash-SEED.ditto.
 *
 * usage: fuzz_player ROUNDS SEED REC...    (writes fuzzed.ditto)
 */
int dittovm_main(int argc, char **argv);
#define main dittovm_main
#include "cli/main.c"
#undef main

#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>

#include "tests/tools/child.h"
#include "tests/tools/recording_copy.h"
#include "tests/tools/tool_host.h"

#define FUZZED "fuzzed.ditto"
/* What takes longer is stopped, and no fault: a guest may loop for ever. */
#define SECONDS_MAX 4
#define CHANGES_MAX 4
#define MOVED_MAX   16

static uint64_t state;

static uint64_t next_random(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

/* Put `len` random bytes at `at`, or take them away. */
static void move(struct bytes *b, size_t at, size_t len, bool away)
{
    if (away) {
        memmove(b->data + at, b->data + at + len, b->len - at - len);
        b->len -= len;
        return;
    }
    bytes_reserve(b, len);
    memmove(b->data + at + len, b->data + at, b->len - at);
    for (size_t i = 0; i < len; i++)
        b->data[at + i] = (uint8_t)next_random(256);
    b->len += len;
}

static void change(struct bytes *b)
{
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
    const size_t at = next_random(b->len), left = b->len - at;
    const size_t len = 1 + next_random(left < MOVED_MAX ? left : MOVED_MAX);

    switch (next_random(6)) {
    case 0:
    case 1:
        b->data[at] ^= (uint8_t)(1u << next_random(8));
        break;
    case 2:
        b->data[at] = edges[next_random(sizeof edges)];
        break;
    case 3:
        b->data[at] = (uint8_t)next_random(256);
        break;
    case 4:
        move(b, at, len, false);
        break;
    case 5:
        move(b, at, len, true);
        break;
    }
}

/* Of all that there is something in, each as likely as the other. */
static struct bytes *choose(struct recording_copy *copy)
{
    struct bytes *some[STREAM_COUNT + 1] = {&copy->meta};
    unsigned count = 1;

    for (unsigned i = 0; i < STREAM_COUNT; i++)
        if (copy->stream[i].len && i != STREAM_SYMBOLS)
            some[count++] = &copy->stream[i];
    return some[next_random(count)];
}

static void write_fuzzed(const char *path)
{
    struct recording_copy copy;

    copy_open(&copy, path);
    for (uint64_t changes = 1 + next_random(CHANGES_MAX); changes; changes--)
        change(choose(&copy));
    copy_write(&copy, FUZZED, NULL);
    copy_close(&copy);
}

static _Noreturn void verify(void)
{
    static char *argv[] = {"dittovm", "verify", "--quiet", FUZZED, NULL};
    const int nothing = open("/dev/null", O_RDWR),
              messages = open("messages", O_RDWR | O_CREAT | O_TRUNC, 0666);
    const sigset_t none = {0};

    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(messages, STDERR_FILENO);
    exit(dittovm_main(4, argv));
}

enum outcome { IDENTICAL, REFUSED, DIVERGED, BAD, LATE, CRASHED, OUTCOMES };

static enum outcome outcome_of(int status, bool late)
{
    if (late)
        return LATE;
    if (!WIFEXITED(status))
        return CRASHED;
    switch (WEXITSTATUS(status)) {
    case STATUS_OK:
        return IDENTICAL;
    case STATUS_DIVERGED:
        return DIVERGED;
    case STATUS_BAD_RECORDING:
        return REFUSED;
    case STATUS_ERROR:
        return BAD; /* an error with a reason: memory that this host has not, say */
    default:
        return CRASHED;
    }
}

static enum outcome run(void)
{
    int status = 0;
    bool late;

    const pid_t child = fork();
    if (child == 0)
        verify();
    return child_await(child, SECONDS_MAX, &status, &late) ? outcome_of(status, late) : CRASHED;
}

/* The file, and what was said of it. */
static void keep(uint64_t seed)
{
    char name[64], line[512];
    FILE *f = fopen("messages", "r");

    snprintf(name, sizeof name, "crash-%llu.ditto", (unsigned long long)seed);
    rename(FUZZED, name);
    printf("# kept: %s\n", name);
    while (f && fgets(line, sizeof line, f))
        printf("#   %s", line);
    if (f)
        fclose(f);
}

int main(int argc, char **argv)
{
    unsigned count[OUTCOMES] = {0};
    int status;

    if (argc < 4)
        return STATUS_USAGE;
    const struct host_needs needs = {.guest_memory = 256u << 20};
    if (tool_ran_in_host("fuzz_player", argv, &needs, &status))
        return status;
    child_block_ends();
    const uint64_t rounds = strtoull(argv[1], NULL, 10), seed = strtoull(argv[2], NULL, 10);
    for (uint64_t round = 0; round < rounds; round++) {
        state = (seed + round + 1) * 0x9e3779b97f4a7c15ull;
        write_fuzzed(argv[3 + round % (unsigned)(argc - 3)]);
        const enum outcome outcome = run();
        count[outcome]++;
        if (outcome == CRASHED)
            keep(seed + round);
    }
    unlink(FUZZED);
    unlink("messages");
    printf("# refused %u, diverged %u, error %u, identical %u, stopped %u, crashed %u\n",
           count[REFUSED], count[DIVERGED], count[BAD], count[IDENTICAL], count[LATE],
           count[CRASHED]);
    printf("%sok 1 changed recordings are refused, diverge or are replayed\n1..1\n",
           !count[CRASHED] && count[REFUSED] && count[DIVERGED] ? "" : "not ");
    return count[CRASHED] != 0;
}
