#ifndef REPLAY_DIVERGENCE_H
#define REPLAY_DIVERGENCE_H

#include <stdio.h>

#include "replay/player.h"

/* Say where a replay left its recording, what was expected and what was found: for users first. */
void divergence_report(const struct player *p, FILE *out);

/* A line for each thing that this CPU shows its guests otherwise than the recorder's did. */
void divergence_of_cpu(const struct player *p, FILE *out);

/* "in 0x3fd, 1 byte", for reports and dumps. */
void sync_point_format(const struct sync_point *sync, char *text, size_t size);

#endif
