#!/bin/bash
# landing-soak.sh [N [GUEST...]]: N recordings (default 20) of each guest, each verified: those of
# tests/guests/list.cfg that say `landing`, or the ones named. One line a recording, then the totals;
# exit status 1 when one diverged or failed, and those recordings are kept in build/failed.
# `TICKS` makes all of them run for so many ticks; `SECONDS_MAX` bounds each step.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
rounds=${1:-20}
[ $# = 0 ] || shift
limit=${SECONDS_MAX:-600}
work=$(mktemp -d "$BUILD/landing-soak-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# one GUEST: records and verifies; sets $result to ok or to what went wrong.
one() {
    local ticks status
    local -a what
    ticks=${TICKS:-$(setting "$1" landing '')}
    read -ra what <<<"$(setting "$1" args '')"
    rm -f run.ditto run.err verify.out verify.err
    bounded "$limit" "$DITTO" run --json -o run.ditto --memory 32M "${what[@]}" \
        --append "$(setting "$1" append '') ticks=$ticks" \
        --kernel "$BUILD/guests/$(setting "$1" file '').elf" >run.out 2>run.err </dev/null
    status=$?
    [ $status = 0 ] || { result="recording failed ($status): $(tail -n 1 run.err)" && return; }
    tr -d '\r' <run.out | grep -qx "ticks $ticks" || { result='the guest did not come to its end' && return; }
    bounded "$limit" "$DITTO" verify --json run.ditto >verify.out 2>verify.err </dev/null
    status=$?
    case $status in
    0)
        result=ok
        [ "$(json_field result verify.out)" = identical ] || result='not identical'
        ;;
    3) result=DIVERGED ;;
    124 | 137) result="the replay took more than $limit s" ;;
    *) result="status $status: $(tail -n 1 verify.err)" ;;
    esac
}

if [ $# = 0 ]; then
    for guest in $(guests); do
        [ -z "$(setting "$guest" landing '')" ] || [ -n "$(setting "$guest" skip '')" ] ||
            set -- "$@" "$guest"
    done
fi
for guest; do
    [ -n "$(setting "$guest" landing '')" ] && continue
    echo "landing-soak: list.cfg has no guest '$guest' that says 'landing'" >&2
    exit 2
done
recordings=0 bad=0 diverged=0 forced=0 landed=0
for number in $(seq "$rounds"); do
    for guest; do
        one "$guest"
        points=$(json_field forced run.err)
        recorded=$(json_field seconds run.err)
        replayed=$(json_field seconds verify.out 2>/dev/null)
        printf '%3d %-16s recorded %6.1f s, %4d forced; replayed %6.1f s; %s\n' "$number" \
            "$guest" "${recorded:-0}" "${points:-0}" "${replayed:-0}" "$result"
        recordings=$((recordings + 1)) forced=$((forced + ${points:-0}))
        if [ "$result" = ok ]; then
            landed=$((landed + ${points:-0}))
            continue
        fi
        bad=$((bad + 1))
        [ "$result" != DIVERGED ] || diverged=$((diverged + 1))
        keep_failed run.ditto "landing-$guest-$(date +%H%M%S)-$number"
        sed 's/^/     /' verify.err 2>/dev/null | tail -n 40
    done
done
echo "$recordings recordings, $diverged diverged, $((bad - diverged)) failed otherwise;" \
    "$landed of $forced forced points in replays that were identical"
[ $bad = 0 ]
