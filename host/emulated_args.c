#include "host/emulated_args.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void string_list_add(struct string_list *l, const char *format, ...)
{
    va_list args;
    char *text;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    char **items = realloc(l->items, (l->count + 2) * sizeof *items);
    if (length < 0 || !items)
        abort();
    l->items = items;
    l->items[l->count++] = text;
    l->items[l->count] = NULL;
}

void string_list_free(struct string_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        free(l->items[i]);
    free(l->items);
    *l = (struct string_list){0};
}

static bool holds(const char *directory, const char *path)
{
    size_t length = strlen(directory);
    if (strcmp(directory, "/") == 0)
        return true;
    return strncmp(directory, path, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

int emulated_add_rw_dir(struct string_list *dirs, const char *path, struct err *e)
{
    assert(path[0] == '/');
    size_t kept = 0;
    for (size_t i = 0; i < dirs->count; i++)
        if (holds(dirs->items[i], path))
            return 0;
    for (size_t i = 0; i < dirs->count; i++) {
        if (holds(path, dirs->items[i]))
            free(dirs->items[i]);
        else
            dirs->items[kept++] = dirs->items[i];
    }
    dirs->count = kept;
    if (dirs->count == KHOST_RW_DIRS_MAX)
        return err_set(e, STATUS_ERROR,
                       "too many writable directories for the emulated host (%u); put the output "
                       "files together",
                       KHOST_RW_DIRS_MAX);
    string_list_add(dirs, "%s", path);
    return 0;
}

/* A comma in a value of a QEMU option is written twice. The caller frees. */
static char *double_commas(const char *s)
{
    char *out = malloc(2 * strlen(s) + 1);
    if (!out)
        abort();
    char *p = out;
    for (; *s; s++) {
        *p++ = *s;
        if (*s == ',')
            *p++ = ',';
    }
    *p = '\0';
    return out;
}

/* multidevs=remap: inode numbers stay distinct where the tree spans several file systems. */
static void add_shared_directory(struct string_list *out, const char *tag, const char *path,
                                 const char *more)
{
    char *escaped = double_commas(path);
    string_list_add(out, "-fsdev");
    string_list_add(out, "local,id=fs-%s,path=%s,security_model=none,multidevs=remap%s", tag,
                    escaped, more);
    string_list_add(out, "-device");
    string_list_add(out, "virtio-9p-pci,fsdev=fs-%s,mount_tag=%s", tag, tag);
    free(escaped);
}

/* The wires of the command's NICs. Without one nobody is there. */
static void add_nets(struct string_list *out, const struct emulated_options *o)
{
    for (unsigned i = 0; i < MAX_NICS; i++) {
        string_list_add(out, "-chardev");
        if (i < o->net_count && o->net_fds[i] >= 0)
            string_list_add(out, "socket,id=net%u,fd=%u", i, EMULATED_NET_FD + i);
        else
            string_list_add(out, "null,id=net%u", i);
        string_list_add(out, "-device");
        string_list_add(out, "virtserialport,chardev=net%u,nr=%u,name=" KHOST_NET_PORT_NAME, i,
                        KHOST_PORT_NET + i, i);
    }
}

/* What the command's machine is told from outside. */
static void add_control(struct string_list *out, const struct emulated_options *o)
{
    string_list_add(out, "-chardev");
    if (o->control)
        string_list_add(out, "socket,id=control,fd=%d", EMULATED_CONTROL_FD);
    else
        string_list_add(out, "null,id=control");
    string_list_add(out, "-device");
    string_list_add(out, "virtserialport,chardev=control,nr=%u,name=" KHOST_CONTROL_PORT_NAME,
                    KHOST_PORT_MACHINE);
}

static void add_network(struct string_list *out, const struct emulated_options *o)
{
    struct bytes netdev = {0};
    const char *head = "user,id=net";
    bytes_put(&netdev, head, strlen(head));
    for (size_t i = 0; i < o->forward_count; i++) {
        char text[64];
        int n = snprintf(text, sizeof text, ",hostfwd=tcp:127.0.0.1:%u-:%u", o->forwards[i].outer,
                         o->forwards[i].inner);
        bytes_put(&netdev, text, (size_t)n);
    }
    string_list_add(out, "-netdev");
    string_list_add(out, "%.*s", (int)netdev.len, (const char *)netdev.data);
    string_list_add(out, "-device");
    string_list_add(out, "virtio-net-pci,netdev=net,romfile=");
    bytes_free(&netdev);
}

/* QEMU listens on, one client at a time, and does not wait for it; without gdb nobody is there. */
static void add_gdb(struct string_list *out, bool gdb)
{
    string_list_add(out, "-chardev");
    if (gdb)
        string_list_add(out, "socket,id=gdb,fd=%d,server=on,wait=off", EMULATED_GDB_FD);
    else
        string_list_add(out, "null,id=gdb");
    string_list_add(out, "-device");
    string_list_add(out, "virtserialport,chardev=gdb,nr=%d,name=%s", KHOST_PORT_GDB,
                    KHOST_GDB_PORT_NAME);
}

/*
 * What the emulated kernel need not do for a single user's command: clear what it allocates, ask
 * security modules, keep accounts. clearcpuid, and ERMS that the CPU lacks: QEMU emulates REP STOS
 * and REP MOVS by the element. Without FSRM, too, which newer QEMUs have: Linux 6.1 goes wrong with
 * FSRM alone (memmove() of less than 32 bytes).
 */
#define KERNEL_WORKS_LESS                                                                          \
    "clearcpuid=rep_good init_on_alloc=0 randomize_kstack_offset=off lsm=capability audit=0 "      \
    "cgroup_disable=memory"

void emulated_qemu_args(const struct emulated_options *o, const struct string_list *rw_dirs,
                        bool show_console, struct string_list *out)
{
    /*
     * The instructions that are switched off cannot be intercepted by KVM: where the CPU has them
     * they would bring host values into the guest. tsc=reliable: with two processors Linux would
     * fall to a clock that makes every exit four times slower. panic=-1 with -no-reboot: a crash of
     * the emulated kernel ends QEMU and is seen as that. maxcpus=1: the agent starts the others.
     * The first CPU is for the kernel alone (leave_first_cpu() in guest-tools/khost/agent_setup.c).
     */
    static const char *const fixed[] = {
        "-no-user-config",
        "-nodefaults",
        "-display",
        "none",
        "-vga",
        "none",
        "-monitor",
        "none",
        "-parallel",
        "none",
        "-no-reboot",
        "-machine",
        "pc",
        "-accel",
        "tcg,thread=multi",
        "-smp",
        "3",
        "-cpu",
        "max,-rdrand,-rdseed,-rdtscp,-rdpid,-erms,-fsrm",
    };
    string_list_add(out, "%s", o->qemu);
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        string_list_add(out, "%s", fixed[i]);
    string_list_add(out, "-m");
    string_list_add(out, "%u", o->memory_mib);
    string_list_add(out, "-kernel");
    string_list_add(out, "%s/khost-vmlinux", o->datadir);
    string_list_add(out, "-initrd");
    string_list_add(out, "%s/khost-initrd.cpio", o->datadir);
    string_list_add(out, "-append");
    char tsc[sizeof " tsc_early_khz=4294967295"] = "";
    if (o->tsc_khz)
        snprintf(tsc, sizeof tsc, " tsc_early_khz=%u", o->tsc_khz);
    string_list_add(out,
                    "%s nokaslr mitigations=off tsc=reliable no_timer_check panic=-1 maxcpus=1 "
                    "noreplace-smp " KERNEL_WORKS_LESS "%s",
                    show_console ? "console=ttyS0" : "quiet", tsc);
    string_list_add(out, "-serial");
    string_list_add(out, show_console ? "stdio" : "none");

    string_list_add(out, "-device");
    string_list_add(out, "virtio-serial-pci,max_ports=16");
    for (int port = KHOST_PORT_CONTROL; port <= KHOST_PORT_STDERR; port++) {
        string_list_add(out, "-chardev");
        string_list_add(out, "socket,id=port%d,fd=%d", port,
                        EMULATED_FIRST_PORT_FD + port - KHOST_PORT_CONTROL);
        string_list_add(out, "-device");
        string_list_add(out, "virtserialport,chardev=port%d,nr=%d", port, port);
    }
    add_gdb(out, o->gdb);
    add_nets(out, o);
    add_control(out, o);
    add_network(out, o);
    add_shared_directory(out, KHOST_ROOT_TAG, "/", ",readonly=on");
    for (size_t i = 0; i < rw_dirs->count || i < EMULATED_RW_DIRS_LEAST; i++) {
        const bool used = i < rw_dirs->count;
        char tag[32];
        snprintf(tag, sizeof tag, "%s%zu", KHOST_RW_TAG, i);
        add_shared_directory(out, tag, used ? rw_dirs->items[i] : "/", used ? "" : ",readonly=on");
    }
}

static void put_string(struct bytes *b, const char *s)
{
    size_t length = strlen(s);
    bytes_put_varint(b, length);
    bytes_put(b, s, length + 1);
}

static void put_strings(struct bytes *b, char *const *list)
{
    size_t count = 0;
    while (list[count])
        count++;
    bytes_put_varint(b, count);
    for (size_t i = 0; i < count; i++)
        put_string(b, list[i]);
}

static void put_environment(struct bytes *b, char *const *env)
{
    struct string_list inside = {0};
    static const char name[] = EMULATED_INSIDE_VARIABLE "=";
    for (size_t i = 0; env[i]; i++)
        if (strncmp(env[i], name, sizeof name - 1) != 0)
            string_list_add(&inside, "%s", env[i]);
    string_list_add(&inside, "%s1", name);
    put_strings(b, inside.items);
    string_list_free(&inside);
}

int emulated_encode_request(const struct emulated_request *r, struct bytes *b, struct err *e)
{
    struct bytes body = {0};
    bytes_put_u8(&body, r->flags);
    bytes_put_u16(&body, r->rows);
    bytes_put_u16(&body, r->columns);
    bytes_put_u32(&body, r->uid);
    bytes_put_u32(&body, r->gid);
    bytes_put_u32(&body, r->umask);
    bytes_put_u64(&body, (uint64_t)r->now.tv_sec);
    bytes_put_u32(&body, (uint32_t)r->now.tv_nsec);
    bytes_put(&body, r->seed, sizeof r->seed);
    bytes_put_varint(&body, r->group_count);
    for (size_t i = 0; i < r->group_count; i++)
        bytes_put_u32(&body, r->groups[i]);
    put_string(&body, r->cwd);
    put_strings(&body, r->rw_dirs);
    put_environment(&body, r->env);
    put_strings(&body, r->argv);

    int rc = 0;
    if (body.len > KHOST_REQUEST_MAX) {
        rc = err_set(e, STATUS_ERROR,
                     "arguments and environment are too large for the emulated host; unset some");
    } else {
        bytes_put_u32(b, (uint32_t)body.len);
        bytes_put(b, body.data, body.len);
    }
    bytes_free(&body);
    return rc;
}

void emulated_quote(const char *text, size_t length, char *out, size_t size)
{
    assert(size > 0);
    while (length > 0 && (unsigned char)text[length - 1] <= ' ')
        length--;
    /* Every line end grows by one byte: keep the tail that is sure to fit. */
    if (length > (size - 1) / 2) {
        text += length - (size - 1) / 2;
        length = (size - 1) / 2;
    }
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n') {
            out[n++] = ';';
            out[n++] = ' ';
        } else {
            out[n++] = c < ' ' || c == 0x7f ? ' ' : (char)c;
        }
    }
    out[n] = '\0';
}
