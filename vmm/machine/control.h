#ifndef VMM_MACHINE_CONTROL_H
#define VMM_MACHINE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

struct machine;

/*
 * What a machine is told from outside while it runs (base/control_request.h), on its end of a
 * stream that leads to host/control/control_server.h. A thread reads and answers. What names or
 * keeps the place where the machine stands waits for it to come to a sync point; the vCPU's thread
 * never waits for anybody here. A control may be NULL: nobody tells anything.
 */
struct control;

/* fd: that end, which is the control's from here on; recording: its file, for stats. NULL: there is
 * none (fd -1), or no memory. */
struct control *control_open(int fd, const char *recording);
void control_close(struct control *c);

/* From here on requests are taken, for this machine, until control_ignore(), which answers those
 * that still wait. notify: as of net_wire_listen(). */
void control_listen(struct control *c, struct machine *m, void (*notify)(void *opaque),
                    void *opaque);
void control_ignore(struct control *c);

/* Whether a mark waits for a sync point. Any time. */
bool control_waits(struct control *c);
/* The machine stands at a sync point: it is noted how far it is; and marks are made, too. */
void control_note(struct control *c);
void control_serve(struct control *c);

/* Whether a snapshot waits for a sync point with no event yet. Any time. */
bool control_wants_snapshot(struct control *c);
/* The first one's name: "", one is to be found. Copied to name[SNAPSHOT_NAME_MAX + 1]. False: it
 * cannot be, and this was answered. */
bool control_snapshot_name(struct control *c, char *name);
/* It was taken, with this name, at this sync point. */
void control_snapshot_taken(struct control *c, const char *name, uint64_t sync);

#endif
