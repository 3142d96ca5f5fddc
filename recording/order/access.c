#include "recording/order/access.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define ACCESS_STORE 8u
_Static_assert(MAX_VCPUS <= ACCESS_STORE, "a vCPU's number fits below the mark of a store");

void access_encode(struct bytes *out, struct access_codec *codec, const struct access *a)
{
    assert(a->vcpu < MAX_VCPUS && a->point >= codec->point[a->vcpu]);
    bytes_put_u8(out, (uint8_t)(a->vcpu | (a->store ? ACCESS_STORE : 0)));
    bytes_put_svarint(out, (int64_t)(a->object - codec->object[a->vcpu]));
    bytes_put_varint(out, a->point - codec->point[a->vcpu]);
    codec->object[a->vcpu] = a->object;
    codec->point[a->vcpu] = a->point;
}

bool access_decode(struct cursor *in, struct access_codec *codec, struct access *a)
{
    const uint8_t who = cursor_u8(in);
    const uint64_t object = (uint64_t)cursor_svarint(in), point = cursor_varint(in);

    *a = (struct access){.vcpu = who & (ACCESS_STORE - 1), .store = (who & ACCESS_STORE) != 0};
    if (in->bad || who >= 2 * ACCESS_STORE || a->vcpu >= MAX_VCPUS ||
        point > UINT64_MAX - codec->point[a->vcpu])
        return false;
    a->object = codec->object[a->vcpu] += object;
    a->point = codec->point[a->vcpu] += point;
    return true;
}

int access_list_add(struct access_list *list, const struct access *a)
{
    assert(a->vcpu < list->vcpus && list->vcpus <= MAX_VCPUS);
    if (list->count == ACCESSES_MAX)
        return -1;
    if (list->count == list->capacity) {
        list->capacity = list->capacity ? 2 * list->capacity : 1024;
        list->at = realloc(list->at, list->capacity * sizeof *list->at);
        if (!list->at) {
            fprintf(stderr, "dittovm: out of memory\n");
            abort();
        }
    }
    list->at[list->count++] = *a;
    return 0;
}

void access_list_free(struct access_list *list)
{
    free(list->at);
    *list = (struct access_list){0};
}
