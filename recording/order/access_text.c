#include "recording/order/access_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define LINE_MAX_BYTES 128

static int parse_object(const char *text, uint64_t *object)
{
    char *end;

    if (strncmp(text, "0x", 2))
        return parse_number(text, UINT64_MAX, object);
    errno = 0;
    *object = strtoull(text + 2, &end, 16);
    return strspn(text + 2, "0123456789abcdefABCDEF") == strlen(text + 2) && end > text + 2 &&
                   errno == 0
               ? 0
               : -1;
}

/* What comes next of a vCPU's points. */
struct next_points {
    uint64_t least[MAX_VCPUS], usual[MAX_VCPUS];
};

/* 1; 0 for a line without an access; -1 for one that is none. */
static int parse_line(char *line, struct next_points *next, struct access *a)
{
    static const char space[] = " \t\r\n";
    char *words[5], *rest;
    unsigned count = 0;
    uint64_t vcpu;

    line[strcspn(line, "#")] = 0;
    for (char *word = strtok_r(line, space, &rest); word && count < 5;
         word = strtok_r(NULL, space, &rest))
        words[count++] = word;
    if (count == 0)
        return 0;
    if (count < 3 || count > 4 || parse_number(words[0], MAX_VCPUS - 1, &vcpu) < 0 ||
        parse_object(words[2], &a->object) < 0)
        return -1;
    a->vcpu = (uint8_t)vcpu;
    a->point = next->usual[vcpu];
    if (count == 4 &&
        (parse_number(words[3], UINT64_MAX, &a->point) < 0 || a->point < next->least[vcpu]))
        return -1;
    next->least[vcpu] = a->point;
    next->usual[vcpu] = a->point < UINT64_MAX ? a->point + 1 : a->point;
    a->store = !strcmp(words[1], "store");
    return a->store || !strcmp(words[1], "load") ? 1 : -1;
}

static int read_lines(struct access_list *list, FILE *in, const char *name, struct err *e)
{
    char line[LINE_MAX_BYTES];
    struct next_points next = {0};

    for (uint64_t number = 1; fgets(line, sizeof line, in); number++) {
        struct access a = {0};
        const size_t len = strlen(line);
        const bool is_whole = len && (line[len - 1] == '\n' || feof(in));
        const int found = is_whole ? parse_line(line, &next, &a) : -1;
        if (found < 0)
            return err_set(e, STATUS_ERROR,
                           "%s, line %" PRIu64 ": an access is 'VCPU load|store OBJECT [POINT]', "
                           "vCPUs are 0 to %u, a vCPU's points never fall",
                           name, number, MAX_VCPUS - 1);
        if (!found)
            continue;
        if (a.vcpu >= list->vcpus)
            list->vcpus = a.vcpu + 1u;
        if (access_list_add(list, &a) < 0)
            return err_set(e, STATUS_ERROR, "%s has more than %u accesses", name, ACCESSES_MAX);
    }
    if (ferror(in))
        return err_set(e, STATUS_ERROR, "cannot read %s: %s", name, strerror(errno));
    if (!list->count)
        return err_set(e, STATUS_ERROR, "%s holds no accesses", name);
    return 0;
}

int access_text_read(struct access_list *list, FILE *in, const char *name, struct err *e)
{
    *list = (struct access_list){0};
    if (read_lines(list, in, name, e) == 0)
        return 0;
    access_list_free(list);
    return -1;
}

void access_text_write(FILE *out, const struct access *a)
{
    fprintf(out, "%u %s %" PRIu64 " %" PRIu64 "\n", a->vcpu, a->store ? "store" : "load", a->object,
            a->point);
}
