#ifndef BOOT_DISKIMAGE_DISKIMAGE_LOADER_H
#define BOOT_DISKIMAGE_DISKIMAGE_LOADER_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Boot loader configurations: hostile text of `len` bytes, not NUL-terminated, in; what would be
 * booted without a key pressed, out. Paths are as the configuration has them.
 */
#define LOADER_PATH_MAX    512u
#define LOADER_LINE_MAX    4096u
#define LOADER_INITRDS_MAX 4u

struct loader_entry {
    char kernel[LOADER_PATH_MAX];
    char initrds[LOADER_INITRDS_MAX][LOADER_PATH_MAX];
    unsigned initrd_count;
    char command_line[LOADER_LINE_MAX];
};

/* A word of text in place. */
struct text_span {
    const char *at;
    size_t len;
};

/*
 * GRUB 2's grub.cfg: the entry `set default=` names (number, title or id; a>b for submenus), or
 * else the first. Words with variables are left out of the command line, conditions are not
 * evaluated: the first `linux` and `initrd` of the entry count. False when there is no `linux` at
 * all.
 */
bool grub_parse(const char *text, size_t len, struct loader_entry *out);

/* extlinux.conf or syslinux.cfg: the DEFAULT label, the one marked MENU DEFAULT, or the first. */
bool extlinux_parse(const char *text, size_t len, struct loader_entry *out);

/*
 * One entry of the UAPI Boot Loader Specification, type 1. `version` gets its version, or "".
 */
bool bls_parse(const char *text, size_t len, struct loader_entry *out,
               char version[LOADER_PATH_MAX]);

/* systemd-boot's loader.conf: the pattern of `default`, or false. @saved and the like, which the
 * firmware keeps, are none. */
bool loader_conf_default(const char *text, size_t len, char pattern[LOADER_PATH_MAX]);
/* Whether a name is as a pattern with * and ? says, capitals or not. */
bool loader_matches(const char *pattern, const char *name);

/* Building an entry; false, and the entry is of no use, when the text is too long. */
bool loader_set(char *to, size_t size, struct text_span text);
bool loader_add_initrd(struct loader_entry *entry, struct text_span path);
/* Add a word to the command line, in quotes when it holds white space. */
bool loader_add_argument(struct loader_entry *entry, struct text_span word);

/* The next line of a text without its newline; false at the end. */
bool loader_next_line(struct text_span *rest, struct text_span *line);
/* The next word of a line, at spaces and tabs; false at the end. */
bool loader_next_word(struct text_span *rest, struct text_span *word);

/*
 * Order two version strings as dpkg (Debian policy, 5.6.12) orders upstream versions: digits by
 * value, letters before other characters, '~' before everything. <0, 0 or >0.
 */
int version_compare(const char *a, const char *b);

#endif
