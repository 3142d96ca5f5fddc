#!/bin/bash
# landing-soak.sh [N [GUEST...]]: N recordings (default 20) of each guest, each verified, the first five
# twice: those of tests/guests/list.cfg that say `landing`, or the ones named. One line a recording, the
# totals, and a table of what recording, both replays and landings have cost each guest; exit status 1
# when one diverged or failed, and those recordings are kept in build/failed. `TICKS` makes all of them
# run for so many ticks; `SECONDS_MAX` bounds each step.
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
    rm -f run.ditto run.err verify.*
    bounded "$limit" "$DITTO" run --json -o run.ditto --memory 32M "${what[@]}" \
        --append "$(setting "$1" append '') ticks=$ticks" \
        --kernel "$BUILD/guests/$(setting "$1" file '').elf" >run.out 2>run.err </dev/null
    status=$?
    [ $status = 0 ] || { result="recording failed ($status): $(tail -n 1 run.err)" && return; }
    tr -d '\r' <run.out | grep -qx "ticks $ticks" || { result='the guest did not come to its end' && return; }
    replay first && { [ "$number" -gt 5 ] || replay second; }
}

# replay WHICH: verifies; false, and says in $result why, when the replay was not identical.
replay() {
    last=$1
    bounded "$limit" "$DITTO" verify --json --landings run.ditto >"verify.$1" 2>verify.err </dev/null
    status=$?
    case $status in
    0)
        result=ok
        [ "$(json_field result "verify.$1")" = identical ] || result='not identical'
        ;;
    3) result=DIVERGED ;;
    124 | 137) result="the $1 replay took more than $limit s" ;;
    *) result="status $status: $(tail -n 1 verify.err)" ;;
    esac
    [ "$result" = ok ]
}

# note GUEST: a line of its costs, for the table: seconds recorded, in the first replay and in the
# second or -, exits of the last one's landings (most, median, 99th percentile) and their ms (the same).
note() {
    echo "$recorded $first ${second:--} $(sed -n \
        's/.*"exits": {"max": \([0-9]*\), "median": \([0-9]*\), "p99": \([0-9]*\)}, "ms": {"max": \([0-9.]*\), "median": \([0-9.]*\), "p99": \([0-9.]*\)}.*/\1 \2 \3 \4 \5 \6/p' \
        "verify.$last")" >>"costs.$1"
}

# column EXPRESSION [BUT]: of the lines of costs.$guest that do not fit BUT, one number a line.
column() {
    grep -v "${2:-^$}" "costs.$guest" | awk "{ print $1 }"
}

# table GUEST...: medians over a guest's recordings, but for the last two columns: the most of all.
table() {
    echo
    echo '| guest | recordings | recorded, s | first replay | second replay | exits: median, 99 % | ms: median, 99 % | most exits | most ms |'
    echo '|---|---|---|---|---|---|---|---|---|'
    # shellcheck disable=SC2016 # these are awk's
    for guest; do
        [ -s "costs.$guest" ] || continue
        printf '| %s | %d | %.1f | %.2f | %s | %g, %g | %.1f, %.1f | %d | %.1f |\n' "$guest" \
            "$(wc -l <"costs.$guest")" "$(column '$1' | median)" "$(column '$2 / $1' | median)" \
            "$(column '$3 / $1' ' - ' | median | xargs -r printf '%.2f')" "$(column '$5' | median)" "$(column '$6' | median)" \
            "$(column '$8' | median)" "$(column '$9' | median)" \
            "$(column '$4' | sort -g | tail -n 1)" "$(column '$7' | sort -g | tail -n 1)"
    done
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
        first=$(json_field seconds verify.first 2>/dev/null)
        second=$(json_field seconds verify.second 2>/dev/null)
        printf '%3d %-16s recorded %6.1f s, %4d forced; replayed %6.1f s%s; %s\n' "$number" \
            "$guest" "${recorded:-0}" "${points:-0}" "${first:-0}" "${second:+, again $(printf '%.1f' "$second") s}" "$result"
        recordings=$((recordings + 1)) forced=$((forced + ${points:-0}))
        if [ "$result" = ok ]; then
            landed=$((landed + ${points:-0}))
            note "$guest"
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
table "$@"
[ $bad = 0 ]
