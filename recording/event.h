#ifndef RECORDING_EVENT_H
#define RECORDING_EVENT_H

#include <linux/kvm.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/x86.h"
#include "mmu/memory.h"
#include "recording/exits.h"

/*
 * What a recording says, and how it is written as bytes, in one of these streams (the container is
 * recording/format.h):
 *
 *   stream        one record per            contents
 *   SYNCS         sync point                what exit it was, and every register that changed
 *   INPUTS        input                     the bytes the guest read (PIO, MMIO, MSR)
 *   TSC           emulated RDTSC            svarint difference to the last one
 *   EVENTS        event between two exits   ordinal of the sync point it follows, kind, payload
 *
 * A *sync point* is an exit that the guest causes by itself or a forced point that landed; its
 * ordinal counts from 1. An event with ordinal n happens behind sync point n and before the guest
 * runs on; n = 0 is before the first instruction. Of several vCPUs one runs at a time, vCPU 0
 * first, and the others stand at sync points of theirs, so that there is one count of them for the
 * machine.
 *
 * Of vCPUs that run at the same time (--smp crew) the one that runs "now" is the one whose turn it
 * is to be served: at its sync point, its events follow, and then it runs on, to its next exit, at
 * which it waits for its next turn; unless an EVENT_REST says that it rests there. EVENT_SCHEDULE
 * says whose turn it is. Their runs may overlap, but what one does shows to another only if that
 * one's run began later, so that a replay may play the runs one after another, each as a whole, in
 * the order of their beginnings. Where a run ends at a forced point has to be known when it begins,
 * so these are not among the EVENTS but in streams by vCPU:
 *
 *   AHEAD         forced point              EVENT_FORCED, after so many sync points of this vCPU
 *                 rest                      EVENT_REST: no end of that run is recorded
 *
 * All decoders treat their input as hostile: they return false on anything malformed and never
 * read or produce more than the limits below.
 */

/* The first port of the UART that is the console; replay shows what goes out there. */
#define CONSOLE_PORT 0x3f8

/* ---- registers ---- */
#define REG_COUNT       18
#define REGISTER_RCX    2
#define REGISTER_RSI    4
#define REGISTER_RDI    5
#define REGISTER_RSP    6
#define REGISTER_RIP    16
#define REGISTER_RFLAGS 17
/* Order in struct kvm_regs: rax rbx rcx rdx rsi rdi rsp rbp r8..r15 rip rflags. */
extern const char *const reg_names[REG_COUNT];

/* ---- sync points ---- */
struct sync_point {
    enum exit_kind kind;
    uint8_t size;   /* of one access */
    uint8_t output; /* low byte of the running digest of everything the guest has put out */
    uint32_t count;
    uint64_t at; /* port, GPA or MSR */
    uint64_t regs[REG_COUNT];
};

/* `last` is the codec's memory: the previous sync point of the same vCPU, zeroed at the start. */
void sync_encode(struct bytes *out, struct sync_point *last, const struct sync_point *sync);
bool sync_decode(struct cursor *in, struct sync_point *last, struct sync_point *sync);
#define SYNC_MAX_BYTES 256

/* ---- forced points ---- */
#define LANDMARK_CODE   16
#define LANDMARK_PROBES 14
#define LANDMARK_PAGES  262144 /* 1 GiB */

/* A 64-bit word of guest memory that the code ahead of the forced point works on. */
struct memory_probe {
    uint64_t va, value;
};

/* An arbitrary instruction boundary, described well enough to find it again without a counter. */
struct landmark {
    uint8_t cpl;                 /* 0 or 3 */
    uint8_t code_len;            /* bytes of the instruction at the site */
    uint8_t code[LANDMARK_CODE]; /* they must be in memory when replay sets its breakpoint */
    uint64_t gpa;                /* of the site */
    uint64_t cr3, fpu;           /* page table root; digest of x87 and SSE state */
    uint64_t regs[REG_COUNT];
    struct kvm_segment cs, ss;
    unsigned probes;
    struct memory_probe probe[LANDMARK_PROBES];
    /* All pages that may have been written since the sync point before, in ascending order and
     * counted in guest_memory.host, and a digest of what is in them: where these and the registers
     * are equal, so is the whole machine. Not exact, and no pages: they are not known, or too many.
     * Of those that are page tables Accessed and Dirty bits do not count. The list is read with
     * landmark_next_page(); it points into the input, or to what vm->written has. So does
     * page_checks, a byte of each page's own digest: where passes differ in one page, that page
     * alone tells so. NULL: before format 17. */
    bool exact;
    unsigned pages;
    const uint8_t *page_list;
    size_t page_list_bytes;
    const uint8_t *page_checks;
    uint64_t pages_digest;
    /* Conditional branches retired since the sync point before, if the clock counted them. */
    bool counted;
    uint64_t branches;
    /* How often the vCPU has entered its kernel so far, and where the guest counts that
     * (vmm/points/entry_count.h), a multiple of 8. ENTRY_HERE: the point is where the last entry is
     * counted, and so there is no need for the digests of memory; ENTRY_NEAR: somewhere behind. */
    enum landmark_entry { ENTRY_UNKNOWN, ENTRY_NEAR, ENTRY_HERE } entry;
    uint64_t entries, entries_gpa;
};

