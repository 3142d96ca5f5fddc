#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "boot/diskimage/diskimage_loader.h"

/*
 * GRUB's script language (GRUB manual, "Shell-like scripting"), as far as it is needed to find menu
 * entries: quoting, comments, blocks in braces. Nothing is executed.
 */
#define WORDS_MAX   256u
#define TEXT_MAX    8192u
#define ENTRIES_MAX 200u
#define DEPTH_MAX   32u
#define NAME_MAX    256u
#define NO_ENTRY    UINT32_MAX

enum token { WORD, LINE_END, OPEN, CLOSE, TEXT_END };

struct word {
    struct text_span text;
    bool has_variable; /* whose value is not known and not in the text */
};

struct command {
    struct word words[WORDS_MAX];
    size_t count;
    char text[TEXT_MAX]; /* what the words point into */
    size_t used;
    bool overflow;
};

/* A menuentry or submenu; entry 0 stands for the script itself. */
struct menu_entry {
    unsigned parent, index; /* index among the parent's children */
    unsigned children;
    char title[NAME_MAX], id[NAME_MAX];
    struct loader_entry loads;
    bool bad;
};

struct script {
    const char *at, *end;
    struct command command;
    struct menu_entry *entries;
    unsigned count;
    unsigned stack[DEPTH_MAX]; /* the entry that each open brace belongs to */
    unsigned depth;
    char default_entry[NAME_MAX];
};

static void put_char(struct command *c, struct word *w, char ch)
{
    if (c->used >= TEXT_MAX || ch == 0) {
        c->overflow = true;
        return;
    }
    c->text[c->used++] = ch;
    w->text.len++;
}

/* Skip $name, ${name}, $1 or $?; a lone $ is itself. at is behind the '$'. */
static void skip_variable(struct script *s, struct word *w)
{
    const char *start = s->at;

    if (s->at < s->end && *s->at == '{') {
        while (s->at < s->end && *s->at != '}' && *s->at != '\n')
            s->at++;
        if (s->at < s->end)
            s->at++;
    } else if (s->at < s->end && strchr("?*#@", *s->at) && *s->at) {
        s->at++;
    } else {
        while (s->at < s->end && (isalnum((unsigned char)*s->at) || *s->at == '_'))
            s->at++;
    }
    if (s->at == start)
        put_char(&s->command, w, '$');
    else
        w->has_variable = true;
}

static void read_quoted(struct script *s, struct word *w, char quote)
{
    while (s->at < s->end && *s->at != quote) {
        char ch = *s->at++;

        if (quote == '"' && ch == '$') {
            skip_variable(s, w);
            continue;
        }
        if (quote == '"' && ch == '\\' && s->at < s->end && strchr("$\"\\", *s->at) && *s->at)
            ch = *s->at++;
        put_char(&s->command, w, ch);
    }
    if (s->at < s->end)
        s->at++;
}

static bool ends_word(char ch)
{
    return ch == ' ' || ch == '\t' || ch == '\n' || ch == '\r' || ch == ';';
}

static void read_word(struct script *s, struct word *w)
{
    while (s->at < s->end && !ends_word(*s->at)) {
        char ch = *s->at++;

        if (ch == '\'' || ch == '"') {
            read_quoted(s, w, ch);
        } else if (ch == '$') {
            skip_variable(s, w);
        } else if (ch == '\\' && s->at < s->end) {
            ch = *s->at++;
            if (ch != '\n')
                put_char(&s->command, w, ch);
        } else {
            put_char(&s->command, w, ch);
        }
    }
}

static enum token next_token(struct script *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
    if (s->at == s->end)
        return TEXT_END;
    if (*s->at == '#')
        while (s->at < s->end && *s->at != '\n')
            s->at++;
    if (s->at == s->end)
        return TEXT_END;
    if (*s->at == '\n' || *s->at == ';') {
        s->at++;
        return LINE_END;
    }
    if ((*s->at == '{' || *s->at == '}') && (s->at + 1 == s->end || ends_word(s->at[1])))
        return *s->at++ == '{' ? OPEN : CLOSE;

    struct command *c = &s->command;
    struct word w = {.text.at = c->text + c->used};

    read_word(s, &w);
    if (c->count < WORDS_MAX)
        c->words[c->count++] = w;
    else
        c->overflow = true;
    return WORD;
}

static bool is(const struct word *w, const char *text)
{
    return !w->has_variable && w->text.len == strlen(text) &&
           memcmp(w->text.at, text, w->text.len) == 0;
}

static bool is_one_of(const struct word *w, const char *const names[], size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (is(w, names[i]))
            return true;
    return false;
}

/* Drop the device in front of a path: (hd0,gpt1)/x, or ($root)/x, whose variable is gone. */
static struct text_span strip_device(struct text_span path)
{
    const char *close = path.len > 0 && *path.at == '(' ? memchr(path.at, ')', path.len) : NULL;

    if (!close)
        return path;

    size_t used = (size_t)(close + 1 - path.at);

    return (struct text_span){path.at + used, path.len - used};
}

static void read_linux(struct menu_entry *m, const struct command *c, size_t first)
{
    if (m->loads.kernel[0] || first + 1 >= c->count)
        return;
    m->bad |= c->overflow ||
              !loader_set(m->loads.kernel, LOADER_PATH_MAX, strip_device(c->words[first + 1].text));
    for (size_t i = first + 2; i < c->count; i++)
        if (!c->words[i].has_variable)
            m->bad |= !loader_add_argument(&m->loads, c->words[i].text);
}

