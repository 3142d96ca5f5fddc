#!/bin/bash
# smp-soak.sh [N]: N recordings (default 20) of Debian's kernel with 2 and with 4 CPUs in turn, which
# boots, runs the image's parallel script and powers off; every fourth one with random turns
# (--chaos). Each is verified. One line a recording, then the totals; exit status 1 when one diverged,
# and those recordings are kept in build/failed. `SECONDS_MAX` bounds each step. `SMP=crew` has the CPUs
# run at the same time, on a slow clock, and the image run its script `hello` only: that is slow.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
rounds=${1:-20}
limit=${SECONDS_MAX:-600}
work=$(mktemp -d "$BUILD/smp-soak-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# one CPUS CHAOS: records and verifies; sets $result to ok or to what went wrong.
one() {
    local -a turns=()
    local script=parallel says='parallel: 1 rounds done, 0 failures'
    [ "$2" = 0 ] || turns=(--chaos "$2")
    [ "${SMP:-uni}" = uni ] || turns+=(--smp crew --slow 10)
    [ "${SMP:-uni}" = uni ] || script=hello says='hello ended with status 0'
    rm -f run.* verify.*
    bounded "$limit" "$DITTO" run --json -o run.ditto --cpus "$1" "${turns[@]}" \
        --append "ditto.script=$script" "$IMAGE" </dev/null >run.out 2>run.err
    local status=$?
    result=ok
    # What was recorded of it is verified in any case.
    [ $status = 0 ] || result="recording failed ($status): $(tail -n 1 run.err)"
    [ $status != 0 ] || grep -q "$says" run.out ||
        result='the guest found a failure of its own'
    bounded "$limit" "$DITTO" verify --json run.ditto >verify.out 2>verify.err </dev/null
    status=$?
    case $status in
    0) [ "$(json_field result verify.out)" = identical ] || result='not identical' ;;
    124 | 137) result="the replay took more than $limit s" ;;
    *) result="status $status: $(grep 'dittovm: the replay' verify.err || tail -n 1 verify.err)" ;;
    esac
}

bad=0 diverged=0
for number in $(seq "$rounds"); do
    cpus=$((number % 2 ? 2 : 4)) chaos=0
    [ $((number % 4)) != 0 ] || chaos=$((RANDOM + 1))
    one $cpus $chaos
    printf '%3d  %d CPUs%s, recorded %6.1f s, %5s forced, %9d bytes; replayed %6.1f s; %s\n' \
        "$number" $cpus "$([ $chaos = 0 ] || echo ", chaos $chaos")" \
        "$(json_field seconds run.err || echo 0)" "$(json_field forced run.err)" \
        "$(stat -c %s run.ditto 2>/dev/null || echo 0)" \
        "$(json_field seconds verify.out || echo 0)" "$result"
    [ "$result" != ok ] || continue
    bad=$((bad + 1))
    [[ $result != *diverged* ]] || diverged=$((diverged + 1))
    keep_failed run.ditto "smp-soak-$(date +%H%M%S)-$number"
    sed 's/^/     /' verify.err 2>/dev/null | tail -n 40
done
echo "$rounds recordings, $diverged diverged, $((bad - diverged)) failed otherwise"
[ $bad = 0 ]
