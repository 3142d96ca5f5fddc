/* The gdb server: what a gdb that behaves gets. test_gdb_hostile.c is about the others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "replay/gdb/gdb_registers.h"
#include "tests/unit/replay/gdb/gdb_client.h"

static void introduction(void **state)
{
    (void)state;
    struct client *c = client_open();
    const char *reply = client_ask(c, "qSupported:multiprocess+;swbreak+;hwbreak+;xmlRegs=i386");
    static const char *const words[] = {
        "PacketSize=4000", "QStartNoAckMode+", "swbreak+",         "qXfer:features:read+",
        "hwbreak+",        "vContSupported+",  "ReverseContinue+", "ReverseStep+"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_non_null(strstr(reply, words[i]));
    assert_null(strstr(reply, "multiprocess"));
    assert_reply(c, "vMustReplyEmpty", "");
    assert_reply(c, "QNonStop:1", "");
    assert_reply(c, "qCRC:0,1", ""); /* not qC */
    assert_reply(c, "QStartNoAckMode", "OK");
    c->no_ack = true;
    assert_reply(c, "qAttached", "1");
    assert_reply(c, "vCont?", "vCont;c;C;s;S");
    assert_reply(c, "D", "OK");
    assert_int_equal(client_close(c, NULL), GDB_DETACHED);
}

static void threads_are_cpus(void **state)
{
    (void)state;
    struct client *c = client_open();
    c->fake.cpu_count = 3;
    assert_reply(c, "qfThreadInfo", "m1,2,3");
    assert_reply(c, "qsThreadInfo", "l");
    assert_reply(c, "qC", "QC1");
    assert_reply(c, "Hg3", "OK");
    assert_reply(c, "qC", "QC3");
    assert_reply(c, "p7", "0240400000000000"); /* the third one's stack */
    assert_reply(c, "Hg0", "OK");
    assert_reply(c, "Hc-1", "OK");
    assert_reply(c, "qC", "QC3");
    assert_reply(c, "Hg4", "E16");
    assert_reply(c, "Hx1", "E16");
    assert_reply(c, "H", "E16");
    assert_reply(c, "T2", "OK");
    assert_reply(c, "T4", "E16");
    assert_reply(c, "Tffffffffffffffff", "E16");
    assert_reply(c, "qThreadExtraInfo,2", "4350552031"); /* CPU 1 */
    assert_reply(c, "qThreadExtraInfo,z", "E16");
    client_close(c, NULL);
}

/* Counts tags, and that each is closed by the right one. */
static void check_xml(const char *xml, const char *open[], unsigned depth)
{
    unsigned regs = 0;

    for (const char *p = strchr(xml, '<'); p; p = strchr(p + 1, '<')) {
        const char *end = strchr(p, '>');
        assert_non_null(end);
        size_t quotes = 0;
        for (const char *q = p; q < end; q++)
            quotes += *q == '"';
        assert_int_equal(quotes % 2, 0);
        regs += !strncmp(p, "<reg ", 5);
        if (p[1] == '?' || p[1] == '!' || end[-1] == '/')
            continue;
        if (p[1] != '/') {
            assert_true(depth < 8);
            open[depth++] = p + 1;
            continue;
        }
        assert_true(depth > 0);
        size_t len = (size_t)(end - p) - 2;
        assert_int_equal(strncmp(open[--depth], p + 2, len), 0);
        assert_non_null(strchr(" >", open[depth][len]));
    }
    assert_int_equal(depth, 0);
    assert_int_equal(regs, gdb_register_count);
}

static void description_in_pieces(void **state)
{
    (void)state;
    struct client *c = client_open();
    struct bytes whole = {0}, xml = {0};
    const char *open[8];
    char request[64];

    gdb_registers_xml(&xml);
    do {
        snprintf(request, sizeof request, "qXfer:features:read:target.xml:%zx,1f3", whole.len);
        client_ask(c, request);
        assert_true(c->reply[0] == 'm' || c->reply[0] == 'l');
        assert_int_equal(c->len, c->reply[0] == 'm' ? 0x1f4 : 1 + xml.len - whole.len);
        bytes_put(&whole, c->reply + 1, c->len - 1);
    } while (c->reply[0] == 'm');
    assert_int_equal(whole.len, xml.len);
    assert_memory_equal(whole.data, xml.data, xml.len);
    bytes_put_u8(&whole, 0);
    check_xml((const char *)whole.data, open, 0);
    assert_reply(c, "qXfer:features:read:target.xml:fffffff,10", "l");
    assert_reply(c, "qXfer:features:read:other.xml:0,10", "E00");
    assert_reply(c, "qXfer:features:read:target.xml:0", "E16");
    assert_true(client_ask(c, "qXfer:features:read:target.xml:0,ffffffffffffffff")[0] == 'l');
    bytes_free(&whole);
    bytes_free(&xml);
    client_close(c, NULL);
}

