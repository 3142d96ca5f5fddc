#include "replay/gdb/gdb_registers.h"

#include <assert.h>
#include <string.h>

#include "base/x86.h"
#include "recording/cpu_state.h"
#include "recording/event.h"
#include "replay/gdb/gdb_text.h"
#include "vmm/kvm/msr.h"

/* The state, and what has to be computed from it. */
struct view {
    struct vcpu_state state;
    uint64_t rflags, kernel_gs_base;
    uint16_t tags;
};

struct feature {
    const char *name, *types;
};

struct reg {
    const char *name, *type, *group; /* NULL: gdb chooses the group by the type */
    const struct feature *feature;
    uint8_t size; /* for gdb; the rest behind `width` is zero */
    uint8_t width;
    uint16_t offset; /* in struct view */
};

/* gdb knows these names, and wants their registers all together. */
static const struct feature core = {
    "org.gnu.gdb.i386.core",
    "<flags id=\"rflags\" size=\"4\">"
    "<field name=\"CF\" start=\"0\" end=\"0\"/><field name=\"\" start=\"1\" end=\"1\"/>"
    "<field name=\"PF\" start=\"2\" end=\"2\"/><field name=\"AF\" start=\"4\" end=\"4\"/>"
    "<field name=\"ZF\" start=\"6\" end=\"6\"/><field name=\"SF\" start=\"7\" end=\"7\"/>"
    "<field name=\"TF\" start=\"8\" end=\"8\"/><field name=\"IF\" start=\"9\" end=\"9\"/>"
    "<field name=\"DF\" start=\"10\" end=\"10\"/><field name=\"OF\" start=\"11\" end=\"11\"/>"
    "<field name=\"IOPL\" start=\"12\" end=\"13\"/><field name=\"NT\" start=\"14\" end=\"14\"/>"
    "<field name=\"AC\" start=\"18\" end=\"18\"/><field name=\"ID\" start=\"21\" end=\"21\"/>"
    "</flags>"};
static const struct feature sse = {
    "org.gnu.gdb.i386.sse",
    "<vector id=\"f32x4\" type=\"ieee_single\" count=\"4\"/>"
    "<vector id=\"f64x2\" type=\"ieee_double\" count=\"2\"/>"
    "<vector id=\"i8x16\" type=\"int8\" count=\"16\"/>"
    "<vector id=\"i16x8\" type=\"int16\" count=\"8\"/>"
    "<vector id=\"i32x4\" type=\"int32\" count=\"4\"/>"
    "<vector id=\"i64x2\" type=\"int64\" count=\"2\"/>"
    "<union id=\"xmm\">"
    "<field name=\"v4_float\" type=\"f32x4\"/><field name=\"v2_double\" type=\"f64x2\"/>"
    "<field name=\"v16_int8\" type=\"i8x16\"/><field name=\"v8_int16\" type=\"i16x8\"/>"
    "<field name=\"v4_int32\" type=\"i32x4\"/><field name=\"v2_int64\" type=\"i64x2\"/>"
    "<field name=\"uint128\" type=\"uint128\"/>"
    "</union>"
    "<flags id=\"mxcsr\" size=\"4\">"
    "<field name=\"IE\" start=\"0\" end=\"0\"/><field name=\"DE\" start=\"1\" end=\"1\"/>"
    "<field name=\"ZE\" start=\"2\" end=\"2\"/><field name=\"OE\" start=\"3\" end=\"3\"/>"
    "<field name=\"UE\" start=\"4\" end=\"4\"/><field name=\"PE\" start=\"5\" end=\"5\"/>"
    "<field name=\"DAZ\" start=\"6\" end=\"6\"/><field name=\"IM\" start=\"7\" end=\"7\"/>"
    "<field name=\"DM\" start=\"8\" end=\"8\"/><field name=\"ZM\" start=\"9\" end=\"9\"/>"
    "<field name=\"OM\" start=\"10\" end=\"10\"/><field name=\"UM\" start=\"11\" end=\"11\"/>"
    "<field name=\"PM\" start=\"12\" end=\"12\"/><field name=\"RC\" start=\"13\" end=\"14\"/>"
    "<field name=\"FZ\" start=\"15\" end=\"15\"/>"
    "</flags>"};
