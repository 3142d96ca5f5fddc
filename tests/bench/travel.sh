#!/bin/bash
# travel.sh [ROUNDS [PLACES]]: what time travel costs in a recording of a restless Linux guest (some 11 s
# a round; default 6, over a minute): a table on stdout (tests/tools/travel_bench.c).
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
export DITTO_DATADIR=$BUILD/khost
work=$(mktemp -d "$BUILD/travel-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
bounded 600 "$DITTO" run --json -o "$work/run.ditto" \
    --append "ditto.script=soak ditto.n=${1:-6}" "$IMAGE" >"$work/run.out" 2>"$work/run.err" </dev/null || {
    echo "travel: the recording failed: $(tail -n 1 "$work/run.err")" >&2
    exit 1
}
echo "A recording of $(json_field seconds "$work/run.err" | cut -c1-4) s," \
    "$(json_field syncs "$work/run.err") sync points, 256 MiB of memory, 256 MiB for checkpoints:"
echo
"$BUILD/tools/travel_bench" "$work/run.ditto" "${2:-20}"
