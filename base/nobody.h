#ifndef BASE_NOBODY_H
#define BASE_NOBODY_H

/* A process that is root's becomes nobody, for good; another user's stays what it is. NULL, or what
 * is wrong. The kernel then forgets PR_SET_PDEATHSIG. */
const char *become_nobody(void);

#endif