static const struct feature segments = {"org.gnu.gdb.i386.segments", ""};
/* Ours: gdb shows whatever is described. */
static const struct feature sys = {
    "org.dittovm.system",
    "<flags id=\"cr0\" size=\"8\">"
    "<field name=\"PE\" start=\"0\" end=\"0\"/><field name=\"MP\" start=\"1\" end=\"1\"/>"
    "<field name=\"EM\" start=\"2\" end=\"2\"/><field name=\"TS\" start=\"3\" end=\"3\"/>"
    "<field name=\"ET\" start=\"4\" end=\"4\"/><field name=\"NE\" start=\"5\" end=\"5\"/>"
    "<field name=\"WP\" start=\"16\" end=\"16\"/><field name=\"AM\" start=\"18\" end=\"18\"/>"
    "<field name=\"NW\" start=\"29\" end=\"29\"/><field name=\"CD\" start=\"30\" end=\"30\"/>"
    "<field name=\"PG\" start=\"31\" end=\"31\"/>"
    "</flags>"
    "<flags id=\"cr4\" size=\"8\">"
    "<field name=\"VME\" start=\"0\" end=\"0\"/><field name=\"PVI\" start=\"1\" end=\"1\"/>"
    "<field name=\"TSD\" start=\"2\" end=\"2\"/><field name=\"DE\" start=\"3\" end=\"3\"/>"
    "<field name=\"PSE\" start=\"4\" end=\"4\"/><field name=\"PAE\" start=\"5\" end=\"5\"/>"
    "<field name=\"MCE\" start=\"6\" end=\"6\"/><field name=\"PGE\" start=\"7\" end=\"7\"/>"
    "<field name=\"PCE\" start=\"8\" end=\"8\"/><field name=\"OSFXSR\" start=\"9\" end=\"9\"/>"
    "<field name=\"OSXMMEXCPT\" start=\"10\" end=\"10\"/>"
    "<field name=\"UMIP\" start=\"11\" end=\"11\"/><field name=\"LA57\" start=\"12\" end=\"12\"/>"
    "<field name=\"FSGSBASE\" start=\"16\" end=\"16\"/>"
    "<field name=\"PCIDE\" start=\"17\" end=\"17\"/>"
    "<field name=\"OSXSAVE\" start=\"18\" end=\"18\"/>"
    "<field name=\"SMEP\" start=\"20\" end=\"20\"/><field name=\"SMAP\" start=\"21\" end=\"21\"/>"
    "<field name=\"PKE\" start=\"22\" end=\"22\"/>"
    "</flags>"
    "<flags id=\"efer\" size=\"8\">"
    "<field name=\"SCE\" start=\"0\" end=\"0\"/><field name=\"LME\" start=\"8\" end=\"8\"/>"
    "<field name=\"LMA\" start=\"10\" end=\"10\"/><field name=\"NXE\" start=\"11\" end=\"11\"/>"
    "<field name=\"SVME\" start=\"12\" end=\"12\"/>"
    "<field name=\"FFXSR\" start=\"14\" end=\"14\"/>"
    "</flags>"};

#define WIDTH(f) ((uint8_t)sizeof(((struct view *)0)->f))
#define REG(feature, name, size, type, group, f)                                                   \
    {                                                                                              \
        name, type, group, &feature, size, WIDTH(f), offsetof(struct view, f)                      \
    }
#define GENERAL(name)       REG(core, #name, 8, "int64", NULL, state.regs.name)
#define POINTER(name, type) REG(core, #name, 8, type, NULL, state.regs.name)
#define SELECTOR(name)      REG(core, #name, 4, "int32", NULL, state.sregs.name.selector)
/* 10 bytes each, in slots of 16. */
#define STACK(n)                                                                                   \
    {                                                                                              \
        "st" #n, "i387_ext", NULL, &core, 10, 10, offsetof(struct view, state.fpu.fpr[n])          \
    }
#define CONTROL(name, f) REG(core, name, 4, "int", "float", f)
/* Where the x87's last instruction was: CPUs differ in what they keep. */
#define NOTHING(name)                                                                              \
    {                                                                                              \
        name, "int", "float", &core, 4, 0, 0                                                       \
    }
