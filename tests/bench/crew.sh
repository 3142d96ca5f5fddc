#!/bin/bash
# crew.sh [ROUNDS [CPUS]]: vCPUs at the same time (--smp crew) against vCPUs that take turns (--smp uni),
# as a table in Markdown on stdout: the litmus guest `increments` at CPL0, whose share of private accesses
# goes from all to none; medians of ROUNDS (default 3). Seconds of the guest alone, as dittovm says them.
# Of the last recording of the crew: pages that changed hands, forced points, bytes of the order logs.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
export DITTO_DATADIR=$BUILD/khost
rounds=${1:-3} cpus=${2:-2}
accesses=${ACCESSES:-2000000}
work=$(mktemp -d "$BUILD/crew-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# guest PRIVATE ARGUMENT...: a run; its seconds are added to the file `took`.
guest() {
    local private=$1
    shift
    bounded 300 "$DITTO" run --json --memory 32M --cpus "$cpus" "$@" \
        --append "user=0 cpus=$cpus accesses=$accesses objects=4 private=$private" \
        --kernel "$BUILD/litmus/increments.elf" >run.out 2>run.err </dev/null || {
        echo "crew: a run failed: $(tail -n 1 run.err)" >&2
        exit 1
    }
    json_field seconds run.err >>took
}

# median PRIVATE ARGUMENT...: of the seconds of so many runs.
median() {
    rm -f took
    for _ in $(seq "$rounds"); do
        guest "$@" || exit 1
    done
    sort -g took | awk '{ s[NR] = $1 } END { printf "%.2f", s[int((NR + 1) / 2)] }'
}

echo "$cpus vCPUs, $accesses accesses each, half of them loads, 4 shared pages; seconds, medians of $rounds:"
echo
echo "| private | uni | crew | uni recorded | crew recorded | replayed | pages moved | forced | ditto | leap | jarec | dejavu |"
echo "|---|---|---|---|---|---|---|---|---|---|---|---|"
for private in 100 99 95 80 50 0; do
    row="| $private % | $(median $private) | $(median $private --smp crew) | $(median $private --force -o uni.ditto)"
    row+=" | $(median $private --smp crew --force -o crew.ditto)"
    bounded 300 "$DITTO" verify --json crew.ditto >verify.out 2>verify.err </dev/null || {
        echo "crew: a replay failed: $(tail -n 1 verify.err)" >&2
        exit 1
    }
    bounded 60 "$DITTO" order crew.ditto >order.out 2>order.err </dev/null || : >order.out
    row+=$(printf ' | %.2f' "$(json_field seconds verify.out)")
    row+=$(awk -v forced="$(json_field forced run.err)" '
        NR == 1 { moved = $1 }
        /^(ditto|leap|jarec|dejavu) / { bytes[$1] = $4 }
        END { printf " | %d | %d | %d | %d | %d | %d |", moved, forced,
              bytes["ditto"], bytes["leap"], bytes["jarec"], bytes["dejavu"] }' order.out)
    echo "$row"
done
