/*
 * Enters the kernel of the emulated Intel host by PVH (Documentation/x86/boot/pvh.rst; Xen's
 * docs/misc/pvh.pandoc): loads the segments of the ELF file that lies in memory, and says where its
 * ram disk, its command line and the machine's memory are. 32-bit code without paging; entered by
 * boot.S. What it reads comes from the one who starts the host, and is trusted.
 */
#include <stddef.h>
#include <stdint.h>

#include "layout.h"

struct elf {
    uint8_t ident[16];
    uint16_t type, machine;
    uint32_t version;
    uint64_t entry, segments_at, sections_at;
    uint32_t flags;
    uint16_t size, segment_size, segments;
} __attribute__((packed));

struct segment {
    uint32_t type, flags;
    uint64_t offset, virtual, physical, file_size, memory_size, align;
};
enum { SEGMENT_LOAD = 1, SEGMENT_NOTE = 4, NOTE_PVH_ENTRY = 18 };

struct note {
    uint32_t name_size, size, type;
};

struct start_info {
    uint32_t magic, version, flags, modules;
    uint64_t module_list, command_line, rsdp, memory_map;
    uint32_t memory_map_entries, reserved;
};
struct module {
    uint64_t address, size, command_line, reserved;
};
struct memory {
    uint64_t address, size;
    uint32_t type, reserved;
};
#define START_INFO_MAGIC   0x336ec578
#define START_INFO_VERSION 1

static struct start_info info;
static struct module ramdisk;

static void copy(void *to, const void *from, uint64_t size)
{
    uint32_t n = (uint32_t)size;

    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

static void zero(void *to, uint64_t size)
{
    uint32_t n = (uint32_t)size;

    __asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(0) : "memory");
}

static uint32_t round_up_4(uint32_t n)
{
    return (n + 3) & ~3u;
}

/* The physical address at which Xen's note says that the kernel is entered; 0 when it is not among these. */
static uint32_t pvh_entry(const uint8_t *at, uint64_t size)
{
    const uint8_t *end = at + size;

    while (at < end) {
        const struct note *note = (const struct note *)at;
        const uint8_t *name = at + sizeof *note, *value = name + round_up_4(note->name_size);
        if (note->type == NOTE_PVH_ENTRY && name[0] == 'X')
            return *(const uint32_t *)value;
        at = value + round_up_4(note->size);
    }
    return 0;
}

static uint32_t load_kernel(void)
{
    const uint8_t *file = (const uint8_t *)KERNEL;
    const struct elf *elf = (const struct elf *)file;
    uint32_t entry = 0;

    for (unsigned i = 0; i < elf->segments; i++) {
        const struct segment *s =
            (const struct segment *)(file + (uint32_t)elf->segments_at + i * elf->segment_size);
        const uint8_t *content = file + (uint32_t)s->offset;
        uint8_t *to = (uint8_t *)(uint32_t)s->physical;
        if (s->type == SEGMENT_LOAD) {
            copy(to, content, s->file_size);
            zero(to + (uint32_t)s->file_size, s->memory_size - s->file_size);
        } else if (s->type == SEGMENT_NOTE && entry == 0) {
            entry = pvh_entry(content, s->file_size);
        }
    }
    return entry;
}

static uint32_t memory_map(void)
{
    const struct memory *map = (const struct memory *)MAP;
    uint32_t n = 0;

    while (map[n].reserved)
        n++;
    return n;
}

/* The request's first word is the ram disk's size, the rest the command line. */
static const char *ramdisk_size(const char *text, uint32_t *size)
{
    for (*size = 0; *text >= '0' && *text <= '9'; text++)
        *size = *size * 10 + (uint32_t)(*text - '0');
    return text + 1;
}

_Noreturn void start(void) __attribute__((section(".text.start")));
_Noreturn void start(void)
{
    uint32_t size;
    const char *command_line = ramdisk_size((const char *)REQUEST, &size);

    ramdisk = (struct module){.address = RAMDISK, .size = size};
    info = (struct start_info){.magic = START_INFO_MAGIC,
                               .version = START_INFO_VERSION,
                               .modules = 1,
                               .module_list = (uint32_t)&ramdisk,
                               .command_line = (uint32_t)command_line,
                               .memory_map = MAP,
                               .memory_map_entries = memory_map()};
    __asm__ volatile("jmp *%0" : : "r"(load_kernel()), "b"(&info));
    __builtin_unreachable();
}