static void read_initrd(struct menu_entry *m, const struct command *c, size_t first)
{
    if (m->loads.initrd_count > 0)
        return;
    for (size_t i = first + 1; i < c->count; i++) {
        struct text_span path = strip_device(c->words[i].text);

        if (path.len > 0)
            m->bad |= c->overflow || !loader_add_initrd(&m->loads, path);
    }
}

static void read_set(struct script *s, const struct word *w)
{
    static const char name[] = "default=";
    struct text_span value = w->text;

    if (w->has_variable || value.len <= strlen(name) || memcmp(value.at, name, strlen(name)) != 0)
        return;
    value.at += strlen(name);
    value.len -= strlen(name);
    loader_set(s->default_entry, sizeof(s->default_entry), value);
}

/* A command is complete: take what is of interest from it. */
static void end_command(struct script *s)
{
    static const char *const prefixes[] = {"then", "else", "do", "!"};
    static const char *const linux_names[] = {"linux", "linux16", "linuxefi"};
    static const char *const initrd_names[] = {"initrd", "initrd16", "initrdefi"};
    struct command *c = &s->command;
    unsigned entry = s->depth > 0 ? s->stack[s->depth - 1] : 0;
    size_t first = 0;

    while (first < c->count && is_one_of(&c->words[first], prefixes, 4))
        first++;
    if (first < c->count && entry != NO_ENTRY) {
        const struct word *name = &c->words[first];

        if (is_one_of(name, linux_names, 3))
            read_linux(&s->entries[entry], c, first);
        else if (is_one_of(name, initrd_names, 3))
            read_initrd(&s->entries[entry], c, first);
        else if (entry == 0 && is(name, "set") && first + 1 < c->count)
            read_set(s, &c->words[first + 1]);
    }
    c->count = c->used = 0;
    c->overflow = false;
}

/* Make the menu entry that the command in front of a brace declares, or NO_ENTRY. */
static unsigned open_entry(struct script *s, unsigned parent)
{
    static const char *const names[] = {"menuentry", "submenu"};
    const struct command *c = &s->command;

    if (parent == NO_ENTRY || c->count < 2 || !is_one_of(&c->words[0], names, 2) ||
        s->count >= ENTRIES_MAX)
        return NO_ENTRY;

    struct menu_entry *m = &s->entries[s->count];

    m->parent = parent;
    m->index = s->entries[parent].children++;
    loader_set(m->title, sizeof(m->title), c->words[1].text);
    for (size_t i = 2; i + 1 < c->count; i++) {
        /* $menuentry_id_option is how grub-mkconfig spells --id. */
        bool option = c->words[i].has_variable && c->words[i].text.len == 0;

        if (option || is(&c->words[i], "--id"))
            loader_set(m->id, sizeof(m->id), c->words[i + 1].text);
    }
    return s->count++;
}

static void read_script(struct script *s)
{
    for (;;) {
        enum token token = next_token(s);

        if (token == WORD)
            continue;
        if (token == OPEN) {
            unsigned parent = s->depth > 0 ? s->stack[s->depth - 1] : 0;

            if (s->depth == DEPTH_MAX)
                return;
            s->stack[s->depth++] = open_entry(s, parent);
        }
        end_command(s);
        if (token == CLOSE && s->depth > 0)
            s->depth--;
        if (token == TEXT_END)
            return;
    }
}

static bool matches(const struct menu_entry *m, struct text_span name)
{
    char text[NAME_MAX], *end;

    if (!loader_set(text, sizeof(text), name))
        return false;
    if (strcmp(text, m->title) == 0 || strcmp(text, m->id) == 0)
        return true;

    unsigned long number = strtoul(text, &end, 10);

    return isdigit((unsigned char)text[0]) && *end == 0 && number == m->index;
}

static unsigned child_named(const struct script *s, unsigned parent, struct text_span name)
{
    for (unsigned i = 1; i < s->count; i++)
        if (s->entries[i].parent == parent && matches(&s->entries[i], name))
            return i;
    return 0;
}

static bool usable(const struct menu_entry *m)
{
    return m->loads.kernel[0] && !m->bad;
}

/* The entry booted by default; 0 when the script's default names none. */
static unsigned default_entry(const struct script *s)
{
    struct text_span rest = {s->default_entry, strlen(s->default_entry)};
    unsigned entry = 0;

    if (rest.len == 0)
        rest = (struct text_span){"0", 1};
    while (rest.len > 0) {
        const char *next = memchr(rest.at, '>', rest.len);
        struct text_span name = {rest.at, next ? (size_t)(next - rest.at) : rest.len};
        size_t used = name.len + (next ? 1 : 0);
        unsigned child = child_named(s, entry, name);

        if (child == 0)
            return 0;
        entry = child;
        rest.at += used;
        rest.len -= used;
    }
    /* A submenu boots its first entry. */
    while (!usable(&s->entries[entry]) && s->entries[entry].children > 0)
        entry = child_named(s, entry, (struct text_span){"0", 1});
    return entry;
}

bool grub_parse(const char *text, size_t len, struct loader_entry *out)
{
    struct script *s = calloc(1, sizeof(*s));
    bool found = false;

    if (!s)
        return false;
    s->entries = calloc(ENTRIES_MAX, sizeof(*s->entries));
    if (s->entries) {
        s->at = text;
        s->end = text + len;
        s->count = 1;
        read_script(s);

        unsigned chosen = default_entry(s);

        /* An entry that chain-loads something else is no help: then the first that is. */
        for (unsigned i = 0; i < s->count && !usable(&s->entries[chosen]); i++)
            chosen = i;
        found = usable(&s->entries[chosen]);
        if (found)
            *out = s->entries[chosen].loads;
    }
    free(s->entries);
    free(s);
    return found;
}
