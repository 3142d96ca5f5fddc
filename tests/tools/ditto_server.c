/*
 * Runs dittovm again and again without loading it each time, which in the emulated host takes as
 * long as a small guest. Requests come on stdin, as strings that each end with a zero byte: how
 * many follow; how many seconds it may take (a fraction, too), its working directory, files for
 * stdin, stdout and stderr, and the arguments of dittovm. The answer is a line on stdout with the
 * exit status, 124 when it took too long and was killed (SIGKILL). Each run is a process of its
 * own.
 *
 * tests/lib/common.sh has what uses it: ditto_start, ditto_bounded.
 */
int dittovm_main(int argc, char **argv);
#define main dittovm_main
#include "cli/main.c"
#undef main

#include <assert.h>
#include <errno.h>
#include <fcntl.h>

#include "host/doctor/doctor.h"
#include "tests/tools/child.h"

#define ARGUMENTS_MAX 64

/* What a request's strings are. */
enum { SECONDS, DIRECTORY, IN, OUT, ERR, ARGUMENTS };

struct request {
    char *text[ARGUMENTS + ARGUMENTS_MAX + 1]; /* ended by NULL; owned */
    int count;
};

/* NULL at the end of stdin; the caller frees it. */
static char *read_text(void)
{
    char *text = NULL;
    size_t size = 0;

    if (getdelim(&text, &size, 0, stdin) >= 0)
        return text;
    free(text);
    return NULL;
}

static bool read_request(struct request *r)
{
    char *count = read_text();

    r->count = count ? atoi(count) : 0;
    free(count);
    if (r->count <= ARGUMENTS || r->count > ARGUMENTS + ARGUMENTS_MAX)
        return false;
    for (int i = 0; i < r->count; i++) {
        r->text[i] = read_text();
        assert(r->text[i]);
    }
    r->text[r->count] = NULL;
    return true;
}

static void redirect(const char *file, int flags, int to)
{
    int fd = open(file, flags, 0666);

    if (fd < 0 || dup2(fd, to) < 0) {
        fprintf(stderr, "ditto_server: %s: %s\n", file, strerror(errno));
        _exit(127);
    }
    if (fd != to)
        close(fd);
}

static _Noreturn void run(struct request *r)
{
    static char name[] = "dittovm";
    const sigset_t none = {0};

    sigprocmask(SIG_SETMASK, &none, NULL);
    fclose(stdin); /* requests are not for it */
    if (chdir(r->text[DIRECTORY]) != 0) {
        fprintf(stderr, "ditto_server: %s: %s\n", r->text[DIRECTORY], strerror(errno));
        _exit(127);
    }
    redirect(r->text[IN], O_RDONLY, STDIN_FILENO);
    redirect(r->text[OUT], O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
    redirect(r->text[ERR], O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
    char *argv[ARGUMENTS_MAX + 2] = {name};
    const int count = r->count - ARGUMENTS;
    memcpy(argv + 1, r->text + ARGUMENTS, (size_t)(count + 1) * sizeof argv[0]);
    exit(dittovm_main(count + 1, argv));
}

/* The exit status of a child that has these seconds, as a shell says it. */
static int await(pid_t child, double seconds)
{
    int status;
    bool late;

    if (!child_await(child, seconds, &status, &late))
        return 127;
    if (late && WIFSIGNALED(status))
        return 124;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
    struct request r;

    /* Once, and not in each process: it takes as long as a small guest. The ends of the children
     * that look are not those of a request: nobody waits for them yet. */
    doctor_cpu_doubt();
    doctor_hidden_instructions();
    child_block_ends();
    setvbuf(stdin, NULL, _IONBF, 0);
    while (read_request(&r)) {
        const pid_t child = fork();
        if (child == 0)
            run(&r);
        printf("%d\n", child < 0 ? 127 : await(child, atof(r.text[SECONDS])));
        fflush(stdout);
        for (int i = 0; i < r.count; i++)
            free(r.text[i]);
    }
    return 0;
}
