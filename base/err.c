#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

int err_set(struct err *e, enum exit_status status, const char *format, ...)
{
    va_list args;

    e->status = status;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    text_clean(e->text);
    return -1;
}
