#include "recording/doubts.h"

#include "base/text.h"
#include "recording/stream_reader.h"
#include "recording/streams.h"

int doubts_read(const struct recording *r, void (*each)(void *opaque, const struct doubt *doubt),
                void *opaque, struct err *e)
{
    struct stream_reader *in = stream_open(r, STREAM_DOUBTS, e);
    int rc = in ? 0 : -1;

    for (unsigned count = 0; rc == 0 && stream_left(in); count++) {
        struct doubt doubt = {.ordinal = stream_varint(in)};
        const uint64_t len = stream_varint(in);
        if (len > DOUBT_MAX || count == DOUBTS_MAX) {
            rc = err_set(e, STATUS_BAD_RECORDING, "%s is damaged: a doubt is too long, or too many",
                         recording_path(r));
        } else if (stream_read(in, doubt.text, len) < 0) {
            rc = stream_error(in, e);
        } else {
            text_clean(doubt.text);
            each(opaque, &doubt);
        }
    }
    if (in)
        stream_close(in);
    return rc;
}