static void registers(void **state)
{
    (void)state;
    struct client *c = client_open();
    char all[4096], request[16];
    size_t len = 0;

    snprintf(all, sizeof all, "%s", client_ask(c, "g"));
    for (unsigned i = 0; i < gdb_register_count; i++) {
        snprintf(request, sizeof request, "p%x", i);
        client_ask(c, request);
        assert_int_equal(strncmp(all + len, c->reply, c->len), 0);
        len += c->len;
    }
    assert_int_equal(strlen(all), len);
    assert_reply(c, "p0", "5000000000000000");
    assert_reply(c, "p10", "0010400000000000");
    assert_reply(c, "p11", "46020000"); /* without RF */
    assert_reply(c, "p12", "33000000");
    assert_reply(c, "p18", "0000000000000080ff3f");
    assert_reply(c, "p22", "ff3f0000"); /* seven empty, one number */
    snprintf(request, sizeof request, "p%x", gdb_register_count);
    assert_reply(c, request, "E16");
    assert_reply(c, "pffffffffffffffffff", "E16");
    c->fake.broken = true;
    assert_error(c, "g", "broken");
    client_close(c, NULL);
}

static void memory(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_reply(c, "m403000,8", "00070e151c232a31");
    assert_reply(c, "m401ffe,4", "90900500");
    assert_reply(c, "m412ffe,8", "f2f9"); /* as much as there is */
    assert_reply(c, "m0,8", "E0e");
    assert_reply(c, "mfffffffffffffffe,ffffffffffffffff", "E0e");
    assert_reply(c, "m403000", "E16");
    assert_reply(c, "m,", "E16");
    client_ask(c, "m403000,ffffffffffffffff");
    assert_true(c->len > 16000 && c->len <= 16384);
    assert_reply(c, "qqemu.PhyMemMode", "0");
    assert_reply(c, "Qqemu.PhyMemMode:1", "OK");
    assert_reply(c, "qqemu.PhyMemMode", "1");
    assert_reply(c, "m0,4", "00070e15");
    assert_reply(c, "m403000,4", "E0e");
    assert_reply(c, "Qqemu.PhyMemMode:2", "E16");
    assert_reply(c, "Qqemu.PhyMemMode:0", "OK");
    assert_reply(c, "m0,4", "E0e");
    client_close(c, NULL);
}

static void nothing_can_be_changed(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_error(c, "P0=0100000000000000", "cannot be changed");
    assert_error(c, "M403000,1:00", "cannot be changed");
    assert_reply(c, "X403000,0:", "");
    assert_error(c, "c401000", "elsewhere");
    assert_error(c, "S05;401000", "elsewhere");
    assert_reply(c, "m403000,1", "00");
    client_close(c, NULL);
}

/* Where the target lets it be. */
static void registers_and_memory_are_written(void **state)
{
    struct fake after;
    char packet[sizeof((struct client *)0)->reply + 1];

    (void)state;
    struct client *c = client_open();
    c->fake.writable = true;
    assert_reply(c, "P2=efcdab8967452301", "OK"); /* rcx */
    assert_true(c->fake.written_state.regs.rcx == 0x0123456789abcdefull);
    assert_true(c->fake.written_state.regs.rsp == FAKE_DATA + 0x1000);
    assert_true(c->fake.written_state.regs.rflags == 0x10246); /* with the flag that is not shown */
    assert_reply(c, "P11=46000000", "OK");
    assert_true(c->fake.written_state.regs.rflags == 0x10046);
    assert_reply(c, "P39=0010000000700000", "OK"); /* fs_base, which KVM has twice */
    assert_true(c->fake.written_state.sregs.fs.base == 0x700000001000);
    assert_true(*msr_of_state(&c->fake.written_state, MSR_FS_BASE) == 0x700000001000);
    assert_reply(c, "P2=00", "E.rcx has 8 bytes, not 1");
    assert_reply(c, "P12=33000000", "OK"); /* cs as it is */
    assert_error(c, "P12=10000000", "descriptor");
    assert_reply(c, "P12=", "E.cs has 4 bytes, not 0");
    for (const char *const *p =
             (const char *const[]){"P", "P2", "P2=0", "P2=zz", "Pffff=00", "P10000000000000000=00",
                                   "M", "M403000", "M403000,1", "M403000,2:00", "M403000,1:0g",
                                   "Mffffffffffffffff,2:0000", "G0", NULL};
         *p; p++)
        assert_reply(c, *p, "E16");
    /* All of them, as they were read. */
    client_ask(c, "g");
    snprintf(packet, sizeof packet, "G%s", c->reply);
    assert_reply(c, packet, "OK");
    assert_true(c->fake.written_state.regs.rflags == 0x10246);
    assert_int_equal(c->fake.written_state.fpu.ftwx, 0x80);
    assert_true(c->fake.written_state.msrs[10] == 0xffff888000001000);
    packet[strlen(packet) - 2] = 0;
    assert_error(c, packet, "not all");
    assert_reply(c, "M403001,3:01fe7d", "OK");
    assert_reply(c, "M403000,0:", "OK");
    assert_true(c->fake.written_at == 0x403001 && c->fake.written_len == 3);
    assert_memory_equal(c->fake.written, "\x01\xfe\x7d", 3);
    assert_reply(c, "Qqemu.PhyMemMode:1", "OK");
    assert_reply(c, "M10,1:05", "OK");
    client_close(c, &after);
    assert_true(after.written_at == FAKE_DATA + 0x10 && after.written[0] == 5);
}

