#!/bin/bash
# soak.sh [N]: N recordings (default 20) of the image's restless soak script, with lines typed at
# random moments, each verified. One line a recording, then the totals; exit status 1 when one
# diverged, and those recordings are kept in build/failed. `SECONDS_MAX` bounds each step.
set -u
tree=$(cd "$(dirname "$0")/.." && pwd)
. "$tree/tests/lib/common.sh"
rounds=${1:-20}
limit=${SECONDS_MAX:-600}
work=$(mktemp -d "$BUILD/soak-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# Types a line at random moments until nobody reads any more.
typist() {
    local i=0
    while sleep "$((RANDOM % 3)).$((RANDOM % 10))"; do
        i=$((i + 1))
        echo "line $i of the typist, $RANDOM" 2>/dev/null || return 0
    done
}

# one NUMBER: records and verifies; sets $result to ok or to what went wrong.
one() {
    rm -f run.ditto run.err verify.out verify.err
    mkfifo typed
    typist >typed &
    local typist=$!
    bounded "$limit" "$DITTO" run --json -o run.ditto --digest-every 5 \
        --append 'ditto.script=soak ditto.n=2' "$IMAGE" <typed >run.out 2>run.err
    local status=$?
    kill $typist 2>/dev/null
    wait $typist 2>/dev/null
    rm -f typed
    result=ok
    [ $status = 0 ] || { result="recording failed ($status): $(tail -n 1 run.err)" && return; }
    grep -q 'soak: 2 rounds done, 0 failures' run.out || result='the guest found a failure of its own'
    bounded "$limit" "$DITTO" verify --json run.ditto >verify.out 2>verify.err </dev/null
    status=$?
    case $status in
    0) [ "$(json_field result verify.out)" = identical ] || result='not identical' ;;
    124 | 137) result="the replay took more than $limit s" ;;
    *) result="status $status: $(grep 'dittovm: the replay' verify.err || tail -n 1 verify.err)" ;;
    esac
}

bad=0 diverged=0 total_bytes=0 recorded_seconds=0 replayed_seconds=0
for number in $(seq "$rounds"); do
    one "$number"
    bytes=$(stat -c %s run.ditto 2>/dev/null || echo 0)
    recorded=$(json_field seconds run.err)
    replayed=$(json_field seconds verify.out 2>/dev/null)
    total_bytes=$((total_bytes + bytes))
    recorded_seconds=$(awk "BEGIN { print $recorded_seconds + ${recorded:-0} }")
    replayed_seconds=$(awk "BEGIN { print $replayed_seconds + ${replayed:-0} }")
    printf '%3d  recorded %6.1f s, %5s forced, %9d bytes; replayed %6.1f s; %s\n' "$number" \
        "${recorded:-0}" "$(json_field forced run.err)" "$bytes" "${replayed:-0}" "$result"
    if [ "$result" != ok ]; then
        bad=$((bad + 1))
        [[ $result != *diverged* ]] || diverged=$((diverged + 1))
        keep_failed run.ditto "soak-$(date +%H%M%S)-$number"
        sed 's/^/     /' verify.err 2>/dev/null | tail -n 40
    fi
done
echo "$rounds recordings, $diverged diverged, $((bad - diverged)) failed otherwise," \
    "recorded in $recorded_seconds s, replayed in $replayed_seconds s, $total_bytes bytes"
[ $bad = 0 ]