#define XMM(n) REG(sse, "xmm" #n, 16, "xmm", NULL, state.fpu.xmm[n])

static const struct reg table[] = {
    GENERAL(rax),
    GENERAL(rbx),
    GENERAL(rcx),
    GENERAL(rdx),
    GENERAL(rsi),
    GENERAL(rdi),
    POINTER(rbp, "data_ptr"),
    POINTER(rsp, "data_ptr"),
    GENERAL(r8),
    GENERAL(r9),
    GENERAL(r10),
    GENERAL(r11),
    GENERAL(r12),
    GENERAL(r13),
    GENERAL(r14),
    GENERAL(r15),
    POINTER(rip, "code_ptr"),
    {"eflags", "rflags", NULL, &core, 4, 4, offsetof(struct view, rflags)},
    SELECTOR(cs),
    SELECTOR(ss),
    SELECTOR(ds),
    SELECTOR(es),
    SELECTOR(fs),
    SELECTOR(gs),
    STACK(0),
    STACK(1),
    STACK(2),
    STACK(3),
    STACK(4),
    STACK(5),
    STACK(6),
    STACK(7),
    CONTROL("fctrl", state.fpu.fcw),
    CONTROL("fstat", state.fpu.fsw),
    CONTROL("ftag", tags),
    NOTHING("fiseg"),
    NOTHING("fioff"),
    NOTHING("foseg"),
    NOTHING("fooff"),
    NOTHING("fop"),
    XMM(0),
    XMM(1),
    XMM(2),
    XMM(3),
    XMM(4),
    XMM(5),
    XMM(6),
    XMM(7),
    XMM(8),
    XMM(9),
    XMM(10),
    XMM(11),
    XMM(12),
    XMM(13),
    XMM(14),
    XMM(15),
    REG(sse, "mxcsr", 4, "mxcsr", "vector", state.fpu.mxcsr),
    REG(segments, "fs_base", 8, "int64", NULL, state.sregs.fs.base),
    REG(segments, "gs_base", 8, "int64", NULL, state.sregs.gs.base),
    REG(sys, "k_gs_base", 8, "int64", NULL, kernel_gs_base),
    REG(sys, "cr0", 8, "cr0", NULL, state.sregs.cr0),
    REG(sys, "cr2", 8, "int64", NULL, state.sregs.cr2),
    REG(sys, "cr3", 8, "int64", NULL, state.sregs.cr3),
    REG(sys, "cr4", 8, "cr4", NULL, state.sregs.cr4),
    REG(sys, "cr8", 8, "int64", NULL, state.sregs.cr8),
    REG(sys, "efer", 8, "efer", NULL, state.sregs.efer),
};
const unsigned gdb_register_count = sizeof table / sizeof *table;

/* KVM keeps one bit for each physical register, set when it is in use. gdb wants the x87's own
 * form, two bits: 0 a number, 1 zero, 2 anything special, 3 empty. */
static uint16_t full_tags(const struct kvm_fpu *fpu)
{
    const unsigned top = fpu->fsw >> 11 & 7;
    unsigned tags = 0;

    for (unsigned i = 0; i < 8; i++) {
        const uint8_t *st = fpu->fpr[(i - top) & 7];
        unsigned tag = 3;
        if (fpu->ftwx >> i & 1) {
            uint64_t mantissa;
            unsigned exponent = (st[8] | st[9] << 8) & 0x7fff;
            memcpy(&mantissa, st, sizeof mantissa);
            if (exponent == 0 && mantissa == 0)
                tag = 1;
            else if (exponent == 0 || exponent == 0x7fff || !(mantissa >> 63))
                tag = 2;
            else
                tag = 0;
        }
        tags |= tag << (2 * i);
    }
    return (uint16_t)tags;
}

static void view_of(struct view *v, const struct vcpu_state *state)
{
    *v = (struct view){.state = *state, .tags = full_tags(&state->fpu)};
    /* RF is a trace of how the instruction was reached, not of the recording. */
    v->rflags = state->regs.rflags & ~RFLAGS_RF;
    v->kernel_gs_base = *msr_of_state(&v->state, MSR_KERNEL_GS_BASE);
}

