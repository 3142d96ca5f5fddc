#ifndef BASE_DEAF_THREAD_H
#define BASE_DEAF_THREAD_H

#include <pthread.h>

/* pthread_create() of a thread that blocks all signals. They are for the threads that wait for
 * them: a vCPU's, which a signal brings out of the guest, and the main one. */
int deaf_thread_create(pthread_t *thread, void *(*run)(void *opaque), void *opaque);

#endif
