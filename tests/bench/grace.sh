#!/bin/bash
# grace.sh [TICKS [LOAD...]]: what --grace costs, as a table in Markdown on stdout and in
# build/grace.md: how late the interrupts of tests/guests/latency.c (default 20 of them) arrive in a
# recording, and how many forced points it has, for each load (0 to 5; default all) and grace time.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
ticks=${1:-20}
shift
which=${*:-0 1 2 3 4 5}
graces='0 5 10 20 50 100'
loads=('idle (HLT)' 'kernel, a port read every few 1000 instructions' 'kernel, compute' 'user, compute'
    'user, an RDTSC every few 1000 instructions' 'user, an RDTSC every few ms')
work=$(mktemp -d "$BUILD/grace-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# milliseconds WHAT: of a line "WHAT us N" on the console.
milliseconds() {
    tr -d '\r' <run.out | awk -v what="$1" '$1 == what && $2 == "us" { printf "%.1f", $3 / 1000 }'
}

# cell LOAD GRACE
cell() {
    echo "grace: ${loads[$1]}, $2 ms" >&2
    if bounded 300 "$DITTO" run --json --force -o run.ditto --grace "$2" --memory 32M \
        --append "load=$1 ticks=$ticks" --kernel "$BUILD/guests/latency.elf" \
        </dev/null >run.out 2>run.err && [ -n "$(milliseconds median)" ]; then
        echo "$(milliseconds median) / $(milliseconds max) / $(json_field forced run.err)"
        return
    fi
    echo 'failed'
    tail -n 5 run.out run.err >&2
    return 1
}

trouble=0
{
    echo "Latency in ms, median / maximum / forced points, of $ticks interrupts (and one to warm up), on" \
        "$(nproc) CPUs, $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(date -u +%F)."
    echo
    echo "| load | ${graces// / ms | } ms |"
    echo "|---|$(for _ in $graces; do printf -- '---|'; done)"
    for load in $which; do
        row="| ${loads[$load]} |"
        for grace in $graces; do
            row+=" $(cell "$load" "$grace") |" || trouble=1
        done
        echo "$row"
    done
} >grace.md
tee "$BUILD/grace.md" <grace.md
exit $trouble
