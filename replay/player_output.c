/* What a user saw of the machine: its console, and the output of the command that it ran. */
#include <string.h>

#include "base/command_protocol.h"
#include "replay/player_inside.h"

/* Bytes for the UART's transmitter. */
static void watch_console(struct player *p, const struct vcpu_exit *exit)
{
    if (exit->size != 1 || exit->at < CONSOLE_PORT || exit->at > CONSOLE_PORT + 4)
        return;
    for (unsigned i = 0; i < exit->count; i++) {
        uint8_t byte = exit->data[i];
        switch (exit->at - CONSOLE_PORT) {
        case 0:
            if (!p->dlab && !p->loopback && p->console)
                p->console(p->console_opaque, byte);
            break;
        case 3: /* LCR */
            p->dlab = byte & 0x80;
            break;
        case 4: /* MCR */
            p->loopback = byte & 0x10;
            break;
        default:
            break;
        }
    }
}

/* A box that is handed out. What it holds is the guest's word. */
static void watch_command(struct player *p, const struct vcpu_exit *exit)
{
    uint32_t frame;

    if (!p->runs_command || !p->console || exit->at != COMMAND_BAR + COMMAND_BOX ||
        exit->size != sizeof frame || exit->count != 1)
        return;
    memcpy(&frame, exit->data, sizeof frame);
    const struct command_box *box =
        guest_memory_at(&p->vm.memory, (uint64_t)frame * COMMAND_PAGE, sizeof *box);
    if (!box || (box->call != COMMAND_STDOUT && box->call != COMMAND_STDERR))
        return;
    const uint32_t len = box->len < COMMAND_DATA_MAX ? box->len : COMMAND_DATA_MAX;
    for (uint32_t at = 0; at < len; at += COMMAND_PAGE) {
        const uint64_t gpa = (uint64_t)box->frame[at / COMMAND_PAGE] * COMMAND_PAGE;
        const uint8_t *data = guest_memory_at(&p->vm.memory, gpa, COMMAND_PAGE);
        for (uint32_t i = 0; data && i < COMMAND_PAGE && at + i < len; i++)
            p->console(p->console_opaque, data[i]);
    }
}

void player_watch_output(struct player *p, const struct vcpu_exit *exit)
{
    if (exit->kind == EXIT_PIO_OUT)
        watch_console(p, exit);
    else
        watch_command(p, exit);
}
