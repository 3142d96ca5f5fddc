#!/bin/bash
# core.sh [KERNEL...]: cores of Linux at five places of a recording, the last one a panic, as drgn, gdb and crash show
# them with Debian's debug symbols: tasks, stacks, log and modules are what the guest printed itself there, where a mark
# was made. KERNEL is a release of Debian and a flavour; default: all below. Debian 12's crash shows no tasks of Debian
# 12's own kernels, trixie's does. Both want one with CONFIG_X86_MCE where no task has panicked, and Debian's cloud
# kernels have not got it (docs/core.md).
# As root the first time (debootstrap); fetches some 2 GB then, and keeps as much in build/cache.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tree/tests/lib/common.sh"
. "$tree/tests/lib/suite.sh"
[ $# -gt 0 ] || set -- bullseye/amd64 bookworm/amd64 bookworm/cloud-amd64
work=$(mktemp -d "$BUILD/core-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "core: $kernel: $*" >&2
    tail -n 20 run.err core.err 2>/dev/null | tr -d '\r' >&2
    keep_failed run.ditto core >&2
    exit 1
}

for tool in drgn crash gdb busybox; do
    kernel=here
    command -v $tool >/dev/null || fail "$tool is not installed; run guest-tools/install-deps.sh core test"
done

# crash_of WHOSE ARGUMENT...: Debian 12's, or trixie's
crash_of() {
    if [ "$1" = trixie ]; then
        bounded 300 "${in_root[@]}" "${@:2}"
    else
        bounded 300 crash "${@:2}"
    fi
}

# ---- a recording ----

# fetch_kernel RELEASE FLAVOUR: its $version, its packages unpacked in $kernel_files (of build/cache), and its $symbols.
fetch_kernel() {
    local package
    package=$(suite_kernel "$1" "$2")
    if [ -z "$package" ]; then
        suite_update "$1" && package=$(suite_kernel "$1" "$2")
    fi
    [ -n "$package" ] || fail 'no such kernel'
    version=${package#linux-image-}
    kernel_files=$BUILD/cache/core-$version symbols=$kernel_files/vmlinux
    [ -e "$symbols" ] || {
        rm -rf fetched "$kernel_files"
        suite_download "$1" fetched "$package" "$package-dbg" || fail "$(tail -n 1 fetched/log)"
        mkdir -p "$kernel_files.new"
        dpkg-deb --fsys-tarfile fetched/"$package"_*.deb | tar -x -C "$kernel_files.new" ./boot ./lib &&
            dpkg-deb --fsys-tarfile fetched/"$package"-dbg_*.deb |
            tar -x -O "./usr/lib/debug/boot/vmlinux-$version" >"$kernel_files.new/vmlinux" &&
            mv "$kernel_files.new" "$kernel_files" || fail 'its packages cannot be unpacked'
        rm -r fetched
    }
}

# What the guest's shell says of itself between two lines, without a process of its own.
cat >typed <<'COMMANDS'
say() {
    echo "= place $1"
    for p in /proc/[0-9]*; do read c <$p/comm && echo "task ${p#/proc/} $c"; done
    while read name more; do echo "module $name"; done </proc/modules
    while read at function; do echo "stack ${function%%+*}"; done </proc/$sleeper/stack
    echo "<5>place $1" >/dev/kmsg
    echo "= end $1"
}
# The shell's own sleep begins with another name.
named() { until read c </proc/$1/comm && [ "$c" = sleep ]; do :; done; }
sleep 5000 & sleeper=$!
named $sleeper
echo "sleeper $sleeper"
say 1
insmod /loop.ko
say 2
sleep 1000 & named $!
sleep 2000 & named $!
say 3
while :; do :; done &
say 4
echo c >/proc/sysrq-trigger
COMMANDS

# record: a shell is told all that line by line, and a mark made behind each place.
record() {
    local command recorder line place
    rm -rf guest keyboard
    mkdir -p guest/bin
    cp "$(command -v busybox)" guest/bin/busybox
    for command in sh insmod sleep; do ln -s busybox "guest/bin/$command"; done
    cp "$kernel_files/lib/modules/$version/kernel/drivers/block/loop.ko" guest || fail 'no module loop'
    mkfifo keyboard
    : >run.out
    bounded 600 "$DITTO" run --record --force -o run.ditto --verbose --append panic=-1 --root guest \
        --kernel "$kernel_files/boot/vmlinuz-$version" --modules "$kernel_files/lib/modules/$version" -- /bin/sh \
        <keyboard >run.out 2>run.err &
    recorder=$!
    exec 3>keyboard
    while IFS= read -r line; do
        echo "$line" >&3
        [[ $line == 'say '[0-9] ]] || continue
        place=${line#say }
        until grep -q "^= end $place" run.out; do
            kill -0 $recorder 2>/dev/null || fail "nothing was said at place $place"
            sleep 0.2
        done
        "$DITTO" ctl run.ditto mark "$place" >/dev/null 2>core.err || fail 'it could not be marked'
    done <typed
    wait $recorder # a panic is no command's status
    exec 3>&-
    tr -d '\r' <run.out >run.text
    sleeper=$(sed -n 's/^sleeper //p' run.text)
    tr -d '\r' <run.err >console.text
    grep -q 'sysrq triggered crash' console.text || fail 'it did not panic'
}

# ---- what the tools say ----

cat >drgn.py <<'PYTHON'
import sys
from drgn.helpers.linux.pid import for_each_task, find_task
from drgn.helpers.linux.percpu import per_cpu
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.printk import get_dmesg
def name_of(frame): # an entry in assembler has a symbol only
    try:
        return (frame.name or frame.symbol().name).split(".")[0]
    except LookupError:
        return ""
for task in for_each_task(prog):
    print("task", int(task.pid), task.comm.string_().decode())
for module in list_for_each_entry("struct module", prog["modules"].address_of_(), "list"):
    print("module", module.name.string_().decode())
for frame in prog.stack_trace(find_task(prog, int(sys.argv[1]))):
    print("stack", frame.name)
running = per_cpu(prog["runqueues"], 0).curr
print("pid", int(running.pid))
for frame in prog.stack_trace(running):
    print("running", name_of(frame))
for line in get_dmesg(prog).decode(errors="replace").splitlines():
    print("log", line)
PYTHON

# said PLACE KIND: what the guest said of it there, sorted.
said() {
    sed -n "/^= place $1\$/,/^= end/p" run.text | sed -n "s/^$2 //p" | sort
}

# shown FILE KIND
shown() {
    sed -n "s/^$2 //p" "$1" | sort
}

# of_all FILE: without what changes by itself: what a worker does, and ext4's thread of a mount's first seconds. A name
# has 15 bytes, but for the kernel's own.
of_all() {
    sed -e 's/\(kworker[^-]*\)-.*/\1/' -e '/ ext4lazyinit$/d' "$1" | awk '{ print $1, substr($2, 1, 15) }' | sort
}

# same WHAT GUEST TOOL
same() {
    cmp -s "$2" "$3" && return
    diff "$2" "$3" | head -n 20 >&2
    fail "$1 are not what the guest said"
}

# as_said TOOL PLACE KIND FILE: what a tool shows of that kind, in FILE, is what the guest said there
as_said() {
    said "$2" "$3" >list
    of_all list >said.same
    shown "$4" "$3" >list
    of_all list >shown.same
    [ "$3 $2" = 'module 1' ] || [ -s said.same ] || fail "the guest said no $3 at place $2"
    same "$1's ${3}s at place $2" said.same shown.same
}

# frames FILE PID [innermost]: the functions of that task's stacks, as crash shows them, or of the innermost one
frames() {
    awk -v pid="$2" -v innermost="${3:-}" '
        /^PID: / { shown = $2 == pid }
        /^--- / && innermost { shown = 0 }
        shown && /^ *#[0-9]/ { sub(/^ *#[0-9]+ /, ""); print $2 }' "$1" | names
}

# names: functions, as tools agree on them: a part of one is it, and of two names of an address either may be said
names() {
    sed -e 's/\.[a-z0-9.]*$//' -e 's/^asm_call_.*on_stack$/asm_call_on_stack/' | sort -u
}

# lacks LIST OTHER: what of a sorted list is not in the other, in ./missing; false: nothing
lacks() {
    comm -23 "$1" "$2" >missing
    [ -s missing ]
}

# tasks_of FILE: PIDs and names that crash has shown
tasks_of() {
    awk '{ sub(/^>/, "") } $1 ~ /^[0-9]+$/ && NF >= 9 && $1 > 0 { gsub(/[][]/, "", $9); print "task", $1, $9 }' "$1"
}

# look_by_crash WHOSE PLACE: that crash's tasks and stacks, of one that sleeps and of what runs, at a mark
look_by_crash() {
    printf 'ps\nbt %s\nbt -a\nquit\n' "$sleeper" | crash_of "$1" -s "$symbols" core >crash.tasks 2>&1 ||
        fail "crash of $1 at mark $2"
    as_said "crash of $1" "$2" task <(tasks_of crash.tasks)
    frames crash.tasks "$sleeper" >shown.stack
    ! lacks said.stack shown.stack || fail "the sleeping task's stack of $1's crash at mark $2 lacks $(<missing)"
    # drgn has functions that are part of others, too, not where the idle task came from, and of 6.1 no other stack than
    # the innermost. Where user code runs crash shows what an interrupt before has left on the kernel's stack.
    sed -n 's/^running \(.\)/\1/p' drgn.out | names >said.running
    [ -s said.running ] || return 0
    frames crash.tasks "$(sed -n 's/^pid //p' drgn.out)" innermost | grep -v '^secondary_startup' >shown.stack
    [ -s shown.stack ] || fail "crash of $1 shows nothing of what runs at mark $2"
    ! lacks shown.stack said.running || fail "$1's crash at mark $2 has more that runs than drgn: $(<missing)"
}

count=0
# tried WHAT
tried() {
    count=$((count + 1))
    echo "ok $count $kernel: $1"
}

# look_at_mark PLACE
look_at_mark() {
    local place=$1 kind
    "$DITTO" core --quiet --force "run.ditto@mark:$place" -o core 2>core.err || fail "no core at mark $place"
    bounded 300 drgn -q -c core -s "$symbols" drgn.py "$sleeper" >drgn.out 2>core.err || fail "drgn, at mark $place"
    for kind in task module; do
        as_said drgn "$place" $kind drgn.out
    done
    # The guest's own trace has what called into the scheduler, and ends at the entry of a system call.
    said "$place" stack | grep -v '^entry_' >said.stack
    shown drgn.out stack >shown.stack
    [ -s said.stack ] || fail "the guest said no stack at mark $place"
    ! lacks said.stack shown.stack || fail "drgn's stack of the sleeping task at mark $place lacks $(<missing)"
    grep '^log ' drgn.out | tail -n 1 | grep -q "place $place\$" || fail "drgn's log at mark $place"
    for kind in $tasks_by; do
        look_by_crash "$kind" "$place"
    done
    "$DITTO" core --quiet --compress --force "run.ditto@mark:$place" -o core 2>core.err || fail 'no compressed core'
    bounded 300 drgn -q -c core -s "$symbols" drgn.py "$sleeper" >packed.out 2>core.err ||
        fail "drgn, compressed, at mark $place"
    same "drgn's words at mark $place, compressed," drgn.out packed.out
    printf 'mod\nlog\nquit\n' | crash_of here -s "$symbols" core >crash.out 2>&1 || fail "crash at mark $place"
    grep -q "place $place\$" crash.out || fail "crash's log at mark $place"
    said "$place" module | while read -r name; do
        grep -q " $name " crash.out || echo "$name"
    done >missing
    [ ! -s missing ] || fail "crash at mark $place shows no $(tr '\n' ' ' <missing)"
    tried "mark $place: drgn's tasks, modules, stack and log, also of a compressed core; crash's log and modules$more"
}

# look_at_panic: by crash (each that can), gdb and drgn
look_at_panic() {
    local output function whose
    "$DITTO" core --quiet --force run.ditto -o core 2>core.err || fail 'no core at the end'
    # What the panic's trace says is called, but for addresses that were only found on the stack.
    sed -n '/Call Trace/,$s/^\[[^]]*\]  \([a-z_0-9]*\)[.a-z0-9]*+0x.*/\1/p' console.text |
        grep -v -E '^(panic|dump_stack|dump_stack_lvl)$' | sort -u >said
    [ "$(wc -l <said)" -ge 5 ] || fail 'no trace of a panic'
    bounded 300 gdb -nx -batch -ex bt "$symbols" core >gdb.out 2>core.err </dev/null || fail 'gdb behind the panic'
    bounded 300 drgn -q -c core -s "$symbols" drgn.py "$sleeper" >drgn.words 2>core.err || fail 'drgn behind the panic'
    sed -n 's/^running \(.*\)/ \1 /p' drgn.words >drgn.out
    as_said drgn 4 task drgn.words
    for whose in here $tasks_by; do
        printf 'ps\nbt\nlog\nquit\n' | crash_of "$whose" -s "$symbols" core >"crash-$whose.out" 2>&1 ||
            fail "crash of $whose behind the panic"
        grep -q 'Kernel panic - not syncing: sysrq triggered crash' "crash-$whose.out" ||
            fail "the log of $whose's crash behind the panic"
    done
    for output in crash-*.out gdb.out drgn.out; do
        while read -r function; do
            grep -q "[ #]${function}[ (.]" "$output" || echo "$function"
        done <said >missing
        [ ! -s missing ] || fail "the stack behind the panic in $output lacks $(tr '\n' ' ' <missing)"
    done
    for whose in $tasks_by; do
        as_said "crash of $whose" 4 task <(tasks_of "crash-$whose.out")
    done
    rm -f crash-*.out
    tried "behind the panic: the stack that the guest printed, in crash, gdb and drgn; drgn's tasks$more"
}

echo "1..$((5 * $#))"
for kernel; do
    case $kernel in
    *cloud*) tasks_by= ;;
    bullseye/*) tasks_by=here ;;
    *)
        tasks_by=trixie
        suite_root trixie crash crash || fail "trixie's crash cannot be had"
        ;;
    esac
    more=${tasks_by:+"; tasks and stacks of crash ($tasks_by)"}
    fetch_kernel "${kernel%/*}" "${kernel#*/}"
    record
    for place in 1 2 3 4; do
        look_at_mark $place
    done
    look_at_panic
done