/* The part of a stop reply before the registers that it carries along. */
static const char *stop_of(struct client *c, const char *packet)
{
    client_ask(c, packet);
    char *registers_at = strstr(c->reply, ";06:");
    assert_non_null(registers_at);
    registers_at[1] = 0;
    return c->reply;
}

static void steps_both_ways(void **state)
{
    (void)state;
    struct client *c = client_open();
    static const char *const forwards[] = {"s", "S05", "vCont;s", "vCont;s:1;c", "vCont;S05:1"};
    uint64_t position = c->fake.position;

    client_ask(c, "?");
    assert_string_equal(c->reply, "T05thread:1;06:0000000000000000;07:0040400000000000;"
                                  "10:0010400000000000;");
    for (size_t i = 0; i < sizeof forwards / sizeof *forwards; i++) {
        assert_string_equal(stop_of(c, forwards[i]), "T05thread:1;");
        assert_int_equal(c->fake.position, ++position);
    }
    assert_string_equal(stop_of(c, "bs"), "T05thread:1;");
    assert_int_equal(c->fake.position, --position);
    assert_reply(c, "bx", "");
    assert_reply(c, "vCont", "E16");
    assert_reply(c, "vCont;", "E16");
    assert_reply(c, "vCont;t", "E16");
    assert_reply(c, "vCont;c:9", "E16");
    assert_reply(c, "vCont;s:1x", "E16");
    assert_reply(c, "S", "E16");
    assert_int_equal(c->fake.position, position);
    client_close(c, NULL);
}

static void a_step_is_of_the_cpu_asked_for(void **state)
{
    (void)state;
    struct client *c = client_open();
    c->fake.cpu_count = 4;
    assert_string_equal(stop_of(c, "vCont;c:1;s:3"), "T05thread:3;");
    assert_reply(c, "qC", "QC3");
    assert_reply(c, "Hc2", "OK");
    assert_string_equal(stop_of(c, "bs"), "T05thread:2;");
    client_close(c, NULL);
}

static void breakpoints(void **state)
{
    (void)state;
    struct client *c = client_open();
    struct fake left;
    client_ask(c, "qSupported:swbreak+;hwbreak+");
    assert_reply(c, "Z0,401008,1", "OK");
    assert_reply(c, "Z0,401008,1", "OK");
    assert_int_equal(fake_break_count(&c->fake), 1);
    assert_string_equal(stop_of(c, "c"), "T05thread:1;swbreak:;");
    assert_string_equal(stop_of(c, "?"), "T05thread:1;swbreak:;");
    assert_string_equal(stop_of(c, "vCont;c"), "T05thread:1;swbreak:;");
    assert_string_equal(stop_of(c, "bc"), "T05thread:1;swbreak:;");
    assert_int_equal(c->fake.position, 88);
    assert_reply(c, "z0,401008,1", "OK");
    assert_reply(c, "z0,401008,1", "OK");
    assert_reply(c, "Z1,401003,1", "OK");
    assert_string_equal(stop_of(c, "C05"), "T05thread:1;hwbreak:;");
    client_ask(c, "qSupported:");
    assert_string_equal(stop_of(c, "c"), "T05thread:1;"); /* words that gdb has not said it knows */
    assert_error(c, "Z0,bad,1", "no breakpoint is possible");
    assert_reply(c, "Z5,401000,1", "");
    assert_reply(c, "Z0,401000", "E16");
    assert_reply(c, "Z0,401000,1;X1,00", "E16");
    assert_reply(c, "z", "E16");
    client_close(c, &left);
    assert_int_equal(fake_break_count(&left), 0); /* though nobody has taken the last one away */
}

