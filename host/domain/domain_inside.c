#include "host/domain/domain_inside.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define NOTES_MAX 64u
#define NOTE_MAX  200u

static bool has_note(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!strcmp(json_string_value(json_array_get(list, i)), text))
            return true;
    return false;
}

void domain_note(json_t *list, const char *format, ...)
{
    char text[NOTE_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    text_clean(text); /* also a character that was cut */
    if (json_array_size(list) == NOTES_MAX)
        strcpy(text, "and more");
    if (json_array_size(list) <= NOTES_MAX && !has_note(list, text))
        json_array_append_new(list, json_string(text));
}

void domain_option(struct domain *d, const char *option, const char *value)
{
    json_array_append_new(d->options, json_string(option));
    json_array_append_new(d->options, json_string(value));
}

const char *domain_other_child(const xml_node *of, const char *const *known, const xml_node **at)
{
    for (*at = *at ? xml_next(*at, NULL) : xml_child(of, NULL); *at; *at = xml_next(*at, NULL)) {
        unsigned i = 0;
        while (known[i] && !xml_is(*at, known[i]))
            i++;
        if (!known[i])
            return xml_name(*at);
    }
    return NULL;
}
