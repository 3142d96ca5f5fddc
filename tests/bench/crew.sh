#!/bin/bash
# crew.sh [ROUNDS [CPUS]]: vCPUs at the same time (--smp crew) against vCPUs that take turns (--smp uni) and
# vCPUs that nothing holds (--smp loose), as tables in Markdown on stdout: the litmus guest `increments` at
# CPL0, of whose accesses none to all are shared, and then, all of them shared, from stores to loads.
# Seconds of the guest alone, as dittovm says them; medians of ROUNDS (default 3). Of the last recording of
# the crew: pages that changed hands, forced points, constraints and bytes of the order logs.
#
# All of it runs in one emulated host, where one is needed (tests/tools/in_host.c).
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/lib/common.sh"
accesses=${ACCESSES:-60000000}
LOGS='ditto leap jarec dejavu levels'

# ---- inside ----

# guest WHAT ARGUMENT...: a run; its seconds are added to the file `took`.
guest() {
    local what=$1
    shift
    bounded 300 "$DITTO" run --json --memory 32M --cpus "$cpus" "$@" \
        --append "user=0 cpus=$cpus accesses=$accesses objects=4 window=0 $what" \
        --kernel "$BUILD/litmus/increments.elf" >run.out 2>run.err </dev/null || {
        echo "crew: a run failed: $(tail -n 1 run.err)" >&2
        exit 1
    }
    json_field seconds run.err >>took
}

# median WHAT ARGUMENT...: sets $median, of the seconds of so many runs.
median() {
    rm -f took
    for _ in $(seq "$rounds"); do
        guest "$@"
    done
    median=$(sort -g took | awk '{ s[NR] = $1 } END { printf "%.2f", s[int((NR + 1) / 2)] }')
}

# replayed: the crew's recording is verified, and its order logs are made; sets $replayed.
replayed() {
    bounded 300 "$DITTO" verify --json crew.ditto >verify.out 2>verify.err </dev/null || {
        echo "crew: a replay failed: $(tail -n 1 verify.err)" >&2
        exit 1
    }
    replayed=$(printf '%.2f' "$(json_field seconds verify.out)")
    bounded 60 "$DITTO" order crew.ditto >order.out || exit 1
}

# logs TITLE: a row of the table of order logs, into the file `rows`.
logs() {
    awk -v title="$1" -v logs="$LOGS" '
        NR == 1 { row = sprintf("| %s | %d |", title, $1) }
        { made[$1] = $2; bytes[$1] = $4 }
        END {
            n = split(logs, log_of, " ")
            for (i = 1; i <= n; i++)
                row = row sprintf(" %d / %d |", made[log_of[i]], bytes[log_of[i]])
            print row
        }' order.out >>rows
}

if [ "${1:-}" = --inside ]; then
    rounds=$2 cpus=$3
    echo "$cpus vCPUs, $accesses accesses each, half of them loads, to 4 shared pages or a page of its own; seconds, medians of $rounds:"
    echo
    echo "| shared | plain parallel | uni | crew | uni recorded | crew recorded | crew by uni | crew replayed | pages moved, a second | landings, a second |"
    echo "|---|---|---|---|---|---|---|---|---|---|"
    : >rows
    for shared in 0 1 10 100 1000 10000 100000 500000 1000000; do
        percent=$(awk "BEGIN { print $shared / 10000 }")
        row="| $percent % |"
        for kind in loose uni crew; do
            median "shared=$shared" --smp $kind
            row+=" $median |"
        done
        median "shared=$shared" --force -o uni.ditto
        uni=$median
        median "shared=$shared" --smp crew --force -o crew.ditto
        replayed
        row+=" $uni | $median | $(awk "BEGIN { printf \"%.2f\", $median / $uni }") | $replayed |"
        row+=$(awk -v forced="$(json_field forced run.err)" -v took="$(json_field seconds run.err)" '
            NR == 1 { printf " %d, %.0f | %d, %.0f |", $1, $1 / took, forced, forced / took }' order.out)
        echo "$row"
        logs "$percent % shared, 50 % loads"
    done
    for loads in 0 3 9; do
        guest "loads=$loads" --smp crew --force -o crew.ditto
        replayed
        logs "all shared, $((100 * loads / (loads + 1))) % loads"
    done
    echo
    echo "Constraints (turns, jumps, intervals) / bytes of the order logs:"
    echo
    echo "| accesses | transitions |$(printf ' %s |' $LOGS)"
    echo "|---|---|$(printf -- '---|%.0s' $LOGS)"
    cat rows
    exit
fi

# ---- outside ----

export DITTO_DATADIR=$BUILD/khost
work=$(mktemp -d "$BUILD/crew-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
"$BUILD/tools/in_host" "$tree/tests/bench/crew.sh" --inside "${1:-3}" "${2:-2}"