static void watchpoints(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_reply(c, "Z2,402000,8", "OK");
    assert_string_equal(stop_of(c, "c"), "T05thread:1;watch:402000;");
    assert_int_equal(c->fake.position, 96);
    assert_string_equal(stop_of(c, "bc"), "T05thread:1;watch:402000;");
    assert_int_equal(c->fake.position, 95);
    assert_reply(c, "z2,402000,8", "OK");
    assert_reply(c, "Z3,402004,4", "OK");
    assert_string_equal(stop_of(c, "c"), "T05thread:1;rwatch:402004;");
    assert_reply(c, "z3,402004,4", "OK");
    assert_reply(c, "Z4,402000,1", "OK");
    assert_string_equal(stop_of(c, "c"), "T05thread:1;awatch:402000;");
    assert_error(c, "Z2,402000,0", "cannot be watched");
    assert_error(c, "Z2,402000,100001", "cannot be watched");
    assert_error(c, "Z2,ffffffffffffffff,2", "cannot be watched");
    assert_reply(c, "Z2,ffffffffffffffff,1", "OK");
    client_close(c, NULL);
}

static void ends_of_the_recording(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_string_equal(stop_of(c, "c"), "T05thread:1;replaylog:end;");
    assert_string_equal(stop_of(c, "s"), "T05thread:1;replaylog:end;");
    assert_string_equal(stop_of(c, "bc"), "T05thread:1;replaylog:begin;");
    assert_int_equal(c->fake.position, 0);
    c->fake.diverge_at = 50;
    assert_int_equal(client_ask(c, "c")[0], 'O');
    struct bytes text = {0};
    assert_true(gdb_unhex(&text, c->reply + 1));
    assert_memory_equal(text.data, "dittovm: the fake diverged\n", text.len);
    bytes_free(&text);
    client_receive(c);
    assert_int_equal(strncmp(c->reply, "T05thread:1;replaylog:end;", 26), 0);
    c->fake.broken = true;
    assert_error(c, "c", "broken");
    client_close(c, NULL);
}

static void monitor_commands(void **state)
{
    (void)state;
    struct client *c = client_open();
    struct bytes text = {0};
    assert_int_equal(client_ask(c, "qRcmd,68656c70")[0], 'O');
    assert_true(gdb_unhex(&text, c->reply + 1));
    assert_int_equal(text.len, 18);
    assert_memory_equal(text.data, "help, where, long\n", 18);
    client_receive(c);
    assert_string_equal(c->reply, "OK");

    bytes_clear(&text);
    for (client_ask(c, "qRcmd,6c6f6e67"); c->reply[1] != 'K'; client_receive(c))
        assert_true(c->len <= 16384 && gdb_unhex(&text, c->reply + 1));
    assert_int_equal(text.len, 33000);

    bytes_clear(&text);
    assert_int_equal(client_ask(c, "qRcmd,")[0], 'O');
    assert_true(gdb_unhex(&text, c->reply + 1));
    assert_memory_equal(text.data, "no command ''\n", 14);
    client_receive(c);
    assert_string_equal(c->reply, "OK"); /* what else it said would be the connection's error */
    assert_reply(c, "qRcmd,6", "E16");
    assert_reply(c, "qRcmd,xx", "E16");
    bytes_free(&text);
    client_close(c, NULL);
}

/* A client whose command takes long hears something now and then, and then what it has come to. */
static void a_long_command_is_alive(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_string_equal(client_ask(c, "qRcmd,77616974"), "O");
    client_receive(c);
    assert_string_equal(c->reply, "O");
    atomic_store(&c->fake.released, true);
    while (c->reply[0] == 'O' && c->len == 1)
        client_receive(c);
    assert_string_equal(c->reply, "OK");
    client_close(c, NULL);
}

/* gdb says nothing but that memory cannot be accessed: the reason comes with the next text. */
static void why_it_was_refused_is_said_later(void **state)
{
    static const char reason[] = "dittovm: the fake's memory cannot be changed\n";
    struct bytes text = {0};

    (void)state;
    struct client *c = client_open();
    for (const char *const *next = (const char *const[]){"s", "qRcmd,77686572", NULL}; *next;
         next++) {
        assert_error(c, "M403000,1:00", "cannot be changed");
        assert_int_equal(client_ask(c, *next)[0], 'O');
        bytes_clear(&text);
        assert_true(gdb_unhex(&text, c->reply + 1));
        assert_int_equal(text.len, sizeof reason - 1);
        assert_memory_equal(text.data, reason, text.len);
        do
            client_receive(c);
        while (c->reply[0] == 'O' && c->reply[1] != 'K');
    }
    assert_string_equal(stop_of(c, "s"), "T05thread:1;"); /* once */
    bytes_free(&text);
    client_close(c, NULL);
}

