#!/bin/bash
# core.sh: cores of Linux at five places of a recording, the last one a panic, as drgn, crash and gdb show them with
# Debian's debug symbols: tasks, stacks, log and modules are what the guest printed itself there, where a mark was made.
# Fetches some 300 MB the first time, and keeps 600 MB in build/cache.
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tree/tests/lib/common.sh"
work=$(mktemp -d "$BUILD/core-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "core: $*" >&2
    tail -n 20 run.err core.err 2>/dev/null | tr -d '\r' >&2
    keep_failed run.ditto core >&2
    exit 1
}

for tool in drgn crash gdb; do
    command -v $tool >/dev/null || fail "$tool is not installed; run guest-tools/install-deps.sh core"
done
[ -r "$IMAGE" ] || fail "$IMAGE is not there; run make guest-image"

# ---- a recording ----

# What the guest's shell says of itself between two lines, without a process of its own.
cat >typed <<'COMMANDS'
say() {
    echo "= place $1"
    for p in /proc/[0-9]*; do read c <$p/comm && echo "task ${p#/proc/} $c"; done
    while read name more; do echo "module $name"; done </proc/modules
    while read at function; do echo "stack ${function%%+*}"; done </proc/1/stack
    echo "<5>place $1" >/dev/kmsg
    echo "= end $1"
}
say 1
modprobe loop
say 2
sleep 1000 & sleep 2000 &
say 3
dd if=/dev/vda of=/tmp/copy bs=64k count=100 2>/dev/null
say 4
echo c >/proc/sysrq-trigger
COMMANDS
mkfifo keyboard
: >run.out
bounded 600 "$DITTO" run --record -o run.ditto --memory 256M --append "panic=-1" "$IMAGE" <keyboard >run.out 2>run.err &
recorder=$!
exec 3>keyboard
until grep -q '# ' run.out; do
    kill -0 $recorder 2>/dev/null || fail 'no shell came'
    sleep 0.2
