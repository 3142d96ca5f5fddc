#ifndef BASE_STOP_SIGNALS_H
#define BASE_STOP_SIGNALS_H

#include <signal.h>

/* The signals with which users stop a command: SIGINT, SIGTERM, SIGHUP, SIGQUIT. Each is caught by
 * who can be stopped; and blocked, all of them, between a look at whether one has come and the
 * sleep that it would end (ppoll() lets them in), or it could come in between and be slept over. */
void stop_signals_catch(void (*handler)(int signal));
/* Add them to the signals that this thread blocks. */
void stop_signals_block(void);

#endif