/* A page of a landmark's list: as it is put behind `last`, which is 0 at first and becomes it, and
 * read, false at its end. */
struct landmark_page {
    uint32_t page;
    bool is_table;
};
void landmark_put_page(struct bytes *list, struct landmark_page *last,
                       const struct landmark_page *page);
bool landmark_next_page(struct cursor *list, struct landmark_page *page);
/* Set the bits of all pages of an exact landmark that memory has, one of each page of m->host. */
void landmark_mark_pages(const struct landmark *l, const struct guest_memory *m, uint64_t *bitmap);

/* What a landmark is compared by, in this order. */
enum fingerprint_part {
    FINGERPRINT_EQUAL,
    FINGERPRINT_REGISTERS,
    FINGERPRINT_MEMORY, /* probes */
    FINGERPRINT_FPU,
    FINGERPRINT_PAGES,
    FINGERPRINT_PARTS,
};

/* ---- events ---- */
enum event_kind {
    EVENT_INJECT = 1,    /* an external interrupt is taken */
    EVENT_WINDOW = 2,    /* start or stop waiting for EXIT_WINDOW */
    EVENT_DMA_WRITE = 3, /* a device, or dittovm itself, wrote guest memory */
    EVENT_DMA_READ = 4,  /* a device read guest memory: goes into the digest of outputs */
    EVENT_HOOK = 5,      /* from here on this guest address is the #GP hook */
    EVENT_FORCED = 6,    /* the next sync point is a forced one: land on it */
    EVENT_DIGEST = 7,    /* digest of memory and CPU state, to be compared */
    EVENT_END = 8,       /* the machine ended here */
    /* For who follows the devices; the guest does not notice. */
    EVENT_TIME = 9,      /* the device time of the access at this sync point, or else of a poll */
    EVENT_RECEIVED = 10, /* the console's UART took bytes from the line */
    /* Of machines with several vCPUs. */
    EVENT_SCHEDULE = 11, /* from here on this vCPU runs, until the next of these */
    EVENT_START = 12,    /* it starts at vector << 12, as after INIT and STARTUP */
    EVENT_NMI = 13,      /* it gets an NMI */
    EVENT_CR8 = 14,      /* its CR8 was changed by way of its local APIC */
    EVENT_REST = 15,     /* of vCPUs that run at the same time: it does not run on from here */
    EVENT_REGAIN = 16,   /* ... the page it has come to comes back as it was when it was lost */
    EVENT_TSD = 17,      /* CR4.TSD of the vCPU that runs is set again (vmm/kvm/cr4.h) */
    EVENT_FRAME =
        18, /* for who follows the devices: a NIC touches memory for a frame from here on */
    EVENT_DISK_DONE =
        19, /* for who follows the devices: a disk completes its oldest requests from here on */
    EVENT_MARK = 20, /* somebody gave this place a name; the guest does not notice */
    EVENT_BOOT = 21, /* the CPUs begin anew, in memory that was just written */
    EVENT_LAST = EVENT_BOOT,
};

enum end_reason {
    END_POWEROFF = 1,
    END_RESET = 2,
    END_TRIPLE_FAULT = 3,
    END_HALTED = 4,  /* HLT with interrupts off */
    END_STOPPED = 5, /* by the user */
    END_FAILED = 6,  /* KVM or the host refused to go on */
};
const char *end_reason_text(enum end_reason reason);

#define DMA_INLINE_MAX 511        /* up to here the bytes are in the event */
#define DMA_MAX        (64 << 10) /* one event; longer transfers are several */
#define DMA_MAX_CHUNKS (DMA_MAX / 4096)

struct dma_transfer {
    uint64_t gpa;
    uint32_t len;        /* 1..DMA_MAX */
    const uint8_t *data; /* writes of at most DMA_INLINE_MAX bytes: points into the input */
    uint64_t chunks[DMA_MAX_CHUNKS]; /* longer writes: a chunk for each 4096 bytes of data */
};

/* Reads of payload by a device, an output of the machine, are recorded from this length on. Before
 * version 24 so were those by which it follows its rings. */
