#ifndef BASE_STOP_SIGNALS_H
#define BASE_STOP_SIGNALS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * The signals with which users stop a command: SIGINT, SIGTERM, SIGHUP, SIGQUIT. What can be
 * stopped says how; and who sleeps blocks them all between a look at whether one has come and the
 * sleep that it would end (ppoll() lets them in), or it could come in between and be slept over.
 */
struct stopper {
    void (*stop)(void *opaque); /* async-signal-safe, from any thread */
    void *opaque;
};

/* From now on each of these signals calls it, and one that came before does at once; it must last
 * until the next call of this. NULL: they are only noted. */
void stop_signals_call(const struct stopper *stopper);
/* Not 0 from when one has come since the first call. Never freed. */
const atomic_int *stop_signals_came(void);
/* Whether one has come, or is pending in this thread, which blocks it; or stop_signals_stand_in()
 * was called. */
bool stop_signals_wanted(void);
/* Somebody else wants a stop, and sees to it: who waits is to wait no more. From any thread. */
void stop_signals_stand_in(void);
/* Add them to the signals that this thread blocks. */
void stop_signals_block(void);

#endif