static void control_c(void **state)
{
    (void)state;
    struct client *c = client_open();
    c->fake.endless = true;
    client_write(c, "\003", 1); /* nothing runs: ignored */
    for (unsigned i = 0; i < 20; i++) {
        client_send(c, "c", 1);
        assert_int_equal(client_byte(c, 5000), '+');
        if (i % 2)
            assert_int_equal(client_byte(c, 10), -2);
        client_write(c, "\003", 1);
        client_receive(c);
        assert_int_equal(strncmp(c->reply, "T02thread:1;", 12), 0);
    }
    assert_int_equal(c->fake.interrupts, 20);
    client_close(c, NULL);
}

/* One that came when resume() was about to return by itself does not stop the next one. */
static void late_control_c(void **state)
{
    (void)state;
    struct client *c = client_open();
    uint64_t position = c->fake.position;
    client_write(c, "$s#73\003", 6);
    assert_int_equal(client_byte(c, 5000), '+');
    client_receive(c);
    if (c->reply[2] == '5') { /* the step was quicker */
        position++;
        atomic_store(&c->fake.interrupted, c->fake.interrupts > 0);
    }
    assert_string_equal(stop_of(c, "s"), "T05thread:1;");
    assert_int_equal(c->fake.position, position + 1);
    client_close(c, NULL);
}

static void kill_and_quit(void **state)
{
    (void)state;
    struct client *c = client_open();
    client_send(c, "k", 1);
    assert_int_equal(client_byte(c, 5000), '+');
    assert_int_equal(client_byte(c, 5000), -1);
    assert_int_equal(client_close(c, NULL), GDB_KILLED);

    c = client_open();
    assert_reply(c, "Z0,401000,1", "OK");
    c->quit = 1;
    assert_int_equal(client_byte(c, 5000), -1);
    assert_int_equal(client_close(c, NULL), GDB_QUIT);
}

/* `run` of a client in extended mode: kill is not the end. */
static void extended_mode_runs_again(void **state)
{
    (void)state;
    struct client *c = client_open();
    assert_reply(c, "vKill;1", ""); /* it has not said so */
    assert_reply(c, "vRun;", "");
    assert_reply(c, "!", "OK");
    assert_reply(c, "Z0,401005,1", "OK");
    client_ask(c, "c");
    assert_int_equal(c->fake.position % FAKE_LOOP, 5);
    assert_reply(c, "vKill;1", "OK");
    assert_string_equal(stop_of(c, "vRun;"), "T05thread:1;");
    assert_int_equal(c->fake.position, 0);
    assert_string_equal(stop_of(c, "c"), "T05thread:1;replaylog:end;"); /* no breakpoint was left */
    assert_string_equal(stop_of(c, "vRun;2f76;3137"), "T05thread:1;");
    assert_int_equal(c->fake.position, 17);
    assert_error(c, "vRun;;393939393939", "no such place");
    assert_reply(c, "vRun;;3", "E16");
    assert_int_equal(client_close(c, NULL), GDB_VANISHED);

    c = client_open();
    assert_reply(c, "!", "OK");
    assert_reply(c, "vKill;1", "OK");
    assert_int_equal(client_close(c, NULL), GDB_KILLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(introduction),
        cmocka_unit_test(threads_are_cpus),
        cmocka_unit_test(description_in_pieces),
        cmocka_unit_test(registers),
        cmocka_unit_test(memory),
        cmocka_unit_test(nothing_can_be_changed),
        cmocka_unit_test(registers_and_memory_are_written),
        cmocka_unit_test(steps_both_ways),
        cmocka_unit_test(a_step_is_of_the_cpu_asked_for),
        cmocka_unit_test(breakpoints),
        cmocka_unit_test(watchpoints),
        cmocka_unit_test(ends_of_the_recording),
        cmocka_unit_test(monitor_commands),
        cmocka_unit_test(a_long_command_is_alive),
        cmocka_unit_test(why_it_was_refused_is_said_later),
        cmocka_unit_test(extended_mode_runs_again),
        cmocka_unit_test(control_c),
        cmocka_unit_test(late_control_c),
        cmocka_unit_test(kill_and_quit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