#define DMA_READ_MIN 64

/* A frame of a NIC's. The bytes of one that is received, and of a header of FRAME_HEADER before it,
 * are those of the EVENT_DMA_WRITEs that follow; of one that is sent they lie in memory. */
#define FRAME_HEADER     12u
#define FRAME_PLACES_MAX 256u
struct frame {
    unsigned nic; /* less than MAX_NICS */
    bool is_sent;
    uint32_t len; /* 1..FRAME_MAX, without the header; 0, of one that is sent: it has to wait, or
                 where the guest makes no access: what waits is gone on with */
    uint64_t time_ns; /* device time */
    /* Where one that is sent lies, header included, one piece after another; read with
     * frame_next_place(). Points into the input. */
    unsigned places;
    const uint8_t *place_list;
    size_t place_list_bytes;
};
struct frame_place {
    uint64_t gpa;
    uint32_t len;
};
/* A piece as it is put behind `last`, which is 0 at first and becomes it, and read, false at the
 * end. */
void frame_put_place(struct bytes *list, struct frame_place *last, const struct frame_place *place);
bool frame_next_place(struct cursor *list, struct frame_place *place);

#define RECEIVED_MAX 16 /* as many as the UART's FIFO takes */

struct state_digest {
    uint64_t memory, cpu, outputs;
};

/* Go on with the digest of outputs: what went to port, GPA or MSR `at`. Recorder and replay do. */
uint64_t output_fold(uint64_t digest, uint64_t at, const void *data, size_t len);
/* Whether the guest puts something out by such an exit. */
static inline bool exit_is_output(enum exit_kind kind)
{
    return kind == EXIT_PIO_OUT || kind == EXIT_MMIO_WRITE || kind == EXIT_WRMSR;
}

#define DIGEST_TEXT 51
/* "memory-cpu-outputs" in hexadecimal. */
void digest_format(const struct state_digest *digest, char text[DIGEST_TEXT]);

struct gp_hook {
    uint64_t rip;     /* address of a HLT byte that the #GP gate points to; 0 = no hook */
    uint64_t handler; /* the guest's own #GP handler */
    uint64_t ud;      /* the guest's own #UD handler */
    uint64_t iretq;   /* address of an IRETQ instruction in the guest's kernel */
};

struct disk_done {
    unsigned disk;  /* less than MAX_DISKS */
    unsigned count; /* of requests, at least 1 */
};

struct mark {
    uint64_t time_ns;        /* device time */
    bool by_guest;           /* else by its user, from outside */
    uint8_t len;             /* 1..MARK_MAX (base/limits.h), of the text */
    char text[MARK_MAX + 1]; /* one harmless line (text_clean()) */
};

/* A guest's reboot, where its recording goes on with its next boot. What the next kernel's memory
 * has otherwise are the EVENT_DMA_WRITEs before; CPU 0 is the one that runs from here on. */
#define BOOTS_MAX      65536u      /* of one recording */
#define BOOT_STATE_MAX (64u << 10) /* bytes */
struct boot {
    uint64_t time_ns; /* device time */
    /* Of each CPU vcpu_state_encode(), vcpu_pending_encode() and x87_last_encode(); points into the
     * input. */
    const uint8_t *state;
    size_t state_len; /* 1..BOOT_STATE_MAX */
};

struct event {
    uint64_t ordinal;
    enum event_kind kind;
    union {
        uint8_t vector; /* INJECT, START */
        uint8_t cr8;
        unsigned vcpu; /* SCHEDULE: less than MAX_VCPUS */
        bool window;
        bool all; /* REGAIN: and so do others that were lost with it */
        struct dma_transfer dma;
        struct gp_hook hook;
        struct landmark landmark;
        struct frame frame;
        struct disk_done disk_done;
        struct mark mark;
        struct boot boot;
        struct state_digest digest;
        uint64_t time_ns;
        struct {
            uint8_t len; /* 1..RECEIVED_MAX */
            uint8_t data[RECEIVED_MAX];
        } received;
        struct {
            enum end_reason reason;
            bool has_digest;
            struct state_digest digest;
        } end;
    };
};

/* The codec's memory, zeroed at the start; encoder and decoder each own one. */
struct event_codec {
    uint64_t ordinal, gpa, next_chunk, time_ns;
    uint64_t regs[REG_COUNT];
};

void event_encode(struct bytes *out, struct event_codec *codec, const struct event *event);
/* version: of the recording's format. */
bool event_decode(struct cursor *in, struct event_codec *codec, uint32_t version,
                  struct event *event);
#define EVENT_MAX_BYTES (1u << 20)

#endif