static void put_one(struct bytes *out, const struct view *v, const struct reg *r)
{
    uint8_t data[16] = {0};

    assert(r->size <= sizeof data);
    memcpy(data, (const uint8_t *)v + r->offset, r->width < r->size ? r->width : r->size);
    gdb_put_hex(out, data, r->size);
}

void gdb_registers_put(struct bytes *out, const struct vcpu_state *state)
{
    struct view v;

    view_of(&v, state);
    for (unsigned i = 0; i < gdb_register_count; i++)
        put_one(out, &v, &table[i]);
}

void gdb_register_put(struct bytes *out, const struct vcpu_state *state, unsigned number)
{
    struct view v;

    assert(number < gdb_register_count);
    view_of(&v, state);
    put_one(out, &v, &table[number]);
}

/* The other way round: what a view computes goes to where it comes from. */
static void state_of(struct vcpu_state *state, const struct view *v)
{
    const uint64_t resume_flag = state->regs.rflags & RFLAGS_RF;

    *state = v->state;
    state->regs.rflags = (v->rflags & ~RFLAGS_RF) | resume_flag;
    state->fpu.ftwx = 0;
    for (unsigned i = 0; i < 8; i++)
        state->fpu.ftwx |= (uint8_t)((v->tags >> (2 * i) & 3) != 3) << i;
    msrs_from_segments(state);
    *msr_of_state(state, MSR_KERNEL_GS_BASE) = v->kernel_gs_base;
}

static bool is_selector(const struct reg *r)
{
    return r->width == sizeof(uint16_t) && r->size == 4 && r->feature == &core &&
           !strcmp(r->type, "int32");
}

static int set_one(struct view *v, const struct reg *r, const uint8_t *data, struct err *e)
{
    uint8_t *to = (uint8_t *)v + r->offset;
    const size_t len = r->width < r->size ? r->width : r->size;

    if (is_selector(r) && memcmp(to, data, len) != 0)
        return err_set(e, STATUS_ERROR, "%s cannot be changed: its descriptor is not gdb's to load",
                       r->name);
    memcpy(to, data, len);
    return 0;
}

int gdb_register_set(struct vcpu_state *state, unsigned number, const struct bytes *data,
                     struct err *e)
{
    const struct reg *r = &table[number];
    struct view v;

    assert(number < gdb_register_count);
    if (data->len != r->size)
        return err_set(e, STATUS_ERROR, "%s has %u bytes, not %zu", r->name, r->size, data->len);
    view_of(&v, state);
    if (set_one(&v, r, data->data, e) < 0)
        return -1;
    state_of(state, &v);
    return 0;
}

int gdb_registers_set(struct vcpu_state *state, const struct bytes *data, struct err *e)
{
    const uint8_t *from = data->data;
    size_t left = data->len;
    struct view v;

    view_of(&v, state);
    for (unsigned i = 0; i < gdb_register_count; i++) {
        const struct reg *r = &table[i];
        if (left < r->size)
            return err_set(e, STATUS_ERROR, "these are not all registers");
        if (set_one(&v, r, from, e) < 0)
            return -1;
        from += r->size;
        left -= r->size;
    }
    if (left)
        return err_set(e, STATUS_ERROR, "these are more than all registers");
    state_of(state, &v);
    return 0;
}

void gdb_registers_xml(struct bytes *out)
{
    const struct feature *feature = NULL;

    gdb_put_text(out, "<?xml version=\"1.0\"?>\n<!DOCTYPE target SYSTEM \"gdb-target.dtd\">\n"
                      "<target><architecture>i386:x86-64</architecture>\n");
    for (unsigned i = 0; i < gdb_register_count; i++) {
        const struct reg *r = &table[i];
        if (r->feature != feature) {
            gdb_put_text(out, "%s<feature name=\"%s\">", feature ? "</feature>\n" : "",
                         r->feature->name);
            bytes_put(out, r->feature->types, strlen(r->feature->types));
            feature = r->feature;
        }
        gdb_put_text(out, "<reg name=\"%s\" bitsize=\"%u\" type=\"%s\"", r->name, 8u * r->size,
                     r->type);
        gdb_put_text(out, r->group ? " group=\"%s\"/>" : "/>", r->group);
    }
    gdb_put_text(out, "</feature></target>\n");
}
