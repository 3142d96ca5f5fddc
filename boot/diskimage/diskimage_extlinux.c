#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "boot/diskimage/diskimage_loader.h"

static bool is_word(struct text_span word, const char *keyword)
{
    return word.len == strlen(keyword) && strncasecmp(word.at, keyword, word.len) == 0;
}

static bool same_text(struct text_span a, struct text_span b)
{
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

/* Initrds are separated by commas here. */
static bool add_initrds(struct loader_entry *entry, struct text_span list)
{
    while (list.len > 0) {
        const char *comma = memchr(list.at, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.at) : list.len;
        size_t used = len + (comma ? 1 : 0);

        if (len > 0 && !loader_add_initrd(entry, (struct text_span){list.at, len}))
            return false;
        list.at += used;
        list.len -= used;
    }
    return true;
}

static bool add_arguments(struct loader_entry *entry, struct text_span rest)
{
    static const char initrd[] = "initrd=";
    struct text_span word;

    while (loader_next_word(&rest, &word)) {
        /* syslinux takes this one itself, and hands it on all the same. */
        if (word.len > strlen(initrd) && memcmp(word.at, initrd, strlen(initrd)) == 0 &&
            entry->initrd_count == 0 &&
            !add_initrds(entry,
                         (struct text_span){word.at + strlen(initrd), word.len - strlen(initrd)}))
            return false;
        if (!loader_add_argument(entry, word))
            return false;
    }
    return true;
}

/* What the lines that were read ask for. */
struct menu {
    struct text_span wanted; /* the label DEFAULT names */
    struct text_span label;  /* the one being read */
    struct loader_entry current;
    struct loader_entry chosen;
    int chosen_rank; /* 0 nothing yet, 1 the first, 2 MENU DEFAULT, 3 DEFAULT */
    int current_rank;
    bool bad;
};

static void end_label(struct menu *m)
{
    int rank = m->current_rank;

    if (m->wanted.len > 0 && same_text(m->wanted, m->label))
        rank = 3;
    if (m->label.len > 0 && m->current.kernel[0] && !m->bad && rank > m->chosen_rank) {
        m->chosen = m->current;
        m->chosen_rank = rank;
    }
    memset(&m->current, 0, sizeof(m->current));
    m->current_rank = 1;
    m->bad = false;
}

static void read_line(struct menu *m, struct text_span rest)
{
    struct text_span key, word;

    if (!loader_next_word(&rest, &key))
        return;
    if (is_word(key, "append")) {
        m->current.command_line[0] = 0;
        m->bad |= !add_arguments(&m->current, rest);
        return;
    }

    struct text_span all = rest;

    if (!loader_next_word(&rest, &word))
        return;
    if (is_word(key, "label")) {
        end_label(m);
        m->label = word;
    } else if (is_word(key, "linux") || is_word(key, "kernel")) {
        m->bad |= !loader_set(m->current.kernel, LOADER_PATH_MAX, word);
    } else if (is_word(key, "initrd")) {
        m->current.initrd_count = 0;
        while (loader_next_word(&all, &word))
            m->bad |= !add_initrds(&m->current, word);
    } else if (is_word(key, "menu") && is_word(word, "default")) {
        m->current_rank = 2;
    }
}

bool extlinux_parse(const char *text, size_t len, struct loader_entry *out)
{
    struct menu *m = calloc(1, sizeof(*m));
    struct text_span rest = {text, len}, line, key;

    if (!m)
        return false;
    while (loader_next_line(&rest, &line))
        if (loader_next_word(&line, &key) && is_word(key, "default"))
            loader_next_word(&line, &m->wanted);
    rest = (struct text_span){text, len};
    while (loader_next_line(&rest, &line))
        read_line(m, line);
    end_label(m);

    bool found = m->chosen_rank > 0;

    if (found)
        *out = m->chosen;
    free(m);
    return found;
}

bool bls_parse(const char *text, size_t len, struct loader_entry *out,
               char version[LOADER_PATH_MAX])
{
    struct text_span rest = {text, len}, line, key, word;
    bool good = true;

    memset(out, 0, sizeof(*out));
    version[0] = 0;
    while (good && loader_next_line(&rest, &line)) {
        if (!loader_next_word(&line, &key) || *key.at == '#')
            continue;
        if (is_word(key, "options")) {
            while (good && loader_next_word(&line, &word))
                if (!memchr(word.at, '$', word.len))
                    good &= loader_add_argument(out, word);
        } else if (is_word(key, "linux") && loader_next_word(&line, &word)) {
            good &= loader_set(out->kernel, LOADER_PATH_MAX, word);
        } else if (is_word(key, "version") && loader_next_word(&line, &word)) {
            good &= loader_set(version, LOADER_PATH_MAX, word);
        } else if (is_word(key, "initrd")) {
            /* GRUB takes several on one line; behind a variable there is nothing to find. */
            while (loader_next_word(&line, &word))
                if (*word.at != '$')
                    good &= loader_add_initrd(out, word);
        }
    }
    return good && out->kernel[0];
}

bool loader_conf_default(const char *text, size_t len, char pattern[LOADER_PATH_MAX])
{
    struct text_span rest = {text, len}, line, key, word;
    bool found = false;

    pattern[0] = 0;
    while (loader_next_line(&rest, &line))
        if (loader_next_word(&line, &key) && is_word(key, "default") &&
            loader_next_word(&line, &word))
            found = *word.at != '@' && loader_set(pattern, LOADER_PATH_MAX, word);
    if (!found)
        pattern[0] = 0;
    return found;
}
