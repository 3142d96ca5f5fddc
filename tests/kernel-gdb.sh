#!/bin/bash
# kernel-gdb.sh: the scripts for gdb of a Debian kernel's own source, with Debian's debug information, on a
# recording: what they show is what the guest printed itself. Fetches up to 1 GB the first time and takes some
# 5 minutes then (guest-tools/gdb/debian-kernel.sh; kept in build/cache).
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$tree/tests/lib/common.sh"
work=$(mktemp -d "$BUILD/kernel-gdb-XXXXXX") || exit 1
replay=
trap '[ -z "$replay" ] || kill $replay; rm -rf "$work"' EXIT
cd "$work" || exit 1

fail() {
    echo "kernel-gdb: $*" >&2
    tail -n 40 run.out run.err replay.err gdb.out 2>/dev/null | tr -d '\r' >&2
    keep_failed run.ditto kernel-gdb >&2
    exit 1
}

mkfifo keyboard
: >run.out
bounded 600 "$DITTO" run --record -o run.ditto --memory 192M "$IMAGE" <keyboard >run.out 2>run.err &
machine=$!
exec 3>keyboard
until grep -q '# ' run.out; do
    kill -0 $machine 2>/dev/null || fail 'no shell came'
    sleep 0.2
done
# shellcheck disable=SC2016 # the guest's shell expands it
{
    echo 'for p in /proc/[0-9]*; do read c <$p/comm && echo "task ${p#/proc/} $c"; done'
    echo 'while read name size users by state at more; do echo "module $at $name"; done </proc/modules'
    echo 'echo "shell $$"; exit'
} >&3
exec 3>&-
wait $machine || fail 'it could not be recorded'
tr -d '\r' <run.out >run.text
shell=$(awk '$1 == "shell" && $2 ~ /^[0-9]+$/ { print $2 }' run.text)
version=$("$DITTO" info run.ditto | awk '$1 == "kernel" { print $2 }')
kernel=$BUILD/cache/kernel-$version
[ -e "$kernel" ] || "$tree/guest-tools/gdb/debian-kernel.sh" "$version" "$kernel" || exit 1

"$DITTO" replay --gdb=unix:"$work/gdb" run.ditto >replay.out 2>replay.err </dev/null &
replay=$!
for ((i = 0; i < 300; i++)); do
    [ ! -S gdb ] || break
    sleep 0.1
done
# The shell opens /proc/modules; a read of the disk before that is in a module.
cat >commands <<'COMMANDS'
break modules_open if $lx_current().pid == $shell
continue
echo == tasks\n
lx-ps
echo == current\n
output $lx_current().pid
echo \n
output $lx_per_cpu("runqueues").curr == &$lx_current()
echo \n== modules\n
lx-lsmod
echo == symbols\n
lx-symbols modules
break virtio_queue_rq
reverse-continue
echo == back\n
backtrace 1
echo == log\n
lx-dmesg
COMMANDS
(cd "$kernel" && bounded 900 gdb -nx -batch -iex "add-auto-load-safe-path $kernel" vmlinux \
    -ex "target remote $work/gdb" -ex "set \$shell = $shell" -x "$work/commands") >gdb.out 2>&1 </dev/null ||
    fail 'gdb failed'

# part NAME: of what gdb said.
part() {
    sed -n "/^== $1\$/,/^== /{/^== /d;p}" gdb.out
}

# same WHAT: the files guest and gdb.
same() {
    [ -s guest ] || fail "the guest printed no $1"
    cmp -s guest gdb.part || fail "$1 differ: $(diff guest gdb.part | head -n 20)"
}

# Threads that work for others come and go meanwhile; the kernel's own have a longer name in /proc.
awk '$1 == "task" && $2 ~ /^[0-9]+$/ && $3 !~ /^(kworker|ext4lazyinit)/ { print $2, substr($3, 1, 15) }' run.text | sort -n >guest
part tasks | awk '$2 ~ /^[0-9]+$/ && $2 > 0 && $3 !~ /^(kworker|ext4lazyinit)/ { print $2, $3 }' | sort -n >gdb.part
same tasks
awk '$1 == "module" && $2 ~ /^0x/ { print $2, $3 }' run.text >guest
part modules | awk '$1 ~ /^0x/ { print $1, $2 }' >gdb.part
same modules
[ "$(part current | tr '\n' ' ')" = "$shell 1 " ] || fail "current: $(part current)"
part back | grep -q '^#0 .*virtio_queue_rq (hctx=0x.*drivers/block/virtio_blk.c' || fail 'not back in the module'
part log | grep -q "Linux version $version " || fail 'no log'
echo "kernel-gdb: $version: $(wc -l <guest) modules, tasks, current, log, back into a module: as the guest says"
