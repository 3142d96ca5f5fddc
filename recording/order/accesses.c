#include "recording/order/accesses.h"

#include "recording/stream_reader.h"
#include "recording/streams.h"

/* The next one: 1; 0 at the end of the stream; -1 with *e. */
static int read_access(struct stream_reader *in, struct access_codec *codec, unsigned vcpus,
                       struct access *a, struct err *e)
{
    size_t got;
    const uint8_t *data = stream_peek(in, ACCESS_MAX_BYTES, &got);

    if (stream_bad(in))
        return stream_error(in, e);
    if (!got)
        return 0;
    struct cursor c = cursor_of(data, got);
    if (!access_decode(&c, codec, a) || a->vcpu >= vcpus)
        return err_set(e, STATUS_BAD_RECORDING,
                       "the recording is damaged: an access to shared memory makes no sense");
    stream_skip(in, got - cursor_left(&c));
    return 1;
}

int accesses_load(struct access_list *list, const struct recording *r, unsigned vcpus,
                  struct err *e)
{
    struct stream_reader *in = stream_open(r, STREAM_ACCESSES, e);
    struct access_codec codec = {0};
    struct access a;
    int rc = -1;

    *list = (struct access_list){.vcpus = vcpus};
    while (in && (rc = read_access(in, &codec, vcpus, &a, e)) > 0) {
        if (access_list_add(list, &a) < 0) {
            rc = err_set(e, STATUS_ERROR, "%s: only recordings of up to %u accesses can be read",
                         recording_path(r), ACCESSES_MAX);
            break;
        }
    }
    if (in)
        stream_close(in);
    if (rc < 0)
        access_list_free(list);
    return rc;
}
