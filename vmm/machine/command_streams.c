#include "vmm/machine/command_streams.h"

static struct command_streams *streams_of(struct command_link *link)
{
    return (struct command_streams *)link; /* its first member */
}

static int take(struct command_link *link, uint8_t *data, size_t len)
{
    struct console *console = streams_of(link)->console;
    const bool ended = console_input_ended(console); /* looked at first: input comes before it */
    const size_t n = console_peek(console, data, len);

    console_consume(console, n);
    return n == 0 && ended ? -1 : (int)n;
}

static bool put(struct command_link *link, bool is_error, const uint8_t *data, size_t len)
{
    const struct command_streams *s = streams_of(link);

    return console_write(is_error ? s->err_fd : s->out_fd, data, len);
}

static void note(struct command_link *link, enum command_call call, uint32_t value)
{
    struct command_streams *s = streams_of(link);

    if (call == COMMAND_BEGINS)
        s->begun = true;
    else if (call == COMMAND_FAILED)
        s->failure = value;
    else
        s->status = (int)(value & 0xff);
    s->has_ended |= call == COMMAND_EXITED;
}

void command_streams_init(struct command_streams *s, struct console *console, int out_fd,
                          int err_fd, int log_fd)
{
    *s = (struct command_streams){
        .link = {.take = take, .put = put, .note = note},
        .console = console,
        .out_fd = out_fd,
        .err_fd = err_fd,
        .shows = log_fd >= 0,
    };
    if (s->shows)
        console_show_on(console, log_fd);
}

bool command_streams_have_input(struct command_streams *s)
{
    return console_has_input(s->console) || console_input_ended(s->console);
}

void command_streams_log(void *streams, uint8_t byte)
{
    struct command_streams *s = streams;

    s->log[s->log_len++ % sizeof s->log] = (char)byte;
    if (s->shows)
        console_put(s->console, byte);
}

void command_streams_show_log(const struct command_streams *s, int fd)
{
    const size_t len = s->log_len < sizeof s->log ? (size_t)s->log_len : sizeof s->log;
    const size_t from = (size_t)(s->log_len - len) % sizeof s->log, first = sizeof s->log - from;
    const uint8_t *log = (const uint8_t *)s->log;

    console_write(fd, log + from, len < first ? len : first);
    if (len > first)
        console_write(fd, log, len - first);
}