done
# A line at a time: what is typed ahead would be echoed in between.
while IFS= read -r line; do
    echo "$line" >&3
    [[ $line == 'say '* ]] || { sleep 0.2 && continue; }
    place=${line#say }
    until grep -q "^= end $place" run.out; do
        kill -0 $recorder 2>/dev/null || fail "nothing was said at place $place"
        sleep 0.2
    done
    "$DITTO" ctl run.ditto mark "$place" >/dev/null 2>run.err || fail 'it could not be marked'
done <typed
wait $recorder || fail 'it could not be recorded'
exec 3>&-
tr -d '\r' <run.out >run.text
version=$("$DITTO" info run.ditto | awk '$1 == "kernel" { print $2 }')
symbols=$BUILD/cache/vmlinux-$version
[ -e "$symbols" ] || {
    mkdir fetched
    (cd fetched && apt-get download -q "linux-image-$version-dbg" >apt.log 2>&1) || fail "$(tail -n 1 fetched/apt.log)"
    mkdir -p "$BUILD/cache"
    dpkg-deb --fsys-tarfile fetched/*.deb | tar -x -O "./usr/lib/debug/boot/vmlinux-$version" >fetched/vmlinux ||
        fail 'the debug symbols cannot be unpacked'
    mv fetched/vmlinux "$symbols"
    rm -r fetched
}

# ---- what the tools say ----

cat >drgn.py <<'PYTHON'
from drgn.helpers.linux.pid import for_each_task, find_task
from drgn.helpers.linux.percpu import per_cpu
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.printk import get_dmesg
for task in for_each_task(prog):
    print("task", int(task.pid), task.comm.string_().decode())
for module in list_for_each_entry("struct module", prog["modules"].address_of_(), "list"):
    print("module", module.name.string_().decode())
for frame in prog.stack_trace(find_task(prog, 1)):
    print("stack", frame.name)
for frame in prog.stack_trace(per_cpu(prog["runqueues"], 0).curr):
    print("running", frame.name.split(".")[0] if frame.name else "")
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

# of_all FILE: without what changes by itself: what a worker does. A task's name has 15 bytes, but for the kernel's own.
of_all() {
    sed -e 's/\(kworker[^-]*\)-.*/\1/' "$1" | awk '{ print $1, substr($2, 1, 15) }' | sort
}

# same WHAT GUEST TOOL
same() {
    cmp -s "$2" "$3" && return
    diff "$2" "$3" | head -n 20 >&2
    fail "$1 are not what the guest said"
}

count=0
# tried WHAT
tried() {
    count=$((count + 1))
    echo "ok $count $1"
}

echo 1..6
for place in 1 2 3 4; do
    "$DITTO" core --quiet "run.ditto@mark:$place" -o core 2>core.err || fail "no core at mark $place"
    bounded 300 drgn -q -c core -s "$symbols" drgn.py >drgn.out 2>core.err || fail "drgn, at mark $place"
    for kind in task module; do
        said $place $kind >list
        of_all list >said.same
        shown drgn.out $kind >list
        of_all list >shown.same
        [ -s said.same ] || fail "the guest said no $kind at mark $place"
        same "drgn's ${kind}s at mark $place" said.same shown.same
    done
    # The guest's own trace has what called into the scheduler, and ends at the entry.
    said $place stack | grep -v '^entry_' >said.stack
    shown drgn.out stack >shown.stack
    comm -23 said.stack shown.stack >missing
    [ -s said.stack ] || fail "the guest said no stack at mark $place"
    [ ! -s missing ] || fail "drgn's stack of PID 1 at mark $place lacks $(<missing)"
    grep '^log ' drgn.out | tail -n 1 | grep -q "place $place\$" || fail "drgn's log at mark $place"
    "$DITTO" core --quiet --compress --force "run.ditto@mark:$place" -o core 2>core.err || fail 'no compressed core'
    bounded 300 drgn -q -c core -s "$symbols" drgn.py >packed.out 2>core.err || fail "drgn, compressed, at mark $place"
    same "drgn's words at mark $place, compressed," drgn.out packed.out
    printf 'mod\nlog\nquit\n' | bounded 300 crash -s "$symbols" core >crash.out 2>&1 || fail "crash at mark $place"
    grep -q "place $place\$" crash.out || fail "crash's log at mark $place"
    said $place module | while read -r name; do
        grep -q " $name " crash.out || echo "$name"
    done >missing
    [ ! -s missing ] || fail "crash at mark $place shows no $(<missing)"
    rm core
    tried "mark $place: drgn's tasks, modules, stack and log, and from a compressed core; crash's log and modules"
done
"$DITTO" core --quiet run.ditto -o core 2>core.err || fail 'no core at the end'
# What the panic's trace says is called, but for addresses that were only found on the stack, and parts of functions.
sed -n 's/^\[[^]]*\]  \([a-z_0-9]*\)[.a-z0-9]*+0x.*/\1/p' run.text | grep -v -E '^(panic|dump_stack_lvl)$' | sort -u >said
[ "$(wc -l <said)" -ge 5 ] || fail 'no trace of a panic'
printf 'bt\nlog\nquit\n' | bounded 300 crash -s "$symbols" core >crash.out 2>&1 || fail 'crash behind the panic'
bounded 300 gdb -nx -batch -ex bt "$symbols" core >gdb.out 2>core.err </dev/null || fail 'gdb behind the panic'
bounded 300 drgn -q -c core -s "$symbols" drgn.py >drgn.words 2>core.err || fail 'drgn behind the panic'
sed -n 's/^running \(.*\)/ \1 /p' drgn.words >drgn.out
said 4 task >list
of_all list >said.same
shown drgn.words task >list
of_all list >shown.same
same "drgn's tasks behind the panic" said.same shown.same
for output in crash gdb drgn; do
    while read -r function; do
        grep -q "[ #]${function}[ (.]" $output.out || echo "$function"
    done <said >missing
    [ ! -s missing ] || fail "$output's stack behind the panic lacks $(tr '\n' ' ' <missing)"
done
tried "behind the panic: the stack that the guest printed, in crash, gdb and drgn; drgn's tasks"
grep -q 'Kernel panic - not syncing: sysrq triggered crash' crash.out || fail "crash's log behind the panic"
if [ "$(printf 'ps\nquit\n' | bounded 300 crash -s "$symbols" core 2>/dev/null | grep -c .)" -gt 20 ]; then
    tried "crash's tasks"
else
    tried "crash's tasks # SKIP $(crash --version 2>&1 | grep -m 1 "^crash") shows none of this kernel's (docs/core.md)"
fi
