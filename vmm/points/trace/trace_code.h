#ifndef VMM_POINTS_TRACE_TRACE_CODE_H
#define VMM_POINTS_TRACE_TRACE_CODE_H

#include "mmu/insn.h"
#include "vmm/points/trace/trace.h"

/*
 * The inside of a trace: a small translator that copies the guest's code as it is reached.
 *
 *   trace.c       puts it in place, takes it away, deals with exits
 *   trace_pages.c reads the guest's code, and knows whether it is still that
 *   trace_copy.c  copies instructions, run by run
 *   trace_emit.c  the pieces of code that are ours: comparison, dispatch, ways out
 *
 * The copy of one original address is a *place*. A direct jump to an address without a copy leads
 * to a *request*, a HLT of its own; the copy is made then, and the jump patched. Returns and
 * indirect jumps look their target up in a table by its low 16 bits, which leads to a chain of
 * comparisons; a return compares with the target that it had first before that.
 *
 * User code that user mode can write to (of a just-in-time compiler, say) may change at any moment.
 * Its copy checks the original bytes before each few instructions, and begins anew behind one that
 * writes memory; where they differ, these few are copied again, and the old copy leads to the new.
 */

/* The trace's pages, from its linear address (base) on. Words and code are in pages far apart: code
 * that is near data being written is slow. */
#define TRACE_WORDS_OFFSET 0u
#define TRACE_TABLE_OFFSET 4096u
#define TRACE_TABLE_SLOTS  65536u /* of 32-bit offsets of code */
#define TRACE_CODE_OFFSET  (TRACE_TABLE_OFFSET + 4 * TRACE_TABLE_SLOTS + 4096u)
#define TRACE_CODE_BYTES   (1u << 20)
#define TRACE_BYTES        (TRACE_CODE_OFFSET + TRACE_CODE_BYTES)

#define TRACE_PLACES   32768u
#define TRACE_HASH     65536u
#define TRACE_REQUESTS 16384u
#define TRACE_PAGES    256u
#define TRACE_TRAPS    3u
/* Instructions that are copied for one request: copying so many takes as long as an exit. */
#define TRACE_RUN_INSNS 48u
/* Room for one instruction and what is emitted behind a run. */
#define TRACE_TAIL_BYTES 4096u
/* The comparison's code is written anew for each start, in this much room. */
#define TRACE_COMPARE_BYTES 2048u
#define TRACE_QUICK_BYTES   64u

/* Words that our code uses. */
enum {
    WORD_RCX, /* the guest's, while ours is in use */
    WORD_RDX,
    WORD_RSP,
    WORD_TARGET, /* of the return or indirect jump that is looked up */
    WORD_COUNT,  /* passes that are still to be passed over */
    WORD_BORROW, /* the guest's register that holds an address for one instruction */
    WORD_SITE,   /* offset of the return that is looked up, or 0: see trace_emit_return() */
    WORD_FLAGS = 62,
    WORD_STACK = 63, /* the top of a stack of one word */
};

/* One original address: where its copy is (0: none yet), and the requests for it. */
struct trace_place {
    uint64_t original;
    uint32_t copy;
    uint32_t requests; /* index + 1 of the first */
    uint32_t first;    /* the copy that was there before all others, if there are others */
};

/* What lies at an offset of the code, up to the next entry; sorted. */
struct trace_map {
    uint64_t original;
    uint32_t offset;
    uint32_t body;    /* behind the guards, where the copy itself begins */
    uint8_t borrowed; /* 1 + the kvm_regs index of the register in WORD_BORROW */
};

struct trace_request {
    uint64_t target;
    uint32_t at;    /* offset of its HLT */
    uint32_t rel32; /* of the jump to be patched */
    uint32_t next;  /* index + 1 of another one for the same target */
    bool leave;     /* what is there is not copied: go on at the target itself */
    bool stale;     /* the code there is not what was copied any more */
};

/* A page that code was copied from, as it was then. */
struct trace_page {
    uint64_t va, gpa;
    bool guarded; /* its copies check themselves */
    uint8_t bytes[PAGE_BYTES];
};

/* A byte of the guest's kernel that is HLT while user code runs in a trace. */
struct trace_trap {
    uint64_t va, gpa;
    uint8_t *at, saved;
};

/* What the handler does in the guest's place: see trace_handler.c. */
struct trace_jump {
    enum { JUMP_ALWAYS, JUMP_FLAGS, JUMP_RCX, JUMP_ECX } kind;
    unsigned condition;   /* JUMP_FLAGS: as encoded in Jcc */
    uint64_t taken, next; /* RIP behind it */
};

struct trace {
    struct vm_part part; /* its first member */
    /* what it is a trace of; another one needs other code */
    uint64_t site, base, cr3; /* cr3: of user code only, else 0 */
    unsigned cpl;

    /* while it is in place */
    bool active;
    uint64_t root; /* the guest's CR3 */
    struct kvm_segment cs, ss;
    uint64_t cr2;
    const struct gp_hook *hook;
    uint64_t site_gpa;
    uint8_t site_byte; /* the guest's own */
    bool hlt_on_site;  /* while the trace is in place */
    struct trace_trap trap[TRACE_TRAPS];
    unsigned trap_count;
    struct trace_condition condition[TRACE_CONDITIONS];
    unsigned conditions;
    uint64_t *countdown;     /* NULL: passes are not counted */
    const uint64_t *written; /* pages that may be, as in struct breakpoint */
    bool by_handler;         /* nothing is copied */
    struct trace_jump jump;

