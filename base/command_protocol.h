#ifndef BASE_COMMAND_PROTOCOL_H
#define BASE_COMMAND_PROTOCOL_H

#include <stdint.h>

/*
 * How a machine that runs one command is talked to by the init in it (guest-tools/command/init.c),
 * a program of user space. A PCI device has a page of registers, which the init maps by its sysfs
 * file, as ioperm() means nothing in a guest of QEMU's guest, and not every kernel has /dev/port.
 * Data is in pages of the init's own, whose frames it knows and keeps from moving. Recordings hold
 * the writes, so none ever gets another meaning.
 *
 * A *box* is a page that says what is to be done with the data of up to 16 other pages. Its frame's
 * number is written to COMMAND_BOX: then it is done. What needs no data is a call, written to
 * COMMAND_CALL with its value below COMMAND_CALL_SHIFT.
 */
#define COMMAND_VENDOR 0xd177
#define COMMAND_DEVICE 0x0001
/* Where the page is, unless the guest moves it. */
#define COMMAND_BAR        0xfe000000u
#define COMMAND_BAR_BYTES  4096u
#define COMMAND_BOX        0 /* of 4 bytes each */
#define COMMAND_CALL       4
#define COMMAND_CALL_SHIFT 24

#define COMMAND_PAGE     4096u
#define COMMAND_PAGES    16u
#define COMMAND_DATA_MAX (COMMAND_PAGES * COMMAND_PAGE)

enum command_call {
    /* By a box. */
    COMMAND_STDOUT = 1, /* len bytes of output; COMMAND_OUTPUT_END becomes len where nobody takes
                           it any more */
    COMMAND_STDERR,
    COMMAND_STDIN, /* room for len bytes of input; how many there are becomes len, or
                      COMMAND_INPUT_END */
    /* Without. */
    COMMAND_BEGINS, /* the init runs */
    COMMAND_EXITED, /* value: the command's status; the machine is to end */
    COMMAND_FAILED, /* value: one of enum command_failure; the machine is to end */
};
/* There is no input yet, len 0: then a byte comes on the console's line as soon as there is some.
 */
#define COMMAND_INPUT_END  UINT32_MAX
#define COMMAND_OUTPUT_END UINT32_MAX

struct command_box {
    uint32_t call, len;
    uint32_t frame[COMMAND_PAGES]; /* of the data */
};

enum command_failure {
    COMMAND_NO_DISK = 1, /* the kernel shows no virtio disk */
    COMMAND_NO_MOUNT,    /* it cannot mount the disk: no ext4 */
    COMMAND_NO_PAGES,    /* it does not tell where pages are: no /proc/self/pagemap */
    COMMAND_NO_START,    /* something else on the way to the command; the console has it */
};

/* Where the command is looked for. */
#define COMMAND_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* The root's disk, by its serial. */
#define COMMAND_DISK_SERIAL "ditto-root"
/* Of the initial ram disk: modules in the order in which they are loaded, and what to run. */
#define COMMAND_MODULES_FILE "/ditto/modules"
#define COMMAND_FILE         "/ditto/command"

#endif
