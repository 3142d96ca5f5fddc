#!/bin/bash
# order.sh [ACCESSES]: how large the order logs are (docs/order.md), as tables in Markdown on stdout and
# in build/order.md: of made-up accesses of 4 vCPUs (tests/tools/access_trace.c; default 40000 of each),
# for each share of loads and each number of objects that are shared: constraints / bytes / after zlib,
# and the times of a replay (dittovm order --help). Nothing in it depends on the
# machine, or on how busy it is.
set -u
tree=$(cd "$(dirname "$0")/../.." && pwd)
. "$tree/tests/lib/common.sh"
accesses=${1:-40000}
shares='0 250 500 750 900 1000'
work=$(mktemp -d "$BUILD/order-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
logs=(ditto leap jarec dejavu levels)

# cells ARGUMENT...: "| accesses | constraints / bytes / after zlib | ... |" of all logs.
cells() {
    "$BUILD/tools/access_trace" accesses="$accesses" "$@" >"$work/trace" &&
        "$DITTO" order --trace "$work/trace" >"$work/table" || return 1
    awk -v logs="${logs[*]}" '
        NR == 1 { printf "| %d |", $1 }
        index(" " logs " ", " " $1 " ") { row[$1] = sprintf(" %d / %d / %d |", $2, $4, $5)
                                          bytes[$1] = $4; zlib[$1] = $5; time[$1] = $6 "/" $7 }
        END { n = split(logs, name, " ")
              for (i = 1; i <= n; i++) printf "%s", row[name[i]]
              printf " %.1f, %.1f |", bytes["leap"] / bytes["ditto"], zlib["leap"] / zlib["ditto"]
              for (i = 1; i <= n; i++) printf "%s%s", (i > 1 ? ", " : " "), time[name[i]]
              printf " |\n" }' "$work/table"
}

# table TITLE ARGUMENT...
table() {
    local title=$1 share objects
    shift
    echo "### $title"
    echo
    echo "| objects | loads | accesses |$(printf ' %s |' "${logs[@]}") leap by ditto | time, uneven |"
    echo "|---|---|---|$(for _ in "${logs[@]}"; do printf -- '---|'; done)---|---|"
    for objects in 1 16 256 4096; do
        for share in $shares; do
            echo "order: $title, $objects objects, $share loads of 1000" >&2
            echo "| $objects | $((share / 10)) % $(cells objects="$objects" loads="$share" "$@")" ||
                return 1
        done
    done
    echo
}

trouble=0
{
    table 'Transitions of ownership' work=50 transitions=1 || trouble=1
    table 'Transitions: 90 % of accesses to objects of its own, 90 % of the others to the last one, pauses' \
        work=50 transitions=1 own=900 again=900 idle=20 || trouble=1
    table 'Every access' work=50 || trouble=1
} >"$work/order.md"
tee "$BUILD/order.md" <"$work/order.md"
exit $trouble