    /* the translation */
    const struct guest_memory *memory;
    struct vm *vm;
    uint64_t *words;
    uint32_t *table;
    uint8_t *code;
    uint32_t len; /* bytes of code */
    bool full;
    bool site_copied; /* the instruction at the site could be copied */
    uint32_t miss_at, dispatch, compare, match_at, counted_at, quick, body;
    struct trace_map map[TRACE_PLACES];
    unsigned map_count;
    struct trace_place place[TRACE_PLACES];
    unsigned place_count;
    uint32_t hash[TRACE_HASH]; /* index + 1 in place[] */
    struct trace_request request[TRACE_REQUESTS];
    unsigned request_count;
    uint64_t looked_up[TRACE_PLACES]; /* targets that the table knows */
    unsigned looked_up_count;
    struct trace_page page[TRACE_PAGES];
    unsigned page_count;
};

/* ---- trace_emit.c ---- */
void emit(struct trace *t, const void *bytes, unsigned len);
void emit8(struct trace *t, uint8_t byte);
void emit32(struct trace *t, uint32_t v);
void emit64(struct trace *t, uint64_t v);
/* The linear address of the next byte of code. */
uint64_t emit_here(const struct trace *t);
void emit_rel32_to(struct trace *t, uint32_t offset);
void emit_jump(struct trace *t, uint32_t offset);
void emit_patch_rel32(struct trace *t, uint32_t at, uint32_t offset);
/* mov word, reg and mov reg, word; reg: as encoded in instructions, 0 to 7. */
void emit_save(struct trace *t, unsigned reg, unsigned word);
void emit_load(struct trace *t, unsigned reg, unsigned word);
void emit_constant(struct trace *t, unsigned reg, uint64_t value);
/* To the copy of the target in RCX; the guest's RCX is saved. */
void emit_dispatch_jump(struct trace *t);
/*
 * The same for a near return, behind its POP RCX. Once the target that it has first is known
 * (trace_predict_return(), with the offset that WORD_SITE then holds), that one is not looked up.
 */
void trace_emit_return(struct trace *t);
void trace_predict_return(struct trace *t, uint32_t site, uint64_t target, uint32_t copy);
/* Let whoever comes to the code at an offset, 5 bytes at least, go to another one. */
void emit_detour(struct trace *t, uint32_t from, uint32_t to);
/* A jump to an original address out of the trace. */
void emit_leave(struct trace *t, uint64_t target);
/* Begin a translation: forget all copies, write the miss and the dispatch code. */
void trace_reset(struct trace *t);
/* Make room for the first comparison, behind which the copy of the site follows. */
void trace_begin_site(struct trace *t);
/* Write the code of all comparisons; the site was copied. */
void trace_emit_compare(struct trace *t);
/*
 * Code that compares the guest's bytes at va (`words` times 8 of them) with those expected, and
 * goes on behind when they are equal. Returns the place of the rel32 where it goes otherwise.
 */
uint32_t trace_emit_guard(struct trace *t, uint64_t va, const uint8_t *expected, unsigned words);
/* Let the table know the copy of a target. */
void trace_add_target(struct trace *t, uint64_t target, uint32_t copy);

#define ENC_RCX 1
#define ENC_RDX 2
#define ENC_RSP 4

/* ---- trace_handler.c ---- */
/* The jump that an instruction at regs is; false when it is none that the handler can do. */
bool trace_jump_of(const struct insn *insn, const struct kvm_regs *regs, struct trace_jump *out);
/* Where it goes with these registers. */
uint64_t trace_jump_target(const struct trace_jump *jump, const struct kvm_regs *regs);
/* Write the handler for t's site, conditions, countdown and jump. False: there is nothing to tell
 * passes apart by. */
bool trace_handler_write(struct trace *t);
/* Write the one for code that comes back to t's site, whose copy is where trace_handler_set_copy()
 * says; 0: there is none at the moment. */
void trace_handler_write_return(struct trace *t);
void trace_handler_set_copy(struct trace *t, uint64_t va);
/* What is left of the countdown. */
uint64_t trace_handler_count(const struct trace *t);

/* ---- trace_pages.c ---- */
/* The instruction at va, without the breakpoints that are in place; its pages are kept as they are
 * now. False when it cannot be read, or too many pages are kept (t->full). */
bool trace_read_insn(struct trace *t, uint64_t va, struct insn *insn);
/* Whether it is user code that may change while the trace is in place. It was read before. */
bool trace_insn_may_change(struct trace *t, const struct insn *insn);
/* Keep the pages of the instruction at va, which has changed, as they are now. */
void trace_read_again(struct trace *t, uint64_t va);
/* Whether all code is still as it was copied. */
bool trace_is_current(const struct trace *t);

/* ---- trace_copy.c ---- */
/*
 * The offset of the copy of the code at va, where the guest's code stands now; it is made if need
 * be, for some instructions on. 0 when the code cannot be read or nothing more fits (t->full).
 */
uint32_t trace_copy(struct trace *t, uint64_t va);
/*
 * The code at an offset asked, by a HLT, for what it needs. True, with *copy the offset of the copy
 * of where the guest goes on, which is *target; 0 when there can be none now, or nothing
 * `may_copy`: the guest goes on at the target itself. False when nothing asks there.
 */
bool trace_extend(struct trace *t, uint32_t offset, bool may_copy, uint32_t *copy,
                  uint64_t *target);
/* The entry of the map for an offset in the code; NULL for the comparison and other code of ours.
 */
const struct trace_map *trace_find(const struct trace *t, uint32_t offset);

#endif
