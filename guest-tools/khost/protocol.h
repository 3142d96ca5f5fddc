#ifndef KHOST_PROTOCOL_H
#define KHOST_PROTOCOL_H

/*
 * What dittovm outside (host/emulated*.c) and the agent (PID 1 of the emulated host) say to each
 * other over four virtio-serial ports, /dev/vport0p1 to 4: control, stdin, stdout, stderr. The last
 * three carry plain bytes. A fifth one, KHOST_GDB_PORT_NAME, is there for a command that waits for
 * gdb, and behind it there are KHOST_NETS, KHOST_NET_PORT_NAME, for the wires of NICs, and
 * KHOST_CONTROL_PORT_NAME for what a machine is told while it runs: the agent lets the command open
 * them and has no other part in them. Both sides are built from one tree, so
 * there is a version only to turn a stale khost-initrd.cpio into a clear message.
 *
 * Control port, one line each, decimal numbers:
 *
 *   agent -> outside
 *     R <version>                the agent is up and waits for the request
 *     P                          answer to P
 *     X <status> <out> <err>     the command ended (exit status, or 128 + signal); so many bytes
 *                                were sent to the stdout and stderr ports in all
 *     F <text>                   the command could not be started, and why
 *   outside -> agent
 *     <request>                  once, after R; see below
 *     <u32 0>                    instead: say R again, of a machine that has been saved since
 *     P                          are you alive?
 *     S <signal>                 send it to the command's process group
 *     W <rows> <columns>         new size of the terminal
 *     E <count>                  end of stdin after so many bytes in all
 *     C <1|2>                    nobody reads stdout (stderr) any more: close it
 *
 * Because the ports are independent queues, ends of streams are told by byte counts.
 *
 * The request is a u32 length and then, little-endian (base/bytes.h):
 *
 *   u8   flags          KHOST_TTY_*, KHOST_GDB, KHOST_NET, KHOST_CONTROL
 *   u16  rows, columns  of the terminal (0: unknown)
 *   u32  uid, gid, umask
 *   u64  seconds, u32 nanoseconds: the time of day
 *   32 bytes            seed of the random number generator
 *   list of u32         supplementary groups (varint count, then the numbers)
 *   string              working directory
 *   list of strings     directories to share read-write, tags KHOST_RW_TAG "0", "1", ...
 *   list of strings     environment
 *   list of strings     argv, at least one; argv[0] is an absolute path
 *
 * A string is a varint length without its NUL, the bytes, and the NUL; a list of strings is a
 * varint count and the strings.
 */
#define KHOST_PROTOCOL_VERSION 4u

#define KHOST_TTY_STDIO  1u  /* stdin and stdout are a terminal: give the command a pty */
#define KHOST_TTY_STDERR 2u  /* and stderr goes there too */
#define KHOST_GDB        4u  /* there is a fifth port, which the command may open */
#define KHOST_NET        8u  /* ... and ports for NICs */
#define KHOST_CONTROL    16u /* ... and the one for control */

#define KHOST_SEED_BYTES  32u
#define KHOST_REQUEST_MAX (64u << 20)
#define KHOST_RW_DIRS_MAX 24u /* each takes a PCI slot of the emulated host */

#define KHOST_ROOT_TAG "root"
#define KHOST_RW_TAG   "rw"

#define KHOST_GDB_PORT_NAME     "ditto.gdb"
#define KHOST_NET_PORT_NAME     "ditto.net%u"
#define KHOST_CONTROL_PORT_NAME "ditto.control"

enum {
    KHOST_PORT_CONTROL = 1,
    KHOST_PORT_STDIN,
    KHOST_PORT_STDOUT,
    KHOST_PORT_STDERR,
    KHOST_PORT_GDB,
    KHOST_PORT_NET, /* the first of KHOST_NETS */
};
#define KHOST_NETS         4u
#define KHOST_PORT_MACHINE (KHOST_PORT_NET + KHOST_NETS) /* the one of control */

#endif
