/*
 * PID 1 of the emulated KVM host: loads the modules, takes one request from the control port, runs
 * that command over the outer machine's files, and reports how it ended. protocol.h describes the
 * ports. The machine ends when the control port closes, so nothing outlives the dittovm outside.
 */
#include "guest-tools/khost/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "base/bytes.h"

static struct ports ports = {{-1, -1, -1, -1, -1}};

static _Noreturn void power_off(void)
{
    /* QEMU runs with -no-reboot: a reboot ends it, and needs no ACPI. */
    reboot(RB_AUTOBOOT);
    for (;;)
        pause();
}

static void write_line(const char *text, size_t length)
{
    int fd = ports.fd[KHOST_PORT_CONTROL];
    while (fd >= 0 && length > 0) {
        ssize_t n = write(fd, text, length);
        if (n > 0) {
            text += n;
            length -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, 1000);
        } else {
            power_off();
        }
    }
}

void agent_say(const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (length < 0)
        length = 0;
    if ((size_t)length > sizeof line - 2)
        length = sizeof line - 2;
    line[length++] = '\n';
    write_line(line, (size_t)length);
}

_Noreturn void agent_fail(const char *format, ...)
{
    char text[448];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "khost: %s\n", text);
    agent_say("F %s", text);
    /* The outside ends QEMU as soon as it has read the line. */
    sleep(10);
    power_off();
}

static int open_port(unsigned number)
{
    char path[32];
    snprintf(path, sizeof path, "/dev/vport0p%u", number);
    /* The kernel creates the node some time after the driver was loaded. */
    for (int tries = 0; tries < 5000; tries++) {
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fd >= 0)
            return fd;
        usleep(1000);
    }
    agent_fail("%s: %s", path, strerror(errno));
}

static void read_control(void *out, size_t length)
{
    int fd = ports.fd[KHOST_PORT_CONTROL];
    uint8_t *p = out;
    while (length > 0) {
        ssize_t n = read(fd, p, length);
        if (n > 0) {
            p += n;
            length -= (size_t)n;
        } else {
            struct pollfd wait = {.fd = fd, .events = POLLIN};
            poll(&wait, 1, -1);
            if (wait.revents & POLLHUP)
                power_off();
        }
    }
}

static char *get_string(struct cursor *c)
{
    uint64_t length = cursor_varint(c);
    if (length >= cursor_left(c))
        c->bad = true;
    const char *s = c->bad ? NULL : cursor_take(c, length + 1);
    if (!s || s[length] != '\0' || strlen(s) != length) {
        c->bad = true;
        return NULL;
    }
    return (char *)s;
}

static char **get_strings(struct cursor *c)
{
    uint64_t count = cursor_varint(c);
    /* A string takes two bytes at least. */
    if (count > cursor_left(c) / 2) {
        c->bad = true;
        count = 0;
    }
    char **list = calloc(count + 1, sizeof *list);
    if (!list)
        agent_fail("out of memory");
    for (uint64_t i = 0; i < count && !c->bad; i++)
        list[i] = get_string(c);
    return list;
}

static void get_request(struct request *r)
{
    uint8_t head[4];
    struct cursor c;
    uint32_t length;
    /* A machine that was saved is asked whether it is up where it has said so before. */
    do {
        agent_say("R %u", KHOST_PROTOCOL_VERSION);
        read_control(head, sizeof head);
        c = cursor_of(head, sizeof head);
        length = cursor_u32(&c);
    } while (length == 0);
    uint8_t *body = length <= KHOST_REQUEST_MAX ? malloc(length) : NULL;
    if (!body)
        agent_fail("the request is too large (%u bytes)", length);
    read_control(body, length);

    c = cursor_of(body, length);
    r->flags = cursor_u8(&c);
    r->rows = cursor_u16(&c);
    r->columns = cursor_u16(&c);
    r->uid = cursor_u32(&c);
    r->gid = cursor_u32(&c);
    r->umask = cursor_u32(&c);
    r->seconds = cursor_u64(&c);
    r->nanoseconds = cursor_u32(&c);
    cursor_get(&c, r->seed, sizeof r->seed);
    r->group_count = cursor_varint(&c);
    if (r->group_count > cursor_left(&c) / 4)
        agent_fail("malformed request");
    r->groups = calloc(r->group_count + 1, sizeof *r->groups);
    for (size_t i = 0; r->groups && i < r->group_count; i++)
        r->groups[i] = cursor_u32(&c);
    r->cwd = get_string(&c);
    r->rw_dirs = get_strings(&c);
    r->env = get_strings(&c);
    r->argv = get_strings(&c);
    if (c.bad || !r->groups || !r->argv[0])
        agent_fail("malformed request");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    setup_early_mounts();
    setup_modules();
    for (unsigned i = KHOST_PORT_CONTROL; i <= KHOST_PORT_STDERR; i++)
        ports.fd[i] = open_port(i);
    setup_network();
    setup_cpus();

    struct request r = {0};
    get_request(&r);
    setup_machine(&r);
    struct outcome o = relay_command(&r, &ports);
    setup_flush(&r);
    agent_say("X %d %llu %llu", o.status, (unsigned long long)o.out_bytes,
              (unsigned long long)o.err_bytes);
    /* What was written may be on its way, as slowly as somebody reads it. */
    poll(&(struct pollfd){.fd = ports.fd[KHOST_PORT_CONTROL]}, 1, -1);
    power_off();
}
