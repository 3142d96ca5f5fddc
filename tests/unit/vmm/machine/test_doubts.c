/* machine_doubt(): what a guest can bring about without end is said a few times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "vmm/machine/machine.h"

#define TIMES 5000u

/* How many lines of the file have the text in them. */
static unsigned lines_with(FILE *f, const char *text)
{
    char line[256];
    unsigned count = 0;

    rewind(f);
    while (fgets(line, sizeof line, f))
        count += strstr(line, text) != NULL;
    return count;
}

static void each_kind_is_said_a_few_times(void **state)
{
    static struct machine m; /* that is not recorded */
    FILE *said = tmpfile();
    const int err = dup(STDERR_FILENO);

    (void)state;
    assert_non_null(said);
    fflush(stderr);
    dup2(fileno(said), STDERR_FILENO);
    for (unsigned i = 0; i < TIMES; i++)
        machine_doubt(&m, "one at %u", i);
    machine_doubt(&m, "%s", "another one");
    fflush(stderr);
    dup2(err, STDERR_FILENO);
    close(err);
    assert_int_equal(lines_with(said, "the replay may diverge: one at "), DOUBTS_SAID);
    assert_int_equal(lines_with(said, "one at 0\n"), 1);
    assert_int_equal(lines_with(said, "another one\n"), 1);
    fclose(said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_is_said_a_few_times)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
