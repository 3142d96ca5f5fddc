#!/bin/bash
# bench.sh [PAIRS [WORKLOAD...]]: what recording and replaying cost here, as a table of medians in
# Markdown on stdout and in build/bench.md. Each round (default 3) runs everything once, plain,
# recorded and replayed in turn, so that a slow moment of the machine hits all alike. Times are those
# of the guest's machine itself: what the emulated KVM host takes to start is not in them. Beside
# dittovm: QEMU (TCG) and its record/replay, with the same kernel, initrd and disk.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
. "$tree/tests/lib/rr.sh"
PATH=$PATH:/sbin:/usr/sbin
pairs=${1:-3}
shift
workloads=${*:-boot syscalls forks compute}
work=$(mktemp -d "$BUILD/bench-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# rounds_of WORKLOAD: its ditto.n, for some seconds each in the emulated host.
rounds_of() {
    case $1 in
    syscalls) echo 100 ;;
    forks) echo 300 ;;
    compute) echo 20 ;;
    esac
}

# note WORKLOAD WHAT VALUE
note() {
    echo "$3" >>"$1.$2"
}

# median_of WORKLOAD WHAT: of what was noted, or nothing.
median_of() {
    [ ! -s "$1.$2" ] || median <"$1.$2"
}

failed() {
    echo "bench: $*" >&2
    tail -n 5 run.err >&2
    trouble=1
}

stored() {
    sed -n "s/^ *$1 .* \([0-9]*\) stored\$/\1/p" info.txt
}

run_ditto() {
    local load=$1 append
    append="ditto.script=$load ditto.n=$(rounds_of "$load")"
    bounded 600 "$DITTO" run --json --append "$append" "$IMAGE" </dev/null >run.out 2>run.err ||
        { failed "$load, plain" && return; }
    note "$load" plain "$(json_field seconds run.err)"
    bounded 600 "$DITTO" run --json --force -o run.ditto --append "$append" "$IMAGE" \
        </dev/null >run.out 2>run.err || { failed "$load, recorded" && return; }
    note "$load" recorded "$(json_field seconds run.err)"
    note "$load" record_rss "$(json_field max_rss_kib run.err)"
    note "$load" forced "$(json_field forced run.err)"
    "$DITTO" info run.ditto >info.txt
    note "$load" log $(($(stored events) + $(stored inputs) + $(stored 'time stamps')))
    note "$load" checks "$(stored 'sync points')"
    note "$load" pages "$(stored 'memory and disk pages')"
    bounded 1200 "$DITTO" verify --json run.ditto </dev/null >run.err 2>verify.err ||
        { failed "$load, replayed: $(tail -n 3 verify.err)" && return; }
    note "$load" replayed "$(json_field seconds run.err)"
    note "$load" replay_rss "$(json_field max_rss_kib run.err)"
}

# qemu WORKLOAD HOW: one run to power-off, as rr_run.
qemu() {
    local load=$1 how=$2
    rr_run "$how" -m 256 -nic none -kernel vmlinuz -initrd initrd "${rr_disks[@]}" \
        -append "$(cat cmdline) ditto.script=$load ditto.n=$(rounds_of "$load")"
    grep -q "ditto: $load ended with status 0" run.out || { failed "QEMU, $load, $how" && return; }
    note "$load" "qemu_$how" "$rr_seconds"
}

run_qemu() {
    rm -f rr.bin
    qemu "$1" plain
    qemu "$1" recorded
    note "$1" qemu_log "$(stat -c %s rr.bin)"
    qemu "$1" replayed
}

# seconds WORKLOAD WHAT BASE: the median, and how many times the base's it is.
seconds() {
    awk -v v="$(median_of "$1" "$2")" -v b="$(median_of "$1" "${3:-none}")" 'BEGIN {
        if (v == "") printf "–"
        else if (b == "") printf "%.2f", v
        else printf "%.2f (%.2f×)", v, v / b }'
}

table() {
    echo "Medians of $pairs runs on $(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo |
        head -n 1), Linux $(uname -r), $(date -u +%F)."
    echo
    echo '| workload | plain s | recorded s (to plain) | replayed s (to recorded) | forced points | events, inputs, time stamps: bytes | sync points (checks): bytes | memory and disk pages: bytes | peak MiB recorded, replayed |'
    echo '|---|---|---|---|---|---|---|---|---|'
    for load in $workloads; do
        echo "| $load | $(seconds "$load" plain) | $(seconds "$load" recorded plain) |" \
            "$(seconds "$load" replayed recorded) | $(median_of "$load" forced) |" \
            "$(median_of "$load" log) | $(median_of "$load" checks) | $(median_of "$load" pages) |" \
            "$(($(median_of "$load" record_rss) / 1024)), $(($(median_of "$load" replay_rss) / 1024)) |"
    done
    echo
    echo '| QEMU (TCG) | plain s | recorded s (to plain) | replayed s (to recorded) | log: bytes |'
    echo '|---|---|---|---|---|'
    for load in $workloads; do
        echo "| $load | $(seconds "$load" qemu_plain) | $(seconds "$load" qemu_recorded qemu_plain) |" \
            "$(seconds "$load" qemu_replayed qemu_recorded) | $(median_of "$load" qemu_log) |"
    done
    echo
    grep -q 'emulated KVM host' emulated &&
        echo 'dittovm ran in the emulated KVM host here: compare ratios with QEMU, not seconds.'
}

trouble=0
rr_boot_files || {
    echo "bench: cannot read kernel and initrd out of $IMAGE (debugfs is in e2fsprogs)" >&2
    exit 1
}
rr_disks=()
rr_disk "$IMAGE"
for round in $(seq "$pairs"); do
    for load in $workloads; do
        echo "bench: round $round of $pairs, $load" >&2
        run_ditto "$load"
        grep -h 'emulated KVM host' run.err verify.err >emulated 2>/dev/null
        run_qemu "$load"
    done
done
table | tee "$BUILD/bench.md"
exit $trouble
