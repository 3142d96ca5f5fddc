#!/bin/bash
# crew.sh [ROUNDS [CPUS]]: vCPUs at the same time (--smp crew) against vCPUs that take turns (--smp uni) and
# vCPUs that nothing holds (--smp loose), as tables in Markdown on stdout: the litmus guest `increments` at
# CPL0, of whose accesses none to all are shared, and then, all of them shared, from stores to loads.
# Seconds of the guest alone, as dittovm says them; medians of ROUNDS (default 3), in each of which all kinds
# of runs take turns. Of the last recording of the crew: pages that changed hands, forced points, constraints
# and bytes of the order logs.
#
# All of it runs in one emulated host, where one is needed (tests/tools/in_host.c).
set -u
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$tree/tests/lib/common.sh"
accesses=${ACCESSES:-60000000}
LOGS='ditto leap jarec dejavu levels'

# ---- inside ----

KINDS='loose uni crew uni-recorded crew-recorded'
declare -A arguments=([loose]='--smp loose' [uni]='--smp uni' [crew]='--smp crew'
    [uni-recorded]='--smp uni --force -o uni.ditto' [crew-recorded]='--smp crew --force -o crew.ditto')

# guest KIND WHAT: one run, with these parameters of the guest's.
guest() {
    # shellcheck disable=SC2086 # arguments are words
    bounded 300 "$DITTO" run --json --memory 32M --cpus "$cpus" ${arguments[$1]} \
        --append "user=0 cpus=$cpus accesses=$accesses objects=4 window=0 $2" \
        --kernel "$BUILD/litmus/increments.elf" >run.out 2>run.err </dev/null || {
        echo "crew: a run failed: $(tail -n 1 run.err)" >&2
        exit 1
    }
    json_field seconds run.err >>"took.$1"
}

# rounds WHAT: so many runs of each kind in turn, the last of which leaves crew.ditto; its replays.
rounds() {
    local kind
    rm -f took.*
    for _ in $(seq "$rounds"); do
        for kind in $KINDS; do
            guest "$kind" "$1"
        done
        replayed replayed
        replayed in-parallel --parallel
    done
}

# took KIND: the median of its seconds.
took() {
    median <"took.$1"
}

# replayed KIND ARGUMENT...: the crew's recording is verified.
replayed() {
    bounded 300 "$DITTO" verify --json "${@:2}" crew.ditto >verify.out 2>verify.err </dev/null || {
        echo "crew: a replay failed: $(tail -n 1 verify.err)" >&2
        exit 1
    }
    json_field seconds verify.out >>"took.$1"
}

# logs TITLE: a row of the table of order logs, into the file `rows`.
logs() {
    bounded 60 "$DITTO" order crew.ditto >order.out || exit 1
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
    echo "| shared | plain parallel | uni | crew | uni recorded | crew recorded | crew by uni | crew replayed | in parallel | pages moved, a second | landings, a second |"
    echo "|---|---|---|---|---|---|---|---|---|---|---|"
    : >rows
    for shared in 0 1 10 100 1000 10000 100000 500000 1000000; do
        percent=$(awk "BEGIN { print $shared / 10000 }")
        rounds "shared=$shared"
        row="| $percent % |"
        for kind in $KINDS; do
            row+=$(printf ' %.2f |' "$(took "$kind")")
        done
        row+=$(awk "BEGIN { printf \" %.2f |\", $(took crew-recorded) / $(took uni-recorded) }")
        row+=$(printf ' %.2f | %.2f |' "$(took replayed)" "$(took in-parallel)")
        logs "$percent % shared, 50 % loads"
        row+=$(awk -v forced="$(json_field forced run.err)" -v took="$(json_field seconds run.err)" '
            NR == 1 { printf " %d, %.0f | %d, %.0f |", $1, $1 / took, forced, forced / took }' order.out)
        echo "$row"
    done
    for loads in 0 3 9; do
        guest crew-recorded "loads=$loads"
        replayed replayed
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
